/* Several models under one budget: loads, unloads, and the limits of a list.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/pool.h"

static void the_least_recently_used_sleeps(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 230, 3, "");
    rack_touch(&r, "m0");
    rack_touch(&r, "m1");
    rack_touch(&r, "m0");
    rack_touch(&r, "m2");
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    assert_state(&r, "m1", WEIR_POOL_SLEEPING);
    assert_state(&r, "m2", WEIR_POOL_LOADED);
    rack_touch(&r, "m1");
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    weir_pool_stats stats = rack_stats(&r);
    assert_int_equal(stats.n_loads, 4);
    assert_int_equal(stats.n_sleeps, 2);
    assert_int_equal(stats.n_loaded, 2);
    assert_true(stats.used_bytes > 200 * MIB && stats.used_bytes <= stats.memory_bytes);
    assert_int_equal(stats.memory_bytes, 230 * MIB);
    rack_close(&r);
}

static void a_model_with_a_lease_stays(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 120, 2, "");
    weir_lease *used = rack_lease(&r, "m0"), *late = NULL;
    do { /* the first one may be late because of the estimate, which a busy machine does slowly */
        weir_lease_release(late);
        late = rack_ask(&r, "m1", 50);
        assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_BUSY);
        assert_string_equal(error.field, "timeout_ms");
    } while (strstr(error.message, "estimating its memory") != NULL);
    assert_non_null(strstr(error.message, "1 request waits for models, and models take 100."));
    assert_non_null(strstr(error.message, " MiB of 120.0 MiB; try again later"));
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    weir_lease_release(late);
    late = rack_ask(&r, "m1", WAIT_MS);
    assert_int_equal(weir_lease_wait(late, 0, &error), WEIR_TIMEOUT);
    assert_null(weir_lease_engine(late));
    weir_lease_release(used);
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_OK);
    assert_non_null(weir_lease_engine(late));
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    weir_lease_release(late);
    rack_close(&r);
}

static void pinned_models_are_loaded_at_once_and_stay(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 330, 4, "");
    r.models[3].pinned = true;
    assert_int_equal(weir_pool_set(r.pool, r.models, 4, NULL), WEIR_OK);
    rack_await(&r, "m3", WEIR_POOL_LOADED);
    for (int i = 0; i < 9; i++) rack_touch(&r, r.names[i % 3]);
    assert_int_equal(rack_info(&r, "m3").n_loads, 1);
    assert_state(&r, "m3", WEIR_POOL_LOADED);

    /* Pinned models leave too little memory: the lease fails at once instead of waiting. */
    rack_model(&r, 4, 280, "");
    assert_int_equal(weir_pool_set(r.pool, r.models, 5, NULL), WEIR_OK);
    weir_lease *large = rack_ask(&r, "m4", -1);
    assert_int_equal(weir_lease_wait(large, WAIT_MS, &error), WEIR_TOO_LONG);
    assert_string_equal(error.field, "memory_bytes");
    assert_non_null(strstr(error.message, "280."));
    assert_non_null(strstr(error.message, "330.0 MiB, of which pinned models take 100."));
    weir_lease_release(large);

    assert_int_equal(weir_pool_unload(r.pool, "m3", NULL), WEIR_OK); /* an operator may */
    rack_await(&r, "m3", WEIR_POOL_UNLOADED);
    rack_touch(&r, "m4");
    rack_close(&r);
}

static void a_model_beyond_the_budget_is_refused_at_once(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 90, 1, "");
    weir_lease *lease = rack_ask(&r, "m0", -1);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, &error), WEIR_TOO_LONG);
    assert_non_null(strstr(error.message, "takes 100."));
    assert_non_null(strstr(error.message, "is 90.0 MiB:"));
    assert_state(&r, "m0", WEIR_POOL_FAILED);
    assert_int_equal(rack_info(&r, "m0").status, WEIR_TOO_LONG);
    weir_lease_release(lease);
    assert_int_equal(rack_stats(&r).used_bytes, 0);
    rack_close(&r);
}

