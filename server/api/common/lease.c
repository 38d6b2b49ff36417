/* lease.c: the model that a request is about, and with several of them its lease: a call whose model is not
 * in memory waits for it without a worker. A worker finds the model and asks the pool for a lease. If there
 * is none yet, the worker gives the call back, and the service thread has the lease post the call when it is
 * ready, or has failed; then a worker begins with it again. An owner may have only so many calls that wait. A
 * handler that does not wait gets the model if it is in memory, where the catalog keeps it meanwhile.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <string.h>

#include "base/clock.h"
#include "error.h"
#include "server/models/catalog.h"
#include "server/models/loaded.h"
#include "server/request/body.h"
#include "server/request/call.h"
#include "server/request/mask.h"
#include "server/request/workers.h"

#define WAITS_MOST 256 /* as many as a pool's queue_limit has by default */

/* ---- Which model ---- */

bool serve_lease_refuse_name(serve_call *call, const char *name)
{
    weir__text names = {0};
    serve_catalog_add_names(call->server->catalog, &names);
    serve_call_refuse(call, 404, "model", "model_not_found",
                      "there is no model \"%.100s\" here; ask for %.300s (GET /v1/models lists all)", name,
                      names.failed || names.n == 0 ? "another" : names.bytes);
    weir__text_fini(&names);
    return false;
}

/* The model's name in the request: that of the address, which a body that is an object has as well, else the
 * body's "model"; NULL: neither has one. Keeps the body's JSON for the handler. False: the call has its
 * answer. */
static bool read_name(serve_call *call, const char **name)
{
    *name = call->asked[0] != '\0' ? call->asked : NULL;
    if (!call->has_body) return true;
    json_t *json;
    if (!serve_call_read_any(call, &json)) return false;
    call->json = json;
    const json_t *value = json_object_get(json, "model");
    if (value == NULL && call->route->tagged) value = json_object_get(json, "name");
    if (value == NULL || json_is_null(value)) return true;
    *name = json_string_value(value);
    return *name != NULL || serve_call_refuse(call, 400, "model", "invalid_value", "model must be a string");
}

void serve_lease_begin(serve_call *call)
{
    serve_catalog *catalog = call->server->catalog;
    if (serve_catalog_pool(catalog) != NULL) return;
    call->model = serve_catalog_find(catalog, NULL);
    call->loaded = serve_catalog_loaded(catalog);
}

static serve_model *find_tagged(const serve_call *call, const char *name)
{
    char plain[WEIR_POOL_NAME_MAX + 1];
    size_t n = serve_name_untagged(name);
    if (n == 0 || n >= sizeof plain) return NULL;
    memcpy(plain, name, n);
    plain[n] = '\0';
    return serve_catalog_find(call->server->catalog, plain);
}

/* ---- Of a request that names none ---- */

static weir_pool_kind wanted_kind(const serve_route *route)
{
    return route->engine ? WEIR_POOL_KIND_TEXT : route->kind;
}

/* True if the model fits the call's route. unknown: the answer where the model's header has not been read
 * yet. */
static bool model_fits(const serve_call *call, const serve_model *model, bool unknown)
{
    weir_pool_kind kind = wanted_kind(call->route);
    weir_pool_info info = {.size = sizeof info};
    if (kind == WEIR_POOL_KIND_UNKNOWN) return true;
    if (weir_pool_find(serve_catalog_pool(call->server->catalog), model->name, &info) != WEIR_OK ||
        info.kind == WEIR_POOL_KIND_UNKNOWN)
        return unknown;
    return info.kind == kind ||
           (kind == WEIR_POOL_KIND_EMBEDDING && model->params.embeddings && info.kind == WEIR_POOL_KIND_TEXT);
}

static bool refuse_several(serve_call *call, const weir__text *names)
{
    return serve_call_refuse(call, 400, "model", "invalid_value",
                             "several models can do this, and the first one of the list cannot: name one of "
                             "%.300s",
                             names->failed ? "them" : names->bytes);
}

