/* token_mask.c: which tokens may follow a state: a walk of the vocabulary's tree, cached.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Within a string, or another run of a class of characters, most tokens are allowed, and most nodes of the
 * tree tell nothing new. A state has a run of n characters of a class if each of them leads on in the same
 * way, up to the n-th. The class's slice (slice.h) has the tokens within the class, and the nodes that are
 * still to be visited. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/automaton.h"
#include "grammar/automaton_states.h"
#include "grammar/repeat.h"

static void set_bit(uint64_t *bits, int32_t token)
{
    bits[token / 64] |= UINT64_C(1) << (token % 64);
}

/* ---- Runs ---------------------------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* The class at an element. False: it has too many ranges, or takes nothing. */
static bool read_class(const weir__automaton_element *e, weir__class *of)
{
    uint32_t ranges[WEIR__CLASS_MAX][2];
    size_t n = 0, n_given = 0;
    const bool negated = e->type == NOT_CHARACTER;
    *of = (weir__class){0};
    if (e->type == ANY) {
        of->ranges[0].high = UINT32_MAX;
        of->n = 1;
        return true;
    }
    do {
        const bool range = e[1].type == UPPER;
        if (n_given == WEIR__CLASS_MAX - 1) return false;
        ranges[n_given][0] = e->value;
        ranges[n_given++][1] = range ? e[1].value : e->value;
        e += range ? 2 : 1;
    } while (e->type == OR_CHARACTER);
    qsort(ranges, n_given, sizeof ranges[0], compare_ranges);
    for (size_t i = 0; i < n_given; i++) {
        if (n > 0 && ranges[i][0] <= ranges[n - 1][1] + (ranges[n - 1][1] < UINT32_MAX)) {
            if (ranges[i][1] > ranges[n - 1][1]) ranges[n - 1][1] = ranges[i][1];
        } else {
            memmove(ranges[n++], ranges[i], sizeof ranges[i]);
        }
    }
    if (!negated) {
        for (size_t i = 0; i < n; i++) {
            of->ranges[i].low = ranges[i][0];
            of->ranges[i].high = ranges[i][1];
        }
        of->n = n;
        return true;
    }
    uint32_t low = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i][0] > low) {
            of->ranges[of->n].low = low;
            of->ranges[of->n++].high = ranges[i][0] - 1;
        }
        if (ranges[i][1] == UINT32_MAX) return of->n > 0;
        low = ranges[i][1] + 1;
    }
    of->ranges[of->n].low = low;
    of->ranges[of->n++].high = UINT32_MAX;
    return true;
}

/* The most ways of a state that has a run: comparing them is cheaper than a walk. */
#define RUN_WAYS 16

/* How a way reads the characters of a class. */
typedef enum relation { TAKES_NONE, TAKES_ALL, TAKES_SOME } relation;

static relation relate(const weir__class *its, const weir__class *of)
{
    size_t k = 0, covered = 0;
    bool touches = false;
    for (size_t i = 0; i < of->n; i++) {
        while (k < its->n && its->ranges[k].high < of->ranges[i].low) k++;
        if (k == its->n) break;
        touches = touches || its->ranges[k].low <= of->ranges[i].high;
        covered += its->ranges[k].low <= of->ranges[i].low && of->ranges[i].high <= its->ranges[k].high;
    }
    return !touches ? TAKES_NONE : covered == of->n ? TAKES_ALL : TAKES_SOME;
}

/* The class of a way; false: it has none, being the end or a token by its id, or too many ranges. */
static bool class_of_way(const weir__automaton *a, uint32_t way, weir__class *of)
{
    const weir__automaton_element *e = &a->elements[a->frames[way].element];
    return way != 0 && !weir__automaton_is_token(e) && read_class(e, of);
}

