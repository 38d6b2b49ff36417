/* ends_test.c: how a model leaves, and how a pool ends during a job.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/pool.h"

/* Releases the caller's reference, which keeps the model in memory. */
static void release_held(weir_model *model, void *user)
{
    weir_model **held = user;
    assert_ptr_equal(*held, model);
    weir_model_release(*held);
    *held = NULL;
}

static void hold(rack *r, const char *name, weir_model **held)
{
    weir_lease *lease = rack_lease(r, name);
    *held = weir_model_hold(weir_lease_model(lease));
    weir_lease_release(lease);
}

/* Two models, and room for one of them. */
static void open_for_one(rack *r, weir_pool_leaving_fn leaving, void *user)
{
    weir_pool_params params = weir_pool_params_default();
    params.memory_bytes = 120 * MIB;
    params.leaving = leaving;
    params.leaving_user = user;
    rack_open_with(r, &params, 2, "");
}

static void a_holder_is_called_before_the_model_leaves(void **state)
{
    weir_model *held = NULL;
    (void)state;
    rack r;
    open_for_one(&r, release_held, &held);
    hold(&r, "m0", &held);
    assert_non_null(held);
    weir_lease *lease = rack_lease(&r, "m1"); /* in its place */
    assert_null(held);
    weir_lease_release(lease);
    hold(&r, "m1", &held);
    rack_close(&r);
    assert_null(held);
}

/* The keeper is asked to end while the loader loads. */
static void a_pool_ends_amid_a_load(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        rack r;
        rack_open(&r, 230, 2, "load_us=3600000000"); /* slower than any machine */
        weir_lease *lease = rack_ask(&r, "m0", WAIT_MS);
        if (i % 2 == 0) rack_await(&r, "m0", WEIR_POOL_LOADING);
        weir_lease_release(lease);
        rack_close(&r);
    }
}

/* Holds up the unload of a model. */
static void wait_open(weir_model *model, void *user)
{
    atomic_bool *open = user;
    struct timespec ms = {.tv_nsec = 1000000};
    (void)model;
    while (!atomic_load(open)) nanosleep(&ms, NULL);
}

/* A model that leaves reserves nothing: its resident is the loader's by then. */
static void a_model_that_leaves_reserves_nothing(void **state)
{
    (void)state;
    atomic_bool open = false;
    rack r;
    weir_error error;
    open_for_one(&r, wait_open, &open);
    weir_lease *lease = rack_lease(&r, "m0");
    weir_model *model = weir_lease_model(lease);
    assert_int_equal(weir_pool_reserve(r.pool, model, MIB, &error), WEIR_OK);
    assert_int_equal(weir_pool_unload(r.pool, "m0", &error), WEIR_OK);
    assert_int_equal(weir_pool_reserve(r.pool, model, 2 * MIB, &error), WEIR_OK); /* the lease holds it */
    weir_lease_release(lease);
    struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < WAIT_MS && weir_pool_reserve(r.pool, model, MIB, &error) == WEIR_OK; i++)
        nanosleep(&ms, NULL);
    assert_int_equal(error.code, WEIR_STATE);
    assert_string_equal(error.field, "model");
    rack_await(&r, "m0", WEIR_POOL_LEAVING);
    atomic_store(&open, true);
    rack_await(&r, "m0", WEIR_POOL_UNLOADED);
    rack_close(&r);
}

/* The lease ends late; the message must say what the loader does meanwhile. */
static void assert_late(rack *r, const char *name, const char *why)
{
    weir_error error;
    do {
        weir_lease *lease = rack_ask(r, name, 20);
        error = (weir_error){0};
        assert_int_equal(weir_lease_wait(lease, WAIT_MS, &error), WEIR_BUSY);
        weir_lease_release(lease);
    } while (strstr(error.message, "estimating") != NULL); /* on a slow machine */
    if (strstr(error.message, why) == NULL) fail_msg("%s", error.message);
}

static void a_late_lease_names_the_loaders_job(void **state)
{
    atomic_bool open = false;
    (void)state;
    rack r;
    open_for_one(&r, wait_open, &open);
    rack_touch(&r, "m0");
    weir_lease *lease = rack_ask(&r, "m1", WAIT_MS);
    rack_await(&r, "m0", WEIR_POOL_LEAVING);
    assert_late(&r, "m1", "the model \"m0\" has been unloading for ");
    atomic_store(&open, true);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, NULL), WEIR_OK);
    /* The loader does nothing then, so it is the memory. */
    assert_late(&r, "m0", "1 request waits for models, and models take ");
    weir_lease_release(lease);
    rack_close(&r);
    rack_open(&r, 230, 2, "load_us=3600000000");
    lease = rack_ask(&r, "m0", WAIT_MS);
    rack_await(&r, "m0", WEIR_POOL_LOADING);
    assert_late(&r, "m1", "the model \"m0\" has been loading for ");
    weir_lease_release(lease);
    rack_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_is_called_before_the_model_leaves),
        cmocka_unit_test(a_pool_ends_amid_a_load),
        cmocka_unit_test(a_model_that_leaves_reserves_nothing),
        cmocka_unit_test(a_late_lease_names_the_loaders_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
