/* serve.h: shared by the server's files: the server, and a call, which is one request and its answer.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads. The service thread owns the connections and all calls. A call is handed to a worker and comes back
 * through the ready list; meanwhile the service thread touches only its `connection`, `gone` and `left`. The
 * engine's thread only puts calls on the ready list. */
#ifndef WEIR_SERVER_CALLS_SERVE_H
#define WEIR_SERVER_CALLS_SERVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/json.h"
#include "places.h"
#include "relaxed.h"
#include "server/models/adapters.h"
#include "server/settings/params.h"
#include "server/system/event_loop.h"
#include "server/system/secret.h"
#include "share.h"

#define SERVE_WRITE_MAX    ((size_t)16 << 10)  /* of one turn; then it is another connection's turn */
#define SERVE_BUFFER_MAX   ((size_t)256 << 10) /* unsent bytes of a stream; beyond, the engine merges */
#define SERVE_ANSWERS_MAX  ((size_t)256 << 20) /* bytes of all whole answers that are not sent yet */
#define SERVE_ANSWER_SMALL ((size_t)64 << 10)  /* smaller ones always have room */
#define SERVE_SWEEP_US     250000              /* how often the deadlines of calls are checked */
#define SERVE_TOKEN        32 /* hexadecimal digits of an id: 128 bits that nobody can guess */

typedef struct serve_server serve_server;
typedef struct serve_catalog serve_catalog;
typedef struct serve_model serve_model;
typedef struct serve_loaded serve_loaded;
typedef struct serve_kept serve_kept;
typedef struct serve_kv_events serve_kv_events;
typedef struct serve_call serve_call;
typedef struct serve_connection serve_connection;
typedef struct serve_answer serve_answer;
typedef struct serve_route serve_route;
typedef struct serve_workers serve_workers;
typedef struct serve_events serve_events;
typedef struct serve_keys serve_keys;
typedef struct serve_tape serve_tape;
typedef struct serve_tapes serve_tapes;
typedef struct serve_records serve_records;
typedef struct serve_pull serve_pull;

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

/* A router's headers of a request (router/headers.h). Zeroes: none. */
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
    weir_lease *lease;            /* NULL: none; one model that somebody else loads needs none */
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

    serve_state state;
    char id[SERVE_TOKEN + 1];
    char method[8];
    char path[256];   /* for people: "*" stands for an id, which is a secret; truncated */
    char name[256];   /* the id or name in the path; truncated */
    char origin[128]; /* that --cors admits; "" = none, or the server's own */
    char client[46];  /* its address; "" = a Unix socket */
    char agent[128];  /* User-Agent and X-Request-Id as sent, truncated; for the log */
    char request_id[128];
    char session[64]; /* the conversation's id, from the header of an agent or router, truncated */
    serve_router_hints router;
    const char *peer;        /* of --prefix-peer, that has the prompt's prefix; NULL: none */
    int64_t peer_by_ns;      /* its job runs on server->carriers, and may fetch until then; 0 = it does not */
    const char *prefix_end;  /* its result, static; NULL: none was named */
    bool gives;              /* it is counted in server->prefixes.n_giving */
    weir_snapshot *snapshot; /* the answer's body, from snapshot_at on; owned; NULL: none */
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
    /* As the server's parameters were when the call began: a reload may change these while a worker reads. */
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
    int32_t retry_s;     /* Retry-After; 0 = as retry.c has it for the status and code */
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
    serve_tapes *tapes;         /* the service thread's */
    serve_kv_events *kv_events; /* NULL = none */
    _Atomic uint64_t n_shared;  /* requests that joined another one's generation */
    serve_share answers;        /* bytes of whole answers, until their last one is sent */
    serve_share media;          /* bytes of all calls' decoded images and sounds */
    serve_share bodies;         /* bytes of all calls' bodies */
    serve_share waits;          /* calls that wait for their models */

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
    char broken[448];     /* why the one model can compute no more; "" = it can */
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

/* What stands in a path at its row's star, as it was sent; at NULL: the row has none. */
typedef struct serve_path_name {
    const char *at;
    size_t n;
    bool is_id; /* and gives access */
} serve_path_name;

/* ---- ready.c ---- */

/* Puts a call on the ready list and wakes the service thread. Any thread. */
void serve_ready_post(serve_call *call);

/* Removes a call from the ready list; no other thread may be about to post it. Service thread. */
void serve_ready_unlist(serve_call *call);

/* Takes the first call from the ready list; NULL: it is empty. Service thread. */
serve_call *serve_ready_take(serve_server *server);

/* Schedules the connection for this turn: it can read or send. Service thread. */
void serve_connection_due(serve_connection *connection);

/* The call has output for the client. Service thread. */
void serve_call_send(serve_call *call);

