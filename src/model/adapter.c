/* adapter.c: adapters, and sets of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/adapter.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/member.h"

#define SCALE_MAX 100.0f

/* ---- One ---- */

weir_status weir_adapter_load(weir_model *model, const char *path, weir_adapter **out, weir_error *error)
{
    if (model == NULL || out == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, model ? "adapter" : "model", "a pointer is NULL");
    if (path == NULL || *path == '\0')
        return weir__invalid(error, WEIR_ERROR_MISSING, "path", "`path` is %s; give a GGUF file",
                             path == NULL ? "NULL" : "empty");
    weir_adapter *adapter = weir__mem_calloc(1, sizeof *adapter);
    if (adapter == NULL) goto no_memory;
    atomic_init(&adapter->refs, 1);
    adapter->path = weir__mem_strdup(path);
    if (adapter->path == NULL) goto no_memory;
    weir_status status = model->ops->adapter_load(model->model, path, &adapter->adapter, error);
    if (status != WEIR_OK) {
        weir__mem_free(adapter->path);
        weir__mem_free(adapter);
        return status;
    }
    adapter->model = weir_model_hold(model);
    model->ops->adapter_describe(adapter->adapter, &adapter->info);
    adapter->info.size = sizeof adapter->info;
    adapter->info.path = adapter->path;
    *out = adapter;
    return WEIR_OK;
no_memory:
    weir__mem_free(adapter);
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for an adapter");
}

weir_adapter *weir_adapter_hold(weir_adapter *adapter)
{
    if (adapter != NULL) atomic_fetch_add_explicit(&adapter->refs, 1, memory_order_relaxed);
    return adapter;
}

void weir_adapter_release(weir_adapter *adapter)
{
    if (adapter == NULL || atomic_fetch_sub_explicit(&adapter->refs, 1, memory_order_acq_rel) > 1) return;
    weir_model *model = adapter->model;
    model->ops->adapter_free(adapter->adapter);
    weir__mem_free(adapter->path);
    weir__mem_free(adapter);
    weir_model_release(model);
}

weir_status weir_adapter_describe(const weir_adapter *adapter, weir_adapter_info *info)
{
    if (adapter == NULL || info == NULL) return WEIR_INVALID;
    weir_adapter_info now = adapter->info;
    now.n_running = atomic_load_explicit(&adapter->n_running, memory_order_relaxed);
    now.n_waiting = atomic_load_explicit(&adapter->n_waiting, memory_order_relaxed);
    return weir__sized_give(info, &now, sizeof now, "info", NULL);
}

/* ---- Sets ---- */

static weir_status check_adapters(const weir_model *model, const weir_adapter_use *uses, size_t n,
                                  const char *prefix, weir_error *error)
{
    char field[64], n_field[64];
    snprintf(field, sizeof field, "%sadapters", prefix);
    snprintf(n_field, sizeof n_field, "%sn_adapters", prefix);
    if (n > WEIR_ADAPTERS_MAX)
        return weir__error_range(error, WEIR_INVALID, n_field, (double)n, 0, WEIR_ADAPTERS_MAX,
                                 "%zu adapters", n);
    if (n > 0 && uses == NULL) return weir__invalid(error, WEIR_ERROR_MISSING, field, "`adapters` is NULL");
    for (size_t i = 0; i < n; i++) {
        const weir_adapter_use *use = &uses[i];
        if (use->adapter == NULL)
            return weir__invalid(error, WEIR_ERROR_MISSING, field, "`adapters[%zu]` is NULL", i);
        if (use->adapter->model != model)
            return weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                                 "`adapters[%zu]` was loaded for another model", i);
        for (size_t k = 0; k < i; k++)
            if (uses[k].adapter == use->adapter)
                return weir__invalid(error, WEIR_ERROR_DUPLICATE, field,
                                     "`adapters[%zu]` stands twice; give it once, with the sum of scales", i);
        if (!(fabsf(use->scale) <= SCALE_MAX)) /* nor NaN */
            return weir__error_range(error, WEIR_INVALID, field, (double)use->scale, (double)-SCALE_MAX,
                                     (double)SCALE_MAX, "`adapters[%zu].scale` is %g", i, (double)use->scale);
    }
    return WEIR_OK;
}

