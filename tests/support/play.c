/* SPDX-License-Identifier: Apache-2.0 */
#include "support/play.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/chunks.h"
#include "engine/stream.h"
#include "support/event.h"

/* ---- Trace ----------------------------------------------------------------------------------------- */

void say(play *p, const char *format, ...)
{
    va_list args;
    if (p->n_trace > PLAY_TRACE - 512) { /* the end matters most */
        memmove(p->trace, p->trace + PLAY_TRACE / 2, p->n_trace - PLAY_TRACE / 2);
        p->n_trace -= PLAY_TRACE / 2;
    }
    va_start(args, format);
    int n = vsnprintf(p->trace + p->n_trace, 256, format, args);
    va_end(args);
    p->n_trace += (size_t)(n < 256 ? n : 255);
    p->trace[p->n_trace++] = '\n';
}

void show(const play *p)
{
    char line[96] = "\nrerun: WEIR_TEST_SCHEDULES=1 WEIR_TEST_SEED=", digits[24];
    size_t n = strlen(line), at = sizeof digits;
    uint64_t left = p->seed;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    memcpy(line + n, digits + at, sizeof digits - at);
    n += sizeof digits - at;
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, p->trace, p->n_trace);
    if (written >= 0) written = write(STDERR_FILENO, line, n);
    (void)written;
}

int job_number(const job *j)
{
    return (int)(j - j->play->jobs);
}

weir_engine_stats play_stats(play *p)
{
    weir_engine_stats stats = {.size = sizeof stats};
    MUST(p, weir_engine_get_stats(p->engine, &stats) == WEIR_OK, "no stats");
    return stats;
}

uint64_t play_n_finished(const weir_engine_stats *stats)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n += stats->n_finished[i];
    return n;
}

/* ---- The end --------------------------------------------------------------------------------------- */

void job_end(job *j, weir_reason reason)
{
    play *p = j->play;
    weir_error error;
    const char *name = weir_reason_name(reason);
    bool allowed = false;
    switch (reason) {
    case WEIR_REASON_END:
    case WEIR_REASON_LENGTH:
    case WEIR_REASON_STOP_WORDS: allowed = true; break;
    case WEIR_REASON_CANCELLED: allowed = j->cancel_turn > 0; break;
    case WEIR_REASON_ERROR: allowed = p->disturbed || p->scarce || p->closed; break;
    case WEIR_REASON_DEADLINE: allowed = j->w.deadline_ms > 0; break;
    case WEIR_REASON_NOT_FINISHED: break;
    }
    MUST(p, allowed, "job %d ended with %s", job_number(j), name);
    MUST(p, !j->must_cancel || reason == WEIR_REASON_CANCELLED || p->scarce, "job %d ended with %s",
         job_number(j), name);
    j->done = j->counted = true;
    p->seen[reason]++;
    if (j->stream == NULL) return;
    p->n_seen_tokens += (uint64_t)weir_stream_usage(j->stream).n_generated;
    weir_stream_error(j->stream, &error);
    MUST(p, (error.code == WEIR_OK) == (reason != WEIR_REASON_ERROR), "job %d: %s, %s", job_number(j), name,
         weir_status_name(error.code));
    MUST(p, error.code != WEIR_NO_MEMORY || p->scarce, "job %d", job_number(j));
    MUST(p, error.code != WEIR_NO_SPACE || p->disturbed, "job %d found no cells", job_number(j));
    MUST(p, error.code != WEIR_STOPPED || p->closed, "job %d", job_number(j));
}

static void judge(job *j)
{
    play *p = j->play;
    weir_error error;
    weir_usage usage = weir_stream_usage(j->stream);
    MUST(p, weir_stream_reason(j->stream) == j->r.reason, "job %d", job_number(j));
    job_end(j, j->r.reason);
    weir_stream_error(j->stream, &error);
    if (error.code == WEIR_NO_MEMORY) return; /* the lost tokens stay lost */
    const char *wrong = reader_judge(&j->r, &j->w, &usage);
    if (wrong == NULL) wrong = reader_judge_prompt(&j->w, j->stream);
    MUST(p, wrong == NULL, "job %d: %s; %s after %zu of %zu tokens (%s), \"%.*s\" for \"%s\"", job_number(j),
         wrong, weir_reason_name(j->r.reason), j->r.n_tokens, j->w.want.n_tokens,
         weir_reason_name(j->w.want.reason), (int)j->r.length, j->r.text, j->w.want.text);
}

/* ---- Taking ---------------------------------------------------------------------------------------- */

/* Whether the descriptor says that something can be taken; -1 = not asked. */
static int ask_descriptor(job *j)
{
    struct pollfd entry = {.events = POLLIN};
    if (!j->with_descriptor) return -1;
    MUST(j->play, weir_stream_descriptor(j->stream, &entry.fd, NULL) == WEIR_OK, "job %d", job_number(j));
    MUST(j->play, poll(&entry, 1, 0) >= 0, "job %d", job_number(j));
    return (entry.revents & POLLIN) != 0;
}

