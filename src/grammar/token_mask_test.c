/* Masks within long runs of a class of characters, beside the naive mask: each token tried by itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar.h"
#include "grammar/slice.h"
#include "support/dice.h"
#include "support/effort.h"
#include "support/model.h"

#define N_TOKENS 700
#define N_BYTES  320
#include "support/vocabulary.h"

/* Letters, marks of JSON, parts of characters, and runs that are longer than any table. */
static void make_vocabulary(vocabulary *v, dice *d, int longest)
{
    static const char *const parts[] = {"a", "b",  "c",    "\"",   "\\",   ",", "\n",
                                        "é", "日", "\xc3", "\xa9", "\x7f", " ", "z"};
    memset(v, 0, sizeof *v);
    strcpy(v->text[EOG], "end");
    for (int32_t i = 1; i < N_TOKENS; i++) {
        if (i <= (int32_t)N_ELEMENTS(parts)) {
            strcpy(v->text[i], parts[i - 1]);
        } else if (i < 40) { /* runs, some of which end otherwise */
            for (int k = dice_in(d, 2, i < 38 ? longest / 4 : longest); k > 0; k--)
                strcat(v->text[i], i % 2 ? "a" : " ");
            if (dice_one_in(d, 2)) strcat(v->text[i], parts[dice_in(d, 0, N_ELEMENTS(parts) - 1)]);
        } else {
            for (int k = dice_in(d, 2, 7); k > 0; k--)
                strcat(v->text[i], parts[dice_in(d, 0, dice_one_in(d, 2) ? 2 : N_ELEMENTS(parts) - 1)]);
        }
    }
    vocabulary_make_trie(v);
}

static weir__automaton *compile(const vocabulary *v, const char *grammar)
{
    weir__automaton *a = NULL;
    weir_error error = {0};
    if (weir__grammar_compile(grammar, NULL, NULL, v->trie, &a, &error) != WEIR_OK)
        fail_msg("%.400s: %s", grammar, error.message);
    return a;
}

/* Compares the masks along a random text. Returns the number of places. */
static int follow(const vocabulary *v, const char *grammar, weir__automaton *a, dice *d)
{
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    weir__automaton_place place = weir__automaton_start(a);
    int n = 0;
    for (int32_t chosen = 0; n < 120 && chosen >= 0; n++) {
        weir__automaton_place next = place;
        chosen = -1;
        assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
        for (int32_t i = 0, seen = 0; i < N_TOKENS; i++) {
            weir__automaton_place to = place;
            bool allowed = weir__automaton_accept(a, &to, i) == WEIR_OK;
            if (allowed != (mask[i / 64] >> (i % 64) & 1))
                fail_msg("token %d '%s' at %d of %s: naively %d", i, v->text[i], n, grammar, allowed);
            /* Short ones without marks, so that runs come near their ends slowly. */
            int weight = !allowed || i == EOG                                             ? 0
                         : strlen(v->text[i]) < 4 && strpbrk(v->text[i], "\",\\") == NULL ? 20
                                                                                          : 1;
            if (weight == 0) continue;
            seen += weight;
            if (dice_in(d, 1, seen) > weight) continue;
            chosen = i;
            next = to;
        }
        place = next;
    }
    return n;
}

