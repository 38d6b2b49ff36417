/* Attention against sums in double precision, and against itself in other company.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml.h>

#include "kernels/kernels.h"
#include "support/effort.h"
#include "support/levels.h"

#define CELLS 1400

static uint64_t dice = 2463534242u;

static double uniform(void) /* -1 … 1 */
{
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (double)(dice >> 11) * 0x1p-52 - 1.0;
}

static int32_t below(int32_t n)
{
    return (int32_t)((uniform() + 1.0) * 0.5 * n) % n;
}

/* Keys or values of one head in a pool of cells, and the same in single precision. */
typedef struct side {
    int32_t size;
    weir__attention_format format;
    _Alignas(64) unsigned char cells[CELLS][4 * WEIR__ATTENTION_SIZE];
    float is[CELLS][WEIR__ATTENTION_SIZE];
} side;

typedef struct pool {
    side k, v;
} pool;

static const struct {
    weir__attention_format format;
    enum ggml_type type;
} formats[] = {{WEIR__ATTENTION_F32, GGML_TYPE_F32},
               {WEIR__ATTENTION_F16, GGML_TYPE_F16},
               {WEIR__ATTENTION_BF16, GGML_TYPE_BF16},
               {WEIR__ATTENTION_Q8_0, GGML_TYPE_Q8_0},
               {WEIR__ATTENTION_Q4_0, GGML_TYPE_Q4_0}};

/* Fills a side with numbers in the i-th format. */
static void fill(side *s, int32_t size, int32_t i)
{
    const struct ggml_type_traits *traits = ggml_get_type_traits(formats[i].type);
    s->size = size;
    s->format = formats[i].format;
    for (int32_t c = 0; c < CELLS; c++) {
        for (int32_t d = 0; d < size; d++) s->is[c][d] = (float)(2.0 * uniform());
        ggml_quantize_chunk(formats[i].type, s->is[c], s->cells[c], 0, 1, size, NULL);
        if (traits->to_float != NULL) traits->to_float(s->cells[c], s->is[c], size);
    }
}

#define N_KV 2 /* heads of keys */

/* Makes N_KV heads, in formats that the sizes allow. */
static pool *pool_make(int32_t size_k, int32_t size_v)
{
    pool *p = aligned_alloc(64, N_KV * sizeof *p);
    int32_t k = below(size_k % 32 == 0 ? 5 : 3), v = below(size_v % 32 == 0 ? 5 : 3);
    assert_non_null(p);
    memset(p, 0xff, N_KV * sizeof *p); /* behind a head there are no numbers */
    for (int i = 0; i < N_KV; i++) {
        fill(&p[i].k, size_k, k);
        fill(&p[i].v, size_v, v);
    }
    return p;
}

/* ---- A call ---- */

/* Queries in a row, and all that they refer to. */
typedef struct call {
    weir__attention_task task;
    weir__attention_list lists[WEIR__ATTENTION_ROWS];
    weir__attention_query queries[WEIR__ATTENTION_ROWS];
    float q[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE], out[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
    float slopes[WEIR__ATTENTION_ROWS], sinks[WEIR__ATTENTION_ROWS];
    int32_t cells[CELLS];
    uint16_t mask[CELLS];
} call;

static void *scratch_of(const weir__attention *a)
{
    static void *scratch[8];
    for (int i = 0; i < 8; i++)
        if (weir__kernels_attention(i) == a) {
            if (scratch[i] == NULL) scratch[i] = aligned_alloc(64, (a->scratch + 63) / 64 * 64);
            assert_non_null(scratch[i]);
            return scratch[i];
        }
    fail();
    return NULL;
}

static void range_of(const weir__attention_task *t, int32_t *first, int32_t *n)
{
    int32_t from = INT32_MAX, to = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        if (t->queries[i].from < from) from = t->queries[i].from;
        if (t->queries[i].to > to) to = t->queries[i].to;
    }
    *first = from / WEIR__ATTENTION_PIECE;
    *n = (to + WEIR__ATTENTION_PIECE - 1) / WEIR__ATTENTION_PIECE - *first;
}

/* The number of a query's heads, which lie behind one another here. */
static int32_t n_heads_of(const weir__attention_task *t)
{
    return t->n_kv * t->n_heads;
}

