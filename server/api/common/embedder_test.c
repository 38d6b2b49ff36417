/* embedder_test.c: the life of the context for embeddings: how long it stays, and that its memory is counted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "embedder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "server/models/loaded.h"

#define IDLE_NS (SERVE_EMBEDDER_IDLE_S * WEIR__NS_PER_S)

static weir_model *load(const char *path)
{
    weir_model *model = NULL;
    weir_error error = {0};
    if (weir_model_load(path, NULL, &model, &error) != WEIR_OK) fail_msg("%s", error.message);
    return model;
}

static void open_one(serve_loaded *loaded)
{
    weir_error error = {0};
    if (serve_embedder_open(loaded, &error) != WEIR_OK) fail_msg("%s", error.message);
}

/* Rests at a time after its last use. */
static void rest(serve_loaded *loaded, int64_t ns)
{
    serve_embedder_rest(loaded, loaded->embedder.used_ns + ns);
    serve_loaded_wait(loaded);
}

static void an_idle_context_goes(void **state)
{
    (void)state;
    weir_model *model = load("fake:");
    serve_loaded *loaded = serve_loaded_create(NULL, model, NULL);
    serve_embedder *embedder = &loaded->embedder;
    uint64_t before = serve_embedder_created();
    rest(loaded, IDLE_NS); /* there is none */
    open_one(loaded);
    open_one(loaded);
    assert_int_equal(serve_embedder_created(), before + 1);
    assert_true(atomic_load(&embedder->n_bytes) > 0);
    rest(loaded, 2 * IDLE_NS); /* it is to stay */
    assert_non_null(embedder->context);
    embedder->stays = false;
    rest(loaded, IDLE_NS - 1);
    assert_non_null(embedder->context);
    rest(loaded, IDLE_NS);
    assert_null(embedder->context);
    assert_int_equal(atomic_load(&embedder->n_bytes), 0);
    rest(loaded, 2 * IDLE_NS);
    open_one(loaded); /* the next request's */
    assert_int_equal(serve_embedder_created(), before + 2);
    serve_loaded_destroy(loaded);
    weir_model_release(model);
}

/* A context that computes is not taken away, and nobody waits for it. */
static void a_busy_context_stays(void **state)
{
    (void)state;
    weir_model *model = load("fake:");
    serve_loaded *loaded = serve_loaded_create(NULL, model, NULL);
    open_one(loaded);
    loaded->embedder.stays = false;
    pthread_mutex_lock(&loaded->embedder.mutex);
    rest(loaded, IDLE_NS);
    assert_non_null(loaded->embedder.context);
    pthread_mutex_unlock(&loaded->embedder.mutex);
    atomic_store(&loaded->embedder.reaps, true); /* a thread is on its way to it, and slow */
    serve_embedder_rest(loaded, loaded->embedder.used_ns + IDLE_NS);
    assert_false(loaded->embedder.has_reaper);
    assert_non_null(loaded->embedder.context);
    atomic_store(&loaded->embedder.reaps, false);
    rest(loaded, IDLE_NS);
    assert_null(loaded->embedder.context);
    serve_loaded_destroy(loaded);
    weir_model_release(model);
}

static void a_failure_leaves_nothing(void **state)
{
    (void)state;
    weir_model *model = load("fake:fail_embedders=1");
    serve_loaded *loaded = serve_loaded_create(NULL, model, NULL);
    weir_error error = {0};
    assert_int_equal(serve_embedder_open(loaded, &error), WEIR_BACKEND);
    assert_null(loaded->embedder.context);
    assert_int_equal(atomic_load(&loaded->embedder.n_bytes), 0);
    open_one(loaded);
    serve_loaded_destroy(loaded);
    weir_model_release(model);
}

static uint64_t used_of(weir_pool *pool)
{
    weir_pool_stats stats = {.size = sizeof stats};
    assert_int_equal(weir_pool_get_stats(pool, &stats), WEIR_OK);
    return stats.used_bytes;
}

static void its_memory_is_the_pools(void **state)
{
    (void)state;
    weir_engine_params engine = weir_engine_params_default();
    weir_pool_params params = weir_pool_params_default();
    weir_pool_model entry = weir_pool_model_default();
    weir_pool *pool = NULL;
    weir_lease *lease = NULL;
    weir_error error = {0};
    engine.n_ctx = 256;
    params.memory_bytes = 0;
    entry.name = "one";
    entry.path = "fake:fail_embedders=1";
    entry.engine = &engine;
    assert_int_equal(weir_pool_create(&params, &pool, &error), WEIR_OK);
    assert_int_equal(weir_pool_set(pool, &entry, 1, &error), WEIR_OK);
    assert_int_equal(weir_lease_create(pool, "one", -1, &lease, &error), WEIR_OK);
    assert_int_equal(weir_lease_wait(lease, -1, &error), WEIR_OK);
    serve_loaded *loaded = serve_loaded_create("one", weir_lease_model(lease), weir_lease_engine(lease));
    uint64_t before = used_of(pool);
    loaded->embedder.pool = pool;
    assert_int_equal(serve_embedder_open(loaded, &error), WEIR_BACKEND);
    assert_int_equal(used_of(pool), before);
    open_one(loaded);
    assert_int_equal(used_of(pool), before + atomic_load(&loaded->embedder.n_bytes));
    loaded->embedder.stays = false;
    rest(loaded, IDLE_NS);
    assert_int_equal(used_of(pool), before);
    serve_loaded_destroy(loaded);
    weir_lease_release(lease);
    assert_int_equal(weir_pool_destroy(pool), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_context_goes),
        cmocka_unit_test(a_busy_context_stays),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(its_memory_is_the_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
