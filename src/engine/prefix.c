/* prefix.c: which prefixes an engine keeps, how many tokens of a prompt they have, and why no more: for
 * programs and in words.
 * SPDX-License-Identifier: Apache-2.0
 *
 * These functions stand between the driver's slots and the cache. When a slot ends, its text goes to the
 * cache, with its lane or as a copy. A recurrent, hybrid or sliding-window memory cannot be cut at every
 * token (`exact`): there, copies are saved during the prefill, at checkpoints, and chunks end at these. A hit
 * is cut back to where no image or sound is divided. A miss is explained by the first token that differs: the
 * texts around it, and the message that it is in, found by the bytes that the tokens before it have in the
 * rendered prompt. weir__prefix_known is also called on callers' threads. */
#include "engine/prefix.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "engine/stream.h"

/* The fewest tokens of a prefix that is copied between lanes or loaded, which takes some milliseconds. */
#define COPY_LEAST 8
/* A checkpoint ends a chunk, and short chunks compute slowly. */
#define CHECKPOINT_LEAST 8
/* The distance of checkpoints within messages: an edit costs fewer tokens than that. It is doubled until
 * those of a prompt take at most 1 / SPACED_PART of cache_bytes. Models with windows have fewer, because
 * their sequences can mostly be cut without. */
#define SPACED_LEAST        96
#define SPACED_LEAST_WINDOW 256
#define SPACED_PART         2

/* The interval at which an engine looks for files that other processes have added to its cache_dir. */
#define WATCH_NS (WEIR__NS_PER_S / 4)

#define BEFORE    8   /* tokens shown before a divergence */
#define BYTES_MAX 512 /* of the text around it; less is shown */

/* ---- Life ---- */

static void wake_engine(void *user)
{
    weir__waker_wake(user);
}

/* Models with an original context may have other factors of RoPE for contexts beyond it: then the length of
 * the sequences counts. 0: it does not. */
static uint64_t factors_of(const weir__prefix *prefix)
{
    const weir_model *model = prefix->model;
    char key[128], text[32];
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", model->info.architecture);
    bool has = model->ops->model_meta(model->model, key, text, sizeof text) > 0;
    return has ? (uint64_t)prefix->info->n_ctx_seq : 0;
}

/* The contexts that can load a saved state. Layout, lanes and kernels do not count. model: its identity, or
 * its fingerprint. */
static uint64_t kind_of(const weir__prefix *prefix, uint64_t model)
{
    const char *version = weir_backend_version();
    const uint64_t numbers[] = {
        model,
        (uint64_t)prefix->params->type_k,
        (uint64_t)prefix->params->type_v,
        factors_of(prefix),
    };
    return weir__hash(weir__hash(prefix->model->attention, numbers, sizeof numbers), version,
                      strlen(version));
}

static weir__snapshot_limits limits_of(const weir__prefix *prefix, uint64_t model)
{
    return (weir__snapshot_limits){.kind = kind_of(prefix, model),
                                   .n_tokens = prefix->info->n_ctx_seq,
                                   .n_vocab = prefix->model->info.n_vocab};
}

weir__snapshot_limits weir__prefix_limits(const weir__prefix *prefix)
{
    return limits_of(prefix, prefix->model->info.fingerprint);
}

/* Opens cache_dir, if there is one and prefixes are kept at all. */
static weir_status open_archive(const weir__prefix *prefix, weir__waker *waker, weir__archive **archive,
                                weir_error *error)
{
    const weir__archive_params params = {
        .path = prefix->params->cache_dir,
        .n_bytes = prefix->params->cache_disk_bytes,
        .limits = limits_of(prefix, prefix->model->ops->model_identity(prefix->model->model)),
        .watch_ns = WATCH_NS,
        .wake = wake_engine,
        .user = waker,
    };
    if (params.path == NULL || *params.path == '\0' || !prefix->caching) return WEIR_OK;
    return weir__archive_open(&params, archive, error);
}

