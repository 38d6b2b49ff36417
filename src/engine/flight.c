/* flight.c: one generation for any number of readers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The flight is the reader of an ordinary stream. The stream's ready callback, on the driver, copies each
 * chunk to the flight's own list, which keeps all of them, wakes the readers and runs the watchers. A reader
 * says which chunk is its next one, so readers of any pace share the list. Requests share a flight if their
 * keys are equal, which have every member that may change the answer; a request whose answer may differ the
 * next time has none. A flight leaves the engine's list with its last reference, and a failed one is not
 * shared. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "engine/stream.h"
#include "params/members.h"

typedef struct watcher {
    weir_flight_fn fn;
    void *user;
} watcher;

/* `mutex` protects `chunks` [n] (a chunk's arrays never change or move), `ended`, `running` and `runner`;
 * refs and next are under flights->mutex; `watch_mutex` protects the watchers and is held while they run;
 * `mutex` may be taken within it. The rest is constant. `chunks` always has room for one more, so that the
 * end needs no memory. */
struct weir_flight {
    weir__flights *flights;
    weir_flight *next; /* in flights' list */
    int refs;
    char *key; /* [n_key]; NULL = not shared */
    size_t n_key;
    weir_stream *stream;
    weir__waker *waker; /* the engine's, which the stream holds */
    pthread_mutex_t mutex;
    pthread_cond_t more;
    weir_chunk *chunks;
    size_t n, capacity;
    bool ended;
    bool running; /* watchers run, on the thread `runner` */
    pthread_t runner;
    pthread_mutex_t watch_mutex;
    watcher *watchers; /* [n_watchers]; fn NULL: removed while they ran */
    size_t n_watchers, watchers_capacity;
};

/* ---- Keys ---- */

typedef struct bytes {
    weir__text text;
    bool failed;
} bytes;

static void key_add(bytes *key, const void *what, size_t n)
{
    key->failed = key->failed || (n > 0 && !weir__text_add(&key->text, what, n));
}

static void key_add_members(bytes *key, const weir__members *members, const void *params)
{
    key->failed = key->failed || !weir__members_key(members, params, &key->text);
}

/* Adds a text with its length, so that two different lists of texts differ. */
static void key_add_text(bytes *key, const char *text, size_t length)
{
    size_t n = text == NULL ? SIZE_MAX : length == WEIR_NUL ? strlen(text) : length;
    key_add(key, &n, sizeof n);
    if (text != NULL) key_add(key, text, n);
}

#define KEY_ADD(key, value) key_add(key, &(value), sizeof(value))

static void key_add_media(bytes *key, const weir_media_use *media, size_t n)
{
    KEY_ADD(key, n);
    for (size_t i = 0; media != NULL && i < n; i++) {
        weir_media_info info = {.size = sizeof info, .hash = ""};
        (void)weir_media_describe(media[i].media, &info);
        KEY_ADD(key, media[i].at);
        key_add_text(key, info.hash, WEIR_NUL);
    }
}

/* The results of rendering: prompt, media, grammar, stops, control tokens and marks of reasoning. */
static void key_add_chat(bytes *key, const weir_chat *chat)
{
    const weir__parts *parts = &chat->parts;
    const weir__grammar *grammar = chat->constraint;
    key_add_text(key, chat->prompt, chat->prompt_length);
    key_add_media(key, chat->media, chat->n_media);
    KEY_ADD(key, parts->n);
    for (size_t i = 0; i < parts->n; i++) {
        KEY_ADD(key, parts->at[i].from);
        KEY_ADD(key, parts->at[i].to);
        KEY_ADD(key, parts->at[i].plain);
    }
    if (grammar != NULL) {
        key_add_text(key, grammar->text, WEIR_NUL);
        key_add_text(key, grammar->root, WEIR_NUL);
        key_add_text(key, grammar->prefill, WEIR_NUL);
        KEY_ADD(key, grammar->lazy);
        KEY_ADD(key, grammar->calls_only);
        KEY_ADD(key, grammar->n_triggers);
        for (size_t i = 0; i < grammar->n_triggers; i++) {
            KEY_ADD(key, grammar->triggers[i].kind);
            KEY_ADD(key, grammar->triggers[i].token);
            key_add_text(key, grammar->triggers[i].value, WEIR_NUL);
        }
    }
    KEY_ADD(key, chat->n_stops);
    for (size_t i = 0; i < chat->n_stops; i++) key_add_text(key, chat->stops[i], WEIR_NUL);
    KEY_ADD(key, chat->n_preserved);
    key_add(key, chat->preserved, chat->n_preserved * sizeof *chat->preserved);
    key_add_text(key, chat->reasoning.start, WEIR_NUL);
    key_add_text(key, weir_chat_reasoning_end(chat), WEIR_NUL);
}

