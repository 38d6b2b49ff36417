/* pace.c: limits prefill while requests of higher priority run. Of the outranked prompts at most one gets
 * tokens in a tick: beside streams, the next prompt gets as many as fit the target of their time per token,
 * and in every fourth tick it is the oldest prompt. A prompt that is no longer outranked has a limit that
 * grows with the time since then. During a pass, the backend asks now and then whether to abandon it: because
 * nobody waits for it, or because others go before all of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine/driver.h"
#include "schedule/schedule.h"

#define RECOVERY_PART 4               /* see recovery_limit */
#define SEARCH_NS     WEIR__NS_PER_MS /* the queue is searched this often during a pass, at most */

/* ---- Who goes first ---- */

/* The work of a tick, and the prompts that are outranked in it. */
typedef struct tick_load {
    weir__driver *driver;
    int64_t now;
    weir_cost cost;
    int64_t target_ns, own_ns; /* of the streams, and at most the engine's */
    int32_t n_decode;          /* tokens of streams */
    double decode_k;           /* the context that these attend to */
    bool has_prompts;          /* that nobody outranks */
    double prompts_ns;         /* their time, as far as it is known: 0 if they seem to take none */
    bool has_work;             /* of a stream or of such a prompt */
    weir__slot *next;          /* the first outranked prompt by priority and age; NULL = none */
    weir__slot *oldest;        /* outranked prompt */
} tick_load;

static bool slot_runs(const tick_load *c, const weir__slot *slot)
{
    return (slot->state == WEIR_SLOT_PREFILLING || slot->state == WEIR_SLOT_GENERATING) &&
           weir__turns_has(&c->driver->turns, slot);
}

/* True if slot `by` waits for this slot's prompt, with which it shares a prefix. */
static bool is_waited_for(const weir__slot *slot, const weir__slot *by)
{
    return by->state == WEIR_SLOT_JOINED && by->leader == slot->index;
}

static bool slot_outranks(const tick_load *c, const weir__slot *a, const weir__slot *b)
{
    return weir__queue_outranks(a->request, b->request, c->now);
}

/* True if a slot, or one with a stream, has a request that outranks the prompt, and does not wait for
 * something outside the engine. False if a request that outranks it waits for it. */
static bool is_outranked(const tick_load *c, const weir__slot *slot, bool by_stream)
{
    bool outranked = false;
    for (const weir__slot *other = c->driver->slots.first; other < c->driver->slots.end; other++) {
        if (other->state == WEIR_SLOT_IDLE || !slot_outranks(c, other, slot)) continue;
        if (is_waited_for(slot, other)) return false;
        if (weir__slot_awaits(&c->driver->slots, other)) continue;
        outranked |= !by_stream || weir__slot_flows(other);
    }
    return outranked;
}

static bool request_tops(const weir__peer *peer, const weir__request *a, const weir__request *b, int64_t now)
{
    if (a->priority != b->priority) return a->priority > b->priority;
    return a->tenant_hash != b->tenant_hash && weir__peers_recent_ns(peer, a->tenant_hash, now) <
                                                   weir__peers_recent_ns(peer, b->tenant_hash, now);
}

/* The request that goes before all others that run and do not wait for something outside the engine: one
 * of the highest priority, of the tenant with the least recent time; NULL = none. */
static const weir__request *top_request(const weir__driver *driver, int64_t now)
{
    const weir__request *top = NULL;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || weir__slot_awaits(&driver->slots, slot)) continue;
        if (top == NULL || request_tops(&driver->peer, slot->request, top, now)) top = slot->request;
    }
    return top;
}

static bool goes_before(const weir__slot *a, const weir__slot *b)
{
    if (a->request->priority != b->request->priority) return a->request->priority > b->request->priority;
    return a->request->serial < b->request->serial;
}

/* ---- How many tokens ---- */

static double token_ns(const tick_load *c, const weir__slot *slot)
{
    return weir_cost_tick_ns(&c->cost, 0, 0, 1, weir__cost_context_k(slot->n_past, 1));
}

static int32_t most_of(const tick_load *c, const weir__slot *slot)
{
    return weir__schedule_least(slot->request->history.n_tokens - slot->n_past,
                                c->driver->params->chunk_size);
}

/* The prompt's tokens, at most, that keep the tick within a target. */
static int32_t fitting_tokens(const tick_load *c, const weir__slot *slot, int64_t target_ns)
{
    int32_t n_passes = c->driver->info.layout == WEIR_LAYOUT_PER_SLOT && c->n_decode > 0 ? 2 : 1;
    return weir__latency_target_fit(&c->cost, target_ns,
                                    weir_cost_tick_ns(&c->cost, n_passes, c->n_decode, 0, c->decode_k),
                                    token_ns(c, slot), most_of(c, slot));
}

/* Sets the limit of one outranked prompt. Beside streams, the next one gets the tokens that fit the target;
 * beside prompts, none. Every fourth tick belongs to the oldest, for as long as the other prompts take in
 * that tick: a fifth of the time. */
