/* automaton_states.c: the states of an automaton, computed when they are needed.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A way to read a text is a stack of the elements that must follow, with a terminal on top. Stacks share
 * their lower parts in a tree (`frame`). A set of ways is a state. Each transition is computed once.
 * Characters that no class of the grammar distinguishes form one column. */
#include "grammar/automaton_states.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* The most frames of one step: far more than WEIR__AUTOMATON_WAYS_MAX ways need, and quickly processed. */
#define MOST_FRAMES 65536

/* The ways that remain where there were too many. With this few, it takes a while until there are too many
 * again, and a mask costs no more than with other grammars. */
#define KEPT 64

/* ---- Elements ------------------------------------------------------------------------------------- */

bool weir__automaton_matches(const weir__automaton_element *e, uint32_t code)
{
    bool positive = e->type != NOT_CHARACTER;
    do {
        bool range = e[1].type == UPPER;
        if (e->type == ANY || (range ? e->value <= code && code <= e[1].value : e->value == code))
            return positive;
        e += range ? 2 : 1;
    } while (e->type == OR_CHARACTER);
    return !positive;
}

/* True if a code point with this beginning may match. As in llama.cpp, a negated class does not match if it
 * excludes one of the possible code points. */
static bool may_match(const weir__automaton_element *e, weir__partial partial)
{
    bool positive = e->type != NOT_CHARACTER;
    if (partial.n == 1 && partial.value < 2) return false; /* overlong */
    uint32_t bits = (uint32_t)partial.n * 6;
    uint32_t low = partial.value << bits, high = low | ((1u << bits) - 1);
    if (low == 0 && partial.n == 2) low = 1u << 11;
    if (low == 0 && partial.n == 3) low = 1u << 16;
    do {
        bool range = e[1].type == UPPER;
        if (e->type == ANY) return true;
        if (range ? e->value <= high && low <= e[1].value : low <= e->value && e->value <= high)
            return positive;
        e += range ? 2 : 1;
    } while (e->type == OR_CHARACTER);
    return !positive;
}

/* ---- Columns -------------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

bool weir__automaton_make_columns(weir__automaton *a)
{
    size_t capacity = 0, n = 0;
    if (!weir__mem_grow(&a->lows, &capacity, 2 * a->n_elements + 1, sizeof *a->lows)) return false;
    a->lows[n++] = 0;
    for (size_t i = 0; i < a->n_elements; i++) {
        const weir__automaton_element *e = &a->elements[i];
        bool begins = e->type == CHARACTER || e->type == NOT_CHARACTER || e->type == OR_CHARACTER;
        bool ends = e->type == UPPER || (begins && e[1].type != UPPER);
        if (begins) a->lows[n++] = e->value;
        if (ends && e->value < UINT32_MAX) a->lows[n++] = e->value + 1;
    }
    qsort(a->lows, n, sizeof *a->lows, compare_numbers);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || a->lows[i] != a->lows[a->n_columns - 1]) a->lows[a->n_columns++] = a->lows[i];
    for (uint32_t code = 0, at = 0; code < 128; code++) {
        if (at + 1 < a->n_columns && a->lows[at + 1] == code) at++;
        a->ascii[code] = at;
    }
    return true;
}

static uint32_t find_column(const weir__automaton *a, uint32_t code)
{
    size_t low = 0, high = a->n_columns; /* lows[low] <= code < lows[high] */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (a->lows[middle] <= code)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)low;
}

uint32_t weir__automaton_column(weir__automaton *a, uint32_t code)
{
    if (code < 128) return a->ascii[code];
    const uint32_t last = a->last_column;
    if (a->lows[last] > code || (last + 1 < a->n_columns && a->lows[last + 1] <= code))
        a->last_column = find_column(a, code);
    return a->last_column;
}

/* ---- Frames and states ---------------------------------------------------------------------------- */

