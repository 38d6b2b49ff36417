/* encoder.h: a thread that encodes images and sounds beside the driver, and the memory of their embeddings
 * (ADR 0094).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_ENCODER_H
#define WEIR_ENGINE_ENCODER_H

#include "cache/cache.h"
#include "engine/history.h"
#include "engine/waker.h"

typedef struct weir__encoder weir__encoder;

/* The embeddings of a segment: wanted, being computed, or there. */
typedef struct weir__embedding weir__embedding;

/* The model has a projector. The embeddings that nobody needs now stay within a part of the cache's budget,
 * n_bytes. waker: woken when one is done. NO_MEMORY. */
weir_status weir__encoder_create(weir_model *model, weir__cache *cache, uint64_t n_bytes, weir__waker *waker,
                                 weir__encoder **out, weir_error *error);

/* Ends the encode that runs. No embedding may be held; before the cache ends. */
void weir__encoder_destroy(weir__encoder *encoder);

/* All below: the driver. The embeddings of a span, held; NULL: out of memory. Those of equal media,
 * parameters and salts are the same. Encoded in the order in which they were first wanted. */
weir__embedding *weir__encoder_want(weir__encoder *encoder, const weir__history *history,
                                    const weir__media_span *span);

/* True if the thread has nothing to do. */
bool weir__encoder_is_idle(weir__encoder *encoder);

/* The embeddings of a span, as above, before a slot needs them and within the budget. NULL: there is no
 * room beside embeddings that are held. Segments that slots need are encoded first: they interrupt an
 * encode ahead, which is repeated later. */
weir__embedding *weir__encoder_want_ahead(weir__encoder *encoder, const weir__history *history,
                                          const weir__media_span *span);

/* A slot now needs an embedding that was wanted ahead. */
void weir__encoder_need(weir__encoder *encoder, weir__embedding *embedding);

/* Ends the encode if nobody else wants it. */
void weir__encoder_leave(weir__encoder *encoder, weir__embedding *embedding);

/* OK: they are there; TIMEOUT: not yet; else why there will be none. */
weir_status weir__encoder_state(weir__encoder *encoder, const weir__embedding *embedding, weir_error *error);

typedef struct weir__encoder_counts {
    uint64_t n_encodes, n_saved, n_bytes; /* as in weir_engine_stats */
    int64_t encode_ns;
} weir__encoder_counts;

/* encoder NULL: zeroes. */
weir__encoder_counts weir__encoder_count(weir__encoder *encoder);

/* [n_cells][width]; NULL unless they are there. */
float *weir__encoder_rows(const weir__embedding *embedding);

#endif
