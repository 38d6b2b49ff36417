/* miss.c: why a prompt missed the cache, for programs and in words.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/miss.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/chat.h"

#define BEFORE    8   /* tokens shown before the divergence */
#define BYTES_MAX 512 /* of the text around it; less is shown */

/* ---- Texts ---- */

/* The text of up to BEFORE tokens before position `at` and of those after it. */
static size_t text_around(const weir_model *model, const int32_t *before, int32_t at, const int32_t *tokens,
                          int32_t n, char bytes[BYTES_MAX])
{
    int32_t used = 0, first = at > BEFORE ? at - BEFORE : 0;
    for (int32_t i = first; i < at + n; i++) {
        int32_t token = i < at ? before[i] : tokens[i - at];
        if (token < 0) continue; /* a cell of an image */
        int32_t length = model->ops->piece(model->model, token, true, bytes + used, BYTES_MAX - used);
        if (length < 0) break;
        used += length;
    }
    return (size_t)used;
}

/* ---- Messages ---- */

/* The byte of the chat's prompt where token n begins; -1: the tokens' texts do not make up the prompt. A BOS
 * token and a space that the vocabulary adds are not part of the prompt. */
static int64_t byte_of(const weir__history *history, const weir_model *model, int32_t n)
{
    size_t length, at = 0;
    char piece[BYTES_MAX];
    const char *prompt = weir_chat_prompt(history->chat, &length);
    for (int32_t i = 0; i < n; i++) {
        if (history->tokens[i] < 0) return -1; /* the prompt's text lacks cells of images */
        int32_t size = model->ops->piece(model->model, history->tokens[i], true, piece, BYTES_MAX);
        const char *text = piece;
        if (size < 0) return -1;
        if (at == 0 && i == 0 && history->tokens[0] == model->info.token_bos &&
            ((size_t)size > length || memcmp(prompt, piece, (size_t)size) != 0))
            continue;
        if (at == 0 && size > 0 && *text == ' ' && (length == 0 || *prompt != ' ')) {
            text++;
            size--;
        }
        if ((size_t)size > length - at || memcmp(prompt + at, text, (size_t)size) != 0) return -1;
        at += (size_t)size;
    }
    return (int64_t)at;
}

/* The beginning of the line from its first byte, or the message's, to `at`. */
static void copy_line(const char *prompt, size_t from, size_t at, weir_miss_info *info)
{
    size_t begin = at;
    while (begin > from && prompt[begin - 1] != '\n') begin--;
    while (at > begin && ((unsigned char)prompt[at] & 0xC0) == 0x80) at--; /* a whole character */
    weir__utf8_copy(info->line, sizeof info->line, prompt + begin, at - begin);
}

/* n_more: bytes that the different tokens still have in common. */
static void find_message(const weir__history *history, const weir_model *model, size_t n_more,
                         weir_miss_info *info)
{
    size_t length;
    const weir_chat *chat = history->chat;
    int64_t at = chat != NULL ? byte_of(history, model, info->n_matched) : -1;
    if (at < 0) return;
    int32_t message = weir__chat_mark_at(chat->marks, chat->n_messages, (size_t)at, &info->in_message);
    if (message < 0 || (size_t)message >= chat->n_messages) return;
    info->message = message;
    memcpy(info->role, chat->marks[message].role, sizeof info->role);
    const char *prompt = weir_chat_prompt(chat, &length);
    size_t end = (size_t)at + n_more;
    if (info->in_message)
        copy_line(prompt, chat->marks[message].last_from, end < length ? end : length, info);
}

static size_t common_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

/* ---- Notes ---- */

void weir__miss_forget(weir_miss_info *info)
{
    info->prompt[0] = info->cached[0] = info->role[0] = info->line[0] = '\0';
    info->message = -1;
    info->in_message = false;
}

void weir__miss_withhold(weir_miss_info *info, int32_t n_cached)
{
    bool more = info->n_matched > n_cached;
    info->cached[0] = info->line[0] = '\0';
    if (more) info->n_matched = n_cached;
    if (info->miss != WEIR_MISS_EVICTED && info->miss != WEIR_MISS_UNCUTTABLE &&
        (info->miss != WEIR_MISS_DIVERGED || !more))
        return;
    info->miss = WEIR_MISS_COLD;
    weir__miss_forget(info);
}