static void give_turn(const tick_load *c)
{
    bool due = c->oldest->pace.n_skipped + 1 >= WEIR__PACE_TURN;
    weir__slot *slot = due ? c->oldest : c->next;
    int32_t n = due || !c->has_prompts ? fitting_tokens(c, slot, c->target_ns) : 0;
    if (due && !is_outranked(c, slot, true) && c->prompts_ns > n * token_ns(c, slot))
        n = (int32_t)(c->prompts_ns / token_ns(c, slot));
    slot->pace.limit = n > 0 ? n : due || !c->has_work;
}

/* The limit of a prompt that is no longer outranked: its ticks take up to a quarter of the time since then,
 * at least the target. An abandoned pass therefore loses at most a quarter of that time. */
static int32_t recovery_limit(const tick_load *c, weir__slot *slot)
{
    if (slot->pace.outranked_ns == 0) return INT32_MAX;
    int64_t tick_ns = (c->now - slot->pace.outranked_ns) / RECOVERY_PART;
    int32_t n = fitting_tokens(c, slot, tick_ns > c->own_ns ? tick_ns : c->own_ns);
    if (n >= most_of(c, slot)) return INT32_MAX;
    return n > 1 ? n : 1;
}

/* True if another engine's request outranks the prompt, and all that wait for it. */
static bool outranked_by_peers(weir__driver *driver, const weir__slot *slot, int64_t now)
{
    if (!weir__peers_outrank(&driver->peer, slot->request, now)) return false;
    for (const weir__slot *other = driver->slots.first; other < driver->slots.end; other++) {
        if (is_waited_for(slot, other) && !weir__peers_outrank(&driver->peer, other->request, now))
            return false;
    }
    return true;
}

/* True if another engine's request goes before the prompt, and before all that wait for it. */
static bool yields_to_peers(weir__driver *driver, const weir__slot *slot, int64_t now)
{
    if (outranked_by_peers(driver, slot, now)) return true;
    if (!weir__peers_precede(&driver->peer, slot->request, now)) return false;
    for (const weir__slot *other = driver->slots.first; other < driver->slots.end; other++) {
        if (is_waited_for(slot, other) && !weir__peers_precede(&driver->peer, other->request, now))
            return false;
    }
    return true;
}

/* ---- The tick ---- */

static void count_slot(tick_load *c, weir__slot *slot)
{
    if (weir__slot_flows(slot)) {
        int32_t n = slot->state == WEIR_SLOT_GENERATING ? 1 : most_of(c, slot);
        c->n_decode += n;
        c->decode_k += weir__cost_context_k(slot->n_past, n);
        c->has_work = true;
        return;
    }
    slot->pace.yields = yields_to_peers(c->driver, slot, c->now);
    if (slot->pace.yields) slot->pace.outranked_ns = c->now;
    if (slot->pace.yields && c->now < c->driver->watch.rest_ns) {
        slot->pace.limit = 0;
        c->driver->watch.rests = true;
        return;
    }
    if (is_outranked(c, slot, false)) {
        slot->pace.outranked_ns = c->now;
        slot->pace.limit = 0;
        if (c->next == NULL || goes_before(slot, c->next)) c->next = slot;
        if (c->oldest == NULL || slot->request->serial < c->oldest->request->serial) c->oldest = slot;
        return;
    }
    slot->pace.limit = INT32_MAX;
    c->prompts_ns += most_of(c, slot) * token_ns(c, slot);
    c->has_prompts = c->has_work = true;
}

static int64_t share_ns(const weir__turns *turns, int64_t ms)
{
    return ms * WEIR__NS_PER_MS / (turns->n_sets > 0 ? turns->n_sets : 1);
}

int64_t weir__pace_target_ns(const weir__driver *driver)
{
    int32_t usual = driver->params->itl_target_ms, least = INT32_MAX, floor = (usual + 3) / 4;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (!weir__slot_flows(slot)) continue;
        int32_t own = slot->request->itl_target_ms > 0 ? slot->request->itl_target_ms : usual;
        if (own < least) least = own;
    }
    return share_ns(&driver->turns, least == INT32_MAX ? usual : least > floor ? least : floor);
}

/* The streams' target, but at most the engine's: others wait for no longer, whatever streams allow. */
static int64_t own_target_ns(const weir__driver *driver)
{
    int64_t target_ns = weir__pace_target_ns(driver),
            own_ns = share_ns(&driver->turns, driver->params->itl_target_ms);
    return target_ns < own_ns ? target_ns : own_ns;
}

void weir__pace_choose(weir__driver *driver, int64_t now)
{
    tick_load c = {.driver = driver, .now = now};
    c.cost = weir__cost_get(&driver->cost);
    c.target_ns = weir__pace_target_ns(driver);
    c.own_ns = own_target_ns(driver);
    driver->watch.rests = false;
    driver->watch.rises = weir__peers_rises();
    weir__peers_report(&driver->peer, top_request(driver, now));
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        slot->pace.limit = INT32_MAX;
        slot->pace.yields = false;
        if (slot_runs(&c, slot)) count_slot(&c, slot);
    }
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot_runs(&c, slot) && !weir__slot_flows(slot) && slot->pace.limit > 0)
            slot->pace.limit = recovery_limit(&c, slot);
    }
    if (c.next != NULL) give_turn(&c);
}

