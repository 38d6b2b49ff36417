// models.js: which of the server's models is asked: a name, and a choice where there are several.
// SPDX-License-Identifier: Apache-2.0
import { request } from "./api.js";
import { setModel } from "./chat.js";
import { element, byId, setText } from "./dom.js";
import { readsMedia, setModalities } from "./media.js";
import { loadView, saveView } from "./store.js";

let served = ""; // the server's own name for its model

function use(name) {
  setModel(name);
  setText(byId("model"), name);
}

export async function findModels() {
  let ids;
  try {
    const list = await (await request("v1/models")).json();
    ids = list.data.map((model) => model.id);
    setModalities(list.data[0].architecture.input_modalities);
  } catch {
    return; // /events says the name as soon as the server is there
  }
  const attach = readsMedia() ? "Attach texts, images or sounds" : "Attach text files";
  byId("attach").title = attach;
  byId("attach").setAttribute("aria-label", attach);
  const choice = byId("models"), several = ids.length > 1, kept = loadView().model;
  choice.hidden = !several;
  byId("model").hidden = several;
  choice.replaceChildren(...ids.map((id) => element("option", { value: id }, id)));
  choice.value = ids.includes(kept) ? kept : ids[0];
  use(choice.value);
}

// What the engine's events say again and again.
export function servedModel(name) {
  if (name === served) return;
  served = name;
  if (byId("models").hidden) use(name);
  findModels();
}

export function makeModels() {
  byId("models").addEventListener("change", (event) => {
    saveView({ ...loadView(), model: event.target.value });
    use(event.target.value);
  });
  findModels();
}
