/* Products of packed weights against sums in double precision, ggml's own rounding, and themselves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "base/cpu.h"
#include "kernels/kernels.h"
#include "support/blocks.h"
#include "support/effort.h"
#include "support/levels.h"

static enum ggml_type types[WEIR__PANEL_N_FORMATS];

/* ggml's type of each format, by its name. */
static void find_types(void)
{
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
        int type = 0;
        while (type < GGML_TYPE_COUNT) {
            const char *name = ggml_type_name((enum ggml_type)type);
            if (name != NULL && strcmp(name, weir__panel_layouts[format].name) == 0) break;
            type++;
        }
        if (type == GGML_TYPE_COUNT) {
            fprintf(stderr, "ggml has no type %s\n", weir__panel_layouts[format].name);
            exit(EXIT_FAILURE);
        }
        types[format] = (enum ggml_type)type;
        weir__panel_learn((weir__panel_format)format, ggml_get_type_traits(types[format])->to_float);
    }
}

static dice rolled = {.state = 1}, blocks = {.state = 1};

static double uniform(void) /* -1 … 1 */
{
    return (double)(dice_roll(&rolled) >> 11) * 0x1p-52 - 1.0;
}

/* A product of n × k weights and m × k activations, and all that belongs to it. */
typedef struct product {
    const weir__gemm *gemm;
    weir__panel_format format;
    int64_t n, k, m;
    unsigned char *rows; /* the file's bytes */
    float *weights;      /* in single precision, [n][k] */
    unsigned char *panels;
    float *x; /* [m][k] */
    void *rounded;
    float *out; /* [m][n] */
} product;

static const weir__gemm *gemm_of(int format, int i)
{
    return weir__kernels_gemm((weir__panel_format)format, i);
}

static void *allocate(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xff, size); /* NaN */
    return memory;
}

static product product_make(const weir__gemm *gemm, int format, int64_t n, int64_t k, int64_t m)
{
    enum ggml_type type = types[format];
    product p = {.gemm = gemm, .format = (weir__panel_format)format, .n = n, .k = k, .m = m};
    p.weights = allocate((size_t)(n * k) * sizeof *p.weights);
    p.rows = allocate(ggml_row_size(type, k) * (size_t)n);
    p.panels = allocate(weir__panel_bytes(p.format, n, k) + 64);
    p.x = allocate((size_t)(m * k) * sizeof *p.x);
    p.rounded = allocate(weir__activations_bytes(gemm, m, k));
    p.out = allocate((size_t)(m * n) * sizeof *p.out);
    for (int64_t i = 0; i < n * k; i++) p.weights[i] = (float)(uniform() * uniform() * exp(2.0 * uniform()));
    for (int64_t i = 0; i < m * k; i++) p.x[i] = (float)(3.0 * uniform());
    return p;
}

/* The weights that the panels of integers hold, which are close to the original ones. */
static void read_integers(product *p)
{
    int64_t n_units = weir__units_in(p->k);
    for (int64_t i = 0; i < p->n * p->k; i++) {
        int64_t row = i / p->k, column = i % p->k, at = column / WEIR__UNIT * WEIR__UNIT;
        const unsigned char *unit = p->panels + (row / 16 * n_units + column / WEIR__UNIT) *
                                                    weir__panel_layouts[WEIR__PANEL_F32].unit_bytes;
        const float *original = (const float *)p->rows + row * p->k;
        double most = 0, squares = 0;
        for (int64_t c = at; c < at + WEIR__UNIT && c < p->k; c++) {
            most = fmax(most, fabs((double)original[c]));
            squares += (double)original[c] * (double)original[c];
        }
        double step = fmax(most / 32767, sqrt(squares) / 46300);
        float factor;
        int16_t q;
        memcpy(&q, unit + (column % 32 / 2 * 32 + row % 16 * 2 + column % 2) * 2, sizeof q);
        memcpy(&factor, unit + 1024 + row % 16 * 4, sizeof factor);
        p->weights[i] = (float)((double)q * (double)factor);
        if (most >= 0x1p-50 && isfinite(squares))
            assert_true(fabs((double)p->weights[i] - (double)original[column]) <= 0.504 * step);
    }
}

