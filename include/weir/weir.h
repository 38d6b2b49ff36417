/* weir.h: a streaming inference engine on llama.cpp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All that most programs need, in the order in which they need it: status and errors, the model, the chat
 * (messages that become a prompt), the sampler (how tokens are chosen), the engine, the request, its stream,
 * whole answers, LoRA adapters, images and audio, the log. <weir/more.h> has the rest of the library; what
 * these comments name and this header lacks is there. <weir/hub.h> has models by name.
 *
 * Conventions:
 *   - Handles are opaque. A handle with create and destroy has one owner. A handle with hold and release is
 *     reference-counted: the call that returned it gave one reference, and each hold gives another. As with
 *     free(), the behavior is undefined if a program uses a handle after destroy or its last release,
 *     destroys it twice, or releases it more often.
 *   - Functions that can fail return a weir_status. Results are returned through out-parameters, which are
 *     written only on WEIR_OK, unless stated otherwise. An optional weir_error of the caller receives the
 *     details; it is written only on failure, so check the status, not the error.
 *   - Structs that start with `size` come from their _default() function (parameters), or the caller sets
 *     `size` to sizeof (results). A program compiled against an older header therefore keeps working; before
 *     version 1.0 this holds for these structs only. From 1.0 on the other structs (chunks, results, usage,
 *     list items) never change: anything new gets a function.
 *   - C clears a struct with {0}, C++ with {}: weir_error error = {}.
 *   - Comments on parameters give the default, the range and the meaning, in this order: "8; 1 … 256;
 *     requests that run at the same time". A default of 0, NULL or false may be left out. A default with a
 *     meaning of its own has it beside it: "0 = off; 0 … 100".
 *   - Text is a pointer and a length in bytes. The length WEIR_NUL means "up to the terminating NUL".
 *   - The library reads pointers during the call only, unless stated otherwise.
 *   - Any thread may call any function, but two threads must not use one handle at the same time, unless
 *     stated otherwise. Models are immutable once loaded and are shared freely.
 *   - The library calls callbacks: ready, watch and plan functions run on the thread that drives the engine.
 *     A call there that would wait for the same engine returns WEIR_STATE.
 *   - fork() leaves the library's threads in the parent. In the child, calls that need an engine of the
 *     parent (submit and everything that submits, drain, destroy, step, reads that would wait) return
 *     WEIR_STATE. Make no other calls there: the child may exec or _exit.
 *   - No input aborts the process. Three kinds of files are trusted after a check, so load them from people
 *     you trust: a model whose header, metadata and tensor table pass; an optimized file whose header
 *     matches; a saved state whose checksum matches, also in an engine's cache_dir. The check and llama.cpp
 *     open a model by its path, one after the other: no one may replace or modify the file once loading
 *     starts. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define WEIR_API     __attribute__((visibility("default")))
#define WEIR_CHECKED __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_CHECKED
#endif

/* The version of this header; the library may be newer. Before 1.0 a new minor version may break programs,
 * and its library has another name (libweir.so.0.1). From 1.0 on only a new major version may. */
#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
#define WEIR_VERSION_NUM   (WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH)
#define WEIR_VERSION       "0.1.0"

#define WEIR_NUL         SIZE_MAX
#define WEIR_SEED_RANDOM UINT32_MAX
#define WEIR_AUTO        UINT64_MAX

/* The version of the library that runs, e.g. "0.1.0". Static. */
WEIR_API const char *weir_version(void);

/* The llama.cpp that is linked in, e.g. "v0.5.0 cpu", "tree 1a2b3c4d cpu" for a source tree that is not the
 * pinned one, or "none" for a build without it. Static. */
WEIR_API const char *weir_backend_version(void);

/* ---- Status and errors ----------------------------------------------------------------------------- */

/* Every status: name, value, text. */
#define WEIR_STATUS_MAP(X)                                                                                   \
    X(OK, 0, "ok")                                                                                           \
    X(TIMEOUT, 1, "timed out")                                                                               \
    X(END, 2, "the end was reached")                                                                         \
    X(INVALID, -1, "an argument is out of its range")                                                        \
    X(NO_MEMORY, -2, "out of memory")                                                                        \
    X(NOT_FOUND, -3, "no such file")                                                                         \
    X(IO, -4, "a file could not be read or written")                                                         \
    X(FORMAT, -5, "the file is damaged or not of the expected kind")                                         \
    X(UNSUPPORTED, -6, "this model or build cannot do that")                                                 \
    X(TOO_LONG, -7, "too long or too large")                                                                 \
    X(BUSY, -8, "the queue is full")                                                                         \
    X(STATE, -9, "not allowed in this state")                                                                \
    X(REFUSED, -10, "the grammar refuses this token")                                                        \
    X(GRAMMAR, -11, "the grammar or schema cannot be used")                                                  \
    X(ABORTED, -12, "the caller's callback asked to stop")                                                   \
    X(STOPPED, -13, "the engine has stopped or is draining")                                                 \
    X(NO_SPACE, -14, "no KV cells are left")                                                                 \
    X(BACKEND, -15, "the backend failed")                                                                    \
    X(TEMPLATE, -16, "the chat template cannot be rendered")                                                 \
    X(DENIED, -17, "access denied")

typedef enum weir_status {
#define X(name, value, text) WEIR_##name = (value),
    WEIR_STATUS_MAP(X)
#undef X
} weir_status;

/* What is wrong with the field of an error: name, value, text. */
#define WEIR_ERROR_MAP(X)                                                                                    \
    X(NONE, 0, "nothing")           /* no field, or a status that says it all */                             \
    X(MISSING, 1, "missing")        /* NULL, empty or left out, but needed */                                \
    X(UNKNOWN, 2, "unknown")        /* it names something that does not exist */                             \
    X(FORM, 3, "of the wrong form") /* of another type, or not written as it must be */                      \
    X(RANGE, 4, "out of range")     /* a number, length or count; the error has the numbers */               \
    X(CONFLICT, 5, "in conflict")   /* it does not go with another member or with the model */               \
    X(DUPLICATE, 6, "used twice")

typedef enum weir_error_kind {
#define X(name, value, text) WEIR_ERROR_##name = (value),
    WEIR_ERROR_MAP(X)
#undef X
} weir_error_kind;

/* Details of a failure, in the caller's memory. Functions that take a weir_error accept NULL. */
typedef struct weir_error {
    /* One or two sentences: the value, the allowed range, what to do; UTF-8. Names of the library's members
     * are between backticks ("`top_k` is -5; allowed: 0 to 100"), and nothing else is: weir_error_text
     * replaces them */
    char message[512];
    weir_status code;
    weir_error_kind kind;
    /* the offending parameter, with its whole path: "requests[2].sampler.top_k", "messages[0].content[1]",
     * "tools_json", a JSON pointer into a schema; "" = none */
    char field[256];
    /* The numbers of kind RANGE, where they are known; whole numbers are exact up to 2^53 */
    bool has_value, has_low, has_high;
    double value, low, high; /* the offending value, and the allowed range */
} weir_error;

/* "WEIR_OK" and "ok" for WEIR_OK; "unknown status" for an unknown value. Static. */
WEIR_API const char *weir_status_name(weir_status status);
WEIR_API const char *weir_status_text(weir_status status);

/* "WEIR_ERROR_MISSING"; "unknown kind" for an unknown value. Static. */
WEIR_API const char *weir_error_kind_name(weir_error_kind kind);

/* Frees memory that the library returned, where the contract says so. NULL is ignored. */
WEIR_API void weir_free(void *memory);

/* ---- Model ----------------------------------------------------------------------------------------- */

typedef struct weir_model weir_model;

/* Called on the loading thread with 0.0 to 1.0; false ends the load with WEIR_ABORTED. It must not load or
 * optimize a model or load an adapter. */
