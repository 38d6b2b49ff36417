/* loaded.c: a model in memory, and all that the server has of it. SPDX-License-Identifier: Apache-2.0 */
#include "loaded.h"

#include <stdatomic.h>

#include "base/clock.h"
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
