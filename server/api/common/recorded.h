/* recorded.h: a request and its answer as records (server/recording/). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_RECORDED_H
#define WEIR_SERVER_API_COMMON_RECORDED_H

#include "server/request/serve.h"

/* What a record has of a choice. */
typedef struct serve_recorded_choice {
    weir__text tokens, logprobs; /* bytes of int32_t and float */
    size_t n_prompt;
    uint64_t prompt; /* the checksum of the prompt's tokens */
} serve_recorded_choice;

/* What a record has of a request, noted while it is read. */
typedef struct serve_recorded_answer {
    bool wanted;           /* the request is to be recorded */
    bool on;               /* it is, and so will be its answer */
    bool has_secrets;      /* its body has members that are left out */
    bool drawn;            /* the server drew the seed */
    bool fetched;          /* it has images by URL, which are not recorded */
    uint32_t seed;         /* WEIR_SEED_RANDOM = it is not known */
    const char *continues; /* the field that names another answer, static; NULL = none */
} serve_recorded_answer;

/* Draws a seed for a request that gives none, so that its answer can be computed again. False: nothing is
 * recorded. */
bool serve_recorded_draw(const serve_call *call, uint32_t *seed);

/* True if a body has members that are not recorded. */
bool serve_recorded_has_secrets(const json_t *body);

/* Records a request that is wanted, whose n choices were submitted; `model` is its name for the client.
 * Worker. */
void serve_recorded_begin(const serve_call *call, serve_recorded_answer *recorded, const char *model,
                          int32_t n);

/* Adds a chunk's tokens. False: out of memory. */
bool serve_recorded_add(serve_recorded_choice *recorded, const weir_chunk *chunk);

/* Notes the prompt, unless it is known. stream: of the choice; NULL = it has none any more. */
void serve_recorded_prompt(serve_recorded_choice *recorded, const weir_stream *stream);

void serve_recorded_fini(serve_recorded_choice *recorded);

/* Appends a choice to the list that the record of an answer is, and records that. */
void serve_recorded_add_choice(const serve_recorded_choice *recorded, const char *reason, weir__text *list);
void serve_recorded_end(const serve_call *call, serve_recorded_answer *recorded, weir__text *list);

#endif
