/* adapter_test.c: adapters of the fake: what a context computes with, and what is freed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/adapter.h"

#include "support/model.h"

static int32_t said(weir_context *context)
{
    const float *logits = NULL;
    assert_ok(weir_logits(context, -1, &logits, error));
    int32_t best = 0;
    for (int32_t i = 1; i < 320; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void test_loads_and_counts(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    const weir__fake *fake = weir__fake_of(model);
    weir_adapter *a = NULL, *b = NULL;
    weir_adapter_info info = {.size = sizeof info}, other = {.size = sizeof other};
    assert_refused(weir_adapter_load(NULL, "fake:1", &a, error), WEIR_INVALID, "model");
    assert_refused(weir_adapter_load(model, "fake:1", NULL, error), WEIR_INVALID, "adapter");
    assert_refused(weir_adapter_load(model, NULL, &a, error), WEIR_INVALID, "path");
    assert_refused(weir_adapter_load(model, "", &a, error), WEIR_INVALID, "path");
    assert_refused(weir_adapter_load(model, "fake:x", &a, error), WEIR_NOT_FOUND, "path");
    assert_ok(weir_adapter_load(model, "fake:1", &a, error));
    assert_ok(weir_adapter_load(model, "fake:2", &b, error));
    assert_int_equal(weir_adapter_describe(a, &info), WEIR_OK);
    assert_int_equal(weir_adapter_describe(b, &other), WEIR_OK);
    assert_string_equal(info.path, "fake:1");
    assert_string_equal(info.name, "");
    assert_true(info.rank == 1 && info.n_weights == 1 && info.n_bytes > 0);
    assert_true(info.identity != other.identity);
    info.size = 1;
    assert_int_equal(weir_adapter_describe(a, &info), WEIR_INVALID);
    assert_int_equal(weir_adapter_describe(NULL, &other), WEIR_INVALID);
    weir_model_release(model); /* they hold it */
    assert_ptr_equal(weir_adapter_hold(a), a);
    weir_adapter_release(a);
    assert_int_equal(atomic_load(&fake->n_adapters), 2);
    weir_adapter_release(a);
    assert_int_equal(atomic_load(&fake->n_adapters), 1);
    weir_adapter_release(b);
    weir_adapter_release(NULL);
    assert_null(weir_adapter_hold(NULL));
}

static void test_a_context_has_what_was_set_last(void **state)
{
    (void)state;
    static const int32_t tokens[] = {'w', 'e', 'i', 'r'};
    weir_model *model = fake_load("");
    weir_adapter *adapter = NULL;
    assert_ok(weir_adapter_load(model, "fake:7", &adapter, error));
    weir_context *context = fake_context(model, 256, 1, WEIR_LAYOUT_UNIFIED);
    const weir_adapter_use whole = {adapter, 1.0f}, half = {adapter, 0.5f}, no = {NULL, 1.0f};
    int32_t plain = weir__fake_next(model, tokens, 4),
            with = weir__fake_next_adapted(model, &whole, 1, tokens, 4);
    assert_true(plain != with && with != weir__fake_next_adapted(model, &half, 1, tokens, 4));
    for (int round = 0; round < 3; round++) {
        assert_ok(weir_context_set_adapters(context, &whole, round != 1, error));
        assert_refused(weir_context_set_adapters(context, &no, 1, error), WEIR_INVALID, "adapters");
        assert_ok(weir_context_clear(context, error));
        assert_ok(weir_prefill(context, tokens, 4, 0, NULL, error));
        assert_int_equal(said(context), round != 1 ? with : plain);
    }
    assert_ok(weir_context_set_adapters(context, &half, 1, error));
    assert_ok(weir_context_set_adapters(context, &half, 1, error));
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_adapter_sets), 4);
    assert_refused(weir_context_set_adapters(NULL, &half, 1, error), WEIR_INVALID, "context");
    assert_refused(weir_context_set_adapters(context, &half, 9, error), WEIR_INVALID, "n_adapters");
    weir_adapter_release(adapter); /* the context holds it */
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_adapters), 1);
    weir_context_destroy(context);
    assert_int_equal(atomic_load(&weir__fake_of(model)->n_adapters), 0);
    fake_release(model);
}

/* Keys go into files: order and handles make no difference, contents and scales do. */
static void test_keys(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_adapter *a = NULL, *b = NULL, *again = NULL;
    assert_ok(weir_adapter_load(model, "fake:1", &a, error));
    assert_ok(weir_adapter_load(model, "fake:1", &again, error));
    assert_ok(weir_adapter_load(model, "fake:2", &b, error));
    const weir_adapter_use lists[][2] = {{{a, 1}, {b, 2}},     {{b, 2}, {again, 1}}, {{a, 2}, {b, 1}},
                                         {{a, 1}, {b, 0}},     {{a, 1}, {NULL, 0}},  {{b, 1}, {NULL, 0}},
                                         {{a, -1}, {NULL, 0}}, {{a, 0}, {NULL, 0}}};
    static const int same[] = {0, 0, 2, 3, 3, 5, 6, 7};
    uint64_t keys[N_ELEMENTS(lists)];
    for (size_t i = 0; i < N_ELEMENTS(lists); i++) {
        weir__adapters set;
        assert_ok(weir__adapters_take(&set, model, lists[i], lists[i][1].adapter != NULL ? 2 : 1, "", error));
        keys[i] = set.key;
        for (size_t k = 0; k < i; k++) assert_int_equal(keys[k] == keys[i], same[k] == same[i]);
        weir__adapters_fini(&set);
    }
    assert_int_equal(keys[7], 0);
    weir_adapter_release(a);
    weir_adapter_release(again);
    weir_adapter_release(b);
    weir_model_release(model);
}

static void test_without_memory(void **state)
{
    (void)state;
    weir_model *model = fake_load("");
    weir_adapter *adapter = NULL;
    int n = 0;
    for (;; n++) {
        weir__mem_fail_after(n);
        weir_status status = weir_adapter_load(model, "fake:1", &adapter, NULL);
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) break;
        assert_int_equal(status, WEIR_NO_MEMORY);
    }
    assert_true(n > 2);
    weir_adapter_release(adapter);
    weir_model_release(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_loads_and_counts, nothing_left),
        cmocka_unit_test_teardown(test_a_context_has_what_was_set_last, nothing_left),
        cmocka_unit_test_teardown(test_keys, nothing_left),
        cmocka_unit_test_teardown(test_without_memory, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