/* True if the same parameters give the same answer each time. */
static bool is_repeatable(const weir_sampler_params *s)
{
    bool greedy = s->temp == 0 && s->mirostat == 0 && s->adaptive_target < 0 && s->order == NULL &&
                  (s->xtc_probability == 0 || s->xtc_threshold > 0.5f);
    return greedy || s->seed != WEIR_SEED_RANDOM;
}

/* The request's stop strings, tokens that end it, tokens that it allows, and words that it forbids. */
static void key_add_words(bytes *key, const weir_request *r)
{
    KEY_ADD(key, r->n_stop);
    for (size_t i = 0; r->stop != NULL && i < r->n_stop; i++)
        key_add_text(key, r->stop[i], r->stop_length != NULL ? r->stop_length[i] : WEIR_NUL);
    KEY_ADD(key, r->n_stop_tokens);
    if (r->stop_tokens != NULL) key_add(key, r->stop_tokens, r->n_stop_tokens * sizeof *r->stop_tokens);
    KEY_ADD(key, r->n_allowed_tokens);
    if (r->allowed_tokens != NULL)
        key_add(key, r->allowed_tokens, r->n_allowed_tokens * sizeof *r->allowed_tokens);
    KEY_ADD(key, r->n_bad_words);
    for (size_t i = 0; r->bad_words != NULL && i < r->n_bad_words; i++)
        key_add_text(key, r->bad_words[i], WEIR_NUL);
}

char *weir__flight_key(const weir_request *request, size_t *n)
{
    bytes key = {0};
    weir_request r;
    weir_sampler_params sampler = weir_sampler_params_default();
    *n = 0;
    weir_request_init(&r, sizeof r);
    if (weir__sized_take(&r, sizeof r, request, "request", NULL) != WEIR_OK ||
        weir__sized_take(&sampler, sizeof sampler, r.sampler, "sampler", NULL) != WEIR_OK)
        return NULL; /* the submit reports the error */
    /* The text of a source depends on the moment, and prompts' logprobs are in no chunk. */
    if (!is_repeatable(&sampler) || r.deadline_ms != 0 || r.source != NULL || r.prompt_logprobs ||
        r.n_prompt_logprobs > 0)
        return NULL;
    r.cache_keep_ms = r.itl_target_ms = 0; /* say nothing about the answer */
    r.tenant = NULL;
    const bool prompts[] = {r.chat != NULL, r.tokens != NULL};
    KEY_ADD(&key, prompts);
    key_add_members(&key, &weir__request_members, &r);
    key_add_members(&key, &weir__sampler_members, &sampler);
    key_add_text(&key, r.cache_salt, r.cache_salt_length);
    key_add_text(&key, r.text, r.text_length);
    KEY_ADD(&key, r.n_tokens);
    if (r.tokens != NULL) key_add(&key, r.tokens, r.n_tokens * sizeof *r.tokens);
    key_add_media(&key, r.media, r.n_media);
    KEY_ADD(&key, r.n_adapters);
    for (size_t i = 0; r.adapters != NULL && i < r.n_adapters; i++) {
        KEY_ADD(&key, r.adapters[i].adapter);
        KEY_ADD(&key, r.adapters[i].scale);
    }
    key_add_words(&key, &r);
    if (r.chat != NULL) key_add_chat(&key, r.chat);
    if (!key.failed) {
        *n = key.text.n;
        return key.text.bytes;
    }
    weir__text_fini(&key.text);
    *n = 1;
    return NULL;
}

/* ---- Output ---- */