/* ---- The server ---- */

/* Takes the ready list and the requests to the service thread (drain, stop, ping, reload). */
void serve_server_wake(serve_server *server);

/* reach.c: whether strangers have access: other machines can reach the server, and it has no keys. Any
 * thread. */
bool serve_reach_is_open(const serve_server *server);

/* reach.c: whether requests with this key (-1: without one) are an operator's: the key is one, or there
 * are no keys and only this machine reaches the server (ADR 0095). It may change with a reload. Any
 * thread. */
bool serve_reach_operates(const serve_server *server, int32_t key);

/* reload.c: applies the parameters that serve_server_reload passed. Service thread. */
void serve_reload_take(serve_server *server);

/* sweep.c: called by the timer. */
void serve_server_sweep(serve_timer *timer);

/* ---- call.c ---- */

serve_call *serve_call_create(serve_server *server, serve_connection *connection);

/* The answer's X-Request-Id: the client's own, if it is fit for a header, else call->id. */
const char *serve_call_request_id(const serve_call *call);

#define SERVE_LEFT 499 /* the status of a call whose client left; no answer has it */

/* The status for log and metrics; 0: the call has none. */
int serve_call_status(const serve_call *call);

/* Sends a whole answer; later ones for the same call are ignored. 429 and 503 have Retry-After. A large one
 * takes its part of the answers' quota, or becomes 503. */
void serve_call_answer(serve_call *call, int status, const char *type, const char *bytes, size_t n);

/* The same with a text, which is freed. It has the answers' quota already if the request decides its
 * length. */
void serve_call_answer_text(serve_call *call, int status, const char *type, weir__text *text);

/* The same with 200 and a text of JSON, which gets a newline at its end. */
void serve_call_answer_json(serve_call *call, weir__text *text);

/* `more` are lines of the head, each with its end. */
void serve_call_answer_more(serve_call *call, int status, const char *type, const char *more,
                            const char *bytes, size_t n);

/* Errors, in the shape of the call's route; field and code may be NULL. All return false. */
bool serve_call_refuse(serve_call *call, int status, const char *field, const char *code, const char *format,
                       ...) __attribute__((format(printf, 5, 6)));
bool serve_call_no_memory(serve_call *call);

/* The worker's job was interrupted: the client has left, the server stops, or --work-timeout has passed. */
bool serve_call_interrupted(serve_call *call);

/* Asks the worker's interrupt once in some thousand calls; for each turn of a loop over what a request has.
 * False: the client has left, or --work-timeout has passed, and the call has its answer. */
bool serve_call_goes_on(serve_call *call);
bool serve_call_stopping(serve_call *call);

/* Appends the error in OpenAI's shape, as an object, the value of "error". */
void serve_call_error_json(weir__text *text, int status, const char *field, const char *code,
                           const char *message);

/* Begins an answer of n bytes, which are added to call->out as they are. */
void serve_call_begin_sized(serve_call *call, const char *type, uint64_t n);

/* Begins an answer of unknown length; its body goes through serve_call_begin_piece and end_piece. */
void serve_call_begin(serve_call *call, const char *type);

/* Enclose bytes that are added to call->out; no bytes = no piece. */
size_t serve_call_begin_piece(serve_call *call);
void serve_call_end_piece(serve_call *call, size_t at);
void serve_call_end(serve_call *call);

/* Sends a comment, or the dialect's ping, so that no proxy takes the connection for dead. False: the call
 * streams no events, or has ended. */
bool serve_call_comment(serve_call *call);

/* Whether the client has let bytes wait for longer than stall_s. Called at each sweep. Service thread. */
bool serve_call_is_stalled(serve_call *call, int64_t now_ns);

/* ---- error.c ---- */

/* Whether a call of the library was OK; otherwise the call's answer is its error. */
bool serve_call_passes(serve_call *call, weir_status status, weir_error *error);

/* Reports the schema keywords that are not enforced, the lines of weir_chat_relaxed, as serve_hint_name
 * does. */
void serve_call_relaxed(serve_call *call, const char *lines);

/* The same for the messages that lost lines, in the request's terms, and the lines of weir_chat_reshaped.
 * Both may be NULL. add_reshaped: adds the latter as a member, if there are any; lines may be NULL. */
void serve_call_reshaped(serve_call *call, const char *dropped, const char *lines);
void serve_call_add_reshaped(const serve_call *call, const char *lines, weir__text *text);

/* ---- retry.c ---- */

#define SERVE_RETRY_MOST_S 120 /* clients wait no longer for a second try */

/* Sets the call's Retry-After. False: that is too long, and the call gets none. */
bool serve_retry_after(serve_call *call, int64_t seconds);

/* Settles call->retry_s for a refusal with this status and call->code. Afterwards it is SERVE_NEVER where no
 * retry helps. False: clients do not repeat a request after this status anyway. */
