// markdown.js: Markdown into DOM nodes. HTML in the text is text: nodes are made one by one, text goes into
// text nodes, and the one attribute that comes from the text, a link's address, passes through safeUrl. Images
// become links, because the page loads nothing from elsewhere. Time and depth are bounded for any input.
// SPDX-License-Identifier: Apache-2.0
import { element, copyButton } from "./dom.js";

const MAX_DEPTH = 8; // of lists and quotes inside each other
const MAX_FRAMES = 24; // of emphasis and links inside each other

// The address when following it runs nothing here, else null.
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// ---- Inside a line ----

const TAGS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "del" };
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE_URL = /^https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}*_~]/;
const wordLike = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

// Open constructs are frames; a closer takes the nearest frame of its kind, and what was opened inside it turns
// back into text.
class Inline {
  constructor() {
    this.frames = [{ mark: "", nodes: [] }];
    this.open = {};
    this.text = "";
  }
  flush() {
    if (this.text) this.frames.at(-1).nodes.push(document.createTextNode(this.text));
    this.text = "";
  }
  add(node) {
    this.flush();
    this.frames.at(-1).nodes.push(node);
  }
  push(mark) {
    if (this.frames.length >= MAX_FRAMES) {
      this.text += mark;
      return;
    }
    this.flush();
    this.frames.push({ mark, nodes: [] });
    this.open[mark] = (this.open[mark] ?? 0) + 1;
  }
  flatten() {
    const frame = this.frames.pop();
    this.open[frame.mark]--;
    const nodes = this.frames.at(-1).nodes;
    nodes.push(document.createTextNode(frame.mark));
    for (const node of frame.nodes) nodes.push(node);
  }
  // That of the marks which was opened last, or null.
  nearest(marks) {
    return marks.some((mark) => this.open[mark]) ? this.frames.findLast((frame) => marks.includes(frame.mark)).mark : null;
  }
  // The nodes since the nearest `mark`, which is no longer open.
  take(mark) {
    this.flush();
    while (this.frames.at(-1).mark !== mark) this.flatten();
    this.open[mark]--;
    return this.frames.pop().nodes;
  }
  end() {
    this.flush();
    while (this.frames.length > 1) this.flatten();
    return this.frames[0].nodes;
  }
}

// From the "(" at `at`: {url, end}, or null. A title is skipped.
function destination(text, at) {
  let depth = 0, i = at + 1;
  for (; i < text.length && i < at + 2000; i++) {
    const c = text[i];
    if (c === "\\") i++;
    else if (c === "(") depth++;
    else if (c === ")" && depth-- === 0) break;
    else if (c === "\n") return null;
  }
  if (text[i] !== ")") return null;
  const inside = text.slice(at + 1, i).trim();
  const [, address, rest] = /^(<[^>]*>|[^\s]*)\s*([^]*)$/.exec(inside);
  if (rest && !/^("[^]*"|'[^]*'|\([^]*\))$/.test(rest)) return null; // no title, but text, which must not be lost
  return { url: address.replace(/^<(.*)>$/, "$1"), end: i + 1 };
}

