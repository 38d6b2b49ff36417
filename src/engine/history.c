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

bool weir__history_copy(weir__history *to, const weir__history *from, size_t n, size_t more)
{
    *to = (weir__history){
        .n = n,
        .n_prompt = from->n_prompt,
        .n_head = from->n_head,
        .salt_length = from->salt_length,
        .chat = weir_chat_hold(from->chat),
        .n_before = from->n_before,
        .score = weir__score_hold(from->score),
    };
    weir__adapters_copy(&to->adapters, &from->adapters);
    bool done = weir__mem_grow(&to->tokens, &to->capacity, n + more, sizeof *to->tokens);
    if (done) memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
    if (done && from->salt != NULL) done = (to->salt = weir__mem_dup(from->salt, from->salt_length)) != NULL;
    if (done && from->before != NULL)
        done = (to->before = weir__mem_dup(from->before, from->n_before + 1)) != NULL;
    if (!done) weir__history_fini(to);
    return done;
}

bool weir__history_add(weir__history *history, const int32_t *tokens, size_t n)
{
    if (n == 0) return true;
    if (!weir__mem_grow(&history->tokens, &history->capacity, history->n + n, sizeof *history->tokens))
        return false;
    memcpy(history->tokens + history->n, tokens, n * sizeof *tokens);
    history->n += n;
    return true;
}
