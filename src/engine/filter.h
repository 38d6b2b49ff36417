/* filter.h: the tokens that may come next in a request's answer: min_tokens, stop_tokens, allowed_tokens and
 * bad_words. ADR 0112.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FILTER_H
#define WEIR_ENGINE_FILTER_H

#include "model/model.h"

/* Zeroes: every token may come. The bit sets have a bit for each token of the vocabulary and are parts of one
 * block. Invariant: unless `stale`, `mask` is `base` without the tokens that end the answer, as long as fewer
 * than min_tokens have come, and without hidden[0 .. n_hidden). */
typedef struct weir__filter {
    size_t n_words;     /* of 64 bits, in a set */
    uint64_t *mask;     /* those that may come next; owned, as is the block; NULL = every token may */
    uint64_t *base;     /* those that may ever come */
    uint64_t *stops;    /* stop_tokens */
    uint64_t *ends;     /* these, and the model's end tokens */
    const char *limits; /* the request's member that excludes tokens for good; static; NULL = none does */
    bool stale;         /* the mask was made for another token */
    int32_t min_tokens; /* before one of `ends` */
    int32_t n;          /* tokens so far, without those of a fork's source; counts up to min_tokens */
    int32_t *sequences; /* of more than one token, one after the other, whose last token is hidden; owned */
    int32_t *length;    /* [n_sequences]; owned */
    int32_t n_sequences;
    int32_t *hidden; /* [n_sequences]; owned */
    int32_t n_hidden;
    int32_t *tail; /* [tail_room] the newest tokens, n_tail of them; owned */
    int32_t n_tail, tail_room;
} weir__filter;

/* Errors: INVALID (min_tokens, stop_tokens, allowed_tokens, bad_words and their numbers), NO_MEMORY. Free
 * with fini in any case. Reads min_tokens, not whether max_tokens allows it. */
weir_status weir__filter_init(weir__filter *filter, const weir_model *model, const weir_request *given,
                              weir_error *error);
void weir__filter_fini(weir__filter *filter);

/* The tokens that may come next, as a backend's sample takes them. NULL: all. */
const uint64_t *weir__filter_mask(weir__filter *filter);

/* Adds the tokens that end the answer to the mask, for the next token only: none of the mask's may come.
 * False: there is no filter. */
bool weir__filter_yield(weir__filter *filter);

/* Takes the next token of the answer. */
void weir__filter_take(weir__filter *filter, int32_t token);

/* Takes the answer of a fork's source, which bad_words see and min_tokens does not count. */
void weir__filter_replay(weir__filter *filter, const int32_t *tokens, int32_t n);

/* True if the token is one of stop_tokens. */
bool weir__filter_stops(const weir__filter *filter, int32_t token);

#endif
