/* stream.c: an engine's stream as messages: {ref, {:chunk, ids, text}}, with logprobs
 * {ref, {:chunk, ids, text, scores}}, then {ref, {:done, reason, usage}} or {ref, {:error, reason}}; first,
 * with the prompt's logprobs, {ref, {:prompt, ids, scores}}.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A chunk becomes a message when there is credit for it; the end comes with the last one. Without credit
 * chunks stay in the stream, which merges them: the mailbox is bounded by what the consumer asked for. The
 * resource is kept for the engine, from the submit until the terminal chunk was taken. Then the stream itself
 * is let go of: a consumer that lives long may hold many references, which need no memory for text. */
#include <math.h>
#include <time.h>

#include "nif.h"

/* What a normal scheduler takes. */
#define TEXT_MAX   1024
#define TOKENS_MAX 2048 /* that wait, to become one message */
#define TERMS_MAX  4096 /* of such a message, with alternatives */
#define FEW        8    /* answers of one request */

#define STOP_MAX   64 /* as weir_request has it */
#define ANSWER_MAX 128

/* The message was made without the lock, since that takes long where it is large. It is sent with it, which
 * does not, so that none is sent once the stream is deaf.
 *
 * Sent by no process, on whatever thread this is. By the calling one, a dirty scheduler would wait for that
 * process's lock, which its exit holds while it waits for ours in nif_stream_down(); and would send nothing
 * for a process that was killed, although the message is another's. Besides, one sender keeps the order. */
static void send_locked(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM message)
{
    if (!s->deaf) enif_send(NULL, &s->to, messages, message);
}

static ERL_NIF_TERM message_of(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM what)
{
    return enif_make_tuple2(messages, enif_make_resource(messages, s), what);
}

static void send(nif_stream *s, ErlNifEnv *messages, ERL_NIF_TERM what)
{
    ERL_NIF_TERM message = message_of(s, messages, what);
    enif_mutex_lock(s->object.lock);
    send_locked(s, messages, message);
    enif_mutex_unlock(s->object.lock);
    enif_clear_env(messages);
}

ERL_NIF_TERM nif_usage_map(ErlNifEnv *env, const weir_usage *usage)
{
    ERL_NIF_TERM map = nif_map_of(env, "usage", usage);
    nif_put(env, &map, "score", nif_number(env, weir_usage_score(usage)));
    return map;
}

static ERL_NIF_TERM text_or_nil(ErlNifEnv *env, const char *text)
{
    return text[0] != '\0' ? nif_binary(env, text, WEIR_NUL) : nif_atom(env, "nil");
}

/* Why not more of the prompt was cached, where there is more to tell than that. */
static void put_miss(ErlNifEnv *env, ERL_NIF_TERM *map, const weir_stream *stream)
{
    weir_miss_info info = {.size = sizeof info};
    char text[1024];
    if (weir_stream_miss(stream, &info) != WEIR_OK) return;
    if (info.miss != WEIR_MISS_EVICTED && info.miss != WEIR_MISS_SALT && info.miss != WEIR_MISS_DIVERGED &&
        info.miss != WEIR_MISS_UNCUTTABLE)
        return;
    bool diverged = info.miss == WEIR_MISS_DIVERGED;
    ERL_NIF_TERM told = nif_map_of(env, "miss_info", &info), nil = nif_atom(env, "nil");
    weir_miss_text(&info, text, sizeof text);
    nif_put(env, &told, "text", nif_binary(env, text, WEIR_NUL));
    nif_put(env, &told, "prompt", text_or_nil(env, info.prompt));
    nif_put(env, &told, "cached", text_or_nil(env, info.cached));
    if (!diverged) nif_put(env, &told, "cause", nil);
    if (!diverged || info.message < 0) nif_put(env, &told, "message", nil);
    nif_put(env, &told, "role", text_or_nil(env, info.role));
    nif_put(env, map, "miss_info", told);
}

