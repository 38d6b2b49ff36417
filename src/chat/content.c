/* content.c: which text of messages in a rendered prompt must remain text (ADR 0064).
 * SPDX-License-Identifier: Apache-2.0
 *
 * The messages are rendered again with marks in the contents that hold a part of a control text: around the
 * content, or, if the template then writes another prompt, beside each character where a control text may
 * begin. Without the marks the result must be the prompt; where they stand, the contents are. If no way
 * works, the contents are not known. The prompt is then cut at the control texts that the template wrote and
 * at media, and each part is tokenized by itself: those that hold such contents without control tokens. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/content.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/budget.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "model/model.h"

/* ---- Placeholders ---- */

#define TRIES 8

bool weir__chat_placeholder_choose(char word[WEIR__CHAT_PLACEHOLDER + 1], const char *text, size_t n)
{
    for (uint64_t i = 0; i < TRIES; i++) {
        const uint64_t from[] = {(uint64_t)weir__clock_now_ns(), (uint64_t)(uintptr_t)word, i};
        uint64_t number = weir__hash(i, from, sizeof from) % UINT64_C(10000000000000000);
        snprintf(word, WEIR__CHAT_PLACEHOLDER + 1, "q%016llu", (unsigned long long)number);
        if (memmem(text, n, word, WEIR__CHAT_PLACEHOLDER) == NULL) return true;
    }
    return false;
}

/* A mark is a stem and a letter. */
#define MARK_OPEN  'a'
#define MARK_CLOSE 'z'

/* The places of the marks of a content. */
typedef enum way {
    AROUND, /* at both ends, inside surrounding white space, which templates strip */
    INSIDE, /* only beside possible parts of a control text: templates may look at the ends of a content */
} way;

typedef struct finding {
    const weir__controls *controls;
    weir_special_content special;
    const char *prompt; /* [length] */
    size_t length;
    char stem[WEIR__CHAT_PLACEHOLDER + 1];
    way way;
    bool deletes;        /* the template may remove text from contents, and the rest may be a control text */
    weir__budget budget; /* without limits: asks for the interrupt only */
    bool no_memory;
} finding;

void weir__spans_fini(weir__spans *spans)
{
    weir__mem_free(spans->at);
    *spans = (weir__spans){0};
}

/* ---- Contents ---- */

/* True if special tokens are parsed in messages of this role. An unknown role counts as a user. */
static bool is_read(weir_special_content special, const char *role)
{
    static const char *const trusted[] = {"system", "developer", "assistant"};
    if (special != WEIR_SPECIAL_TRUSTED || role == NULL) return special == WEIR_SPECIAL_ALL;
    return weir__words_have(trusted, sizeof trusted / sizeof *trusted, role);
}

/* A content without surrounding white space. */
static weir__span core_of(const char *text, size_t n)
{
    weir__span core = {.to = n};
    while (core.to > 0 && weir__ascii_is_space(text[core.to - 1])) core.to--;
    while (core.from < core.to && weir__ascii_is_space(text[core.from])) core.from++;
    return core;
}

/* True if a control text in the prompt may begin with the text's first character. */
static bool may_begin(const finding *f, const char *text, size_t n)
{
    return f->deletes ? f->controls->first[(unsigned char)*text] : weir__controls_begin(f->controls, text, n);
}

static bool text_matters(finding *f, const char *text, size_t n)
{
    if (weir__controls_open(f->controls, text, n) || weir__controls_close(f->controls, text, n)) return true;
    for (size_t i = 0; i < n && weir__budget_step(&f->budget, 1); i++)
        if (may_begin(f, text + i, n - i)) return true;
    return false;
}

/* ---- Marks ---- */

static bool add_mark(const finding *f, weir__text *out, char kind)
{
    return weir__text_add(out, f->stem, WEIR__CHAT_PLACEHOLDER) && weir__text_add(out, &kind, 1);
}

/* The kind of a mark behind this byte, which the template may have removed. */
static char byte_behind(char byte)
{
    return (char)('A' + ((unsigned char)byte & 15));
}

/* Adds the core with a mark behind each character that may begin a control text, and one before its last
 * character if only that may. So the ends of the content stay as templates expect them. */
