/* stream.c: a stream of chunks from the driver to one reader.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver appends to one sequence and the reader reads the other; they are swapped when the reader has
 * read all of its own. The last chunk needs no memory. A stream is FRESH until a submit attaches it, ATTACHED
 * until the driver finishes it, and FINISHED from then on; a submit that fails detaches it again. Callers
 * write what the driver looks at in each tick, such as a cancel, into atomics; all else is under the stream's
 * mutex. A reader waits for a condition, polls a descriptor, or is called: the ready callback runs without
 * the mutex, mostly on the driver, and a call that removes it waits until it has returned. */
#include "engine/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "engine/chunks.h"
#include "engine/waker.h"

#define DEFAULT_POLL_MS 100 /* as weir.h says */

typedef enum phase { FRESH, ATTACHED, FINISHED } phase;

/* The stream: nothing else is locked under its `mutex`, and ready callbacks run without it. The producer
 * fills `back`. When the consumer has read all of `front`, the two are swapped. So the consumer's pointers
 * stay valid without a copy, and the producer never waits for the consumer. */
struct weir_stream {
    atomic_int holders; /* consumers' references; together they count as one of refs */
    atomic_int refs;    /* one for the holders, one for the engine while attached */
    atomic_int cancelled;
    atomic_int interval;
    atomic_int index;
    atomic_bool may_end_reasoning, ends_reasoning; /* it is known how it ends; it is to end */
    atomic_bool watches_progress;
    atomic_int reason;        /* weir_reason; finish writes it once */
    atomic_int finished;      /* the terminal chunk has been put; release pairs with the readers' acquire */
    _Atomic uint64_t request; /* its number + 1; 0 = none yet */

    pthread_mutex_t mutex; /* protects the rest */
    pthread_cond_t cond;
    phase phase;
    bool reserved; /* only a flight may read it */
    bool reading;  /* a consumer is inside next_chunk */
    bool terminal_taken;
    weir__chunks back;
    weir__chunks front;      /* the consumer's: changes only inside next_chunk */
    int front_mark;          /* the next chunk of front */
    int interval_before;     /* interval before the attach: a detach restores it */
    weir__waker *waker;      /* NULL while FRESH; kept until the end, so that a late cancel may wake */
    weir_usage usage;        /* as of the newest chunk */
    weir_progress progress;  /* prefill_ns: as of its last change */
    int64_t prefill_from_ns; /* once it has started */
    weir__history history;
    weir_miss_info miss;
    int64_t attach_ns;
    weir_error error;
    int fds[2]; /* [0] is readable while a chunk can be taken; -1 = not open */
    bool fd_set;

    weir_ready_fn ready;
    void *ready_user;
    pthread_t caller;    /* the thread in ready, while n_inside > 0 */
    int n_inside;        /* nested calls of ready */
    pthread_cond_t left; /* n_inside is 0 again */
};

weir_status weir_stream_create(weir_stream **out, weir_error *error)
{
    if (out == NULL) return weir__error_null(error, "stream");
    weir_stream *stream = weir__mem_calloc(1, sizeof *stream);
    if (stream == NULL) goto no_stream;
    if (pthread_mutex_init(&stream->mutex, NULL) != 0) goto no_mutex;
    if (weir__clock_cond_init(&stream->cond) != 0) goto no_cond;
    if (pthread_cond_init(&stream->left, NULL) != 0) goto no_left;
    atomic_init(&stream->holders, 1);
    atomic_init(&stream->refs, 1);
    atomic_init(&stream->interval, 1);
    atomic_init(&stream->index, -1);
    stream->fds[0] = stream->fds[1] = -1;
    *out = stream;
    return WEIR_OK;
no_left:
    pthread_cond_destroy(&stream->cond);
no_cond:
    pthread_mutex_destroy(&stream->mutex);
no_mutex:
    weir__mem_free(stream);
no_stream:
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a stream");
}

