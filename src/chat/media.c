/* media.c: the images and sounds of a conversation. SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MARKER_TYPE "media_marker" /* as llama.cpp's common calls it */
#define MARKER_MAX                                                                                           \
    (WEIR__CHAT_PLACEHOLDER + 24) /* bytes: the stem and the medium's number between two letters */

/* ---- Parts of messages ---- */

/* Goes over the parts of all messages. */
typedef struct parts {
    const json_t *messages;
    size_t message, next;
    json_t *content; /* of the message */
    size_t part;
    char field[64]; /* "messages[0].content[0]" */
} parts;

/* NULL: that was the last one. */
static json_t *next_part(parts *p)
{
    for (; p->message < json_array_size(p->messages); p->message++, p->next = 0) {
        p->content = json_object_get(json_array_get(p->messages, p->message), "content");
        if (p->next >= json_array_size(p->content)) continue;
        p->part = p->next++;
        snprintf(p->field, sizeof p->field, "messages[%zu].content[%zu]", p->message, p->part);
        return json_array_get(p->content, p->part);
    }
    return NULL;
}

static bool is_marker(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type != NULL && strcmp(type, MARKER_TYPE) == 0;
}

/* Checks that media[i] exists and is of the part's kind. */
static weir_status check_part(const weir_chat_params *params, size_t i, weir__part_kind kind,
                              const char *field, weir_error *error)
{
    weir_media_info info = {.size = sizeof info};
    char entry[32];
    if (i >= params->n_media)
        return weir__invalid(error, WEIR_ERROR_MISSING, field,
                             "`%s` is an image or a sound, of which %zu are given: each such part needs one",
                             field, params->n_media);
    snprintf(entry, sizeof entry, "media[%zu]", i);
    if (weir_media_describe(params->media[i], &info) != WEIR_OK) return weir__error_null(error, entry);
    bool image = info.kind == WEIR_MEDIA_IMAGE;
    if (kind == WEIR__PART_MEDIA || kind == (image ? WEIR__PART_IMAGE : WEIR__PART_SOUND)) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_FORM, field, "`%s` must be %s, but `%s` is %s", field,
                         image ? "a sound" : "an image", entry, image ? "an image" : "a sound");
}

/* ---- Markers ---- */

static void write_marker(const weir__chat_markers *markers, size_t i, char marker[MARKER_MAX])
{
    snprintf(marker, MARKER_MAX, "%sm%zue", markers->stem, i);
}

static bool choose_stem(const json_t *messages, weir__chat_markers *markers)
{
    char *text = weir__json_dump(messages);
    bool chosen = text != NULL && weir__chat_placeholder_choose(markers->stem, text, strlen(text));
    weir__mem_free(text);
    return chosen;
}

weir_status weir__chat_media_mark(const weir_chat_params *params, json_t *messages,
                                  weir__chat_markers *markers, weir_error *error)
{
    parts p = {.messages = messages};
    size_t n = 0;
    if (params->n_media > 0 && !choose_stem(messages, markers)) return weir__chat_no_memory(error);
    for (json_t *part; (part = next_part(&p)) != NULL;) {
        weir__part_kind kind = weir__chat_part_kind(part);
        char marker[MARKER_MAX];
        if (kind == WEIR__PART_TEXT) continue;
        weir_status status = check_part(params, n, kind, p.field, error);
        if (status != WEIR_OK) return status;
        write_marker(markers, n++, marker);
        json_t *marked = json_pack("{s:s,s:s}", "type", MARKER_TYPE, "text", marker);
        if (json_array_set_new(p.content, p.part, marked) != 0) return weir__chat_no_memory(error);
    }
    if (n == params->n_media) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_CONFLICT, "n_media",
                         "%zu images and sounds are given, but the messages have %zu parts for them",
                         params->n_media, n);
}

/* ---- The prompt ---- */

/* The prompt without markers, while it is written. */
typedef struct writing {
    weir_chat *chat;
    const weir_chat_params *params;
    const weir__chat_markers *markers;
    char *text; /* owned */
    size_t n;
    size_t span;    /* the first span with an end that is not moved yet */
    bool *is_found; /* [n_media] */
} writing;

/* Moves the ends of spans up to byte `to` of the prompt, whose bytes from `from` on are written. */
static void move_spans(writing *w, size_t from, size_t to)
{
    weir__spans *spans = &w->chat->spans;
    for (; w->span < 2 * spans->n; w->span++) {
        weir__span *span = &spans->at[w->span / 2];
        size_t *end = w->span % 2 == 0 ? &span->from : &span->to;
        if (*end > to) return;
        *end = w->n + (*end > from ? *end - from : 0);
    }
}

