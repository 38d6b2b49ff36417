// store.js: chats and settings in the browser's localStorage; they never leave it, and only the user deletes one.
// SPDX-License-Identifier: Apache-2.0

const CHAT = "weir.chat.", SETTINGS = "weir.settings", PRESETS = "weir.presets", VIEW = "weir.view";

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

// False: the browser has no room for it, or lets this page store nothing. What was there before stays.
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// A chat as it was kept, or null: {id, title, named, at, system, messages}; named: the title is the user's;
// system: its own system prompt.
export function loadChat(id) {
  const chat = read(CHAT + id);
  return chat && Array.isArray(chat.messages) ? chat : null;
}

export const saveChat = (chat) => write(CHAT + chat.id, chat);
export const removeChat = (id) => localStorage.removeItem(CHAT + id);

// All kept chats, newest first.
export function loadChats() {
  const ids = Object.keys(localStorage).filter((key) => key.startsWith(CHAT)).map((key) => key.slice(CHAT.length));
  const chats = ids.map((id) => ({ ...loadChat(id), id })).filter((chat) => chat.messages);
  return chats.sort((a, b) => b.at - a.at);
}

// Calls `listener` with the id of a chat that another tab kept or deleted.
export function onOtherTab(listener) {
  addEventListener("storage", ({ key, newValue }) => {
    if (key?.startsWith(CHAT)) listener(key.slice(CHAT.length), newValue !== null);
  });
}

export const loadSettings = () => read(SETTINGS) ?? {};
export const saveSettings = (settings) => write(SETTINGS, settings);
export const loadPresets = () => read(PRESETS) ?? {};
export const savePresets = (presets) => write(PRESETS, presets);
export const loadView = () => read(VIEW) ?? {};
export const saveView = (view) => write(VIEW, view);
