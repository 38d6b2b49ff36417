/* memory_test.c: sequences of the real model: shared, cut, copied, saved. Results are compared to the
 * bit, inside the region where ggml's attention does not depend on the batch (under 512 cells, under 60
 * rows).
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/pages.h"
#include "support/effort.h"
#include "support/llama.h"

#define TEXT "The river flows through the old town, past the mill and under three bridges."

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* The logits after the first n tokens of TEXT and then `next`, computed alone. */
static float *expected(int32_t n, int32_t next, weir_layout layout)
{
    rig r;
    int32_t ids[64];
    assert_true((int32_t)tokens_of(TEXT, false, ids, 64) >= n);
    rig_init(&r, 1024, 4, layout);
    if (n > 0) assert_ok(feed(&r, 0, ids, (size_t)n, error));
    assert_ok(feed(&r, 0, &next, 1, error));
    float *row = row_copy(&r, -1);
    rig_fini(&r);
    return row;
}

static void shared_is_as_computed(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t ids[64];
        size_t n = tokens_of(TEXT, false, ids, 64);
        float *whole = expected((int32_t)n, 700, layouts[l]);
        float *half = expected(9, 700, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        assert_ok(feed(&r, 1, ids, n, error));
        feed_text(&r, 3, "something else that has to go");

        assert_ok(ops->share(r.context, 1, 3, (int32_t)n, error));
        assert_ok(ops->share(r.context, 1, 0, 9, error));
        assert_ok(ops->share(r.context, 0, 2, 9, error)); /* a copy of a copy that is still to be made */
        assert_int_equal(ops->seq_pos_max(r.context, 3), n - 1);
        assert_int_equal(ops->seq_pos_max(r.context, 0), 8);
        check_next(&r, 3, 700, whole);
        check_next(&r, 0, 700, half);
        check_next(&r, 2, 700, half);
        check_next(&r, 1, 700, whole);

        assert_ok(ops->share(r.context, 1, 1, 9, error)); /* with itself: cut */
        assert_int_equal(ops->seq_pos_max(r.context, 1), 8);
        check_next(&r, 1, 700, half);
        assert_ok(ops->share(r.context, 1, 3, 0, error));
        assert_int_equal(ops->seq_pos_max(r.context, 3), -1);
        assert_refused(ops->share(r.context, 1, 3, 11, error), WEIR_INVALID, "n");
        assert_refused(ops->share(r.context, 3, 1, 1, error), WEIR_INVALID, "n");
        assert_int_equal(ops->seq_pos_max(r.context, 1), 9);
        free(half);
        free(whole);
        rig_fini(&r);
    }
}

static void cut_and_gone_on(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        float *want = expected(5, 800, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        feed_text(&r, 2, TEXT);
        int32_t last = ops->seq_pos_max(r.context, 2);
        assert_true(ops->seq_remove(r.context, 2, last + 1, -1)); /* nothing is there */
        assert_true(ops->seq_remove(r.context, 2, 7, 7));
        assert_int_equal(ops->seq_pos_max(r.context, 2), last);
        assert_true(ops->seq_remove(r.context, 2, 5, -1));
        assert_int_equal(ops->seq_pos_max(r.context, 2), 4);
        check_next(&r, 2, 800, want);
        assert_true(ops->seq_remove(r.context, 2, 0, 6));
        assert_int_equal(ops->seq_pos_max(r.context, 2), -1);
        assert_true(ops->seq_remove(r.context, 2, 0, -1));
        free(want);
        rig_fini(&r);
    }
}

static void copied_and_kept(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        float *want = expected(6, 900, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        feed_text(&r, 0, TEXT);
        feed_text(&r, 1, "gone");
        ops->seq_copy(r.context, 0, 1, 0, 6);
        ops->seq_copy(r.context, 0, 3, 4, 6);  /* without its beginning */
        ops->seq_copy(r.context, 0, 0, 0, 2);  /* with itself: nothing */
        ops->seq_copy(r.context, 2, 3, 0, -1); /* of nothing */
        assert_int_equal(ops->seq_pos_max(r.context, 1), 5);
        assert_int_equal(ops->seq_pos_max(r.context, 3), -1);
        assert_true(ops->seq_pos_max(r.context, 0) > 6);
        check_next(&r, 1, 900, want);
        ops->seq_copy(r.context, 0, 3, 4, 6);
        assert_int_equal(ops->seq_pos_max(r.context, 3), 5);
        for (int32_t s = 0; s < 4; s++) assert_true(s == 1 || ops->seq_remove(r.context, s, 0, -1));
        for (int32_t s = 0; s < 4; s++) assert_int_equal(ops->seq_pos_max(r.context, s), s == 1 ? 6 : -1);
        ops->clear(r.context);
        assert_int_equal(ops->seq_pos_max(r.context, 1), -1);
        free(want);
        rig_fini(&r);
    }
}

