/* peers_test.c: prompts beside requests of other engines of the process that have a higher priority, or whose
 * tenants have had less time.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/driver.h"
#include "support/engine/pace.h"

#define FIT  4   /* tokens that fit the target */
#define REST 202 /* ms until the next pass: one of 40 ms and a bit for its context, and four times as long */
#define MS   WEIR__NS_PER_MS

/* Another engine, of which there is only the part that its peers see. */
typedef struct other {
    weir__peer peer;
    weir__waker *waker;
    weir__request request;
} other;

static void other_join(other *o)
{
    memset(o, 0, sizeof *o);
    assert_int_equal(weir__waker_create(&o->waker), WEIR_OK);
    weir__peers_join(&o->peer, o->waker);
}

static void other_leave(other *o)
{
    weir__peers_leave(&o->peer);
    weir__waker_release(o->waker);
}

static void other_runs(other *o, int32_t priority)
{
    o->request.priority = priority;
    o->request.submit_ns = weir__clock_now_ns();
    weir__peers_report(&o->peer, &o->request);
}

static int peers_setup(void **state)
{
    if (pace_setup(state) != 0) return -1;
    rig *r = *state;
    rig_script(r, 'A', LONG, "low");
    rig_start(r);
    weir__peers_join(&r->engine->driver.peer, r->engine->waker); /* as if it had a thread */
    return 0;
}

static int peers_teardown(void **state)
{
    rig *r = *state;
    if (r->engine != NULL) weir__peers_leave(&r->engine->driver.peer);
    return pace_teardown(state);
}

#define PEERS_TEST(name) cmocka_unit_test_setup_teardown(name, peers_setup, peers_teardown)

/* Ticks at `ms` after the start, and how many prompt tokens it computes. */
static void expect_at(rig *r, int64_t ms, int32_t wanted)
{
    weir_report report = {.size = sizeof report};
    weir__clock_stand(START + ms * MS);
    assert_int_equal(weir_engine_step(r->engine, NULL, 0, &report, NULL), WEIR_OK);
    assert_int_equal(report.n_prefill, wanted);
}

static void a_prompt_has_a_fifth_of_the_time(void **state)
{
    rig *r = *state;
    other o;
    sink got = {0};
    other_join(&o);
    weir_stream *low = rig_submit_key(r, 'A');
    expect_at(r, 0, CHUNK);
    other_runs(&o, 1);
    expect_at(r, 0, FIT);
    assert_true(o.peer.runs && r->engine->driver.peer.yields);
    expect_at(r, 1, 0);
    assert_in_range(weir__pace_rest_ns(&r->engine->driver), START + 200 * MS, START + REST * MS);
    expect_at(r, 199, 0);
    expect_at(r, REST, FIT);
    expect_at(r, REST + 199, 0);
    expect_at(r, 2 * REST, FIT);
    weir__peers_report(&o.peer, NULL); /* no rest; passes grow again */
    assert_false(r->engine->driver.peer.yields);
    weir__waker_wait(r->engine->waker, WEIR__CLOCK_NEVER); /* it was woken */
    expect_at(r, 2 * REST + 1, FIT);
    assert_true(weir__pace_rest_ns(&r->engine->driver) == WEIR__CLOCK_NEVER);
    expect_at(r, 2 * REST + 1000, CHUNK);
    rig_run_out(r, low, &got);
    assert_sink(got, WEIR_REASON_END, "low");
    other_leave(&o);
}

static void equals_and_streams_change_nothing(void **state)
{
    rig *r = *state;
    other o;
    other_join(&o);
    other_runs(&o, 0);
    rig_submit_key(r, 'A');
    for (int i = 0; i < LONG / CHUNK; i++) expect_at(r, i, CHUNK);
    other_runs(&o, 1); /* the prompt is computed: its answer goes on */
    int before = (int)rig_stats(r).n_generated_tokens;
    expect_at(r, 100, 0);
    assert_int_equal(rig_stats(r).n_generated_tokens, before + 1);
    rig_run(r);
    other_leave(&o);
}

static void an_engine_that_has_left_outranks_nobody(void **state)
{
    rig *r = *state;
    other o, third;
    other_join(&o);
    other_join(&third);
    other_runs(&o, 1);
    rig_submit_key(r, 'A');
    expect_at(r, 0, FIT);
    other_leave(&o);
    expect_at(r, 1000, CHUNK);
    rig_run(r);
    other_leave(&third);
}

