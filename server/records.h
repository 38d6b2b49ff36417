/* records.h: responses that are kept for later requests, within a budget of bytes and time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_RECORDS_H
#define WEIR_SERVER_RECORDS_H

#include "base/text.h"
#include "weir/weir.h"

#define SERVE_RECORD_ID 64

typedef struct serve_records serve_records;

/* A response with its conversation. Items are JSON, with a comma between two of them. */
typedef struct serve_record {
    struct serve_record *next; /* the one that was kept before it */
    char id[SERVE_RECORD_ID];  /* zeroes behind it */
    char *salt;                /* of the key that owns it */
    int64_t until_ns;
    weir__text before;   /* the items before the request's own */
    weir__text input;    /* the request's own */
    weir__text response; /* a JSON object */
} serve_record;

/* NULL: out of memory. */
serve_record *serve_record_create(const char *id, const char *salt);
void serve_record_destroy(serve_record *record);

serve_records *serve_records_create(void);
void serve_records_destroy(serve_records *records);

/* All below: any thread. */

/* Takes the record. The oldest ones go where all would have more than `most` bytes; one that alone has more
 * is not kept. */
void serve_records_put(serve_records *records, serve_record *record, size_t most, int64_t until_ns);

/* Copies the parts of the record with this id and salt whose pointers are not NULL. INVALID: there is none;
 * NO_MEMORY. The texts are freed in any case. */
weir_status serve_records_find(serve_records *records, const char *id, const char *salt, weir__text *before,
                               weir__text *input, weir__text *response);

/* False: there is none. */
bool serve_records_remove(serve_records *records, const char *id, const char *salt);

/* Drops those whose time is over. */
void serve_records_sweep(serve_records *records, int64_t now_ns);

#endif