void weir__stream_drop(weir_stream *stream)
{
    if (stream == NULL || atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) != 1) return;
    if (stream->fds[0] >= 0) close(stream->fds[0]);
    if (stream->fds[1] >= 0 && stream->fds[1] != stream->fds[0]) close(stream->fds[1]);
    weir__waker_release(stream->waker);
    weir__chunks_fini(&stream->back);
    weir__chunks_fini(&stream->front);
    weir__history_fini(&stream->history);
    pthread_cond_destroy(&stream->left);
    pthread_cond_destroy(&stream->cond);
    pthread_mutex_destroy(&stream->mutex);
    weir__mem_free(stream);
}

weir_stream *weir__stream_hold(weir_stream *stream)
{
    if (stream != NULL) atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
    return stream;
}

weir_stream *weir_stream_hold(weir_stream *stream)
{
    if (stream != NULL) atomic_fetch_add_explicit(&stream->holders, 1, memory_order_relaxed);
    return stream;
}

/* ---- The ready callback ---- */

static bool can_take(const weir_stream *stream)
{
    return stream->front_mark < stream->front.n_marks || stream->back.n_marks > 0;
}

/* Waits until no other thread is inside ready. Called under mutex, which it releases while it waits. */
static void wait_for_ready(weir_stream *stream)
{
    while (stream->n_inside > 0 && !pthread_equal(stream->caller, pthread_self()) &&
           !(stream->waker != NULL && weir__waker_is_inherited(stream->waker)))
        pthread_cond_wait(&stream->left, &stream->mutex);
}

/* Runs the ready callback of an attached stream. Called under mutex, which it releases meanwhile. */
static void run_ready(weir_stream *stream)
{
    if (stream->ready == NULL) return;
    wait_for_ready(stream);
    weir_ready_fn fn = stream->ready; /* it may have changed */
    void *user = stream->ready_user;
    if (fn == NULL) return;
    weir__driving driving;
    weir__driving_begin(&driving, stream->waker); /* the driver waits for the callback, on any thread */
    stream->caller = pthread_self();
    stream->n_inside++;
    pthread_mutex_unlock(&stream->mutex);
    fn(stream, user);
    pthread_mutex_lock(&stream->mutex);
    weir__driving_end(&driving);
    if (--stream->n_inside == 0) pthread_cond_broadcast(&stream->left);
}

/* by_flight: from now on only the caller uses the stream. */
static weir_status set_ready(weir_stream *stream, weir_ready_fn fn, void *user, bool by_flight)
{
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed); /* fn may release the stream */
    pthread_mutex_lock(&stream->mutex);
    bool refused = stream->reserved && !by_flight;
    if (!refused) {
        wait_for_ready(stream);
        stream->reserved = by_flight;
        stream->ready = fn;
        stream->ready_user = user;
        if (can_take(stream)) run_ready(stream);
    }
    pthread_mutex_unlock(&stream->mutex);
    weir__stream_drop(stream);
    return refused ? WEIR_STATE : WEIR_OK;
}

void weir_stream_release(weir_stream *stream)
{
    if (stream == NULL || atomic_fetch_sub_explicit(&stream->holders, 1, memory_order_acq_rel) != 1) return;
    set_ready(stream, NULL, NULL, stream->reserved);
    weir_stream_cancel(stream); /* nobody is left to read */
    weir__stream_drop(stream);
}

/* ---- The descriptor: set while something can be taken. Called under mutex. ---- */

static void fd_raise(weir_stream *stream)
{
    static const uint64_t one = 1;
    if (stream->fds[1] < 0 || stream->fd_set) return;
    stream->fd_set = true;
#ifdef __linux__
    ssize_t n = write(stream->fds[1], &one, sizeof one);
#else
    ssize_t n = write(stream->fds[1], &one, 1);
#endif
    (void)n; /* cannot fail: nothing else writes, and one write always fits */
}

static void fd_lower(weir_stream *stream)
{
    uint64_t sink;
    if (!stream->fd_set) return;
    stream->fd_set = false;
    ssize_t n = read(stream->fds[0], &sink, sizeof sink);
    (void)n;
}