static void idle_models_sleep(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 330, 2, "");
    for (int i = 0; i < 2; i++) r.models[i].idle_ms = 1;
    r.models[1].pinned = true;
    assert_int_equal(weir_pool_set(r.pool, r.models, 2, NULL), WEIR_OK);
    rack_await(&r, "m1", WEIR_POOL_LOADED);
    weir_lease *lease = rack_lease(&r, "m0");
    struct timespec more = {.tv_nsec = 20000000};
    nanosleep(&more, NULL);
    assert_state(&r, "m0", WEIR_POOL_LOADED); /* it has a lease */
    weir_lease_release(lease);
    rack_await(&r, "m0", WEIR_POOL_SLEEPING);
    assert_state(&r, "m1", WEIR_POOL_LOADED);
    rack_close(&r);
}

/* A time that has passed would keep the keeper awake until the loader is ready. */
static void the_keeper_sleeps_while_the_loader_works(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 330, 1, "");
    r.models[0].idle_ms = 3600 * 1000;
    assert_int_equal(weir_pool_set(r.pool, r.models, 1, NULL), WEIR_OK);
    rack_touch(&r, "m0");
    weir_pool *pool = r.pool;
    pthread_mutex_lock(&pool->mutex);
    weir__job_kind had = pool->job.kind;
    pool->job.kind = WEIR__JOB_NONE;
    assert_true(weir__room_wake_ns(pool) == pool->entries->used_ns + 3600 * WEIR__NS_PER_S);
    pool->job.kind = WEIR__JOB_LOAD;
    assert_true(weir__room_wake_ns(pool) == WEIR__CLOCK_NEVER);
    pool->job.kind = WEIR__JOB_NONE;
    pool->stopping = true;
    assert_true(weir__room_wake_ns(pool) == WEIR__CLOCK_NEVER);
    pool->stopping = false;
    pool->job.kind = had;
    pthread_mutex_unlock(&pool->mutex);
    rack_close(&r);
}

/* The next turn of a conversation hits, after waking, the prefix that was cached before. */
static void sleep_keeps_prefixes(void **state)
{
    (void)state;
    rack r;
    int32_t before[N_ANSWER], after[N_ANSWER], n_cached;
    rack_open(&r, 230, 3, "");
    weir_lease *lease = rack_lease(&r, "m0");
    rack_generate(weir_lease_engine(lease), 1, 200, before, &n_cached);
    assert_int_equal(n_cached, 0);
    weir_lease_release(lease);
    rack_touch(&r, "m1");
    rack_touch(&r, "m2");
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    lease = rack_lease(&r, "m0");
    rack_generate(weir_lease_engine(lease), 1, 200, after, &n_cached);
    assert_int_equal(n_cached, 199); /* the last token is always computed */
    assert_memory_equal(before, after, sizeof before);
    weir_lease_release(lease);
    rack_close(&r);
}

static void a_failed_load_is_reported_and_tried_again(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    char text[sizeof error.message];
    rack_open(&r, 330, 1, "fail_load=1");
    for (int i = 1; i <= 2; i++) {
        weir_lease *lease = rack_ask(&r, "m0", -1);
        assert_int_equal(weir_lease_wait(lease, WAIT_MS, &error), WEIR_IO);
        weir_lease_release(lease);
        assert_state(&r, "m0", WEIR_POOL_FAILED);
        assert_int_equal(rack_info(&r, "m0").n_failures, i);
        weir_error_text(&error, NULL, NULL, text, sizeof text);
        assert_string_equal(rack_info(&r, "m0").message, text);
    }
    rack_model(&r, 0, 100, "");
    r.models[1] = weir_pool_model_default();
    r.models[1].name = "none";
    r.models[1].path = "/nonexistent/model.gguf";
    r.models[2] = r.models[0];
    r.models[2].name = "head";
    r.models[2].draft_path = "fake:n_vocab=900"; /* another vocabulary */
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, &error), WEIR_OK);
    rack_touch(&r, "m0");
    weir_lease *lease = rack_ask(&r, "none", -1);
    weir_status status = weir_lease_wait(lease, WAIT_MS, &error);
    assert_true(status == WEIR_NOT_FOUND || status == WEIR_UNSUPPORTED); /* the latter without llama.cpp */
    weir_lease_release(lease);
    lease = rack_ask(&r, "head", -1);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, &error), WEIR_INVALID);
    weir_lease_release(lease);
    rack_touch(&r, "m0");
    assert_int_equal(rack_stats(&r).n_loads, 1);
    rack_close(&r);
}

