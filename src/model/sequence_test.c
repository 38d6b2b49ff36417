/* sequence_test.c: sequences that are cut, copied, kept and saved, beside what the fake computes of their
 * texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/model.h"

static const int32_t abcdef[] = {'a', 'b', 'c', 'd', 'e', 'f'};

static const weir_layout layouts[] = {WEIR_LAYOUT_UNIFIED, WEIR_LAYOUT_PER_SLOT};

/* Adds a token where the sequence ends and returns the next one. */
static int32_t follow(weir_context *context, weir_sampler *sampler, int32_t seq, int32_t token)
{
    int32_t next = -1;
    assert_ok(weir_decode_token(context, token, weir_sequence_pos_max(context, seq) + 1, seq, error));
    assert_ok(weir_sample(sampler, context, &next, error));
    return next;
}

static int32_t after(const weir_model *model, const char *text)
{
    int32_t history[32], n = 0;
    for (; text[n] != '\0'; n++) history[n] = (unsigned char)text[n];
    return weir__fake_next(model, history, n);
}

typedef struct rig {
    weir_model *model;
    weir_context *context;
    weir_sampler *greedy;
} rig;

/* Sequence 0 holds "abcdef". */
static rig rig_make(const char *options, weir_layout layout)
{
    rig r = {.model = fake_load(options)};
    r.context = fake_context(r.model, 1024, 4, layout);
    r.greedy = fake_greedy(r.model);
    assert_ok(weir_prefill(r.context, abcdef, 6, 0, NULL, error));
    return r;
}

static void rig_end(rig *r)
{
    weir_sampler_destroy(r->greedy);
    weir_context_destroy(r->context);
    fake_release(r->model);
}

/* ---- Cut, copy, keep ------------------------------------------------------------------------------ */

static void test_remove_cuts_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_make("", layouts[i]);
        assert_ok(weir_sequence_remove(r.context, 0, 4, -1, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 0), 3);
        assert_int_equal(follow(r.context, r.greedy, 0, 'x'), after(r.model, "abcdx"));
        assert_ok(weir_sequence_remove(r.context, 0, 1, 3, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 0), 4);
        assert_int_equal(follow(r.context, r.greedy, 0, 'y'), after(r.model, "adxy"));
        assert_ok(weir_sequence_remove(r.context, 0, 100, 200, error));
        assert_ok(weir_sequence_remove(r.context, 0, 2, 2, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 0), 5);
        assert_ok(weir_sequence_remove(r.context, 0, -5, 1, error));
        assert_int_equal(follow(r.context, r.greedy, 0, 'z'), after(r.model, "dxyz"));
        assert_ok(weir_sequence_remove(r.context, 0, -1, -1, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 0), -1);
        assert_int_equal(atomic_load(&weir__fake_of(r.model)->n_cells), 0);
        rig_end(&r);
    }
}

static void test_copy_replaces_what_was_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_make("", layouts[i]);
        assert_ok(weir_prefill(r.context, abcdef + 2, 4, 1, NULL, error));
        assert_ok(weir_sequence_copy(r.context, 0, 1, -1, 3, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 1), 2);
        assert_int_equal(follow(r.context, r.greedy, 1, 'x'), after(r.model, "abcx"));
        assert_int_equal(follow(r.context, r.greedy, 0, 'g'), after(r.model, "abcdefg"));
        assert_ok(weir_sequence_copy(r.context, 0, 2, 0, -1, error));
        assert_int_equal(follow(r.context, r.greedy, 2, 'h'), after(r.model, "abcdefgh"));
        assert_ok(weir_sequence_copy(r.context, 3, 2, -1, -1, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 2), -1);
        rig_end(&r);
    }
}

