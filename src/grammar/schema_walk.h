/* schema_walk.h: shared by the files of the schema walk.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Functions that return json_t return a new reference, or NULL after a failure. JSON's `false` stands for a
 * schema that nothing satisfies; it never reaches the result. Functions that return bool return false after a
 * failure. The first failure stays in the walk's status; all functions may be called after it. */
#ifndef WEIR_GRAMMAR_SCHEMA_WALK_H
#define WEIR_GRAMMAR_SCHEMA_WALK_H

#include "base/json.h"
#include "base/text.h"
#include "grammar/range.h"
#include "grammar/regular.h"
#include "grammar/schema_work.h"

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

/* The kind of a keyword; names that JSON Schema does not know are annotations, too. */
enum keyword_kind { ANNOTATION, GENERAL, OBJECT, ARRAY, STRING, NUMBER, REFUSED };

/* A definition, made at the first $ref to its target. Invariant: in the order of these. */
typedef struct weir__schema_definition {
    const json_t *target; /* in the given document */
    int level;            /* of the walk when it was opened */
    bool open;            /* the walk is in its target */
    bool used_open;       /* and has met a reference to it there */
    bool impossible;      /* nothing satisfies it */
} weir__schema_definition;

/* A schema with an allOf and its merged form; both are held. */
typedef struct weir__schema_flat {
    json_t *schema, *flat;
} weir__schema_flat;

/* A conjunction that the walk has made: `target` is {"allOf": [a, b]}, and `reference` is the value of a $ref
 * to it, recognized by its address. So recursive schemas that are merged end in references, too. one_of:
 * SIZE_MAX without a oneOf. */
typedef struct weir__schema_pair {
    json_t *a, *b; /* held, as the others are; b is NULL: a's $ref and the keywords beside it */
    json_t *reference, *target;
    size_t one_of; /* the length of a oneOf's path if b holds what contradicts its other branches */
} weir__schema_pair;

/* A keyword of conjunctions: an array of patterns beside `pattern`. In a rewritten schema, beside the states
 * of a string: the rewritten patterns that they come from. */
#define WEIR__SCHEMA_PATTERNS "\001patterns"

/* What `not` leaves, as arrays: patterns that a string must not match, values that it must not have, and
 * values that a number must not have. The type of numbers that are no integers. */
#define WEIR__SCHEMA_NOT_PATTERNS "\001not patterns"
#define WEIR__SCHEMA_NOT_STRINGS  "\001not strings"
#define WEIR__SCHEMA_NOT_NUMBERS  "\001not numbers"
#define WEIR__SCHEMA_FRACTIONS    "\001fraction"

/* What contradicts additionalProperties and patternProperties: a list of {"names", "patterns", "value"} and
 * {"only", "value"}, each with the keyword that needs it. For each of them, an object has a property whose
 * value satisfies "value", and whose name is none of the names and matches none of the patterns, or matches
 * the only one. */
#define WEIR__SCHEMA_BEYOND "\001beyond"

/* What a rewritten schema has beside keywords of JSON Schema: of strings, the states of regular.h; of objects
 * with listed properties, pairs [names, values] for others, and the least and most properties. */
#define WEIR__SCHEMA_DEFS      "#/$defs/" /* and a definition's name: the value of a $ref */
#define WEIR__SCHEMA_STATES    "x-states"
#define WEIR__SCHEMA_OTHERS    "x-others"
#define WEIR__SCHEMA_GRAPH     "x-graph"     /* of an array: its items and states, see schema_array.c */
#define WEIR__SCHEMA_SPELLINGS "x-spellings" /* of listed values: numbers in all spellings */
#define WEIR__SCHEMA_BROKEN    "x-broken"    /* of a number: it is no integer */
#define WEIR__SCHEMA_MULTIPLES "x-multiples" /* of a number: the fields of weir__multiples */
#define WEIR__SCHEMA_LEAST     "x-least"
#define WEIR__SCHEMA_MOST      "x-most"

/* A part of the document with a URI of its own (`$id`); the first one is the document. */
typedef struct weir__schema_resource {
    const json_t *node;
    char *uri; /* without a fragment; "": none */
} weir__schema_resource;

/* The value of a $ref, and the resource that it stands in. */
typedef struct weir__schema_link {
    const json_t *reference;
    size_t resource;
} weir__schema_link;

#define WEIR__SCHEMA_INTEGER_MAX INT64_C(9999999999999999) /* 16 digits, the most of all numbers */