/* The relation of a way to a slice's class. An element remembers the last one. */
static relation relate_way(weir__automaton *a, uint32_t way, uint32_t slice)
{
    const uint32_t element = a->frames[way].element;
    weir__class its;
    if (way == 0 || weir__automaton_is_token(&a->elements[element])) return TAKES_NONE;
    related *known = &a->related[element];
    if (known->slice != slice + 1) {
        const weir__token_slice *its_slice = a->slices[slice];
        const bool read = read_class(&a->elements[element], &its);
        *known = (related){(uint8_t)(slice + 1), (uint8_t)(read ? relate(&its, &its_slice->of) : TAKES_SOME),
                           false};
        for (uint32_t c = 0; c < WEIR__SLICE_CONTROLS && !known->controls; c++)
            known->controls =
                !weir__slice_has(its_slice, c) && weir__automaton_matches(&a->elements[element], c);
    }
    return (relation)known->relation;
}

/* The ways of a state that take the characters of a slice, each all of them; -1: a way takes some. *text
 * becomes false if a way takes another control character. */
static int count_takers(weir__automaton *a, uint32_t in, uint32_t slice, bool *text)
{
    int n = 0;
    if (a->states[in].n > RUN_WAYS) return -1;
    for (uint32_t i = 0; i < a->states[in].n; i++) {
        const uint32_t way = a->pool[a->states[in].first + i];
        const relation r = relate_way(a, way, slice);
        if (r == TAKES_SOME) return -1;
        n += r == TAKES_ALL;
        *text = *text && (way == 0 || !a->related[a->frames[way].element].controls);
    }
    return n;
}

/* The state that any character of the class leads to: all of them have the same takers. */
static bool go_on(weir__automaton *a, uint32_t from, const weir__class *of, uint32_t *to)
{
    return weir__automaton_next(a, from, weir__automaton_column(a, of->ranges[0].low), to);
}

/* True if a way of the state has the very class. */
static bool has_class(const weir__automaton *a, uint32_t in, const weir__class *of)
{
    weir__class its;
    for (uint32_t i = 0; i < a->states[in].n && i < RUN_WAYS; i++)
        if (class_of_way(a, a->pool[a->states[in].first + i], &its) && weir__same_class(&its, of))
            return true;
    return false;
}

/* Takes the characters of another class out of one. False: too many ranges are left. */
static bool take_out(weir__class *of, const weir__class *other)
{
    weir__class rest = {0};
    for (size_t i = 0; i < of->n; i++) {
        uint32_t low = of->ranges[i].low;
        const uint32_t high = of->ranges[i].high;
        bool left = true;
        for (size_t k = 0; k < other->n && left; k++) {
            if (other->ranges[k].high < low || high < other->ranges[k].low) continue;
            if (other->ranges[k].low > low) {
                if (rest.n == WEIR__CLASS_MAX) return false;
                rest.ranges[rest.n].low = low;
                rest.ranges[rest.n++].high = other->ranges[k].low - 1;
            }
            left = other->ranges[k].high < high;
            if (left) low = other->ranges[k].high + 1;
        }
        if (!left) continue;
        if (rest.n == WEIR__CLASS_MAX) return false;
        rest.ranges[rest.n].low = low;
        rest.ranges[rest.n++].high = high;
    }
    *of = rest;
    return true;
}

/* Makes a way's class one of which all ways of the state take all or nothing. *begins: there is one, and
 * after a character of it the way's class may follow again. */
static bool begins_run(weir__automaton *a, uint32_t in, weir__class *of, bool *begins)
{
    const weir__class whole = *of;
    weir__class its;
    uint32_t next;
    *begins = false;
    for (uint32_t i = 0; i < a->states[in].n; i++) {
        const uint32_t way = a->pool[a->states[in].first + i];
        if (way == 0 || weir__automaton_is_token(&a->elements[a->frames[way].element])) continue;
        if (!class_of_way(a, way, &its)) return true;
        if (relate(&its, of) == TAKES_SOME && !take_out(of, &its)) return true;
    }
    if (!weir__slices_worth(a->trie->slices, of)) return true;
    if (!go_on(a, in, of, &next)) return false;
    *begins = has_class(a, next, &whole);
    /* What is left beside a word is read once, and beside what is looked for anywhere, again and again. */
    if (!weir__same_class(of, &whole)) *begins = next == in || weir__slices_known(a->trie->slices, of);
    return true;
}

