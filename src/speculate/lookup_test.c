/* lookup_test.c: beside a search through the whole text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "speculate/lookup.h"
#include "support/dice.h"

#define LONGEST 6000
#define MOST    40

/* Pairs of one hash share a chain, of which a part is looked at: so the best place may be missed. */
static int n_checks, n_missed;

/* The number of tokens before `place` that are the last ones of the text. */
static int32_t alike(const int32_t *tokens, int32_t n, int32_t place)
{
    int32_t count = 0;
    for (int32_t i = 1; i <= place && i <= WEIR__LOOKUP_MOST && tokens[place - i] == tokens[n - i]; i++)
        count = i;
    return count;
}

/* The lookup's invariants after n tokens: its place is as good as it says; if few places have the text's last
 * two tokens before them it is the best one; its draft are the tokens there. */
static void check(const weir__lookup *lookup, const int32_t *tokens, int32_t n, int32_t former_length)
{
    int32_t draft[MOST], longest = 0, n_places = 0;
    double hope[MOST];
    for (int32_t place = 2; place < n; place++) {
        int32_t length = alike(tokens, n, place);
        if (length < WEIR__LOOKUP_LEAST) continue;
        n_places++;
        if (length > longest) longest = length;
    }
    int32_t n_draft = weir__lookup_draft(lookup, tokens, MOST, draft, hope);
    assert_int_equal(n_draft, lookup->from >= 0 ? MOST : 0);
    n_checks++;
    if (lookup->from < 0) {
        n_missed += n_places > 0;
        return;
    }
    assert_true(lookup->from < n);
    assert_int_equal(lookup->length, alike(tokens, n, lookup->from));
    if (n_places <= 16 && former_length < 12) n_missed += lookup->length < longest;
    for (int32_t i = 0; i < n_draft; i++) {
        int32_t at = lookup->from + i;
        while (at >= n) at -= n - lookup->from; /* it goes round */
        assert_int_equal(draft[i], tokens[at]);
        assert_true(hope[i] >= 0 && hope[i] <= 1);
    }
}

/* Pieces of the earlier text between new tokens. */
static int32_t random_text(dice *d, int32_t *tokens, int32_t n)
{
    int32_t at = 0, n_words = dice_in(d, 2, 3000);
    while (at < n) {
        int32_t length = dice_in(d, 1, 30), from = at > 1 ? dice_in(d, 0, at - 1) : 0;
        bool copies = at > 1 && !dice_one_in(d, 3);
        for (int32_t i = 0; i < length && at < n; i++, at++)
            tokens[at] = copies ? tokens[from + i] : dice_in(d, 0, n_words);
    }
    return n_words;
}

static void drafts_are_what_followed_before(void **state)
{
    (void)state;
    static int32_t tokens[LONGEST];
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 1);
    dice d = {seed};
    weir__lookup lookup;
    int n_found = 0;
    printf("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    weir__lookup_init(&lookup);
    for (int round = 0; round < 250; round++) {
        int32_t n = dice_in(&d, 1, round % 10 == 0 ? LONGEST : 300);
        random_text(&d, tokens, n);
        weir__lookup_reset(&lookup);
        for (int32_t seen = 0; seen < n;) { /* a prompt, then bursts */
            int32_t former = lookup.length;
            seen += dice_in(&d, 1, seen == 0 || dice_one_in(&d, 20) ? n : 3);
            if (seen > n) seen = n;
            bool one = seen == lookup.n + 1;
            assert_true(weir__lookup_read(&lookup, tokens, seen));
            assert_int_equal(lookup.n, seen);
            if (n <= 300 || dice_one_in(&d, 50)) check(&lookup, tokens, seen, one ? former : 12);
            n_found += lookup.from >= 0;
        }
        assert_true(weir__lookup_read(&lookup, tokens, n / 2)); /* nothing new */
        assert_int_equal(lookup.n, n);
    }
    printf("%d checks, %d missed\n", n_checks, n_missed);
    assert_true(n_found > 1000 && n_checks > 1000 && n_missed * 100 <= n_checks);
    weir__lookup_fini(&lookup);
}

/* Rates are learned without drafts: texts that repeat themselves raise hopes, others lower them. */
static void hopes_follow_the_text(void **state)
{
    (void)state;
    static int32_t tokens[2000];
    int32_t draft[4];
    double hope[4], first;
    dice d = {7};
    weir__lookup lookup;
    weir__lookup_init(&lookup);
    for (int32_t i = 0; i < 2000; i++) tokens[i] = i % 7;
    assert_true(weir__lookup_read(&lookup, tokens, 100));
    assert_int_equal(weir__lookup_draft(&lookup, tokens, 4, draft, &hope[0]), 4);
    first = hope[0];
    assert_true(weir__lookup_read(&lookup, tokens, 2000));
    weir__lookup_draft(&lookup, tokens, 4, draft, hope);
    assert_true(hope[0] > first && hope[0] > 0.97);
    weir__lookup_reset(&lookup);
    for (int32_t i = 0; i < 2000; i++) tokens[i] = dice_in(&d, 0, 9); /* pairs come again, triples do not */
    assert_true(weir__lookup_read(&lookup, tokens, 1) && weir__lookup_read(&lookup, tokens, 2000));
    assert_int_equal(weir__lookup_draft(&lookup, tokens, 4, draft, hope), 4);
    assert_true(hope[0] < 0.3);
    weir__lookup_fini(&lookup);
}

static void without_memory_the_next_call_goes_on(void **state)
{
    (void)state;
    static int32_t tokens[3000];
    long live = weir__mem_live();
    weir__lookup lookup;
    for (int32_t i = 0; i < 3000; i++) tokens[i] = i % 1000;
    for (long fail = 0; fail < 4; fail++) {
        weir__lookup_init(&lookup);
        weir__mem_fail_after(fail);
        int n_failed = 0;
        for (int32_t n = 500; n <= 3000; n += 500) {
            if (weir__lookup_read(&lookup, tokens, n)) continue;
            n_failed++;
            assert_true(weir__lookup_read(&lookup, tokens, n));
        }
        weir__mem_fail_after(-1);
        assert_int_equal(n_failed, 1);
        check(&lookup, tokens, 3000, 12);
        weir__lookup_fini(&lookup);
    }
    assert_int_equal(weir__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_what_followed_before),
        cmocka_unit_test(hopes_follow_the_text),
        cmocka_unit_test(without_memory_the_next_call_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