/* A copy whose arrays are in one block, the widest items first. False: no memory. */
static bool copy_chunk(weir_chunk *to, const weir_chunk *from)
{
    size_t n = from->n_tokens, n_top = n * (size_t)from->n_top_logprobs;
    size_t scores = from->logprobs != NULL ? n : 0, top = from->top_logprobs != NULL ? n_top : 0;
    weir_logprob *likeliest = weir__mem_alloc(top * sizeof *likeliest + n * sizeof(int32_t) +
                                              scores * sizeof(float) + from->length + 1);
    if (likeliest == NULL) return false;
    *to = *from;
    int32_t *tokens = (int32_t *)(likeliest + top);
    float *logprobs = (float *)(tokens + n);
    char *text = (char *)(logprobs + scores);
    if (n > 0) memcpy(tokens, from->tokens, n * sizeof *tokens);
    if (scores > 0) memcpy(logprobs, from->logprobs, scores * sizeof *logprobs);
    if (top > 0) memcpy(likeliest, from->top_logprobs, top * sizeof *likeliest);
    if (from->length > 0) memcpy(text, from->text, from->length);
    text[from->length] = '\0';
    to->tokens = tokens;
    to->text = text;
    if (scores > 0) to->logprobs = logprobs;
    if (from->top_logprobs != NULL) to->top_logprobs = likeliest;
    return true;
}

/* The block that copy_chunk allocated. */
static void *block_of(const weir_chunk *chunk)
{
    return chunk->top_logprobs != NULL ? (void *)chunk->top_logprobs : (void *)chunk->tokens;
}

/* Takes a reference, unless the last one is gone. */
static bool hold_live(weir_flight *flight)
{
    pthread_mutex_lock(&flight->flights->mutex);
    bool live = flight->refs > 0;
    flight->refs += live;
    pthread_mutex_unlock(&flight->flights->mutex);
    return live;
}

/* True if one of its watchers makes this call: then this thread has watch_mutex. */
static bool in_watcher(weir_flight *flight)
{
    pthread_mutex_lock(&flight->mutex);
    bool is = flight->running && pthread_equal(flight->runner, pthread_self());
    pthread_mutex_unlock(&flight->mutex);
    return is;
}

static void set_running(weir_flight *flight, bool running)
{
    pthread_mutex_lock(&flight->mutex);
    flight->running = running;
    flight->runner = pthread_self();
    pthread_mutex_unlock(&flight->mutex);
}

/* Runs the watchers from `first` on. The caller holds watch_mutex and the flight. */
static void run_watchers(weir_flight *flight, size_t first)
{
    weir__driving driving;
    size_t n = 0;
    set_running(flight, true);
    weir__driving_begin(&driving, flight->waker); /* the driver waits for them, on whatever thread they run */
    for (size_t i = first; i < flight->n_watchers; i++)
        if (flight->watchers[i].fn != NULL) flight->watchers[i].fn(flight, flight->watchers[i].user);
    weir__driving_end(&driving);
    set_running(flight, false);
    for (size_t i = 0; i < flight->n_watchers; i++)
        if (flight->watchers[i].fn != NULL) flight->watchers[n++] = flight->watchers[i];
    flight->n_watchers = n;
}

static void call_watchers(weir_flight *flight)
{
    pthread_mutex_lock(&flight->watch_mutex);
    run_watchers(flight, 0);
    pthread_mutex_unlock(&flight->watch_mutex);
}

static void append_chunk(weir_flight *flight, const weir_chunk *chunk)
{
    pthread_mutex_lock(&flight->mutex);
    flight->chunks[flight->n++] = *chunk;
    flight->ended = chunk->finished;
    pthread_cond_broadcast(&flight->more);
    pthread_mutex_unlock(&flight->mutex);
    call_watchers(flight);
}

/* The stream's ready callback, on the thread that drives the engine. */
static void take_chunks(weir_stream *stream, void *user)
{
    weir_flight *flight = user;
    weir_chunk chunk;
    if (!hold_live(flight)) return; /* a watcher may release it */
    bool took = false;
    while (!flight->ended && weir__stream_take(stream, &chunk) == WEIR_OK) { /* only this thread ends it */
        weir_chunk kept;
        took = true;
        pthread_mutex_lock(&flight->mutex); /* readers may read the array that moves */
        bool room = weir__mem_grow(&flight->chunks, &flight->capacity, flight->n + 2, sizeof *flight->chunks);
        pthread_mutex_unlock(&flight->mutex);
        if (!room || !copy_chunk(&kept, &chunk)) {
            weir_stream_cancel(stream);
            kept = (weir_chunk){.text = "",
                                .finished = true,
                                .reason = WEIR_REASON_ERROR,
                                .n_generated = chunk.n_generated,
                                .total_ns = chunk.total_ns};
        }
        append_chunk(flight, &kept);
    }
    if (!took) call_watchers(flight); /* the prompt's progress */
    weir_flight_release(flight);
}

