/* grammar_rules.c: whether an automaton can be made of the rules of a grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar_rules.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "grammar/grammar.h"

typedef struct walk {
    const weir__grammar_rule *rules; /* [n_rules] */
    size_t n_rules;
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

/* Marks the rules that can match nothing or, with `terminals`, those that can match anything and come to an
 * end. By repeated passes in both directions: a chain of rules is settled in few passes whichever way it is
 * written, and by longer ones than the limit the work is not worth doing. */
static bool mark(walk *w, uint8_t *marks, bool terminals)
{
    bool changed = true;
    for (int pass = 0; changed; pass++) {
        if (pass > WEIR__GRAMMAR_CHAIN_MAX) return refuse_rule(w, 0, too_many_chains);
        changed = false;
        for (size_t k = 0; k < w->n_rules; k++) {
            size_t r = pass % 2 == 0 ? k : w->n_rules - 1 - k;
            if (marks[r]) continue;
            bool all = true;
            for (const weir__automaton_element *e = w->rules[r].body.items;; e++) {
                if (e->type == END || e->type == ALTERNATIVE) {
                    if (all) {
                        marks[r] = 1;
                        changed = true;
                    }
                    if (all || e->type == END) break;
                    all = true;
                } else if (e->type == RULE ? !marks[e->value] : !terminals) {
                    all = false;
                }
            }
        }
    }
    return true;
}

/* A place in a depth-first walk along the rules that a rule can begin with. */
typedef struct visit {
    uint32_t rule;
    const weir__automaton_element *next;
    bool leftmost; /* everything before next in its alternative can match nothing */
} visit;

enum { UNSEEN, OPEN, DONE };

/* What both walks need, for each rule. */
typedef struct notes {
    uint8_t *nullable; /* can match nothing, perhaps by way of other rules */
    uint8_t *empty;    /* has an alternative without elements: all that llama.cpp's search knows */
    uint8_t *state;
    uint32_t *calls;
    uint16_t *depth;
    uint32_t *low, *order, *component;
    visit *stack;
} notes;

static uint32_t add_calls(uint32_t a, uint32_t b)
{
    return a > WEIR__GRAMMAR_CALLS_MAX || b > WEIR__GRAMMAR_CALLS_MAX ? WEIR__GRAMMAR_CALLS_MAX + 1 : a + b;
}

static void find_empty(const walk *w, uint8_t *empty)
{
    for (size_t r = 0; r < w->n_rules; r++) {
        bool begins = true;
        for (const weir__automaton_element *e = w->rules[r].body.items;; e++) {
            bool ends = e->type == END || e->type == ALTERNATIVE;
            empty[r] |= ends && begins;
            begins = ends;
            if (e->type == END) break;
        }
    }
}

static const char left_recursive[] =
    "is left-recursive: it can begin with itself; put something before the recursion, or use a repetition";

/* The next rule that v's rule can begin with, or -1 at its end. *last: nothing follows it there. */
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

static visit begin_visit(const walk *w, uint32_t i)
{
    return (visit){i, w->rules[i].body.items, true};
}

/* llama.cpp's own search for left recursion: what it would find, how deep it would go, and how often it would
 * call itself, since it forgets what it has seen. */
static bool check_search(walk *w, notes *n)
{
    uint64_t all_calls = 0;
    bool last;
    for (uint32_t start = 0; start < w->n_rules; start++) {
        size_t height = 0;
        if (n->state[start] != UNSEEN) continue;
        n->stack[height++] = begin_visit(w, start);
        n->state[start] = OPEN;
        while (height > 0) {
            visit *v = &n->stack[height - 1];
            int64_t to = next_left(v, n->empty, &last);
            if (to >= 0 && n->state[to] == OPEN) return refuse_rule(w, v->rule, left_recursive);
            if (to >= 0 && n->state[to] == UNSEEN) {
                n->state[to] = OPEN;
                n->stack[height++] = begin_visit(w, (uint32_t)to);
                continue;
            }
            uint32_t done = to >= 0 ? (uint32_t)to : v->rule;
            if (to < 0) {
                n->state[done] = DONE;
                n->calls[done] = add_calls(n->calls[done], 1);
                n->depth[done]++;
                all_calls += n->calls[done];
                if (all_calls > WEIR__GRAMMAR_CALLS_MAX || n->depth[done] > WEIR__GRAMMAR_CHAIN_MAX)
                    return refuse_rule(w, done, too_many_chains);
                if (--height == 0) break;
            }
            uint32_t above = n->stack[height - 1].rule;
            n->calls[above] = add_calls(n->calls[above], n->calls[done]);
            if (n->depth[above] < n->depth[done]) n->depth[above] = n->depth[done];
        }
    }
    return true;
}

