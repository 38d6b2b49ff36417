// A small agent with Vercel's AI SDK: ai_sdk_loop.mjs PROMPT [IMAGE]. The conversation goes on from run to run, in ~/history.json.
// SPDX-License-Identifier: Apache-2.0
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.PACKAGES + "/");
const { isStepCount, streamText, tool } = require("ai");
const { openai } = require("@ai-sdk/openai");
const { z } = require("zod");

const history = process.env.HOME + "/history.json";
const [prompt, image] = process.argv.slice(2);
const messages = existsSync(history) ? JSON.parse(readFileSync(history)) : [];
const content = [{ type: "text", text: prompt }];
if (image) content.push({ type: "image", image: readFileSync(image).toString("base64"), mediaType: "image/png" });
if (messages.length) messages.push({ role: "system", content: "From now on be brief." });
messages.push({ role: "user", content });

const tools = {
  read_file: tool({
    description: "The text of a file.",
    inputSchema: z.object({ path: z.string() }),
    execute: ({ path }) => (existsSync(path) ? readFileSync(path, "utf8") : "no such file"),
  }),
  edit_file: tool({
    description: "Puts a text in the place of another.",
    inputSchema: z.object({ path: z.string(), old: z.string(), new: z.string() }),
    execute: ({ path, old, new: text }) => {
      writeFileSync(path, readFileSync(path, "utf8").replace(old, text));
      return "done";
    },
  }),
};
let reason;
do { // the package goes on neither after a stream that broke off nor after a call that was cut
  const result = streamText({ model: openai("local"), instructions: "You edit files.", messages, allowSystemInMessages: true, tools, stopWhen: isStepCount(8) });
  for await (const part of result.textStream) process.stdout.write(part);
  reason = await result.finishReason;
  if (reason !== "interrupted") messages.push(...(await result.responseMessages));
} while (reason === "interrupted" || reason === "length");
writeFileSync(history, JSON.stringify(messages));
