/* prefix.c: which prefixes an engine keeps, and how many tokens of a prompt they have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/stream.h"

/* The fewest tokens of a prefix that is copied between lanes or loaded, which takes some milliseconds. */
#define COPY_LEAST 8
/* A checkpoint ends a chunk, and short chunks compute slowly. */
#define CHECKPOINT_LEAST 8

/* The interval at which an engine looks for files that other processes have added to its cache_dir. */
#define WATCH_NS (WEIR__NS_PER_S / 4)

/* ---- Life ---- */

static void wake_engine(void *user)
{
    weir__waker_wake(user);
}

/* Models with an original context may have other factors of RoPE for contexts beyond it: then the length of
 * the sequences counts. 0: it does not. */
static uint64_t factors_of(const weir__prefix *prefix)
{
    const weir_model *model = prefix->model;
    char key[128], text[32];
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", model->info.architecture);
    bool has = model->ops->model_meta(model->model, key, text, sizeof text) > 0;
    return has ? (uint64_t)prefix->info->n_ctx_seq : 0;
}

/* The contexts that can load a saved state. Layout, lanes and kernels do not count. model: its identity, or
 * its fingerprint. */
static uint64_t kind_of(const weir__prefix *prefix, uint64_t model)
{
    const char *version = weir_backend_version();
    const uint64_t numbers[] = {
        model,
        (uint64_t)prefix->params->type_k,
        (uint64_t)prefix->params->type_v,
        factors_of(prefix),
    };
    return weir__hash(weir__hash(prefix->model->attention, numbers, sizeof numbers), version,
                      strlen(version));
}

static weir__snapshot_limits limits_of(const weir__prefix *prefix, uint64_t model)
{
    return (weir__snapshot_limits){.kind = kind_of(prefix, model),
                                   .n_tokens = prefix->info->n_ctx_seq,
                                   .n_vocab = prefix->model->info.n_vocab};
}

weir__snapshot_limits weir__prefix_limits(const weir__prefix *prefix)
{
    return limits_of(prefix, prefix->model->info.fingerprint);
}

/* Opens cache_dir, if there is one and prefixes are kept at all. */
static weir_status open_archive(const weir__prefix *prefix, weir__waker *waker, weir__archive **archive,
                                weir_error *error)
{
    const weir__archive_params params = {
        .path = prefix->params->cache_dir,
        .n_bytes = prefix->params->cache_disk_bytes,
        .limits = limits_of(prefix, prefix->model->ops->model_identity(prefix->model->model)),
        .watch_ns = WATCH_NS,
        .wake = wake_engine,
        .user = waker,
    };
    if (params.path == NULL || *params.path == '\0' || !prefix->caching) return WEIR_OK;
    return weir__archive_open(&params, archive, error);
}

weir_status weir__prefix_open(weir__prefix *prefix, weir__memory *memory, weir__waker *waker,
                              weir_error *error)
{
    const weir_engine_params *params = prefix->params;
    bool lanes = prefix->info->layout == WEIR_LAYOUT_PER_SLOT;
    prefix->caching = params->cache_sequences != 0;
    prefix->exact = weir__prefix_is_exact(prefix->model);
    prefix->checkpoints = prefix->exact && params->cache_bytes > 0;
    prefix->least = lanes || prefix->exact ? COPY_LEAST : 1;
    weir__archive *archive = NULL;
    weir_status status = open_archive(prefix, waker, &archive, error);
    if (status != WEIR_OK) return status;
    int32_t beside = prefix->info->n_seq_max - params->n_slots;
    weir__cache_params cache = {
        .memory = memory,
        /* without others, idle slots' lanes serve */
        .n_sequences = !prefix->caching                        ? 0
                       : params->cache_sequences > 0 || !lanes ? beside
                                                               : params->n_slots,
        .n_bytes = params->cache_bytes,
        .least = prefix->least,
        .exact = prefix->exact,
        .block = params->cache_block,
        .archive = archive,
    };
    return weir__cache_create(&cache, &prefix->cache, error);
}

bool weir__prefix_is_exact(const weir_model *model)
{
    return model->info.is_recurrent || model->info.is_hybrid || model->info.n_swa > 0;
}

bool weir__prefix_serves(const weir__prefix *prefix, const weir__request *request)
{
    return prefix->caching && request->cache_prompt;
}

/* ---- Checkpoints: where memory cannot be cut ---- */

/* True if an image or a sound ends with cell n: its cells cost most of the prompt's. */
static bool ends_medium(const weir__history *history, int32_t n)
{
    for (int32_t i = 0; i < history->n_spans && history->spans[i].end <= n; i++)
        if (history->spans[i].end == n)
            return i + 1 == history->n_spans || history->spans[i + 1].medium != history->spans[i].medium;
    return false;
}

