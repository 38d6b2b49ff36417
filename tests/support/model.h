/* model.h: shared by the tests of the low level: fake models, and checks of errors and leftovers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_MODEL_H
#define WEIR_SUPPORT_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/context.h"
#include "model/fake.h"
#include "model/sampler.h"

#define N_ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

/* The call failed as it should, named the field and said something. */
#define assert_refused(call, status, name)                                                                   \
    do {                                                                                                     \
        weir_error refused_error = {0};                                                                      \
        weir_error *error = &refused_error;                                                                  \
        assert_int_equal(call, status);                                                                      \
        assert_int_equal(refused_error.code, status);                                                        \
        assert_string_equal(refused_error.field, name);                                                      \
        assert_true(strlen(refused_error.message) > 10);                                                     \
    } while (0)

/* The call succeeded; where not, its message is shown. */
#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        weir_error ok_error = {0};                                                                           \
        weir_error *error = &ok_error;                                                                       \
        if ((call) != WEIR_OK) fail_msg("%s: %s", #call, ok_error.message);                                  \
    } while (0)

static inline weir_model *fake_load(const char *options)
{
    char path[256];
    weir_model *model = NULL;
    snprintf(path, sizeof path, "fake:%s", options);
    assert_ok(weir_model_load(path, NULL, &model, error));
    return model;
}

static inline weir_context *fake_context(weir_model *model, int32_t n_ctx, int32_t n_seq, weir_layout layout)
{
    weir_context *context = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_ctx = n_ctx;
    params.n_seq_max = n_seq;
    params.layout = layout;
    assert_ok(weir_context_create(model, &params, &context, error));
    return context;
}

static inline weir_sampler *fake_greedy(weir_model *model)
{
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 0.0f;
    assert_ok(weir_sampler_create(model, &params, &sampler, error));
    return sampler;
}

/* No fault of a caller was seen, and all contexts and samplers are gone with their cells. */
static inline void fake_release(weir_model *model)
{
    const weir__fake *fake = weir__fake_of(model);
    assert_int_equal(atomic_load(&fake->faults), 0);
    assert_int_equal(atomic_load(&fake->n_contexts), 0);
    assert_int_equal(atomic_load(&fake->n_samplers), 0);
    assert_int_equal(atomic_load(&fake->n_cells), 0);
    weir_model_release(model);
}

/* A teardown for every test. */
static inline int nothing_left(void **state)
{
    (void)state;
    weir__mem_fail_after(-1);
    if (weir__mem_live() != 0) print_error("%ld blocks were not freed\n", weir__mem_live());
    return weir__mem_live() == 0 ? 0 : -1;
}

#endif