typedef struct weir__schema_walk {
    const json_t *root;
    json_t *own_root; /* NULL: root is the caller's */
    const char *where;
    const char *tag;
    json_t *defs;                         /* the result's $defs */
    weir__schema_definition *definitions; /* [n_definitions] */
    size_t n_definitions;
    size_t capacity;
    weir__schema_flat *flats; /* [n_flats] */
    size_t n_flats, flats_capacity;
    weir__schema_pair *pairs; /* [n_pairs] */
    size_t n_pairs, pairs_capacity;
    weir__schema_resource *resources; /* [n_resources] */
    size_t n_resources, resources_capacity;
    weir__schema_link *links; /* [n_links], in the order of the addresses */
    size_t n_links, links_capacity;
    weir__text path; /* the JSON pointer of the current schema */
    int depth;
    int level; /* of nested properties and items: text comes before a deeper schema */
    size_t n_nodes;
    weir__schema_work *work;
    const char *opposing; /* the keyword that needs the opposite which is being made */
    bool unevaluated;     /* the document asks for what its other keywords do not evaluate */
    bool dynamic;         /* it has a $dynamicRef */
    bool hides;           /* $ref hides keywords beside it, by the document's draft: see schema_resource.c */
    bool relax;
    weir__text *relaxed; /* may be NULL */
    char refused[64];    /* keyword of the last refusal, "" = none */
    size_t refused_at;   /* length of its path */
    bool final;          /* relax cannot leave out the refused keyword */
    weir_error *error;
    weir_status status;
} weir__schema_walk;

/* -- schema_walk.c: failures, values, the path -- */

/* Extends the path by the keyword, and by a name (may be NULL) or an index; leave shortens it to the length
 * that was returned. */
size_t weir__schema_enter(weir__schema_walk *w, const char *keyword, const char *name);
size_t weir__schema_enter_index(weir__schema_walk *w, const char *keyword, size_t i);
void weir__schema_leave(weir__schema_walk *w, size_t before);

const char *weir__schema_path(const weir__schema_walk *w);

/* Return NULL. keyword NULL: the whole schema is refused. refuse_finally: with relax, too; for malformed
 * schemas and for limits. refuse: for what a grammar cannot enforce. */
