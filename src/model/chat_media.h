/* chat_media.h: the images and sounds of a conversation. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_MEDIA_H
#define WEIR_MODEL_CHAT_MEDIA_H

#include "model/chat.h"
#include "model/chat_stem.h"

/* Templates get text, as llama.cpp's server gives it to them: a marker in the place of each medium. It is a
 * stem that no message has, so no text of a message can be one. */
typedef struct weir__chat_markers {
    char stem[WEIR__CHAT_STEM + 1]; /* "": there are no media */
} weir__chat_markers;

/* Replaces the parts that are media by markers. Errors: INVALID (media[i], n_media, or the part: too few
 * media, too many, or one of another kind), NO_MEMORY. */
weir_status weir__chat_media_mark(const weir_chat_params *params, json_t *messages,
                                  weir__chat_markers *markers, weir_error *error);

/* Removes the markers from the chat's prompt and fills its media. messages: those with markers. Errors:
 * TEMPLATE (field: the part whose marker the template has left out, changed or repeated), NO_MEMORY. */
weir_status weir__chat_media_find(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                                  const weir__chat_markers *markers, weir_error *error);

#endif
