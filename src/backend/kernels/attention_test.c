/* Attention against sums in double precision, and against itself in other company.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml.h>

#include "backend/kernels/kernels.h"
#include "backend/kernels/levels_testing.h"

#define CELLS 700

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

/* Keys or values of one head in a pool of cells, and what they mean. */
typedef struct side {
    int32_t size;
    weir__attention_format format;
    unsigned char cells[CELLS][2 * WEIR__ATTENTION_SIZE];
    float is[CELLS][WEIR__ATTENTION_SIZE];
} side;

typedef struct pool {
    side k, v;
} pool;

static void fill(side *s, int32_t size, bool quantized)
{
    s->size = size;
    s->format = quantized ? WEIR__ATTENTION_Q8_0 : WEIR__ATTENTION_F16;
    enum ggml_type type = quantized ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    for (int32_t c = 0; c < CELLS; c++) {
        for (int32_t d = 0; d < size; d++) s->is[c][d] = (float)(2.0 * uniform());
        ggml_quantize_chunk(type, s->is[c], s->cells[c], 0, 1, size, NULL);
        ggml_get_type_traits(type)->to_float(s->cells[c], s->is[c], size);
    }
}

/* Some are quantized where they can be. */
static pool *pool_make(int32_t size_k, int32_t size_v)
{
    pool *p = calloc(1, sizeof *p);
    assert_non_null(p);
    fill(&p->k, size_k, size_k % 32 == 0 && below(2) == 0);
    fill(&p->v, size_v, size_v % 32 == 0 && below(2) == 0);
    return p;
}

static weir__attention_task task_of(const pool *p, const float *q, float *out, int32_t n_heads,
                                    const int32_t *cells)
{
    return (weir__attention_task){
        .q = (const char *)q,
        .q_query = sizeof(float) * WEIR__ATTENTION_SIZE * (size_t)n_heads,
        .q_head = sizeof(float) * WEIR__ATTENTION_SIZE,
        .out = (char *)out,
        .out_query = sizeof(float) * WEIR__ATTENTION_SIZE * (size_t)n_heads,
        .out_head = sizeof(float) * WEIR__ATTENTION_SIZE,
        .k = (const char *)p->k.cells,
        .v = (const char *)p->v.cells,
        .k_cell = sizeof p->k.cells[0],
        .v_cell = sizeof p->v.cells[0],
        .k_format = p->k.format,
        .v_format = p->v.format,
        .size_k = p->k.size,
        .size_v = p->v.size,
        .n_heads = n_heads,
        .scale = 1.0f / sqrtf((float)p->k.size),
        .cells = cells,
    };
}

/* A row of head h by its definition; the largest difference, relative to the largest value. */
static double difference(const pool *p, const weir__attention_task *t, int32_t h, const float *q,
                         const float *out, int32_t n_cells, const uint16_t *mask)
{
    static double weight[CELLS];
    double max = t->sinks != NULL ? (double)t->sinks[h] : -INFINITY, sum = 0, worst = 0;
    double cap = (double)t->softcap, slope = t->slopes != NULL ? (double)t->slopes[h] : 1.0;
    for (int32_t c = 0; c < n_cells; c++) {
        weight[c] = 0;
        for (int32_t d = 0; d < p->k.size; d++) weight[c] += (double)q[d] * (double)p->k.is[t->cells[c]][d];
        weight[c] *= (double)t->scale;
        if (cap != 0.0) weight[c] = cap * tanh(weight[c] / cap);
        if (mask != NULL) weight[c] += slope * (double)ggml_fp16_to_fp32(mask[t->cells[c]]);
        if (weight[c] > max) max = weight[c];
    }
    if (t->sinks != NULL) sum = exp((double)t->sinks[h] - max);
    for (int32_t c = 0; c < n_cells; c++) sum += weight[c] = exp(weight[c] - max);
    for (int32_t d = 0; d < p->v.size; d++) {
        double want = 0;
        for (int32_t c = 0; c < n_cells; c++) want += weight[c] / sum * (double)p->v.is[t->cells[c]][d];
        double off = fabs((double)out[d] - want) / 2.0;
        if (!(off <= worst)) worst = off;
    }
    return worst;
}

