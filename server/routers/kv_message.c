/* kv_message.c: a published batch as the bytes that its readers get. SPDX-License-Identifier: Apache-2.0 */
#include "kv_message.h"

#include <string.h>

#include "base/mem.h"
#include "zmtp.h"

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
