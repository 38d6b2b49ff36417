/* stream.c: an engine's stream as messages: {ref, {:chunk, ids, text}}, with logprobs {ref, {:chunk, ids,
 * text, scores}}, then {ref, {:done, reason, usage}} or {ref, {:error, reason}}; first, with the prompt's
 * logprobs, {ref, {:prompt, ids, scores}}, and while the prompt is computed, if wanted, {ref, {:progress,
 * map}}, which takes credit as a chunk does.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A chunk becomes a message if there is credit for it; the end comes with the last one. Without credit,
 * chunks stay in the stream, which merges them, so the consumer's demand bounds its mailbox. The resource
 * is kept for the engine from the submit until the terminal chunk was taken. Then the stream itself is
 * released: a consumer that lives long may hold many references, which need no memory for text. */
#include <math.h>
#include <time.h>

#include "nif.h"

/* Limits for a normal scheduler. */
#define TERMS_MAX 4096 /* of the message that waiting chunks become */
#define FEW       8    /* answers of one request */

#define ANSWERS_MAX 128 /* of one request */

/* ---- Messages ---- */

/* Making a large message takes long, so that is done without the lock. Sending it is quick, and is done with
 * the lock, so that no message is sent once the stream is deaf.
 *
 * No process is named as the sender. With the calling process as the sender, a dirty scheduler would wait
 * for that process's lock, which its exit holds while it waits for ours in nif_stream_down(), and nothing
 * would be sent for a process that was killed, although the message is for another one. One sender also
 * keeps the order. */
static void send_locked(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM message)
{
    if (!s->deaf) enif_send(NULL, &s->to, messages, message);
}

static ERL_NIF_TERM message_of(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM what)
{
    return enif_make_tuple2(messages, enif_make_resource(messages, s), what);
}

static void send_message(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM what)
{
    ERL_NIF_TERM message = message_of(s, messages, what);
    enif_mutex_lock(s->object.lock);
    send_locked(s, messages, message);
    enif_mutex_unlock(s->object.lock);
    enif_clear_env(messages);
}

static ERL_NIF_TERM usage_map(ErlNifEnv *env, const weir_usage *usage)
{
    ERL_NIF_TERM map = nif_map_of(env, "usage", usage);
    nif_put(env, &map, "score", nif_number(env, weir_usage_score(usage)));
    return map;
}

/* Puts into the map why no more of the prompt was cached, if there are details. */
static void put_miss(ErlNifEnv *env, ERL_NIF_TERM *map, const weir_stream *stream)
{
    weir_miss_info info = {.size = sizeof info};
    char text[1024];
    if (weir_stream_miss(stream, &info) != WEIR_OK) return;
    if (info.miss != WEIR_MISS_EVICTED && info.miss != WEIR_MISS_SALT && info.miss != WEIR_MISS_DIVERGED &&
        info.miss != WEIR_MISS_UNCUTTABLE)
        return;
    bool diverged = info.miss == WEIR_MISS_DIVERGED;
    ERL_NIF_TERM miss = nif_map_of(env, "miss_info", &info), nil = nif_atom(env, "nil");
    weir_miss_text(&info, text, sizeof text);
    nif_put(env, &miss, "text", nif_binary(env, text, WEIR_NUL));
    nif_put(env, &miss, "prompt", nif_text_or_nil(env, info.prompt));
    nif_put(env, &miss, "cached", nif_text_or_nil(env, info.cached));
    if (!diverged || info.message < 0) nif_put(env, &miss, "message", nil);
    nif_put(env, &miss, "role", nif_text_or_nil(env, info.role));
    nif_put(env, &miss, "line", nif_text_or_nil(env, info.line));
    nif_put(env, map, "miss_info", miss);
}