typedef bool (*weir_progress_fn)(float progress, void *user);

typedef enum weir_split_mode {
    WEIR_SPLIT_NONE = 0,  /* one GPU: main_gpu */
    WEIR_SPLIT_LAYER = 1, /* layers and KV cells divided among all GPUs */
    WEIR_SPLIT_ROW = 2,   /* rows of each tensor divided among all GPUs */
} weir_split_mode;

typedef enum weir_flash_attn {
    WEIR_FLASH_ATTN_AUTO = 0, /* if every device of the model supports it */
    WEIR_FLASH_ATTN_OFF = 1,
    WEIR_FLASH_ATTN_ON = 2,
} weir_flash_attn;

typedef enum weir_rope_scaling {
    WEIR_ROPE_MODEL = 0, /* as the file says */
    WEIR_ROPE_NONE = 1,
    WEIR_ROPE_LINEAR = 2,
    WEIR_ROPE_YARN = 3,
} weir_rope_scaling;

typedef struct weir_model_params {
    size_t size;
    int32_t n_gpu_layers;       /* -1 = all; -1 and up; layers on the GPU */
    int32_t main_gpu;           /* 0; 0 … 15 */
    weir_split_mode split_mode; /* WEIR_SPLIT_LAYER */
    const float *tensor_split;  /* [n_tensor_split] shares of the GPUs; NULL = by free memory */
    size_t n_tensor_split;      /* 0; 0 … 16 */
    bool use_mmap;              /* true */
    bool use_mlock; /* false; when the system refuses, the load continues and the log has a warning */
    bool use_direct_io;
    bool vocab_only; /* no weights: tokenizing and templates only */
    weir_progress_fn progress;
    void *progress_user;
    /* a file made by weir_model_optimize; NULL = path + ".weir" if it exists; "" = none */
    const char *optimized;
    /* NULL; a projector, which encodes images and sounds for this model: a GGUF file made for it (an "mmproj"
     * file). NULL or "" = none. Loading it encodes a small trial input. It is trusted like the model */
    const char *projector;
    /* NULL; the devices for the layers on the GPU, by name (weir_device_get), separated by commas. NULL or
     * "" = all; "none" = the CPU alone. INVALID: no such device */
    const char *devices;
    /* NULL; "HOST:PORT,…": workers (weir_rpc_run) on other machines that take layers as GPUs do, before the
     * `devices` of this one; n_gpu_layers and tensor_split divide the layers. For models too large for any
     * one machine, because each token crosses the network. Answers are not batch-invariant. IPv4 addresses
     * or names. BACKEND: a worker does not answer. When a worker is lost later, all streams and passes of
     * the model end with BACKEND; release it and load it again (a weir_pool does that at the next lease) */
    const char *rpc;
    int32_t rpc_timeout_ms; /* 60000; 1 … 3600000; the longest wait for a worker's answer, a pass included */
    /* Flash attention in all contexts of the model. OFF leaves attention to llama.cpp alone, with
     * intermediate results that grow with the context, and values (type_v) cannot be quantized; answers are
     * then not batch-invariant */
    weir_flash_attn flash_attn;
    /* The encoding of positions in all contexts of the model, for contexts longer than in its training. Saved
     * states and cached prompts can be used only with the same values */
    weir_rope_scaling rope_scaling;
    float rope_freq_base;   /* 0 … 1e9; 0 = the model's */
    float rope_freq_scale;  /* 0 … 1000; 1 / the factor by which the context is longer; 0 = the model's */
    float yarn_ext_factor;  /* -1 … 1000; -1 = the model's, as for the three that follow */
    float yarn_attn_factor; /* -1 … 1000 */
    float yarn_beta_fast;   /* -1 … 1000 */
    float yarn_beta_slow;   /* -1 … 1000 */
    int32_t yarn_orig_ctx;  /* 0 … 2^28; the context length in training; 0 = the model's */
} weir_model_params;

/* Fills the first `size` bytes with defaults. C calls _default() below; other languages call this. */
WEIR_API void weir_model_params_init(weir_model_params *params, size_t size);
static inline weir_model_params weir_model_params_default(void)
{
    weir_model_params params;
    weir_model_params_init(&params, sizeof params);
    return params;
}

/* Loads a GGUF file. params may be NULL. With use_mmap the file, all files of a split model and an optimized
 * file are mapped: replace one by renaming a new file to its name, never by writing into it. Once the size or
 * time of writing of a mapped file has changed, which is noticed within a quarter of a second, the model
 * computes no more (weir_model_check). Who reads beyond the end of a file that was cut ends with SIGBUS. A
 * path that starts with "fake:" loads a deterministic model without weights, for tests (docs/guides/fake.md).
 * Blocks for as long as the disk takes. Errors: NOT_FOUND, IO, FORMAT (damaged), UNSUPPORTED (architecture;
 * or this processor: a build for x86-64 needs AVX2, FMA, F16C and BMI2), NO_MEMORY, ABORTED, INVALID,
 * BACKEND (llama.cpp's reason is in the log, at WEIR_LOG_INFO). The field is "projector" where that file is
 * the cause; UNSUPPORTED then also means that it was made for another model, or that this build has no
 * projectors (WEIR_MEDIA). */
WEIR_API WEIR_CHECKED weir_status weir_model_load(const char *path, const weir_model_params *params,
                                                  weir_model **model, weir_error *error);

/* Reference counts. Contexts, samplers, chats and engines hold their model. The last release frees the
 * weights. Any thread. NULL is ignored. */
WEIR_API weir_model *weir_model_hold(weir_model *model);
WEIR_API void weir_model_release(weir_model *model);

/* Text and token ids: any number of threads may call these two on one model. Ids are int32_t; one outside 0 …
 * n_vocab - 1 is INVALID. */

/* Converts text to token ids. add_special adds BOS and EOS as the model requires; parse_special reads control
 * tokens such as "<|im_end|>" as one token. *n_tokens is the number of ids, also with TOO_LONG (capacity too
 * small; the contents of tokens are then undefined). Invalid UTF-8 and NUL bytes are ordinary text. tokens
 * may be NULL if capacity is 0. */
WEIR_API weir_status weir_tokenize(const weir_model *model, const char *text, size_t length, bool add_special,
                                   bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                   weir_error *error);

/* Converts token ids to well-formed UTF-8: the same bytes as a stream of these ids, except that a chat's
 * streams also show the control tokens of its answer format. special: include control tokens. *length is the
 * length of the text in bytes, also with TOO_LONG (capacity too small). The text is NUL-terminated if there
 * is room. */
WEIR_API weir_status weir_detokenize(const weir_model *model, const int32_t *tokens, size_t n_tokens,
                                     bool special, char *text, size_t capacity, size_t *length,
                                     weir_error *error);

/* ---- Chat ------------------------------------------------------------------------------------------ */

/* A rendered conversation: the prompt, and how to constrain and parse the answer. Immutable,
 * reference-counted. */
typedef struct weir_chat weir_chat;

typedef struct weir_message {
    const char *role;    /* "system", "user", "assistant", "tool", or another role of the template */
    const char *content; /* NUL-terminated */
} weir_message;

typedef struct weir_template_arg {
    const char *key;
    const char *value; /* JSON; any other text is taken as a string */
} weir_template_arg;

typedef enum weir_tool_choice {
    WEIR_TOOLS_AUTO = 0,
    WEIR_TOOLS_REQUIRED = 1,
    WEIR_TOOLS_NONE = 2,
} weir_tool_choice;

/* The roles in whose content the text of a control token ("<|im_end|>") becomes that token. In other roles'
 * content it remains text and cannot end or start a message. */
