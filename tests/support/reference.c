/* SPDX-License-Identifier: Apache-2.0 */
#include "support/reference.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/fake.h"

/* ---- UTF-8: Table 3-7 of the Unicode Standard, row by row ------------------------------------------ */

typedef struct row {
    size_t length;
    unsigned char low[4], high[4];
} row;

static const row rows[] = {
    {1, {0x00}, {0x7f}},
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};

size_t reference_decode(const char *bytes, size_t n, bool is_end, char *out)
{
    const unsigned char *s = (const unsigned char *)bytes;
    size_t n_out = 0;
    for (size_t at = 0; at < n;) {
        size_t longest = 0;
        bool whole = false;
        for (size_t r = 0; r < sizeof rows / sizeof *rows && !whole; r++) {
            size_t same = 0;
            while (same < rows[r].length && at + same < n && s[at + same] >= rows[r].low[same] &&
                   s[at + same] <= rows[r].high[same])
                same++;
            whole = same == rows[r].length;
            if (same > longest) longest = same;
        }
        if (!whole && !is_end && longest > 0 && at + longest == n) break; /* its rest may still come */
        memcpy(out + n_out, whole ? bytes + at : "\xef\xbf\xbd", whole ? longest : 3);
        n_out += whole ? longest : 3;
        at += longest > 0 ? longest : 1;
    }
    return n_out;
}

/* ---- Stop strings ---------------------------------------------------------------------------------- */

static bool ends_with(const char *text, size_t n, const char *end, size_t length)
{
    return length <= n && memcmp(text + n - length, end, length) == 0;
}

/* The first byte of the stop string that is complete first, looking at ends behind `from`; SIZE_MAX. */
static size_t find_stop(const char *text, size_t from, size_t n, const reference_task *task)
{
    for (size_t end = from + 1; end <= n; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < task->n_stops; i++)
            if (task->stops[i].length > longest &&
                ends_with(text, end, task->stops[i].bytes, task->stops[i].length))
                longest = task->stops[i].length;
        if (longest > 0) return end - longest;
    }
    return SIZE_MAX;
}

/* The bytes at the end of text that may begin a stop string. */
static size_t held_back(const char *text, size_t n, const reference_task *task)
{
    size_t held = 0;
    for (size_t i = 0; i < task->n_stops; i++)
        for (size_t length = 1; length < task->stops[i].length; length++)
            if (length > held && ends_with(text, n, task->stops[i].bytes, length)) held = length;
    return held;
}

/* ---- A request ------------------------------------------------------------------------------------- */

static void *grow(void *memory, size_t size)
{
    void *more = realloc(memory, size);
    assert(more != NULL);
    return more;
}

char *reference_text(const reference *r, const reference_task *task, size_t n, size_t *length)
{
    char *text = grow(NULL, 3 * r->raw_end[n] + 1);
    *length = reference_decode(r->raw, r->raw_end[n], true, text);
    size_t stop = find_stop(text, 0, *length, task);
    if (stop != SIZE_MAX) *length = stop;
    *length -= r->n_shown;
    memmove(text, text + r->n_shown, *length);
    text[*length] = '\0';
    return text;
}

/* The text of the answer before as far as it is whole, to be freed; the bytes themselves are in r. */
static char *text_before(reference *r, const reference_task *task, size_t *length)
{
    char piece[256];
    for (int32_t i = task->n_prompt - task->n_before; i < task->n_prompt; i++) {
        size_t n = 0;
        weir_status status =
            weir_piece(task->model, task->prompt[i], task->special, piece, sizeof piece, &n, NULL);
        assert(status == WEIR_OK);
        (void)status;
        r->raw = grow(r->raw, r->raw_end[0] + n + 1);
        if (n > 0) memcpy(r->raw + r->raw_end[0], piece, n);
        r->raw_end[0] += n;
    }
    char *text = grow(NULL, 3 * r->raw_end[0] + 1);
    *length = reference_decode(r->raw, r->raw_end[0], false, text);
    return text;
}

bool reference_is_stopped_before(const reference_task *task)
{
    size_t raw_end = 0, length;
    reference r = {.raw = grow(NULL, 1), .raw_end = &raw_end};
    char *text = text_before(&r, task, &length);
    bool stopped = find_stop(text, 0, length, task) != SIZE_MAX;
    free(text);
    free(r.raw);
    return stopped;
}

static void add_piece(reference *r, const reference_task *task, int32_t token)
{
    char piece[256];
    size_t n = 0, before = r->raw_end[r->n_tokens];
    weir_status status = weir_piece(task->model, token, task->special, piece, sizeof piece, &n, NULL);
    assert(status == WEIR_OK);
    (void)status;
    r->raw = grow(r->raw, before + n + 1);
    if (n > 0) memcpy(r->raw + before, piece, n);
    r->raw_end[++r->n_tokens] = before + n;
}

void reference_make(reference *r, const reference_task *task)
{
    memset(r, 0, sizeof *r);
    size_t room = (size_t)task->n_prompt + (size_t)task->max_tokens;
    int32_t *history = grow(NULL, (room + 1) * sizeof *history);
    memcpy(history, task->prompt, (size_t)task->n_prompt * sizeof *history);
    r->raw_end = calloc((size_t)task->max_tokens + 2, sizeof *r->raw_end);
    r->free_text = calloc((size_t)task->max_tokens + 2, sizeof *r->free_text);
    r->raw = calloc(1, 1);
    assert(r->raw_end != NULL && r->free_text != NULL && r->raw != NULL);
    r->reason = WEIR_REASON_LENGTH;
    size_t seen; /* bytes in which no stop string has ended */
    char *text = text_before(r, task, &seen);
    r->n_shown = seen - held_back(text, seen, task);

    while (r->n_tokens < (size_t)task->max_tokens) {
        int32_t n = task->n_prompt + (int32_t)r->n_tokens;
        int32_t token = weir__fake_next_adapted(task->model, task->adapters, task->n_adapters, history, n);
        if (weir_is_eog(task->model, token)) {
            r->ended = true;
            r->reason = WEIR_REASON_END;
            break;
        }
        history[n] = token;
        add_piece(r, task, token);
        text = grow(text, 3 * r->raw_end[r->n_tokens] + 1);
        size_t length = reference_decode(r->raw, r->raw_end[r->n_tokens], false, text);
        size_t stop = find_stop(text, seen, length, task);
        if (stop != SIZE_MAX) {
            r->reason = WEIR_REASON_STOP_WORDS;
            r->free_text[r->n_tokens] = stop - r->n_shown;
            break;
        }
        seen = length;
        r->free_text[r->n_tokens] = length - held_back(text, length, task) - r->n_shown;
    }
    free(text);
    r->text = reference_text(r, task, r->n_tokens, &r->length);

    /* Bytes that never became a character may complete a stop string as U+FFFD. */
    text = grow(NULL, 3 * r->raw_end[r->n_tokens] + 1);
    if (reference_decode(r->raw, r->raw_end[r->n_tokens], true, text) > r->n_shown + r->length)
        r->reason = WEIR_REASON_STOP_WORDS;
    free(text);

    r->tokens = history;
    memmove(r->tokens, history + task->n_prompt, r->n_tokens * sizeof *history);
}

void reference_fini(reference *r)
{
    free(r->tokens);
    free(r->text);
    free(r->raw);
    free(r->raw_end);
    free(r->free_text);
    memset(r, 0, sizeof *r);
}
