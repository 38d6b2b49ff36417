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

const BROKEN = "The connection ended before the answer did.";

let chat = null; // {id, title, at, messages}
let views = []; // of chat.messages
let running = null; // {controller, message} while an answer streams
let savedAt = 0;
let drawing = 0;
let following = true;
let leaving = false; // the page goes, and takes its connections with it
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
  stop();
  const kept = id ? loadChat(id) : null;
  chat = kept ?? { id: id && /^[0-9a-f]{1,32}$/.test(id) ? id : newId(), title: "", at: 0, messages: [] };
  for (const message of chat.messages) {
    if (message.state === "open") {
      delete message.state;
      message.finish = "interrupted";
    }
  }
  showAll();
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

async function stream(message, body, signal) {
  const stats = (message.stats = { ttftMs: -1, tokens: 0 });
  const started = performance.now();
  let first = 0, usage = null, finished = false;
  const response = await request("v1/chat/completions", { body, signal });
  for await (const { data } of events(response)) {
    if (data === "[DONE]") {
      finished = true;
      break;
    }
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(event.error.code, errorText(event.error), null);
    if (event.usage) usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) continue;
    if (choice.finish_reason) message.finish = choice.finish_reason;
    if (choice.delta && takeDelta(message, choice.delta)) {
      const now = performance.now();
      if (!first) {
        first = now;
        stats.ttftMs = now - started;
      }
      stats.tokens++; // about one a delta, until the usage says it
      stats.decodeMs = now - first;
      if (message.reasoning && !message.content) stats.reasoningMs = now - first;
      updateSoon();
      if (now - savedAt > SAVE_MS) save();
    }
  }
  if (usage) {
    stats.tokens = usage.completion_tokens;
    stats.prompt = usage.prompt_tokens;
    stats.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (!finished && !message.finish) throw new Error(BROKEN);
}

async function run() {
  const message = { role: "assistant", content: "", state: "open" };
  const mine = chat, controller = new AbortController();
  following = true;
  let body;
  try {
    const fields = requestFields();
    // Once tools have answered, the model may say something.
    if (chat.messages.at(-1)?.role === "tool") delete fields.tool_choice;
    body = { ...fields, model: model || undefined, messages: requestMessages(), stream: true, stream_options: { include_usage: true } };
  } catch (e) {
    message.error = e.message;
  }
  append(message);
  if (body) {
    const job = (running = { controller, message });
    update();
    save();
    byId("announce").textContent = "The model answers.";
    try {
      await stream(message, body, controller.signal);
    } catch (e) {
      if (controller.signal.aborted) message.finish = "stopped";
      else {
        const cut = message.stats?.tokens > 0 ? BROKEN : "The server cannot be reached.";
        message.error = e instanceof TypeError ? cut : e.message;
        if (e.retryAfter) message.error += ` Try again in ${e.retryAfter} s.`;
        if (e.status === 401) onDenied();
      }
    }
    if (running === job) running = null;
    if (leaving) return; // kept as what has not ended
  }
  delete message.state;
  if (chat !== mine) {
    if (loadChat(mine.id)) saveChat(mine); // another one was opened meanwhile; perhaps this one was deleted
    return;
  }
  save();
  update();
  byId("announce").textContent = message.error ? "" : message.finish === "stopped" ? "Stopped." : "The answer is complete.";
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

export function stop() {
  running?.controller.abort();
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
    if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) running.controller.abort();
  });
  byId("stop").addEventListener("click", () => {
    running?.controller.abort();
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
  addEventListener("pageshow", () => (leaving = false));
  addEventListener("visibilitychange", updateSoon);
  // The same chat in another tab: show what that one keeps, unless an answer streams here.
  addEventListener("storage", (event) => {
    if (event.key === chatKey(chat.id) && !running && event.newValue) open(chat.id);
  });

  open(chatInAddress());
  history.replaceState(null, "", "#chat=" + chat.id);
}
