/* llama_adapter.c: llama.cpp's LoRA adapters.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/llama_internal.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "gguf/gguf.h"

weir_status weir__llama_adapter_load(weir__bmodel *model, const char *path, weir__badapter **out,
                                     weir_error *error)
{
    weir__gguf_info file;
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "model", "the model was loaded without its weights");
    /* Reads the whole file, so that it is in the system's cache by the time that the lock is taken. */
    weir_status status = weir__gguf_check_adapter(path, &file, error);
    if (status != WEIR_OK) return status;
    if (strcmp(file.architecture, model->architecture) != 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, "path",
                               "the adapter is for models of the kind '%s', and this one is of the kind '%s'",
                               file.architecture, model->architecture);
    weir__badapter *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for an adapter");
    made->model = model;
    made->identity = file.identity;
    pthread_mutex_lock(&model->adapter_lock);
    status = weir__shim_adapter_load(model->model, path, &made->adapter, error);
    pthread_mutex_unlock(&model->adapter_lock);
    if (status == WEIR_OK)
        status = weir__shim_adapter_ready(model->model, made->adapter, &made->shape, error);
    if (status == WEIR_OK && !isfinite(made->shape.alpha))
        status = weir__error_set(error, WEIR_FORMAT, "path", "its alpha is %f; it must be finite",
                                 (double)made->shape.alpha);
    if (status != WEIR_OK) {
        weir__llama_adapter_free(made);
        return status;
    }
    char name[sizeof made->name] = "";
    llama_adapter_meta_val_str(made->adapter, "general.name", name, sizeof name);
    weir__utf8_copy(made->name, sizeof made->name, name, strlen(name));
    *out = made;
    return WEIR_OK;
}

void weir__llama_adapter_free(weir__badapter *adapter)
{
    if (adapter->adapter != NULL) {
        pthread_mutex_lock(&adapter->model->adapter_lock);
        llama_adapter_lora_free(adapter->adapter);
        pthread_mutex_unlock(&adapter->model->adapter_lock);
    }
    weir__mem_free(adapter);
}

void weir__llama_adapter_describe(const weir__badapter *adapter, weir_adapter_info *info)
{
    *info = (weir_adapter_info){
        .size = info->size,
        .path = info->path,
        .name = adapter->name,
        .n_weights = adapter->shape.n_weights,
        .rank = adapter->shape.rank,
        .alpha = adapter->shape.alpha,
        .n_bytes = adapter->shape.n_bytes,
        .identity = adapter->identity,
    };
}

weir_status weir__llama_set_adapters(weir__bcontext *c, weir__badapter *const *adapters, const float *scales,
                                     int32_t n, weir_error *error)
{
    struct llama_adapter_lora *set[WEIR_ADAPTERS_MAX];
    for (int32_t i = 0; i < n; i++) set[i] = adapters[i]->adapter;
    pthread_mutex_lock(&c->model->adapter_lock);
    weir_status status = weir__shim_set_adapters(c->context, set, scales, n, error);
    pthread_mutex_unlock(&c->model->adapter_lock);
    return status;
}
