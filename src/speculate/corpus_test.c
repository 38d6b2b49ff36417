/* corpus_test.c: drafts from other texts, by key, within the limit, and with random texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "speculate/corpus.h"

#include "base/mem.h"
#include "support/dice.h"
#include "support/model.h"

#define BYTES 200000
#define MOST  16

static const weir__prefix_key nobody = {NULL, 0, 0};

static void read_letters(weir__corpus *corpus, weir__corpus_reader *reader, const char *text)
{
    int32_t tokens[512], n = (int32_t)strlen(text);
    assert_true(n <= 512);
    for (int32_t i = 0; i < n; i++) tokens[i] = text[i];
    weir__corpus_read(corpus, reader, tokens, n);
    assert_null(weir__corpus_check(corpus));
}

/* A whole text of its own. */
static void add_letters(weir__corpus *corpus, const weir__prefix_key *key, const char *text)
{
    weir__corpus_reader reader = {0};
    assert_true(weir__corpus_open(corpus, &reader, key));
    read_letters(corpus, &reader, text);
    weir__corpus_close(corpus, &reader);
    assert_null(weir__corpus_check(corpus));
}

/* Drafts for this text. */
static void assert_drafts(weir__corpus *corpus, const weir__prefix_key *key, const char *text,
                          const char *expected)
{
    weir__corpus_reader reader = {0};
    int32_t draft[MOST];
    double hope[MOST];
    char letters[MOST + 1] = "";
    assert_true(weir__corpus_open(corpus, &reader, key));
    read_letters(corpus, &reader, text);
    int32_t n = weir__corpus_draft(corpus, &reader, MOST, draft, hope);
    for (int32_t i = 0; i < n; i++) {
        letters[i] = (char)draft[i];
        assert_true(hope[i] > 0 && hope[i] <= 1);
    }
    assert_string_equal(letters, expected);
    weir__corpus_close(corpus, &reader);
}

static void other_texts_say_how_one_continues(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(BYTES);
    assert_non_null(corpus);
    assert_drafts(corpus, &nobody, "the cat", "");
    add_letters(corpus, &nobody, "the cat sat on the mat");
    assert_drafts(corpus, &nobody, "a cat s", "at on the mat");
    assert_drafts(corpus, &nobody, "at s", "at on the mat");
    assert_drafts(corpus, &nobody, "xt s", ""); /* three tokens agree too often */
    assert_drafts(corpus, &nobody, "on the mat", "");
    weir__corpus_destroy(corpus);
}

static void the_longest_match_comes_first(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(BYTES);
    assert_non_null(corpus);
    add_letters(corpus, &nobody, "2345678 long");
    add_letters(corpus, &nobody, "x45678 short");
    assert_drafts(corpus, &nobody, "_345678 ", "long");
    weir__corpus_destroy(corpus);

    /* The common part of the texts is kept once, with both continuations. */
    char common[121] = "", text[160];
    dice d = {5};
    for (int i = 0; i < 120; i++) common[i] = (char)dice_in(&d, 'A', 'Z');
    corpus = weir__corpus_create(BYTES);
    assert_non_null(corpus);
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "%s%s", common, i == 4 ? "other one" : "said often");
        add_letters(corpus, &nobody, text);
    }
    assert_drafts(corpus, &nobody, common + 100, "said often");
    snprintf(text, sizeof text, "%s%s", common + 100, "othe");
    assert_drafts(corpus, &nobody, text, "r one");
    weir__corpus_destroy(corpus);
}

static void keys_are_apart(void **state)
{
    (void)state;
    enum { N_KEYS = 5 };
    static const weir__prefix_key keys[N_KEYS] = {
        {NULL, 0, 0}, {"a", 1, 0}, {"b", 1, 0}, {"a", 1, 7}, {"a\0", 2, 0}};
    weir__corpus *corpus = weir__corpus_create(BYTES);
    assert_non_null(corpus);
    for (int i = 0; i < N_KEYS; i++) {
        char text[64];
        for (int other = i; other < N_KEYS; other++) assert_drafts(corpus, &keys[other], "the secret is", "");
        snprintf(text, sizeof text, "the secret is %d", i);
        add_letters(corpus, &keys[i], text);
    }
    for (int i = 0; i < N_KEYS; i++) {
        char answer[] = {' ', (char)('0' + i), '\0'};
        assert_drafts(corpus, &keys[i], "the secret is", answer);
    }
    weir__corpus_destroy(corpus);
}

