/* history.h: a stream's request and its answer so far, from which a fork starts, with the images, sounds and
 * logprobs of its prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_HISTORY_H
#define WEIR_ENGINE_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/prefix_tree.h"
#include "model/adapter.h"
#include "model/model.h"
#include "weir/weir.h"

/* ---- Logprobs of the prompt ---- */

typedef struct weir__bcontext weir__bcontext;

/* Reference-counted by the request and its stream. Invariant: tokens before n_scored have their logprob,
 * apart from the first token and the cells of media, which never have one; token n_scored, if there is one,
 * is not a cell of a medium. Until `done`, the driver owns all but refs and done. */
typedef struct weir__score {
    atomic_int refs;
    atomic_bool done; /* all logprobs are there; release, for the readers' acquire */
    int32_t n, n_scored;
    int32_t n_top;
    int32_t *tokens;   /* [n]; -1 = a cell of an image or a sound */
    float *logprobs;   /* [n] */
    weir_logprob *top; /* [n][n_top] */
} weir__score;

/* Creates the score of the prompt [n], n >= 1; ids below zero are cells of media. NULL: out of memory. */
weir__score *weir__score_create(const int32_t *prompt, int32_t n, int32_t n_top);
weir__score *weir__score_hold(weir__score *score);
/* The scored tokens as a chunk without text. */
weir_chunk weir__score_chunk(const weir__score *score);

/* Scores the next n tokens, from n rows of the pass. n == 0: does nothing, and score may be NULL. */
weir_status weir__score_rows(weir__score *score, const weir_model *model, weir__bcontext *context,
                             int32_t row, int32_t n);

/* ---- Images and sounds ---- */

/* An image or a sound of a prompt, as its model reads it. Immutable but for refs. May outlive the model. */
typedef struct weir__medium {
    _Atomic int refs;
    const weir__backend *ops;
    weir_media *media;        /* held: encoded from its pixels or samples */
    weir__prepared *prepared; /* trimmed: its segments */
    uint64_t projector;       /* weir__projector_info's identity */
    bool image;
} weir__medium;

/* limits: of the engine; n_ubatch counts. Errors name the field "media": UNSUPPORTED (the model does not
 * read this; a segment does not fit into a pass), NO_MEMORY. */
weir__medium *weir__medium_hold(weir__medium *medium);
void weir__medium_release(weir__medium *medium);

/* SHA-256 of all data that the embeddings of a segment depend on, and of `more`; 64 hexadecimal digits. */
void weir__medium_key(const weir__medium *medium, int32_t segment, const void *more, size_t n_more,
                      char hex[65]);

/* Cells of a segment in a text: their ids are below zero (ADR 0074). */
typedef struct weir__media_span {
    weir__medium *medium; /* held */
    int32_t segment;      /* of its prepared */
    int32_t at, end;      /* cells of the text */
    int32_t n_still;      /* cells without a position of their own, in this span and those before */
} weir__media_span;

/* ---- The text ---- */

/* Zeroed at first. Invariant: n_head <= n_prompt <= n_tokens. */
typedef struct weir__history {
    int32_t
        *tokens; /* [n_tokens] the prompt, then the answer; NULL = nothing is known; below zero: of a span */
    int32_t n_tokens;
    size_t capacity;
    int32_t n_prompt;
    int32_t n_head;          /* tokens of the prompt before any answer; fewer than n_prompt in a fork only */
    weir__media_span *spans; /* [n_spans], ascending, all in the prompt's head */
    int32_t n_spans;
    size_t spans_capacity;
    int32_t n_image, n_audio; /* tokens in the place of images and sounds */
    char *salt;               /* [salt_length]; NULL = none */
    size_t salt_length;
    weir_chat *chat; /* held; NULL = none */
    weir__adapters adapters;
    char *before; /* [n_before], NUL-terminated: see weir_stream_source_text; NULL = "" */
    size_t n_before;
    weir__score *score; /* of the prompt; held; NULL = not wanted */
} weir__history;

/* Fills *to with the first n tokens of `from`, n >= n_prompt, as its prompt, without `before` and `score`.
 * False: out of memory, *to is zeroed. */
bool weir__history_copy(weir__history *to, const weir__history *from, int32_t n);
void weir__history_fini(weir__history *history);

/* The key of its prefixes: whose texts it may be compared with; valid as long as the history. */
static inline weir__prefix_key weir__history_key(const weir__history *history)
{
    return (weir__prefix_key){history->salt, history->salt_length, history->adapters.key};
}

/* Inserts media into the prompt of a history that has tokens only, media i before token at[i]; ascending.
 * limits: of the engine; n_ubatch and n_ctx count. Errors name the field "media": UNSUPPORTED (the model does
 * not read this; a segment does not fit into a pass), TOO_LONG, NO_MEMORY. */
weir_status weir__history_insert(weir__history *history, const weir_model *model,
                                 const weir_engine_params *limits, const weir_media_use *media,
                                 const size_t *at, size_t n, weir_error *error);

/* The first span that ends behind cell n; NULL: none. */
const weir__media_span *weir__history_span(const weir__history *history, int32_t n);

/* True if cell n is one of a span, which then is not NULL. */
static inline bool weir__history_in_span(const weir__media_span *span, int32_t n)
{
    return span != NULL && n >= span->at;
}

/* The position of cell n, which is the first of a span or in none. */
static inline int32_t weir__history_position(const weir__history *history, int32_t n)
{
    int32_t n_still = 0;
    for (int32_t i = 0; i < history->n_spans && history->spans[i].end <= n; i++)
        n_still = history->spans[i].n_still;
    return n - n_still;
}

/* The most cells, at most n, that do not end within a span. */
static inline int32_t weir__history_cut(const weir__history *history, int32_t n)
{
    const weir__media_span *span = history->n_spans > 0 ? weir__history_span(history, n) : NULL;
    return weir__history_in_span(span, n) ? span->at : n;
}

/* The cells, likewise at most n, whose ids another text has, too: those of few cells may be equal by
 * chance. */
int32_t weir__history_shared(const weir__history *history, int32_t n);

/* False: out of memory, nothing was added. */
bool weir__history_add(weir__history *history, const int32_t *tokens, size_t n);

#endif
