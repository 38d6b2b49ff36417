/* ask_media.c: the images and sounds in the messages of a request, also by URL, from hosts of --media-host. A
 * request whose body may name a URL goes to threads of its own, where waiting for hosts keeps no other
 * request back, and all its URLs share one time limit. Each redirect is checked like the first URL, and each
 * address before it is connected to. A part's data is decoded, counted among the media of all calls, and
 * removed from the message.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ask.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "error.h"
#include "field.h"
#include "hub/transfer/transfer.h"
#include "server/models/loaded.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/settings/sources.h"

#define URLS_MAX      16    /* of a request */
#define REDIRECTS_MAX 3     /* of a URL */
#define FETCH_MS      10000 /* for all URLs of a request, and the wait for a thread */
#define LEFT_MS       5000  /* of these, when the thread begins; else too many requests wait */
#define CONNECT_MS    5000
#define QUEUE_MAX     64       /* calls that wait for a thread */
#define PIXELS_MAX    24000000 /* of an image, 12 bytes of each while it is decoded */

static bool refuse_for_others(serve_call *call)
{
    return serve_call_refuse(call, 503, NULL, "too_many_media",
                             "the images and sounds of other requests take the memory for them");
}

/* ---- Threads ---- */

static const char *skip_space_back(const char *at, const char *begin)
{
    while (at > begin && strchr(" \t\r\n", at[-1]) != NULL) at--;
    return at;
}

/* True if the string at this quotation mark is the value of a member whose name ends with "url". */
static bool is_of_url(const char *quote, const char *begin)
{
    const char *at = skip_space_back(quote, begin);
    if (at == begin || *--at != ':') return false;
    at = skip_space_back(at, begin);
    return at - begin > 4 && memcmp(at - 4, "url\"", 4) == 0;
}

/* True if a URL of the JSON begins with "http". One with escapes in these letters or in the member's name is
 * refused later. */
