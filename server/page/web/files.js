// files.js: files that go with a message: chosen, dropped or pasted, shown; texts are written into the prompt.
// SPDX-License-Identifier: Apache-2.0
//
// A file is {name, text}, or an image or a sound (media.js).
import { element, byId } from "./dom.js";
import { isMedia, kindOf, mediaView, readMedia } from "./media.js";
import { showNotice } from "./notice.js";

const MAX_BYTES = 1 << 20; // far more than models read
const CHIP_PX = 48, SHOWN_PX = 320; // of images

let attached = []; // to the message that is being written

async function readText(file) {
  if (file.size > MAX_BYTES) throw new Error("it is larger than 1 MiB");
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (e) {
    throw e instanceof TypeError ? new Error("it is not UTF-8 text") : e;
  }
  if (text.includes("\0")) throw new Error("it is not text");
  return text.replace(/\r\n?/g, "\n");
}

function showAttached() {
  byId("attached").hidden = !attached.length;
  byId("attached").replaceChildren(...attached.map((file) => element("li", {}, isMedia(file) ? mediaView(file, CHIP_PX) : null, file.audio ? null : element("span", {}, file.name),
    element("button", { type: "button", class: "small", "aria-label": `Remove ${file.name}`, onclick: () => {
      attached = attached.filter((other) => other !== file);
      showAttached();
      byId("text").focus();
    } }, "Remove"))));
}

async function attach(list) {
  for (const file of list) {
    const kind = kindOf(file);
    try {
      attached.push(kind ? await readMedia(file, kind) : { name: file.name, text: await readText(file) });
    } catch (e) {
      showNotice(`${file.name} cannot be attached: ${e.message}.`);
    }
  }
  showAttached();
  byId("text").focus();
}

// The attached files, which are then part of a message.
export function takeAttached() {
  const files = attached;
  attached = [];
  showAttached();
  return files;
}

// What the model reads: each file in a fence that nothing in it ends, then the message.
export function withFiles(content, files = []) {
  const parts = files.filter((file) => !isMedia(file)).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, content].filter(Boolean).join("\n\n");
}

// The files of a message; texts are folded.
export const filesView = (files = []) => files.map((file) => isMedia(file)
  ? element("div", { class: "file" }, mediaView(file, SHOWN_PX))
  : element("details", { class: "file" }, element("summary", {}, file.name), element("pre", { tabindex: "0" }, file.text)));

export function makeFiles() {
  const input = byId("attach-file"), chat = byId("chat");
  byId("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", async () => {
    await attach([...input.files]);
    input.value = "";
  });
  byId("text").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  // Beside the chat too: a browser would leave the page for a file that nobody takes.
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    chat.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) chat.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    chat.classList.remove("dropping");
    attach([...event.dataTransfer.files]);
  });
}