static void drafts_and_adapters_are_loaded_with_the_model(void **state)
{
    (void)state;
    rack r;
    static const char *const adapters[] = {"fake:1", "fake:2"};
    rack_open(&r, 330, 1, "");
    r.models[0].draft_path = "fake:seed=9,n_bytes=1048576";
    r.models[0].adapters = adapters;
    r.models[0].n_adapters = 2;
    assert_int_equal(weir_pool_set(r.pool, r.models, 1, NULL), WEIR_OK);
    weir_lease *lease = rack_lease(&r, "m0");
    assert_true(rack_info(&r, "m0").n_bytes >= 101 * MIB);
    assert_non_null(weir_lease_model(lease));
    assert_non_null(weir_lease_adapter(lease, 0));
    assert_non_null(weir_lease_adapter(lease, 1));
    assert_null(weir_lease_adapter(lease, 2));
    weir_lease_release(lease);
    rack_close(&r);
}

/* A template that cannot be parsed fails the load, and others load on. Needs llama.cpp. */
static void a_broken_template_fails_the_load(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    if (strcmp(weir_backend_version(), "none") == 0) skip();
    rack_open(&r, 330, 3, "");
    r.models[0].template_source = "{{ 1 }}\n{% for x in y %}";
    r.models[1].template_source = "{{ messages }}";
    r.models[2].template_source = ""; /* the model's own: it has none */
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, NULL), WEIR_OK);
    weir_lease *lease = rack_ask(&r, "m0", -1);
    assert_int_equal(weir_lease_wait(lease, WAIT_MS, &error), WEIR_TEMPLATE);
    assert_non_null(strstr(error.message, "line 2"));
    weir_lease_release(lease);
    assert_state(&r, "m0", WEIR_POOL_FAILED);
    rack_touch(&r, "m1");
    rack_touch(&r, "m2");
    r.models[0].template_source = NULL; /* another load, which does not look at templates */
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, NULL), WEIR_OK);
    rack_touch(&r, "m0");
    rack_close(&r);
}

/* Models with leases stay; the others sleep until the rest fits, the least recently used first. */
static void a_smaller_budget_puts_idle_models_to_sleep(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 530, 5, "");
    r.models[0].pinned = true;
    assert_int_equal(weir_pool_set(r.pool, r.models, 5, NULL), WEIR_OK);
    rack_await(&r, "m0", WEIR_POOL_LOADED);
    weir_lease *used = rack_lease(&r, "m1");
    for (int i = 2; i < 5; i++) rack_touch(&r, r.names[i]);
    weir_engine *engine = weir_lease_engine(used);
    int32_t answer[N_ANSWER];

    assert_int_equal(weir_pool_set_memory(r.pool, 330 * MIB, &error), WEIR_OK);
    rack_await(&r, "m3", WEIR_POOL_SLEEPING);
    assert_state(&r, "m2", WEIR_POOL_SLEEPING);
    assert_state(&r, "m4", WEIR_POOL_LOADED);
    assert_true(rack_stats(&r).memory_bytes == 330 * MIB && rack_stats(&r).used_bytes <= 330 * MIB);

    /* Less than is pinned and in use: neither is touched, and no other model is loaded. */
    assert_int_equal(weir_pool_set_memory(r.pool, 150 * MIB, &error), WEIR_OK);
    rack_await(&r, "m4", WEIR_POOL_SLEEPING);
    weir_lease *late = rack_ask(&r, "m4", WAIT_MS);
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_TOO_LONG);
    assert_non_null(strstr(error.message, "150.0 MiB"));
    weir_lease_release(late);
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    assert_ptr_equal(weir_lease_engine(used), engine);
    rack_generate(engine, 1, 30, answer, NULL);
    weir_lease_release(used);
    rack_await(&r, "m1", WEIR_POOL_SLEEPING);
    assert_state(&r, "m0", WEIR_POOL_LOADED);

    assert_int_equal(weir_pool_set_memory(r.pool, 0, &error), WEIR_OK);
    for (int i = 1; i < 5; i++) rack_touch(&r, r.names[i]);
    assert_int_equal(rack_stats(&r).n_loaded, 5);
    assert_int_equal(weir_pool_set_memory(NULL, 0, &error), WEIR_INVALID);
    rack_close(&r);
}