/* The usage of a stream whose terminal chunk was taken. */
static ERL_NIF_TERM last_usage(ErlNifEnv *env, const weir_stream *stream, bool fork)
{
    struct timespec now;
    weir_usage usage = weir_stream_usage(stream);
    ERL_NIF_TERM map = usage_map(env, &usage);
    put_miss(env, &map, stream);
    if (fork) {
        size_t length;
        const char *before = weir_stream_source_text(stream, &length);
        nif_put(env, &map, "before", nif_binary(env, before, length));
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    nif_put(env, &map, "sent_ns", enif_make_int64(env, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec));
    return map;
}

/* A list with {logprob, [{id, logprob}]} for each token, the likeliest first; {nil, []} for a prompt's first
 * token, which has no predecessor. */
static ERL_NIF_TERM scores_term(ErlNifEnv *env, const weir_chunk *chunk)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    size_t n_top = chunk->top_logprobs != NULL ? (size_t)chunk->n_top_logprobs : 0;
    for (size_t i = chunk->n_tokens; i-- > 0;) {
        ERL_NIF_TERM top = enif_make_list(env, 0);
        bool nothing = isnan(chunk->logprobs[i]) != 0;
        for (size_t k = nothing ? 0 : n_top; k-- > 0;) {
            const weir_logprob *one = &chunk->top_logprobs[i * n_top + k];
            top = enif_make_list_cell(
                env, enif_make_tuple2(env, enif_make_int(env, one->token), nif_number(env, one->logprob)),
                top);
        }
        ERL_NIF_TERM own = nothing ? nif_atom(env, "nil") : nif_number(env, chunk->logprobs[i]);
        list = enif_make_list_cell(env, enif_make_tuple2(env, own, top), list);
    }
    return list;
}

static void send_prompt(nif_stream *s, const weir_stream *stream, ErlNifEnv *messages)
{
    weir_chunk prompt;
    if (weir_stream_prompt_logprobs(stream, &prompt) != WEIR_OK) return; /* it has ended earlier */
    ERL_NIF_TERM ids = nif_ids(messages, prompt.tokens, prompt.n_tokens);
    send_message(
        s, messages,
        enif_make_tuple3(messages, nif_atom(messages, "prompt"), ids, scores_term(messages, &prompt)));
}

static void send_tokens(nif_stream *s, ErlNifEnv *messages, const weir_chunk *chunk)
{
    ERL_NIF_TERM name = nif_atom(messages, "chunk");
    ERL_NIF_TERM ids = nif_ids(messages, chunk->tokens, chunk->n_tokens);
    ERL_NIF_TERM text = nif_binary(messages, chunk->text, chunk->length);
    send_message(s, messages,
                 chunk->logprobs == NULL
                     ? enif_make_tuple3(messages, name, ids, text)
                     : enif_make_tuple5(messages, name, ids, text, scores_term(messages, chunk),
                                        enif_make_int(messages, chunk->n_hidden)));
}

static ERL_NIF_TERM end_of(nif_stream *s, const weir_stream *stream, ErlNifEnv *messages, weir_reason reason)
{
    weir_error error = {0};
    weir_stream_error(stream, &error);
    ERL_NIF_TERM what = reason == WEIR_REASON_ERROR
                            ? nif_refused(messages, error.code, &error)
                            : enif_make_tuple3(messages, nif_atom(messages, "done"),
                                               nif_atom(messages, weir_reason_name(reason)),
                                               last_usage(messages, stream, s->fork));
    return message_of(s, messages, what);
}

/* ---- Progress ---- */

/* Tells, with the lock, how far the prompt is, if it is further than last told. last: a chunk was taken, and
 * its credit does. False: there is nothing to tell, or no credit. */
static bool tell_progress(nif_stream *s, ErlNifEnv *messages, bool last)
{
    weir_progress now = {.size = sizeof now};
    const weir_progress *shown = &s->shown;
    if (!s->progress || s->object.handle == NULL || s->sending || s->deaf || (!last && s->credit < 1) ||
        weir_stream_progress(s->object.handle, &now) != WEIR_OK || !now.started ||
        (shown->started && shown->n_processed == now.n_processed && shown->n_cached == now.n_cached))
        return false;
    if (!last) s->credit--;
    s->shown = now;
    ERL_NIF_TERM what =
        enif_make_tuple2(messages, nif_atom(messages, "progress"), nif_map_of(messages, "progress", &now));
    send_locked(s, messages, message_of(s, messages, what));
    enif_clear_env(messages);
    return true;
}