static bool mark_inside(finding *f, weir__text *out, const char *core, size_t n)
{
    const bool open = weir__controls_open(f->controls, core, n),
               close = weir__controls_close(f->controls, core, n);
    bool ok = true;
    for (size_t i = 0, next; ok && i < n && weir__budget_step(&f->budget, 1); i = next) {
        for (next = i + 1; next < n && ((unsigned char)core[next] & 0xC0) == 0x80;) next++;
        if ((i == 0 && close) || may_begin(f, core + i, n - i))
            ok = weir__text_add(out, core + i, next - i) && add_mark(f, out, byte_behind(core[next - 1]));
        else if (next == n && open)
            ok = add_mark(f, out, MARK_OPEN) && weir__text_add(out, core + i, next - i);
        else
            ok = weir__text_add(out, core + i, next - i);
    }
    return ok;
}

/* The content with marks. NULL: it needs none, or there is no memory. */
static json_t *mark_text(finding *f, const json_t *given)
{
    const char *text = json_string_value(given);
    size_t n = json_string_length(given);
    weir__span core = core_of(text, n);
    size_t n_core = core.to - core.from;
    weir__text out = {0};
    if (!text_matters(f, text + core.from, n_core)) return NULL;
    bool ok = weir__text_add(&out, text, core.from);
    if (f->way == AROUND)
        ok = ok && add_mark(f, &out, MARK_OPEN) && weir__text_add(&out, text + core.from, n_core) &&
             add_mark(f, &out, MARK_CLOSE);
    else
        ok = ok && mark_inside(f, &out, text + core.from, n_core);
    ok = ok && weir__text_add(&out, text + core.to, n - core.to);
    json_t *marked = ok ? json_stringn_nocheck(out.bytes, out.n) : NULL; /* marks stand between characters */
    f->no_memory |= marked == NULL;
    weir__text_fini(&out);
    return marked;
}

/* The content, a string or an array of parts, with marks in its texts. NULL: no text needs one, or
 * f->no_memory. */
static json_t *mark_content(finding *f, const json_t *content)
{
    json_t *copy = NULL;
    if (json_is_string(content)) return mark_text(f, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
        json_t *marked = json_is_string(text) ? mark_text(f, text) : NULL;
        if (marked == NULL) continue;
        if (copy == NULL) copy = weir__json_copy(content);
        json_t *one = weir__json_copy(part);
        /* The setters take ownership, even when they fail. */
        bool failed = json_object_set_new(one, "text", marked) != 0;
        if (json_array_set_new(copy, i, one) != 0 || failed) f->no_memory = true;
    }
    return copy;
}

/* The messages with marks. NULL: none needs one, or f->no_memory. */
static json_t *mark_messages(finding *f, const json_t *messages)
{
    json_t *copy = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (is_read(f->special, json_string_value(json_object_get(message, "role")))) continue;
        json_t *content = mark_content(f, json_object_get(message, "content"));
        if (content == NULL) continue;
        if (copy == NULL) copy = weir__json_copy(messages);
        json_t *one = weir__json_copy(message);
        bool failed = json_object_set_new(one, "content", content) != 0;
        if (json_array_set_new(copy, i, one) != 0 || failed) f->no_memory = true;
    }
    if (!f->no_memory) return copy;
    json_decref(copy);
    return NULL;
}

/* ---- Spans ---- */

/* Adds a span; spans that touch are merged. */
static bool add_span(finding *f, weir__spans *spans, size_t from, size_t to)
{
    if (spans->n > 0 && from <= spans->at[spans->n - 1].to) {
        spans->at[spans->n - 1].to = to;
        return true;
    }
    if (!weir__mem_grow(&spans->at, &spans->capacity, spans->n + 1, sizeof *spans->at)) {
        f->no_memory = true;
        return false;
    }
    spans->at[spans->n++] = (weir__span){.from = from, .to = to};
    return true;
}

/* Reads a mark at byte `at` of the prompt. open: where the current span began, SIZE_MAX = none is open.
 * False: the marks are not as they were set. */
static bool read_mark(finding *f, char kind, size_t at, size_t *open, weir__spans *spans)
{
    if (f->way == INSIDE && kind == MARK_OPEN) return at < f->length && add_span(f, spans, at, at + 1);
    if (f->way == INSIDE)
        return at > 0 && kind == byte_behind(f->prompt[at - 1]) && add_span(f, spans, at - 1, at);
    if ((kind == MARK_OPEN) != (*open == SIZE_MAX)) return false;
    if (kind == MARK_OPEN) {
        *open = at;
        return true;
    }
    size_t from = *open;
    *open = SIZE_MAX;
    return at == from || add_span(f, spans, from, at);
}

