/* wish.h: random requests to a fake model, their expected results, and whether a reader got them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_WISH_H
#define WEIR_TESTS_WISH_H

#include "support/dice.h"
#include "support/reference.h"

#define WISH_STOPS      3
#define WISH_STOP_BYTES 48

/* One request with all that it points to. Filled once; the struct must not move while `task` is in use. */
typedef struct wish {
    int32_t *prompt; /* [task.n_prompt] */
    char *text;      /* [text_length] that gives this prompt; NULL = asked by tokens */
    size_t text_length;
    int32_t max_tokens; /* as asked; resolved in task */
    int32_t interval;
    int64_t deadline_ms;
    int32_t priority;
    const char *salt;
    bool caches;
    bool scored;         /* the prompt is */
    weir_stream *source; /* a fork's; NULL = it is none */
    int32_t source_at;
    char stop_bytes[WISH_STOPS][WISH_STOP_BYTES];
    const char *stop[WISH_STOPS];
    size_t stop_length[WISH_STOPS];
    reference_stop stops[WISH_STOPS];
    reference_task task;
    reference want; /* nothing unless `fits` */
    bool fits;      /* into the engine: else its submit is TOO_LONG */
    weir_sampler_params sampler;
} wish;

typedef struct wish_limits {
    weir_model *model;
    int32_t n_ctx;      /* of the engine's stats */
    int32_t max_tokens; /* of its parameters */
    int32_t usual;      /* most prompts, and most answers, are no longer */
    int32_t n_vocab;
    const weir_adapter_use *adapters; /* [n_adapters], for those that are no forks */
    size_t n_adapters;
    const struct wish *like; /* prompts often begin as this one and its answer do; NULL = none */
    weir_stream *source;     /* `like`'s, of which `source_at` tokens are known to have come: a fork of it; or
                              * NULL */
    int32_t source_at;
} wish_limits;

/* Gives the tokens of a fresh fake model other bytes: a few letters, so that texts repeat themselves, whole
 * characters, parts of some, bytes that belong to none, nothing at all; some become control or end tokens. */
void wish_vocabulary(weir_model *model, int32_t n_vocab, dice *d);

void wish_make(wish *w, const wish_limits *limits, dice *d);
void wish_fini(wish *w);

/* Valid while the wish is. */
weir_request wish_request(const wish *w);

/* One consumer's result. Zeroed at first. */
typedef struct reader {
    int32_t *tokens; /* [n_tokens] */
    size_t n_tokens;
    int64_t total_ns; /* of the newest chunk */
    char *text;       /* [length] */
    size_t length;
    size_t n_chunks;
    bool finished;
    weir_reason reason;
} reader;

void reader_fini(reader *r);

/* Adds a chunk. Returns NULL, or an error that no chunk may have. */
const char *reader_add(reader *r, const weir_chunk *chunk);

/* Whether the chunk, not yet added and not merged with another, has its right length: all text that was free
 * when it was due, and not later, the stream's interval having been from `least` to `most` and drafts at most
 * n_draft tokens long. NULL: yes. */
const char *reader_judge_chunk(const reader *r, const wish *w, const weir_chunk *chunk, int32_t least,
                               int32_t most, int32_t n_draft);

/* Whether tokens, text, reason and counts are those that the request must have, with this end. NULL: yes. */
const char *reader_judge(const reader *r, const wish *w, const weir_usage *usage);

/* Whether the prompt's logprobs are there, where they must be, and are the model's. NULL: yes. */
const char *reader_judge_prompt(const wish *w, const weir_stream *stream);

/* The same of weir_generate. */
const char *wish_judge_result(const wish *w, const weir_result *result);

#endif
