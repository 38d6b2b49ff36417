// text.js: texts of answers: at once as they are, and as Markdown as soon as markdown.js and its library are there. The
// first text loads them, and waits for none of it.
// SPDX-License-Identifier: Apache-2.0
import { setText } from "./dom.js";

let loading = null; // the promise of it, once there is a text
let markdownView = null;
let onMarkdown = () => {};

// listener() hears when texts can be shown as Markdown.
export const whenMarkdown = (listener) => (onMarkdown = listener);

let pause = 10000; // ms

// Where it does not come, texts stay as they are, and it is asked for again, after pauses that double.
function load() {
  loading ??= import("./markdown.js").then((module) => {
    markdownView = module.markdownView;
    onMarkdown();
  }, () => {
    setTimeout(() => {
      loading = null;
      load();
    }, pause);
    pause = Math.min(pause * 2, 3600000);
  });
}

// A view of a text that grows: show(text).
export function textView(container) {
  let show = null;
  container.classList.add("plain-text");
  return (text) => {
    if (text) load();
    if (markdownView && !show) {
      container.classList.remove("plain-text");
      container.textContent = "";
      show = markdownView(container);
    }
    if (show) show(text);
    else setText(container, text);
  };
}
