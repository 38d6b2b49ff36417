/* encoder.c: encodes images and sounds on a thread of its own. The driver asks for embeddings by key and
 * holds them; equal ones exist once, in a list whose first is the most recently used. The thread takes what a
 * slot needs before what is encoded ahead, encodes without the mutex, and wakes the driver. Embeddings that
 * nobody holds stay within a part of the cache's budget, and the least recently used go first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/encoder.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"

typedef enum phase { WAITING, RUNNING, DONE } phase;

/* Owned by its holders; while RUNNING, also by the thread, which frees it if none is left. */
struct weir__embedding {
    weir__embedding *next; /* in the list */
    char key[65];
    weir__medium *medium; /* held; NULL once it is encoded */
    int32_t segment;
    int32_t refs; /* holders */
    bool ahead;   /* no slot needs it yet */
    phase is;
    size_t claimed; /* bytes of the cache's budget; 0 = it goes when nobody holds it */
    float *rows;    /* DONE, unless it failed */
    weir_status status;
    weir_error error;
    _Atomic bool cancelled, paused; /* ends the encode that runs; paused: it will be repeated */
};

struct weir__encoder {
    weir_model *model; /* its engine holds it */
    weir__cache *cache;
    weir__waker *waker;
    uint64_t n_bytes, n_claimed, n_saved; /* the driver's */
    weir__helper
        helper; /* its mutex protects all below, and of embeddings the phase, results, refs, `ahead` */
    weir__embedding *first; /* the most recently used first */
    uint64_t n_encodes;
    int64_t encode_ns;
    /* The thread's: the medium of which it encoded last. Others of its segments follow. */
    weir__medium *medium;
    weir__prepared *prepared;
};

/* ---- The thread ---- */

static void free_embedding(weir__embedding *embedding)
{
    weir__medium_release(embedding->medium);
    weir__mem_free(embedding->rows);
    weir__mem_free(embedding);
}

static void unlink_embedding(weir__encoder *encoder, const weir__embedding *embedding)
{
    weir__embedding **at = &encoder->first;
    while (*at != embedding) at = &(*at)->next;
    *at = embedding->next;
}

/* The embedding that is encoded next: of those that wait, the one that was wanted first; one that a slot
 * needs before any other. */
static weir__embedding *next_embedding(const weir__encoder *encoder)
{
    weir__embedding *next = NULL;
    for (weir__embedding *at = encoder->first; at != NULL; at = at->next)
        if (at->is == WAITING && (next == NULL || !at->ahead || next->ahead)) next = at;
    return next;
}

static void forget_medium(weir__encoder *encoder)
{
    if (encoder->prepared != NULL) encoder->model->ops->prepared_free(encoder->prepared);
    weir__medium_release(encoder->medium);
    encoder->prepared = NULL;
    encoder->medium = NULL;
}

static weir_status prepare_medium(weir__encoder *encoder, weir__medium *medium, weir_error *error)
{
    weir_media_info info = {.size = sizeof info};
    if (encoder->medium == medium) return WEIR_OK;
    forget_medium(encoder);
    weir_status status = weir_media_describe(medium->media, &info);
    if (status == WEIR_OK)
        status = medium->ops->projector_prepare(encoder->model->projector, &info, &encoder->prepared, error);
    if (status == WEIR_OK) encoder->medium = weir__medium_hold(medium);
    return status;
}

typedef struct stop {
    const weir__encoder *encoder;
    const weir__embedding *embedding;
} stop;

static bool encode_is_over(void *user)
{
    const stop *s = user;
    return atomic_load_explicit(&s->embedding->cancelled, memory_order_relaxed) ||
           atomic_load_explicit(&s->embedding->paused, memory_order_relaxed) ||
           atomic_load_explicit(&s->encoder->helper.ending, memory_order_relaxed);
}