void weir__pace_bill(weir__driver *driver, int64_t ns, int64_t now)
{
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        weir__peers_bill(&driver->peer, slot->request->tenant_hash, ns / driver->batch.n * slot->n_planned,
                         now);
    }
}

void weir__pace_advance(const weir__slots *slots)
{
    for (weir__slot *slot = slots->first; slot < slots->end; slot++) {
        if (slot->n_planned > 0) {
            slot->request->owed = false;
            slot->pace.n_skipped = 0;
        } else if (slot->pace.limit == 0) {
            slot->pace.n_skipped++;
        }
    }
}

int64_t weir__pace_rest_ns(const weir__driver *driver)
{
    if (!driver->watch.rests) return WEIR__CLOCK_NEVER;
    int64_t ends = driver->watch.rest_ns;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && slot->request->deadline_ns < ends)
            ends = slot->request->deadline_ns;
    }
    return ends;
}

/* ---- Abandoned passes ---- */

/* True if the pass has a prompt that yields to another engine's requests. */
static bool pass_yields(const weir__driver *driver)
{
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_PREFILLING && slot->n_planned > 0 && slot->pace.yields) return true;
    }
    return false;
}

void weir__pace_begin(weir__driver *driver, int64_t now)
{
    const weir__shape *shape = &driver->shape;
    int64_t pass_ns = (int64_t)weir_cost_tick_ns(&driver->view.cost, shape->n_passes, shape->n_decode,
                                                 shape->n_prefill, shape->n_context_k);
    int64_t longest_ns = own_target_ns(driver);
    driver->watch.checked_ns = now;
    driver->watch.end_ns = now + pass_ns;
    if (pass_yields(driver))
        driver->watch.rest_ns =
            driver->watch.end_ns + WEIR__PACE_TURN * (pass_ns < longest_ns ? pass_ns : longest_ns);
}

/* A waiting request that outranks all of the pass, and would get a slot after it; NULL = none. */
static const weir__request *who_preempts(weir__driver *driver, int64_t now)
{
    int32_t highest = INT32_MIN;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        if (slot->request->owed) return NULL;
        if (slot->request->priority > highest) highest = slot->request->priority;
    }
    const weir__request *request = weir__shared_next(driver->shared, UINT64_MAX, highest, NULL, now);
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end && request != NULL; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && slot->n_planned > 0 &&
            !weir__queue_outranks(request, slot->request, now))
            return NULL;
    }
    return request != NULL && weir__cells_fits(&driver->cells, request, true, now) ? request : NULL;
}

/* Requests of other engines outrank all of the pass. */
static bool peers_preempt(weir__driver *driver, int64_t now)
{
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        if (slot->request->owed || !outranked_by_peers(driver, slot, now)) return false;
    }
    return true;
}

/* True if a request has arrived for which the pass should not finish. */
static bool abandons_pass(weir__driver *driver)
{
    weir__pass_watch *watch = &driver->watch;
    bool arrived = atomic_load_explicit(&driver->shared->arrived, memory_order_relaxed);
    bool risen = watch->rises != weir__peers_rises();
    if (driver->prefix.exact || (!arrived && !risen)) return false;
    int64_t now = weir__clock_now_ns();
    if (now - watch->checked_ns < SEARCH_NS) return false;
    watch->checked_ns = now;
    const weir__request *request = arrived ? who_preempts(driver, now) : NULL;
    int64_t end_ns = watch->end_ns > now ? watch->end_ns : now, target_ns = own_target_ns(driver);
    if (request != NULL && end_ns - request->submit_ns > target_ns) return true;
    return risen && end_ns - now > target_ns && peers_preempt(driver, now);
}

/* True if the pass that is being computed need not finish: nobody waits for it, or others go first. The
 * driver is inside decode, so the slots do not change. */
static bool ends_pass(void *user)
{
    weir__driver *driver = user;
    if (atomic_load_explicit(&driver->shared->stopping, memory_order_relaxed)) return true;
    for (const weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state != WEIR_SLOT_IDLE && !weir__request_cancelled(slot->request))
            return abandons_pass(driver);
    }
    return true;
}

void weir__pace_watch(weir__driver *driver)
{
    driver->model->ops->set_abort(driver->context, ends_pass, driver);
}

void weir__pace_restart(weir__driver *driver)
{
    bool alive = false;
    for (weir__slot *slot = driver->slots.first; slot < driver->slots.end; slot++) {
        if (slot->state == WEIR_SLOT_IDLE || slot->n_planned == 0) continue;
        alive |= slot->reason == WEIR_REASON_NOT_FINISHED;
        slot->request->owed = true;
        if (!weir__memory_cut(&driver->memory, slot->lane, slot->n_past,
                              weir__history_position(&slot->request->history, slot->n_past)))
            weir__slot_fail(slot, WEIR_BACKEND, NULL);
    }
    driver->account.counts.n_abandoned_ticks += alive;
}
