/* memory_test.c: the fake's memory beside a naive one, and the misuses that it sees.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/fake.h"

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* ---- Memory --------------------------------------------------------------------------------------- */

static void test_pool_runs_out_and_stays_as_it_was(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "exact=1", 10, 3, WEIR_LAYOUT_UNIFIED);
    assert_int_equal(append(&r, 0, "abcdef"), WEIR_OK);
    assert_int_equal(append(&r, 1, "xyzuv"), WEIR_NO_SPACE);
    assert_int_equal(r.ops->seq_pos_max(r.context, 1), -1);
    assert_int_equal(atomic_load(&r.fake->n_cells), 6);
    assert_int_equal(append(&r, 1, "xyzu"), WEIR_OK);
    assert_int_equal(atomic_load(&r.fake->n_cells), 10);
    /* shared cells count once, and are free when the last of their sequences lets go */
    assert_ok(r.ops->share(r.context, 0, 2, 4, error));
    assert_int_equal(atomic_load(&r.fake->n_cells), 10);
    assert_true(r.ops->seq_remove(r.context, 0, 0, -1));
    assert_int_equal(atomic_load(&r.fake->n_cells), 8);
    assert_int_equal(append(&r, 2, "EF"), WEIR_OK);
    assert_int_equal(chosen(&r), expected(&r, "abcdEF"));
    assert_int_equal(append(&r, 2, "G"), WEIR_NO_SPACE);
    for (int32_t s = 0; s < 2; s++) assert_true(r.ops->seq_remove(r.context, s, 0, -1));
    assert_int_equal(atomic_load(&r.fake->n_cells), 6);
    r.ops->clear(r.context);
    assert_int_equal(atomic_load(&r.fake->n_cells), 0);
    assert_int_equal(append(&r, 1, "0123456789"), WEIR_OK);
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static void test_lanes_are_apart(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "exact=1", 12, 3, WEIR_LAYOUT_PER_SLOT);
    assert_int_equal(append(&r, 0, "abcd"), WEIR_OK);
    assert_int_equal(append(&r, 0, "e"), WEIR_NO_SPACE);
    assert_int_equal(append(&r, 1, "wxyz"), WEIR_OK);
    assert_ok(r.ops->share(r.context, 0, 2, 3, error));
    assert_int_equal(atomic_load(&r.fake->n_cells), 11);
    assert_int_equal(append(&r, 2, "D"), WEIR_OK);
    assert_int_equal(chosen(&r), expected(&r, "abcD"));
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static void test_a_copy_between_lanes_waits_for_a_pass(void **state)
{
    (void)state;
    char bytes[256];
    rig r;
    rig_init(&r, "", 512, 4, WEIR_LAYOUT_PER_SLOT);
    append(&r, 0, "abcd");
    assert_ok(r.ops->share(r.context, 0, 1, 4, error));
    size_t size = r.ops->state_size(r.context, 1);
    assert_int_equal(r.ops->state_save(r.context, 1, bytes, sizeof bytes), size);
    assert_int_equal(take_faults(&r), WEIR__FAKE_STALE_READ);
    /* what was read is not what the lane will hold */
    assert_ok(r.ops->state_load(r.context, 2, bytes, size, error));
    append(&r, 2, "e");
    assert_int_not_equal(chosen(&r), expected(&r, "abcde"));

    assert_int_equal(r.ops->state_save(r.context, 1, bytes, sizeof bytes), size);
    assert_int_equal(take_faults(&r), 0);
    assert_ok(r.ops->share(r.context, 0, 3, 4, error));
    assert_int_equal(r.ops->state_load(r.context, 3, bytes, size, NULL), WEIR_BACKEND);
    assert_int_equal(r.ops->state_load(r.context, 0, bytes, size, NULL), WEIR_BACKEND);
    assert_int_equal(take_faults(&r), WEIR__FAKE_STALE_WRITE);
    assert_ok(r.ops->state_load(r.context, 2, bytes, size, error));
    append(&r, 2, "e");
    assert_int_equal(chosen(&r), expected(&r, "abcde"));
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static void test_misuse_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig r;
        rig_init(&r, "exact=1", 32, 2, layouts[i]);
        r.batch.n = 0;
        assert_int_equal(r.ops->decode(r.context, &r.batch, NULL), WEIR_BACKEND);
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_BATCH);
        static const struct {
            int32_t token, pos, seq;
            uint32_t fault;
        } bad[] = {
            {320, 0, 0, WEIR__FAKE_BAD_BATCH},  {-1, 0, 0, WEIR__FAKE_BAD_BATCH},
            {1, 0, 2, WEIR__FAKE_BAD_BATCH},    {1, 0, -1, WEIR__FAKE_BAD_BATCH},
            {1, 1, 0, WEIR__FAKE_BAD_POSITION}, {1, -1, 0, WEIR__FAKE_BAD_POSITION},
        };
        for (size_t k = 0; k < N_ELEMENTS(bad); k++) {
            r.batch.n = 0;
            weir__batch_add(&r.batch, bad[k].token, bad[k].pos, bad[k].seq, true);
            assert_int_equal(r.ops->decode(r.context, &r.batch, NULL), WEIR_BACKEND);
            assert_int_equal(take_faults(&r), bad[k].fault);
        }
        assert_null(r.ops->logits(r.context, -1));
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_ROW);
        append(&r, 0, "abc");
        assert_null(r.ops->logits(r.context, 1));
        assert_null(r.ops->logits(r.context, 3));
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_ROW);
        assert_non_null(r.ops->logits(r.context, 2));
        assert_int_equal(r.ops->share(r.context, 0, 1, 4, NULL), WEIR_BACKEND);
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_SHARE);
        assert_int_equal(r.ops->share(r.context, 0, 0, 1, NULL), WEIR_BACKEND);
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_SHARE);
        r.ops->seq_copy(r.context, 0, 0, 0, -1);
        assert_int_equal(take_faults(&r), WEIR__FAKE_BAD_SHARE);
        rig_fini(&r);
    }
}