size_t weir__automaton_bytes(const weir__automaton *a)
{
    return a->n_elements *
               (sizeof *a->elements + sizeof *a->nearer + sizeof *a->counted + sizeof *a->related) +
           a->frames_capacity *
               (sizeof *a->frames + sizeof *a->seen + sizeof *a->after + sizeof *a->similar) +
           (a->frame_table.capacity + a->frame_table.old_capacity) * sizeof *a->frame_table.slots +
           a->states_capacity * sizeof *a->states +
           (a->state_table.capacity + a->state_table.old_capacity) * sizeof *a->state_table.slots +
           a->pool_capacity * sizeof *a->pool + a->n_rows * a->n_columns * sizeof(uint32_t) +
           a->n_bits * WEIR__AUTOMATON_WORDS(a->trie->n_vocab) * sizeof(uint64_t);
}

weir_status weir__automaton_leave(weir__automaton *a, weir_status status)
{
    const size_t n = weir__automaton_bytes(a);
    weir__slices_count(a->trie->slices, a->n_counted, n);
    a->n_counted = n;
    if (status == WEIR_NO_MEMORY && a->full) status = WEIR_GRAMMAR;
    pthread_mutex_unlock(&a->mutex);
    return status;
}

/* True if there may be one more frame, state or row. */
static bool has_room(weir__automaton *a)
{
    if (weir__automaton_bytes(a) <= WEIR__AUTOMATON_BYTES_MAX) return true;
    a->full = true;
    return false;
}

/* Old slots that one step moves: more than it may add, so that none is left when the table grows again. */
#define MOVED_AT_ONCE 16

static void put_slot(table *t, uint64_t hash, uint32_t slot)
{
    size_t at = (size_t)hash & (t->capacity - 1);
    while (t->slots[at] != 0) at = (at + 1) & (t->capacity - 1);
    t->slots[at] = slot;
}

/* Makes room in the table, which doubles when it is half full. */
static bool make_room(weir__automaton *a, table *t, uint64_t (*hash)(const weir__automaton *, uint32_t))
{
    for (size_t i = 0; t->old != NULL && i < MOVED_AT_ONCE; i++) {
        const uint32_t slot = t->old[t->n_moved++];
        if (slot != 0) put_slot(t, hash(a, slot - 1), slot);
        if (t->n_moved < t->old_capacity) continue;
        weir__mem_free(t->old);
        t->old = NULL;
        t->old_capacity = 0;
    }
    if (2 * (t->n + 1) <= t->capacity) return true;
    const size_t capacity = t->capacity > 0 ? 2 * t->capacity : 256;
    uint32_t *slots = weir__mem_calloc(capacity, sizeof *slots);
    if (slots == NULL) return false;
    t->old = t->slots;
    t->old_capacity = t->capacity;
    t->n_moved = 0;
    t->slots = slots;
    t->capacity = capacity;
    return true;
}

/* Finds the id that equals the key. False: there is none. */
static bool find_id(const weir__automaton *a, const table *t, uint64_t hash,
                    bool (*equals)(const weir__automaton *, uint32_t, const void *), const void *key,
                    uint32_t *id)
{
    const uint32_t *const slots[] = {t->slots, t->old};
    const size_t capacities[] = {t->capacity, t->old_capacity};
    for (int k = 0; k < 2; k++) {
        if (slots[k] == NULL) continue;
        const size_t rest = capacities[k] - 1;
        for (size_t at = (size_t)hash & rest; slots[k][at] != 0; at = (at + 1) & rest) {
            *id = slots[k][at] - 1;
            if (equals(a, *id, key)) return true;
        }
    }
    return false;
}

static void add_id(table *t, uint64_t hash, uint32_t id)
{
    put_slot(t, hash, id + 1);
    t->n++;
}

static uint64_t hash_frame(const weir__automaton *a, uint32_t id)
{
    return weir__hash(0, &a->frames[id], sizeof a->frames[id]);
}

static uint64_t hash_state(const weir__automaton *a, uint32_t id)
{
    const state *s = &a->states[id];
    return weir__hash(0, a->pool + s->first, s->n * sizeof *a->pool);
}