void weir__miss_note(const weir_model *model, const weir__history *history, const weir__cache_hit *hit,
                     weir_miss_info *info)
{
    char prompt[BYTES_MAX], cached[BYTES_MAX];
    info->miss = hit->miss;
    info->n_matched = hit->n_matched;
    weir__miss_forget(info);
    if (hit->n_other == 0) return;
    const int32_t *tokens = history->tokens;
    int32_t at = hit->n_matched, left = history->n_prompt - at;
    if (left > WEIR__CACHE_AROUND) left = WEIR__CACHE_AROUND;
    size_t n_prompt = text_around(model, tokens, at, tokens + at, left, prompt);
    size_t n_cached = text_around(model, tokens, at, hit->other, hit->n_other, cached);
    weir__utf8_copy(info->prompt, sizeof info->prompt, prompt, n_prompt);
    weir__utf8_copy(info->cached, sizeof info->cached, cached, n_cached);
    size_t n_same = common_bytes(prompt, n_prompt, cached, n_cached);
    size_t n_before = text_around(model, tokens, at, tokens, 0, cached); /* whose bytes are not needed now */
    find_message(history, model, n_same > n_before ? n_same - n_before : 0, info);
}

/* ---- In words ---- */

typedef struct line {
    char *text;
    size_t n, capacity;
} line;

__attribute__((format(printf, 2, 3))) static void add_words(line *l, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(l->text + l->n, l->capacity - l->n, format, list);
    va_end(list);
    l->n = n < 0 || (size_t)n >= l->capacity - l->n ? l->capacity - 1 : l->n + (size_t)n;
}

/* Adds a text in quotes, with spaces for control characters. */
static void add_quoted(line *l, const char *text)
{
    char shown[sizeof((weir_miss_info *)NULL)->prompt];
    snprintf(shown, sizeof shown, "%s", text);
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
    add_words(l, "\"%s\"", shown);
}

static void add_diverged(line *l, const weir_miss_info *info)
{
    add_words(l, "it differs from token %d on", info->n_matched);
    if (info->message >= 0)
        add_words(l, ", %s message %d%s%s%s", info->in_message ? "in" : "before", info->message,
                  info->role[0] != '\0' ? " (" : "", info->role, info->role[0] != '\0' ? ")" : "");
    add_words(l, "; now ");
    add_quoted(l, info->prompt);
    if (info->cached[0] != '\0') {
        add_words(l, ", cached ");
        add_quoted(l, info->cached);
    } else
        add_words(l, " (requests with a cache_salt see the cached text, too)");
}

size_t weir_miss_text(const weir_miss_info *given, char *text, size_t capacity)
{
    weir_miss_info info = {.message = -1};
    line l = {text, 0, capacity};
    if (given == NULL || text == NULL || capacity == 0 ||
        given->size < offsetof(weir_miss_info, message)) /* the library fills all of it or nothing */
        return 0;
    memcpy(&info, given, given->size < sizeof info ? given->size : sizeof info);
    text[0] = '\0';
    switch (info.miss) {
    case WEIR_MISS_NONE: break;
    case WEIR_MISS_COLD:
        if (info.n_matched > 0)
            add_words(&l, "only the first %d token%s cached: the rest is new", info.n_matched,
                      info.n_matched == 1 ? " was" : "s were");
        else
            add_words(&l, "no cached text has the same beginning");
        break;
    case WEIR_MISS_EVICTED:
        add_words(&l, "more of it was cached and then evicted: give the cache more memory or KV cells");
        break;
    case WEIR_MISS_SALT: add_words(&l, "more of it is cached, but without a salt"); break;
    case WEIR_MISS_DIVERGED: add_diverged(&l, &info); break;
    case WEIR_MISS_UNCUTTABLE:
        add_words(&l, "%d token%s known, but this model's memory cannot be cut at every token",
                  info.n_matched, info.n_matched == 1 ? " is" : "s are");
        break;
    case WEIR_MISS_OFF: add_words(&l, "the cache is off for the request or the engine"); break;
    }
    l.n = weir__utf8_cut(text, strlen(text));
    text[l.n] = '\0';
    return l.n;
}
