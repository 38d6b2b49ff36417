/* schema_grammar.c: rewritten JSON Schemas as GBNF.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The root comes first, then each definition in the order in which references to them are met. A definition
 * becomes a rule of its name; its parts that need rules have that name and a number. Rules that schemas
 * share, such as any-string, stand before all of these, if they are used. Optional properties, repeated parts
 * of patterns and lists that may be empty get rules of their own, because GBNF bounds what may be repeated.
 * The recursion is as deep as schemas are nested, which the rewriting bounds. */
#include "grammar/schema_grammar.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "grammar/automaton_rules.h"
#include "grammar/grammar.h"
#include "grammar/multiples.h"
#include "grammar/pattern.h"
#include "grammar/range.h"
#include "grammar/schema.h"
#include "grammar/schema_emit.h"
#include "grammar/schema_walk.h"

/* Rules that schemas share. Their names are none of llama.cpp's, whose rules may stand beside them. */
enum {
    ANY_VALUE,
    ANY_OBJECT,
    ANY_ARRAY,
    ANY_STRING,
    ANY_NUMBER,
    ANY_INTEGER,
    ANY_BOOLEAN,
    ANY_NULL,
    A_CHAR,
    WHOLE,
    FRACTION,
    DIGITS,
    ZEROS,
    NAUGHT,
    SPACE,
    N_SHARED
};
#define BIT(shared) (1u << (shared))

static const struct {
    const char *type; /* that it is the rule of, or NULL */
    const char *name, *body;
} shared_rules[N_SHARED] = {
    [ANY_VALUE] = {NULL, "any-value",
                   "any-string | any-object | any-array | any-number | any-boolean | any-null"},
    [ANY_OBJECT] = {"object", "any-object",
                    "\"{\" any-space (any-string any-space \":\" any-space any-value "
                    "(\",\" any-space any-string any-space \":\" any-space any-value)*)? any-space \"}\""},
    [ANY_ARRAY] = {"array", "any-array",
                   "\"[\" any-space (any-value (\",\" any-space any-value)*)? any-space \"]\""},
    [ANY_STRING] = {"string", "any-string", "\"\\\"\" any-char* \"\\\"\""},
    [ANY_NUMBER] =
        {"number", "any-number",
         "\"-\"? any-whole (\".\" [0-9]{1,16})? ([eE] (\"-\" [0-9]{1,3} | \"+\"? [01]? [0-9]{1,2}))?"},
    [ANY_INTEGER] = {"integer", "any-integer", "\"-\"? any-whole"},
    [ANY_BOOLEAN] = {"boolean", "any-boolean", "\"true\" | \"false\""},
    [ANY_NULL] = {"null", "any-null", "\"null\""},
    [A_CHAR] = {NULL, "any-char",
                "[^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4})"},
    [WHOLE] = {NULL, "any-whole", "[0] | [1-9] [0-9]{0,15}"},
    [FRACTION] = {NULL, WEIR__RANGE_FRACTION, "(\".\" [0-9]{1,16})?"},
    [DIGITS] = {NULL, WEIR__RANGE_DIGITS, "[0-9]{0,16}"},
    [ZEROS] = {NULL, WEIR__RANGE_ZEROS, "[0]{0,16}"},
    /* after an integer */
    [NAUGHT] = {NULL, "any-naught", "(\".\" [0] " WEIR__RANGE_ZEROS ")?"},
    /* Bounded, because models tend to write endless space. */
    [SPACE] = {NULL, SPACE_RULE, "| \" \" | \"\\n\"{1,2} [ \\t]{0,20}"},
};

/* ---- Text ---- */

static void add_shared(weir__emitter *e, weir__text *text, unsigned shared)
{
    e->shared |= BIT(shared);
    weir__text_printf(text, "%s", shared_rules[shared].name);
}

/* ---- Schemas ---- */

static void add_body(weir__emitter *e, weir__text *text, const json_t *schema);