static void test_keep_forgets_the_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_make("", layouts[i]);
        assert_ok(weir_prefill(r.context, abcdef, 2, 1, NULL, error));
        assert_ok(weir_sequence_copy(r.context, 0, 2, -1, -1, error));
        assert_ok(weir_sequence_keep(r.context, 1, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 0), -1);
        assert_int_equal(weir_sequence_pos_max(r.context, 1), 1);
        assert_int_equal(weir_sequence_pos_max(r.context, 2), -1);
        assert_int_equal(atomic_load(&weir__fake_of(r.model)->n_cells), 2);
        rig_end(&r);
    }
}

static void test_memory_that_cannot_be_cut(void **state)
{
    (void)state;
    rig r = rig_make("recurrent=1", WEIR_LAYOUT_UNIFIED);
    assert_refused(weir_sequence_remove(r.context, 0, 3, -1, error), WEIR_UNSUPPORTED, "from");
    assert_refused(weir_sequence_copy(r.context, 0, 1, 0, 3, error), WEIR_UNSUPPORTED, "to");
    assert_refused(weir_sequence_copy(r.context, 0, 1, 1, -1, error), WEIR_UNSUPPORTED, "to");
    assert_int_equal(weir_sequence_pos_max(r.context, 0), 5);
    assert_int_equal(weir_sequence_pos_max(r.context, 1), -1);
    assert_ok(weir_sequence_remove(r.context, 0, 6, -1, error));
    assert_ok(weir_sequence_copy(r.context, 0, 1, 0, 6, error));
    assert_int_equal(follow(r.context, r.greedy, 1, 'x'), after(r.model, "abcdefx"));
    assert_ok(weir_sequence_remove(r.context, 0, -1, -1, error));
    rig_end(&r);
}

static void test_bad_arguments_are_named(void **state)
{
    (void)state;
    char bytes[256];
    size_t length;
    rig r = rig_make("", WEIR_LAYOUT_UNIFIED);
    static const int32_t bad[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        assert_refused(weir_sequence_remove(r.context, bad[i], 0, -1, error), WEIR_INVALID, "seq");
        assert_refused(weir_sequence_copy(r.context, bad[i], 0, 0, -1, error), WEIR_INVALID, "seq");
        assert_refused(weir_sequence_copy(r.context, 0, bad[i], 0, -1, error), WEIR_INVALID, "to_seq");
        assert_refused(weir_sequence_keep(r.context, bad[i], error), WEIR_INVALID, "seq");
        assert_refused(weir_state_save(r.context, bad[i], bytes, 256, &length, error), WEIR_INVALID, "seq");
        assert_refused(weir_state_load(r.context, bad[i], bytes, 256, error), WEIR_INVALID, "seq");
        assert_int_equal(weir_sequence_pos_max(r.context, bad[i]), -1);
    }
    assert_int_equal(weir_sequence_pos_max(NULL, 0), -1);
    assert_refused(weir_sequence_remove(NULL, 0, 0, -1, error), WEIR_INVALID, "context");
    assert_refused(weir_sequence_copy(NULL, 0, 1, 0, -1, error), WEIR_INVALID, "context");
    assert_refused(weir_sequence_keep(NULL, 0, error), WEIR_INVALID, "context");
    assert_refused(weir_state_save(NULL, 0, bytes, 256, &length, error), WEIR_INVALID, "context");
    assert_refused(weir_state_load(NULL, 0, bytes, 256, error), WEIR_INVALID, "context");
    assert_refused(weir_sequence_remove(r.context, 0, 3, 2, error), WEIR_INVALID, "to");
    assert_refused(weir_sequence_copy(r.context, 0, 1, 3, 2, error), WEIR_INVALID, "to");
    assert_refused(weir_sequence_copy(r.context, 1, 1, 0, -1, error), WEIR_INVALID, "to_seq");
    assert_refused(weir_state_save(r.context, 0, bytes, 256, NULL, error), WEIR_INVALID, "length");
    assert_refused(weir_state_save(r.context, 0, NULL, 256, &length, error), WEIR_INVALID, "bytes");
    assert_refused(weir_state_load(r.context, 0, NULL, 256, error), WEIR_INVALID, "bytes");
    assert_int_equal(weir_sequence_pos_max(r.context, 0), 5);
    rig_end(&r);
}