static void masks_of_runs_are_the_naive_ones(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"\\\"\" char{0,%d} \"\\\"\"\nchar ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" [\"\\\\abc]",
        "root ::= \"\\\"\" char{%d,90} \"\\\"\"\nchar ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" [\"\\\\abc]",
        "root ::= \"\\\"\" [^\"]{%d,} \"\\\"\"",
        "root ::= x{0,%d}\nx ::= \"\\\"\" [^\"\\n]{0,12} \"\\\"\" \",\"",
        "root ::= x{0,%d}\nx ::= [a-cz ]{0,50} [\",]",
        "root ::= .{0,%d}",
        "root ::= .{0,%d} \"z\" .*",
        "root ::= x{0,%d} \"z\"\nx ::= [^z]{0,3}",
        "root ::= [^b]{0,%d} [^z]{0,60} \",\"",
        "root ::= \"a\"{0,%d} [^\"\\n]* \"\\n\"",
        "root ::= (\"ab\" | \"a\"){%d,90} [^a]{0,70}",
        "root ::= [^z,]{%d} x{2,80} \"z\"\nx ::= [^z]",
        "root ::= [^\\n]{0,%d} \"\\n\" root | \"\"",
        "root ::= [^b]{0,%d} [^z]{0,70} [^c]{0,70} \"z\"",
        "root ::= [^\"\\n]{0,%d} \"\\\"\" | .{0,60}",
        "root ::= \"\\\"\" [^\"\\n]* [c]+ [^\"\\n]{0,%d} \"\\\"\"",
        "root ::= \"\\\"\" [^\"\\n]* [cz] [^\"b] [^\"\\n]{0,%d} \"\\\"\"",
        "root ::= \"\\\"\" x{0,%d} y{0,2} \"\\\"\"\nx ::= y y\ny ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" [abc\"]",
        "root ::= \"a\" [^\"]{0,%d} | \"ab\" [^\"]{3,60} \"\\\"\" | [^,\"] [^\"]*",
        "root ::= x{0,70} [^\\n]{0,%d}\nx ::= \"(\" x \")\" | \"a\" \" \"",
    };
    static const int counts[] = {1, 2, 5, 12, 13, 14, 15, 16, 17, 18, 19, 31, 32, 33, 60, 85};
    static vocabulary v;
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    int n = 0;
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)d.state);
    for (int round = 0; round < EFFORT(6, 2); round++) {
        make_vocabulary(&v, &d, round % 2 == 0 ? 290 : 30);
        for (size_t i = 0; i < N_ELEMENTS(grammars); i++) {
            char text[256];
            int count = round > 1 ? counts[dice_in(&d, 0, N_ELEMENTS(counts) - 1)] : 85;
            const char *at = strstr(grammars[i], "%d");
            snprintf(text, sizeof text, "%.*s%d%s", (int)(at - grammars[i]), grammars[i], count, at + 2);
            weir__automaton *a = compile(&v, text);
            for (int k = 0; k < 3; k++) n += follow(&v, text, a, &d);
            weir__automaton_release(a);
        }
        weir__trie_destroy(v.trie);
    }
    assert_true(n > EFFORT(1500, 500));
}

/* A string that cannot end for long has one mask, whatever its bound. */
static void positions_far_from_the_bound_share_a_mask(void **state)
{
    (void)state;
    static const char *const grammars[] = {"root ::= \"\\\"\" [^\"]{0,1500} \"\\\"\"",
                                           "root ::= \"\\\"\" [^\"]{1500} \"\\\"\"",
                                           "root ::= \"\\\"\" [^\"]{700,1500} \"\\\"\""};
    static vocabulary v;
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    dice d = {5};
    make_vocabulary(&v, &d, 30);
    for (size_t i = 0; i < N_ELEMENTS(grammars); i++) {
        enum { A = 1, QUOTE = 4 };
        weir__automaton *a = compile(&v, grammars[i]);
        weir__automaton_place place = weir__automaton_start(a);
        assert_int_equal(weir__automaton_accept(a, &place, QUOTE), WEIR_OK);
        for (int n = 0; n < 1500; n++) {
            assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
            assert_int_equal(weir__automaton_accept(a, &place, A), WEIR_OK);
        }
        assert_in_range(weir__automaton_n_masks(a), 1, 100);
        weir__automaton_release(a);
    }
    weir__trie_destroy(v.trie);
}

