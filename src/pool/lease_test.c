/* Leases: order, deadlines, ready functions, release in every state.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/pool.h"

#include <sched.h>

#define SLOW "load_us=3600000000" /* an hour: the test ends the load */

static bool is_closed(rack *r, size_t i)
{
    pthread_mutex_lock(&r->pool->mutex);
    bool closed = r->pool->list[i]->closed;
    pthread_mutex_unlock(&r->pool->mutex);
    return closed;
}

static void leases_wait_in_order_of_arrival(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 230, 4, "");
    weir_lease *a = rack_lease(&r, "m0"), *b = rack_lease(&r, "m1");
    weir_lease *first = rack_ask(&r, "m2", WAIT_MS), *second = rack_ask(&r, "m3", WAIT_MS);

    /* m0 will be unloaded for m2: it gets no new leases, or m2 might wait for ever. */
    while (!is_closed(&r, 0)) sched_yield();
    weir_lease *again = rack_ask(&r, "m0", WAIT_MS);
    assert_int_equal(weir_lease_wait(again, 0, NULL), WEIR_TIMEOUT);
    weir_lease *other = rack_ask(&r, "m1", 0);
    assert_int_equal(weir_lease_wait(other, 0, NULL), WEIR_OK); /* m1 stays open */
    weir_lease_release(other);
    weir_lease_release(a);
    assert_int_equal(weir_lease_wait(first, WAIT_MS, NULL), WEIR_OK);
    assert_int_equal(weir_lease_wait(second, 20, &error), WEIR_TIMEOUT); /* m1 and m2 have leases */
    weir_lease_release(b);
    assert_int_equal(weir_lease_wait(second, WAIT_MS, NULL), WEIR_OK);
    weir_lease_release(first);
    assert_int_equal(weir_lease_wait(again, WAIT_MS, NULL), WEIR_OK);
    weir_lease_release(second);
    weir_lease_release(again);
    rack_close(&r);
}

static void the_queue_has_a_limit(void **state)
{
    (void)state;
    rack r = {0};
    weir_error error;
    weir_lease *waits[4], *refused = NULL;
    weir_pool_params params = weir_pool_params_default();
    params.memory_bytes = 120 * MIB;
    params.queue_limit = 4;
    params.cache_dir = "";
    assert_int_equal(weir_pool_create(&params, &r.pool, NULL), WEIR_OK);
    rack_model(&r, 0, 100, "");
    rack_model(&r, 1, 100, "");
    r.engine = weir_engine_params_default();
    r.engine.cache_bytes = 0;
    r.engine.lookup_bytes = 0;
    r.engine.n_ctx = 256;
    assert_int_equal(weir_pool_set(r.pool, r.models, 2, NULL), WEIR_OK);
    weir_lease *used = rack_lease(&r, "m0");
    for (int i = 0; i < 4; i++) waits[i] = rack_ask(&r, "m1", -1);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(weir_lease_create(r.pool, "m1", -1, &refused, &error), WEIR_BUSY);
        assert_string_equal(error.field, "queue_limit");
        assert_int_equal(weir_lease_create(r.pool, "absent", -1, &refused, &error), WEIR_NOT_FOUND);
        assert_null(refused);
    }
    assert_int_equal(rack_stats(&r).n_waiting, 4);
    weir_lease_release(used);
    for (int i = 0; i < 4; i++) assert_int_equal(weir_lease_wait(waits[i], WAIT_MS, NULL), WEIR_OK);
    for (int i = 0; i < 4; i++) weir_lease_release(waits[i]);
    rack_close(&r);
}