static size_t save(rig *r, int32_t seq, unsigned char **bytes)
{
    size_t size = ops->state_size(r->context, seq);
    assert_true(size > 0);
    assert_ok(ops->settle(r->context, error));
    *bytes = malloc(size);
    assert_int_equal(ops->state_save(r->context, seq, *bytes, size), size);
    assert_int_equal(ops->state_save(r->context, seq, *bytes, size - 1), 0);
    return size;
}

static void saved_is_as_computed(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r, other;
        int32_t ids[64];
        unsigned char *bytes;
        size_t n = tokens_of(TEXT, false, ids, 64);
        float *want = expected((int32_t)n, 700, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        assert_ok(feed(&r, 2, ids, n, error));
        size_t size = save(&r, 2, &bytes);
        feed_text(&r, 0, "in the way");
        assert_ok(ops->state_load(r.context, 0, bytes, size, error));
        assert_int_equal(ops->seq_pos_max(r.context, 0), n - 1);
        check_next(&r, 0, 700, want);
        check_next(&r, 2, 700, want);
        for (size_t to = 0; to < 2; to++) { /* into any layout and any number of sequences */
            float *want_there = expected((int32_t)n, 700, layouts[to]);
            rig_init(&other, 1024, 4 + 2 * (int32_t)to, layouts[to]);
            assert_ok(ops->state_load(other.context, 3, bytes, size, error));
            check_next(&other, 3, 700, want_there);
            rig_fini(&other);
            free(want_there);
        }
        free(bytes);
        free(want);
        rig_fini(&r);
    }
}

/* A copy between lanes waits for the next pass; saving or loading before it must not meet the old cells. */
static void saved_and_loaded_while_a_copy_waits(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t ids[64];
        unsigned char *bytes, *others;
        size_t n = tokens_of(TEXT, false, ids, 64);
        float *want = expected(9, 700, layouts[l]);
        float *want_other = expected((int32_t)n, 700, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        assert_ok(feed(&r, 0, ids, n, error));
        feed_text(&r, 1, "old cells that are not to be read, and some more of them");
        size_t other_size = save(&r, 0, &others);

        assert_ok(ops->share(r.context, 0, 1, 9, error));
        size_t size = save(&r, 1, &bytes);
        ops->clear(r.context);
        assert_ok(ops->state_load(r.context, 2, bytes, size, error));
        check_next(&r, 2, 700, want);

        ops->clear(r.context);
        assert_ok(feed(&r, 0, ids, 9, error));
        assert_ok(ops->share(r.context, 0, 1, 9, error));
        assert_ok(ops->state_load(r.context, 1, others, other_size, error));
        check_next(&r, 1, 700, want_other);
        free(others);
        free(bytes);
        free(want_other);
        free(want);
        rig_fini(&r);
    }
}

/* Several copies wait: into one lane from several, from one that is free by then, of different lengths. */
static void copies_that_wait(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t ids[64];
        size_t n = tokens_of(TEXT, false, ids, 64);
        float *whole = expected((int32_t)n, 700, layouts[l]);
        float *half = expected(9, 700, layouts[l]);
        rig_init(&r, 1024, 4, layouts[l]);
        feed_text(&r, 3, "something else that has to go, and that is longer than what comes in its place");
        feed_text(&r, 0, "and again something else");
        assert_ok(feed(&r, 1, ids, n, error));
        assert_ok(ops->share(r.context, 1, 0, (int32_t)n, error));
        assert_ok(ops->share(r.context, 0, 2, (int32_t)n, error));
        assert_ok(ops->share(r.context, 1, 0, 3, error)); /* shorter, and after it was a source */
        assert_true(ops->seq_remove(r.context, 0, 0, -1));
        assert_ok(ops->share(r.context, 2, 3, 9, error));
        check_next(&r, 2, 700, whole);
        check_next(&r, 3, 700, half);
        assert_ok(ops->share(r.context, 1, 3, 9, error));
        check_next(&r, 1, 700, whole);
        check_next(&r, 3, 700, half);
        assert_ok(ops->share(r.context, 1, 0, (int32_t)n, error)); /* longer than those before */
        check_next(&r, 0, 700, whole);
        free(half);
        free(whole);
        rig_fini(&r);
    }
}

