/* weir.h: a streaming inference engine on llama.cpp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sections in order of use: status, model, chat, engine, request, stream, whole answers. Most programs need
 * nothing below the ruled line. Models by name are in <weir/hub.h>.
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

/* Details of a failure, in the caller's memory. Functions that take a weir_error accept NULL. */
typedef struct weir_error {
    weir_status code;
    char field[64];    /* the offending parameter; "" = none */
    char message[448]; /* one or two sentences: the value, the allowed range, what to do; UTF-8 */
} weir_error;

/* "WEIR_OK" and "ok" for WEIR_OK; "unknown status" for an unknown value. Static. */
WEIR_API const char *weir_status_name(weir_status status);
WEIR_API const char *weir_status_text(weir_status status);

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
    /* For all contexts of the model. OFF leaves attention to llama.cpp alone, with intermediate results that
     * grow with the context, and values (type_v) cannot be quantized; answers are then not batch-invariant */
    weir_flash_attn flash_attn;
    /* How positions are encoded in all contexts of the model, for contexts longer than in its training. Saved
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
 * or this processor: a build for x86-64 needs AVX2, FMA, F16C and BMI2), NO_MEMORY, ABORTED, INVALID. The
 * field is "projector" where that file is the cause; UNSUPPORTED then also means that it was made for another
 * model, or that this build has no projectors (WEIR_MEDIA). */
WEIR_API WEIR_CHECKED weir_status weir_model_load(const char *path, const weir_model_params *params,
                                                  weir_model **model, weir_error *error);

/* Reference counts. Contexts, samplers, chats and engines hold their model. The last release frees the
 * weights. Any thread. NULL is ignored. */
WEIR_API weir_model *weir_model_hold(weir_model *model);
WEIR_API void weir_model_release(weir_model *model);

/* BACKEND: the model cannot compute any more, because a worker (weir_model_params.rpc) is gone, or because a
 * mapped file has changed; the message says which. Streams, passes and submits of the model then end with the
 * same error; release it and load it again (a weir_pool does that at the next lease). Looks at each mapped
 * file, at most four times a second, which may block on a network file system. Any thread. */
WEIR_API weir_status weir_model_check(const weir_model *model, weir_error *error);

typedef struct weir_model_info {
    size_t size;
    const char *description;   /* e.g. "llama 134.5M Q4_1" */
    const char *architecture;  /* e.g. "llama" */
    const char *chat_template; /* Jinja source; NULL when the model has none */
    const char *backend;       /* "llama" or "fake" */
    uint64_t n_params;
    uint64_t n_bytes; /* of all tensors */
    int32_t n_vocab;
    int32_t n_ctx_train; /* tokens */
    int32_t n_embd;
    int32_t n_embd_out; /* length of an embedding */
    int32_t n_layer;
    int32_t n_head;
    int32_t n_head_kv;
    int32_t n_swa;     /* sliding window in tokens, 0 = none */
    int32_t token_bos; /* -1 = the vocabulary has none; likewise the next three */
    int32_t token_eos;
    int32_t token_eot;
    int32_t token_nl;
    bool add_bos; /* the tokenizer adds it when add_special is set */
    bool add_eos;
    bool has_encoder;
    bool has_decoder;
    bool is_recurrent; /* its memory cannot be truncated at any position */
    bool is_hybrid;
    const char *kernels; /* weir's CPU kernels in use, e.g. "avx512bf16"; "" = none */
    /* bytes of the tensors that these kernels multiply; the backend multiplies the others */
    uint64_t n_bytes_kernels;
    uint64_t n_bytes_mapped; /* of those, the bytes mapped from an optimized file */
    int32_t n_layer_mtp;     /* additional layers that predict further tokens (MTP), usable for drafts */
    bool is_draft_head;      /* an EAGLE-3 head: usable as draft_model only */
    bool ranks;              /* a reranking model: with its own pooling, weir_embed gives scores */
    bool reads_images;       /* by its projector */
    bool reads_sounds;
    int32_t sample_rate; /* of the sounds that it reads, Hz (weir_media_params.sample_rate); 0 = none */
    /* A fill-in-the-middle prompt (FIM) has the prefix token and its text, the suffix token and its text, and
     * the middle token. Before them may come the repo token with the project's name, and for each file the
     * file token with its name and text. -1 = none */
    int32_t token_fim_prefix;
    int32_t token_fim_suffix;
    int32_t token_fim_middle;
    int32_t token_fim_repo;
    int32_t token_fim_file;
    /* Stands between the two texts of a pair, as reranking models read them:
     * [BOS] query [EOS] [SEP] document [EOS]. -1 = none */
    int32_t token_sep;
    bool add_sep; /* pairs contain [SEP] */
    /* A checksum of the contents of the model's files; of the weights only samples are read. File names and
     * times do not enter it, so copies on other machines have the same fingerprint */
    uint64_t fingerprint;
    /* Bytes of the longest text that becomes one token: n bytes are at least n / longest_piece tokens. 0 =
     * unknown */
    int32_t longest_piece;
} weir_model_info;

/* Fills the first info->size bytes. Strings stay valid while the model is held. */
WEIR_API weir_status weir_model_describe(const weir_model *model, weir_model_info *info);

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

/* An image or a sound at a place of a prompt. */
typedef struct weir_media_use {
    weir_media *media; /* held by the request */
    size_t at;         /* bytes of text, or tokens, before it; ascending */
} weir_media_use;

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
    /* true (default): a keyword of json_schema that cannot be enforced is an error; false: it is left out and
     * listed by weir_chat_relaxed, unless it is malformed */
    bool strict_schema;
    weir_special_content special_content;
    /* false: messages that the template refuses are changed into a form that it takes, and listed by
     * weir_chat_reshaped; true: they are an error (TEMPLATE), or the template leaves them out */
    bool strict_messages;
    /* [n_media] the parts of messages_json whose type is "image_url", "input_audio", "image", "audio" or
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

/* Parses the template `template_source`, or with NULL those of the model, so that a mistake in one is found
 * before a conversation needs it. OK as well if the model has none, and in a build without llama.cpp. Any
 * thread. Errors: INVALID, TEMPLATE (the template and the line), NO_MEMORY. */
WEIR_API WEIR_CHECKED weir_status weir_chat_check(weir_model *model, const char *template_source,
                                                  weir_error *error);

WEIR_API weir_chat *weir_chat_hold(weir_chat *chat);
WEIR_API void weir_chat_release(weir_chat *chat);

/* The rendered text, NUL-terminated; valid while the chat is held; "" for NULL. length may be NULL. BOS and
 * EOS are not included. */
WEIR_API const char *weir_chat_prompt(const weir_chat *chat, size_t *length);

/* The media of the prompt, [*n], in its order; `at`: bytes of weir_chat_prompt before each. Valid while the
 * chat is held; NULL if there are none. n may be NULL. */
WEIR_API const weir_media_use *weir_chat_media(const weir_chat *chat, size_t *n);

/* The token ids of the prompt as a request with this chat uses them, without its media. They equal those of
 * weir_tokenize with add_special and parse_special, unless a message's content contains the text of a control
 * token or the prompt contains media. Arguments and errors: as weir_tokenize. */
WEIR_API weir_status weir_chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity,
                                        size_t *n_tokens, weir_error *error);

/* The special_content in effect: WEIR_SPECIAL_ALL if the template changes a content that includes the text of
 * a control token, so that it cannot be located in the prompt. WEIR_SPECIAL_TRUSTED for NULL. */
WEIR_API weir_special_content weir_chat_special_content(const weir_chat *chat);

/* The keywords of tools and json_schema that the grammar does not enforce, one a line: a JSON pointer into
 * tools_json or, after "json_schema", into that, and the keyword: "/0/function/parameters/properties/n:
 * multipleOf". The list ends with "..." after about 4,000 bytes. "" = everything is enforced. Valid while the
 * chat is held. */
WEIR_API const char *weir_chat_relaxed(const weir_chat *chat);

/* The messages that the template refuses as they are, and that were put, one a line: a message, its shape
 * and, if it is in the turn of another message now, that message: "messages[2]: system_late in messages[1]".
 *
 *     system_late          a system message behind others: becomes text of a user's
 *     system_twice         a second system message at the start: joins the first
 *     system_only          no other messages: an empty user's follows
 *     user_twice           a user's behind a user's: joins it
 *     user_after_result    a user's behind a result of a call: joins that
 *     user_after_call      a user's behind a call without a result: becomes its result
 *     assistant_first      the assistant's before any user's: an empty user's precedes
 *     assistant_twice      the assistant's behind its own text: the same
 *     result_without_call  behind no call: becomes text of a user's
 *     result_twice         behind as many results as there are calls: the same
 *     tool_calls           calls, for which the template has no form: become text of the assistant
 *     tool_results         results, likewise: become text of a user's
 *     call_twice           calls of one message: each gets a message
 *     system_first         a system message before others: joins the user's behind it
 *     call_id, no_call_id  an id that the template refuses, or none: gets one of its form, in the prompt only
 *
 * Texts keep their order, and what becomes of a message does not depend on later ones. Text that becomes a
 * user's counts as such for special_content. The list ends with "..." after about 4,000 bytes. "" = the
 * messages are as they were given. Valid while the chat is held. */
WEIR_API const char *weir_chat_reshaped(const weir_chat *chat);

/* The text by which reasoning of the answer ends, such as "</think>"; "" = the template has none that is
 * known, or the answer has no reasoning because a schema leaves no room for it. Valid while the chat is
 * held. */
WEIR_API const char *weir_chat_reasoning_end(const weir_chat *chat);

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

typedef struct weir_strategy weir_strategy; /* below: who gets the tokens of a tick */

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
     * is computed again. WEIR_AUTO (default) = a quarter of the memory available at create; 0 = none */
    uint64_t cache_bytes;
    /* -1 … 256 - n_slots; additional sequences for cached prefixes. With lanes each costs n_ctx cells, and -1
     * (default) = use idle slots only; with one pool -1 = all up to 256. 0 = do not cache prefixes */
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
     * could have generated. 0 = off. Models whose memory cannot be truncated at any token have no drafts */
    int32_t n_draft_max;
    bool prompt_lookup; /* true; drafts come from the request's own prompt and answer; see lookup_bytes */
    /* 16 MiB; with prompt_lookup, drafts also come from the prompts and answers of other requests, running or
     * finished, with the same cache_salt, adapters and scales. This limits the memory for their tokens; the
     * oldest are dropped first. Requests without cache_prompt neither use nor add texts. 0, or less than 4096
     * = none */
    uint64_t lookup_bytes;
    /* NULL; a smaller model that drafts where prompt_lookup finds nothing; held. It must have the model's
     * vocabulary, its memory must be truncatable at any token, and it needs as many KV cells as the model. Or
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

typedef struct weir_sampler_params weir_sampler_params; /* below: how tokens are chosen */
typedef struct weir_adapter_use weir_adapter_use;       /* below: LoRA adapters */

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
 * it; the text of each chunk, and so of all of them, is well-formed UTF-8; stop strings never appear; unread
 * chunks merge when more than a few wait, without loss. */

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
    /* With logprobs: the number of the newest tokens, of this chunk and earlier ones, whose text no chunk has
     * yet, because it may begin a stop string. In the terminal chunk: those of the stop string that ended the
     * answer. A token with a part of its text in a chunk does not count */
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
 * arrives within a tick, and a waiting call waits for it. Another thread must drive a manual engine: while
 * none does, a call without limit waits forever. To read on the thread that drives it, alternate
 * weir_engine_step and weir_stream_try_next. */