bool serve_retry_decide(serve_call *call, int status);

/* ---- body.c ---- */

/* Whether the body is JSON; *json is an object that the caller frees, or NULL after an answer. */
bool serve_call_read_json(serve_call *call, json_t **json);

/* The same for any JSON value. */
bool serve_call_read_any(serve_call *call, json_t **json);

/* Whether it is a whole number, which may be written as 1.0; into *n, else 0. */
bool serve_json_whole(const json_t *value, json_int_t *n);

/* Token ids, an array in a request's `field`, into *ids, [*n], which the caller frees in any case. False: the
 * call has its answer. */
bool serve_call_read_ids(serve_call *call, const char *field, const json_t *list, int32_t **ids, size_t *n);

/* Whether `name`, a request's "model", is one of this server's, or NULL. *adapter: the same where it is an
 * adapter's, else NULL; borrowed. Of a tagged route, an unknown name loses its tag. False: the call has its
 * answer. */
bool serve_call_read_model(serve_call *call, const json_t *name, const char **adapter);

/* Bytes of a name before the ":latest" that Ollama's clients add; 0: it has none. */
size_t serve_name_untagged(const char *name);

/* The value of an argument of a query, which is the address behind "?", as it stands there, [*n]; NULL: it is
 * not given. */
const char *serve_argument_find(const char *query, const char *name, size_t *n);

/* Text [n] with its %XX as bytes, as much as there is room for. False: it is wrongly encoded, or has a
 * NUL. */
bool serve_argument_decode(const char *from, size_t n, char *to, size_t capacity);

/* The same of the call's address, copied. False: it is not given. */
bool serve_call_argument(const serve_call *call, const char *name, char *value, size_t capacity);

/* Whether the address has no arguments but these, a list "order limit". False: the call has its answer. */
bool serve_call_arguments(serve_call *call, const char *known);

/* Counts bytes of the call's images and sounds until its end, or until they are dropped. False: its owner may
 * have no more of media_bytes now, and nothing was counted. */
static inline bool serve_call_hold_media(serve_call *call, size_t n)
{
    serve_server *server = call->server;
    bool held = serve_share_take(&server->media, call->owner, n, (size_t)server->params.media_bytes) ==
                SERVE_SHARE_OK;
    call->media_bytes += held ? n : 0;
    return held;
}

static inline void serve_call_drop_media(serve_call *call, size_t n)
{
    call->media_bytes -= n;
    serve_share_release(&call->server->media, call->owner, n);
}

/* ---- lease.c ---- */

/* Where there is but one model, the call has it. Service thread. */
void serve_lease_begin(serve_call *call);

/* The handler of a call's route, with its model. A worker's job; the call may come back without an answer,
 * and wait. */
void serve_lease_work(serve_call *call);

/* The same for a handler that does not wait: the model is locked in memory meanwhile, if it is there. Service
 * thread. */
void serve_lease_glance(serve_call *call);

/* Whether the call, which a worker gave back, waits for its model; it is posted then. Service thread. */
bool serve_lease_await(serve_call *call);

/* Takes the time that the call has waited for its model off its deadline_ms, which is 0 for none. */
void serve_lease_shorten(const serve_call *call, int64_t *ms);

/* Nothing more is generated for the call. */
void serve_lease_end(serve_call *call);

/* Refusals: there is no such model; the model is not available now, because of the error. Return false. */
bool serve_lease_refuse_name(serve_call *call, const char *name);
bool serve_lease_refuse(serve_call *call, const char *name, weir_status status, const weir_error *error);

/* ---- call_end.c ---- */

/* Service thread; not while WORKING. Cancels its generation and writes the log. */
void serve_call_destroy(serve_call *call);

/* The client has left: destroys the call now, or when the worker is done with it. */
void serve_call_leave(serve_call *call);

/* ---- the others ---- */

weir_status serve_listener_open(serve_server *server, weir_error *error);
void serve_listener_close(serve_server *server);
void serve_listener_go_on(serve_server *server); /* accepts again after descriptors ran out */

/* Whether only this machine can reach the listening socket. */
bool serve_reach_is_local(int fd);

/* The row of a path [n] as it was sent: nothing in it but a name may be percent-encoded. NULL: there is none
 * with this method; *allow: the methods of those with another one, or NULL. *name: the first one's. */
const serve_route *serve_route_find(const char *method, const char *path, size_t n, serve_path_name *name,
                                    const char **allow);

/* How the API of a path writes errors, also where nothing is at the path. NULL: as OpenAI's. */
serve_error_form *serve_route_error(const char *path);

/* n threads for jobs, and one for slow ones. done: gets each call back, on its worker. The library's
 * interrupt ends a running job when its client has left, when the workers are destroyed, or after most_s
 * seconds unless it is slow. */