static bool equals_frame(const weir__automaton *a, uint32_t id, const void *key)
{
    const frame *f = key;
    return a->frames[id].element == f->element && a->frames[id].below == f->below;
}

bool weir__automaton_frame(weir__automaton *a, const weir__automaton_element *e, uint32_t below, uint32_t *id)
{
    const frame f = {(uint32_t)(e - a->elements), below};
    table *t = &a->frame_table;
    if (weir__automaton_is_end(e)) {
        *id = below;
        return true;
    }
    if (!make_room(a, t, hash_frame)) return false;
    const uint64_t hash = weir__hash(0, &f, sizeof f);
    if (find_id(a, t, hash, equals_frame, &f, id)) return true;
    if (!has_room(a) ||
        !weir__mem_grow(&a->frames, &a->frames_capacity, a->n_frames + 1, sizeof *a->frames) ||
        !weir__mem_grow(&a->seen, &a->seen_capacity, a->n_frames + 1, sizeof *a->seen) ||
        !weir__mem_grow(&a->after, &a->after_capacity, a->n_frames + 1, sizeof *a->after) ||
        !weir__mem_grow(&a->similar, &a->similar_capacity, a->n_frames + 1, sizeof *a->similar))
        return false;
    a->frames[a->n_frames] = f;
    a->seen[a->n_frames] = 0;
    a->after[a->n_frames] = UNKNOWN;
    a->similar[a->n_frames] = (similar){.frame = UNKNOWN, .counted = a->similar[below].counted};
    if (a->counted != NULL && a->counted[f.element]) a->similar[a->n_frames].counted = (uint32_t)a->n_frames;
    *id = (uint32_t)a->n_frames++;
    add_id(t, hash, *id);
    return true;
}

/* The key is the number of ways in found. */
static bool equals_state(const weir__automaton *a, uint32_t id, const void *key)
{
    const size_t n = *(const size_t *)key;
    return a->states[id].n == n && memcmp(a->pool + a->states[id].first, a->found, n * sizeof *a->found) == 0;
}

bool weir__automaton_find(weir__automaton *a, uint32_t *id)
{
    table *t = &a->state_table;
    size_t n = 0;
    if (a->n_found == 0) {
        *id = DEAD;
        return true;
    }
    qsort(a->found, a->n_found, sizeof *a->found, compare_numbers);
    for (size_t i = 0; i < a->n_found; i++)
        if (i == 0 || a->found[i] != a->found[n - 1]) a->found[n++] = a->found[i];
    const size_t bytes = n * sizeof *a->found;
    if (!make_room(a, t, hash_state)) return false;
    const uint64_t hash = weir__hash(0, a->found, bytes);
    if (find_id(a, t, hash, equals_state, &n, id)) return true;
    if (!has_room(a) ||
        !weir__mem_grow(&a->states, &a->states_capacity, a->n_states + 1, sizeof *a->states) ||
        !weir__mem_grow(&a->pool, &a->pool_capacity, a->n_pool + n, sizeof *a->pool))
        return false;
    state made = {.first = (uint32_t)a->n_pool,
                  .n = (uint32_t)n,
                  .ends = a->found[0] == 0,
                  .similar = UNKNOWN,
                  .run = RUN_UNKNOWN,
                  .mask = NONE};
    for (size_t i = 0; i < n; i++)
        made.tokens |=
            a->found[i] != 0 && weir__automaton_is_token(&a->elements[a->frames[a->found[i]].element]);
    memcpy(a->pool + a->n_pool, a->found, bytes);
    a->n_pool += n;
    a->states[a->n_states] = made;
    *id = (uint32_t)a->n_states++;
    add_id(t, hash, *id);
    return true;
}

/* ---- Steps ---------------------------------------------------------------------------------------- */

/* A step collects frames between begin_step and end_step, which makes a state of them. */
static void begin_step(weir__automaton *a)
{
    a->n_todo = a->n_found = 0;
    if (++a->step != 0) return;
    memset(a->seen, 0, a->n_frames * sizeof *a->seen);
    a->step = 1;
}

