/* media.h: images and sounds that go with messages. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MEDIA_H
#define WEIR_CLI_MEDIA_H

#include <jansson.h>
#include <weir/more.h>

#include "cli.h"
#include "text.h"

typedef struct cli_media_item {
    weir_media *media; /* held */
    char *path;        /* owned; "-": stdin */
    size_t message;    /* to which it belongs, the system message not counted */
} cli_media_item;

/* Zeroed is empty. */
typedef struct cli_media {
    cli_media_item *items; /* [n], by message */
    size_t n, capacity;
} cli_media;

void cli_media_fini(cli_media *media);

/* Forgets all but the first n. */
void cli_media_cut(cli_media *media, size_t n);

/* Adds an image or a sound from a file, or from stdin for "-". CLI_OK, or a code after a message, for example
 * that the model does not read this kind. */
cli_exit cli_media_read(cli_media *media, const weir_model *model, const char *path, weir_media_kind kind,
                        size_t message);

/* Adds the media of `from` to a message. */
void cli_media_add(cli_media *media, const cli_media *from, size_t message);

/* Adds the media of `from` without those of the first n messages, and counts messages from there. */
void cli_media_add_from(cli_media *media, const cli_media *from, size_t n);

/* Appends "photo.jpg (640 × 480)" or "a.wav (2.5 s)". */
void cli_media_name(const cli_media_item *item, cli_text *line);

/* Messages [n] as JSON, in which the media stand before the text of their message. Media count messages from
 * messages[first]. Freed with cli_free. */
char *cli_media_messages(const cli_media *media, const weir_message *messages, size_t n, size_t first);

/* The media alone, [media->n], not held; the array is freed with cli_free. */
weir_media **cli_media_list(const cli_media *media);

/* The media of a message as JSON parts with their paths, for saved conversations; NULL: there are none. */
json_t *cli_media_parts(const cli_media *media, size_t message);

/* Adds the media of messages as JSON, in order: parts {"type": "image" or "audio", "path": FILE}, and those
 * of OpenAI with data: URLs and base64, whose payloads it removes. CLI_OK, or a code after a message that
 * begins with `where`. */
cli_exit cli_media_take(cli_media *media, const weir_model *model, json_t *messages, const char *where);

/* Adds the media of one content, as above; unless it is an array of parts, it has none. */
cli_exit cli_media_take_parts(cli_media *media, const weir_model *model, const json_t *content,
                              const char *where, size_t message);

#endif