static weir_status encode_embedding(weir__encoder *encoder, weir__embedding *embedding)
{
    stop s = {encoder, embedding};
    int32_t i = embedding->segment;
    weir_error *error = &embedding->error;
    weir_status status = prepare_medium(encoder, embedding->medium, error);
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&encoder->model->encoding); /* another engine of the model may encode */
    status = embedding->medium->ops->projector_encode(encoder->model->projector, encoder->prepared, i,
                                                      encode_is_over, &s, error);
    pthread_mutex_unlock(&encoder->model->encoding);
    weir__segment *segment = &encoder->prepared->segments[i];
    if (status != WEIR_OK) return status;
    embedding->rows = segment->embeddings;
    segment->embeddings = NULL;
    while (++i < encoder->prepared->n_segments && encoder->prepared->segments[i].tokens != NULL) continue;
    if (i >= encoder->prepared->n_segments) forget_medium(encoder);
    return WEIR_OK;
}

/* Waits for the next one, which then is RUNNING. NULL: the engine ends. */
static weir__embedding *take_next(weir__encoder *encoder)
{
    weir__embedding *next = NULL;
    pthread_mutex_lock(&encoder->helper.mutex);
    while (!atomic_load(&encoder->helper.ending) && (next = next_embedding(encoder)) == NULL)
        pthread_cond_wait(&encoder->helper.changed, &encoder->helper.mutex);
    if (next != NULL) next->is = RUNNING;
    pthread_mutex_unlock(&encoder->helper.mutex);
    return next;
}

/* The encode has ended, or made way for another one. */
static void settle_embedding(weir__encoder *encoder, weir__embedding *embedding, weir_status status,
                             int64_t took_ns)
{
    weir__medium *used = NULL; /* its pixels are large */
    pthread_mutex_lock(&encoder->helper.mutex);
    bool gone = embedding->refs == 0;
    encoder->n_encodes += status == WEIR_OK;
    encoder->encode_ns += took_ns;
    if (status == WEIR_ABORTED && !gone) {
        embedding->is = WAITING;
        atomic_store(&embedding->paused, false);
    } else {
        used = embedding->medium;
        embedding->medium = NULL;
        embedding->status = status;
        embedding->is = DONE;
    }
    if (gone) unlink_embedding(encoder, embedding);
    pthread_mutex_unlock(&encoder->helper.mutex);
    weir__medium_release(used);
    if (gone) free_embedding(embedding);
    weir__waker_wake(encoder->waker);
}

static void *run_encoder(void *user)
{
    weir__encoder *encoder = user;
    weir__embedding *embedding;
    weir__thread_name("weir-encoder");
    weir__thread_yield(); /* streams wait for passes */
    while ((embedding = take_next(encoder)) != NULL) {
        int64_t began_ns = weir__clock_now_ns();
        weir_status status = encode_embedding(encoder, embedding);
        settle_embedding(encoder, embedding, status, weir__clock_now_ns() - began_ns);
    }
    return NULL;
}

/* ---- Life ---- */

weir_status weir__encoder_create(weir_model *model, weir__cache *cache, uint64_t n_bytes, weir__waker *waker,
                                 weir__encoder **out, weir_error *error)
{
    weir__encoder *encoder = weir__mem_calloc(1, sizeof *encoder);
    if (encoder != NULL)
        *encoder = (weir__encoder){.model = model, .cache = cache, .n_bytes = n_bytes, .waker = waker};
    if (encoder == NULL || !weir__helper_start(&encoder->helper, run_encoder, encoder)) {
        weir__mem_free(encoder);
        return weir__error_set(error, WEIR_NO_MEMORY, "", "no thread for images and sounds");
    }
    *out = encoder;
    return WEIR_OK;
}