/* Rounds the weights to the format and packs them. */
static void pack(product *p)
{
    enum ggml_type type = types[p->format];
    float *importance = NULL;
    if (blocks_are_random(type))
        blocks_fill(type, p->rows, ggml_row_size(type, p->k) * (size_t)p->n, &blocks);
    else
        ggml_quantize_chunk(type, p->weights, p->rows, 0, p->n, p->k, importance);
    weir__panel_pack(p->format, p->k, p->rows, p->panels, 0, p->n / WEIR__PANEL_ROWS);
    if (p->format == WEIR__PANEL_F32)
        read_integers(p);
    else
        ggml_get_type_traits(type)->to_float(p->rows, p->weights, p->n * p->k);
}

static void multiply(product *p)
{
    int64_t n_units = weir__units_in(p->k);
    p->gemm->quantize(p->x, (size_t)p->k, 0, p->m, p->k, p->rounded, 0, p->m * n_units);
    p->gemm->multiply(p->format, p->panels, p->rounded, p->m, p->k, p->out, (size_t)p->n, 0,
                      p->n / WEIR__PANEL_ROWS);
}

static void product_free(product *p)
{
    free(p->weights);
    free(p->rows);
    free(p->panels);
    free(p->x);
    free(p->rounded);
    free(p->out);
}

/* A unit of the tile that a row is in. */
static const void *unit_of(const product *p, int64_t row, int64_t unit)
{
    int64_t at = row / weir__tile_rows(p->m) * weir__units_in(p->k) + unit;
    return (const char *)p->rounded + (size_t)at * p->gemm->unit_bytes;
}

/* The activation as it was rounded. */
static double rounded_at(const product *p, int64_t row, int64_t column)
{
    const void *unit = unit_of(p, row, column / WEIR__UNIT);
    int64_t r = row % weir__tile_rows(p->m), k = column % WEIR__UNIT;
    if (p->gemm->unit_bytes == sizeof(weir__activations_float))
        return (double)((const weir__activations_float *)unit)->x[r][k];
    if (p->gemm->unit_bytes == sizeof(weir__activations_bf16))
        return (double)ggml_bf16_to_fp32((ggml_bf16_t){((const weir__activations_bf16 *)unit)->x[r][k]});
    const weir__activations_integers *integers = unit;
    if (p->format == WEIR__PANEL_F32) return (double)integers->factor[r] * integers->q[r][k];
    const weir__activations *a = unit;
    return (double)a->scale[r] * a->q[r][k];
}

/* Sanitizers look at the kernels; of a large result, some rows are enough there. */
static void check(const product *p)
{
    for (int64_t row = 0; row < p->m; row += EFFORT(1, 5))
        for (int64_t n = 0; n < p->n; n++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p->k; k++) {
                double term = (double)p->weights[n * p->k + k] * rounded_at(p, row, k);
                sum += term;
                size += fabs(term);
            }
            double got = (double)p->out[row * p->n + n];
            /* Each unit adds one or two roundings, or each column one; a minimum and its values may cancel
             * each other. */
            if (!(fabs(got - sum) <= 4e-6 * size + 1e-30))
                fail_msg("%s, %s: %lld × %lld × %lld, [%lld][%lld] is %.9g, not %.9g", p->gemm->name,
                         weir__panel_layouts[p->format].name, (long long)p->m, (long long)p->n,
                         (long long)p->k, (long long)row, (long long)n, got, sum);
        }
}

/* ---- Tests ----------------------------------------------------------------------------------------- */

/* The number of columns is a multiple of this. */
static int64_t columns_of(int format)
{
    return format == WEIR__PANEL_F32 ? WEIR__UNIT / 2 : weir__panel_layouts[format].columns;
}

static void products_are_right(void **state)
{
    (void)state;
    static const int64_t ks[] = {32, 64, 96, 256, 576, 1536, 16, 80, 592}, ns[] = {16, 48};
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++)
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                if (ks[i] % columns_of(format) != 0) continue;
                for (int64_t m = 1; m <= 70; m = m < 20 ? m + 1 : m * 2 - 7) {
                    if (EFFORT(false, m % 3 != (int64_t)i % 3)) continue; /* each m and each k */
                    product p = product_make(gemm_of(format, g), format, ns[m % 2], ks[i], m);
                    pack(&p);
                    multiply(&p);
                    check(&p);
                    product_free(&p);
                }
            }
}

