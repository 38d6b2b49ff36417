// chat.js: the conversation: what is in it, how an answer streams in, and what the buttons do.
// SPDX-License-Identifier: Apache-2.0
import { element, byId } from "./dom.js";
import { request, errorText, ApiError } from "./api.js";
import { events } from "./sse.js";
import { messageView } from "./message.js";
import { requestFields, systemPrompt } from "./settings.js";
import { newId, loadChat, saveChat, chatKey } from "./store.js";

const SAVE_MS = 500; // while an answer streams
const NEAR_END_PX = 60; // who is that close to the end wants to follow it

const RETRY_MS = [100, 500, 1000, 2000, 4000]; // to reach a stream again whose connection was lost

const BROKEN = "The connection ended before the answer did.";
const GONE = "The server no longer has this answer: it was restarted, or nobody was there for too long.";

let chat = null; // {id, title, at, messages}
let views = []; // of chat.messages
let running = null; // {controller, message, stopped, left} while an answer streams
let savedAt = 0;
let drawing = 0;
let following = true;
let leaving = false; // the page goes, and takes its connections with it
let resumable = true; // until the server says that it keeps no streams
let onDenied = () => {};
let model = "";

export const setModel = (name) => (model = name);
export const currentChat = () => chat;

// ---- Showing ----

function scrollToEnd() {
  const log = byId("log");
  log.scrollTop = log.scrollHeight;
}

function update() {
  const busy = running !== null;
  views.forEach((view, i) => view.update({ last: i === views.length - 1, busy }));
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  document.body.classList.toggle("empty-chat", chat.messages.length === 0);
  if (following) scrollToEnd();
}

// Once a frame at most; a hidden page has no frames, and needs none.
function updateSoon() {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    // Only the last message changes while an answer streams.
    views.at(-1)?.update({ last: true, busy: running !== null });
    if (following) scrollToEnd();
  });
}

function makeView(message) {
  const view = messageView(message, {
    edit: (text) => sendFrom(chat.messages.indexOf(message), { ...message, content: text }),
    regenerate: () => sendFrom(chat.messages.indexOf(message), null),
    answer: (call, text) => answerCall(message, call, text),
    answerable: (call) => awaitsAnswer(message, call),
  });
  view.onUnfold?.(() => view.update({ last: views.at(-1) === view, busy: running !== null }));
  return view;
}

function showAll() {
  views = chat.messages.map(makeView);
  byId("messages").replaceChildren(...views.map((view) => view.node));
  following = true;
  update();
}

function append(message) {
  chat.messages.push(message);
  const view = makeView(message);
  views.push(view);
  byId("messages").append(view.node);
}

function cutAt(index) {
  chat.messages.length = index;
  for (const view of views.splice(index)) view.node.remove();
}

// ---- Keeping ----

function save() {
  if (chat.messages.length === 0) return;
  chat.title = (chat.messages.find((m) => m.role === "user")?.content ?? "").trim().slice(0, 80);
  chat.at = Date.now();
  savedAt = performance.now();
  saveChat(chat);
}

// The address names the chat, so that a reload, a bookmark and the back button find it.
const chatInAddress = () => new URLSearchParams(location.hash.slice(1)).get("chat");

function open(id) {
  leave();
  const kept = id ? loadChat(id) : null;
  chat = kept ?? { id: id && /^[0-9a-f]{1,32}$/.test(id) ? id : newId(), title: "", at: 0, messages: [] };
  const last = chat.messages.at(-1);
  for (const message of chat.messages) {
    if (message.state === "open" && (message !== last || !message.stream)) {
      delete message.state;
      message.finish = "interrupted";
    }
  }
  showAll();
  if (last?.state === "open") receive(last, null);
}

export function openChat(id) {
  location.hash = "chat=" + id; // hashchange opens it
}

export function newChat() {
  openChat(newId());
  byId("text").focus();
}

// ---- Asking ----

// What the server gets to see of the chat: no reasoning, no answers without content.
function requestMessages() {
  const messages = [];
  if (systemPrompt().trim()) messages.push({ role: "system", content: systemPrompt() });
  for (const { role, content, calls, call } of chat.messages) {
    if (role === "tool") messages.push({ role, tool_call_id: call, content });
    else if (role === "user") messages.push({ role, content });
    else if (calls?.length) {
      const tool_calls = calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
      messages.push({ role, content: content || null, tool_calls });
    } else if (content) messages.push({ role, content });
  }
  return messages;
}

