// app.js: puts the page's parts together: chat, engine, dialogs.
// SPDX-License-Identifier: Apache-2.0
import { element, byId, setText } from "./dom.js";
import { request, setKey } from "./api.js";
import { startChat, openChat, newChat, setModel, currentChat } from "./chat.js";
import { startEngine } from "./engine.js";
import { makeSettings } from "./settings.js";
import { listChats, removeChat, loadView, saveView } from "./store.js";

const WIDE = matchMedia("(min-width: 60rem)"); // as in style.css

// ---- Model ----

function showModel(name) {
  setModel(name);
  setText(byId("model"), name);
}

async function findModel() {
  try {
    const list = await (await request("v1/models")).json();
    if (list.data?.[0]?.id) showModel(list.data[0].id);
  } catch {
    // /events says it as soon as the server is there.
  }
}

// ---- The engine's pane: beside the chat where there is room, else in its place ----

function showPanes(open) {
  document.body.classList.toggle("with-engine", open);
  byId("toggle-engine").setAttribute("aria-expanded", String(open));
}

function startPanes() {
  const apply = () => showPanes(WIDE.matches ? loadView().engine !== false : false);
  byId("toggle-engine").addEventListener("click", () => {
    const open = !document.body.classList.contains("with-engine");
    if (WIDE.matches) saveView({ ...loadView(), engine: open });
    showPanes(open);
  });
  WIDE.addEventListener("change", apply);
  apply();
}

// ---- Dialogs ----

function askForKey() {
  const dialog = byId("key");
  if (dialog.open) return;
  byId("key-value").value = "";
  dialog.showModal();
}

function showChats() {
  const list = byId("chat-list");
  const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const chats = listChats();
  list.replaceChildren(...chats.map((chat) => {
    const title = chat.title || "Untitled";
    const open = element("button", { type: "button", class: "chat-open", "aria-current": chat.id === currentChat().id ? "true" : null },
      element("span", {}, title), element("small", {}, when.format(chat.at)));
    open.addEventListener("click", () => {
      byId("chats").close();
      openChat(chat.id);
    });
    const remove = element("button", { type: "button", class: "small", "aria-label": `Delete “${title}”` }, "Delete");
    remove.addEventListener("click", () => {
      const wasCurrent = chat.id === currentChat().id;
      removeChat(chat.id);
      if (wasCurrent) newChat();
      showChats();
    });
    return element("li", {}, open, remove);
  }));
  if (!chats.length) list.append(element("li", { class: "hint" }, "None yet."));
  if (!byId("chats").open) byId("chats").showModal();
}

// A click beside a dialog closes it.
for (const id of ["settings", "chats"]) {
  byId(id).addEventListener("click", (event) => {
    if (event.target === byId(id)) byId(id).close();
  });
}

// ---- Start ----

makeSettings();
startPanes();
startChat({ denied: askForKey });
const engine = startEngine({ onModel: showModel, onDenied: askForKey });
findModel();
byId("new-chat").addEventListener("click", newChat);
byId("open-chats").addEventListener("click", showChats);
byId("open-settings").addEventListener("click", () => byId("settings").showModal());
byId("key-form").addEventListener("submit", () => {
  setKey(byId("key-value").value.trim());
  engine.restart();
  findModel();
});
byId("text").focus();
