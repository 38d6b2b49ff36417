/* Lanes: which one a slot gets, and how gaps between them close, without an engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/cells.h"

#include "support/cache/cache.h"

static const weir__prefix_key open_key = {0};

typedef struct row {
    shelf s;
    weir__lanes lanes;
    weir__request requests[3];
    weir__slot slots[3];
} row;

static void row_init(row *r, weir_layout layout)
{
    memset(r->requests, 0, sizeof r->requests);
    shelf_init(&r->s, "", layout, SEQS, 0);
    assert_true(weir__lanes_init(&r->lanes, &r->s.memory, r->s.cache));
    for (int32_t i = 0; i < 3; i++) {
        weir__slot_init(&r->slots[i], i);
        r->slots[i].request = &r->requests[i];
    }
}

static void row_fini(row *r)
{
    for (int32_t i = 0; i < 3; i++) weir__lanes_leave(&r->lanes, &r->slots[i]);
    weir__lanes_fini(&r->lanes);
    shelf_fini(&r->s);
}

/* The slot computes a text in this lane. */
static void occupy(row *r, int32_t i, int32_t lane, const char *text)
{
    weir__lanes_enter(&r->lanes, &r->slots[i], lane);
    if (*text != '\0') feed(&r->s, lane, text);
    r->slots[i].n_past = (int32_t)strlen(text);
}

static void assert_lane(row *r, int32_t i, int32_t lane, const char *text)
{
    int32_t tokens[256], n = ids(text, tokens);
    assert_int_equal(r->slots[i].lane, lane);
    assert_ptr_equal(r->lanes.slot[lane], &r->slots[i]);
    assert_holds(&r->s, lane, tokens, n);
}

static void compact(row *r)
{
    weir__lanes_compact(&r->lanes);
    assert_int_equal(r->s.r.ops->settle(r->s.r.context, NULL), WEIR_OK);
}

static void test_a_free_lane_has_neither_slot_nor_prefix(void **state)
{
    (void)state;
    for (size_t l = 0; l < N_ELEMENTS(layouts); l++) {
        row r;
        row_init(&r, layouts[l]);
        assert_int_equal(weir__lanes_free(&r.lanes), 0);
        occupy(&r, 0, 0, "abc");
        assert_true(keep(&r.s, &open_key, "def", 1));
        assert_int_equal(weir__lanes_free(&r.lanes), 2);
        weir__lanes_leave(&r.lanes, &r.slots[0]);
        assert_int_equal(r.slots[0].lane, -1);
        assert_int_equal(r.s.memory.n[0], 0);
        assert_int_equal(weir__lanes_free(&r.lanes), 0);
        weir__lanes_leave(&r.lanes, &r.slots[0]); /* has none */
        for (int32_t lane = 0; lane < SEQS; lane++)
            if (lane != 1) r.lanes.slot[lane] = &r.slots[2];
        assert_int_equal(weir__lanes_free(&r.lanes), -1);
        memset(r.lanes.slot, 0, SEQS * sizeof *r.lanes.slot);
        row_fini(&r);
    }
}

static void test_the_last_lane_closes_the_first_gap(void **state)
{
    (void)state;
    row r;
    row_init(&r, WEIR_LAYOUT_PER_SLOT);
    occupy(&r, 0, 0, "abc");
    occupy(&r, 1, 2, "de");
    occupy(&r, 2, 5, "fghi");
    compact(&r);
    assert_lane(&r, 2, 1, "fghi");
    assert_lane(&r, 1, 2, "de");
    assert_int_equal(r.s.memory.n[5], 0);
    compact(&r); /* nothing is left to do */
    assert_lane(&r, 0, 0, "abc");
    assert_lane(&r, 2, 1, "fghi");
    row_fini(&r);
}

static void test_a_prefix_leaves_the_gap_first(void **state)
{
    (void)state;
    row r;
    row_init(&r, WEIR_LAYOUT_PER_SLOT);
    occupy(&r, 0, 0, "abc");
    assert_true(keep(&r.s, &open_key, "xyz", 1));
    occupy(&r, 1, 2, "defg");
    compact(&r);
    assert_lane(&r, 1, 2, "defg");
    assert_null(weir__cache_entry_of(r.s.cache, 1));
    assert_non_null(weir__cache_entry_of(r.s.cache, SEQS - 1));
    compact(&r);
    assert_lane(&r, 1, 1, "defg");
    row_fini(&r);
}

/* A slot and a prefix exchange their lanes where none is free, and no prefix is lost. */
static void test_a_prefix_changes_places(void **state)
{
    (void)state;
    row r;
    int32_t tokens[256];
    for (int n_past = 0; n_past <= 4; n_past += 4) {
        row_init(&r, WEIR_LAYOUT_PER_SLOT);
        char text[] = "text of lane ?";
        for (int32_t lane = 0; lane < SEQS; lane++) {
            text[sizeof text - 2] = (char)('0' + lane);
            if (lane != 2 && lane != 5) assert_true(keep(&r.s, &open_key, text, lane));
        }
        occupy(&r, 0, 2, "abc");
        occupy(&r, 1, 5, n_past > 0 ? "defg" : "");
        compact(&r);
        assert_lane(&r, 0, 2, "abc");
        assert_lane(&r, 1, 3, n_past > 0 ? "defg" : "");
        for (int32_t lane = 0; lane < SEQS; lane++) {
            if (lane == 2 || lane == 3) continue;
            text[sizeof text - 2] = (char)('0' + (lane == 5 ? 3 : lane));
            assert_non_null(weir__cache_entry_of(r.s.cache, lane));
            assert_holds(&r.s, lane, tokens, ids(text, tokens));
        }
        weir__cache_check(r.s.cache);
        compact(&r); /* nothing is left to do */
        assert_lane(&r, 1, 3, n_past > 0 ? "defg" : "");
        row_fini(&r);
    }
}

/* Slots whose lanes are consecutive stay, wherever these begin. */
static void test_neighbours_stay(void **state)
{
    (void)state;
    row r;
    row_init(&r, WEIR_LAYOUT_PER_SLOT);
    occupy(&r, 0, 4, "abc");
    compact(&r);
    assert_lane(&r, 0, 4, "abc");
    occupy(&r, 1, 5, "de");
    compact(&r);
    assert_lane(&r, 0, 4, "abc");
    assert_lane(&r, 1, 5, "de");
    row_fini(&r);
}

static void test_a_pool_has_no_gaps(void **state)
{
    (void)state;
    row r;
    row_init(&r, WEIR_LAYOUT_UNIFIED);
    occupy(&r, 0, 3, "abc");
    compact(&r);
    assert_lane(&r, 0, 3, "abc");
    row_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_free_lane_has_neither_slot_nor_prefix),
        cmocka_unit_test(test_the_last_lane_closes_the_first_gap),
        cmocka_unit_test(test_a_prefix_leaves_the_gap_first),
        cmocka_unit_test(test_a_prefix_changes_places),
        cmocka_unit_test(test_neighbours_stay),
        cmocka_unit_test(test_a_pool_has_no_gaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