/* ---- State ---------------------------------------------------------------------------------------- */

static size_t save(weir_context *context, int32_t seq, char *bytes, size_t capacity)
{
    size_t length = 0;
    assert_ok(weir_state_save(context, seq, bytes, capacity, &length, error));
    return length;
}

static void test_a_state_comes_back(void **state)
{
    (void)state;
    char bytes[512];
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_make("", layouts[i]);
        size_t length = save(r.context, 0, bytes, sizeof bytes);
        assert_ok(weir_state_load(r.context, 3, bytes, length, error));
        assert_int_equal(follow(r.context, r.greedy, 3, 'x'), after(r.model, "abcdefx"));
        /* over a sequence's tokens, and into another context of the same kind */
        assert_ok(weir_state_load(r.context, 3, bytes, length, error));
        assert_int_equal(follow(r.context, r.greedy, 3, 'y'), after(r.model, "abcdefy"));
        weir_context *other = fake_context(r.model, 1024, 4, layouts[i]);
        assert_ok(weir_state_load(other, 1, bytes, length, error));
        assert_int_equal(follow(other, r.greedy, 1, 'z'), after(r.model, "abcdefz"));
        weir_context_destroy(other);

        length = save(r.context, 2, bytes, sizeof bytes);
        assert_ok(weir_state_load(r.context, 3, bytes, length, error));
        assert_int_equal(weir_sequence_pos_max(r.context, 3), -1);
        rig_end(&r);
    }
}

static void test_how_long_a_state_is(void **state)
{
    (void)state;
    char bytes[512];
    size_t need = 0, length = 0;
    rig r = rig_make("", WEIR_LAYOUT_UNIFIED);
    assert_refused(weir_state_save(r.context, 0, NULL, 0, &need, error), WEIR_TOO_LONG, "capacity");
    assert_true(need > 6 * sizeof(int32_t));
    assert_refused(weir_state_save(r.context, 0, bytes, need - 1, &length, error), WEIR_TOO_LONG, "capacity");
    assert_int_equal(length, need);
    assert_ok(weir_state_save(r.context, 0, bytes, need, &length, error));
    assert_int_equal(length, need);
    rig_end(&r);
}

/* Every damaged byte and every missing one is noticed, and the sequence stays as it was. */
static void test_damage_is_noticed(void **state)
{
    (void)state;
    char bytes[513], damaged[513];
    rig r = rig_make("", WEIR_LAYOUT_UNIFIED);
    size_t length = save(r.context, 0, bytes, sizeof bytes - 1);
    assert_ok(weir_prefill(r.context, abcdef + 3, 3, 1, NULL, error));
    for (size_t i = 0; i < length; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(damaged, bytes, length);
            damaged[i] ^= (char)(1 << bit);
            assert_int_equal(weir_state_load(r.context, 1, damaged, length, NULL), WEIR_FORMAT);
        }
        assert_int_equal(weir_state_load(r.context, 1, bytes, i, NULL), WEIR_FORMAT);
    }
    bytes[length] = 0;
    assert_refused(weir_state_load(r.context, 1, bytes, length + 1, error), WEIR_FORMAT, "length");
    assert_refused(weir_state_load(r.context, 1, bytes, 0, error), WEIR_FORMAT, "bytes");
    assert_int_equal(follow(r.context, r.greedy, 1, 'x'), after(r.model, "defx"));
    rig_end(&r);
}

