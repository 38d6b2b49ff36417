/* pass.cpp: the passes of llama.cpp's contexts, and their rows. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A pass runs on the context's pool of threads, as many of them as its team has learned, and returns before
 * its rows are read; the first question about a row waits for them. */
#include "hook/hook.h"
#include "llama/cells.h"
#include "llama/guard.h"
#include "llama/internal.h"

/* A header that llama.cpp does not install: llama.h has no pending copies. */
#include <../src/llama-context.h>

#include <ctime>

extern "C" {
#include "base/clock.h"
#include "base/error.h"
#include "base/largest.h"
#include "base/log.h"
}

using weir::attempt;
using weir::capture;
using weir::guard;
using weir::refuse_memory;
using weir::refuse_unknown;

static const char pass_advice[] =
    "free memory, or start with fewer slots, threads or KV cells, or with a smaller batch";

weir_status weir__llama_compute(llama_context *context, llama_batch batch, bool encode, bool *began,
                                weir_error *error)
{
    *began = false;
    return guard(error, WEIR_BACKEND, "the pass failed", [&] {
        capture said;
        int32_t code = encode ? llama_encode(context, batch) : llama_decode(context, batch);
        *began = code != -1;
        switch (weir__hook_fault()) {
        case WEIR_OK: break;
        case WEIR_NO_MEMORY: return refuse_memory(error, nullptr, said, "attention", pass_advice);
        default:
            return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                                   "the model uses its weights in a way that weir's kernels do not know; set "
                                   "WEIR_KERNELS=off");
        }
        switch (code) {
        case 0: return WEIR_OK;
        case 1:
            return weir__error_set(error, WEIR_NO_SPACE, nullptr, "no KV cells are left for %d tokens",
                                   batch.n_tokens);
        case 2: return weir__error_set(error, WEIR_ABORTED, nullptr, "the pass was aborted");
        case -2: return refuse_memory(error, nullptr, said, "the pass", pass_advice);
        case -1:
            return weir__invalid(error, WEIR_ERROR_CONFLICT, "batch",
                                 "the batch is not sound: its positions contradict each other or the cells");
        default:
            if (said.starved()) return refuse_memory(error, nullptr, said, "the pass", pass_advice);
            weir__log(WEIR_LOG_ERROR, "a pass failed: %s",
                      said.length > 0 ? said.text : "llama.cpp gives no reason");
            return refuse_unknown(error, WEIR_BACKEND, nullptr, "the pass failed", said.length > 0);
        }
    });
}

/* Notes that no copies between lanes are pending. */
static void end_copies(weir__bcontext *c)
{
    if (c->copy_pending) weir__hook_copied(c->context);
    c->copy_pending = false;
}

/* CPU time of this thread, ns; without waiting for other threads or a processor. 0: unknown. */
static int64_t run_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return 0;
    return t.tv_sec * WEIR__NS_PER_S + t.tv_nsec;
}

/* Waits for the pass, because a worker may be lost during it. */
static weir_status check_workers(weir__bcontext *c, weir_error *error)
{
    weir__llama_logits_ready(c);
    weir_status status = weir__llama_model_check(c->model, error);
    if (status != WEIR_OK) c->n_entries = c->n_rows = 0;
    return status;
}

/* token and embd: one is nullptr, except for heads. */
/* NOLINTBEGIN(readability-non-const-parameter): llama_batch has no const */
static weir_status run_pass(weir__bcontext *c, const weir__batch *batch, int32_t *token, float *embd,
                            int32_t *pos, weir_error *error)
/* NOLINTEND(readability-non-const-parameter) */
{
    int32_t n_rows = 0;
    c->n_entries = c->n_rows = 0;
    c->settled = false;
    weir_status status = weir__llama_model_check(c->model, error);
    if (status != WEIR_OK) return status;
    for (int32_t i = 0; i < batch->n; i++) {
        bool wanted = c->embeddings || batch->logits[i] != 0;
        c->row_of[i] = wanted ? n_rows : -1;
        n_rows += wanted;
        c->seqs[i] = &batch->seq[i];
    }
    /* Without a list of rows all are kept, for embeddings. */
    int8_t *kept = c->embeddings ? nullptr : batch->logits;
    llama_batch b = {batch->n, token, embd, pos, c->ones, c->seqs, kept};
    weir__team *team = &c->teams[c->embeddings || n_rows < batch->n];
    int32_t n_threads = weir__team_size(team, batch->n);
    int64_t ns = c->adapts ? -weir__clock_now_ns() : 0, ran_ns = c->adapts ? -run_ns() : 0;
    bool began;
    llama_set_n_threads(c->context, n_threads, n_threads);
    status = weir__llama_compute(c->context, b, c->model->encoder_only || c->model->encoder_decoder, &began,
                                 error);
    /* Cells were taken for tokens that were not computed if an exception ended the pass. */
    if (status == WEIR_NO_MEMORY && llama_get_memory(c->context) != nullptr)
        for (int32_t i = 0; i < batch->n; i++) weir::remove_cells(c->context, batch->seq[i], pos[i], -1);
    if (began) end_copies(c);
    if (status != WEIR_OK) { /* a lost worker or a changed file is the better reason */
        weir_status lost = weir__llama_model_check(c->model, error);
        return lost != WEIR_OK ? lost : status;
    }
    if (c->adapts) {
        int64_t now_ns = run_ns();
        bool known = ran_ns != 0 && now_ns != 0;
        ns += weir__clock_now_ns();
        weir__team_took(team, batch->n, ns, known ? weir__max(ns - (ran_ns + now_ns), 0) : 0);
    }
    c->n_entries = batch->n;
    c->n_rows = n_rows;
    return c->model->workers != nullptr ? check_workers(c, error) : WEIR_OK;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): llama_batch has no const */
