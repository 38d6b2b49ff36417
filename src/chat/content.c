/* content.c: which text of messages in a rendered prompt must remain text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/content.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/budget.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "chat/stem.h"

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
    char stem[WEIR__CHAT_STEM + 1];
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
    return weir__text_add(out, f->stem, WEIR__CHAT_STEM) && weir__text_add(out, &kind, 1);
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
        const char *mark = left > WEIR__CHAT_STEM ? memmem(from, left - 1, f->stem, WEIR__CHAT_STEM) : NULL;
        size_t n = mark != NULL ? (size_t)(mark - from) : left;
        if (n > f->length - in_prompt || memcmp(from, f->prompt + in_prompt, n) != 0) return false;
        in_prompt += n;
        if (mark == NULL) return in_prompt == f->length && open == SIZE_MAX;
        if (!read_mark(f, mark[WEIR__CHAT_STEM], in_prompt, &open, spans)) return false;
        at += n + WEIR__CHAT_STEM + 1;
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
    if (spans->known || !weir__chat_stem_choose(f.stem, prompt, length)) return WEIR_OK;
    weir__budget_init(&f.budget, UINT64_MAX, UINT64_MAX);
    for (int i = deletes ? 0 : 2; status == WEIR_OK && !spans->known && i < 4; i++) {
        f.deletes = i < 2;
        f.way = i % 2 == 0 ? AROUND : INSIDE;
        status = try_way(&f, messages, render, user, spans, error);
    }
    if (!spans->known) spans->n = 0;
    return status;
}
