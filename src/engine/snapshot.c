/* snapshot.c: cached prefixes as bytes, for other engines.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/snapshot.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/prefix.h"
#include "engine/shared.h"

/* tokens and salt are those that are asked for; `arrival` has the prefix, once all of it was exported or
 * written. */
struct weir_snapshot {
    int32_t *tokens; /* [n], and one more: a look-up leaves the last one out */
    int32_t n;
    char *salt; /* [salt_length] */
    size_t salt_length;
    weir__snapshot_arrival arrival;
    bool sealed, failed;
};

/* ---- Life ---- */

static weir_status check_prompt(const weir_engine *engine, const int32_t *tokens, size_t n,
                                size_t salt_length, weir_error *error)
{
    const weir__driver *driver = &engine->driver;
    if (n == 0 || n > (size_t)engine->params.n_ctx)
        return weir__error_range(error, WEIR_INVALID, "n_tokens", (double)n, 1, (double)engine->params.n_ctx,
                                 "`n_tokens` is %zu", n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= driver->model->info.n_vocab)
            return weir__error_range(error, WEIR_INVALID, "tokens", (double)tokens[i], 0,
                                     (double)(driver->model->info.n_vocab - 1), "`tokens[%zu]` is %d", i,
                                     tokens[i]);
    if (salt_length > WEIR__SNAPSHOT_SALT_MAX)
        return weir__error_range(error, WEIR_INVALID, "salt_length", (double)salt_length, 0,
                                 WEIR__SNAPSHOT_SALT_MAX, "`salt_length` is %zu", salt_length);
    return WEIR_OK;
}

weir_status weir_snapshot_create(const weir_engine *engine, const int32_t *tokens, size_t n_tokens,
                                 const char *salt, size_t salt_length, uint64_t most_bytes,
                                 weir_snapshot **snapshot, weir_error *error)
{
    if (engine == NULL || tokens == NULL || snapshot == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING,
                             engine == NULL   ? "engine"
                             : tokens == NULL ? "tokens"
                                              : "snapshot",
                             "a pointer is NULL");
    if (salt == NULL) salt_length = 0;
    if (salt_length == WEIR_NUL) salt_length = strlen(salt);
    weir_status status = weir__engine_check_exists(engine, error);
    if (status == WEIR_OK) status = check_prompt(engine, tokens, n_tokens, salt_length, error);
    if (status != WEIR_OK) return status;
    weir_snapshot *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) goto no_memory;
    made->n = (int32_t)n_tokens;
    made->salt_length = salt_length;
    made->tokens = weir__mem_calloc(n_tokens + 1, sizeof *tokens);
    made->salt = weir__mem_dup(salt, salt_length);
    made->arrival.limits = weir__prefix_limits(&engine->driver.prefix);
    made->arrival.most = most_bytes;
    if (made->tokens == NULL || made->salt == NULL) goto no_memory;
    memcpy(made->tokens, tokens, n_tokens * sizeof *tokens);
    *snapshot = made;
    return WEIR_OK;
no_memory:
    weir_snapshot_destroy(made);
    return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a snapshot");
}

void weir_snapshot_destroy(weir_snapshot *snapshot)
{
    if (snapshot == NULL) return;
    weir__snapshot_arrival_fini(&snapshot->arrival);
    weir__mem_free(snapshot->tokens);
    weir__mem_free(snapshot->salt);
    weir__mem_free(snapshot);
}

static weir__prefix_key key_of(const weir_snapshot *snapshot)
{
    return (weir__prefix_key){snapshot->salt, snapshot->salt_length, 0};
}

int32_t weir_snapshot_known(const weir_snapshot *snapshot, const weir_engine *engine)
{
    if (snapshot == NULL || engine == NULL || weir__engine_check_exists(engine, NULL) != WEIR_OK) return 0;
    weir__cache_hit hit;
    weir__prefix_key key = key_of(snapshot);
    weir__cache_look(engine->driver.prefix.cache, &key, snapshot->tokens, snapshot->n + 1, true, NULL,
                     UINT64_MAX, &hit);
    return hit.n_leader > hit.n && !engine->driver.prefix.exact ? hit.n_leader : hit.n;
}

/* ---- Transfers ---- */

static weir_status send_transfer(weir_engine *engine, weir__kv_transfer *transfer, int timeout_ms,
                                 weir_error *error)
{
    weir_status status = weir__engine_check_caller(engine, error);
    if (status == WEIR_OK) status = weir__kv_transfers_post(&engine->shared.transfers, transfer, error);
    if (status != WEIR_OK) return status;
    weir__waker_wake(engine->waker);
    return weir__kv_transfers_wait(&engine->shared.transfers, transfer, weir__clock_deadline_ns(timeout_ms),
                                   error);
}

static weir_status check_state(const weir_snapshot *snapshot, const weir_engine *engine, bool empty,
                               weir_error *error)
{
    if (snapshot == NULL || engine == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, snapshot == NULL ? "snapshot" : "engine",
                             "a pointer is NULL");
    weir_status status = weir__engine_check_exists(engine, error);
    if (status != WEIR_OK) return status;
    if (snapshot->arrival.limits.kind != weir__prefix_limits(&engine->driver.prefix).kind)
        return weir__error_set(error, WEIR_UNSUPPORTED, "engine",
                               "the snapshot was created for an engine of another model or KV type");
    bool fits = empty ? snapshot->arrival.n == 0 && !snapshot->sealed
                      : weir__snapshot_is_whole(&snapshot->arrival) && !snapshot->failed;
    if (fits) return WEIR_OK;
    return weir__error_set(error, WEIR_STATE, "snapshot",
                           empty ? "the snapshot already has content: create a new one"
                           : snapshot->failed && snapshot->arrival.has_text && snapshot->arrival.state == NULL
                               ? "the snapshot was already imported: create a new one"
                               : "the snapshot is not complete: write the rest");
}

