/* llama_loop.c: loads a model, fills a context with prompts, and generates one token for each stream in a
 * pass.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama_loop.h"

#include <llama.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

struct llama_loop_model {
    struct llama_model *model;
    int32_t n_vocab;
    bool *ends; /* [n_vocab] tokens that would end the text */
};

struct llama_loop {
    const llama_loop_model *model;
    struct llama_context *context;
    struct llama_batch batch;
    llama_loop_shape shape;
};

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

llama_loop_model *llama_loop_load(const char *path, int32_t n_gpu_layers, bool use_mmap)
{
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = n_gpu_layers;
    params.load_mode = use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    llama_loop_model *model = calloc(1, sizeof *model);
    if (model == NULL || (model->model = llama_model_load_from_file(path, params)) == NULL) {
        free(model);
        return NULL;
    }
    const struct llama_vocab *vocab = llama_model_get_vocab(model->model);
    model->n_vocab = llama_vocab_n_tokens(vocab);
    model->ends = calloc((size_t)model->n_vocab, sizeof *model->ends);
    for (int32_t i = 0; model->ends != NULL && i < model->n_vocab; i++)
        model->ends[i] = llama_vocab_is_eog(vocab, i);
    if (model->ends != NULL) return model;
    llama_loop_unload(model);
    return NULL;
}

void llama_loop_unload(llama_loop_model *model)
{
    if (model == NULL) return;
    llama_model_free(model->model);
    free(model->ends);
    free(model);
}

llama_loop *llama_loop_create(llama_loop_model *model, const llama_loop_shape *shape)
{
    static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                           GGML_TYPE_Q4_0};
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)shape->n_ctx;
    params.n_batch = (uint32_t)shape->n_batch;
    params.n_ubatch = (uint32_t)shape->n_ubatch;
    params.n_seq_max = (uint32_t)shape->n_streams;
    params.n_threads = shape->n_threads;
    params.n_threads_batch = shape->n_threads_batch;
    params.kv_unified = shape->unified;
    params.type_k = types[shape->type_k];
    params.type_v = types[shape->type_v];
    llama_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL || (loop->context = llama_init_from_model(model->model, params)) == NULL) {
        free(loop);
        return NULL;
    }
    loop->model = model;
    loop->shape = *shape;
    loop->batch = llama_batch_init(shape->n_batch, 0, 1);
    return loop;
}

void llama_loop_destroy(llama_loop *loop)
{
    if (loop == NULL) return;
    llama_batch_free(loop->batch);
    llama_free(loop->context);
    free(loop);
}

static void add_token(struct llama_batch *batch, int32_t token, int32_t position, int32_t stream, bool logits)
{
    int32_t i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = position;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = stream;
    batch->logits[i] = logits;
}

static int32_t likeliest_token(const llama_loop *loop, int32_t row)
{
    const float *logits = llama_get_logits_ith(loop->context, row);
    const bool *ends = loop->model->ends;
    float best = -INFINITY;
    int32_t token = 0;
    for (int32_t i = 0; i < loop->model->n_vocab; i++) {
        if (logits[i] > best && !ends[i]) {
            best = logits[i];
            token = i;
        }
    }
    return token;
}

bool llama_loop_run(llama_loop *loop, const int32_t *prompts, int32_t n_prompt, int32_t n_answer, int64_t *at,
                    int32_t *tokens, bool (*go_on)(void))
{
    struct llama_batch *batch = &loop->batch;
    int32_t n_streams = loop->shape.n_streams;
    int64_t started = now_ns();
    llama_memory_clear(llama_get_memory(loop->context), true);
    batch->n_tokens = 0;
    for (int32_t i = 0; i < n_streams * n_prompt; i++) {
        int32_t stream = i / n_prompt, position = i % n_prompt;
        add_token(batch, prompts[i], position, stream, position == n_prompt - 1);
        if (batch->n_tokens < loop->shape.n_batch && i + 1 < n_streams * n_prompt) continue;
        if (!go_on() || llama_decode(loop->context, *batch) != 0) return false;
        for (int32_t row = 0; row < batch->n_tokens; row++) {
            size_t first = (size_t)batch->seq_id[row][0] * (size_t)n_answer;
            if (!batch->logits[row]) continue;
            tokens[first] = likeliest_token(loop, row);
            at[first] = now_ns() - started;
        }
        batch->n_tokens = 0;
    }
    for (int32_t k = 1; k < n_answer; k++) {
        batch->n_tokens = 0;
        for (int32_t stream = 0; stream < n_streams; stream++)
            add_token(batch, tokens[(size_t)stream * (size_t)n_answer + (size_t)k - 1], n_prompt + k - 1,
                      stream, true);
        if (!go_on() || llama_decode(loop->context, *batch) != 0) return false;
        for (int32_t stream = 0; stream < n_streams; stream++) {
            size_t i = (size_t)stream * (size_t)n_answer + (size_t)k;
            tokens[i] = likeliest_token(loop, stream);
            at[i] = now_ns() - started;
        }
    }
    return true;
}