static void test_a_state_fits_its_own_kind_alone(void **state)
{
    (void)state;
    char bytes[512];
    rig r = rig_make("", WEIR_LAYOUT_UNIFIED);
    size_t length = save(r.context, 0, bytes, sizeof bytes);
    weir_model *other = fake_load("seed=1");
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 1024;
    params.n_seq_max = 4;
    params.layout = WEIR_LAYOUT_UNIFIED;
    for (int i = 0; i < 6; i++) {
        weir_context *context = NULL;
        weir_context_params p = params;
        if (i == 1) p.layout = WEIR_LAYOUT_PER_SLOT;
        if (i == 2) p.n_ctx = 2048;
        if (i == 3) p.n_seq_max = 5;
        if (i == 4) p.type_k = WEIR_KV_Q8_0;
        if (i == 5) p.type_v = WEIR_KV_F32;
        assert_ok(weir_context_create(i == 0 ? other : r.model, &p, &context, error));
        assert_refused(weir_state_load(context, 0, bytes, length, error), WEIR_FORMAT, "bytes");
        weir_context_destroy(context);
    }
    fake_release(other);
    rig_end(&r);
}

static void test_a_state_includes_copies_that_wait(void **state)
{
    (void)state;
    char bytes[512];
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_make("", layouts[i]);
        assert_ok(weir_sequence_copy(r.context, 0, 1, -1, -1, error));
        size_t length = save(r.context, 1, bytes, sizeof bytes);
        assert_ok(weir_state_load(r.context, 2, bytes, length, error));
        assert_int_equal(follow(r.context, r.greedy, 2, 'x'), after(r.model, "abcdefx"));
        /* nor does a copy overwrite a loaded state, or copy it */
        assert_ok(weir_prefill(r.context, abcdef, 2, 0, NULL, error));
        assert_ok(weir_sequence_copy(r.context, 0, 1, -1, -1, error));
        assert_ok(weir_state_load(r.context, 1, bytes, length, error));
        assert_int_equal(follow(r.context, r.greedy, 1, 'y'), after(r.model, "abcdefy"));
        assert_ok(weir_sequence_copy(r.context, 0, 1, -1, -1, error));
        assert_ok(weir_state_load(r.context, 0, bytes, length, error));
        assert_int_equal(follow(r.context, r.greedy, 1, 'z'), after(r.model, "abcdefabz"));
        rig_end(&r);
    }
}

static void test_a_backend_that_fails(void **state)
{
    (void)state;
    char bytes[512];
    size_t length = 7;
    rig r = rig_make("", WEIR_LAYOUT_UNIFIED);
    weir__fake *fake = weir__fake_of(r.model);
    atomic_store(&fake->fail_state_save, true);
    assert_refused(weir_state_save(r.context, 0, bytes, sizeof bytes, &length, error), WEIR_BACKEND, "seq");
    assert_int_equal(length, 7);
    atomic_store(&fake->fail_state_save, false);
    length = save(r.context, 0, bytes, sizeof bytes);
    atomic_store(&fake->fail_state_load, true);
    assert_refused(weir_state_load(r.context, 1, bytes, length, error), WEIR_BACKEND, "");
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_remove_cuts_anywhere, nothing_left),
        cmocka_unit_test_teardown(test_copy_replaces_what_was_there, nothing_left),
        cmocka_unit_test_teardown(test_keep_forgets_the_others, nothing_left),
        cmocka_unit_test_teardown(test_memory_that_cannot_be_cut, nothing_left),
        cmocka_unit_test_teardown(test_bad_arguments_are_named, nothing_left),
        cmocka_unit_test_teardown(test_a_state_comes_back, nothing_left),
        cmocka_unit_test_teardown(test_how_long_a_state_is, nothing_left),
        cmocka_unit_test_teardown(test_damage_is_noticed, nothing_left),
        cmocka_unit_test_teardown(test_a_state_fits_its_own_kind_alone, nothing_left),
        cmocka_unit_test_teardown(test_a_state_includes_copies_that_wait, nothing_left),
        cmocka_unit_test_teardown(test_a_backend_that_fails, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