weir_status weir__prefix_open(weir__prefix *prefix, weir__memory *memory, weir__waker *waker,
                              weir_error *error)
{
    const weir_engine_params *params = prefix->params;
    bool lanes = prefix->info->layout == WEIR_LAYOUT_PER_SLOT;
    prefix->caching = params->cache_sequences != 0;
    prefix->exact = weir__prefix_is_exact(prefix->model);
    prefix->parts = prefix->exact && !prefix->model->info.is_recurrent;
    prefix->checkpoints = prefix->exact && params->cache_bytes > 0;
    prefix->least = lanes || prefix->exact ? COPY_LEAST : 1;
    weir__archive *archive = NULL;
    weir_status status = open_archive(prefix, waker, &archive, error);
    if (status != WEIR_OK) return status;
    int32_t beside = prefix->info->n_seq_max - params->n_slots;
    weir__cache_params cache = {
        .memory = memory,
        /* without others, idle slots' lanes serve */
        .n_sequences = !prefix->caching ? 0
                       : beside > 0     ? beside
                                        : params->n_slots,
        .n_bytes = params->cache_bytes,
        .least = prefix->least,
        .exact = prefix->exact,
        .parts = prefix->parts,
        .block = params->cache_block,
        .archive = archive,
    };
    return weir__cache_create(&cache, &prefix->cache, error);
}

bool weir__prefix_is_exact(const weir_model *model)
{
    return weir__prefix_is_whole(model) || model->info.n_swa > 0;
}

bool weir__prefix_is_whole(const weir_model *model)
{
    return model->info.is_recurrent || model->info.is_hybrid;
}

bool weir__prefix_serves(const weir__prefix *prefix, const weir__request *request)
{
    return prefix->caching && request->cache_prompt;
}

/* ---- Checkpoints: where memory cannot be cut ---- */

/* True if an image or a sound ends with cell n: its cells cost most of the prompt's. */
static bool ends_medium(const weir__history *history, int32_t n)
{
    for (int32_t i = 0; i < history->n_spans && history->spans[i].end <= n; i++)
        if (history->spans[i].end == n)
            return i + 1 == history->n_spans || history->spans[i + 1].medium != history->spans[i].medium;
    return false;
}

int32_t weir__prefix_spacing(const weir__prefix *prefix, int32_t n_prompt)
{
    if (!prefix->checkpoints) return INT32_MAX;
    uint64_t most = prefix->params->cache_bytes / SPACED_PART, size = weir__cache_largest(prefix->cache);
    int64_t n = weir__prefix_is_whole(prefix->model) ? SPACED_LEAST : SPACED_LEAST_WINDOW;
    while (n < n_prompt && size > 0 && (uint64_t)(n_prompt / n) > most / size) n *= 2;
    return n < n_prompt ? (int32_t)n : INT32_MAX;
}

static bool ends_message(const weir__prefix *prefix, const weir__history *history, int32_t n)
{
    int32_t last = history->tokens[n - 1];
    if (last < 0) return ends_medium(history, n);
    return n == history->n_prompt - 1 ||
           (n >= CHECKPOINT_LEAST && prefix->model->ops->is_eog(prefix->model->model, last));
}

static bool is_checkpoint(const weir__prefix *prefix, const weir__slot *slot, int32_t n)
{
    const weir__history *history = &slot->request->history;
    if (n < 1 || n >= history->n_prompt) return false;
    return ends_message(prefix, history, n) || (history->tokens[n - 1] >= 0 && n % slot->spacing == 0);
}

int32_t weir__prefix_chunk(const weir__prefix *prefix, const weir__slot *slot, int32_t n)
{
    if (!prefix->checkpoints || !weir__prefix_serves(prefix, slot->request)) return n;
    for (int32_t i = 1; i < n; i++)
        if (is_checkpoint(prefix, slot, slot->n_past + i)) return i;
    return n;
}

