/* The automaton beside a reader that tries every way, on small vocabularies and grammars. A real vocabulary,
 * and llama.cpp's verdict, are in llama/automaton_test.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/automaton.h"

#include <pthread.h>

#include "grammar/automaton_rules.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/model.h"

#define N_TOKENS 200
#define N_BYTES  16
#include "support/vocabulary.h"

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

#define NOTHING 1 /* a token without text */

static const char *const letters[] = {"a", "b", "c", "d", "é", "日"};
static const uint32_t codes_of[] = {'a', 'b', 'c', 'd', 0xe9, 0x65e5};
#define N_LETTERS N_ELEMENTS(letters)

/* Every letter, then words, some of them twice. */
static void make_vocabulary(vocabulary *v, dice *d)
{
    memset(v, 0, sizeof *v);
    strcpy(v->text[EOG], "end");
    for (int32_t i = NOTHING + 1; i < N_TOKENS; i++) {
        size_t at = (size_t)(i - NOTHING - 1);
        int n = at < N_LETTERS ? 1 : dice_in(d, 1, 4);
        for (int k = 0; k < n; k++)
            strcat(v->text[i], letters[at < N_LETTERS ? at : dice_roll(d) % N_LETTERS]);
    }
    vocabulary_make_trie(v);
}

/* ---- Grammars -------------------------------------------------------------------------------------- */

#define MOST_ELEMENTS 2000
#define MOST_RULES    4

typedef struct grammar {
    weir__automaton_element elements[MOST_ELEMENTS];
    uint32_t starts[MOST_RULES];
    size_t n, n_rules;
} grammar;

static void put(grammar *g, uint32_t type, uint32_t value)
{
    assert_true(g->n < MOST_ELEMENTS);
    g->elements[g->n++] = (weir__automaton_element){type, value};
}

static void put_class(grammar *g, dice *d)
{
    if (dice_one_in(d, 8)) {
        put(g, ANY, 0);
        return;
    }
    bool negated = dice_one_in(d, 3);
    for (int n = dice_in(d, 1, 2), k = 0; k < n; k++) {
        uint32_t low = codes_of[dice_roll(d) % N_LETTERS];
        put(g, k > 0 ? OR_CHARACTER : negated ? NOT_CHARACTER : CHARACTER, low);
        if (dice_one_in(d, 3)) put(g, UPPER, low + (uint32_t)dice_in(d, 0, 300));
    }
}

/* Alternatives that begin with a class are never left-recursive; some are empty. */
static void make_grammar(grammar *g, dice *d)
{
    memset(g, 0, sizeof *g);
    g->n_rules = (size_t)dice_in(d, 1, MOST_RULES);
    bool many = dice_one_in(d, 4); /* enough alternatives to make them share their beginnings */
    for (size_t r = 0; r < g->n_rules; r++) {
        g->starts[r] = (uint32_t)g->n;
        int n = many && r == 0 ? dice_in(d, 60, 120) : dice_in(d, 1, 3);
        for (int i = 0; i < n; i++) {
            if (i > 0) put(g, ALTERNATIVE, 0);
            if (i > 0 && dice_one_in(d, 4)) continue;
            put_class(g, d);
            for (int k = dice_in(d, 0, 3); k > 0; k--) {
                if (dice_one_in(d, 2))
                    put_class(g, d);
                else
                    put(g, RULE, (uint32_t)(dice_roll(d) % g->n_rules));
            }
        }
        put(g, END, 0);
    }
}

/* ---- The reader that tries every way ---------------------------------------------------------------- */

#define MOST_DEPTH 64
#define MOST_WORK  200000

typedef struct reader {
    const grammar *g;
    const uint32_t *codes;
    size_t n;
    bool whole;
    int work;
} reader;

static size_t after_class(const weir__automaton_element *e)
{
    size_t n = 1;
    while (e[n].type == UPPER || e[n].type == OR_CHARACTER) n++;
    return n;
}

static bool matches(const weir__automaton_element *e, uint32_t code)
{
    bool in = e->type == ANY;
    for (size_t i = 0, n = after_class(e); i < n; i++) {
        if (e[i].type == UPPER) continue;
        uint32_t high = e[i + 1].type == UPPER ? e[i + 1].value : e[i].value;
        in |= e->type != ANY && e[i].value <= code && code <= high;
    }
    return in != (e->type == NOT_CHARACTER);
}