static bool is_checkpoint(const weir__prefix *prefix, const weir__request *request, int32_t n)
{
    const weir__history *history = &request->history;
    if (n < 1 || n >= history->n_prompt) return false;
    if (history->tokens[n - 1] < 0) return ends_medium(history, n);
    return n == history->n_prompt - 1 ||
           (n >= CHECKPOINT_LEAST &&
            prefix->model->ops->is_eog(prefix->model->model, request->history.tokens[n - 1]));
}

int32_t weir__prefix_chunk(const weir__prefix *prefix, const weir__slot *slot, int32_t n)
{
    if (!prefix->checkpoints || !weir__prefix_serves(prefix, slot->request)) return n;
    for (int32_t i = 1; i < n; i++)
        if (is_checkpoint(prefix, slot->request, slot->n_past + i)) return i;
    return n;
}

int32_t weir__prefix_last_checkpoint(const weir__prefix *prefix, const weir__slot *leader, int32_t n)
{
    while (n > 0 && !is_checkpoint(prefix, leader->request, n)) n--;
    return n;
}

/* ---- Hits ---- */

void weir__prefix_cut(const weir__prefix *prefix, const weir__history *history, weir__cache_hit *hit)
{
    if (history->n_spans == 0) return;
    int32_t n = weir__history_shared(history, hit->n);
    if (n < hit->n && (prefix->exact || n < prefix->least)) {
        n = 0;
        hit->entry = hit->live = NULL;
    }
    hit->n = n;
    hit->pos = weir__history_position(history, n);
    if (hit->leader == NULL) return;
    hit->n_leader = weir__history_shared(history, hit->n_leader);
    if (hit->n_leader <= n) {
        hit->leader = NULL;
        hit->n_leader = 0;
    }
}

/* ---- Going on ---- */

void weir__prefix_advance(const weir__prefix *prefix, weir__slot *slot)
{
    const weir__request *request = slot->request;
    if (!weir__prefix_serves(prefix, request)) return;
    weir__cache_advance(prefix->cache, &slot->live, slot->n_past, 0);
    if (!prefix->exact || !is_checkpoint(prefix, request, slot->n_past)) return;
    weir__prefix_key key = weir__history_key(&request->history);
    weir__cache_save(prefix->cache, &key, request->history.tokens, slot->n_past, slot->lane,
                     request->cache_keep_ms);
}

/* Keeps the slot's text; first cuts off the cells that a failed pass left. */
void weir__prefix_keep(const weir__prefix *prefix, weir__lanes *lanes, weir__slot *slot)
{
    const weir__request *request = slot->request;
    weir__prefix_key key = weir__history_key(&request->history);
    weir__cache_end(prefix->cache, &slot->live);
    int32_t n = weir__history_cut(&request->history, slot->n_past);
    if (slot->lane < 0 || !weir__prefix_serves(prefix, request) || slot->reason == WEIR_REASON_ERROR ||
        n < prefix->least || (prefix->exact && n < slot->n_past) ||
        !weir__memory_cut(lanes->memory, slot->lane, n, weir__history_position(&request->history, n)))
        return;
    if (prefix->exact)
        weir__cache_save(prefix->cache, &key, request->history.tokens, n, slot->lane, request->cache_keep_ms);
    else if (weir__cache_keep(prefix->cache, &key, request->history.tokens, n, slot->lane,
                              request->cache_keep_ms))
        weir__lanes_hand_over(lanes, slot);
}

/* True if a fork's source generates in a slot, as seen by another thread. A suspended source is in the
 * queue. */
static bool source_generates(const weir__prefix *prefix, weir__shared *shared, const weir__request *request)
{
    return request->source != NULL && !prefix->exact && weir__stream_flows(request->source) &&
           !weir__shared_has(shared, request->source);
}

int32_t weir__prefix_known(const weir__prefix *prefix, weir__shared *shared, const weir__request *request)
{
    weir__cache_hit hit;
    weir__prefix_key key = weir__history_key(&request->history);
    if (request->history.score != NULL) return 0;
    if (request->history.n_prompt > prefix->least && source_generates(prefix, shared, request))
        return request->history.n_prompt - 1;
    if (!weir__prefix_serves(prefix, request)) return 0;
    weir__cache_look(prefix->cache, &key, request->history.tokens, request->history.n_prompt, true, NULL,
                     UINT64_MAX, &hit);
    weir__prefix_cut(prefix, &request->history, &hit);
    return hit.n_leader > hit.n && !prefix->exact ? hit.n_leader : hit.n;
}