static bool add_frame(weir__automaton *a, uint32_t id)
{
    if (a->seen[id] == a->step) return true;
    a->seen[id] = a->step;
    if (!weir__mem_grow(&a->todo, &a->todo_capacity, a->n_todo + 1, sizeof *a->todo)) return false;
    a->todo[a->n_todo++] = id;
    return true;
}

bool weir__automaton_add_way(weir__automaton *a, uint32_t id)
{
    if (!weir__mem_grow(&a->found, &a->found_capacity, a->n_found + 1, sizeof *a->found)) return false;
    a->found[a->n_found++] = id;
    return true;
}

/* Adds the first element of each alternative of the rule, over `rest`. */
static bool open_rule(weir__automaton *a, uint32_t rule, uint32_t rest)
{
    const weir__automaton_element *e = &a->elements[a->starts[rule]];
    uint32_t id;
    for (;; e++) {
        if (!weir__automaton_frame(a, e, rest, &id) || !add_frame(a, id)) return false;
        while (!weir__automaton_is_end(e)) e++;
        if (e->type == END) return true;
    }
}

/* Opens the rule that the frame's element refers to. */
static bool open_reference(weir__automaton *a, uint32_t id)
{
    const weir__automaton_element *reference = &a->elements[a->frames[id].element];
    uint32_t rest;
    return weir__automaton_frame(a, reference + 1, a->frames[id].below, &rest) &&
           open_rule(a, reference->value, rest);
}

/* Orders frames by their elements: their ids depend on earlier computations. */
static int compare_frames(const weir__automaton *a, uint32_t x, uint32_t y)
{
    for (; x != y; x = a->frames[x].below, y = a->frames[y].below) {
        if (x == 0 || y == 0) return x == 0 ? -1 : 1;
        if (a->frames[x].element != a->frames[y].element)
            return a->frames[x].element < a->frames[y].element ? -1 : 1;
    }
    return 0;
}

/* A merge sort of ids [n]; spare [n] is scratch. */
static void sort_frames(const weir__automaton *a, uint32_t *ids, uint32_t *spare, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n;
            size_t end = middle + width < n ? middle + width : n;
            size_t left = from, right = middle;
            for (size_t i = from; i < end; i++) {
                bool first = right == end || (left < middle && compare_frames(a, ids[left], ids[right]) <= 0);
                spare[i] = ids[first ? left++ : right++];
            }
        }
        memcpy(ids, spare, n * sizeof *ids);
    }
}

/* Opens references until all ways have a terminal on top. False: out of memory. *cut: there were more than
 * `most` ways. */
static bool open_all(weir__automaton *a, size_t most, bool *cut)
{
    *cut = false;
    for (size_t i = 0; i < a->n_todo && !*cut; i++) {
        uint32_t id = a->todo[i];
        bool reference = id != 0 && a->elements[a->frames[id].element].type == RULE;
        *cut = !reference && a->n_found == most;
        if (*cut) break;
        if (!(reference ? open_reference(a, id) : weir__automaton_add_way(a, id))) return false;
        *cut = a->n_todo > MOST_FRAMES;
    }
    return true;
}

/* True if the text may end here. */
static bool may_end(const weir__automaton *a, uint32_t id)
{
    for (; id != 0; id = a->frames[id].below)
        for (const weir__automaton_element *e = &a->elements[a->frames[id].element];
             !weir__automaton_is_end(e); e++)
            if (e->type != RULE || !a->empty[e->value]) return false;
    return true;
}

/* The state of all frames that were added. If these are too many ways, they are opened again, in an order
 * that does not depend on earlier computations: the end of the text first. */