weir_status weir_snapshot_export(weir_snapshot *snapshot, weir_engine *engine, int32_t more_than,
                                 int timeout_ms, weir_error *error)
{
    weir_status status = check_state(snapshot, engine, true, error);
    if (status != WEIR_OK) return status;
    weir__snapshot_arrival *arrival = &snapshot->arrival;
    weir__kv_transfer transfer = {
        .key = key_of(snapshot),
        .tokens = snapshot->tokens,
        .n = snapshot->n,
        .more_than = more_than,
        .most = arrival->most,
    };
    status = send_transfer(engine, &transfer, timeout_ms, error);
    if (status != WEIR_OK) return status;
    arrival->state = transfer.state;
    if (!weir__snapshot_init(&arrival->text, arrival->limits.kind, &transfer.key, transfer.tokens, transfer.n,
                             transfer.n_bytes)) {
        weir__mem_free(arrival->state);
        arrival->state = NULL;
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for a snapshot");
    }
    uint64_t size = weir__snapshot_size(&arrival->text);
    if (size > arrival->most) {
        weir__mem_free(arrival->state);
        arrival->state = NULL;
        weir__snapshot_fini(&arrival->text);
        return weir__error_set(error, WEIR_TOO_LONG, "most_bytes",
                               "the snapshot has %llu bytes; allowed: %llu", (unsigned long long)size,
                               (unsigned long long)arrival->most);
    }
    weir__snapshot_seal(&arrival->text, arrival->state);
    arrival->has_text = snapshot->sealed = true;
    arrival->n = weir__snapshot_size(&arrival->text);
    return WEIR_OK;
}

weir_status weir_snapshot_import(weir_snapshot *snapshot, weir_engine *engine, int timeout_ms,
                                 weir_error *error)
{
    weir_status status = check_state(snapshot, engine, false, error);
    if (status != WEIR_OK) return status;
    weir__snapshot_arrival *arrival = &snapshot->arrival;
    int32_t most = engine->driver.info.n_ctx_seq;
    if (arrival->text.head.n_tokens > (uint32_t)most)
        return weir__error_set(error, WEIR_UNSUPPORTED, "engine",
                               "the snapshot has %u tokens; a context of this engine holds %d",
                               arrival->text.head.n_tokens, most);
    weir__kv_transfer transfer = {
        .brings = true,
        .key = key_of(snapshot),
        .tokens = arrival->text.tokens,
        .n = (int32_t)arrival->text.head.n_tokens,
        .state = arrival->state,
        .n_bytes = arrival->text.head.state_size,
    };
    status = send_transfer(engine, &transfer, timeout_ms, error);
    arrival->state = transfer.state;
    snapshot->failed = transfer.state == NULL; /* the cache has it */
    return status;
}

/* ---- Bytes ---- */

int32_t weir_snapshot_length(const weir_snapshot *snapshot)
{
    return snapshot != NULL && snapshot->arrival.has_text ? (int32_t)snapshot->arrival.text.head.n_tokens : 0;
}

uint64_t weir_snapshot_bytes(const weir_snapshot *snapshot)
{
    return snapshot != NULL && snapshot->arrival.has_text ? weir__snapshot_size(&snapshot->arrival.text) : 0;
}

size_t weir_snapshot_read(const weir_snapshot *snapshot, uint64_t at, void *bytes, size_t n)
{
    if (snapshot == NULL || bytes == NULL || !snapshot->sealed || snapshot->failed) return 0;
    return weir__snapshot_copy(&snapshot->arrival.text, snapshot->arrival.state, at, bytes, n);
}

/* The text is a beginning of the one that was asked for, with the same salt. */
static weir_status check_text(const weir_snapshot *snapshot, weir_error *error)
{
    const weir__snapshot *text = &snapshot->arrival.text;
    bool same = text->head.adapter == 0 && text->head.salt_length == snapshot->salt_length &&
                memcmp(text->salt, snapshot->salt, snapshot->salt_length) == 0 &&
                text->head.n_tokens <= (uint32_t)snapshot->n &&
                memcmp(text->tokens, snapshot->tokens, text->head.n_tokens * sizeof *text->tokens) == 0;
    return same ? WEIR_OK
                : weir__error_set(error, WEIR_FORMAT, "",
                                  "it has another text than the one that was asked for, or another salt");
}

weir_status weir_snapshot_write(weir_snapshot *snapshot, const void *bytes, size_t n, weir_error *error)
{
    if (snapshot == NULL || (bytes == NULL && n > 0))
        return weir__invalid(error, WEIR_ERROR_MISSING, snapshot == NULL ? "snapshot" : "bytes",
                             "a pointer is NULL");
    if (snapshot->failed || snapshot->sealed)
        return weir__error_set(error, WEIR_STATE, "snapshot",
                               "the snapshot accepts no more bytes: create a new one");
    weir__snapshot_arrival *arrival = &snapshot->arrival;
    bool had_text = arrival->has_text;
    weir_status status = weir__snapshot_take(arrival, bytes, n, error);
    if (status == WEIR_OK && !had_text && arrival->has_text) status = check_text(snapshot, error);
    snapshot->failed = status != WEIR_OK;
    return status;
}
