// chatfile.js: chats as files. JSON holds all of any number of chats; Markdown the text of one, to be read.
// SPDX-License-Identifier: Apache-2.0
import { element } from "./dom.js";
import { withFiles } from "./files.js";
import { cleanMedia, isMedia } from "./media.js";
import { newId } from "./store.js";

const FORMAT = "weir chats";
const NAMES = { user: "You", assistant: "Model" };
const HEADING = /^## (?:You|Model) <!-- (user|assistant) -->$/;

export const toJson = (chats) => JSON.stringify({ format: FORMAT, chats }, null, 1) + "\n";

// A line of a message that looks like a message's beginning gets a backslash, which Markdown does not show.
export function toMarkdown(chat) {
  const parts = [`# ${chat.title || "Untitled"}`];
  for (const { role, content, files, calls } of chat.messages) {
    if (!NAMES[role]) continue;
    parts.push(`## ${NAMES[role]} <!-- ${role} -->`);
    const media = (files ?? []).filter(isMedia).map(({ name }) => `(with ${name})`);
    const text = [...media, withFiles(content, files)].filter(Boolean).join("\n\n");
    if (text) parts.push(text.replace(/^\\*## (You|Model) <!--/gm, "\\$&"));
    for (const call of calls ?? []) parts.push("```json\n" + JSON.stringify({ call: call.name, arguments: call.arguments }) + "\n```");
  }
  return parts.join("\n\n") + "\n";
}

function fromMarkdown(text) {
  const chat = { title: "", messages: [] };
  let lines = null; // of the last message
  const end = () => lines && (chat.messages.at(-1).content = lines.join("\n").trim());
  for (const line of text.split(/\r?\n/)) {
    const role = HEADING.exec(line)?.[1];
    if (role) {
      end();
      lines = [];
      chat.messages.push({ role });
    } else if (lines) lines.push(line.replace(/^\\(\\*## (You|Model) <!--)/, "$1"));
    else if (line.startsWith("# ")) chat.title = line.slice(2);
  }
  end();
  return [{ ...chat, read: true }];
}

// A file is not trusted: of each message, only members that the page knows are taken, and only in their types.
const MESSAGE = { content: "string", reasoning: "string", finish: "string", error: "string", call: "string", name: "string", stats: "object" };

function cleanMessage(given) {
  const message = { role: given.role, content: "" };
  for (const [key, type] of Object.entries(MESSAGE)) if (given[key] && typeof given[key] === type) message[key] = given[key];
  if (Array.isArray(given.calls)) message.calls = given.calls.map(({ id, name, arguments: text }) => ({ id: String(id), name: String(name), arguments: String(text) }));
  if (Array.isArray(given.files) && given.files.length) message.files = given.files.map((file) => cleanMedia(file) ?? { name: String(file.name), text: String(file.text ?? "") });
  if (Array.isArray(given.versions?.before) && Array.isArray(given.versions.after)) {
    const ends = (list) => list.map(cleanMessages).filter((end) => end.length);
    message.versions = { before: ends(given.versions.before), after: ends(given.versions.after) };
  }
  return message;
}

const cleanMessages = (list) => list.filter((m) => ["user", "assistant", "tool"].includes(m?.role)).map(cleanMessage);

// What two chats have in common that say the same; of one that came from Markdown, what Markdown holds.
const contentOf = ({ title, system, messages }, read) =>
  read ? toMarkdown(fromMarkdown(toMarkdown({ title, messages }))[0]) : JSON.stringify([title, system ?? null, cleanMessages(messages)]);

// The chats that are here: same(chat) is the one that an imported chat is already, of the same id or content.
export function catalogue(chats) {
  const ids = new Map(), contents = { false: new Map(), true: new Map() }; // true: as Markdown
  const add = (chat) => {
    ids.set(chat.id, chat);
    for (const read of [false, true]) contents[read].set(contentOf(chat, read), chat);
  };
  chats.forEach(add);
  return { add, same: (chat) => ids.get(chat.id) ?? contents[Boolean(chat.read)].get(contentOf(chat, chat.read)) };
}

// The chats in a file's text; read: from Markdown. Throws an Error where there are none.
export function fromText(text) {
  let found;
  if (text.trimStart()[0] === "{") {
    found = JSON.parse(text);
    if (found.format !== FORMAT || !Array.isArray(found.chats)) throw new Error("it is JSON, but not of chats that this page exported");
    found = found.chats;
  } else found = fromMarkdown(text);
  const chats = found.filter((chat) => Array.isArray(chat?.messages)).map((chat) => ({
    id: typeof chat.id === "string" && /^[0-9a-f]{1,32}$/.test(chat.id) ? chat.id : newId(),
    read: chat.read,
    title: String(chat.title ?? ""),
    named: Boolean(chat.title),
    system: typeof chat.system === "string" ? chat.system : undefined,
    at: Number.isFinite(chat.at) ? Math.min(Math.max(chat.at, 0), Date.now()) : Date.now(), // a time to come would stay the later one
    messages: cleanMessages(chat.messages),
  })).filter((chat) => chat.messages.length);
  if (!chats.length) throw new Error("there is no chat in it");
  return chats;
}

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