/* The first model of the list is taken if it can serve the route, or if no other one can, so that its handler
 * says why not; otherwise the only other one that can. */
static bool choose_model(serve_call *call)
{
    serve_model **models, *found = NULL;
    size_t n, n_found = 0;
    weir__text names = {0};
    if (model_fits(call, call->model, true)) return true;
    if (!serve_catalog_list(call->server->catalog, &models, &n)) return serve_call_no_memory(call);
    for (size_t i = 0; i < n; i++) {
        if (!model_fits(call, models[i], false)) continue;
        weir__text_printf(&names, "%s\"%.64s\"", n_found++ > 0 ? ", " : "", models[i]->name);
        found = models[i];
    }
    bool clear = n_found <= 1 || refuse_several(call, &names);
    if (n_found == 1) {
        serve_model_release(call->model);
        call->model = serve_model_hold(found);
    }
    serve_catalog_list_fini(models, n);
    weir__text_fini(&names);
    return clear;
}

static bool is_unnamed(const serve_call *call, const char *name)
{
    return name == NULL || name[0] == '\0' ||
           (strcmp(name, SERVE_DEFAULT_NAME) == 0 && !serve_model_named(call->model, name));
}

static bool find_model(serve_call *call)
{
    const char *name;
    if (call->model != NULL) return true;
    if (!read_name(call, &name)) return false;
    call->model = serve_catalog_find(call->server->catalog, name);
    if (call->model == NULL && name != NULL && call->route->tagged) call->model = find_tagged(call, name);
    if (call->model == NULL) return serve_lease_refuse_name(call, name != NULL ? name : "");
    return !is_unnamed(call, name) || choose_model(call);
}

/* ---- Its lease ---- */

bool serve_lease_refuse(serve_call *call, const char *name, weir_status status, const weir_error *error)
{
    const char *code = "model_load_failed";
    char message[sizeof error->message];
    if (status == WEIR_NO_MEMORY && error->message[0] == '\0') return serve_call_no_memory(call);
    switch (status) {
    case WEIR_STOPPED: return serve_call_stopping(call);
    case WEIR_NO_MEMORY:
    case WEIR_BUSY:
    case WEIR_TIMEOUT: code = "model_busy"; break;
    case WEIR_TOO_LONG: code = "model_too_large"; break;
    default: break;
    }
    serve_names_message(error, &call->terms, message, sizeof message);
    serve_mask_paths(message);
    return serve_call_refuse(call, 503, "model", code, "the model \"%.100s\" is not available now: %s", name,
                             message);
}

static bool is_loaded(const serve_call *call)
{
    serve_catalog *catalog = call->server->catalog;
    bool loaded = serve_catalog_lock(catalog, call->model) != NULL;
    serve_catalog_unlock(catalog);
    return loaded;
}

/* The milliseconds of the request's deadline_ms; 0: it has none, or one that its handler refuses. */
static int64_t deadline_ms(const serve_call *call)
{
    double ms = json_number_value(json_object_get(call->json, "deadline_ms"));
    return ms > 0 && ms <= 1e12 ? (int64_t)ms : 0;
}

/* Joins those who wait for the model, until the request's deadline at the latest. */
static weir_status ask_for_lease(serve_call *call, weir_error *error)
{
    int64_t most_ms = (int64_t)call->server->params.load_s * 1000, own_ms = deadline_ms(call);
    call->late_ns = own_ms > 0 ? weir__clock_deadline_ns(own_ms) : 0;
    return weir_lease_create(serve_catalog_pool(call->server->catalog), call->model->name,
                             (int)(own_ms > 0 && own_ms < most_ms ? own_ms : most_ms), &call->lease, error);
}

/* The call waits for its model from now on, and stops to. False: its owner may have no more that wait. */
static bool begin_wait(serve_call *call)
{
    call->wait_ns = weir__clock_now_ns();
    call->awaits = serve_share_take(&call->server->waits, call->owner, 1, WAITS_MOST) == SERVE_SHARE_OK;
    return call->awaits;
}