void weir__encoder_destroy(weir__encoder *encoder)
{
    if (encoder == NULL) return;
    weir__helper_join(&encoder->helper);
    forget_medium(encoder);
    while (encoder->first != NULL) {
        weir__embedding *embedding = encoder->first;
        encoder->first = embedding->next;
        free_embedding(embedding);
    }
    weir__cache_unclaim(encoder->cache, encoder->n_claimed);
    weir__helper_fini(&encoder->helper);
    weir__mem_free(encoder);
}

/* ---- The driver ---- */

static void unclaim_bytes(weir__encoder *encoder, weir__embedding *embedding)
{
    weir__cache_unclaim(encoder->cache, embedding->claimed);
    encoder->n_claimed -= embedding->claimed;
    embedding->claimed = 0;
}

/* Frees the one that was used longest ago of those that nobody holds. False: there is none. */
static bool evict_embedding(weir__encoder *encoder)
{
    weir__embedding *oldest = NULL;
    pthread_mutex_lock(&encoder->helper.mutex);
    for (weir__embedding *at = encoder->first; at != NULL; at = at->next)
        if (at->refs == 0 && at->is == DONE) oldest = at;
    if (oldest != NULL) unlink_embedding(encoder, oldest);
    pthread_mutex_unlock(&encoder->helper.mutex);
    if (oldest == NULL) return false;
    unclaim_bytes(encoder, oldest);
    free_embedding(oldest);
    return true;
}

/* Bytes claimed for it, 0 = no room: then it is freed when it was used. */
static size_t claim_bytes(weir__encoder *encoder, size_t n)
{
    while (n <= encoder->n_bytes) {
        if (encoder->n_claimed + n <= encoder->n_bytes && weir__cache_claim(encoder->cache, n)) {
            encoder->n_claimed += n;
            return n;
        }
        if (!evict_embedding(encoder)) return 0;
    }
    return 0;
}

/* An embedding that is there or on its way; it becomes the most recently used. */
static weir__embedding *find_embedding(weir__encoder *encoder, const char *key)
{
    weir__embedding *at = encoder->first;
    while (at != NULL && (strcmp(at->key, key) != 0 || atomic_load(&at->cancelled) || at->status != WEIR_OK))
        at = at->next;
    if (at == NULL) return NULL;
    at->refs++;
    if (at->is != DONE) return at; /* the order of the list is that of encoding */
    unlink_embedding(encoder, at);
    at->next = encoder->first;
    encoder->first = at;
    return at;
}

/* A slot needs this one. The mutex is held. */
static void need_embedding(weir__encoder *encoder, weir__embedding *embedding)
{
    embedding->ahead = false;
    if (embedding->is != WAITING) return;
    for (weir__embedding *at = encoder->first; at != NULL; at = at->next)
        if (at->is == RUNNING && at->ahead) atomic_store(&at->paused, true);
}

void weir__encoder_need(weir__encoder *encoder, weir__embedding *embedding)
{
    pthread_mutex_lock(&encoder->helper.mutex);
    need_embedding(encoder, embedding);
    pthread_mutex_unlock(&encoder->helper.mutex);
}

static size_t bytes_of(const weir__encoder *encoder, const weir__media_span *span)
{
    return (size_t)(span->end - span->at) * (size_t)encoder->model->projector_info.width * sizeof(float);
}

/* Held. NULL: out of memory or, ahead, no room. */
static weir__embedding *add_embedding(weir__encoder *encoder, const char *key, const weir__media_span *span,
                                      bool ahead)
{
    weir__embedding *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    made->claimed = claim_bytes(encoder, bytes_of(encoder, span));
    if (ahead && made->claimed == 0) {
        weir__mem_free(made);
        return NULL;
    }
    memcpy(made->key, key, sizeof made->key);
    made->medium = weir__medium_hold(span->medium);
    made->segment = span->segment;
    made->refs = 1;
    made->ahead = ahead;
    atomic_init(&made->cancelled, false);
    atomic_init(&made->paused, false);
    pthread_mutex_lock(&encoder->helper.mutex);
    made->next = encoder->first;
    encoder->first = made;
    if (!ahead) need_embedding(encoder, made);
    pthread_cond_signal(&encoder->helper.changed);
    pthread_mutex_unlock(&encoder->helper.mutex);
    return made;
}

