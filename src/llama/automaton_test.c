/* automaton_test.c: weir's automaton beside llama.cpp's own grammar sampler, on a real vocabulary:
 * after each token of random texts of random grammars, the same tokens may follow.
 * SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "support/dice.h"
#include "support/effort.h"
#include "support/llama.h"

#define GBNF_MOST   4096
#define TEXT_TOKENS EFFORT(24, 10)
#define ROUNDS      EFFORT(25, 3)

/* ---- Grammars -------------------------------------------------------------------------------------- */

static const char *const grammars[] = {
    "root ::= \"yes\" | \"no\"",
    "root ::= [a-z]+ (\" \" [a-z]+)* \".\"",
    "root ::= value\n"
    "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\")\n"
    "object ::= \"{\" ws (string ws \":\" ws value (\",\" ws string ws \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* "
    "\"\\\"\"\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,15})?\n"
    "ws ::= [ \\t\\n]{0,20}",
    "root ::= ([α-ω] | \"é\" | [一-龥] | [😀-🙏]){1,40} \"!\"?",
    "root ::= [^é一]* \"é\"",
    "root ::= ([^a-zA-Z] | \"the\" | \"a\" .)* \"END\"",
    "root ::= a* b* | (a | b c?)*\na ::= \"x\"?\nb ::= \"xy\"\nc ::= [x-z]?",
    "root ::= \"x\" root \"y\" | \"-\"",
    "root ::= \"(\" root \")\" root | \"\"",
    "root ::= .{0,30}",
    "root ::= \"\\u00e4\" [\\U0001F600-\\U0001F64F]* | \" \" root",
    "root ::= \"a\" <[100]> \"b\" | !<[200]> root | [c-f]+",
};

typedef struct writer {
    char text[GBNF_MOST];
    size_t n;
    dice *d;
    int n_rules, depth;
} writer;

static void put(writer *w, const char *text)
{
    size_t n = strlen(text);
    if (w->n + n >= sizeof w->text) return;
    memcpy(w->text + w->n, text, n + 1);
    w->n += n;
}

static void put_class(writer *w)
{
    static const char *const ranges[] = {"a-z",    "A-Z", "0-9", " ",   "e",     "t-x", ".,!?",        "\\\"",
                                         "\\n\\t", "é",   "à-ÿ", "α-ω", "一-龥", "😀",   "\\x00-\\x1F", "_"};
    put(w, dice_one_in(w->d, 3) ? "[^" : "[");
    for (int n = dice_in(w->d, 1, 3); n > 0; n--) put(w, ranges[dice_in(w->d, 0, N_ELEMENTS(ranges) - 1)]);
    put(w, "]");
}

static void put_literal(writer *w)
{
    static const char *const words[] = {"a", "the",  " the", "{\\\"", "\\\": ", "},", "in",   "ing", " and ",
                                        "é", "日本", "😀",    "\\n",   "0",      "12", "\\\\", "true"};
    put(w, "\"");
    for (int n = dice_in(w->d, 1, 2); n > 0; n--) put(w, words[dice_in(w->d, 0, N_ELEMENTS(words) - 1)]);
    put(w, "\"");
}

static void put_choice(writer *w);

static void put_item(writer *w)
{
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{0,3}", "{1,}", "{0,40}"};
    int kind = dice_in(w->d, 0, w->depth < 3 ? 9 : 5);
    if (kind < 3) {
        put_literal(w);
    } else if (kind < 6) {
        if (dice_one_in(w->d, 12))
            put(w, ".");
        else
            put_class(w);
    } else if (kind < 8) { /* a later rule: no recursion, but through the last one */
        char name[16];
        snprintf(name, sizeof name, "r%d", dice_in(w->d, 1, w->n_rules));
        put(w, name);
    } else {
        put(w, "(");
        w->depth++;
        put_choice(w);
        w->depth--;
        put(w, ")");
    }
    if (dice_one_in(w->d, 3)) put(w, repeats[dice_in(w->d, 0, N_ELEMENTS(repeats) - 1)]);
    put(w, " ");
}

static void put_choice(writer *w)
{
    for (int n = dice_in(w->d, 1, 3); n > 0; n--) {
        for (int k = dice_in(w->d, 1, 3); k > 0; k--) put_item(w);
        if (n > 1) put(w, "| ");
    }
}

