/* loaded.c: a model in memory, all that the server has of it, and what it can do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loaded.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "kept.h"

static _Atomic uint64_t n_created;

serve_loaded *serve_loaded_create(const char *name, weir_model *model, weir_engine *engine)
{
    serve_loaded *loaded = weir__mem_calloc(1, sizeof *loaded);
    if (loaded == NULL) return NULL;
    pthread_mutex_init(&loaded->embedder.mutex, NULL);
    loaded->serial = atomic_fetch_add(&n_created, 1) + 1;
    loaded->name = name != NULL ? weir__mem_strdup(name) : NULL;
    loaded->model = model;
    loaded->engine = engine;
    loaded->watched_ns = weir__clock_now_ns();
    loaded->kept = serve_kept_create();
    loaded->adapters = serve_adapters_create();
    if (loaded->kept != NULL && loaded->adapters != NULL && (name == NULL || loaded->name != NULL))
        return loaded;
    serve_loaded_destroy(loaded);
    return NULL;
}

void serve_loaded_wait(serve_loaded *loaded)
{
    if (loaded->embedder.has_reaper) pthread_join(loaded->embedder.reaper, NULL);
    loaded->embedder.has_reaper = false;
}

void serve_loaded_destroy(serve_loaded *loaded)
{
    if (loaded == NULL) return;
    serve_kept_destroy(loaded->kept);
    serve_adapters_destroy(loaded->adapters);
    serve_loaded_wait(loaded);
    weir_context_destroy(loaded->embedder.context);
    pthread_mutex_destroy(&loaded->embedder.mutex);
    weir__mem_free(loaded->name);
    weir__mem_free(loaded);
}

int32_t serve_loaded_context(const serve_loaded *loaded)
{
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    if (weir_engine_get_stats(loaded->engine, &stats) == WEIR_OK) return stats.n_ctx;
    weir_model_describe(loaded->model, &info);
    return info.n_ctx_train;
}

bool serve_loaded_infills(const weir_model_info *info)
{
    return info->token_fim_prefix >= 0 && info->token_fim_suffix >= 0 && info->token_fim_middle >= 0;
}

void serve_loaded_add_abilities(const serve_loaded *loaded, bool ollama, weir__text *text)
{
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(loaded->model, &info);
    const char *template = info.chat_template;
    bool writes = loaded->engine != NULL;
    const struct {
        bool has;
        const char *name, *of_ollama; /* NULL: not listed */
    } all[] = {
        {writes && template != NULL, "chat", NULL},
        {writes, "completion", "completion"},
        {writes, NULL, "tools"}, /* enforced with any template */
        {writes && template != NULL && strstr(template, "think") != NULL, NULL, "thinking"},
        {writes && serve_loaded_infills(&info), "infill", "insert"},
        {info.reads_images, "images", "vision"},
        {info.reads_sounds, "audio", NULL},
        {!info.ranks, "embeddings", "embedding"},
        {info.ranks, "rerank", NULL},
    };
    weir__text_add_string(text, "[");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *name = ollama ? all[i].of_ollama : all[i].name;
        if (!all[i].has || name == NULL) continue;
        weir__json_next(text);
        weir__json_quote(text, name, strlen(name));
    }
    weir__text_add_string(text, "]");
}
