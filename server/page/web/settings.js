// settings.js: parameters of every request: sampling, tools, and each chat's system prompt. An empty field is not
// sent, so that the server's value holds, which it shows.
// SPDX-License-Identifier: Apache-2.0
import { request } from "./api.js";
import { element, byId, setText } from "./dom.js";
import { modelQuery } from "./models.js";
import { loadSettings, saveSettings } from "./store.js";

const number = (name, label, min, max, step, hint) => ({ name, label, kind: "number", min, max, step, hint });
const choice = (name, label, choices) => ({ name, label, kind: "choice", choices });
const json = (name, label, hint) => ({ name, label, kind: "json", rows: 4, hint });

const FIELDS = [
  number("max_tokens", "Maximum tokens", 1, 1000000, 1, "of an answer"),
  number("temperature", "Temperature", 0, 2, 0.05, "0 always takes the likeliest token"),
  number("top_p", "Top p", 0, 1, 0.01),
  number("top_k", "Top k", 0, 1000, 1, "0 turns it off"),
  number("min_p", "Min p", 0, 1, 0.01),
  number("repeat_penalty", "Repeat penalty", 0, 2, 0.05, "1 turns it off"),
  number("presence_penalty", "Presence penalty", -2, 2, 0.1),
  number("frequency_penalty", "Frequency penalty", -2, 2, 0.1),
  number("seed", "Seed", 0, 4294967295, 1, "the same seed gives the same answer"),
  number("priority", "Priority", -100, 100, 1, "higher goes first when the server is busy"),
  { name: "stop", label: "Stop texts", kind: "text", rows: 2, hint: "one per line; an answer ends before the first that occurs" },
  choice("reasoning", "Reasoning", [["", "the model's way"], ["off", "off"], ["low", "low"], ["medium", "medium"], ["high", "high"]]),
  json("schema", "JSON Schema", "answers are JSON that follows it"),
  json("tools", "Tools", 'a list such as [{"type": "function", "function": {"name": …}}]'),
  choice("tool_choice", "Use of tools", [["", "the model's choice"], ["required", "a call before it answers"], ["none", "none"]]),
];

let values = loadSettings();
const inputs = new Map();

function parsed(name) {
  try {
    return { value: values[name] ? JSON.parse(values[name]) : undefined };
  } catch (e) {
    return { error: `${FIELDS.find((f) => f.name === name).label} in the settings is not JSON: ${e.message}` };
  }
}

// The fields of a chat request; throws an Error that says which setting is wrong.
export function requestFields() {
  const fields = {};
  for (const { name, kind } of FIELDS) {
    if (kind === "number" && values[name] !== undefined && values[name] !== "") fields[name] = Number(values[name]);
  }
  const stop = (values.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length) fields.stop = stop;
  if (values.reasoning === "off") fields.chat_template_kwargs = { enable_thinking: false };
  else if (values.reasoning) fields.reasoning_effort = values.reasoning;
  const schema = parsed("schema"), tools = parsed("tools");
  if (schema.error ?? tools.error) throw new Error(schema.error ?? tools.error);
  if (schema.value !== undefined) {
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: schema.value } };
  }
  if (tools.value !== undefined) {
    fields.tools = tools.value;
    if (values.tool_choice) fields.tool_choice = values.tool_choice;
  }
  return fields;
}

// What new chats begin with.
export const defaultSystem = () => values.system ?? "";

// What the server takes for a field that is not sent, in words.
function serverValue(name, value) {
  if (name === "max_tokens" && value < 0) return "no limit";
  if (name === "seed" && (value < 0 || value >= 4294967295)) return "random";
  return value === undefined ? "0" : String(value);
}

async function showServerValues() {
  const props = await (await request("props" + modelQuery())).json();
  for (const { name, kind } of FIELDS) {
    if (kind === "number") inputs.get(name).placeholder = serverValue(name, props.default_generation_settings.params[name]);
  }
}

function check(field, input, problem) {
  let text = "";
  if (field.kind === "json") text = parsed(field.name).error ?? "";
  else if (input.validity.badInput) text = "not a number";
  else if (input.validity.rangeUnderflow || input.validity.rangeOverflow) text = `from ${field.min} to ${field.max}`;
  setText(problem, text);
  problem.hidden = !text;
  input.setAttribute("aria-invalid", String(Boolean(text)));
}

// system: {get(), set(text)}, the system prompt of the chat that is shown.
export function makeSettings(system) {
  for (const field of FIELDS) {
    const id = "set-" + field.name;
    const common = { id, name: field.name, "aria-describedby": id + "-hint" };
    let input;
    if (field.kind === "number") {
      input = element("input", { ...common, type: "number", min: field.min, max: field.max, step: field.step === 1 ? 1 : "any", inputmode: field.step === 1 ? "numeric" : "decimal" });
    } else if (field.kind === "choice") {
      input = element("select", common, field.choices.map(([value, label]) => element("option", { value }, label)));
    } else {
      input = element("textarea", { ...common, rows: field.rows, class: field.kind === "json" ? "mono" : null, spellcheck: field.kind === "json" ? "false" : null });
    }
    input.value = values[field.name] ?? "";
    const problem = element("span", { class: "error", role: "status", hidden: true });
    input.addEventListener("input", () => {
      values[field.name] = input.value;
      saveSettings(values);
      check(field, input, problem);
    });
    inputs.set(field.name, input);
    byId("fields").append(element("div", { class: "field " + field.kind },
      element("label", { for: id }, field.label), input,
      element("span", { class: "hint", id: id + "-hint" }, field.hint ?? ""), problem));
    check(field, input, problem);
  }
  const systemInput = byId("set-system");
  const showSystem = () => (systemInput.value = system.get());
  systemInput.addEventListener("input", () => system.set(systemInput.value));
  byId("system-for-all").addEventListener("click", () => {
    values.system = systemInput.value;
    saveSettings(values);
  });

  function use({ system: text = "", ...others }) {
    for (const [name, input] of inputs) {
      input.value = others[name] ?? "";
      input.dispatchEvent(new Event("input"));
    }
    system.set(text);
    showSystem();
  }
  // Comes after all that a chat needs.
  import("./presets.js").then(({ makePresets }) => makePresets(() => ({ ...values, system: system.get() }), use), () => {});
  byId("reset-settings").addEventListener("click", () => {
    delete values.system;
    use({});
  });
  byId("open-settings").addEventListener("click", () => {
    showSystem();
    showServerValues().catch(() => {});
    byId("settings").showModal();
  });
}