/* Some are refused by the check, which is another's test. */
static const char *random_grammar(dice *d)
{
    static writer w;
    w = (writer){.d = d, .n_rules = dice_in(d, 1, 4)};
    put(&w, "root ::= ");
    put_choice(&w);
    for (int i = 1; i <= w.n_rules; i++) {
        char name[32];
        snprintf(name, sizeof name, "\nr%d ::= ", i);
        put(&w, name);
        put_literal(&w);
        put(&w, " ");
        if (!dice_one_in(d, 3)) put_choice(&w);
    }
    return w.text;
}

/* ---- Comparison ------------------------------------------------------------------------------------ */

typedef struct pair {
    const char *text;
    struct llama_sampler *theirs;
    weir__automaton *ours;
    weir__automaton_place place;
    llama_token_data *candidates; /* [n_vocab] */
    uint64_t *mask;
    int64_t their_ns, our_ns;
    uint64_t n;
} pair;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool ours_allows(const pair *p, int32_t token)
{
    return p->mask[token / 64] >> (token % 64) & 1;
}

static bool theirs_allows(const pair *p, int32_t token)
{
    return p->candidates[token].logit > -INFINITY;
}

static void compute(pair *p)
{
    llama_token_data_array all = {p->candidates, (size_t)model_is.n_vocab, -1, false};
    for (int32_t i = 0; i < model_is.n_vocab; i++) p->candidates[i] = (llama_token_data){.id = i};
    int64_t start = now_ns();
    llama_sampler_apply(p->theirs, &all);
    p->their_ns += now_ns() - start;
    start = now_ns();
    assert_int_equal(weir__automaton_mask(p->ours, &p->place, p->mask), WEIR_OK);
    p->our_ns += now_ns() - start;
    p->n++;
}

/* True if there were more ways to read a text than weir follows; llama.cpp has no limit. */
static bool is_cut(const pair *p)
{
    return weir__automaton_n_cuts(p->ours) > 0;
}

/* Every token of the vocabulary; and accept says the same as the mask. quirks: theirs allows more where
 * tokens are asked for as such, and then throws. In the middle of a character theirs allows the end. */
static void compare(pair *p, dice *d, bool quirks)
{
    compute(p);
    for (int32_t i = 0; i < model_is.n_vocab; i++) {
        bool ours = ours_allows(p, i), theirs = theirs_allows(p, i);
        if (ours == theirs || (quirks && theirs)) continue;
        if (theirs && p->place.partial.n > 0 && ops->is_eog(model, i)) continue;
        if (theirs && is_cut(p)) continue;
        char piece[256];
        int32_t n = ops->piece(model, i, true, piece, sizeof piece);
        fail_msg("token %d '%.*s': weir %s it; the grammar:\n%s", i, n, piece, ours ? "allows" : "refuses",
                 p->text);
    }
    for (int k = 0; k < 50; k++) {
        weir__automaton_place place = p->place;
        int32_t token = dice_in(d, 0, model_is.n_vocab - 1);
        weir_status status = weir__automaton_accept(p->ours, &place, token);
        assert_int_equal(status == WEIR_OK, ours_allows(p, token));
        if (status != WEIR_OK) assert_memory_equal(&place, &p->place, sizeof place);
    }
}

/* One of those that are allowed, rather one with a long or unusual text; -1: none, or the end was chosen. */
static int32_t draw(const pair *p, dice *d)
{
    int32_t best = -1, most = 0;
    for (int tries = 0, n = 0; tries < 20000 && n < 4; tries++) {
        int32_t token = dice_in(d, 0, model_is.n_vocab - 1);
        char piece[256];
        if (!ours_allows(p, token) || ops->is_eog(model, token)) continue;
        int32_t length = ops->piece(model, token, true, piece, sizeof piece);
        int32_t worth = length + ((unsigned char)piece[0] >= 0x80 ? 8 : 0) + dice_in(d, 0, 6);
        if (worth > most) {
            most = worth;
            best = token;
        }
        n++;
    }
    for (int32_t i = 0, at = dice_in(d, 0, model_is.n_vocab - 1); best < 0 && i < model_is.n_vocab; i++) {
        int32_t token = (at + i) % model_is.n_vocab;
        if (ours_allows(p, token) && !ops->is_eog(model, token)) best = token;
    }
    return best;
}