/* True if the codes from `at` on can be read where these elements are to come, the last one first. */
static bool reads(reader *r, const uint32_t *stack, size_t depth, size_t at)
{
    uint32_t next[MOST_DEPTH];
    if (++r->work > MOST_WORK || depth + 2 > MOST_DEPTH) return false;
    if (depth == 0) return at == r->n;
    const weir__automaton_element *e = &r->g->elements[stack[depth - 1]];
    memcpy(next, stack, depth * sizeof *next);
    if (e->type == END || e->type == ALTERNATIVE) return reads(r, next, depth - 1, at);
    if (e->type == RULE) {
        next[depth - 1]++;
        for (uint32_t i = r->g->starts[e->value];; i++) {
            next[depth] = i;
            if (reads(r, next, depth + 1, at)) return true;
            while (r->g->elements[i].type != END && r->g->elements[i].type != ALTERNATIVE) i++;
            if (r->g->elements[i].type == END) return false;
        }
    }
    if (at == r->n) return !r->whole;
    if (!matches(e, r->codes[at])) return false;
    next[depth - 1] += (uint32_t)after_class(e);
    return reads(r, next, depth, at + 1);
}

static bool naive(reader *r, const uint32_t *codes, size_t n, bool whole)
{
    *r = (reader){.g = r->g, .codes = codes, .n = n, .whole = whole, .work = r->work};
    for (uint32_t i = r->g->starts[0];; i++) {
        if (reads(r, &i, 1, 0)) return true;
        while (r->g->elements[i].type != END && r->g->elements[i].type != ALTERNATIVE) i++;
        if (r->g->elements[i].type == END) return false;
    }
}

static size_t codes_in(const char *text, uint32_t *codes)
{
    weir__partial partial = {0};
    int64_t n = weir__trie_decode(text, strlen(text), &partial, codes);
    assert_true(n >= 0 && partial.n == 0);
    return (size_t)n;
}

/* ---- Tests ----------------------------------------------------------------------------------------- */

static void masks_are_what_every_way_reads(void **state)
{
    (void)state;
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)d.state);
    static vocabulary v;
    int n_masks = 0, n_allowed = 0;
    make_vocabulary(&v, &d);
    for (int round = 0; round < EFFORT(300, 60); round++) {
        static grammar g;
        weir__automaton *a = NULL;
        uint32_t codes[256];
        size_t n = 0;
        uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
        make_grammar(&g, &d);
        weir_status status = weir__automaton_create(g.elements, g.n, g.starts, g.n_rules, 0, v.trie, &a);
        assert_int_equal(status, WEIR_OK);
        weir__automaton_place place = weir__automaton_start(a);
        for (int step = 0; step < 6; step++) {
            reader r = {.g = &g};
            int32_t chosen = -1;
            bool allowed[N_TOKENS] = {false};
            assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
            for (int32_t i = 0; i < N_TOKENS; i++) {
                size_t more = i == EOG || i == NOTHING ? 0 : codes_in(v.text[i], codes + n);
                allowed[i] = i != NOTHING && naive(&r, codes, n + more, i == EOG);
            }
            if (r.work > MOST_WORK) break; /* it gave up; its result does not count */
            for (int32_t i = 0; i < N_TOKENS; i++) {
                weir__automaton_place to = place;
                status = weir__automaton_accept(a, &to, i);
                if (weir__automaton_n_cuts(a) > 0) break;
                assert_int_equal(mask[i / 64] >> (i % 64) & 1, allowed[i]);
                assert_int_equal(status == WEIR_OK, allowed[i]);
                n_allowed += allowed[i];
                if (allowed[i] && i != EOG && (chosen < 0 || dice_one_in(&d, 20))) chosen = i;
            }
            if (weir__automaton_n_cuts(a) > 0) break; /* the reader knows the readings left out */
            n_masks++;
            if (chosen < 0) break;
            n += codes_in(v.text[chosen], codes + n);
            assert_int_equal(weir__automaton_accept(a, &place, chosen), WEIR_OK);
        }
        weir__automaton_release(a);
    }
    weir__trie_destroy(v.trie);
    assert_true(n_masks > EFFORT(500, 100) && n_allowed > EFFORT(10000, 2000));
}