static bool open_descriptor(int fds[2])
{
#ifdef __linux__
    fds[0] = fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fds[0] >= 0;
#else
    if (pipe(fds) != 0) return false;
    for (int i = 0; i < 2; i++) {
        fcntl(fds[i], F_SETFD, FD_CLOEXEC);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    return true;
#endif
}

weir_status weir_stream_descriptor(weir_stream *stream, int *descriptor, weir_error *error)
{
    int failed = 0;
    if (stream == NULL || descriptor == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, stream ? "descriptor" : "stream",
                             "a pointer is NULL");
    pthread_mutex_lock(&stream->mutex);
    bool reserved = stream->reserved;
    if (!reserved && stream->fds[0] < 0 && !open_descriptor(stream->fds)) {
        failed = errno;
        stream->fds[0] = stream->fds[1] = -1;
    } else if (!reserved) {
        if (can_take(stream)) fd_raise(stream);
        *descriptor = stream->fds[0];
    }
    pthread_mutex_unlock(&stream->mutex);
    if (reserved)
        return weir__error_set(
            error, WEIR_STATE, "stream",
            "the stream belongs to a flight, which takes its chunks: use weir_flight_watch");
    if (failed)
        return weir__error_set(error, WEIR_IO, "", "no descriptor for the stream: %s", strerror(failed));
    return WEIR_OK;
}

/* ---- Producer ---- */

weir_status weir__stream_attach(weir_stream *stream, int32_t index, int32_t interval, int32_t n_prompt,
                                weir__waker *waker)
{
    weir_status status = WEIR_STATE;
    pthread_mutex_lock(&stream->mutex);
    if (stream->phase == FRESH && !atomic_load(&stream->cancelled)) {
        stream->phase = ATTACHED;
        stream->waker = weir__waker_hold(waker);
        atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
        atomic_store(&stream->index, index);
        stream->usage.n_prompt = stream->progress.n_prompt = n_prompt;
        stream->attach_ns = weir__clock_now_ns();
        stream->interval_before = atomic_load(&stream->interval);
        if (interval > 0) atomic_store(&stream->interval, interval);
        status = WEIR_OK;
    }
    pthread_mutex_unlock(&stream->mutex);
    return status;
}

void weir__stream_detach(weir_stream *stream)
{
    pthread_mutex_lock(&stream->mutex);
    weir__waker *waker = stream->waker;
    weir__history_fini(&stream->history);
    stream->phase = FRESH;
    stream->waker = NULL;
    stream->usage.n_prompt = stream->progress.n_prompt = 0;
    atomic_store(&stream->may_end_reasoning, false);
    atomic_store(&stream->ends_reasoning, false);
    atomic_store(&stream->index, -1);
    atomic_store(&stream->interval, stream->interval_before);
    pthread_cond_broadcast(&stream->cond); /* threads that already wait for a chunk */
    pthread_mutex_unlock(&stream->mutex);
    weir__waker_release(waker);
    weir__stream_drop(stream);
}

bool weir__stream_remember(weir_stream *stream, const weir__history *from)
{
    weir__history copy;
    if (!weir__history_copy(&copy, from, from->n_prompt)) return false;
    if (from->before != NULL && (copy.before = weir__mem_dup(from->before, from->n_before + 1)) == NULL) {
        weir__history_fini(&copy);
        return false;
    }
    copy.n_before = from->n_before;
    copy.score = weir__score_hold(from->score);
    pthread_mutex_lock(&stream->mutex);
    stream->history = copy;
    pthread_mutex_unlock(&stream->mutex);
    return true;
}

weir_status weir__stream_recall(const weir_stream *stream, int32_t at, const weir__waker *waker,
                                weir__history *out, weir_error *error)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(mutex);
    const weir__history *history = &stream->history;
    int32_t n_out = history->n_tokens - history->n_prompt;
    if (stream->phase == FRESH || history->tokens == NULL)
        status = weir__error_set(error, WEIR_STATE, "source",
                                 "the source was not submitted: fork a stream that was");
    else if (stream->waker != waker)
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, "source", "the source is another engine's stream");
    else if (at < -1 || at > n_out)
        status = weir__error_numbers(
            error, WEIR_INVALID, "source_at", at, -1, n_out,
            "the source has %d tokens so far, not %d; allowed: 0 to %d, and -1 for all of them", n_out, at,
            n_out);
    else if (!weir__history_copy(out, history, history->n_prompt + (at < 0 ? n_out : at)))
        status = weir__error_set(error, WEIR_NO_MEMORY, "source", "out of memory for the source's tokens");
    pthread_mutex_unlock(mutex);
    return status;
}

