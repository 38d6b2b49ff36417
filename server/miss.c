/* miss.c: why a prompt was not cached as far as it might have been. SPDX-License-Identifier: Apache-2.0 */
#include "answer.h"

bool serve_miss_tell(const weir_stream *stream, bool prompt, bool cached, serve_text *text)
{
    weir_miss_info info = {.size = sizeof info};
    if (weir_stream_miss(stream, &info) != WEIR_OK || info.miss == WEIR_MISS_NONE ||
        info.miss == WEIR_MISS_COLD || info.miss == WEIR_MISS_OFF)
        return false;
    serve_text_printf(text, "{\"reason\":\"%s\",\"matched_tokens\":%d", weir_miss_name(info.miss),
                      info.n_matched);
    if (info.miss == WEIR_MISS_DIVERGED) {
        serve_text_printf(text, ",\"cause\":\"%s\"", weir_cause_name(info.cause));
        if (info.message >= 0) {
            serve_text_printf(text, ",\"message\":%d,\"in_message\":%s,\"role\":", info.message,
                              info.in_message ? "true" : "false");
            serve_text_json_puts(text, info.role);
        }
    }
    if (prompt && info.miss == WEIR_MISS_DIVERGED) {
        serve_text_puts(text, ",\"prompt\":");
        serve_text_json_puts(text, info.prompt);
    }
    if (cached && info.miss == WEIR_MISS_DIVERGED) {
        serve_text_puts(text, ",\"cached\":");
        serve_text_json_puts(text, info.cached);
    }
    serve_text_puts(text, "}");
    return true;
}
