/* dialect.h: the kinds of requests for text, and the names that their fields have.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_DIALECT_H
#define WEIR_SERVER_API_COMMON_DIALECT_H

#include <stddef.h>

#define SERVE_ASK_CHAT        1u
#define SERVE_ASK_COMPLETIONS 2u
#define SERVE_ASK_NATIVE      4u   /* beside COMPLETIONS: llama-server's own */
#define SERVE_ASK_INFILL      32u  /* beside NATIVE: its /infill */
#define SERVE_ASK_MESSAGES    8u   /* Anthropic's */
#define SERVE_ASK_RESPONSES   16u  /* OpenAI's */
#define SERVE_ASK_OLLAMA      64u  /* Ollama's /api/chat */
#define SERVE_ASK_GENERATE    128u /* and /api/generate */
#define SERVE_ASK_OPTIONS     256u /* beside these two: the members of their "options" */

/* ask_fields.c: the field that sets a member of `of`, "sampler", "chat" or "request" (NULL: any), where the
 * table has a line for it in requests of `where` (0: any); member is [n]. NULL: it has none. */
const char *serve_ask_name(const char *of, const char *member, size_t n, unsigned where);

#endif
