/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_events.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kv_batch.h"

#ifdef WEIR_ZMQ

#include <zmq.h>

#define POLL_MS      50
#define CHANGES_MOST 1024  /* of a batch */
#define BATCHES_MOST 10000 /* kept for replays, with all cached blocks; then a new sequence starts */
#define BYTES_MOST   ((size_t)64 << 20) /* likewise */
#define QUEUE_MOST   1000               /* batches that wait for one subscriber; later ones are lost to it */
#define INPUT_MOST   ((int64_t)1 << 10) /* bytes of a message from outside */

typedef struct source {
    struct source *next;
    weir_engine *engine;
    char *topic;
    bool begun; /* its changes were taken since the sequence started */
} source;

typedef struct batch {
    char *topic;
    weir__text payload;
} batch;

/* Invariant: kept[i] was published with the number i. The thread owns the sockets; the mutex protects the
 * rest. */
struct serve_kv_events {
    void *context, *publisher, *replays; /* replays: NULL = none */
    char *endpoint;
    pthread_t thread;
    pthread_mutex_t mutex; /* never held while something waits */
    bool stopping;
    bool restart; /* the next batch starts the sequence again */
    char *topic;  /* of the first engine; NULL: there was none yet, and nothing to publish */
    source *sources;
    batch *kept; /* [n_kept], room for BATCHES_MOST */
    size_t n_kept, n_bytes;
    size_t n_bytes_first; /* of the batches with everything that was cached when the sequence started */
    weir_cache_change changes[CHANGES_MOST];
    int32_t tokens[CHANGES_MOST * SERVE_KV_BLOCK];
};

/* ---- Publishing ---- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void number_bytes(uint64_t number, unsigned char bytes[8])
{
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> 8 * (7 - i));
}

static void send_batch(void *socket, const char *topic, uint64_t number, const char *payload, size_t n)
{
    unsigned char bytes[8];
    number_bytes(number, bytes);
    zmq_send(socket, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(socket, bytes, sizeof bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(socket, payload, n, ZMQ_DONTWAIT);
}

static void forget_kept(serve_kv_events *events)
{
    for (size_t i = 0; i < events->n_kept; i++) {
        weir__mem_free(events->kept[i].topic);
        weir__text_fini(&events->kept[i].payload);
    }
    events->n_kept = events->n_bytes = events->n_bytes_first = 0;
}

/* Publishes and keeps the batch, which is taken over. A batch that memory is missing for is lost to all, so
 * the sequence starts again. */
static void publish_batch(serve_kv_events *events, const char *topic, weir__text *payload)
{
    char *copy = weir__text_format("%s", topic);
    if (copy == NULL || payload->failed) {
        weir__mem_free(copy);
        weir__text_fini(payload);
        events->restart = true;
        return;
    }
    send_batch(events->publisher, topic, events->n_kept, payload->bytes, payload->n);
    events->n_bytes += payload->n;
    events->kept[events->n_kept++] = (batch){copy, *payload};
    if (events->n_kept == BATCHES_MOST) events->restart = true;
}

/* Starts the sequence again with everything that is cached, so that a replay from its start is complete. */
static void start_again(serve_kv_events *events)
{
    forget_kept(events);
    events->restart = false;
    for (source *s = events->sources; s != NULL; s = s->next) s->begun = false;
    weir__text payload = {0};
    serve_kv_batch_clear(&payload, seconds_now());
    publish_batch(events, events->topic, &payload);
}

/* One batch of the source's changes. False: there was none. */
static bool publish_source(serve_kv_events *events, source *s)
{
    size_t n;
    weir_status status =
        weir_engine_cache_changes(s->engine, !s->begun, events->changes, events->tokens, CHANGES_MOST, &n);
    s->begun = true;
    if (status != WEIR_OK) return false;
    weir__text payload = {0};
    serve_kv_batch_write(&payload, seconds_now(), events->changes, events->tokens, n, SERVE_KV_BLOCK);
    publish_batch(events, s->topic, &payload);
    return true;
}

