// message.js: one message of a chat on the page: text, reasoning, tool calls, figures, buttons.
// SPDX-License-Identifier: Apache-2.0
//
// A message as it is kept: {role: user|assistant|tool, content}, files (files.js) where there are some, and for
// assistants {reasoning, calls: [{id, name, arguments}], state: "open" while it streams, stream and event: its id and
// the last one that was taken, finish, error, problem: which of the actions' remedies may help, stats, before: how many
// tokens it had when it was asked to go on}; tools have {call, name}. Any may have versions (versions.js), and be dropped: the model no longer sees it.
import { element, setText, copyButton } from "./dom.js";
import { filesView } from "./files.js";
import { textView } from "./text.js";
import { versionOf } from "./versions.js";

const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(1) : String(Math.round(ms / 1000))) + " s";

const FINISHES = {
  length: "cut off: it reached the most tokens",
  deadline: "cut off: its time was over",
  stopped: "stopped",
  interrupted: "interrupted",
  content_filter: "withheld",
};
const CUT = new Set(["length", "deadline", "stopped", "interrupted"]);

// Whether more of it may come: it was cut, or its end was lost.
const goesOn = ({ content, reasoning, calls, finish, error, problem }) =>
  Boolean(content || reasoning) && !calls?.length && !problem && Boolean(error || CUT.has(finish));

function figures(message) {
  const { stats, finish } = message, parts = [];
  if (stats?.tokens) {
    parts.push(stats.tokens === 1 ? "1 token" : `${stats.tokens} tokens`);
    const decoded = stats.decoded ?? stats.tokens - 1;
    if (decoded > 0 && stats.decodeMs > 0) {
      const rate = (decoded * 1000) / stats.decodeMs;
      parts.push(`${rate < 10 ? rate.toFixed(1) : Math.round(rate)} tok/s`);
    }
  }
  if (stats?.ttftMs >= 0) parts.push(`first after ${stats.ttftMs < 1000 ? Math.round(stats.ttftMs) + " ms" : seconds(stats.ttftMs)}`);
  if (stats?.prompt) parts.push(`prompt ${stats.prompt}` + (stats.cached ? `, ${stats.cached} of it cached` : ""));
  if (Object.hasOwn(FINISHES, finish)) parts.push(FINISHES[finish]);
  return parts.join(" · ");
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // still coming, or the model's mistake
  }
}

// A tool call: its name, its arguments, and a place to answer it by hand.
function callView(onAnswer) {
  const name = element("b"), code = element("code");
  const input = element("textarea", { rows: "2", "aria-label": "What the tool answers" });
  const send = element("button", { type: "submit", class: "small strong" }, "Answer the call");
  const form = element("form", { class: "call-answer", hidden: true }, input, send);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onAnswer(input.value);
  });
  const node = element("div", { class: "call" },
    element("div", { class: "call-head" }, element("span", {}, "Tool call "), name), element("pre", {}, code), form);
  return {
    node,
    update(call, answerable) {
      setText(name, call.name);
      setText(code, pretty(call.arguments));
      form.hidden = !answerable;
    },
  };
}