/* The shared rule that the schema equals, or N_SHARED. */
static unsigned shared_rule(const json_t *schema)
{
    static const char *const type_alone[] = {"type", NULL};
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (weir__schema_other_constraint(schema, type_alone) != NULL ||
        json_object_get(schema, WEIR__SCHEMA_STATES) != NULL ||
        json_object_get(schema, WEIR__SCHEMA_BROKEN) != NULL ||
        json_object_get(schema, WEIR__SCHEMA_MULTIPLES) != NULL ||
        json_object_get(schema, WEIR__SCHEMA_GRAPH) != NULL ||
        json_object_get(schema, WEIR__SCHEMA_OTHERS) != NULL)
        return N_SHARED;
    for (unsigned i = ANY_OBJECT; type != NULL && i <= ANY_NULL; i++)
        if (strcmp(shared_rules[i].type, type) == 0) return i;
    return ANY_VALUE;
}

static void add_reference(weir__emitter *e, weir__text *text, json_t *reference)
{
    const char *name = json_string_value(reference);
    assert(name != NULL && strncmp(name, WEIR__SCHEMA_DEFS, strlen(WEIR__SCHEMA_DEFS)) == 0);
    name += strlen(WEIR__SCHEMA_DEFS);
    weir__text_printf(text, "%s", name);
    if (json_object_get(e->known, name) == NULL)
        e->rules.failed |= json_array_append(e->wanted, reference) != 0 ||
                           json_object_set_new(e->known, name, json_true()) != 0;
}

static void add_item(weir__emitter *e, weir__text *text, const json_t *schema)
{
    json_t *reference = json_object_get(schema, "$ref");
    unsigned shared = shared_rule(schema);
    if (weir__budget_over(&e->budget)) {
        text->failed = true;
        return;
    }
    if (reference != NULL) {
        add_reference(e, text, reference);
    } else if (shared != N_SHARED) {
        add_shared(e, text, shared);
    } else {
        weir__text body = {0};
        size_t part = ++e->n_parts;
        add_body(e, &body, schema);
        weir__emit_rule(e, part, &body);
        weir__text_printf(text, "%s-%zu", e->name, part);
    }
}

/* A number in all its spellings without an exponent. */
static void add_number_value(weir__emitter *e, weir__text *text, const json_t *value)
{
    char *json = weir__json_dump(value);
    char *point = json != NULL ? strchr(json, '.') : NULL;
    if (json == NULL) {
        text->failed = true;
    } else if (strpbrk(json, "eE") != NULL) {
        weir__emit_literal(text, json);
    } else if (point == NULL || point[1 + strspn(point + 1, "0")] == '\0') {
        if (point != NULL) *point = '\0';
        weir__emit_literal(text, json);
        weir__text_add_string(text, " ");
        add_shared(e, text, NAUGHT);
    } else {
        weir__emit_literal(text, json);
        weir__text_add_string(text, " ");
        add_shared(e, text, ZEROS);
    }
    weir__mem_free(json);
}

/* How a listed value may be written, but for space: as it is; with numbers in all their spellings; and with
 * the members of objects of two in either order. */
typedef enum spelling { AS_GIVEN, NUMBERS, ORDERS } spelling;

static void add_value(weir__emitter *e, weir__text *text, const json_t *value, spelling as);

/* A member of an object value. */
static void add_member(weir__emitter *e, weir__text *text, const char *name, const json_t *value, spelling as)
{
    weir__literal_add_string(text, name);
    weir__text_add_string(text, " " SPACE_RULE " \":\" " SPACE_RULE " ");
    add_value(e, text, value, as);
}

/* True of objects with two members that are no objects and arrays, which would be written twice each. */
static bool has_two_plain_members(const json_t *value)
{
    const char *name;
    json_t *one;
    if (json_object_size(value) != 2) return false;
    json_object_foreach((json_t *)value, name, one)
    {
        if (json_is_object(one) || json_is_array(one)) return false;
    }
    return true;
}

