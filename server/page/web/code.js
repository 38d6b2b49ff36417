// code.js: colours of code. highlight.js gives a tree of tokens, from which the nodes are made one by one.
// SPDX-License-Identifier: Apache-2.0
import { element } from "./dom.js";

const MAX_LENGTH = 30000; // what grows is coloured anew with each frame

let library = null; // the promise of it, once there is code
let highlighter = null;

function addScopes(parent, { children }) {
  for (const child of children) {
    if (typeof child === "string") parent.append(child);
    else {
      const node = element("span", { class: child.scope && "hl-" + child.scope.split(".")[0] });
      addScopes(node, child);
      parent.append(node);
    }
  }
}

function colour(node, text, language) {
  if (!highlighter?.getLanguage(language)) return;
  const tree = highlighter.highlight(text, { language, ignoreIllegals: true })._emitter.rootNode;
  node.textContent = "";
  addScopes(node, tree);
}

// Shows the text in the node at once, and in colours as soon as the library is there.
export function showCode(node, text, language) {
  node.textContent = text;
  if (!language || text.length > MAX_LENGTH) return;
  if (highlighter) return colour(node, text, language);
  library ??= import("./lib/highlight.js").then((module) => (highlighter = module.default), () => {});
  library.then(() => colour(node, text, language));
}