/* Removes the marks from a text. True: the rest is the prompt, and the marks are as they were set. */
static bool read_marks(finding *f, const weir__text *text, weir__spans *spans)
{
    size_t at = 0, in_prompt = 0, open = SIZE_MAX;
    for (;;) {
        size_t left = text->n - at;
        const char *from = text->bytes + at;
        const char *mark =
            left > WEIR__CHAT_PLACEHOLDER ? memmem(from, left - 1, f->stem, WEIR__CHAT_PLACEHOLDER) : NULL;
        size_t n = mark != NULL ? (size_t)(mark - from) : left;
        if (n > f->length - in_prompt || memcmp(from, f->prompt + in_prompt, n) != 0) return false;
        in_prompt += n;
        if (mark == NULL) return in_prompt == f->length && open == SIZE_MAX;
        if (!read_mark(f, mark[WEIR__CHAT_PLACEHOLDER], in_prompt, &open, spans)) return false;
        at += n + WEIR__CHAT_PLACEHOLDER + 1;
    }
}

/* ---- Finding ---- */

static weir_status finding_error(const finding *f, weir_error *error)
{
    if (weir__budget_over(&f->budget)) return weir__interrupt_error(error);
    return f->no_memory ? weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat") : WEIR_OK;
}

/* Tries one way; spans->known says whether it found the contents. */
static weir_status try_way(finding *f, const json_t *messages, weir__chat_render_fn render, void *user,
                           weir__spans *spans, weir_error *error)
{
    weir__text text = {0};
    json_t *marked = mark_messages(f, messages);
    weir_status status = finding_error(f, error);
    spans->n = 0;
    spans->known = marked == NULL; /* there is nothing to find */
    if (status == WEIR_OK && marked != NULL) {
        weir_error why = {0};
        status = render(user, marked, &text, &why);
        if (status == WEIR_OK)
            spans->known = text.bytes != NULL && read_marks(f, &text, spans);
        else if (status == WEIR_NO_MEMORY || status == WEIR_ABORTED)
            status = weir__error_copy(error, &why);
        else
            status = WEIR_OK; /* the template refused the marks, not the messages */
        if (status == WEIR_OK) status = finding_error(f, error);
    }
    json_decref(marked);
    weir__text_fini(&text);
    return status;
}

weir_status weir__chat_content_find(const weir__controls *controls, const json_t *messages,
                                    weir_special_content special, bool deletes, const char *prompt,
                                    size_t length, weir__chat_render_fn render, void *user,
                                    weir__spans *spans, weir_error *error)
{
    finding f = {.controls = controls, .special = special, .prompt = prompt, .length = length};
    weir_status status = WEIR_OK;
    spans->known = special == WEIR_SPECIAL_ALL || controls->n == 0;
    if (spans->known || !weir__chat_placeholder_choose(f.stem, prompt, length)) return WEIR_OK;
    weir__budget_init(&f.budget, UINT64_MAX, UINT64_MAX);
    for (int i = deletes ? 0 : 2; status == WEIR_OK && !spans->known && i < 4; i++) {
        f.deletes = i < 2;
        f.way = i % 2 == 0 ? AROUND : INSIDE;
        status = try_way(&f, messages, render, user, spans, error);
    }
    if (!spans->known) spans->n = 0;
    return status;
}

/* ---- Parts ---- */

/* A control text that the template wrote, which becomes a token unless a longer one overlaps it; or a medium,
 * which has no bytes. */
typedef struct place {
    size_t from, to;
    int strip;
    bool taken;
} place;

typedef struct cutting {
    const weir__controls *controls;
    const char *prompt; /* [length] */
    size_t length;
    weir__spans *spans;
    size_t span; /* the first span that ends behind `at` */
    size_t at;
    const weir_media_use *media; /* [n_media] */
    size_t n_media, medium;      /* the first medium behind `at` */
    place *places;               /* [n] */
    size_t n, capacity;
    bool no_memory;
} cutting;

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat");
}

/* ---- Control texts ---- */

static bool add_place(cutting *c, size_t to, int strip)
{
    c->no_memory = !weir__mem_grow(&c->places, &c->capacity, c->n + 1, sizeof *c->places);
    if (!c->no_memory) c->places[c->n++] = (place){.from = c->at, .to = to, .strip = strip};
    return !c->no_memory;
}

