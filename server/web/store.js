// store.js: chats and settings in the browser's localStorage; they never leave it.
// SPDX-License-Identifier: Apache-2.0

const CHAT = "weir.chat.", SETTINGS = "weir.settings", VIEW = "weir.view";
const MAX_CHATS = 50;

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

// Where the browser's room ends, the oldest other chats make place. Where nothing may be stored, nothing is.
function write(key, value) {
  const text = JSON.stringify(value);
  for (;;) {
    try {
      localStorage.setItem(key, text);
      return;
    } catch {
      const oldest = listChats().filter((chat) => CHAT + chat.id !== key).pop();
      if (!oldest) return;
      removeChat(oldest.id);
    }
  }
}

export const chatKey = (id) => CHAT + id;

export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// A chat as it was kept, or null: {id, title, at, messages}.
export function loadChat(id) {
  const chat = read(CHAT + id);
  return chat && Array.isArray(chat.messages) ? chat : null;
}

export function saveChat(chat) {
  write(CHAT + chat.id, chat);
}

export function removeChat(id) {
  localStorage.removeItem(CHAT + id);
}

// [{id, title, at}], newest first; what is beyond the limit is removed.
export function listChats() {
  const chats = [];
  for (let i = 0; i < localStorage.length; i++) {
    const key = localStorage.key(i);
    if (!key.startsWith(CHAT)) continue;
    const chat = read(key);
    if (chat) chats.push({ id: key.slice(CHAT.length), title: chat.title, at: chat.at });
  }
  chats.sort((a, b) => b.at - a.at);
  for (const chat of chats.splice(MAX_CHATS)) removeChat(chat.id);
  return chats;
}

export const loadSettings = () => read(SETTINGS) ?? {};
export const saveSettings = (settings) => write(SETTINGS, settings);
export const loadView = () => read(VIEW) ?? {};
export const saveView = (view) => write(VIEW, view);
