/* records.h: responses that are kept for later requests, within a budget of bytes and time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_RECORDS_H
#define WEIR_SERVER_API_COMMON_RECORDS_H

#include "base/text.h"
#include "server/access/share.h"
#include "weir/weir.h"

#define SERVE_RECORD_ID 64

typedef struct serve_records serve_records;

/* A response with its conversation. Items are JSON, with a comma between two of them. */
typedef struct serve_record {
    _Atomic int refs;
    struct serve_record *next; /* the one that was kept before it */
    char id[SERVE_RECORD_ID];  /* zeroes behind it */
    char *salt;                /* of the key that may read it */
    serve_owner owner;
    size_t cost; /* bytes that it counts as */
    int64_t until_ns;
    weir__text before;   /* the items before the request's own */
    weir__text input;    /* the request's own */
    weir__text response; /* a JSON object */
} serve_record;

/* NULL: out of memory. */
serve_record *serve_record_create(const char *id, serve_owner owner, const char *salt);

/* NULL is no error. Any thread. */
void serve_record_release(serve_record *record);

/* most: bytes of all records. */
serve_records *serve_records_create(size_t most);
void serve_records_destroy(serve_records *records);

/* All below: any thread. */

/* Takes the record. Where all have too many bytes, records of the owner that holds most go, its oldest first:
 * perhaps this one. A record counts as a 4,096th of all at least, for the list is searched one by one. */
void serve_records_put(serve_records *records, serve_record *record, int64_t until_ns);

/* Copies the parts of the record with this id and salt whose pointers are not NULL. INVALID: there is none;
 * NO_MEMORY. The texts are freed in any case. */
weir_status serve_records_find(serve_records *records, const char *id, const char *salt, weir__text *before,
                               weir__text *input, weir__text *response);

/* Holds all records with this salt, which do not change any more: an array [n], the newest first, that the
 * caller releases, one by one, and frees with weir__mem_free. NO_MEMORY. */
weir_status serve_records_hold(serve_records *records, const char *salt, serve_record ***list, size_t *n);

/* False: there is none. */
bool serve_records_remove(serve_records *records, const char *id, const char *salt);

/* Drops those whose time is over. */
void serve_records_sweep(serve_records *records, int64_t now_ns);

#endif