/* Of a stream whose terminal chunk was taken. */
static ERL_NIF_TERM last_usage(ErlNifEnv *env, const weir_stream *stream, bool fork)
{
    struct timespec now;
    weir_usage usage = weir_stream_usage(stream);
    ERL_NIF_TERM map = nif_usage_map(env, &usage);
    put_miss(env, &map, stream);
    if (fork) {
        size_t length;
        const char *before = weir_stream_before(stream, &length);
        nif_put(env, &map, "before", nif_binary(env, before, length));
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    nif_put(env, &map, "sent_ns", enif_make_int64(env, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec));
    return map;
}

/* For each token {logprob, [{id, logprob}]}, the likeliest first. Before a prompt's first token there is
 * nothing that it could follow: {nil, []}. */
static ERL_NIF_TERM scores(ErlNifEnv *env, const weir_chunk *chunk)
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

static ERL_NIF_TERM ids(ErlNifEnv *env, const weir_chunk *chunk)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = chunk->n_tokens; i-- > 0;)
        list = enif_make_list_cell(env, enif_make_int(env, chunk->tokens[i]), list);
    return list;
}

static void send_prompt(nif_stream *s, const weir_stream *stream, ErlNifEnv *messages)
{
    weir_chunk prompt;
    if (weir_stream_prompt_logprobs(stream, &prompt) != WEIR_OK) return; /* it has ended before */
    send(s, messages,
         enif_make_tuple3(messages, nif_atom(messages, "prompt"), ids(messages, &prompt),
                          scores(messages, &prompt)));
}

