/* hash_test.c: kept hashes, every changed byte, and pieces beside the whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "support/model.h"

static void test_kept_hashes_stay_what_they_are(void **state)
{
    (void)state;
    assert_true(weir__hash(0, "", 0) == 0);
    assert_true(weir__hash(7, "", 0) == UINT64_C(0x740729cbe468d1dd));
    assert_true(weir__hash(0, "weir", 4) == UINT64_C(0x6fe045df2adf2c72));
    assert_true(weir__hash(1, "a longer text", 13) == UINT64_C(0x103011330a534e30));
}

static void test_every_change_of_a_byte_shows(void **state)
{
    (void)state;
    unsigned char bytes[37] = {0};
    uint64_t before = weir__hash(0, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        for (int value = 1; value < 256; value++) {
            bytes[i] = (unsigned char)value;
            assert_true(weir__hash(0, bytes, sizeof bytes) != before);
            bytes[i] = 0;
        }
    for (size_t n = 0; n < sizeof bytes; n++) assert_true(weir__hash(0, bytes, n) != before);
}

/* The number of places that the hashes take, in a table of n_slots, a power of two. */
static size_t places(const uint64_t *hashes, size_t n, size_t n_slots)
{
    static bool taken[1 << 16];
    size_t count = 0;
    memset(taken, 0, sizeof taken);
    for (size_t i = 0; i < n; i++) {
        bool *place = &taken[hashes[i] & (n_slots - 1)];
        count += !*place;
        *place = true;
    }
    return count;
}

/* Places are chosen as in a table, by the lowest bits. 256 values in 65,536 places leave 255.5 on average. */
static void test_every_byte_reaches_the_lowest_bits(void **state)
{
    (void)state;
    unsigned char bytes[24] = {0};
    uint64_t hashes[256];
    for (size_t n = 1; n <= sizeof bytes; n++)
        for (size_t i = 0; i < n; i++) {
            for (int value = 0; value < 256; value++) {
                bytes[i] = (unsigned char)value;
                hashes[value] = weir__hash(0, bytes, n);
            }
            bytes[i] = 0;
            assert_true(places(hashes, 256, 1 << 16) >= 250);
        }
}

/* Names that differ at their ends: 800 at random would take 555 of 1,024 places. */
static void test_names_spread(void **state)
{
    (void)state;
    static const char *const forms[] = {"user%03d", "user-%03d", "tenant/%05d", "%d", "customer number %04d"};
    uint64_t hashes[800];
    char name[64];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        for (int i = 0; i < 800; i++) {
            int n = snprintf(name, sizeof name, forms[f], i);
            hashes[i] = weir__hash(0, name, (size_t)n);
        }
        assert_in_range(places(hashes, 800, 1024), 500, 610);
    }
}

static void test_pieces_have_the_hash_of_the_whole(void **state)
{
    (void)state;
    unsigned char bytes[67];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37);
    for (size_t n = 0; n <= sizeof bytes; n++)
        for (size_t piece = 8; piece <= 24; piece += 8) {
            uint64_t h = weir__hash_begin(7, n);
            for (size_t at = 0; at < n; at += piece)
                h = weir__hash_more(h, bytes + at, n - at < piece ? n - at : piece);
            assert_int_equal(weir__hash_end(h), weir__hash(7, bytes, n));
        }
}

/* A table beside an array of the same numbers, with hashes of which many are the same. */
static void test_a_table_has_what_was_added_and_not_removed(void **state)
{
    (void)state;
    typedef struct item {
        weir__hash_link link;
        bool in, seen;
    } item;
    enum { N = 1000, HASHES = 300 };
    static item items[N];
    weir__hash_table table = {0};
    assert_null(weir__hash_table_find(&table, 7));
    assert_null(weir__hash_table_after(&table, NULL));
    uint64_t dice = 1;
    for (int round = 0; round < 5000; round++) {
        dice = weir__hash(dice, "x", 1);
        item *i = &items[dice % N];
        if (i->in)
            weir__hash_table_remove(&table, &i->link);
        else if (weir__hash_table_grow(&table))
            weir__hash_table_add(&table, &i->link, (uint64_t)(i - items) % HASHES);
        i->in = !i->in;
        if (round % 100 > 0) continue;
        size_t n = 0, n_found = 0, n_in = 0;
        for (size_t k = 0; k < N; k++) items[k].seen = false;
        for (weir__hash_link *link = NULL; (link = weir__hash_table_after(&table, link)) != NULL; n++) {
            assert_true(((item *)link)->in && !((item *)link)->seen);
            ((item *)link)->seen = true;
        }
        for (uint64_t hash = 0; hash < HASHES; hash++)
            for (weir__hash_link *link = weir__hash_table_find(&table, hash); link != NULL;
                 link = weir__hash_table_same(link), n_found++)
                assert_true((uint64_t)((item *)link - items) % HASHES == hash);
        for (size_t k = 0; k < N; k++) n_in += items[k].in;
        assert_true(n == n_in && n_found == n_in && table.n_links == n_in && table.n_buckets >= 64);
    }
    weir__hash_table_clear(&table);
    assert_true(table.n_links == 0 && table.buckets == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_hashes_stay_what_they_are),
        cmocka_unit_test(test_every_change_of_a_byte_shows),
        cmocka_unit_test(test_every_byte_reaches_the_lowest_bits),
        cmocka_unit_test(test_names_spread),
        cmocka_unit_test(test_a_table_has_what_was_added_and_not_removed),
        cmocka_unit_test(test_pieces_have_the_hash_of_the_whole),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
