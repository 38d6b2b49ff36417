/* paths.c: the table of paths. SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <string.h>

#include "server/api/anthropic/anthropic.h"
#include "server/api/common/tape.h"
#include "server/api/native/native.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/openai.h"
#include "server/operate/operate.h"
#include "server/page/page.h"
#include "server/routers/router.h"

static const serve_route routes[] = {
    {"POST", "[/v1]/chat/completions", serve_chat, .work = true, .engine = true},
    {"POST", "[/v1]/chat/completions/control", serve_control, .engine = true, .apart = true, .drain = true},
    {"POST", "[/v1]/completions", serve_completions, .work = true, .engine = true},
    {"POST", "/completion", serve_native, .work = true, .engine = true},
    {"POST", "/infill", serve_infill, .work = true, .engine = true},
    {"POST", "[/v1]/messages", serve_messages, .work = true, .engine = true, .error = serve_messages_error},
    {"POST", "[/v1]/messages/count_tokens", serve_count_tokens, .work = true, .engine = true,
     .error = serve_messages_error},
    {"POST", "[/v1]/responses", serve_responses, .work = true, .engine = true},
    {"POST", "[/v1]/responses/input_tokens", serve_input_tokens, .work = true, .engine = true},
    {"GET", "[/v1]/responses/*", serve_response_get, .model = true, .apart = true, .drain = true},
    {"DELETE", "[/v1]/responses/*", serve_response_delete, .model = true, .apart = true, .drain = true},
    {"POST", "[/v1]/responses/*/cancel", serve_response_cancel, .model = true, .apart = true, .drain = true},
    {"GET", "[/v1]/responses/*/input_items", serve_response_items, .work = true, .model = true, .apart = true,
     .drain = true},
    {"POST", "/api/chat", serve_ollama_chat, .work = true, .tagged = true, .engine = true,
     .error = serve_ollama_error},
    {"POST", "/api/generate", serve_ollama_generate, .work = true, .tagged = true, .engine = true,
     .error = serve_ollama_error},
    {"POST", "/api/embed", serve_ollama_embed, .work = true, .tagged = true, .slow = true, .model = true,
     .kind = WEIR_POOL_KIND_EMBEDDING, .error = serve_ollama_error},
    {"POST", "/api/embeddings", serve_ollama_embeddings, .work = true, .tagged = true, .slow = true,
     .model = true, .kind = WEIR_POOL_KIND_EMBEDDING, .error = serve_ollama_error},
    {"POST", "/api/show", serve_ollama_show, .work = true, .tagged = true, .model = true,
     .error = serve_ollama_error},
    {"GET", "/api/tags", serve_ollama_tags, .model = true, .apart = true, .error = serve_ollama_error},
    {"GET", "/api/ps", serve_ollama_ps, .model = true, .apart = true, .error = serve_ollama_error},
    {"GET", "/api/version", serve_ollama_version, .error = serve_ollama_error},
    {"POST", "/api/pull", serve_ollama_pull, .work = true, .model = true, .apart = true, .operators = true,
     .error = serve_ollama_error},
    {"POST", "/api/create", serve_ollama_refuse, .error = serve_ollama_error},
    {"POST", "/api/copy", serve_ollama_refuse, .error = serve_ollama_error},
    {"POST", "/api/push", serve_ollama_refuse, .error = serve_ollama_error},
    {"POST", "/api/blobs/*", serve_ollama_refuse, .error = serve_ollama_error},
    {"DELETE", "/api/delete", serve_ollama_refuse, .bodied = true, .error = serve_ollama_error},
    {"GET", "/props", serve_props, .engine = true},
    {"POST", "[/v1]/embeddings", serve_embeddings, .work = true, .slow = true, .model = true,
     .kind = WEIR_POOL_KIND_EMBEDDING},
    {"POST", "/v1/completions/render", serve_render_completions, .work = true, .engine = true},
    {"POST", "/v1/chat/completions/render", serve_render_chat, .work = true, .engine = true},
    {"POST", "[/v1]/rerank", serve_rerank, .work = true, .slow = true, .model = true,
     .kind = WEIR_POOL_KIND_RANKING},
    {"POST", "[/v1]/reranking", serve_rerank, .work = true, .slow = true, .model = true,
     .kind = WEIR_POOL_KIND_RANKING},
    {"POST", "/v1/prefixes", serve_prefix_give, .work = true, .slow = true, .engine = true, .peer = true},
    {"GET", "/v1/prefixes/*", serve_prefix_give, .work = true, .slow = true, .engine = true, .peer = true},
    {"POST", "/v1/plan", serve_plan, .work = true, .engine = true},
    {"POST", "/tokenize", serve_tokenize, .work = true, .model = true},
    {"POST", "/detokenize", serve_detokenize, .work = true, .model = true},
    {"POST", "/apply-template", serve_apply_template, .work = true, .engine = true},
    {"GET", "/lora-adapters", serve_lora_list, .engine = true},
    {"POST", "/lora-adapters", serve_lora_scale, .work = true, .engine = true, .operators = true},
    {"POST", "/v1/load_lora_adapter", serve_lora_load, .work = true, .engine = true, .operators = true},
    {"POST", "/v1/unload_lora_adapter", serve_lora_unload, .work = true, .engine = true, .operators = true},
    {"POST", "/v1/models/load", serve_models_load, .work = true, .model = true, .apart = true,
     .operators = true},
    {"POST", "/v1/models/unload", serve_models_unload, .work = true, .model = true, .apart = true,
     .operators = true},
    {"GET", "[/v1]/models", serve_models, .model = true, .apart = true, .versioned = true},
    {"GET", "[/v1]/models/**", serve_models, .model = true, .apart = true, .versioned = true},
    {"GET", "/v1/streams/*", serve_stream_read, .engine = true, .apart = true, .drain = true},
    {"POST", "/v1/streams/*/cancel", serve_stream_cancel, .engine = true, .apart = true, .drain = true},
    {"GET", "/metrics", serve_metrics, .metrics = true, .operators = true},
    {"GET", "/slots", serve_slots, .engine = true, .absent = true},
    {"GET", "/events", serve_events_begin, .engine = true, .absent = true},
    {"GET", "/health", serve_health, .health = true},
    {"GET", NULL, serve_page, .open = true}, /* its files: open, so that it can ask for a key */
};