serve_workers *serve_workers_create(int32_t n, int32_t most_s, void (*done)(serve_call *call));

/* Interrupts the running jobs and waits for them; the queued ones are given back. False: one did not end in
 * time (negative: no limit), and nothing that the workers use may be freed. */
bool serve_workers_destroy(serve_workers *workers, int timeout_ms);
/* Whether the job of this thread may go on, for jobs that wait. */
bool serve_workers_go_on(void *unused);

/* Whether it may not because the workers are destroyed. */
bool serve_workers_are_stopping(void);

/* Owners take turns: a job waits for one of each other owner at most, and for its own owner's. */
void serve_workers_give(serve_workers *workers, serve_call *call, void (*job)(serve_call *call));

/* The number of jobs that still run late_s after the end of their time; *n_new: those that were not counted
 * before. */
int32_t serve_workers_stuck(serve_workers *workers, int64_t now_ns, int32_t late_s, int32_t *n_new);

/* Counts workers, busy workers, and calls that wait for one. */
void serve_workers_count(serve_workers *workers, int32_t *n, int32_t *n_busy, int32_t *n_queued);

/* Whether the call's owner may have one more call among `most` that wait for these workers. */
bool serve_workers_have_room(serve_workers *workers, const serve_call *call, size_t most);

void serve_log_call(const serve_call *call);

/* Appends metrics of the process (from the kernel) and of the build. */
void serve_process_metrics(const serve_server *server, weir__text *text);

/* See route.c. */
serve_handler serve_health, serve_metrics, serve_models, serve_models_load, serve_prefixes_find,
    serve_prefixes_get, serve_models_unload, serve_slots, serve_events_begin, serve_page, serve_chat,
    serve_completions, serve_native, serve_infill, serve_messages, serve_count_tokens, serve_responses,
    serve_input_tokens, serve_response_get, serve_response_delete, serve_response_cancel,
    serve_response_items, serve_ollama_chat, serve_ollama_generate, serve_ollama_embed,
    serve_ollama_embeddings, serve_ollama_tags, serve_ollama_ps, serve_ollama_show, serve_ollama_version,
    serve_ollama_pull, serve_ollama_refuse, serve_props, serve_embeddings, serve_rerank, serve_tokenize,
    serve_detokenize, serve_apply_template, serve_plan, serve_render_completions, serve_render_chat,
    serve_stream_read, serve_stream_cancel, serve_control, serve_lora_list, serve_lora_scale, serve_lora_load,
    serve_lora_unload;
serve_error_form serve_messages_error, serve_ollama_error;
bool serve_page_has(const char *path, size_t n);

/* Whether a list of codings, such as "br, gzip;q=0.5", has gzip. */
bool serve_page_takes_gzip(const char *codings);

/* tokens.c: the ids of a request's prompt, which has no media, and of a JSON string; into *tokens, [*n],
 * which the caller frees in any case. TOO_LONG ("text" or "chat") if no request has room for so many bytes.
 * serve_tokens_of_text leaves that check to the caller. */
weir_status serve_tokens_of_prompt(const serve_loaded *loaded, const weir_request *request, int32_t **tokens,
                                   size_t *n, weir_error *error);
weir_status serve_tokens_of(const serve_loaded *loaded, const json_t *string, bool special, bool parse,
                            int32_t **tokens, size_t *n, weir_error *error);
weir_status serve_tokens_of_text(const weir_model *model, const json_t *string, bool special, bool parse,
                                 int32_t **tokens, size_t *n, weir_error *error);

/* The check alone, of a prompt of `length` bytes. field: the library's name for it. */
weir_status serve_tokens_check(const serve_loaded *loaded, const char *field, size_t length,
                               weir_error *error);

/* The number of tokens that so many bytes of text are at least; 0 = unknown. */
size_t serve_tokens_least(const weir_model *model, size_t length);

/* lora.c: fills an empty set with the adapters of a request's "lora", else with the adapter that its "model"
 * names, else with the server's default; either may be NULL. False: the call has its answer. */
bool serve_lora_choose(serve_call *call, const char *adapter, const json_t *list, serve_adapter_set *set);

/* events.c: the stream of ticks. */
void serve_events_destroy(serve_server *server);
void serve_events_leave(serve_call *call);
void serve_events_end(serve_server *server);

/* Ends the streams of callers whose key was removed. */
void serve_events_revoke(serve_server *server);

/* anthropic/models.c: answers a list of models, or one, in OpenAI's shape, which it frees, in Anthropic's. */
void serve_anthropic_models(serve_call *call, weir__text *text);

/* models.c: appends the states of several models as the member "models". */
void serve_models_add_states(serve_server *server, weir__text *text);

#endif
