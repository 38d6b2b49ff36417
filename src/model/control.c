/* control.c: the texts that become control tokens if special tokens are parsed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- The table ---- */

static int compare_controls(const void *left, const void *right)
{
    const weir__control *a = left, *b = right;
    int order = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

/* Sorts a table. Two tokens with the same text count once: it does not matter which the tokenizer takes. */
static void sort_controls(weir__control *table, size_t *n_table)
{
    size_t n = 0;
    qsort(table, *n_table, sizeof *table, compare_controls);
    for (size_t i = 0; i < *n_table; i++)
        if (n == 0 || compare_controls(&table[n - 1], &table[i]) != 0) table[n++] = table[i];
    *n_table = n;
}

static size_t count_controls(const weir__backend *ops, const weir__bmodel *model, int32_t n_vocab)
{
    size_t n = 0, length;
    int strip;
    for (int32_t token = 0; token < n_vocab; token++)
        n += ops->control_text(model, token, &length, &strip) != NULL;
    return n;
}

static bool fill_controls(weir__controls *controls, const weir__backend *ops, const weir__bmodel *model,
                          int32_t n_vocab)
{
    controls->sorted = weir__mem_calloc(count_controls(ops, model, n_vocab), sizeof *controls->sorted);
    if (controls->sorted == NULL) return false;
    for (int32_t token = 0; token < n_vocab; token++) {
        weir__control *control = &controls->sorted[controls->n];
        size_t n = 0;
        int strip = 0;
        const char *text = ops->control_text(model, token, &n, &strip);
        if (text == NULL || n == 0 || !weir__utf8_valid(text, n)) continue; /* chats are well-formed */
        *control = (weir__control){.text = text, .n = n, .strip = strip};
        controls->first[(unsigned char)text[0]] = true;
        if (n > controls->longest) controls->longest = n;
        controls->n++;
    }
    sort_controls(controls->sorted, &controls->n);
    return true;
}

static bool cut_ends(weir__controls *controls)
{
    size_t bytes = 0;
    for (size_t i = 0; i < controls->n; i++) bytes += controls->sorted[i].n;
    controls->ends = weir__mem_calloc(bytes, sizeof *controls->ends);
    if (controls->ends == NULL) return false;
    for (size_t i = 0; i < controls->n; i++)
        for (size_t k = 1; k < controls->sorted[i].n; k++)
            controls->ends[controls->n_ends++] =
                (weir__control){.text = controls->sorted[i].text + k, .n = controls->sorted[i].n - k};
    sort_controls(controls->ends, &controls->n_ends);
    return true;
}

void weir__controls_free(weir__controls *controls)
{
    if (controls == NULL) return;
    weir__mem_free(controls->ends);
    weir__mem_free(controls->sorted);
    weir__mem_free(controls);
}

weir__controls *weir__controls_create(const weir__backend *ops, const weir__bmodel *model, int32_t n_vocab)
{
    weir__controls *controls = weir__mem_calloc(1, sizeof *controls);
    if (controls != NULL && fill_controls(controls, ops, model, n_vocab) && cut_ends(controls))
        return controls;
    weir__controls_free(controls);
    return NULL;
}

/* ---- Looking texts up ---- */

/* The entries from..to of a sorted table begin with the same `depth` bytes. */
typedef struct range {
    const weir__control *table;
    size_t from, to, depth;
} range;

/* The first entry whose next byte is above c, or not below it if `equal`. */
static size_t range_bound(const range *r, unsigned char c, bool equal)
{
    size_t low = r->from, high = r->to;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        unsigned char next = (unsigned char)r->table[middle].text[r->depth];
        if (next > c || (equal && next == c))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Removes the entry that ends here from the range and returns it; NULL: there is none. */
static const weir__control *take_end(range *r)
{
    if (r->from == r->to || r->table[r->from].n > r->depth) return NULL;
    return &r->table[r->from++];
}

/* Narrows the range to the entries that continue with c; those that end here have been removed. */
static bool go_on(range *r, char c)
{
    size_t from = range_bound(r, (unsigned char)c, true), to = range_bound(r, (unsigned char)c, false);
    r->from = from;
    r->to = to;
    r->depth++;
    return from < to;
}

void weir__controls_at(const weir__controls *controls, const char *text, size_t n, weir__control_fn take,
                       void *user)
{
    range r = {.table = controls->sorted, .to = controls->n};
    if (n == 0 || !controls->first[(unsigned char)text[0]]) return;
    while (r.depth < n && go_on(&r, text[r.depth])) {
        const weir__control *end = take_end(&r);
        if (end != NULL && !take(user, end)) return;
    }
}

static bool take_any(void *user, const weir__control *control)
{
    (void)control;
    *(bool *)user = true;
    return false;
}

bool weir__controls_begin(const weir__controls *controls, const char *text, size_t n)
{
    bool found = false;
    weir__controls_at(controls, text, n, take_any, &found);
    return found;
}

/* True if a longer control text begins with this one. */
static bool is_beginning(const weir__controls *controls, const char *text, size_t n)
{
    range r = {.table = controls->sorted, .to = controls->n};
    for (size_t i = 0; i < n; i++) {
        if (!go_on(&r, text[i])) return false;
        (void)take_end(&r);
    }
    return r.from < r.to;
}

bool weir__controls_open(const weir__controls *controls, const char *text, size_t n)
{
    for (size_t tail = 1; tail <= n && tail < controls->longest; tail++)
        if (is_beginning(controls, text + n - tail, tail)) return true;
    return false;
}

bool weir__controls_close(const weir__controls *controls, const char *text, size_t n)
{
    range r = {.table = controls->ends, .to = controls->n_ends};
    for (size_t i = 0; i < n; i++) {
        if (!go_on(&r, text[i])) return false;
        if (take_end(&r) != NULL) return true;
    }
    return n > 0;
}