/* Compares the masks of a vocabulary, whose token 0 ends, along a text: after each of its characters. */
static void check_along(const char *const *texts, size_t n_texts, const char *grammar, const char *text)
{
    static vocabulary v;
    memset(&v, 0, sizeof v);
    strcpy(v.text[EOG], "end");
    for (size_t i = 0; i < n_texts; i++) strcpy(v.text[1 + i], texts[i]);
    vocabulary_make_trie(&v);
    weir__automaton *a = compile(&v, grammar);
    weir__automaton_place place = weir__automaton_start(a);
    for (;; text++) {
        uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
        assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
        for (int32_t i = 0; i <= (int32_t)n_texts; i++) {
            weir__automaton_place to = place;
            const bool allowed = weir__automaton_accept(a, &to, i) == WEIR_OK;
            if (allowed != (mask[i / 64] >> (i % 64) & 1))
                fail_msg("'%s' before '%s' of %s: naively %d", v.text[i], text, grammar, allowed);
        }
        if (*text == '\0') break;
        assert_int_equal(weir__automaton_accept_bytes(a, &place, 1, text, 1), WEIR_OK);
    }
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

/* Copies of an item that can match nothing are all open at once, so that there are more ways far from the
 * bound than near to it. */
static void copies_that_match_nothing_are_all_open(void **state)
{
    (void)state;
    static const char *const texts[] = {"(", ")", "a", "z", ")z", ")a", "aaz", ")aaaaaaaaaaa"};
    static const char *const grammars[] = {
        "root ::= open x{2000} \"z\"\nopen ::= \"(\" \")\"\nx ::= \"a\" | \"b\" | \"c\" | \"\"",
        "root ::= open w{1500} \"z\"\nopen ::= \"(\" \")\"\n"
        "w ::= x y\nx ::= \"a\" | \"b\" | \"c\" | y\ny ::= \"d\" | \"\"",
    };
    for (size_t i = 0; i < N_ELEMENTS(grammars); i++)
        check_along(texts, N_ELEMENTS(texts), grammars[i], "()aaa");
}

/* Tokens that end within a character may be longer than all others, and cross the end of a run. */
static void incomplete_tokens_may_be_the_longest(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "aaaaaaaaaa",         "a",     "\n",     "\"",  "aa", "aaa", "b", "aab", "aaaa", "aaaaa",
        "aaaaaaaaaaaa\n\xC3", "a\xC3", "\n\xC3", "\xC3"};
    check_along(texts, N_ELEMENTS(texts), "root ::= [^\"\\n]{12,15} \"\\n\" \"\u00e9\"", "aab");
    check_along(texts, N_ELEMENTS(texts), "root ::= [^\"\\x00-\\x1F]{12,15} \"\\n\" \"\u00e9\"", "aab");
}

/* However many classes other grammars had, a new one gets its slice; one that no grammar uses is freed. */
static void slices_go_with_their_grammars(void **state)
{
    (void)state;
    static vocabulary v;
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    enum { N = 50 };
    weir__automaton *kept[N];
    dice d = {5};
    make_vocabulary(&v, &d, 30);
    const long live = weir__mem_live();
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < N; i++) {
            char grammar[64];
            const uint32_t without = 0x4E00 + 2 * i;
            snprintf(grammar, sizeof grammar, "root ::= \"\\\"\" [^\\u%04X]{0,99}", without);
            kept[i] = compile(&v, grammar);
            weir__automaton_place place = weir__automaton_start(kept[i]);
            assert_int_equal(weir__automaton_accept_bytes(kept[i], &place, 1, "\"", 1), WEIR_OK);
            assert_int_equal(weir__automaton_mask(kept[i], &place, mask), WEIR_OK);
            const weir__class of = {{{0, without - 1}, {without + 1, UINT32_MAX}}, 2};
            assert_true(weir__slices_known(v.trie->slices, &of));
            if (round == 0) {
                weir__automaton_release(kept[i]);
                assert_false(weir__slices_known(v.trie->slices, &of));
            }
        }
        for (uint32_t i = 0; i < N && round == 1; i++) weir__automaton_release(kept[i]);
        assert_int_equal(weir__mem_live(), live);
    }
    const weir__class few = {{{0x10FFFE, 0x10FFFF}}, 1};
    assert_false(weir__slices_worth(v.trie->slices, &few));
    weir__trie_destroy(v.trie);
}

/* Each text of letters leads to a state of its own, so that a mask reaches hundreds. What its states take is
 * counted, bounded, and given back. */
static void states_are_bounded(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", "c", "z"};
    static vocabulary v;
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    dice d = {5};
    char grammar[1024] = "root ::= \" \"";
    memset(&v, 0, sizeof v);
    strcpy(v.text[EOG], "end");
    for (int32_t i = 1; i < N_TOKENS; i++) {
        if (i <= 4) strcpy(v.text[i], letters[i - 1]);
        for (int k = i <= 4 ? 0 : dice_in(&d, 2, 300); k > 0; k--)
            strcat(v.text[i], letters[dice_in(&d, 0, 3)]);
    }
    vocabulary_make_trie(&v);
    for (size_t i = 0; i < N_ELEMENTS(letters); i++)
        snprintf(grammar + strlen(grammar), sizeof grammar - strlen(grammar), " | \"%s\" root \"%s\"",
                 letters[i], letters[i]);
    const size_t before = weir__trie_bytes(v.trie);
    weir__automaton *a = compile(&v, grammar);
    weir__automaton_place place = weir__automaton_start(a);
    weir_status status = WEIR_OK;
    for (int n = 0; n < 20000 && status == WEIR_OK; n++) {
        status = weir__automaton_mask(a, &place, mask);
        assert_true(weir__trie_bytes(v.trie) - before < 2 * WEIR__AUTOMATON_BYTES_MAX);
        if (status == WEIR_OK) status = weir__automaton_accept(a, &place, dice_in(&d, 1, 4));
    }
    assert_int_equal(status, WEIR_GRAMMAR);
    assert_true(weir__automaton_size(a) > WEIR__AUTOMATON_BYTES_MAX / 2);
    const weir__automaton_place same = place;
    assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_GRAMMAR);
    assert_int_equal(place.state, same.state);
    weir__automaton_release(a);
    assert_int_equal(weir__trie_bytes(v.trie), before);
    weir__trie_destroy(v.trie);
}

