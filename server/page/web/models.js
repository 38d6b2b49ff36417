// models.js: which of the server's models is asked: a name, and a choice where there are several; and what each of them
// is doing, where they take turns in memory.
// SPDX-License-Identifier: Apache-2.0
import { request } from "./api.js";
import { element, byId, setText } from "./dom.js";
import { readsMedia, setModalities } from "./media.js";
import { loadView, saveView } from "./store.js";

let name = ""; // the one that is asked
let served = ""; // the one that the engine's events tell of
let known = []; // the server's models
let chosen = () => {}; // hears of a choice

const current = () => (byId("models").hidden ? "" : byId("models").value);

export const modelName = () => name;

// "?model=NAME" behind a path that is about one model of several.
export const modelQuery = () => (current() ? "?model=" + encodeURIComponent(current()) : "");

const percent = (part) => `${Math.round(100 * (part ?? 0))} %`;

// A model's state in words; "" if it is loaded.
function stateWords({ state, progress }) {
  if (!state || state === "loaded") return "";
  return state === "loading" ? `loading, ${percent(progress)}` : state === "unloaded" ? "not loaded" : state;
}

// Those that only embed or rank are no choice for a chat.
const generates = ({ kind }) => kind !== "embedding" && kind !== "ranking";

const find = (id) => known.find((model) => model.id === id);

// What may be attached to a message: that of an adapter's model for the adapter.
function showAttach(id) {
  const own = find(id) ?? known[0], model = find(own?.parent) ?? own;
  setModalities(model?.architecture?.input_modalities ?? ["text"]);
  const attach = readsMedia() ? "Attach texts, images or sounds" : "Attach text files";
  byId("attach").title = attach;
  byId("attach").setAttribute("aria-label", attach);
}

function use(id) {
  name = id;
  setText(byId("model"), name);
  showAttach(name);
}

function showStates() {
  for (const option of byId("models").options) {
    const words = stateWords(find(option.value) ?? {});
    setText(option, words ? `${option.value} (${words})` : option.value);
  }
}

export async function findModels() {
  try {
    known = (await (await request("v1/models")).json()).data;
  } catch {
    return; // /events says the name as soon as the server is there
  }
  const ids = (known.some(generates) ? known.filter(generates) : known).map((model) => model.id), kept = loadView().model;
  const choice = byId("models"), several = ids.length > 1;
  choice.hidden = !several;
  byId("model").hidden = several;
  choice.replaceChildren(...ids.map((id) => element("option", { value: id }, id)));
  choice.value = ids.includes(kept) ? kept : ids[0];
  showStates();
  use(choice.value);
  chosen(choice.value);
}

// From each of the engine's events: the model's name, and the states of several models.
export function servedModel(watched, states) {
  let news = watched !== served;
  for (const { name: id, ...state } of states ?? []) {
    const model = find(id);
    const tellsMore = model?.kind !== state.kind || (model?.state !== state.state && state.state === "loaded");
    if (!model || tellsMore) news = true;
    Object.assign(model ?? {}, state);
  }
  if (states) showStates();
  if (!news) return;
  served = watched;
  if (byId("models").hidden) use(watched);
  findModels();
}

// Whether models take turns in memory.
export const modelsTakeTurns = () => known.some((model) => model.state);

// In words, why an answer waits for its model; "" if the model is loaded.
export async function loadingWords(id, signal) {
  const model = await (await request("v1/models/" + encodeURIComponent(id), { signal })).json();
  if (model.state === "loaded") return "";
  return model.state === "loading" ? `Loading ${id}, ${percent(model.progress)}` : `Waiting until ${id} can be loaded`;
}

// onChoice() hears when another model is chosen.
export function makeModels(onChoice) {
  let last = "";
  chosen = (id) => {
    if (id === last) return;
    const first = last === "" && modelQuery() === "";
    last = id;
    if (!first) onChoice();
  };
  byId("models").addEventListener("change", (event) => {
    saveView({ ...loadView(), model: event.target.value });
    use(event.target.value);
    chosen(event.target.value);
  });
  findModels();
}