/* A row has the same bits whatever rows are multiplied with it, and however the work is divided. */
static void a_row_does_not_depend_on_its_company(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++) {
            const weir__gemm *gemm = gemm_of(format, g);
            product all = product_make(gemm, format, 64, 512 + columns_of(format) % WEIR__UNIT, 45);
            pack(&all);
            multiply(&all);
            for (int64_t m = 1; m < 45; m += 3) {
                int64_t from = m % 2 == 0 ? 0 : 45 - m;
                product some = all;
                float *out = allocate((size_t)(m * all.n) * sizeof *out);
                some.rounded = allocate(weir__activations_bytes(gemm, m, all.k));
                some.x += from * all.k;
                some.m = m;
                int64_t units = m * weir__units_in(all.k), half = units / 3;
                gemm->quantize(some.x, (size_t)all.k, 0, m, all.k, some.rounded, half, units);
                gemm->quantize(some.x, (size_t)all.k, 0, m, all.k, some.rounded, 0, half);
                gemm->multiply(some.format, some.panels, some.rounded, m, all.k, out, 64, 3, 4);
                gemm->multiply(some.format, some.panels, some.rounded, m, all.k, out, 64, 0, 3);
                assert_memory_equal(out, all.out + from * all.n, (size_t)(m * all.n) * sizeof *out);
                free(some.rounded);
                free(out);
            }
            product_free(&all);
        }
}

/* Rows of a batch so large that it is passed over in several parts, which stay in a cache, are those of small
 * ones. */
static void rows_of_a_large_batch_are_those_of_small_ones(void **state)
{
    (void)state;
    static const int64_t from[] = {0, 511, 513, 1024, 2031};
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++) {
            product all = product_make(gemm_of(format, g), format, 32, 512, 2048);
            pack(&all);
            multiply(&all);
            for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
                product some = all;
                some.m = 17;
                some.x += from[i] * all.k;
                some.rounded = allocate(weir__activations_bytes(all.gemm, some.m, all.k));
                some.out = allocate((size_t)(some.m * all.n) * sizeof *some.out);
                multiply(&some);
                if (i == 0) check(&some);
                assert_memory_equal(some.out, all.out + from[i] * all.n,
                                    (size_t)(some.m * all.n) * sizeof *some.out);
                free(some.rounded);
                free(some.out);
            }
            product_free(&all);
        }
}

/* All levels that round activations in the same way give the same bits, whatever the length of a vector. */
static void all_levels_give_the_same(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 1; (gemm = gemm_of(format, g)) != NULL; g++) {
            const weir__gemm *above = gemm_of(format, g - 1);
            if (gemm->unit_bytes != above->unit_bytes) continue; /* BF16 by vdpbf16ps */
            for (int64_t m = 1; m < 36; m += 1 + m / 9) {
                product p = product_make(above, format, 48, 768 + columns_of(format) % WEIR__UNIT, m);
                size_t size = (size_t)(p.m * p.n) * sizeof(float);
                size_t bytes = weir__activations_bytes(gemm, m, p.k);
                for (int64_t i = 0; i < m * p.k; i++) p.x[i] *= (float)exp(20.0 * uniform());
                pack(&p);
                multiply(&p);
                float *want = p.out;
                void *rounded = p.rounded;
                p.gemm = gemm;
                p.out = allocate(size);
                p.rounded = allocate(bytes);
                multiply(&p);
                assert_memory_equal(p.rounded, rounded, bytes);
                assert_memory_equal(p.out, want, size);
                free(want);
                free(rounded);
                product_free(&p);
            }
        }
}

/* Zen 4 takes one panel at a time where others take two. */
static void a_processor_decides_about_speed_only(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int64_t m = 1; m < 36 && gemm_of(format, 0) != NULL; m += 1 + m / 9) {
            product p =
                product_make(gemm_of(format, 0), format, 48, 768 + columns_of(format) % WEIR__UNIT, m);
            size_t size = (size_t)(p.m * p.n) * sizeof(float);
            pack(&p);
            multiply(&p);
            float *want = p.out;
            p.out = allocate(size);
            weir__cpu_hide(WEIR__CPU_ZEN4);
            multiply(&p);
            weir__cpu_hide(0);
            assert_memory_equal(p.out, want, size);
            free(want);
            product_free(&p);
        }
}

