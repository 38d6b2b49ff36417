/* adapters.c: the adapters that requests may name. SPDX-License-Identifier: Apache-2.0 */
#include "adapters.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/more.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/system/label.h"

typedef struct entry {
    int64_t id;
    char name[SERVE_ADAPTER_NAME];
    weir_adapter *adapter; /* held */
    float scale;
    bool fixed;
} entry;

/* Invariant: entries [n] have ascending ids, which are never given again. */
struct serve_adapters {
    pthread_mutex_t mutex; /* all below */
    entry entries[SERVE_ADAPTERS_MOST];
    size_t n;
    int64_t next_id;
};

serve_adapters *serve_adapters_create(void)
{
    serve_adapters *adapters = weir__mem_calloc(1, sizeof *adapters);
    if (adapters != NULL) pthread_mutex_init(&adapters->mutex, NULL);
    return adapters;
}

void serve_adapters_destroy(serve_adapters *adapters)
{
    if (adapters == NULL) return;
    for (size_t i = 0; i < adapters->n; i++) weir_adapter_release(adapters->entries[i].adapter);
    pthread_mutex_destroy(&adapters->mutex);
    weir__mem_free(adapters);
}

/* The mutex is held. */
static entry *find_adapter(serve_adapters *adapters, const char *name)
{
    for (size_t i = 0; i < adapters->n; i++)
        if (strcmp(adapters->entries[i].name, name) == 0) return &adapters->entries[i];
    return NULL;
}

weir_status serve_adapters_add(serve_adapters *adapters, const char *name, weir_adapter *adapter, float scale,
                               bool fixed, weir_error *error)
{
    char clean[SERVE_ADAPTER_NAME]; /* a file's name may be any bytes, a request's is UTF-8 */
    weir_status status = WEIR_OK;
    if (*name == '\0' || strlen(name) >= SERVE_ADAPTER_NAME)
        return weir__error_set(error, WEIR_INVALID, "lora_name", "a name has 1 to %d bytes",
                               SERVE_ADAPTER_NAME - 1);
    weir__utf8_copy(clean, sizeof clean, name, strlen(name));
    pthread_mutex_lock(&adapters->mutex);
    const entry *other = find_adapter(adapters, clean);
    if (other != NULL) {
        status = weir__error_set(
            error, WEIR_INVALID, "lora_name", "there is an adapter \"%s\" already; %stake another name",
            clean, other->fixed ? "it came with the model and stays: " : "unload it first, or ");
    } else if (adapters->n == SERVE_ADAPTERS_MOST) {
        status = weir__error_set(error, WEIR_BUSY, "lora_name",
                                 "there are %d adapters, as many as there may be; unload one first",
                                 SERVE_ADAPTERS_MOST);
    } else {
        entry *to = &adapters->entries[adapters->n++];
        *to = (entry){
            .id = adapters->next_id++, .adapter = weir_adapter_hold(adapter), .scale = scale, .fixed = fixed};
        snprintf(to->name, sizeof to->name, "%s", clean);
    }
    pthread_mutex_unlock(&adapters->mutex);
    return status;
}

weir_status serve_adapters_remove(serve_adapters *adapters, const char *name)
{
    weir_adapter *gone = NULL;
    pthread_mutex_lock(&adapters->mutex);
    entry *from = find_adapter(adapters, name);
    weir_status status = from == NULL ? WEIR_NOT_FOUND : from->fixed ? WEIR_STATE : WEIR_OK;
    if (status == WEIR_OK) {
        gone = from->adapter;
        size_t after = adapters->n - (size_t)(from + 1 - adapters->entries);
        memmove(from, from + 1, after * sizeof *from);
        adapters->n--;
    }
    pthread_mutex_unlock(&adapters->mutex);
    weir_adapter_release(gone);
    return status;
}

bool serve_adapters_has(serve_adapters *adapters, const char *name)
{
    pthread_mutex_lock(&adapters->mutex);
    bool found = find_adapter(adapters, name) != NULL;
    pthread_mutex_unlock(&adapters->mutex);
    return found;
}

/* ---- Sets ---- */

static bool put_adapter(serve_adapter_set *set, const entry *from, float scale)
{
    size_t i = 0;
    while (i < set->n && set->uses[i].adapter != from->adapter) i++;
    if (i < set->n && scale == 0.0f) {
        weir_adapter_release(set->uses[i].adapter);
        set->uses[i] = set->uses[--set->n];
    } else if (i < set->n) {
        set->uses[i].scale = scale;
    } else if (scale != 0.0f) {
        if (set->n == WEIR_ADAPTERS_MAX) return false;
        set->uses[set->n++] = (weir_adapter_use){weir_adapter_hold(from->adapter), scale};
    }
    return true;
}

bool serve_adapters_named(serve_adapters *adapters, const char *name, serve_adapter_set *set)
{
    pthread_mutex_lock(&adapters->mutex);
    const entry *from = find_adapter(adapters, name);
    if (from != NULL) {
        serve_adapter_set_fini(set);
        put_adapter(set, from, from->scale != 0.0f ? from->scale : 1.0f);
    }
    pthread_mutex_unlock(&adapters->mutex);
    return from != NULL;
}

void serve_adapters_standard(serve_adapters *adapters, serve_adapter_set *set)
{
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n; i++)
        put_adapter(set, &adapters->entries[i], adapters->entries[i].scale);
    pthread_mutex_unlock(&adapters->mutex);
}

