/* route.c: which path means what. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "serve.h"

static const serve_route routes[] = {
    {.method = "POST", .path = "/v1/chat/completions", .handle = serve_chat, .work = true, .engine = true},
    {.method = "POST", .path = "/v1/completions", .handle = serve_completions, .work = true, .engine = true},
    {.method = "POST", .path = "/v1/embeddings", .handle = serve_embeddings, .work = true, .engine = true},
    {.method = "POST", .path = "/v1/plan", .handle = serve_plan, .work = true, .engine = true},
    {.method = "POST", .path = "/tokenize", .handle = serve_tokenize, .work = true, .engine = true},
    {.method = "POST", .path = "/detokenize", .handle = serve_detokenize, .work = true, .engine = true},
    {.method = "POST",
     .path = "/apply-template",
     .handle = serve_apply_template,
     .work = true,
     .engine = true},
    {.method = "GET", .path = "/lora-adapters", .handle = serve_lora_list, .engine = true},
    {.method = "POST", .path = "/lora-adapters", .handle = serve_lora_scale, .work = true, .engine = true},
    {.method = "POST",
     .path = "/v1/load_lora_adapter",
     .handle = serve_lora_load,
     .work = true,
     .engine = true},
    {.method = "POST",
     .path = "/v1/unload_lora_adapter",
     .handle = serve_lora_unload,
     .work = true,
     .engine = true},
    {.method = "GET", .path = "/v1/models", .handle = serve_models, .engine = true},
    {.method = "GET", .path = "/v1/models/*", .handle = serve_models, .engine = true},
    {.method = "POST", .path = "/v1/streams/*", .handle = serve_stream_cancel, .engine = true},
    {.method = "GET", .path = "/v1/streams/*", .handle = serve_stream_read, .engine = true},
    {.method = "GET", .path = "/metrics", .handle = serve_metrics, .metrics = true},
    {.method = "GET", .path = "/slots", .handle = serve_slots, .engine = true},
    {.method = "GET", .path = "/events", .handle = serve_events_begin, .engine = true},
    {.method = "GET", .path = "/health", .handle = serve_health, .health = true},
};

/* Its files: open, so that it can ask for a key. */
static const serve_route page = {.method = "GET", .handle = serve_page, .open = true};

const serve_route *serve_route_find(const char *method, const char *path, const char **allow)
{
    *allow = NULL;
    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool whole = routes[i].path[n - 1] != '*';
        if (whole ? strcmp(path, routes[i].path) != 0
                  : strncmp(path, routes[i].path, n - 1) != 0 || path[n - 1] == '\0')
            continue;
        if (strcmp(method, routes[i].method) == 0) {
            *allow = NULL;
            return &routes[i];
        }
        *allow = strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method;
    }
    if (*allow != NULL || !serve_page_has(path)) return NULL;
    if (strcmp(method, page.method) == 0) return &page;
    *allow = "GET, HEAD";
    return NULL;
}