WEIR_API weir_status weir_stream_next(weir_stream *stream, int timeout_ms, weir_chunk *chunk);

/* The same without waiting: TIMEOUT when there is no chunk now. Chunks that are queued at the end or a cancel
 * can still be taken; then END. */
WEIR_API weir_status weir_stream_try_next(weir_stream *stream, weir_chunk *chunk);

/* Called with each chunk, and with an empty one (not finished) whenever poll_ms passed without a chunk and as
 * soon as another thread cancels. False stops reading; the stream runs on. */
typedef bool (*weir_chunk_fn)(const weir_chunk *chunk, void *user);

/* Passes chunks to fn, up to and including the terminal one. poll_ms below 1 counts as 100. OK: the terminal
 * chunk was handled, now or before. ABORTED: fn returned false. STATE, and a manual engine: as
 * weir_stream_next. */
WEIR_API weir_status weir_stream_consume(weir_stream *stream, weir_chunk_fn fn, int poll_ms, void *user);

/* Asks the request to end. May be called in any state and repeatedly; does nothing after the end. A stream
 * cancelled before submit is refused there (STATE). Never waits for a tick; takes effect within one. Not safe
 * in a signal handler. */
WEIR_API void weir_stream_cancel(weir_stream *stream);

/* Ends the reasoning of the answer now, as if its budget were used (weir_request.reasoning_budget); reasoning
 * that has not begun ends as soon as it begins. Takes effect within a tick, and does nothing once the
 * reasoning has ended. Never waits. Any thread. STATE: the stream was not submitted, or has finished.
 * UNSUPPORTED: it is unknown how its reasoning ends (weir_chat_reasoning_end). INVALID: stream is NULL. */
WEIR_API weir_status weir_stream_end_reasoning(weir_stream *stream, weir_error *error);

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

/* Why the prompt, or part of it, was not cached. Without a salt, texts may be other callers', and the caller
 * learns of no more tokens of them than were cached for it. Then EVICTED and UNCUTTABLE, which reveal that
 * more was known, become COLD, and so does DIVERGED unless all tokens before that place were cached. */
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
    /* Likewise: the chat message in or before which the token lies. -1 = unknown, no chat, or after the last
     * message */
    int32_t message;
    bool in_message; /* in its text; false: in the template's text before it, such as tools and dates */
    char role[16];   /* of the message; "" = none */
    /* With in_message, and with a salt: the line in which they diverge, from its beginning to that place;
     * else "" */
    char line[96];
} weir_miss_info;

/* The same as a sentence, well-formed UTF-8 without newlines, truncated to capacity and NUL-terminated; ""
 * for WEIR_MISS_NONE. Returns its length. */
WEIR_API size_t weir_miss_text(const weir_miss_info *info, char *text, size_t capacity);

/* Why no more of the prompt was cached; all zero until its prefill starts. Words of cached texts are only
 * those of requests with the same salt, which is not empty. INVALID: size. */
WEIR_API weir_status weir_stream_miss(const weir_stream *stream, weir_miss_info *info);

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

/* How far a prompt is, for who waits for the first token. */
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

/* With `on`, the ready callback (weir_stream_set_ready), or the watchers of the stream's flight, are also
 * called when the progress has changed: at the start of the prefill and after each pass that had
 * tokens of the prompt. There may be no chunk then. Off (default) changes nothing for other readers. Any
 * thread, any time. NULL is ignored. */
WEIR_API void weir_stream_watch_progress(weir_stream *stream, bool on);

/* The mean logprob of the generated tokens, by which best-of ranks. 0 without logprobs, -INFINITY if nothing
 * was generated. Pure. */
WEIR_API double weir_usage_score(const weir_usage *usage);

/* Counts and times as of the newest chunk; final once finished. */
WEIR_API weir_usage weir_stream_usage(const weir_stream *stream);

/* The number of its request among those of the engine, as in weir_arrival and weir_tick_slot: *request. Any
 * thread. STATE: it was not submitted. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_stream_request(const weir_stream *stream, uint64_t *request);

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
    /* As weir_stream_prompt_logprobs; NULL if not requested, or if the request ended before. */
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

/* Generates best_of answers as weir_engine_submit_n does, waits for all, and fills results [n] with the n
 * highest by weir_usage_score, the best first; answers that ended with an error come last. All have logprobs;
 * results[0] has the prompt's if requested. Errors: as submit_n; INVALID (n: 1 … best_of). Otherwise as
 * weir_generate. */
WEIR_API WEIR_CHECKED weir_status weir_generate_best(weir_engine *engine, const weir_request *request,
                                                     size_t best_of, size_t n, weir_result *results,
                                                     weir_error *error);

/* Frees a result's contents and zeroes it. */
WEIR_API void weir_result_fini(weir_result *result);

/* ==================================================================================================== *
 * The rest is rarely needed.
 * ==================================================================================================== */

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

/* ---- Interrupts ------------------------------------------------------------------------------------ */

/* Returns true to end the call in progress. It must be quick and must not call the library. */
typedef bool (*weir_interrupt_fn)(void *user);

/* Sets the interrupt function of the calling thread. Calls of this thread that may take long call fn every
 * few thousand steps. When fn returns true, they end with WEIR_ABORTED, and everything is as after any other
 * error of that call. These calls are tokenizing, weir_chat_create, conversion of schemas and creation of
 * samplers that have one, submits, forward passes of contexts (also within a pass if the backend can be
 * interrupted), weir_context_generate and weir_embed. Waiting for an engine does not call fn;
 * weir_stream_cancel ends such a wait. fn runs only during calls of this thread and never concurrently, but
 * it may run on a library thread that works for this one. NULL, the state in which a thread starts, removes
 * the function. */
WEIR_API void weir_interrupt_set(weir_interrupt_fn fn, void *user);

/* Calls the calling thread's function and returns what it returns; false if there is none. For loops of the
 * program's own, between calls of the library. */
WEIR_API bool weir_interrupt_asked(void);

/* ---- Members of structs ---------------------------------------------------------------------------- */

typedef enum weir_member_type {
    WEIR_MEMBER_BOOL = 0,
    WEIR_MEMBER_INT32 = 1,
    WEIR_MEMBER_UINT32 = 2,
    WEIR_MEMBER_INT64 = 3,
    WEIR_MEMBER_UINT64 = 4,
    WEIR_MEMBER_FLOAT = 5,
    WEIR_MEMBER_DOUBLE = 6,
    WEIR_MEMBER_CHOICE = 7,  /* an enum of 4 bytes: choices[value - min] is its name */
    WEIR_MEMBER_STRING = 8,  /* const char *, NUL-terminated, or NULL */
    WEIR_MEMBER_STRINGS = 9, /* const char *const *; its length is the size_t at n_offset */
    WEIR_MEMBER_BIASES = 10, /* const weir_logit_bias *; its length is the size_t at n_offset */
    WEIR_MEMBER_OTHER = 11,  /* a handle or pointer that this header describes */
} weir_member_type;

/* Describes a member of a struct, for bindings, option lists and forms. */
typedef struct weir_member {
    const char *name; /* as in the struct */
    weir_member_type type;
    size_t offset;              /* of the member in the struct, bytes */
    size_t n_offset;            /* of the length of a list, bytes */
    double min, max;            /* allowed range, inclusive; for numeric parameters and choices */
    bool or_minus_one;          /* -1 is also allowed, for "off" or "all" */
    double initial;             /* the default; strings, lists and others default to NULL */
    const char *const *choices; /* NULL-terminated; NULL for other types */
    const char *unit;           /* "tokens", "ms", "bytes" …; "" = none */
    const char *help;           /* one line */
} weir_member;

/* The members of a struct, in its order, without `size` and the lengths of lists. `of` is the struct's name
 * without "weir_" and "_params". Parameters: "model", "quantize", "rpc", "context", "sampler", "chat",
 * "request", "engine", "hub", "media", "pool", "pool_model". Results: "usage", "report", "view", "cost",
 * "slot_view", "tick", "tick_slot", "arrival", "engine_stats", "miss_info", "progress", "pool_info",
 * "pool_stats"; of these only numbers, flags and choices are listed. *n (n may be NULL) is the number of
 * members. NULL: no such struct. Static. */
WEIR_API const weir_member *weir_members(const char *of, size_t *n);

/* The member with this name; NULL: there is none. Static. */
WEIR_API const weir_member *weir_member_find(const char *of, const char *name);

/* ---- Sampler --------------------------------------------------------------------------------------- */

typedef struct weir_sampler weir_sampler;

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
    int32_t min_keep;        /* 0; 0 and up; candidates that top_p, min_p, typical_p and XTC keep, at least */
    float dry_multiplier;    /* 0 = off; 0 … 100 */
    float dry_base;          /* 1.75; 0 … 100 */
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
    const char *json_schema;  /* JSON Schema; not together with grammar */
} weir_sampler_params;

WEIR_API void weir_sampler_params_init(weir_sampler_params *params, size_t size);
static inline weir_sampler_params weir_sampler_params_default(void)
{
    weir_sampler_params params;
    weir_sampler_params_init(&params, sizeof params);
    return params;
}

/* Creates a sampler chain with its own state (history, random numbers, grammar). params may be NULL. Holds
 * the model. Errors: INVALID (field and range), GRAMMAR (line of a GBNF text; JSON pointer and keyword of a
 * schema), UNSUPPORTED (a sampler in `order` needs tokens that the vocabulary lacks), NO_MEMORY, BACKEND. */
WEIR_API WEIR_CHECKED weir_status weir_sampler_create(weir_model *model, const weir_sampler_params *params,
                                                      weir_sampler **sampler, weir_error *error);
WEIR_API void weir_sampler_destroy(weir_sampler *sampler);

/* Restores the state after create; with a fixed seed the same random numbers follow again. */
WEIR_API weir_status weir_sampler_reset(weir_sampler *sampler, weir_error *error);

/* Adds a token that was chosen elsewhere to the history and advances penalties and grammar. REFUSED: the
 * grammar does not allow the token here; the sampler is unchanged. */
WEIR_API weir_status weir_sampler_accept(weir_sampler *sampler, int32_t token, weir_error *error);

/* Adds the prompt's tokens [n] to the history. Penalties and DRY count them like generated tokens; the
 * grammar, which describes the answer only, ignores them. Engines do this for each request. INVALID: a token
 * outside the vocabulary; nothing was added. */
