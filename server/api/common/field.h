/* field.h: fields of a request's JSON, each described by a row. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_FIELD_H
#define WEIR_SERVER_API_COMMON_FIELD_H

#include <stddef.h>

#include "objects.h"
#include "server/request/serve.h"

/* The kinds of requests for text, whose fields have different names. */
#define SERVE_ASK_CHAT        1u
#define SERVE_ASK_COMPLETIONS 2u
#define SERVE_ASK_NATIVE      4u   /* beside COMPLETIONS: llama-server's own */
#define SERVE_ASK_INFILL      32u  /* beside NATIVE: its /infill */
#define SERVE_ASK_MESSAGES    8u   /* Anthropic's */
#define SERVE_ASK_RESPONSES   16u  /* OpenAI's */
#define SERVE_ASK_OLLAMA      64u  /* Ollama's /api/chat */
#define SERVE_ASK_GENERATE    128u /* and /api/generate */
#define SERVE_ASK_OPTIONS     256u /* beside these two: the members of their "options" */

typedef enum serve_field_kind {
    SERVE_FIELD_BOOL,
    SERVE_FIELD_INT32,
    SERVE_FIELD_COUNT,  /* an int32_t above 0, INT32_MAX at most; `why`: what it must be, may be NULL */
    SERVE_FIELD_STRING, /* a const char * that borrows */
    SERVE_FIELD_VALUE,  /* the JSON itself, a const json_t * that borrows */
    SERVE_FIELD_MODEL,  /* a model's name; where it is an adapter's, a const char * that borrows, else NULL */
    SERVE_FIELD_MEMBER, /* a member of one of the library's structs, by its row */
    SERVE_FIELD_OTHER,  /* read by `read` */
    SERVE_FIELD_ONLY,   /* accepted with the value `only`, which changes nothing; `why`: it must be that */
    SERVE_FIELD_NEVER,  /* not supported, because of `why`, unless it asks for nothing */
    SERVE_FIELD_HINT,   /* of the `types`; has no effect and is named, unless it is one of `only` */
} serve_field_kind;

typedef struct serve_field {
    const char *name;
    unsigned where; /* bits: the kinds of requests that have it */
    serve_field_kind kind;
    size_t target;      /* offset in the struct that the fields are read into */
    double least, most; /* instead of the member's range, where they differ */
    const char *of; /* the library's member that it sets, of "sampler", "chat" or "request"; NULL = none */
    const char *member;
    const char *only; /* JSON; of a hint any number, with "|" between them */
    /* Of a hint: what it must be with `strict`; "": unknown then; NULL: named then, too. Of a number: a note
     * in the table of fields. */
    const char *why;
    unsigned types; /* bits 1 << JSON_*, see SERVE_JSON; 0 = any */
    serve_reader *read;
} serve_field;

/* Rows: a value of kind SERVE_FIELD_k for a member of a struct; a count, where there is one kind of requests;
 * a value that a function reads. */
#define SERVE_FIELD(n, w, k, of, at)                                                                         \
    {                                                                                                        \
        .name = (n), .where = (w), .kind = SERVE_FIELD_##k, .target = offsetof(of, at)                       \
    }
#define SERVE_FIELD_COUNTED(n, of, at, what)                                                                 \
    {                                                                                                        \
        .name = (n), .where = 1, .kind = SERVE_FIELD_COUNT, .target = offsetof(of, at), .why = (what)        \
    }
#define SERVE_FIELD_BY(n, w, r)                                                                              \
    {                                                                                                        \
        .name = (n), .where = (w), .kind = SERVE_FIELD_OTHER, .read = (r)                                    \
    }

#define SERVE_JSON_STRING (1u << JSON_STRING)
#define SERVE_JSON_OBJECT (1u << JSON_OBJECT)
#define SERVE_JSON_ARRAY  (1u << JSON_ARRAY)
#define SERVE_JSON_NUMBER (1u << JSON_INTEGER | 1u << JSON_REAL)
#define SERVE_JSON_BOOL   (1u << JSON_TRUE | 1u << JSON_FALSE)

/* The bit in `where` of a field without which the answer would be another one, so that requests that do not
 * have it are refused. */
#define SERVE_FIELD_BINDS (1u << 31)

/* The fields of some requests. */
typedef struct serve_field_table {
    const serve_field *fields; /* [n] */
    size_t n;
    /* Reads a field without a row, and sets *known to false for an unknown one. NULL: there are none. */
    bool (*read)(serve_call *call, void *to, const char *name, const json_t *value, bool *known);
    const char *of;    /* the library's struct of whose members `read` knows some; NULL: of none */
    unsigned of_where; /* in these requests */
    const char *place; /* names begin with it and a dot; NULL: not */
} serve_field_table;

#define SERVE_FIELD_TABLE(rows)                                                                              \
    {                                                                                                        \
        .fields = (rows), .n = sizeof(rows) / sizeof *(rows)                                                 \
    }

/* The tables of requests for text and of Ollama's options, for embeddings, Ollama's too, for ranks, and for
 * tokens. */
extern const serve_field_table serve_ask_table, serve_ask_option_table, serve_embeddings_table,
    serve_ollama_embed_table, serve_rerank_table, serve_tokenize_table;

/* The field that sets a member of `of`, "sampler", "chat" or "request" (NULL: any), where requests for text
 * of `where` (0: any) have a row for it; member is [n]. NULL: there is none. */
const char *serve_fields_name(const char *of, const char *member, size_t n, unsigned where);

/* True if some request or part of one has a field of this name. */
bool serve_fields_know(const char *name);

/* Judges a field without a row and meaning as a hint. False: the call has its answer. */
bool serve_fields_judge(serve_call *call, const serve_field_table *table, unsigned where, const char *key,
                        const json_t *value);

/* Reads json's fields of `where` into *to; null counts as left out. Unknown ones are hints (hint.h). False:
 * the call has its answer. */
bool serve_fields_read(serve_call *call, const serve_field_table *table, unsigned where, const json_t *json,
                       void *to);

/* Sets a number, flag, choice or string in its struct. False: the call has its answer. */
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

/* Judges the members of an object that its row does not have as hints; `place` is where it is in the request.
 * False: the call has its answer. */
bool serve_field_only(serve_call *call, const char *place, const json_t *object, serve_object of);

/* Checks a member that is itself an object, likewise. */
static inline bool serve_field_only_in(serve_call *call, const char *place, const json_t *object,
                                       const char *name, serve_object of)
{
    return serve_field_only(call, serve_place_of(place, name).text, json_object_get(object, name), of);
}

/* "PLACE is of type …; supported here: ALLOWED", of an object at that place in the request. Returns false. */
bool serve_field_refuse_type(serve_call *call, const char *place, const json_t *object, const char *allowed);

/* "NAME must be WHAT". Returns false. */
bool serve_field_refuse(serve_call *call, const char *name, const char *what);

#endif