typedef enum weir_special_content {
    WEIR_SPECIAL_TRUSTED = 0, /* "system", "developer" and "assistant" */
    WEIR_SPECIAL_NONE = 1,    /* no role */
    WEIR_SPECIAL_ALL = 2,     /* all roles */
} weir_special_content;

typedef struct weir_media weir_media; /* below: an image or a sound */
struct json_t;                        /* a value of libjansson */

typedef struct weir_chat_params {
    size_t size;
    const weir_message *messages; /* [n_messages] */
    size_t n_messages;
    const char *messages_json; /* instead of messages: an array in the format of OpenAI's API */
    /* An array in the format of OpenAI's API; NULL = none. Where the template has no syntax for calls, or
     * none that can be enforced, a system message describes the tools and the answer is JSON in weir's own
     * format, which the parser reads: one call, or text, or what json_schema requires. Schema keywords that
     * cannot be enforced are left out and listed by weir_chat_relaxed; for a function with "strict": true
     * they are an error, unless tool_choice is NONE. Malformed ones are always an error */
    const char *tools_json;
    /* Instead of messages_json and tools_json: what jansson (json_t) read of them, for programs that link the
     * same libjansson. Their contents are not changed, nor needed after the call, but their reference counts
     * are: jansson must count atomically where threads share them. Errors name the texts */
    const struct json_t *messages_value, *tools_value;
    /* REQUIRED: the answer is a call. Only reasoning may precede it, and only with enable_thinking */
    weir_tool_choice tool_choice;
    bool parallel_tool_calls; /* false: at most one call */
    /* The format of the answer, after optional reasoning. With tool_choice AUTO the answer is either a call
     * or this; with REQUIRED it is ignored */
    const char *json_schema;
    const char *template_source;   /* Jinja, at most 256 KiB; NULL = the model's own */
    const weir_template_arg *args; /* [n_args] */
    size_t n_args;
    bool add_generation_prompt; /* true */
    bool enable_thinking;       /* true */
    /* The answer continues the last message, which is the assistant's: the prompt ends where its text does,
     * or its reasoning if it has no text. With json_schema the text must begin an answer that is allowed */
    bool continue_final;
    bool parse_reasoning; /* true: reasoning is separated from content */
    int64_t now;          /* the time for templates that print the date, seconds since 1970; 0 = now */
    /* true (default): a keyword of json_schema that cannot be enforced is an error, and so is a misspelled
     * one, and objects may have all properties that it allows; false: it is left out and listed by
     * weir_chat_relaxed, unless it is malformed, and objects with `properties` or `required` have no
     * others */
    bool strict_schema;
    weir_special_content special_content;
    /* false: messages that the template refuses are changed into a form that it takes, and listed by
     * weir_chat_reshaped; true: they are an error (TEMPLATE), or the template leaves them out */
    bool strict_messages;
    /* [n_media] the parts of contents whose type is "image_url", "input_audio", "image", "audio" or
     * "media", in order; held by the chat. Other members of such a part are not read */
    weir_media *const *media;
    size_t n_media;
} weir_chat_params;

WEIR_API void weir_chat_params_init(weir_chat_params *params, size_t size);
static inline weir_chat_params weir_chat_params_default(void)
{
    weir_chat_params params;
    weir_chat_params_init(&params, sizeof params);
    return params;
}

/* Renders with the model's Jinja template. A template is a program and runs within limits: steps, memory and
 * output grow with messages and tools, depth is fixed. A llama.cpp other than the pinned one has no limits.
 * In place of media the template gets markers, which are then removed from the prompt; no message content can
 * produce one. Errors: INVALID (names message and field), TEMPLATE (the template's own error, where the field
 * is the message that it refuses; the limit exceeded; or a medium that the template leaves out or repeats:
 * its part is the field), ABORTED (weir_interrupt_set), GRAMMAR (tools or schema cannot be enforced),
 * UNSUPPORTED (no template; a build without llama.cpp). */
WEIR_API WEIR_CHECKED weir_status weir_chat_create(weir_model *model, const weir_chat_params *params,
                                                   weir_chat **chat, weir_error *error);

WEIR_API weir_chat *weir_chat_hold(weir_chat *chat);
WEIR_API void weir_chat_release(weir_chat *chat);

/* The rendered text, NUL-terminated; valid while the chat is held; "" for NULL. length may be NULL. BOS and
 * EOS are not included. */
WEIR_API const char *weir_chat_prompt(const weir_chat *chat, size_t *length);

/* Parses an answer incrementally. A delta is never withdrawn; an answer that does not follow the template's
 * syntax is returned as content. Of an answer that breaks off within that syntax, what is certainly the
 * markup of a call is not returned. Use one parser per answer. Holds the chat. */
typedef struct weir_chat_parser weir_chat_parser;

typedef enum weir_delta_kind {
    WEIR_DELTA_CONTENT = 0,
    WEIR_DELTA_REASONING = 1,
    WEIR_DELTA_TOOL_CALL = 2, /* a call starts: index, id, name */
    WEIR_DELTA_ARGUMENTS = 3, /* the next part of the arguments (JSON text) of call `index` */
} weir_delta_kind;

typedef struct weir_delta {
    weir_delta_kind kind;
    int32_t index;    /* of the tool call; -1 for text */
    const char *text; /* content, reasoning or part of the arguments; the name for WEIR_DELTA_TOOL_CALL */
    size_t length;
    const char *id; /* WEIR_DELTA_TOOL_CALL only, else NULL */
} weir_delta;

/* Errors: INVALID, NO_MEMORY. */
WEIR_API WEIR_CHECKED weir_status weir_chat_parser_create(weir_chat *chat, weir_chat_parser **parser,
                                                          weir_error *error);
WEIR_API void weir_chat_parser_destroy(weir_chat_parser *parser);

/* Adds text; finished marks the last piece. Then call weir_chat_parser_next until WEIR_END. NO_MEMORY:
 * nothing is lost, take the deltas found so far and repeat the call. STATE: already finished. */
WEIR_API weir_status weir_chat_parser_feed(weir_chat_parser *parser, const char *text, size_t length,
                                           bool finished, weir_error *error);

/* The next delta; WEIR_END when there is none yet. Pointers stay valid until the next feed or destroy. */
WEIR_API weir_status weir_chat_parser_next(weir_chat_parser *parser, weir_delta *delta);

/* ---- Sampler --------------------------------------------------------------------------------------- */

typedef struct weir_logit_bias {
    int32_t token;
    float bias; /* added to the logit; -INFINITY forbids the token */
} weir_logit_bias;

/* The default of weir_sampler_params.order. */
#define WEIR_SAMPLERS_DEFAULT "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"

/* The parameters of llama.cpp's complete sampler chain. A value out of range is INVALID, and the error names
 * field and range. */
