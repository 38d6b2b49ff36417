/* kv_batch.h: changes of a prefix cache as vLLM publishes them: one MessagePack message,
 * [time, [event, …], nil], whose events are arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ROUTERS_KV_BATCH_H
#define WEIR_SERVER_ROUTERS_KV_BATCH_H

#include <weir/more.h>

#include "base/text.h"

/* Appends a message for n changes, whose tokens [n × size] are those of blocks of `size`. time: seconds since
 * 1970. Changes that follow each other become one event where they can: blocks stored behind each other, or
 * removed from the same memory. */
void serve_kv_batch_write(weir__text *out, double time, const weir_cache_change *changes,
                          const int32_t *tokens, size_t n, int32_t size);

/* Appends a message that says that nothing is cached. */
void serve_kv_batch_clear(weir__text *out, double time);

#endif