bool serve_adapters_numbered(serve_adapters *adapters, int64_t id, float scale, serve_adapter_set *set)
{
    bool done = false;
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n; i++)
        if (adapters->entries[i].id == id) done = put_adapter(set, &adapters->entries[i], scale);
    pthread_mutex_unlock(&adapters->mutex);
    return done;
}

void serve_adapters_set_standard(serve_adapters *adapters, const serve_adapter_set *set)
{
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n; i++) {
        adapters->entries[i].scale = 0.0f;
        for (size_t k = 0; k < set->n; k++)
            if (set->uses[k].adapter == adapters->entries[i].adapter)
                adapters->entries[i].scale = set->uses[k].scale;
    }
    pthread_mutex_unlock(&adapters->mutex);
}

void serve_adapter_set_fini(serve_adapter_set *set)
{
    for (size_t i = 0; i < set->n; i++) weir_adapter_release(set->uses[i].adapter);
    set->n = 0;
}

/* ---- Lists ---- */

void serve_adapters_list(serve_adapters *adapters, weir__text *text)
{
    weir__text_add_string(text, "[");
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n; i++) {
        const entry *from = &adapters->entries[i];
        weir_adapter_info info = {.size = sizeof info};
        weir_adapter_describe(from->adapter, &info);
        weir__json_next(text);
        weir__text_printf(text, "{\"id\":%lld", (long long)from->id);
        weir__json_string(text, "name", from->name);
        const char *slash = info.path != NULL ? strrchr(info.path, '/') : NULL;
        weir__json_string(text, "path", slash != NULL ? slash + 1 : info.path);
        weir__json_float(text, "scale", from->scale);
        weir__text_printf(text, ",\"rank\":%d,\"size\":%llu}", info.rank, (unsigned long long)info.n_bytes);
    }
    pthread_mutex_unlock(&adapters->mutex);
    weir__text_add_string(text, "]");
}

/* The names of those that running or waiting requests have, with commas. The mutex is held. */
static void add_used(const serve_adapters *adapters, bool running, weir__text *text)
{
    weir__text names = {0};
    for (size_t i = 0; i < adapters->n; i++) {
        weir_adapter_info info = {.size = sizeof info};
        weir_adapter_describe(adapters->entries[i].adapter, &info);
        if ((running ? info.n_running : info.n_waiting) == 0) continue;
        weir__text_printf(&names, "%s%s", names.n > 0 ? "," : "", adapters->entries[i].name);
    }
    serve_label_quote(text, names.n > 0 ? names.bytes : "", names.n);
    weir__text_fini(&names);
}

void serve_adapters_labels(serve_adapters *adapters, weir__text *text)
{
    pthread_mutex_lock(&adapters->mutex);
    if (adapters->n > 0) {
        weir__text_printf(text, "max_lora=\"%d\",running_lora_adapters=", SERVE_ADAPTERS_MOST);
        add_used(adapters, true, text);
        weir__text_add_string(text, ",waiting_lora_adapters=");
        add_used(adapters, false, text);
    }
    pthread_mutex_unlock(&adapters->mutex);
}

static void add_model(const entry *from, const char *parent, int64_t created_s, int32_t n_ctx,
                      weir__text *text)
{
    weir_adapter_info info = {.size = sizeof info};
    weir_adapter_describe(from->adapter, &info);
    weir__text_add_string(text, "{");
    weir__json_string(text, "id", from->name);
    weir__text_printf(text, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"weir\"",
                      (long long)created_s);
    weir__json_string(text, "parent", parent);
    if (n_ctx > 0) weir__text_printf(text, ",\"context_length\":%d,\"max_model_len\":%d", n_ctx, n_ctx);
    weir__text_add_string(text, ",\"meta\":{");
    weir__json_string(text, "description", info.name);
    weir__text_printf(text, ",\"rank\":%d,\"size\":%llu}}", info.rank, (unsigned long long)info.n_bytes);
}

bool serve_adapters_list_models(serve_adapters *adapters, const char *name, const char *parent,
                                int64_t created_s, int32_t n_ctx, weir__text *text)
{
    bool any = false;
    pthread_mutex_lock(&adapters->mutex);
    for (size_t i = 0; i < adapters->n; i++) {
        if (name != NULL && strcmp(adapters->entries[i].name, name) != 0) continue;
        if (name == NULL) weir__json_next(text);
        add_model(&adapters->entries[i], parent, created_s, n_ctx, text);
        any = true;
    }
    pthread_mutex_unlock(&adapters->mutex);
    return any;
}

/* ---- Files ---- */

char *serve_adapters_path(const char *folder, const char *name)
{
    char joined[PATH_MAX];
    bool whole = name[0] == '/';
    int n = snprintf(joined, sizeof joined, "%s%s%s", whole ? "" : folder, whole ? "" : "/", name);
    char *path = n > 0 && (size_t)n < sizeof joined ? realpath(joined, NULL) : NULL;
    char *within = path != NULL ? realpath(folder, NULL) : NULL;
    size_t length = within != NULL ? strlen(within) : 0;
    bool inside = within != NULL && strncmp(path, within, length) == 0 &&
                  (path[length] == '/' || (length == 1 && within[0] == '/'));
    free(within);
    if (inside) return path;
    free(path);
    return NULL;
}