static void damaged_states_change_nothing(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        unsigned char *bytes;
        float *want = expected(9, 700, layouts[l]);
        int32_t ids[64];
        tokens_of(TEXT, false, ids, 64);
        rig_init(&r, 1024, 4, layouts[l]);
        feed_text(&r, 1, "The weather is fine.");
        size_t size = save(&r, 1, &bytes);
        assert_ok(feed(&r, 0, ids, 9, error));
        for (size_t length = 0; length < size; length += length < 64 ? 3 : size / 7) {
            assert_true(ops->state_load(r.context, 0, bytes, length, NULL) != WEIR_OK);
            assert_int_equal(ops->seq_pos_max(r.context, 0), 8);
        }
        /* another number of streams, of cells */
        for (size_t at = 8; at < 16; at += 4) {
            unsigned char was = bytes[at];
            bytes[at] = (unsigned char)(was + 1);
            weir_error why = {0};
            assert_true(ops->state_load(r.context, 0, bytes, size, &why) != WEIR_OK);
            assert_true(strlen(why.message) > 10);
            bytes[at] = was;
        }
        check_next(&r, 0, 700, want);
        free(bytes);
        free(want);
        rig_fini(&r);
    }
}

static void a_state_that_does_not_fit(void **state)
{
    (void)state;
    rig r;
    unsigned char *bytes;
    int32_t ids[150];
    for (int32_t i = 0; i < 150; i++) ids[i] = 500 + i;
    rig_init(&r, 256, 2, WEIR_LAYOUT_UNIFIED);
    assert_ok(feed(&r, 0, ids, 150, error));
    size_t size = save(&r, 0, &bytes);
    assert_ok(feed(&r, 1, ids, 20, error));
    assert_refused(ops->state_load(r.context, 1, bytes, size, error), WEIR_NO_SPACE, "");
    assert_int_equal(ops->seq_pos_max(r.context, 1), 19);
    assert_int_equal(ops->seq_pos_max(r.context, 0), 149);
    weir__mem_fail_after(0);
    assert_int_equal(ops->state_load(r.context, 1, bytes, size, NULL), WEIR_NO_MEMORY);
    weir__mem_fail_after(-1);
    assert_int_equal(ops->seq_pos_max(r.context, 1), 19);
    free(bytes);
    rig_fini(&r);
}

#ifdef __linux__
/* Bytes of this process that are there. */
static int64_t resident(void)
{
    unsigned long long size, n_pages;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &size, &n_pages), 2);
    fclose(file);
    return (int64_t)n_pages * sysconf(_SC_PAGESIZE);
}

/* A context takes memory for the cells that it uses, and for those that it does not yet use there is none for
 * others. */
static void cells_take_memory_as_they_are_used(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2; l++) {
        rig r;
        int32_t n_cells = 32768, n_used = EFFORT(1024, 320);
        int64_t cell = (int64_t)ops->cell_bytes(model, WEIR_KV_F16, WEIR_KV_F16), all = cell * n_cells;
        weir_context_params params = rig_params(n_cells, 64, layouts[l]);
        params.n_batch = params.n_ubatch = 64;
        int64_t before = resident();
        rig_init_with(&r, &params);
        int64_t made = resident();
        assert_true(made - before < all / 8);
        assert_true((int64_t)weir__pages_promised() > all - all / 8);
        int32_t seq = 0;
        for (int32_t n = 0; n < n_used; n += 64) {
            int32_t ids[64];
            for (int32_t i = 0; i < 64; i++) ids[i] = 500 + n + i;
            if (n % 256 == 0 && n > 0) seq++;
            assert_ok(feed(&r, seq, ids, 64, error));
        }
        assert_true(resident() - made > cell * n_used / 2);
        for (int32_t s = seq + 1; s < 64; s++) /* copies take no more */
            assert_ok(ops->share(r.context, 0, s, 16, error));
        feed_text(&r, 63, "and on");
        assert_true(resident() - made < all / 4);
        rig_fini(&r);
        assert_true(weir__pages_promised() == 0);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_is_as_computed),
        cmocka_unit_test(cut_and_gone_on),
        cmocka_unit_test(copied_and_kept),
        cmocka_unit_test(saved_is_as_computed),
        cmocka_unit_test(saved_and_loaded_while_a_copy_waits),
        cmocka_unit_test(copies_that_wait),
        cmocka_unit_test(damaged_states_change_nothing),
        cmocka_unit_test(a_state_that_does_not_fit),
#ifdef __linux__
        cmocka_unit_test(cells_take_memory_as_they_are_used),
#endif
    };
    return RUN_MODEL_TESTS(tests);
}