/* All pieces at once, or each by itself. */
static void compute(const weir__attention *a, const weir__attention_task *t, bool apart)
{
    static float total[WEIR__ATTENTION_ROWS * (WEIR__ATTENTION_SIZE + 2)],
        piece[WEIR__ATTENTION_ROWS * (WEIR__ATTENTION_SIZE + 2)];
    int32_t first, n;
    range_of(t, &first, &n);
    assert_true(a->sums(t) <= weir__attention_most_sums(t->n_kv, t->n_queries, t->n_heads, t->size_v));
    assert_true(a->sums(t) <= sizeof total / sizeof *total);
    a->attend(t, first, apart ? 1 : n, scratch_of(a), total);
    for (int32_t i = 1; apart && i < n; i++) {
        a->attend(t, first + i, 1, scratch_of(a), piece);
        a->add(t, total, piece);
    }
    a->finish(t, total);
}

/* n different cells, ascending or in any order. */
static void choose_cells(int32_t *cells, int32_t n, bool scattered)
{
    for (int32_t i = 0; i < n; i++) cells[i] = i;
    if (!scattered) return;
    static int32_t all[CELLS];
    for (int32_t i = 0; i < CELLS; i++) all[i] = i;
    for (int32_t i = 0; i < n; i++) {
        int32_t other = i + below(CELLS - i), cell = all[other];
        all[other] = all[i];
        cells[i] = all[i] = cell;
    }
}

static const struct {
    int32_t k, v;
} sizes[] = {{64, 64},   {72, 72},   {80, 80}, {96, 96}, {112, 112}, {128, 128},
             {256, 256}, {192, 128}, {16, 32}, {8, 24},  {88, 104},  {248, 56}};

/* Queries that see growing parts of a list of at most `most` cells; windowed: of those before it, a few. With
 * or without masks, softcap, slopes and sinks. */
static call *draw(const pool *p, int32_t most, double spread)
{
    call *c = calloc(1, sizeof *c);
    assert_non_null(c);
    weir__attention_task *t = &c->task;
    static const int32_t heads[] = {1, 2, 3, 4, 5, 8, 12, 32};
    t->lists = c->lists;
    t->queries = c->queries;
    t->n_heads = heads[below(8)];
    t->n_kv = 1 + below(N_KV);
    t->n_queries = 1 + below(WEIR__ATTENTION_ROWS / n_heads_of(t));
    t->q_head = t->out_head = sizeof c->q[0];
    t->k = (const char *)p->k.cells;
    t->v = (const char *)p->v.cells;
    t->k_cell = sizeof p->k.cells[0];
    t->v_cell = sizeof p->v.cells[0];
    t->k_head = t->v_head = sizeof *p;
    t->k_format = p->k.format;
    t->v_format = p->v.format;
    t->size_k = p->k.size;
    t->size_v = p->v.size;
    t->scale = 1.0f / sqrtf((float)p->k.size);
    if (below(2) == 0) t->softcap = 2.0f + (float)below(40);
    if (below(2) == 0) t->slopes = c->slopes;
    if (below(2) == 0) t->sinks = c->sinks;
    int32_t n = 1 + below(most), first = below(3) == 0 ? below(900) : 0,
            window = below(3) == 0 ? 1 + below(200) : n;
    choose_cells(c->cells, n, below(2) == 0);
    c->lists[0] = (weir__attention_list){c->cells, first, n, 0};
    for (int32_t i = 0; i < CELLS; i++)
        c->mask[i] = ggml_fp32_to_fp16(below(9) == 0 ? -INFINITY : (float)uniform());
    for (int32_t r = 0; r < WEIR__ATTENTION_ROWS; r++) {
        c->slopes[r] = (float)(0.5 + 0.5 * uniform());
        c->sinks[r] = (float)(4.0 * uniform());
        for (int32_t d = 0; d < WEIR__ATTENTION_SIZE; d++)
            c->q[r][d] = d < p->k.size ? (float)(spread * uniform()) : NAN;
    }
    bool masked = below(5) == 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        int32_t to = i == t->n_queries - 1 ? n : 1 + below(n);
        c->queries[i] = (weir__attention_query){.q = (const char *)c->q[i * n_heads_of(t)],
                                                .out = (char *)c->out[i * n_heads_of(t)],
                                                .mask = masked ? c->mask : NULL,
                                                .from = first + (to > window ? to - window : 0),
                                                .to = first + to};
    }
    return c;
}