/* Takes a control text that begins at c->at. One that holds a byte of a content is not the template's, and
 * one around a medium is none. */
static bool take_place(void *user, const weir__control *control)
{
    cutting *c = user;
    const size_t to = c->at + control->n;
    bool dirty = false;
    if (c->medium < c->n_media && c->media[c->medium].at < to) return false; /* nor are longer ones */
    for (size_t i = c->span; i < c->spans->n && c->spans->at[i].from < to; i++)
        dirty = c->spans->at[i].dirty = true;
    return dirty || add_place(c, to, control->strip);
}

/* Adds the media at c->at. */
static void take_media(cutting *c)
{
    for (; c->medium < c->n_media && c->media[c->medium].at == c->at; c->medium++)
        if (!add_place(c, c->at, 0)) return;
}

static weir_status find_places(cutting *c, weir_error *error)
{
    weir__budget budget; /* without limits: asks for the interrupt only */
    weir__budget_init(&budget, UINT64_MAX, UINT64_MAX);
    for (c->at = 0; c->at <= c->length; c->at++) {
        if (!weir__budget_step(&budget, 1)) return weir__interrupt_error(error);
        take_media(c);
        while (c->span < c->spans->n && c->spans->at[c->span].to <= c->at) c->span++;
        weir__controls_at(c->controls, c->prompt + c->at, c->length - c->at, take_place, c);
        if (c->no_memory) return no_memory(error);
    }
    return WEIR_OK;
}

/* ---- Which of them are tokens ---- */

static int longer_first(const void *left, const void *right)
{
    const place *a = left, *b = right;
    size_t n_a = a->to - a->from, n_b = b->to - b->from;
    return n_a != n_b ? (n_a < n_b) - (n_a > n_b) : (a->from > b->from) - (a->from < b->from);
}

static int by_place(const void *left, const void *right)
{
    const place *a = left, *b = right;
    return (a->from > b->from) - (a->from < b->from);
}

/* Prefers the longest, as the tokenizer does. All n overlap; there are few, as only templates write them. */
static void choose_among(place *places, size_t n)
{
    if (n > 1) qsort(places, n, sizeof *places, longer_first);
    for (size_t i = 0; i < n; i++) {
        places[i].taken = true;
        for (size_t k = 0; k < i && places[i].taken; k++)
            if (places[k].taken && places[k].from < places[i].to && places[i].from < places[k].to)
                places[i].taken = false;
    }
    if (n > 1) qsort(places, n, sizeof *places, by_place);
}

/* Keeps the places that become tokens, ascending. */
static void choose_places(cutting *c)
{
    size_t kept = 0;
    for (size_t i = 0, n; i < c->n; i += n) {
        size_t end = c->places[i].to;
        for (n = 1; i + n < c->n && c->places[i + n].from < end; n++)
            if (c->places[i + n].to > end) end = c->places[i + n].to;
        choose_among(&c->places[i], n);
        for (size_t k = i; k < i + n; k++)
            if (c->places[k].taken) c->places[kept++] = c->places[k];
    }
    c->n = kept;
}

/* ---- Parts ---- */

static bool add_part(weir__parts *parts, size_t from, size_t to, bool plain)
{
    if (from >= to) return true;
    if (!weir__mem_grow(&parts->at, &parts->capacity, parts->n + 1, sizeof *parts->at)) return false;
    parts->at[parts->n++] = (weir__part){.from = from, .to = to, .plain = plain};
    return true;
}

/* True if the text up to `to` has a part of a control text that came with a content. */
static bool is_dirty(cutting *c, size_t to)
{
    bool dirty = false;
    for (size_t i = c->span; i < c->spans->n && c->spans->at[i].from < to; i++) {
        dirty |= c->spans->at[i].dirty;
        if (c->spans->at[i].to <= to) c->span = i + 1; /* others go on behind a medium */
    }
    return dirty;
}

/* The tokenizer handles the text between two tokens by itself, so it can be a part. No part crosses a
 * medium. */