static void send_tokens(nif_stream *s, ErlNifEnv *messages, const weir_chunk *chunk)
{
    ERL_NIF_TERM name = nif_atom(messages, "chunk"), tokens = ids(messages, chunk);
    ERL_NIF_TERM text = nif_binary(messages, chunk->text, chunk->length);
    send(s, messages,
         chunk->logprobs == NULL ? enif_make_tuple3(messages, name, tokens, text)
                                 : enif_make_tuple4(messages, name, tokens, text, scores(messages, chunk)));
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

/* With the lock: the next chunk, if it may be sent. */
static bool take(nif_stream *s, weir_chunk *chunk)
{
    if (s->object.handle == NULL || s->sending || (!s->deaf && s->credit < 1)) return false;
    if (weir_stream_try_next(s->object.handle, chunk) != WEIR_OK) return false;
    if (!s->deaf) s->credit--;
    return true;
}

/* With the lock, which is let go of meanwhile: one chunk's messages. The stream, where they were the last. */
static weir_stream *send_chunk(nif_stream *s, ErlNifEnv *messages, const weir_chunk *chunk)
{
    weir_stream *stream = s->object.handle;
    bool deaf = s->deaf, prompt = s->prompt_width > 0;
    ERL_NIF_TERM end = 0;
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

/* Sends what may be sent. One thread at a time does; others that come leave it what there is, and wait for
 * nothing. The stream, once: that was the end, and the caller lets go of it. */
static weir_stream *pump(nif_stream *s)
{
    weir_chunk chunk;
    weir_stream *ended = NULL;
    ErlNifEnv *messages = enif_alloc_env();
    if (messages == NULL) return NULL; /* the next chunk, or demand, tries again */
    enif_mutex_lock(s->object.lock);
    while (take(s, &chunk)) ended = send_chunk(s, messages, &chunk);
    enif_mutex_unlock(s->object.lock);
    enif_free_env(messages);
    return ended;
}

/* Sends what may be sent, and lets go at the end. The engine's thread may be about to call ready() although
 * another one has taken the terminal chunk: set_ready waits for that. The release alone would only if it were
 * the last one, and a fork, or `kept`, may hold the stream as well. */
static void serve(nif_stream *s)
{
    weir_stream *ended = pump(s);
    if (ended == NULL) return;
    nif_engine *engine = s->engine; /* nobody else looks at it any more */
    s->engine = NULL;
    weir_stream_set_ready(ended, NULL, NULL);
    weir_stream_release(ended);
    enif_release_resource(engine);
    enif_release_resource(s);
}

static void ready(weir_stream *stream, void *user)
{
    (void)stream;
    serve(user);
}

weir_usage nif_stream_usage(nif_stream *s)
{
    enif_mutex_lock(s->object.lock);
    weir_usage usage = s->object.handle != NULL ? weir_stream_usage(s->object.handle) : s->usage;
    enif_mutex_unlock(s->object.lock);
    return usage;
}

static void cancel(nif_stream *s, bool deaf)
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
    cancel(s, true);
    serve(s);
}

/* ---- submit ---- */

/* What a request's pointers lead to. */
typedef struct submission {
    nif_tokens tokens;
    ErlNifBinary text, salt;
    ErlNifBinary stop[STOP_MAX];
    const char *stops[STOP_MAX];
    size_t stop_lengths[STOP_MAX];
    nif_adapters adapters;
    nif_map map;
    weir_sampler_params sampler;
    bool keep; /* so that it can be forked after its end */
    bool fork; /* request.source is NULL: of what is no longer there */
    weir_request request;
} submission;

static void submission_fini(submission *s)
{
    weir_stream_release(s->request.source);
    nif_free(s->tokens.ids);
    nif_map_fini(&s->map);
}

/* What a fork goes on from, held; NULL: it has ended, and was not kept. */
static weir_stream *hold_source(nif_stream *s)
{
    enif_mutex_lock(s->object.lock);
    weir_stream *source = weir_stream_hold(s->kept != NULL ? s->kept : s->object.handle);
    enif_mutex_unlock(s->object.lock);
    return source;
}

static bool get_stops(ErlNifEnv *env, ERL_NIF_TERM list, submission *s)
{
    ERL_NIF_TERM head;
    size_t n = 0;
    for (; enif_get_list_cell(env, list, &head, &list); n++) {
        if (n == STOP_MAX || !enif_inspect_binary(env, head, &s->stop[n])) return false;
        s->stops[n] = (const char *)s->stop[n].data;
        s->stop_lengths[n] = s->stop[n].size;
    }
    s->request.stop = s->stops;
    s->request.stop_length = s->stop_lengths;
    s->request.n_stop = n;
    return enif_is_empty_list(env, list) != 0;
}

/* The key that is wrong; NULL: none. */
static const char *get_submission(ErlNifEnv *env, ERL_NIF_TERM term, submission *s)
{
    nif_map *map = &s->map;
    ERL_NIF_TERM value;
    weir_request *r = &s->request;
    *map = (nif_map){.env = env, .term = term};
    *r = weir_request_default();
    s->sampler = weir_sampler_params_default();
    r->sampler = &s->sampler;
    nif_map_members(map, "sampler", &s->sampler);
    nif_map_members(map, "request", r);
    if (map->wrong != NULL) return map->wrong;
    if (nif_map_term(map, "keep", &value) && !nif_get_bool(env, value, &s->keep)) return "keep";
    if (nif_map_term(map, "cache_salt", &value)) {
        if (!enif_inspect_binary(env, value, &s->salt)) return "cache_salt";
        r->cache_salt = (const char *)s->salt.data;
        r->cache_salt_length = s->salt.size;
    }
    if (nif_map_term(map, "adapters", &value)) {
        if (!nif_get_adapters(env, value, &s->adapters)) return "adapters";
        r->adapters = s->adapters.uses;
        r->n_adapters = s->adapters.n;
    }
    if (nif_map_term(map, "stop", &value) && !get_stops(env, value, s)) return "stop";
    if (nif_map_term(map, "source", &value)) {
        nif_stream *source = nif_resource_get(env, value, NIF_STREAM);
        if (source == NULL) return "source";
        r->source = hold_source(source);
        s->fork = true;
        return NULL;
    }
    if (!nif_map_term(map, "prompt", &value)) return "prompt";
    const nif_chat *chat = nif_resource_get(env, value, NIF_CHAT);
    if (chat != NULL) {
        r->chat = chat->object.handle;
    } else if (enif_inspect_binary(env, value, &s->text)) {
        r->text = (const char *)s->text.data;
        r->text_length = s->text.size;
    } else if (nif_get_tokens(env, value, &s->tokens)) {
        r->tokens = s->tokens.ids;
        r->n_tokens = s->tokens.n;
    } else {
        return "prompt";
    }
    return NULL;
}

static bool get_credit(ErlNifEnv *env, ERL_NIF_TERM term, int64_t *credit)
{
    ErlNifSInt64 n;
    if (enif_is_identical(term, nif_atom(env, "infinity"))) {
        *credit = INT64_MAX;
        return true;
    }
    if (!enif_get_int64(env, term, &n) || n < 0) return false;
    *credit = n;
    return true;
}

/* Long work: something to compile (a conversation may have a grammar), or much to read: prompt, salt and
 * stops together; or many answers. */
static bool is_long(ErlNifEnv *env, ERL_NIF_TERM term, int32_t n)
{
    nif_map map = {.env = env, .term = term};
    ERL_NIF_TERM value, stop;
    size_t n_bytes = 0;
    if (n > FEW) return true;
    /* A fork reads the answer so far. */
    if (nif_sampling_long(env, term) || nif_map_term(&map, "source", &value)) return true;
    if (nif_map_term(&map, "prompt", &value)) {
        n_bytes += nif_size(env, value);
        if (nif_resource_get(env, value, NIF_CHAT) != NULL || nif_longer_than(env, value, TOKENS_MAX))
            return true;
    }
    if (nif_map_term(&map, "cache_salt", &value)) n_bytes += nif_size(env, value);
    if (nif_map_term(&map, "stop", &value)) {
        for (int i = 0; i < STOP_MAX && enif_get_list_cell(env, value, &stop, &value); i++)
            n_bytes += nif_size(env, stop);
    }
    return n_bytes > TEXT_MAX;
}

/* A stream that was never submitted. */
static nif_stream *stream_new(nif_engine *engine, const ErlNifPid *to, int64_t credit, const submission *sub)
{
    const weir_request *request = &sub->request;
    weir_stream *handle = NULL;
    nif_stream *s = nif_resource_new(NIF_STREAM);
    if (s == NULL) return NULL;
    if (weir_stream_create(&handle, NULL) != WEIR_OK) {
        nif_resource_drop(s);
        return NULL;
    }
    s->object.handle = handle;
    s->engine = engine;
    s->to = *to;
    s->credit = credit;
    s->width = 2 + (int64_t)request->n_logprobs;
    s->fork = sub->fork;
    if (request->prompt_logprobs || request->n_prompt_logprobs > 0)
        s->prompt_width = 2 + (int64_t)request->n_prompt_logprobs;
    return s;
}

/* The request is queued: its messages may begin. */
static ERL_NIF_TERM stream_begin(ErlNifEnv *env, nif_stream *s, bool keep)
{
    ErlNifMonitor monitor;
    ErlNifPid to = s->to;
    if (keep) s->kept = weir_stream_hold(s->object.handle);
    enif_keep_resource(s->engine);
    enif_keep_resource(s); /* until the terminal chunk was taken */
    weir_stream_set_ready(s->object.handle, ready, s);
    /* Watched only now: nothing but serve() may end the callback. It may all be over already. */
    if (enif_monitor_process(env, s, &to, &monitor) != 0) nif_stream_down(env, s, &to, NULL);
    return nif_resource_term(env, s);
}

static bool is_answers(ErlNifEnv *env, ERL_NIF_TERM term, int32_t *n)
{
    return nif_get_i32(env, term, n) && *n >= 1 && *n <= ANSWER_MAX;
}

/* Queues a request n times: all or none. `refs` is a list then. */
static ERL_NIF_TERM submit(ErlNifEnv *env, nif_engine *engine, ERL_NIF_TERM request, int32_t n,
                           const ErlNifPid *to, int64_t credit, ERL_NIF_TERM *refs)
{
    weir_error error = {0};
    submission sub = {.keep = false};
    nif_stream *streams[ANSWER_MAX];
    weir_stream *handles[ANSWER_MAX];
    int32_t made = 0;
    ERL_NIF_TERM result = 0; /* stays 0: an argument is of the wrong type */
    if (get_submission(env, request, &sub) != NULL) goto end;
    if (sub.fork && sub.request.source == NULL) {
        result = nif_failed(env, "source: the stream has ended, and was submitted without keep: true");
        goto end;
    }
    for (; made < n; made++) {
        streams[made] = stream_new(engine, to, credit, &sub);
        if (streams[made] == NULL) {
            result = nif_no_memory(env);
            goto drop;
        }
        handles[made] = streams[made]->object.handle;
    }
    weir_status status =
        weir_engine_submit_n(engine->object.handle, &sub.request, (size_t)n, handles, &error);
    if (status == WEIR_OK) {
        *refs = enif_make_list(env, 0);
        while (made-- > 0)
            *refs = enif_make_list_cell(env, stream_begin(env, streams[made], sub.keep), *refs);
        result = nif_atom(env, "ok");
        goto end;
    }
    result = status == WEIR_BUSY ? enif_make_tuple2(env, nif_atom(env, "error"), nif_atom(env, "queue_full"))
                                 : nif_refused(env, status, &error);
drop:
    while (made-- > 0) nif_resource_drop(streams[made]);
end:
    submission_fini(&sub);
    return result != 0 ? result : enif_make_badarg(env);
}

/* engine_submit(engine, request, pid, demand): {:ok, ref} */
ERL_NIF_TERM nif_engine_submit(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid to;
    int64_t credit;
    ERL_NIF_TERM refs = 0, ref, rest;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL || !enif_is_map(env, argv[1]) || !enif_get_local_pid(env, argv[2], &to) ||
        !get_credit(env, argv[3], &credit))
        return enif_make_badarg(env);
    if (nif_on_normal_scheduler() && is_long(env, argv[1], 1))
        return nif_dirty(env, "engine_submit", nif_run_engine_submit, argc, argv);
    ERL_NIF_TERM result = submit(env, engine, argv[1], 1, &to, credit, &refs);
    return refs != 0 && enif_get_list_cell(env, refs, &ref, &rest) ? nif_ok(env, ref) : result;
}