/* *index: that of the class's slice among the automaton's; -1: there are too many. */
static bool use_slice(weir__automaton *a, const weir__class *of, int32_t *index)
{
    *index = -1;
    for (size_t i = 0; i < a->n_slices && *index < 0; i++)
        if (weir__same_class(&a->slices[i]->of, of)) *index = (int32_t)i;
    if (*index >= 0 || a->n_slices == WEIR__SLICES_MAX) return true;
    weir__token_slice *slice = weir__slices_hold(a->trie->slices, of);
    if (slice == NULL) return false;
    *index = (int32_t)a->n_slices;
    a->slices[a->n_slices++] = slice;
    return true;
}

/* Finds the slice of a run that begins at the state; -1: there is none. Classes that are not repeated get no
 * slice. */
static bool find_slice(weir__automaton *a, uint32_t in, int32_t *slice)
{
    weir__class of;
    *slice = -1;
    if (a->states[in].n > RUN_WAYS) return true;
    for (uint32_t i = 0; i < a->states[in].n && *slice < 0; i++) {
        const uint32_t way = a->pool[a->states[in].first + i];
        bool begins;
        if (!class_of_way(a, way, &of) || !weir__slices_worth(a->trie->slices, &of)) continue;
        if (!begins_run(a, in, &of, &begins)) return false;
        if (begins && !use_slice(a, &of, slice)) return false;
    }
    return true;
}

/* Finds the length of the state's run: 0: none; less than the longest token: that many characters, and the
 * state after them takes no more of the class; otherwise as many or more. */
static bool measure_run(weir__automaton *a, uint32_t from)
{
    const size_t longest = weir__slices_longest(a->trie->slices);
    uint32_t chain[WEIR__SLICE_LONGEST], at = from;
    bool loops = false;
    size_t n = 0;
    int32_t slice;
    uint8_t length = 0;
    bool text = true;
    if (a->states[from].run != RUN_UNKNOWN) return true;
    if (!find_slice(a, from, &slice)) return false;
    while (slice >= 0) {
        const int takers = count_takers(a, at, (uint32_t)slice, &text);
        if (takers == 0 || n == longest) length = (uint8_t)n;
        if (takers <= 0 || n == longest) break;
        chain[n] = at;
        if (!go_on(a, at, &a->slices[slice]->of, &at)) return false;
        loops = at == chain[n];
        if (loops) length = (uint8_t)longest;
        if (loops) break;
        n++;
    }
    a->states[from].run = length;
    a->states[from].slice = (uint8_t)(slice < 0 ? 0 : slice);
    a->states[from].text = text;
    a->states[from].loops = loops && n == 0;
    /* The ways of a state are those of its own, whatever leads to it, but the end was seen only here. */
    for (size_t i = 1; i < n && n < longest && length > 0; i++) {
        state *s = &a->states[chain[i]];
        if (s->run != RUN_UNKNOWN) break;
        s->run = (uint8_t)(length < longest ? length - i : length);
        s->slice = (uint8_t)slice;
        s->text = text;
    }
    return true;
}

/* The next alternative of a rule. NULL: there is none, or *left, the number of elements that may still be
 * read, becomes 0. */
static const weir__automaton_element *next_alternative(const weir__automaton_element *e, size_t *left)
{
    for (; !weir__automaton_is_end(e) && *left > 0; --*left) e++;
    if (*left > 0) --*left;
    return *left > 0 && e->type == ALTERNATIVE ? e + 1 : NULL;
}

/* True if the item at an element is followed by itself: in a row, or in a rule that begins with it. */
static bool is_repeated(const weir__automaton *a, const weir__automaton_element *e, size_t *left)
{
    const weir__automaton_element *next = weir__automaton_after(e);
    if (weir__automaton_same_item(e, next)) return true;
    if (next->type != RULE) return false;
    for (next = &a->elements[a->starts[next->value]]; next != NULL; next = next_alternative(next, left))
        if (weir__automaton_same_item(e, next)) return true;
    return false;
}

static bool is_class(const weir__automaton_element *e)
{
    return e->type == CHARACTER || e->type == NOT_CHARACTER || e->type == ANY;
}

