/* more.h: the rest of the library, which most programs do not need.
 * SPDX-License-Identifier: Apache-2.0
 *
 * It includes <weir/weir.h>, whose conventions hold here too. In this order: the text of errors; what models
 * contain, vocabulary, grammars; computing without an engine: samplers, contexts, embeddings; more about
 * chats and streams, flights (streams with many readers), more about adapters, images and audio, interrupts;
 * what an engine forecasts, how it divides its time (strategies, driving it by hand), what it counts and what
 * it has cached; pools of several models; model files, devices, workers; the members of structs, for bindings
 * and lists of options. */
#ifndef WEIR_MORE_H
#define WEIR_MORE_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- More about errors ----------------------------------------------------------------------------- */

/* The name that people know for a member of the library, as it stands between backticks in a message
 * ("top_k", "messages[0].content[1]"). It must be valid until the next call; NULL = the same name. */
typedef const char *(*weir_name_fn)(const char *name, void *user);

/* Writes the error's message as people read it: without the backticks, and with the names that `names` gives;
 * NULL = the library's. An error without a message gives the text of its status. The text is NUL-terminated,
 * and is cut at a character if there is no room. Any thread. */
WEIR_API void weir_error_text(const weir_error *error, weir_name_fn names, void *user, char *text,
                              size_t capacity);

/* ---- More about models ----------------------------------------------------------------------------- */

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

/* BACKEND: the model cannot compute any more, because a worker (weir_model_params.rpc) is gone, or because a
 * mapped file has changed; the message says which. Streams, passes and submits of the model then end with the
 * same error; release it and load it again (a weir_pool does that at the next lease). Looks at each mapped
 * file, at most four times a second, which may block on a network file system. Any thread. */
WEIR_API weir_status weir_model_check(const weir_model *model, weir_error *error);

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

/* Any number of threads may call these functions on one model; weir.h has weir_tokenize. */

/* The raw bytes of one token, which may be part of a code point. */
WEIR_API weir_status weir_piece(const weir_model *model, int32_t token, bool special, char *bytes,
                                size_t capacity, size_t *length, weir_error *error);

/* True if the token ends generation (EOS, EOT, …). False for ids outside the vocabulary. */
WEIR_API bool weir_is_eog(const weir_model *model, int32_t token);

/* ---- Grammar --------------------------------------------------------------------------------------- */

/* Checks a GBNF text without a model. root NULL = "root". GRAMMAR: it cannot be used; the message names the
 * line. */
WEIR_API weir_status weir_grammar_check(const char *grammar, const char *root, weir_error *error);

/* Converts JSON Schema to GBNF. A keyword that cannot be enforced is an error that names its JSON pointer;
 * the result is never weaker than the schema. Names that JSON Schema does not know are annotations, but one
 * that is nearly a keyword's is an error. Free *grammar with weir_free. */
WEIR_API WEIR_CHECKED weir_status weir_grammar_from_json_schema(const char *schema, size_t length,
                                                                char **grammar, weir_error *error);

/* ---- Sampler, without an engine -------------------------------------------------------------------- */

typedef struct weir_sampler weir_sampler;

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
     * could differ: on an x86-64 or ARM processor of 64 bits (not yet tried as a whole on ARM), without GPU
     * layers, for weights with weir_model_weights.kernels, if heads have a multiple of 8 and at most 256
     * dimensions (of 32 with quantized keys or values), and recurrent layers are those of Qwen3-Next,
     * Qwen3.5, LFM2 or Mamba. Elsewhere an answer may continue differently where two tokens are almost
     * equally likely */
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

/* ---- More about chats ------------------------------------------------------------------------------ */

/* Parses the template `template_source`, or with NULL those of the model, so that a mistake in one is found
 * before a conversation needs it. OK as well if the model has none, and in a build without llama.cpp. Any
 * thread. Errors: INVALID, TEMPLATE (the template and the line), NO_MEMORY. */
WEIR_API WEIR_CHECKED weir_status weir_chat_check(weir_model *model, const char *template_source,
                                                  weir_error *error);

/* The token ids of the prompt as a request with this chat uses them, without its media. They equal those of
 * weir_tokenize with add_special and parse_special, unless a message's content contains the text of a control
 * token or the prompt contains media. Arguments and errors: as weir_tokenize. */
WEIR_API weir_status weir_chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity,
                                        size_t *n_tokens, weir_error *error);

/* The media of the prompt, [*n], in its order; `at`: bytes of weir_chat_prompt before each. Valid while the
 * chat is held; NULL if there are none. n may be NULL. */