function link(url, children) {
  return element("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, children);
}

export function inline(text) {
  const out = new Inline();
  const noCloser = new Set(); // lengths of backtick runs that have no partner further on
  for (let i = 0; i < text.length; ) {
    const c = text[i];
    if (c === "\\" && i + 1 < text.length) {
      if (text[i + 1] === "\n") out.add(element("br"));
      else if (PUNCTUATION.test(text[i + 1])) out.text += text[i + 1];
      else out.text += "\\" + text[i + 1];
      i += 2;
    } else if (c === "`") {
      let n = 1;
      while (text[i + n] === "`") n++;
      let close = -1;
      if (!noCloser.has(n)) {
        for (let j = i + n; j < text.length; ) {
          const start = text.indexOf("`", j);
          if (start < 0) break;
          let m = 1;
          while (text[start + m] === "`") m++;
          if (m === n) {
            close = start;
            break;
          }
          j = start + m;
        }
        if (close < 0) noCloser.add(n);
      }
      if (close < 0) {
        out.text += "`".repeat(n);
        i += n;
      } else {
        let code = text.slice(i + n, close).replaceAll("\n", " ");
        if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
        out.add(element("code", {}, code));
        i = close + n;
      }
    } else if (c === "*" || c === "_" || (c === "~" && text[i + 1] === "~")) {
      let n = 1;
      while (text[i + n] === c) n++;
      const before = text[i - 1], after = text[i + n];
      const space = (x) => x === undefined || /\s/.test(x);
      let opens = !space(after), closes = !space(before);
      if (c === "_") {
        opens &&= !wordLike(before);
        closes &&= !wordLike(after);
      }
      for (let left = n; left > 0; ) {
        const two = c + c;
        const mark = closes && out.nearest(left >= 2 ? [two, c] : [c]);
        if (mark) {
          const inside = out.take(mark);
          out.add(element(TAGS[mark], {}, inside));
          left -= mark.length;
        } else if (opens && n <= 3 && (left >= 2 || c !== "~")) {
          out.push(left >= 2 ? two : c);
          left -= left >= 2 ? 2 : 1;
        } else {
          out.text += c.repeat(left);
          left = 0;
        }
      }
      i += n;
    } else if (c === "!" && text[i + 1] === "[") {
      out.push("![");
      i += 2;
    } else if (c === "[") {
      out.push("[");
      i++;
    } else if (c === "]" && text[i + 1] === "(" && (out.open["["] || out.open["!["])) {
      const target = destination(text, i + 1);
      const url = target && safeUrl(target.url);
      if (url) {
        out.add(link(url, out.take(out.nearest(["[", "!["]))));
        i = target.end;
      } else {
        out.text += c;
        i++;
      }
    } else if (c === "<" && /^<(https?:\/\/|mailto:)[^\s<>]+>/.test(text.slice(i, i + 2000))) {
      const end = text.indexOf(">", i);
      const url = safeUrl(text.slice(i + 1, end));
      if (url) out.add(link(url, [text.slice(i + 1, end)]));
      else out.text += text.slice(i, end + 1);
      i = end + 1;
    } else if (c === "h" && !wordLike(text[i - 1]) && !out.open["["] && text.startsWith("http", i)) {
      const bare = BARE_URL.exec(text.slice(i, i + 2000))?.[0];
      const url = bare && safeUrl(bare);
      if (url) out.add(link(url, [bare]));
      else out.text += "http";
      i += url ? bare.length : 4;
    } else if (c === "\n") {
      // Models break lines where they mean it.
      out.text = out.text.trimEnd();
      out.add(element("br"));
      i++;
    } else {
      out.text += c;
      i++;
    }
  }
  return out.end();
}

// ---- Blocks ----

// No expression here backtracks over more than a few characters: lines may be long.
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(\s.*)?$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( {1,4})(?=\S)|\s*$)/;
const blank = (line) => /^\s*$/.test(line);
const indentOf = (line) => /^ */.exec(line)[0].length;

function fence(line) {
  const match = FENCE.exec(line);
  return match && (match[1][0] === "~" || !match[2].includes("`")) ? match : null;
}

function isTable(lines, i) {
  if (!lines[i].includes("|") || !lines[i + 1]?.includes("-")) return false;
  const rule = cells(lines[i + 1]);
  return rule.every((cell) => /^:?-+:?$/.test(cell)) && cells(lines[i]).length === rule.length;
}

