/* miss.c: why a prompt was not cached as far as it might have been. SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

bool serve_miss_add(const weir_stream *stream, bool prompt, bool cached, weir__text *text)
{
    weir_miss_info info = {.size = sizeof info};
    if (weir_stream_miss(stream, &info) != WEIR_OK || info.miss == WEIR_MISS_NONE ||
        info.miss == WEIR_MISS_COLD || info.miss == WEIR_MISS_OFF)
        return false;
    weir__text_printf(text, "{\"reason\":\"%s\",\"matched_tokens\":%d", weir_miss_name(info.miss),
                      info.n_matched);
    if (info.message >= 0) {
        weir__text_printf(text, ",\"message\":%d,\"in_message\":%s", info.message,
                          info.in_message ? "true" : "false");
        weir__json_string(text, "role", info.role);
    }
    if (prompt && info.miss == WEIR_MISS_DIVERGED) weir__json_string(text, "prompt", info.prompt);
    if (cached && info.miss == WEIR_MISS_DIVERGED) weir__json_string(text, "cached", info.cached);
    weir__text_add_string(text, "}");
    return true;
}
