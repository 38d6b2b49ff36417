/* media.c: reads files of images and sounds, and puts them into messages.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/more.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/mem.h"
#include "file.h"

void cli_media_cut(cli_media *media, size_t n)
{
    while (media->n > n) {
        cli_media_item *item = &media->items[--media->n];
        weir_media_release(item->media);
        cli_free(item->path);
    }
}

void cli_media_fini(cli_media *media)
{
    cli_media_cut(media, 0);
    cli_free(media->items);
    *media = (cli_media){0};
}

/* ---- Reading ---- */

static const char *name_of(weir_media_kind kind)
{
    return kind == WEIR_MEDIA_IMAGE ? "image" : "sound";
}

static cli_exit check_model(const weir_model *model, weir_media_kind kind, weir_model_info *info)
{
    *info = (weir_model_info){.size = sizeof *info};
    weir_model_describe(model, info);
    if (kind == WEIR_MEDIA_IMAGE ? info->reads_images : info->reads_sounds) return CLI_OK;
    return cli_fail(CLI_USAGE, "this model reads no %ss%s", name_of(kind),
                    info->reads_images || info->reads_sounds
                        ? ""
                        : ": that needs a model with a projector (--mmproj FILE)");
}

/* name: in messages. */
static cli_exit add_medium(cli_media *media, const weir_model_info *info, const char *name, const char *path,
                           const void *bytes, size_t n_bytes, weir_media_kind kind, size_t message)
{
    weir_media_params params = weir_media_params_default();
    weir_media_info made = {.size = sizeof made};
    weir_media *one = NULL;
    weir_error error = {0};
    if (info->sample_rate > 0) params.sample_rate = info->sample_rate;
    if (weir_media_create(bytes, n_bytes, &params, &one, &error) != WEIR_OK)
        return cli_fail(CLI_FAILED, "cannot read the %s %s: %s", name_of(kind), name,
                        weir__error_words(&error).text);
    (void)weir_media_describe(one, &made);
    if (made.kind != kind) {
        weir_media_release(one);
        return cli_fail(CLI_USAGE, "%s is not an %s but %s", name,
                        kind == WEIR_MEDIA_IMAGE ? "image" : "audio file",
                        kind == WEIR_MEDIA_IMAGE ? "a sound" : "an image");
    }
    cli_grow(&media->items, &media->capacity, media->n + 1, sizeof *media->items);
    media->items[media->n++] =
        (cli_media_item){.media = one, .path = cli_format("%s", path), .message = message};
    return CLI_OK;
}

cli_exit cli_media_read(cli_media *media, const weir_model *model, const char *path, weir_media_kind kind,
                        size_t message)
{
    weir_model_info info;
    char *bytes = NULL;
    size_t n = 0;
    cli_exit code = check_model(model, kind, &info);
    if (code == CLI_OK)
        code = cli_file_read(path, kind == WEIR_MEDIA_IMAGE ? "an image" : "a sound", &bytes, &n);
    if (code == CLI_OK)
        code = add_medium(media, &info, strcmp(path, "-") == 0 ? "from stdin" : path, path, bytes, n, kind,
                          message);
    cli_free(bytes);
    return code;
}

void cli_media_add(cli_media *media, const cli_media *from, size_t message)
{
    cli_grow(&media->items, &media->capacity, media->n + from->n, sizeof *media->items);
    for (size_t i = 0; i < from->n; i++)
        media->items[media->n++] = (cli_media_item){.media = weir_media_hold(from->items[i].media),
                                                    .path = cli_format("%s", from->items[i].path),
                                                    .message = message};
}

void cli_media_add_from(cli_media *media, const cli_media *from, size_t n)
{
    for (size_t i = 0; i < from->n; i++) {
        const cli_media one = {.items = &from->items[i], .n = 1};
        if (from->items[i].message >= n) cli_media_add(media, &one, from->items[i].message - n);
    }
}

void cli_media_name(const cli_media_item *item, cli_text *line)
{
    weir_media_info info = {.size = sizeof info};
    const char *name = strcmp(item->path, "-") == 0 ? "stdin" : cli_file_name(item->path);
    (void)weir_media_describe(item->media, &info);
    cli_text_add_safe(line, name, strlen(name));
    if (info.kind == WEIR_MEDIA_IMAGE)
        cli_text_printf(line, " (%d × %d)", info.width, info.height);
    else
        cli_text_printf(line, " (%.1f s)", info.seconds);
}

/* ---- Messages ---- */

weir_media **cli_media_list(const cli_media *media)
{
    weir_media **list = cli_alloc(media->n, sizeof(weir_media *));
    for (size_t i = 0; i < media->n; i++) list[i] = media->items[i].media;
    return list;
}