static bool make_parts(cutting *c, weir__parts *parts)
{
    size_t done = 0;
    bool ok = true;
    c->span = 0;
    for (size_t i = 0; ok && i <= c->n; i++) {
        size_t from = i > 0 ? c->places[i - 1].to : 0, to = i < c->n ? c->places[i].from : c->length;
        if (is_dirty(c, to)) {
            size_t begin = from, end = to;
            if (i > 0 && (c->places[i - 1].strip & WEIR__STRIP_RIGHT))
                while (begin < end && weir__ascii_is_space(c->prompt[begin])) begin++;
            if (i < c->n && (c->places[i].strip & WEIR__STRIP_LEFT))
                while (end > begin && weir__ascii_is_space(c->prompt[end - 1])) end--;
            ok = add_part(parts, done, from, false) && add_part(parts, begin, end, true);
            done = to;
        }
        if (i < c->n && c->places[i].from == c->places[i].to) { /* a medium */
            ok = ok && add_part(parts, done, to, false);
            done = to;
        }
    }
    bool whole = parts->n == 0 && c->n_media == 0;
    return ok && (whole || add_part(parts, done, c->length, false));
}

weir_status weir__chat_cut(const weir__controls *controls, const char *prompt, size_t length,
                           weir__spans *spans, const weir_media_use *media, size_t n_media,
                           weir__parts *parts, weir_error *error)
{
    cutting c = {
        .controls = controls,
        .prompt = prompt,
        .length = length,
        .spans = spans,
        .media = media,
        .n_media = n_media,
    };
    weir_status status = WEIR_OK;
    if (spans->n == 0 && n_media == 0) return WEIR_OK;
    status = find_places(&c, error);
    if (status == WEIR_OK) {
        choose_places(&c);
        if (!make_parts(&c, parts)) status = no_memory(error);
    }
    weir__mem_free(c.places);
    return status;
}

/* ---- Tokens ---- */

typedef struct tokens {
    const weir_model *model;
    int32_t *ids;
    size_t capacity, n; /* n also counts tokens beyond the capacity */
} tokens;

static weir_status add_text(tokens *t, const char *text, size_t length, bool parse_special, weir_error *error)
{
    size_t n = 0, room = t->n < t->capacity ? t->capacity - t->n : 0;
    weir_status status = t->model->ops->tokenize(t->model->model, text, length, false, parse_special,
                                                 room > 0 ? t->ids + t->n : NULL, room, &n, error);
    if (status == WEIR_TOO_LONG && n > room) status = WEIR_OK; /* the total decides */
    if (status == WEIR_OK) t->n += n;
    return status;
}

static void add_id(tokens *t, int32_t id)
{
    if (t->n < t->capacity) t->ids[t->n] = id;
    t->n++;
}

/* Sets the places of the media up to a byte of the prompt. */
static void add_places(const tokens *t, const weir_media_use *media, size_t n_media, size_t byte,
                       size_t *medium, size_t *places)
{
    for (; *medium < n_media && media[*medium].at <= byte; (*medium)++)
        if (places != NULL) places[*medium] = t->n;
}

weir_status weir__chat_tokens(const weir_model *model, const char *prompt, size_t length,
                              const weir__parts *parts, const weir_media_use *media, size_t n_media,
                              int32_t *ids, size_t capacity, size_t *n_tokens, size_t *places,
                              weir_error *error)
{
    tokens t = {.model = model, .ids = ids, .capacity = capacity};
    int32_t around[2]; /* the tokens that the model wants at the start and the end */
    size_t n_around = 0, medium = 0;
    if (parts->n == 0 && n_media == 0)
        return model->ops->tokenize(model->model, prompt, length, true, true, ids, capacity, n_tokens, error);
    weir_status status = model->ops->tokenize(model->model, "", 0, true, true, around, 2, &n_around, error);
    bool first = n_around == 2 || (n_around == 1 && !model->info.add_eos);
    if (status == WEIR_OK && first) add_id(&t, around[0]);
    for (size_t i = 0; status == WEIR_OK && i < parts->n; i++) {
        const weir__part *part = &parts->at[i];
        add_places(&t, media, n_media, part->from, &medium, places);
        status = add_text(&t, prompt + part->from, part->to - part->from, !part->plain, error);
    }
    if (status != WEIR_OK) return status;
    add_places(&t, media, n_media, length, &medium, places);
    if (n_around == 2 || (n_around == 1 && !first)) add_id(&t, around[n_around - 1]);
    *n_tokens = t.n;
    if (t.n <= capacity) return WEIR_OK;
    return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                           "the prompt has %zu tokens, there is room for %zu", t.n, capacity);
}
