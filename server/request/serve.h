/* serve.h: what all folders of the server share: the server itself, and a call, which is one request and its
 * answer. Many parts of both are opaque here.
 *
 * Threads. The service thread owns the connections and all calls. A call is handed to a worker and comes back
 * through the ready list; meanwhile the service thread touches only its `connection`, `gone` and `left`. The
 * engine's thread only puts calls on the ready list.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_SERVE_H
#define WEIR_SERVER_REQUEST_SERVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/histogram.h"
#include "base/json.h"
#include "base/text.h"
#include "places.h"
#include "server/access/keys.h"
#include "server/access/share.h"
#include "server/settings/params.h"
#include "server/system/event_loop.h"
#include "server/system/secret.h"
#include "server/trace/trace.h"

#define SERVE_WRITE_MAX    ((size_t)16 << 10)  /* of one turn; then it is another connection's turn */
#define SERVE_BUFFER_MAX   ((size_t)256 << 10) /* unsent bytes of a stream; beyond, the engine merges */
#define SERVE_ANSWERS_MAX  ((size_t)256 << 20) /* bytes of all whole answers that are not sent yet */
#define SERVE_ANSWER_SMALL ((size_t)64 << 10)  /* smaller ones always have room */
#define SERVE_TOKEN        32 /* hexadecimal digits of an id: 128 bits that nobody can guess */

typedef struct serve_server serve_server;
typedef struct serve_catalog serve_catalog;
typedef struct serve_model serve_model;
typedef struct serve_loaded serve_loaded;
typedef struct serve_kept serve_kept;
typedef struct serve_kv_events serve_kv_events;
typedef struct serve_call serve_call;
typedef struct serve_connection serve_connection;
typedef struct serve_workers serve_workers;
typedef struct serve_events serve_events;
typedef struct serve_answer serve_answer;
typedef struct serve_pull serve_pull;
typedef struct serve_route serve_route;
typedef struct serve_tape serve_tape;
typedef struct serve_tapes serve_tapes;
typedef struct serve_records serve_records;
typedef struct serve_recorder serve_recorder;

/* The result for a prefix that another server is said to have. */
typedef enum serve_prefix_end {
    SERVE_PREFIX_NONE, /* none was named */
    SERVE_PREFIX_FETCHED,
    SERVE_PREFIX_KNOWN,   /* all but a few tokens were cached here */
    SERVE_PREFIX_ABSENT,  /* the other one has no more of them */
    SERVE_PREFIX_REFUSED, /* it may not be asked, refused, or gave a prefix that this server may not take */
    SERVE_PREFIX_LATE,
    SERVE_PREFIX_BUSY, /* too many requests fetch here, or it gives too many */
    SERVE_PREFIX_FAILED,
    SERVE_PREFIX_ENDS,
} serve_prefix_end;

typedef struct serve_prefixes {
    _Atomic uint64_t n_ends[SERVE_PREFIX_ENDS], n_bytes_fetched;
    _Atomic uint64_t n_given, n_bytes_given;
    _Atomic int n_giving; /* now */
} serve_prefixes;

typedef enum serve_state {
    SERVE_READING,   /* the body is on its way */
    SERVE_WORKING,   /* a worker has it */
    SERVE_WAITING,   /* its model is being loaded, or is to be */
    SERVE_ANSWERING, /* `out` is being sent, and more may be added */
} serve_state;

/* A router's headers of a request (routers/router.h). Zeroes: none. */
typedef struct serve_router_hints {
    char tenant[64];   /* whose share of the slots it takes */
    char endpoint[64]; /* where the router sent it */
    int32_t priority, itl_target_ms;
} serve_router_hints;

/* Answers a call, or begins to. */
typedef void serve_handler(serve_call *call);

/* Reads the value of a request's field into the struct of its fields. False: the call has its answer. */
typedef bool serve_reader(serve_call *call, void *to, const char *name, const json_t *value);

/* Writes the body of an error. */
typedef void serve_error_form(const serve_call *call, int status, const char *field, const char *code,
                              const char *message, weir__text *text);

/* Invariant: state is WORKING exactly while a worker or the workers' queue has it. */
struct serve_call {
    serve_server *server;
    serve_model *model;           /* that it is about, held; NULL: none, or it is not known yet */
    serve_loaded *loaded;         /* the same in memory, while there is a lease; NULL: none */
    weir_lease *lease;            /* NULL: none; a single model needs none */
    bool waiting;                 /* the worker gave it back, because the model is not loaded */
    bool awaits;                  /* it counts in server->waits */
    bool unloads;                 /* its model, at the lease's end, if nobody else uses it then */
    int64_t wait_ns;              /* when it began to wait for its model; 0 = it did not */
    int64_t load_ns;              /* how long it waited for its model */
    int64_t late_ns;              /* when the deadline_ms of a request for a pool's model ends; 0 = never */
    char asked[256];              /* the model that the address names; truncated */
    json_t *json;                 /* the body, while a worker looks for the model in it; else NULL */
    const serve_route *route;     /* NULL: refused before one was found */
    serve_error_form *error;      /* of its path's API; NULL: OpenAI's */
    serve_connection *connection; /* service thread; NULL: the client has left, or a tape has the answer */
    _Atomic bool gone;            /* the same for workers */
    serve_call *before, *after;
    serve_call *next_ready; /* under server->mutex, as is is_ready */
    bool is_ready;
    serve_call *next_job;             /* the workers' queue: of the same owner */
    serve_call *next_line, *last_job; /* of an owner's first job: the next owner's; the owner's last one */
    void (*job)(serve_call *call);

