/* schema_array.c: arrays: lists, tuples, and those of which some items are counted or must differ.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A list has one schema for its items and bounds of their number; a tuple has a schema for each place, and
 * one for all later places. `contains` and `uniqueItems` make a graph of them: a state for each number of
 * counted items, or for each set of values that are used up, and an edge for each item that may come next. */
#include <string.h>

#include "base/mem.h"
#include "grammar/schema_walk.h"

/* An array of items with one schema, which is taken over. */
static json_t *list_of(weir__schema_walk *w, json_t *item, uint64_t least, uint64_t most)
{
    if (json_is_false(item)) most = 0;
    if (least > most || most == 0) {
        json_decref(item);
        return least > most ? json_false() : weir__schema_pack(w, "{s:[[]]}", "enum");
    }
    if (least > WEIR__SCHEMA_ITEMS_MAX)
        weir__schema_refuse(w, "minItems", "at most %d items can be asked for", WEIR__SCHEMA_ITEMS_MAX);
    bool bounded = most != UINT64_MAX;
    if (bounded && most > WEIR__SCHEMA_ITEMS_MAX) most = WEIR__SCHEMA_ITEMS_MAX;
    weir__schema_take(w, bounded ? "maxItems" : "minItems", 4 * (bounded ? most : least) + 4);
    json_t *result = weir__schema_pack(w, "{s:s,s:o}", "type", "array", "items", item);
    if (least > 0) weir__schema_set(w, result, "minItems", json_integer((json_int_t)least));
    if (bounded) weir__schema_set(w, result, "maxItems", json_integer((json_int_t)most));
    return weir__schema_made(w, result);
}

/* The first items, and a schema for those after them (NULL: any), `least` to `most` in all. With relax
 * exactly the first ones, as far as maxItems allows. */
static json_t *tuple(weir__schema_walk *w, const json_t *prefix, const char *keyword, const json_t *rest,
                     uint64_t least, uint64_t most)
{
    const char *const rest_keyword = strcmp(keyword, "items") == 0 ? "additionalItems" : "items";
    size_t n = json_array_size(prefix);
    json_t *items = json_array(), *others = NULL;
    if (w->relax && least > n)
        weir__schema_refuse(w, "minItems", "it asks for more items than %s gives", keyword);
    if (w->relax && most > n) most = n;
    if (most < n) n = (size_t)most;
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        json_t *item = weir__schema_below_index(w, keyword, i, json_array_get(prefix, i), true);
        if (json_is_false(item))
            most = n = i; /* no array has this item */
        else
            weir__schema_append(w, items, item);
    }
    if (most > n && w->status == WEIR_OK)
        others = rest == NULL ? weir__schema_made(w, json_object())
                              : weir__schema_below(w, rest_keyword, NULL, rest, true);
    if (json_is_false(others)) most = n;
    if (most <= n) {
        json_decref(others);
        others = json_false();
    }
    if (least > WEIR__SCHEMA_ITEMS_MAX)
        weir__schema_refuse(w, "minItems", "at most %d items can be asked for", WEIR__SCHEMA_ITEMS_MAX);
    if (w->status == WEIR_OK && (least > most || n == 0)) {
        json_decref(items);
        return list_of(w, others, least, most);
    }
    if (w->relax) {
        json_decref(others);
        return weir__schema_pack(w, "{s:s,s:o}", "type", "array", "prefixItems", items);
    }
    const bool bounded = most != UINT64_MAX;
    if (bounded && most > WEIR__SCHEMA_ITEMS_MAX + n) most = WEIR__SCHEMA_ITEMS_MAX + n;
    weir__schema_take(w, bounded ? "maxItems" : "minItems", 4 * (bounded ? most : least) + 8 * n + 4);
    json_t *result = weir__schema_pack(w, "{s:s,s:o,s:o,s:I}", "type", "array", "prefixItems", items, "items",
                                       others, "minItems", (json_int_t)least);
    if (bounded) weir__schema_set(w, result, "maxItems", json_integer((json_int_t)most));
    return weir__schema_made(w, result);
}

/* ---- Graphs: what may follow depends on the items so far ---- */

/* Edges of one array's graph. */
#define EDGES_MAX ((size_t)4000)

/* The most values of a list whose items differ: each subset is a state. */
#define UNIQUE_MAX ((size_t)8)

