/* kv_events.c: the thread that publishes which blocks of tokens the prefix caches hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kv_events.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kv_batch.h"
#include "kv_socket.h"
#include "server/request/serve.h"

#define POLL_MS      50
#define CHANGES_MOST 1024  /* of a batch */
#define BATCHES_MOST 10000 /* kept for replays, with all cached blocks; then a new sequence starts */
#define BYTES_MOST   ((size_t)64 << 20) /* likewise */

typedef struct source {
    struct source *next;
    weir_engine *engine;
    char *topic;
    bool begun; /* its changes were taken since the sequence started */
} source;

/* The thread owns the sockets and what is kept; the helper's mutex protects the rest. */
struct serve_kv_events {
    serve_kv_socket *publisher, *replays; /* replays: NULL = none */
    serve_kv_kept kept;                   /* room for BATCHES_MOST */
    size_t n_bytes_first; /* of the batches with everything that was cached when the sequence started */
    char *endpoint;
    weir__helper helper; /* its mutex is never held while something waits */
    bool restart;        /* the next batch starts the sequence again */
    char *topic;         /* of the first engine; NULL: there was none yet, and nothing to publish */
    source *sources;
    serve_kv_events_stats stats; /* of the last turn */
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

static void forget_kept(serve_kv_kept *kept)
{
    for (size_t i = 0; i < kept->n; i++) {
        kept->all[i]->kept = false;
        serve_kv_message_release(kept->all[i]);
    }
    kept->n = kept->n_bytes = 0;
}

/* Keeps the batch, which is taken over, for all readers. A batch that memory is missing for is lost to all,
 * so the sequence starts again. */
static void publish_batch(serve_kv_events *events, const char *topic, weir__text *payload)
{
    serve_kv_kept *kept = &events->kept;
    serve_kv_message *message =
        payload->failed ? NULL : serve_kv_message_create(topic, kept->n, payload->bytes, payload->n);
    weir__text_fini(payload);
    if (message == NULL || kept->n + 1 == BATCHES_MOST) events->restart = true;
    if (message == NULL) return;
    message->kept = true;
    kept->n_bytes += message->n;
    kept->all[kept->n++] = message;
}

/* Starts the sequence again with everything that is cached, so that a replay from its start is complete. */
static void start_again(serve_kv_events *events)
{
    forget_kept(&events->kept);
    events->restart = false;
    events->n_bytes_first = 0;
    serve_kv_socket_restart(events->publisher);
    if (events->replays != NULL) serve_kv_socket_restart(events->replays);
    for (source *s = events->sources; s != NULL; s = s->next) s->begun = false;
    weir__text payload = {0};
    serve_kv_batch_clear(&payload, seconds_now());
    publish_batch(events, events->topic, &payload);
}

/* Publishes one batch of the source's changes. False: there was none. */
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

static void publish_sources(serve_kv_events *events)
{
    if (events->topic == NULL) return;
    if (events->restart) start_again(events);
    bool first = events->n_bytes_first == 0;
    for (source *s = events->sources; s != NULL; s = s->next)
        while (!events->restart && publish_source(events, s)) {
        }
    size_t n_bytes = events->kept.n_bytes;
    if (first) events->n_bytes_first = n_bytes;
    if (n_bytes > BYTES_MOST && n_bytes > 2 * events->n_bytes_first) events->restart = true;
}

/* ---- The thread ---- */

static serve_kv_events_stats count_stats(const serve_kv_events *events)
{
    const serve_kv_socket_stats readers = serve_kv_socket_get_stats(events->publisher);
    serve_kv_events_stats stats = {
        .n_bytes_kept = events->kept.n_bytes,
        .n_bytes_readers = readers.n_bytes,
        .n_subscribers = readers.n,
        .n_dropped = readers.n_dropped,
    };
    if (events->replays == NULL) return stats;
    const serve_kv_socket_stats replays = serve_kv_socket_get_stats(events->replays);
    stats.n_bytes_readers += replays.n_bytes;
    stats.n_replayers = replays.n;
    stats.n_replays = replays.n_reading;
    stats.n_dropped += replays.n_dropped;
    return stats;
}

/* Publishes what is due, if it is time to. */
static bool publish_due(serve_kv_events *events, int64_t *due_ns)
{
    int64_t now_ns = weir__clock_now_ns();
    if (now_ns < *due_ns) return false;
    publish_sources(events);
    *due_ns = now_ns + POLL_MS * WEIR__NS_PER_MS;
    return true;
}

static void *run_publisher(void *user)
{
    serve_kv_events *events = user;
    serve_kv_socket *const sockets[] = {events->publisher, events->replays};
    struct pollfd polls[2 * SERVE_KV_POLLS], *const of[] = {polls, polls + SERVE_KV_POLLS};
    const size_t n = events->replays != NULL ? 2 : 1;
    int64_t due_ns = 0;
    bool ending = false;
    weir__thread_name("weir kv events");
    while (!ending) {
        int64_t now_ns = weir__clock_now_ns(), wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        for (size_t i = 0; i < n; i++) serve_kv_socket_poll(sockets[i], &events->kept, now_ns, of[i]);
        poll(polls, (nfds_t)(n * SERVE_KV_POLLS), (int)((wait_ns + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS));
        pthread_mutex_lock(&events->helper.mutex);
        ending = atomic_load(&events->helper.ending);
        bool published = !ending && publish_due(events, &due_ns);
        events->stats = count_stats(events);
        pthread_mutex_unlock(&events->helper.mutex);
        now_ns = weir__clock_now_ns();
        for (size_t i = 0; i < n; i++)
            serve_kv_socket_work(sockets[i], &events->kept, published, now_ns, of[i]);
    }
    return NULL;
}

/* ---- Life ---- */

static void close_events(serve_kv_events *events)
{
    serve_kv_socket_close(events->publisher);
    serve_kv_socket_close(events->replays);
    weir__mem_free(events->kept.all);
    weir__mem_free(events->endpoint);
    weir__mem_free(events->topic);
    weir__mem_free(events);
}

weir_status serve_kv_events_create(const char *address, const char *replay, const char *endpoint,
                                   serve_kv_events **out, weir_error *error)
{
    serve_kv_events *events = weir__mem_calloc(1, sizeof *events);
    if (events == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "out of memory");
    weir_status status = WEIR_OK;
    events->restart = true;
    events->endpoint = weir__mem_strdup(endpoint);
    events->kept.all = weir__mem_calloc(BATCHES_MOST, sizeof *events->kept.all);
    if (events->endpoint == NULL || events->kept.all == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "out of memory");
    if (status == WEIR_OK)
        status = serve_kv_socket_open(address, false, "kv_events", &events->publisher, error);
    if (status == WEIR_OK && replay != NULL)
        status = serve_kv_socket_open(replay, true, "kv_events_replay", &events->replays, error);
    if (status == WEIR_OK && !weir__helper_start(&events->helper, run_publisher, events))
        status = weir__error_set(error, WEIR_NO_MEMORY, "kv_events", "no thread can be started");
    if (status == WEIR_OK)
        *out = events;
    else
        close_events(events);
    return status;
}

void serve_kv_events_destroy(serve_kv_events *events)
{
    if (events == NULL) return;
    weir__helper_join(&events->helper);
    while (events->sources != NULL) serve_kv_events_leave(events, events->sources->engine);
    forget_kept(&events->kept);
    weir__helper_fini(&events->helper);
    close_events(events);
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
    pthread_mutex_lock(&events->helper.mutex);
    s->next = events->sources;
    events->sources = s;
    if (events->topic == NULL)
        events->topic = topic;
    else
        weir__mem_free(topic);
    pthread_mutex_unlock(&events->helper.mutex);
    return true;
}

void serve_kv_events_leave(serve_kv_events *events, const weir_engine *engine)
{
    pthread_mutex_lock(&events->helper.mutex);
    source **at = &events->sources, *s;
    while (*at != NULL && (*at)->engine != engine) at = &(*at)->next;
    if ((s = *at) != NULL) {
        *at = s->next;
        events->restart = true;
        weir__mem_free(s->topic);
        weir__mem_free(s);
    }
    pthread_mutex_unlock(&events->helper.mutex);
}

serve_kv_events_stats serve_kv_events_get_stats(serve_kv_events *events)
{
    pthread_mutex_lock(&events->helper.mutex);
    serve_kv_events_stats stats = events->stats;
    pthread_mutex_unlock(&events->helper.mutex);
    return stats;
}