static void test_recurrent_memory_cannot_be_cut(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, "recurrent=1", 256, 3, WEIR_LAYOUT_UNIFIED);
    assert_true(r.model->info.is_recurrent);
    append(&r, 0, "abcd");
    assert_false(r.ops->seq_remove(r.context, 0, 2, -1));
    assert_false(r.ops->seq_remove(r.context, 0, 0, 2));
    assert_int_equal(r.ops->seq_pos_max(r.context, 0), 3);
    assert_true(r.ops->seq_remove(r.context, 0, 4, -1));
    assert_int_equal(r.ops->share(r.context, 0, 1, 3, NULL), WEIR_UNSUPPORTED);
    assert_int_equal(r.ops->share(r.context, 0, 1, 4, NULL), WEIR_OK);
    assert_true(r.ops->seq_remove(r.context, 0, 0, -1));
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

/* A pass lets go of what the token after the sequence's last one does not attend to, so that each of its own
 * tokens but the first can be cut off again. */
static void test_a_window_holds_what_the_last_pass_may_lose(void **state)
{
    (void)state;
    rig r;
    for (int lanes = 0; lanes < 2; lanes++) {
        rig_init(&r, "n_swa=4", 512, 2, lanes ? WEIR_LAYOUT_PER_SLOT : WEIR_LAYOUT_UNIFIED);
        assert_int_equal(r.model->info.n_swa, 4);
        append(&r, 0, "abcdefghij");
        assert_true(r.ops->seq_remove(r.context, 0, 1, -1)); /* computed in one pass: all is there */
        append(&r, 0, "bcdefghij");
        append(&r, 0, "KLM");
        assert_false(r.ops->seq_remove(r.context, 0, 9, -1)); /* position 6 would be needed */
        assert_int_equal(r.ops->share(r.context, 0, 1, 9, NULL), WEIR_UNSUPPORTED);
        assert_false(r.ops->seq_copy(r.context, 0, 1, 0, 9));
        assert_int_equal(r.ops->seq_pos_max(r.context, 0), 12);
        assert_int_equal(r.ops->seq_pos_max(r.context, 1), -1);
        assert_ok(r.ops->share(r.context, 0, 1, 11, error));
        append(&r, 1, "x");
        assert_int_equal(chosen(&r), expected(&r, "abcdefghijKx"));
        assert_true(r.ops->seq_remove(r.context, 0, 13, -1));
        assert_true(
            r.ops->seq_remove(r.context, 0, lanes ? 10 : 13, -1)); /* in a pool that pass took cells */
        append(&r, 0, "k");
        assert_false(r.ops->seq_remove(r.context, 0, lanes ? 9 : 12, -1));
        assert_true(r.ops->seq_remove(r.context, 0, 0, -1));
        append(&r, 0, "abcdef");
        assert_true(r.ops->seq_remove(r.context, 0, 1, -1));
        assert_int_equal(take_faults(&r), 0);
        rig_fini(&r);
    }
}