/* A graph as a rewritten array. items: their schemas, each written once, even where graphs are nested.
 * states: of each, if the array may end there, then numbers of items, each with the state after it; all lead
 * to an end. Takes both over. */
static json_t *graph(weir__schema_walk *w, const char *keyword, json_t *items, json_t *states)
{
    size_t n = 0, i;
    json_t *row;
    json_array_foreach(states, i, row) n += json_array_size(row);
    if (n > 2 * EDGES_MAX) weir__schema_refuse(w, keyword, "the items that it is about have too many orders");
    weir__schema_take(w, keyword, 12 * n);
    return weir__schema_pack(w, "{s:s,s:{s:o,s:o}}", "type", "array", WEIR__SCHEMA_GRAPH, "items", items,
                             "states", states);
}

static bool add_edge(weir__schema_walk *w, json_t *row, size_t item, size_t state)
{
    return weir__schema_append(w, row, json_integer((json_int_t)item)) &&
           weir__schema_append(w, row, json_integer((json_int_t)state));
}

typedef struct counting {
    json_t *items;  /* [2 * n_kinds]: of each, the schema of one that is not counted, and of one that is */
    size_t n_kinds; /* by the places of items; the last one is for all after it */
    size_t least, most;        /* items; most SIZE_MAX: no bound */
    size_t fewest, greatest;   /* counted ones; SIZE_MAX */
    size_t n_items, n_counted; /* how many different numbers of each the states have */
    bool *lives;               /* [n_items * n_counted]: an end follows */
} counting;

static size_t state_of(const counting *c, size_t items, size_t counted)
{
    if (items >= c->n_items) items = c->n_items - 1;
    if (counted >= c->n_counted) counted = c->n_counted - 1;
    return items * c->n_counted + counted;
}

/* The number of the schema of an item at this place. */
static size_t item_of(const counting *c, size_t items, bool contained)
{
    return 2 * (items < c->n_kinds ? items : c->n_kinds - 1) + contained;
}

/* True if a counted or another item may stand there, so that an end follows. */
static bool may_follow(const counting *c, size_t items, size_t counted, bool contained)
{
    if ((contained && counted >= c->greatest) || items >= c->most) return false;
    return !json_is_false(json_array_get(c->items, item_of(c, items, contained))) &&
           c->lives[state_of(c, items + 1, counted + contained)];
}

/* A state leads to itself or to states of more items or more counted ones, which are done before. */
static void find_living(counting *c)
{
    for (size_t i = c->n_items; i-- > 0;)
        for (size_t k = c->n_counted; k-- > 0;)
            c->lives[state_of(c, i, k)] =
                (i >= c->least && k >= c->fewest) || may_follow(c, i, k, false) || may_follow(c, i, k, true);
}

/* The states from which an end can be reached. */
static json_t *counted_states(weir__schema_walk *w, const counting *c)
{
    const size_t n = c->n_items * c->n_counted;
    size_t *numbers = weir__mem_calloc(n, sizeof *numbers), next = 0;
    json_t *states = weir__schema_made(w, json_array());
    if (numbers == NULL) weir__schema_no_memory(w);
    for (size_t i = 0; numbers != NULL && i < n; i++) {
        numbers[i] = next;
        next += c->lives[i];
    }
    for (size_t i = 0; i < n && w->status == WEIR_OK; i++) {
        const size_t items = i / c->n_counted, counted = i % c->n_counted;
        if (!c->lives[i]) continue;
        json_t *row = weir__schema_pack(w, "[b]", items >= c->least && counted >= c->fewest);
        for (int contained = 0; contained < 2 && row != NULL; contained++)
            if (may_follow(c, items, counted, contained))
                add_edge(w, row, item_of(c, items, contained),
                         numbers[state_of(c, items + 1, counted + (size_t)contained)]);
        weir__schema_append(w, states, row);
    }
    weir__mem_free(numbers);
    return states;
}

/* The schema of an item at a place, with another one (NULL: none). */
static json_t *counted_item(weir__schema_walk *w, const char *keyword, json_t *item, json_t *with)
{
    if (with == NULL) return weir__schema_below(w, keyword, NULL, item, true);
    json_t *both = weir__schema_both(w, item, with);
    json_t *made = both != NULL ? weir__schema_below(w, keyword, NULL, both, true) : NULL;
    json_decref(both);
    return made;
}