/* Copies the prompt's bytes from..to. */
static void copy_prompt(writing *w, size_t from, size_t to)
{
    move_spans(w, from, to);
    memcpy(w->text + w->n, w->chat->prompt + from, to - from);
    w->n += to - from;
}

/* The number of the marker at the prompt's byte `at`, which begins with the stem; *n: its bytes. SIZE_MAX: it
 * is none of these markers. */
static size_t read_marker(const writing *w, size_t at, size_t *n)
{
    const char *text = w->chat->prompt + at, *digits = text + WEIR__CHAT_PLACEHOLDER + 1;
    char marker[MARKER_MAX];
    size_t i = 0;
    if (text[WEIR__CHAT_PLACEHOLDER] != 'm') return SIZE_MAX;
    for (const char *d = digits; *d >= '0' && *d <= '9' && d < digits + 9; d++)
        i = i * 10 + (size_t)(*d - '0');
    write_marker(w->markers, i, marker);
    *n = strlen(marker);
    return i < w->params->n_media && strncmp(text, marker, *n) == 0 ? i : SIZE_MAX;
}

/* The error that the template does this to medium i; SIZE_MAX: to one of them. */
static weir_status refuse_part(const json_t *messages, size_t i, const char *does, weir_error *error)
{
    parts p = {.messages = messages};
    size_t n = 0;
    for (json_t *part; (part = next_part(&p)) != NULL;)
        if (is_marker(part) && n++ == i)
            return weir__error_set(error, WEIR_TEMPLATE, p.field,
                                   "the chat template %s %s, which is an image or a sound", does, p.field);
    return weir__error_set(error, WEIR_TEMPLATE, "messages", "the chat template %s an image or a sound",
                           does);
}

static weir_status take_markers(writing *w, const json_t *messages, weir_error *error)
{
    weir_chat *chat = w->chat;
    size_t at = 0;
    for (const char *marker; (marker = memmem(chat->prompt + at, chat->prompt_length - at, w->markers->stem,
                                              WEIR__CHAT_PLACEHOLDER)) != NULL;) {
        size_t from = (size_t)(marker - chat->prompt), n, i = read_marker(w, from, &n);
        if (i == SIZE_MAX) return refuse_part(messages, SIZE_MAX, "changes", error);
        if (w->is_found[i]) return refuse_part(messages, i, "repeats", error);
        w->is_found[i] = true;
        copy_prompt(w, at, from);
        move_spans(w, from + n, from + n);
        chat->media[chat->n_media++] =
            (weir_media_use){.media = weir_media_hold(w->params->media[i]), .at = w->n};
        at = from + n;
    }
    copy_prompt(w, at, chat->prompt_length);
    for (size_t i = 0; i < w->params->n_media; i++)
        if (!w->is_found[i]) return refuse_part(messages, i, "leaves out", error);
    return WEIR_OK;
}

/* A marker within a span was a part of it, so it may be empty now. */
static void drop_empty_spans(weir__spans *spans)
{
    size_t n = 0;
    for (size_t i = 0; i < spans->n; i++)
        if (spans->at[i].from < spans->at[i].to) spans->at[n++] = spans->at[i];
    spans->n = n;
}

weir_status weir__chat_media_find(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                                  const weir__chat_markers *markers, weir_error *error)
{
    writing w = {.chat = chat, .params = params, .markers = markers};
    if (params->n_media == 0) return WEIR_OK;
    w.text = weir__mem_calloc(chat->prompt_length + 1, 1);
    w.is_found = weir__mem_calloc(params->n_media, sizeof *w.is_found);
    chat->media = weir__mem_calloc(params->n_media, sizeof *chat->media);
    weir_status status = w.text == NULL || w.is_found == NULL || chat->media == NULL
                             ? weir__chat_no_memory(error)
                             : take_markers(&w, messages, error);
    weir__mem_free(w.is_found);
    if (status != WEIR_OK) {
        weir__mem_free(w.text);
        return status;
    }
    drop_empty_spans(&chat->spans);
    weir__mem_free(chat->own_prompt);
    chat->prompt = chat->own_prompt = w.text;
    chat->prompt_length = w.n;
    return WEIR_OK;
}
