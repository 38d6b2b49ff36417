/* chunks.h: a sequence of chunks in one piece of memory for each kind of data, between a stream's two sides.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_CHUNKS_H
#define WEIR_ENGINE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* Chunks that may wait unread before the newest is merged into the one before it. A reader that keeps up has
 * one or two; 32 last a second at 32 tokens per second. */
#define WEIR__CHUNKS_MOST 32

/* The place of a chunk in its sequence. A NUL follows its text. */
typedef struct weir__chunk_mark {
    size_t token;
    size_t n_tokens;
    size_t text;
    size_t length;
    int32_t n_hidden;
    int32_t n_generated; /* these two: of the stream, up to its last token */
    int64_t total_ns;
} weir__chunk_mark;

/* Invariant: marks are adjacent, apart from the NULs; if `terminal`, the last one is the terminal chunk.
 * Logprobs and tops, if present, have a place for each token. {0} is an empty sequence. */
typedef struct weir__chunks {
    int32_t *tokens;
    size_t n_tokens, tokens_capacity;
    float *logprobs; /* [n_tokens]; NULL = the stream is not scored */
    size_t logprobs_capacity;
    weir_logprob *tops; /* [n_tokens][n_top] */
    size_t tops_capacity;
    int32_t n_top;
    char *text;
    size_t n_text, text_capacity;
    weir__chunk_mark marks[WEIR__CHUNKS_MOST];
    int n_marks;
    bool terminal;
} weir__chunks;

/* Appends the chunk as one of its own, or to the last chunk if all marks are in use. usage: up to it. False:
 * out of memory, and nothing has changed. */
bool weir__chunks_append(weir__chunks *to, const weir_chunk *chunk, const weir_usage *usage);

/* Writes chunk i, as one that is not the terminal one. Its pointers are into the sequence. */
void weir__chunks_get(const weir__chunks *chunks, int i, weir_chunk *chunk);

/* Removes all chunks and keeps the memory. */
void weir__chunks_clear(weir__chunks *chunks);
void weir__chunks_fini(weir__chunks *chunks);

#endif
