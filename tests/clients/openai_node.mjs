// The official openai package for Node.
// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { main } from "./checks.mjs";

const require = createRequire(process.env.WEIR_CLIENTS + "/node/");
const OpenAI = require("openai").default;
const { zodResponseFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const url = process.env.WEIR_URL, model = process.env.WEIR_MODEL;
const client = new OpenAI({ baseURL: url + "/v1", apiKey: "any", maxRetries: 0 });
const messages = [{ role: "user", content: "Name three rivers." }];
const greedy = { model, messages, temperature: 0, max_tokens: 32 };

const slots = async () => {
  const body = await (await fetch(url + "/slots")).json();
  return (Array.isArray(body) ? body : body.slots).filter((slot) => slot.state !== "idle").length;
};
async function until(condition, what) {
  for (const end = Date.now() + 60000; !(await condition()); await new Promise((go) => setTimeout(go, 20))) {
    assert(Date.now() < end, "waited for " + what);
  }
}

const tests = {
  async a_prompt_that_is_seen_to_be_read() {
    const whole = await client.chat.completions.create(greedy);
    const stream = client.chat.completions.stream({ ...greedy, return_progress: true });
    let told = 0;
    stream.on("chunk", (chunk) => (told += Boolean(chunk.prompt_progress)));
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert(told >= 2);
    const asked = { model, input: "Name three rivers.", temperature: 0, max_output_tokens: 32, store: false };
    const response = await client.responses.stream({ ...asked, return_progress: true }).finalResponse();
    assert.equal(response.output_text, (await client.responses.create(asked)).output_text);
  },

  async responses() {
    const asked = { model, input: "Name three rivers.", temperature: 0, max_output_tokens: 32, store: false };
    const whole = await client.responses.create(asked);
    assert(whole.output_text);
    let text = "", last;
    for await (const event of await client.responses.create({ ...asked, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event;
    }
    assert.equal(text, whole.output_text);
    assert.equal(last.response.output[0].content[0].text, text);
    const parameters = { type: "object", properties: { town: { enum: ["Ulm", "Bonn"] } }, required: ["town"], additionalProperties: false };
    const called = await client.responses.create({ ...asked, max_output_tokens: 200, tool_choice: "required", parallel_tool_calls: false,
      tools: [{ type: "function", name: "weather", description: "the weather of a town", parameters, strict: true }] });
    assert.equal(called.output[0].name, "weather");
    assert(["Ulm", "Bonn"].includes(JSON.parse(called.output[0].arguments).town));
  },
  async models() {
    const ids = [];
    for await (const one of client.models.list()) ids.push(one.id);
    assert(ids.includes(model));
  },

  async a_stream_says_the_same() {
    const whole = await client.chat.completions.create(greedy);
    let text = "", finish = null, usage = null;
    for await (const chunk of await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, whole.choices[0].finish_reason);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    const runner = client.chat.completions.stream(greedy);
    let heard = "";
    runner.on("content", (delta) => (heard += delta));
    assert.equal(await runner.finalContent(), text);
    assert.equal(heard, text);
  },

  // The package's own loop: it calls the function and sends back what that says, until an answer is text.
  async tools_run_by_the_package() {
    let called = null;
    const runner = client.chat.completions.runTools({
      model, max_tokens: 200, seed: 1, tool_choice: { type: "function", function: { name: "weather" } },
      messages: [{ role: "user", content: "How is the weather in Ulm?" }],
      tools: [{
        type: "function",
        function: {
          name: "weather", description: "the weather of a town", parse: JSON.parse,
          parameters: { type: "object", properties: { town: { type: "string", enum: ["Ulm", "Bonn"] } }, required: ["town"], additionalProperties: false },
          function: (given) => ((called = given), "sunny, 21 degrees"),
        },
      }],
    });
    await runner.done();
    assert(["Ulm", "Bonn"].includes(called.town));
    assert.deepEqual(runner.messages.map((m) => m.role), ["user", "assistant", "tool"]);
  },

  async structured_output_with_zod() {
    const Machine = z.object({
      title: z.string().max(30), electric: z.boolean(), wheels: z.number().int().min(1).max(18),
      parts: z.array(z.object({ name: z.string().max(20) })).min(1).max(3),
    });
    const answer = await client.chat.completions.parse({
      model, messages: [{ role: "user", content: "Describe a bicycle as JSON." }], max_tokens: 600, seed: 2, response_format: zodResponseFormat(Machine, "machine"),
    });
    Machine.parse(answer.choices[0].message.parsed);
  },

  async embeddings() {
    const { data } = await client.embeddings.create({ model, input: ["one text", "another", "one text"] });
    assert.equal(data.length, 3);
    assert(data[0].embedding.length > 100);
    const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
    assert(cosine(data[0].embedding, data[2].embedding) > 0.9999);
    assert(cosine(data[0].embedding, data[1].embedding) < 0.9999);
  },

  async errors() {
    await assert.rejects(client.chat.completions.create({ ...greedy, temperature: -1 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
    await assert.rejects(client.chat.completions.create({ ...greedy, model: "no-such-model" }), OpenAI.NotFoundError);
    await assert.rejects(new OpenAI({ baseURL: process.env.WEIR_KEYED_URL + "/v1", apiKey: "wrong", maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
  },

  async an_aborted_stream_ends_the_work() {
    await until(async () => (await slots()) === 0, "idle slots");
    const long = { model, messages: [{ role: "user", content: "Tell a very long story." }], max_tokens: 3000, ignore_eos: true };
    const stream = await client.chat.completions.create({ ...long, stream: true });
    let n = 0;
    for await (const _ of stream) {
      if (++n === 5) {
        assert.equal(await slots(), 1);
        stream.controller.abort();
        break;
      }
    }
    await until(async () => (await slots()) === 0, "idle slots");
    // Also one that does not stream.
    const controller = new AbortController();
    const waiting = client.chat.completions.create(long, { signal: controller.signal });
    await until(async () => (await slots()) === 1, "a busy slot");
    controller.abort();
    await assert.rejects(waiting, OpenAI.APIUserAbortError);
    await until(async () => (await slots()) === 0, "idle slots");
  },
};

await main(tests);
