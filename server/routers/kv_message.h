/* kv_message.h: a published batch as the bytes that its readers get: ["", topic, number, payload] for
 * replays, without the first part for subscribers. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_KV_MESSAGE_H
#define WEIR_SERVER_ROUTERS_KV_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVE_KV_ENVELOPE 2 /* bytes of the first part */

/* Readers hold the one that they are in the middle of. */
typedef struct serve_kv_message {
    int32_t refs;
    bool kept; /* for replays */
    const char *topic;
    size_t n_topic, n;
    char bytes[]; /* [n] */
} serve_kv_message;

/* The messages that were published since the sequence began: all[i] has the number i. */
typedef struct serve_kv_kept {
    serve_kv_message **all; /* [n] */
    size_t n, n_bytes;
} serve_kv_kept;

/* NULL: out of memory. Otherwise the caller holds it. */
serve_kv_message *serve_kv_message_create(const char *topic, uint64_t number, const char *payload, size_t n);
serve_kv_message *serve_kv_message_hold(serve_kv_message *message);
void serve_kv_message_release(serve_kv_message *message); /* NULL is ignored */

#endif