static void memory_that_shrinks_ends_nothing(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 330, 3, "");
    weir_lease *used = rack_lease(&r, "m0");
    pthread_mutex_lock(&r.pool->mutex);
    r.pool->limit = 150 * MIB; /* as if the machine had less now */
    pthread_mutex_unlock(&r.pool->mutex);
    weir_lease *late = rack_ask(&r, "m1", 50);
    assert_int_equal(weir_lease_wait(late, WAIT_MS, &error), WEIR_BUSY);
    weir_lease_release(late);
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    weir_lease_release(used);
    rack_touch(&r, "m1");
    assert_state(&r, "m0", WEIR_POOL_SLEEPING);
    rack_close(&r);
}

static _Atomic uint64_t machine; /* bytes that it has */
static _Atomic uint64_t group;   /* bytes that the cgroup allows */

static weir_pool *_Atomic reads_for; /* asked for its numbers whenever the memory is read; NULL = none */
static _Atomic int n_reads;

static weir__cpu_memory read_memory(void)
{
    weir_pool_stats stats = {.size = sizeof stats};
    n_reads++;
    if (reads_for != NULL) weir_pool_get_stats(reads_for, &stats);
    return (weir__cpu_memory){.available = machine, .limit = group};
}

/* The rack's pool has `machine` and `group` from now on. */
static void rack_machine(rack *r)
{
    pthread_mutex_lock(&r->pool->mutex);
    r->pool->read = read_memory;
    pthread_mutex_unlock(&r->pool->mutex);
    assert_int_equal(weir_pool_set_memory(r->pool, WEIR_AUTO, NULL), WEIR_OK);
}

static void a_cgroup_that_allows_less_puts_idle_models_to_sleep(void **state)
{
    (void)state;
    rack r;
    machine = 1000 * MIB;
    group = 0;
    rack_open(&r, 530, 3, "");
    rack_machine(&r);
    assert_true(rack_stats(&r).memory_bytes == 900 * MIB);
    weir_lease *used = rack_lease(&r, "m0");
    rack_touch(&r, "m1");
    rack_touch(&r, "m2");
    assert_int_equal(rack_stats(&r).n_loaded, 3);
    group = 240 * MIB; /* nobody calls the pool: it notices by itself */
    rack_await(&r, "m1", WEIR_POOL_SLEEPING);
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    assert_state(&r, "m2", WEIR_POOL_LOADED);
    group = 120 * MIB;
    rack_await(&r, "m2", WEIR_POOL_SLEEPING);
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    assert_true(rack_stats(&r).memory_bytes == 108 * MIB);
    group = 0;
    machine = 1; /* other processes take it: loaded models stay */
    rack_touch(&r, "m0");
    weir_lease_release(used);
    assert_state(&r, "m0", WEIR_POOL_LOADED);
    rack_close(&r);
}

