// slots.js: a lane for each slot: its last 30 seconds, and its present state in words.
// SPDX-License-Identifier: Apache-2.0
import { element, setText } from "./dom.js";
import { palette, prepare, onTheme } from "./canvas.js";

const WINDOW_MS = 30000;
const COLOURS = { prefilling: "prefill", generating: "decode", suspended: "suspended", joined: "joined", busy: "decode" };

function inWords(slot) {
  const cached = slot.cached ? `, ${slot.cached} cached` : "";
  switch (slot.state) {
    case "prefilling":
      return `prefilling ${slot.done} of ${slot.prompt}${cached}`;
    case "generating":
      return `generating ${slot.generated}${cached}`;
    case "suspended":
      return `suspended at ${slot.generated}`;
    case "joined":
      return "joined: another one computes its prefix";
    case "busy":
      return "somebody else's";
    default:
      return slot.state;
  }
}

function lane(id) {
  const canvas = element("canvas", { class: "lane", "aria-hidden": "true" });
  const state = element("td", { class: "state" });
  const row = element("tr", {}, element("th", { scope: "row" }, String(id)), element("td", { class: "strip" }, canvas), state);
  const spans = []; // {state, from, to}, oldest first; the last one goes on
  let last = null;

  function draw(now) {
    const area = prepare(canvas);
    if (!area) return;
    const { context, width, height } = area, colours = palette();
    const x = (t) => width - ((now - t) / WINDOW_MS) * width;
    context.fillStyle = colours.track;
    context.fillRect(0, 0, width, height);
    for (const span of spans) {
      const colour = COLOURS[span.state];
      if (!colour) continue;
      const from = Math.max(0, x(span.from));
      // A short one is seen too, and requests that follow each other stay apart.
      context.fillStyle = colours[colour];
      context.fillRect(from, 0, Math.max(1.5, x(span.to) - from - (span.ended ? 1 : 0)), height);
    }
  }

  return {
    row,
    draw,
    show(slot, now) {
      // A slot may end one request and begin another between two events.
      const restarted = last && slot.state !== "idle" && (slot.generated < last.generated || slot.prompt !== last.prompt);
      const span = spans.at(-1);
      if (span) span.to = now;
      if (!span || span.state !== slot.state || restarted) {
        if (span && (restarted || slot.state === "idle")) span.ended = true;
        spans.push({ state: slot.state, from: now, to: now });
      }
      while (spans.length && spans[0].to < now - WINDOW_MS) spans.shift();
      last = slot;
      const text = inWords(slot), whole = slot.priority ? `${text}, priority ${slot.priority}` : text;
      setText(state, whole);
      if (state.title !== whole) state.title = whole; // the column may be too narrow
      if (row.dataset.state !== slot.state) row.dataset.state = slot.state;
      draw(now);
    },
    lost(now) {
      const span = spans.at(-1);
      if (span) {
        span.to = now;
        spans.push({ state: "unknown", from: now, to: now });
      }
      setText(state, "unknown");
      state.title = "";
      row.dataset.state = "unknown";
    },
  };
}

export function makeSlots(body) {
  const lanes = new Map(); // by slot number
  let shownAt = 0;
  const drawAll = () => {
    const now = performance.now();
    for (const one of lanes.values()) one.draw(now);
  };
  onTheme(drawAll);
  new ResizeObserver(drawAll).observe(body);
  // The strips move on while nothing happens.
  setInterval(() => {
    if (!document.hidden && performance.now() - shownAt > 900) drawAll();
  }, 500);

  return {
    show(slots) {
      const now = (shownAt = performance.now());
      const gone = new Set(lanes.keys());
      for (const slot of slots) {
        gone.delete(slot.id);
        if (!lanes.has(slot.id)) {
          lanes.set(slot.id, lane(slot.id));
          body.append(lanes.get(slot.id).row);
        }
        lanes.get(slot.id).show(slot, now);
      }
      for (const id of gone) {
        lanes.get(id).row.remove();
        lanes.delete(id);
      }
    },
    lost() {
      const now = performance.now();
      for (const one of lanes.values()) one.lost(now);
    },
  };
}
