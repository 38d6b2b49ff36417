// The official anthropic package for Node.
// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { main } from "./checks.mjs";

const require = createRequire(process.env.WEIR_CLIENTS + "/node/");
const { default: Anthropic, APIError } = require("@anthropic-ai/sdk");

const model = process.env.WEIR_MODEL;
const client = new Anthropic({ baseURL: process.env.WEIR_URL, apiKey: "any", maxRetries: 0 });
const greedy = { model, system: "You are brief.", messages: [{ role: "user", content: "Name three rivers." }], max_tokens: 32, temperature: 0 };
const weather = {
  name: "weather", description: "the weather of a town",
  input_schema: { type: "object", properties: { town: { type: "string", enum: ["Ulm", "Bonn"] } }, required: ["town"], additionalProperties: false },
};
const asked = { ...greedy, messages: [{ role: "user", content: "How is the weather in Ulm?" }], tools: [weather], max_tokens: 200 };

const tests = {
  async a_prompt_that_is_seen_to_be_read() {
    const whole = await client.messages.create(greedy);
    const final = await client.messages.stream({ ...greedy, return_progress: true }).finalMessage();
    assert.deepEqual(final.content, whole.content);
  },

  async a_stream_says_the_same() {
    const whole = await client.messages.create(greedy);
    assert(whole.content[0].text && ["end_turn", "max_tokens"].includes(whole.stop_reason));
    const stream = client.messages.stream(greedy);
    let text = "";
    stream.on("text", (part) => (text += part));
    const final = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual([final.content[0].text, final.stop_reason, final.usage.output_tokens],
      [text, whole.stop_reason, whole.usage.output_tokens]);
  },

  async a_loop_with_a_tool() {
    const answer = await client.messages.create({ ...asked, tool_choice: { type: "tool", name: "weather" } });
    const call = answer.content.at(-1);
    assert.equal(answer.stop_reason, "tool_use");
    assert(call.type === "tool_use" && ["Ulm", "Bonn"].includes(call.input.town));
    const messages = [...asked.messages, { role: "assistant", content: answer.content },
      { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "sunny" }] }];
    const final = await client.messages.create({ ...asked, messages, max_tokens: 24, tool_choice: { type: "none" } });
    assert(final.content[0].type === "text" && final.content[0].text);
  },

  async a_tool_is_streamed() {
    const stream = client.messages.stream({ ...asked, tool_choice: { type: "any" } });
    let parts = 0;
    stream.on("inputJson", () => parts++);
    const call = (await stream.finalMessage()).content.at(-1);
    assert(parts > 1 && call.name === "weather" && ["Ulm", "Bonn"].includes(call.input.town));
  },

  async tokens_of_a_prompt() {
    const { max_tokens: _, temperature: __, ...prompt } = greedy;
    const { input_tokens: counted } = await client.messages.countTokens(prompt);
    const { usage } = await client.messages.create(greedy);
    assert.equal(counted, usage.input_tokens + usage.cache_read_input_tokens);
  },

  async a_mistake_is_an_error_with_its_place() {
    await assert.rejects(client.messages.create({ ...greedy, stop_sequences: [5] }),
      (e) => e instanceof APIError && e.status === 400 && e.error.error.type === "invalid_request_error" && e.error.error.param.startsWith("stop_sequences"));
  },

  async a_wrong_key_is_an_error() {
    const other = new Anthropic({ baseURL: process.env.WEIR_KEYED_URL, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(other.messages.create(greedy), (e) => e instanceof APIError && e.status === 401 && e.error.error.type === "authentication_error");
  },

  async leaving_a_stream_ends_it() {
    const stream = client.messages.stream({ ...greedy, max_tokens: 2000 });
    await new Promise((done) => stream.once("text", done));
    stream.abort();
    await assert.rejects(stream.finalMessage());
    assert((await client.messages.create(greedy)).content[0].text);
  },
};

await main(tests);