static bool end_step(weir__automaton *a, uint32_t *to)
{
    size_t n = a->n_todo;
    bool cut;
    if (!open_all(a, WEIR__AUTOMATON_WAYS_MAX, &cut)) return false;
    a->step_frames = (uint32_t)a->n_todo;
    if (cut) {
        if (!weir__mem_grow(&a->order, &a->order_capacity, 2 * n, sizeof *a->order)) return false;
        memcpy(a->order, a->todo, n * sizeof *a->order);
        sort_frames(a, a->order, a->order + n, n);
        begin_step(a);
        for (size_t i = 0; i < n && a->n_todo == 0; i++)
            if (may_end(a, a->order[i]) && !add_frame(a, 0)) return false;
        for (size_t i = 0; i < n; i++)
            if (!add_frame(a, a->order[i])) return false;
        if (!open_all(a, KEPT, &cut)) return false;
        a->n_cuts++;
        a->step_frames = UINT32_MAX;
    }
    if (!weir__automaton_find(a, to)) return false;
    if (a->states[*to].frames < a->step_frames) a->states[*to].frames = a->step_frames;
    return true;
}

/* The state after the terminal on top of a way, as if there were no other. False: out of memory. */
static bool after_way(weir__automaton *a, uint32_t way, uint32_t *to)
{
    uint32_t next;
    *to = a->after[way];
    if (*to != UNKNOWN) return true;
    const frame f = a->frames[way];
    begin_step(a);
    if (!weir__automaton_frame(a, weir__automaton_after(&a->elements[f.element]), f.below, &next) ||
        !add_frame(a, next) || !end_step(a, to))
        return false;
    a->after[way] = *to;
    return true;
}

/* The ways that take a character of the column. *way: one of them, if there are any. */
static size_t count_ways(const weir__automaton *a, uint32_t from, uint32_t column, uint32_t *way)
{
    const state *s = &a->states[from];
    size_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t id = a->pool[s->first + i];
        const weir__automaton_element *e = &a->elements[a->frames[id].element];
        if (id == 0 || weir__automaton_is_token(e) || !weir__automaton_matches(e, a->lows[column])) continue;
        *way = id;
        n++;
    }
    return n;
}

static bool make_row(weir__automaton *a, uint32_t from)
{
    uint32_t *row = has_room(a) ? weir__mem_alloc(a->n_columns * sizeof *row) : NULL;
    if (row == NULL) return false;
    for (size_t i = 0; i < a->n_columns; i++) row[i] = UNKNOWN;
    a->states[from].row = row;
    a->n_rows++;
    return true;
}

bool weir__automaton_next(weir__automaton *a, uint32_t from, uint32_t column, uint32_t *to)
{
    uint32_t way = 0;
    *to = DEAD;
    if (from == DEAD) return true;
    if (a->states[from].row == NULL && !make_row(a, from)) return false;
    *to = a->states[from].row[column];
    if (*to != UNKNOWN) return true;
    const size_t n_ways = count_ways(a, from, column, &way);
    if (n_ways <= 1) {
        *to = DEAD;
        if (n_ways == 1 && !after_way(a, way, to)) return false;
        a->states[from].row[column] = *to;
        return true;
    }
    begin_step(a);
    for (uint32_t i = 0; i < a->states[from].n; i++) {
        frame f = a->frames[a->pool[a->states[from].first + i]];
        const weir__automaton_element *e = &a->elements[f.element];
        uint32_t next;
        if (a->pool[a->states[from].first + i] == 0 || weir__automaton_is_token(e) ||
            !weir__automaton_matches(e, a->lows[column]))
            continue;
        if (!weir__automaton_frame(a, weir__automaton_after(e), f.below, &next) || !add_frame(a, next))
            return false;
    }
    if (!end_step(a, to)) return false;
    a->states[from].row[column] = *to;
    return true;
}

/* The ways of `with`, and those that lead from `from` by the token's id. */
static bool go_token(weir__automaton *a, uint32_t from, int32_t token, uint32_t with, uint32_t *to)
{
    begin_step(a);
    for (uint32_t i = 0; i < a->states[with].n; i++)
        if (!add_frame(a, a->pool[a->states[with].first + i])) return false;
    for (uint32_t i = 0; i < a->states[from].n; i++) {
        uint32_t id = a->pool[a->states[from].first + i], next;
        frame f = a->frames[id];
        const weir__automaton_element *e = &a->elements[f.element];
        if (id == 0 || !weir__automaton_is_token(e) || (e->value == (uint32_t)token) != (e->type == TOKEN))
            continue;
        if (!weir__automaton_frame(a, e + 1, f.below, &next) || !add_frame(a, next)) return false;
    }
    return end_step(a, to);
}

