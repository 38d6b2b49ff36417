// ticks.js: each tick as a bar: above, the tokens of its batch (decode, draft, prefill on top of each other);
// below, its milliseconds. One tick can be read in words, by pointer or arrow keys.
// SPDX-License-Identifier: Apache-2.0
import { setText } from "./dom.js";
import { palette, prepare, onTheme } from "./canvas.js";

const KEPT = 600; // more than fit side by side
const BAR = 5, GAP = 1; // px
const LEFT = 54; // px for the scale
const MS_SHARE = 0.28; // of the height
const PARTS = ["decode", "draft", "prefill"];

const total = (tick) => (tick.prefill ?? 0) + (tick.decode ?? 0) + (tick.draft ?? 0);

// The smallest of 1, 2, 5, 10, 20 … that is not below x.
function ceiling(x) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(x, 1)));
  return [1, 2, 5, 10].map((f) => f * ten).find((y) => y >= x);
}

export function inWords(tick) {
  const parts = PARTS.filter((part) => tick[part] > 0).map((part) => `${tick[part]} ${part}`);
  const passes = tick.passes > 1 ? ` in ${tick.passes} passes` : "";
  return `${parts.join(" + ") || "no tokens"}, ${tick.ms < 10 ? tick.ms.toFixed(1) : Math.round(tick.ms)} ms${passes}`;
}

export function makeTicks(canvas, readout) {
  const ticks = [];
  let first = 0; // number of the oldest kept tick, so that a chosen one stays chosen while others come
  let chosen = -1;
  let none = "No tick yet.";
  let drawn = 0, spoken = 0;

  const visible = (width) => Math.max(1, Math.floor((width - LEFT) / (BAR + GAP)));

  function words() {
    if (!ticks.length) return none;
    const i = chosen - first;
    if (chosen >= 0 && i >= 0) return `${ticks.length - 1 - i} ticks back: ${inWords(ticks[i])}`;
    return `Latest: ${inWords(ticks.at(-1))}`;
  }

  function draw() {
    drawn = 0;
    setText(readout, words());
    const area = prepare(canvas);
    if (!area) return;
    const { context, width, height } = area, colours = palette();
    const shown = ticks.slice(-visible(width));
    const msHeight = Math.round(height * MS_SHARE), gap = 14;
    const base = height - msHeight - gap, bottom = height - 1;
    const most = ceiling(Math.max(4, ...shown.map(total)));
    const longest = ceiling(Math.max(1, ...shown.map((tick) => tick.ms)));

    context.font = "10px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const level = (y, label) => {
      context.fillStyle = colours.line;
      context.fillRect(LEFT, Math.round(y), width - LEFT, 1);
      context.fillStyle = colours.muted;
      context.fillText(label, LEFT - 5, Math.min(height - 5, Math.max(6, Math.round(y))));
    };
    level(8, String(most));
    level((base + 8) / 2, most % 2 ? "" : String(most / 2));
    level(base, "0");
    level(base + gap + 4, `${longest} ms`);
    level(bottom, "0");

    // Newest at the right edge.
    let x = width - shown.length * (BAR + GAP);
    shown.forEach((tick, i) => {
      let y = base;
      for (const part of PARTS) {
        if (!(tick[part] > 0)) continue;
        // What is there is seen, however small beside a long prompt.
        const h = Math.max(2, Math.round((tick[part] / most) * (base - 8)));
        context.fillStyle = colours[part];
        context.fillRect(x, y - h, BAR, h);
        y -= h;
      }
      const h = Math.max(1, Math.round((tick.ms / longest) * (bottom - base - gap - 4)));
      context.fillStyle = colours.muted;
      context.fillRect(x, bottom - h, BAR, h);
      if (first + ticks.length - shown.length + i === chosen) {
        context.strokeStyle = colours.ink;
        context.strokeRect(x - 0.5, 4.5, BAR + 1, bottom - 4);
      }
      x += BAR + GAP;
    });

    // Screen readers ask when they want to know; they are not told of every tick.
    const now = performance.now();
    if (now - spoken > 3000) {
      spoken = now;
      canvas.setAttribute("aria-label", `Tokens of each tick, up to ${most}; ${words()}`);
    }
  }
  const drawSoon = () => (drawn ||= requestAnimationFrame(draw));

  function choose(number) {
    const last = first + ticks.length - 1;
    chosen = number >= last ? -1 : Math.max(first, number);
    drawSoon();
  }
  canvas.addEventListener("pointermove", (event) => {
    const fromRight = canvas.clientWidth - event.offsetX;
    choose(first + ticks.length - 1 - Math.floor(fromRight / (BAR + GAP)));
  });
  canvas.addEventListener("pointerleave", () => choose(Infinity));
  canvas.addEventListener("blur", () => choose(Infinity));
  canvas.addEventListener("keydown", (event) => {
    const last = first + ticks.length - 1, at = chosen < 0 ? last : chosen;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  });
  new ResizeObserver(drawSoon).observe(canvas);
  onTheme(drawSoon);
  draw();

  return {
    // Why there are none.
    explain(text) {
      if (none !== text) {
        none = text;
        drawSoon();
      }
    },
    add(more) {
      if (!more.length) return;
      ticks.push(...more.slice(-KEPT));
      const old = ticks.splice(0, Math.max(0, ticks.length - KEPT)).length;
      first += old;
      if (chosen >= 0 && chosen < first) chosen = -1;
      drawSoon();
    },
  };
}