weir_status weir__llama_pass(weir__bcontext *c, const weir__batch *batch, float *embd, weir_error *error)
{
    return run_pass(c, batch, batch->token, embd, batch->pos, error);
}

/* Positions as llama.cpp wants them for embeddings: one for each cell, or with M-RoPE four lists. */
static void fill_places(weir__bcontext *c, int32_t n, const weir__slice *slice)
{
    const weir__segment *segment = slice->segment;
    for (int32_t i = 0; i < n; i++) {
        int32_t cell = slice->first + i, step = weir__segment_step(segment, cell);
        c->places[i] = slice->pos + step;
        if (!c->model->m_rope) continue;
        const weir__place *place = segment->places != nullptr ? &segment->places[cell] : nullptr;
        c->places[n + i] = slice->pos + (place != nullptr ? place->y : step);
        c->places[2 * n + i] = slice->pos + (place != nullptr ? place->x : step);
        c->places[3 * n + i] = place != nullptr ? place->z : 0;
    }
}

/* Makes later passes causal, or not. Plans them under the lock, as llama.cpp would without it when the next
 * pass begins. */
static void set_causal(weir__bcontext *c, bool causal)
{
    pthread_mutex_lock(&c->model->adapter_lock);
    attempt(false, [&] {
        llama_set_causal_attn(c->context, causal);
        c->context->sched_reserve();
        return true;
    });
    pthread_mutex_unlock(&c->model->adapter_lock);
}

weir_status weir__llama_pass_segment(weir__bcontext *c, const weir__batch *batch, const weir__slice *slice,
                                     weir_error *error)
{
    const weir__segment *segment = slice->segment;
    int32_t n_ubatch = (int32_t)llama_n_ubatch(c->context);
    c->n_entries = c->n_rows = 0;
    if (!segment->causal && batch->n > n_ubatch)
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                               "an image or sound of %d tokens must be computed at once; `n_ubatch` is %d",
                               batch->n, n_ubatch);
    if (c->places == nullptr && !weir::allocate(c->places, 4 * (size_t)c->n_batch))
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for positions");
    fill_places(c, batch->n, slice);
    if (!segment->causal) set_causal(c, false);
    float *rows =
        segment->embeddings + (size_t)slice->first * (size_t)llama_model_n_embd_inp(c->model->model);
    weir_status status = run_pass(c, batch, nullptr, rows, c->places, error);
    if (!segment->causal) set_causal(c, true);
    return status;
}

weir_status weir__llama_settle(weir__bcontext *c, weir_error *error)
{
    if (!c->copy_pending) return WEIR_OK;
    weir_status status = guard(error, WEIR_BACKEND, "pending copies failed", [&] {
        llama_synchronize(c->context);
        c->context->memory_update(false);
        return WEIR_OK;
    });
    if (status == WEIR_OK) end_copies(c);
    return status;
}

void weir__llama_set_abort(weir__bcontext *c, bool (*fn)(void *user), void *user)
{
    c->abort_fn = fn;
    c->abort_user = user;
}

/* Waits for the pass, and makes a row an address: llama.cpp is not called again until the next pass. */
void weir__llama_logits_ready(weir__bcontext *c)
{
    if (c->settled) return;
    c->settled = true;
    bool read = c->n_rows > 0 && attempt(false, [&] { /* in the batch's order */
                                                      c->logits = llama_get_logits(c->context);
                                                      c->embedded = llama_get_embeddings(c->context);
                                                      return true;
                });
    if (read) return;
    c->logits = c->embedded = nullptr;
    if (c->n_rows == 0) llama_synchronize(c->context);
}

/* -1: none. */
static int32_t find_row(weir__bcontext *c, int32_t row)
{
    weir__llama_logits_ready(c);
    if (row < 0) return c->n_rows - 1;
    return row < c->n_entries ? c->row_of[row] : -1;
}

const float *weir__llama_logits(weir__bcontext *c, int32_t row)
{
    int32_t i = find_row(c, row);
    return i >= 0 && c->logits != nullptr ? c->logits + (size_t)i * (size_t)c->model->info.n_vocab : nullptr;
}

const float *weir__llama_embedding(weir__bcontext *c, int32_t row, int32_t seq)
{
    if (!c->embeddings || c->n_rows == 0) return nullptr;
    if (row < 0)
        return c->pooling == LLAMA_POOLING_TYPE_NONE ? nullptr : attempt<const float *>(nullptr, [&] {
            return llama_get_embeddings_seq(c->context, seq);
        });
    int32_t i = find_row(c, row);
    if (i < 0 || c->embedded == nullptr || c->pooling != LLAMA_POOLING_TYPE_NONE) return nullptr;
    return c->embedded + (size_t)i * (size_t)c->width;
}

int32_t weir__llama_embedding_width(const weir__bcontext *c)
{
    return c->width;
}