/* Left recursion that it overlooks, by way of rules that can match nothing. Such a loop ends by itself where
 * each rule of it is the last of its alternative, as in (a? b?)*: the stack comes back to what it was. Where
 * something follows, the stack grows for ever. So every part of a loop is looked at that something follows:
 * edges within one of Tarjan's strongly connected components. */
static bool check_loops(walk *w, notes *n)
{
    uint32_t next_order = 1, n_components = 0;
    size_t n_open = 0;
    uint32_t *open = n->calls; /* used up by the search */
    bool last;
    for (uint32_t start = 0; start < w->n_rules; start++) {
        size_t height = 0;
        if (n->order[start] != 0) continue;
        n->stack[height++] = begin_visit(w, start);
        n->order[start] = n->low[start] = next_order++;
        open[n_open++] = start;
        while (height > 0) {
            visit *v = &n->stack[height - 1];
            int64_t to = next_left(v, n->nullable, &last);
            if (to >= 0 && n->order[to] == 0) {
                n->order[to] = n->low[to] = next_order++;
                open[n_open++] = (uint32_t)to;
                n->stack[height++] = begin_visit(w, (uint32_t)to);
            } else if (to >= 0) {
                if (n->component[to] == 0 && n->order[to] < n->low[v->rule]) n->low[v->rule] = n->order[to];
            } else {
                uint32_t done = v->rule;
                if (n->low[done] == n->order[done]) {
                    n_components++;
                    do n->component[open[--n_open]] = n_components;
                    while (open[n_open] != done);
                }
                if (--height > 0 && n->low[done] < n->low[n->stack[height - 1].rule])
                    n->low[n->stack[height - 1].rule] = n->low[done];
            }
        }
    }
    for (uint32_t i = 0; i < w->n_rules; i++) {
        visit v = begin_visit(w, i);
        for (int64_t to; (to = next_left(&v, n->nullable, &last)) >= 0;)
            if (!last && n->component[to] == n->component[i]) return refuse_rule(w, i, left_recursive);
    }
    return true;
}

weir_status weir__grammar_rules_check(const weir__grammar_rule *rules, size_t n_rules, int32_t ends,
                                      weir_error *error)
{
    walk w = {rules, n_rules, error, WEIR_OK};
    notes n = {0};
    size_t count = n_rules;

    n.nullable = weir__mem_calloc(count, sizeof *n.nullable);
    n.empty = weir__mem_calloc(count, sizeof *n.empty);
    n.state = weir__mem_calloc(count, sizeof *n.state);
    n.calls = weir__mem_calloc(count, sizeof *n.calls);
    n.depth = weir__mem_calloc(count, sizeof *n.depth);
    n.low = weir__mem_calloc(count, sizeof *n.low);
    n.order = weir__mem_calloc(count, sizeof *n.order);
    n.component = weir__mem_calloc(count, sizeof *n.component);
    n.stack = weir__mem_calloc(count, sizeof *n.stack);
    if (n.nullable == NULL || n.empty == NULL || n.state == NULL || n.calls == NULL || n.depth == NULL ||
        n.low == NULL || n.order == NULL || n.component == NULL || n.stack == NULL) {
        w.status =
            weir__error_set(error, WEIR_NO_MEMORY, "grammar", "out of memory while checking the grammar");
        goto out;
    }
    find_empty(&w, n.empty);
    if (ends >= 0) {
        if (!mark(&w, n.state, true)) goto out;
        if (!n.state[ends]) {
            refuse_rule(&w, (uint32_t)ends, "never comes to an end: its recursion has no way out");
            goto out;
        }
        memset(n.state, UNSEEN, count);
    }
    if (mark(&w, n.nullable, false) && check_search(&w, &n)) check_loops(&w, &n);
out:
    weir__mem_free(n.stack);
    weir__mem_free(n.component);
    weir__mem_free(n.order);
    weir__mem_free(n.low);
    weir__mem_free(n.depth);
    weir__mem_free(n.calls);
    weir__mem_free(n.state);
    weir__mem_free(n.empty);
    weir__mem_free(n.nullable);
    return w.status;
}