static void a_load_that_nobody_waits_for_is_aborted(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 330, 2, SLOW);
    weir_lease *a = rack_ask(&r, "m0", -1), *b = rack_ask(&r, "m0", -1);
    rack_await(&r, "m0", WEIR_POOL_LOADING);
    weir_lease_release(a);
    assert_state(&r, "m0", WEIR_POOL_LOADING);
    weir_lease_release(b);
    rack_await(&r, "m0", WEIR_POOL_UNLOADED);
    assert_int_equal(rack_info(&r, "m0").n_failures, 0);
    assert_int_equal(rack_stats(&r).used_bytes, 0);

    weir_lease *late = rack_ask(&r, "m1", 30); /* ends while the loader loads */
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_BUSY);
    assert_non_null(strstr(error.message, "within 30 ms"));
    rack_await(&r, "m1", WEIR_POOL_UNLOADED);
    weir_lease_release(late);

    assert_int_equal(weir_pool_load(r.pool, "m0", NULL), WEIR_OK); /* an operator's */
    rack_await(&r, "m0", WEIR_POOL_LOADING);
    weir_lease_release(rack_ask(&r, "m0", -1));
    assert_state(&r, "m0", WEIR_POOL_LOADING);
    assert_int_equal(weir_pool_unload(r.pool, "m0", NULL), WEIR_OK);
    rack_await(&r, "m0", WEIR_POOL_UNLOADED);
    assert_int_equal(weir_pool_load(r.pool, "absent", NULL), WEIR_NOT_FOUND);
    assert_int_equal(weir_pool_unload(r.pool, "absent", NULL), WEIR_NOT_FOUND);
    rack_close(&r);
}

static void a_load_of_a_model_that_was_replaced_is_aborted(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 330, 1, SLOW);
    weir_lease *lease = rack_ask(&r, "m0", -1);
    rack_await(&r, "m0", WEIR_POOL_LOADING);
    rack_model(&r, 0, 100, "");
    assert_int_equal(weir_pool_set(r.pool, r.models, 1, NULL), WEIR_OK);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, NULL), WEIR_OK);
    weir_lease_release(lease);
    rack_close(&r);
}

static void unload_waits_for_leases(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 330, 1, "");
    weir_lease *lease = rack_lease(&r, "m0");
    assert_int_equal(weir_pool_unload(r.pool, "m0", NULL), WEIR_OK);
    assert_int_equal(rack_info(&r, "m0").state, WEIR_POOL_LEAVING);
    weir_lease *next = rack_ask(&r, "m0", WAIT_MS);
    assert_int_equal(weir_lease_wait(next, 20, NULL), WEIR_TIMEOUT); /* for its next load */
    assert_non_null(weir_lease_engine(lease));
    weir_lease_release(lease);
    assert_int_equal(weir_lease_wait(next, WAIT_MS, NULL), WEIR_OK);
    assert_int_equal(rack_info(&r, "m0").n_loads, 2);
    assert_int_equal(weir_pool_unload(r.pool, "m0", NULL), WEIR_OK);
    assert_int_equal(weir_pool_load(r.pool, "m0", NULL), WEIR_OK); /* takes it back */
    assert_int_equal(rack_info(&r, "m0").state, WEIR_POOL_LOADED);
    weir_lease_release(next);
    rack_touch(&r, "m0");
    assert_int_equal(rack_info(&r, "m0").n_loads, 2);
    rack_close(&r);
}

/* ---- Ready functions ---- */

typedef struct bell {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int n_calls;
    weir_status seen, waited, destroyed;
    bool release;
    weir_lease *other;
} bell;

static void ring(weir_lease *lease, void *user)
{
    bell *b = user;
    weir_status seen = weir_lease_wait(lease, 0, NULL);
    weir_status waited = b->other != NULL ? weir_lease_wait(b->other, -1, NULL) : WEIR_OK;
    weir_status destroyed = weir_pool_destroy(lease->pool);
    if (b->release) weir_lease_release(lease);
    pthread_mutex_lock(&b->mutex);
    b->seen = seen;
    b->waited = waited;
    b->destroyed = destroyed;
    b->n_calls++;
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->mutex);
}