bool weir__stream_flows(const weir_stream *stream)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    pthread_mutex_lock(mutex);
    bool flows = stream->phase == ATTACHED && stream->history.n_tokens > stream->history.n_prompt;
    pthread_mutex_unlock(mutex);
    return flows;
}

/* Puts the chunk into `back` and its tokens into the history. */
static bool keep_chunk(weir_stream *stream, const weir_chunk *chunk, const weir_usage *usage)
{
    weir__history *history = &stream->history;
    int32_t before = history->n_tokens;
    if (history->tokens != NULL && !weir__history_add(history, chunk->tokens, chunk->n_tokens)) return false;
    if (weir__chunks_append(&stream->back, chunk, usage)) return true;
    history->n_tokens = before;
    return false;
}

bool weir__stream_push(weir_stream *stream, const weir_chunk *chunk, const weir_usage *usage)
{
    pthread_mutex_lock(&stream->mutex);
    bool was_empty = !can_take(stream);
    bool put = keep_chunk(stream, chunk, usage);
    if (put) {
        stream->usage = *usage;
        fd_raise(stream);
        pthread_cond_signal(&stream->cond);
        if (was_empty) run_ready(stream);
    }
    pthread_mutex_unlock(&stream->mutex);
    return put;
}

void weir__stream_advance(weir_stream *stream, const weir_progress *progress)
{
    weir_progress *now = &stream->progress;
    pthread_mutex_lock(&stream->mutex);
    /* A suspended prompt is computed again: n_processed rises only once it is further than before. */
    bool more = progress->n_processed > now->n_processed;
    if (more || !now->started || progress->n_cached != now->n_cached) {
        if (!now->started) stream->prefill_from_ns = weir__clock_now_ns() - progress->prefill_ns;
        now->started = true;
        now->n_cached = progress->n_cached;
        if (more) now->n_processed = progress->n_processed;
        now->prefill_ns = progress->prefill_ns;
        if (atomic_load_explicit(&stream->watches_progress, memory_order_relaxed) && !can_take(stream))
            run_ready(stream);
    }
    pthread_mutex_unlock(&stream->mutex);
}

/* True if the request is still in its prefill. Called under mutex. */
static bool is_prefilling(const weir_stream *stream)
{
    return stream->phase == ATTACHED && stream->progress.started &&
           stream->progress.n_processed < stream->progress.n_prompt;
}

void weir__stream_finish(weir_stream *stream, const weir_chunk *chunk, const weir_error *error,
                         const weir_usage *usage)
{
    static const weir_chunk nothing = {.finished = true};
    weir_reason reason = chunk->reason;
    pthread_mutex_lock(&stream->mutex);
    if (error != NULL) stream->error = *error;
    if (!keep_chunk(stream, chunk, usage)) { /* one without memory takes its place, with the counts before */
        weir__chunks_append(&stream->back, &nothing, &stream->usage);
        reason = WEIR_REASON_ERROR;
        weir__error_set(&stream->error, WEIR_NO_MEMORY, "",
                        "out of memory for the last chunk: its text is lost");
    }
    stream->back.terminal = true;
    if (is_prefilling(stream)) stream->progress.prefill_ns = weir__clock_now_ns() - stream->prefill_from_ns;
    stream->usage = *usage;
    stream->phase = FINISHED;
    atomic_store_explicit(&stream->reason, (int)reason, memory_order_relaxed);
    atomic_store_explicit(&stream->finished, 1, memory_order_release);
    fd_raise(stream);
    pthread_cond_broadcast(&stream->cond);
    run_ready(stream); /* also if the reader has not taken the earlier chunks */
    pthread_mutex_unlock(&stream->mutex);
    weir__stream_drop(stream);
}

