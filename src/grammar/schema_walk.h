/* schema_walk.h: what the files of the schema walk share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Functions that return json_t give a new reference, or NULL after a refusal. JSON's `false` stands for a
 * schema that nothing satisfies; it never reaches the result. Functions that return bool give false after a
 * refusal. */
#ifndef WEIR_GRAMMAR_SCHEMA_WALK_H
#define WEIR_GRAMMAR_SCHEMA_WALK_H

#include "grammar/schema.h"

/* Types as a set. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* a number that is no integer */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ANY = 127,
};

/* What a keyword is about; what is not known counts as ANNOTATION. */
enum family { ANNOTATION, GENERAL, OBJECT, ARRAY, STRING, NUMBER, REFUSED };

/* A definition that a $ref made. Invariant: numbered in the order of first mention. */
typedef struct weir__schema_definition {
    const json_t *target; /* in the given document */
    int level;            /* the walk's, when it was opened */
    bool open;            /* its target is being walked */
    bool used_open;       /* a reference to it was made meanwhile */
    bool impossible;      /* nothing satisfies it */
} weir__schema_definition;

/* What an allOf was merged to; both are held. */
typedef struct weir__schema_flat {
    json_t *schema, *flat;
} weir__schema_flat;

#define WEIR__SCHEMA_INTEGER_MAX INT64_C(9999999999999999) /* 16 digits, as all numbers have at most */

typedef struct weir__schema_walk {
    const json_t *root;
    const char *where;
    const char *tag;
    json_t *defs;                         /* the result's $defs */
    weir__schema_definition *definitions; /* [n_definitions] */
    size_t n_definitions;
    size_t capacity;
    weir__schema_flat *flats; /* [n_flats] */
    size_t n_flats, flats_capacity;
    weir__text path; /* the JSON pointer of the schema at hand */
    int depth;
    int level; /* how many properties and items the walk stands in: text comes before what is deeper */
    size_t n_nodes;
    weir__schema_work *work;
    bool relax;
    weir__text *relaxed; /* may be NULL */
    char refused[64];    /* the keyword of the last refusal, "" = none */
    size_t refused_at;   /* the length of the path at that place */
    bool final;          /* the refusal is not one that relax can leave out */
    weir_error *error;
    weir_status status;
} weir__schema_walk;

/* -- schema.c: schemas, references, refusals -- */

json_t *weir__schema_node(weir__schema_walk *w, const json_t *schema);

/* A schema below the present one. name may be NULL. deeper: text comes before it. */
json_t *weir__schema_below(weir__schema_walk *w, const char *keyword, const char *name, const json_t *schema,
                           bool deeper);
json_t *weir__schema_below_index(weir__schema_walk *w, const char *keyword, size_t i, const json_t *schema,
                                 bool deeper);

/* Goes into the path and, with what enter_index returned, out again. */
size_t weir__schema_enter_index(weir__schema_walk *w, const char *keyword, size_t i);
void weir__schema_leave(weir__schema_walk *w, size_t before);

const char *weir__schema_path(const weir__schema_walk *w);