typedef struct weir_sampler_params {
    size_t size;
    uint32_t seed;           /* WEIR_SEED_RANDOM = a new random seed each time */
    float temp;              /* 0.8; 0 … 100; 0 = greedy */
    float dynatemp_range;    /* 0 = off; 0 … 100. Dynamic temperature, arXiv 2309.02772 */
    float dynatemp_exponent; /* 1; 0 … 100 */
    int32_t top_k;           /* 40; 0 and up; 0 = off */
    float top_p;             /* 0.95; 0 … 1; 1 = off */
    float min_p;             /* 0.05; 0 … 1; 0 = off */
    float typical_p;         /* 1 = off; 0 … 1. Locally typical sampling, arXiv 2202.00666 */
    float top_n_sigma;       /* -1 = off; else 0 … 100. arXiv 2411.07641 */
    float xtc_probability;   /* 0 = off; 0 … 1 */
    float xtc_threshold;     /* 0.1; 0 … 1; above 0.5 = off */
    /* 0; 0 and up; candidates that top_p, min_p, typical_p and XTC keep, at least; typical_p keeps none that
     * is less than e^-70 times as likely as the likeliest */
    int32_t min_keep;
    float dry_multiplier;            /* 0 = off; 0 … 100 */
    float dry_base;                  /* 1.75; 0 … 100 */
    int32_t dry_allowed_length;      /* 2; 0 … 1,000,000 */
    int32_t dry_penalty_last_n;      /* 64; 0 … 1,000,000; 0 = off */
    const char *const *dry_breakers; /* [n_dry_breakers]; NULL = "\n", ":", "\"", "*" */
    size_t n_dry_breakers;
    int32_t penalty_last_n;            /* 64; 0 … 1,000,000; last tokens that penalties count; 0 = off */
    float penalty_repeat;              /* 1 = off; 0.01 … 100 */
    float penalty_freq;                /* 0 = off; -100 … 100 */
    float penalty_present;             /* 0 = off; -100 … 100 */
    int32_t mirostat;                  /* 0 = off; 1, 2. arXiv 2007.14966 */
    float mirostat_tau;                /* 5; 0 … 100 */
    float mirostat_eta;                /* 0.1; 0 … 1 */
    float adaptive_target;             /* adaptive-p: -1 = off; else 0 … 1 */
    float adaptive_decay;              /* 0.9; 0 … 0.99 */
    const weir_logit_bias *logit_bias; /* [n_logit_bias] */
    size_t n_logit_bias;
    bool ignore_eos;     /* never choose a token that ends generation */
    const char *order;   /* the samplers to run; NULL = WEIR_SAMPLERS_DEFAULT; also "infill", "adaptive_p" */
    const char *grammar; /* GBNF; NULL = none */
    const char *grammar_root; /* NULL = "root" */
    /* JSON Schema; not together with grammar. Answers may have properties that it does not list, unless it
     * has "additionalProperties": false. */
    const char *json_schema;
} weir_sampler_params;

WEIR_API void weir_sampler_params_init(weir_sampler_params *params, size_t size);
static inline weir_sampler_params weir_sampler_params_default(void)
{
    weir_sampler_params params;
    weir_sampler_params_init(&params, sizeof params);
    return params;
}

/* ---- Engine ---------------------------------------------------------------------------------------- */

/* Continuous batching: one context, its slots, and the thread that owns both; requests in, streams out. Any
 * number of threads may call functions on one engine at the same time, except for those that drive it. */
typedef struct weir_engine weir_engine;

typedef enum weir_layout {
    WEIR_LAYOUT_AUTO = 0,
    WEIR_LAYOUT_UNIFIED = 1,  /* one pool of cells for all sequences */
    WEIR_LAYOUT_PER_SLOT = 2, /* a lane for each sequence: cells of its own */
} weir_layout;

typedef enum weir_kv_type {
    WEIR_KV_F16 = 0,
    WEIR_KV_F32 = 1,
    WEIR_KV_BF16 = 2,
    WEIR_KV_Q8_0 = 3,
    WEIR_KV_Q4_0 = 4,
} weir_kv_type;

typedef struct weir_strategy weir_strategy; /* in more.h: who gets the tokens of a tick */

typedef struct weir_engine_params {
    size_t size;
    int32_t n_slots; /* 8; 1 … 256; requests that run at the same time */
    /* 4096; 0 … 2^28; the longest prompt plus answer of a request, tokens; 0 = the model's training
     * length. At most n_kv, or with lanes n_kv / n_slots */
    int32_t n_ctx;
    int32_t n_kv;       /* 0 … 2^28; KV cells in total; 0 = n_slots × n_ctx, as far as memory allows */
    int32_t max_tokens; /* -1; -1 … 2^28; the limit on max_tokens of every request; -1 = n_ctx only */
    int32_t n_batch;    /* 2048; n_slots … 2^20; tokens per tick, at most */
    /* 0 … 2^20; tokens per forward pass, at most; 0 (default) = 512 + n_slots: with one pool of cells, a
     * chunk of the default size and a token for each slot share a pass. With lanes a pass has the same number
     * of tokens in each lane, so such a tick takes at least two */
    int32_t n_ubatch;
    int32_t chunk_size; /* 512; 1 … 2^20; prompt tokens of one slot per tick, at most */
    int32_t n_threads; /* 0 … 512; threads of a pass, at most; 0 = the processors available to the process */
    int32_t n_threads_batch; /* 0 … 512; likewise for passes with prompt tokens; 0 = n_threads */
    /* 256; 0 and up; requests that may wait beside those that idle slots take at the next tick; 0 = no limit.
     * A tenant may add one while it has less than three times as many as places are left */
    int32_t queue_limit;
    weir_layout layout; /* AUTO; weir_engine_stats has the choice */
    weir_kv_type type_k;
    weir_kv_type type_v;
    const weir_strategy *strategy; /* NULL = decode-maximal; must live as long as the engine */
    /* The caller drives the engine with weir_engine_step; no thread of it makes ticks. Calls that wait need
     * another thread that drives it, apart from weir_generate and weir_generate_best, which drive it */
    bool manual;
    /* Host memory for saved states: of cached prefixes that have no sequence, and of suspended requests. Up
     * to a quarter of it holds embeddings of images and sounds that no slot needs now. Whatever does not fit
     * is computed again. Not counted: the texts of cached prefixes, about 500 bytes each and up to 8 bytes
     * per token, and those of up to 4,096 evicted prefixes while all texts together take less than 16 MiB.
     * WEIR_AUTO (default) = a quarter of the memory available at create; 0 = none */
    uint64_t cache_bytes;
    /* -1 … 256 - n_slots; additional sequences for cached prefixes. With lanes each costs n_ctx cells, and -1
     * (default) = use idle slots only; with one pool -1 = all up to 256. In hybrid models each costs a
     * recurrent state, and -1 = use idle slots only. Recurrent models: no effect, except 0. 0 = do not cache
     * prefixes */
    int32_t cache_sequences;
    /* 10000; 0 … 86400000; a waiting request gains one priority level every ageing_ms, up to the highest
     * level that waits; 0 = never */
    int32_t ageing_ms;
    /* 50; 1 … 60000; target for the length of a tick: of the strategy latency-target, and of prompts beside
     * requests of higher priority */
    int32_t itl_target_ms;
    /* A folder for cached prompts, which survive a restart with the same model and KV types and are read when
     * a request needs them. NULL (default) or "" = none. It is created if it does not exist; otherwise it
     * must belong to the user, with mode 0700 (else INVALID): its files are trusted and contain prompts and
     * salts in plain text. The engine writes when it is idle, every ten seconds under load, and in
     * weir_engine_destroy, which therefore takes longer; the states being written and read take host memory
     * in addition to cache_bytes. A request waits for a file at most as long as computing its tokens would
     * take, but at least one second and at most one minute; before any tick was measured, one minute. Other
     * streams continue meanwhile. Damaged and foreign files are ignored and logged. Engines, also of other
     * processes, may share the folder: each finds the others' files within a second */
    const char *cache_dir;
    /* 4 GiB; the size of the folder, at most; the least recently used files of all engines are removed.
     * Engines that write to one folder may exceed it together until each has seen the others' files */
    uint64_t cache_disk_bytes;
    /* 16; 0 … 32; speculative decoding: draft tokens verified in one pass, at most, used when it is likely to
     * be faster. Accepted tokens arrive in one chunk. The text does not change where
     * weir_engine_stats.batch_invariant is true; elsewhere it may differ, but remains one that the model
     * could have generated. 0 = off. Recurrent and hybrid models copy a slot's state for it */
    int32_t n_draft_max;
    bool prompt_lookup; /* true; drafts come from the request's own prompt and answer; see lookup_bytes */
    /* 16 MiB; with prompt_lookup, drafts also come from the prompts and answers of other requests, running or
     * finished, with the same cache_salt, adapters and scales. This limits the memory for their tokens; the
     * oldest are dropped first. Requests without cache_prompt neither use nor add texts. 0, or less than 4096
     * = none */
    uint64_t lookup_bytes;
    /* NULL; a smaller model that drafts where prompt_lookup finds nothing; held. It must have the model's
     * vocabulary, must not be recurrent or hybrid, and needs as many KV cells as the model. Or
     * an EAGLE-3 head (a file of the architecture eagle3) that was made for this model; the model must then
     * have the architecture llama, qwen3, qwen3moe or minimax-m2 */
    weir_model *draft_model;
    /* true; without draft_model, the model's own MTP layers draft if it has any
     * (weir_model_info.n_layer_mtp). This costs one more layer of KV cells and of computation per token */
    bool mtp;
    /* 0; 0 … 1024; tokens of a block for weir_engine_cache_changes; 0 = changes are not recorded. A block
     * that is cached, or was removed since the last call, takes about 80 bytes and 4 for each token, in
     * addition to cache_bytes */
    int32_t cache_block;
} weir_engine_params;