static bool begin(pair *p, const char *text)
{
    weir_error why = {0};
    *p = (pair){.text = text};
    weir_status status = weir__llama_grammar_get(model, text, NULL, &p->ours, &why);
    if (status == WEIR_GRAMMAR) return false;
    if (status != WEIR_OK) fail_msg("%s", why.message);
    p->theirs = llama_sampler_init_grammar(model->vocab, text, "root");
    assert_non_null(p->theirs);
    p->place = weir__automaton_start(p->ours);
    p->candidates = calloc((size_t)model_is.n_vocab, sizeof *p->candidates);
    p->mask = calloc(WEIR__AUTOMATON_WORDS(model_is.n_vocab), sizeof *p->mask);
    assert_non_null(p->candidates);
    assert_non_null(p->mask);
    return true;
}

static void end(pair *p)
{
    llama_sampler_free(p->theirs);
    weir__automaton_release(p->ours);
    free(p->candidates);
    free(p->mask);
}

static void follow(pair *p, dice *d, bool quirks)
{
    llama_sampler_reset(p->theirs);
    p->place = weir__automaton_start(p->ours);
    for (int i = 0; i < TEXT_TOKENS; i++) {
        compare(p, d, quirks);
        int32_t token = draw(p, d);
        if (token < 0) return;
        if (weir__automaton_accept(p->ours, &p->place, token) != WEIR_OK) fail_msg("%s", p->text);
        llama_sampler_accept(p->theirs, token);
    }
}

static void masks_are_llama_cpps_verdicts(void **state)
{
    (void)state;
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    uint64_t rounds = dice_environment("WEIR_TEST_ROUNDS", ROUNDS), n = 0, refused = 0;
    int64_t our_ns = 0, their_ns = 0;
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)d.state);
    for (uint64_t round = 0; round < rounds + N_ELEMENTS(grammars); round++) {
        pair p;
        bool given = round < N_ELEMENTS(grammars);
        const char *text = given ? grammars[round] : random_grammar(&d);
        if (!begin(&p, text)) {
            if (given) fail_msg("refused: %s", text);
            refused++;
            continue;
        }
        for (int k = 0; k < EFFORT(2, 1); k++) follow(&p, &d, strstr(text, "<[") != NULL);
        our_ns += p.our_ns;
        their_ns += p.their_ns;
        n += p.n;
        end(&p);
    }
    assert_true(refused < rounds / 2 + 3);
    print_message("%llu masks, %llu grammars refused; CPU us a mask: weir %.0f, llama.cpp %.0f\n",
                  (unsigned long long)n, (unsigned long long)refused, (double)our_ns / 1e3 / (double)n,
                  (double)their_ns / 1e3 / (double)n);
}

/* A mask that is asked for again is the same, also when it was forgotten in between. */
static void masks_can_be_asked_for_again(void **state)
{
    (void)state;
    dice d = {3};
    pair p;
    assert_true(begin(&p, "root ::= \"\\\"\" [^\"]{0,1500} \"\\\"\""));
    enum { N = 1400 };
    static weir__automaton_place places[N];
    static uint64_t sums[N];
    int n = 0;
    for (; n < N; n++) {
        assert_int_equal(weir__automaton_mask(p.ours, &p.place, p.mask), WEIR_OK);
        places[n] = p.place;
        for (size_t i = 0; i < WEIR__AUTOMATON_WORDS(model_is.n_vocab); i++)
            sums[n] = (sums[n] ^ p.mask[i]) * UINT64_C(0x9e3779b97f4a7c15);
        int32_t a = -1;
        assert_int_equal(tokens_of(n == 0 ? "\"" : "a", false, &a, 1), 1);
        assert_int_equal(weir__automaton_accept(p.ours, &p.place, a), WEIR_OK);
    }
    for (int i = 0; i < 200; i++) {
        int at = dice_in(&d, 0, n - 1);
        uint64_t sum = 0;
        assert_int_equal(weir__automaton_mask(p.ours, &places[at], p.mask), WEIR_OK);
        for (size_t k = 0; k < WEIR__AUTOMATON_WORDS(model_is.n_vocab); k++)
            sum = (sum ^ p.mask[k]) * UINT64_C(0x9e3779b97f4a7c15);
        assert_true(sum == sums[at]);
    }
    end(&p);
}

