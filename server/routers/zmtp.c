/* zmtp.c: ZeroMQ's protocol on a connection: greetings, commands and frames, and published batches as
 * messages of frames.
 * SPDX-License-Identifier: Apache-2.0 */
#include "zmtp.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MECHANISM_AT 12
#define MECHANISM_N  20
#define PING_TTL     2  /* bytes before a PING's context */
#define CONTEXT_MOST 16 /* bytes of a PING's context */

static const char null_mechanism[MECHANISM_N] = "NULL";

/* The signature, version 3.0, the mechanism, and zeroes: a client. */
void serve_zmtp_greet(unsigned char bytes[SERVE_ZMTP_GREETING])
{
    memset(bytes, 0, SERVE_ZMTP_GREETING);
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    memcpy(bytes + MECHANISM_AT, null_mechanism, MECHANISM_N);
}

bool serve_zmtp_greets(const unsigned char bytes[SERVE_ZMTP_GREETING])
{
    return bytes[0] == 0xff && bytes[9] == 0x7f && bytes[10] >= 3 &&
           memcmp(bytes + MECHANISM_AT, null_mechanism, MECHANISM_N) == 0;
}

serve_zmtp_status serve_zmtp_read(const unsigned char *bytes, size_t n, size_t most, serve_zmtp_frame *frame)
{
    if (n < 2) return SERVE_ZMTP_CUT;
    unsigned flags = bytes[0];
    uint64_t size = bytes[1];
    size_t n_head = (flags & SERVE_ZMTP_LONG) != 0 ? 9 : 2;
    if ((flags & ~(SERVE_ZMTP_MORE | SERVE_ZMTP_LONG | SERVE_ZMTP_COMMAND)) != 0) return SERVE_ZMTP_BAD;
    if (n < n_head) return SERVE_ZMTP_CUT;
    for (size_t i = 2; i < n_head; i++) size = size << 8 | bytes[i];
    if (size > most - n_head) return SERVE_ZMTP_BAD;
    if (size > n - n_head) return SERVE_ZMTP_CUT;
    *frame = (serve_zmtp_frame){flags, bytes + n_head, (size_t)size, n_head + (size_t)size};
    return SERVE_ZMTP_OK;
}

bool serve_zmtp_is(const serve_zmtp_frame *frame, const char *name, const unsigned char **rest, size_t *n)
{
    size_t n_name = strlen(name);
    if ((frame->flags & SERVE_ZMTP_COMMAND) == 0 || frame->n < 1 + n_name || frame->body[0] != n_name ||
        memcmp(frame->body + 1, name, n_name) != 0)
        return false;
    *rest = frame->body + 1 + n_name;
    *n = frame->n - 1 - n_name;
    return true;
}

void serve_zmtp_write(weir__text *out, unsigned flags, const void *body, size_t n)
{
    bool is_long = n > 255;
    unsigned char head[9] = {(unsigned char)(flags | (is_long ? SERVE_ZMTP_LONG : 0))};
    size_t n_head = is_long ? 9 : 2;
    for (size_t i = 1, rest = n; i < n_head; i++, rest >>= 8) head[n_head - i] = (unsigned char)rest;
    weir__text_add(out, (const char *)head, n_head);
    if (n > 0) weir__text_add(out, body, n);
}

/* Writes the command READY with its one property: the length and name of it, then the length in four bytes
 * and the value. */
void serve_zmtp_ready(weir__text *out, const char *type)
{
    static const char head[] = "\5READY\13Socket-Type\0\0";
    char body[64];
    size_t n_head = sizeof head, n_type = strlen(type); /* with the NUL: three bytes of the length */
    memcpy(body, head, n_head);
    body[n_head] = (char)n_type;
    snprintf(body + n_head + 1, sizeof body - n_head - 1, "%s", type);
    serve_zmtp_write(out, SERVE_ZMTP_COMMAND, body, n_head + 1 + n_type);
}

void serve_zmtp_pong(weir__text *out, const unsigned char *rest, size_t n)
{
    static const char head[] = "\4PONG";
    char body[sizeof head + CONTEXT_MOST];
    size_t n_context = n > PING_TTL ? n - PING_TTL : 0;
    if (n_context > CONTEXT_MOST) n_context = CONTEXT_MOST;
    memcpy(body, head, sizeof head - 1);
    if (n_context > 0) memcpy(body + sizeof head - 1, rest + PING_TTL, n_context);
    serve_zmtp_write(out, SERVE_ZMTP_COMMAND, body, sizeof head - 1 + n_context);
}

/* ---- Messages ---- */

/* The topic is the second frame: its bytes end where the head of the third one begins. */
serve_kv_message *serve_kv_message_create(const char *topic, uint64_t number, const char *payload, size_t n)
{
    unsigned char big_endian[8];
    weir__text bytes = {0};
    serve_kv_message *message = NULL;
    size_t n_topic = strlen(topic), topic_at;
    for (int i = 0; i < 8; i++) big_endian[i] = (unsigned char)(number >> 8 * (7 - i));
    serve_zmtp_write(&bytes, SERVE_ZMTP_MORE, NULL, 0);
    serve_zmtp_write(&bytes, SERVE_ZMTP_MORE, topic, n_topic);
    topic_at = bytes.n - n_topic;
    serve_zmtp_write(&bytes, SERVE_ZMTP_MORE, big_endian, sizeof big_endian);
    serve_zmtp_write(&bytes, 0, payload, n);
    if (!bytes.failed) message = weir__mem_alloc(sizeof *message + bytes.n);
    if (message != NULL) {
        *message = (serve_kv_message){.refs = 1, .n_topic = n_topic, .n = bytes.n};
        memcpy(message->bytes, bytes.bytes, bytes.n);
        message->topic = message->bytes + topic_at;
    }
    weir__text_fini(&bytes);
    return message;
}

serve_kv_message *serve_kv_message_hold(serve_kv_message *message)
{
    message->refs++;
    return message;
}

void serve_kv_message_release(serve_kv_message *message)
{
    if (message != NULL && --message->refs == 0) weir__mem_free(message);
}