WEIR_API void weir_engine_params_init(weir_engine_params *params, size_t size);
static inline weir_engine_params weir_engine_params_default(void)
{
    weir_engine_params params;
    weir_engine_params_init(&params, sizeof params);
    return params;
}

/* Holds the model. params may be NULL. Errors: INVALID, NO_MEMORY, UNSUPPORTED (no decoder; draft_model
 * cannot draft, or not for this model, or this model cannot have drafts), FORMAT (draft_model: a head's
 * tokens), BACKEND, IO (cache_dir). */
WEIR_API WEIR_CHECKED weir_status weir_engine_create(weir_model *model, const weir_engine_params *params,
                                                     weir_engine **engine, weir_error *error);

/* Stops the engine, waits for its thread and frees it. No other call on the engine may be running; streams
 * stay valid. STATE: called from a callback, in a child of the process that created the engine, or for an
 * engine that was destroyed before; nothing was done, and the log has the reason. NULL is OK. Calls with a
 * destroyed engine are mistakes, which return STATE unless another engine has its address by then. */
WEIR_API weir_status weir_engine_destroy(weir_engine *engine);

/* Refuses new requests and ends every live stream with WEIR_REASON_ERROR (WEIR_STOPPED in weir_stream_error).
 * Returns when that is done, within one tick; from a callback it returns at once, and the streams end after
 * the tick. Idempotent. Does nothing in a child of fork(). */
WEIR_API void weir_engine_stop(weir_engine *engine);

/* Refuses new requests and waits up to timeout_ms for the present ones to end (negative: no limit). TIMEOUT:
 * some still run, and continue. STATE: there is work, and the engine is manual or the call comes from a
 * callback. Whatever it returns, new requests remain refused. */
WEIR_API weir_status weir_engine_drain(weir_engine *engine, int timeout_ms);

/* ---- Request --------------------------------------------------------------------------------------- */

typedef struct weir_stream weir_stream;

typedef struct weir_adapter_use weir_adapter_use; /* below: LoRA adapters */

/* An image or a sound at a place of a prompt. */
typedef struct weir_media_use {
    weir_media *media; /* held by the request */
    size_t at;         /* bytes of text, or tokens, before it; ascending */
} weir_media_use;

/* Exactly one of chat, tokens, text and source is the prompt. Everything is copied at submit. */
typedef struct weir_request {
    size_t size;
    weir_chat *chat; /* its grammar, stop strings and answer format apply */
    const int32_t *tokens;
    size_t n_tokens;
    const char *text;
    size_t text_length;                 /* WEIR_NUL (default) */
    bool add_special;                   /* true: for text */
    bool parse_special;                 /* true: for text */
    bool special;                       /* show control tokens in the output text */
    const weir_sampler_params *sampler; /* NULL = defaults */
    int32_t max_tokens;                 /* -1 = as many as the context holds (default); 0 = prefill only */
    /* 0; 0 … max_tokens; so many tokens come before any that ends the answer. Stop texts are looked for only
     * in the text of the tokens behind these. A fork counts new tokens. Where nothing but an end may come,
     * because the grammar is complete, the answer ends earlier */
    int32_t min_tokens;
    /* [n_stop]; at most 64, none empty, each at most 16,384 bytes. They end text, not the calls of a chat
     * that its grammar holds */
    const char *const *stop;
    const size_t *stop_length; /* [n_stop]; NULL = NUL-terminated */
    size_t n_stop;
    const int32_t *stop_tokens; /* [n_stop_tokens]; at most 256; they end the answer as end tokens do */
    size_t n_stop_tokens;
    /* false; the text of the answer keeps the stop text, or the text of the token of stop_tokens, that ended
     * it */
    bool include_stop;
    /* [n_allowed_tokens]; at most 1,048,576; no other token is chosen, apart from the closing text of
     * reasoning_budget. NULL = all. Where none of them may come, an end token may */
    const int32_t *allowed_tokens;
    size_t n_allowed_tokens;
    /* [n_bad_words]; at most 128, each of 1 to 256 bytes, without spaces at its start. The answer does not
     * get the token that would complete the tokens of such a text, nor of the text behind a space. Other
     * tokens may spell the same text. An end token may come where nothing else may */
    const char *const *bad_words;
    size_t n_bad_words;
    /* 0; -1 … 2^31 - 1; 0 = off; keep the last so many tokens of the prompt; -1: as many as leave room for
     * max_tokens. Text and tokens that are in a chat go likewise. INVALID with media and a source. A text
     * with more bytes than n_ctx of the longest tokens is TOO_LONG all the same */
    int32_t truncate_prompt;
    int32_t interval; /* 0; emit every n tokens; 0 = the stream's interval (weir_stream_set_interval) */
    /* time limit from submit, including the queue; 0 = none. At the limit the stream ends with the text
     * so far and WEIR_REASON_DEADLINE */
    int64_t deadline_ms;
    /* 0; -100 … 100; requests of higher priority go first. If no slot is free, one preempts a running request
     * of lower priority, which is suspended and resumes later; equal priorities never preempt each other.
     * While a request that could preempt this one runs, this one's prompt is held back. It gets no tokens
     * while the other's prompt is computed. While the other generates, it gets only as many as keep ticks
     * within itl_target_ms. In one tick in four the oldest prompt that is held back gets tokens in any case,
     * so that it advances. If a pass contains only requests of lower priority and would delay an arriving
     * request by more than itl_target_ms, it is abandoned and computed again later. Beside a running request
     * of higher priority in another engine of the process, prompts get a fifth of the time, in passes of at
     * most itl_target_ms; manual engines take no part in this */
    int32_t priority;
    /* Any bytes; NULL or empty = none. Only requests with the same salt share cached prefixes and drafts, and
     * only they see words of each other's texts (weir_miss_info): who can guess a salt sees those. A salt
     * that separates users is therefore a secret, such as 128 random bits */
    const char *cache_salt;
    size_t cache_salt_length; /* WEIR_NUL (default) */
    /* true: reuse cached prefixes, and cache prompt and answer for later requests with the same salt; the
     * same for drafts (weir_engine_params.lookup_bytes) */
    bool cache_prompt;
    /* 0; 0 … 86400000; prompt and answer count as used this much later than they were, so that others are
     * evicted first. For conversations that pause, such as an agent's while its tools run */
    int32_t cache_keep_ms;
    /* NULL or "" = the salt. Slots are shared fairly between tenants, by the tokens that each has had
     * recently; tenants share cached prefixes unless their salts differ. With several engines in a process,
     * prompts also yield to other engines' requests whose tenants have had less computing time in all engines
     * together */
    const char *tenant;
    /* 0; 0 … 60000; 0 = the engine's. A tick aims at the smallest target among the generating streams, but
     * not below a quarter of the engine's */
    int32_t itl_target_ms;
    bool logprobs; /* return the logprob of each generated token in chunks and result */
    /* 0; 0 … 20; also return the n likeliest tokens at each position; > 0 implies logprobs */
    int32_t n_logprobs;
    /* Return the logprob of each prompt token (weir_stream_prompt_logprobs). The whole prompt is then
     * computed, at most 64 tokens per tick, even if it is cached; it is cached as usual */
    bool prompt_logprobs;
    int32_t n_prompt_logprobs; /* 0; 0 … 20; as n_logprobs; > 0 implies prompt_logprobs */
    /* A fork: the request continues from another submitted stream, in any state, after the first source_at
     * tokens of its chunks (0 … all so far; -1 (default) = all). The source does not change. Prompt, answer
     * so far, chat, salt and adapters are the source's, everything else is this request's: grammar and stop
     * strings see the answer from its start, n_prompt includes the answer so far, max_tokens counts new
     * tokens. The stream receives new text only */
    weir_stream *source;
    int32_t source_at;
    int32_t n_draft_max; /* -1; -1 … 32; as the engine's parameter, which is the limit; -1 = the engine's */
    /* [n_adapters]; at most WEIR_ADAPTERS_MAX, of the engine's model, none twice; held. Cached prefixes are
     * shared only between requests with the same adapters and scales */
    const weir_adapter_use *adapters;
    size_t n_adapters;
    /* [n_media]; images and sounds within text or tokens, in order; a chat and a source have their own
     * (INVALID with these). The model needs a projector that reads them, and sounds need its sample rate
     * (weir_model_info). Each takes tokens of the prompt, which weir_engine_plan_request counts. A thread of
     * the engine encodes them while other requests run on and, within cache_bytes, while this one is queued.
     * Held until the last release of the stream, from which a fork may start. UNSUPPORTED: the model reads no
     * such media; or it must compute all tokens of an image in one pass, and these are more than the engine's
     * n_ubatch */
    const weir_media_use *media;
    size_t n_media;
    /* NULL = none; what the answer is expected to repeat, such as a file that it returns with changes. Drafts
     * come from it as long as the answer follows it (n_draft_max); the answer does not depend on it. An
     * engine that drafts from no texts (prompt_lookup, n_draft_max) ignores it. Tokens beyond n_ctx are not
     * looked at */
    const char *prediction;
    size_t prediction_length; /* WEIR_NUL (default) */
    /* -1; -1 … 2^31 - 1; the most tokens of reasoning. Those that follow are the closing text of the chat's
     * template (weir_chat_reasoning_end) in place of the model's choice, then the model goes on: with 0 the
     * closing text follows at once. Up to three more may come, if the budget ends within a character. A
     * grammar that does not allow the closing text here delays it. -1 (default) = no limit. No effect with a
     * chat whose template has no reasoning */
    int32_t reasoning_budget;
    /* Texts between which the answer reasons; at most 256 bytes each. NULL (default) = those of the chat,
     * also of a source's. With an end alone the answer begins within its reasoning. INVALID: a start without
     * an end, or a budget for a prompt that has neither */
    const char *reasoning_start;
    const char *reasoning_end;
} weir_request;

