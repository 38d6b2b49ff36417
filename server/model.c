/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <string.h>

#include "base/utf8.h"
#include "kept.h"

/* ---- Life ---- */

static bool init_loaded(serve_loaded *loaded)
{
    pthread_mutex_init(&loaded->embedder.mutex, NULL);
    loaded->kept = serve_kept_create();
    loaded->adapters = serve_adapters_create();
    return loaded->kept != NULL && loaded->adapters != NULL;
}

static void fini_loaded(serve_loaded *loaded)
{
    serve_kept_destroy(loaded->kept);
    serve_adapters_destroy(loaded->adapters);
    weir_context_destroy(loaded->embedder.context);
    pthread_mutex_destroy(&loaded->embedder.mutex);
}

bool serve_model_init(serve_model *model, const serve_model_params *params)
{
    *model = (serve_model){.params = params};
    return init_loaded(&model->loaded);
}

void serve_model_fini(serve_model *model)
{
    fini_loaded(&model->loaded);
}

/* ---- Names ---- */

void serve_model_call(serve_model *model, const char *file_name)
{
    const serve_model_params *params = model->params;
    weir__utf8_copy(model->file_name, sizeof model->file_name, file_name, strlen(file_name));
    model->name = model->file_name;
    for (size_t i = params->n_names; i > 0; i--)
        if (strcmp(params->names[i - 1], SERVE_ANY_NAME) != 0) model->name = params->names[i - 1];
}

bool serve_model_named(const serve_model *model, const char *name)
{
    if (strcmp(name, "default") == 0) return true;
    if (name[0] != '\0' && strcmp(name, model->file_name) == 0) return true;
    for (size_t i = 0; i < model->params->n_names; i++)
        if (strcmp(name, model->params->names[i]) == 0) return true;
    return false;
}

bool serve_model_accepts(const serve_model *model, const char *name)
{
    if (name[0] == '\0' || serve_model_named(model, name)) return true;
    for (size_t i = 0; i < model->params->n_names; i++)
        if (strcmp(model->params->names[i], SERVE_ANY_NAME) == 0) return true;
    return false;
}