function editor(text, onSave, onCancel) {
  const area = element("textarea", { "aria-label": "Edit the message" });
  area.value = text;
  const form = element("form", { class: "editor" }, area,
    element("div", { class: "actions" },
      element("button", { type: "submit", class: "small strong" }, "Send again"),
      element("button", { type: "button", class: "small", onclick: onCancel }, "Cancel")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    onSave(area.value);
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return { form, area };
}

// ‹ 2 / 3 › between the versions of a chat's end (versions.js).
function versionButtons(turn) {
  const number = element("span", { class: "version-number" });
  const back = element("button", { type: "button", class: "small", "aria-label": "Former version", onclick: () => turn(-1) }, "‹");
  const on = element("button", { type: "button", class: "small", "aria-label": "Later version", onclick: () => turn(1) }, "›");
  const node = element("span", { class: "versions", hidden: true }, back, number, on);
  return {
    node,
    update(message, busy) {
      const version = versionOf(message);
      node.hidden = version.count === 1;
      setText(number, `${version.number} / ${version.count}`);
      back.disabled = busy || version.number === 1;
      on.disabled = busy || version.number === version.count;
    },
  };
}

// actions: {edit(text), regenerate(), goOn(), endReasoning(), turn(step), remedies: for each problem {label: run},
// answer(call, text), answerable(call)}; update({busy, last, note, read}) shows what the message now holds, in words what
// its answer waits for, and how much of the prompt is read; last: no other message follows. edit() opens the editor of a
// message that is not the model's.
export function messageView(message, actions) {
  const assistant = message.role === "assistant";
  const who = { user: "You", assistant: "Model", tool: "Tool" }[message.role];
  const body = element("div", { class: "body", dir: "auto" });
  const figuresLine = element("span", { class: "figures" });
  const foot = element("div", { class: "actions" });
  const node = element("article", { class: "message " + message.role, "aria-label": who });
  const calls = [];
  const versions = versionButtons(actions.turn);

  if (!assistant) {
    const plain = element("div", { class: "plain-text" });
    body.append(...filesView(message.files), plain);
    if (message.role === "tool") node.append(element("div", { class: "call-head" }, "Answer of ", element("b", {}, message.name)));
    node.append(body);
    let editing = null;
    const edit = element("button", { type: "button", class: "small", onclick: openEditor }, "Edit");
    function openEditor() {
      if (editing) return editing.area.focus();
      const close = () => {
        editing.form.remove();
        editing = null;
        body.hidden = foot.hidden = false;
        edit.focus();
      };
      editing = editor(message.content, actions.edit, close);
      body.hidden = foot.hidden = true;
      node.append(editing.form);
      editing.area.focus();
    }
    const copy = copyButton(() => message.content);
    foot.append(edit, copy, versions.node);
    node.append(foot);
    return {
      node,
      edit: openEditor,
      update({ busy }) {
        setText(plain, message.content);
        copy.hidden = !message.content;
        node.classList.toggle("dropped", Boolean(message.dropped));
        edit.disabled = busy;
        versions.update(message, busy);
      },
    };
  }

  const thoughts = element("div", { class: "thoughts", dir: "auto" });
  const thoughtsTitle = element("summary");
  const reasoning = element("details", { class: "reasoning", hidden: true }, thoughtsTitle, thoughts);
  const enough = element("button", { type: "button", class: "small", hidden: true }, "Answer now");
  enough.addEventListener("click", () => {
    enough.disabled = true;
    actions.endReasoning();
  });
  const callList = element("div", { class: "calls" });
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const remedies = element("div", { class: "actions remedies", hidden: true });
  const waiting = element("p", { class: "waiting" });
  const read = element("progress", { "aria-label": "The prompt is read", hidden: true });
  const again = element("button", { type: "button", class: "small" }, "Regenerate");
  again.addEventListener("click", () => actions.regenerate());
  const more = element("button", { type: "button", class: "small", onclick: () => actions.goOn() }, "Continue");
  const copy = copyButton(() => message.content);
  foot.append(again, more, copy, versions.node, figuresLine);
  node.append(reasoning, enough, body, callList, waiting, read, error, remedies, foot);
  let shownRemedies;
  function showRemedies(wanted) {
    if (wanted === shownRemedies) return;
    shownRemedies = wanted;
    remedies.hidden = !wanted;
    remedies.replaceChildren(...Object.entries(wanted ?? {}).map(([label, run]) => element("button", { type: "button", class: "small strong", onclick: run }, label)));
  }
  const showThoughts = textView(thoughts), showText = textView(body);

  return {
    node,
    update({ busy, last, note, read: part }) {
      const open = message.state === "open";
      node.classList.toggle("dropped", Boolean(message.dropped));
      reasoning.hidden = !message.reasoning;
      if (message.reasoning) {
        const ms = message.stats?.reasoningMs;
        setText(thoughtsTitle, open && !message.content && !message.calls?.length ? "Reasoning…" : ms ? `Reasoning, ${seconds(ms)}` : "Reasoning");
        // Folded, its nodes are made when someone looks.
        if (reasoning.open) showThoughts(message.reasoning);
      }
      enough.hidden = !open || !message.stream || !message.reasoning || Boolean(message.content || message.calls?.length);
      showText(message.content ?? "");
      (message.calls ?? []).forEach((call, i) => {
        if (!calls[i]) {
          calls[i] = callView((text) => actions.answer(call, text));
          callList.append(calls[i].node);
        }
        calls[i].update(call, !open && !busy && actions.answerable(call));
      });
      const begun = Boolean(message.content || message.reasoning || message.calls?.length);
      waiting.hidden = !open || (begun && !note);
      setText(waiting, note || "Waiting for the first token");
      read.hidden = !open || typeof part !== "number";
      if (!read.hidden) read.value = part;
      error.hidden = !message.error;
      setText(error, message.error ?? "");
      showRemedies(message.error && actions.remedies[message.problem]);
      copy.hidden = !message.content;
      setText(figuresLine, figures(message));
      versions.update(message, busy);
      more.hidden = open || !last || !goesOn(message);
      more.disabled = busy;
      again.hidden = open;
      again.disabled = busy;
    },
    onUnfold(listener) {
      reasoning.addEventListener("toggle", listener);
    },
  };
}
