/* chunks.c: a sequence of chunks, which grows at its end and is read in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/chunks.h"

#include <string.h>

#include "base/mem.h"

/* Makes room for the chunk's tokens and their logprobs. */
static bool reserve_tokens(weir__chunks *to, const weir_chunk *chunk)
{
    size_t n = to->n_tokens + chunk->n_tokens, n_top = (size_t)chunk->n_top_logprobs;
    if (chunk->n_tokens == 0) return true;
    return weir__mem_grow(&to->tokens, &to->tokens_capacity, n, sizeof *to->tokens) &&
           (chunk->logprobs == NULL ||
            weir__mem_grow(&to->logprobs, &to->logprobs_capacity, n, sizeof *to->logprobs)) &&
           (n_top == 0 || weir__mem_grow(&to->tops, &to->tops_capacity, n * n_top, sizeof *to->tops));
}

static void add_tokens(weir__chunks *to, const weir_chunk *chunk)
{
    size_t n = chunk->n_tokens, n_top = (size_t)chunk->n_top_logprobs;
    if (n == 0) return;
    memcpy(to->tokens + to->n_tokens, chunk->tokens, n * sizeof *to->tokens);
    if (chunk->logprobs != NULL)
        memcpy(to->logprobs + to->n_tokens, chunk->logprobs, n * sizeof *to->logprobs);
    if (n_top > 0) memcpy(to->tops + to->n_tokens * n_top, chunk->top_logprobs, n * n_top * sizeof *to->tops);
    to->n_top = chunk->n_top_logprobs;
    to->n_tokens += n;
}

bool weir__chunks_append(weir__chunks *to, const weir_chunk *chunk, const weir_usage *usage)
{
    bool merge = to->n_marks == WEIR__CHUNKS_MOST;
    size_t length = chunk->length;
    if (!reserve_tokens(to, chunk)) return false;
    if (length > 0 && !weir__mem_grow(&to->text, &to->text_capacity, to->n_text + length + 1, 1))
        return false;

    weir__chunk_mark *last = &to->marks[merge ? to->n_marks - 1 : to->n_marks];
    if (!merge) {
        *last = (weir__chunk_mark){.token = to->n_tokens, .text = to->n_text};
        to->n_marks++;
    } else if (length > 0 && last->length > 0) {
        to->n_text--; /* overwrites the NUL */
    } else if (length > 0) {
        last->text = to->n_text;
    }
    add_tokens(to, chunk);
    last->n_tokens += chunk->n_tokens;
    last->n_hidden = chunk->n_hidden;
    last->n_generated = usage->n_generated;
    last->total_ns = usage->total_ns;
    if (length > 0) {
        memcpy(to->text + to->n_text, chunk->text, length);
        to->text[to->n_text + length] = '\0';
        to->n_text += length + 1;
        last->length += length;
    }
    return true;
}

void weir__chunks_get(const weir__chunks *chunks, int i, weir_chunk *chunk)
{
    const weir__chunk_mark *at = &chunks->marks[i];
    *chunk = (weir_chunk){
        .tokens = at->n_tokens > 0 ? chunks->tokens + at->token : NULL,
        .n_tokens = at->n_tokens,
        .text = at->length > 0 ? chunks->text + at->text : "",
        .length = at->length,
        .n_hidden = at->n_hidden,
        .n_generated = at->n_generated,
        .total_ns = at->total_ns,
        .reason = WEIR_REASON_NOT_FINISHED,
    };
    if (at->n_tokens > 0 && chunks->logprobs != NULL) chunk->logprobs = chunks->logprobs + at->token;
    if (at->n_tokens > 0 && chunks->n_top > 0) {
        chunk->top_logprobs = chunks->tops + at->token * (size_t)chunks->n_top;
        chunk->n_top_logprobs = chunks->n_top;
    }
}

void weir__chunks_clear(weir__chunks *chunks)
{
    chunks->n_tokens = chunks->n_text = 0;
    chunks->n_marks = 0;
}

void weir__chunks_fini(weir__chunks *chunks)
{
    weir__mem_free(chunks->tokens);
    weir__mem_free(chunks->logprobs);
    weir__mem_free(chunks->tops);
    weir__mem_free(chunks->text);
}