static void await_bell(bell *b)
{
    pthread_mutex_lock(&b->mutex);
    while (b->n_calls == 0) pthread_cond_wait(&b->cond, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
    assert_int_equal(b->n_calls, 1);
    assert_int_equal(b->destroyed, WEIR_STATE);
}

static void ready_functions_are_called_once(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 120, 2, "");
    bell b[4];
    for (size_t i = 0; i < COUNT(b); i++) {
        b[i] = (bell){.release = i % 2 == 0};
        pthread_mutex_init(&b[i].mutex, NULL);
        pthread_cond_init(&b[i].cond, NULL);
    }
    weir_lease *used = rack_lease(&r, "m0");
    assert_int_equal(weir_lease_set_ready(used, ring, &b[1]), WEIR_OK); /* at once */
    await_bell(&b[1]);
    assert_int_equal(b[1].seen, WEIR_OK);
    assert_int_equal(weir_lease_set_ready(used, ring, &b[1]), WEIR_STATE);

    weir_lease *late = rack_ask(&r, "m1", 10), *waits = rack_ask(&r, "m1", -1);
    b[3].other = waits; /* which would wait for the thread that waits */
    assert_int_equal(weir_lease_set_ready(late, ring, &b[3]), WEIR_OK);
    await_bell(&b[3]);
    assert_int_equal(b[3].seen, WEIR_BUSY);
    assert_int_equal(b[3].waited, WEIR_STATE);
    weir_lease_release(late);

    assert_int_equal(weir_lease_set_ready(waits, ring, &b[0]), WEIR_OK); /* releases itself */
    weir_lease_release(used);
    await_bell(&b[0]);
    assert_int_equal(b[0].seen, WEIR_OK);

    weir_lease *gone = rack_ask(&r, "m0", -1);
    assert_int_equal(weir_lease_set_ready(gone, ring, &b[2]), WEIR_OK);
    weir_lease_release(gone); /* called before or never */
    rack_close(&r);
    assert_true(b[2].n_calls == 0 || b[2].n_calls == 1);
}

/* ---- The end ---- */

static void *release_later(void *lease)
{
    struct timespec ms = {.tv_nsec = 20000000};
    nanosleep(&ms, NULL);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, NULL), WEIR_STOPPED);
    weir_lease_release(lease);
    return NULL;
}

static void destroy_ends_loads_and_waits_for_leases(void **state)
{
    (void)state;
    rack r;
    pthread_t thread;
    rack_open(&r, 330, 2, SLOW);
    weir_lease *lease = rack_ask(&r, "m0", -1);
    assert_int_equal(weir_pool_load(r.pool, "m1", NULL), WEIR_OK);
    rack_await(&r, "m0", WEIR_POOL_LOADING);
    assert_int_equal(pthread_create(&thread, NULL, release_later, lease), 0);
    rack_close(&r);
    pthread_join(thread, NULL);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    rack r;
    weir_lease *lease = NULL;
    weir_pool *none = NULL;
    weir_pool_params params = weir_pool_params_default();
    weir_pool_stats stats = {0};
    char name[400];
    rack_open(&r, 330, 1, "");
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(weir_lease_create(NULL, "m0", 0, &lease, NULL), WEIR_INVALID);
    assert_int_equal(weir_lease_create(r.pool, NULL, 0, &lease, NULL), WEIR_INVALID);
    assert_int_equal(weir_lease_create(r.pool, "m0", 0, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_lease_create(r.pool, name, 0, &lease, NULL), WEIR_NOT_FOUND);
    assert_int_equal(weir_lease_wait(NULL, 0, NULL), WEIR_INVALID);
    assert_int_equal(weir_lease_set_ready(NULL, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_pool_get_stats(r.pool, &stats), WEIR_INVALID);
    assert_int_equal(weir_pool_get(r.pool, 0, NULL), WEIR_INVALID);
    assert_int_equal(weir_pool_set(r.pool, NULL, 1, NULL), WEIR_INVALID);
    assert_int_equal(weir_pool_set(NULL, NULL, 0, NULL), WEIR_INVALID);
    assert_null(weir_lease_model(NULL));
    weir_lease_release(NULL);
    params.queue_limit = -1;
    assert_int_equal(weir_pool_create(&params, &none, NULL), WEIR_INVALID);
    assert_int_equal(weir_pool_create(NULL, NULL, NULL), WEIR_INVALID);
    assert_int_equal(weir_pool_destroy(NULL), WEIR_OK);
    assert_string_equal(weir_pool_state_name(WEIR_POOL_LEAVING), "leaving");
    assert_string_equal(weir_pool_state_name((weir_pool_state)6), "unknown state");
    assert_string_equal(weir_pool_kind_name(WEIR_POOL_KIND_RANKING), "ranking");
    assert_string_equal(weir_pool_kind_name((weir_pool_kind)4), "unknown kind");
    rack_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_wait_in_order_of_arrival),
        cmocka_unit_test(the_queue_has_a_limit),
        cmocka_unit_test(a_load_that_nobody_waits_for_is_aborted),
        cmocka_unit_test(a_load_of_a_model_that_was_replaced_is_aborted),
        cmocka_unit_test(unload_waits_for_leases),
        cmocka_unit_test(ready_functions_are_called_once),
        cmocka_unit_test(destroy_ends_loads_and_waits_for_leases),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
