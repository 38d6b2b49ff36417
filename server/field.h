/* field.h: fields of a request's JSON, each described by a row. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_FIELD_H
#define WEIR_SERVER_FIELD_H

#include <stddef.h>

#include "serve.h"

typedef enum serve_field_kind {
    SERVE_FIELD_BOOL,
    SERVE_FIELD_INT32,
    SERVE_FIELD_STRING, /* a const char * that borrows */
    SERVE_FIELD_VALUE,  /* the JSON itself, a const json_t * that borrows */
    SERVE_FIELD_MODEL,  /* a model's name; where it is an adapter's, a const char * that borrows, else NULL */
    SERVE_FIELD_MEMBER, /* a member of one of the library's structs, by its row */
    SERVE_FIELD_OTHER,  /* read by `read` */
    SERVE_FIELD_ONLY,   /* accepted with the value `only`, which changes nothing; `why`: it must be that */
    SERVE_FIELD_NEVER,  /* not supported, because of `why` */
} serve_field_kind;

typedef struct serve_field {
    const char *name;
    unsigned where; /* bits: the kinds of requests that have it */
    serve_field_kind kind;
    size_t target;      /* offset in the struct that the fields are read into */
    double least, most; /* instead of the member's range, where they differ */
    const char *of; /* the library's member that it sets, of "sampler", "chat" or "request"; NULL = none */
    const char *member;
    const char *only;
    const char *why;
    serve_reader *read;
} serve_field;

/* Rows: a value of kind SERVE_FIELD_k for a member of a struct; a value that a function reads. */
#define SERVE_FIELD(n, w, k, of, at)                                                                         \
    {                                                                                                        \
        .name = (n), .where = (w), .kind = SERVE_FIELD_##k, .target = offsetof(of, at)                       \
    }
#define SERVE_FIELD_BY(n, w, r)                                                                              \
    {                                                                                                        \
        .name = (n), .where = (w), .kind = SERVE_FIELD_OTHER, .read = (r)                                    \
    }

/* Reads json's fields of `where` into *to; null counts as left out. others reads fields without a row, and
 * sets *known to false for an unknown one; may be NULL. False: the call has its answer. */
bool serve_fields_read(serve_call *call, const serve_field *fields, size_t n, unsigned where,
                       const json_t *json, void *to,
                       bool (*others)(serve_call *call, void *to, const char *name, const json_t *value,
                                      bool *known));

/* A number, flag, choice or string into its struct. False: the call has its answer. */
bool serve_field_member(serve_call *call, const char *name, const weir_member *member, void *of,
                        const json_t *value);

/* Calls `each` with every text of a field's value (a string, an array of token ids, or an array of at most
 * `most` of either) and its name there, "prompt" or "prompt[3]". False: the call has its answer, or `each`
 * failed. */
bool serve_field_texts(serve_call *call, const char *name, const json_t *value, size_t most,
                       serve_reader *each, void *to);

/* Calls `each` with every item of an array and its place. False: the call has its answer. */
bool serve_field_each(serve_call *call, void *to, const char *place, const json_t *list, serve_reader *each);

/* An object's "type"; NULL: it has none. */
static inline const char *serve_field_type(const json_t *object)
{
    return json_string_value(json_object_get(object, "type"));
}

/* Whether an object has no members but these, a list that ends with NULL; `place` is where it is in the
 * request. False: the call has its answer. */
bool serve_field_only(serve_call *call, const char *place, const json_t *object, const char *const *members);

/* "PLACE is of type …; supported here: ALLOWED", of an object at that place in the request. Returns false. */
bool serve_field_refuse_type(serve_call *call, const char *place, const json_t *object, const char *allowed);

/* "NAME must be WHAT". Returns false. */
bool serve_field_refuse(serve_call *call, const char *name, const char *what);

#endif