/* The pool's limit on a machine, `now` seconds after the start. */
static uint64_t limit_of(weir_pool *pool, uint64_t available, uint64_t limit, int now)
{
    const weir__cpu_memory memory = {.available = available, .limit = limit};
    weir__room_set_limit(pool, memory, now * WEIR__NS_PER_S);
    return pool->limit;
}

static void the_budget_follows_the_machine(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 330, 2, "");
    weir_pool *pool = r.pool;
    pthread_mutex_lock(&pool->mutex);
    assert_int_equal(limit_of(pool, 100 * MIB, 0, 1), 330 * MIB); /* it is the caller's number */
    assert_true(weir__room_read_ns(pool) == WEIR__CLOCK_NEVER);
    pool->params.memory_bytes = WEIR_AUTO;
    pool->most = 400 * MIB;
    pool->limit_ns = 1;
    assert_int_equal(limit_of(pool, 100 * MIB, 0, 1), 90 * MIB);
    assert_int_equal(limit_of(pool, 1000 * MIB, 0, 2), 400 * MIB); /* never more than at create */
    assert_true(weir__room_read_ns(pool) == WEIR__CLOCK_NEVER);    /* nothing waits or is loaded */
    pool->entries->n_bytes = 50 * MIB;
    assert_int_equal(limit_of(pool, 100 * MIB, 0, 3), 140 * MIB);         /* with the pool's own memory */
    assert_int_equal(limit_of(pool, 0, 0, 4), 140 * MIB);                 /* unknown */
    assert_int_equal(limit_of(pool, 1000 * MIB, 100 * MIB, 5), 90 * MIB); /* the cgroup's limit */
    assert_true(weir__room_read_ns(pool) == 6 * WEIR__NS_PER_S);
    pool->entries->n_bytes = 0;
    pool->params.memory_bytes = 330 * MIB;
    pool->limit = 330 * MIB;
    pthread_mutex_unlock(&pool->mutex);
    rack_close(&r);
}

static void the_machines_memory_is_read_before_a_load(void **state)
{
    (void)state;
    rack r;
    machine = 1000 * MIB;
    group = 0;
    rack_open(&r, 530, 2, "");
    rack_machine(&r);
    rack_touch(&r, "m0");
    rack_touch(&r, "m1");
    assert_int_equal(rack_stats(&r).n_loaded, 2);
    pthread_mutex_lock(&r.pool->mutex);
    int64_t now = r.pool->limit_ns, half = WEIR__NS_PER_S / 2;
    weir__entry *entry = r.pool->list[0];
    uint64_t n_bytes = entry->n_bytes;
    assert_int_equal(weir__room_next(r.pool, now + half).job, WEIR__JOB_NONE);
    assert_int_equal(weir__room_next(r.pool, now + 2 * half).job, WEIR__JOB_READ);
    entry->state = WEIR_POOL_SLEEPING; /* a load is next, of a size that is known */
    entry->n_bytes = 0;
    entry->known = entry->wanted = true;
    assert_int_equal(weir__room_next(r.pool, now).job, WEIR__JOB_LOAD);
    assert_int_equal(weir__room_next(r.pool, now + half).job, WEIR__JOB_READ);
    entry->state = WEIR_POOL_LOADED;
    entry->n_bytes = n_bytes;
    entry->known = entry->wanted = false;
    pthread_mutex_unlock(&r.pool->mutex);
    rack_close(&r);
}

/* The memory is read without the mutex: a reader that needs it would wait for itself. */
static void the_machines_memory_is_read_without_the_mutex(void **state)
{
    (void)state;
    rack r;
    machine = 1000 * MIB;
    group = 0;
    rack_open(&r, 530, 3, "");
    reads_for = r.pool;
    int before = n_reads;
    rack_machine(&r);
    rack_touch(&r, "m0");
    rack_touch(&r, "m1");
    group = 120 * MIB;
    rack_await(&r, "m0", WEIR_POOL_SLEEPING);
    assert_true(n_reads >= before + 3);
    reads_for = NULL;
    rack_close(&r);
}

