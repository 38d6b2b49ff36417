/* regular.c: regular languages of texts in JSON strings: intersections and differences of patterns.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All patterns become one program of character classes and splits. A state is the set of its instructions
 * that the text so far leads to; sets are made as they are reached, and those from which no text ends are
 * left out. */
#include "grammar/regular.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/mem.h"

#define INSTRUCTIONS_MAX 60000
#define MEMBERS_MAX      2000000 /* of all sets */
#define VISITS_MAX       8000000 /* of instructions, by all closures */
#define EDGES_MAX        60000
#define CODE_MAX         0x10FFFF
#define NOWHERE          UINT32_MAX

typedef struct range {
    uint32_t low, high;
} range;

enum { MATCH, JUMP, SPLIT, CLASS };

/* JUMP: to a; SPLIT: to a and b; CLASS: ranges [a, a + b), then the next instruction. */
typedef struct instruction {
    uint32_t op, a, b;
} instruction;

/* A set of instructions, ascending. */
typedef struct state {
    size_t first, n;            /* members */
    size_t first_edge, n_edges; /* edges */
    bool ends, lives;           /* a text can end here; here or later */
} state;

/* The next state after one of the characters; sorted by target, then character. */
typedef struct edge {
    uint32_t target;
    range characters;
} edge;

typedef struct maker {
    const char *pos; /* in the pattern that is compiled */
    instruction *code;
    size_t n_code, code_capacity;
    range *ranges;
    size_t n_ranges, ranges_capacity;
    size_t starts[WEIR__REGULAR_PARTS_MAX + 1]; /* of the parts' instructions */
    const weir__regular_part *parts;
    size_t n_parts;
    state *states;
    size_t n_states, states_capacity;
    uint32_t *members;
    size_t n_members, members_capacity;
    edge *edges;
    size_t n_edges, edges_capacity;
    uint32_t *buckets; /* [N_BUCKETS], of states */
    uint32_t *chain;   /* [WEIR__REGULAR_STATES_MAX] */
    uint32_t *marks;   /* [n_code]: the last closure that visited it */
    uint32_t *stack;   /* [2 * n_code + 2] */
    uint32_t mark;
    size_t visits;
    weir__budget *budget;
    bool too_large, no_memory;
} maker;

#define N_BUCKETS 4096

static bool failed(const maker *m)
{
    return m->too_large || m->no_memory || weir__budget_over(m->budget);
}

static bool spend(maker *m, size_t n)
{
    return weir__budget_step(m->budget, n) && !failed(m);
}

/* ---- Programs ---- */

static size_t put(maker *m, uint32_t op, uint32_t a, uint32_t b)
{
    if (m->n_code >= INSTRUCTIONS_MAX) m->too_large = true;
    if (!spend(m, 1)) return 0;
    if (!weir__mem_grow(&m->code, &m->code_capacity, m->n_code + 1, sizeof *m->code)) {
        m->no_memory = true;
        return 0;
    }
    m->code[m->n_code] = (instruction){op, a, b};
    return m->n_code++;
}

static uint32_t read_code(maker *m)
{
    uint32_t value = 0;
    assert(m->pos[0] == '\\' && (m->pos[1] == 'u' || m->pos[1] == 'U'));
    size_t n = m->pos[1] == 'u' ? 4 : 8;
    m->pos += 2;
    for (size_t i = 0; i < n; i++) value = value << 4 | (uint32_t)weir__ascii_hex(*m->pos++);
    return value;
}

static void put_class(maker *m)
{
    size_t first = m->n_ranges;
    for (m->pos++; *m->pos != ']';) {
        uint32_t low = read_code(m), high = low;
        if (*m->pos == '-') {
            m->pos++;
            high = read_code(m);
        }
        if (!weir__mem_grow(&m->ranges, &m->ranges_capacity, m->n_ranges + 1, sizeof *m->ranges)) {
            m->no_memory = true;
            return;
        }
        m->ranges[m->n_ranges++] = (range){low, high};
    }
    m->pos++;
    put(m, CLASS, (uint32_t)first, (uint32_t)(m->n_ranges - first));
}