/* ---- Consumer ---- */

/* Takes the next chunk of front; if front is empty, swaps front and back first. Called under mutex. */
static bool take_chunk(weir_stream *stream, weir_chunk *chunk)
{
    if (stream->front_mark == stream->front.n_marks) {
        if (stream->back.n_marks == 0) return false;
        weir__chunks empty = stream->front;
        weir__chunks_clear(&empty);
        stream->front = stream->back;
        stream->back = empty;
        stream->front_mark = 0;
    }
    weir__chunks_get(&stream->front, stream->front_mark++, chunk);
    bool terminal = stream->front.terminal && stream->front_mark == stream->front.n_marks;
    if (terminal) {
        chunk->finished = true;
        chunk->reason = (weir_reason)atomic_load_explicit(&stream->reason, memory_order_relaxed);
    }
    stream->terminal_taken = terminal;
    if (!can_take(stream)) fd_lower(stream);
    return true;
}

/* A consumer's loop returns to its caller after a cancel (TIMEOUT); a plain reader waits for the terminal
 * chunk. A flight reads a reserved stream. */
typedef enum reader { READER, CONSUMER, FLIGHT } reader;

static weir_status next_chunk(weir_stream *stream, int timeout_ms, reader who, weir_chunk *chunk)
{
    int64_t deadline = weir__clock_deadline_ns(timeout_ms);
    int woken = timeout_ms == 0 ? ETIMEDOUT : 0;
    weir_status status = WEIR_OK;

    pthread_mutex_lock(&stream->mutex);
    if (stream->phase == FRESH || stream->reading || stream->reserved != (who == FLIGHT)) {
        status = WEIR_STATE;
    } else if (stream->terminal_taken) {
        status = WEIR_END;
    } else {
        bool wakes = who == CONSUMER && !atomic_load(&stream->cancelled);
        stream->reading = true;
        while (!take_chunk(stream, chunk)) {
            if (woken == ETIMEDOUT || (wakes && atomic_load(&stream->cancelled))) status = WEIR_TIMEOUT;
            if (stream->phase == FRESH) status = WEIR_STATE; /* the submit failed and detached it */
            if (woken == EDEADLK || (status == WEIR_OK && !weir__waker_may_wait(stream->waker)))
                status = WEIR_STATE;
            if (status != WEIR_OK) break;
            woken = weir__waker_await(stream->waker, &stream->cond, &stream->mutex, deadline);
        }
        stream->reading = false;
    }
    pthread_mutex_unlock(&stream->mutex);
    if (status == WEIR_STATE && woken == EDEADLK) weir__waker_log_undriven("weir_stream_next");
    return status;
}

weir_status weir_stream_next(weir_stream *stream, int timeout_ms, weir_chunk *chunk)
{
    if (stream == NULL || chunk == NULL) return WEIR_INVALID;
    return next_chunk(stream, timeout_ms, READER, chunk);
}

weir_status weir__stream_take(weir_stream *stream, weir_chunk *chunk)
{
    return next_chunk(stream, 0, FLIGHT, chunk);
}

weir_status weir_stream_try_next(weir_stream *stream, weir_chunk *chunk)
{
    return weir_stream_next(stream, 0, chunk);
}

weir_status weir_stream_consume(weir_stream *stream, weir_chunk_fn fn, int poll_ms, void *user)
{
    static const weir_chunk nothing = {.text = ""};
    if (stream == NULL || fn == NULL) return WEIR_INVALID;
    if (poll_ms < 1) poll_ms = DEFAULT_POLL_MS;
    for (;;) {
        weir_chunk chunk;
        weir_status status = next_chunk(stream, poll_ms, CONSUMER, &chunk);
        if (status == WEIR_END) return WEIR_OK;
        if (status < 0) return status;
        if (!fn(status == WEIR_OK ? &chunk : &nothing, user)) return WEIR_ABORTED;
        if (status == WEIR_OK && chunk.finished) return WEIR_OK;
    }
}

