/* grammar_rules.c: checks that the rules of a grammar can become an automaton.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar_rules.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* A step of a depth-first walk from rules to those that they can start with. */
typedef struct visit {
    uint32_t rule;
    const weir__automaton_element *next;
    bool leftmost; /* all before next in its alternative can match the empty text */
} visit;

/* A rule's results. */
typedef struct note {
    uint32_t order, low; /* Tarjan's; order 0: not visited */
    uint32_t component;  /* 0: not complete */
    uint32_t calls;      /* rules opened from here, repeated ones each time */
    uint32_t depth;
} note;

typedef struct walk {
    const weir__automaton_element *elements;
    const uint32_t *starts;
    const weir__grammar_rule *rules; /* [n_rules], as all arrays here */
    size_t n_rules;
    uint8_t *ending;   /* can match a finite text */
    uint8_t *nullable; /* can match the empty text */
    uint8_t *empty;    /* has an alternative without elements */
    note *notes;
    visit *stack;
    uint32_t *open; /* rules whose component is not complete */
    weir_error *error;
    weir_status status;
} walk;

/* False always. */
static bool refuse_rule(walk *w, uint32_t i, const char *what)
{
    const weir__grammar_rule *r = &w->rules[i];
    w->status = weir__error_set(w->error, WEIR_GRAMMAR, "grammar", "line %zu: rule '%.*s' %s", r->line,
                                (int)(r->name_length < 100 ? r->name_length : 100), r->name, what);
    return false;
}

static const char too_many_chains[] = "begins with too long or too many chains of other rules";
static const char left_recursive[] =
    "is left-recursive: it can begin with itself; put something before the recursion, or use a repetition";

static bool mark_rules(walk *w, bool terminals, uint8_t *marks)
{
    return weir__automaton_mark(w->elements, w->starts, w->n_rules, terminals, WEIR__GRAMMAR_CHAIN_MAX + 1,
                                marks) ||
           refuse_rule(w, 0, too_many_chains);
}

static void find_empty(walk *w)
{
    for (size_t r = 0; r < w->n_rules; r++) {
        bool begins = true;
        for (const weir__automaton_element *e = &w->elements[w->starts[r]];; e++) {
            bool ends = e->type == END || e->type == ALTERNATIVE;
            w->empty[r] |= ends && begins;
            begins = ends;
            if (e->type == END) break;
        }
    }
}

static visit begin_visit(const walk *w, uint32_t i)
{
    return (visit){i, &w->elements[w->starts[i]], true};
}

/* The next rule that v's rule can start with, or -1. *last: it ends its alternative. */
static int64_t next_left(visit *v, const uint8_t *nullable, bool *last)
{
    for (;;) {
        const weir__automaton_element *e = v->next;
        if (e->type == END) return -1;
        v->next++;
        if (e->type == ALTERNATIVE) {
            v->leftmost = true;
        } else if (e->type != RULE) {
            v->leftmost = false;
        } else if (v->leftmost) {
            v->leftmost = nullable[e->value];
            *last = v->next->type == END || v->next->type == ALTERNATIVE;
            return e->value;
        }
    }
}

static uint32_t add_calls(uint32_t a, uint32_t b)
{
    return a > WEIR__GRAMMAR_CALLS_MAX || b > WEIR__GRAMMAR_CALLS_MAX ? WEIR__GRAMMAR_CALLS_MAX + 1 : a + b;
}

static void add_up(note *above, const note *done)
{
    above->calls = add_calls(above->calls, done->calls);
    if (above->depth < done->depth) above->depth = done->depth;
}

/* Numbers the strongly connected components of the graph from rules to those that they can start with. marks:
 * rules that can match the empty text. strict: refuses loops, and chains that are too long or too many. */
