/* parts.c: a prompt in parts, some of which are plain text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/parts.h"

#include <stdlib.h>

#include "base/ascii.h"
#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"
#include "model/model.h"

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
