/* params.h: the parameters of a server. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_PARAMS_H
#define WEIR_SERVER_SETTINGS_PARAMS_H

#include <weir/more.h>

/* A key and the limits of its requests; SERVE_UNSAID: those in the server's parameters. */
typedef struct serve_key {
    const char *text;
    int32_t priority, requests, rate; /* as max_priority, key_requests and key_rate below */
#define SERVE_UNSAID INT32_MIN
    bool operates; /* may change the server for others, and sees their requests */
} serve_key;

/* An adapter that a pool loads with its model. */
typedef struct serve_adapter_params {
    const char *name; /* as requests call it */
    float scale;      /* of requests that do not say which adapters they want; 0 = not theirs */
} serve_adapter_params;

/* A model, and the defaults of requests for it. */
typedef struct serve_model_params {
    const weir_pool_model *entry;         /* for a pool, without aliases; NULL = see serve_server_ready */
    const serve_adapter_params *adapters; /* [n_adapters], one for each of the entry's files */
    size_t n_adapters;
#define SERVE_ANY_NAME     "*"       /* among the names: whatever a request calls the model */
#define SERVE_DEFAULT_NAME "default" /* the first model, unless another one has this name */
    const char *const
        *names; /* [n_names], other ones beside the entry's; without an entry none = its file's */
    size_t n_names;
    const weir_sampler_params *sampler; /* NULL = the library's defaults */
    int32_t max_tokens;                 /* -1 = up to the context's end */
    int32_t asked_ctx; /* 0; a context that was asked for: a warning says if the training was shorter */
    const char *template_source; /* NULL = the model's own */
    const char *system;          /* of chats that have no system message; NULL = none */
    bool no_thinking;
    const char *reasoning_budget; /* tokens of reasoning, by efforts, as serve_effort_check has it; NULL =
                                   * no limit */
    weir_special_content special_content;
    bool strict_messages;
    const char *settings; /* a JSON array: the options that load the model so and answer so, for recordings;
                           * NULL = none */
    bool embeddings;      /* false; true: their context stays, and a single model's is created at the start */
} serve_model_params;

serve_model_params serve_model_params_default(void);

struct serve_recorded;

/* The progress of a download: the file of the model that comes now. */
typedef struct serve_pull_progress {
    const char *file, *sha256; /* "" = unknown; valid during the call */
    uint64_t n_done, n_bytes;  /* 0 bytes: it has not begun */
} serve_pull_progress;

/* Downloads a model by name, so that it is there when the list of models names it. It calls `progress`
 * several times a second, with `to`, and ends with ABORTED if that returns false. Any thread. */
typedef weir_status (*serve_pull_fn)(const char *name,
                                     bool (*progress)(const serve_pull_progress *progress, void *to),
                                     void *to, void *user, weir_error *error);

/* The parameters that a reload replaces. The service thread alone reads the server's. */
typedef struct serve_live_params {
    const serve_key *keys; /* [n_keys]; none = everybody may ask */
    size_t n_keys;
    const char *const *origins; /* [n_origins] whose pages may ask; "*" = all */
    size_t n_origins;
    const char *const *hosts; /* [n_hosts] names that requests may ask for, beside its own; "*" = all */
    size_t n_hosts;
    bool health_needs_key;    /* false */
    bool metrics_need_no_key; /* false */
    bool strict;              /* false; true: what has no effect in a request is refused (hint.h) */
    bool log;                 /* true: a line of JSON for each request, on stderr */
    int32_t key_requests;     /* answers of one key at a time; 0 = no limit */
    int32_t key_rate;         /* of one key in a minute; 0 = no limit */
    int32_t max_priority;     /* of requests; SERVE_UNSAID = 0 where there are keys, else 100 */
    int64_t body_bytes;       /* 16 MiB, the most of one body */
    int32_t head_s, body_s;   /* 10, 60: how long a head and a body may take */
    int32_t stall_s;          /* 120: a reader that takes nothing for so long is left */
    int32_t comment_s;        /* 10: comments in streams that have nothing to say; 0 = none */
    int32_t watchdog_s;       /* 30: /health is red after so long of work without a tick, or of a
                               * worker that does not end when it is to */
    int32_t drain_s;          /* 30: how long drain waits for running requests */
    int32_t keep_s;           /* 300: how long a resumable stream is kept after its end, or its last reader */
    int32_t response_s;       /* 3600: how long a response is kept for later requests */
} serve_live_params;