static void put_alternatives(maker *m);

static void put_atom(maker *m)
{
    if (*m->pos == '[') {
        put_class(m);
        return;
    }
    assert(*m->pos == '(');
    m->pos++;
    put_alternatives(m);
    if (!failed(m)) m->pos++;
}

/* The place after the class or group at pos. */
static const char *skip_atom(const char *pos)
{
    for (size_t depth = 0;; pos++) {
        if (*pos == '[') pos = strchr(pos, ']');
        if (*pos == '(') depth++;
        if (*pos == ')') depth--;
        if (depth == 0) return pos + 1;
    }
}

/* The quantifier at pos; *most is SIZE_MAX: no bound. */
static const char *read_quantifier(const char *pos, size_t *least, size_t *most)
{
    *least = *pos == '+' || *pos == '\0' || strchr("*?{+", *pos) == NULL;
    *most = *pos == '+' || *pos == '*' ? SIZE_MAX : 1;
    if (*pos == '{') {
        char *end;
        *least = *most = strtoul(pos + 1, &end, 10);
        if (*end == ',') *most = end[1] == '}' ? SIZE_MAX : strtoul(end + 1, &end, 10);
        return strchr(end, '}') + 1;
    }
    return pos + (*pos != '\0' && strchr("*?+", *pos) != NULL);
}

static void put_item(maker *m)
{
    const char *begin = m->pos, *after = skip_atom(begin);
    size_t least, most, waiting = NOWHERE;
    const char *end = read_quantifier(after, &least, &most);
    for (size_t i = 0; i < least && !failed(m); i++) {
        m->pos = begin;
        put_atom(m);
    }
    if (most == SIZE_MAX) {
        size_t split = put(m, SPLIT, (uint32_t)m->n_code + 1, 0);
        m->pos = begin;
        put_atom(m);
        put(m, JUMP, (uint32_t)split, 0);
        if (!failed(m)) m->code[split].b = (uint32_t)m->n_code;
    }
    for (size_t i = least; most != SIZE_MAX && i < most && !failed(m); i++) {
        waiting = put(m, SPLIT, (uint32_t)m->n_code + 1, (uint32_t)waiting);
        m->pos = begin;
        put_atom(m);
    }
    while (waiting != NOWHERE && !failed(m)) {
        size_t next = m->code[waiting].b;
        m->code[waiting].b = (uint32_t)m->n_code;
        waiting = next;
    }
    m->pos = end;
}

/* Up to a closing parenthesis or the end of the pattern. */
static void put_alternatives(maker *m)
{
    size_t jumps = NOWHERE;
    while (!failed(m)) {
        size_t split = put(m, SPLIT, (uint32_t)m->n_code + 1, (uint32_t)m->n_code + 1);
        while (*m->pos != '|' && *m->pos != ')' && *m->pos != '$' && !failed(m)) put_item(m);
        if (*m->pos != '|' || failed(m)) break;
        m->pos++;
        jumps = put(m, JUMP, (uint32_t)jumps, 0);
        assert(m->code != NULL || failed(m));
        if (!failed(m)) m->code[split].b = (uint32_t)m->n_code;
    }
    while (jumps != NOWHERE && !failed(m)) {
        size_t next = m->code[jumps].a;
        m->code[jumps].a = (uint32_t)m->n_code;
        jumps = next;
    }
}

static void compile(maker *m)
{
    for (size_t i = 0; i < m->n_parts && !failed(m); i++) {
        m->starts[i] = m->n_code;
        assert(m->parts[i].pattern[0] == '^');
        m->pos = m->parts[i].pattern + 1;
        put_alternatives(m);
        put(m, MATCH, 0, 0);
    }
    m->starts[m->n_parts] = m->n_code;
}

/* ---- Sets ---- */