/* ---- Tests ---- */

/* A row by its definition. */
static void define_row(const pool *p, const call *c, int32_t r, double *want)
{
    static double weight[CELLS];
    const weir__attention_task *t = &c->task;
    const weir__attention_query *q = &c->queries[r / n_heads_of(t)];
    int32_t h = r % n_heads_of(t), n = q->to - q->from;
    const int32_t *cells = c->lists[q->list].cells + (q->from - c->lists[q->list].first);
    double max = t->sinks != NULL ? (double)t->sinks[h] : -INFINITY, sum = 0;
    double cap = (double)t->softcap, slope = t->slopes != NULL ? (double)t->slopes[h] : 1.0;
    p += h / t->n_heads;
    double scale = (double)(t->softcap != 0.0f ? t->scale / t->softcap : t->scale);
    for (int32_t i = 0; i < n; i++) {
        weight[i] = 0;
        for (int32_t d = 0; d < p->k.size; d++)
            weight[i] += (double)c->q[r][d] * (double)p->k.is[cells[i]][d];
        weight[i] *= scale;
        if (cap != 0.0) weight[i] = cap * tanh(weight[i]);
        if (q->mask != NULL) weight[i] += slope * (double)ggml_fp16_to_fp32(q->mask[cells[i]]);
        if (weight[i] > max) max = weight[i];
    }
    if (t->sinks != NULL) sum = exp((double)t->sinks[h] - max);
    for (int32_t i = 0; i < n; i++) sum += weight[i] = max == -INFINITY ? 0.0 : exp(weight[i] - max);
    for (int32_t d = 0; d < p->v.size; d++) want[d] = 0;
    for (int32_t i = 0; i < n && sum != 0.0; i++)
        for (int32_t d = 0; d < p->v.size; d++) want[d] += weight[i] / sum * (double)p->v.is[cells[i]][d];
}

/* The largest difference, relative to the largest value. */
static double difference(const double *want, const float *got, int32_t size)
{
    double worst = 0;
    for (int32_t d = 0; d < size; d++) {
        double off = fabs((double)got[d] - want[d]) / 2.0;
        if (!(off <= worst)) worst = off;
    }
    return worst;
}

static void check_row(const weir__attention *a, const pool *p, const call *c, int32_t r, const double *want)
{
    double off = difference(want, c->out[r], p->v.size);
    if (!(off < 1e-3)) /* queries, keys, weights and values are rounded */
        fail_msg("%s, heads of %d and %d (formats %d and %d), softcap %g%s%s%s: row %d of %d × "
                 "%d, places %d to %d: off by %g",
                 a->name, p->k.size, p->v.size, (int)p->k.format, (int)p->v.format, (double)c->task.softcap,
                 c->task.slopes != NULL ? ", slopes" : "", c->task.sinks != NULL ? ", sinks" : "",
                 c->queries[0].mask != NULL ? ", mask" : "", r, c->task.n_queries, n_heads_of(&c->task),
                 c->queries[r / n_heads_of(&c->task)].from, c->queries[r / n_heads_of(&c->task)].to, off);
    for (int32_t d = p->v.size; d < WEIR__ATTENTION_SIZE; d++) assert_true(c->out[r][d] == 0.0f);
}

static void attention_is_what_it_says(void **state)
{
    (void)state;
    static double want[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
    const weir__attention *a;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int round = 0; round < EFFORT(24, 6); round++) {
            pool *p = pool_make(sizes[i].k, sizes[i].v);
            call *c = draw(p, round % 3 == 0 ? 70 : CELLS, 3.0);
            int32_t n_rows = c->task.n_queries * n_heads_of(&c->task), first = round % EFFORT(1, 4);
            for (int32_t r = first; r < n_rows; r += EFFORT(1, 4)) define_row(p, c, r, want[r]);
            for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++) {
                memset(c->out, 0, sizeof c->out);
                compute(a, &c->task, round % 2 == 0);
                for (int32_t r = first; r < n_rows; r += EFFORT(1, 4)) check_row(a, p, c, r, want[r]);
            }
            free(c);
            free(p);
        }
}

