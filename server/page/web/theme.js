// theme.js: light or dark: as the system has it, or as the user chose.
// SPDX-License-Identifier: Apache-2.0
import { byId } from "./dom.js";
import { loadView, saveView } from "./store.js";

const canvas = import("./canvas.js"); // comes after all that a chat needs

function apply(theme) {
  document.documentElement.dataset.theme = theme; // style.css knows light and dark
  canvas.then(({ refreshPalette }) => refreshPalette(), () => {});
}

export function makeTheme() {
  const choice = byId("theme");
  choice.value = loadView().theme ?? "";
  apply(choice.value);
  choice.addEventListener("change", () => {
    saveView({ ...loadView(), theme: choice.value });
    apply(choice.value);
  });
}