void weir_stream_cancel(weir_stream *stream)
{
    if (stream == NULL) return;
    weir__waker *waker = NULL;
    pthread_mutex_lock(&stream->mutex);
    if (stream->phase != FINISHED && !atomic_exchange(&stream->cancelled, 1)) {
        if (stream->waker != NULL) waker = weir__waker_hold(stream->waker); /* a detach may drop it */
        pthread_cond_broadcast(&stream->cond);
    }
    pthread_mutex_unlock(&stream->mutex);
    if (waker != NULL) weir__waker_cancel(waker);
    weir__waker_release(waker);
}

weir_status weir_stream_set_ready(weir_stream *stream, weir_ready_fn fn, void *user)
{
    if (stream == NULL) return WEIR_INVALID;
    return set_ready(stream, fn, user, false);
}

void weir__stream_reserve(weir_stream *stream, weir_ready_fn fn, void *user)
{
    set_ready(stream, fn, user, true);
}

void weir_stream_set_interval(weir_stream *stream, int32_t interval)
{
    if (stream != NULL) atomic_store(&stream->interval, interval < 1 ? 1 : interval);
}

int32_t weir_stream_interval(const weir_stream *stream)
{
    return stream == NULL ? 1 : atomic_load(&stream->interval);
}

bool weir_stream_finished(const weir_stream *stream)
{
    return stream != NULL && atomic_load_explicit(&stream->finished, memory_order_acquire);
}

void weir__stream_set_reasoning(weir_stream *stream)
{
    atomic_store(&stream->may_end_reasoning, true);
}

bool weir__stream_ends_reasoning(const weir_stream *stream)
{
    return atomic_load_explicit(&stream->ends_reasoning, memory_order_relaxed);
}

weir_status weir_stream_end_reasoning(weir_stream *stream, weir_error *error)
{
    if (stream == NULL) return weir__error_null(error, "stream");
    pthread_mutex_lock(&stream->mutex);
    phase at = stream->phase;
    bool may = atomic_load(&stream->may_end_reasoning);
    if (at == ATTACHED && may) atomic_store(&stream->ends_reasoning, true);
    pthread_mutex_unlock(&stream->mutex);
    if (at != ATTACHED)
        return weir__error_set(error, WEIR_STATE, "stream", "the stream %s",
                               at == FRESH ? "was not submitted" : "has finished");
    if (!may)
        return weir__error_set(error, WEIR_UNSUPPORTED, "stream",
                               "the chat template has no reasoning whose end is known");
    return WEIR_OK;
}

bool weir_stream_cancelled(const weir_stream *stream)
{
    return stream != NULL && atomic_load(&stream->cancelled);
}

weir_reason weir_stream_reason(const weir_stream *stream)
{
    if (!weir_stream_finished(stream)) return WEIR_REASON_NOT_FINISHED;
    return (weir_reason)atomic_load_explicit(&stream->reason, memory_order_relaxed);
}

int32_t weir_stream_index(const weir_stream *stream)
{
    return stream == NULL ? -1 : atomic_load(&stream->index);
}

void weir__stream_set_miss(weir_stream *stream, const weir_miss_info *info)
{
    pthread_mutex_lock(&stream->mutex);
    stream->miss = *info;
    pthread_mutex_unlock(&stream->mutex);
}

weir_status weir_stream_miss(const weir_stream *stream, weir_miss_info *info)
{
    if (stream == NULL || info == NULL) return WEIR_INVALID;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    weir_miss_info copy;
    pthread_mutex_lock(mutex);
    copy = stream->miss;
    pthread_mutex_unlock(mutex);
    return weir__sized_give(info, &copy, sizeof copy, "info", NULL);
}