static bool has_url(const weir__text *body)
{
    const char *at = body->bytes, *end = at + body->n;
    while (at != NULL && (at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        if (end - at > 4 && strncasecmp(at + 1, "http", 4) == 0 && is_of_url(at, body->bytes)) return true;
        at++;
    }
    return false;
}

serve_workers *serve_ask_media_workers(serve_call *call)
{
    serve_server *server = call->server;
    if (server->fetchers == NULL || !has_url(&call->body)) return server->workers;
    if (!serve_workers_have_room(server->fetchers, call, QUEUE_MAX)) return server->workers;
    call->fetch_by_ns = weir__clock_deadline_ns(FETCH_MS);
    return server->fetchers;
}

/* Checks that the request may fetch, at its first URL. */
static bool may_fetch(serve_call *call, const char *field)
{
    if (call->server->fetchers == NULL)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s must be a data: URL with base64 (\"data:image/png;base64,…\"); this "
                                 "server fetches nothing",
                                 field);
    if (call->fetch_by_ns - weir__clock_now_ns() > (int64_t)LEFT_MS * 1000000) return true;
    if (call->fetch_by_ns == 0 && !has_url(&call->body))
        return serve_field_refuse(call, field, "a URL whose first letters are written without escapes");
    return serve_call_refuse(call, 503, field, "too_many_media",
                             "too many requests wait for images from other hosts");
}

/* ---- One URL ---- */

typedef struct fetch {
    serve_call *call;
    serve_fetches *all;
    weir__text *bytes;
    long status;
    bool too_large, too_many;
    weir__transfer_end end;
    char detail[256];
    char next[2048]; /* where a redirect points; "" = it is none */
} fetch;

static bool may_connect(const struct sockaddr *address, void *user)
{
    const serve_params *params = &((fetch *)user)->call->server->params;
    return serve_sources_reach(params->media_hosts, params->n_media_hosts, address);
}

static bool on_bytes(const weir__transfer_head *head, const char *bytes, size_t n, void *user)
{
    fetch *f = user;
    size_t most = (size_t)f->call->body_most;
    bool wanted = head->status == 200;
    f->status = head->status;
    f->too_large = n > most - f->all->n_bytes || head->length > (int64_t)most;
    f->too_many = wanted && !f->too_large && !serve_call_hold_media(f->call, n);
    if (f->too_large || f->too_many) return false;
    f->all->n_bytes += n;
    if (wanted) weir__text_add(f->bytes, bytes, n);
    return !f->bytes->failed;
}

static void on_end(const weir__transfer_result *result, void *user)
{
    fetch *f = user;
    f->end = result->end;
    if (result->head.status != 0) f->status = result->head.status;
    snprintf(f->detail, sizeof f->detail, "%s", result->detail);
    if (result->next != NULL && snprintf(f->next, sizeof f->next, "%s", result->next) >= (int)sizeof f->next)
        f->next[0] = '\0';
}

static bool is_redirect(const fetch *f)
{
    return f->next[0] != '\0' && f->status >= 300 && f->status < 400;
}

static bool refuse_source(const fetch *f, const char *field, const weir__transfer_url *to, bool redirected)
{
    bool six = strchr(to->host, ':') != NULL;
    return serve_call_refuse(
        f->call, 400, field, "unsupported_value",
        "%s %s %s%.200s%s:%u; this server fetches nothing from there (--media-host names "
        "the hosts)",
        field, redirected ? "redirects to" : "is at", six ? "[" : "", to->host, six ? "]" : "", to->port);
}

static bool refuse_status(const fetch *f, const char *field)
{
    return serve_call_refuse(f->call, 400, field, "invalid_value",
                             "%s cannot be fetched: its host answered with status %ld", field, f->status);
}

/* False: the call has its answer. */
static bool check_fetched(const fetch *f, const char *field)
{
    serve_call *call = f->call;
    if (f->bytes->failed || f->end == WEIR__TRANSFER_NO_MEMORY) return serve_call_no_memory(call);
    if (f->too_many) return refuse_for_others(call);
    if (f->too_large)
        return serve_call_refuse(call, 413, field, "media_too_large",
                                 "the files that this request names by URL have more than %lld bytes "
                                 "(--max-body)",
                                 (long long)call->body_most);
    if (f->end == WEIR__TRANSFER_BARRED)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s is at an address that is not public, or this machine's, and that "
                                 "--media-host does not name",
                                 field);
    if (f->status != 0 && f->status != 200) return refuse_status(f, field);
    if (f->end == WEIR__TRANSFER_LATE)
        return serve_call_refuse(
            call, 400, field, "invalid_value",
            "%s cannot be fetched: its host took too long; all URLs of a request have %d s", field,
            FETCH_MS / 1000);
    return f->end == WEIR__TRANSFER_WHOLE ||
           serve_call_refuse(call, 400, field, "invalid_value", "%s cannot be fetched: %s", field, f->detail);
}

/* Gets f->next, once. False: the call has its answer. */
static bool get_url(fetch *f, const char *field, weir__transfers *transfers)
{
    int64_t rest_ms = (f->call->fetch_by_ns - weir__clock_now_ns()) / 1000000;
    char url[sizeof f->next];
    snprintf(url, sizeof url, "%s", f->next);
    const weir__transfer_request request = {
        .url = url,
        .proxy = "",
        .connect_ms = rest_ms < CONNECT_MS ? (long)(rest_ms > 0 ? rest_ms : 1) : CONNECT_MS,
        .total_ms = rest_ms > 0 ? (long)rest_ms : 1,
        .may_connect = may_connect,
        .on_bytes = on_bytes,
        .on_end = on_end,
        .user = f,
    };
    weir_error error = {.code = WEIR_ABORTED};
    f->next[0] = '\0';
    f->status = 0;
    weir_status status = weir__transfers_run(transfers, &request, serve_workers_go_on);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(f->call);
    if (status != WEIR_OK) return serve_call_passes(f->call, status, &error);
    return is_redirect(f) || check_fetched(f, field);
}