/* Activations are ggml's Q8_0, to the bit. */
static void activations_are_rounded_as_ggml_rounds_them(void **state)
{
    (void)state;
    for (int g = 0; gemm_of(WEIR__PANEL_Q8_0, g) != NULL; g++) {
        product p = product_make(gemm_of(WEIR__PANEL_Q8_0, g), WEIR__PANEL_Q8_0, 16, 256, 19);
        unsigned char *theirs = allocate(ggml_row_size(GGML_TYPE_Q8_0, p.k) * (size_t)p.m);
        for (int64_t i = 0; i < p.m * p.k; i++) p.x[i] *= (float)exp(40.0 * (double)(i / 32 % 3 - 1) * 0.2);
        memset(p.x, 0, 64 * sizeof *p.x);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(p.x, theirs, p.m * p.k);
        multiply(&p);
        int64_t rows = weir__tile_rows(p.m), n_units = p.k / WEIR__UNIT;
        for (int64_t u = 0; u < p.m * n_units; u++) {
            const weir__activations *a = unit_of(&p, u / n_units, u % n_units);
            int64_t r = u / n_units % rows;
            ggml_fp16_t d;
            memcpy(&d, theirs + u * 34, sizeof d);
            assert_memory_equal(a->q[r], theirs + u * 34 + 2, WEIR__UNIT);
            float scale = ggml_fp16_to_fp32(d);
            assert_memory_equal(&a->scale[r], &scale, sizeof scale);
            int32_t sum = 0, half = 0;
            for (int k = 0; k < WEIR__UNIT; k++) {
                sum += a->q[r][k];
                half += k < 16 ? a->q[r][k] : 0;
            }
            assert_int_equal(a->minus[r], -sum);
            assert_int_equal(a->minus_half[r], -half);
            float total = scale * (float)sum;
            assert_memory_equal(&a->sum[r], &total, sizeof total);
        }
        free(theirs);
        product_free(&p);
    }
}

/* Activations are ggml's BF16 and F16, to the bit; but kernels with vdpbf16ps may take subnormal numbers for
 * zero. */
static void activations_are_rounded_to_the_format_of_the_weights(void **state)
{
    (void)state;
    static const float odd[] = {0.0f,        -0.0f,       INFINITY,       -INFINITY,      NAN,   -NAN,
                                65519.9f,    65520.0f,    3e38f,          3.4e38f,        6e-8f, -2.9e-8f,
                                1.00390625f, 1.01171875f, 1.00048828125f, 1.00146484375f, 1e-40f};
    for (int format = WEIR__PANEL_BF16; format <= WEIR__PANEL_F16; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++) {
            product p = product_make(gemm_of(format, g), format, 16, 96, 19);
            uint16_t *theirs = allocate((size_t)(p.m * p.k) * sizeof *theirs);
            for (int64_t i = 0; i < p.m * p.k; i++)
                p.x[i] = i % 3 == 0 ? odd[i / 3 % (int64_t)(sizeof odd / sizeof *odd)]
                                    : p.x[i] * (float)exp(20.0 * uniform());
            ggml_get_type_traits_cpu(types[format])->from_float(p.x, theirs, p.m * p.k);
            p.gemm->quantize(p.x, (size_t)p.k, 0, p.m, p.k, p.rounded, 0, p.m * p.k / WEIR__UNIT);
            for (int64_t i = 0; i < p.m * p.k; i++) {
                float value, ours = (float)rounded_at(&p, i / p.k, i % p.k);
                ggml_get_type_traits(types[format])->to_float(theirs + i, &value, 1);
                if (p.gemm->unit_bytes == sizeof(weir__activations_bf16) && fabsf(p.x[i]) < 0x1p-126f)
                    value = copysignf(0.0f, value);
                assert_memory_equal(&ours, &value, sizeof value);
            }
            free(theirs);
            product_free(&p);
        }
}

/* The mean square of a product's errors, from weights in F16 and activations as they are. */
static double error_of(product *p, const float *weights)
{
    double squares = 0;
    multiply(p);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < p->k; k++)
            sum += (double)weights[i % p->n * p->k + k] * (double)p->x[i / p->n * p->k + k];
        squares += ((double)p->out[i] - sum) * ((double)p->out[i] - sum);
    }
    return squares / (double)(p->m * p->n);
}