    void (*leave)(serve_call *call); /* at its end: what else counts it; NULL: nothing does */

    serve_state state;
    char id[SERVE_TOKEN + 1];
    char method[8];
    char path[256];   /* for people: "*" stands for an id, which is a secret; truncated */
    char name[256];   /* the id or name in the path; truncated */
    char origin[272]; /* of a page that --cors admits; "" = no page, or the server's own */
    char client[46];  /* its address; "" = a Unix socket */
    char agent[128];  /* User-Agent and X-Request-Id as sent, truncated; for the log */
    char request_id[128];
    int64_t seed; /* that X-Weir-Seed gives to a request without one, where records are taken; -1 = none */
    char session[64]; /* the conversation's id, from the header of an agent or router, truncated */
    serve_router_hints router;
    serve_trace *trace;     /* owned; NULL: none */
    const char *peer;       /* of --prefix-peer, that has the prompt's prefix; NULL: none */
    int64_t peer_by_ns;     /* its job runs on server->carriers, and may fetch until then; 0 = it does not */
    const char *prefix_end; /* its result, static; NULL: none was named */
    /* Fetches that prefix, on a worker; false: the call has its answer. NULL: no server was named */
    bool (*fetch)(serve_call *call, const weir_request *request);
    weir_snapshot *snapshot;        /* the answer's body, from snapshot_at on; owned; NULL: none */
    void (*feed)(serve_call *call); /* adds more of it to `out`, on the service thread; NULL: none */
    uint64_t snapshot_at;
    int64_t send_by_ns;        /* when the answer is to be sent; 0 = no limit */
    bool gzip;                 /* the client takes answers in this coding */
    char known[96];            /* If-None-Match: what of the page the client has; truncated */
    char query[1024];          /* of the address, behind "?"; truncated */
    char position[32];         /* the event after which the client resumes a stream; truncated */
    const char *position_from; /* its source, "Last-Event-ID" or "starting_after"; NULL: none */
    int32_t key;               /* the API key's number; -1 = none */
    bool operates;             /* when the call began: it may change the server for others */
    serve_owner owner;         /* whom all counts that the call holds; since its head has passed the gate */
    int32_t counted;           /* requests of the key that it counts as: one for each answer */
    bool head_only, http_1_0;
    bool close; /* the connection, after the answer */
    bool has_body;
    /* The server's parameters when the call began: a reload may change these while a worker reads. */
    int64_t body_most;
    int32_t response_s;
    size_t body_length; /* counted in server->bodies; later what the answer keeps of it */
    size_t n_received;
    weir__text body;
    size_t media_bytes;  /* of its images and sounds, counted in server->media */
    weir__quota answers; /* the quota of its answer's texts, counted in server->answers */
    int64_t fetch_by_ns; /* its job runs on server->fetchers, and may fetch until then; 0 = it does not */

    weir__text out; /* [out_at .. n) is still to be sent */
    size_t out_at;
    bool begun; /* the answer's head is in `out`, or was sent */
    bool ended; /* nothing will be added to `out` */
    bool chunked;
    serve_events *events; /* that it streams; NULL: none */
    uint64_t n_told;      /* the last of their rounds in which it got one */
    int status;
    int32_t retry_s;     /* Retry-After; 0 = call.c decides by status and code */
#define SERVE_NEVER (-1) /* none: no retry helps */
    const char *code;    /* of a refusal, static; NULL: none */
    const char *allow;
    uint32_t n_steps;       /* of loops over what the request has */
    bool strict;            /* what has no effect here is refused (hint.h) */
    serve_relaxed *relaxed; /* owned; NULL: all that was asked for is enforced */
    char *reshaped;         /* owned: likewise; NULL: messages are as they were given */
    serve_terms terms;

    bool left;    /* the client left before the end of the answer */
    bool starved; /* it got 503 from constant bytes, for lack of memory */
    int64_t began_ns;
    int64_t deadline_ns; /* of the body */
    int64_t moved_ns;    /* when bytes were last sent, or first seen to wait */
    bool waits;          /* at the last sweep bytes waited for the client */
    uint64_t n_sent;
    serve_answer *answer; /* NULL: none is generated */
    serve_pull *pull;     /* a download whose progress is the answer; NULL: none */

