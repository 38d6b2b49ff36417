/* shim.h: llama.cpp for C. Every call of it that can throw is made in shim*.cpp, which turn an exception into
 * a status; what llama.cpp logged about it goes into the message.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_SHIM_H
#define WEIR_BACKEND_SHIM_H

#include <llama.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"
#include "grammar/automaton.h"

/* Starts llama.cpp and takes over its log; once, whoever calls. What follows needs it. UNSUPPORTED: it was
 * compiled for instructions that this processor has not, and none of it may run. */
weir_status weir__shim_start(weir_error *error);

/* ---- Model ---------------------------------------------------------------------------------------- */

/* FORMAT, UNSUPPORTED or NO_MEMORY with llama.cpp's reason; it does not tell its caller that the progress
 * callback ended it. */
weir_status weir__shim_model_load(const char *path, struct llama_model_params params,
                                  struct llama_model **model, weir_error *error);

/* *n_tokens is the number needed; TOO_LONG when capacity is smaller. Recurses over the text where a
 * vocabulary has regular expressions that llama.cpp leaves to the standard library. */
weir_status weir__shim_tokenize(const struct llama_vocab *vocab, const char *text, int32_t length,
                                bool add_special, bool parse_special, int32_t *tokens, int32_t capacity,
                                int32_t *n_tokens, weir_error *error);

/* As llama_token_to_piece; 0 when it throws. */
int32_t weir__shim_piece(const struct llama_vocab *vocab, int32_t token, bool special, char *bytes,
                         int32_t capacity);

/* ---- Context -------------------------------------------------------------------------------------- */

weir_status weir__shim_context_create(struct llama_model *model, struct llama_context_params params,
                                      struct llama_context **context, weir_error *error);

/* Bytes of its memory, and of what it computes in: also of a context of a model without weights, which has
 * neither yet. */
weir_status weir__shim_context_bytes(const struct llama_context *context, uint64_t *memory, uint64_t *compute,
                                     weir_error *error);

/* *began: the batch was sound, so what was pending in the memory is done. */
weir_status weir__shim_decode(struct llama_context *context, struct llama_batch batch, bool encode,
                              bool *began, weir_error *error);

/* Waits for the pass and puts its rows in the order of the batch; where they lie. */
weir_status weir__shim_outputs(struct llama_context *context, float **logits, float **embeddings,
                               weir_error *error);

/* A sequence's pooled embedding, NULL when there is none. */
const float *weir__shim_pooled(struct llama_context *context, int32_t seq);

/* False: it threw, or the memory cannot do that. */
bool weir__shim_seq_remove(struct llama_context *context, int32_t seq, int32_t from, int32_t to);
bool weir__shim_seq_copy(struct llama_context *context, int32_t seq, int32_t to_seq, int32_t from,
                         int32_t to);
void weir__shim_clear(struct llama_context *context);

/* Carries out pending copies between lanes now. */
weir_status weir__shim_flush(struct llama_context *context, weir_error *error);

/* Bytes; 0 on failure. */
size_t weir__shim_state_size(struct llama_context *context, int32_t seq);
size_t weir__shim_state_save(struct llama_context *context, int32_t seq, void *bytes, size_t capacity);
weir_status weir__shim_state_load(struct llama_context *context, int32_t seq, const void *bytes,
                                  size_t length, weir_error *error);

/* ---- Heads (llama_head.c) ------------------------------------------------------------------------- */

/* Layers behind the model's own that guess further tokens and can be computed; 0 = none. */
int32_t weir__shim_mtp_layers(const struct llama_model *model);

/* Whether an EAGLE-3 head and its target can be computed together, which llama.cpp asserts. */
weir_status weir__shim_head_fits(const struct llama_model *head, const struct llama_model *target,
                                 weir_error *error);

/* The layers of the target whose inputs it reads, at most `capacity`; how many. */
int32_t weir__shim_head_taps(const struct llama_model *head, int32_t *layers, int32_t capacity);

/* From the next pass on the last hidden states are kept, of rows with logits (masked) or of all. */
void weir__shim_tell_hidden(struct llama_context *context, bool on, bool masked);
void weir__shim_tell_layer_input(struct llama_context *context, int32_t layer, bool on);

/* Plans passes anew if the settings require it. Under the model's adapter_lock. */
weir_status weir__shim_plan(struct llama_context *context, weir_error *error);

/* What the last pass kept, row after row; NULL when it kept none. */
const float *weir__shim_hidden(struct llama_context *context);
const float *weir__shim_layer_input(struct llama_context *context, int32_t layer);

/* ---- Sampler -------------------------------------------------------------------------------------- */

/* Temperatures below it divide logits into infinities; they count as 0. */
#define WEIR__SHIM_LEAST_TEMP 1e-3f

/* The chain for complete parameters, without logit bias and grammar. *selects: it ends by choosing; otherwise
 * the likeliest of what it leaves is to be chosen. *chain is NULL when nothing stands before that.
 * *n_largest: it looks at so many of the largest logits only; 0: at all. */
weir_status weir__shim_chain_create(const struct llama_vocab *vocab, const weir_sampler_params *params,
                                    struct llama_sampler **chain, bool *selects, int32_t *n_largest,
                                    weir_error *error);
weir_status weir__shim_chain_apply(struct llama_sampler *chain, llama_token_data_array *candidates,
                                   weir_error *error);
weir_status weir__shim_chain_accept(struct llama_sampler *chain, int32_t token, weir_error *error);
weir_status weir__shim_chain_reset(struct llama_sampler *chain, weir_error *error);

/* ---- Grammar -------------------------------------------------------------------------------------- */

/* How far an answer has come in a grammar. One thread at a time. */
typedef struct weir__shim_grammar weir__shim_grammar;

/* Holds the automaton. */
weir_status weir__shim_grammar_create(const struct llama_vocab *vocab, weir__automaton *automaton, bool lazy,
                                      weir__shim_grammar **grammar, weir_error *error);
void weir__shim_grammar_free(weir__shim_grammar *grammar);

/* For a lazy one, which allows everything until a trigger appears. */
weir_status weir__shim_grammar_trigger(weir__shim_grammar *grammar, const weir__trigger *trigger,
                                       weir_error *error);

/* Takes text that the answer already begins with (NULL: none). Reset comes back to here. */
weir_status weir__shim_grammar_begin(weir__shim_grammar *grammar, const char *text, weir_error *error);
weir_status weir__shim_grammar_reset(weir__shim_grammar *grammar, weir_error *error);

/* Moves on by one token. REFUSED: not allowed here; GRAMMAR: more ways to read the text than can be kept. The
 * grammar is then unchanged. */
weir_status weir__shim_grammar_accept(weir__shim_grammar *grammar, int32_t token, weir_error *error);

/* Which tokens accept would take, as in weir__automaton_mask. While the grammar waits: all, though accept may
 * refuse one that would start it wrongly. */
weir_status weir__shim_grammar_mask(const weir__shim_grammar *grammar, uint64_t *mask, weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