/* Its driver sleeps when the next engine joins, and reports nothing until it has work again. */
static void an_engine_that_ended_its_request_alone_outranks_nobody(void **state)
{
    rig *r = *state;
    other o;
    other_join(&o);
    other_runs(&o, 5);
    weir__peers_leave(&r->engine->driver.peer);
    weir__peers_report(&o.peer, NULL);
    weir__peers_join(&r->engine->driver.peer, r->engine->waker);
    rig_submit_key(r, 'A');
    expect_at(r, 0, CHUNK);
    rig_run(r);
    other_leave(&o);
}

/* ---- Tenants ---- */

#define TENANT 7 /* of the other engine's request; the rig's own have no tenant: 0 */

static void other_runs_for(other *o, uint64_t tenant, int32_t priority)
{
    o->request.tenant_hash = tenant;
    other_runs(o, priority);
}

static void bill(other *o, uint64_t tenant, int64_t ms)
{
    weir__peers_bill(&o->peer, tenant, ms * MS, weir__clock_now_ns());
}

static void a_tenant_with_less_time_goes_first(void **state)
{
    rig *r = *state;
    other o;
    sink got = {0};
    other_join(&o);
    weir_stream *low = rig_submit_key(r, 'A');
    other_runs_for(&o, TENANT, 0);
    expect_at(r, 0, CHUNK);
    bill(&o, 0, 900);
    expect_at(r, 0, CHUNK); /* not enough to matter */
    bill(&o, 0, 2000);
    expect_at(r, 0, FIT);
    expect_at(r, 1, 0);
    assert_true(r->engine->driver.peer.yields);
    expect_at(r, REST, FIT);
    bill(&o, TENANT, 2000);
    expect_at(r, 2 * REST, FIT);
    expect_at(r, 2 * REST + 1000, CHUNK);
    bill(&o, 0, 2000);
    other_runs_for(&o, 0, 0); /* the same tenant */
    expect_at(r, 2 * REST + 2000, CHUNK);
    other_runs_for(&o, TENANT, -1);
    expect_at(r, 2 * REST + 2000, CHUNK);
    weir__peers_report(&o.peer, NULL);
    rig_run_out(r, low, &got);
    assert_sink(got, WEIR_REASON_END, "low");
    other_leave(&o);
}

/* An engine reports, of its running requests, that of the tenant with the least time. */
static void an_engine_tells_the_tenant_with_the_least_time(void **state)
{
    rig *r = *state;
    other o;
    weir_request request = rig_ask(r, 'A');
    other_join(&o);
    request.tenant = "one";
    for (int i = 0; i < 3; i++) {
        rig_submit(r, &request);
        request.tenant = i == 0 ? "two" : "three";
    }
    rig_tick(r);
    const weir__slot *slots = r->engine->driver.slots.first;
    for (int i = 0; i < 3; i++)
        bill(&o, slots[i].request->tenant_hash, slots[i].request->serial == 1 ? 10 : 3000);
    rig_tick(r);
    for (int i = 0; i < 3; i++)
        assert_int_equal(slots[i].request->tenant_hash == r->engine->driver.peer.tenant,
                         slots[i].request->serial == 1);
    rig_run(r);
    other_leave(&o);
}

static void spend(void *user, const weir__batch *batch)
{
    (void)user;
    weir__clock_stand(weir__clock_now_ns() + batch->n * 5 * MS);
}

/* An engine of a tenant that always has a prompt. */
typedef struct tenant_engine {
    rig *rig;
    const char *tenant;
    weir_stream *stream;
} tenant_engine;

static void keep_busy(tenant_engine *e)
{
    sink got = {0};
    if (e->stream != NULL) {
        sink_take(&got, e->stream);
        if (got.finished) {
            rig_release(e->rig, e->stream);
            e->rig->n_streams--;
            e->stream = NULL;
        }
    }
    if (e->stream == NULL) {
        weir_request request = rig_ask(e->rig, 'A');
        request.tenant = e->tenant;
        e->stream = rig_submit(e->rig, &request);
    }
    rig_tick(e->rig);
}

/* Two engines are busy for one tenant, one for another. Each engine in turn computes a pass. */
static void tenants_have_equal_shares_of_the_time(void **state)
{
    tenant_engine engines[3] = {{*state, "one", NULL}, {NULL, "many", NULL}, {NULL, "many", NULL}};
    void *more[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(peers_setup(&more[i]), 0);
        engines[i + 1].rig = more[i];
    }
    for (int i = 0; i < 3; i++) {
        engines[i].rig->dirty = true; /* blocks of the other rigs */
        engines[i].rig->fake->before_decode = spend;
    }
    while (weir__clock_now_ns() < START + 300000 * MS)
        for (int i = 0; i < 3; i++) keep_busy(&engines[i]);
    double one = (double)rig_stats(engines[0].rig).n_prompt_tokens,
           many = (double)(rig_stats(engines[1].rig).n_prompt_tokens +
                           rig_stats(engines[2].rig).n_prompt_tokens);
    assert_true(one / (one + many) > 0.45 && one / (one + many) < 0.55);
    for (int i = 0; i < 2; i++) assert_int_equal(peers_teardown(&more[i]), 0);
    weir__clock_stand(START);
}