WEIR_API void weir_request_init(weir_request *request, size_t size);
static inline weir_request weir_request_default(void)
{
    weir_request request;
    weir_request_init(&request, sizeof request);
    return request;
}

/* Queues n requests, all or none. requests[0].size is the stride of the array. streams is [n] fresh streams,
 * each used once; NULL, or a NULL entry, is a request that nobody reads (it runs and is counted). streams[i]
 * gets index i. Tokenizes and compiles on the calling thread; never waits for a tick. Errors: INVALID
 * (requests[i].field; n: 1 … what slots and queue hold), TOO_LONG (it can never fit), GRAMMAR, UNSUPPORTED,
 * BUSY (the queue, or the part of it of the first one's tenant, is full; the message says when to retry),
 * STATE (a stream is used, cancelled or finished), STOPPED, NO_MEMORY. After an error nothing has changed. */
WEIR_API WEIR_CHECKED weir_status weir_engine_submit(weir_engine *engine, const weir_request *requests,
                                                     size_t n, weir_stream *const *streams,
                                                     weir_error *error);

/* Queues one request n times, for n answers, all or none. Answer i has the request's seed plus i, or with
 * WEIR_SEED_RANDOM a random one; the first answer is the one that submit would give. Text is tokenized once,
 * and the prompt is computed once where prompts are cached (cache_prompt,
 * weir_engine_params.cache_sequences). Only the first answer has prompt_logprobs, because they are the same
 * for all. Otherwise as weir_engine_submit; errors name requests[0]. */
WEIR_API WEIR_CHECKED weir_status weir_engine_submit_n(weir_engine *engine, const weir_request *request,
                                                       size_t n, weir_stream *const *streams,
                                                       weir_error *error);

/* ---- Stream ---------------------------------------------------------------------------------------- */

/* The output of one request. The caller creates it, submit attaches it, and one consumer at a time reads it
 * (threads may hand it over). Status reads, cancel and set_interval: any thread, any time.
 *
 * Guarantees: after a successful submit there is exactly one terminal chunk (finished) and nothing follows
 * it; the text of each chunk, and so of all of them, is well-formed UTF-8; stop strings never appear (but see
 * include_stop); unread chunks merge when more than a few wait, without loss. */

typedef enum weir_reason {
    WEIR_REASON_NOT_FINISHED = 0,
    WEIR_REASON_END = 1,    /* the model ended the answer */
    WEIR_REASON_LENGTH = 2, /* max_tokens reached, or the context is full */
    WEIR_REASON_CANCELLED = 3,
    WEIR_REASON_ERROR = 4,
    WEIR_REASON_STOP_WORDS = 5,
    WEIR_REASON_DEADLINE = 6,
} weir_reason;

/* "not_finished", "end", "length", … Static. */
WEIR_API const char *weir_reason_name(weir_reason reason);

/* A token and the natural logarithm of its probability: the model's log-softmax over the whole vocabulary,
 * before any sampler, bias or grammar. -INFINITY: impossible. */
typedef struct weir_logprob {
    int32_t token;
    float logprob;
} weir_logprob;

/* A piece of a stream. It may have several tokens: accepted drafts, an interval, a reader that is slow. */
typedef struct weir_chunk {
    const int32_t *tokens; /* [n_tokens] generated since the last chunk, without the end token */
    size_t n_tokens;
    const char *text; /* NUL-terminated; empty in the terminal chunk only */
    size_t length;
    bool finished; /* the terminal chunk */
    weir_reason reason;
    const float *logprobs;            /* [n_tokens] if requested, else NULL */
    const weir_logprob *top_logprobs; /* [n_tokens][n_top_logprobs], the likeliest first; or NULL */
    int32_t n_top_logprobs;           /* the request's n_logprobs, or the vocabulary's size if smaller */
    /* The number, with logprobs, of the newest tokens, of this chunk and earlier ones, whose text no chunk
     * has yet, because it may begin a stop string. In the terminal chunk: those of the stop string that ended
     * the answer. A token with a part of its text in a chunk does not count */
    int32_t n_hidden;
    /* usage.n_generated and total_ns when the engine emitted its last token, however late it is taken: a
     * stream's tokens up to and including this chunk; the terminal one also counts the end token */
    int32_t n_generated;
    int64_t total_ns;
} weir_chunk;

WEIR_API WEIR_CHECKED weir_status weir_stream_create(weir_stream **stream, weir_error *error);