/* Strings and arrays must live as long as the server. */
typedef struct serve_params {
    serve_live_params live;
    /* One model, or several in a pool. Those, and only those, are copied; a reload replaces them. */
    serve_model_params model;
    const serve_model_params *models; /* [n_models], each with an entry; none = `model` */
    size_t n_models;
    const weir_pool_params *pool; /* of several models; NULL = defaults */
    int32_t session_s;            /* 600: prompts of a named session stay cached as if used this much later */
    int32_t load_s;               /* 120: how long a request waits for its model */
    const char *host;             /* "127.0.0.1"; an address or a name; "" = no TCP */
    int32_t port;                 /* 8080; 0 = a free one */
    const char *unix_path;        /* NULL = none; a socket file that nobody listens on is replaced */
    const char *tls_cert, *tls_key; /* PEM files; both or none */
    const char *const *drop_lines;  /* [n_drop_lines], how lines of system messages begin that are dropped */
    size_t n_drop_lines;
    const char *const *drop_last_lines; /* [n_drop_last_lines], last lines of later messages; # = digits */
    size_t n_drop_last_lines;
    bool vllm_metrics;      /* false: /metrics has vLLM's names, too */
    int32_t n_workers;      /* 2; 1 … 64 threads that read and render requests */
    int32_t work_s;         /* 30: the limit of a worker's time for a request, and for its answer */
    int32_t grace_s;        /* 30: how long a resumable stream runs unread; 0 = there are none */
    int64_t resume_bytes;   /* 64 MiB, of the events that are kept */
    int64_t response_bytes; /* 64 MiB, of all of them; 0 = none is kept */
    /* [n_media_hosts] from which images are fetched (sources.h); none = none */
    const char *const *media_hosts;
    size_t n_media_hosts;
    /* A key with which other servers may have cached prefixes, and this one asks for theirs; NULL = none. At
     * most SERVE_PREFIX_KEY_MAX bytes. The engine is to have cache_block SERVE_KV_BLOCK */
    const char *prefix_key;
#define SERVE_PREFIX_KEY_MAX 255
    const char *const
        *prefix_peers; /* [n_prefix_peers] that may be asked: "HOST:PORT", "https://HOST:PORT" */
    size_t n_prefix_peers;
    int32_t prefix_s;     /* 10: how long it may take to fetch a prefix, or to send one */
    int64_t prefix_bytes; /* 4 GiB, of one of them */
    int64_t media_bytes;  /* 512 MiB, of the decoded images and sounds of all requests */
    serve_pull_fn pull;   /* NULL: clients may download no models */
    void *pull_user;
    /* NULL = none; ZeroMQ addresses at which changes of the prefix cache are published for routers, in vLLM's
     * format, and repeated. The engine must have cache_block SERVE_KV_BLOCK. Subscribers see the tokens of
     * all prompts without cache_salt */
    const char *kv_events, *kv_events_replay;
#define SERVE_KV_BLOCK 16
#define SERVE_KV_PEERS 64 /* connections of each of the two sockets; others wait in the kernel */
    /* false: headers of llm-d's router are not heeded (routers/router.h) */
    bool router_headers;
    const char *const *objectives; /* [n_objectives] "NAME=PRIORITY": of a router's objectives */
    size_t n_objectives;
    const char *kv_events_endpoint; /* HOST:PORT, as routers know this server; NULL = where it listens */
    bool log_text;                  /* false: bodies of requests too */
    const char *record;             /* a folder in which requests and answers are recorded; NULL = none */
    int64_t record_bytes;           /* 1 GiB, of the folder; 1 MiB and up */
    int32_t record_days;            /* 30, 1 … 3650: older records are dropped */
    /* Takes records in place of a folder, and requests may say their seed; NULL = none. Workers and the
     * service thread. */
    void (*recorded)(const struct serve_recorded *recorded, void *user);
    void *recorded_user;
    /* Spans of requests, for a collector of OpenTelemetry (trace/); NULL: as the environment says.
     * otlp_sample: the share of the traces that begin here and are sent, 0 to 1; SERVE_SAMPLE_UNSAID, the
     * default: likewise */
    const char *otlp_endpoint, *otlp_service_name;
    float otlp_sample;
#define SERVE_SAMPLE_UNSAID (-1.0F)
    const char
        *lora_dir; /* operators may load adapters from this folder, and unload them; NULL = they may not */
} serve_params;

serve_params serve_params_default(void);

/* INVALID (field). */
weir_status serve_params_check(const serve_params *params, weir_error *error);

#endif