/* The members of an object value of two, in either order. */
static void add_two_members(weir__emitter *e, weir__text *text, const json_t *value)
{
    const char *names[2] = {"", ""}, *name;
    json_t *one;
    size_t n = 0;
    json_object_foreach((json_t *)value, name, one) names[n++] = name;
    weir__text_add_string(text, "(");
    for (size_t i = 0; i < 2; i++) {
        if (i > 0) weir__text_add_string(text, " | ");
        add_member(e, text, names[i], json_object_get(value, names[i]), ORDERS);
        weir__text_add_string(text, " " COMMA);
        add_member(e, text, names[1 - i], json_object_get(value, names[1 - i]), ORDERS);
    }
    weir__text_add_string(text, ")");
}

/* A value, in which space may stand where objects and arrays allow it. */
static void add_value(weir__emitter *e, weir__text *text, const json_t *value, spelling as)
{
    const char *name, *before = "";
    json_t *one;
    size_t i;
    if (as != AS_GIVEN && json_is_number(value)) {
        add_number_value(e, text, value);
        return;
    }
    if (json_object_size(value) + json_array_size(value) == 0) {
        weir__literal_add(text, value);
        return;
    }
    e->shared |= BIT(SPACE);
    weir__text_add_string(text, json_is_object(value) ? "\"{\" " SPACE_RULE " " : "\"[\" " SPACE_RULE " ");
    if (as == ORDERS && has_two_plain_members(value)) {
        add_two_members(e, text, value);
    } else {
        json_object_foreach((json_t *)value, name, one)
        {
            weir__text_add_string(text, before);
            add_member(e, text, name, one, as);
            before = " " COMMA;
        }
    }
    json_array_foreach((json_t *)value, i, one)
    {
        weir__text_add_string(text, before);
        add_value(e, text, one, as);
        before = " " COMMA;
    }
    weir__text_add_string(text, json_is_object(value) ? " " SPACE_RULE " \"}\"" : " " SPACE_RULE " \"]\"");
}

/* Adds a list of values, which is one of n alternatives or all of them. In a long list, they share their
 * beginnings (automaton_rules.h), which a choice of orders would end after the brace. */
static void add_values(weir__emitter *e, weir__text *text, const json_t *schema, size_t n)
{
    const json_t *values = json_object_get(schema, "enum");
    const bool spellings = json_object_get(schema, WEIR__SCHEMA_SPELLINGS) != NULL;
    const spelling as = !spellings ? AS_GIVEN : n < WEIR__AUTOMATON_SHARED_MIN ? ORDERS : NUMBERS;
    for (size_t i = 0; i < json_array_size(values); i++) {
        if (i > 0) weir__text_add_string(text, " | ");
        add_value(e, text, json_array_get(values, i), as);
    }
}

/* Values among many alternatives get no rules of their own, so that they, too, share their beginnings. */
static void add_alternatives(weir__emitter *e, weir__text *text, const json_t *schemas)
{
    const size_t n = json_array_size(schemas);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(schemas, i);
        if (i > 0) weir__text_add_string(text, " | ");
        if (n >= WEIR__AUTOMATON_SHARED_MIN && json_object_get(one, "enum") != NULL)
            add_values(e, text, one, n);
        else
            add_item(e, text, one);
    }
}

static void add_integer(weir__text *text, const json_t *schema)
{
    const json_t *minimum = json_object_get(schema, "minimum"), *maximum = json_object_get(schema, "maximum");
    int64_t low = minimum != NULL ? json_integer_value(minimum) : -WEIR__SCHEMA_INTEGER_MAX;
    int64_t high = maximum != NULL ? json_integer_value(maximum) : WEIR__SCHEMA_INTEGER_MAX;
    if (low < 0) {
        weir__text_add_string(text, "\"-\" (");
        weir__digits_add(text, (uint64_t)(high < 0 ? -high : minimum == NULL), (uint64_t)-low);
        weir__text_printf(text, high < 0 ? ")" : ") | ");
    }
    if (high >= 0) weir__digits_add(text, (uint64_t)(low > 0 ? low : 0), (uint64_t)high);
}

static void add_multiples(weir__emitter *e, weir__text *text, const json_t *fields)
{
    const weir__multiples of = {(uint64_t)json_integer_value(json_array_get(fields, 0)),
                                (int)json_integer_value(json_array_get(fields, 1)),
                                json_integer_value(json_array_get(fields, 2)),
                                json_integer_value(json_array_get(fields, 3))};
    weir__emit_multiples(e, text, &of);
}