WEIR_API weir_status weir_sampler_count(weir_sampler *sampler, const int32_t *tokens, size_t n,
                                        weir_error *error);

/* ---- Grammar --------------------------------------------------------------------------------------- */

/* Checks a GBNF text without a model. root NULL = "root". GRAMMAR: it cannot be used; the message names the
 * line. */
WEIR_API weir_status weir_grammar_check(const char *grammar, const char *root, weir_error *error);

/* Converts JSON Schema to GBNF. A keyword that cannot be enforced is an error that names its JSON pointer;
 * the result is never weaker than the schema. Free *grammar with weir_free. */
WEIR_API WEIR_CHECKED weir_status weir_grammar_from_json_schema(const char *schema, size_t length,
                                                                char **grammar, weir_error *error);

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

/* Any number of threads may call these functions on one model. Token ids are int32_t; an id outside 0 …
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

/* The raw bytes of one token, which may be part of a code point. */
WEIR_API weir_status weir_piece(const weir_model *model, int32_t token, bool special, char *bytes,
                                size_t capacity, size_t *length, weir_error *error);

/* Whether the token ends generation (EOS, EOT, …). False for ids outside the vocabulary. */
WEIR_API bool weir_is_eog(const weir_model *model, int32_t token);

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

typedef struct weir_adapter_info {
    size_t size;
    const char *path;  /* as given to weir_adapter_load */
    const char *name;  /* general.name of its metadata; "" = none */
    int32_t n_weights; /* matrices of the model that it changes */
    int32_t rank;      /* the largest */
    float alpha;       /* from training: the product is multiplied by scale · alpha / rank; 0 = by scale */
    uint64_t n_bytes;  /* in memory */
    uint64_t identity; /* a checksum of the file; adapters with the same one share cached prefixes */
    /* requests of engines that use this handle: in a slot, and in a queue, as suspended ones are */
    int32_t n_running, n_waiting;
} weir_adapter_info;

/* Fills the first info->size bytes. Strings stay valid while the adapter is held. The counts are momentary.
 * Any thread. */
WEIR_API weir_status weir_adapter_describe(const weir_adapter *adapter, weir_adapter_info *info);

/* An adapter with its scale. */
typedef struct weir_adapter_use {
    weir_adapter *adapter;
    float scale; /* -100 … 100; 1 = as trained; 0 = no effect */
} weir_adapter_use;

#define WEIR_ADAPTERS_MAX 8 /* adapters of one request or context */

/* ---- Images and audio ------------------------------------------------------------------------------ */

/* A weir_media is an image or a sound, decoded: the pixels or samples that a model's projector encodes.
 * Immutable, reference-counted. */

typedef enum weir_media_kind {
    WEIR_MEDIA_IMAGE = 0,
    WEIR_MEDIA_AUDIO = 1,
} weir_media_kind;

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

/* As weir_model_params_init. */
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

typedef struct weir_media_info {
    size_t size;
    weir_media_kind kind;
    const char *format; /* "png", "jpeg", "webp", "wav", "flac" or "mp3" */
    int32_t width;      /* of an image as it is shown, else 0; likewise the next two */
    int32_t height;
    const unsigned char *pixels; /* [height][width][3]: red, green, blue */
    const float *samples;        /* [n_samples], -1 … 1, of a sound, else NULL; likewise the next three */
    uint64_t n_samples;
    int32_t sample_rate; /* of the samples, Hz: that of the parameters */
    double seconds;
    uint64_t n_bytes; /* in memory */
    const char *hash; /* SHA-256, hexadecimal: of kind, sample rate and the file's bytes */
} weir_media_info;

/* Fills the first info->size bytes. Pointers stay valid while the media are held. */
WEIR_API weir_status weir_media_describe(const weir_media *media, weir_media_info *info);

/* ---- Model files and devices ----------------------------------------------------------------------- */

/* Writes an optimized file: the model's weights in the order in which weir's CPU kernels read them. Loads
 * then map this file instead of reordering the weights, and processes share its memory. out NULL = path +
 * ".weir", where loads look for it (weir_model_params.optimized). Needs as much memory as a load and takes
 * longer. progress may be NULL; it is called as in a load. Any thread.
 *
 * An existing optimized file is replaced once the new one is complete; loaded models keep the old one. An
 * existing file that this function did not write is never replaced (INVALID). Loads use an optimized file
 * with use_mmap, without use_mlock and without layers on a GPU. A file that is damaged or belongs to another
 * model, version or processor is not used, and the log has the reason. If the model's file is modified, or
 * copied without its modification time, the optimized file no longer belongs to it. It is trusted like the
 * model, and watched like it while a model uses it.
 *
 * Errors: as weir_model_load; IO (also no space, no permission); UNSUPPORTED (the kernels are off or multiply
 * none of this model's weights). After an error the previous file, if any, is unchanged. */
WEIR_API WEIR_CHECKED weir_status weir_model_optimize(const char *path, const char *out,
                                                      weir_progress_fn progress, void *progress_user,
                                                      weir_error *error);

/* Checks that an optimized file belongs to this model, version and processor, and that all of it is
 * undamaged; loads check only its header. optimized NULL = path + ".weir". Reads the whole file. Any
 * thread. Errors: NOT_FOUND, IO, FORMAT (damaged), UNSUPPORTED (of another model, version or processor),
 * NO_MEMORY, ABORTED, INVALID. */
WEIR_API weir_status weir_model_optimize_check(const char *path, const char *optimized,
                                               weir_progress_fn progress, void *progress_user,
                                               weir_error *error);

typedef struct weir_quantize_params {
    size_t size;
    const char *type;  /* a name that weir_quantize_type returns, in upper or lower case; NULL = "Q8_0" */
    int32_t n_threads; /* 0 … 512; 0 = the processors available to the process */
    /* true: also convert weights that are already quantized, with a worse result than from the original;
     * false: such weights are UNSUPPORTED */
    bool requantize;
    weir_progress_fn progress; /* called as in a load */
    void *progress_user;
} weir_quantize_params;

/* As weir_model_params_init. */
WEIR_API void weir_quantize_params_init(weir_quantize_params *params, size_t size);
static inline weir_quantize_params weir_quantize_params_default(void)
{
    weir_quantize_params params;
    weir_quantize_params_init(&params, sizeof params);
    return params;
}

/* The i-th type to which weights can be converted, the largest first: "F32", "BF16", "F16", "Q8_0" … NULL
 * after the last. Static. */
WEIR_API const char *weir_quantize_type(size_t i);

/* Writes a model with its weights converted to another type; norms and other small tensors keep theirs. The
 * new file gets its name once it is complete, and then replaces an existing one. A model in several files
 * becomes one file. Needs several times the memory of the largest tensor. Blocks for minutes with large
 * models. Any thread. params may be NULL. Errors: as weir_model_load; INVALID (type; out is the model
 * itself, or no regular file), IO (also no space), UNSUPPORTED (see requantize; fake models). After an error
 * an existing file is unchanged. */
WEIR_API WEIR_CHECKED weir_status weir_model_quantize(const char *path, const char *out,
                                                      const weir_quantize_params *params, weir_error *error);

/* The weights of a model that have the same type and are multiplied by the same kernels. */
typedef struct weir_model_weights {
    size_t size;
    char type[16]; /* ggml's name, e.g. "q4_K" */
    int32_t n_tensors;
    uint64_t n_bytes;
    bool kernels;    /* weir's kernels multiply them */
    char reason[64]; /* why weir's kernels do not; "" = they do */
} weir_model_weights;

/* Fills *weights, except `size`, with the i-th group of weights, the largest first. END: after the last, and
 * for models without information on weights (vocab_only, fake models). */
WEIR_API weir_status weir_model_weights_get(const weir_model *model, size_t i, weir_model_weights *weights);

/* Copies the value of a metadata key (scalars and strings) as text, truncated to capacity and NUL-terminated.
 * *length is the full length. NOT_FOUND: no such key. */
WEIR_API weir_status weir_model_meta(const weir_model *model, const char *key, char *text, size_t capacity,
                                     size_t *length);

/* The i-th metadata key, copied likewise. END: after the last. */
WEIR_API weir_status weir_model_meta_key(const weir_model *model, size_t i, char *key, size_t capacity,
                                         size_t *length);

typedef struct weir_device {
    size_t size;
    char name[64];
    char description[128];
    char type[16];         /* "cpu", "gpu", "igpu", "accel" */
    uint64_t memory_free;  /* bytes, 0 = unknown */
    uint64_t memory_total; /* bytes, 0 = unknown */
} weir_device;

/* The i-th device that this build can compute on. END: after the last. UNSUPPORTED: the build cannot run on
 * this processor (see weir_model_load). */
WEIR_API weir_status weir_device_get(size_t i, weir_device *device);

/* A worker: computes layers of models that other machines load with weir_model_params.rpc. */
typedef struct weir_rpc_params {
    size_t size;
    const char *listen; /* "127.0.0.1:50052"; IPv4 address and port */
    /* NULL; names (weir_device_get), separated by commas; NULL or "" = the GPUs, else the CPU */
    const char *devices;
    int32_t n_threads; /* 0 … 512; 0 = the processors available to the process */
    /* A worker neither encrypts nor asks for a key, and anyone who connects can crash it or read its memory.
     * false: only loopback and private addresses (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 169.254.0.0/16)
     * are allowed */
    bool insecure;
} weir_rpc_params;

/* As weir_model_params_init. */
WEIR_API void weir_rpc_params_init(weir_rpc_params *params, size_t size);
static inline weir_rpc_params weir_rpc_params_default(void)
{
    weir_rpc_params params;
    weir_rpc_params_init(&params, sizeof params);
    return params;
}

/* Serves one program at a time, and frees its memory when it disconnects. Returns only on an error, so give
 * it a separate process. The programs must have the same version of llama.cpp. params may be NULL. Errors:
 * INVALID (listen, also an address that is not private; devices; n_threads), IO (listen), UNSUPPORTED (the
 * build has no RPC), BACKEND. */
WEIR_API WEIR_CHECKED weir_status weir_rpc_run(const weir_rpc_params *params, weir_error *error);

/* ---- More about streams ---------------------------------------------------------------------------- */

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

/* The prompt's tokens with their logprobs and the n_prompt_logprobs likeliest alternatives, as a chunk
 * without text, with an entry for each of n_prompt. Where an image or a sound stands, the token is -1; the
 * text after it is scored with it as context. These entries, and the first one, which has no context, have
 * the logprob NAN and alternatives whose token is -1. Pointers stay valid until the last release. Available
 * before the first chunk; any thread, any number of times. TIMEOUT: not yet. END: the request ended before.
 * STATE: not requested, or no request. */
WEIR_API weir_status weir_stream_prompt_logprobs(const weir_stream *stream, weir_chunk *prompt);