function headingText(text) {
  text = text.trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end--;
  return end === 0 || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

function startsBlock(lines, i) {
  const line = lines[i];
  const item = ITEM.exec(line);
  return fence(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    (item && item[3] && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)) || isTable(lines, i);
}

function cells(line) {
  const found = [];
  let cell = "", code = false;
  const row = line.trim().replace(/^\|/, "");
  for (let i = 0; i < row.length; i++) {
    if (row[i] === "`") code = !code;
    if (row[i] === "\\" && row[i + 1] === "|") cell += row[++i];
    else if (row[i] === "|" && !code) {
      found.push(cell.trim());
      cell = "";
    } else cell += row[i];
  }
  if (cell.trim()) found.push(cell.trim());
  return found;
}

// [{kind, from, to, …}]: ranges of lines, and what is needed to make a node of each.
function blocks(lines) {
  const found = [];
  let i = 0;
  while (i < lines.length) {
    const from = i, line = lines[i];
    let match;
    if (blank(line)) {
      i++;
      continue;
    }
    if ((match = fence(line))) {
      const mark = match[1], indent = indentOf(line);
      const closer = (l) => l.trim().length >= mark.length && new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}\\s*$`).test(l);
      for (i++; i < lines.length && !closer(lines[i]); i++);
      const code = lines.slice(from + 1, i).map((l) => l.slice(Math.min(indent, indentOf(l))));
      if (i < lines.length) i++;
      found.push({ kind: "code", language: match[2].trim().split(/\s/, 1)[0], text: code.join("\n") });
    } else if ((match = HEADING.exec(line))) {
      i++;
      found.push({ kind: "heading", level: match[1].length, text: headingText(match[2] ?? "") });
    } else if (RULE.test(line)) {
      i++;
      found.push({ kind: "rule" });
    } else if (QUOTE.test(line)) {
      // A line without ">" goes on a quote's paragraph.
      while (i < lines.length && !blank(lines[i]) && (QUOTE.test(lines[i]) || !startsBlock(lines, i))) i++;
      found.push({ kind: "quote", lines: lines.slice(from, i).map((l) => l.replace(QUOTE, "")) });
    } else if (isTable(lines, i)) {
      for (i += 2; i < lines.length && lines[i].includes("|") && !blank(lines[i]); i++);
      found.push({ kind: "table", rows: lines.slice(from, i) });
    } else if ((match = ITEM.exec(line))) {
      const ordered = /\d/.test(match[2]), mark = match[2].at(-1);
      const items = [];
      let loose = false, gap = 0; // empty lines since the last text
      while (i < lines.length) {
        const item = ITEM.exec(lines[i]);
        if (!item || item[2].at(-1) !== mark || /\d/.test(item[2]) !== ordered || RULE.test(lines[i])) break;
        const width = item[1].length + item[2].length + (item[3]?.length ?? 1);
        const own = [lines[i].slice(width)];
        if (gap) loose = true;
        gap = 0;
        for (i++; i < lines.length; i++) {
          if (blank(lines[i])) {
            gap++;
            own.push("");
          } else if (indentOf(lines[i]) >= Math.min(width, 2)) {
            if (gap) loose = true;
            gap = 0;
            own.push(lines[i].slice(Math.min(width, indentOf(lines[i]))));
          } else if (!gap && !startsBlock(lines, i) && !ITEM.test(lines[i])) own.push(lines[i]);
          else break;
        }
        for (; own.length && own.at(-1) === ""; own.pop());
        items.push(own);
      }
      found.push({ kind: "list", ordered, start: ordered ? parseInt(match[2], 10) : 1, loose, items });
    } else if (indentOf(line) >= 4) {
      for (; i < lines.length && (blank(lines[i]) || indentOf(lines[i]) >= 4); i++);
      const code = lines.slice(from, i).map((l) => l.slice(4));
      for (; code.at(-1) === ""; code.pop());
      found.push({ kind: "code", language: "", text: code.join("\n") });
    } else {
      for (i++; i < lines.length && !blank(lines[i]) && !startsBlock(lines, i); i++);
      found.push({ kind: "paragraph", text: lines.slice(from, i).map((l) => l.trimStart()).join("\n").trimEnd() });
    }
    found.at(-1).raw = lines.slice(from, i).join("\n");
  }
  return found;
}

function table(rows) {
  const align = cells(rows[1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : null));
  const row = (line, name) => {
    const own = cells(line);
    return element("tr", {}, align.map((side, i) => element(name, { class: side }, inline(own[i] ?? ""))));
  };
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    element("table", {}, element("thead", {}, row(rows[0], "th")),
      element("tbody", {}, rows.slice(2).map((line) => row(line, "td")))));
}

function node(block, depth) {
  switch (block.kind) {
    case "code":
      return element("div", { class: "code" },
        element("div", { class: "code-head" }, element("span", {}, block.language || "text"), copyButton(() => block.text)),
        element("pre", { tabindex: "0" }, element("code", {}, block.text)));
    case "heading": // below the page's own h1 and h2
      return element("h" + Math.min(6, block.level + 2), {}, inline(block.text));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, nodes(block.lines, depth + 1));
    case "table":
      return table(block.rows);
    case "list":
      return element(block.ordered ? "ol" : "ul", { start: block.start !== 1 ? block.start : null },
        block.items.map((lines) => element("li", {}, tight(nodes(lines, depth + 1), block.loose))));
    default:
      return element("p", {}, inline(block.text));
  }
}

// An item of a list without empty lines is not a paragraph.
function tight(children, loose) {
  if (loose) return children;
  return children.flatMap((child) => (child.nodeName === "P" ? [...child.childNodes] : [child]));
}

function nodes(lines, depth) {
  if (depth > MAX_DEPTH) return [element("p", {}, inline(lines.join("\n")))];
  return blocks(lines).map((block) => node(block, depth));
}

// A view of a text that grows: show(text) makes new nodes only from the first block that changed.
export function markdownView(container) {
  let shown = [];
  return function show(text) {
    const now = blocks(text.replaceAll("\t", "    ").split(/\r\n|\r|\n/));
    let same = 0;
    while (same < shown.length && same < now.length && shown[same] === now[same].raw) same++;
    while (container.childNodes.length > same) container.lastChild.remove();
    for (let i = same; i < now.length; i++) container.append(node(now[i], 0));
    shown = now.map((block) => block.raw);
  };
}