weir_status weir_stream_prompt_logprobs(const weir_stream *stream, weir_chunk *prompt)
{
    if (stream == NULL || prompt == NULL) return WEIR_INVALID;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(mutex); /* a failed submit removes it */
    const weir__score *score = stream->history.score;
    if (score == NULL)
        status = WEIR_STATE;
    else if (atomic_load_explicit(&score->done, memory_order_acquire))
        *prompt = weir__score_chunk(score); /* valid until the last release */
    else
        status = stream->phase == FINISHED ? WEIR_END : WEIR_TIMEOUT;
    pthread_mutex_unlock(mutex);
    return status;
}

weir_status weir_stream_prompt(const weir_stream *stream, int32_t *tokens, size_t capacity, size_t *n)
{
    if (stream == NULL || n == NULL || (tokens == NULL && capacity > 0)) return WEIR_INVALID;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    pthread_mutex_lock(mutex);
    const weir__history *history = &stream->history;
    bool known = history->tokens != NULL;
    *n = known ? (size_t)history->n_prompt : 0;
    size_t written = *n < capacity ? *n : capacity;
    if (written > 0) memcpy(tokens, history->tokens, written * sizeof *tokens);
    pthread_mutex_unlock(mutex);
    return !known ? WEIR_STATE : *n > capacity ? WEIR_TOO_LONG : WEIR_OK;
}

const char *weir_stream_source_text(const weir_stream *stream, size_t *length)
{
    const char *text = "";
    size_t n = 0;
    if (stream != NULL) {
        pthread_mutex_lock((pthread_mutex_t *)&stream->mutex);
        if (stream->history.before != NULL) {
            text = stream->history.before;
            n = stream->history.n_before;
        }
        pthread_mutex_unlock((pthread_mutex_t *)&stream->mutex);
    }
    if (length != NULL) *length = n;
    return text;
}

weir_status weir_stream_progress(const weir_stream *stream, weir_progress *progress)
{
    if (stream == NULL || progress == NULL) return WEIR_INVALID;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stream->mutex;
    pthread_mutex_lock(mutex);
    weir_progress copy = stream->progress;
    if (is_prefilling(stream)) copy.prefill_ns = weir__clock_now_ns() - stream->prefill_from_ns;
    bool fresh = stream->phase == FRESH;
    pthread_mutex_unlock(mutex);
    return fresh ? WEIR_STATE : weir__sized_give(progress, &copy, sizeof copy, "progress", NULL);
}

void weir_stream_watch_progress(weir_stream *stream, bool on)
{
    if (stream != NULL) atomic_store_explicit(&stream->watches_progress, on, memory_order_relaxed);
}

weir_usage weir_stream_usage(const weir_stream *stream)
{
    weir_usage usage = {0};
    if (stream == NULL) return usage;
    pthread_mutex_lock((pthread_mutex_t *)&stream->mutex);
    usage = stream->usage;
    if (stream->phase == ATTACHED) usage.total_ns = weir__clock_now_ns() - stream->attach_ns;
    pthread_mutex_unlock((pthread_mutex_t *)&stream->mutex);
    return usage;
}

void weir__stream_number(weir_stream *stream, uint64_t request)
{
    atomic_store_explicit(&stream->request, request + 1, memory_order_relaxed);
}

weir_status weir_stream_request(const weir_stream *stream, uint64_t *request)
{
    if (stream == NULL || request == NULL) return WEIR_INVALID;
    uint64_t number = atomic_load_explicit(&stream->request, memory_order_relaxed);
    if (number == 0) return WEIR_STATE;
    *request = number - 1;
    return WEIR_OK;
}

void weir_stream_error(const weir_stream *stream, weir_error *error)
{
    if (error == NULL) return;
    memset(error, 0, sizeof *error);
    if (stream == NULL) return;
    pthread_mutex_lock((pthread_mutex_t *)&stream->mutex);
    *error = stream->error;
    pthread_mutex_unlock((pthread_mutex_t *)&stream->mutex);
}
