// chat.js: the conversation: its messages, its requests, and its buttons.
// SPDX-License-Identifier: Apache-2.0
import { cancelAnswer, endReasoning, newJob, receiveAnswer, stopAnswer } from "./answer.js";
import { byId } from "./dom.js";
import { takeAttached, withFiles } from "./files.js";
import { withMedia } from "./media.js";
import { messageView } from "./message.js";
import { modelName } from "./models.js";
import { hideNotice, showNotice } from "./notice.js";
import { defaultSystem, requestFields } from "./settings.js";
import { newId, loadChat, onOtherTab, removeChat, saveChat } from "./store.js";
import { whenMarkdown } from "./text.js";
import { fork, turn } from "./versions.js";

const SAVE_MS = 500; // while an answer streams
const NEAR_END_PX = 60; // who is that close to the end wants to follow it

const REFUSED_KEY = "The server does not accept this page's key.";
const SUMMARIZE = "Summarize our conversation so far in at most 200 words, with all facts that are needed to go on with it.";
const SUMMARY_TOKENS = 400;

const context = import("./context.js"); // comes after all that a chat needs
let chat = null; // as store.js keeps it
let views = []; // of chat.messages
let running = null; // the job of the answer that streams (answer.js)
let savedAt = 0;
let full = false; // the browser had no room for the chat
let drawing = 0;
let following = true;
let leaving = false; // the page goes, and takes its connections with it
let onDenied = () => {};
let onOpened = () => {}; // another chat is shown
let onChange = () => {}; // this one has another title or place in the list

export const currentChat = () => chat;

// Of the chat that is shown.
export const systemPrompt = () => chat.system ?? defaultSystem();
export function setSystemPrompt(text) {
  chat.system = text;
  if (text || chat.messages.length) save();
  else removeChat(chat.id);
  onChange();
}

// ---- Showing ----

function scrollToEnd() {
  const log = byId("log");
  log.scrollTop = log.scrollHeight;
}

const stateOf = (view) => ({ busy: running !== null, ...(view === views.at(-1) && { last: true, note: running?.note, read: running?.read }) });

function update() {
  const busy = running !== null;
  for (const view of views) view.update(stateOf(view));
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  byId("welcome").hidden = chat.messages.length > 0;
  if (following) scrollToEnd();
}

// Once a frame at most; a hidden page has no frames, and needs none.
function updateSoon() {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    // Only the last message changes while an answer streams.
    const view = views.at(-1);
    view?.update(stateOf(view));
    if (following) scrollToEnd();
  });
}