/* ---- Abandoned passes ---- */

/* A request that the other engine begins during a pass. */
typedef struct arrival {
    other o;
    int at; /* the pass, counted down */
    int64_t asked_ms;
} arrival;

static void arrive(void *user, const weir__batch *batch)
{
    arrival *a = user;
    (void)batch;
    if (a->at-- != 0) return;
    other_runs(&a->o, 1);
    weir__clock_stand(weir__clock_now_ns() + a->asked_ms * MS);
}

static void a_long_pass_is_abandoned(void **state)
{
    rig *r = *state;
    arrival a = {.at = 1, .asked_ms = 2};
    sink got = {0};
    other_join(&a.o);
    r->fake->before_decode = arrive;
    r->fake->before_decode_user = &a;
    weir_stream *low = rig_submit_key(r, 'A');
    rig_ticks(r, 2);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
    assert_int_equal(rig_stats(r).n_prompt_tokens, CHUNK);
    expect_at(r, 10, FIT);
    other_runs(&a.o, 2); /* the next pass of the same prompt is not abandoned */
    weir__peers_report(&a.o.peer, NULL);
    rig_run_out(r, low, &got);
    assert_sink(got, WEIR_REASON_END, "low");
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 1);
    r->fake->before_decode = NULL;
    other_leave(&a.o);
}

/* The other engine's request is of a tenant with less time, but of the same priority. */
static void arrive_with_less_time(void *user, const weir__batch *batch)
{
    arrival *a = user;
    (void)batch;
    if (a->at-- != 0) return;
    bill(&a->o, 0, 5000);
    other_runs_for(&a->o, TENANT, 0);
    weir__clock_stand(weir__clock_now_ns() + a->asked_ms * MS);
}

static void no_pass_is_abandoned_for_less_time(void **state)
{
    rig *r = *state;
    arrival a = {.at = 1, .asked_ms = 2};
    other_join(&a.o);
    r->fake->before_decode = arrive_with_less_time;
    r->fake->before_decode_user = &a;
    rig_submit_key(r, 'A');
    rig_ticks(r, 2);
    assert_int_equal(rig_stats(r).n_abandoned_ticks, 0);
    assert_int_equal(rig_stats(r).n_prompt_tokens, 2 * CHUNK);
    weir__peers_report(&a.o.peer, NULL);
    rig_run(r);
    r->fake->before_decode = NULL;
    other_leave(&a.o);
}

/* Two engines with threads: requests of higher priority without end do not starve the other engine's. */
static void an_endless_row_starves_nobody(void **state)
{
    rig *r = *state, *high;
    void *second = NULL;
    sink got = {0};
    int n_high = 0;
    weir__peers_leave(&r->engine->driver.peer);
    rig_stop(r);
    weir__clock_stand(-1);
    assert_int_equal(rig_setup(&second), 0);
    high = second;
    high->dirty = true; /* blocks of the other rig */
    rig_script(high, 'B', 40, "of higher priority");
    r->params.manual = high->params.manual = false;
    rig_start(r);
    rig_start(high);
    weir_stream *low = rig_submit_key(r, 'A');
    for (; !got.finished; n_high++) {
        weir_request request = rig_ask(high, 'B');
        sink other_got = {0};
        request.priority = 1;
        weir_stream *stream = rig_submit(high, &request);
        sink_wait(&other_got, stream);
        assert_sink(other_got, WEIR_REASON_END, "of higher priority");
        rig_release(high, stream);
        high->n_streams--;
        sink_take(&got, low);
    }
    assert_sink(got, WEIR_REASON_END, "low");
    assert_true(n_high > 0);
    rig_stop(r);
    assert_int_equal(rig_teardown(&second), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEERS_TEST(a_prompt_has_a_fifth_of_the_time),
        PEERS_TEST(equals_and_streams_change_nothing),
        PEERS_TEST(an_engine_that_has_left_outranks_nobody),
        PEERS_TEST(a_tenant_with_less_time_goes_first),
        PEERS_TEST(an_engine_tells_the_tenant_with_the_least_time),
        PEERS_TEST(tenants_have_equal_shares_of_the_time),
        PEERS_TEST(a_long_pass_is_abandoned),
        PEERS_TEST(no_pass_is_abandoned_for_less_time),
        PEERS_TEST(an_engine_that_ended_its_request_alone_outranks_nobody),
        PEERS_TEST(an_endless_row_starves_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
