// message.js: one message of a chat on the page: text, reasoning, tool calls, figures, buttons.
// SPDX-License-Identifier: Apache-2.0
//
// A message is what is kept: {role: user|assistant|tool, content}, and for assistants {reasoning, calls: [{id,
// name, arguments}], state: "open" while it streams, stream and event: its id and the last one that was taken, finish,
// error, stats}; tools have {call, name}.
import { element, setText, copyButton } from "./dom.js";
import { markdownView } from "./markdown.js";

const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(1) : String(Math.round(ms / 1000))) + " s";

const FINISHES = {
  length: "cut off: it reached the most tokens",
  deadline: "cut off: its time was over",
  stopped: "stopped",
  interrupted: "interrupted",
  content_filter: "withheld",
};

function figures(message) {
  const { stats, finish } = message, parts = [];
  if (stats?.tokens) {
    parts.push(`${stats.tokens} tokens`);
    if (stats.tokens > 1 && stats.decodeMs > 0) {
      const rate = ((stats.tokens - 1) * 1000) / stats.decodeMs;
      parts.push(`${rate < 10 ? rate.toFixed(1) : Math.round(rate)} tok/s`);
    }
  }
  if (stats?.ttftMs >= 0) parts.push(`first after ${stats.ttftMs < 1000 ? Math.round(stats.ttftMs) + " ms" : seconds(stats.ttftMs)}`);
  if (stats?.prompt) parts.push(`prompt ${stats.prompt}` + (stats.cached ? `, ${stats.cached} of it cached` : ""));
  if (FINISHES[finish]) parts.push(FINISHES[finish]);
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
    if (area.value.trim()) onSave(area.value);
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

// actions: {edit(text), regenerate(), answer(call, text)}; update({last, busy}) shows what the message now holds.
export function messageView(message, actions) {
  const assistant = message.role === "assistant";
  const who = { user: "You", assistant: "Model", tool: "Tool" }[message.role];
  const body = element("div", { class: "body", dir: "auto" });
  const note = element("span", { class: "figures" });
  const foot = element("div", { class: "actions" });
  const node = element("article", { class: "message " + message.role, "aria-label": who });
  const calls = [];

  if (!assistant) {
    const plain = element("div", { class: "plain-text" });
    body.append(plain);
    if (message.role === "tool") node.append(element("div", { class: "call-head" }, "Answer of ", element("b", {}, message.name)));
    node.append(body);
    let editing = null;
    const edit = element("button", { type: "button", class: "small" }, "Edit");
    edit.addEventListener("click", () => {
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
    });
    foot.append(edit, copyButton(() => message.content));
    node.append(foot);
    return {
      node,
      update({ busy }) {
        setText(plain, message.content);
        edit.disabled = busy;
      },
    };
  }

  const thoughts = element("div", { class: "thoughts", dir: "auto" });
  const thoughtsTitle = element("summary");
  const reasoning = element("details", { class: "reasoning", hidden: true }, thoughtsTitle, thoughts);
  const callList = element("div", { class: "calls" });
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const waiting = element("p", { class: "waiting" }, "Waiting for the first token");
  const again = element("button", { type: "button", class: "small" }, "Regenerate");
  again.addEventListener("click", () => actions.regenerate());
  foot.append(again, copyButton(() => message.content), note);
  node.append(reasoning, body, callList, waiting, error, foot);
  const showThoughts = markdownView(thoughts), showText = markdownView(body);

  return {
    node,
    update({ last, busy }) {
      const open = message.state === "open";
      reasoning.hidden = !message.reasoning;
      if (message.reasoning) {
        const ms = message.stats?.reasoningMs;
        setText(thoughtsTitle, open && !message.content && !message.calls?.length ? "Reasoning…" : ms ? `Reasoning, ${seconds(ms)}` : "Reasoning");
        // Folded, its nodes are made when someone looks.
        if (reasoning.open) showThoughts(message.reasoning);
      }
      showText(message.content ?? "");
      (message.calls ?? []).forEach((call, i) => {
        if (!calls[i]) {
          calls[i] = callView((text) => actions.answer(call, text));
          callList.append(calls[i].node);
        }
        calls[i].update(call, !open && !busy && actions.answerable(call));
      });
      waiting.hidden = !open || Boolean(message.content || message.reasoning || message.calls?.length);
      error.hidden = !message.error;
      setText(error, message.error ?? "");
      setText(note, figures(message));
      again.hidden = open;
      again.disabled = busy;
      foot.classList.toggle("last", last);
      node.classList.toggle("open", open);
    },
    onUnfold(listener) {
      reasoning.addEventListener("toggle", listener);
    },
  };
}