/* Weights in F16, as integers and as they are; a few activations are much larger than others. */
static void integers_are_no_less_exact_than_f16(void **state)
{
    (void)state;
    const weir__gemm *as_f16 = gemm_of(WEIR__PANEL_F16, 0), *as_integers = gemm_of(WEIR__PANEL_F32, 0);
    for (double outlier = 1; outlier < 2000; outlier *= 10)
        for (int every = 3; every < 100; every += 48) {
            product f16 = product_make(as_f16, WEIR__PANEL_F16, 48, 1152, 16);
            product integers = product_make(as_integers, WEIR__PANEL_F32, 48, 1152, 16);
            for (int64_t i = 0; i < f16.m * f16.k; i++) {
                /* Roughly normal. */
                f16.x[i] = (float)(uniform() + uniform() + uniform() + uniform());
                if (i % every == 0) f16.x[i] *= (float)outlier;
                integers.x[i] = f16.x[i];
            }
            for (int64_t i = 0; i < f16.n * f16.k; i++)
                f16.weights[i] = (float)(uniform() + uniform() + uniform() + uniform());
            pack(&f16); /* rounds the weights */
            memcpy(integers.weights, f16.weights, (size_t)(f16.n * f16.k) * sizeof *f16.weights);
            pack(&integers);
            double theirs = error_of(&f16, f16.weights), ours = error_of(&integers, f16.weights);
            print_message("every %d-th × %g: rms of errors %.3g, in F16 %.3g\n", every, outlier, sqrt(ours),
                          sqrt(theirs));
            assert_true(ours <= theirs);
            product_free(&f16);
            product_free(&integers);
        }
}

static void ends_of_the_ranges(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++) {
            product p = product_make(gemm_of(format, g), format, 32, 512, 6);
            float largest = format == WEIR__PANEL_F16 ? 65504.0f : 60000.0f * 127.0f;
            for (int64_t i = 0; i < p.n * p.k; i++) {
                int64_t block = i / 256 % 4;
                float sign = uniform() < 0 ? -1.0f : 1.0f;
                if (i / p.k % 3 == 2) { /* nearly all at the upper end */
                    p.weights[i] = i % 16 == 0 ? -1.0f : 1.0f;
                    continue;
                }
                p.weights[i] = block == 0   ? 0.0f
                               : block == 1 ? sign * 8192.0f
                               : block == 2 ? sign * 1e-7f
                                            : sign;
            }
            for (int64_t i = 0; i < p.m * p.k; i++) {
                float sign = uniform() < 0 ? -1.0f : 1.0f;
                p.x[i] = i / p.k == 0   ? 0.0f
                         : i / p.k == 1 ? largest * sign
                         : i / p.k == 2 ? 1e-4f * sign
                         : i / p.k == 4 ? 1.0f
                         : i / p.k == 5 ? -1.0f
                                        : sign;
            }
            pack(&p);
            multiply(&p);
            check(&p);
            product_free(&p);
        }
}

/* Blocks whose values have the largest sum, and the least, of all with a head of 1. The first two of each
 * four columns count most: AVX2 adds these up in sixteen bits, and the largest entry of a codebook need not
 * have the largest of them. */
typedef struct ends {
    unsigned char blocks[2][256];
} ends;

/* That sum of a block's numbers; -INFINITY if one is none. */
static double sum_of(enum ggml_type type, const unsigned char *block, double sign)
{
    float numbers[256];
    double sum = 0;
    ggml_get_type_traits(type)->to_float(block, numbers, ggml_blck_size(type));
    for (int64_t i = 0; i < ggml_blck_size(type); i++)
        sum += sign * (double)numbers[i] * (i % 4 < 2 ? 1 : 0.125);
    return isfinite(sum) ? sum : (double)-INFINITY;
}

/* Sets one byte after the other to what makes the sum largest. */
static double improve(enum ggml_type type, unsigned char *block, double sign)
{
    double best = sum_of(type, block, sign);
    for (size_t at = 0; at < ggml_type_size(type); at++) {
        unsigned head = block_head_bits(type, at), found = block[at];
        for (unsigned x = 0; x < 256 && head != 0xff; x++) {
            if (((x ^ found) & head) != 0) continue;
            block[at] = (unsigned char)x;
            double sum = sum_of(type, block, sign);
            if (sum > best) best = sum, found = x;
        }
        block[at] = (unsigned char)found;
    }
    return best;
}