/* An array of which some items satisfy `contains`. first (may be NULL) and rest: schemas of its items. */
static json_t *containing(weir__schema_walk *w, const json_t *schema, const json_t *first, json_t *rest,
                          uint64_t least, uint64_t most)
{
    json_t *contains = json_object_get(schema, "contains"), *not_it = NULL, *result = NULL;
    uint64_t fewest = 1, greatest = UINT64_MAX;
    if (!weir__schema_count(w, schema, "minContains", &fewest) ||
        !weir__schema_count(w, schema, "maxContains", &greatest))
        return NULL;
    counting c = {.n_kinds = json_array_size(first) + 1, .least = (size_t)least, .fewest = (size_t)fewest};
    c.most = most == UINT64_MAX ? SIZE_MAX : (size_t)most;
    c.greatest = greatest == UINT64_MAX ? SIZE_MAX : (size_t)greatest;
    c.n_items = (c.most != SIZE_MAX ? c.most : c.least > c.n_kinds - 1 ? c.least : c.n_kinds - 1) + 1;
    c.n_counted = (c.greatest != SIZE_MAX ? c.greatest : c.fewest) + 1;
    if (c.n_items > EDGES_MAX || c.n_counted > EDGES_MAX || c.n_items * c.n_counted > EDGES_MAX)
        return weir__schema_refuse(w, "contains", "to count so many items takes too large a grammar");
    if (c.greatest != SIZE_MAX && (not_it = weir__schema_opposite(w, "contains", contains)) == NULL)
        return weir__schema_refuse(w, "maxContains", "what contradicts `contains` is unknown");
    c.items = weir__schema_made(w, json_array());
    for (size_t i = 0; i < c.n_kinds && w->status == WEIR_OK; i++) {
        json_t *item = i + 1 < c.n_kinds ? json_array_get(first, i) : rest;
        const char *keyword = i + 1 < c.n_kinds ? "prefixItems" : "items";
        weir__schema_append(w, c.items, counted_item(w, keyword, item, not_it));
        if (w->status == WEIR_OK)
            weir__schema_append(w, c.items, counted_item(w, "contains", item, contains));
    }
    c.lives = weir__mem_calloc(c.n_items * c.n_counted, sizeof *c.lives);
    if (c.lives == NULL) weir__schema_no_memory(w);
    if (c.lives != NULL && weir__schema_spend(w, 4 * c.n_items * c.n_counted)) {
        find_living(&c);
        result =
            c.lives[0] ? graph(w, "contains", json_incref(c.items), counted_states(w, &c)) : json_false();
    }
    weir__mem_free(c.lives);
    json_decref(not_it);
    json_decref(c.items);
    return result;
}

/* An array of different values [n] of a list: a state for each set of those so far. */
static json_t *unique_values(weir__schema_walk *w, const json_t *values, uint64_t least, uint64_t most)
{
    const size_t n = json_array_size(values);
    if (least > n) return json_false();
    json_t *items = weir__schema_made(w, json_array()), *states = weir__schema_made(w, json_array());
    for (size_t i = 0; i < n; i++)
        weir__schema_append(w, items, weir__schema_pack(w, "{s:[O]}", "enum", json_array_get(values, i)));
    for (size_t set = 0; set < (size_t)1 << n && weir__schema_spend(w, n); set++) {
        const size_t size = (size_t)__builtin_popcount((unsigned)set);
        json_t *row = weir__schema_pack(w, "[b]", size >= least && size <= most);
        for (size_t i = 0; i < n && size < most && row != NULL; i++) {
            if ((set >> i & 1) == 0) add_edge(w, row, i, set | (size_t)1 << i);
        }
        weir__schema_append(w, states, row);
    }
    return graph(w, "uniqueItems", items, states);
}

