/* weir_engine_estimate, compared with the allocations of engines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <weir/more.h>

#include "base/cpu.h"

static void compare(const char *path, weir_engine_params params)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_error error = {0};
    weir_engine_memory memory = {.size = sizeof memory};
    weir_engine_stats stats = {.size = sizeof stats};
    params.manual = true;
    assert_int_equal(weir_engine_estimate(path, NULL, &params, &memory, &error), WEIR_OK);
    assert_int_equal(weir_model_load(path, NULL, &model, &error), WEIR_OK);
    assert_int_equal(weir_engine_create(model, &params, &engine, &error), WEIR_OK);
    assert_int_equal(weir_engine_get_stats(engine, &stats), WEIR_OK);
    assert_int_equal(memory.n_slots, stats.n_slots);
    assert_int_equal(memory.n_ctx, stats.n_ctx);
    assert_int_equal(memory.n_kv, stats.n_kv);
    assert_int_equal(memory.layout, stats.layout);
    assert_true(memory.kv_bytes == stats.kv_bytes);
    weir_engine_destroy(engine);
    weir_model_release(model);
}

static void test_as_allotted(void **state)
{
    (void)state;
    weir_engine_params params = weir_engine_params_default();
    compare("fake:", params);
    params.n_slots = 3;
    params.n_ctx = 300;
    for (int layout = WEIR_LAYOUT_AUTO; layout <= WEIR_LAYOUT_PER_SLOT; layout++) {
        params.layout = (weir_layout)layout;
        compare("fake:", params);
    }
    params.n_kv = 512;
    compare("fake:", params);
    params.n_ctx = 0;
    params.type_k = WEIR_KV_Q8_0;
    compare("fake:n_ctx_train=1000", params);
}

/* Lanes of 128 bytes a cell take all the memory; the fake, which has less in a cell, can make the pool. */
static void test_pool_instead_of_lanes(void **state)
{
    (void)state;
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory memory = {.size = sizeof memory};
    weir_error error = {0};
    uint64_t cells = weir__cpu_memory_available() / 128;
    if (cells < 256 * 256) skip();
    params.n_slots = 1;
    params.cache_sequences = 255;
    params.n_ctx = (int32_t)(cells / 256 < 1 << 28 ? cells / 256 : 1 << 28) & ~255; /* as contexts round */
    params.type_k = params.type_v = WEIR_KV_F32;
    weir_status status = weir_engine_estimate("fake:", NULL, &params, &memory, &error);
    if (status != WEIR_OK) fail_msg("%s", error.message);
    assert_int_equal(memory.layout, WEIR_LAYOUT_UNIFIED);
    assert_int_equal(memory.n_kv, params.n_ctx);
}

/* The fake's cells are all that it has. */
static void test_draft_model(void **state)
{
    (void)state;
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory alone = {.size = sizeof alone}, with = {.size = sizeof with};
    weir_error error = {0};
    weir_model *other = NULL;
    assert_int_equal(weir_engine_estimate("fake:", NULL, &params, &alone, &error), WEIR_OK);
    assert_int_equal(weir_model_load("fake:seed=3", NULL, &params.draft_model, &error), WEIR_OK);
    assert_int_equal(weir_engine_estimate("fake:", NULL, &params, &with, &error), WEIR_OK);
    assert_true(alone.kv_bytes > 0 && with.kv_bytes == 2 * alone.kv_bytes);
    params.n_draft_max = 0; /* it is not asked then */
    assert_int_equal(weir_engine_estimate("fake:", NULL, &params, &with, &error), WEIR_OK);
    assert_true(with.kv_bytes == alone.kv_bytes);
    params.n_draft_max = 4;
    assert_int_equal(weir_model_load("fake:n_vocab=900", NULL, &other, &error), WEIR_OK);
    weir_model_release(params.draft_model);
    params.draft_model = other;
    assert_int_equal(weir_engine_estimate("fake:", NULL, &params, &with, &error), WEIR_INVALID);
    assert_string_equal(error.field, "draft_model");
    weir_model_release(other);
}

static void test_errors(void **state)
{
    (void)state;
    weir_engine_params params = weir_engine_params_default();
    weir_engine_memory memory = {.size = sizeof memory};
    weir_error error = {0};
    assert_int_equal(weir_engine_estimate("fake:", NULL, NULL, NULL, &error), WEIR_INVALID);
    assert_string_equal(error.field, "memory");
    params.n_slots = 0;
    assert_int_equal(weir_engine_estimate("fake:", NULL, &params, &memory, &error), WEIR_INVALID);
    assert_string_equal(error.field, "n_slots");
    assert_int_equal(weir_engine_estimate(NULL, NULL, NULL, &memory, &error), WEIR_INVALID);
    assert_string_equal(error.field, "path");
    memory.size = 0;
    assert_int_equal(weir_engine_estimate("fake:", NULL, NULL, &memory, &error), WEIR_INVALID);
    assert_string_equal(error.field, "memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_allotted),
        cmocka_unit_test(test_pool_instead_of_lanes),
        cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