static void a_text_is_compiled_once(void **state)
{
    (void)state;
    weir__automaton *first = NULL, *again = NULL, *other = NULL;
    assert_ok(weir__llama_grammar_get(model, "root ::= \"a\"\nx ::= \"b\"", NULL, &first, error));
    assert_ok(weir__llama_grammar_get(model, "root ::= \"a\"\nx ::= \"b\"", "root", &again, error));
    assert_ok(weir__llama_grammar_get(model, "root ::= \"a\"\nx ::= \"b\"", "x", &other, error));
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    for (int i = 0; i < 100; i++) { /* more than are kept; those in use stay */
        char text[64];
        weir__automaton *one = NULL;
        snprintf(text, sizeof text, "root ::= \"a%d\"", i);
        assert_ok(weir__llama_grammar_get(model, text, NULL, &one, error));
        weir__automaton_release(one);
    }
    weir__automaton_place place = weir__automaton_start(first);
    int32_t a = -1;
    assert_int_equal(tokens_of("a", false, &a, 1), 1);
    assert_int_equal(weir__automaton_accept(first, &place, a), WEIR_OK);
    weir__automaton_release(first);
    weir__automaton_release(again);
    weir__automaton_release(other);
}

/* Accepts tokens, each of which makes the automaton larger by a row, until it has this size or is full. */
static void fill(weir__automaton *a, size_t size)
{
    weir__automaton_place place = weir__automaton_start(a);
    weir_status status = WEIR_OK;
    int32_t token = -1;
    assert_int_equal(tokens_of("a", false, &token, 1), 1);
    while (status == WEIR_OK && weir__automaton_size(a) < size)
        status = weir__automaton_accept(a, &place, token);
    assert_int_equal(status, weir__automaton_is_full(a) ? WEIR_GRAMMAR : WEIR_OK);
}

/* A large grammar is found before the list drops it, and one that can have no more states is not found. */
static void a_full_grammar_is_compiled_again(void **state)
{
    (void)state;
    enum { N_CODES = 80000 };
    static char text[1 << 20];
    weir__automaton *first = NULL, *again = NULL, *other = NULL;
    char *end = text + sprintf(text, "root ::= \"a\"{1,500} | \"!\" [");
    for (int i = 0; i < N_CODES; i++) end += sprintf(end, "\\U%08X", 0x10000U + 2 * (uint32_t)i);
    strcpy(end, "]");
    assert_ok(weir__llama_grammar_get(model, text, NULL, &first, error));
    fill(first, (size_t)80 << 20);
    assert_false(weir__automaton_is_full(first));
    assert_ok(weir__llama_grammar_get(model, text, NULL, &again, error));
    assert_ptr_equal(first, again);
    weir__automaton_release(again);
    weir__automaton_release(first);

    assert_ok(weir__llama_grammar_get(model, text, NULL, &first, error));
    fill(first, SIZE_MAX);
    assert_true(weir__automaton_is_full(first));
    assert_ok(weir__llama_grammar_get(model, text, NULL, &other, error));
    assert_ptr_not_equal(first, other);
    assert_false(weir__automaton_is_full(other));
    fill(other, (size_t)1 << 20);
    weir__automaton_release(first);
    weir__automaton_release(other);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static uint64_t mask[1 << 14];
    for (long n = 0;; n++) {
        char text[64];
        weir__automaton *automaton = NULL;
        snprintf(text, sizeof text, "root ::= \"a%ld\" [a-z]* (\"b\" | \"c\"){0,9}",
                 n); /* none that is known */
        weir__mem_fail_after(n);
        weir_status status = weir__llama_grammar_get(model, text, NULL, &automaton, NULL);
        if (status == WEIR_OK) {
            weir__automaton_place place = weir__automaton_start(automaton);
            int32_t ids[8];
            size_t count = tokens_of("a", false, ids, 8);
            assert_int_equal(count, 1);
            status = weir__automaton_mask(automaton, &place, mask);
            if (status == WEIR_OK) status = weir__automaton_accept(automaton, &place, ids[0]);
        }
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (!pending) assert_int_equal(status == WEIR_OK || status == WEIR_NO_MEMORY, 1);
        weir__automaton_release(automaton);
        if (!pending) continue;
        assert_int_equal(status, WEIR_OK);
        break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_llama_cpps_verdicts), cmocka_unit_test(masks_can_be_asked_for_again),
        cmocka_unit_test(a_text_is_compiled_once),       cmocka_unit_test(a_full_grammar_is_compiled_again),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return RUN_MODEL_TESTS(tests);
}