WEIR_API const weir_media_use *weir_chat_media(const weir_chat *chat, size_t *n);

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

/* ---- More about streams and answers ---------------------------------------------------------------- */

/* Writes at most `capacity` of the tokens of the prompt, and their number to *n: what is left of it after
 * truncate_prompt; below zero: in the place of an image or a sound. A fork's prompt includes the answer of
 * its source. tokens may be NULL with capacity 0. Any thread. TOO_LONG: more than capacity. STATE: no
 * request. */
WEIR_API weir_status weir_stream_prompt(const weir_stream *stream, int32_t *tokens, size_t capacity,
                                        size_t *n);

/* The prompt's tokens with their logprobs and the n_prompt_logprobs likeliest alternatives, as a chunk
 * without text, with an entry for each of n_prompt. Where an image or a sound stands, the token is -1; the
 * text after it is scored with it as context. These entries, and the first one, which has no context, have
 * the logprob NAN and alternatives whose token is -1. Pointers stay valid until the last release. Available
 * before the first chunk; any thread, any number of times. TIMEOUT: not yet. END: the request ended before.
 * STATE: not requested, or no request. */
WEIR_API weir_status weir_stream_prompt_logprobs(const weir_stream *stream, weir_chunk *prompt);

/* Ends the reasoning of the answer now, as if its budget were used (weir_request.reasoning_budget); reasoning
 * that has not begun ends as soon as it begins. Takes effect within a tick, and does nothing once the
 * reasoning has ended. Never waits. Any thread. STATE: the stream was not submitted, or has finished.
 * UNSUPPORTED: it is unknown how its reasoning ends (weir_chat_reasoning_end). INVALID: stream is NULL. */
WEIR_API weir_status weir_stream_end_reasoning(weir_stream *stream, weir_error *error);

/* Forks a stream: submits *request (NULL = defaults) with the given source and source_at. The source's KV
 * cells are shared while it runs or is cached, unless this model's memory cannot be truncated there;
 * otherwise they are computed again. Any thread. Errors: as submit, and INVALID (source: not a stream of
 * this engine; source_at: beyond its chunks), STATE (source: not submitted), REFUSED (sampler: the grammar
 * does not allow the answer so far). */
WEIR_API WEIR_CHECKED weir_status weir_engine_fork(weir_engine *engine, weir_stream *source,
                                                   int32_t source_at, const weir_request *request,
                                                   weir_stream *stream, weir_error *error);

/* The text of a fork's source up to the fork, which the fork's own text continues; NUL-terminated, valid
 * until the last release. Text that was still held back there (part of a character, or a possible start of a
 * stop string) is not included: the stream's own text begins with it. "" for streams that are no forks.
 * length may be NULL. Any thread. */
WEIR_API const char *weir_stream_source_text(const weir_stream *stream, size_t *length);

/* Watches the progress: with `on`, the ready callback (weir_stream_set_ready), or the watchers of the
 * stream's flight, are also called when the progress has changed: at the start of the prefill and after each
 * pass that had tokens of the prompt. There may be no chunk then. Off (default) changes nothing for other
 * readers. Any thread, any time. NULL is ignored. */
WEIR_API void weir_stream_watch_progress(weir_stream *stream, bool on);

/* Tells why no more of the prompt was cached; all zero until its prefill starts. Words of cached texts are
 * only those of requests with the same salt, which is not empty. INVALID: size. */
WEIR_API weir_status weir_stream_miss(const weir_stream *stream, weir_miss_info *info);

/* Writes a miss as a sentence, well-formed UTF-8 without newlines, truncated to capacity and NUL-terminated;
 * "" for WEIR_MISS_NONE. Returns its length. */
WEIR_API size_t weir_miss_text(const weir_miss_info *info, char *text, size_t capacity);

/* The number of its request among those of the engine, as in weir_arrival and weir_tick_slot: *request. Any
 * thread. STATE: it was not submitted. INVALID: a pointer is NULL. */
WEIR_API weir_status weir_stream_request(const weir_stream *stream, uint64_t *request);

/* The mean logprob of the generated tokens, by which best-of ranks. 0 without logprobs, -INFINITY if nothing
 * was generated. Pure. */
WEIR_API double weir_usage_score(const weir_usage *usage);

/* Generates best_of answers as weir_engine_submit_n does, waits for all, and fills results [n] with the n
 * highest by weir_usage_score, the best first; answers that ended with an error come last. All have logprobs;
 * results[0] has the prompt's if requested. Errors: as submit_n; INVALID (n: 1 … best_of). Otherwise as
 * weir_generate. */