/* A number between two integers that is none. */
static void add_broken_number(weir__text *text, const json_t *schema)
{
    const int64_t low = json_integer_value(json_object_get(schema, "minimum"));
    const int64_t high = json_integer_value(json_object_get(schema, "maximum"));
    weir__text_add_string(text, "(");
    if (low < 0) {
        weir__text_add_string(text, "\"-\" (");
        weir__digits_add(text, (uint64_t)(high < 0 ? -high : 0), (uint64_t)(-low - 1));
        weir__text_add_string(text, high > 0 ? ") | " : ")");
    }
    if (high > 0) weir__digits_add(text, (uint64_t)(low > 0 ? low : 0), (uint64_t)(high - 1));
    weir__text_add_string(text, ") \".\" [0-9]{0,15} [1-9]");
}

/* The bounds of a rewritten number. */
static void add_number(weir__emitter *e, weir__text *text, const json_t *schema)
{
    weir__schema_bounds bounds;
    size_t from = text->n;
    if (json_object_get(schema, WEIR__SCHEMA_BROKEN) != NULL) {
        add_broken_number(text, schema);
        return;
    }
    weir__schema_read_bounds(schema, &bounds);
    weir__range_add(text, &bounds.range);
    for (unsigned i = FRACTION; !text->failed && i <= ZEROS; i++)
        if (strstr(text->bytes + from, shared_rules[i].name) != NULL) e->shared |= BIT(i);
}

/* ---- Patterns ---- */

/* Rewriting adds parentheses of its own. */
#define PATTERN_NESTING_MAX ((size_t)4 * WEIR__PATTERN_NESTING_MAX)

/* Moves the text from `from` on to a new rule, and leaves the rule's name: GBNF copies repeated items, and
 * bounds their size. */
static void move_to_rule(weir__emitter *e, weir__text *text, size_t from)
{
    weir__text body = {0};
    if (text->failed) return;
    weir__text_add(&body, text->bytes + from, text->n - from);
    text->n = from;
    weir__emit_rule(e, ++e->n_parts, &body);
    weir__text_printf(text, "%s-%zu", e->name, e->n_parts);
}

/* GBNF has all that a rewritten pattern consists of: classes, groups and quantifiers. */
static void add_pattern(weir__emitter *e, weir__text *text, const char *pattern)
{
    size_t groups[PATTERN_NESTING_MAX], n_groups = 0, item = 0; /* where these start in the text */
    assert(pattern[0] == '^');
    weir__text_add_string(text, "\"\\\"\" ");
    for (const char *c = pattern + 1; *c != '$'; c++) {
        size_t n = 1;
        switch (*c) {
        case '(':
            assert(n_groups < PATTERN_NESTING_MAX);
            groups[n_groups++] = text->n;
            break;
        case ')':
            assert(n_groups > 0);
            item = groups[--n_groups];
            break;
        case '[':
            n = strcspn(c, "]") + 1;
            item = text->n;
            break;
        case '{':
            move_to_rule(e, text, item);
            n = strcspn(c, "}") + 1;
            break;
        default: break;
        }
        weir__text_add(text, c, n);
        c += n - 1;
        if ((*c == ']' || *c == '}') && (c[1] == '[' || c[1] == '(')) weir__text_add_string(text, " ");
    }
    weir__text_add_string(text, " \"\\\"\"");
}

/* A rule for each state of an automaton: the end of the string, or a character and what follows it. */
static void add_states(weir__emitter *e, weir__text *text, const json_t *states)
{
    const size_t first = e->n_parts + 1;
    e->n_parts += json_array_size(states);
    weir__text_printf(text, "\"\\\"\" %s-%zu", e->name, first);
    for (size_t i = 0; i < json_array_size(states); i++) {
        const json_t *row = json_array_get(states, i);
        const bool ends = json_is_true(json_array_get(row, 0));
        weir__text body = {0};
        if (ends) weir__text_add_string(&body, "\"\\\"\"");
        for (size_t k = 1; k < json_array_size(row); k += 2)
            weir__text_printf(&body, "%s%s %s-%zu", ends || k > 1 ? " | " : "",
                              json_string_value(json_array_get(row, k)), e->name,
                              first + (size_t)json_integer_value(json_array_get(row, k + 1)));
        weir__emit_rule(e, first + i, &body);
    }
}

