// The official ollama package for Node.
// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { createRequire } from "node:module";

import { main } from "./checks.mjs";

const require = createRequire(process.env.WEIR_CLIENTS + "/node/");
const { Ollama } = require("ollama");

const model = process.env.WEIR_MODEL;
const client = new Ollama({ host: process.env.WEIR_URL });
const messages = [{ role: "user", content: "Name three rivers." }];
const greedy = { model, messages, options: { temperature: 0, num_predict: 32 } };

const tests = {
  async models() {
    const { models } = await client.list();
    assert(models.some((m) => m.name === model + ":latest" || m.name === model));
    assert((await client.show({ model })).capabilities.includes("completion"));
    assert.equal((await client.ps()).models.length, 1);
    assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
  },

  async a_stream_says_the_same() {
    const whole = await client.chat(greedy);
    assert(whole.message.content && whole.done && whole.eval_count > 0);
    let text = "", last;
    for await (const part of await client.chat({ ...greedy, stream: true })) {
      text += part.message.content;
      last = part;
    }
    assert.equal(text, whole.message.content);
    assert(last.done && last.eval_count === whole.eval_count && last.done_reason === whole.done_reason);
  },

  async generate_and_embed() {
    const answer = await client.generate({ model, prompt: "Name three rivers.", options: greedy.options });
    assert.equal(answer.response, (await client.chat(greedy)).message.content);
    const { embeddings } = await client.embed({ model, input: ["one text", "another"] });
    assert.equal(embeddings.length, 2);
  },

  async a_form() {
    const format = { type: "object", properties: { name: { type: "string", maxLength: 20 } }, required: ["name"], additionalProperties: false };
    const answer = await client.chat({ model, messages, format, options: { num_predict: 100 } });
    assert.deepEqual(Object.keys(JSON.parse(answer.message.content)), ["name"]);
  },

  async errors() {
    await assert.rejects(client.chat({ ...greedy, model: "llama3.2" }), (e) => e.name === "ResponseError" && e.status_code === 404 && /no model/.test(e.message));
    await assert.rejects(client.chat({ ...greedy, options: { temperature: -1 } }), (e) => e.status_code === 400 && /options\.temperature/.test(e.message));
  },

  async an_aborted_stream() {
    const stream = await client.chat({ model, messages, stream: true, options: { num_predict: 3000 } });
    await assert.rejects(async () => {
      for await (const _ of stream) stream.abort();
    }, { name: "AbortError" });
  },
};

await main(tests);
