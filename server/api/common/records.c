/* records.c: responses that are kept for later requests. SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/request/serve.h"
#include "server/system/secret.h"

#define RECORDS_MOST 4096

/* Invariant: share counts the costs of the records in the list, the newest of which is the first. */
struct serve_records {
    size_t most;
    pthread_mutex_t mutex; /* all below */
    serve_record *newest;
    serve_share share;
};

serve_record *serve_record_create(const char *id, serve_owner owner, const char *salt)
{
    serve_record *record = weir__mem_calloc(1, sizeof *record);
    if (record == NULL) return NULL;
    atomic_init(&record->refs, 1);
    record->owner = owner;
    record->salt = weir__mem_strdup(salt);
    if (strlen(id) < sizeof record->id) snprintf(record->id, sizeof record->id, "%s", id);
    if (record->salt != NULL) return record;
    weir__mem_free(record);
    return NULL;
}

void serve_record_release(serve_record *record)
{
    if (record == NULL || atomic_fetch_sub_explicit(&record->refs, 1, memory_order_acq_rel) > 1) return;
    weir__text_fini(&record->before);
    weir__text_fini(&record->input);
    weir__text_fini(&record->response);
    weir__mem_free(record->salt);
    weir__mem_free(record);
}

serve_records *serve_records_create(size_t most)
{
    serve_records *records = weir__mem_calloc(1, sizeof *records);
    if (records == NULL) return NULL;
    records->most = most;
    pthread_mutex_init(&records->mutex, NULL);
    serve_share_init(&records->share);
    return records;
}

static size_t size_of(const serve_record *record)
{
    return sizeof *record + strlen(record->salt) + 1 + record->before.capacity + record->input.capacity +
           record->response.capacity;
}

/* The record at *at leaves the list. */
static serve_record *take_record(serve_records *records, serve_record **at)
{
    serve_record *record = *at;
    *at = record->next;
    serve_share_release(&records->share, record->owner, record->cost);
    return record;
}

void serve_records_destroy(serve_records *records)
{
    if (records == NULL) return;
    while (records->newest != NULL) serve_record_release(take_record(records, &records->newest));
    serve_share_fini(&records->share);
    pthread_mutex_destroy(&records->mutex);
    weir__mem_free(records);
}

/* The oldest record of an owner that has one. Under the mutex. */
static serve_record **oldest_of(serve_records *records, serve_owner owner)
{
    serve_record **found = NULL;
    for (serve_record **at = &records->newest; *at != NULL; at = &(*at)->next)
        if (serve_owner_is((*at)->owner, owner)) found = at;
    return found;
}

void serve_records_put(serve_records *records, serve_record *record, int64_t until_ns)
{
    bool whole = !record->before.failed && !record->input.failed && !record->response.failed;
    size_t least = records->most / RECORDS_MOST;
    serve_owner owner;
    record->until_ns = until_ns;
    record->cost = size_of(record) > least ? size_of(record) : least;
    pthread_mutex_lock(&records->mutex);
    whole = whole && record->cost <= records->most &&
            serve_share_hold(&records->share, record->owner, record->cost);
    if (whole) {
        record->next = records->newest;
        records->newest = record;
    }
    while (serve_share_used(&records->share) > records->most && serve_share_largest(&records->share, &owner))
        serve_record_release(take_record(records, oldest_of(records, owner)));
    pthread_mutex_unlock(&records->mutex);
    if (!whole) serve_record_release(record);
}

/* Compares all ids as a whole: the time reveals nothing about them. Under the mutex; NULL: there is none. */
static serve_record **find_record(serve_records *records, const char *id, const char *salt)
{
    char given[SERVE_RECORD_ID] = {0};
    serve_record **found = NULL;
    if (strlen(id) < sizeof given) snprintf(given, sizeof given, "%s", id);
    for (serve_record **at = &records->newest; *at != NULL; at = &(*at)->next)
        if (serve_secret_is((*at)->id, given, sizeof given) && strcmp((*at)->salt, salt) == 0) found = at;
    return found;
}

static void copy_text(weir__text *to, const weir__text *from)
{
    if (to != NULL) weir__text_add(to, from->n > 0 ? from->bytes : "", from->n);
}

weir_status serve_records_find(serve_records *records, const char *id, const char *salt, weir__text *before,
                               weir__text *input, weir__text *response)
{
    pthread_mutex_lock(&records->mutex);
    serve_record **found = find_record(records, id, salt);
    if (found != NULL) {
        copy_text(before, &(*found)->before);
        copy_text(input, &(*found)->input);
        copy_text(response, &(*found)->response);
    }
    pthread_mutex_unlock(&records->mutex);
    bool failed = (before != NULL && before->failed) || (input != NULL && input->failed) ||
                  (response != NULL && response->failed);
    return found == NULL ? WEIR_INVALID : failed ? WEIR_NO_MEMORY : WEIR_OK;
}

weir_status serve_records_hold(serve_records *records, const char *salt, serve_record ***list, size_t *n)
{
    size_t capacity = 0;
    bool ok = true;
    *list = NULL;
    *n = 0;
    pthread_mutex_lock(&records->mutex);
    for (serve_record *one = records->newest; ok && one != NULL; one = one->next) {
        if (strcmp(one->salt, salt) != 0) continue;
        ok = weir__mem_grow(list, &capacity, *n + 1, sizeof **list);
        if (!ok) break;
        atomic_fetch_add_explicit(&one->refs, 1, memory_order_relaxed);
        (*list)[(*n)++] = one;
    }
    pthread_mutex_unlock(&records->mutex);
    return ok ? WEIR_OK : WEIR_NO_MEMORY;
}

bool serve_records_remove(serve_records *records, const char *id, const char *salt)
{
    pthread_mutex_lock(&records->mutex);
    serve_record **found = find_record(records, id, salt);
    serve_record *record = found != NULL ? take_record(records, found) : NULL;
    pthread_mutex_unlock(&records->mutex);
    serve_record_release(record);
    return record != NULL;
}

void serve_records_sweep(serve_records *records, int64_t now_ns)
{
    pthread_mutex_lock(&records->mutex);
    for (serve_record **at = &records->newest; *at != NULL;) {
        if ((*at)->until_ns <= now_ns)
            serve_record_release(take_record(records, at));
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&records->mutex);
}