static void add_string(weir__emitter *e, weir__text *text, const json_t *schema)
{
    const json_t *states = json_object_get(schema, WEIR__SCHEMA_STATES);
    if (states != NULL)
        add_states(e, text, states);
    else
        add_pattern(e, text, json_string_value(json_object_get(schema, "pattern")));
}

/* ---- Objects and arrays ---- */

/* The quantifier of what is repeated `least` to `most` times; most SIZE_MAX: no bound. */
static void add_count(weir__text *text, size_t least, size_t most)
{
    if (most != SIZE_MAX)
        weir__text_printf(text, "{%zu,%zu}", least, most);
    else if (least > 0)
        weir__text_printf(text, "{%zu,}", least);
    else
        weir__text_add_string(text, "*");
}

/* item (, item)*, `least` to `most` of them; most SIZE_MAX: no bound. The item is freed. A list that may be
 * empty becomes a rule: GBNF bounds the number of rules in a repeated or optional group. */
static void add_list(weir__emitter *e, weir__text *text, weir__text *item, size_t least, size_t most)
{
    const size_t from = text->n;
    text->failed |= item->failed;
    if (!text->failed) weir__text_add(text, item->bytes, item->n);
    if (!text->failed && most > 1) {
        weir__text_printf(text, " (" COMMA "%s)", item->bytes);
        add_count(text, least > 1 ? least - 1 : 0, most != SIZE_MAX ? most - 1 : SIZE_MAX);
    }
    weir__text_fini(item);
    if (least > 0) return;
    move_to_rule(e, text, from);
    weir__text_add_string(text, "?");
}

/* An object with properties of any names. */
static void add_map(weir__emitter *e, weir__text *text, const json_t *values)
{
    weir__text item = {0};
    e->shared |= BIT(SPACE);
    add_shared(e, &item, ANY_STRING);
    weir__text_add_string(&item, " " SPACE_RULE " \":\" " SPACE_RULE " ");
    add_item(e, &item, values);
    weir__text_add_string(text, "\"{\" " SPACE_RULE " ");
    add_list(e, text, &item, 0, SIZE_MAX);
    weir__text_add_string(text, " " SPACE_RULE " \"}\"");
}

/* The items of prefixItems, from the last one on: each is there if minItems or a later item asks for it. */
static void add_prefix(weir__emitter *e, weir__text *text, const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    const json_t *most = json_object_get(schema, "maxItems");
    const size_t n = json_array_size(prefix),
                 least = (size_t)json_integer_value(json_object_get(schema, "minItems"));
    weir__text rest = {0};
    if (!json_is_false(items)) {
        weir__text item = {0};
        weir__text_add_string(&item, COMMA);
        add_item(e, &item, items);
        if (!item.failed) weir__text_printf(&rest, "(%s)", item.bytes);
        rest.failed |= item.failed;
        weir__text_fini(&item);
        add_count(&rest, least > n ? least - n : 0,
                  most != NULL ? (size_t)json_integer_value(most) - n : SIZE_MAX);
    }
    for (size_t i = n; i-- > 0;) {
        weir__text body = {0};
        const size_t part = ++e->n_parts;
        weir__text_add_string(&body, i > 0 ? COMMA : "");
        add_item(e, &body, json_array_get(prefix, i));
        weir__text_printf(&body, " %s", rest.bytes != NULL ? rest.bytes : "");
        body.failed |= rest.failed;
        weir__text_fini(&rest);
        weir__text_printf(&rest, i < least ? "%s-%zu" : "(%s-%zu)?", e->name, part);
        weir__emit_rule(e, part, &body);
    }
    text->failed |= rest.failed;
    if (!text->failed) weir__text_printf(text, "%s ", rest.bytes);
    weir__text_fini(&rest);
}