/* Appends to the members what an instruction leads to without a character, unless this closure has it. */
static void close_over(maker *m, uint32_t from)
{
    size_t height = 0, visits = 0;
    m->stack[height++] = from;
    while (height > 0) {
        uint32_t at = m->stack[--height];
        visits++;
        if (m->marks[at] == m->mark) continue;
        m->marks[at] = m->mark;
        const instruction *one = &m->code[at];
        if (one->op == JUMP || one->op == SPLIT) {
            m->stack[height++] = one->a;
            if (one->op == SPLIT) m->stack[height++] = one->b;
        } else if (!weir__mem_grow(&m->members, &m->members_capacity, m->n_members + 1, sizeof *m->members)) {
            m->no_memory = true;
            return;
        } else {
            m->members[m->n_members++] = at;
        }
    }
    m->visits += visits;
    if (m->visits > VISITS_MAX) m->too_large = true;
    spend(m, visits / 16);
}

static int compare_members(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Says of the members [n] if all parts that must match still can, and if a text can end there. */
static bool is_possible(const maker *m, const uint32_t *members, size_t n, bool *ends)
{
    size_t at = 0;
    *ends = true;
    for (size_t i = 0; i < m->n_parts; i++) {
        bool any = at < n && members[at] < m->starts[i + 1], matches = false;
        for (; at < n && members[at] < m->starts[i + 1]; at++) matches |= m->code[members[at]].op == MATCH;
        *ends &= matches != m->parts[i].excluded;
        if (!any && !m->parts[i].excluded) return false;
    }
    return true;
}

/* The state of the members from `first` on, which are taken if it is new; NOWHERE: no text goes on. */
static uint32_t find_state(maker *m, size_t first)
{
    size_t n = m->n_members - first;
    bool ends;
    if (n == 0 || m->members == NULL) return NOWHERE;
    uint32_t *set = m->members + first, hash = 2166136261u;
    qsort(set, n, sizeof *set, compare_members);
    for (size_t i = 0; i < n; i++) hash = (hash ^ set[i]) * 16777619u;
    hash = (hash ^ hash >> 16) % N_BUCKETS;
    m->n_members = first;
    if (!is_possible(m, set, n, &ends)) return NOWHERE;
    for (uint32_t i = m->buckets[hash]; i != NOWHERE; i = m->chain[i])
        if (m->states[i].n == n && memcmp(m->members + m->states[i].first, set, n * sizeof *set) == 0)
            return i;
    if (m->n_states >= WEIR__REGULAR_STATES_MAX || first + n > MEMBERS_MAX) m->too_large = true;
    if (failed(m)) return NOWHERE;
    if (!weir__mem_grow(&m->states, &m->states_capacity, m->n_states + 1, sizeof *m->states)) {
        m->no_memory = true;
        return NOWHERE;
    }
    m->n_members = first + n;
    m->states[m->n_states] = (state){.first = first, .n = n, .ends = ends, .lives = ends};
    m->chain[m->n_states] = m->buckets[hash];
    return m->buckets[hash] = (uint32_t)m->n_states++;
}

static int compare_edges(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->target != y->target) return x->target < y->target ? -1 : 1;
    return (x->characters.low > y->characters.low) - (x->characters.low < y->characters.low);
}

static void add_edge(maker *m, uint32_t target, uint32_t low, uint32_t high)
{
    if (target == NOWHERE || failed(m)) return;
    if (m->n_edges >= EDGES_MAX) m->too_large = true;
    if (!weir__mem_grow(&m->edges, &m->edges_capacity, m->n_edges + 1, sizeof *m->edges)) m->no_memory = true;
    if (!failed(m)) m->edges[m->n_edges++] = (edge){target, {low, high}};
}

/* The least character above `from` at which the set's classes begin or end; above CODE_MAX: none. */
static uint32_t next_bound(const maker *m, const state *s, uint32_t from, size_t *work)
{
    uint32_t next = CODE_MAX + 1;
    for (size_t i = s->first; i < s->first + s->n; i++) {
        const instruction *one = &m->code[m->members[i]];
        if (one->op != CLASS) continue;
        *work += one->b;
        for (size_t k = one->a; k < one->a + one->b; k++) {
            const range *r = &m->ranges[k];
            if (r->low > from && r->low < next) next = r->low;
            if (r->high >= from && r->high + 1 < next) next = r->high + 1;
        }
    }
    return next;
}

