// sidebar.js: the list of the chats in this browser: search, rename, delete, export, import.
// SPDX-License-Identifier: Apache-2.0
import { element, byId, setText } from "./dom.js";
import { openChat, newChat, currentChat, renameChat, showAgain } from "./chat.js";
import { showNotice } from "./notice.js";
import { loadChat, loadChats, onOtherTab, removeChat, saveChat } from "./store.js";

const chatfile = import("./chatfile.js"); // comes after all that a chat needs
const MAX_FILE = 20e6; // bytes; more than any browser keeps for a page
const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
let renaming = false;

const matches = (chat, words) => {
  const text = [chat.title, ...chat.messages.map((m) => m.content)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
};

function remove(chat) {
  const kept = loadChat(chat.id), wasCurrent = chat.id === currentChat().id;
  removeChat(chat.id);
  if (wasCurrent) newChat();
  showSidebar();
  const undo = () => {
    if (!saveChat(kept)) showNotice("The browser has no room left for it.");
    else if (wasCurrent) openChat(chat.id);
    showSidebar();
  };
  showNotice(`Deleted “${chat.title || "Untitled"}”.`, { label: "Undo", run: undo });
}

function rename(chat, item) {
  const input = element("input", { class: "chat-title", "aria-label": "Title", value: chat.title });
  const end = (keep) => {
    if (!renaming) return;
    renaming = false;
    if (keep) renameChat(chat.id, input.value.trim());
    showSidebar();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") end(true);
    else if (event.key === "Escape") {
      event.stopPropagation();
      end(false);
    }
  });
  input.addEventListener("blur", () => end(true));
  renaming = true;
  item.replaceChildren(input);
  input.select();
}

function row(chat) {
  const title = chat.title || "Untitled", current = chat.id === currentChat().id;
  const open = element("button", { type: "button", class: "chat-open", title, "aria-current": current ? "true" : null, onclick: () => openChat(chat.id) },
    element("span", {}, title), element("small", {}, when.format(chat.at)));
  const action = (label, run) => element("button", { type: "button", class: "small", "aria-label": `${label} “${title}”`, onclick: run }, label);
  const item = element("li", {}, open, action("Rename", () => rename(chat, item)), action("Delete", () => remove(chat)));
  return item;
}

export function showSidebar() {
  if (renaming || !document.body.classList.contains("with-chats")) return;
  const words = byId("find-chat").value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = loadChats(), found = all.filter((chat) => matches(chat, words));
  byId("chat-list").replaceChildren(...found.map(row));
  setText(byId("chats-note"), found.length ? "" : all.length ? "No chat has these words." : "None yet.");
  byId("export-all").disabled = !all.length;
  for (const id of ["export-markdown", "export-json"]) byId(id).disabled = !currentChat().messages.length;
}

const inWords = (n) => `${n} ${n === 1 ? "chat" : "chats"}`;

// Of a chat that is here already, the later one stays. Returns what became of it.
function keep({ read, ...chat }, here) {
  const same = here.same({ ...chat, read });
  if (same && (same.id !== chat.id || same.at >= chat.at)) return "known";
  if (!saveChat(chat)) throw new Error("the browser has no room left");
  here.add(chat);
  if (chat.id === currentChat().id) showAgain();
  return same ? "renewed" : "imported";
}

async function take(files) {
  const counts = { imported: 0, renewed: 0, known: 0 };
  for (const file of files) {
    try {
      const { fromText, catalogue } = await chatfile;
      if (file.size > MAX_FILE) throw new Error("it is too large");
      const given = fromText(await file.text()), here = catalogue(loadChats());
      for (const chat of given) counts[keep(chat, here)]++;
    } catch (e) {
      showNotice(`${file.name} was not imported: ${e.message}.`);
      showSidebar();
      return;
    }
  }
  const also = [[counts.renewed, "renewed"], [counts.known, "here already"]].filter(([n]) => n).map(([n, how]) => `, ${n} ${how}`).join("");
  showNotice(`Imported ${inWords(counts.imported)}${also}.`);
  showSidebar();
}

const fileName = (title) => (title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 40) || "chat").toLowerCase();

export function makeSidebar() {
  const file = byId("import-file");
  byId("find-chat").addEventListener("input", showSidebar);
  const exports = {
    "export-markdown": ({ download, toMarkdown }) => download(fileName(currentChat().title) + ".md", "text/markdown", toMarkdown(currentChat())),
    "export-json": ({ download, toJson }) => download(fileName(currentChat().title) + ".json", "application/json", toJson([currentChat()])),
    "export-all": ({ download, toJson }) => download("chats.json", "application/json", toJson(loadChats())),
  };
  for (const [id, run] of Object.entries(exports)) byId(id).addEventListener("click", () => chatfile.then(run).catch((e) => showNotice(`Not exported: ${e.message}. Load the page anew.`)));
  byId("import").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    take([...file.files]);
    file.value = "";
  });
  onOtherTab(showSidebar);
}
