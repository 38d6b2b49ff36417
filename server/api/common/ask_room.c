/* ask_room.c: how many messages and parts a conversation may have. SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"
#include "server/models/loaded.h"
#include "too_long.h"

#define PARTS_FEW 1024

size_t serve_ask_room(const serve_call *call)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (weir_engine_get_stats(call->loaded->engine, &stats) != WEIR_OK) return SIZE_MAX;
    return stats.n_ctx > PARTS_FEW ? (size_t)stats.n_ctx : PARTS_FEW;
}

bool serve_ask_has_room(const serve_ask *ask, size_t n)
{
    return n <= ask->most_parts ||
           serve_call_too_long(ask->call, serve_ask_conversation(ask),
                               "the messages have more than %zu texts, images and calls, each of which is at "
                               "least a token: there is no room for so many",
                               ask->most_parts);
}
