/* reference.h: a request's expected result, computed from its prompt alone in the plainest way: token by
 * token, whole texts decoded and searched anew each time. Shares no code with the engine.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_REFERENCE_H
#define WEIR_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

typedef struct reference_stop {
    const char *bytes;
    size_t length;
} reference_stop;

/* A request to a fake model. Pointers stay the caller's. */
typedef struct reference_task {
    const weir_model *model;
    const int32_t *prompt; /* [n_prompt] */
    int32_t n_prompt;
    int32_t n_before;   /* of these, the last ones, which are an answer that this one goes on with */
    int32_t max_tokens; /* resolved: no -1 */
    bool special;
    const reference_stop *stops; /* [n_stops] */
    size_t n_stops;
    const weir_adapter_use *adapters; /* [n_adapters] */
    size_t n_adapters;
} reference_task;

/* Owned by the caller; all arrays are malloc's. */
typedef struct reference {
    int32_t *tokens; /* [n_tokens], the end token not among them */
    size_t n_tokens;
    bool ended; /* by an end token, which counts as generated */
    weir_reason reason;
    char *text; /* [length], NUL-terminated */
    size_t length;
    char *raw;         /* the pieces, one after another, those of the answer before among them */
    size_t *raw_end;   /* [n_tokens + 1] bytes of raw after i tokens */
    size_t *free_text; /* [n_tokens + 1] bytes of text that may be shown after i tokens */
    size_t n_shown;    /* bytes of text that were shown of the answer before: `text` goes on from there */
} reference;

/* Whether the answer before has one of the stop strings. */
bool reference_is_stopped_before(const reference_task *task);

void reference_make(reference *r, const reference_task *task);
void reference_fini(reference *r);

/* The text of a request that is ended after n of its tokens by something else than these tokens; *length
 * bytes, to be freed. */
char *reference_text(const reference *r, const reference_task *task, size_t n, size_t *length);

/* Well-formed UTF-8 of n bytes, out[3 * n]; returns its length. An incomplete sequence at the end waits, or,
 * when that is the end of all, becomes U+FFFD. */
size_t reference_decode(const char *bytes, size_t n, bool is_end, char *out);

#endif
