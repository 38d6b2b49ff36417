/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "secret.h"

#define RECORDS_MOST 4096 /* they are searched one by one */

/* Invariant: n_records and n_bytes count the records in the list, the newest of which is the first. */
struct serve_records {
    pthread_mutex_t mutex; /* all below */
    serve_record *newest;
    size_t n_records, n_bytes;
};

serve_record *serve_record_create(const char *id, const char *salt)
{
    serve_record *record = weir__mem_calloc(1, sizeof *record);
    if (record == NULL) return NULL;
    record->salt = weir__mem_strdup(salt);
    if (strlen(id) < sizeof record->id) snprintf(record->id, sizeof record->id, "%s", id);
    if (record->salt != NULL) return record;
    weir__mem_free(record);
    return NULL;
}

void serve_record_destroy(serve_record *record)
{
    if (record == NULL) return;
    weir__text_fini(&record->before);
    weir__text_fini(&record->input);
    weir__text_fini(&record->response);
    weir__mem_free(record->salt);
    weir__mem_free(record);
}

serve_records *serve_records_create(void)
{
    serve_records *records = weir__mem_calloc(1, sizeof *records);
    if (records != NULL) pthread_mutex_init(&records->mutex, NULL);
    return records;
}

static size_t size_of(const serve_record *record)
{
    return sizeof *record + record->before.capacity + record->input.capacity + record->response.capacity;
}

/* The record at *at leaves the list. */
static serve_record *take_record(serve_records *records, serve_record **at)
{
    serve_record *record = *at;
    *at = record->next;
    records->n_records--;
    records->n_bytes -= size_of(record);
    return record;
}

void serve_records_destroy(serve_records *records)
{
    if (records == NULL) return;
    while (records->newest != NULL) serve_record_destroy(take_record(records, &records->newest));
    pthread_mutex_destroy(&records->mutex);
    weir__mem_free(records);
}

static serve_record **oldest(serve_records *records)
{
    serve_record **at = &records->newest;
    while ((*at)->next != NULL) at = &(*at)->next;
    return at;
}

void serve_records_put(serve_records *records, serve_record *record, size_t most, int64_t until_ns)
{
    bool whole = !record->before.failed && !record->input.failed && !record->response.failed;
    if (!whole || size_of(record) > most) {
        serve_record_destroy(record);
        return;
    }
    record->until_ns = until_ns;
    pthread_mutex_lock(&records->mutex);
    while (records->newest != NULL &&
           (records->n_records >= RECORDS_MOST || records->n_bytes > most - size_of(record)))
        serve_record_destroy(take_record(records, oldest(records)));
    record->next = records->newest;
    records->newest = record;
    records->n_records++;
    records->n_bytes += size_of(record);
    pthread_mutex_unlock(&records->mutex);
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

bool serve_records_remove(serve_records *records, const char *id, const char *salt)
{
    pthread_mutex_lock(&records->mutex);
    serve_record **found = find_record(records, id, salt);
    serve_record *record = found != NULL ? take_record(records, found) : NULL;
    pthread_mutex_unlock(&records->mutex);
    serve_record_destroy(record);
    return record != NULL;
}

void serve_records_sweep(serve_records *records, int64_t now_ns)
{
    pthread_mutex_lock(&records->mutex);
    for (serve_record **at = &records->newest; *at != NULL;) {
        if ((*at)->until_ns <= now_ns)
            serve_record_destroy(take_record(records, at));
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&records->mutex);
}
