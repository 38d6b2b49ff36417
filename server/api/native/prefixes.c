/* prefixes.c: POST /v1/prefixes and GET /v1/prefixes/KEY: a cached prefix for another server.
 * SPDX-License-Identifier: Apache-2.0 */
#include "prefixes.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "handlers.h"
#include "server/api/common/error.h"
#include "server/api/common/field.h"
#include "server/api/common/prefix.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/body.h"
#include "server/request/call.h"

#define AT_ONCE 2 /* prefixes that are being sent, each in memory as a whole */

/* The request's fields. */
typedef struct wish {
    const json_t *tokens;
    const char *salt;
    int32_t more_than;
    const json_t *model;
} wish;

static bool read_more_than(serve_call *call, void *to, const char *name, const json_t *value)
{
    json_int_t n;
    bool whole = serve_json_whole(value, &n);
    ((wish *)to)->more_than = (int32_t)n;
    return (whole && n >= 0 && n <= INT32_MAX) ||
           serve_field_refuse(call, name, "a number of tokens, 0 or more");
}

static const serve_field fields[] = {
    SERVE_FIELD("tokens", 1u, VALUE, wish, tokens), SERVE_FIELD("salt", 1u, STRING, wish, salt),
    SERVE_FIELD_BY("more_than", 1u, read_more_than),
    SERVE_FIELD("model", 1u, VALUE, wish, model), /* of several; one alone may have another name there */
};

static const serve_field_table table = SERVE_FIELD_TABLE(fields);

static bool read_wish(serve_call *call, json_t **json, wish *w)
{
    *w = (wish){0};
    return serve_call_read_json(call, json) && serve_fields_read(call, &table, 1u, *json, w);
}

/* Leaves the place; memory goes first: another prefix takes the place at once. */
static void leave_place(serve_call *call)
{
    weir_snapshot_destroy(call->snapshot);
    call->snapshot = NULL;
    atomic_fetch_sub(&call->server->prefixes.n_giving, 1);
}

/* Takes one of the AT_ONCE places. False: the call has its answer. */
static bool enter_place(serve_call *call)
{
    if (atomic_fetch_add(&call->server->prefixes.n_giving, 1) < AT_ONCE) {
        call->leave = leave_place;
        return true;
    }
    atomic_fetch_sub(&call->server->prefixes.n_giving, 1);
    return serve_call_refuse(call, 503, NULL, "too_many_prefixes",
                             "%d other prefixes are being sent; ask again later", AT_ONCE);
}

static bool status_passes(serve_call *call, weir_status status, weir_error *error)
{
    if (status == WEIR_NOT_FOUND)
        return serve_call_refuse(call, 404, NULL, "prefix_not_cached",
                                 "no more of the prompt is cached here");
    if (status == WEIR_BUSY || status == WEIR_TIMEOUT || status == WEIR_NO_SPACE)
        return serve_call_refuse(call, 503, NULL, "engine_busy", "the engine has no time or room for it: %s",
                                 weir__error_words(error).text);
    if (status == WEIR_TOO_LONG)
        return serve_call_refuse(call, 413, NULL, "prefix_too_large", "%s (--max-prefix)",
                                 weir__error_words(error).text);
    return serve_call_passes(call, status, error);
}

/* Answers with the longest cached beginning of the tokens. */
static void give_prefix(serve_call *call, const int32_t *tokens, size_t n, const char *salt,
                        int32_t more_than)
{
    const serve_params *params = &call->server->params;
    weir_engine *engine = call->loaded->engine;
    serve_prefixes *prefixes = &call->server->prefixes;
    weir_error error = {0};
    weir_engine_stats stats = {.size = sizeof stats};
    /* The other server's contexts may be longer. */
    if (weir_engine_get_stats(engine, &stats) == WEIR_OK && n > (size_t)stats.n_ctx) n = (size_t)stats.n_ctx;
    if (!enter_place(call) ||
        !status_passes(call,
                       weir_snapshot_create(engine, tokens, n, salt, WEIR_NUL, (uint64_t)params->prefix_bytes,
                                            &call->snapshot, &error),
                       &error))
        return;
    weir_status status =
        weir_snapshot_export(call->snapshot, engine, more_than, params->prefix_s * 1000, &error);
    if (!status_passes(call, status, &error)) return;
    uint64_t n_bytes = weir_snapshot_bytes(call->snapshot);
    call->send_by_ns = weir__clock_deadline_ns((int64_t)params->prefix_s * 1000);
    atomic_fetch_add(&prefixes->n_given, 1);
    atomic_fetch_add(&prefixes->n_bytes_given, n_bytes);
    serve_call_begin_sized(call, "application/octet-stream", n_bytes);
}

void serve_prefixes_feed(serve_call *call)
{
    if (call->ended || call->out.n > call->out_at) return;
    if (weir__text_reserve(&call->out, SERVE_BUFFER_MAX)) {
        size_t n = weir_snapshot_read(call->snapshot, call->snapshot_at, call->out.bytes + call->out.n,
                                      SERVE_BUFFER_MAX);
        call->out.n += n;
        call->snapshot_at += n;
    }
    call->ended = call->snapshot_at == weir_snapshot_bytes(call->snapshot);
}

/* The number of a block, as KV events have it. */
static bool read_id(serve_call *call, uint64_t *id)
{
    const char *text = call->name;
    char *after;
    errno = 0;
    *id = strtoull(text, &after, 10);
    return (text[0] >= '0' && text[0] <= '9' && *after == '\0' && errno == 0) ||
           serve_call_refuse(call, 400, NULL, "invalid_value",
                             "\"%.64s\" is not the id of a block, a number of 64 bits", text);
}

void serve_prefixes_get(serve_call *call)
{
    uint64_t id;
    size_t n = 0;
    weir_engine *engine = call->loaded->engine;
    int32_t *tokens = NULL;
    if (!read_id(call, &id)) return;
    weir_status status = weir_engine_block_tokens(engine, id, NULL, 0, &n);
    if (status == WEIR_TOO_LONG) {
        tokens = weir__mem_calloc(n, sizeof *tokens);
        status = tokens == NULL ? WEIR_NO_MEMORY : weir_engine_block_tokens(engine, id, tokens, n, &n);
    }
    if (status == WEIR_NO_MEMORY)
        serve_call_no_memory(call);
    else if (status != WEIR_OK)
        serve_call_refuse(call, 404, NULL, "prefix_not_cached", "the block %llu is not cached here",
                          (unsigned long long)id);
    else
        give_prefix(call, tokens, n, NULL, (int32_t)n - 1);
    weir__mem_free(tokens);
}

void serve_prefixes_find(serve_call *call)
{
    wish w;
    json_t *json = NULL;
    int32_t *tokens = NULL;
    size_t n = 0;
    if (read_wish(call, &json, &w) &&
        (json_array_size(w.tokens) > 0 ||
         serve_field_refuse(call, "tokens", "an array of 1 token id or more")) &&
        serve_call_read_ids(call, "tokens", w.tokens, &tokens, &n))
        give_prefix(call, tokens, n, w.salt, w.more_than);
    weir__mem_free(tokens);
    json_decref(json);
}