/* ---- Accept --------------------------------------------------------------------------------------- */

bool weir__automaton_may_go(const weir__automaton *a, uint32_t in, weir__partial partial)
{
    const state *s = &a->states[in];
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t id = a->pool[s->first + i];
        const weir__automaton_element *e = &a->elements[a->frames[id].element];
        if (id != 0 && !weir__automaton_is_token(e) && may_match(e, partial)) return true;
    }
    return false;
}

/* The ways of a state that continue with a character: within one there are no others. */
static bool go_into(weir__automaton *a, uint32_t from, uint32_t *to)
{
    begin_step(a);
    for (uint32_t i = 0; i < a->states[from].n; i++) {
        uint32_t id = a->pool[a->states[from].first + i];
        if (id == 0 || weir__automaton_is_token(&a->elements[a->frames[id].element])) continue;
        if (!add_frame(a, id)) return false;
    }
    return end_step(a, to);
}

weir_status weir__automaton_go(weir__automaton *a, uint32_t *in, weir__partial *begun, int32_t token,
                               const char *bytes, size_t n)
{
    weir__partial partial = *begun;
    uint32_t to = *in;
    if (n == 0 || bytes[0] == '\0') return WEIR_REFUSED;
    if (!weir__mem_grow(&a->codes, &a->codes_capacity, n, sizeof *a->codes)) return WEIR_NO_MEMORY;
    int64_t n_codes = weir__trie_decode(bytes, n, &partial, a->codes);
    if (n_codes < 0) return WEIR_REFUSED;
    for (int64_t i = 0; i < n_codes && to != DEAD; i++) {
        if (a->codes[i] == 0) return WEIR_REFUSED;
        if (!weir__automaton_next(a, to, weir__automaton_column(a, a->codes[i]), &to)) return WEIR_NO_MEMORY;
    }
    if (partial.n > 0 && to != DEAD) {
        if (!weir__automaton_may_go(a, to, partial))
            to = DEAD;
        else if (!go_into(a, to, &to))
            return WEIR_NO_MEMORY;
    }
    if (a->states[*in].tokens && n_codes > 0 && !go_token(a, *in, token, to, &to)) return WEIR_NO_MEMORY;
    if (to == DEAD) return WEIR_REFUSED;
    *in = to;
    *begun = partial;
    return WEIR_OK;
}

/* Frame 0, the end, and state 0, which is dead. */
static bool add_fixed(weir__automaton *a)
{
    if (!weir__mem_grow(&a->frames, &a->frames_capacity, 1, sizeof *a->frames) ||
        !weir__mem_grow(&a->seen, &a->seen_capacity, 1, sizeof *a->seen) ||
        !weir__mem_grow(&a->after, &a->after_capacity, 1, sizeof *a->after) ||
        !weir__mem_grow(&a->similar, &a->similar_capacity, 1, sizeof *a->similar) ||
        !weir__mem_grow(&a->states, &a->states_capacity, DEAD + 1, sizeof *a->states))
        return false;
    a->frames[0] = (frame){0};
    a->seen[0] = 0;
    a->after[0] = DEAD;
    a->similar[0] = (similar){.counted = NONE};
    a->n_frames = 1;
    for (; a->n_states <= DEAD; a->n_states++)
        a->states[a->n_states] = (state){.similar = DEAD, .mask = NONE};
    return true;
}

bool weir__automaton_begin(weir__automaton *a, uint32_t root)
{
    if (!add_fixed(a)) return false;
    begin_step(a);
    return open_rule(a, root, 0) && end_step(a, &a->start);
}