/* A text that is still read serves another one, which reads at the same time. */
static void running_texts_serve_each_other(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(BYTES);
    weir__corpus_reader ahead = {0}, behind = {0};
    int32_t text[400], draft[MOST], n_right = 0;
    double hope[MOST];
    dice d = {1};
    assert_non_null(corpus);
    for (int32_t i = 0; i < 400; i++) text[i] = (int32_t)(dice_roll(&d) % 1000);
    assert_true(weir__corpus_open(corpus, &ahead, &nobody) && weir__corpus_open(corpus, &behind, &nobody));
    for (int32_t n = 20; n <= 400; n++) {
        weir__corpus_read(corpus, &ahead, text, n);
        weir__corpus_read(corpus, &behind, text, n - 9);
        if (weir__corpus_draft(corpus, &behind, MOST, draft, hope) == 9)
            n_right += memcmp(draft, text + n - 9, 9 * sizeof *draft) == 0;
    }
    assert_int_equal(n_right, 381);
    assert_true(hope[0] > 0.95);
    weir__corpus_close(corpus, &ahead);
    weir__corpus_close(corpus, &behind);
    weir__corpus_close(corpus, &behind);
    weir__corpus_destroy(corpus);
}

/* A text that comes again and again takes the room of one; so another one stays. */
static void a_known_text_takes_no_room(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(BYTES); /* some 12,000 tokens */
    static int32_t text[3000];
    dice d = {2};
    assert_non_null(corpus);
    add_letters(corpus, &nobody, "the first text of all");
    for (int32_t i = 0; i < 3000; i++) text[i] = 1000 + (int32_t)(dice_roll(&d) % 1000);
    for (int round = 0; round < 50; round++) {
        weir__corpus_reader reader = {0};
        assert_true(weir__corpus_open(corpus, &reader, &nobody));
        text[1500] = round; /* and one that changes at one token */
        weir__corpus_read(corpus, &reader, text, 3000);
        weir__corpus_close(corpus, &reader);
        assert_null(weir__corpus_check(corpus));
    }
    assert_drafts(corpus, &nobody, "the first t", "ext of all");
    weir__corpus_destroy(corpus);
}

/* Two equal texts that overtake each other by turns take hardly more room than two that differ. */
static void equal_texts_side_by_side_take_no_more_room(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(BYTES);
    weir__corpus_reader readers[2] = {{0}};
    static int32_t text[3000];
    dice d = {4};
    assert_non_null(corpus);
    add_letters(corpus, &nobody, "the first text of all");
    for (int32_t i = 0; i < 3000; i++) text[i] = 1000 + (int32_t)(dice_roll(&d) % 1000);
    for (int r = 0; r < 2; r++) assert_true(weir__corpus_open(corpus, &readers[r], &nobody));
    for (int32_t n = 10; n <= 3000; n += 3) weir__corpus_read(corpus, &readers[n % 2], text, n);
    assert_null(weir__corpus_check(corpus));
    for (int r = 0; r < 2; r++) weir__corpus_close(corpus, &readers[r]);
    assert_drafts(corpus, &nobody, "the first t", "ext of all");
    weir__corpus_destroy(corpus);
}

static void the_oldest_texts_make_room(void **state)
{
    (void)state;
    weir__corpus *corpus = weir__corpus_create(WEIR__CORPUS_LEAST + 4000);
    weir__corpus_reader reader = {0};
    static int32_t text[5000];
    int32_t draft[MOST];
    double hope[MOST];
    dice d = {3};
    assert_non_null(corpus);
    add_letters(corpus, &nobody, "the first text of all");
    assert_drafts(corpus, &nobody, "the first t", "ext of all");
    assert_true(weir__corpus_open(corpus, &reader, &nobody));
    for (int32_t i = 0; i < 5000; i++) text[i] = 1000 + (int32_t)(dice_roll(&d) % 1000);
    for (int32_t n = 1; n <= 5000; n += 7) {
        weir__corpus_read(corpus, &reader, text, n); /* it overwrites itself, too */
        assert_int_equal(weir__corpus_draft(corpus, &reader, MOST, draft, hope), 0);
        assert_null(weir__corpus_check(corpus));
    }
    weir__corpus_close(corpus, &reader);
    assert_drafts(corpus, &nobody, "the first t", "");
    assert_true(weir__corpus_bytes(corpus) <= WEIR__CORPUS_LEAST + 4000);
    weir__corpus_destroy(corpus);
}

static void keys_stay_within_the_limit(void **state)
{
    (void)state;
    char salt[300], secret[] = "0000 is the secret";
    weir__corpus *corpus = weir__corpus_create(BYTES);
    weir__corpus_reader reader = {0};
    assert_non_null(corpus);
    memset(salt, 's', sizeof salt);
    for (int i = 0; i < 2000; i++) {
        snprintf(salt, sizeof salt, "%d", i);
        snprintf(secret, sizeof secret, "%04d is the secret", i);
        add_letters(corpus, &(weir__prefix_key){salt, sizeof salt, 0}, secret);
        assert_true(weir__corpus_bytes(corpus) <= BYTES);
    }
    assert_drafts(corpus, &(weir__prefix_key){salt, sizeof salt, 0}, "1999 i", "s the secret");
    assert_drafts(corpus, &(weir__prefix_key){salt, sizeof salt, 0}, "1998 i", "");
    char *huge = calloc(1, BYTES);
    assert_non_null(huge);
    assert_false(weir__corpus_open(corpus, &reader, &(weir__prefix_key){huge, BYTES, 0}));
    assert_null(reader.key);
    free(huge);
    weir__corpus_destroy(corpus);
}