/* ---- Chunks ---- */

/* Takes, with the lock, the next chunk, if it may be sent. */
static bool take_chunk(nif_stream *s, weir_chunk *chunk)
{
    if (s->object.handle == NULL || s->sending || (!s->deaf && s->credit < 1)) return false;
    if (weir_stream_try_next(s->object.handle, chunk) != WEIR_OK) return false;
    if (!s->deaf) s->credit--;
    return true;
}

/* Sends one chunk's messages, with the lock, which is released meanwhile. Returns the stream if they were the
 * last. */
static weir_stream *send_chunk(nif_stream *s, ErlNifEnv *messages, const weir_chunk *chunk)
{
    weir_stream *stream = s->object.handle;
    bool deaf = s->deaf, prompt = s->prompt_width > 0;
    ERL_NIF_TERM end = 0;
    (void)tell_progress(s, messages, true); /* the prefill has ended before the first chunk */
    s->sending = true;
    s->prompt_width = 0;
    s->n_sent += (int64_t)chunk->n_tokens;
    enif_mutex_unlock(s->object.lock);
    if (!deaf && prompt) send_prompt(s, stream, messages);
    if (!deaf && (chunk->n_tokens > 0 || chunk->length > 0)) send_tokens(s, messages, chunk);
    if (!deaf && chunk->finished) end = end_of(s, stream, messages, chunk->reason);
    enif_mutex_lock(s->object.lock);
    s->sending = false;
    if (!chunk->finished) return NULL;
    if (end != 0) send_locked(s, messages, end);
    s->usage = weir_stream_usage(stream);
    s->object.handle = NULL;
    return stream;
}

/* Sends chunks as far as they were asked for. One thread does at a time; others return at once and leave the
 * chunks to it. Returns the stream, once, after its last message; the caller releases it. */
static weir_stream *pump_stream(nif_stream *s)
{
    weir_chunk chunk;
    weir_stream *ended = NULL;
    ErlNifEnv *messages = enif_alloc_env();
    if (messages == NULL) return NULL; /* the next chunk, or demand, tries again */
    enif_mutex_lock(s->object.lock);
    while (tell_progress(s, messages, false)) continue;
    while (take_chunk(s, &chunk)) ended = send_chunk(s, messages, &chunk);
    enif_mutex_unlock(s->object.lock);
    enif_free_env(messages);
    return ended;
}

/* Sends chunks as far as they were asked for, and releases the stream at the end. The engine's thread may be
 * about to call stream_ready() although another thread has taken the terminal chunk. set_ready waits for
 * that; the release would only if it were the last, and a fork or `kept` may hold the stream, too. */
static void serve_stream(nif_stream *s)
{
    weir_stream *ended = pump_stream(s);
    if (ended == NULL) return;
    nif_object *engine = s->engine; /* no other thread uses it any more */
    s->engine = NULL;
    weir_stream_set_ready(ended, NULL, NULL);
    weir_stream_release(ended);
    enif_release_resource(engine);
    enif_release_resource(s);
}

static void stream_ready(weir_stream *stream, void *user)
{
    (void)stream;
    serve_stream(user);
}

/* The usage so far, also after the end. */
static weir_usage usage_of(nif_stream *s)
{
    enif_mutex_lock(s->object.lock);
    weir_usage usage = s->object.handle != NULL ? weir_stream_usage(s->object.handle) : s->usage;
    enif_mutex_unlock(s->object.lock);
    return usage;
}

static void cancel_stream(nif_stream *s, bool deaf)
{
    enif_mutex_lock(s->object.lock);
    s->deaf |= deaf;
    weir_stream_cancel(s->object.handle); /* NULL: it has ended */
    enif_mutex_unlock(s->object.lock);
}

void nif_stream_down(ErlNifEnv *env, void *resource, ErlNifPid *pid, ErlNifMonitor *monitor)
{
    (void)env, (void)pid, (void)monitor;
    nif_stream *s = resource;
    cancel_stream(s, true);
    serve_stream(s);
}

