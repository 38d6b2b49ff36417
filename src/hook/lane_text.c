/* lane_text.c: the lists of parts, which are cut and copied as the lanes' cells are.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hook/lane_text.h"

#include "base/mem.h"

bool weir__lane_texts_init(weir__lane_texts *texts, int32_t n)
{
    *texts = (weir__lane_texts){.n = n, .lanes = weir__mem_calloc((size_t)n, sizeof *texts->lanes)};
    if (texts->lanes == NULL) return false;
    for (int32_t lane = 0; lane < n; lane++) weir__lane_texts_cut(texts, lane, 0);
    return true;
}

void weir__lane_texts_fini(weir__lane_texts *texts)
{
    weir__mem_free(texts->lanes);
    *texts = (weir__lane_texts){0};
}

/* The position where the i-th part of a text ends. */
static int32_t end_of(const weir__lane_text *text, int32_t i)
{
    return i + 1 < text->n ? text->parts[i + 1].from : INT32_MAX;
}

/* True if another lane has positions from this one on in a part with this id. */
static bool is_shared(const weir__lane_texts *texts, int32_t lane, uint64_t id, int32_t from)
{
    for (int32_t l = 0; l < texts->n; l++)
        for (int32_t i = 0; i < texts->lanes[l].n; i++)
            if (l != lane && texts->lanes[l].parts[i].id == id && end_of(&texts->lanes[l], i) > from)
                return true;
    return false;
}

void weir__lane_texts_cut(weir__lane_texts *texts, int32_t lane, int32_t from)
{
    weir__lane_text *text = &texts->lanes[lane];
    while (text->n > 0 && text->parts[text->n - 1].from >= from) text->n--;
    if (text->n > 0 && !is_shared(texts, lane, text->parts[text->n - 1].id, from)) return;
    if (text->n == WEIR__LANE_PARTS) from = text->parts[--text->n].from;
    text->parts[text->n++] = (weir__lane_part){++texts->last_id, from};
}

void weir__lane_texts_copy(weir__lane_texts *texts, int32_t from, int32_t to, int32_t n)
{
    texts->lanes[to] = texts->lanes[from];
    weir__lane_texts_cut(texts, to, n);
}

int32_t weir__lane_texts_common(const weir__lane_texts *texts, int32_t a, int32_t b)
{
    const weir__lane_text *x = &texts->lanes[a], *y = &texts->lanes[b];
    int32_t i = 0;
    while (i < x->n && i < y->n && x->parts[i].id == y->parts[i].id) i++;
    if (i == 0) return 0;
    int32_t x_end = end_of(x, i - 1), y_end = end_of(y, i - 1);
    return x_end < y_end ? x_end : y_end;
}

int weir__lane_texts_compare(const weir__lane_texts *texts, int32_t a, int32_t b)
{
    const weir__lane_text *x = &texts->lanes[a], *y = &texts->lanes[b];
    for (int32_t i = 0; i < x->n && i < y->n; i++)
        if (x->parts[i].id != y->parts[i].id) return x->parts[i].id < y->parts[i].id ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}