/* The most classes that are looked at before there is a text, and the most elements that are read of rules
 * after them: a rule may follow as often as it has alternatives. Other classes get their slices within a
 * mask. */
#define LOOKED_AT 256
#define READ_MAX  ((size_t)1 << 20)

/* Holds the slice of a class, if it is worth one and is not `last`. *n counts the classes. */
static bool hold_slice(weir__automaton *a, const weir__automaton_element *e, weir__class *last, size_t *n)
{
    weir__class of;
    int32_t slice;
    if (!read_class(e, &of) || weir__same_class(&of, last)) return true;
    *last = of;
    ++*n;
    return !weir__slices_worth(a->trie->slices, &of) || use_slice(a, &of, &slice);
}

bool weir__automaton_hold_slices(weir__automaton *a)
{
    weir__class last = {0};
    uint32_t last_rule = NONE;
    size_t n = 0, left = READ_MAX;
    for (size_t i = 0; i < a->n_elements && n < LOOKED_AT && left > 0; i++) {
        const weir__automaton_element *e = &a->elements[i];
        if ((!is_class(e) && (e->type != RULE || e->value == last_rule)) || !is_repeated(a, e, &left))
            continue;
        if (e->type != RULE) {
            if (!hold_slice(a, e, &last, &n)) return false;
            continue;
        }
        /* Of the rule, each alternative that is a class. */
        last_rule = e->value;
        for (e = &a->elements[a->starts[e->value]]; e != NULL && n < LOOKED_AT;
             e = next_alternative(e, &left), n++)
            if (is_class(e) && weir__automaton_is_end(weir__automaton_after(e)) &&
                !hold_slice(a, e, &last, &n))
                return false;
    }
    return true;
}

/* ---- Walks --------------------------------------------------------------------------------------- */

/* True if the class has no character beyond ASCII. */
static bool is_ascii(const weir__automaton_element *e)
{
    if (e->type != CHARACTER) return false;
    do {
        const bool range = e[1].type == UPPER;
        if ((range ? e[1].value : e->value) >= 128) return false;
        e += range ? 2 : 1;
    } while (e->type == OR_CHARACTER);
    return true;
}

/* True if only characters of ASCII may follow the state. A vocabulary has hundreds of tokens that begin
 * others. */
static bool only_ascii(weir__automaton *a, uint32_t in)
{
    bool ascii = true;
    if (a->states[in].ascii_known) return a->states[in].ascii;
    for (uint32_t i = 0; i < a->states[in].n && ascii; i++) {
        const uint32_t id = a->pool[a->states[in].first + i];
        const weir__automaton_element *e = &a->elements[a->frames[id].element];
        ascii = id == 0 || weir__automaton_is_token(e) || is_ascii(e);
    }
    a->states[in].ascii_known = true;
    a->states[in].ascii = ascii;
    return ascii;
}

/* Allows tokens that end at node i, which leads to this state. */
static void set_ends(weir__automaton *a, size_t i, uint32_t in, uint64_t *bits)
{
    const weir__trie_node *node = &a->trie->nodes[i];
    for (uint32_t k = node->first; k < node[1].first; k++) {
        const weir__trie_token *end = &a->trie->ends[k];
        if (end->partial.n == 0 || (!only_ascii(a, in) && weir__automaton_may_go(a, in, end->partial)))
            set_bit(bits, end->token);
    }
}

/* The first set bit from `from` on, or `end`. used: a bit for each word that is not 0. */
static size_t next_bit(const uint64_t *bits, const uint64_t *used, size_t from, size_t end)
{
    if (from >= end) return end;
    size_t word = from / 64;
    uint64_t rest = bits[word] & (UINT64_MAX << (from % 64));
    if (rest == 0) {
        const size_t last = (end - 1) / 64;
        size_t group = ++word / 64;
        uint64_t words = used[group] & (UINT64_MAX << (word % 64));
        while (words == 0) {
            if (++group * 64 > last) return end;
            words = used[group];
        }
        word = group * 64 + (size_t)__builtin_ctzll(words);
        if (word > last) return end;
        rest = bits[word];
    }
    const size_t at = word * 64 + (size_t)__builtin_ctzll(rest);
    return at < end ? at : end;
}