/* Reference counts. The last release of a stream that still runs cancels its request, and waits for a ready
 * callback that runs on another thread. */
WEIR_API weir_stream *weir_stream_hold(weir_stream *stream);
WEIR_API void weir_stream_release(weir_stream *stream);

/* Takes the next chunk and waits up to timeout_ms for it (negative: no limit). OK: *chunk is filled; its
 * pointers stay valid until the next take on this stream. TIMEOUT: none came in time. END: the terminal chunk
 * was taken before. STATE: not attached, another thread is reading, the stream belongs to a flight, or the
 * call would wait and comes from a callback. Any thread, one at a time. After a cancel the terminal chunk
 * arrives within a tick, and a waiting call waits for it. Another thread must drive a manual engine: a call
 * without limit returns STATE once none has done so for 10 to 20 seconds, and the log says so; the stream can
 * still be read. To read on the thread that drives it, alternate weir_engine_step and
 * weir_stream_try_next. */
WEIR_API weir_status weir_stream_next(weir_stream *stream, int timeout_ms, weir_chunk *chunk);

/* Takes the next chunk likewise, but without waiting: TIMEOUT when there is no chunk now. Chunks that are
 * queued at the end or a cancel can still be taken; then END. */
WEIR_API weir_status weir_stream_try_next(weir_stream *stream, weir_chunk *chunk);

/* Called with each chunk, and with an empty one (not finished) whenever poll_ms passed without a chunk and as
 * soon as another thread cancels. False stops reading; the stream runs on. */
typedef bool (*weir_chunk_fn)(const weir_chunk *chunk, void *user);

/* Passes chunks to fn, up to and including the terminal one. poll_ms below 1 counts as 100. OK: the terminal
 * chunk was handled, now or before. ABORTED: fn returned false. STATE: as weir_stream_next, but not for a
 * manual engine that no thread drives: there fn is called with empty chunks until it returns false. */
WEIR_API weir_status weir_stream_consume(weir_stream *stream, weir_chunk_fn fn, int poll_ms, void *user);

/* Called on the thread that drives the engine when the stream becomes readable and at its end, once from
 * set_ready itself if a chunk already waits, and where weir_stream_watch_progress asks for it. It must not
 * block, and may call weir_stream_try_next. When set_ready returns, the former callback is no longer
 * running (unless set_ready was called from within it). set_ready and the last release may wait for a
 * callback on another thread: do not hold a lock that the callback takes, and let no two callbacks wait
 * for each other. STATE: the stream belongs to a flight; see weir_flight_watch. */
typedef void (*weir_ready_fn)(weir_stream *stream, void *user);
WEIR_API weir_status weir_stream_set_ready(weir_stream *stream, weir_ready_fn fn, void *user);

/* A descriptor that polls readable while a chunk can be taken. Created on the first call, owned by the
 * stream, valid until the last release; do not read from it. IO: the process has no descriptors left. STATE:
 * the stream belongs to a flight. */
WEIR_API WEIR_CHECKED weir_status weir_stream_descriptor(weir_stream *stream, int *descriptor,
                                                         weir_error *error);

/* Asks the request to end. May be called in any state and repeatedly; does nothing after the end. A stream
 * cancelled before submit is refused there (STATE). Never waits for a tick; takes effect within one. Not safe
 * in a signal handler. */
WEIR_API void weir_stream_cancel(weir_stream *stream);

/* Emit every n tokens; below 1 counts as 1. The first token and the end are never delayed. */
WEIR_API void weir_stream_set_interval(weir_stream *stream, int32_t interval);

WEIR_API int32_t weir_stream_interval(const weir_stream *stream);
WEIR_API bool weir_stream_finished(const weir_stream *stream);
WEIR_API bool weir_stream_cancelled(const weir_stream *stream);
WEIR_API weir_reason weir_stream_reason(const weir_stream *stream);

/* The index of the request in its submit; -1 before. */
WEIR_API int32_t weir_stream_index(const weir_stream *stream);

/* The error behind WEIR_REASON_ERROR; otherwise error->code is WEIR_OK. */
WEIR_API void weir_stream_error(const weir_stream *stream, weir_error *error);

/* ---- Usage and whole answers ----------------------------------------------------------------------- */

/* The reason why the prompt, or part of it, was not cached. Without a salt, texts may be other callers', and
 * the caller learns of no more tokens of them than were cached for it. Then EVICTED and UNCUTTABLE, which
 * reveal that more was known, become COLD, and so does DIVERGED unless all tokens before that place were
 * cached. */
typedef enum weir_miss {
    WEIR_MISS_NONE = 0,     /* everything but the last token was cached */
    WEIR_MISS_COLD = 1,     /* the rest has never been seen, or see above */
    WEIR_MISS_EVICTED = 2,  /* more of it was cached earlier */
    WEIR_MISS_SALT = 3,     /* more of it is cached without a salt */
    WEIR_MISS_DIVERGED = 4, /* the cached text continues with other tokens */
    /* more of it is cached, but this model's memory cannot be truncated at that token */
    WEIR_MISS_UNCUTTABLE = 5,
    WEIR_MISS_OFF = 6, /* caching is off for the request or the engine */
} weir_miss;
#define WEIR_MISS_COUNT 7

/* "none", "cold", "evicted", … Static. */
WEIR_API const char *weir_miss_name(weir_miss miss);

typedef struct weir_miss_info {
    size_t size;
    weir_miss miss;
    int32_t n_matched; /* prompt tokens that matched; without a salt at most usage.n_cached */
    /* WEIR_MISS_DIVERGED: the text around the first different token, in the prompt and in the cache;
     * well-formed UTF-8, truncated; else "". cached: "" also for a request without a salt */
    char prompt[96];
    char cached[96];
    /* The chat message, likewise of WEIR_MISS_DIVERGED, in or before which the token lies. -1 = unknown, no
     * chat, or after the last message */
    int32_t message;
    bool in_message; /* in its text; false: in the template's text before it, such as tools and dates */
    char role[16];   /* of the message; "" = none */
    /* The line, with in_message and with a salt, in which they diverge, from its beginning to that place;
     * else "" */
    char line[96];
} weir_miss_info;

typedef struct weir_usage {
    int32_t n_prompt;
    int32_t n_cached;       /* prompt tokens taken from the cache */
    int32_t n_generated;    /* sampled tokens: those in chunks, plus the end token */
    int64_t queue_ns;       /* submit to first slot, or to the end of a request that got none */
    int64_t ttft_ns;        /* submit to first token; 0 = none yet */
    int64_t total_ns;       /* submit to end, or until now */
    weir_miss miss;         /* known from the first chunk on; NONE before */
    double logprob;         /* sum over the n_generated tokens if logprobs were requested; else 0 */
    int32_t n_drafted;      /* draft tokens that were verified, not in n_generated */
    int32_t n_accepted;     /* of those, the accepted ones */
    int32_t n_image_tokens; /* of n_prompt, those in the place of images */
    int32_t n_audio_tokens; /* likewise, of sounds */
    int32_t stop;           /* the request's stop string that ended the answer, from 1; 0 = none of them */
    int32_t n_predicted;    /* of n_drafted, those from the request's prediction */
    int32_t n_predicted_accepted; /* of those, the accepted ones */
    /* of n_generated, those of reasoning, without the tokens of the texts around it; 0 if
     * these are unknown */
    int32_t n_reasoning;
} weir_usage;

/* The progress of a prompt, for who waits for the first token. */
typedef struct weir_progress {
    size_t size;
    bool started;        /* false: the request is queued, and the next three are 0 */
    int32_t n_cached;    /* as in weir_usage; 0 while another request computes tokens for this one */
    int32_t n_processed; /* tokens of the prompt that are there, cached or computed; never decreases */
    int64_t prefill_ns;  /* from the first slot until now, or until all tokens were there, or to the end */
    int32_t n_prompt;    /* n_processed once all are there, before the first chunk */
} weir_progress;