static void test_a_part_that_is_not_loaded_leaves_nothing(void **state)
{
    (void)state;
    static const char *const kinds[] = {"exact=1,recurrent=1", "exact=1,hybrid=1", "exact=1,n_swa=4"};
    for (size_t i = 0; i < N_ELEMENTS(kinds) * N_ELEMENTS(layouts); i++) {
        rig r;
        char part[64];
        rig_init(&r, kinds[i / 2], 64, 2, layouts[i % 2]);
        append(&r, 0, "abcd");
        size_t size = r.ops->part_size(r.context, 0);
        assert_in_range(size, 1, sizeof part);
        assert_int_equal(r.ops->part_save(r.context, 0, part, size), size);
        append(&r, 0, "efgh");
        assert_ok(r.ops->part_load(r.context, 0, 4, part, size, error));
        assert_int_equal(r.ops->seq_pos_max(r.context, 0), 3);
        append(&r, 0, "efgh");
        atomic_store(&r.fake->fail_part_load, true);
        assert_int_equal(r.ops->part_load(r.context, 0, 4, part, size, NULL), WEIR_BACKEND);
        atomic_store(&r.fake->fail_part_load, false);
        assert_int_equal(r.ops->seq_pos_max(r.context, 0), -1);
        assert_int_equal(atomic_load(&r.fake->n_cells), 0);
        append(&r, 0, "xy");
        assert_int_equal(chosen(&r), expected(&r, "xy"));
        assert_int_equal(take_faults(&r), 0);
        rig_fini(&r);
    }
}

/* ---- A random walk beside a naive model ----------------------------------------------------------- */

#define WALK_SEQS  4
#define WALK_CELLS 24

typedef struct naive {
    int32_t n, token[WALK_CELLS], pos[WALK_CELLS];
    int32_t id[WALK_CELLS]; /* of the decode that made the entry: equal ids are one cell of the pool */
} naive;

static uint64_t walk_state;

static int32_t below(int32_t n)
{
    walk_state ^= walk_state >> 12;
    walk_state ^= walk_state << 25;
    walk_state ^= walk_state >> 27;
    return (int32_t)((walk_state * UINT64_C(2685821657736338717) >> 33) % (uint64_t)n);
}

static void naive_remove(naive *seq, int32_t from, int32_t to)
{
    int32_t n = 0;
    for (int32_t i = 0; i < seq->n; i++) {
        if (seq->pos[i] >= from && (to < 0 || seq->pos[i] < to)) continue;
        seq->token[n] = seq->token[i];
        seq->pos[n] = seq->pos[i];
        seq->id[n++] = seq->id[i];
    }
    seq->n = n;
}

static int32_t naive_cells(const naive *seqs, bool unified)
{
    int32_t n = 0;
    for (int32_t s = 0; s < WALK_SEQS; s++)
        for (int32_t i = 0; i < seqs[s].n; i++) {
            bool counted = false;
            for (int32_t t = 0; unified && t < s; t++)
                for (int32_t k = 0; k < seqs[t].n; k++) counted |= seqs[t].id[k] == seqs[s].id[i];
            n += !counted;
        }
    return n;
}

static void walk_decode(rig *r, naive *seqs, bool unified, int32_t *next_id)
{
    naive after[WALK_SEQS];
    int32_t row_seq[WALK_CELLS], n = 1 + below(5);
    bool full = false;
    memcpy(after, seqs, sizeof after);
    r->batch.n = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t s = below(WALK_SEQS), token = below(256);
        naive *seq = &after[s];
        int32_t pos = seq->n > 0 ? seq->pos[seq->n - 1] + 1 : 0;
        if (seq->n == r->info.n_ctx_seq) {
            full = true;
            break;
        }
        weir__batch_add(&r->batch, token, pos, s, true);
        row_seq[i] = s;
        seq->token[seq->n] = token;
        seq->pos[seq->n] = pos;
        seq->id[seq->n++] = (*next_id)++;
    }
    if (full) return;
    full = unified && naive_cells(after, true) > r->info.n_ctx;
    assert_int_equal(r->ops->decode(r->context, &r->batch, NULL), full ? WEIR_NO_SPACE : WEIR_OK);
    if (full) return;
    memcpy(seqs, after, sizeof after);
    /* the last row of each sequence sees all of it */
    for (int32_t i = n - 1, seen = 0; i >= 0; i--) {
        if ((seen & 1 << row_seq[i]) != 0) continue;
        seen |= 1 << row_seq[i];
        const naive *seq = &seqs[row_seq[i]];
        assert_int_equal(argmax(r->ops->logits(r->context, i), 320),
                         weir__fake_next(r->model, seq->token, seq->n));
    }
}