/* Writes at most `capacity` of the tokens of the prompt, and their number to *n: what is left of it after
 * truncate_prompt; below zero: in the place of an image or a sound. A fork's prompt includes the answer of
 * its source. tokens may be NULL with capacity 0. Any thread. TOO_LONG: more than capacity. STATE: no
 * request. */
WEIR_API weir_status weir_stream_prompt(const weir_stream *stream, int32_t *tokens, size_t capacity,
                                        size_t *n);

/* Forks a stream: submits *request (NULL = defaults) with the given source and source_at. The source's KV
 * cells are shared while it runs or is cached, unless this model's memory cannot be truncated; otherwise they
 * are computed again. Any thread. Errors: as submit, and INVALID (source: not a stream of this engine;
 * source_at: beyond its chunks), STATE (source: not submitted), REFUSED (sampler: the grammar does not allow
 * the answer so far). */
WEIR_API WEIR_CHECKED weir_status weir_engine_fork(weir_engine *engine, weir_stream *source,
                                                   int32_t source_at, const weir_request *request,
                                                   weir_stream *stream, weir_error *error);

/* For a fork: the source's text up to the fork, which the stream's own text continues; NUL-terminated, valid
 * until the last release. Text that was still held back there (part of a character, or a possible start of a
 * stop string) is not included: the stream's own text begins with it. "" for other streams. length may be
 * NULL. Any thread. */
WEIR_API const char *weir_stream_source_text(const weir_stream *stream, size_t *length);

/* ---- Flight: one generation, many readers ---------------------------------------------------------- */

/* Request coalescing: one generation with any number of readers, each at any position. Identical requests
 * that arrive while it runs, or while someone holds it, share it. It keeps all chunks until its last
 * release. */
typedef struct weir_flight weir_flight;

/* Submits a request as weir_engine_submit does. With share it joins an identical request instead, if there is
 * one that was opened with share, is still held and has not failed; identical means that every field is
 * equal, texts by content. Only reproducible requests are shared: greedy ones (temp 0 and no random sampler)
 * and those with a seed, without a deadline or prompt_logprobs, and no forks. The caller gets one reference.
 * *joined (joined may be NULL) is true when nothing was submitted. Any thread. Errors: as
 * weir_engine_submit. */
WEIR_API WEIR_CHECKED weir_status weir_flight_open(weir_engine *engine, const weir_request *request,
                                                   bool share, weir_flight **flight, bool *joined,
                                                   weir_error *error);

/* Reference counts. The last release cancels a generation that still runs and frees the chunks. A flight may
 * outlive its engine. Any thread. */
WEIR_API weir_flight *weir_flight_hold(weir_flight *flight);
WEIR_API void weir_flight_release(weir_flight *flight);

/* Returns chunk number *at, counted from 0, and increments *at; waits up to timeout_ms for it (negative: no
 * limit). The last chunk is the terminal one; then END. TIMEOUT: not yet. Chunks and their pointers stay
 * valid while the flight is held. If there is no memory for a chunk, the flight ends with WEIR_REASON_ERROR.
 * Any number of threads; another thread must drive a manual engine. STATE: the call would wait and comes from
 * a callback. */
WEIR_API weir_status weir_flight_next(weir_flight *flight, uint64_t *at, int timeout_ms, weir_chunk *chunk);

/* Calls fn for each new chunk, on the thread that drives the engine, once from within watch if a chunk
 * exists, and where weir_stream_watch_progress asks for it. fn must not block, and may call
 * weir_flight_next with timeout 0. Any thread. Errors: INVALID, NO_MEMORY, STATE (called from a watcher of
 * this flight). */
typedef void (*weir_flight_fn)(weir_flight *flight, void *user);
WEIR_API weir_status weir_flight_watch(weir_flight *flight, weir_flight_fn fn, void *user);

/* When it returns, fn is not running with this user (unless called from within it) and will not be called
 * again. Call it before the watcher's last release. Does nothing if fn was not watching. Any thread. */
WEIR_API void weir_flight_unwatch(weir_flight *flight, weir_flight_fn fn, void *user);

/* The flight's stream, for usage, miss, error and status, and as the source of forks. The flight owns it and
 * takes its chunks: reads return STATE. */
WEIR_API weir_stream *weir_flight_stream(const weir_flight *flight);

/* ---- Forecasts and estimates ----------------------------------------------------------------------- */

/* A forecast for a request submitted now. Times are estimates from measured rates, with the tokens that
 * running requests of higher priority leave it; 0 = nothing measured yet. */
typedef struct weir_forecast {
    size_t size;
    int32_t n_prompt;    /* tokens */
    int32_t n_cached;    /* of those, the cached ones */
    int32_t queue_place; /* 0 = a slot is free now, 1 = first in the queue */
    int64_t ttft_ns;     /* from now to the first token */
    int64_t finish_ns;   /* from now to the end, if it generates max_tokens */
    bool fits;           /* false: submit would return TOO_LONG; everything but n_prompt is 0 */
    bool busy;           /* submit would return BUSY */
    int64_t retry_ns;    /* if busy, when to retry; 0 = now */
} weir_forecast;

/* A dry run of submit for one request, with the same checks and errors; TOO_LONG and BUSY are reported in
 * *forecast instead. Nothing is started. Any thread; never waits for a tick. */
WEIR_API WEIR_CHECKED weir_status weir_engine_plan_request(weir_engine *engine, const weir_request *request,
                                                           weir_forecast *forecast, weir_error *error);

/* The memory of an engine, in bytes. */
typedef struct weir_engine_memory {
    size_t size;
    uint64_t model_bytes;     /* weights; if mapped, the system can reclaim them at any time */
    uint64_t kv_bytes;        /* KV cells */
    uint64_t compute_bytes;   /* buffers of a forward pass, with its logits */
    uint64_t available_bytes; /* on this machine now; 0 = unknown */
    int32_t n_slots;
    int32_t n_ctx; /* the longest request, tokens */
    int32_t n_kv;  /* cells in total: fewer than requested if they do not fit into half of the free memory */
    weir_layout layout;
} weir_engine_memory;

/* The memory that weir_engine_create would allocate for a model with these parameters, computed from the
 * model's header: no weights are read and nothing is allocated. Includes draft_model's weights, although they
 * are already loaded, and its cells, and the cells of mtp. Excludes cached prompts (cache_bytes), texts for
 * drafts (lookup_bytes) and a GPU driver's own memory. Either params may be NULL. Any thread. Errors: as
 * weir_model_load and weir_engine_create. */
WEIR_API WEIR_CHECKED weir_status weir_engine_estimate(const char *path, const weir_model_params *model,
                                                       const weir_engine_params *engine,
                                                       weir_engine_memory *memory, weir_error *error);

/* ---- Strategies ------------------------------------------------------------------------------------ */

typedef enum weir_slot_state {
    WEIR_SLOT_IDLE = 0,
    WEIR_SLOT_PREFILLING = 1,
    WEIR_SLOT_GENERATING = 2,
    /* Another slot computes its prefix, a file with it is being read, or its next image or sound is being
     * encoded: until then it gets no tokens, and plans must not name it. */
    WEIR_SLOT_JOINED = 3,
} weir_slot_state;

/* A slot that has work and may run in this tick, as a strategy sees it. */
typedef struct weir_slot_view {
    int32_t slot;
    weir_slot_state state;
    /* tokens to compute before the next is sampled: of the prompt, and after a suspension also the tokens
     * generated before; 0 while generating */
    int32_t n_prompt_left;
    int32_t n_prompt;
    int32_t n_generated;
    int64_t waited_ns;   /* since submit */
    int32_t n_past;      /* tokens in the KV cache, to which the next one attends */
    int32_t n_draft;     /* draft tokens that may be verified with the next token */
    int32_t priority;    /* of the request; higher first */
    int32_t lane;        /* the sequence that holds its cells */
    int64_t idle_ns;     /* since its last token; 0 while prefilling */
    int64_t deadline_ns; /* time left until its deadline; INT64_MAX = none */
    /* the most prompt tokens that this slot computes in this tick, even if the plan gives it more: fewer
     * while prompt tokens are scored (prompt_logprobs), before an image or sound, and while or shortly after
     * requests of higher priority run; 0 = no limit */
    int32_t limit;
} weir_slot_view;

/* The cost of a tick on this machine, learned from previous ticks: pass_ns per forward pass + decode_ns per
 * decoded token + prefill_ns per prompt token + context_ns per 1,024 tokens that one of them attends to. None
 * is negative. Before there is data it is an estimate for a slow machine. */
typedef struct weir_cost {
    double pass_ns;
    double decode_ns;
    double prefill_ns;
    double context_ns;
    double spread;   /* relative standard deviation of recent ticks from this model; 0.1 = 10 % */
    int32_t n_ticks; /* ticks measured; 0 = no data */
} weir_cost;

/* A pass has one set of adapters. If requests use different sets, the sets take turns, one per tick. Of the
 * slots that can run, the view lists only those whose set of adapters has this tick, without prompts that are
 * held back for requests of higher priority. */
typedef struct weir_view {
    const weir_slot_view *slots; /* [n_slots], oldest request first */
    size_t n_slots;
    int32_t budget;     /* tokens per tick, at most (n_batch) */
    int32_t chunk_size; /* prompt tokens of one slot per tick, at most */
    int32_t queue_depth;
    int32_t n_ubatch; /* tokens per pass, at most */
    /* WEIR_LAYOUT_PER_SLOT: lanes with unequal numbers of tokens take several passes */
    weir_layout layout;
    /* target for the length of a tick: itl_target_ms, divided by the number of adapter sets while these take
     * turns */
    int64_t itl_target_ns;
    weir_cost cost;
} weir_view;

typedef struct weir_plan_entry {
    int32_t slot;
    int32_t n_tokens; /* 1 … 1 + n_draft for a generating slot; up to min(n_prompt_left, chunk_size) for a
                       * prefilling one */
} weir_plan_entry;

/* Decides how many tokens each slot gets in a tick that has slots with work. plan is [view->n_slots]; returns
 * the number of entries written. A pure function that runs on the engine's thread and must not block. An
 * invalid plan is replaced by decode-maximal's for that tick and counted (n_bad_plans): over budget, a slot
 * named twice or without work, an entry outside its limits, more entries than view->n_slots, or no entry
 * although there is work. */
typedef struct weir_strategy {
    const char *name;
    size_t (*plan)(const weir_view *view, weir_plan_entry *plan, void *user);
    void *user;
} weir_strategy;

/* Built-in strategies; static. In all of them a generating slot gets one token, the one that has waited
 * longest first if the budget is short. Drafts use the remaining budget, or half of it if there are prompts.
 * Prompts go by priority and then by age; a quarter of their tokens goes to the oldest whatever its priority,
 * so that none starves. */

/* "decode-maximal": generating slots first; prompts share the remaining budget. */
WEIR_API const weir_strategy *weir_strategy_decode_maximal(void);

/* "prefill-priority": prompts first; one token of the budget is reserved for generating slots. */
WEIR_API const weir_strategy *weir_strategy_prefill_priority(void);

