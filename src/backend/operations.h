/* operations.h: the operations of a backend: OPERATION(result, name, parameters), and OPTIONAL for operations
 * that the fake lacks. Included for each use: backend.h makes the table of function pointers from it,
 * llama/internal.h and fake/internal.h declare weir__llama_NAME and weir__fake_NAME, llama/llama.c and
 * fake/fake.c fill their tables.
 * SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */

/* ---- Model ---- */

/* outline: without the weights, for model_describe, cell_bytes and estimates. */
OPERATION(weir_status, model_load, const char *path, const weir_model_params *params, bool outline,
          weir__bmodel **model, weir_error *error)
OPERATION(void, model_free, weir__bmodel *model)
/* Writes the optimized file of a model, or checks it. The file's path NULL: beside the model. */
OPTIONAL(weir_status, model_optimize, const char *path, const char *out, weir_progress_fn progress, void *user,
         weir_error *error)
OPTIONAL(weir_status, model_optimize_check, const char *path, const char *optimized, weir_progress_fn progress,
         void *user, weir_error *error)
/* Writes the model to `out` with weights of params->type, which is spelled as weir_quantize_type has it. */
OPTIONAL(weir_status, model_quantize, const char *path, const char *out, const weir_quantize_params *params,
         weir_error *error)
/* Sets all of *info but `size` and `backend`. Strings live as long as the model. */
OPERATION(void, model_describe, const weir__bmodel *model, weir_model_info *info)
/* BACKEND: the model can compute no more, since a machine with layers of it is gone. */
OPERATION(weir_status, model_check, const weir__bmodel *model, weir_error *error)
/* Computes for models that other machines load with `rpc`. Returns on an error only. */
OPTIONAL(weir_status, rpc_serve, const weir_rpc_params *params, weir_error *error)
/* Identifies the weights, for files that depend on them. */
OPERATION(uint64_t, model_identity, const weir__bmodel *model)
/* The memory of the model's grammars. Any thread; takes no lock. */
OPTIONAL(uint64_t, grammar_bytes, const weir__bmodel *model)
/* The length of the value or key, -1 = none. The text is cut to capacity and terminated. */
OPERATION(int64_t, model_meta, const weir__bmodel *model, const char *key, char *text, size_t capacity)
OPERATION(int64_t, model_meta_key, const weir__bmodel *model, size_t i, char *key, size_t capacity)
/* The i-th type of the model's weights: all of *weights but `size`. END past the last. */
OPERATION(weir_status, model_weights, const weir__bmodel *model, size_t i, weir_model_weights *weights)
/* The i-th device that this backend computes on: all of *device but `size`. END past the last. */
OPERATION(weir_status, device_get, size_t i, weir_device *device)

/* ---- Vocabulary ---- */

/* length <= WEIR__TEXT_MAX. *n_tokens: the number of tokens; TOO_LONG if that is above capacity. */
OPERATION(weir_status, tokenize, const weir__bmodel *model, const char *text, size_t length, bool add_special,
          bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens, weir_error *error)
/* The number of bytes of the token's text, or minus that number if it is above capacity. Does not allocate. */
OPERATION(int32_t, piece, const weir__bmodel *model, int32_t token, bool special, char *bytes, int32_t capacity)
OPERATION(bool, is_eog, const weir__bmodel *model, int32_t token)
/* [*n]: the text of a control token, which becomes this token only if special tokens are parsed; NULL for
 * other tokens. *strip: bits of WEIR__STRIP_*. Lives as long as the model. */
OPERATION(const char *, control_text, const weir__bmodel *model, int32_t token, size_t *n, int *strip)

/* ---- Adapter ---- */

/* Any thread, also while contexts of the model compute; adapter_free as well. */
OPERATION(weir_status, adapter_load, weir__bmodel *model, const char *path, weir__badapter **adapter,
          weir_error *error)
/* No context may have it set. */
OPERATION(void, adapter_free, weir__badapter *adapter)
/* Sets all of *info but `size` and `path`. Strings live as long as the adapter. */
OPERATION(void, adapter_describe, const weir__badapter *adapter, weir_adapter_info *info)

/* ---- Projector ---- */

/* Loads the encoder of images or sounds that was made for this model, and encodes a trial. outline: only n_bytes and
 * identity of its info are known. n_threads: of an encode, at most. Any thread. UNSUPPORTED also if llama.cpp would
 * abort on it. */