weir_status weir_flight_next(weir_flight *flight, uint64_t *at, int timeout_ms, weir_chunk *chunk)
{
    if (flight == NULL || at == NULL || chunk == NULL) return WEIR_INVALID;
    weir_status status = WEIR_OK;
    int64_t deadline = weir__clock_deadline_ns(timeout_ms);
    pthread_mutex_lock(&flight->mutex);
    int woken = timeout_ms == 0 ? ETIMEDOUT : 0;
    while (*at >= flight->n && !flight->ended && status == WEIR_OK)
        if (woken == ETIMEDOUT)
            status = WEIR_TIMEOUT;
        else if (woken == EDEADLK || !weir__waker_may_wait(flight->waker))
            status = WEIR_STATE;
        else
            woken = weir__waker_await(flight->waker, &flight->more, &flight->mutex, deadline);
    if (*at < flight->n) {
        *chunk = flight->chunks[(*at)++];
        status = WEIR_OK;
    } else if (flight->ended) {
        status = WEIR_END;
    }
    pthread_mutex_unlock(&flight->mutex);
    if (status == WEIR_STATE && woken == EDEADLK) weir__waker_log_undriven("weir_flight_next");
    return status;
}

weir_status weir_flight_watch(weir_flight *flight, weir_flight_fn fn, void *user)
{
    if (flight == NULL || fn == NULL) return WEIR_INVALID;
    if (in_watcher(flight)) return WEIR_STATE;
    weir_flight_hold(flight); /* fn may release it */
    pthread_mutex_lock(&flight->watch_mutex);
    bool room = weir__mem_grow(&flight->watchers, &flight->watchers_capacity, flight->n_watchers + 1,
                               sizeof *flight->watchers);
    if (room) {
        flight->watchers[flight->n_watchers++] = (watcher){fn, user};
        pthread_mutex_lock(&flight->mutex);
        bool waiting = flight->n > 0;
        pthread_mutex_unlock(&flight->mutex);
        if (waiting) run_watchers(flight, flight->n_watchers - 1);
    }
    pthread_mutex_unlock(&flight->watch_mutex);
    weir_flight_release(flight);
    return room ? WEIR_OK : WEIR_NO_MEMORY;
}

void weir_flight_unwatch(weir_flight *flight, weir_flight_fn fn, void *user)
{
    if (flight == NULL) return;
    bool within = in_watcher(flight);
    if (!within) pthread_mutex_lock(&flight->watch_mutex);
    for (size_t i = 0; i < flight->n_watchers; i++) {
        if (flight->watchers[i].fn != fn || flight->watchers[i].user != user) continue;
        if (within)
            flight->watchers[i].fn = NULL; /* run_watchers is iterating */
        else
            flight->watchers[i] = flight->watchers[--flight->n_watchers];
        break;
    }
    if (!within) pthread_mutex_unlock(&flight->watch_mutex);
}

weir_stream *weir_flight_stream(const weir_flight *flight)
{
    return flight != NULL ? flight->stream : NULL;
}

/* ---- Life ---- */

/* The mutex is held. */
static void unlist_flight(const weir_flight *flight)
{
    weir_flight **at = &flight->flights->first;
    while (*at != NULL && *at != flight) at = &(*at)->next;
    if (*at != NULL) *at = flight->next;
}

static void free_flight(weir_flight *flight)
{
    if (flight->stream != NULL) weir__stream_reserve(flight->stream, NULL, NULL);
    if (flight->stream != NULL && !flight->ended) weir_stream_cancel(flight->stream); /* others may hold it */
    weir_stream_release(flight->stream);
    for (size_t i = 0; i < flight->n; i++) weir__mem_free(block_of(&flight->chunks[i]));
    weir__mem_free(flight->chunks);
    weir__mem_free(flight->watchers);
    pthread_mutex_destroy(&flight->watch_mutex);
    pthread_cond_destroy(&flight->more);
    pthread_mutex_destroy(&flight->mutex);
    weir__flights_release(flight->flights);
    weir__mem_free(flight->key);
    weir__mem_free(flight);
}