/* Index bits may lie in two bytes: the search begins with different ones. */
static void find_ends(enum ggml_type type, ends *e)
{
    static const unsigned char fills[] = {0, 0x55, 0xaa, 0xff};
    for (int s = 0; s < 2; s++) {
        double best = (double)-INFINITY, sign = s == 0 ? 1 : -1;
        for (size_t f = 0; f < sizeof fills; f++) {
            unsigned char block[256];
            memset(block, fills[f], sizeof block);
            block_set_head(type, block, 1.0f);
            improve(type, block, sign);
            double sum = improve(type, block, sign);
            if (sum > best) best = sum, memcpy(e->blocks[s], block, sizeof block);
        }
        assert_true(best > 0);
    }
}

/* All values are at one end, or zeroes by their head, and activations are the largest: no sum of integers may
 * overflow. */
static void all_values_at_an_end(void **state)
{
    (void)state;
    static const float heads[] = {1.0f, 0.0f, 65504.0f, -1.0f};
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
        enum ggml_type type = types[format];
        ends e;
        if (!blocks_are_random(type)) continue;
        find_ends(type, &e);
        for (int g = 0; gemm_of(format, g) != NULL; g++)
            for (int64_t m = 1; m <= 6; m += 5) {
                product p = product_make(gemm_of(format, g), format, 16, 512, m);
                size_t block = ggml_type_size(type), n_blocks = (size_t)(p.k / ggml_blck_size(type));
                for (size_t b = 0; b < 16 * n_blocks; b++) { /* of the upper end, the lower, both */
                    size_t row = b / n_blocks, which = row % 4 < 2 ? row % 4 : b % 2;
                    memcpy(p.rows + b * block, e.blocks[which], block);
                    block_set_head(type, p.rows + b * block, heads[row / 4]);
                }
                for (int64_t i = 0; i < m * p.k; i++)
                    p.x[i] = i / p.k % 2 == 0 ? 1.0f : i / p.k < 4 ? -1.0f : i % 3 == 0 ? 1.0f : -1.0f;
                weir__panel_pack(p.format, p.k, p.rows, p.panels, 0, 1);
                ggml_get_type_traits(type)->to_float(p.rows, p.weights, p.n * p.k);
                multiply(&p);
                check(&p);
                product_free(&p);
            }
    }
}

/* All levels agree on what an infinite activation makes of its row. */
static void infinities_are_the_same_at_all_levels(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 1; (gemm = gemm_of(format, g)) != NULL; g++) {
            const weir__gemm *above = gemm_of(format, g - 1);
            if (gemm->unit_bytes != above->unit_bytes) continue;
            product p = product_make(above, format, 16, 256, 2);
            for (int64_t i = 0; i < p.k; i += 7) p.x[i] = i % 2 == 0 ? INFINITY : -INFINITY;
            pack(&p);
            multiply(&p);
            float *want = p.out;
            p.gemm = gemm;
            p.out = allocate((size_t)(p.m * p.n) * sizeof *want);
            multiply(&p);
            for (int64_t i = 0; i < p.m * p.n; i++)
                assert_true(p.out[i] == want[i] || (isnan(p.out[i]) && isnan(want[i])));
            free(want);
            product_free(&p);
        }
}

/* A NaN must stay one. */
static void infinities_and_nans_stay_in_their_row(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL; g++)
            for (int what = 0; what < 3; what++) {
                static const float odd[] = {NAN, INFINITY, -INFINITY};
                product p = product_make(gemm_of(format, g), format, 16, 256, 3);
                pack(&p);
                for (int column = 0; column < 2 * WEIR__UNIT;
                     column++) { /* each kernel looks at a unit in parts */
                    float was = p.x[p.k + column];
                    p.x[p.k + column] = odd[what];
                    multiply(&p);
                    for (int64_t n = 0; n < p.n; n++) {
                        assert_true(isfinite(p.out[n]) && isfinite(p.out[2 * p.n + n]));
                        assert_false(isfinite(p.out[p.n + n]));
                    }
                    p.x[p.k + column] = was;
                }
                product_free(&p);
            }
}