    serve_tape *tape;      /* whose events it reads; NULL: none */
    const char *stream_id; /* the tape's */
    uint64_t tape_at;      /* the next one */
    serve_call *reader_before, *reader_after;
};

typedef struct serve_listener {
    serve_watch watch;
    serve_server *server;
} serve_listener;

struct serve_server {
    serve_params params;
    serve_loop *loop;
    struct ssl_ctx_st *tls; /* of new connections, under mutex; NULL = none */
    pthread_t thread;
    bool started;
    char address[320];
    int64_t created_s; /* wall clock, seconds */
    int64_t created_ns;

    _Atomic bool loaded; /* requests are served: the one model is there, or there is a pool */
    serve_catalog *catalog;
    char fingerprint[96];

    pthread_mutex_t mutex; /* the next ten; taken last, for a few instructions */
    pthread_cond_t changed;
    serve_call *ready_first, *ready_last;
    bool woken; /* the loop was woken, but has not taken the list yet */
    bool drain_asked, stop_asked, drained;
    bool pinged;                /* serve_server_is_healthy waits for the service thread */
    bool healthy;               /* the service thread's reply */
    const serve_params *reload; /* for the service thread to apply; NULL = none */
    int32_t n_pulls;            /* threads that download models */

    serve_workers *workers;
    serve_workers *fetchers; /* of calls that may name images by URL; NULL = no host is allowed */
    serve_workers *carriers; /* of calls that give or fetch prefixes; NULL = without --prefix-key */
    serve_prefixes prefixes;
    serve_keys *keys;
    serve_records *records;
    serve_recorder *recorder;   /* NULL = nothing is recorded */
    serve_tapes *tapes;         /* the service thread's */
    serve_kv_events *kv_events; /* NULL = none */
    serve_tracer *tracer;       /* NULL = nothing is traced */
    _Atomic uint64_t n_shared;  /* requests that joined another one's generation */
    serve_share answers;        /* bytes of whole answers, until their last one is sent */
    serve_share media;          /* bytes of all calls' decoded images and sounds */
    serve_share bodies;         /* bytes of all calls' bodies */
    serve_share waits;          /* calls that wait for their models */

    /* Puts a connection among those that are due in this turn: a call of it has bytes to send. */
    void (*send)(serve_connection *connection);

    /* The service thread's. */
    serve_call *calls;
    int32_t n_calls, most_calls; /* since memory was last given back */
    size_t most_bodies;          /* bytes of bodies; the same */
    bool draining, cut;          /* cut: the drain's time is over, and running calls were ended */
    int64_t drain_deadline_ns;
    serve_connection *connections, *due;
    int32_t n_connections, most_connections; /* the limit, apart from those for probes */
    serve_listener listeners[16];
    int32_t n_listeners;
    bool inherited; /* the listeners are systemd's */
    bool reachable; /* from other machines, by one of them; since create */
    bool full;      /* out of descriptors: nothing is accepted until the next sweep */
    int64_t logged_full_ns;
    char *unix_path; /* to unlink at the end; NULL = none */
    serve_timer sweep;
    uint32_t n_sweeps;
    serve_events *events; /* of each model that somebody watches */
    bool stuck;           /* an engine */
    char broken[512];     /* why the one model can compute no more; "" = it can */
    int32_t n_stuck_workers;
    uint64_t n_answers[6]; /* by hundreds of the status; [0]: clients that left */
    uint64_t n_codes[600]; /* and by the status */
    uint64_t n_left;
    weir_histogram e2e_seconds;
    char scratch[SERVE_WRITE_MAX]; /* for bytes that are read and dropped */
};

/* The handler of a path. */
struct serve_route {
    const char *method;
    const char *path; /* "[/v1]": may be left out; "*": an id; "**": any name; NULL: a file of the page */
    serve_handler *handle;
    bool work;                  /* runs on a worker, not on the service thread */
    bool slow;                  /* computes: has its own worker, as long as the client waits */
    bool model;                 /* is about a model: 503 until the server is ready, and during a drain */
    bool engine;                /* the same, and 400 where the model generates no text */
    weir_pool_kind kind;        /* of the model, if the request names none; UNKNOWN = any */
    bool apart;                 /* is about no single one after all, and needs none in memory */
    bool absent;                /* may be about one that is not in memory */
    bool tagged;                /* names models with ":latest", as "model" or "name": Ollama's */
    bool peer;                  /* asked by other servers, with the key of --prefix-key; loads no model */
    bool bodied;                /* has a body, though its method is not POST */
    bool versioned;             /* Anthropic's, too, in its shape: for requests with its version */
    bool drain;                 /* served during a drain, because it concerns running requests */
    bool health, metrics, open; /* whether a key is needed */
    bool operators;          /* for them only: it changes the server for others, or tells of their requests */
    serve_error_form *error; /* of the API; NULL: OpenAI's */
};

static inline bool serve_server_loaded(const serve_server *server)
{
    return atomic_load_explicit(&server->loaded, memory_order_acquire);
}

#endif