weir_flight *weir_flight_hold(weir_flight *flight)
{
    if (flight == NULL) return NULL;
    pthread_mutex_lock(&flight->flights->mutex);
    flight->refs++;
    pthread_mutex_unlock(&flight->flights->mutex);
    return flight;
}

void weir_flight_release(weir_flight *flight)
{
    if (flight == NULL) return;
    pthread_mutex_lock(&flight->flights->mutex);
    bool last = --flight->refs == 0;
    if (last) unlist_flight(flight);
    pthread_mutex_unlock(&flight->flights->mutex);
    if (last) free_flight(flight);
}

/* Finds a flight with this key that runs or ended well, and takes a reference. If there is none, lists `own`
 * and returns it; both may be NULL. A failed flight is not shared. */
static weir_flight *find_flight(weir__flights *flights, const char *key, size_t n_key, weir_flight *own)
{
    if (key == NULL) return own;
    pthread_mutex_lock(&flights->mutex);
    weir_flight *at = flights->first;
    for (; at != NULL; at = at->next) {
        weir_reason reason = weir_stream_reason(at->stream);
        if (reason != WEIR_REASON_ERROR && reason != WEIR_REASON_CANCELLED &&
            !weir_stream_cancelled(at->stream) && !weir__stream_ends_reasoning(at->stream) &&
            at->n_key == n_key && memcmp(at->key, key, n_key) == 0)
            break;
    }
    if (at != NULL) {
        at->refs++;
    } else if (own != NULL) {
        own->next = flights->first;
        flights->first = own;
    }
    pthread_mutex_unlock(&flights->mutex);
    return at != NULL ? at : own;
}

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a flight");
}

static weir_status create_flight(const weir_engine *engine, weir_flight **out, weir_error *error)
{
    weir__flights *flights = engine->flights;
    weir_flight *flight = weir__mem_calloc(1, sizeof *flight);
    if (flight == NULL) return no_memory(error);
    flight->refs = 1;
    flight->flights = flights;
    flight->waker = engine->waker;
    if (pthread_mutex_init(&flight->mutex, NULL) != 0) goto no_mutex;
    if (pthread_mutex_init(&flight->watch_mutex, NULL) != 0) goto no_watch_mutex;
    if (weir__clock_cond_init(&flight->more) != 0) goto no_cond;
    pthread_mutex_lock(&flights->mutex);
    flights->refs++;
    pthread_mutex_unlock(&flights->mutex);
    weir_status status = weir_stream_create(&flight->stream, error);
    if (status == WEIR_OK && !weir__mem_grow(&flight->chunks, &flight->capacity, 1, sizeof *flight->chunks))
        status = no_memory(error);
    if (status != WEIR_OK) {
        free_flight(flight);
        return status;
    }
    weir__stream_reserve(flight->stream, take_chunks, flight);
    *out = flight;
    return WEIR_OK;
no_cond:
    pthread_mutex_destroy(&flight->watch_mutex);
no_watch_mutex:
    pthread_mutex_destroy(&flight->mutex);
no_mutex:
    weir__mem_free(flight);
    return no_memory(error);
}

weir_status weir_flight_open(weir_engine *engine, const weir_request *request, bool share, weir_flight **out,
                             bool *joined, weir_error *error)
{
    size_t n_key = 0;
    if (engine == NULL || request == NULL || out == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING,
                             engine == NULL    ? "engine"
                             : request == NULL ? "request"
                                               : "flight",
                             "a pointer is NULL");
    weir_status status = weir__engine_check_exists(engine, error);
    if (status != WEIR_OK) return status;
    char *key = share ? weir__flight_key(request, &n_key) : NULL;
    if (key == NULL && n_key > 0) return no_memory(error);
    weir_flight *own = NULL, *flight = find_flight(engine->flights, key, n_key, NULL);
    if (flight == NULL) status = create_flight(engine, &own, error);
    if (own != NULL) {
        own->key = key;
        own->n_key = n_key;
        key = NULL;
        status = weir_engine_submit(engine, request, 1, &own->stream, error);
        /* Concurrent calls may both submit: the later one drops its own flight. */
        if (status == WEIR_OK) flight = find_flight(engine->flights, own->key, n_key, own);
    }
    bool found = flight != own;
    if (found) weir_flight_release(own);
    weir__mem_free(key);
    if (status != WEIR_OK) return status;
    if (joined != NULL) *joined = found;
    *out = flight;
    return WEIR_OK;
}