/* Held. NULL: there is none with this key. */
static weir__embedding *hold_found(weir__encoder *encoder, const weir__history *history,
                                   const weir__media_span *span, char key[65], bool needed)
{
    weir__medium_key(span->medium, span->segment, history->salt, history->salt_length, key);
    pthread_mutex_lock(&encoder->helper.mutex);
    weir__embedding *found = find_embedding(encoder, key);
    if (found != NULL && needed) need_embedding(encoder, found);
    pthread_mutex_unlock(&encoder->helper.mutex);
    return found;
}

weir__embedding *weir__encoder_want(weir__encoder *encoder, const weir__history *history,
                                    const weir__media_span *span)
{
    char key[65];
    weir__embedding *found = hold_found(encoder, history, span, key, true);
    encoder->n_saved += found != NULL;
    return found != NULL ? found : add_embedding(encoder, key, span, false);
}

bool weir__encoder_is_idle(weir__encoder *encoder)
{
    bool idle = true;
    pthread_mutex_lock(&encoder->helper.mutex);
    for (const weir__embedding *at = encoder->first; at != NULL && idle; at = at->next) idle = at->is == DONE;
    pthread_mutex_unlock(&encoder->helper.mutex);
    return idle;
}

weir__embedding *weir__encoder_want_ahead(weir__encoder *encoder, const weir__history *history,
                                          const weir__media_span *span)
{
    char key[65];
    weir__embedding *embedding = hold_found(encoder, history, span, key, false);
    if (embedding == NULL) return add_embedding(encoder, key, span, true);
    if (embedding->claimed == 0) embedding->claimed = claim_bytes(encoder, bytes_of(encoder, span));
    if (embedding->claimed == 0) {
        weir__encoder_leave(encoder, embedding);
        return NULL;
    }
    encoder->n_saved++;
    return embedding;
}

weir__encoder_counts weir__encoder_count(weir__encoder *encoder)
{
    weir__encoder_counts counts = {0};
    if (encoder == NULL) return counts;
    counts.n_saved = encoder->n_saved;
    counts.n_bytes = encoder->n_claimed;
    pthread_mutex_lock(&encoder->helper.mutex);
    counts.n_encodes = encoder->n_encodes;
    counts.encode_ns = encoder->encode_ns;
    pthread_mutex_unlock(&encoder->helper.mutex);
    return counts;
}

void weir__encoder_leave(weir__encoder *encoder, weir__embedding *embedding)
{
    if (embedding == NULL) return;
    pthread_mutex_lock(&encoder->helper.mutex);
    bool last = --embedding->refs == 0, running = embedding->is == RUNNING;
    bool stays = embedding->is == DONE && embedding->status == WEIR_OK && embedding->claimed > 0;
    if (last && running) {
        unclaim_bytes(encoder, embedding);
        atomic_store(&embedding->cancelled, true); /* the thread frees it */
    }
    if (last && !running && !stays) unlink_embedding(encoder, embedding);
    pthread_mutex_unlock(&encoder->helper.mutex);
    if (!last || running || stays) return;
    unclaim_bytes(encoder, embedding);
    free_embedding(embedding);
}

weir_status weir__encoder_state(weir__encoder *encoder, const weir__embedding *embedding, weir_error *error)
{
    pthread_mutex_lock(&encoder->helper.mutex);
    weir_status status = embedding->is == DONE ? embedding->status : WEIR_TIMEOUT;
    if (status != WEIR_OK && status != WEIR_TIMEOUT) weir__error_copy(error, &embedding->error);
    pthread_mutex_unlock(&encoder->helper.mutex);
    return status;
}

float *weir__encoder_rows(const weir__embedding *embedding)
{
    return embedding->rows;
}
