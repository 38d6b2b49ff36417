// presets.js: settings and a system prompt under a name, kept in this browser.
// SPDX-License-Identifier: Apache-2.0
import { element, byId } from "./dom.js";
import { loadPresets, savePresets } from "./store.js";

// current() returns the settings that are kept under a name; use(preset) puts them in force.
export function makePresets(current, use) {
  const choice = byId("preset"), name = byId("preset-name"), presets = loadPresets();

  function show(chosen) {
    const names = Object.keys(presets).sort();
    choice.replaceChildren(element("option", { value: "" }, names.length ? "choose one" : "none yet"), ...names.map((n) => element("option", { value: n }, n)));
    choice.value = chosen;
    byId("delete-preset").disabled = !chosen;
  }

  choice.addEventListener("change", () => {
    byId("delete-preset").disabled = !choice.value;
    if (choice.value) use(presets[choice.value]);
  });
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // it would close the dialog
    byId("save-preset").click();
  });
  byId("save-preset").addEventListener("click", () => {
    const chosen = name.value.trim() || choice.value;
    if (!chosen) return name.focus();
    presets[chosen] = current();
    savePresets(presets);
    name.value = "";
    show(chosen);
  });
  byId("delete-preset").addEventListener("click", () => {
    delete presets[choice.value];
    savePresets(presets);
    show("");
  });
  show("");
}