/* A query gives the same to the bit: alone or with others, wherever the cells lie, pieces together or
 * apart. */
static void a_query_does_not_depend_on_its_company(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < EFFORT(60, 15); round++) {
            size_t i = (size_t)round % (sizeof sizes / sizeof *sizes);
            pool *p = pool_make(sizes[i].k, sizes[i].v), *other = aligned_alloc(64, N_KV * sizeof *other);
            call *c = draw(p, CELLS, 3.0);
            int32_t moved[CELLS], n = c->lists[0].n;
            static uint16_t mask[CELLS];
            assert_non_null(other);
            memcpy(other, p, N_KV * sizeof *other);
            choose_cells(moved, n, true);
            for (int32_t at = 0; at < n; at++) {
                for (int kv = 0; kv < N_KV; kv++) {
                    memcpy(other[kv].k.cells[moved[at]], p[kv].k.cells[c->cells[at]], sizeof p->k.cells[0]);
                    memcpy(other[kv].v.cells[moved[at]], p[kv].v.cells[c->cells[at]], sizeof p->v.cells[0]);
                }
                mask[moved[at]] = c->mask[c->cells[at]];
            }
            compute(a, &c->task, false);
            static float alone[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
            for (int32_t q = 0; q < c->task.n_queries; q++) {
                weir__attention_query one = c->queries[q];
                /* The list of one query alone has no other cells. */
                weir__attention_list list = {moved + (one.from - c->lists[0].first), one.from,
                                             one.to - one.from, 0};
                weir__attention_task t = c->task;
                one.out = (char *)alone;
                one.mask = one.mask != NULL ? mask : NULL;
                t.k = (const char *)other->k.cells;
                t.v = (const char *)other->v.cells;
                t.lists = &list;
                t.queries = &one;
                t.n_queries = 1;
                compute(a, &t, round % 2 == 0);
                for (int32_t h = 0; h < n_heads_of(&t); h++)
                    assert_memory_equal(alone[h], c->out[q * n_heads_of(&t) + h],
                                        (size_t)t.size_v * sizeof(float));
            }
            free(c);
            free(p);
            free(other);
        }
}

/* Sums need no more than their most, however the queries are divided into tasks, with one list of cells or
 * one for each query. */
static void sums_need_no_more_than_their_most(void **state)
{
    (void)state;
    const weir__attention *a;
    static weir__attention_query queries[WEIR__ATTENTION_ROWS];
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < 2000; round++) {
            weir__attention_task t = {.queries = queries, .n_kv = 1 + below(4), .n_heads = 1 + below(32)};
            t.size_k = t.size_v = 8 * (1 + below(WEIR__ATTENTION_SIZE / 8));
            int32_t n = 1 + below(24);
            size_t sum = 0, most = weir__attention_most_sums(t.n_kv, n, t.n_heads, t.size_v);
            for (int32_t left = n; left > 0; left -= t.n_queries) {
                t.n_queries = round % 8 == 0 ? 1 : 1 + below(left);
                for (int32_t i = 0, step = below(2); i < t.n_queries; i++) queries[i].list = i * step;
                sum += a->sums(&t);
            }
            assert_true(sum <= most);
        }
}

/* Cells that were packed before, which are not read any more, give the same to the bit. */
static void packed_cells_give_the_same(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < EFFORT(100, 20); round++) {
            size_t i = (size_t)round % (sizeof sizes / sizeof *sizes);
            pool *p = pool_make(sizes[i].k, sizes[i].v);
            call *c = draw(p, CELLS, 3.0);
            weir__attention_task *t = &c->task;
            t->n_kv = 1;
            for (int32_t q = 0; q < t->n_queries; q++) {
                c->queries[q].q = (const char *)c->q[q * t->n_heads];
                c->queries[q].out = (char *)c->out[q * t->n_heads];
                c->queries[q].from -= c->lists[0].first;
                c->queries[q].to -= c->lists[0].first;
            }
            c->lists[0].first = 0;
            static float want[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
            compute(a, t, false);
            memcpy(want, c->out, sizeof want);
            for (int32_t r = 0; r < t->n_queries * t->n_heads; r++) {
                double is[WEIR__ATTENTION_SIZE];
                define_row(p, c, r, is);
                assert_true(difference(is, c->out[r], t->size_v) < 1e-3);
            }
            size_t bytes = a->packed_bytes(t->size_k, t->size_v, c->lists[0].n);
            assert_int_equal(bytes % 64, 0); /* exact: a sanitizer sees what is written */
            t->packed = aligned_alloc(64, bytes);
            a->pack(t, scratch_of(a), t->packed);
            free(p);
            t->k = t->v = NULL;
            memset(c->out, 0, sizeof c->out);
            compute(a, t, round % 2 == 0);
            assert_memory_equal(c->out, want, sizeof want);
            free(t->packed);
            free(c);
        }
}