/* The edges of a state. Characters that are in the same classes of it share an edge. */
static void add_edges(maker *m, uint32_t from)
{
    const size_t first_edge = m->n_edges;
    uint32_t low = 0, high;
    for (; low <= CODE_MAX && !failed(m); low = high) {
        const state s = m->states[from];
        size_t first = m->n_members, work = s.n;
        high = next_bound(m, &s, low, &work);
        m->mark++;
        for (size_t i = s.first; i < s.first + s.n && !failed(m); i++) {
            const uint32_t at = m->members[i];
            const instruction one = m->code[at];
            bool has = false;
            for (size_t k = one.a; one.op == CLASS && !has && k < (size_t)one.a + one.b; k++)
                has = m->ranges[k].low <= low && low <= m->ranges[k].high;
            if (has) close_over(m, at + 1);
        }
        work += m->n_members - first;
        if (spend(m, work / 16 + 1)) add_edge(m, find_state(m, first), low, high - 1);
    }
    if (failed(m)) return;
    m->states[from].first_edge = first_edge;
    m->states[from].n_edges = m->n_edges - first_edge;
    if (m->n_edges > first_edge)
        qsort(m->edges + first_edge, m->n_edges - first_edge, sizeof *m->edges, compare_edges);
}

static void find_living(maker *m)
{
    for (bool changed = true; changed && spend(m, m->n_edges / 16 + 1);) {
        changed = false;
        for (size_t i = m->n_states; i-- > 0;) {
            state *s = &m->states[i];
            for (size_t k = s->first_edge; k < s->first_edge + s->n_edges && !s->lives; k++)
                if (m->states[m->edges[k].target].lives) s->lives = changed = true;
        }
    }
}

/* ---- The result ---- */

static void add_code(weir__text *text, uint32_t c)
{
    if (weir__ascii_is_alnum((char)c) && c < 0x80)
        weir__text_printf(text, "%c", (int)c);
    else
        weir__text_printf(text, c > 0xFFFF ? "\\U%08X" : c > 0xFF ? "\\u%04X" : "\\x%02X", (unsigned)c);
}

static void add_range(weir__text *text, uint32_t low, uint32_t high)
{
    add_code(text, low);
    if (high == low) return;
    weir__text_add_string(text, "-");
    add_code(text, high);
}

/* A class of the edges' characters, or of those that they lack, which may be fewer. Surrogates are no
 * characters, so nothing is between those around them. */
static void add_class(weir__text *text, const edge *edges, size_t n, size_t *n_elements)
{
    weir__text with = {0}, without = {0};
    size_t n_with = 0, n_without = 0;
    uint32_t next = 0;
    for (size_t i = 0, k; i < n; i = k) {
        uint32_t low = edges[i].characters.low, high = edges[i].characters.high;
        for (k = i + 1; k < n && edges[k].characters.low == high + 1; k++) high = edges[k].characters.high;
        add_range(&with, low, high);
        n_with += high > low ? 2 : 1;
        if (low > next && !(next == 0xD800 && low == 0xE000)) {
            add_range(&without, next, low - 1);
            n_without += low - 1 > next ? 2 : 1;
        }
        next = high + 1;
    }
    if (next <= CODE_MAX) {
        add_range(&without, next, CODE_MAX);
        n_without += 2;
    }
    bool negated = n_without < n_with;
    const weir__text *shorter = negated ? &without : &with;
    weir__text_printf(text, "[%s%s]", negated ? "^" : "", shorter->bytes != NULL ? shorter->bytes : "");
    text->failed |= with.failed || without.failed;
    *n_elements += negated ? n_without : n_with;
    weir__text_fini(&with);
    weir__text_fini(&without);
}

