// dom.js: elements without HTML strings. No module of this page hands text to an HTML parser.
// SPDX-License-Identifier: Apache-2.0

// element("p", {class: "note", onclick: f, hidden: true}, "text", child, [more, children], …)
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child != null) node.append(child);
  return node;
}

export const byId = (id) => document.getElementById(id);

// Writes only changed nodes: untouched ones keep selections, and screen readers stay silent.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Pages that came over plain HTTP from another machine have no clipboard object.
  const area = element("textarea", { class: "quiet", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A button that says for a moment that it did something.
export function copyButton(getText, label = "Copy") {
  const button = element("button", { type: "button", class: "small" }, label);
  button.addEventListener("click", async () => {
    try {
      await copy(getText());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}