static void end_wait(serve_call *call)
{
    if (call->awaits) serve_share_release(&call->server->waits, call->owner, 1);
    call->awaits = false;
}

static bool is_late(const serve_call *call, weir_status status)
{
    return status == WEIR_BUSY && call->late_ns > 0 && weir__clock_now_ns() >= call->late_ns;
}

static bool refuse_crowd(serve_call *call)
{
    return serve_call_refuse(call, 503, "model", "model_busy",
                             "the model \"%.100s\" is not available now: too many of your requests wait for "
                             "their models; try again later",
                             call->model->name);
}

static bool refuse_late(serve_call *call)
{
    return serve_call_refuse(
        call, 503, "deadline_ms", "model_busy",
        "the model \"%.100s\" was not loaded within deadline_ms: allow more time, or load "
        "it beforehand (POST /v1/models/load)",
        call->model->name);
}

/* False: the call waits, or has its answer. */
static bool take_lease(serve_call *call)
{
    serve_catalog *catalog = call->server->catalog;
    weir_error error = {0};
    weir_status status = WEIR_OK;
    if (call->route->peer && !is_loaded(call)) /* a model that is not loaded has no cached prefixes */
        return serve_call_refuse(call, 404, "model", "model_not_loaded", "the model \"%.100s\" is not loaded",
                                 call->model->name);
    if (call->lease == NULL) status = ask_for_lease(call, &error);
    if (status == WEIR_NOT_FOUND)
        return serve_lease_refuse_name(call, call->model->name); /* a reload took it out */
    if (status == WEIR_OK) {
        status = weir_lease_wait(call->lease, 0, &error);
        call->waiting = status == WEIR_TIMEOUT && (call->wait_ns > 0 || begin_wait(call));
        if (call->waiting) return false;
        if (status == WEIR_TIMEOUT) return refuse_crowd(call);
    }
    end_wait(call);
    if (call->wait_ns > 0) call->load_ns = weir__clock_now_ns() - call->wait_ns;
    if (is_late(call, status)) return refuse_late(call);
    if (status != WEIR_OK) return serve_lease_refuse(call, call->model->name, status, &error);
    call->loaded = serve_catalog_enter(catalog, call->model, call->lease);
    if (call->loaded == NULL) return serve_call_no_memory(call);
    return call->loaded->engine != NULL || !call->route->engine ||
           serve_call_refuse(call, 400, "model", "unsupported_value",
                             "the model \"%.100s\" generates no text: use /v1/embeddings or /v1/rerank",
                             call->model->name);
}

void serve_lease_shorten(const serve_call *call, int64_t *ms)
{
    if (*ms == 0 || call->late_ns == 0) return;
    int64_t left_ns = call->late_ns - weir__clock_now_ns(),
            left_ms = (left_ns + WEIR__NS_PER_MS - 1) / WEIR__NS_PER_MS;
    if (left_ms < *ms) *ms = left_ms > 0 ? left_ms : 1;
}

static void unload_idle(const serve_call *call)
{
    weir_pool *pool = serve_catalog_pool(call->server->catalog);
    weir_pool_info info = {.size = sizeof info};
    if (weir_pool_find(pool, call->model->name, &info) == WEIR_OK && info.n_leases + info.n_waiting == 0)
        (void)weir_pool_unload(pool, call->model->name, NULL);
}

void serve_lease_end(serve_call *call)
{
    end_wait(call);
    if (call->lease == NULL) return;
    call->loaded = NULL;
    weir_lease_release(call->lease);
    call->lease = NULL;
    if (call->unloads && call->code == NULL) unload_idle(call);
}

static void on_ready(weir_lease *lease, void *user)
{
    (void)lease;
    serve_ready_post(user);
}