/* numbers [n_states]: of the living states. */
static json_t *state_row(const maker *m, const state *s, const uint32_t *numbers, size_t *cost)
{
    json_t *row = json_pack("[b]", s->ends);
    const edge *edges = m->edges + s->first_edge;
    *cost += 8;
    for (size_t i = 0, k; i < s->n_edges; i = k) {
        weir__text class = {0};
        size_t n_elements = 0;
        for (k = i + 1; k < s->n_edges && edges[k].target == edges[i].target; k++) continue;
        if (!m->states[edges[i].target].lives) continue;
        add_class(&class, edges + i, k - i, &n_elements);
        bool ok = !class.failed && json_array_append_new(row, json_string(class.bytes)) == 0 &&
                  json_array_append_new(row, json_integer(numbers[edges[i].target])) == 0;
        /* Elements, or as much of the text's limit. */
        const size_t by_bytes = (class.n + 14) * 2 / 5;
        *cost += n_elements + 2 > by_bytes ? n_elements + 2 : by_bytes;
        weir__text_fini(&class);
        if (!ok) {
            json_decref(row);
            return NULL;
        }
    }
    return row;
}

static json_t *write_states(maker *m, size_t *cost)
{
    json_t *all = json_array();
    uint32_t *numbers = weir__mem_calloc(m->n_states + 1, sizeof *numbers), n = 0;
    for (size_t i = 0; numbers != NULL && i < m->n_states; i++) {
        numbers[i] = n;
        n += m->states[i].lives;
    }
    m->no_memory |= numbers == NULL || all == NULL;
    bool any = m->n_states > 0 && m->states[0].lives;
    for (size_t i = 0; any && !m->no_memory && i < m->n_states; i++)
        if (m->states[i].lives)
            m->no_memory |= json_array_append_new(all, state_row(m, &m->states[i], numbers, cost)) != 0;
    weir__mem_free(numbers);
    if (!m->no_memory) return all;
    json_decref(all);
    return NULL;
}

json_t *weir__regular_make(const weir__regular_part *parts, size_t n, weir__budget *budget, size_t *cost,
                           bool *too_large)
{
    maker m = {.parts = parts, .n_parts = n, .budget = budget};
    json_t *result = NULL;
    assert(n <= WEIR__REGULAR_PARTS_MAX);
    *cost = 0;
    compile(&m);
    if (!failed(&m)) {
        m.buckets = weir__mem_calloc(N_BUCKETS + WEIR__REGULAR_STATES_MAX, sizeof *m.buckets);
        m.marks = weir__mem_calloc(3 * m.n_code + 2, sizeof *m.marks);
        m.no_memory = m.buckets == NULL || m.marks == NULL;
    }
    if (!failed(&m)) {
        memset(m.buckets, 0xFF, N_BUCKETS * sizeof *m.buckets);
        m.chain = m.buckets + N_BUCKETS;
        m.stack = m.marks + m.n_code;
        m.mark = 1;
        for (size_t i = 0; i < n && !failed(&m); i++) close_over(&m, (uint32_t)m.starts[i]);
        if (!failed(&m)) find_state(&m, 0);
        for (uint32_t i = 0; i < m.n_states && !failed(&m); i++) add_edges(&m, i);
        if (!failed(&m)) find_living(&m);
        if (!failed(&m)) result = write_states(&m, cost);
    }
    *too_large = m.too_large;
    weir__mem_free(m.marks);
    weir__mem_free(m.buckets);
    weir__mem_free(m.edges);
    weir__mem_free(m.members);
    weir__mem_free(m.states);
    weir__mem_free(m.ranges);
    weir__mem_free(m.code);
    return result;
}

void weir__regular_add_name(weir__text *pattern, const char *name)
{
    weir__text json = {0};
    weir__json_quote(&json, name, strlen(name));
    pattern->failed |= json.failed;
    for (size_t i = 1; !json.failed && i + 1 < json.n;) {
        const unsigned char c = (unsigned char)json.bytes[i++];
        size_t more = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        uint32_t code = more == 0 ? c : c & (0x3Fu >> more);
        while (more-- > 0) code = code << 6 | ((unsigned char)json.bytes[i++] & 0x3Fu);
        weir__text_printf(pattern, code > 0xFFFF ? "[\\U%08X]" : "[\\u%04X]", (unsigned)code);
    }
    weir__text_fini(&json);
}
