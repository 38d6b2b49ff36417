/* ask_media.c: the images and sounds in the messages of a request. SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ask.h"
#include "base/base64.h"
#include "base/mem.h"
#include "dialect.h"
#include "error.h"
#include "field.h"
#include "server/models/loaded.h"
#include "server/request/call.h"

#define PIXELS_MAX 24000000 /* of an image, 12 bytes of each while it is decoded */

/* Counts decoded media among those of all calls, until the call's end. */
static bool reserve(const serve_ask *ask, size_t n)
{
    serve_call *call = ask->call;
    size_t most = (size_t)call->server->params.media_bytes, alone = serve_share_alone(most);
    if (serve_call_hold_media(call, n)) return true;
    return n > alone || call->media_bytes > alone - n
               ? serve_call_refuse(call, 413, serve_ask_conversation(ask), "media_too_large",
                                   "decoded, the images and sounds of this request take more than the %zu "
                                   "MiB that one caller may have (three quarters of --media-memory)",
                                   alone >> 20)
               : serve_call_refuse(call, 503, NULL, "too_many_media",
                                   "the images and sounds of other requests take the memory for them");
}

static bool refuse_medium(serve_call *call, const char *field, weir_error *error)
{
    if (error->code == WEIR_NO_MEMORY || error->code == WEIR_ABORTED)
        return serve_call_passes(call, error->code, error);
    char *name = strstr(error->message, " (max_");
    if (name != NULL) *name = '\0'; /* the library's for a limit */
    return serve_call_refuse(call, 400, field,
                             error->code == WEIR_UNSUPPORTED ? "unsupported_value" : "invalid_value",
                             "%s cannot be read: %s", field, error->message);
}

static bool decode(serve_ask *ask, const weir_model_info *info, weir_media_kind kind, const char *field,
                   const void *bytes, size_t n_bytes)
{
    weir_media_params params = weir_media_params_default();
    weir_media_info made = {.size = sizeof made};
    weir_media *media = NULL;
    weir_error error = {0};
    if (info->sample_rate > 0) params.sample_rate = info->sample_rate;
    params.max_pixels = PIXELS_MAX;
    error.code = weir_media_create(bytes, n_bytes, &params, &media, &error);
    if (error.code != WEIR_OK) return refuse_medium(ask->call, field, &error);
    ask->media[ask->n_media++] = media;
    (void)weir_media_describe(media, &made);
    if (made.kind != kind)
        return serve_field_refuse(ask->call, field, kind == WEIR_MEDIA_IMAGE ? "an image" : "a sound");
    return reserve(ask, made.n_bytes);
}

static bool decode_base64(serve_ask *ask, const weir_model_info *info, weir_media_kind kind,
                          const char *field, const char *text, size_t n)
{
    unsigned char *bytes = NULL;
    size_t n_bytes;
    weir_status status = weir__base64_decode(text, n, &bytes, &n_bytes);
    if (status == WEIR_INVALID) return serve_field_refuse(ask->call, field, "base64");
    if (status != WEIR_OK) return serve_call_no_memory(ask->call);
    bool ok = decode(ask, info, kind, field, bytes, n_bytes);
    weir__mem_free(bytes);
    return ok;
}

static bool fetch_image(serve_ask *ask, const weir_model_info *info, const char *field, const char *url)
{
    weir__text bytes = {0};
    bool ok = serve_fetch(ask->call, field, url, &ask->fetches, &bytes) &&
              decode(ask, info, WEIR_MEDIA_IMAGE, field, bytes.bytes, bytes.n);
    serve_call_drop_media(ask->call, bytes.n);
    weir__text_fini(&bytes);
    return ok;
}

static bool is_remote(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

/* The text of image_url.url or input_audio.data. NULL: there is none. */
static const json_t *payload_of(json_t *part, const char *type, const char *member)
{
    const json_t *value = json_object_get(part, type);
    if (json_is_string(value)) return value; /* as some clients write image_url */
    value = json_object_get(value, member);
    return json_is_string(value) ? value : NULL;
}

static bool read_part(serve_ask *ask, const weir_model_info *info, const char *place, json_t *part)
{
    serve_call *call = ask->call;
    const char *type = json_string_value(json_object_get(part, "type")), *turn = NULL;
    char field[96];
    size_t from = 0;
    if (type == NULL || strcmp(type, "text") == 0) return true; /* the library checks these */
    bool image = strcmp(type, "image_url") == 0;
    if (!image && strcmp(type, "input_audio") != 0)
        return serve_call_refuse(call, 400, place, "unsupported_value",
                                 "%s is of type \"%.40s\"; known: text, image_url, input_audio", place, type);
    if ((ask->where & SERVE_ASK_CHAT) == 0) /* of another dialect: turns.h */
        turn = json_string_value(json_object_get(json_object_get(part, type), "place"));
    if (turn != NULL) place = turn;
    if (!(image ? info->reads_images : info->reads_sounds))
        return serve_call_refuse(
            call, 400, place, "unsupported_value", "this model reads no %s%s", image ? "images" : "sounds",
            info->reads_images || info->reads_sounds ? ""
                                                     : "; the server may have a projector for it (--mmproj)");
    const char *member = image ? "url" : "data";
    const json_t *payload = payload_of(part, type, member);
    if (turn == NULL)
        snprintf(field, sizeof field, "%s.%s.%s", place, type, member);
    else
        snprintf(field, sizeof field, "%s", turn);
    if (payload == NULL) return serve_field_refuse(call, field, "a string");
    const char *text = json_string_value(payload);
    size_t n = json_string_length(payload);
    bool data = weir__base64_in_url(text, n, &from);
    if (image && !data && !is_remote(text))
        return serve_call_refuse(
            call, 400, field, "unsupported_value",
            "%s must be a data: URL with base64 (\"data:image/png;base64,…\"), or an http "
            "or https URL of a host that --media-host allows",
            field);
    if (image && !data ? !fetch_image(ask, info, field, text)
                       : !decode_base64(ask, info, image ? WEIR_MEDIA_IMAGE : WEIR_MEDIA_AUDIO, field,
                                        text + from, n - from))
        return false;
    json_object_del(part, type); /* it is not rendered, and takes memory */
    return true;
}

static size_t count_parts(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        n += json_array_size(json_object_get(json_array_get(messages, i), "content"));
    return n;
}

bool serve_ask_media(serve_ask *ask)
{
    weir_model_info info = {.size = sizeof info};
    size_t n_parts = count_parts(ask->messages);
    if (n_parts == 0) return true;
    weir_model_describe(ask->call->loaded->model, &info);
    ask->media = weir__mem_calloc(n_parts, sizeof *ask->media);
    if (ask->media == NULL) return serve_call_no_memory(ask->call);
    for (size_t i = 0; i < json_array_size(ask->messages); i++) {
        const json_t *content = json_object_get(json_array_get(ask->messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++) {
            serve_place place = serve_places_message(&ask->call->terms.messages, i);
            if ((ask->where & SERVE_ASK_CHAT) != 0)
                place = serve_place_at(serve_place_of(place.text, "content").text, k);
            if (!read_part(ask, &info, place.text, json_array_get(content, k))) return false;
        }
    }
    return true;
}
