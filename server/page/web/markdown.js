// markdown.js: Markdown into DOM nodes. markdown-it reads it into tokens, and the nodes are made of these one by one: HTML
// in the text is text, and the one attribute that comes from the text, a link's address, passes through safeUrl. Images
// become links, because the page loads nothing from elsewhere.
// SPDX-License-Identifier: Apache-2.0
import MarkdownIt from "./lib/markdown-it.js";
import { element, copyButton } from "./dom.js";
import { formula, formulaRules } from "./formula.js";
import { showCode } from "./code.js";

const MAX_NESTING = 40; // of blocks, emphasis and links inside each other

// The address when following it runs nothing here, else null.
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function makeParser() {
  const parser = new MarkdownIt({ linkify: true, breaks: true, maxNesting: MAX_NESTING });
  parser.validateLink = (url) => safeUrl(url) !== null;
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  parser.disable("reference"); // what stands far below changes nothing above, which may have been shown long ago
  return parser.use(formulaRules);
}
const parser = makeParser();

// ---- Tokens that are one node ----

function codeBlock(text, language) {
  const code = element("code");
  showCode(code, text, language);
  return element("div", { class: "code" },
    element("div", { class: "code-head" }, element("span", {}, language || "text"), copyButton(() => text)),
    element("pre", { tabindex: "0" }, code));
}

const withoutEnd = (text) => text.replace(/\n$/, "");

function link(url) {
  const href = safeUrl(url);
  return href ? element("a", { href, target: "_blank", rel: "noopener noreferrer" }) : element("span");
}

const NODES = {
  text: (token) => token.content,
  text_special: (token) => token.content,
  softbreak: () => element("br"), // models break lines where they mean it
  hardbreak: () => element("br"),
  hr: () => element("hr"),
  code_inline: (token) => element("code", {}, token.content),
  code_block: (token) => codeBlock(withoutEnd(token.content), ""),
  fence: (token) => codeBlock(withoutEnd(token.content), token.info.trim().split(/\s/, 1)[0]),
  formula: (token) => formula(token.content, token.markup, token.block),
  image(token) {
    const node = link(token.attrGet("src"));
    addNodes(node, token.children);
    return node;
  },
};

// ---- Tokens that hold others ----

const plain = (name) => () => element(name);
const cell = (name) => (token) => element(name, { class: /(right|center)/.exec(token.attrGet("style"))?.[0] });

const PARENTS = {
  paragraph_open: plain("p"),
  heading_open: (token) => element("h" + Math.min(6, Number(token.tag[1]) + 2)), // below the page's own h1 and h2
  blockquote_open: plain("blockquote"),
  bullet_list_open: plain("ul"),
  ordered_list_open: (token) => element("ol", { start: token.attrGet("start") }),
  list_item_open: plain("li"),
  table_open: plain("table"),
  thead_open: plain("thead"),
  tbody_open: plain("tbody"),
  tr_open: plain("tr"),
  th_open: cell("th"),
  td_open: cell("td"),
  em_open: plain("em"),
  strong_open: plain("strong"),
  s_open: plain("del"),
  link_open: (token) => link(token.attrGet("href")),
};

// "[ ] " and "[x] " begin an item of a task list.
function addTask(parent, tokens) {
  const first = tokens[0], mark = first?.type === "text" && /^\[([ xX])\] /.exec(first.content);
  if (!mark) return tokens;
  parent.closest("li").classList.add("task");
  parent.append(element("input", { type: "checkbox", disabled: true, checked: mark[1] !== " ", "aria-label": mark[1] === " " ? "to do" : "done" }), " ");
  return [{ ...first, content: first.content.slice(4) }, ...tokens.slice(1)];
}

function addNodes(root, tokens) {
  const open = [root];
  for (const token of tokens) {
    const parent = open.at(-1);
    if (token.type === "inline") {
      const begins = parent.nodeName === "LI" || (parent.nodeName === "P" && open.at(-2).nodeName === "LI" && !parent.previousSibling);
      addNodes(parent, begins && !parent.hasChildNodes() ? addTask(parent, token.children) : token.children);
    } else if (token.nesting > 0) {
      // A paragraph of a list without empty lines is none.
      const node = token.hidden ? parent : PARENTS[token.type](token);
      if (node !== parent) {
        const table = token.type === "table_open";
        parent.append(table ? element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, node) : node);
      }
      open.push(node);
    } else if (token.nesting < 0) open.pop();
    else parent.append(NODES[token.type](token));
  }
}

// ---- Blocks ----

// [{raw, tokens}]: the blocks at the top level.
function blocks(text) {
  const lines = text.split("\n"), found = [];
  let tokens = [];
  for (const token of parser.parse(text, {})) {
    tokens.push(token);
    if (token.level > 0 || token.nesting > 0 || token.type === "inline") continue;
    const [from, to] = tokens[0].map;
    found.push({ raw: lines.slice(from, to).join("\n"), tokens });
    tokens = [];
  }
  return found;
}

// A view of a text that grows: show(text) makes new nodes only from the first block that changed.
export function markdownView(container) {
  let shown = [];
  return function show(text) {
    const now = blocks(text.replace(/\r\n?/g, "\n"));
    let same = 0;
    while (same < shown.length && same < now.length && shown[same] === now[same].raw) same++;
    while (container.childNodes.length > same) container.lastChild.remove();
    for (const block of now.slice(same)) addNodes(container, block.tokens);
    shown = now.map((block) => block.raw);
  };
}
