/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/history.h"

#include <string.h>

#include "base/mem.h"

void weir__history_fini(weir__history *history)
{
    weir__mem_free(history->tokens);
    weir__mem_free(history->salt);
    weir__mem_free(history->before);
    weir_chat_release(history->chat);
    weir__adapters_fini(&history->adapters);
    weir__score_release(history->score);
    memset(history, 0, sizeof *history);
}

bool weir__history_copy(weir__history *to, const weir__history *from, int32_t n)
{
    *to = (weir__history){
        .tokens = weir__mem_dup(from->tokens, (size_t)n * sizeof *to->tokens),
        .n_tokens = n,
        .capacity = (size_t)n,
        .n_prompt = n,
        .n_head = from->n_head,
        .salt = from->salt != NULL ? weir__mem_dup(from->salt, from->salt_length) : NULL,
        .salt_length = from->salt_length,
        .chat = weir_chat_hold(from->chat),
    };
    weir__adapters_copy(&to->adapters, &from->adapters);
    if (to->tokens != NULL && (from->salt == NULL || to->salt != NULL)) return true;
    weir__history_fini(to);
    return false;
}

bool weir__history_add(weir__history *history, const int32_t *tokens, size_t n)
{
    size_t before = (size_t)history->n_tokens;
    if (n == 0) return true;
    if (!weir__mem_grow(&history->tokens, &history->capacity, before + n, sizeof *history->tokens))
        return false;
    memcpy(history->tokens + before, tokens, n * sizeof *tokens);
    history->n_tokens += (int32_t)n;
    return true;
}