/* True if the address names the one model, or an adapter, if it names any. */
static bool check_address(serve_call *call)
{
    serve_catalog *catalog = call->server->catalog;
    bool several = serve_catalog_pool(catalog) != NULL, about = call->route->engine || call->route->model;
    if (call->asked[0] == '\0' || several || !about || call->route->apart) return true;
    if (call->loaded != NULL && serve_adapters_has(call->loaded->adapters, call->asked)) return true;
    serve_model *model = serve_catalog_find(catalog, call->asked);
    if (model == NULL && call->route->tagged) model = find_tagged(call, call->asked);
    bool known = model != NULL;
    serve_model_release(model);
    return known || serve_lease_refuse_name(call, call->asked);
}

bool serve_lease_await(serve_call *call)
{
    if (!call->waiting) return false;
    call->waiting = false;
    call->state = SERVE_WAITING;
    (void)weir_lease_set_ready(call->lease, on_ready, call); /* the first time */
    return true;
}

/* ---- Handlers ---- */

static bool is_plain(const serve_call *call)
{
    return (!call->route->engine && !call->route->model) || call->route->apart ||
           serve_catalog_pool(call->server->catalog) == NULL;
}

void serve_lease_work(serve_call *call)
{
    if (is_plain(call) ? check_address(call) : find_model(call) && take_lease(call))
        call->route->handle(call);
    json_decref(call->json); /* the handler has its own */
    call->json = NULL;
}

void serve_lease_glance(serve_call *call)
{
    serve_catalog *catalog = call->server->catalog;
    if (is_plain(call)) {
        if (check_address(call)) call->route->handle(call);
        return;
    }
    if (!find_model(call)) return;
    call->loaded = serve_catalog_lock(catalog, call->model);
    if (call->loaded != NULL || call->route->absent)
        call->route->handle(call);
    else
        serve_call_refuse(call, 503, "model", "model_not_loaded",
                          "the model \"%.100s\" is not loaded: POST /v1/models/load loads it, as does any "
                          "request for text",
                          call->model->name);
    call->loaded = NULL;
    serve_catalog_unlock(catalog);
}

/* ---- Adapters ---- */

static bool refuse_list(serve_call *call, const char *field)
{
    return serve_call_refuse(
        call, 400, field, "invalid_value",
        "%s must be an array of objects with an id and a scale from -100 to 100, at most %d of them "
        "with a scale that is not 0 (GET /lora-adapters lists the ids)",
        field != NULL ? field : "the body", WEIR_ADAPTERS_MAX);
}

bool serve_lora_read(serve_call *call, const char *field, const json_t *value, serve_adapter_set *set)
{
    if (!json_is_array(value)) return refuse_list(call, field);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i), *id = json_object_get(one, "id"),
                     *scale = json_object_get(one, "scale");
        double number = scale != NULL ? json_number_value(scale) : 1;
        json_int_t n;
        if (!serve_call_goes_on(call)) return false;
        if (!serve_json_whole(id, &n) || (scale != NULL && !json_is_number(scale)) ||
            !(number >= -100 && number <= 100) || json_object_size(one) != (scale != NULL ? 2 : 1))
            return refuse_list(call, field);
        if (!serve_adapters_numbered(call->loaded->adapters, n, (float)number, set)) {
            if (set->n == WEIR_ADAPTERS_MAX) return refuse_list(call, field);
            return serve_call_refuse(call, 404, field, "not_found", "there is no adapter %lld here",
                                     (long long)n);
        }
    }
    return true;
}

bool serve_lora_choose(serve_call *call, const char *adapter, const json_t *list, serve_adapter_set *set)
{
    serve_adapters *adapters = call->loaded->adapters;
    if (list != NULL) return serve_lora_read(call, "lora", list, set);
    if (adapter == NULL)
        serve_adapters_standard(adapters, set);
    else if (!serve_adapters_named(adapters, adapter, set)) { /* it was unloaded just now */
        return serve_call_refuse(call, 404, "model", "model_not_found", "there is no model \"%.100s\" here",
                                 adapter);
    }
    return true;
}