/* Adds the rules of a graph: for each state what follows an item, and the items that may come. */
static void add_graph(weir__emitter *e, weir__text *text, const json_t *graph)
{
    const json_t *items = json_object_get(graph, "items"), *states = json_object_get(graph, "states");
    const size_t n = json_array_size(states), n_items = json_array_size(items);
    const json_t *start = json_array_get(states, 0);
    weir__text *names = weir__mem_calloc(n_items + 1, sizeof *names);
    if (names == NULL) {
        text->failed = true;
        return;
    }
    const size_t first = e->n_parts + 1;
    e->n_parts += 2 * n;
    e->shared |= BIT(SPACE);
    weir__text_add_string(text, "\"[\" " SPACE_RULE " ");
    if (json_array_size(start) > 1)
        weir__text_printf(text, json_is_true(json_array_get(start, 0)) ? "%s-%zu? " : "%s-%zu ", e->name,
                          first);
    weir__text_add_string(text, SPACE_RULE " \"]\"");
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(states, i);
        weir__text after = {0}, body = {0};
        if (json_array_size(row) == 1) continue;
        weir__text_printf(&after, "%s" COMMA "%s-%zu", json_is_true(json_array_get(row, 0)) ? "| " : "",
                          e->name, first + 2 * i);
        for (size_t k = 1; k < json_array_size(row); k += 2) {
            const size_t item = (size_t)json_integer_value(json_array_get(row, k));
            const size_t target = (size_t)json_integer_value(json_array_get(row, k + 1));
            if (names[item].n == 0) add_item(e, &names[item], json_array_get(items, item));
            if (!names[item].failed) weir__text_printf(&body, "%s%s", k > 1 ? " | " : "", names[item].bytes);
            body.failed |= names[item].failed;
            if (json_array_size(json_array_get(states, target)) > 1)
                weir__text_printf(&body, " %s-%zu", e->name, first + 2 * target + 1);
        }
        weir__emit_rule(e, first + 2 * i, &body);
        weir__emit_rule(e, first + 2 * i + 1, &after);
    }
    for (size_t i = 0; i < n_items; i++) weir__text_fini(&names[i]);
    weir__mem_free(names);
}

static void add_array(weir__emitter *e, weir__text *text, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    const json_t *most = json_object_get(schema, "maxItems");
    weir__text item = {0};
    if (json_object_get(schema, WEIR__SCHEMA_GRAPH) != NULL) {
        add_graph(e, text, json_object_get(schema, WEIR__SCHEMA_GRAPH));
        return;
    }
    e->shared |= BIT(SPACE);
    weir__text_add_string(text, "\"[\" " SPACE_RULE " ");
    if (prefix != NULL && items != NULL) add_prefix(e, text, schema);
    for (size_t i = 0; items == NULL && i < json_array_size(prefix); i++) {
        if (i > 0) weir__text_add_string(text, COMMA);
        add_item(e, text, json_array_get(prefix, i));
        weir__text_add_string(text, " ");
    }
    if (prefix == NULL) {
        add_item(e, &item, items);
        add_list(e, text, &item, (size_t)json_integer_value(json_object_get(schema, "minItems")),
                 most != NULL ? (size_t)json_integer_value(most) : SIZE_MAX);
        weir__text_add_string(text, " ");
    }
    weir__text_add_string(text, SPACE_RULE " \"]\"");
}

static void add_object(weir__emitter *e, weir__text *text, const json_t *schema)
{
    e->shared |= BIT(SPACE);
    weir__emit_members(e, text, schema);
}

/* A rule's alternatives. */
static void add_body(weir__emitter *e, weir__text *text, const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (json_object_get(schema, "$ref") != NULL || shared_rule(schema) != N_SHARED)
        add_item(e, text, schema);
    else if (json_object_get(schema, "anyOf") != NULL)
        add_alternatives(e, text, json_object_get(schema, "anyOf"));
    else if (json_object_get(schema, "enum") != NULL)
        add_values(e, text, schema, json_array_size(json_object_get(schema, "enum")));
    else if (json_object_get(schema, WEIR__SCHEMA_MULTIPLES) != NULL)
        add_multiples(e, text, json_object_get(schema, WEIR__SCHEMA_MULTIPLES));
    else if (strcmp(type, "string") == 0)
        add_string(e, text, schema);
    else if (strcmp(type, "integer") == 0)
        add_integer(text, schema);
    else if (strcmp(type, "number") == 0)
        add_number(e, text, schema);
    else if (strcmp(type, "array") == 0)
        add_array(e, text, schema);
    else if (json_object_get(schema, "properties") != NULL)
        add_object(e, text, schema);
    else
        add_map(e, text, json_object_get(schema, "additionalProperties"));
}