/* "balanced": half of the budget each; either may use what the other leaves. */
WEIR_API const weir_strategy *weir_strategy_balanced(void);

/* "latency-target": generating slots first, then as many prompt tokens as keep 19 of 20 ticks within
 * itl_target_ns according to the learned cost and its spread. So that prompts progress, a tick has at least
 * 16 prompt tokens; or fewer, down to 4, if these take a quarter as long as the rest of the tick (a fifth of
 * the tick). If the tick would miss the target even so, by a factor f, they may take f³ times as long, but at
 * most twice as long as the rest (two thirds of the tick). Without generating slots, prompts have the whole
 * budget. */
WEIR_API const weir_strategy *weir_strategy_latency_target(void);

/* The strategy with this name; NULL = none, or name is NULL. */
WEIR_API const weir_strategy *weir_strategy_find(const char *name);

/* The i-th strategy; NULL after the last. */
WEIR_API const weir_strategy *weir_strategy_get(size_t i);

/* The cost of a tick in ns, for custom strategies. n_context_k: the sum over all rows of the tokens that each
 * attends to, in units of 1,024. Any thread. */
WEIR_API double weir_cost_tick_ns(const weir_cost *cost, int32_t n_passes, int32_t n_decode,
                                  int32_t n_prefill, double n_context_k);

/* The same for a plan, whose passes, rows and context follow from the view. Entries for slots that are not in
 * the view are ignored. Any thread. */
WEIR_API double weir_plan_tick_ns(const weir_view *view, const weir_plan_entry *plan, size_t n_plan);

/* ---- Statistics and ticks -------------------------------------------------------------------------- */

/* A histogram of seconds or counts. All histograms have the same bounds: they can be added bucket by bucket,
 * and the difference of two copies covers the time between them. */
#define WEIR_HISTOGRAM_BUCKETS 162

typedef struct weir_histogram {
    uint64_t count;
    double sum;
    uint64_t buckets[WEIR_HISTOGRAM_BUCKETS]; /* [i]: above bound(i - 1), up to bound(i) */
} weir_histogram;

/* The largest value of bucket i: 2^-20 for the first; each next one is at most a quarter larger; 1, 2, 3 …
 * 8 are among them; infinity for the last bucket and beyond. Pure. */
WEIR_API double weir_histogram_bound(size_t i);

/* The q-quantile (q: 0 … 1), interpolated linearly within its bucket; whole numbers up to 8 are exact when
 * rounded up. 0 if the histogram is empty. Pure. */
WEIR_API double weir_histogram_quantile(const weir_histogram *histogram, double q);

typedef struct weir_engine_stats {
    size_t size;
    int32_t n_slots;
    int32_t n_slots_prefilling;
    int32_t n_slots_generating;
    int32_t queue_depth;
    int32_t n_ctx;         /* the longest request, tokens, as allocated */
    int32_t n_kv;          /* KV cells in total, as allocated */
    int32_t n_kv_used;     /* cells that hold tokens */
    int32_t n_kv_cached;   /* of those, the cells that no request needs; freed when one does */
    int32_t n_kv_reserved; /* n_kv_used plus the cells that the slots will need soon; at most n_kv */
    int32_t n_batch;
    int32_t n_ubatch;
    weir_layout layout;
    uint64_t n_submitted;
    uint64_t n_refused;          /* because the queue was full */
    uint64_t n_finished[8];      /* by weir_reason */
    uint64_t n_prompt_tokens;    /* computed */
    uint64_t n_generated_tokens; /* sampled */
    uint64_t n_ticks;
    uint64_t n_bad_plans;
    uint64_t n_failed_ticks; /* ticks whose forward pass failed */
    /* ticks whose forward pass was abandoned for a request of higher priority, to be computed again */
    uint64_t n_abandoned_ticks;
    int64_t tick_ns;          /* of the last tick */
    int64_t decode_ns;        /* of all forward passes */
    int64_t busy_ns;          /* of all ticks; minus decode_ns, it is weir's own time */
    uint64_t kv_bytes;        /* of all KV cells, as allocated */
    uint64_t cache_bytes;     /* host memory in use, of params.cache_bytes */
    int32_t n_cache_entries;  /* cached prefixes, in sequences and in host memory */
    uint64_t n_cached_tokens; /* prompt tokens taken from the cache */
    uint64_t n_misses[7];     /* requests by weir_miss, as it is, whatever their callers were told */
    uint64_t n_evicted;       /* cache entries removed to make room */
    uint64_t n_joined;        /* requests that waited for another request's prefill */
    int32_t n_suspended;      /* suspended requests; included in queue_depth */
    uint64_t n_suspensions;
    uint64_t n_resumes;
    int64_t retry_ns; /* how long a BUSY submit should wait for one place in the queue */
    /* n_finished[WEIR_REASON_CANCELLED] by the state of the request at the cancel; a suspended request counts
     * as queued */
    uint64_t n_cancelled_queued;
    uint64_t n_cancelled_prefilling;
    uint64_t n_cancelled_generating;
    weir_histogram queue_seconds; /* from submit to first slot, of requests that got one */
    weir_histogram ttft_seconds;  /* from submit to first token */
    /* between chunks of a stream, as the engine emits them, read or not; a chunk may have several tokens */
    weir_histogram itl_seconds;
    weir_histogram tick_seconds;
    weir_histogram batch_tokens; /* tokens of each tick, even if its pass failed */
    weir_histogram passes;       /* forward passes that each tick's batch needs with n_ubatch and layout */
    int32_t n_cache_files;       /* prefixes in cache_dir */
    uint64_t cache_disk_bytes;   /* of all files in cache_dir */
    uint64_t n_cache_restored;   /* times a file was read for a request */
    uint64_t n_encodes;          /* segments of images and sounds that were encoded */
    uint64_t n_encodes_saved;    /* segments already encoded, or being encoded, when a request needed them */
    int64_t encode_ns;           /* time of all encodes, including cancelled and failed ones */
    uint64_t embedding_bytes;    /* of embeddings kept for later requests; part of cache_bytes */
    uint64_t n_drafted;          /* draft tokens that were verified */
    uint64_t n_accepted;         /* of those, the accepted ones */
    uint64_t n_adapter_changes;  /* passes whose adapters differ from the previous pass's */
    /* The sources of draft tokens: "lookup", "model", "eagle3", "mtp", in this order and joined by '+'; "" =
     * none */
    char drafters[24];
    /* as in weir_context_info: answers do not depend on other requests, drafts or the cache */
    bool batch_invariant;
    bool attention_kernels;      /* as in weir_context_info: weir's kernels compute attention */
    weir_histogram tpot_seconds; /* as itl_seconds per token: each of a chunk's tokens has its share */
} weir_engine_stats;

/* Copies the statistics, which the engine updates between the phases of a tick. Any thread; never waits for a
 * forward pass. */
WEIR_API weir_status weir_engine_get_stats(const weir_engine *engine, weir_engine_stats *stats);

/* An engine records its last 4,096 ticks, without text or token ids, in three series: ticks, the slots' parts
 * in them, and arrivals. Each series is numbered from 0 without gaps. Times are nanoseconds on the monotonic
 * clock (CLOCK_MONOTONIC). */
typedef struct weir_tick {
    uint64_t serial; /* its number: n_ticks before it */
    int64_t start_ns;
    int64_t decode_ns;   /* of its forward passes */
    int64_t work_ns;     /* from plan to last chunk; the cost model learns from it; 0 = the pass failed or was
                          * abandoned */
    int64_t tick_ns;     /* of the whole tick */
    uint64_t n_arrived;  /* requests below this number had arrived when slots were assigned */
    uint64_t first_slot; /* the serial of its first weir_tick_slot */
    int32_t n_slots;     /* the number of its weir_tick_slots */
    int32_t n_prefill;   /* prompt tokens computed */
    int32_t n_decode;    /* generated tokens computed, without drafts */
    int32_t n_passes;    /* forward passes, as in weir_engine_stats.passes */
    int32_t queue_depth; /* after the tick */
    int32_t n_kv_used;   /* after the tick */
    bool bad_plan;       /* the strategy's plan was replaced */
    bool failed;         /* the forward pass failed */
    int32_t n_drafted;   /* draft tokens verified, not in n_decode */
    int32_t n_accepted;  /* of those, the accepted ones */
    bool abandoned;      /* the forward pass was abandoned for a request of higher priority */
} weir_tick;

/* A slot's part in a tick: one item for each slot that had work in the tick, in order of slot numbers. Before
 * them come the events since the previous tick, in the order in which they happened: requests that were
 * suspended or resumed, and requests that ended without taking part in this tick (by cancel, deadline or
 * stop). */
typedef struct weir_tick_slot {
    uint64_t serial;       /* its number */
    uint64_t tick;         /* the serial of its tick; for events between two ticks, of the later one */
    uint64_t request;      /* as in weir_arrival */
    int64_t end_ns;        /* when the request ended; 0 = not in this tick */
    int32_t slot;          /* -1 = it ended in the queue, perhaps suspended */
    weir_slot_state state; /* when planned, suspended or resumed; likewise the next two */
    int32_t n_tokens;      /* tokens in this tick; 0 = none */
    int32_t n_past;        /* its tokens in the KV cache */
    int32_t n_prompt;
    int32_t n_cached;    /* prompt tokens taken from the cache */
    int32_t n_generated; /* after the tick */
    weir_reason reason;  /* why the request ended */
    bool suspended;      /* it lost the slot; n_past: the tokens it had then */
    bool resumed;        /* it got this slot; n_past: the tokens restored; 0 = all are computed again */
    int32_t n_drafted;   /* of n_tokens, the draft tokens */
    int32_t n_accepted;  /* of those, the accepted ones */
} weir_tick_slot;

typedef struct weir_arrival {
    uint64_t request; /* its number, in the order in which requests were queued */
    int64_t submit_ns;
    int32_t n_prompt;
    int32_t max_tokens; /* tokens that it may generate, at most */
    int32_t priority;
} weir_arrival;

/* Copies the items of a series from number `from` on, at most `capacity`; *n is the number of items, which
 * are in order and without gaps. If the first item has a larger number than `from`, the reader was late, and
 * the items between were overwritten. To continue, pass the number of the last item + 1. A tick and its parts
 * appear when the tick is over, possibly after its chunks were taken. Parts cover the last 4,096 ticks if up
 * to 32 slots have work in each, otherwise fewer ticks. Any number of readers, any thread; never waits for a
 * forward pass. END: nothing new; *n is 0. With capacity 0 the result is always OK and *n is 0; the items may
 * then be NULL. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_engine_ticks(const weir_engine *engine, uint64_t from, weir_tick *ticks,
                                       size_t capacity, size_t *n);
WEIR_API weir_status weir_engine_tick_slots(const weir_engine *engine, uint64_t from, weir_tick_slot *slots,
                                            size_t capacity, size_t *n);
WEIR_API weir_status weir_engine_arrivals(const weir_engine *engine, uint64_t from, weir_arrival *arrivals,
                                          size_t capacity, size_t *n);

/* Where cached tokens are. */
typedef enum weir_cache_memory {
    WEIR_CACHE_DEVICE = 0, /* in KV cells */
    WEIR_CACHE_HOST = 1,   /* in host memory, as a saved state */
    WEIR_CACHE_DISK = 2,   /* in cache_dir */
} weir_cache_memory;
#define WEIR_CACHE_MEMORIES 3