/* Fills *progress, with counts as of the newest pass. Any thread, any time; never waits for a pass. INVALID:
 * size, or a pointer is NULL. STATE: the stream was not submitted. */
WEIR_API weir_status weir_stream_progress(const weir_stream *stream, weir_progress *progress);

/* Counts and times as of the newest chunk; final once finished. */
WEIR_API weir_usage weir_stream_usage(const weir_stream *stream);

typedef struct weir_result {
    weir_reason reason;
    weir_error error; /* for WEIR_REASON_ERROR */
    char *text;       /* well-formed UTF-8, NUL-terminated */
    size_t length;
    int32_t *tokens; /* [n_tokens], without the end token */
    size_t n_tokens;
    weir_usage usage;
    weir_miss_info miss;
    float *logprobs;            /* [n_tokens] if requested, else NULL */
    weir_logprob *top_logprobs; /* [n_tokens][n_top_logprobs], the likeliest first; or NULL */
    int32_t n_top_logprobs;
    int32_t n_hidden; /* as the terminal chunk's: the last of them, which are the stop string */
    /* The prompt's logprobs as in weir_stream_prompt_logprobs; NULL if not requested, or if the request ended
     * before. */
    int32_t *prompt_tokens; /* [n_prompt_tokens] */
    size_t n_prompt_tokens;
    float *prompt_logprobs;
    weir_logprob *prompt_top_logprobs;
    int32_t n_prompt_top_logprobs;
} weir_result;

/* Submits n requests, waits until all have ended and fills results [n]; free each with weir_result_fini.
 * streams as in submit: readers on other threads may stream these requests meanwhile. OK even when a request
 * ends with an error, which is in its result. Errors: as submit, results are then zeroes; STATE: called from
 * a callback. Drives a manual engine. */
WEIR_API WEIR_CHECKED weir_status weir_generate(weir_engine *engine, const weir_request *requests, size_t n,
                                                weir_stream *const *streams, weir_result *results,
                                                weir_error *error);

/* Frees a result's contents and zeroes it. */
WEIR_API void weir_result_fini(weir_result *result);

/* ---- Adapter --------------------------------------------------------------------------------------- */

/* A LoRA adapter: low-rank changes to a model's weights. To each matrix that it changes it adds the product
 * of two small matrices, times a scale. Immutable once loaded. Any number of requests and contexts, of any
 * engine, may use it at the same time, each with its own scale. */
typedef struct weir_adapter weir_adapter;

/* Loads a GGUF file in the format of llama.cpp's convert_lora_to_gguf.py. The whole file is read into memory,
 * and matrices for weights that weir's kernels multiply are converted to half precision. The file is checked
 * first, and its names and shapes are compared with the model; it is not needed after the load. Holds the
 * model. With a fake model the path is "fake:" and a number. Any thread; an engine that changes its adapters
 * meanwhile waits for the load. Errors: NOT_FOUND, IO, FORMAT (damaged; numbers that are not finite),
 * UNSUPPORTED (not a LoRA adapter; made for another model; llama.cpp cannot add it), NO_MEMORY, INVALID
 * (path). */
WEIR_API WEIR_CHECKED weir_status weir_adapter_load(weir_model *model, const char *path,
                                                    weir_adapter **adapter, weir_error *error);

/* Reference counts. A request holds its adapters until it ends, a stream that may be forked for as long as
 * the stream is held, and a context or engine those of its last pass. A release therefore affects no other
 * user; the last one unloads the adapter and frees its memory. Any thread. NULL is ignored. */
WEIR_API weir_adapter *weir_adapter_hold(weir_adapter *adapter);
WEIR_API void weir_adapter_release(weir_adapter *adapter);

/* An adapter with its scale. */
typedef struct weir_adapter_use {
    weir_adapter *adapter;
    float scale; /* -100 … 100; 1 = as trained; 0 = no effect */
} weir_adapter_use;

#define WEIR_ADAPTERS_MAX 8 /* adapters of one request or context */

/* ---- Images and audio ------------------------------------------------------------------------------ */

/* A weir_media is an image or a sound, decoded: the pixels or samples that a model's projector encodes.
 * Immutable, reference-counted. */

/* The limits on media. Headers are checked before memory is taken for pixels or samples; the length of a
 * sound whose header does not state it (MP3) is checked while it is decoded. */
typedef struct weir_media_params {
    size_t size;
    uint64_t max_bytes;      /* 64 MiB; 1 … 2^32; of the file */
    int32_t max_side;        /* 16384; 1 … 65535; width and height of an image */
    int32_t max_pixels;      /* 50000000; 1 … 2^30; width × height */
    int32_t max_seconds;     /* 1800; 1 … 86400 */
    int32_t max_sample_rate; /* 192000; 4000 … 384000; the sound's own, in Hz; less than 4000 is refused */
    int32_t max_channels;    /* 8; 1 … 32 */
    int32_t sample_rate; /* 16000; 4000 … 96000; a sound is resampled to this rate: the projector's, in Hz */
} weir_media_params;

/* Fills params as weir_model_params_init does. */
WEIR_API void weir_media_params_init(weir_media_params *params, size_t size);
static inline weir_media_params weir_media_params_default(void)
{
    weir_media_params params;
    weir_media_params_init(&params, sizeof params);
    return params;
}

/* Decodes a file's bytes: PNG, JPEG, WebP, WAV, FLAC or MP3, detected by content. Images: the first frame of
 * an APNG; a JPEG is rotated as its EXIF data says; transparent parts become white. Sounds: all channels are
 * mixed to one. Decoding an image takes up to 12 bytes of memory per pixel. params may be NULL. Any thread.
 * Errors: FORMAT (none of these formats; damaged or incomplete; samples that are not finite), UNSUPPORTED (an
 * animated WebP; a compressed WAV; less than 4000 Hz or 0.1 s; a build without WEIR_MEDIA), TOO_LONG (field:
 * the parameter that is exceeded), NO_MEMORY, ABORTED (weir_interrupt_set; not within a PNG or WebP),
 * INVALID. */
WEIR_API WEIR_CHECKED weir_status weir_media_create(const void *bytes, size_t n_bytes,
                                                    const weir_media_params *params, weir_media **media,
                                                    weir_error *error);

/* Reference counts. The last release frees the memory. Any thread. NULL is ignored. */
WEIR_API weir_media *weir_media_hold(weir_media *media);
WEIR_API void weir_media_release(weir_media *media);

/* ---- Log ------------------------------------------------------------------------------------------- */

typedef enum weir_log_level {
    WEIR_LOG_DEBUG = 0,
    WEIR_LOG_INFO = 1,
    WEIR_LOG_WARN = 2,
    WEIR_LOG_ERROR = 3,
} weir_log_level;

/* Receives one line without its newline. Called on the thread that logs, one call at a time. It must not call
 * weir_log_set. */
typedef void (*weir_log_fn)(weir_log_level level, const char *message, void *user);

/* Sends the log of weir and of llama.cpp to fn; NULL restores the default: warnings and errors to stderr. It
 * waits for a running call of the former function, which is not called again once this returns. Any
 * thread. */
WEIR_API void weir_log_set(weir_log_fn fn, void *user);

/* Writes a message to the log: one call of the log function per line that is not empty. Invalid UTF-8 is
 * replaced, and the message is truncated to 1,023 bytes. A message from inside the log function is dropped.
 * Any thread, but not a signal handler. NULL is ignored. */
WEIR_API void weir_log_message(weir_log_level level, const char *message);

#ifdef __cplusplus
}
#endif
#endif