/* ---- Submit ---- */

/* A submitted request and its receivers. */
typedef struct submission {
    weir_engine *engine;
    nif_object *keeper; /* of the engine */
    nif_request r;
    int32_t n; /* answers */
    ErlNifPid to;
    int64_t credit;
} submission;

/* A stream that was never submitted; NULL: the call ends with NO_MEMORY. */
static nif_stream *stream_new(nif_call *call, const submission *sub)
{
    weir_stream *handle = NULL;
    const weir_request *request = &sub->r.request;
    nif_stream *s = nif_resource_new(call, NIF_STREAM);
    if (s == NULL) return NULL;
    if (weir_stream_create(&handle, NULL) != WEIR_OK) {
        nif_stop(call, NIF_NO_MEMORY);
        enif_release_resource(s);
        return NULL;
    }
    s->object.handle = handle;
    s->engine = sub->keeper;
    s->to = sub->to;
    s->credit = sub->credit;
    s->width = 2 + (int64_t)request->n_logprobs;
    s->fork = sub->r.fork;
    s->progress = sub->r.progress;
    if (request->prompt_logprobs || request->n_prompt_logprobs > 0)
        s->prompt_width = 2 + (int64_t)request->n_prompt_logprobs;
    return s;
}

/* The request is queued: its messages may begin. */
static ERL_NIF_TERM stream_begin(nif_call *call, nif_stream *s, bool keep)
{
    ErlNifMonitor monitor;
    ErlNifPid to = s->to;
    if (keep) s->kept = weir_stream_hold(s->object.handle);
    enif_keep_resource(s->engine);
    enif_keep_resource(s); /* until the terminal chunk was taken */
    weir_stream_watch_progress(s->object.handle, s->progress);
    weir_stream_set_ready(s->object.handle, stream_ready, s);
    /* The monitor begins only now: nothing but serve_stream() may remove the callback. Everything may have
     * ended already. */
    if (enif_monitor_process(call->env, s, &to, &monitor) != 0) nif_stream_down(call->env, s, &to, NULL);
    if (s->progress) serve_stream(s); /* the prefill may have begun before the callback was there */
    return nif_resource_term(call, s);
}

static int64_t get_credit(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifSInt64 n = 0;
    if (nif_is(call->env, term, "infinity")) return INT64_MAX;
    if (!enif_get_int64(call->env, term, &n) || n < 0) nif_stop(call, NIF_WRONG);
    return n;
}

/* Queues the request n times, all or none. */
static ERL_NIF_TERM queue_requests(nif_call *call, const submission *sub)
{
    nif_stream *streams[ANSWERS_MAX];
    weir_stream *handles[ANSWERS_MAX];
    int32_t made = 0;
    weir_status status = WEIR_NO_MEMORY;
    ERL_NIF_TERM refs = enif_make_list(call->env, 0);
    for (; made < sub->n; made++) {
        streams[made] = stream_new(call, sub);
        if (streams[made] == NULL) break;
        handles[made] = streams[made]->object.handle;
    }
    if (made == sub->n)
        status = weir_engine_submit_n(sub->engine, &sub->r.request, (size_t)made, handles, &call->error);
    while (made-- > 0) {
        if (status != WEIR_OK) {
            enif_release_resource(streams[made]);
        } else {
            ERL_NIF_TERM ref = stream_begin(call, streams[made], sub->r.keep);
            refs = enif_make_list_cell(call->env, ref, refs);
        }
    }
    if (status == WEIR_OK) return nif_ok(call->env, refs);
    return nif_status(call, status);
}

/* Reads engine and request, and queues it. */
static ERL_NIF_TERM submit_request(nif_call *call, const ERL_NIF_TERM argv[], submission *sub)
{
    ERL_NIF_TERM result = 0;
    sub->engine = nif_engine(call, argv[0], &sub->keeper);
    if (!enif_is_map(call->env, argv[1])) nif_stop(call, NIF_WRONG);
    if (call->end != NIF_RESULT) return 0;
    if (sub->engine == NULL)
        return nif_error(call, WEIR_UNSUPPORTED, "model", "the `model` is an encoder, which cannot generate");
    if ((sub->n > FEW || nif_request_long(call, argv[1])) && nif_move(call)) return 0;
    nif_request_read(call, argv[1], &sub->r);
    if (sub->r.fork && sub->r.request.source == NULL)
        result = nif_error(call, WEIR_STATE, "source",
                           "`source` has ended, and was submitted without `keep`: true");
    else if (call->end == NIF_RESULT)
        result = queue_requests(call, sub);
    nif_request_fini(&sub->r);
    return result;
}