static bool goes_before(const weir_adapter_use *a, const weir__adapters *adapters, int32_t i)
{
    uint64_t x = a->adapter->info.identity, y = adapters->adapter[i]->info.identity;
    return x < y || (x == y && a->scale < adapters->scale[i]);
}

/* Inserts by contents and scale, so that sums and keys do not depend on the caller's order. */
static void insert_use(weir__adapters *adapters, const weir_adapter_use *use)
{
    int32_t at = adapters->n++;
    for (; at > 0 && goes_before(use, adapters, at - 1); at--) {
        adapters->adapter[at] = adapters->adapter[at - 1];
        adapters->scale[at] = adapters->scale[at - 1];
    }
    adapters->adapter[at] = weir_adapter_hold(use->adapter);
    adapters->scale[at] = use->scale;
}

static uint64_t key_of(const weir__adapters *adapters)
{
    uint64_t key = 0;
    if (adapters->n == 0) return 0;
    for (int32_t i = 0; i < adapters->n; i++) {
        key = weir__hash(key, &adapters->adapter[i]->info.identity, sizeof(uint64_t));
        key = weir__hash(key, &adapters->scale[i], sizeof adapters->scale[i]);
    }
    return key != 0 ? key : 1;
}

weir_status weir__adapters_take(weir__adapters *adapters, const weir_model *model,
                                const weir_adapter_use *uses, size_t n, const char *prefix, weir_error *error)
{
    weir_status status = check_adapters(model, uses, n, prefix, error);
    if (status != WEIR_OK) return status;
    memset(adapters, 0, sizeof *adapters);
    for (size_t i = 0; i < n; i++)
        if (uses[i].scale != 0.0f) insert_use(adapters, &uses[i]);
    adapters->key = key_of(adapters);
    return WEIR_OK;
}

void weir__adapters_copy(weir__adapters *to, const weir__adapters *from)
{
    *to = *from;
    for (int32_t i = 0; i < to->n; i++) weir_adapter_hold(to->adapter[i]);
}

void weir__adapters_fini(weir__adapters *adapters)
{
    for (int32_t i = 0; i < adapters->n; i++) weir_adapter_release(adapters->adapter[i]);
    memset(adapters, 0, sizeof *adapters);
}

static void count_use(weir_adapter *adapter, weir__adapters_place place, int32_t n)
{
    if (place == WEIR__ADAPTERS_NOWHERE) return;
    _Atomic int32_t *of = place == WEIR__ADAPTERS_WAITING ? &adapter->n_waiting : &adapter->n_running;
    atomic_fetch_add_explicit(of, n, memory_order_relaxed);
}

void weir__adapters_move(const weir__adapters *adapters, weir__adapters_place from, weir__adapters_place to)
{
    for (int32_t i = 0; i < adapters->n; i++) {
        count_use(adapters->adapter[i], from, -1);
        count_use(adapters->adapter[i], to, 1);
    }
}

weir_status weir__adapters_set(const weir_model *model, weir__bcontext *context, weir__adapters *current,
                               const weir__adapters *wanted, weir_error *error)
{
    if (current->key == wanted->key) return WEIR_OK;
    weir__badapter *adapters[WEIR_ADAPTERS_MAX];
    for (int32_t i = 0; i < wanted->n; i++) adapters[i] = wanted->adapter[i]->adapter;
    weir__adapters former = *current; /* freed after the backend has other adapters */
    weir_status status = model->ops->set_adapters(context, adapters, wanted->scale, wanted->n, error);
    memset(current, 0, sizeof *current);
    if (status == WEIR_OK) weir__adapters_copy(current, wanted);
    weir__adapters_fini(&former);
    return status;
}
