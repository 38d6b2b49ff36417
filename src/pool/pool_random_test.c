/* Many threads, random leases, changes of the list, failing allocations. Whatever happens: the loaded models
 * fit into the budget, a leased engine works, and every lease ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/pool.h"

#define N_THREADS 8
#define N_ROUNDS  40
#define N_MODELS  4

typedef struct worker {
    rack *r;
    unsigned seed;
    int n_granted, n_refused;
    const char *wrong;
    pthread_t thread;
} worker;

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

/* True if all is within the budget of 230 MiB. Checked by the threads while others load. */
static bool fits(rack *r)
{
    weir_pool_stats stats = {.size = sizeof stats};
    return weir_pool_get_stats(r->pool, &stats) == WEIR_OK && stats.used_bytes <= stats.memory_bytes;
}

static bool generates(weir_engine *engine)
{
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    weir_result result;
    greedy.temp = 0;
    request.sampler = &greedy;
    request.text = "abcdef";
    request.max_tokens = 3;
    if (weir_generate(engine, &request, 1, NULL, &result, NULL) != WEIR_OK) return false;
    bool good = result.reason == WEIR_REASON_LENGTH && result.n_tokens == 3;
    weir_result_fini(&result);
    return good;
}

static void *lease_some(void *user)
{
    worker *w = user;
    for (int i = 0; i < N_ROUNDS && w->wrong == NULL; i++) {
        const char *name = w->r->names[next(&w->seed) % N_MODELS];
        weir_lease *lease = NULL;
        if (weir_lease_create(w->r->pool, name, WAIT_MS, &lease, NULL) != WEIR_OK) {
            w->n_refused++;
            continue;
        }
        bool waits = next(&w->seed) % 4 != 0; /* others leave at once, in whatever state it is */
        weir_status status = waits ? weir_lease_wait(lease, WAIT_MS, NULL) : WEIR_TIMEOUT;
        if (waits && status == WEIR_OK) {
            w->n_granted++;
            if (weir_lease_engine(lease) == NULL || !generates(weir_lease_engine(lease)))
                w->wrong = "a leased engine does not work";
        } else if (waits && status != WEIR_NOT_FOUND) {
            w->wrong = weir_status_name(status);
        }
        if (!fits(w->r)) w->wrong = "more is loaded than fits";
        weir_lease_release(lease);
    }
    return NULL;
}

static void threads_take_random_leases(void **state)
{
    (void)state;
    rack r;
    worker workers[N_THREADS];
    rack_open(&r, 230, N_MODELS, "");
    for (unsigned i = 0; i < N_THREADS; i++) {
        workers[i] = (worker){.r = &r, .seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, lease_some, &workers[i]), 0);
    }
    unsigned seed = 99;
    for (int i = 0; i < 30; i++) { /* and the list changes: other parameters, fewer models */
        weir_pool_model list[N_MODELS];
        memcpy(list, r.models, sizeof list);
        if (next(&seed) % 2 == 0) list[next(&seed) % N_MODELS].path = "fake:seed=77,n_bytes=104857600";
        list[next(&seed) % N_MODELS].idle_ms = 1;
        assert_int_equal(weir_pool_set(r.pool, list, N_MODELS - next(&seed) % 2, NULL), WEIR_OK);
        struct timespec ms = {.tv_nsec = 2000000};
        nanosleep(&ms, NULL);
    }
    assert_int_equal(weir_pool_set(r.pool, r.models, N_MODELS, NULL), WEIR_OK);
    int n_granted = 0;
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].wrong != NULL) fail_msg("%s", workers[i].wrong);
        n_granted += workers[i].n_granted;
    }
    assert_true(n_granted > 0);
    assert_int_equal(rack_stats(&r).n_leases, 0);
    assert_int_equal(rack_stats(&r).n_waiting, 0);
    assert_int_equal(rack_stats(&r).n_failures, 0);
    rack_close(&r);
}

/* One allocation of all fails, in the call or in the threads: the lease ends with an error or with a model
 * that works, nothing is lost, and the next lease works. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    long before = weir__mem_live();
    bool pending = false;
    for (long n = 0; !pending; n++) {
        rack r = {0};
        weir_lease *lease = NULL;
        weir_pool_params params = weir_pool_params_default();
        params.memory_bytes = 230 * MIB;
        params.cache_dir = "";
        r.engine = weir_engine_params_default();
        r.engine.n_slots = 2;
        r.engine.n_ctx = 256;
        r.engine.cache_bytes = 1 << 16;
        rack_model(&r, 0, 100, "");
        weir__mem_fail_after(n);
        weir_status status = weir_pool_create(&params, &r.pool, NULL);
        if (status == WEIR_OK) status = weir_pool_set(r.pool, r.models, 1, NULL);
        if (status == WEIR_OK) status = weir_lease_create(r.pool, "m0", WAIT_MS, &lease, NULL);
        if (status == WEIR_OK) status = weir_lease_wait(lease, WAIT_MS, NULL);
        assert_true(status == WEIR_OK || status == WEIR_NO_MEMORY);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status == WEIR_OK) assert_true(generates(weir_lease_engine(lease)));
        weir_lease_release(lease);
        if (r.pool != NULL) {
            assert_int_equal(weir_pool_set(r.pool, r.models, 1, NULL), WEIR_OK);
            rack_touch(&r, "m0");
        }
        assert_int_equal(weir_pool_destroy(r.pool), WEIR_OK);
        assert_int_equal(weir__mem_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_take_random_leases),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