/* engine_submit_n(engine, request, n, pid, demand): {:ok, [ref]} */
ERL_NIF_TERM nif_engine_submit_n(nif_call *call, const ERL_NIF_TERM argv[])
{
    submission sub = {.n = nif_i32_in(call, argv[2], 1, ANSWERS_MAX)};
    sub.to = nif_pid(call, argv[3]);
    sub.credit = get_credit(call, argv[4]);
    return submit_request(call, argv, &sub);
}

/* ---- After the submit ---- */

/* engine_demand(ref, n): n more messages may come, or :infinity */
ERL_NIF_TERM nif_engine_demand(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    int64_t credit = get_credit(call, argv[1]);
    if (call->end != NIF_RESULT) return 0;
    weir_usage usage = usage_of(s);
    enif_mutex_lock(s->object.lock);
    int64_t terms = (usage.n_generated - s->n_sent) * s->width + usage.n_prompt * s->prompt_width;
    if (terms <= TERMS_MAX || !nif_move(call))
        s->credit = credit > INT64_MAX - s->credit ? INT64_MAX : s->credit + credit;
    enif_mutex_unlock(s->object.lock);
    if (call->end == NIF_RESULT) serve_stream(s);
    return nif_atom(call->env, "ok");
}

/* engine_cancel(ref): the end still comes, within a tick */
ERL_NIF_TERM nif_engine_cancel(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    if (s != NULL) cancel_stream(s, false);
    return nif_atom(call->env, "ok");
}

/* engine_close(ref): cancels; no message follows, as if the consumer had ended */
ERL_NIF_TERM nif_engine_close(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    if (s != NULL) nif_stream_down(call->env, s, NULL, NULL);
    return nif_atom(call->env, "ok");
}

/* engine_usage(ref): counts and times of a request so far */
ERL_NIF_TERM nif_engine_usage(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    if (s == NULL) return 0;
    weir_usage usage = usage_of(s);
    return usage_map(call->env, &usage);
}

/* engine_interval(ref, n): from now on a chunk has n tokens, except the first and the last one */
ERL_NIF_TERM nif_engine_interval(nif_call *call, const ERL_NIF_TERM argv[])
{
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    int32_t interval = nif_i32_in(call, argv[1], 1, INT32_MAX);
    if (call->end != NIF_RESULT) return 0;
    enif_mutex_lock(s->object.lock);
    if (s->object.handle != NULL) weir_stream_set_interval(s->object.handle, interval);
    enif_mutex_unlock(s->object.lock);
    return nif_atom(call->env, "ok");
}

/* engine_progress(ref): how far its prompt is, with its number and interval; or :ended */
ERL_NIF_TERM nif_engine_progress(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    uint64_t number = 0;
    weir_progress progress = {.size = sizeof progress};
    nif_stream *s = nif_resource(call, argv[0], NIF_STREAM);
    if (s == NULL) return 0;
    enif_mutex_lock(s->object.lock);
    const weir_stream *stream = s->object.handle;
    bool ended = stream == NULL || weir_stream_progress(stream, &progress) != WEIR_OK ||
                 weir_stream_request(stream, &number) != WEIR_OK;
    int32_t interval = ended ? 0 : weir_stream_interval(stream);
    enif_mutex_unlock(s->object.lock);
    if (ended) return nif_atom(env, "ended");
    ERL_NIF_TERM map = nif_map_of(env, "progress", &progress);
    nif_put(env, &map, "request", enif_make_uint64(env, number));
    nif_put(env, &map, "interval", enif_make_int(env, interval));
    return map;
}
