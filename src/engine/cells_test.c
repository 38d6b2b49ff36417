/* Cells that slots may fill: requests that fit, and the cells left, without an engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/cells.h"

#include "support/cache/cache.h"

#define CELLS 256 /* the fewest of a context */

static const weir__prefix_key open_key = {0};

typedef struct place {
    shelf s;
    weir__cells cells;
    weir__slot slots[2];
    weir__request requests[3];
} place;

static void place_init(place *p, weir_layout layout, int32_t n_ctx)
{
    memset(p, 0, sizeof *p);
    shelf_init_sized(&p->s, "", n_ctx, layout, 4, 0, NULL, 0);
    for (int32_t i = 0; i < 2; i++) weir__slot_init(&p->slots[i], i);
    assert_true(weir__cells_init(&p->cells, &p->s.memory, p->s.cache, (weir__slots){p->slots, p->slots + 2}));
}

static void place_fini(place *p)
{
    for (int32_t i = 0; i < 2; i++) weir__memory_cut(&p->s.memory, i, 0, 0);
    weir__cells_fini(&p->cells);
    shelf_fini(&p->s);
}

static const weir__request *wants(place *p, int32_t i, int32_t n_prompt, int32_t max_tokens)
{
    p->requests[i].history.n_prompt = p->requests[i].history.n_tokens = n_prompt;
    p->requests[i].max_tokens = max_tokens;
    return &p->requests[i];
}

/* The slot prefills a prompt in the lane of its number, as far as `text`. */
static void prefill(place *p, int32_t i, int32_t n_prompt, int32_t max_tokens, const char *text)
{
    wants(p, i, n_prompt, max_tokens);
    if (text[0] != '\0') feed(&p->s, i, text);
    p->slots[i].request = &p->requests[i];
    p->slots[i].state = WEIR_SLOT_PREFILLING;
    p->slots[i].lane = i;
    p->slots[i].n_past = (int32_t)strlen(text);
}

static bool fits(const place *p, const weir__request *request, bool preempts)
{
    return weir__cells_fits(&p->cells, request, preempts, 0);
}

static void test_a_request_wants_room_to_grow(void **state)
{
    (void)state;
    place p;
    place_init(&p, WEIR_LAYOUT_UNIFIED, CELLS);
    int64_t all = weir__request_cells(wants(&p, 2, 8, 4));
    assert_int_equal(weir__cells_wanted(&p.requests[2]), all); /* a short answer's whole */
    assert_int_equal(weir__cells_wanted(wants(&p, 2, 8, 1000)), 8 + 16 + 1);
    place_fini(&p);
}

static void test_slots_and_prefixes_share_a_pool(void **state)
{
    (void)state;
    place p;
    place_init(&p, WEIR_LAYOUT_UNIFIED, CELLS);
    assert_int_equal(weir__cells_left(&p.cells), CELLS);
    prefill(&p, 0, 20, 1000, "0123456789");
    assert_true(keep(&p.s, &open_key, "abcde", 5));
    assert_int_equal(weir__cells_held(&p.cells), 10);
    assert_int_equal(weir__cells_left(&p.cells), CELLS - 20 - 5);
    assert_int_equal(weir__cells_reserved(&p.cells), 5 + 20 + 16 + 2);
    /* prefixes are no hindrance: 20 tokens of the slot and 18 to grow leave 218 */
    assert_true(fits(&p, wants(&p, 2, 218, 0), false));
    assert_false(fits(&p, wants(&p, 2, 219, 0), false));
    place_fini(&p);
}

static void test_a_request_takes_the_place_of_a_slot_that_it_outranks(void **state)
{
    (void)state;
    place p;
    place_init(&p, WEIR_LAYOUT_UNIFIED, CELLS);
    prefill(&p, 0, 20, 1000, "0123456789");
    wants(&p, 2, 230, 10);
    assert_false(fits(&p, &p.requests[2], true)); /* an equal */
    p.requests[2].priority = 1;
    assert_false(fits(&p, &p.requests[2], false));
    assert_true(fits(&p, &p.requests[2], true));
    prefill(&p, 1, 1, 1, "");
    p.requests[0].priority = p.requests[1].priority = 1;
    assert_false(fits(&p, wants(&p, 2, 1, 1), true)); /* no slot is free */
    place_fini(&p);
}

static void test_too_few_cells_evict_prefixes_first(void **state)
{
    (void)state;
    place p;
    place_init(&p, WEIR_LAYOUT_UNIFIED, CELLS);
    prefill(&p, 0, 20, 1000, "0123456789");
    assert_true(keep(&p.s, &open_key, "abcde", 5));
    assert_true(weir__cells_shrink(&p.cells));
    assert_int_equal(weir__cells_left(&p.cells), CELLS - 20); /* the prefix has gone */
    assert_false(weir__cells_shrink(&p.cells));               /* one slot alone */
    prefill(&p, 1, 10, 1000, "");
    assert_true(weir__cells_shrink(&p.cells));
    assert_int_equal(weir__cells_left(&p.cells), -1);
    weir__cells_reset(&p.cells);
    assert_int_equal(weir__cells_left(&p.cells), CELLS - 30);
    assert_false(weir__cells_evict(&p.cells));
    place_fini(&p);
}

static void test_lanes_have_no_common_limit(void **state)
{
    (void)state;
    place p;
    place_init(&p, WEIR_LAYOUT_PER_SLOT, 256 * SEQS);
    prefill(&p, 0, 250, 1000, "0123456789");
    assert_true(weir__cells_left(&p.cells) > INT32_MAX);
    assert_true(fits(&p, wants(&p, 2, 250, 1000), false));
    place_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_wants_room_to_grow),
        cmocka_unit_test(test_slots_and_prefixes_share_a_pool),
        cmocka_unit_test(test_a_request_takes_the_place_of_a_slot_that_it_outranks),
        cmocka_unit_test(test_too_few_cells_evict_prefixes_first),
        cmocka_unit_test(test_lanes_have_no_common_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