static void walk_share(rig *r, naive *seqs, int32_t *next_id, bool unified)
{
    int32_t from = below(WALK_SEQS), to = (from + 1 + below(WALK_SEQS - 1)) % WALK_SEQS;
    int32_t whole = 0;
    while (whole < seqs[from].n && seqs[from].pos[whole] == whole) whole++;
    int32_t n = below(whole + 1);
    if (below(2) == 0) {
        assert_ok(r->ops->share(r->context, from, to, n, error));
        seqs[to] = seqs[from];
        seqs[to].n = n;
    } else {
        int32_t first = below(WALK_CELLS), last = first + below(WALK_CELLS);
        r->ops->seq_copy(r->context, from, to, first, last);
        seqs[to] = seqs[from];
        naive_remove(&seqs[to], 0, first);
        naive_remove(&seqs[to], last, -1);
    }
    for (int32_t i = 0; !unified && i < seqs[to].n; i++) seqs[to].id[i] = (*next_id)++;
}

static void walk_state_io(rig *r, naive *seqs, int32_t *next_id)
{
    char bytes[1024];
    int32_t from = below(WALK_SEQS), to = below(WALK_SEQS);
    size_t n = r->ops->state_save(r->context, from, bytes, sizeof bytes);
    assert_int_equal(n, r->ops->state_size(r->context, from));
    naive saved = seqs[from], after[WALK_SEQS];
    memcpy(after, seqs, sizeof after);
    after[to].n = 0;
    bool fits = r->info.layout == WEIR_LAYOUT_PER_SLOT || naive_cells(after, true) + saved.n <= r->info.n_ctx;
    assert_int_equal(r->ops->state_load(r->context, to, bytes, n, NULL), fits ? WEIR_OK : WEIR_NO_SPACE);
    if (!fits) return;
    seqs[to] = saved;
    for (int32_t i = 0; i < saved.n; i++) seqs[to].id[i] = (*next_id)++;
}

static void walk(weir_layout layout, int steps)
{
    rig r;
    naive seqs[WALK_SEQS] = {0};
    int32_t next_id = 0;
    bool unified = layout == WEIR_LAYOUT_UNIFIED, copying = false;
    rig_init(&r, "exact=1", unified ? WALK_CELLS : WALK_SEQS * WALK_CELLS, WALK_SEQS, layout);
    for (int step = 0; step < steps; step++) {
        int32_t s = below(WALK_SEQS);
        switch (below(10)) {
        case 0:
        case 1: {
            int32_t from = below(WALK_CELLS), to = below(3) == 0 ? -1 : from + below(WALK_CELLS);
            assert_true(r.ops->seq_remove(r.context, s, from, to));
            naive_remove(&seqs[s], from, to);
            break;
        }
        case 2:
            walk_share(&r, seqs, &next_id, unified);
            copying = !unified;
            break;
        case 3:
            if (!copying) walk_state_io(&r, seqs, &next_id);
            break;
        case 4:
            if (below(8) != 0) break;
            for (int32_t i = 0; i < WALK_SEQS; i++) {
                if (i == s) continue;
                assert_true(r.ops->seq_remove(r.context, i, 0, -1));
                seqs[i].n = 0;
            }
            break;
        case 5:
            if (below(16) != 0) break;
            r.ops->clear(r.context);
            memset(seqs, 0, sizeof seqs);
            copying = false;
            break;
        default: {
            uint64_t passes = atomic_load(&r.fake->n_passes);
            walk_decode(&r, seqs, unified, &next_id);
            if (atomic_load(&r.fake->n_passes) > passes) copying = false;
        }
        }
        assert_int_equal(atomic_load(&r.fake->n_cells), naive_cells(seqs, unified));
        for (int32_t i = 0; i < WALK_SEQS; i++)
            assert_int_equal(r.ops->seq_pos_max(r.context, i),
                             seqs[i].n > 0 ? seqs[i].pos[seqs[i].n - 1] : -1);
    }
    assert_int_equal(take_faults(&r), 0);
    rig_fini(&r);
}

static void test_random_walk_beside_a_naive_memory(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        walk_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        walk(WEIR_LAYOUT_UNIFIED, 1000);
        walk(WEIR_LAYOUT_PER_SLOT, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_pool_runs_out_and_stays_as_it_was, nothing_left),
        cmocka_unit_test_teardown(test_lanes_are_apart, nothing_left),
        cmocka_unit_test_teardown(test_a_copy_between_lanes_waits_for_a_pass, nothing_left),
        cmocka_unit_test_teardown(test_misuse_is_seen, nothing_left),
        cmocka_unit_test_teardown(test_recurrent_memory_cannot_be_cut, nothing_left),
        cmocka_unit_test_teardown(test_a_window_holds_what_the_last_pass_may_lose, nothing_left),
        cmocka_unit_test_teardown(test_a_part_that_is_not_loaded_leaves_nothing, nothing_left),
        cmocka_unit_test_teardown(test_random_walk_beside_a_naive_memory, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
