// notice.js: a line above the message box: an error or an action, with a button for what may follow.
// SPDX-License-Identifier: Apache-2.0
import { element, byId } from "./dom.js";

export function hideNotice() {
  byId("notice").replaceChildren();
  byId("notice").hidden = true;
}

// The line stays until it is closed, its button is used, or another comes. action: {label, run}, or none.
export function showNotice(text, action = null) {
  const button = (label, run) => element("button", { type: "button", class: "small", onclick: () => (hideNotice(), run()) }, label);
  byId("notice").hidden = false;
  byId("notice").replaceChildren(element("span", {}, text), ...(action ? [button(action.label, action.run)] : []), button("Close", () => {}));
}