/* ---- The whole ---- */

/* Adds the shared rules in use, with those that they name. They come first: GBNF counts a name that first
 * occurs in a repeated group as a rule of that group. */
static void add_shared_rules(weir__emitter *e, weir__text *text)
{
    for (unsigned before = 0; before != e->shared;) {
        before = e->shared;
        for (unsigned i = 0; i < N_SHARED; i++)
            for (unsigned k = 0; k < N_SHARED; k++)
                if ((before & BIT(i)) != 0 && strstr(shared_rules[i].body, shared_rules[k].name) != NULL)
                    e->shared |= BIT(k);
    }
    for (unsigned i = 0; i < N_SHARED; i++)
        if ((e->shared & BIT(i)) != 0)
            weir__text_printf(text, "%s ::= %s\n", shared_rules[i].name, shared_rules[i].body);
}

weir_status weir__grammar_add_rules(const json_t *schema, const json_t *definitions, const char *name,
                                    weir__text *rules, weir_error *error)
{
    weir__emitter e = {.add_item = add_item, .name = name, .wanted = json_array(), .known = json_object()};
    weir__text body = {0};
    weir__budget_init(&e.budget, UINT64_MAX, WEIR__GRAMMAR_BYTES_MAX);
    for (size_t i = 0; schema != NULL; i++) {
        add_body(&e, &body, schema);
        weir__emit_rule(&e, 0, &body);
        const char *wanted = e.rules.failed ? NULL : json_string_value(json_array_get(e.wanted, i));
        schema = NULL;
        if (wanted == NULL) continue;
        e.name = wanted + strlen(WEIR__SCHEMA_DEFS);
        e.n_parts = 0;
        schema = json_object_get(definitions, e.name);
    }
    add_shared_rules(&e, rules);
    if (!e.rules.failed) weir__text_add(rules, e.rules.bytes, e.rules.n);
    rules->failed |= e.rules.failed;
    weir__text_fini(&e.rules);
    json_decref(e.wanted);
    json_decref(e.known);
    if (weir__budget_over(&e.budget))
        return weir__budget_error(&e.budget, WEIR_GRAMMAR, "schema", "the schema's grammar", error);
    return rules->failed ? weir__error_set(error, WEIR_NO_MEMORY, "schema", "out of memory for the schema")
                         : WEIR_OK;
}

weir_status weir__grammar_from_schema(const json_t *rewritten, const char *field, char **grammar,
                                      weir_error *error)
{
    weir__text text = {0};
    weir_error own = {0};
    weir_status status =
        weir__grammar_add_rules(rewritten, json_object_get(rewritten, "$defs"), "root", &text, &own);
    status = status == WEIR_OK ? weir__grammar_check_ending(text.bytes, field, error)
                               : weir__error_as(error, &own, status, field);
    if (status == WEIR_OK)
        *grammar = text.bytes;
    else
        weir__text_fini(&text);
    return status;
}

weir_status weir_grammar_from_json_schema(const char *schema, size_t length, char **grammar,
                                          weir_error *error)
{
    static const weir__schema_terms terms = {.where = "", .tag = "w"};
    json_t *given = NULL, *rewritten = NULL;
    if (grammar == NULL) return weir__error_null(error, "grammar");
    weir_status status = weir__json_parse(schema, length, "schema", WEIR_GRAMMAR, &given, error);
    if (status == WEIR_OK) status = weir__schema_rewrite(given, &terms, &rewritten, error);
    if (status == WEIR_OK) status = weir__grammar_from_schema(rewritten, "schema", grammar, error);
    json_decref(rewritten);
    json_decref(given);
    return status;
}
