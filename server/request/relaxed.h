/* relaxed.h: the header X-Weir-Relaxed: names of what in a request has no effect.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_RELAXED_H
#define WEIR_SERVER_REQUEST_RELAXED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define SERVE_RELAXED_MAX   1024 /* bytes of the header's value */
#define SERVE_RELAXED_NAMES 64   /* the most names in it */
#define SERVE_RELAXED_MANY  1000 /* names that are known again; of more each counts each time */

/* The names of hints; each is there once. */
typedef struct serve_relaxed {
    char text[SERVE_RELAXED_MAX]; /* [n], the header's value: names, with "; " between them */
    size_t n, n_shown;
    size_t n_more;                      /* names for which there was no room */
    uint64_t names[SERVE_RELAXED_MANY]; /* [n_names], hashes of both */
    size_t n_names;
} serve_relaxed;

/* True if the name with this hash is there. */
bool serve_relaxed_has(const serve_relaxed *relaxed, uint64_t hash);

/* Adds a name that is not there, or counts it. */
void serve_relaxed_add(serve_relaxed *relaxed, uint64_t hash, const char *name);

/* Appends the header, if there is something to tell; relaxed may be NULL. */
void serve_relaxed_add_header(const serve_relaxed *relaxed, weir__text *head);

#endif