/* Follows redirects to hosts of the list. False: the call has its answer. */
static bool follow_redirects(fetch *f, const char *field, weir__transfers *transfers)
{
    const serve_params *params = &f->call->server->params;
    for (int i = 0; f->next[0] != '\0'; i++) {
        weir__transfer_url to;
        if (!weir__transfer_read_url(f->next, &to))
            return serve_field_refuse(f->call, field, "an http or https URL without a user and a password");
        if (!serve_sources_have(params->media_hosts, params->n_media_hosts, to.host, to.port,
                                to.is_default_port))
            return refuse_source(f, field, &to, i > 0);
        if (i > REDIRECTS_MAX) return refuse_status(f, field);
        if (!get_url(f, field, transfers)) return false;
    }
    return true;
}

/* Fetches the image at `url`, a field of the request, into *bytes, which the caller frees in any case and
 * gives back with serve_call_drop_media. False: the call has its answer. */
static bool fetch_url(serve_call *call, const char *field, const char *url, serve_fetches *all,
                      weir__text *bytes)
{
    fetch f = {.call = call, .all = all, .bytes = bytes};
    if (all->n++ == 0 && !may_fetch(call, field)) return false;
    if (all->n > URLS_MAX)
        return serve_call_refuse(call, 400, field, "unsupported_value",
                                 "%s is one more than the %d URLs that a request may have", field, URLS_MAX);
    if (snprintf(f.next, sizeof f.next, "%s", url) >= (int)sizeof f.next)
        return serve_field_refuse(call, field, "a URL of at most 2,047 bytes");
    weir__transfers *transfers = weir__transfers_create(1);
    if (transfers == NULL) return serve_call_no_memory(call);
    bool ok = follow_redirects(&f, field, transfers);
    weir__transfers_destroy(transfers);
    return ok;
}

/* ---- Decoding ---- */

/* Counts decoded media among those of all calls, until the call's end. */
static bool reserve_media(const serve_ask *ask, size_t n)
{
    serve_call *call = ask->call;
    size_t most = (size_t)call->server->params.media_bytes, alone = serve_share_alone(most);
    if (serve_call_hold_media(call, n)) return true;
    return n > alone || call->media_bytes > alone - n
               ? serve_call_refuse(call, 413, serve_ask_conversation(ask), "media_too_large",
                                   "decoded, the images and sounds of this request take more than the %zu "
                                   "MiB that one caller may have (three quarters of --media-memory)",
                                   alone >> 20)
               : refuse_for_others(call);
}

static bool refuse_medium(serve_call *call, const char *field, weir_error *error)
{
    if (error->code == WEIR_NO_MEMORY || error->code == WEIR_ABORTED)
        return serve_call_passes(call, error->code, error);
    return serve_call_refuse(call, 400, field,
                             error->code == WEIR_UNSUPPORTED ? "unsupported_value" : "invalid_value",
                             "%s cannot be read: %s", field, weir__error_words(error).text);
}

static bool decode_medium(serve_ask *ask, const weir_model_info *info, weir_media_kind kind,
                          const char *field, const void *bytes, size_t n_bytes)
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
    return reserve_media(ask, made.n_bytes);
}

static bool decode_base64(serve_ask *ask, const weir_model_info *info, weir_media_kind kind,
                          const char *field, const char *text, size_t n)
{
    unsigned char *bytes = NULL;
    size_t n_bytes;
    weir_status status = weir__base64_decode(text, n, &bytes, &n_bytes);
    if (status == WEIR_INVALID) return serve_field_refuse(ask->call, field, "base64");
    if (status != WEIR_OK) return serve_call_no_memory(ask->call);
    bool ok = decode_medium(ask, info, kind, field, bytes, n_bytes);
    weir__mem_free(bytes);
    return ok;
}

static bool fetch_image(serve_ask *ask, const weir_model_info *info, const char *field, const char *url)
{
    weir__text bytes = {0};
    bool ok = fetch_url(ask->call, field, url, &ask->fetches, &bytes) &&
              decode_medium(ask, info, WEIR_MEDIA_IMAGE, field, bytes.bytes, bytes.n);
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