/* n different cells in ascending order. */
static void choose_cells(int32_t *cells, int32_t n, bool scattered)
{
    int32_t at = 0, left = CELLS;
    for (int32_t i = 0; i < n; left--, at++)
        if (!scattered || below(left) < n - i) cells[i++] = at;
}

static const struct {
    int32_t k, v;
} sizes[] = {{64, 64}, {80, 80}, {96, 96}, {112, 112}, {128, 128}, {256, 256}, {192, 128}, {16, 32}};

/* Softcap, slopes and sinks, or not; extras: room for slopes and sinks. */
static void draw_extras(weir__attention_task *t, float (*extras)[WEIR__ATTENTION_ROWS])
{
    for (int32_t h = 0; h < t->n_heads; h++) {
        extras[0][h] = (float)(0.5 + 0.5 * uniform());
        extras[1][h] = (float)(4.0 * uniform());
    }
    t->softcap = below(2) == 0 ? 0.0f : 2.0f + (float)below(40);
    t->slopes = below(2) == 0 ? NULL : extras[0];
    t->sinks = below(2) == 0 ? NULL : extras[1];
}

static void attention_is_what_it_says(void **state)
{
    (void)state;
    const weir__attention *a;
    static float q[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE],
        out[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
    static uint16_t mask[CELLS];
    static float extras[2][WEIR__ATTENTION_ROWS];
    int32_t cells[CELLS];
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            pool *p = NULL;
            for (int round = 0; round < 60; round++) {
                static const int32_t heads[] = {1, 2, 3, 4, 5, 8, 12};
                if (round % 15 == 0) free(p), p = pool_make(sizes[i].k, sizes[i].v);
                int32_t n_heads = heads[round % 7], n = 1 + below(WEIR__ATTENTION_ROWS / n_heads);
                int32_t n_cells[WEIR__ATTENTION_ROWS], most = 1 + below(round % 3 == 0 ? 70 : CELLS - 1);
                choose_cells(cells, most, round % 2 == 0);
                for (int32_t r = 0; r < n; r++) n_cells[r] = r == n - 1 ? most : 1 + below(most);
                for (int32_t r = 0; r < n * n_heads; r++)
                    for (int32_t d = 0; d < p->k.size; d++) q[r][d] = (float)(3.0 * uniform());
                for (int32_t c = 0; c < CELLS; c++) mask[c] = ggml_fp32_to_fp16((float)uniform());
                weir__attention_task t = task_of(p, q[0], out[0], n_heads, cells);
                if (round % 5 == 0) t.masks[0] = mask;
                draw_extras(&t, extras);
                a->attend(&t, n, n_cells);
                for (int32_t r = 0; r < n * n_heads; r++) {
                    double off = difference(p, &t, r % n_heads, q[r], out[r], n_cells[r / n_heads],
                                            t.masks[r / n_heads]);
                    if (!(off < 3e-6))
                        fail_msg("%s, heads of %d and %d (formats %d and %d), softcap %g%s%s: row %d of %d × "
                                 "%d, %d cells: off by %g",
                                 a->name, p->k.size, p->v.size, (int)p->k.format, (int)p->v.format,
                                 (double)t.softcap, t.slopes != NULL ? ", slopes" : "",
                                 t.sinks != NULL ? ", sinks" : "", r, n, n_heads, n_cells[r / n_heads], off);
                }
            }
            free(p);
        }
}