function takeDelta(message, delta) {
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  for (const part of delta.tool_calls ?? []) {
    message.calls ??= [];
    const call = (message.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  return Boolean(delta.reasoning_content || delta.content || delta.tool_calls);
}

// Takes what comes into the message; whether that was all. started: when it was asked for, 0 where that was before this
// page was there: then times say nothing.
async function take(message, response, started) {
  const stats = message.stats;
  let first = 0;
  for await (const { data, id } of events(response)) {
    if (data === "[DONE]") return true;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code, errorText(event.error), null);
    if (id) message.event = id;
    if (event.usage) {
      stats.tokens = event.usage.completion_tokens;
      stats.prompt = event.usage.prompt_tokens;
      stats.cached = event.usage.prompt_tokens_details?.cached_tokens ?? 0;
    }
    const choice = event.choices?.[0];
    if (!choice) continue;
    if (choice.finish_reason) message.finish = choice.finish_detail === "cancelled" ? "stopped" : choice.finish_reason;
    if (!choice.delta || !takeDelta(message, choice.delta)) continue;
    const now = performance.now();
    if (!first) {
      first = now;
      if (started) stats.ttftMs = now - started;
    }
    stats.tokens++; // about one a delta, until the usage says it
    if (started) stats.decodeMs = now - first;
    if (started && message.reasoning && !message.content) stats.reasoningMs = now - first;
    updateSoon();
    if (now - savedAt > SAVE_MS) save();
  }
  return false;
}

async function ask(job, body) {
  const { signal } = job.controller;
  for (;;) {
    try {
      return await request("v1/chat/completions", { body: { ...body, resume: resumable || undefined }, signal });
    } catch (e) {
      if (!resumable || e.field !== "resume") throw e;
      resumable = false;
    }
  }
}

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
});

// A response that goes on after the last event that was taken; null: there is nothing more.
async function again(job) {
  const { message, controller: { signal } } = job;
  for (let i = 0; ; i++) {
    await pause(RETRY_MS[i], signal);
    try {
      const response = await request("v1/streams/" + encodeURIComponent(message.stream), { signal, headers: { "Last-Event-ID": message.event ?? "0" } });
      return response.status === 204 ? null : response;
    } catch (e) {
      if (e.status === 404 || e.status === 410) throw new Error(GONE);
      if (signal.aborted || (e.status && e.status !== 503) || i + 1 === RETRY_MS.length) throw e;
    }
  }
}

// All of an answer, over as many connections as it takes. body: the request; null: it was sent before.
async function follow(job, body) {
  const { message } = job, started = body ? performance.now() : 0;
  let response = null, lost = !body;
  if (body) {
    response = await ask(job, body);
    message.stream = response.headers.get("X-Stream-Id") ?? undefined;
    if (job.stopped) {
      job.controller.abort();
      cancel(message);
    }
    save();
  }
  for (;;) {
    if (lost && (response = await again(job)) === null) return;
    try {
      if (await take(message, response, lost ? 0 : started)) return;
    } catch (e) {
      if (job.controller.signal.aborted || e instanceof ApiError || !message.stream) throw e;
    }
    if (!message.stream) {
      if (message.finish) return;
      throw new Error(BROKEN);
    }
    lost = true;
  }
}

// Runs until the answer's end. body as in follow.
async function receive(message, body) {
  const job = (running = { controller: new AbortController(), message, stopped: false, left: false });
  message.stats ??= { ttftMs: -1, tokens: 0 };
  update();
  save();
  byId("announce").textContent = "The model answers.";
  try {
    await follow(job, body);
  } catch (e) {
    if (!job.stopped && !job.left) {
      const cut = message.stats.tokens > 0 ? BROKEN : "The server cannot be reached.";
      message.error = e instanceof TypeError ? cut : e.message;
      if (e.retryAfter) message.error += ` Try again in ${e.retryAfter} s.`;
      if (e.status === 401) onDenied();
    }
  }
  if (running === job) running = null;
  if (leaving || job.left) return; // kept as what has not ended
  if (job.stopped) message.finish = "stopped";
  delete message.stream;
  delete message.event;
  finish(message);
}

