/* zmtp.h: ZeroMQ's protocol on a connection, version 3.0 without security (rfc.zeromq.org/spec/23): bytes in
 * and out. A connection begins with a greeting of both sides, then a command READY; messages are frames.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_ZMTP_H
#define WEIR_SERVER_ROUTERS_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define SERVE_ZMTP_GREETING 64 /* bytes */

#define SERVE_ZMTP_MORE    1u /* flags of a frame: the message goes on */
#define SERVE_ZMTP_LONG    2u
#define SERVE_ZMTP_COMMAND 4u

typedef struct serve_zmtp_frame {
    unsigned flags;
    const unsigned char *body;
    size_t n;     /* of the body */
    size_t n_all; /* with its head */
} serve_zmtp_frame;

typedef enum serve_zmtp_status {
    SERVE_ZMTP_OK,
    SERVE_ZMTP_CUT, /* the rest has not come yet */
    SERVE_ZMTP_BAD, /* no frame, or a longer one than allowed */
} serve_zmtp_status;

/* greet: writes this side's greeting. greets: true if the other side's is one that can be answered. */
void serve_zmtp_greet(unsigned char bytes[SERVE_ZMTP_GREETING]);
bool serve_zmtp_greets(const unsigned char bytes[SERVE_ZMTP_GREETING]);

/* The first frame of n bytes; its head and body have `most` bytes at most. */
serve_zmtp_status serve_zmtp_read(const unsigned char *bytes, size_t n, size_t most, serve_zmtp_frame *frame);

/* True if the frame is the command of this name. *n: the bytes behind the name. */
bool serve_zmtp_is(const serve_zmtp_frame *frame, const char *name, const unsigned char **rest, size_t *n);

void serve_zmtp_write(weir__text *out, unsigned flags, const void *body, size_t n);

/* A command READY of this type of socket, which has at most 20 bytes. */
void serve_zmtp_ready(weir__text *out, const char *type);

/* The answer to a command PING, of which this is the rest. */
void serve_zmtp_pong(weir__text *out, const unsigned char *rest, size_t n);

/* ---- Messages ---- */

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
