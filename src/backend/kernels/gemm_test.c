/* Products of packed weights against sums in double precision, ggml's own rounding, and themselves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/kernels/gemm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "backend/kernels/kernels.h"

static const enum ggml_type types[WEIR__PANEL_N_FORMATS] = {
    GGML_TYPE_Q8_0,   GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
    GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
};

static uint64_t dice = 88172645463325252u;

static double uniform(void) /* -1 … 1 */
{
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (double)(dice >> 11) * 0x1p-52 - 1.0;
}

/* A product of n × k weights and m × k activations, and all that belongs to it. */
typedef struct product {
    weir__panel_format format;
    int64_t n, k, m;
    unsigned char *rows; /* the file's bytes */
    float *weights;      /* what they mean, [n][k] */
    unsigned char *panels;
    float *x; /* [m][k] */
    weir__activations *rounded;
    float *out; /* [m][n] */
} product;

static void *allocate(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xff, size); /* NaN */
    return memory;
}

static product product_make(weir__panel_format format, int64_t n, int64_t k, int64_t m)
{
    enum ggml_type type = types[format];
    product p = {.format = format, .n = n, .k = k, .m = m};
    p.weights = allocate((size_t)(n * k) * sizeof *p.weights);
    p.rows = allocate(ggml_row_size(type, k) * (size_t)n);
    p.panels = allocate(weir__panel_bytes(format, n, k) + 64);
    p.x = allocate((size_t)(m * k) * sizeof *p.x);
    p.rounded = allocate(weir__activations_bytes(m, k));
    p.out = allocate((size_t)(m * n) * sizeof *p.out);
    for (int64_t i = 0; i < n * k; i++) p.weights[i] = (float)(uniform() * uniform() * exp(2.0 * uniform()));
    for (int64_t i = 0; i < m * k; i++) p.x[i] = (float)(3.0 * uniform());
    return p;
}

/* Rounds the weights to the format and packs them. */
static void pack(product *p)
{
    enum ggml_type type = types[p->format];
    float *importance = NULL;
    ggml_quantize_chunk(type, p->weights, p->rows, 0, p->n, p->k, importance);
    ggml_get_type_traits(type)->to_float(p->rows, p->weights, p->n * p->k);
    weir__panel_pack(p->format, p->k, p->rows, p->panels, 0, p->n / WEIR__PANEL_ROWS);
}

static void multiply(product *p, const weir__gemm *gemm)
{
    int64_t n_units = p->k / WEIR__UNIT;
    gemm->quantize(p->x, (size_t)p->k, 0, p->m, p->k, p->rounded, 0, p->m * n_units);
    gemm->multiply(p->format, p->panels, p->rounded, p->m, p->k, p->out, (size_t)p->n, 0,
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

/* The activation as it was rounded. */
static double rounded_at(const product *p, int64_t row, int64_t column)
{
    int64_t rows = weir__tile_rows(p->m);
    const weir__activations *a = p->rounded + row / rows * (p->k / WEIR__UNIT) + column / WEIR__UNIT;
    return (double)a->scale[row % rows] * a->q[row % rows][column % WEIR__UNIT];
}

static void check(const product *p, const weir__gemm *gemm)
{
    for (int64_t row = 0; row < p->m; row++)
        for (int64_t n = 0; n < p->n; n++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p->k; k++) {
                double term = (double)p->weights[n * p->k + k] * rounded_at(p, row, k);
                sum += term;
                size += fabs(term);
            }
            double got = (double)p->out[row * p->n + n];
            /* Each unit adds one or two roundings; a minimum and its values may cancel each other. */
            if (!(fabs(got - sum) <= 4e-6 * size + 1e-30))
                fail_msg("%s, %s: %lld × %lld × %lld, [%lld][%lld] is %.9g, not %.9g", gemm->name,
                         weir__panel_layouts[p->format].name, (long long)p->m, (long long)p->n,
                         (long long)p->k, (long long)row, (long long)n, got, sum);
        }
}

/* ---- Tests ----------------------------------------------------------------------------------------- */

static void products_are_right(void **state)
{
    (void)state;
    static const int64_t ks[] = {32, 64, 96, 256, 576, 1536}, ns[] = {16, 48};
    const weir__gemm *gemm;
    for (int g = 0; (gemm = weir__kernels_gemm(g)) != NULL; g++)
        for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                if (ks[i] % weir__panel_layouts[format].columns != 0) continue;
                for (int64_t m = 1; m <= 70; m = m < 20 ? m + 1 : m * 2 - 7) {
                    product p = product_make((weir__panel_format)format, ns[m % 2], ks[i], m);
                    pack(&p);
                    multiply(&p, gemm);
                    check(&p, gemm);
                    product_free(&p);
                }
            }
}