/* Rows count, too: with many columns they are what is large, and a state may get its row late. */
static void rows_are_bounded(void **state)
{
    (void)state;
    enum { N_CODES = 80000, N_BEGINNINGS = 500 };
    static vocabulary v;
    static char grammar[1 << 20];
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    char *end = grammar + sprintf(grammar, "root ::= \"!\" [");
    memset(&v, 0, sizeof v);
    strcpy(v.text[EOG], "end");
    strcpy(v.text[1], "a");
    for (int i = 0; i < N_CODES; i++) end += sprintf(end, "\\U%08X", 0x10000U + 2 * (uint32_t)i);
    end += sprintf(end, "]");
    for (uint32_t i = 0; i < N_BEGINNINGS; i++) {
        snprintf(v.text[2 + i], N_BYTES, "\xE4%c%c", (int)(0xB8 + i / 64), (int)(0x80 + i % 64));
        end += sprintf(end, " | \"%s\" \"a\"", v.text[2 + i]);
    }
    vocabulary_make_trie(&v);
    weir__automaton *a = compile(&v, grammar);
    const weir__automaton_place start = weir__automaton_start(a);
    assert_int_equal(weir__automaton_mask(a, &start, mask), WEIR_OK);
    int n_refused = 0;
    for (int32_t i = 0; i < N_BEGINNINGS; i++) {
        weir__automaton_place place = start;
        assert_int_equal(weir__automaton_accept(a, &place, 2 + i), WEIR_OK);
        const weir_status status = weir__automaton_accept(a, &place, 1);
        assert_true(status == WEIR_OK || status == WEIR_GRAMMAR);
        n_refused += status == WEIR_GRAMMAR;
        assert_int_equal(weir__automaton_is_full(a), n_refused > 0);
        assert_true(weir__automaton_size(a) < 2 * WEIR__AUTOMATON_BYTES_MAX);
    }
    assert_in_range(n_refused, 1, N_BEGINNINGS - 1);
    weir__automaton_release(a);
    weir__trie_destroy(v.trie);
}

/* A class that is repeated has its slice with the grammar, unless too many elements stand before it. */
static void slices_ask_for_bounded_work(void **state)
{
    (void)state;
    static vocabulary v;
    static char grammar[1 << 20];
    static uint64_t mask[WEIR__AUTOMATON_WORDS(N_TOKENS)];
    const weir__class of = {{{0, 0x4DFF}, {0x4E01, UINT32_MAX}}, 2};
    dice d = {5};
    make_vocabulary(&v, &d, 30);
    for (int round = 0; round < 2; round++) {
        char *end = grammar + sprintf(grammar, "root ::= [x]");
        for (int i = 0; i < (round == 0 ? 10 : 20000); i++) end += sprintf(end, " big [x]");
        end += sprintf(end, " [^\\u4E00]*\nbig ::= \"a\"");
        for (int i = 0; i < 20000; i++) end += sprintf(end, "|[\\u%04X]", 0x5000 + i);
        weir__automaton *a = compile(&v, grammar);
        assert_int_equal(weir__slices_known(v.trie->slices, &of), round == 0);
        const weir__automaton_place place = weir__automaton_start(a);
        assert_int_equal(weir__automaton_mask(a, &place, mask), WEIR_OK);
        weir__automaton_release(a);
    }
    weir__trie_destroy(v.trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_bounded),
        cmocka_unit_test(rows_are_bounded),
        cmocka_unit_test(slices_ask_for_bounded_work),
        cmocka_unit_test(masks_of_runs_are_the_naive_ones),
        cmocka_unit_test(positions_far_from_the_bound_share_a_mask),
        cmocka_unit_test(incomplete_tokens_may_be_the_longest),
        cmocka_unit_test(slices_go_with_their_grammars),
        cmocka_unit_test(copies_that_match_nothing_are_all_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
