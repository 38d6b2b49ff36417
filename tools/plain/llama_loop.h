/* llama_loop.h: a plain loop over llama.h, as a program without weir would have it, to compare with. Declares
 * no type of llama.h, so that the command line can include it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * All streams in lock-step: the prompts one after another in batches of n_batch tokens, then one token of
 * each stream a batch; the likeliest token that does not end the text. */
#ifndef WEIR_BENCH_LLAMA_LOOP_H
#define WEIR_BENCH_LLAMA_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct llama_loop_model llama_loop_model;
typedef struct llama_loop llama_loop;

/* NULL: it cannot be loaded. Needs a backend that was started: load a weir_model first. */
llama_loop_model *llama_loop_load(const char *path, int32_t n_gpu_layers, bool use_mmap);
void llama_loop_unload(llama_loop_model *model);

typedef struct llama_loop_shape {
    int32_t n_streams;
    int32_t n_ctx; /* KV cells in all */
    int32_t n_batch, n_ubatch;
    int32_t n_threads, n_threads_batch;
    bool unified;
    int type_k, type_v; /* as weir_kv_type numbers them */
} llama_loop_shape;

/* NULL: no such context. The model stays the caller's and must outlive it. */
llama_loop *llama_loop_create(llama_loop_model *model, const llama_loop_shape *shape);
void llama_loop_destroy(llama_loop *loop);

/* Clears the memory, then reads prompts [n_streams][n_prompt] and generates n_answer tokens for each stream.
 * at [n_streams][n_answer]: when each token was known, ns after the start; tokens likewise. go_on is asked
 * before each pass. False: it said no, or a pass failed. */
bool llama_loop_run(llama_loop *loop, const int32_t *prompts, int32_t n_prompt, int32_t n_answer, int64_t *at,
                    int32_t *tokens, bool (*go_on)(void));

#endif