/* Texts of pieces that come again, under several keys, read at the same time by turns. A draft is always a
 * continuation under the key: each key has tokens of its own. */
static void random_texts_stay_with_their_keys(void **state)
{
    enum { N_READERS = 5, LENGTH = 300, PIECES = 6, PIECE = 60 };
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        dice d = {seed};
        size_t n_bytes = (size_t)dice_in(&d, WEIR__CORPUS_LEAST, 60000);
        weir__corpus *corpus = weir__corpus_create(n_bytes);
        weir__corpus_reader readers[N_READERS] = {{0}};
        static int32_t text[N_READERS][LENGTH];
        int32_t pieces[PIECES * PIECE], n[N_READERS] = {0}, owner[N_READERS] = {0};
        size_t n_drafted = 0;
        assert_non_null(corpus);
        for (int32_t i = 0; i < PIECES * PIECE; i++) pieces[i] = dice_in(&d, 0, 40);
        for (int step = 0; step < 3000; step++) {
            int32_t r = dice_in(&d, 0, N_READERS - 1);
            if (readers[r].key == NULL || n[r] == LENGTH || dice_one_in(&d, 50)) {
                char salt[] = {(char)('a' + dice_in(&d, 0, 2))};
                owner[r] = salt[0] - 'a';
                weir__corpus_close(corpus, &readers[r]);
                if (!weir__corpus_open(corpus, &readers[r], &(weir__prefix_key){salt, 1, 0})) continue;
                for (int32_t i = 0; i < LENGTH; i += PIECE)
                    memcpy(&text[r][i], &pieces[PIECE * dice_in(&d, 0, PIECES - 1)], PIECE * sizeof *pieces);
                for (int32_t i = 0; i < LENGTH; i++) text[r][i] += 100 * owner[r];
                n[r] = 0;
            }
            n[r] += dice_in(&d, 1, LENGTH - n[r] < 40 ? LENGTH - n[r] : 40);
            weir__corpus_read(corpus, &readers[r], text[r], n[r]);
            int32_t draft[MOST], n_draft;
            double hope[MOST];
            n_draft = weir__corpus_draft(corpus, &readers[r], MOST, draft, hope);
            for (int32_t i = 0; i < n_draft; i++) assert_int_equal(draft[i] / 100, owner[r]);
            n_drafted += (size_t)n_draft;
            if (step % 50 == 0) assert_null(weir__corpus_check(corpus));
            assert_true(weir__corpus_bytes(corpus) <= n_bytes);
        }
        assert_true(n_drafted > 1000 || n_bytes < 10000);
        for (int32_t r = 0; r < N_READERS; r++) weir__corpus_close(corpus, &readers[r]);
        assert_null(weir__corpus_check(corpus));
        weir__corpus_destroy(corpus);
    }
}

static void without_memory_there_is_none(void **state)
{
    (void)state;
    long live = weir__mem_live();
    weir__corpus *corpus = NULL;
    weir__corpus_reader reader = {0};
    for (long fail = 0; corpus == NULL; fail++) {
        weir__mem_fail_after(fail);
        corpus = weir__corpus_create(BYTES);
        weir__mem_fail_after(-1);
        assert_int_equal(corpus == NULL, fail < 3);
    }
    weir__mem_fail_after(0);
    assert_false(weir__corpus_open(corpus, &reader, &nobody));
    weir__mem_fail_after(-1);
    weir__corpus_close(corpus, &reader);
    add_letters(corpus, &nobody, "the cat sat on the mat");
    weir__mem_fail_after(0); /* a known key, and reading, take none */
    assert_drafts(corpus, &nobody, "the cat s", "at on the mat");
    assert_true(weir__mem_fail_pending());
    weir__mem_fail_after(-1);
    weir__corpus_destroy(corpus);
    weir__corpus_destroy(NULL);
    assert_int_equal(weir__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_texts_say_how_one_continues),
        cmocka_unit_test(the_longest_match_comes_first),
        cmocka_unit_test(keys_are_apart),
        cmocka_unit_test(running_texts_serve_each_other),
        cmocka_unit_test(a_known_text_takes_no_room),
        cmocka_unit_test(equal_texts_side_by_side_take_no_more_room),
        cmocka_unit_test(the_oldest_texts_make_room),
        cmocka_unit_test(keys_stay_within_the_limit),
        cmocka_unit_test(random_texts_stay_with_their_keys),
        cmocka_unit_test(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
