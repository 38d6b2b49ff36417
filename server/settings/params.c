/* params.c: the parameters of a server, and their checks. SPDX-License-Identifier: Apache-2.0 */
#include "params.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/utf8.h"
#include "effort.h"
#include "hub/transfer/transfer.h"
#include "origin.h"
#include "sources.h"

serve_model_params serve_model_params_default(void)
{
    return (serve_model_params){.max_tokens = -1};
}

serve_params serve_params_default(void)
{
    return (serve_params){
        .live = {.log = true,
                 .max_priority = SERVE_UNSAID,
                 .body_bytes = (int64_t)16 << 20,
                 .head_s = 10,
                 .body_s = 60,
                 .stall_s = 120,
                 .comment_s = 10,
                 .watchdog_s = 30,
                 .drain_s = 30,
                 .keep_s = 300,
                 .response_s = 3600},
        .model = serve_model_params_default(),
        .session_s = 600,
        .load_s = 120,
        .host = "127.0.0.1",
        .port = 8080,
        .n_workers = 2,
        .work_s = 30,
        .grace_s = 30,
        .resume_bytes = (int64_t)64 << 20,
        .response_bytes = (int64_t)64 << 20,
        .prefix_s = 10,
        .prefix_bytes = (int64_t)4 << 30,
        .media_bytes = (int64_t)512 << 20,
        .record_bytes = (int64_t)1 << 30,
        .record_days = 30,
        .otlp_sample = SERVE_SAMPLE_UNSAID,
    };
}

/* ---- Names of several models ---- */

static const char *name_of(const serve_model_params *model, size_t i)
{
    return i == 0 ? model->entry->name : model->names[i - 1];
}

static bool has_before(const serve_params *params, size_t model, size_t name)
{
    const char *word = name_of(&params->models[model], name);
    for (size_t m = 0; m <= model; m++)
        for (size_t i = 0; i <= params->models[m].n_names && (m < model || i < name); i++)
            if (strcmp(name_of(&params->models[m], i), word) == 0) return true;
    return false;
}

static weir_status check_name(const serve_params *params, size_t model, size_t i, weir_error *error)
{
    const char *name = name_of(&params->models[model], i);
    char field[40];
    snprintf(field, sizeof field, "models[%zu].%s", model, i == 0 ? "name" : "names");
    if (name[0] == '\0' || strlen(name) > WEIR_POOL_NAME_MAX || !weir__utf8_valid(name, strlen(name)))
        return weir__error_set(error, WEIR_INVALID, field,
                               "\"%.100s\" is not a model name, which has 1 to %d bytes of UTF-8", name,
                               WEIR_POOL_NAME_MAX);
    if (has_before(params, model, i))
        return weir__error_set(error, WEIR_INVALID, field,
                               "\"%.100s\" is used twice: by two models or by one", name);
    return WEIR_OK;
}

static weir_status check_models(const serve_params *params, weir_error *error)
{
    weir_status status = WEIR_OK;
    for (size_t m = 0; m < params->n_models && status == WEIR_OK; m++)
        for (size_t i = 0; i <= params->models[m].n_names && status == WEIR_OK; i++)
            status = check_name(params, m, i, error);
    return status;
}

/* True if a key can be carried by a header. */
static bool is_printable(const char *key)
{
    const char *at = key;
    while (*at > ' ' && *at < 0x7F) at++;
    return at > key && *at == '\0';
}

/* ---- Ranges ---- */

#define ROW(name, m, l, u)                                                                                   \
    {                                                                                                        \
        name, offsetof(serve_params, m), sizeof((serve_params *)0)->m, l, u                                  \
    }
#define RANGE(m, l, u) ROW(#m, m, l, u)
#define LIVE(m, l, u)  ROW(#m, live.m, l, u)