static void take_chunk(job *j, const weir_chunk *chunk)
{
    play *p = j->play;
    const char *wrong = NULL;
    say(p, "  job %d gets %zu tokens, %zu bytes, %s", job_number(j), chunk->n_tokens, chunk->length,
        weir_reason_name(chunk->reason));
    MUST(p, j->n_since > 0 || !j->watched || j->n_ready > 0, "nobody told that job %d is ready",
         job_number(j));
    /* weir_generate's ticks are counted at their passes, and cancelled requests end before. A stop from
     * within a tick is obeyed behind it. */
    MUST(p, ++j->n_since <= p->turns + p->generating + p->stopped - j->empty_turn,
         "two chunks of job %d in one tick", job_number(j));
    /* Earlier than that none is merged with another. */
    if (p->turns - j->empty_turn < WEIR__CHUNKS_MOST && !p->scarce)
        wrong = reader_judge_chunk(&j->r, &j->w, chunk, j->least, j->most, p->params.n_draft_max);
    MUST(p, wrong == NULL, "job %d: %s, chunk %zu", job_number(j), wrong, j->r.n_chunks);
    wrong = reader_add(&j->r, chunk);
    MUST(p, wrong == NULL, "job %d: %s", job_number(j), wrong);
    j->n_ready = 0;
    if (chunk->finished) judge(j);
}

void job_take(job *j, int most)
{
    play *p = j->play;
    for (int i = 0; i < most; i++) {
        weir_chunk chunk;
        bool finished = weir_stream_finished(j->stream);
        int readable = ask_descriptor(j);
        weir_status status = weir_stream_try_next(j->stream, &chunk);
        MUST(p, readable < 0 || readable == (status == WEIR_OK), "the descriptor of job %d", job_number(j));
        if (status == WEIR_END) {
            MUST(p, j->r.finished && finished, "job %d", job_number(j));
            return;
        }
        if (status == WEIR_TIMEOUT) {
            MUST(p, !finished, "job %d has ended without a terminal chunk", job_number(j));
            j->empty_turn = p->turns - (p->place != BETWEEN);
            j->n_since = 0;
            j->n_ready = 0;
            return;
        }
        MUST(p, status == WEIR_OK, "job %d: %s", job_number(j), weir_status_name(status));
        MUST(p, finished || !chunk.finished, "job %d", job_number(j));
        take_chunk(j, &chunk);
    }
}

/* ---- Events of one job ----------------------------------------------------------------------------- */

uint64_t job_rejected(play *p)
{
    bool whole = p->model->info.is_recurrent || p->model->info.is_hybrid;
    weir_engine_stats s = play_stats(p);
    return whole ? s.n_drafted - s.n_accepted : 0;
}

void job_accept(job *j, int32_t before, int64_t now)
{
    play *p = j->play;
    j->accepted = true;
    j->good = p->n_good;
    j->planned = p->n_planned;
    j->n_rejected = job_rejected(p);
    /* Among equals each tick brings it or an older one ahead by a token at least, but for the one that it
     * came in: the oldest has a slot and keeps it. */
    j->n_good = p->place != BETWEEN;
    for (const job *k = p->jobs; k <= j; k++) {
        bool ended = k->done || (k->stream != NULL && weir_stream_finished(k->stream));
        if (k->accepted && (k->stream == NULL || !ended))
            j->n_good += (uint64_t)k->w.task.n_prompt + (uint64_t)k->w.task.max_tokens;
    }
    j->least = j->most = j->w.interval > 0 ? j->w.interval : before;
    j->empty_turn = p->turns - (p->place != BETWEEN);
    j->due_ns = j->w.deadline_ms > 0 ? now + j->w.deadline_ms * WEIR__NS_PER_MS : INT64_MAX;
    j->slow = (int32_t[]){1, 1, 3, 40, 1000}[dice_in(&p->d, 0, 4)];
    if (j->stream == NULL) return;
    j->with_descriptor = dice_one_in(&p->d, 12);
    j->on_ready = (on_ready)dice_in(&p->d, COUNT_ONLY, ACT);
    if (j->on_ready == RELEASE && !dice_one_in(&p->d, 4)) j->on_ready = COUNT_ONLY;
    if (dice_one_in(&p->d, 3)) job_watch(j, true);
}

/* From now on it may, and if this is not too late must, end as cancelled. */
static void expect_cancel(job *j)
{
    play *p = j->play;
    if (weir_stream_finished(j->stream) || j->cancel_turn > 0) return;
    j->cancel_turn = p->turns;
    j->must_cancel = p->place == BETWEEN || p->place == DECODING;
    p->cancelled_inside |= p->place != BETWEEN;
    p->n_acts++;
}

void job_cancel(job *j)
{
    expect_cancel(j);
    weir_stream_cancel(j->stream);
}

void job_let_go(job *j)
{
    weir_stream *stream = j->stream;
    expect_cancel(j);
    if (weir_stream_finished(stream) && !j->counted) job_end(j, weir_stream_reason(stream));
    j->done = true;
    j->stream = NULL;
    weir_stream_release(stream);
}

void job_ready(weir_stream *stream, void *user)
{
    job *j = user;
    play *p = j->play;
    place outer = p->place;
    MUST(p, stream == j->stream && j->watched, "a callback for job %d", job_number(j));
    /* Once when something comes and once at the end. */
    MUST(p, ++j->n_ready <= 2, "%d callbacks for job %d", j->n_ready, job_number(j));
    if (outer != BETWEEN) p->place = READY;
    switch (j->on_ready) {
    case COUNT_ONLY: break;
    case TAKE: job_take(j, dice_in(&p->d, 1, 3)); break;
    case CANCEL: job_cancel(j); break;
    case RELEASE: job_let_go(j); break;
    case ACT:
        if (outer != BETWEEN && dice_one_in(&p->d, 4)) play_act(p);
    }
    p->place = outer;
}

void job_watch(job *j, bool on)
{
    j->watched = on;
    j->n_ready = 0;
    weir_stream_set_ready(j->stream, on ? job_ready : NULL, j);
}
