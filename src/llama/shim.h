/* shim.h: llama.cpp for C. Only this folder's files in C++ make calls of llama.cpp that can throw. They turn
 * an exception into a status, and put llama.cpp's log lines about it into the message.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_SHIM_H
#define WEIR_LLAMA_SHIM_H

#include <llama.h>
#include <pthread.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/backend.h"

/* Starts llama.cpp and takes over its log, once. All that follows needs it. UNSUPPORTED: llama.cpp was
 * compiled for instructions that this processor lacks, so none of it may run. */
weir_status weir__shim_start(weir_error *error);

/* ---- Model ---------------------------------------------------------------------------------------- */

/* INVALID or UNSUPPORTED of `main_gpu` or `split_mode`: the devices cannot serve it. NO_MEMORY. Others: as
 * weir__gguf_refused; also if the progress callback ended the load. */
weir_status weir__shim_model_load(const char *path, struct llama_model_params params,
                                  struct llama_model **model, weir_error *error);

/* The source of the model's chat template, owned by the model; NULL: it has none. */
weir_status weir__shim_template_text(const struct llama_model *model, const char **text, weir_error *error);

/* ---- Workers: machines that compute layers of a model ---------------------------------------------- */

typedef struct weir__workers weir__workers;

/* GPUs and workers of one model. ggml computes with 16 devices; the CPU and a BLAS are among them. */
#define WEIR__DEVICES_USED_MAX 14

/* Connects to all of "HOST:PORT,…". No part of a message takes longer than the timeout. Field: "rpc". */
weir_status weir__shim_workers_open(const char *list, int32_t timeout_ms, weir__workers **out,
                                    weir_error *error);

/* BACKEND: a connection is lost, and whatever was read over it since may be zeroes. NULL has none. */
weir_status weir__shim_workers_check(const weir__workers *workers, weir_error *error);

/* Returns how many devices it wrote. */
size_t weir__shim_workers_devices(const weir__workers *workers, ggml_backend_dev_t *devices, size_t capacity);

/* Closes the connections, after the models that use them. NULL is ignored. */
void weir__shim_workers_close(weir__workers *workers);

/* ---- Context -------------------------------------------------------------------------------------- */

weir_status weir__shim_context_create(struct llama_model *model, struct llama_context_params params,
                                      struct llama_context **context, weir_error *error);

/* Bytes of its memory and of its compute buffers; works for outlines, which have allocated neither. */
weir_status weir__shim_context_bytes(const struct llama_context *context, uint64_t *memory, uint64_t *compute,
                                     weir_error *error);

/* *began: the batch was valid, so pending copies in the memory are done. */
weir_status weir__shim_decode(struct llama_context *context, struct llama_batch batch, bool encode,
                              bool *began, weir_error *error);

/* Waits for the pass, puts its rows into the batch's order, and returns where they are. */
weir_status weir__shim_outputs(struct llama_context *context, float **logits, float **embeddings,
                               weir_error *error);

/* A sequence's pooled embedding, NULL = none. */
const float *weir__shim_pooled(struct llama_context *context, int32_t seq);

/* False: it threw, or the memory does not support it. */
bool weir__shim_seq_remove(struct llama_context *context, int32_t seq, int32_t from, int32_t to);
bool weir__shim_seq_copy(struct llama_context *context, int32_t seq, int32_t to_seq, int32_t from,
                         int32_t to);
void weir__shim_clear(struct llama_context *context);

/* The lowest position that a token at `pos` attends to in layers with a sliding window; below 0: all. */
int32_t weir__shim_window_start(const struct llama_model *model, int32_t pos);

/* Makes later passes causal, or not. Plans them under this lock (adapter_lock), as llama.cpp would without
 * one when the next pass begins. */
void weir__shim_set_causal(struct llama_context *context, bool causal, pthread_mutex_t *lock);

/* Carries out pending copies between lanes now. */
weir_status weir__shim_flush(struct llama_context *context, weir_error *error);

/* A sequence's state, or only the part of it that keeps the sequence from being cut: windows and recurrent
 * states. Bytes; 0 on failure. Loading a part leaves the other cells as they are. */
size_t weir__shim_state_size(struct llama_context *context, int32_t seq, bool part);
size_t weir__shim_state_save(struct llama_context *context, int32_t seq, bool part, void *bytes,
                             size_t capacity);
weir_status weir__shim_state_load(struct llama_context *context, int32_t seq, bool part, const void *bytes,
                                  size_t length, weir_error *error);

/* The bytes of a sequence's state in the recurrent layers. */
uint64_t weir__shim_recurrent_bytes(const struct llama_model *model);

/* ---- Heads (head.c) ------------------------------------------------------------------------- */

/* The number of MTP layers that can be computed. */
int32_t weir__shim_mtp_layers(const struct llama_model *model);

/* Checks whether an EAGLE-3 head and its target can be computed together, which llama.cpp asserts. */
weir_status weir__shim_head_fits(const struct llama_model *head, const struct llama_model *target,
                                 weir_error *error);

/* The target's layers whose inputs the head reads, at most `capacity`; returns their number. */
int32_t weir__shim_head_taps(const struct llama_model *head, int32_t *layers, int32_t capacity);

/* Makes passes keep the last hidden states, of rows with logits (masked) or of all rows; or the inputs of a
 * layer. */
void weir__shim_keep_hidden(struct llama_context *context, bool on, bool masked);
void weir__shim_keep_layer_input(struct llama_context *context, int32_t layer, bool on);

/* Plans passes anew if the settings require it. Under the model's adapter_lock. */
weir_status weir__shim_plan(struct llama_context *context, weir_error *error);

/* The rows that the last pass kept; NULL = none. */
const float *weir__shim_hidden(struct llama_context *context);
const float *weir__shim_layer_input(struct llama_context *context, int32_t layer);

#ifdef __cplusplus
}
#endif
#endif