/* Reports that a block of weir_engine_params.cache_block tokens was added to a memory or removed from it. */
typedef struct weir_cache_change {
    uint64_t id;     /* of its tokens together with all before them, the same in every engine; not 0 */
    uint64_t parent; /* the block before it; 0 = it is a prompt's first */
    weir_cache_memory memory;
    bool stored; /* false: removed */
} weir_cache_change;

/* Returns the changes of the prefix cache since the last call, at most `capacity`, with the tokens of each
 * changed block (of prompts and answers) in tokens [capacity × cache_block]; for routers that send a request
 * to the server that has its prefix. Repeat the call until END. Only whole blocks before the first image or
 * sound are reported, and only for requests without cache_salt and adapters; for a running request, only the
 * computed ones. A block is stored after its parent. There is one reader, and each change is reported once. A
 * late reader gets only the net difference since its last call. all = true starts over: the call reports
 * everything that is cached, as if nothing had been reported before. Pass all = false in the calls that
 * continue. Any thread; never waits for a forward pass. END: nothing changed; *n is 0. INVALID: a pointer is
 * NULL. STATE: cache_block is 0. After an error nothing was reported, and *n is 0. */
WEIR_API weir_status weir_engine_cache_changes(weir_engine *engine, bool all, weir_cache_change *changes,
                                               int32_t *tokens, size_t capacity, size_t *n);

/* Copies the tokens of a cached block and of all blocks before it to tokens [capacity]; *n is their number.
 * Any thread. NOT_FOUND: no such block is cached; TOO_LONG: more than capacity; STATE: cache_block is 0;
 * INVALID: a pointer is NULL. */
WEIR_API weir_status weir_engine_block_tokens(const weir_engine *engine, uint64_t id, int32_t *tokens,
                                              size_t capacity, size_t *n);

/* ---- Cached prefixes for other engines ------------------------------------------------------------- */

/* A cached prefix as bytes: its tokens, its salt and its state, with checksums. An engine of the same model
 * (the same file, by its content), the same KV types and the same version of weir and llama.cpp uses it as if
 * it had computed it, whatever its layout and threads; others refuse it. Like files of cache_dir the bytes
 * are checked for damage, not for forgery: take them only from engines that you trust. One thread at a time
 * may use a snapshot. */
typedef struct weir_snapshot weir_snapshot;

/* Creates an empty snapshot for the longest cached prefix of tokens [n_tokens] with this salt (cache_salt of
 * requests; NULL = none). Leave out a prompt's last token, which is always computed. Export and write refuse
 * a prefix of more than most_bytes. The snapshot belongs to this engine, but does not hold it. Errors:
 * INVALID, NO_MEMORY. */
WEIR_API WEIR_CHECKED weir_status weir_snapshot_create(const weir_engine *engine, const int32_t *tokens,
                                                       size_t n_tokens, const char *salt, size_t salt_length,
                                                       uint64_t most_bytes, weir_snapshot **snapshot,
                                                       weir_error *error);
WEIR_API void weir_snapshot_destroy(weir_snapshot *snapshot); /* NULL is ignored */

/* The number of its tokens that the engine has cached, or is computing now. */
WEIR_API int32_t weir_snapshot_known(const weir_snapshot *snapshot, const weir_engine *engine);

/* Copies the longest cached prefix from the engine between two of its ticks; all requests wait during the
 * copy. The cache does not change, except that an entry may leave the KV cells to make room for a copy of
 * part of another one. A manual engine must be driven by another thread, here and in import. Errors:
 * NOT_FOUND: no more than more_than of the tokens are cached; TOO_LONG (most_bytes); BUSY: requests occupy
 * all sequences; NO_SPACE: no cells for a part; TIMEOUT: the engine was busy for timeout_ms (negative: no
 * limit); STATE (also from a callback of the engine); STOPPED; UNSUPPORTED; ABORTED (weir_interrupt_set);
 * NO_MEMORY. After an error the snapshot is empty. */
WEIR_API WEIR_CHECKED weir_status weir_snapshot_export(weir_snapshot *snapshot, weir_engine *engine,
                                                       int32_t more_than, int timeout_ms, weir_error *error);

/* The number of tokens and of all bytes; 0 until they are known. */
WEIR_API int32_t weir_snapshot_length(const weir_snapshot *snapshot);
WEIR_API uint64_t weir_snapshot_bytes(const weir_snapshot *snapshot);

/* Copies the bytes [at, at + n) of an exported snapshot; returns their number, less than n at the end. */
WEIR_API size_t weir_snapshot_read(const weir_snapshot *snapshot, uint64_t at, void *bytes, size_t n);

/* Appends bytes of another engine's snapshot to one that was created empty, and checks them as they come.
 * Errors: FORMAT: they are damaged, too many, or belong to another text or salt; UNSUPPORTED: they belong to
 * another model, KV type or version, or the prefix is longer than the context; TOO_LONG (most_bytes); STATE;
 * NO_MEMORY. After an error the snapshot can only be destroyed. */
WEIR_API WEIR_CHECKED weir_status weir_snapshot_write(weir_snapshot *snapshot, const void *bytes, size_t n,
                                                      weir_error *error);

/* Adds a completely written snapshot to the engine's cache. The prefix is cached in host memory, within
 * cache_bytes (other entries may be evicted for it), and the next request with this prompt uses it. OK also
 * if the engine has cached the prefix in the meantime. The cache takes the content out of the snapshot, which
 * can then only be destroyed. NO_SPACE: cache_bytes is too small; TIMEOUT, STATE, STOPPED, UNSUPPORTED (this
 * engine caches none), ABORTED and NO_MEMORY as in export. */
WEIR_API WEIR_CHECKED weir_status weir_snapshot_import(weir_snapshot *snapshot, weir_engine *engine,
                                                       int timeout_ms, weir_error *error);

/* ---- Driving the engine by hand -------------------------------------------------------------------- */

typedef struct weir_report {
    size_t size;
    int32_t n_prefill;   /* prompt tokens computed */
    int32_t n_decode;    /* generated tokens computed, without drafts */
    int32_t n_active;    /* slots with work after the tick */
    int32_t queue_depth; /* after the tick */
    int64_t decode_ns;   /* of its forward passes */
    int64_t tick_ns;     /* of the whole tick */
    bool bad_plan;       /* the plan was replaced */
    bool idle;         /* there was nothing to do; slots with work (n_active) wait for an encode or a file */
    int32_t n_drafted; /* draft tokens verified */
} weir_report;

/* Runs the first three phases of a tick (collect, finish, admit) and returns the view for a plan, valid until
 * the next view or step. For the thread that drives a manual engine; STATE otherwise. */
WEIR_API weir_status weir_engine_view(weir_engine *engine, const weir_view **view, weir_error *error);

/* Runs one tick. plan [n_plan], as a strategy returns it, is for the last view; the tick then admits no
 * requests. Entries for slots that ended since the view, and tokens for drafts lost since, are left out; this
 * does not make the plan invalid. plan NULL = the engine's strategy. report may be NULL. A failed pass ends
 * the streams that took part, and the step returns OK. One thread at a time drives the engine. STATE: another
 * thread is driving it, or the engine has its own thread. */
WEIR_API weir_status weir_engine_step(weir_engine *engine, const weir_plan_entry *plan, size_t n_plan,
                                      weir_report *report, weir_error *error);

/* ---- Pool: several models under one budget --------------------------------------------------------- */

/* A list of named models that share a memory budget. A lease loads its model if necessary and keeps it
 * loaded. If memory is short, the pool puts models without a lease to sleep, the least recently used first,
 * but never pinned ones. Any number of threads may use a pool; it has two threads of its own. No call waits
 * for a load or a forward pass, except weir_lease_wait and weir_pool_destroy. */
typedef struct weir_pool weir_pool;
typedef struct weir_lease weir_lease;

typedef enum weir_pool_state {
    WEIR_POOL_UNLOADED = 0, /* never loaded, or unloaded by weir_pool_unload */
    WEIR_POOL_LOADING = 1,
    WEIR_POOL_LOADED = 2,
    WEIR_POOL_SLEEPING = 3, /* weights and cells are freed; cached prefixes are in the cache_dir */
    WEIR_POOL_LEAVING = 4,  /* gets no new leases; once the present ones have ended, its prefixes are written,
                             * and it sleeps or is unloaded */
    WEIR_POOL_FAILED = 5,   /* the last load failed; the next lease tries again */
} weir_pool_state;

/* "unloaded", "loading", … Static. */
WEIR_API const char *weir_pool_state_name(weir_pool_state state);

/* The kind of a model, from its header. */
typedef enum weir_pool_kind {
    WEIR_POOL_KIND_UNKNOWN = 0, /* not read yet, or it cannot be read */
    WEIR_POOL_KIND_TEXT = 1,    /* has an engine */
    WEIR_POOL_KIND_EMBEDDING = 2,
    WEIR_POOL_KIND_RANKING = 3, /* scores documents; if it can generate, it has an engine as well */
} weir_pool_kind;

/* "unknown", "text", "embedding", "ranking". Static. */
WEIR_API const char *weir_pool_kind_name(weir_pool_kind kind);

/* Called before a model without leases is unloaded, on a thread of the pool or within weir_pool_destroy. It
 * must release everything else that the caller holds of the model (contexts, chats, streams, adapters), or
 * the weights stay in memory. It must not call the pool. */
typedef void (*weir_pool_leaving_fn)(weir_model *model, void *user);

typedef struct weir_pool_params {
    size_t size;
    /* For all models: weights, KV cells, buffers, adapters, cached prefixes in host memory (cache_bytes) and
     * texts for drafts. WEIR_AUTO (default) = nine tenths of the memory available at create, and less when
     * less is available or a cgroup allows less; 0 = no limit */
    uint64_t memory_bytes;
    /* The cache_dir of all engines: prefixes of models that sleep. NULL (default) = a new folder in $TMPDIR
     * or /tmp, which destroy removes; pinned models do not use that one. "" = none */
    const char *cache_dir;
    uint64_t cache_disk_bytes;    /* 4 GiB; as the engine's parameter */
    int32_t queue_limit;          /* 256; 0 … 2^20; leases that may wait; 0 = no limit */
    weir_pool_leaving_fn leaving; /* NULL */
    void *leaving_user;
} weir_pool_params;