json_t *weir__schema_refuse(weir__schema_walk *w, const char *keyword, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
json_t *weir__schema_refuse_finally(weir__schema_walk *w, const char *keyword, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
json_t *weir__schema_no_memory(weir__schema_walk *w);

/* Counts n steps of work, about one for each value or name that is read. False: too many. */
bool weir__schema_spend(weir__schema_walk *w, size_t n);

/* Counts n elements of the keyword's grammar. */
bool weir__schema_take(weir__schema_walk *w, const char *keyword, uint64_t n);

/* The value. After a failure NULL, and the value is released. A value of NULL means out of memory. */
json_t *weir__schema_made(weir__schema_walk *w, json_t *value);

/* The result of json_pack, as of weir__schema_made. */
json_t *weir__schema_pack(weir__schema_walk *w, const char *format, ...);

/* Adds the value to the list or object, and takes over the reference to it. A value of NULL means out of
 * memory. */
bool weir__schema_append(weir__schema_walk *w, json_t *list, json_t *value);
bool weir__schema_set(weir__schema_walk *w, json_t *object, const char *name, json_t *value);

/* Gives the schema a list of its own, to which values can be added: a copy of the one it has, or an empty
 * one. The list stays the schema's. NULL: a failure. */
json_t *weir__schema_own_list(weir__schema_walk *w, json_t *schema, const char *keyword);

/* A copy of the schema without the keyword. */
json_t *weir__schema_without(weir__schema_walk *w, const json_t *schema, const char *keyword);

/* {keyword: list}, with `enum` or `anyOf`; `false` if the list is empty. Takes over the list. */
json_t *weir__schema_choice(weir__schema_walk *w, const char *keyword, json_t *list);

/* {"anyOf": list}, or the only schema of a list of one; `false` if the list is empty. Takes over the list. */
json_t *weir__schema_any_of(weir__schema_walk *w, json_t *list);

/* -- schema_resource.c: parts with URIs of their own -- */

/* Reads them from the document, in which `$dynamicRef` becomes `$ref` where both say the same: w->root may
 * become a copy, which is kept in w->own_root. False: a failure. */
bool weir__schema_read_resources(weir__schema_walk *w);
void weir__schema_free_resources(weir__schema_walk *w);

/* The resource that a reference stands in. */
const weir__schema_resource *weir__schema_resource_of(const weir__schema_walk *w, const json_t *reference);

/* The resource with the URI [n], which may be relative to that of the other one; NULL: none, or a failure. */
const weir__schema_resource *weir__schema_find_resource(weir__schema_walk *w,
                                                        const weir__schema_resource *from, const char *uri,
                                                        size_t n);

/* True if the keyword's members are schemas by name, or if its value is data and no schema. */
bool weir__schema_has_named(const char *keyword);
bool weir__schema_is_data(const char *keyword);

/* The URI by which the schema is a resource of its own, or NULL. */
const char *weir__schema_own_uri(const weir__schema_walk *w, const json_t *schema);

/* -- schema_reference.c: references -- */

/* The target of a $ref in the given document. */
const json_t *weir__schema_resolve(weir__schema_walk *w, const json_t *reference);

/* The target of a schema's $ref, with the keywords beside it. dereference follows references to the end. */
const json_t *weir__schema_target(weir__schema_walk *w, const json_t *schema);
const json_t *weir__schema_dereference(weir__schema_walk *w, const json_t *schema);

/* The schema that a value must violate to contradict the given one, references followed to the end: where a
 * $ref hides the keywords beside it, without them. */
const json_t *weir__schema_judged(weir__schema_walk *w, const json_t *schema);

/* {"$ref": …} to the conjunction of both schemas, or of a's $ref and the keywords beside it (b NULL). */
json_t *weir__schema_both(weir__schema_walk *w, json_t *a, json_t *b);

/* The definition that a rewritten schema refers to, NULL while it is being made; the schema itself: it has no
 * $ref. */
const json_t *weir__schema_defined(const weir__schema_walk *w, const json_t *made);

/* -- schema.c: schemas -- */

/* Rewrites a schema; with relax, without refused keywords. */
json_t *weir__schema_node(weir__schema_walk *w, const json_t *schema);

/* Rewrites a schema, and refuses even with relax. */
json_t *weir__schema_enforce(weir__schema_walk *w, const json_t *schema);

/* weir__schema_node of a schema below the current one. name may be NULL. deeper: text comes before it. */
json_t *weir__schema_below(weir__schema_walk *w, const char *keyword, const char *name, const json_t *schema,
                           bool deeper);
json_t *weir__schema_below_index(weir__schema_walk *w, const char *keyword, size_t i, const json_t *schema,
                                 bool deeper);

/* -- schema.c: with relax -- */

/* weir__schema_enforce of the schema without the keywords that it refuses. */
json_t *weir__schema_relax(weir__schema_walk *w, const json_t *schema);

/* weir__schema_relax for the arguments of a function, which must be an object. */
json_t *weir__schema_relax_object(weir__schema_walk *w, const json_t *schema);

/* -- schema_walk.c: keywords and types -- */

enum keyword_kind weir__schema_kind_of(const char *name);
bool weir__schema_check_keywords(weir__schema_walk *w, const json_t *schema);

/* The first keyword that is neither an annotation nor in `allowed` (NULL-terminated), or NULL. */
const char *weir__schema_other_constraint(const json_t *schema, const char *const *allowed);

/* True if the schema has one of the keywords (NULL-terminated). */
bool weir__schema_has_any(const json_t *schema, const char *const *keywords);
extern const char *const weir__schema_named_properties[]; /* properties, required */
extern const char *const weir__schema_listed_values[];    /* const, enum */

bool weir__schema_is_required(const json_t *schema, const char *name);

#define WEIR__SCHEMA_TYPES 8
extern const struct weir__schema_type {
    const char *name;
    unsigned mask;
} weir__schema_types[WEIR__SCHEMA_TYPES];

bool weir__schema_is_object(const json_t *schema); /* its `type` is object alone */
unsigned weir__schema_type_of(const json_t *value);

/* True if both are equal in terms of JSON Schema, where 1 and 1.0 are, or if one of the list's values is. */
bool weir__schema_equal(const json_t *a, const json_t *b);
bool weir__schema_has_value(const json_t *list, const json_t *value);

/* Compares two numbers by their exact values: below, at or above 0. */
int weir__schema_compare(const json_t *a, const json_t *b);

/* The types that `type` allows, all if it is absent; 0 after a refusal. */
unsigned weir__schema_declared_types(weir__schema_walk *w, const json_t *schema);

/* True if type i of weir__schema_types belongs to the mask; a number includes integers. type_array lists
 * them. */
bool weir__schema_has_type(unsigned mask, size_t i);
json_t *weir__schema_type_array(weir__schema_walk *w, unsigned mask);

/* -- schema_merge.c: allOf, anyOf, oneOf -- */

/* The schema with the members of its allOf merged into it; `false` if one of them is. The result may be
 * shared and must not be changed. */
json_t *weir__schema_flatten(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_alternatives(weir__schema_walk *w, const json_t *schema); /* anyOf, oneOf */

/* The values that the schema lists, as an array, or NULL. */
json_t *weir__schema_listed(const json_t *schema);

/* The branches of a oneOf, changed so that no value satisfies two; NULL: a refusal. given: as the schema has
 * them, before they were merged with what stands beside the oneOf. */
json_t *weir__schema_part_branches(weir__schema_walk *w, json_t *branches, const json_t *given);

/* True if the grammar's objects for the schema have listed properties only. */
bool weir__schema_is_made_closed(const weir__schema_walk *w, const json_t *schema);

/* A superset of the types of the values that satisfy the schema. */
unsigned weir__schema_possible_types(weir__schema_walk *w, const json_t *schema);

/* +1 for keywords that are lower bounds, -1 for upper ones, 0 for others. Of two lower bounds the greater
 * counts, of two upper ones the less. */
int weir__schema_bound_sign(const char *name);

/* -- schema_condition.c -- */

/* A schema that is satisfied only by values that do not satisfy the given one, though not by all of them.
 * keyword: what needs it; later refusals name that. NULL: it is unknown, or a failure. */
json_t *weir__schema_opposite(weir__schema_walk *w, const char *keyword, const json_t *schema);

/* The schema without its `not`, with fewer types or values instead; `false` if none remain. */
json_t *weir__schema_without_not(weir__schema_walk *w, const json_t *schema);

/* True if the schema has if, then, else or dependencies. conditions lists the schemas that say the same
 * without these keywords, which drop_conditions removes. */
bool weir__schema_has_condition(const json_t *schema);
json_t *weir__schema_conditions(weir__schema_walk *w, const json_t *schema);
void weir__schema_drop_conditions(json_t *schema);

/* An ECMA pattern of texts with this format (may be NULL); NULL if it is an annotation. False after a
 * refusal. */
bool weir__schema_format(weir__schema_walk *w, const json_t *format, const char **pattern);

/* True if a string's format is an annotation: JSON Schema does not know it, nor one with nearly this name. */
bool weir__schema_is_other_format(const char *name);

/* -- schema_value.c -- */

enum weir__schema_verdict { WEIR__SCHEMA_VIOLATED, WEIR__SCHEMA_SATISFIED, WEIR__SCHEMA_UNCLEAR };

/* Says if the value satisfies the schema. UNCLEAR also after a failure. *unclear (may be NULL): the first
 * keyword whose verdict is unclear, or NULL. */
enum weir__schema_verdict weir__schema_judge(weir__schema_walk *w, const json_t *schema, const json_t *value,
                                             const char **unclear);

/* -- schema_object.c, schema_number.c, schema_type.c -- */

/* True if the value is within the schema's bounds of numbers, lengths and counts. */
bool weir__schema_within_bounds(const json_t *value, const json_t *schema);

/* Reads a count such as minItems; *value is unchanged if it is absent. False after a refusal. */
bool weir__schema_count(weir__schema_walk *w, const json_t *schema, const char *keyword, uint64_t *value);

/* The bounds of a number, of which a rewritten one has at most one below and one above. multipleOf, if
 * given, is 1, 0.1, 0.01 and so on. */
typedef struct weir__schema_bounds {
    weir__range range; /* its texts are in the next */
    char low[WEIR__JSON_REAL_MAX], high[WEIR__JSON_REAL_MAX];
    const json_t *least, *most; /* the schema's values; NULL: none */
} weir__schema_bounds;
void weir__schema_read_bounds(const json_t *schema, weir__schema_bounds *bounds);

/* type: TYPE_INTEGER, TYPE_FRACTION or TYPE_NUMBER. */
json_t *weir__schema_numbers(weir__schema_walk *w, const json_t *schema, unsigned type);

json_t *weir__schema_values(weir__schema_walk *w, const json_t *schema); /* const, enum */
json_t *weir__schema_string(weir__schema_walk *w, const json_t *schema);

/* The strings that match all parts [n], rewritten; `false`: there are none. With narrowed, there are none,
 * too, where they would make the grammar too large (*narrowed is set); else that is refused. */
json_t *weir__schema_product(weir__schema_walk *w, const char *keyword, const weir__regular_part *parts,
                             size_t n, bool *narrowed);

/* Rewrites an ECMA pattern to *text, which weir__mem_free frees. False after a refusal. */
bool weir__schema_rewrite_pattern(weir__schema_walk *w, const char *keyword, const char *pattern,
                                  char **text);

/* Says if the text matches an ECMA pattern. UNCLEAR: weir cannot say it, or a failure. */
enum weir__schema_verdict weir__schema_match(weir__schema_walk *w, const char *pattern, const char *text);

/* True if the name matches one of the patterns, which are the object's keys; false also after a failure. */
bool weir__schema_matches(weir__schema_walk *w, const json_t *patterns, const char *name);

json_t *weir__schema_array(weir__schema_walk *w, const json_t *schema);
json_t *weir__schema_object(weir__schema_walk *w, const json_t *schema);

#endif