/* The values that a rewritten schema allows, an array; NULL: not only a few. */
static json_t *few_values(weir__schema_walk *w, const json_t *schema, int depth)
{
    const json_t *defined = weir__schema_defined(w, schema);
    const char *type = json_string_value(json_object_get(schema, "type"));
    json_t *list = json_object_get(schema, "anyOf"), *values = json_object_get(schema, "enum");
    if (depth > 8 || !weir__schema_spend(w, 1)) return NULL;
    if (defined != schema) return few_values(w, defined, depth + 1);
    if (values != NULL) return weir__schema_made(w, weir__json_copy(values));
    /* Beside anyOf a type is an annotation. */
    if (list == NULL && type != NULL && strcmp(type, "boolean") == 0)
        return weir__schema_pack(w, "[b,b]", 0, 1);
    if (list == NULL && type != NULL && strcmp(type, "null") == 0) return weir__schema_pack(w, "[n]");
    json_t *all = list != NULL ? weir__schema_made(w, json_array()) : NULL;
    for (size_t i = 0; i < json_array_size(list) && all != NULL; i++) {
        json_t *some = few_values(w, json_array_get(list, i), depth + 1);
        const bool few = some != NULL && json_array_size(all) <= UNIQUE_MAX;
        if (few && json_array_extend(all, some) == 0) {
            json_decref(some);
            continue;
        }
        if (few) weir__schema_no_memory(w);
        json_decref(some);
        json_decref(all);
        all = NULL;
    }
    return all;
}

/* The list without repeated values. */
static json_t *without_repeats(weir__schema_walk *w, const json_t *list)
{
    json_t *rest = weir__schema_made(w, json_array());
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!weir__schema_has_value(rest, json_array_get(list, i)))
            weir__schema_append(w, rest, json_incref(json_array_get(list, i)));
    return rest;
}

/* A list of different items. */
static json_t *unique_items(weir__schema_walk *w, json_t *items, uint64_t least, uint64_t most)
{
    json_t *item = weir__schema_below(w, "items", NULL, items, true);
    if (item == NULL || json_is_false(item)) return item == NULL ? NULL : list_of(w, item, least, most);
    json_t *given = few_values(w, item, 0), *values = NULL, *result = NULL;
    if (json_array_size(given) <= 4 * UNIQUE_MAX) values = without_repeats(w, given);
    if (w->status == WEIR_OK && (given == NULL || json_array_size(values) > UNIQUE_MAX || values == NULL))
        weir__schema_refuse(
            w, "uniqueItems",
            "a grammar cannot compare items; it is supported for at most %zu listed values, and "
            "where there is at most one item",
            UNIQUE_MAX);
    if (w->status == WEIR_OK) result = unique_values(w, values, least, most);
    json_decref(item);
    json_decref(given);
    json_decref(values);
    return result;
}

/* ---- The whole ---- */

json_t *weir__schema_array(weir__schema_walk *w, const json_t *schema)
{
    json_t *items = json_object_get(schema, "items"), *prefix = json_object_get(schema, "prefixItems");
    json_t *unevaluated = json_object_get(schema, "unevaluatedItems");
    const json_t *unique = json_object_get(schema, "uniqueItems");
    uint64_t least = 0, most = UINT64_MAX, fewest = 1;
    if (!weir__schema_count(w, schema, "minItems", &least) ||
        !weir__schema_count(w, schema, "maxItems", &most) ||
        !weir__schema_count(w, schema, "minContains", &fewest))
        return NULL;
    if (least > most) return json_false();
    if (prefix != NULL && !json_is_array(prefix))
        return weir__schema_refuse_finally(w, "prefixItems", "it must be an array of schemas");
    const json_t *first = prefix != NULL ? prefix : json_is_array(items) ? items : NULL;
    json_t *rest = prefix != NULL || first == NULL ? items : json_object_get(schema, "additionalItems");
    const bool contains = json_object_get(schema, "contains") != NULL &&
                          (fewest > 0 || json_object_get(schema, "maxContains") != NULL);
    if (json_object_get(schema, "contains") != NULL && unevaluated != NULL && rest == NULL &&
        !json_is_true(unevaluated))
        return weir__schema_refuse(w, "unevaluatedItems", "it cannot stand beside contains");
    if (rest == NULL) rest = unevaluated;
    /* A single item cannot repeat. */
    const bool differ = unique != NULL && !json_is_false(unique) && most > 1;
    if (differ && (first != NULL || contains))
        return weir__schema_refuse(w, "uniqueItems", "it cannot stand beside prefixItems and contains");
    if (differ) return unique_items(w, rest != NULL ? rest : json_true(), least, most);
    if (contains && w->relax && first != NULL)
        return weir__schema_refuse(w, "contains", "it cannot stand beside prefixItems");
    if (contains) return containing(w, schema, first, rest != NULL ? rest : json_true(), least, most);
    if (first == NULL)
        return list_of(w, rest != NULL ? weir__schema_below(w, "items", NULL, rest, true) : json_object(),
                       least, most);
    return tuple(w, first, prefix != NULL ? "prefixItems" : "items", rest, least, most);
}
