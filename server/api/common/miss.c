/* miss.c: why a prompt was not cached as far as it might have been. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "answer.h"

/* Adds how the line begins in which both texts diverge, if it is in a system message or a tool's result: such
 * a line may change with each request, and --drop-line or --drop-last-line could drop it. */
static void add_line(const weir_miss_info *info, weir__text *text)
{
    bool told = strcmp(info->role, "system") == 0 || strcmp(info->role, "developer") == 0 ||
                strcmp(info->role, "tool") == 0;
    if (told && info->line[0] != '\0') weir__json_string(text, "line", info->line);
}

bool serve_miss_add(const weir_stream *stream, bool texts, weir__text *text)
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
    if (texts && info.miss == WEIR_MISS_DIVERGED) {
        weir__json_string(text, "prompt", info.prompt);
        if (info.cached[0] != '\0') weir__json_string(text, "cached", info.cached);
        add_line(&info, text);
    }
    weir__text_add_string(text, "}");
    return true;
}

void serve_miss_add_member(const weir_stream *stream, bool texts, weir__text *text)
{
    size_t before = text->n;
    weir__json_key(text, "miss");
    if (!serve_miss_add(stream, texts, text)) weir__text_cut(text, before);
}