/* engine_submit_n(engine, request, n, pid, demand): {:ok, [ref]}, of n answers */
ERL_NIF_TERM nif_engine_submit_n(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid to;
    int32_t n;
    int64_t credit;
    ERL_NIF_TERM refs = 0;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL || !enif_is_map(env, argv[1]) || !is_answers(env, argv[2], &n) ||
        !enif_get_local_pid(env, argv[3], &to) || !get_credit(env, argv[4], &credit))
        return enif_make_badarg(env);
    if (nif_on_normal_scheduler() && is_long(env, argv[1], n))
        return nif_dirty(env, "engine_submit_n", nif_run_engine_submit_n, argc, argv);
    ERL_NIF_TERM result = submit(env, engine, argv[1], n, &to, credit, &refs);
    return refs != 0 ? nif_ok(env, refs) : result;
}

/* engine_demand(ref, n): n more messages may come, or :infinity */
ERL_NIF_TERM nif_engine_demand(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    int64_t credit;
    nif_stream *s = nif_resource_get(env, argv[0], NIF_STREAM);
    if (s == NULL || !get_credit(env, argv[1], &credit)) return enif_make_badarg(env);
    weir_usage usage = nif_stream_usage(s);
    enif_mutex_lock(s->object.lock);
    int64_t terms = (usage.n_generated - s->n_sent) * s->width + usage.n_prompt * s->prompt_width;
    bool much = nif_on_normal_scheduler() && terms > TERMS_MAX;
    if (!much) s->credit = credit > INT64_MAX - s->credit ? INT64_MAX : s->credit + credit;
    enif_mutex_unlock(s->object.lock);
    if (much) return nif_dirty(env, "engine_demand", nif_run_engine_demand, argc, argv);
    serve(s);
    return nif_atom(env, "ok");
}

/* engine_cancel(ref): the end still comes, within a tick */
ERL_NIF_TERM nif_engine_cancel(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    nif_stream *s = nif_resource_get(env, argv[0], NIF_STREAM);
    if (s == NULL) return enif_make_badarg(env);
    cancel(s, false);
    return nif_atom(env, "ok");
}