static bool find_components(walk *w, const uint8_t *marks, bool strict)
{
    uint32_t next_order = 1, n_components = 0;
    uint64_t all_calls = 0;
    size_t n_open = 0, height = 0;
    bool last;
    memset(w->notes, 0, w->n_rules * sizeof *w->notes);
    for (uint32_t start = 0; start < w->n_rules; start++) {
        int64_t to = w->notes[start].order == 0 ? (int64_t)start : -1;
        while (to >= 0 || height > 0) {
            if (to >= 0 && w->notes[to].order == 0) {
                w->notes[to].order = w->notes[to].low = next_order++;
                w->open[n_open++] = (uint32_t)to;
                w->stack[height++] = begin_visit(w, (uint32_t)to);
            }
            visit *v = &w->stack[height - 1];
            note *n = &w->notes[v->rule];
            to = next_left(v, marks, &last);
            if (to >= 0 && w->notes[to].order == 0) continue;
            if (to >= 0 && w->notes[to].component == 0) {
                if (strict) return refuse_rule(w, v->rule, left_recursive);
                if (w->notes[to].order < n->low) n->low = w->notes[to].order;
            } else if (to >= 0) {
                add_up(n, &w->notes[to]);
            } else {
                if (n->low == n->order) {
                    n_components++;
                    do w->notes[w->open[--n_open]].component = n_components;
                    while (w->open[n_open] != v->rule);
                }
                n->calls = add_calls(n->calls, 1);
                n->depth++;
                all_calls += n->calls;
                if (strict && (all_calls > WEIR__GRAMMAR_CALLS_MAX || n->depth > WEIR__GRAMMAR_CHAIN_MAX))
                    return refuse_rule(w, v->rule, too_many_chains);
                if (--height == 0) break;
                note *above = &w->notes[w->stack[height - 1].rule];
                if (n->low < above->low) above->low = n->low;
                add_up(above, n);
            }
        }
    }
    return true;
}

/* Like llama.cpp, this refuses loops found by `empty` alone. Loops by way of other nullable
 * rules end by themselves where each rule is the last of its alternative, as in (a? b?)*: the stack returns
 * to its former state. Where something follows, the stack would grow without end. */
static bool check_loops(walk *w)
{
    if (!find_components(w, w->empty, true) || !find_components(w, w->nullable, false)) return false;
    for (uint32_t i = 0; i < w->n_rules; i++) {
        visit v = begin_visit(w, i);
        bool last;
        for (int64_t to; (to = next_left(&v, w->nullable, &last)) >= 0;)
            if (!last && w->notes[to].component == w->notes[i].component)
                return refuse_rule(w, i, left_recursive);
    }
    return true;
}

weir_status weir__grammar_rules_check(const weir__automaton_element *elements, const uint32_t *starts,
                                      const weir__grammar_rule *rules, size_t n_rules, int32_t ends,
                                      weir_error *error)
{
    walk w = {.elements = elements, .starts = starts, .rules = rules, .n_rules = n_rules, .error = error};
    w.ending = weir__mem_calloc(3 * n_rules, sizeof *w.ending);
    w.notes = weir__mem_calloc(n_rules, sizeof *w.notes);
    w.stack = weir__mem_calloc(n_rules, sizeof *w.stack);
    w.open = weir__mem_calloc(n_rules, sizeof *w.open);
    if (w.ending == NULL || w.notes == NULL || w.stack == NULL || w.open == NULL) {
        w.status =
            weir__error_set(error, WEIR_NO_MEMORY, "grammar", "out of memory while checking the grammar");
        goto out;
    }
    w.nullable = w.ending + n_rules;
    w.empty = w.nullable + n_rules;
    find_empty(&w);
    if (ends >= 0 && !mark_rules(&w, true, w.ending)) goto out;
    if (ends >= 0 && !w.ending[ends])
        refuse_rule(&w, (uint32_t)ends, "never comes to an end: its recursion has no way out");
    else if (mark_rules(&w, false, w.nullable))
        check_loops(&w);
out:
    weir__mem_free(w.open);
    weir__mem_free(w.stack);
    weir__mem_free(w.notes);
    weir__mem_free(w.ending);
    return w.status;
}
