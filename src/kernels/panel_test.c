/* The order of panels is kept in files: a change of it needs a new WEIR__PANEL_VERSION.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/panel.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "support/dice.h"

#define ROWS    32
#define COLUMNS 512

/* Checksums of the formats' panels with version 1, of the same bytes. */
static const struct {
    weir__panel_format format;
    uint64_t hash;
} known[] = {
    {WEIR__PANEL_Q8_0, 0x70301e02b69d0cb7},    {WEIR__PANEL_Q4_0, 0x25ca86c697ea72a0},
    {WEIR__PANEL_Q4_1, 0x069801d808c1c61a},    {WEIR__PANEL_Q5_0, 0x956f2104bb97b38b},
    {WEIR__PANEL_Q5_1, 0xf3f8fcff9407f06d},    {WEIR__PANEL_IQ4_NL, 0x25ca86c697ea72a0},
    {WEIR__PANEL_MXFP4, 0x4e5324c87e1fa288},   {WEIR__PANEL_Q4_K, 0xb853dfee29d15ea8},
    {WEIR__PANEL_Q5_K, 0x3a450b6470fd1cc0},    {WEIR__PANEL_Q6_K, 0x48105c33dccad81d},
    {WEIR__PANEL_BF16, 0x97e52985281df071},    {WEIR__PANEL_F16, 0x77f28fcbf3b53b72},
    {WEIR__PANEL_F32, 0xd0920938501f2c44},     {WEIR__PANEL_Q2_K, 0x7a4ede0e762e5aa6},
    {WEIR__PANEL_Q3_K, 0x1af74eb0d1573b66},    {WEIR__PANEL_IQ4_XS, 0xf38584fc12976309},
    {WEIR__PANEL_IQ3_XXS, 0xfd1e2224bd7c1586}, {WEIR__PANEL_IQ3_S, 0x3b57140d010c3d9f},
    {WEIR__PANEL_IQ2_XXS, 0xd0de68620d5cbc6b}, {WEIR__PANEL_IQ2_XS, 0x70fa91267134de6f},
    {WEIR__PANEL_IQ2_S, 0xa021788a767f1e88},   {WEIR__PANEL_IQ1_S, 0xecbaabe3dcbf4aa3},
    {WEIR__PANEL_IQ1_M, 0x32553dba1a44eaca},   {WEIR__PANEL_TQ1_0, 0x9a85c915e4eb27db},
    {WEIR__PANEL_TQ2_0, 0x0355b16263b38d8f},   {WEIR__PANEL_Q1_0, 0xe5d08eb7f6f8e01f},
    {WEIR__PANEL_Q2_0, 0x6f5456d0aba58493},    {WEIR__PANEL_NVFP4, 0xd9eb4be70d75f416},
};

static void the_order_is_that_of_the_version(void **state)
{
    (void)state;
    assert_int_equal(sizeof known / sizeof *known, WEIR__PANEL_N_FORMATS);
    assert_int_equal(WEIR__PANEL_VERSION, 1); /* for another one: the sums that this test prints */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const weir__panel_layout *layout = &weir__panel_layouts[known[i].format];
        size_t n_rows = (size_t)(ROWS * COLUMNS / layout->columns * layout->block_bytes);
        size_t n_panels = weir__panel_bytes(known[i].format, ROWS, COLUMNS);
        unsigned char *rows = malloc(n_rows), *panels = calloc(1, n_panels);
        assert_true(rows != NULL && panels != NULL);
        dice d = {.state = 1};
        for (size_t k = 0; k < n_rows; k++) rows[k] = (unsigned char)dice_roll(&d);
        weir__panel_pack(known[i].format, COLUMNS, rows, panels, 0, ROWS / WEIR__PANEL_ROWS);
        uint64_t hash = weir__hash(0, panels, n_panels);
        if (hash != known[i].hash) fail_msg("%s: 0x%016" PRIx64, layout->name, hash);
        free(rows);
        free(panels);
    }
}

static int n_sizes, largest;

/* Blocks of a codebook with n_sizes different sizes, of which one is `largest`. */
static void read_sizes(const void *row, float *to, int64_t n)
{
    const unsigned char *block = row;
    for (int64_t i = 0; i < n; i++) to[i] = (float)((block[2 + i / 8] + i) % n_sizes) / 8.0f;
    to[3] = (float)largest / 8.0f;
}

/* A codebook that the kernels cannot multiply leaves its format to ggml. */
static void another_codebook_is_not_known(void **state)
{
    (void)state;
    static const struct {
        int n_sizes, largest;
        bool known;
    } cases[] = {{4, 3, true}, {5, 3, false}, {3, 43, true}, {4, 43, false}, {3, 44, false}, {3, -1, false}};
    assert_true(weir__panel_is_known(WEIR__PANEL_Q2_K));
    assert_false(weir__panel_is_known(WEIR__PANEL_IQ2_XXS));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        n_sizes = cases[i].n_sizes, largest = cases[i].largest;
        weir__panel_learn(WEIR__PANEL_IQ2_XXS, read_sizes);
        assert_int_equal(weir__panel_is_known(WEIR__PANEL_IQ2_XXS), cases[i].known);
    }
    assert_false(weir__panel_is_known(WEIR__PANEL_IQ1_M));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_order_is_that_of_the_version),
                                       cmocka_unit_test(another_codebook_is_not_known)};
    return cmocka_run_group_tests_name("panel", tests, NULL, NULL);
}