/* Sequences that share their first cells give the same to the bit, computed together and each by itself. */
static void a_shared_prefix_changes_nothing(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < EFFORT(40, 12); round++) {
            pool *p = pool_make(64, 64);
            call *c = draw(p, CELLS, 3.0);
            int32_t n_sequences = 2 + below(6), prefix = below(900), at = prefix;
            static int32_t cells[8][CELLS];
            static float alone[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
            c->task.n_kv = 1;
            c->task.n_heads = 1 + below(WEIR__ATTENTION_GROUPS / n_sequences * WEIR__ATTENTION_LANES);
            c->task.n_queries = n_sequences;
            choose_cells(c->cells, CELLS, true);
            for (int32_t i = 0; i < n_sequences; i++) {
                int32_t own = 1 + below((CELLS - prefix) / n_sequences - 1);
                memcpy(cells[i], c->cells, (size_t)prefix * sizeof *cells[i]);
                memcpy(cells[i] + prefix, c->cells + at, (size_t)own * sizeof *cells[i]);
                at += own;
                c->lists[i] = (weir__attention_list){cells[i], 0, prefix + own, i == 0 ? 0 : prefix};
                c->queries[i] = (weir__attention_query){.q = (const char *)c->q[i * c->task.n_heads],
                                                        .out = (char *)c->out[i * c->task.n_heads],
                                                        .list = i,
                                                        .to = prefix + own};
            }
            compute(a, &c->task, round % 2 == 0);
            for (int32_t i = 0; i < n_sequences; i++) {
                weir__attention_query one = c->queries[i];
                weir__attention_task t = c->task;
                one.out = (char *)alone;
                one.list = 0;
                t.lists = &c->lists[i];
                t.queries = &one;
                t.n_queries = 1;
                compute(a, &t, round % 3 == 0);
                for (int32_t h = 0; h < t.n_heads; h++)
                    assert_memory_equal(alone[h], c->out[i * t.n_heads + h],
                                        (size_t)t.size_v * sizeof(float));
            }
            free(c);
            free(p);
        }
}

/* All levels give the same to the bit, however long their vectors are. */
static void all_levels_give_the_same(void **state)
{
    (void)state;
    const weir__attention *best = weir__kernels_attention(0), *a;
    for (int level = 1; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < EFFORT(100, 20); round++) {
            size_t i = (size_t)round % (sizeof sizes / sizeof *sizes);
            pool *p = pool_make(sizes[i].k, sizes[i].v);
            /* Wide: weights down to the least numbers. */
            call *c = draw(p, CELLS, round % 3 == 0 ? 60.0 : 3.0);
            static float want[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
            compute(best, &c->task, false);
            memcpy(want, c->out, sizeof want);
            compute(a, &c->task, true);
            for (int32_t r = 0; r < c->task.n_queries * n_heads_of(&c->task); r++)
                assert_memory_equal(c->out[r], want[r], (size_t)p->v.size * sizeof(float));
            free(c);
            free(p);
        }
}

/* A NaN must stay one, and spoils its own row alone. */
static void a_nan_spoils_its_own_row_only(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < EFFORT(40, 12); round++) {
            pool *p = pool_make(64, 64);
            call *c = draw(p, CELLS, 1.0);
            int32_t n_rows = c->task.n_queries * n_heads_of(&c->task), spoilt = below(n_rows);
            c->q[spoilt][below(64)] = NAN;
            for (int32_t i = 0; i < c->task.n_queries; i++) c->queries[i].mask = NULL;
            compute(a, &c->task, round % 2 == 0);
            for (int32_t r = 0; r < n_rows; r++)
                for (int32_t d = 0; d < 64; d++) {
                    if (r == spoilt)
                        assert_true(isnan(c->out[r][d]));
                    else
                        assert_true(isfinite(c->out[r][d]));
                }
            free(c);
            free(p);
        }
}

