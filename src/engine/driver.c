/* driver.c: opens and closes the driver's data.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/driver.h"

#include "base/error.h"
#include "base/mem.h"
#include "engine/prefix.h"

/* The part of cache_bytes for embeddings that no slot needs now. */
#define EMBEDDINGS_PART 4

static weir_status allocate_arrays(weir__driver *driver, weir_error *error)
{
    size_t n = (size_t)driver->params->n_slots;
    driver->slots.first = driver->slots.end = weir__mem_calloc(n, sizeof *driver->slots.first);
    if (driver->slots.first != NULL) driver->slots.end += n;
    driver->sampling = weir__mem_calloc(n, sizeof *driver->sampling);
    driver->view_slots = weir__mem_calloc(n, sizeof *driver->view_slots);
    driver->shown = weir__mem_calloc(n, sizeof *driver->shown);
    driver->plan = weir__mem_calloc(n, sizeof *driver->plan);
    if (driver->slots.first == NULL || driver->sampling == NULL || driver->view_slots == NULL ||
        driver->shown == NULL || driver->plan == NULL ||
        !weir__lanes_init(&driver->lanes, &driver->memory, driver->prefix.cache) ||
        !weir__cells_init(&driver->cells, &driver->memory, driver->prefix.cache, driver->slots))
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for %zu slots", n);
    for (size_t i = 0; i < n; i++) weir__slot_init(&driver->slots.first[i], (int32_t)i);
    return weir__batch_init(&driver->batch, driver->params->n_batch, error);
}

static weir_status open_prefix(weir__driver *driver, weir_error *error)
{
    driver->prefix = (weir__prefix){
        .model = driver->model,
        .params = driver->params,
        .info = &driver->info,
    };
    weir_status status =
        weir__memory_init(&driver->memory, driver->model->ops, driver->context, &driver->info, error);
    if (status != WEIR_OK) return status;
    driver->memory.uneven = driver->model->projector != NULL;
    return weir__prefix_open(&driver->prefix, &driver->memory, driver->waker, error);
}

static weir_status open_speculate(weir__driver *driver, weir_error *error)
{
    driver->speculate = (weir__speculate){
        .model = driver->model,
        .params = driver->params,
        .info = &driver->info,
        .slots = driver->slots,
        .cells = &driver->cells,
        .lanes = &driver->lanes,
        .turns = &driver->turns,
        .cost = &driver->cost,
    };
    return weir__speculate_open(&driver->speculate, driver->context, error);
}

static weir_engine_stats first_counts(const weir__driver *driver)
{
    const weir_engine_params *params = driver->params;
    const weir_context_info *info = &driver->info;
    return (weir_engine_stats){
        .size = sizeof(weir_engine_stats),
        .n_slots = params->n_slots,
        .n_ctx = params->n_ctx,
        .n_kv = info->n_ctx,
        .n_batch = params->n_batch,
        .n_ubatch = info->n_ubatch,
        .layout = info->layout,
        .batch_invariant = info->batch_invariant,
        .attention_kernels = info->attention_kernels,
        .kv_bytes = (uint64_t)info->n_ctx *
                    driver->model->ops->cell_bytes(driver->model->model, params->type_k, params->type_v),
    };
}

static weir_status open_account(weir__driver *driver, weir_error *error)
{
    weir__account *account = &driver->account;
    weir_engine_stats *counts = &account->counts;
    *account = (weir__account){
        .shared = driver->shared,
        .slots = driver->slots,
        .cells = &driver->cells,
        .cost = &driver->cost,
        .encoder = driver->encoder,
        .model = driver->model,
        .counts = first_counts(driver),
    };
    weir__cache_counts kept = weir__cache_count(driver->prefix.cache); /* files of earlier engines */
    counts->n_cache_files = kept.n_disk;
    counts->cache_disk_bytes = kept.disk_bytes;
    weir__speculate_name(&driver->speculate, counts->drafters, sizeof counts->drafters);
    driver->shared->stats = *counts;
    if (weir__account_init(account)) return WEIR_OK;
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for the record of ticks");
}

weir_status weir__driver_open(weir__driver *driver, weir_error *error)
{
    weir__cost_init(&driver->cost);
    weir_status status = open_prefix(driver, error);
    if (status == WEIR_OK) status = allocate_arrays(driver, error);
    if (status == WEIR_OK) status = open_speculate(driver, error);
    if (status == WEIR_OK && driver->model->projector != NULL)
        status = weir__encoder_create(driver->model, driver->prefix.cache,
                                      driver->params->cache_bytes / EMBEDDINGS_PART, driver->waker,
                                      &driver->encoder, error);
    return status == WEIR_OK ? open_account(driver, error) : status;
}

void weir__driver_close(weir__driver *driver)
{
    weir__thread_pool_destroy(driver->threads);
    weir__speculate_close(&driver->speculate);
    weir__encoder_destroy(driver->encoder);
    weir__cache_destroy(driver->prefix.cache);
    weir__memory_fini(&driver->memory);
    if (driver->context != NULL) driver->model->ops->context_free(driver->context);
    weir__adapters_fini(&driver->turns.adapters);
    weir__batch_fini(&driver->batch);
    weir__account_fini(&driver->account);
    weir__emit_scratch_fini(&driver->scratch);
    weir__mem_free(driver->slots.first);
    weir__lanes_fini(&driver->lanes);
    weir__cells_fini(&driver->cells);
    weir__mem_free(driver->sampling);
    weir__mem_free(driver->view_slots);
    weir__mem_free(driver->shown);
    weir__mem_free(driver->plan);
}
