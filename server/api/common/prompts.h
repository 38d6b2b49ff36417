/* prompts.h: the prompts of a request for completions. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_PROMPTS_H
#define WEIR_SERVER_API_COMMON_PROMPTS_H

#include "ask.h"

#define SERVE_PROMPTS_MAX 128 /* of one request */

/* One prompt, as a string or as token ids. */
typedef struct serve_prompt {
    const json_t *text; /* borrowed; NULL: ids */
    int32_t *tokens;    /* [n], owned */
    size_t n;
} serve_prompt;

typedef struct serve_prompts {
    size_t n;
    serve_prompt all[SERVE_PROMPTS_MAX]; /* [n] */
} serve_prompts;

/* The list is zeroes; freed with fini in any case. False: the call has its answer. */
bool serve_prompts_read(serve_ask *ask, serve_prompts *list);
void serve_prompts_fini(serve_prompts *list);

#endif