WEIR_API WEIR_CHECKED weir_status weir_generate_best(weir_engine *engine, const weir_request *request,
                                                     size_t best_of, size_t n, weir_result *results,
                                                     weir_error *error);

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
 * Any number of threads. STATE: the call would wait and comes from a callback; or no thread drives a manual
 * engine, as in weir_stream_next. */
WEIR_API weir_status weir_flight_next(weir_flight *flight, uint64_t *at, int timeout_ms, weir_chunk *chunk);

/* Calls fn for each new chunk, on the thread that drives the engine, once from within watch if a chunk
 * exists, and where weir_stream_watch_progress asks for it. fn must not block, and may call
 * weir_flight_next with timeout 0. Any thread. Errors: INVALID, NO_MEMORY, STATE (called from a watcher of
 * this flight). */
typedef void (*weir_flight_fn)(weir_flight *flight, void *user);
WEIR_API weir_status weir_flight_watch(weir_flight *flight, weir_flight_fn fn, void *user);

/* Ends a watch: when it returns, fn is not running with this user (unless called from within it) and will not
 * be called again. Call it before the watcher's last release. Does nothing if fn was not watching. Any
 * thread. */
WEIR_API void weir_flight_unwatch(weir_flight *flight, weir_flight_fn fn, void *user);

/* The flight's stream, for usage, miss, error and status, and as the source of forks. The flight owns it and
 * takes its chunks: reads return STATE. */
WEIR_API weir_stream *weir_flight_stream(const weir_flight *flight);

/* ---- More about adapters, images and audio --------------------------------------------------------- */

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

typedef enum weir_media_kind {
    WEIR_MEDIA_IMAGE = 0,
    WEIR_MEDIA_AUDIO = 1,
} weir_media_kind;

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
    uint64_t kv_bytes;        /* KV cells, and copies of recurrent states for drafts */
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
     * generated before. 0 while generating */
    int32_t n_prompt_left;
    int32_t n_prompt;
    int32_t n_generated;
    int64_t waited_ns; /* since submit */
    int32_t n_past;    /* tokens in the KV cache, to which the next one attends */
    /* draft tokens that may be verified with the next token; after a rejected draft of a recurrent or hybrid
     * model, right tokens that are computed again: the slot needs 1 + n_draft to sample its next one */
    int32_t n_draft;
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

/* The cost of a plan's tick in ns; its passes, rows and context follow from the view. Entries for slots
 * that are not in the view are ignored. Any thread. */
WEIR_API double weir_plan_tick_ns(const weir_view *view, const weir_plan_entry *plan, size_t n_plan);

/* ---- Driving the engine by hand -------------------------------------------------------------------- */

typedef struct weir_report {
    size_t size;
    int32_t n_prefill;   /* prompt tokens computed */
    int32_t n_decode;    /* generated tokens computed, also again, without drafts */
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
    /* of the model's grammars: the vocabulary's tree, states and masks, without their texts. Engines of one
     * model share them. A grammar that would need more than 128 MiB ends its request with GRAMMAR; each
     * running request may have one of its own. Those of earlier requests stay until a grammar is asked for,
     * and then at most 64 MiB of them */
    uint64_t grammar_bytes;
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

/* ---- Cached prefixes for other engines ------------------------------------------------------------- */

/* The memory that has cached tokens. */
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
    /* The memory of all models: weights, KV cells, buffers, adapters, cached prefixes in host memory
     * (cache_bytes) and texts for drafts. WEIR_AUTO (default) = nine tenths of the memory available at
     * create, and less when less is available or a cgroup allows less; 0 = no limit */
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
    /* The chat template of a model that generates: the load checks it as weir_chat_check does, and fails with
     * it; NULL = not checked, "" = the model's own templates */
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
    char message[512];  /* its error; "" = none */
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

/* Fills params as weir_model_params_init does. */
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

typedef struct weir_device {
    size_t size;
    char name[64];
    char description[128];
    char type[16];         /* "cpu", "gpu", "igpu", "accel" */
    uint64_t memory_free;  /* bytes, 0 = unknown; of a CPU no more than limits of cgroups leave */
    uint64_t memory_total; /* bytes, 0 = unknown */
    int32_t n_processors;  /* of a CPU: by the affinity and the cgroups' quotas of this process; else 0 */
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

/* Fills params as weir_model_params_init does. */
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
    WEIR_MEMBER_OTHER = 11,  /* a handle or pointer that the headers describe */
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

#ifdef __cplusplus
}
#endif
#endif
