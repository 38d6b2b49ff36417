// engine.js: the engine as GET /events tells it: figures, ticks, slots. Ends and comes back with the server, and
// rests while nobody looks, so that tabs in the background hold no connection.
// SPDX-License-Identifier: Apache-2.0
import { byId, setText } from "./dom.js";
import { request } from "./api.js";
import { events } from "./sse.js";

const RETRY_MS = [500, 1000, 2000, 5000]; // then every 5 s
const MISSED = 50; // events
const SILENCE_MS = 45000; // a connection without events or comments for that long is taken for dead

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const number = (x) => (x == null || !isFinite(x) ? "–" : count.format(x));
const ms = (x) => (x == null || !isFinite(x) || x <= 0 ? "–" : x < 9.95 ? x.toFixed(1) : count.format(x));
const rate = (x) => (x == null || !isFinite(x) ? "–" : x > 0 && x < 9.95 ? x.toFixed(1) : count.format(x));

function bytes(n) {
  for (const unit of ["bytes", "KiB", "MiB"]) {
    if (n < 1024) return `${n < 10 && unit !== "bytes" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} GiB`;
}

let allBusy = false;
// As far as the last event said: a new request would wait.
export const allSlotsBusy = () => allBusy;

const LINKS = {
  connecting: "Connecting",
  live: "Live",
  asleep: "Not loaded",
  lost: "Server away, trying again",
  denied: "Needs a key",
  paused: "Paused",
};

function showLink(state, text = LINKS[state]) {
  const link = byId("link");
  if (link.dataset.state !== state) link.dataset.state = state;
  setText(byId("link-text"), text);
}

function showFigures(now) {
  setText(byId("rate-decode"), rate(now.rates?.decode));
  setText(byId("rate-prefill"), rate(now.rates?.prefill));
  setText(byId("queue"), number(now.queue));
  setText(byId("suspended"), now.suspended ? `and ${number(now.suspended)} suspended` : "requests");
  for (const name of ["ttft", "tpot", "itl"]) {
    const times = now[name + "_ms"] ?? {};
    for (const part of ["p50", "p99"]) setText(byId(`${name}-${part}`), ms(times[part]));
    setText(byId(`${name}-of`), times.lately === false && times.p50 > 0 ? "so far" : ""); // none in the last seconds
  }
  const cache = now.cache ?? {}, asked = cache.prompt_tokens ?? 0;
  setText(byId("cache-hits"), asked ? `${number(100 * cache.hits)}%` : "–");
  setText(byId("cache-note"), asked ? `of ${number(asked)} tokens` : "");
  setText(byId("cache-memory"), cache.entries == null ? "" : `Prefix cache: ${number(cache.entries)} texts, ${bytes(cache.bytes ?? 0)} of host memory`);
  const kv = now.kv ?? {}, meter = byId("kv");
  meter.max = kv.size || 1;
  meter.value = kv.used ?? 0;
  setText(byId("kv-note"), !kv.size ? "–" : kv.used == null ? number(kv.size) : `${number(kv.used)} of ${number(kv.size)}`);
  const slots = now.slots ?? [], busy = slots.filter((slot) => slot.state !== "idle").length;
  allBusy = slots.length > 0 && busy === slots.length;
  if (slots.length) showLink("live", `${busy} of ${slots.length} slots`);
  else showLink("asleep");
}

// onModel(name, states) hears of the model, and what several do; onDenied() of a key that is missing or wrong. query()
// names the model to watch.
export function startEngine({ onModel, onDenied, query }) {
  let ticks = null, slots = null; // the drawings, which come after all that a chat needs
  let missed = []; // the last events until then
  let controller = null, attempts = 0, retry = 0;

  function draw(now) {
    if (!ticks) {
      missed = [...missed, now].slice(-MISSED);
      return;
    }
    if (now.operator === false) ticks.explain("An operator's key shows ticks, rates and other requests.");
    ticks.add(now.ticks ?? []);
    slots.show(now.slots ?? []);
  }
  Promise.all([import("./ticks.js"), import("./slots.js")]).then(([{ makeTicks }, { makeSlots }]) => {
    ticks = makeTicks(byId("ticks"), byId("tick"));
    slots = makeSlots(byId("slots"));
    missed.splice(0).forEach(draw);
  }, () => {}); // figures are shown all the same

  function take(now) {
    showFigures(now);
    draw(now);
    if (now.model) onModel(now.model, now.models);
  }

  async function listen() {
    clearTimeout(retry);
    const mine = (controller = new AbortController());
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(), SILENCE_MS);
    };
    try {
      alive();
      const response = await request("events" + query(), { signal: mine.signal });
      for await (const { event, data } of events(response, alive)) {
        alive();
        attempts = 0;
        if (event === "tick") take(JSON.parse(data));
      }
    } catch (e) {
      if (e.status === 401) {
        showLink("denied");
        onDenied();
        return; // again when there is a key
      }
    } finally {
      clearTimeout(watchdog);
    }
    if (controller !== mine) return; // paused or restarted
    showLink("lost");
    slots?.lost();
    // Apart from each other, so that many pages do not meet a server that has just come back at once.
    const wait = RETRY_MS[Math.min(attempts++, RETRY_MS.length - 1)];
    retry = setTimeout(listen, wait * (0.75 + Math.random() / 2));
  }

  function pause() {
    clearTimeout(retry);
    const old = controller;
    controller = null;
    old?.abort();
    showLink("paused");
  }
  function restart() {
    pause();
    showLink("connecting");
    attempts = 0;
    listen();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : restart()));
  if (document.hidden) showLink("paused");
  else listen();
  return { restart };
}