/* Words [n] of eight letters as alternatives, each letter a class. */
static void put_words(weir__automaton_element *elements, size_t *n_elements, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0) elements[at++] = (weir__automaton_element){ALTERNATIVE, 0};
        for (size_t k = 0, rest = i; k < 8; k++, rest /= 4) {
            elements[at++] = (weir__automaton_element){CHARACTER, codes_of[rest % 4]};
            elements[at++] = (weir__automaton_element){UPPER, codes_of[rest % 4]};
        }
    }
    elements[at++] = (weir__automaton_element){END, 0};
    *n_elements = at;
}

/* A list of words is one way to read each of them, however many have the same beginning. */
static void many_alternatives_are_one_way(void **state)
{
    (void)state;
    enum { WORDS = 20000 };
    static vocabulary v;
    static const uint32_t start = 0;
    static weir__automaton_element elements[WORDS * 17 + 1];
    size_t n_elements;
    weir__automaton *a = NULL;
    dice d = {3};
    make_vocabulary(&v, &d);
    put_words(elements, &n_elements, WORDS);
    assert_int_equal(weir__automaton_create(elements, n_elements, &start, 1, 0, v.trie, &a), WEIR_OK);
    for (size_t i = 0; i < WORDS + 1000; i += 97) {
        weir__automaton_place place = weir__automaton_start(a);
        weir_status status = WEIR_OK;
        for (size_t k = 0, rest = i; k < 8; k++, rest /= 4) {
            assert_int_equal(status, WEIR_OK);
            assert_int_equal(weir__automaton_accept(a, &place, EOG), WEIR_REFUSED);
            status = weir__automaton_accept(a, &place, NOTHING + 1 + (int32_t)(rest % 4));
        }
        assert_int_equal(status, i < WORDS ? WEIR_OK : WEIR_REFUSED);
        if (status == WEIR_OK) assert_int_equal(weir__automaton_accept(a, &place, EOG), WEIR_OK);
    }
    assert_int_equal(weir__automaton_n_cuts(a), 0);
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

/* The common beginning of alternatives stands in the rules once, as a whole. */
static void beginnings_stand_there_once(void **state)
{
    (void)state;
    enum { WORDS = 100, BEGINNING = 50 };
    static weir__automaton_element elements[WORDS * (2 * BEGINNING + 2)];
    static const uint32_t start = 0;
    weir__automaton_rules rules = {0};
    size_t n = 0;
    for (uint32_t i = 0; i < WORDS; i++) {
        for (uint32_t k = 0; k < BEGINNING; k++) {
            elements[n++] = (weir__automaton_element){CHARACTER, k};
            elements[n++] = (weir__automaton_element){UPPER, k + 3};
        }
        elements[n++] = (weir__automaton_element){CHARACTER, i};
        elements[n++] = (weir__automaton_element){i + 1 < WORDS ? ALTERNATIVE : END, 0};
    }
    assert_true(weir__automaton_share(elements, n, &start, 1, &rules));
    /* the beginning, the reference to the rest, and its end; then the last letters, each with its end */
    assert_int_equal(rules.n_elements, 2 * BEGINNING + 2 + 2 * WORDS);
    weir__automaton_rules_fini(&rules);
}

/* Classes are the same only where all of their characters are, whatever stands before them. */
static void classes_that_differ_are_kept_apart(void **state)
{
    (void)state;
    enum { A = NOTHING + 1, B, C, D };
    static const uint32_t seconds[][2] = {{'c', 'a'}, {'c', 'b'}, {'d', 'b'}}, start = 0;
    static vocabulary v;
    static grammar g;
    weir__automaton *a = NULL;
    dice d = {3};
    make_vocabulary(&v, &d);
    for (int i = 0; i < 90; i++) {
        if (i > 0) put(&g, ALTERNATIVE, 0);
        put(&g, CHARACTER, 'b');
        put(&g, CHARACTER, seconds[i % 3][0]);
        put(&g, OR_CHARACTER, seconds[i % 3][1]);
        put(&g, CHARACTER, 'a' + (uint32_t)i % 3);
    }
    put(&g, END, 0);
    assert_int_equal(weir__automaton_create(g.elements, g.n, &start, 1, 0, v.trie, &a), WEIR_OK);
    for (int32_t first = A; first <= D; first++)
        for (int32_t second = A; second <= D; second++)
            for (int32_t third = A; third <= C; third++) {
                weir__automaton_place place = weir__automaton_start(a);
                const uint32_t *in = seconds[third - A], code = codes_of[second - A];
                bool wanted = first == B && (code == in[0] || code == in[1]);
                bool read = weir__automaton_accept(a, &place, first) == WEIR_OK &&
                            weir__automaton_accept(a, &place, second) == WEIR_OK &&
                            weir__automaton_accept(a, &place, third) == WEIR_OK;
                assert_int_equal(read, wanted);
            }
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

/* root ::= "a" root "b" | "a" root "c" | "d": each a doubles the ways. Each text that was begun can be ended,
 * and the readings left out do not depend on earlier questions. */
static void ways_above_the_limit_are_left_out(void **state)
{
    (void)state;
    enum { A = NOTHING + 1, B, C, D, DEPTH = 20 };
    static const weir__automaton_element elements[] = {
        {CHARACTER, 'a'}, {RULE, 0},        {CHARACTER, 'b'}, {ALTERNATIVE, 0}, {CHARACTER, 'a'},
        {RULE, 0},        {CHARACTER, 'c'}, {ALTERNATIVE, 0}, {CHARACTER, 'd'}, {END, 0}};
    static const uint32_t start = 0;
    static vocabulary v;
    dice d = {3};
    make_vocabulary(&v, &d);
    char first[DEPTH + 1] = "";
    for (int round = 0; round < 3; round++) {
        weir__automaton *a = NULL;
        assert_int_equal(weir__automaton_create(elements, N_ELEMENTS(elements), &start, 1, 0, v.trie, &a),
                         WEIR_OK);
        /* Another history each time, in which nothing is left out. */
        weir__automaton_place place = weir__automaton_start(a);
        for (int i = 0; i < 2 * round; i++) assert_int_equal(weir__automaton_accept(a, &place, A), WEIR_OK);
        assert_int_equal(weir__automaton_accept(a, &place, D), WEIR_OK);
        for (int i = 0; i < 2 * round; i++)
            assert_int_equal(weir__automaton_accept(a, &place, i * round % 3 == 0 ? B : C), WEIR_OK);
        assert_int_equal(weir__automaton_n_cuts(a), 0);

        place = weir__automaton_start(a);
        for (int i = 0; i < DEPTH; i++) assert_int_equal(weir__automaton_accept(a, &place, A), WEIR_OK);
        assert_true(weir__automaton_n_cuts(a) > 0);
        assert_int_equal(weir__automaton_accept(a, &place, D), WEIR_OK);
        char allowed[DEPTH + 1] = "";
        for (int i = 0; i < DEPTH; i++) {
            weir__automaton_place to = place;
            bool b = weir__automaton_accept(a, &to, B) == WEIR_OK;
            to = place;
            bool c = weir__automaton_accept(a, &to, C) == WEIR_OK;
            assert_true(b || c);
            allowed[i] = b && c ? '2' : b ? 'b' : 'c';
            assert_int_equal(weir__automaton_accept(a, &place, b ? B : C), WEIR_OK);
        }
        assert_int_equal(weir__automaton_accept(a, &place, EOG), WEIR_OK);
        if (round == 0) strcpy(first, allowed);
        assert_string_equal(allowed, first);
        weir__automaton_release(a);
    }
    weir__trie_destroy(v.trie);
}

/* A vocabulary so large that few masks are kept; one that is computed again in another's place is the
 * same. */
#define WIDE 2200000

static int32_t wide_piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    return token < N_TOKENS ? piece_of(model, token, bytes, capacity) : 0;
}

static void masks_that_are_used_again(void **state)
{
    (void)state;
    /* root ::= "a" "a" "a" ... each with other letters that may follow: 26 states. */
    enum { STATES = 26 };
    static vocabulary v;
    static weir__automaton_element elements[STATES * 4 + 1];
    static const uint32_t start = 0;
    dice d = {11};
    make_vocabulary(&v, &d);
    weir__trie_destroy(v.trie);
    const weir__trie_source source = {&v, WIDE, wide_piece_of, is_eog};
    v.trie = weir__trie_create(&source);
    assert_non_null(v.trie);
    size_t n = 0;
    for (size_t i = 0; i < STATES; i++) {
        elements[n++] = (weir__automaton_element){CHARACTER, 'a'};
        elements[n++] = (weir__automaton_element){OR_CHARACTER, codes_of[1 + i % 2]};
        elements[n++] = (weir__automaton_element){OR_CHARACTER, codes_of[3 + i % 3]};
    }
    elements[n++] = (weir__automaton_element){END, 0};
    weir__automaton *a = NULL;
    assert_int_equal(weir__automaton_create(elements, n, &start, 1, 0, v.trie, &a), WEIR_OK);
    uint64_t *mask = calloc(WEIR__AUTOMATON_WORDS(WIDE), sizeof *mask);
    assert_non_null(mask);
    for (int round = 0; round < 3; round++) {
        weir__automaton_place place = weir__automaton_start(a);
        for (size_t s = 0; s <= STATES; s++) {
            assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
            for (int32_t token = 0; token < N_TOKENS; token++) {
                weir__automaton_place to = place;
                weir_status status = weir__automaton_accept(a, &to, token);
                assert_int_equal(mask[token / 64] >> (token % 64) & 1, status == WEIR_OK);
            }
            for (size_t k = N_TOKENS / 64 + 1; k < WEIR__AUTOMATON_WORDS(WIDE); k++)
                assert_int_equal(mask[k], 0);
            if (s < STATES) assert_int_equal(weir__automaton_accept(a, &place, NOTHING + 1), WEIR_OK);
        }
    }
    free(mask);
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

typedef struct user {
    weir__automaton *a;
    uint64_t sum;
} user;

static void *use(void *argument)
{
    user *u = argument;
    dice d = {7};
    for (int round = 0; round < 200; round++) {
        weir__automaton_place place = weir__automaton_start(u->a);
        for (int step = 0; step < 8; step++) {
            uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
            if (weir__automaton_mask(u->a, &place, mask) != WEIR_OK) return NULL;
            for (size_t i = 0; i < N_ELEMENTS(mask); i++)
                u->sum = (u->sum ^ mask[i]) * UINT64_C(0x9e3779b97f4a7c15);
            weir__automaton_accept(u->a, &place, dice_in(&d, 0, N_TOKENS - 1));
        }
    }
    return NULL;
}

static void threads_share_what_one_has_learned(void **state)
{
    (void)state;
    static vocabulary v;
    static grammar g;
    dice d = {5};
    pthread_t threads[4];
    user users[4];
    make_vocabulary(&v, &d);
    make_grammar(&g, &d);
    weir__automaton *a = NULL;
    assert_int_equal(weir__automaton_create(g.elements, g.n, g.starts, g.n_rules, 0, v.trie, &a), WEIR_OK);
    for (size_t i = 0; i < 4; i++) {
        users[i] = (user){.a = weir__automaton_hold(a)};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        weir__automaton_release(users[i].a);
        assert_true(users[i].sum == users[0].sum);
    }
    assert_true(weir__automaton_size(a) > 1000);
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

/* Half a character may come with one token and the rest with the next. */
static void characters_cut_by_tokens(void **state)
{
    (void)state;
    static vocabulary v;
    static const char *const texts[] = {"end",  "",     "\xc3",     "\xa9", "a\xc3",    "\xa9\x62",
                                        "\x97", "\xe6", "\xa5\x97", "\xff", "\xc3\xa9", "\xa9\xa9"};
    memset(&v, 0, sizeof v);
    for (size_t i = 0; i < N_ELEMENTS(texts); i++) strcpy(v.text[i], texts[i]);
    const weir__trie_source source = {&v, (int32_t)N_ELEMENTS(texts), piece_of, is_eog};
    v.trie = weir__trie_create(&source);
    assert_non_null(v.trie);
    /* root ::= [é-ü]* "b" */
    static const weir__automaton_element elements[] = {{RULE, 1},         {CHARACTER, 'b'}, {END, 0},
                                                       {CHARACTER, 0xe9}, {UPPER, 0xfc},    {RULE, 1},
                                                       {ALTERNATIVE, 0},  {END, 0}};
    static const uint32_t starts[] = {0, 3};
    weir__automaton *a = NULL;
    assert_int_equal(weir__automaton_create(elements, N_ELEMENTS(elements), starts, 2, 0, v.trie, &a),
                     WEIR_OK);
    weir__automaton_place place = weir__automaton_start(a);
    uint64_t mask = 0;
    assert_int_equal(weir__automaton_mask(a, &place, &mask), WEIR_OK);
    assert_int_equal(mask, 1 << 2 | 1 << 10);
    assert_int_equal(weir__automaton_accept(a, &place, 2), WEIR_OK);
    assert_int_equal(weir__automaton_mask(a, &place, &mask), WEIR_OK);
    assert_int_equal(mask, 1 << 3 | 1 << 5);
    assert_int_equal(weir__automaton_accept(a, &place, 5), WEIR_OK);
    assert_int_equal(weir__automaton_mask(a, &place, &mask), WEIR_OK);
    assert_int_equal(mask, 1 << 0); /* nothing may follow but the end */
    assert_int_equal(weir__automaton_accept(a, &place, 0), WEIR_OK);
    weir__automaton_release(a);
    /* [é-ü]* alone may end at any time, but not in the middle of a character. */
    assert_int_equal(weir__automaton_create(elements, N_ELEMENTS(elements), starts, 2, 1, v.trie, &a),
                     WEIR_OK);
    place = weir__automaton_start(a);
    assert_int_equal(weir__automaton_accept(a, &place, 2), WEIR_OK);
    assert_int_equal(weir__automaton_accept(a, &place, 0), WEIR_REFUSED);
    assert_int_equal(weir__automaton_mask(a, &place, &mask), WEIR_OK);
    assert_int_equal(mask, 1 << 3);
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static vocabulary v;
    static grammar g;
    dice d = {5};
    make_vocabulary(&v, &d);
    weir__trie_destroy(v.trie);
    do /* one that shares beginnings */
        make_grammar(&g, &d);
    while (g.n < 300 || g.n_rules == MOST_RULES);
    const uint32_t root = (uint32_t)g.n_rules;
    g.starts[g.n_rules++] = (uint32_t)g.n;
    put(&g, RULE, 0);
    put(&g, ALTERNATIVE, 0);
    put(&g, NOT_TOKEN, N_TOKENS - 1);
    put(&g, NOT_TOKEN, N_TOKENS - 2);
    put(&g, END, 0);
    const weir__trie_source source = source_of(&v);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__automaton *a = NULL;
        uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
        weir__mem_fail_after(n);
        weir__trie *trie = weir__trie_create(&source);
        weir_status status =
            trie == NULL ? WEIR_NO_MEMORY
                         : weir__automaton_create(g.elements, g.n, g.starts, g.n_rules, root, trie, &a);
        weir__automaton_place place = {0};
        if (status == WEIR_OK) {
            place = weir__automaton_start(a);
            status = weir__automaton_mask(a, &place, mask);
        }
        for (int32_t i = 0; status == WEIR_OK && i < N_TOKENS; i++) {
            weir__automaton_place to = place;
            status = weir__automaton_accept(a, &to, i);
            if (status == WEIR_REFUSED) status = WEIR_OK;
        }
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        weir__automaton_release(a);
        weir__trie_destroy(trie);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_true(n > 0);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_what_every_way_reads),
        cmocka_unit_test(many_alternatives_are_one_way),
        cmocka_unit_test(beginnings_stand_there_once),
        cmocka_unit_test(classes_that_differ_are_kept_apart),
        cmocka_unit_test(ways_above_the_limit_are_left_out),
        cmocka_unit_test(masks_that_are_used_again),
        cmocka_unit_test(characters_cut_by_tokens),
        cmocka_unit_test(every_allocation_may_fail),
    };
    const struct CMUnitTest of_threads[] = {cmocka_unit_test(threads_share_what_one_has_learned)};
    int failed = EFFORT_RACES ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(of_threads, NULL, NULL);
}