static void publish_all(serve_kv_events *events)
{
    if (events->topic == NULL) return;
    if (events->restart) start_again(events);
    bool first = events->n_bytes_first == 0;
    for (source *s = events->sources; s != NULL; s = s->next)
        while (!events->restart && publish_source(events, s)) {
        }
    if (first) events->n_bytes_first = events->n_bytes;
    if (events->n_bytes > BYTES_MOST && events->n_bytes > 2 * events->n_bytes_first) events->restart = true;
}

/* ---- Replays ---- */

/* Answers one request, ["", number]: all batches from that number on, each ["", topic, number, payload], then
 * ["", "", -1, ""]. Anything else is ignored. */
static void answer_replay(serve_kv_events *events)
{
    unsigned char id[256], number[8];
    char rest[16];
    int n_id = zmq_recv(events->replays, id, sizeof id, ZMQ_DONTWAIT), n_last = -1, n_frames = 1, more = 0;
    size_t n_more = sizeof more;
    if (n_id < 0) return;
    while (zmq_getsockopt(events->replays, ZMQ_RCVMORE, &more, &n_more) == 0 && more != 0) {
        n_last = zmq_recv(events->replays, rest, sizeof rest, 0);
        n_frames++;
    }
    if (n_id > (int)sizeof id || n_frames != 3 || n_last != (int)sizeof number) return;
    uint64_t from = 0;
    for (int i = 0; i < 8; i++) from = from << 8 | (unsigned char)rest[i];
    for (uint64_t i = from; i < events->n_kept; i++) {
        zmq_send(events->replays, id, (size_t)n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        zmq_send(events->replays, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        send_batch(events->replays, events->kept[i].topic, i, events->kept[i].payload.bytes,
                   events->kept[i].payload.n);
    }
    zmq_send(events->replays, id, (size_t)n_id, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(events->replays, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    send_batch(events->replays, "", UINT64_MAX, "", 0);
}

/* ---- The thread ---- */

static void *run_publisher(void *user)
{
    serve_kv_events *events = user;
    zmq_pollitem_t item = {.socket = events->replays, .events = ZMQ_POLLIN};
    bool stopping = false;
    weir__thread_name("weir kv events");
    while (!stopping) {
        int n = events->replays != NULL ? 1 : 0;
        zmq_poll(&item, n, POLL_MS);
        pthread_mutex_lock(&events->mutex);
        stopping = events->stopping;
        if (!stopping) publish_all(events);
        if (n > 0 && (item.revents & ZMQ_POLLIN) != 0) answer_replay(events);
        pthread_mutex_unlock(&events->mutex);
    }
    return NULL;
}

/* ---- Life ---- */

/* ZeroMQ takes other ports modulo 65,536. */
static bool is_address(const char *address)
{
    if (strncmp(address, "ipc://", 6) == 0) return address[6] != '\0';
    const char *colon = strrchr(address, ':');
    return strncmp(address, "tcp://", 6) == 0 && colon >= address + 6 &&
           weir__ascii_port(colon + 1, strlen(colon + 1)) != 0;
}

static weir_status bind_socket(void *context, int type, const char *address, const char *field, void **socket,
                               weir_error *error)
{
    int queue = type == ZMQ_PUB ? QUEUE_MOST : BATCHES_MOST + QUEUE_MOST, linger = 0;
    int64_t most = INPUT_MOST;
    if (!is_address(address))
        return weir__error_set(error, WEIR_INVALID, field,
                               "\"%.128s\" is not an address; use tcp://HOST:PORT or ipc://FILE", address);
    if ((*socket = zmq_socket(context, type)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, field, "no socket: %s", zmq_strerror(zmq_errno()));
    zmq_setsockopt(*socket, ZMQ_SNDHWM, &queue, sizeof queue);
    zmq_setsockopt(*socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(*socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (zmq_bind(*socket, address) == 0) return WEIR_OK;
    return weir__error_set(error, WEIR_IO, field, "cannot listen at %.128s: %s", address,
                           zmq_strerror(zmq_errno()));
}

static void close_all(serve_kv_events *events)
{
    if (events->publisher != NULL) zmq_close(events->publisher);
    if (events->replays != NULL) zmq_close(events->replays);
    if (events->context != NULL) zmq_ctx_term(events->context);
    weir__mem_free(events->kept);
    weir__mem_free(events->endpoint);
    weir__mem_free(events->topic);
    weir__mem_free(events);
}

weir_status serve_kv_events_create(const char *address, const char *replay, const char *endpoint,
                                   serve_kv_events **out, weir_error *error)
{
    sigset_t before;
    serve_kv_events *events = weir__mem_calloc(1, sizeof *events);
    if (events == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "out of memory");
    weir_status status = WEIR_NO_MEMORY;
    events->restart = true;
    events->endpoint = weir__text_format("%s", endpoint);
    events->kept = weir__mem_calloc(BATCHES_MOST, sizeof *events->kept);
    weir__thread_quiet(&before); /* ZeroMQ's own threads start with the first socket */
    events->context = zmq_ctx_new();
    if (events->endpoint == NULL || events->kept == NULL || events->context == NULL)
        weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "out of memory");
    else
        status = bind_socket(events->context, ZMQ_PUB, address, "kv_events", &events->publisher, error);
    if (status == WEIR_OK && replay != NULL)
        status =
            bind_socket(events->context, ZMQ_ROUTER, replay, "kv_events_replay", &events->replays, error);
    weir__thread_restore(&before);
    if (status == WEIR_OK && (pthread_mutex_init(&events->mutex, NULL) != 0 ||
                              weir__thread_start(&events->thread, NULL, run_publisher, events) != 0))
        status = weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "no thread can be started");
    if (status == WEIR_OK)
        *out = events;
    else
        close_all(events);
    return status;
}

void serve_kv_events_destroy(serve_kv_events *events)
{
    if (events == NULL) return;
    pthread_mutex_lock(&events->mutex);
    events->stopping = true;
    pthread_mutex_unlock(&events->mutex);
    pthread_join(events->thread, NULL);
    while (events->sources != NULL) serve_kv_events_leave(events, events->sources->engine);
    forget_kept(events);
    pthread_mutex_destroy(&events->mutex);
    close_all(events);
}

bool serve_kv_events_join(serve_kv_events *events, const char *model, weir_engine *engine)
{
    source *s = weir__mem_calloc(1, sizeof *s);
    char *own = weir__text_format("kv@%s@%s", events->endpoint, model), *topic = NULL;
    if (own != NULL) topic = weir__text_format("%s", own);
    if (s == NULL || own == NULL || topic == NULL) {
        weir__mem_free(s);
        weir__mem_free(own);
        weir__mem_free(topic);
        return false;
    }
    *s = (source){.engine = engine, .topic = own};
    pthread_mutex_lock(&events->mutex);
    s->next = events->sources;
    events->sources = s;
    if (events->topic == NULL)
        events->topic = topic;
    else
        weir__mem_free(topic);
    pthread_mutex_unlock(&events->mutex);
    return true;
}

void serve_kv_events_leave(serve_kv_events *events, const weir_engine *engine)
{
    pthread_mutex_lock(&events->mutex);
    source **at = &events->sources, *s;
    while (*at != NULL && (*at)->engine != engine) at = &(*at)->next;
    if ((s = *at) != NULL) {
        *at = s->next;
        events->restart = true;
        weir__mem_free(s->topic);
        weir__mem_free(s);
    }
    pthread_mutex_unlock(&events->mutex);
}

#else

weir_status serve_kv_events_create(const char *address, const char *replay, const char *endpoint,
                                   serve_kv_events **out, weir_error *error)
{
    (void)address, (void)replay, (void)endpoint, (void)out;
    return weir__error_set(error, WEIR_UNSUPPORTED, "kv_events", "this build has no ZeroMQ");
}

void serve_kv_events_destroy(serve_kv_events *events)
{
    (void)events;
}

bool serve_kv_events_join(serve_kv_events *events, const char *model, weir_engine *engine)
{
    (void)events, (void)model, (void)engine;
    return true;
}

void serve_kv_events_leave(serve_kv_events *events, const weir_engine *engine)
{
    (void)events, (void)engine;
}

#endif
