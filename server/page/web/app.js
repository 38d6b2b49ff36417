// app.js: puts the page's parts together: chat, engine, dialogs.
// SPDX-License-Identifier: Apache-2.0
import { byId } from "./dom.js";
import { hasKey, setKey } from "./api.js";
import { askAgain, newChat, setSystemPrompt, startChat, systemPrompt } from "./chat.js";
import { startEngine } from "./engine.js";
import { makeFiles } from "./files.js";
import { findModels, makeModels, modelQuery, servedModel } from "./models.js";
import { makeSettings } from "./settings.js";
import { makeSidebar, showSidebar } from "./sidebar.js";
import { loadView, saveView } from "./store.js";
import { makeTheme } from "./theme.js";

const WIDE = matchMedia("(min-width: 60rem)"); // room for one pane beside the chat; as in style.css
const WIDEST = matchMedia("(min-width: 80rem)"); // for both

// ---- The panes of chats and engine: beside the chat where there is room, else in its place ----

const PANES = { chats: "open-chats", engine: "toggle-engine" }; // and their buttons
const open = { chats: false, engine: false };

function showPanes() {
  for (const [name, button] of Object.entries(PANES)) {
    document.body.classList.toggle("with-" + name, open[name]);
    byId(button).setAttribute("aria-expanded", String(open[name]));
  }
  showSidebar();
}

function toggle(name) {
  open[name] = !open[name];
  if (open[name] && !WIDEST.matches) open[name === "chats" ? "engine" : "chats"] = false;
  if (WIDE.matches) saveView({ ...loadView(), ...open });
  showPanes();
}

function startPanes() {
  for (const [name, button] of Object.entries(PANES)) byId(button).addEventListener("click", () => toggle(name));
  const apply = () => {
    const view = loadView();
    open.engine = WIDE.matches && view.engine === true;
    open.chats = WIDE.matches && view.chats !== false && (WIDEST.matches || !open.engine);
    showPanes();
  };
  for (const query of [WIDE, WIDEST]) query.addEventListener("change", apply);
  apply();
}

// Where a pane lies in the chat's place, the chat comes back.
function showChat() {
  if (!WIDE.matches && (open.chats || open.engine)) {
    open.chats = open.engine = false;
    showPanes();
  } else showSidebar();
}

// ---- Dialogs ----

function askForKey() {
  const dialog = byId("key");
  if (dialog.open) return;
  byId("key-value").value = "";
  byId("key-wrong").hidden = !hasKey();
  dialog.showModal();
}

// A click beside a dialog closes it.
byId("settings").addEventListener("click", (event) => {
  if (event.target === byId("settings")) byId("settings").close();
});

// ---- Start ----

makeTheme();
makeSettings({ get: systemPrompt, set: setSystemPrompt });
startChat({ denied: askForKey, opened: showChat, changed: showSidebar });
makeFiles();
makeSidebar();
startPanes();
const engine = startEngine({ onModel: servedModel, onDenied: askForKey, query: modelQuery });
makeModels(() => engine.restart());
byId("new-chat").addEventListener("click", newChat);
byId("key-form").addEventListener("submit", () => {
  setKey(byId("key-value").value.trim());
  engine.restart();
  findModels();
  askAgain();
});
byId("text").focus();