/* ---- The list ---- */

static void a_new_list_touches_nothing_that_runs(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 230, 3, "");
    weir_lease *kept = rack_lease(&r, "m0"), *removed = rack_lease(&r, "m1");
    weir_lease *waits = rack_ask(&r, "m2", WAIT_MS);
    weir_engine *engine = weir_lease_engine(removed);
    int32_t answer[N_ANSWER];

    /* m0 gets another alias, m1 goes, m2 becomes another model. */
    static const char *const aliases[] = {"zero"};
    r.models[0].aliases = aliases;
    r.models[0].n_aliases = 1;
    rack_model(&r, 2, 101, "seed=7");
    r.models[1] = r.models[2];
    assert_int_equal(weir_pool_set(r.pool, r.models, 2, NULL), WEIR_OK);
    assert_int_equal(rack_info(&r, "zero").n_leases, 1);
    assert_int_equal(weir_pool_find(r.pool, "m1", &(weir_pool_info){.size = sizeof(weir_pool_info)}),
                     WEIR_NOT_FOUND);
    assert_int_equal(weir_lease_create(r.pool, "m1", 0, &(weir_lease *){NULL}, &error), WEIR_NOT_FOUND);
    rack_generate(engine, 1, 20, answer, NULL); /* its lease is still good */
    assert_int_equal(weir_lease_wait(waits, 0, NULL), WEIR_TIMEOUT);
    weir_lease_release(removed);
    assert_int_equal(weir_lease_wait(waits, WAIT_MS, NULL), WEIR_OK); /* for the new m2 */
    assert_true(rack_info(&r, "m2").n_bytes >= 101 * MIB);
    assert_int_equal(rack_info(&r, "m0").n_loads, 1);

    /* Leases that wait for a model that goes. */
    rack_model(&r, 3, 100, "");
    assert_int_equal(weir_pool_set(r.pool, r.models, 4, &error), WEIR_INVALID); /* m2 twice */
    r.models[2] = r.models[3];
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, &error), WEIR_OK);
    weir_lease *lost = rack_ask(&r, "m3", WAIT_MS);
    assert_int_equal(weir_pool_set(r.pool, r.models, 2, &error), WEIR_OK);
    assert_int_equal(weir_lease_wait(lost, WAIT_MS, &error), WEIR_NOT_FOUND);
    weir_lease_release(lost);
    assert_int_equal(weir_pool_set(r.pool, NULL, 0, &error), WEIR_OK);
    assert_int_equal(rack_stats(&r).n_models, 0);
    assert_int_equal(rack_stats(&r).n_leases, 2);
    weir_lease_release(kept);
    weir_lease_release(waits);
    rack_close(&r);
}

