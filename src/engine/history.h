/* history.h: a stream's request and its answer so far, from which a fork starts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_HISTORY_H
#define WEIR_ENGINE_HISTORY_H

#include <stdbool.h>

#include "cache/prefix_tree.h"
#include "engine/score.h"
#include "model/adapter.h"
#include "weir/weir.h"

/* Zeroed at first. Invariant: n_head <= n_prompt <= n_tokens. */
typedef struct weir__history {
    int32_t *tokens; /* [n_tokens] the prompt, then the answer; NULL = nothing is known */
    int32_t n_tokens;
    size_t capacity;
    int32_t n_prompt;
    int32_t n_head; /* tokens of the prompt before any answer; fewer than n_prompt in a fork only */
    char *salt;     /* [salt_length]; NULL = none */
    size_t salt_length;
    weir_chat *chat; /* held; NULL = none */
    weir__adapters adapters;
    char *before; /* [n_before], NUL-terminated: see weir_stream_source_text; NULL = "" */
    size_t n_before;
    weir__score *score; /* of the prompt; held; NULL = not wanted */
} weir__history;

/* Fills *to with the first n tokens of `from` as its prompt, without `before` and `score`. False: out of
 * memory, *to is zeroed. */
bool weir__history_copy(weir__history *to, const weir__history *from, int32_t n);
void weir__history_fini(weir__history *history);

/* Whose texts it may be compared with; valid as long as the history. */
static inline weir__prefix_key weir__history_key(const weir__history *history)
{
    return (weir__prefix_key){history->salt, history->salt_length, history->adapters.key};
}

/* False: out of memory, nothing was added. */
bool weir__history_add(weir__history *history, const int32_t *tokens, size_t n);

#endif