/* The pattern without "[/v1]", and the path [n] without the "/v1" that it may have there. */
static const char *skip_version(const char *pattern, const char **path, size_t *n)
{
    static const char optional[] = "[/v1]", version[] = "/v1/";
    if (strncmp(pattern, optional, sizeof optional - 1) != 0) return pattern;
    if (*n >= sizeof version - 1 && memcmp(*path, version, sizeof version - 1) == 0) {
        *path += sizeof version - 2;
        *n -= sizeof version - 2;
    }
    return pattern + sizeof optional - 1;
}

/* True if a path matches the pattern. *name: what stands at the star. */
static bool path_matches(const char *pattern, const char *path, size_t n, serve_path_name *name)
{
    *name = (serve_path_name){0};
    if (pattern == NULL) return serve_page_has(path, n);
    pattern = skip_version(pattern, &path, &n);
    size_t n_begin = strcspn(pattern, "*");
    bool rest = pattern[n_begin] == '*' && pattern[n_begin + 1] == '*';
    if (pattern[n_begin] == '\0') return n == n_begin && memcmp(path, pattern, n) == 0;
    const char *ending = pattern + n_begin + 1 + rest;
    size_t n_end = strlen(ending);
    if (n <= n_begin + n_end || memcmp(path, pattern, n_begin) != 0 ||
        memcmp(path + n - n_end, ending, n_end) != 0)
        return false;
    *name = (serve_path_name){.at = path + n_begin, .n = n - n_begin - n_end, .is_id = !rest};
    return rest || memchr(name->at, '/', name->n) == NULL;
}

const serve_route *serve_route_find(const char *method, const char *path, size_t n, serve_path_name *name,
                                    const char **allow)
{
    const serve_route *found = NULL;
    bool get = false, post = false, delete = false;
    *name = (serve_path_name){0};
    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const serve_route *route = &routes[i];
        serve_path_name here;
        if (!path_matches(route->path, path, n, &here)) continue;
        get = get || strcmp(route->method, "GET") == 0;
        post = post || strcmp(route->method, "POST") == 0;
        delete = delete || strcmp(route->method, "DELETE") == 0;
        if (found != NULL) continue;
        if (strcmp(method, route->method) == 0) found = route;
        if (found != NULL || name->at == NULL) *name = here;
    }
    static const char *const lists[] = {
        NULL,     "GET, HEAD",         "POST",         "GET, HEAD, POST",
        "DELETE", "GET, HEAD, DELETE", "POST, DELETE", "GET, HEAD, POST, DELETE",
    };
    *allow = found == NULL ? lists[get + 2 * post + 4 * delete] : NULL;
    return found;
}

/* The API is that of the first route whose first word the path has: "/api", "/messages". */
serve_error_form *serve_route_error(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (routes[i].error == NULL) continue;
        const char *rest = path;
        size_t length = strlen(path);
        const char *pattern = skip_version(routes[i].path, &rest, &length);
        size_t n = 1 + strcspn(pattern + 1, "/");
        if (strncmp(rest, pattern, n) == 0 && (rest[n] == '/' || rest[n] == '\0')) return routes[i].error;
    }
    return NULL;
}
