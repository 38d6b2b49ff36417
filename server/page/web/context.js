// context.js: how much of a chat fits into the model's context.
// SPDX-License-Identifier: Apache-2.0
import { request } from "./api.js";

const SHARE = 0.75; // of the context for what was said, so that there is room for an answer

// What helps where one message alone is too long.
export const HELP = "Shorten the message, its files or the system prompt. The server's operator can give chats more room: --ctx.";

// A refusal of the server in the page's words; first: the chat has no turns that it could do without.
export function tooLongWords(refusal, first) {
  const [, room, more = "", tokens] = /context length is (\d+) tokens.*?(at least |more than )?(\d+) tokens/s.exec(refusal) ?? [];
  const what = first ? "This message" : "This chat", help = first ? ` ${HELP}` : "";
  return tokens ? `${what} is longer than the model's context: the prompt has ${more}${tokens} tokens, and there is room for ${room} with the answer.${help}` : `${what} is longer than the model's context.${help}`;
}

// The first of `starts` (indices of a chat's messages, in their order) from which on the chat fits; undefined: none.
// bodyFrom(start) is the request that is made of it.
export async function firstThatFits(starts, bodyFrom) {
  const props = await (await request("props")).json();
  const room = SHARE * props.default_generation_settings.n_ctx;
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const plan = await (await request("v1/plan", { body: bodyFrom(starts[middle]) })).json();
    if (plan.fits && plan.prompt_tokens <= room) high = middle;
    else low = middle + 1;
  }
  return starts[low];
}