/* The place of a row's scale, or of its weights that have none, in a block of the file; -1: a format without
 * a NaN, or with its number in pieces. */
static int scale_at(int format)
{
    if (format == WEIR__PANEL_F32) return 2; /* its upper half */
    return block_halves_of(types[format]).at[0];
}

/* A scale that is no number, as in a damaged file, spoils its own row of weights and no other. */
static void weights_that_are_no_numbers_spoil_their_row(void **state)
{
    (void)state;
    static const uint16_t odd[] = {0x7e00, 0x7c00, 0xfc00}, odd_bf16[] = {0x7fc0, 0x7f80, 0xff80};
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        for (int g = 0; gemm_of(format, g) != NULL && scale_at(format) >= 0; g++)
            for (int what = 0; what < 3; what++)
                for (int64_t m = 1; m <= 5; m += 2) {
                    product p = product_make(gemm_of(format, g), format, 32, 512, m);
                    const int64_t row = 5 + 16 * (m % 3 == 0);
                    pack(&p);
                    size_t at = ggml_row_size(types[format], p.k) * (size_t)row + (size_t)scale_at(format);
                    memcpy(p.rows + at,
                           format == WEIR__PANEL_BF16 || format == WEIR__PANEL_F32 ? &odd_bf16[what]
                                                                                   : &odd[what],
                           2);
                    weir__panel_pack(p.format, p.k, p.rows, p.panels, 0, p.n / WEIR__PANEL_ROWS);
                    if (format != WEIR__PANEL_F32) {
                        ggml_get_type_traits(types[format])->to_float(p.rows, p.weights, p.n * p.k);
                        assert_false(isfinite(p.weights[row * p.k])); /* ggml's */
                    }
                    multiply(&p);
                    for (int64_t i = 0; i < m * p.n; i++)
                        assert_int_equal(isfinite(p.out[i]) != 0, i % p.n != row);
                    product_free(&p);
                }
}

static void a_panel_is_hardly_larger_than_the_file(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
        size_t file = ggml_row_size(types[format], 2048) * 512;
        size_t ours = weir__panel_bytes((weir__panel_format)format, 512, 2048);
        /* Integers of 16 bits take half of a float. */
        if (format == WEIR__PANEL_F32) file = file / 2 + file / 33;
        /* Indices of eleven bits take twelve, signs of seven bits eight, scales of six bits eight,
         * numbers of 1.6 bits two. */
        size_t more = weir__panel_has_codes((weir__panel_format)format) ? file / 12
                      : format == WEIR__PANEL_TQ1_0                     ? file * 2 / 9
                                                                        : file / 25;
        assert_true(ours >= file && ours <= file + more);
        assert_true(weir__panel_is_known((weir__panel_format)format));
        int32_t columns = weir__panel_layouts[format].columns;
        assert_int_equal(columns % ggml_blck_size(types[format]), 0);
        assert_int_equal(weir__panel_layouts[format].block_bytes, ggml_row_size(types[format], columns));
        assert_string_equal(weir__panel_layouts[format].name, ggml_type_name(types[format]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEVEL_TESTS,
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(a_row_does_not_depend_on_its_company),
        cmocka_unit_test(rows_of_a_large_batch_are_those_of_small_ones),
        cmocka_unit_test(all_levels_give_the_same),
        cmocka_unit_test(a_processor_decides_about_speed_only),
        cmocka_unit_test(activations_are_rounded_as_ggml_rounds_them),
        cmocka_unit_test(activations_are_rounded_to_the_format_of_the_weights),
        cmocka_unit_test(integers_are_no_less_exact_than_f16),
        cmocka_unit_test(ends_of_the_ranges),
        cmocka_unit_test(all_values_at_an_end),
        cmocka_unit_test(infinities_are_the_same_at_all_levels),
        cmocka_unit_test(infinities_and_nans_stay_in_their_row),
        cmocka_unit_test(weights_that_are_no_numbers_spoil_their_row),
        cmocka_unit_test(a_panel_is_hardly_larger_than_the_file),
    };
    int n = 0;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) n += gemm_of(format, 0) != NULL;
    if (n == 0) return 77; /* none runs here */
    ggml_cpu_init();
    find_types();
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