/* To the bit: alone or with others, wherever the cells lie. */
static void a_query_does_not_depend_on_its_company(void **state)
{
    (void)state;
    const weir__attention *a;
    static float q[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE],
        together[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
    static float alone[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE], extras[2][WEIR__ATTENTION_ROWS];
    int32_t cells[CELLS], moved[CELLS];
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < 60; round++) {
            int32_t size = sizes[(size_t)round % 6].k, n_heads = 1 + below(4),
                    n = WEIR__ATTENTION_ROWS / n_heads;
            int32_t n_cells[WEIR__ATTENTION_ROWS], most = n + below(400);
            pool *p = pool_make(size, size), *other = malloc(sizeof *other);
            assert_non_null(other);
            memcpy(other, p, sizeof *other);
            choose_cells(cells, most, true);
            choose_cells(moved, most, false);
            for (int32_t c = 0; c < most; c++) {
                memcpy(other->k.cells[moved[c]], p->k.cells[cells[c]], sizeof p->k.cells[0]);
                memcpy(other->v.cells[moved[c]], p->v.cells[cells[c]], sizeof p->v.cells[0]);
            }
            for (int32_t r = 0; r < n; r++) n_cells[r] = most - n + 1 + r;
            for (int32_t r = 0; r < n * n_heads; r++)
                for (int32_t d = 0; d < size; d++) q[r][d] = (float)(3.0 * uniform());
            weir__attention_task t = task_of(p, q[0], together[0], n_heads, cells);
            draw_extras(&t, extras);
            a->attend(&t, n, n_cells);
            for (int32_t i = 0; i < n; i++) {
                weir__attention_task one = task_of(other, q[i * n_heads], alone[i * n_heads], n_heads, moved);
                one.softcap = t.softcap;
                one.slopes = t.slopes;
                one.sinks = t.sinks;
                a->attend(&one, 1, &n_cells[i]);
                for (int32_t h = 0; h < n_heads; h++)
                    assert_memory_equal(alone[i * n_heads + h], together[i * n_heads + h],
                                        (size_t)size * sizeof(float));
            }
            free(p);
            free(other);
        }
}

/* To the bit, however long their vectors are. */
static void all_levels_give_the_same(void **state)
{
    (void)state;
    const weir__attention *best = weir__kernels_attention(0), *a;
    static float q[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE],
        want[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE], got[WEIR__ATTENTION_ROWS][WEIR__ATTENTION_SIZE];
    static uint16_t mask[CELLS];
    static float extras[2][WEIR__ATTENTION_ROWS];
    int32_t cells[CELLS];
    for (int level = 1; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < 200; round++) {
            size_t i = (size_t)round % (sizeof sizes / sizeof *sizes);
            pool *p = pool_make(sizes[i].k, sizes[i].v);
            int32_t n_heads = 1 + below(WEIR__ATTENTION_ROWS), n = 1 + below(WEIR__ATTENTION_ROWS / n_heads);
            int32_t n_cells[WEIR__ATTENTION_ROWS], most = 1 + below(CELLS - 1);
            float spread = round % 3 == 0 ? 60.0f : 3.0f; /* wide: weights down to the least numbers */
            choose_cells(cells, most, round % 2 == 0);
            for (int32_t r = 0; r < n; r++) n_cells[r] = r == n - 1 ? most : 1 + below(most);
            for (int32_t r = 0; r < n * n_heads; r++)
                for (int32_t d = 0; d < p->k.size; d++) q[r][d] = spread * (float)uniform();
            for (int32_t c = 0; c < CELLS; c++)
                mask[c] = ggml_fp32_to_fp16(below(9) == 0 ? -INFINITY : (float)uniform());
            weir__attention_task t = task_of(p, q[0], want[0], n_heads, cells);
            if (round % 5 == 0) t.masks[0] = mask;
            draw_extras(&t, extras);
            best->attend(&t, n, n_cells);
            t.out = (char *)got;
            a->attend(&t, n, n_cells);
            for (int32_t r = 0; r < n * n_heads; r++)
                assert_memory_equal(got[r], want[r], (size_t)p->v.size * sizeof(float));
            free(p);
        }
}

/* What is no number must not look like one. */
static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    const weir__attention *a;
    static float q[2][WEIR__ATTENTION_SIZE], out[2][WEIR__ATTENTION_SIZE];
    int32_t cells[CELLS], n_cells[] = {50, 90};
    choose_cells(cells, 90, false);
    for (int level = 0; (a = weir__kernels_attention(level)) != NULL; level++)
        for (int round = 0; round < 20; round++) {
            pool *p = pool_make(64, 64);
            for (int32_t d = 0; d < 64; d++) q[0][d] = q[1][d] = (float)uniform();
            weir__attention_task t = task_of(p, q[0], out[0], 1, cells);
            if (round % 2 == 0) t.softcap = 5.0f;
            q[1][below(64)] = NAN;
            a->attend(&t, 2, n_cells);
            for (int32_t d = 0; d < 64; d++) {
                assert_true(isfinite(out[0][d]));
                assert_true(isnan(out[1][d]));
            }
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
        cmocka_unit_test(all_levels_give_the_same),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(hidden_cells_are_left_out),
    };
    if (weir__kernels_attention(0) == NULL) return 77; /* none runs here */
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
