/* automaton_rules.c: the rules of an automaton, in which alternatives share their prefixes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/automaton_rules.h"

#include <stdlib.h>

#include "base/mem.h"

/* The rest of an alternative: elements [n], without its end. */
typedef struct branch {
    const weir__automaton_element *elements;
    size_t n;
} branch;

/* Branches [first, last) that become a rule after their first `skip` elements, which they share. */
typedef struct group {
    size_t first, last, skip;
} group;

/* Invariant: groups are in the order of their rules' numbers. */
typedef struct sharing {
    weir__automaton_rules *out;
    branch *branches;
    size_t n_branches, branches_capacity;
    group *groups;
    size_t n_groups, groups_capacity;
} sharing;

static bool put_elements(weir__automaton_rules *out, const weir__automaton_element *elements, size_t n)
{
    if (!weir__mem_grow(&out->elements, &out->elements_capacity, out->n_elements + n, sizeof *elements))
        return false;
    for (size_t i = 0; i < n; i++) out->elements[out->n_elements++] = elements[i];
    return true;
}

static bool put_one(weir__automaton_rules *out, uint32_t type, uint32_t value)
{
    const weir__automaton_element e = {type, value};
    return put_elements(out, &e, 1);
}

/* A prefix of the other comes first. */
static int compare_branches(const void *a, const void *b)
{
    const branch *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++) {
        const weir__automaton_element *e = &x->elements[i], *f = &y->elements[i];
        if (e->type != f->type) return e->type < f->type ? -1 : 1;
        if (e->value != f->value) return e->value < f->value ? -1 : 1;
    }
    return x->n < y->n ? -1 : x->n > y->n;
}

/* The length of the item at `from`: a class of characters is several elements. */
static size_t item_length(const branch *b, size_t from)
{
    size_t to = from + 1;
    while (to < b->n && weir__automaton_goes_on(&b->elements[to])) to++;
    return to - from;
}

/* The length of the whole items from `from` on that both share. */
static size_t common_length(const branch *a, const branch *b, size_t from)
{
    size_t at = from;
    while (at < a->n && at < b->n) {
        size_t n = item_length(a, at);
        if (n != item_length(b, at)) break;
        size_t i = 0;
        while (i < n && a->elements[at + i].type == b->elements[at + i].type &&
               a->elements[at + i].value == b->elements[at + i].value)
            i++;
        if (i < n) break;
        at += n;
    }
    return at - from;
}

/* Writes the common prefix of branches [first, last), which start with the same item, and a reference to a
 * new rule for their rests. */
static bool put_beginning(sharing *s, size_t first, size_t last, size_t skip, size_t n_given)
{
    const branch *b = &s->branches[first];
    size_t n = b->n - skip;
    for (size_t i = first + 1; i < last; i++) {
        size_t common = common_length(b, &s->branches[i], skip);
        if (common < n) n = common;
    }
    if (!put_elements(s->out, b->elements + skip, n)) return false;
    if (skip + n == s->branches[last - 1].n) return true; /* all of them are the same */
    if (!weir__mem_grow(&s->groups, &s->groups_capacity, s->n_groups + 1, sizeof *s->groups)) return false;
    s->groups[s->n_groups] = (group){first, last, skip + n};
    return put_one(s->out, RULE, (uint32_t)(n_given + s->n_groups++));
}

/* The rule of a group, whose branches are sorted. */
static bool put_group(sharing *s, group g, size_t n_given)
{
    for (size_t i = g.first, next; i < g.last; i = next) {
        next = i + 1;
        if (s->branches[i].n == g.skip) { /* empty; one of these is enough */
            while (next < g.last && s->branches[next].n == g.skip) next++;
        } else {
            while (next < g.last && common_length(&s->branches[i], &s->branches[next], g.skip) > 0) next++;
        }
        if (i > g.first && !put_one(s->out, ALTERNATIVE, 0)) return false;
        if (s->branches[i].n > g.skip && !put_beginning(s, i, next, g.skip, n_given)) return false;
    }
    return put_one(s->out, END, 0);
}

/* Appends the alternatives of a rule to the branches. Returns its number of elements, or 0: out of memory. */
static size_t read_rule(sharing *s, const weir__automaton_element *rule)
{
    const weir__automaton_element *e = rule;
    for (const weir__automaton_element *from = e;; e++) {
        if (!weir__automaton_is_end(e)) continue;
        if (!weir__mem_grow(&s->branches, &s->branches_capacity, s->n_branches + 1, sizeof *s->branches))
            return 0;
        s->branches[s->n_branches++] = (branch){from, (size_t)(e - from)};
        from = e + 1;
        if (e->type == END) return (size_t)(from - rule);
    }
}

static bool begin_rule(weir__automaton_rules *out)
{
    if (!weir__mem_grow(&out->starts, &out->starts_capacity, out->n_rules + 1, sizeof *out->starts))
        return false;
    out->starts[out->n_rules++] = (uint32_t)out->n_elements;
    return true;
}

static bool share_rule(sharing *s, const weir__automaton_element *rule, size_t n_given)
{
    size_t first = s->n_branches;
    size_t n_elements = read_rule(s, rule);
    size_t n = s->n_branches - first;
    if (n_elements == 0 || !begin_rule(s->out)) return false;
    if (n < WEIR__AUTOMATON_SHARED_MIN) {
        s->n_branches = first;
        return put_elements(s->out, rule, n_elements);
    }
    qsort(s->branches + first, n, sizeof *s->branches, compare_branches);
    return put_group(s, (group){first, first + n, 0}, n_given);
}

bool weir__automaton_share(const weir__automaton_element *elements, size_t n_elements, const uint32_t *starts,
                           size_t n_rules, weir__automaton_rules *rules)
{
    sharing s = {.out = rules};
    bool ok =
        weir__mem_grow(&rules->elements, &rules->elements_capacity, n_elements, sizeof *rules->elements) &&
        weir__mem_grow(&rules->starts, &rules->starts_capacity, n_rules, sizeof *rules->starts);
    for (size_t i = 0; ok && i < n_rules; i++) ok = share_rule(&s, elements + starts[i], n_rules);
    for (size_t i = 0; ok && i < s.n_groups; i++)
        ok = begin_rule(rules) && put_group(&s, s.groups[i], n_rules);
    weir__mem_free(s.groups);
    weir__mem_free(s.branches);
    return ok;
}

/* Passes alternate in direction, so that few of them settle a chain of rules in either order. */
bool weir__automaton_mark(const weir__automaton_element *elements, const uint32_t *starts, size_t n_rules,
                          bool terminals, size_t most_passes, uint8_t *marks)
{
    bool changed = true;
    for (size_t pass = 0; changed; pass++) {
        if (pass == most_passes) return false;
        changed = false;
        for (size_t k = 0; k < n_rules; k++) {
            size_t rule = pass % 2 == 0 ? k : n_rules - 1 - k;
            bool all = true;
            for (const weir__automaton_element *e = &elements[starts[rule]]; !marks[rule]; e++) {
                if (!weir__automaton_is_end(e)) {
                    all = all && (e->type == RULE ? marks[e->value] : terminals);
                    continue;
                }
                if (all) marks[rule] = changed = true;
                if (e->type == END) break;
                all = true;
            }
        }
    }
    return true;
}

void weir__automaton_rules_fini(weir__automaton_rules *rules)
{
    weir__mem_free(rules->starts);
    weir__mem_free(rules->elements);
}