OPERATION(weir_status, projector_load, weir__bmodel *model, const char *path, bool outline, int32_t n_threads,
          weir__bprojector **projector, weir_error *error)
OPERATION(void, projector_free, weir__bprojector *projector)
OPERATION(void, projector_describe, const weir__bprojector *projector, weir__projector_info *info)
/* The segments that the model reads in place of an image or a sound, without the embeddings. Any thread. The
 * media need not outlive the call. */
OPERATION(weir_status, projector_prepare, const weir__bprojector *projector, const weir_media_info *media,
         weir__prepared **prepared, weir_error *error)
/* Computes the embeddings of a segment that has no tokens. One thread at a time per projector. `cancelled` is asked every
 * few operations; true: ABORTED, and the segment has no embeddings. BACKEND: also if they are not finite. */
OPERATION(weir_status, projector_encode, weir__bprojector *projector, weir__prepared *prepared, int32_t segment,
         bool (*cancelled)(void *user), void *user, weir_error *error)
/* Frees only the data that encode needs: the segments stay. */
OPERATION(void, prepared_trim, weir__prepared *prepared)
OPERATION(void, prepared_free, weir__prepared *prepared)

/* ---- Context ---- */

/* params are complete: no zeros that mean a default, and a layout. *info gets the sizes that were allocated. */
OPERATION(weir_status, context_create, weir__bmodel *model, const weir_context_params *params,
          weir__bcontext **context, weir_context_info *info, weir_error *error)
OPERATION(void, context_free, weir__bcontext *context)
/* Creates a draft head of the target: a context that predicts the target's next tokens from the hidden states
 * of its layers. It follows the target's sequences by itself (clear, seq_remove, share, state_*), except
 * through seq_copy. model: the head's, or the target's own for MTP layers. Batches and sequences must be at
 * least the target's. A target has at most one head. Allowed on a head: decode of entries behind seq_pos_max
 * (the newest position that it knows of the target) or behind its own last entry, all with logits; sample and
 * logits; seq_remove of its own predictions; clear; context_free, before the target's. UNSUPPORTED: the head
 * does not fit the target. */
OPTIONAL(weir_status, head_create, weir__bcontext *target, weir__bmodel *model, const weir_context_params *params,
         weir__bcontext **head, weir_context_info *info, weir_error *error)
/* The memory that context_create would allocate for an outline: *info as there, and bytes. Without this
 * operation a context is cheap enough to be created. */
OPTIONAL(weir_status, context_estimate, weir__bmodel *model, const weir_context_params *params,
         weir_context_info *info, uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error)
/* The memory that a context of the target and a head of it would allocate together, for outlines. */
OPTIONAL(weir_status, head_estimate, weir__bmodel *target, const weir_context_params *target_params,
         weir__bmodel *model, const weir_context_params *params, uint64_t *kv_bytes, uint64_t *compute_bytes,
         weir_error *error)
/* Runs one pass. NO_SPACE: no free cells, and the memory is unchanged. BACKEND: seq_pos_max says how far the
 * sequences got. ABORTED: set_abort's fn asked for it. */
OPERATION(weir_status, decode, weir__bcontext *context, const weir__batch *batch, weir_error *error)
/* decode for cells of a segment, all of one sequence: positions and embeddings are the part's, and the batch's tokens
 * and positions do not count. A segment that is not causal must be whole. UNSUPPORTED: it has more cells than
 * n_ubatch. */
OPERATION(weir_status, decode_segment, weir__bcontext *context, const weir__batch *batch, const weir__slice *slice,
         weir_error *error)
/* Sets the adapters [n] of all later passes; none after an error. They must live until others are set or the
 * context is freed. May take as long as a small pass, so callers avoid calls that change nothing. */
OPERATION(weir_status, set_adapters, weir__bcontext *context, weir__badapter *const *adapters,
          const float *scales, int32_t n, weir_error *error)
/* decode asks fn now and then, on its thread; true ends the pass with ABORTED, and tokens that it has computed
 * may stay in the memory. NULL: never. Backends that cannot be interrupted ignore it. */