WEIR_API void weir_pool_params_init(weir_pool_params *params, size_t size);
static inline weir_pool_params weir_pool_params_default(void)
{
    weir_pool_params params;
    weir_pool_params_init(&params, sizeof params);
    return params;
}

/* A model of the list. Everything is copied, apart from engine->strategy, which must outlive the pool. */
typedef struct weir_pool_model {
    size_t size;
    const char *name;           /* 1 … WEIR_POOL_NAME_MAX bytes, aliases too */
    const char *const *aliases; /* [n_aliases], at most 64; other names for leases */
    size_t n_aliases;
    const char *path;               /* as in weir_model_load; "" = INVALID */
    const weir_model_params *model; /* NULL = defaults; `progress` must be NULL */
    /* NULL = defaults; draft_model and cache_dir must be NULL, manual must be false. cache_bytes WEIR_AUTO =
     * a quarter of the model's weights, cells and buffers; for a model that is alone in the list, a quarter
     * of the memory that the budget leaves beside it */
    const weir_engine_params *engine;
    const char *draft_path;      /* the engine's draft_model, loaded with the model; NULL = none */
    const char *const *adapters; /* [n_adapters], at most 64; files of LoRA adapters, loaded with the model */
    size_t n_adapters;
    bool pinned;     /* false; loaded by weir_pool_set, and never put to sleep */
    int64_t idle_ms; /* 0; put to sleep this long after its last lease; 0 = when memory is needed */
    /* For a model that generates, as in weir_chat_check, with which the load fails; NULL = not checked, "" =
     * the model's own templates */
    const char *template_source;
} weir_pool_model;

WEIR_API void weir_pool_model_init(weir_pool_model *model, size_t size);
static inline weir_pool_model weir_pool_model_default(void)
{
    weir_pool_model model;
    weir_pool_model_init(&model, sizeof model);
    return model;
}

/* Creates a pool without models; the caller destroys it. params may be NULL. Errors: INVALID, NO_MEMORY.
 * Engines check the cache_dir when they are created. If a private folder cannot be created, a warning is
 * logged, and prefixes are lost when a model sleeps. */
WEIR_API WEIR_CHECKED weir_status weir_pool_create(const weir_pool_params *params, weir_pool **pool,
                                                   weir_error *error);

/* Ends waiting leases with STOPPED and loads in progress, waits until every lease has been released, and
 * destroys the engines. No other call on the pool may be running, apart from those on its leases. STATE:
 * called from a ready function; nothing was done. NULL is OK. */
WEIR_API weir_status weir_pool_destroy(weir_pool *pool);

/* Replaces the list [n], at most 1024. models[0].size is the stride of the array. A model that is in both
 * lists with the same name and parameters stays as it is; aliases, pinned and idle_ms may differ. Other
 * models of the former list get no new leases, and are unloaded when the present ones have been released.
 * Waiting leases keep their places and get the model that now has their name; if there is none, they end with
 * NOT_FOUND. Reads no files. Errors: INVALID (field models[i].MEMBER, or models for a name or alias that is
 * taken twice), NO_MEMORY; nothing has changed. */
WEIR_API WEIR_CHECKED weir_status weir_pool_set(weir_pool *pool, const weir_pool_model *models, size_t n,
                                                weir_error *error);

/* Replaces memory_bytes; the same value changes nothing. If the models take more than the new budget, the
 * pool puts models without a lease to sleep, the least recently used first, but never pinned ones. It loads
 * no model until the rest fits. Models with leases are not affected. With WEIR_AUTO the same happens within a
 * second after the available memory has shrunk. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_pool_set_memory(weir_pool *pool, uint64_t memory_bytes, weir_error *error);

/* Asks for a model by name or alias, and returns at once. If it is not loaded, the lease waits in order of
 * arrival, at most timeout_ms (negative: no limit). A caller that waits for a lease while it holds another
 * may block itself, because its own lease may occupy the memory; the timeout ends this. The caller releases
 * the lease, also one that fails later. Errors: NOT_FOUND, BUSY (queue_limit leases wait), NO_MEMORY, STOPPED
 * (the pool is being destroyed), INVALID; *lease is unchanged. */
WEIR_API WEIR_CHECKED weir_status weir_lease_create(weir_pool *pool, const char *name, int timeout_ms,
                                                    weir_lease **lease, weir_error *error);

/* Waits up to timeout_ms (negative: no limit). OK: the model is loaded, and stays so until the release.
 * TIMEOUT: not yet. Otherwise the lease has failed and can only be released: BUSY (the lease's own timeout
 * has passed), TOO_LONG (the model needs more memory than the budget leaves beside pinned models; the message
 * has both sizes), NOT_FOUND (no such file, or removed by weir_pool_set), STOPPED, and the errors of
 * weir_model_load, weir_adapter_load and weir_engine_create. STATE: the call would wait and comes from a
 * ready function. Any thread. */
WEIR_API weir_status weir_lease_wait(weir_lease *lease, int timeout_ms, weir_error *error);

/* Called once, when weir_lease_wait no longer returns TIMEOUT: on the pool's thread, or at once within
 * weir_lease_set_ready. It must be quick; it may call the functions of leases, and release this one. */
typedef void (*weir_lease_fn)(weir_lease *lease, void *user);

/* Sets the ready function, once. STATE: it was set before. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_lease_set_ready(weir_lease *lease, weir_lease_fn fn, void *user);

/* Parts of a lease for which weir_lease_wait has returned OK; NULL otherwise. Borrowed until the release.
 * weir_lease_engine is NULL if the model cannot generate (an encoder). weir_lease_adapter: the i-th of
 * weir_pool_model.adapters, NULL = there is none. */
WEIR_API weir_model *weir_lease_model(const weir_lease *lease);
WEIR_API weir_engine *weir_lease_engine(const weir_lease *lease);
WEIR_API weir_adapter *weir_lease_adapter(const weir_lease *lease, size_t i);

/* Ends the lease, in any state. Release it when the model's last stream has ended: streams that still run
 * when the model is put to sleep end with WEIR_STOPPED. If no other lease waits for a load, it is aborted.
 * Waits for a ready function that runs on another thread. NULL is ignored. */
WEIR_API void weir_lease_release(weir_lease *lease);

/* Counts memory that the caller takes beside a loaded model, such as a context of it, in the model's part of
 * the budget, in place of what an earlier call counted; 0 = none any more. It ends when the model is
 * unloaded. BUSY: other models take the memory; those without a lease are put to sleep now, so try again.
 * TOO_LONG: the budget has not so much beside this model and pinned ones; the message has the sizes. STATE:
 * the model is not loaded by this pool. INVALID: a pointer is NULL. After an error nothing more is counted.
 * Any thread. */
WEIR_API weir_status weir_pool_reserve(weir_pool *pool, const weir_model *model, uint64_t n_bytes,
                                       weir_error *error);

/* Asks the pool to load a model as soon as there is memory for it without waiting for leases to end. If the
 * model is loaded but waits to be unloaded, that unload is cancelled. Returns at once; weir_pool_find has
 * state, progress and error. NOT_FOUND: no such name. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_pool_load(weir_pool *pool, const char *name, weir_error *error);

/* Unloads a model, pinned ones too, when its present leases have been released, and returns at once. A load
 * in progress is aborted unless leases wait for it; then the model is loaded and stays. A later lease loads
 * it again. Its files in the cache_dir stay. NOT_FOUND: no such name. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_pool_unload(weir_pool *pool, const char *name, weir_error *error);

#define WEIR_POOL_NAME_MAX 255 /* bytes of a name or alias */

typedef struct weir_pool_info {
    size_t size;
    char name[WEIR_POOL_NAME_MAX + 1];
    weir_pool_state state;
    weir_pool_kind kind;
    float progress; /* of the load, 0 … 1 */
    /* its part of the budget while it is loading, loaded or leaving; otherwise the part that it would take,
     * by weir_engine_estimate; 0 = not known yet, or the file cannot be read */
    uint64_t n_bytes;
    int32_t n_leases;
    int32_t n_waiting;   /* leases */
    uint64_t n_loads;    /* that succeeded */
    uint64_t n_failures; /* loads that failed */
    int64_t load_ms;     /* duration of the last load; 0 = none */
    int32_t n_ctx;       /* the longest request, tokens; 0 = not known yet */
    bool pinned;
    weir_status status; /* of the last load; WEIR_OK before the first */
    char message[448];  /* its error; "" = none */
} weir_pool_info;

/* The i-th model of the list, or the one with this name or alias. Fills the first info->size bytes. END: i is
 * past the last. NOT_FOUND: no such name. INVALID: size, or a pointer is NULL. */
WEIR_API weir_status weir_pool_get(weir_pool *pool, size_t i, weir_pool_info *info);
WEIR_API weir_status weir_pool_find(weir_pool *pool, const char *name, weir_pool_info *info);

typedef struct weir_pool_stats {
    size_t size;
    uint64_t memory_bytes; /* the budget, as it was last read or set; UINT64_MAX = no limit */
    uint64_t used_bytes;   /* of it, including models that are no longer in the list but have leases */
    int32_t n_models;
    int32_t n_loaded;
    int32_t n_leases;
    int32_t n_waiting;
    uint64_t n_loads;
    uint64_t n_failures;
    uint64_t n_sleeps; /* models put to sleep, for memory or idle */
} weir_pool_stats;

/* Fills the first stats->size bytes. INVALID: size, or a pointer is NULL. */
WEIR_API weir_status weir_pool_get_stats(weir_pool *pool, weir_pool_stats *stats);

/* ---- Context: the low level ------------------------------------------------------------------------ */

/* A KV cache and its logits without scheduler and queue: the caller runs each forward pass. One thread at a
 * time may use a context; calls that compute block for a forward pass or more. */
typedef struct weir_context weir_context;

typedef enum weir_pooling {
    WEIR_POOLING_UNSPECIFIED = -1, /* the model's own */
    WEIR_POOLING_NONE = 0,         /* one embedding per token */
    WEIR_POOLING_MEAN = 1,
    WEIR_POOLING_CLS = 2,
    WEIR_POOLING_LAST = 3,
    WEIR_POOLING_RANK = 4, /* scores of a reranking model */
} weir_pooling;

typedef struct weir_context_params {
    size_t size;
    int32_t n_ctx; /* 2048; 0 … 2^30; KV cells in total; 0 = the model's training length */
    /* 0; 0 … 2^30; tokens per forward pass, at most; 0 = n_ctx. With embeddings it is rounded to a multiple
     * of n_seq_max; weir_context_info has the result */
    int32_t n_batch;
    int32_t n_ubatch;        /* 512; 1 … 2^30; tokens computed at once, at most (the physical batch) */
    int32_t n_seq_max;       /* 1; 1 … 256; number of sequences */
    int32_t n_threads;       /* 0; 0 … 512; 0 = the processors available to the process */
    int32_t n_threads_batch; /* 0; 0 … 512; 0 = n_threads */
    weir_layout layout;      /* WEIR_LAYOUT_AUTO */
    weir_kv_type type_k;
    weir_kv_type type_v;
    bool embeddings; /* for the functions of the section Embeddings; no logits are computed */
    weir_pooling pooling;
} weir_context_params;