function finish(message) {
  delete message.state;
  save();
  update();
  byId("announce").textContent = message.error ? "" : message.finish === "stopped" ? "Stopped." : "The answer is complete.";
}

function run() {
  const message = { role: "assistant", content: "", state: "open" };
  let body;
  try {
    const fields = requestFields();
    // Once tools have answered, the model may say something.
    if (chat.messages.at(-1)?.role === "tool") delete fields.tool_choice;
    body = { ...fields, model: model || undefined, messages: requestMessages(), stream: true, stream_options: { include_usage: true } };
  } catch (e) {
    message.error = e.message;
  }
  following = true;
  append(message);
  if (body) receive(message, body);
  else finish(message);
}

// Cuts the chat at a message, puts another one there (null: none), and asks.
function sendFrom(index, replacement) {
  if (running || index < 0) return;
  cutAt(index);
  if (replacement) append(replacement);
  if (replacement?.role === "tool" && unanswered()) {
    save();
    update();
  } else run();
  byId("text").focus();
}

export function send(text) {
  if (running || !text.trim()) return false;
  append({ role: "user", content: text });
  run();
  return true;
}

// The connection's end alone would let it go on for a while.
function cancel(message) {
  if (message.stream) request(`v1/streams/${encodeURIComponent(message.stream)}/cancel`, { body: {} }).catch(() => {});
}

// Where the stream's id is not known yet, it is cancelled when it comes; a second time ends the connection all the same.
function stop() {
  const job = running;
  if (!job) return;
  if (job.message.stream || job.stopped || !resumable) job.controller.abort();
  cancel(job.message);
  job.stopped = true;
}

// Another chat is shown: this one's answer goes on for as long as the server waits for a reader, unless it was deleted.
function leave() {
  if (!running) return;
  if (loadChat(chat.id)) save();
  else cancel(running.message);
  running.left = true;
  running.controller.abort();
  running = null;
}

// ---- Tool calls ----

// The last message with calls, when only answers of tools follow it: {message, answered: ids}.
function openCalls() {
  let i = chat.messages.length - 1;
  const answered = new Set();
  for (; i >= 0 && chat.messages[i].role === "tool"; i--) answered.add(chat.messages[i].call);
  const message = chat.messages[i];
  return message?.calls?.length ? { message, answered } : null;
}

function awaitsAnswer(message, call) {
  const calls = openCalls();
  return calls?.message === message && !calls.answered.has(call.id);
}

function unanswered() {
  const calls = openCalls();
  return calls?.message.calls.some((call) => !calls.answered.has(call.id)) ?? false;
}

function answerCall(message, call, text) {
  if (running || !awaitsAnswer(message, call)) return;
  append({ role: "tool", call: call.id, name: call.name, content: text });
  if (unanswered()) {
    save();
    update();
  } else run();
}

// ---- Start ----

export function startChat({ denied }) {
  onDenied = denied;
  const log = byId("log"), text = byId("text"), latest = byId("latest");

  const grow = () => {
    text.style.height = "auto";
    text.style.height = text.scrollHeight + 2 + "px";
  };
  text.addEventListener("input", grow);
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (send(text.value)) {
      text.value = "";
      grow();
    }
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("composer").requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) stop();
  });
  byId("stop").addEventListener("click", () => {
    stop();
    text.focus();
  });

  log.addEventListener("scroll", () => {
    following = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
    latest.hidden = following;
  });
  latest.addEventListener("click", () => {
    following = true;
    scrollToEnd();
  });

  addEventListener("hashchange", () => {
    const id = chatInAddress();
    if (id !== chat.id) open(id);
  });
  addEventListener("pagehide", () => {
    leaving = true;
    save();
  });
  addEventListener("pageshow", (event) => {
    leaving = false;
    if (event.persisted) open(chat.id);
  });
  addEventListener("visibilitychange", updateSoon);
  // The same chat in another tab: show what that one keeps, unless an answer streams here.
  addEventListener("storage", (event) => {
    if (event.key === chatKey(chat.id) && !running && event.newValue) open(chat.id);
  });

  open(chatInAddress());
  history.replaceState(null, "", "#chat=" + chat.id);
}