/* The same bits whatever else is multiplied at the same time, and in whatever parts. */
static void a_row_does_not_depend_on_its_company(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int g = 0; (gemm = weir__kernels_gemm(g)) != NULL; g++)
        for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
            product all = product_make((weir__panel_format)format, 64, 512, 45);
            pack(&all);
            multiply(&all, gemm);
            for (int64_t m = 1; m < 45; m += 3) {
                int64_t from = m % 2 == 0 ? 0 : 45 - m;
                product some = all;
                float *out = allocate((size_t)(m * all.n) * sizeof *out);
                some.rounded = allocate(weir__activations_bytes(m, all.k));
                some.x += from * all.k;
                some.m = m;
                int64_t units = m * (all.k / WEIR__UNIT), half = units / 3;
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

/* To the bit, however long their vectors are. */
static void all_levels_give_the_same(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int g = 1; (gemm = weir__kernels_gemm(g)) != NULL; g++)
        for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
            for (int64_t m = 1; m < 36; m += 1 + m / 9) {
                product p = product_make((weir__panel_format)format, 32, 768, m);
                size_t size = (size_t)(p.m * p.n) * sizeof(float), bytes = weir__activations_bytes(m, p.k);
                for (int64_t i = 0; i < m * p.k; i++) p.x[i] *= (float)exp(20.0 * uniform());
                pack(&p);
                multiply(&p, weir__kernels_gemm(0));
                float *want = p.out;
                weir__activations *rounded = p.rounded;
                p.out = allocate(size);
                p.rounded = allocate(bytes);
                multiply(&p, gemm);
                assert_memory_equal(p.rounded, rounded, bytes);
                assert_memory_equal(p.out, want, size);
                free(want);
                free(rounded);
                product_free(&p);
            }
}

/* As ggml's Q8_0, to the bit. */
static void activations_are_rounded_as_ggml_rounds_them(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int g = 0; (gemm = weir__kernels_gemm(g)) != NULL; g++) {
        product p = product_make(WEIR__PANEL_Q8_0, 16, 256, 19);
        unsigned char *theirs = allocate(ggml_row_size(GGML_TYPE_Q8_0, p.k) * (size_t)p.m);
        for (int64_t i = 0; i < p.m * p.k; i++) p.x[i] *= (float)exp(40.0 * (double)(i / 32 % 3 - 1) * 0.2);
        memset(p.x, 0, 64 * sizeof *p.x);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(p.x, theirs, p.m * p.k);
        multiply(&p, gemm);
        int64_t rows = weir__tile_rows(p.m), n_units = p.k / WEIR__UNIT;
        for (int64_t u = 0; u < p.m * n_units; u++) {
            const weir__activations *a = p.rounded + u / n_units / rows * n_units + u % n_units;
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

static void ends_of_the_ranges(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int g = 0; (gemm = weir__kernels_gemm(g)) != NULL; g++)
        for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
            product p = product_make((weir__panel_format)format, 32, 512, 6);
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
                         : i / p.k == 1 ? 60000.0f * 127.0f * sign
                         : i / p.k == 2 ? 1e-4f * sign
                         : i / p.k == 4 ? 1.0f
                         : i / p.k == 5 ? -1.0f
                                        : sign;
            }
            pack(&p);
            multiply(&p, gemm);
            check(&p, gemm);
            product_free(&p);
        }
}

/* What is no number must not look like one. */
static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    const weir__gemm *gemm;
    for (int g = 0; (gemm = weir__kernels_gemm(g)) != NULL; g++)
        for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
            for (int what = 0; what < 3; what++) {
                static const float odd[] = {NAN, INFINITY, -INFINITY};
                product p = product_make((weir__panel_format)format, 16, 256, 3);
                pack(&p);
                p.x[p.k + 37] = odd[what];
                multiply(&p, gemm);
                for (int64_t n = 0; n < p.n; n++) {
                    assert_true(isfinite(p.out[n]) && isfinite(p.out[2 * p.n + n]));
                    assert_false(isfinite(p.out[p.n + n]));
                }
                product_free(&p);
            }
}

static void a_panel_is_hardly_larger_than_the_file(void **state)
{
    (void)state;
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++) {
        size_t file = ggml_row_size(types[format], 2048) * 512;
        size_t ours = weir__panel_bytes((weir__panel_format)format, 512, 2048);
        assert_true(ours >= file && ours <= file + file / 33);
        assert_int_equal(weir__panel_layouts[format].columns, ggml_blck_size(types[format]));
        assert_int_equal(weir__panel_layouts[format].block_bytes, ggml_type_size(types[format]));
        assert_string_equal(weir__panel_layouts[format].name, ggml_type_name(types[format]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(a_row_does_not_depend_on_its_company),
        cmocka_unit_test(all_levels_give_the_same),
        cmocka_unit_test(activations_are_rounded_as_ggml_rounds_them),
        cmocka_unit_test(ends_of_the_ranges),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(a_panel_is_hardly_larger_than_the_file),
    };
    if (weir__kernels_gemm(0) == NULL) return 77; /* none runs here */
    ggml_cpu_init();
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