OPERATION(void, set_abort, weir__bcontext *context, bool (*fn)(void *user), void *user)
/* Waits for the pass. After that logits and sample may run on several threads. */
OPERATION(void, logits_ready, weir__bcontext *context)
/* [n_vocab] of batch entry `row`, -1 = the last row kept; NULL if it was not kept. */
OPERATION(const float *, logits, weir__bcontext *context, int32_t row)
/* [width] of an entry, or of a sequence's pooled embedding if row is -1; NULL if there is none. */
OPERATION(const float *, embedding, weir__bcontext *context, int32_t row, int32_t seq)
OPERATION(int32_t, embedding_width, const weir__bcontext *context)
/* KV bytes of one cell: keys and values of all layers. */
OPERATION(uint64_t, cell_bytes, const weir__bmodel *model, weir_kv_type type_k, weir_kv_type type_v)

/* ---- Memory: positions [from, to), 0 <= from; to < 0 = the end ---- */

OPERATION(void, clear, weir__bcontext *context)
/* False: this memory cannot be cut there, and nothing changed. A whole sequence can always be removed. */
OPERATION(bool, seq_remove, weir__bcontext *context, int32_t seq, int32_t from, int32_t to)
/* Makes sequence `to` hold exactly positions 0 … n-1 of `from`. A unified pool shares the cells. Between lanes
 * the next pass copies them; state_save before that would read stale cells, unless `settle` is called. */
OPERATION(weir_status, share, weir__bcontext *context, int32_t from, int32_t to, int32_t n, weir_error *error)
/* Carries out the copies of share and seq_copy now. */
OPERATION(weir_status, settle, weir__bcontext *context, weir_error *error)
/* False: this memory cannot be cut there, or the copy failed; to_seq is empty or unchanged. */
OPERATION(bool, seq_copy, weir__bcontext *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
OPERATION(int32_t, seq_pos_max, const weir__bcontext *context, int32_t seq)
/* The backend's bytes, without weir's header. 0: failure. */
OPERATION(size_t, state_size, weir__bcontext *context, int32_t seq)
OPERATION(size_t, state_save, weir__bcontext *context, int32_t seq, void *bytes, size_t capacity)
OPERATION(weir_status, state_load, weir__bcontext *context, int32_t seq, const void *bytes, size_t length,
          weir_error *error)
/* True if a sequence can be cut to its first n positions and continued. */
OPERATION(bool, can_end_at, weir__bcontext *context, int32_t seq, int32_t n)
/* The part of a state that keeps a sequence from being cut: the cells of windows, and recurrent states; of a
 * recurrent model, the whole state. 0: there is none, or failure. part_load: a sequence that has at least n
 * positions, of the text of which the part was saved, is cut to n, where the part was saved. After an error
 * it is empty, unless the model has no such part: UNSUPPORTED. */
OPERATION(size_t, part_size, weir__bcontext *context, int32_t seq)
OPERATION(size_t, part_save, weir__bcontext *context, int32_t seq, void *bytes, size_t capacity)
OPERATION(weir_status, part_load, weir__bcontext *context, int32_t seq, int32_t n, const void *bytes,
          size_t length, weir_error *error)
/* About what part_size says of a recurrent or hybrid model without windows, by the header alone. */
OPERATION(uint64_t, part_bytes, const weir__bmodel *model)

/* ---- Sampler ---- */

/* params are complete and in range, except their grammar, which is checked here. grammar replaces it; may be
 * NULL. GRAMMAR: as weir_grammar_check, field "grammar" or "grammar_root", or not with this vocabulary. */
OPERATION(weir_status, sampler_create, const weir__bmodel *model, const weir_sampler_params *params,
          const weir__grammar *grammar, weir__bsampler **sampler, weir_error *error)
OPERATION(void, sampler_free, weir__bsampler *sampler)
OPERATION(weir_status, sampler_reset, weir__bsampler *sampler, weir_error *error)
/* Chooses a token and accepts it. row as in logits. mask: a bit for each token, 0 = it must not be chosen;
 * NULL = all may. REFUSED: the mask leaves no token that may come; the grammar is unchanged. */
OPERATION(weir_status, sample, weir__bsampler *sampler, weir__bcontext *context, int32_t row,
          const uint64_t *mask, int32_t *token, weir_error *error)
OPERATION(weir_status, accept, weir__bsampler *sampler, int32_t token, weir_error *error)
/* The number of bytes of the last accepted token's text that come before a call that the chat's grammar
 * holds; all that follows them belongs to calls. WEIR__NO_CALL: none has begun. */
OPERATION(size_t, text_before_call, const weir__bsampler *sampler)
/* Accepts a token of the prompt: penalties count it, the grammar does not see it. */
OPERATION(weir_status, count, weir__bsampler *sampler, int32_t token, weir_error *error)

#undef OPERATION
#undef OPTIONAL