static void a_bad_list_changes_nothing(void **state)
{
    (void)state;
    rack r;
    static const char *const alias[] = {"m0"};
    static const char *const nothing[] = {""};
    rack_open(&r, 230, 2, "");
    const weir_pool_model good = r.models[1];
    weir_engine_params manual = r.engine, stored = r.engine, odd = r.engine;
    weir_model_params vocabulary = weir_model_params_default(), split = vocabulary;
    const float shares[] = {0.5f, -1};
    manual.manual = true;
    stored.cache_dir = "/tmp";
    odd.n_slots = 0;
    vocabulary.vocab_only = true;
    split.tensor_split = shares;
    split.n_tensor_split = 2;
    const struct {
        weir_pool_model model;
        const char *field;
    } bad[] = {
        {{.path = "fake:"}, "models[1].name"},
        {{.name = "", .path = "fake:"}, "models[1].name"},
        {{.name = "x"}, "models[1].path"},
        {{.name = "m0", .path = "fake:"}, "models"},
        {{.name = "x", .path = "fake:", .aliases = alias, .n_aliases = 1}, "models"},
        {{.name = "x", .path = "fake:", .n_aliases = 1}, "models[1].aliases"},
        {{.name = "x", .path = "fake:", .aliases = nothing, .n_aliases = 1}, "models[1].aliases"},
        {{.name = "x", .path = "fake:", .n_adapters = 1}, "models[1].adapters"},
        {{.name = "x", .path = "fake:", .adapters = nothing, .n_adapters = 1}, "models[1].adapters"},
        {{.name = "x", .path = "fake:", .idle_ms = -1}, "models[1].idle_ms"},
        {{.name = "x", .path = "fake:", .engine = &manual}, "models[1].engine.manual"},
        {{.name = "x", .path = "fake:", .engine = &stored}, "models[1].engine.cache_dir"},
        {{.name = "x", .path = "fake:", .engine = &odd}, "models[1].engine.n_slots"},
        {{.name = "x", .path = "fake:", .model = &vocabulary}, "models[1].model.vocab_only"},
        {{.name = "x", .path = "fake:", .model = &split}, "models[1].model.tensor_split"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        weir_error error = {0};
        r.models[1] = bad[i].model;
        r.models[1].size = sizeof r.models[1];
        assert_int_equal(weir_pool_set(r.pool, r.models, 2, &error), WEIR_INVALID);
        assert_string_equal(error.field, bad[i].field);
    }
    r.models[1] = good;
    assert_int_equal(rack_stats(&r).n_models, 2);
    rack_touch(&r, "m1");
    rack_close(&r);
}

static void two_names_of_one_file_are_two_models(void **state)
{
    (void)state;
    rack r;
    int32_t first[N_ANSWER], second[N_ANSWER];
    rack_open(&r, 230, 2, "");
    r.models[1].path = r.models[0].path;
    assert_int_equal(weir_pool_set(r.pool, r.models, 2, NULL), WEIR_OK);
    weir_lease *a = rack_lease(&r, "m0"), *b = rack_lease(&r, "m1");
    rack_generate(weir_lease_engine(a), 1, 30, first, NULL);
    rack_generate(weir_lease_engine(b), 1, 30, second, NULL);
    assert_memory_equal(first, second, sizeof first);
    assert_true(rack_stats(&r).used_bytes >= 200 * MIB);
    weir_lease_release(a);
    weir_lease_release(b);
    rack_close(&r);
}

static void sizes_are_known_before_the_first_load(void **state)
{
    (void)state;
    rack r;
    rack_open(&r, 230, 3, "");
    for (int i = 0; i < WAIT_MS && rack_info(&r, "m2").n_bytes == 0; i++) {
        struct timespec ms = {.tv_nsec = 1000000};
        nanosleep(&ms, NULL);
    }
    assert_true(rack_info(&r, "m2").n_bytes >= 100 * MIB);
    assert_int_equal(rack_info(&r, "m2").n_ctx, 256);
    assert_state(&r, "m2", WEIR_POOL_UNLOADED);
    weir_pool_info info = {.size = sizeof info};
    assert_int_equal(weir_pool_get(r.pool, 2, &info), WEIR_OK);
    assert_string_equal(info.name, "m2");
    assert_int_equal(weir_pool_get(r.pool, 3, &info), WEIR_END);
    rack_close(&r);
}

/* Memory beside a model counts like the model; idle models sleep for it, others do not. */
static void memory_beside_a_model_is_counted(void **state)
{
    (void)state;
    rack r;
    weir_error error;
    rack_open(&r, 260, 3, "");
    r.models[2].pinned = true;
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, &error), WEIR_OK);
    rack_touch(&r, "m2");
    rack_touch(&r, "m1");
    assert_int_equal(weir_pool_reserve(r.pool, (weir_model *)&r, 1, &error), WEIR_STATE);
    assert_int_equal(weir_pool_reserve(r.pool, NULL, 1, &error), WEIR_INVALID);
    assert_int_equal(weir_pool_reserve(NULL, (weir_model *)&r, 1, &error), WEIR_INVALID);
    weir_lease *lease = rack_lease(&r, "m1");
    weir_model *model = weir_lease_model(lease);
    uint64_t before = rack_stats(&r).used_bytes;
    assert_int_equal(weir_pool_reserve(r.pool, model, 30 * MIB, &error), WEIR_OK);
    assert_int_equal(weir_pool_reserve(r.pool, model, 40 * MIB, &error), WEIR_OK); /* in place of it */
    assert_int_equal(rack_stats(&r).used_bytes, before + 40 * MIB);
    assert_int_equal(weir_pool_reserve(r.pool, model, 90 * MIB, &error), WEIR_TOO_LONG);
    assert_non_null(strstr(error.message, "90.0 MiB more are needed"));
    assert_non_null(strstr(error.message, "260.0 MiB"));
    assert_int_equal(rack_stats(&r).used_bytes, before + 40 * MIB);
    assert_int_equal(weir_pool_reserve(r.pool, model, 0, &error), WEIR_OK);
    assert_int_equal(rack_stats(&r).used_bytes, before);

    r.models[2].pinned = false;
    assert_int_equal(weir_pool_set(r.pool, r.models, 3, &error), WEIR_OK);
    weir_lease *other = rack_lease(&r, "m2");
    assert_int_equal(weir_pool_reserve(r.pool, model, 90 * MIB, &error), WEIR_BUSY);
    assert_non_null(strstr(error.message, "try again later"));
    assert_state(&r, "m2", WEIR_POOL_LOADED);
    weir_lease_release(other);
    const struct timespec moment = {.tv_nsec = 1000000};
    while (weir_pool_reserve(r.pool, model, 90 * MIB, &error) == WEIR_BUSY) nanosleep(&moment, NULL);
    assert_state(&r, "m2", WEIR_POOL_SLEEPING);
    assert_true(rack_stats(&r).used_bytes > 190 * MIB);
    weir_lease_release(lease);
    assert_int_equal(weir_pool_unload(r.pool, "m1", &error), WEIR_OK);
    while (rack_stats(&r).used_bytes > 0) nanosleep(&moment, NULL); /* it ends with the model */
    rack_touch(&r, "m1");
    assert_true(rack_stats(&r).used_bytes < 110 * MIB);
    rack_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_beside_a_model_is_counted),
        cmocka_unit_test(the_least_recently_used_sleeps),
        cmocka_unit_test(a_model_with_a_lease_stays),
        cmocka_unit_test(pinned_models_are_loaded_at_once_and_stay),
        cmocka_unit_test(a_model_beyond_the_budget_is_refused_at_once),
        cmocka_unit_test(idle_models_sleep),
        cmocka_unit_test(the_keeper_sleeps_while_the_loader_works),
        cmocka_unit_test(sleep_keeps_prefixes),
        cmocka_unit_test(a_failed_load_is_reported_and_tried_again),
        cmocka_unit_test(drafts_and_adapters_are_loaded_with_the_model),
        cmocka_unit_test(a_broken_template_fails_the_load),
        cmocka_unit_test(a_smaller_budget_puts_idle_models_to_sleep),
        cmocka_unit_test(a_cgroup_that_allows_less_puts_idle_models_to_sleep),
        cmocka_unit_test(memory_that_shrinks_ends_nothing),
        cmocka_unit_test(the_budget_follows_the_machine),
        cmocka_unit_test(the_machines_memory_is_read_before_a_load),
        cmocka_unit_test(the_machines_memory_is_read_without_the_mutex),
        cmocka_unit_test(a_new_list_touches_nothing_that_runs),
        cmocka_unit_test(a_bad_list_changes_nothing),
        cmocka_unit_test(two_names_of_one_file_are_two_models),
        cmocka_unit_test(sizes_are_known_before_the_first_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