json_t *cli_media_parts(const cli_media *media, size_t message)
{
    json_t *parts = NULL;
    for (size_t i = 0; i < media->n; i++) {
        weir_media_info info = {.size = sizeof info};
        if (media->items[i].message != message) continue;
        if (parts == NULL) parts = json_array();
        (void)weir_media_describe(media->items[i].media, &info);
        json_array_append_new(parts, json_pack("{s:s, s:s}", "type",
                                               info.kind == WEIR_MEDIA_IMAGE ? "image" : "audio", "path",
                                               media->items[i].path));
    }
    return parts;
}

char *cli_media_messages(const cli_media *media, const weir_message *messages, size_t n, size_t first)
{
    json_t *list = json_array();
    size_t next = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *parts = json_array();
        for (; i >= first && next < media->n && media->items[next].message == i - first; next++)
            json_array_append_new(parts, json_pack("{s:s}", "type", "media"));
        json_array_append_new(parts, json_pack("{s:s, s:s}", "type", "text", "text", messages[i].content));
        json_array_append_new(list, json_pack("{s:s, s:o}", "role", messages[i].role, "content", parts));
    }
    char *dumped = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (dumped == NULL) cli_no_memory();
    char *text = cli_format("%s", dumped);
    free(dumped); /* jansson's own memory */
    return text;
}

/* ---- Messages as JSON ---- */

static cli_exit take_part(cli_media *media, const weir_model *model, json_t *part, const char *where,
                          size_t message)
{
    static const struct {
        const char *type, *object, *member;
        weir_media_kind kind;
    } kinds[] = {
        {"image", NULL, "path", WEIR_MEDIA_IMAGE},
        {"audio", NULL, "path", WEIR_MEDIA_AUDIO},
        {"image_url", "image_url", "url", WEIR_MEDIA_IMAGE},
        {"input_audio", "input_audio", "data", WEIR_MEDIA_AUDIO},
    };
    const char *type = json_string_value(json_object_get(part, "type"));
    size_t k = 0, from = 0, n_bytes = 0;
    while (type != NULL && k < 4 && strcmp(kinds[k].type, type) != 0) k++;
    if (type == NULL || k == 4) return CLI_OK; /* the library checks these */
    const json_t *of = kinds[k].object != NULL ? json_object_get(part, kinds[k].object) : part;
    const json_t *value = json_object_get(of, kinds[k].member);
    const char *text = json_string_value(value);
    if (text == NULL)
        return cli_fail(CLI_USAGE, "%s: this %s has no \"%s\" that is a string", where, type,
                        kinds[k].member);
    if (kinds[k].object == NULL) return cli_media_read(media, model, text, kinds[k].kind, message);
    weir_model_info info;
    unsigned char *bytes = NULL;
    cli_exit code = check_model(model, kinds[k].kind, &info);
    if (code != CLI_OK) return code;
    if (!weir__base64_in_url(text, json_string_length(value), &from) && kinds[k].kind == WEIR_MEDIA_IMAGE)
        return cli_fail(CLI_USAGE,
                        "%s: the URL of an image must be a data: URL; for a file write {\"type\": \"image\", "
                        "\"path\": FILE}",
                        where);
    weir_status status = weir__base64_decode(text + from, json_string_length(value) - from, &bytes, &n_bytes);
    if (status == WEIR_NO_MEMORY) cli_no_memory();
    code = status != WEIR_OK ? cli_fail(CLI_USAGE, "%s: this is not base64", where)
                             : add_medium(media, &info, where, where, bytes, n_bytes, kinds[k].kind, message);
    weir__mem_free(bytes);
    json_object_del(part, kinds[k].object);
    return code;
}

cli_exit cli_media_take_parts(cli_media *media, const weir_model *model, const json_t *content,
                              const char *where, size_t message)
{
    cli_exit code = CLI_OK;
    for (size_t k = 0; k < json_array_size(content) && code == CLI_OK; k++) {
        char place[128];
        snprintf(place, sizeof place, "%s[%zu]", where, k);
        code = take_part(media, model, json_array_get(content, k), place, message);
    }
    return code;
}

cli_exit cli_media_take(cli_media *media, const weir_model *model, json_t *messages, const char *where)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < json_array_size(messages) && code == CLI_OK; i++) {
        char place[96];
        snprintf(place, sizeof place, "%s[%zu].content", where, i);
        code = cli_media_take_parts(media, model, json_object_get(json_array_get(messages, i), "content"),
                                    place, 0);
    }
    return code;
}
