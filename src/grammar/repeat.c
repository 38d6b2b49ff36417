/* repeat.c: states that differ only in how many copies of a repetition are left, far from its bounds.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A repetition with bounds is written out: a row of equal items, then rules that are each an item and the
 * next rule, or nothing (grammar.c). For texts of n characters it makes no difference at which of two
 * copies they begin if more than n are left from either on. So the copy from which on LEFT are left,
 * itself included, stands for those before it. It does so only if an item cannot match nothing: otherwise
 * a step opens all copies that are left at once, and the number of ways would differ. */
#include "grammar/repeat.h"

#include "base/mem.h"

/* The copies, itself included, that are left from one on that stands for others. */
#define LEFT (WEIR__REPEAT_REACH + 2)

static bool same_elements(const weir__automaton_element *a, const weir__automaton_element *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].type != b[i].type || a[i].value != b[i].value) return false;
    return true;
}

/* True if the item can match nothing. */
static bool is_empty(const weir__automaton *a, const weir__automaton_element *e)
{
    return e->type == RULE && a->empty[e->value];
}

/* Rows: `left` [n_elements] gets the number of equal items from each item on. */
static void find_rows(weir__automaton *a, uint32_t *left)
{
    const weir__automaton_element *elements = a->elements;
    uint32_t after = 0; /* the item after i in its alternative, 0: none */
    for (size_t i = a->n_elements; i-- > 0;) {
        if (weir__automaton_goes_on(&elements[i])) continue;
        if (weir__automaton_is_end(&elements[i])) {
            after = 0;
            continue;
        }
        const bool same = after != 0 && weir__automaton_same_item(&elements[i], &elements[after]);
        left[i] = same ? left[after] + 1 : 1;
        a->nearer[i] = left[i] > LEFT && !is_empty(a, &elements[i]) ? a->nearer[after] : (uint32_t)i;
        after = (uint32_t)i;
    }
}

/* The number of elements before the reference to the next rule, if the rule is "items next | nothing" or, the
 * last one, "items | nothing" (*next: NONE), and the items cannot match nothing. 0: it is another kind of
 * rule. */
static uint32_t read_link(const weir__automaton *a, uint32_t rule, uint32_t *next)
{
    const weir__automaton_element *e = &a->elements[a->starts[rule]];
    uint32_t n = 0;
    while (!weir__automaton_is_end(&e[n])) n++;
    if (n == 0 || e[n].type != ALTERNATIVE || e[n + 1].type != END) return 0;
    *next = NONE;
    if (n > 1 && e[n - 1].type == RULE && e[n - 1].value < rule) *next = e[--n].value;
    for (uint32_t i = 0; i < n; i++)
        if (!is_empty(a, &e[i])) return n;
    return 0;
}

/* Chains: rules that are each one copy more than the next. Those of a repetition come in ascending order.
 * `left` [n_rules] gets the number of copies from each rule on. */
static void find_chains(weir__automaton *a, uint32_t *left)
{
    for (uint32_t rule = 0; rule < a->rules.n_rules; rule++) {
        uint32_t next = NONE, after = NONE;
        const uint32_t n = read_link(a, rule, &next), start = a->starts[rule];
        left[rule] = n > 0;
        if (n == 0 || next == NONE || left[next] == 0) continue;
        if (read_link(a, next, &after) != n ||
            !same_elements(&a->elements[start], &a->elements[a->starts[next]], n))
            continue;
        left[rule] = left[next] + 1;
        for (uint32_t i = 0; i <= n && left[rule] > LEFT; i++)
            a->nearer[start + i] = a->nearer[a->starts[next] + i];
    }
}

bool weir__repeat_find(weir__automaton *a)
{
    uint32_t *left = weir__mem_calloc(a->n_elements + a->rules.n_rules, sizeof *left);
    a->nearer = weir__mem_calloc(a->n_elements, sizeof *a->nearer);
    a->counted = weir__mem_calloc(a->n_elements, sizeof *a->counted);
    const bool ok = left != NULL && a->nearer != NULL && a->counted != NULL;
    if (ok) {
        for (size_t i = 0; i < a->n_elements; i++) a->nearer[i] = (uint32_t)i;
        find_rows(a, left);
        find_chains(a, left + a->n_elements);
        for (size_t i = 0; i < a->n_elements; i++)
            if (a->nearer[i] != i) a->counted[a->nearer[i]] = true;
    }
    weir__mem_free(left);
    return ok;
}

/* Finds a->similar of a frame, after those below it. */
static bool find_similar(weir__automaton *a, uint32_t id)
{
    size_t n = 0;
    for (; a->similar[id].frame == UNKNOWN; id = a->frames[id].below) {
        if (!weir__mem_grow(&a->order, &a->order_capacity, n + 1, sizeof *a->order)) return false;
        a->order[n++] = id;
    }
    while (n-- > 0) {
        const frame f = a->frames[a->order[n]];
        const similar below = a->similar[f.below];
        const uint32_t element = a->nearer[f.element];
        similar found = a->similar[a->order[n]];
        found.changes = below.changes + (element != f.element);
        if (!weir__automaton_frame(a, &a->elements[element], below.frame, &found.frame)) return false;
        a->similar[a->order[n]] = found;
    }
    return true;
}

/* True if the stack has the frame, and another one on top of it. */
static bool is_above(const weir__automaton *a, uint32_t id, uint32_t under)
{
    if (id == 0 || id == under) return false;
    uint32_t counted = a->similar[id].counted;
    while (counted != NONE && counted != under) counted = a->similar[a->frames[counted].below].counted;
    return counted != NONE;
}

bool weir__repeat_stays_above(const weir__automaton *a, uint32_t in, uint32_t under)
{
    for (uint32_t i = 0; i < a->states[in].n; i++)
        if (!is_above(a, a->pool[a->states[in].first + i], under)) return false;
    return true;
}

uint32_t weir__repeat_under(const weir__automaton *a, uint32_t in)
{
    if (a->states[in].n == 0) return NONE;
    const uint32_t under = a->similar[a->pool[a->states[in].first]].counted;
    for (uint32_t i = 0; i < a->states[in].n; i++) {
        const uint32_t id = a->pool[a->states[in].first + i];
        if (a->similar[id].counted != under || id == under) return NONE;
    }
    return under;
}

bool weir__repeat_similar(weir__automaton *a, uint32_t from, uint32_t *to, uint64_t *frames)
{
    const uint32_t n = a->states[from].n;
    *frames = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = a->pool[a->states[from].first + i];
        if (!find_similar(a, id)) return false;
        *frames += 2 * (uint64_t)a->similar[id].changes + 1;
    }
    *to = a->states[from].similar;
    if (*to != UNKNOWN) return true;
    a->n_found = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!weir__automaton_add_way(a, a->similar[a->pool[a->states[from].first + i]].frame)) return false;
    if (!weir__automaton_find(a, to)) return false;
    a->states[from].similar = *to;
    return true;
}