/* NULL always; the first refusal counts. keyword NULL: the whole schema is meant. */
json_t *weir__schema_refuse(weir__schema_walk *w, const char *keyword, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
json_t *weir__schema_no_memory(weir__schema_walk *w);

/* The value; NULL, and the value is released, after any failure of the walk. A value of NULL is one. */
json_t *weir__schema_made(weir__schema_walk *w, json_t *value);

/* The same with the result of json_pack. */
json_t *weir__schema_pack(weir__schema_walk *w, const char *format, ...);

/* These take over the reference to the value. A NULL counts as out of memory unless there was a refusal. */
bool weir__schema_append(weir__schema_walk *w, json_t *list, json_t *value);
bool weir__schema_set(weir__schema_walk *w, json_t *object, const char *name, json_t *value);

/* A copy of the schema that lacks the keyword. */
json_t *weir__schema_without(weir__schema_walk *w, const json_t *schema, const char *keyword);

/* {keyword: list}, `enum` or `anyOf`; `false` where the list is empty. Takes over the list. */
json_t *weir__schema_choice(weir__schema_walk *w, const char *keyword, json_t *list);

/* The same for `anyOf`, or the one schema that the list has. */
json_t *weir__schema_any_of(weir__schema_walk *w, json_t *list);

/* The same for what is refused with relax too. */
json_t *weir__schema_refuse_finally(weir__schema_walk *w, const char *what);

/* Counts n steps of work, about one for each value or name that is looked at. False: there were too many. */
bool weir__schema_spend(weir__schema_walk *w, size_t n);

/* Counts n elements of the grammar that the keyword makes. */
bool weir__schema_take(weir__schema_walk *w, const char *keyword, uint64_t n);

/* What a $ref names, in the given document. dereference follows until something else comes. */
const json_t *weir__schema_resolve(weir__schema_walk *w, const json_t *reference);
const json_t *weir__schema_dereference(weir__schema_walk *w, const json_t *schema);

/* The schema as it can be honoured; refusals as below. */
json_t *weir__schema_enforce(weir__schema_walk *w, const json_t *schema);

/* -- schema_relax.c: what is left out where the caller allows it -- */

/* weir__schema_enforce of the schema without what that refuses. */
json_t *weir__schema_relax(weir__schema_walk *w, const json_t *schema);

/* The same for the arguments of a function, which are to be an object. */
json_t *weir__schema_relax_object(weir__schema_walk *w, const json_t *schema);

/* -- schema_keyword.c: keywords and types -- */

enum family weir__schema_family_of(const char *name);
bool weir__schema_check_keywords(weir__schema_walk *w, const json_t *schema);

/* The first keyword that restricts beside those of `allowed` (NULL-terminated), or NULL. */
const char *weir__schema_other_constraint(const json_t *schema, const char *const *allowed);

/* Whether the schema has one of the keywords (NULL-terminated). */
bool weir__schema_has_any(const json_t *schema, const char *const *keywords);
extern const char *const weir__schema_named_properties[]; /* properties, required */

bool weir__schema_is_required(const json_t *schema, const char *name);

#define WEIR__SCHEMA_TYPES 7
extern const struct weir__schema_type {
    const char *name;
    unsigned mask;
} weir__schema_types[WEIR__SCHEMA_TYPES];

unsigned weir__schema_type_mask(const char *name); /* 0: no type; NULL is none */
unsigned weir__schema_type_of(const json_t *value);

/* As JSON Schema has it: 1 and 1.0 are equal. */
bool weir__schema_equal(const json_t *a, const json_t *b);

/* What `type` allows, everything when it is absent; 0 after a refusal. */
unsigned weir__schema_declared_types(weir__schema_walk *w, const json_t *schema);

/* Whether type i of the list is one of the mask; numbers include integers. */
bool weir__schema_has_type(unsigned mask, size_t i);
json_t *weir__schema_type_array(weir__schema_walk *w, unsigned mask);

/* -- schema_merge.c: several schemas that meet -- */

/* The schema without its allOf, whose members are merged into it; `false` when one of them is that. The
 * result may be the schema itself or known to others: it must not be changed. */
json_t *weir__schema_flatten(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_alternatives(weir__schema_walk *w, const json_t *schema); /* anyOf, oneOf */

/* A superset of the types of what satisfies the schema: what cannot be read allows all. */
unsigned weir__schema_possible_types(weir__schema_walk *w, const json_t *schema);

/* -- schema_not.c: what is excluded -- */

/* The schema without its `not`, which restricts its types or values instead; `false` when nothing remains. */
json_t *weir__schema_without_not(weir__schema_walk *w, const json_t *schema);

/* -- schema_format.c: formats of strings -- */

/* An ECMA pattern of texts that have the format, or NULL. */
const char *weir__schema_format_pattern(const char *name);

/* -- schema_object.c, schema_number.c and schema_type.c: what each type can be restricted to -- */

/* A count such as minItems into *value, unchanged when there is none. False after a refusal. */
bool weir__schema_count(weir__schema_walk *w, const json_t *schema, const char *keyword, uint64_t *value);

json_t *weir__schema_values(weir__schema_walk *w, const json_t *schema); /* const, enum */
json_t *weir__schema_integer(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_number(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_string(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_array(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema);

#endif