/* A value of a cell that is no number reaches all rows that see the cell, in every format. */
static void no_number_in_a_value_is_seen(void **state)
{
    (void)state;
    static const uint32_t none[] = {0x7fc00000, 0x7e00, 0x7fc0, 0x7e00, 0x7e00}; /* the last two: a scale */
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int32_t format = 0; format < 5; format++) {
            pool *p = pool_make(64, 64);
            for (int i = 0; i < N_KV; i++) fill(&p[i].v, 64, format);
            call *c = draw(p, CELLS, 1.0);
            int32_t cell = c->cells[below(c->lists[0].n)];
            memcpy(p->v.cells[cell], &none[format], format == 0 ? 4 : 2);
            c->task.n_kv = c->task.n_heads = c->task.n_queries = 1;
            c->queries[0].from = c->lists[0].first;
            c->queries[0].to = c->lists[0].first + c->lists[0].n;
            c->queries[0].mask = NULL;
            compute(a, &c->task, below(2) == 0);
            assert_true(isnan(c->out[0][0]));
            free(c);
            free(p);
        }
}

/* A mask that hides everything leaves zeroes. */
static void nothing_seen_is_zero(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++) {
        pool *p = pool_make(64, 64);
        call *c = draw(p, 100, 1.0);
        c->task.n_queries = 2;
        c->task.n_kv = c->task.n_heads = 1;
        c->task.sinks = NULL;
        for (int32_t i = 0; i < 2; i++)
            c->queries[i] = (weir__attention_query){
                .q = (const char *)c->q[i], .out = (char *)c->out[i], .to = i == 0 ? c->lists[0].n : 0};
        c->lists[0].first = 0;
        memset(c->out, 0xff, sizeof c->out);
        compute(a, &c->task, false);
        for (int32_t d = 0; d < 64; d++) assert_true(c->out[1][d] == 0.0f && isfinite(c->out[0][d]));
        free(c);
        free(p);
    }
}

static void hidden_cells_are_left_out(void **state)
{
    (void)state;
    const weir__attention *a;
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int32_t n = 0; n < 200; n++) {
            uint16_t *mask = malloc((size_t)n * sizeof *mask + 1); /* exact: a sanitizer sees what is read */
            int32_t cells[200 + 31], want[200], n_want = 0;
            bool plain, all_zero = true;
            for (int32_t i = 0; i < n; i++) {
                float value = below(3) == 0 ? 0.0f : below(2) == 0 || n % 2 == 0 ? -INFINITY : -1.5f;
                mask[i] = ggml_fp32_to_fp16(value);
                if (value == -INFINITY) continue;
                want[n_want++] = i;
                all_zero = all_zero && value == 0.0f;
            }
            assert_int_equal(a->visible(mask, n, cells, &plain), n_want);
            if (n_want > 0) assert_memory_equal(cells, want, (size_t)n_want * sizeof *want);
            assert_int_equal(plain, all_zero);
            free(mask);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEVEL_TESTS,
        cmocka_unit_test(attention_is_what_it_says),
        cmocka_unit_test(a_query_does_not_depend_on_its_company),
        cmocka_unit_test(sums_need_no_more_than_their_most),
        cmocka_unit_test(packed_cells_give_the_same),
        cmocka_unit_test(a_shared_prefix_changes_nothing),
        cmocka_unit_test(all_levels_give_the_same),
        cmocka_unit_test(a_nan_spoils_its_own_row_only),
        cmocka_unit_test(no_number_in_a_value_is_seen),
        cmocka_unit_test(nothing_seen_is_zero),
        cmocka_unit_test(hidden_cells_are_left_out),
    };
    if (weir__kernels_attention(0) == NULL) return 77; /* none runs here */
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