/* Ends a run that widen_run began, after its column. */
static void narrow_run(weir__automaton *a, size_t at)
{
    step *root = &a->path[0];
    if (root->slice != NULL || root->stops == NULL || at < root->end) return;
    root->stops = NULL;
    root->sets = false;
    root->end = (uint32_t)a->trie->n_nodes;
}

/* The first node from `from` on that is to be visited. */
static size_t skip_nodes(weir__automaton *a, size_t from, mask *m)
{
    const weir__trie *trie = a->trie;
    while (from < trie->n_nodes) {
        narrow_run(a, from);
        const step *above = &a->path[trie->nodes[from].depth - 1];
        if (above->stops == NULL) return from;
        const size_t to = next_bit(above->stops, above->stops + weir__slices_words(trie), from, above->end);
        /* Below the end of a run there are few nodes. */
        for (size_t i = from; above->sets && i < to && m->reach < UINT32_MAX; i++)
            if (a->path[0].slice == NULL || m->reach <= trie->nodes[i].depth)
                m->reach = a->path[0].slice == NULL ? UINT32_MAX : trie->nodes[i].depth + 1;
        for (uint32_t k = trie->nodes[from].first; above->sets && k < trie->nodes[to].first; k++)
            set_bit(m->bits, trie->ends[k].token);
        if (to < above->end) return to;
        from = to;
    }
    return from;
}

/* Notes what is to be visited below a node that is not the root. */
static bool enter_node(weir__automaton *a, const weir__trie_node *node, uint32_t in, mask *m)
{
    const step *above = &a->path[node->depth - 1];
    step *at = &a->path[node->depth];
    *at = (step){.state = in, .end = node->end};
    if (above->slice != NULL && weir__slice_has(above->slice, node->code)) { /* the run goes on */
        at->slice = above->slice;
        at->stops = above->stops;
        at->sets = above->sets;
        return true;
    }
    if (node->end == (uint32_t)(node - a->trie->nodes) + 1) return true;
    if (!measure_run(a, in)) return false;
    if (a->states[in].run > 0 && a->states[in].run + node->depth >= weir__slices_longest(a->trie->slices)) {
        at->slice = a->slices[a->states[in].slice];
        at->stops = at->slice->stops;
        at->sets = true;
        if (!a->states[in].loops) m->above = NONE;
    }
    return true;
}

