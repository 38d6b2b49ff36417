/* SPDX-License-Identifier: Apache-2.0 */
#include "support/event.h"

#include <string.h>

#include "engine/engine.h"
#include "support/order.h"
#include "support/plan.h"

void play_read_all(play *p)
{
    for (int i = 0; i < p->n_jobs; i++) {
        job *j = &p->jobs[i];
        if (j->stream != NULL && dice_one_in(&p->d, j->slow)) job_take(j, dice_one_in(&p->d, 3) ? 1 : 1000);
    }
}

void play_act(play *p)
{
    int32_t event = dice_in(&p->d, 0, 99);
    job *j = p->n_jobs > 0 ? &p->jobs[dice_in(&p->d, 0, p->n_jobs - 1)] : NULL;
    if (event < 20) {
        play_submit(p);
        return;
    }
    if (event < 60) {
        play_read_all(p);
        return;
    }
    if (event == 99 && p->place != BETWEEN && dice_one_in(&p->d, 6)) {
        say(p, "stop in place %d", (int)p->place);
        weir_engine_stop(p->engine); /* within a tick: its end does the rest */
        p->closed = p->stopped = true;
        p->n_acts++;
        return;
    }
    if (j == NULL || j->stream == NULL) return;
    if (event < 68) {
        say(p, "cancel job %d in place %d", job_number(j), (int)p->place);
        job_cancel(j);
    } else if (event < 74) {
        int32_t interval = dice_in(&p->d, -1, 12), used = interval < 1 ? 1 : interval;
        weir_stream_set_interval(j->stream, interval);
        say(p, "interval of job %d is %d", job_number(j), interval);
        MUST(p, weir_stream_interval(j->stream) == used, "job %d", job_number(j));
        if (used < j->least) j->least = used;
        if (used > j->most) j->most = used;
    } else if (event < 77) {
        say(p, "let go of job %d in place %d", job_number(j), (int)p->place);
        job_let_go(j);
    } else if (event < 80) {
        weir_stream_release(weir_stream_hold(j->stream)); /* not the last: nothing happens */
    } else if (event < 84) {
        job_watch(j, dice_one_in(&p->d, 2));
    } else {
        job_take(j, dice_one_in(&p->d, 3) ? 1 : 1000);
    }
}

/* Lanes of running requests have consecutive numbers once the engine had time for it. */
static void check_lanes(play *p, const weir_engine_stats *s, int32_t lowest, int32_t highest)
{
    bool same = s->n_suspensions == p->at_decode.n_suspensions &&
                memcmp(s->n_misses, p->at_decode.n_misses, sizeof s->n_misses) == 0 && /* none began */
                s->n_cached_tokens ==
                    p->at_decode.n_cached_tokens && /* nor began again, after a suspension and a wait */
                play_n_finished(s) == play_n_finished(&p->at_decode) &&
                s->n_submitted - (uint64_t)s->queue_depth ==
                    p->at_decode.n_submitted - (uint64_t)p->at_decode.queue_depth;
    int32_t n_led = 0; /* one that waited for another one gets its lane, and none of these counts changes */
    for (int32_t i = 0; i < p->params.n_slots; i++)
        n_led += p->engine->driver.slots.first[i].state == WEIR_SLOT_JOINED;
    p->calm = same && n_led == p->n_led && !atomic_load(&p->fake->fail_share) ? p->calm + 1 : 0;
    p->n_led = n_led;
    if (p->first.layout != WEIR_LAYOUT_PER_SLOT || p->calm <= 2 * p->params.n_slots) return;
    MUST(p, highest - lowest < s->n_slots_prefilling + s->n_slots_generating, "lanes %d and %d are used",
         lowest, highest);
}

void play_before_decode(void *user, const weir__batch *batch)
{
    play *p = user;
    place outer = p->place;
    int32_t lowest = INT32_MAX, highest = 0, n = 0, n_rows = 0;
    bool done[WEIR__SEQ_MAX] = {0};
    p->place = DECODING;
    p->n_decodes++;
    p->turns += p->generating;
    if (p->generating) play_count_generate(p);
    p->batch_seqs = p->batch_drafts = 0;
    weir__cost_init(&p->engine->driver.cost); /* ticks cost alike each time that a schedule runs */
    MUST(p, batch->n >= 1 && batch->n <= p->first.n_batch, "a batch of %d", batch->n);
    for (int32_t i = 0; i < batch->n; i++) {
        bool last = i + 1 == batch->n || batch->seq[i + 1] != batch->seq[i];
        MUST(p, !done[batch->seq[i]], "the rows of lane %d are not together", batch->seq[i]);
        const weir__slot *slot = p->engine->driver.lanes.slot[batch->seq[i]];
        MUST(p, last || !batch->logits[i] || p->scores || slot->n_drafted > 0, "logits within a prompt");
        n_rows += batch->logits[i] != 0;
        MUST(p, ++n <= p->params.chunk_size || n <= 1 + slot->n_drafted, "a chunk of %d", n);
        if (!last) continue;
        MUST(p, slot->n_drafted == 0 || n == 1 + slot->n_drafted, "%d rows", n);
        p->batch_drafts += slot->n_drafted;
        n = 0;
        p->batch_seqs++;
        done[batch->seq[i]] = true;
        if (batch->seq[i] < lowest) lowest = batch->seq[i];
        if (batch->seq[i] > highest) highest = batch->seq[i];
    }
    MUST(p, n_rows <= p->params.n_slots + p->batch_drafts + (p->scores ? 64 : 0), "%d rows", n_rows);
    weir_engine_stats s = play_stats(p);
    MUST(p, s.n_kv_used + batch->n - p->batch_drafts <= s.n_kv_reserved && s.n_kv_used + batch->n <= s.n_kv,
         "%d of %d cells in use, %d reserved, a batch of %d, %d of them drafts", s.n_kv_used, s.n_kv,
         s.n_kv_reserved, batch->n, p->batch_drafts);
    check_lanes(p, &s, lowest, highest);
    p->at_decode = s;
    if (dice_one_in(&p->d, p->act_rate)) play_act(p);
    p->place = outer;
}

void play_before_sample(void *user, int32_t row)
{
    play *p = user;
    place outer = p->place;
    (void)row;
    p->place = SAMPLING;
    if (dice_one_in(&p->d, 3 * p->act_rate)) play_act(p);
    p->place = outer;
}

size_t play_plan(const weir_view *view, weir_plan_entry *plan, void *user)
{
    play *p = user;
    size_t n = plan_random(&p->d, view, p->params.n_slots, plan, view->n_slots);
    p->strategy_bad = !plan_allowed(view, p->params.n_slots, plan, n) ||
                      (view->n_slots > 0 && plan_sum(plan, n) == 0); /* else it would wait for ever */
    if (dice_one_in(&p->d, 40)) {
        n = SIZE_MAX;
        p->strategy_bad = true;
    }
    p->n_bad_plans += p->strategy_bad && view->n_slots > 0; /* else there is no tick */
    return n;
}