WEIR_API void weir_context_params_init(weir_context_params *params, size_t size);
static inline weir_context_params weir_context_params_default(void)
{
    weir_context_params params;
    weir_context_params_init(&params, sizeof params);
    return params;
}

/* Holds the model. params may be NULL. Errors: INVALID, NO_MEMORY, UNSUPPORTED, BACKEND. */
WEIR_API WEIR_CHECKED weir_status weir_context_create(weir_model *model, const weir_context_params *params,
                                                      weir_context **context, weir_error *error);
WEIR_API void weir_context_destroy(weir_context *context);

typedef struct weir_context_info {
    size_t size;
    int32_t n_ctx;     /* KV cells as allocated */
    int32_t n_ctx_seq; /* cells of one sequence, at most */
    int32_t n_batch;
    int32_t n_ubatch;
    int32_t n_seq_max;
    int32_t n_threads;
    weir_layout layout;
    weir_pooling pooling;
    /* true: the results for a token are identical to the last bit, whatever else is in the pass and however
     * the text before it was divided into passes. This holds where weir's kernels do all the work that
     * could differ: on an x86-64 processor, without GPU layers, for weights with
     * weir_model_weights.kernels, in models that are not recurrent and whose heads have a multiple of 8
     * and at most 256 dimensions (of 32 with quantized keys or values). Elsewhere an answer may continue
     * differently where two tokens are almost equally likely */
    bool batch_invariant;
    /* weir's kernels compute the attention of all layers that have it, for each type of keys and values that
     * weir_kv_type has. false: the backend computes it, because there are no kernels, flash attention is off,
     * layers are on a GPU, the keys and values are compressed (MLA), or heads have other sizes than those
     * above; or the model has no attention */
    bool attention_kernels;
} weir_context_info;

/* The bytes of the context that weir_context_create would make: cells and buffers. It reads the header of the
 * model's file again and computes nothing. Blocks, for some tenths of a second if the vocabulary is large.
 * params may be NULL. Errors: as weir_context_create. */
WEIR_API WEIR_CHECKED weir_status weir_context_estimate(const weir_model *model,
                                                        const weir_context_params *params, uint64_t *n_bytes,
                                                        weir_error *error);

/* Replaces the adapters [n] for the next passes; 0 = none. Holds them. Existing KV cells keep the values that
 * were computed with other adapters, and saved states do not record their adapters. Setting the same adapters
 * costs nothing. After INVALID (adapters; n_adapters: more than WEIR_ADAPTERS_MAX) nothing has changed; after
 * NO_MEMORY and BACKEND the next passes have no adapters. */
WEIR_API weir_status weir_context_set_adapters(weir_context *context, const weir_adapter_use *adapters,
                                               size_t n, weir_error *error);

/* Fills the first info->size bytes with the values as allocated; backends round up. */
WEIR_API weir_status weir_context_describe(const weir_context *context, weir_context_info *info);

/* Removes all sequences. */
WEIR_API weir_status weir_context_clear(weir_context *context, weir_error *error);

/* Appends tokens to a sequence, in passes of n_batch tokens; the last token's logits are row -1. *n_past
 * (n_past may be NULL) is the new length of the sequence. TOO_LONG: they do not fit, nothing was done.
 * NO_SPACE, BACKEND, ABORTED (weir_interrupt_set): the sequence is truncated to its length before the call,
 * or is empty if its memory cannot be truncated. */
WEIR_API WEIR_CHECKED weir_status weir_prefill(weir_context *context, const int32_t *tokens, size_t n_tokens,
                                               int32_t seq, int32_t *n_past, weir_error *error);

/* Computes one token at a position; its logits are row 0. */
WEIR_API WEIR_CHECKED weir_status weir_decode_token(weir_context *context, int32_t token, int32_t pos,
                                                    int32_t seq, weir_error *error);

typedef struct weir_batch_entry {
    int32_t token;
    int32_t pos;
    int32_t seq;
    bool logits; /* keep its logits row */
} weir_batch_entry;

/* Runs one forward pass over at most n_batch entries of any sequences. The positions must continue each
 * sequence. The index of an entry is then the index of its logits row. After INVALID and NO_SPACE the KV
 * cache is as before, where the backend can restore it; after BACKEND and ABORTED it may hold part of the
 * entries: see weir_sequence_pos_max. */
WEIR_API WEIR_CHECKED weir_status weir_batch_eval(weir_context *context, const weir_batch_entry *entries,
                                                  size_t n_entries, weir_error *error);

/* Runs a pass like weir_batch_eval, then samples entry i with samplers[i] if it has `logits` and the sampler
 * is not NULL. sampled[i] is the token, which the sampler has accepted, or -1. If a sampler fails, the pass
 * remains valid, the samplers before it have accepted their tokens, and the remaining sampled[i] are -1. */
WEIR_API WEIR_CHECKED weir_status weir_decode_batch(weir_context *context, const weir_batch_entry *entries,
                                                    size_t n_entries, weir_sampler *const *samplers,
                                                    int32_t *sampled, weir_error *error);

/* The logits [n_vocab] of a row of the last pass; index -1 = the last row. Valid until the next pass.
 * INVALID: the entry has no logits. */
WEIR_API WEIR_CHECKED weir_status weir_logits(weir_context *context, int32_t index, const float **logits,
                                              weir_error *error);

/* Samples a token from the last row, or from row `index`; the sampler accepts it, so do not call
 * weir_sampler_accept. INVALID: the row has no logits, or the sampler belongs to another model. STATE: the
 * context is for embeddings. GRAMMAR: the grammar allows no token here. BACKEND: all logits are NaN or minus
 * infinity. NO_MEMORY. After an error no token was accepted, but random numbers may have been drawn. */
WEIR_API WEIR_CHECKED weir_status weir_sample(weir_sampler *sampler, weir_context *context, int32_t *token,
                                              weir_error *error);
WEIR_API WEIR_CHECKED weir_status weir_sample_at(weir_sampler *sampler, weir_context *context, int32_t index,
                                                 int32_t *token, weir_error *error);

/* Called with each token of weir_context_generate and its text (well-formed UTF-8, whole code points, may be
 * empty). token is -1 for text that was held back until the end, and, without text, between the passes of the
 * prompt. False ends the generation with WEIR_REASON_CANCELLED. To end it within a pass, see
 * weir_interrupt_set. */
typedef bool (*weir_token_fn)(int32_t token, const char *text, size_t length, void *user);

/* Clears sequence 0, prefills the prompt, adds it to the sampler's history (weir_sampler_count), and
 * generates until the model ends the answer, max_tokens is reached or fn returns false. max_tokens -1 = as
 * many as fit; 0 = prefill only. The end token is accepted but not passed to fn. reason may be NULL.
 * TOO_LONG: the prompt does not fit, nothing was done. After other errors sequence 0 and the sampler keep the
 * state that the generation had reached. */
WEIR_API WEIR_CHECKED weir_status weir_context_generate(weir_context *context, weir_sampler *sampler,
                                                        const int32_t *prompt, size_t n_prompt,
                                                        int32_t max_tokens, weir_token_fn fn, void *user,
                                                        weir_reason *reason, weir_error *error);

/* Remove or copy positions [from, to) of a sequence; negative from = 0, negative to = the end. copy replaces
 * the contents of to_seq. keep removes all sequences but seq. UNSUPPORTED: this model's memory cannot be
 * truncated there (recurrent, sliding window); nothing was done. */
WEIR_API weir_status weir_sequence_remove(weir_context *context, int32_t seq, int32_t from, int32_t to,
                                          weir_error *error);
WEIR_API weir_status weir_sequence_copy(weir_context *context, int32_t seq, int32_t to_seq, int32_t from,
                                        int32_t to, weir_error *error);
WEIR_API weir_status weir_sequence_keep(weir_context *context, int32_t seq, weir_error *error);

/* The largest position of the sequence; -1 = it is empty or does not exist. */
WEIR_API int32_t weir_sequence_pos_max(const weir_context *context, int32_t seq);

/* Save and load the state of a sequence as bytes, with a checksum and a fingerprint of model, layout and KV
 * types. *length is the size needed, also with TOO_LONG (capacity too small). load replaces the sequence.
 * After FORMAT (the bytes are damaged or from another context), NO_SPACE (no cells are left) and NO_MEMORY
 * the sequence is as before. After BACKEND neither the new nor the previous state could be stored, and the
 * sequence is empty. */
WEIR_API WEIR_CHECKED weir_status weir_state_save(weir_context *context, int32_t seq, void *bytes,
                                                  size_t capacity, size_t *length, weir_error *error);
WEIR_API WEIR_CHECKED weir_status weir_state_load(weir_context *context, int32_t seq, const void *bytes,
                                                  size_t length, weir_error *error);

/* ---- Embeddings ------------------------------------------------------------------------------------ */

typedef enum weir_normalize {
    WEIR_NORMALIZE_NONE = -1,
    WEIR_NORMALIZE_MAX_ABS = 0, /* the largest absolute value becomes 1 */
    WEIR_NORMALIZE_L2 = 2,      /* length 1 */
} weir_normalize;

typedef struct weir_tokens {
    const int32_t *ids;
    size_t n;
} weir_tokens;

/* The number of floats per input: n_embd_out, or with WEIR_POOLING_RANK the number of labels, at least 1.
 * With WEIR_POOLING_NONE it is the number per token. 0: the context is not for embeddings. */
WEIR_API size_t weir_embedding_width(const weir_context *context);

/* Embeds several texts; each pass takes as many as fit into n_batch and n_seq_max. The context must have been
 * created with `embeddings`; its sequences are overwritten. out is [n_inputs][width], or with
 * WEIR_POOLING_NONE the rows of all tokens in order. capacity is in floats. TOO_LONG: it is too small;
 * *n_floats is the number needed. INVALID: an input is empty or longer than n_batch. Scores
 * (WEIR_POOLING_RANK) are not normalized. */
WEIR_API WEIR_CHECKED weir_status weir_embed(weir_context *context, const weir_tokens *inputs,
                                             size_t n_inputs, weir_normalize normalize, float *out,
                                             size_t capacity, size_t *n_floats, weir_error *error);

/* weir_embed_decode computes one text of at most n_batch tokens in a sequence, whose contents it replaces.
 * weir_embeddings then returns the embedding of the sequence, [width]: the pooled one, or with
 * WEIR_POOLING_NONE the last token's. STATE: the sequence was not in the last pass. */
WEIR_API WEIR_CHECKED weir_status weir_embed_decode(weir_context *context, const int32_t *tokens,
                                                    size_t n_tokens, int32_t seq, weir_error *error);
WEIR_API WEIR_CHECKED weir_status weir_embeddings(weir_context *context, int32_t seq,
                                                  weir_normalize normalize, float *out, size_t capacity,
                                                  weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