/* The node after the branches of all first characters of a column. */
static size_t end_of_column(const weir__automaton *a, uint32_t column)
{
    const weir__trie *trie = a->trie;
    if (column + 1 == a->n_columns) return trie->n_nodes;
    size_t low = 0, high = trie->n_tops; /* the first branch of a later column */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (trie->nodes[trie->tops[middle]].code < a->lows[column + 1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < trie->n_tops ? trie->tops[low] : trie->n_nodes;
}

/* The node after the branch of node i, which leads nowhere. A vocabulary has many thousand first characters:
 * those of the same column are skipped together. */
static size_t skip_branch(const weir__automaton *a, size_t i, uint32_t column)
{
    const weir__trie_node *node = &a->trie->nodes[i];
    return node->depth > 1 || node->code < 128 ? node->end : end_of_column(a, column);
}

/* Where a run begins after a first character beyond ASCII, it does so after all of the same column: until the
 * column's end only the slice's stops below the root are visited. */
static void widen_run(weir__automaton *a, const weir__trie_node *node, uint32_t column)
{
    step *root = &a->path[0];
    if (node->depth > 1 || node->code < 128 || root->stops != NULL || !a->path[1].sets) return;
    root->stops = a->path[1].stops;
    root->sets = true;
    root->end = (uint32_t)end_of_column(a, column);
}

/* Sets the bits of the tokens that may come next, but for those within the state's run. A node that leads
 * nowhere skips its whole branch. */
static bool walk_trie(weir__automaton *a, uint32_t from, mask *m)
{
    const weir__trie *trie = a->trie;
    if (!measure_run(a, from)) return false;
    const weir__token_slice *slice = a->states[from].run > 0 ? a->slices[a->states[from].slice] : NULL;
    m->above = slice == NULL ? weir__repeat_under(a, from) : NONE;
    a->path[0] = (step){.state = from, .end = (uint32_t)trie->n_nodes, .slice = slice};
    if (slice != NULL) a->path[0].stops = a->states[from].text ? slice->text_stops : slice->stops;
    set_ends(a, 0, from, m->bits);
    for (size_t i = skip_nodes(a, 1, m); i < trie->n_nodes; i = skip_nodes(a, i, m)) {
        const weir__trie_node *node = &trie->nodes[i];
        const uint32_t column = weir__automaton_column(a, node->code);
        uint32_t to;
        m->n_nodes++;
        if (!weir__automaton_next(a, a->path[node->depth - 1].state, column, &to)) return false;
        if (to == DEAD) {
            i = skip_branch(a, i, column);
            continue;
        }
        if (m->reach <= node->depth) m->reach = node->depth + 1;
        if (m->frames < a->states[to].frames) m->frames = a->states[to].frames;
        if (m->above != NONE && !weir__repeat_stays_above(a, to, m->above)) m->above = NONE;
        if (!enter_node(a, node, to, m)) return false;
        widen_run(a, node, column);
        set_ends(a, i++, to, m->bits);
    }
    return true;
}

/* Allows tokens by their ids, but none that continue a code point. */
static void set_tokens(const weir__automaton *a, uint32_t from, uint64_t *bits)
{
    const weir__trie *trie = a->trie;
    const state *s = &a->states[from];
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t id = a->pool[s->first + i];
        const weir__automaton_element *e = &a->elements[a->frames[id].element];
        if (id == 0 || !weir__automaton_is_token(e)) continue;
        for (uint32_t k = trie->nodes[1].first; trie->n_nodes > 1 && k < trie->nodes[trie->n_nodes].first;
             k++)
            if ((trie->ends[k].token == (int32_t)e->value) == (e->type == TOKEN))
                set_bit(bits, trie->ends[k].token);
    }
}

/* Tries each token: few can follow in the middle of a code point. */
static weir_status try_each(weir__automaton *a, const weir__automaton_place *place, uint64_t *bits)
{
    const weir__trie *trie = a->trie;
    for (size_t i = 0; i < trie->n_continuations; i++) {
        weir__automaton_place to = *place;
        int32_t token = trie->continuations[i];
        weir_status status =
            weir__automaton_go(a, &to.state, &to.partial, token, trie->bytes + trie->begins[token],
                               trie->begins[token + 1] - trie->begins[token]);
        if (status == WEIR_NO_MEMORY) return status;
        if (status == WEIR_OK) set_bit(bits, token);
    }
    return WEIR_OK;
}

/* All tokens at a place within a code point, but otherwise none within the state's run. */
static weir_status compute_mask(weir__automaton *a, const weir__automaton_place *place, mask *m)
{
    const weir__trie *trie = a->trie;
    a->n_masks++;
    m->reach = 1;
    m->frames = 0;
    m->above = NONE;
    m->n_nodes = 0;
    memset(m->bits, 0, WEIR__AUTOMATON_WORDS(trie->n_vocab) * sizeof *m->bits);
    for (size_t i = 0; a->states[place->state].ends && i < trie->n_eog; i++) set_bit(m->bits, trie->eog[i]);
    if (place->partial.n > 0) return try_each(a, place, m->bits);
    if (!walk_trie(a, place->state, m)) return WEIR_NO_MEMORY;
    if (a->states[place->state].tokens) set_tokens(a, place->state, m->bits);
    return WEIR_OK;
}

/* The cache's oldest mask, to be overwritten. NULL: out of memory. */
static mask *place_for(weir__automaton *a)
{
    mask *m = &a->masks[a->next_mask];
    if (m->bits == NULL) {
        m->bits = weir__mem_alloc(WEIR__AUTOMATON_WORDS(a->trie->n_vocab) * sizeof *m->bits);
        if (m->bits == NULL) return NULL;
        a->n_bits++;
    }
    if (m->state != NONE) a->states[m->state].mask = NONE;
    m->state = NONE;
    a->next_mask = (a->next_mask + 1) % a->size_masks;
    return m;
}

/* Finds a state's mask in the cache, or computes it. */
static weir_status know_mask(weir__automaton *a, uint32_t of, mask **known)
{
    if (a->states[of].mask != NONE) {
        *known = &a->masks[a->states[of].mask];
        return WEIR_OK;
    }
    const weir__automaton_place place = {.state = of};
    *known = place_for(a);
    if (*known == NULL) return WEIR_NO_MEMORY;
    weir_status status = compute_mask(a, &place, *known);
    if (status != WEIR_OK) return status;
    (*known)->state = of;
    a->states[of].mask = (uint32_t)(*known - a->masks);
    return WEIR_OK;
}

/* Finds the mask of the state that is similar to this one. *known NULL: this one needs its own. */
static weir_status share_mask(weir__automaton *a, uint32_t of, mask **known)
{
    uint32_t other;
    uint64_t frames;
    *known = NULL;
    if (a->states[of].mask != NONE || a->states[of].tokens) return WEIR_OK;
    if (!weir__repeat_similar(a, of, &other, &frames)) return WEIR_NO_MEMORY;
    if (other == of) return WEIR_OK;
    if (!measure_run(a, of) || !measure_run(a, other)) return WEIR_NO_MEMORY;
    const state *s = &a->states[of], *t = &a->states[other];
    if ((s->run > 0) != (t->run > 0) || (s->run > 0 && s->slice != t->slice)) return WEIR_OK;
    mask *m;
    weir_status status = know_mask(a, other, &m);
    if (status != WEIR_OK) return status;
    /* With too many ways, some would be left out here but not there. */
    if ((m->reach <= WEIR__REPEAT_REACH || m->above != NONE) &&
        frames * m->frames <= WEIR__AUTOMATON_WAYS_MAX)
        *known = m;
    return WEIR_OK;
}

/* Nodes whose visit costs more than keeping the mask. */
#define COSTLY 256

/* Keeps a state's mask in the cache. */
static weir_status keep_mask(weir__automaton *a, uint32_t of, const mask *m)
{
    mask *kept = place_for(a);
    if (kept == NULL) return WEIR_NO_MEMORY;
    uint64_t *bits = kept->bits;
    *kept = *m;
    kept->bits = bits;
    kept->state = of;
    memcpy(bits, m->bits, WEIR__AUTOMATON_WORDS(a->trie->n_vocab) * sizeof *bits);
    a->states[of].mask = (uint32_t)(kept - a->masks);
    return WEIR_OK;
}

static weir_status get_mask(weir__automaton *a, const weir__automaton_place *place, uint64_t *bits)
{
    const uint32_t of = place->state;
    mask *known = NULL, own = {.bits = bits};
    if (place->partial.n > 0) return compute_mask(a, place, &own);
    weir_status status = share_mask(a, of, &known);
    /* Most states are met once: their masks would only take the place of others. */
    const bool first = known == NULL && !a->states[of].asked && a->states[of].mask == NONE;
    if (status == WEIR_OK && first) {
        status = compute_mask(a, place, &own);
        if (status == WEIR_OK && own.n_nodes > COSTLY) status = keep_mask(a, of, &own);
    } else if (status == WEIR_OK && known == NULL) {
        status = know_mask(a, of, &known);
    }
    if (status != WEIR_OK) return status;
    /* Its run is known by now: each of the masks needed it. */
    state *s = &a->states[of];
    const uint64_t *with = first ? bits : known->bits;
    s->asked = true;
    if (s->run > 0)
        weir__slices_allow(a->trie->slices, a->slices[s->slice], s->run, with, bits);
    else if (!first)
        memcpy(bits, with, WEIR__AUTOMATON_WORDS(a->trie->n_vocab) * sizeof *bits);
    return WEIR_OK;
}

weir_status weir__automaton_mask(weir__automaton *a, const weir__automaton_place *place, uint64_t *bits)
{
    pthread_mutex_lock(&a->mutex);
    weir_status status = get_mask(a, place, bits);
    return weir__automaton_leave(a, status);
}