static weir_status check_ranges(const serve_params *params, weir_error *error)
{
    static const struct {
        const char *name;
        size_t at, size;
        int64_t least, most;
    } ranges[] = {
        RANGE(port, 0, 65535),
        RANGE(n_workers, 1, 64),
        LIVE(head_s, 1, 3600),
        LIVE(body_s, 1, 86400),
        LIVE(stall_s, 1, 86400),
        RANGE(work_s, 1, 86400),
        RANGE(load_s, 1, 86400),
        RANGE(session_s, 0, 86400),
        LIVE(comment_s, 0, 86400),
        LIVE(watchdog_s, 1, 86400),
        LIVE(drain_s, 0, 86400),
        RANGE(grace_s, 0, 86400),
        LIVE(keep_s, 0, 86400),
        LIVE(key_requests, 0, 1000000),
        LIVE(key_rate, 0, 1000000),
        LIVE(max_priority, -100, 100),
        LIVE(body_bytes, 1024, (int64_t)256 << 20),
        RANGE(resume_bytes, 1 << 20, (int64_t)1 << 40),
        LIVE(response_s, 1, 2592000),
        RANGE(response_bytes, 0, (int64_t)1 << 40),
        RANGE(media_bytes, 0, (int64_t)1 << 40),
        RANGE(prefix_s, 1, 3600),
        RANGE(record_bytes, 1 << 20, (int64_t)1 << 50),
        RANGE(record_days, 1, 3650),
        RANGE(prefix_bytes, 1024, (int64_t)1 << 40),
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const void *at = (const char *)params + ranges[i].at;
        int64_t value = ranges[i].size == sizeof(int32_t) ? *(const int32_t *)at : *(const int64_t *)at;
        if (ranges[i].at == offsetof(serve_params, live.max_priority) && value == SERVE_UNSAID) continue;
        if (value < ranges[i].least || value > ranges[i].most)
            return weir__error_range(error, WEIR_INVALID, ranges[i].name, (double)value,
                                     (double)ranges[i].least, (double)ranges[i].most, "`%s` is %lld",
                                     ranges[i].name, (long long)value);
    }
    return WEIR_OK;
}

/* ---- All of them ---- */

/* Names of hosts that this server answers to, origins of pages, and hosts from which it fetches images. */
static weir_status check_hosts(const serve_params *params, weir_error *error)
{
    if (params->n_media_hosts > 0 && !weir__transfer_exists)
        return weir__error_set(error, WEIR_UNSUPPORTED, "media_hosts",
                               "this weir was built without libcurl and fetches no images");
    for (size_t i = 0; i < params->n_media_hosts; i++)
        if (!serve_sources_check(params->media_hosts[i]))
            return weir__error_set(error, WEIR_INVALID, "media_hosts",
                                   "\"%.100s\" must be a host name, \"*.\" and a domain, an IP address or "
                                   "\"*\", each with or without a port (\"example.com:8443\")",
                                   params->media_hosts[i]);
    for (size_t i = 0; i < params->live.n_hosts; i++)
        if (params->live.hosts[i][0] == '\0' || strpbrk(params->live.hosts[i], ":/ ") != NULL)
            return weir__error_set(
                error, WEIR_INVALID, "hosts",
                "\"%.100s\" is not a host name; allowed: a name without scheme and port, or *",
                params->live.hosts[i]);
    for (size_t i = 0; i < params->live.n_origins; i++)
        if (strcmp(params->live.origins[i], "*") != 0 && !serve_origin_is_page(params->live.origins[i]))
            return weir__error_set(
                error, WEIR_INVALID, "origins",
                "\"%.100s\" is not an origin as browsers send it: scheme://host[:port], such as "
                "https://example.org or http://localhost:3000, without a path and without the scheme's own "
                "port; or * for all",
                params->live.origins[i]);
    return WEIR_OK;
}

weir_status serve_params_check(const serve_params *params, weir_error *error)
{
    weir_status status = check_ranges(params, error);
    if (status != WEIR_OK) return status;
    struct stat folder;
    if (params->lora_dir != NULL && (stat(params->lora_dir, &folder) != 0 || !S_ISDIR(folder.st_mode)))
        return weir__error_set(error, WEIR_INVALID, "lora_dir", "there is no folder \"%.200s\"",
                               params->lora_dir);
    if ((params->tls_cert == NULL) != (params->tls_key == NULL))
        return weir__error_set(error, WEIR_INVALID, params->tls_cert == NULL ? "tls_cert" : "tls_key",
                               "TLS needs a certificate and its key; one is missing");
    for (size_t i = 0; i < params->live.n_keys; i++)
        if (!is_printable(params->live.keys[i].text))
            return weir__error_set(error, WEIR_INVALID, "keys",
                                   "API key %zu is empty, or has a space or another character that is not "
                                   "printable ASCII: clients cannot send it",
                                   i + 1);
    if (params->prefix_key != NULL &&
        (!is_printable(params->prefix_key) || strlen(params->prefix_key) > SERVE_PREFIX_KEY_MAX))
        return weir__error_set(error, WEIR_INVALID, "prefix_key",
                               "the key must have 1 to %d printable characters without spaces",
                               SERVE_PREFIX_KEY_MAX);
    if ((status = check_hosts(params, error)) != WEIR_OK ||
        (status = serve_effort_check(params->model.reasoning_budget, error)) != WEIR_OK)
        return status;
    for (size_t i = 0; i < params->model.n_names; i++)
        if (!weir__utf8_valid(params->model.names[i], strlen(params->model.names[i])))
            return weir__error_set(error, WEIR_INVALID, "names", "--alias is not UTF-8");
    return check_models(params, error);
}
