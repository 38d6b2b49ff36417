// theme.js: light or dark: as the system has it, or as the user chose.
// SPDX-License-Identifier: Apache-2.0
import { refreshPalette } from "./canvas.js";
import { byId } from "./dom.js";
import { loadView, saveView } from "./store.js";

function apply(theme) {
  document.documentElement.dataset.theme = theme; // style.css knows light and dark
  refreshPalette();
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