int32_t weir__prefix_last_checkpoint(const weir__prefix *prefix, const weir__slot *leader, int32_t n)
{
    while (n > 0 && !is_checkpoint(prefix, leader, n)) n--;
    return n;
}

/* ---- Hits ---- */

void weir__prefix_cut(const weir__prefix *prefix, const weir__history *history, weir__cache_hit *hit)
{
    if (history->n_spans == 0) return;
    int32_t n = weir__history_shared(history, hit->n);
    if (n < hit->n && (prefix->exact || n < prefix->least)) {
        n = 0;
        hit->entry = hit->live = hit->part = NULL;
    }
    hit->n = n;
    hit->pos = weir__history_position(history, n);
    if (hit->leader == NULL) return;
    hit->n_leader = weir__history_shared(history, hit->n_leader);
    if (hit->n_leader <= n) {
        hit->leader = NULL;
        hit->n_leader = 0;
    }
}

/* ---- Going on ---- */

void weir__prefix_advance(const weir__prefix *prefix, weir__slot *slot)
{
    const weir__request *request = slot->request;
    if (!weir__prefix_serves(prefix, request)) return;
    weir__cache_advance(prefix->cache, &slot->live, slot->n_past, 0);
    if (!prefix->exact || !is_checkpoint(prefix, slot, slot->n_past)) return;
    const weir__history *history = &request->history;
    weir__prefix_key key = weir__history_key(history);
    bool between = !ends_message(prefix, history, slot->n_past); /* of these there are too many for files */
    weir__cache_save(prefix->cache, &key, history->tokens, slot->n_past, slot->lane, request->cache_keep_ms,
                     between);
}

/* Keeps the slot's text; first cuts off the cells that a failed pass left. */
void weir__prefix_keep(const weir__prefix *prefix, weir__lanes *lanes, weir__slot *slot)
{
    const weir__request *request = slot->request;
    weir__prefix_key key = weir__history_key(&request->history);
    weir__cache_end(prefix->cache, &slot->live);
    int32_t n = weir__history_cut(&request->history, slot->n_past);
    if (slot->lane < 0 || !weir__prefix_serves(prefix, request) || slot->reason == WEIR_REASON_ERROR ||
        n < prefix->least || (prefix->exact && n < slot->n_past) ||
        !weir__memory_cut(lanes->memory, slot->lane, n, weir__history_position(&request->history, n)))
        return;
    if (weir__cache_keep(prefix->cache, &key, request->history.tokens, n, slot->lane, request->cache_keep_ms))
        weir__lanes_hand_over(lanes, slot);
    else if (prefix->exact)
        weir__cache_save(prefix->cache, &key, request->history.tokens, n, slot->lane, request->cache_keep_ms,
                         false);
}

/* True if a fork's source generates in a slot, as seen by another thread. A suspended source is in the
 * queue. */
static bool source_generates(const weir__prefix *prefix, weir__shared *shared, const weir__request *request)
{
    return request->source != NULL && !prefix->exact && weir__stream_flows(request->source) &&
           !weir__shared_has(shared, request->source);
}

int32_t weir__prefix_known(const weir__prefix *prefix, weir__shared *shared, const weir__request *request)
{
    weir__cache_hit hit;
    weir__prefix_key key = weir__history_key(&request->history);
    if (request->history.score != NULL) return 0;
    if (request->history.n_prompt > prefix->least && source_generates(prefix, shared, request))
        return request->history.n_prompt - 1;
    if (!weir__prefix_serves(prefix, request)) return 0;
    weir__cache_look(prefix->cache, &key, request->history.tokens, request->history.n_prompt, true, NULL,
                     UINT64_MAX, &hit);
    weir__prefix_cut(prefix, &request->history, &hit);
    return hit.n_leader > hit.n && !prefix->exact ? hit.n_leader : hit.n;
}

/* ---- Misses: texts ---- */

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

/* ---- Misses: messages ---- */

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

/* ---- Misses: notes ---- */

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

/* ---- Misses: in words ---- */

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
