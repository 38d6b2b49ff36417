/* places.h: how answers name parts of a request: where each of its values is, such as the messages and
 * tools that a dialect's reader rewrote, and what of it has no effect.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_PLACES_H
#define WEIR_SERVER_REQUEST_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define SERVE_PLACE_MAX 64

/* The place where a value is in the request: "messages[2].content". */
typedef struct serve_place {
    char text[SERVE_PLACE_MAX];
} serve_place;

/* The place of an object's member, and of an array's item. */
serve_place serve_place_of(const char *place, const char *member);
serve_place serve_place_at(const char *place, size_t i);

/* Places such as "input[3]", by the number of the message or tool that was made of each. Begins as zeroes. */
typedef struct serve_places {
    char (*at)[SERVE_PLACE_MAX]; /* [n], owned; freed with weir__mem_free */
    size_t n, capacity;
} serve_places;

/* The names that a request has for members of the library's structs, if its dialect or its choice of fields
 * decides them. */
typedef struct serve_terms {
    unsigned where;               /* bits of SERVE_ASK_*, which fields it has; 0 = any */
    const char *schema_field;     /* the field with the answer's schema; NULL: none */
    const char *parameters;       /* the member of tools that have a place here; NULL: none has */
    serve_places messages, tools; /* where each is that was rewritten or chosen; none: they are as given */
    size_t n_added;               /* messages of the server's in front of those of the request */
} serve_terms;

/* The place of message i, "messages[I]" if none has a place. */
serve_place serve_places_message(const serve_places *places, size_t i);

/* False: out of memory. */
bool serve_places_add(serve_places *places, const char *place);

/* Copies a place to the number of an earlier one; drops all places from number n on. Both do nothing if there
 * are no such places. */
void serve_places_move(serve_places *places, size_t from, size_t to);
void serve_places_cut(serve_places *places, size_t n);

/* ---- What has no effect ---- */

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
