// formula.js: formulas, $…$ and \(…\) in a line, $$…$$ and \[…\] in lines of their own. KaTeX gives a tree of MathML, and
// the nodes are made of it one by one; no styles are taken from it, and no links.
// SPDX-License-Identifier: Apache-2.0
import { element } from "./dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const MAX_LENGTH = 2000; // characters
const MAX_DEPTH = 100; // of nodes inside each other
const MAX_FORMULAS = 300; // of one text
const OPTIONS = { output: "mathml", throwOnError: true, strict: "ignore", trust: false, maxSize: 20, maxExpand: 200 };
const CLOSERS = { $$: "$$", $: "$", "\\[": "\\]", "\\(": "\\)" };
const ALLOWED = /^(display|math(variant|color|background|size)|fence|stretchy|symmetric|separator|[lr]space|movablelimits|accent|accentunder|width|height|depth|voffset|linethickness|(min|max)size|columnalign|columnspacing|columnlines|rowspacing|rowlines|rowalign|side|scriptlevel|displaystyle|notation)$/;

// ---- Showing ----

let library = null; // the promise of it, once there is a formula
let katex = null;

function addTree(parent, tree, depth = 0) {
  if (depth > MAX_DEPTH) throw new Error("too deep");
  if (tree.text !== undefined) parent.append(tree.text);
  else if (tree.type) {
    const node = document.createElementNS(MATHML, tree.type);
    for (const [name, value] of Object.entries(tree.attributes)) if (ALLOWED.test(name)) node.setAttribute(name, value);
    for (const child of tree.children) addTree(node, child, depth + 1);
    parent.append(node);
  } else for (const child of tree.children ?? []) addTree(parent, child, depth + 1);
}

// What KaTeX refuses stays as it was written.
function typeset(node, text, displayMode) {
  if (!katex || text.length > MAX_LENGTH) return;
  try {
    const tree = katex.__renderToDomTree(text, { ...OPTIONS, displayMode }), made = document.createDocumentFragment();
    addTree(made, tree);
    node.replaceChildren(made);
  } catch {
    // It may be half of one, or too much of one.
  }
}

// markup: how it began. block: it has lines of its own.
export function formula(text, markup, block) {
  const node = element(block ? "div" : "span", { class: block ? "formula block" : "formula", tabindex: block ? "0" : null }, markup + text + CLOSERS[markup]);
  const displayMode = markup === "$$" || markup === "\\[";
  if (katex) typeset(node, text, displayMode);
  else {
    library ??= import("./lib/katex.js").then(() => (katex = globalThis.katex), () => {});
    library.then(() => typeset(node, text, displayMode));
  }
  return node;
}

// ---- Reading ----

function openerAt(at, { src, env }) {
  if ((src[at] !== "$" && src[at] !== "\\") || env.formulas >= MAX_FORMULAS) return undefined;
  return Object.keys(CLOSERS).find((mark) => src.startsWith(mark, at));
}

// Where the formula's text ends that begins at `from`, or -1. A lone $ is money where spaces or digits say so.
function endOf(text, from, mark) {
  const end = text.slice(from, from + MAX_LENGTH).indexOf(CLOSERS[mark]) + from;
  if (end <= from || !text.slice(from, end).trim()) return -1;
  if (mark === "$" && (/\s/.test(text[from]) || /\s/.test(text[end - 1]) || /\d/.test(text[end + 1] ?? ""))) return -1;
  return end;
}

function push(state, mark, content) {
  state.env.formulas = (state.env.formulas ?? 0) + 1;
  const token = state.push("formula", "math", 0);
  token.markup = mark;
  token.content = content;
  return token;
}

function inLine(state, silent) {
  const { src, pos } = state, mark = openerAt(pos, state);
  const end = mark ? endOf(src, pos + mark.length, mark) : -1;
  if (end < 0 || end + mark.length > state.posMax) return false;
  if (!silent) push(state, mark, src.slice(pos + mark.length, end));
  state.pos = end + mark.length;
  return true;
}

// A block begins a line and ends one; there may be empty lines in it.
function inLines(state, startLine, endLine, silent) {
  const from = state.bMarks[startLine] + state.tShift[startLine], mark = openerAt(from, state);
  if (state.sCount[startLine] - state.blkIndent >= 4 || !mark || mark === "$" || mark === "\\(") return false;
  const lines = [];
  for (let line = startLine, length = 0; line < endLine && length <= MAX_LENGTH; line++) {
    if (line > startLine && state.sCount[line] < state.blkIndent && !state.isEmpty(line)) return false;
    let text = state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]).trimEnd();
    if (line === startLine) text = text.slice(mark.length);
    length += text.length + 1;
    const end = text.indexOf(CLOSERS[mark]);
    if (end >= 0 && end !== text.length - CLOSERS[mark].length) return false;
    if (end < 0) {
      lines.push(text);
      continue;
    }
    lines.push(text.slice(0, end));
    const content = lines.join("\n");
    if (!content.trim()) return false;
    if (silent) return true;
    const token = push(state, mark, content);
    token.block = true;
    token.map = [startLine, line + 1];
    state.line = line + 1;
    return true;
  }
  return false;
}

// For markdown-it.
export function formulaRules(parser) {
  parser.inline.ruler.before("escape", "formula", inLine);
  parser.block.ruler.before("fence", "formula", inLines, { alt: ["paragraph", "reference", "blockquote", "list"] });
}