function makeView(message) {
  const view = messageView(message, {
    edit(text) {
      if (text.trim() || message.files) sendFrom(chat.messages.indexOf(message), { ...message, content: text });
    },
    regenerate: () => sendFrom(chat.messages.indexOf(message), null),
    goOn: () => goOn(message),
    endReasoning: () => endReasoning(message),
    turn: (step) => turnAt(chat.messages.indexOf(message), step),
    remedies: {
      key: { "Enter a key": onDenied },
      context: { "Drop the oldest turns": () => dropOldest(message), "Start anew with a summary": () => startAnew(message) },
      turn: { "Shorten the message": () => views[chat.messages.findLastIndex((m) => m.role === "user")].edit() },
    },
    answer: (call, text) => answerCall(message, call, text),
    answerable: (call) => awaitsAnswer(message, call),
  });
  view.onUnfold?.(() => view.update(stateOf(view)));
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

// Takes the messages from `index` on away; what their successor keeps of them, as versions.js has it.
function cutAt(index) {
  for (const view of views.splice(index)) view.node.remove();
  return fork(chat.messages, index);
}

function turnAt(index, step) {
  if (running || index < 0) return;
  turn(chat.messages, index, step);
  showAll();
  following = false;
  views[index].node.scrollIntoView({ block: "nearest" });
  save();
}

// ---- Keeping ----

function firstWords({ messages }) {
  const first = messages.find((m) => m.role === "user");
  return (first?.content.trim() || first?.files?.[0].name || "").slice(0, 80);
}

function save() {
  if (chat.messages.length === 0 && !chat.system) return;
  if (!chat.named) chat.title = firstWords(chat);
  chat.at = Date.now();
  savedAt = performance.now();
  const kept = saveChat(chat);
  if (full === !kept) return;
  full = !kept;
  if (full) showNotice("The browser has no room left: new messages are lost when you leave this page. Delete chats, or export this one.");
  else hideNotice();
}

// No title: the first words are it again.
export function renameChat(id, title) {
  const one = id === chat.id ? chat : loadChat(id);
  one.named = Boolean(title);
  one.title = title || firstWords(one);
  saveChat(one);
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
  onOpened();
  if (last?.state === "open") receive(last, null);
}

export function openChat(id) {
  location.hash = "chat=" + id; // hashchange opens it
}

// The chat that is shown was kept by somebody else; while an answer streams here, this page's stays.
export function showAgain() {
  if (!running) open(chat.id);
}

export function newChat() {
  openChat(newId());
  byId("text").focus();
}

// ---- Asking ----

// What the server gets to see of the chat: no reasoning, no answers without content.
function requestMessages(messages) {
  const sent = [];
  if (systemPrompt().trim()) sent.push({ role: "system", content: systemPrompt() });
  for (const { role, content, files, calls, call, dropped } of messages) {
    if (dropped) continue;
    if (role === "tool") sent.push({ role, tool_call_id: call, content });
    else if (role === "user") sent.push({ role, content: withMedia(withFiles(content, files), files) });
    else if (calls?.length) {
      const tool_calls = calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
      sent.push({ role, content: content || null, tool_calls });
    } else if (content) sent.push({ role, content });
  }
  return sent;
}

async function showFailure(message, e) {
  message.error = e.message;
  delete message.problem;
  if (e.status === 401) {
    message.problem = "key";
    message.error = REFUSED_KEY;
    onDenied();
  } else if (e.code === "context_length_exceeded") {
    message.problem = turnStarts().length > 1 ? "context" : "turn";
    message.error = await context.then(({ tooLongWords }) => tooLongWords(e.message, message.problem === "turn"), () => e.message);
  }
}

// Runs until the answer's end. body as in receiveAnswer.
async function receive(message, body) {
  const job = (running = newJob(message));
  job.keep = save;
  job.changed = () => {
    if (running !== job) return;
    updateSoon();
    if (performance.now() - savedAt > SAVE_MS) save();
  };
  message.stats ??= { ttftMs: -1, tokens: 0 };
  update();
  save();
  onChange();
  byId("announce").textContent = "The model answers.";
  try {
    await receiveAnswer(job, body);
  } catch (e) {
    if (!job.stopped && !job.left) {
      await showFailure(message, e);
    }
  }
  if (running === job) running = null;
  if (leaving || job.left) return; // kept as what has not ended
  if (job.stopped) message.finish = "stopped";
  for (const key of ["stream", "event", "before"]) delete message[key];
  finish(message);
}

function finish(message) {
  delete message.state;
  save();
  update();
  onChange();
  byId("announce").textContent = message.error ? "" : message.finish === "stopped" ? "Stopped." : "The answer is complete.";
}

function requestBody(messages = chat.messages) {
  const fields = requestFields();
  // Once tools have answered, the model may say something.
  if (messages.at(-1)?.role === "tool") delete fields.tool_choice;
  return { ...fields, model: modelName() || undefined, messages: requestMessages(messages) };
}

function run(versions) {
  const message = { role: "assistant", content: "", state: "open", versions };
  let body;
  try {
    body = requestBody();
  } catch (e) {
    message.error = e.message;
  }
  following = true;
  append(message);
  if (body) receive(message, body);
  else finish(message);
}

// An answer that was cut goes on where it ends (ADR 0103), reasoning too.
function goOn(message) {
  if (running || message !== chat.messages.at(-1)) return;
  let body;
  try {
    body = requestBody(chat.messages.slice(0, -1));
  } catch (e) {
    message.error = e.message;
    return update();
  }
  body.messages.push({ role: "assistant", content: message.content || null, reasoning_content: message.reasoning });
  for (const key of ["finish", "error", "problem"]) delete message[key];
  message.state = "open";
  message.before = message.stats?.tokens ?? 0;
  following = true;
  receive(message, { ...body, continue_final_message: true });
  byId("text").focus();
}

// Asks anew from a message on, with another one in its place, or none. The former version is kept.
function sendFrom(index, replacement) {
  if (running || index < 0) return;
  const versions = cutAt(index);
  if (replacement) append({ ...replacement, versions, dropped: undefined });
  if (replacement?.role === "tool" && unanswered()) {
    save();
    update();
  } else run(replacement ? undefined : versions);
  byId("text").focus();
}

export function send(text, files = []) {
  if (running || !(text.trim() || files.length)) return false;
  append({ role: "user", content: text, files: files.length ? files : undefined });
  run();
  return true;
}

// ---- A chat that is longer than the context, and a key that was refused ----

// Where the turns begin that the model is sent.
const turnStarts = () => chat.messages.flatMap((m, i) => (m.role === "user" && !m.dropped ? [i] : []));

// Both begin at the message whose request was refused, and show why they cannot.
async function remedy(message, find, act) {
  const asked = chat, index = chat.messages.indexOf(message);
  let start;
  try {
    const { firstThatFits, HELP } = await context;
    start = await find(firstThatFits);
    if (start === undefined) {
      message.problem = "turn";
      throw new Error(`Not even the last message fits into the model's context. ${HELP}`);
    }
  } catch (e) {
    message.error = e.message;
    update();
    return;
  }
  if (asked === chat && !running && chat.messages[index] === message) act(index, start);
}

// After a refusal: what is there of an answer goes on.
function askOnceMore(message) {
  if ((message.content || message.reasoning) && !message.calls?.length) goOn(message);
  else sendFrom(chat.messages.indexOf(message), null);
}

const dropOldest = (message) => remedy(message, (firstThatFits) => firstThatFits(turnStarts(), (from) => requestBody(chat.messages.slice(from))), (_index, start) => {
  for (const m of chat.messages.slice(0, start)) m.dropped = true;
  askOnceMore(message);
});

// The summary comes where the answer was to come; the question then begins another chat.
function startAnew(message) {
  const question = chat.messages.findLast((m) => m.role === "user"), asked = chat;
  const end = chat.messages.indexOf(question);
  const bodyFrom = (from) => ({
    model: modelName() || undefined,
    max_tokens: SUMMARY_TOKENS,
    messages: requestMessages([...chat.messages.slice(from, end), { role: "user", content: SUMMARIZE }]),
  });
  remedy(message, (firstThatFits) => firstThatFits(turnStarts().filter((i) => i < end), bodyFrom), async (index, start) => {
    cutAt(index);
    const summary = { role: "assistant", content: "", state: "open" };
    append(summary);
    await receive(summary, bodyFrom(start));
    if (asked !== chat || summary.error || summary.finish === "stopped") return;
    const id = newId();
    open(id);
    location.hash = "chat=" + id;
    chat.system = asked.system;
    send(`Summary of our chat so far:\n\n${summary.content}\n\n${question.content}`, question.files);
  });
}

// There is another key: requests for which the last one was refused are sent again.
export function askAgain() {
  const last = chat.messages.at(-1);
  if (last?.problem === "key") askOnceMore(last);
}

// Another chat is shown: this one's answer goes on for as long as the server waits for a reader, unless it was deleted.
function leave() {
  if (!running) return;
  if (loadChat(chat.id)) save();
  else cancelAnswer(running.message);
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

export function startChat({ denied, opened, changed }) {
  onDenied = denied;
  onOpened = opened;
  onChange = changed;
  const log = byId("log"), text = byId("text"), latest = byId("latest");

  const grow = () => {
    text.style.height = "auto";
    text.style.height = text.scrollHeight + 2 + "px";
  };
  text.addEventListener("input", grow);
  if (matchMedia("(pointer: coarse)").matches) text.removeAttribute("aria-describedby"); // no keys
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running && send(text.value, takeAttached())) {
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
    if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) stopAnswer(running);
  });
  byId("stop").addEventListener("click", () => {
    if (running) stopAnswer(running);
    text.focus();
  });

  for (const button of byId("welcome").querySelectorAll("button")) button.addEventListener("click", () => send(button.textContent));
  let width = 0;
  log.addEventListener("scroll", () => {
    if (log.clientWidth !== width) return; // nobody scrolled: a pane took the text's room, or gave it back
    following = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
    latest.hidden = following;
  });
  new ResizeObserver(() => {
    width = log.clientWidth;
    if (following) scrollToEnd();
  }).observe(log);
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
    if (running) save(); // all else is kept, and who only looked has no later state
  });
  addEventListener("pageshow", (event) => {
    leaving = false;
    if (event.persisted) open(chat.id);
  });
  addEventListener("visibilitychange", updateSoon);
  whenMarkdown(update);
  // The same chat in another tab: show what that one keeps.
  onOtherTab((id, kept) => {
    if (id === chat.id && kept) showAgain();
  });

  open(chatInAddress());
  history.replaceState(null, "", "#chat=" + chat.id);
}
