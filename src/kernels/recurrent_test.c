/* Layers with a state against double precision, and against themselves on other levels, in other chunks and
 * parts.
 * SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "support/dice.h"
#include "support/levels.h"

#define MOST_TOKENS 70
#define MOST_KEPT   5
#define GAP         3 /* numbers between a token's and the next one's */

/* Between -1 and 1. */
static float number(dice *d)
{
    return (float)dice_in(d, -1000000, 1000000) / 1e6f;
}

static float *numbers(dice *d, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = number(d);
    return x;
}

/* ---- Gated delta net ---- */

/* A head's tokens, and memory for what becomes of them. */
typedef struct head {
    weir__delta_net net;
    float *query, *key, *value, *gate, *beta, *from, *to, *out; /* [tokens][size + GAP], [size][size] */
} head;

static void head_init(head *h, dice *d, int64_t size, int64_t n_tokens)
{
    int64_t stride = size + GAP;
    h->query = numbers(d, n_tokens * stride);
    h->key = numbers(d, n_tokens * stride);
    h->value = numbers(d, n_tokens * stride);
    h->gate = numbers(d, n_tokens);
    h->beta = numbers(d, n_tokens);
    h->from = numbers(d, size * size);
    h->to = calloc((size_t)(MOST_KEPT * size * size), sizeof *h->to);
    h->out = calloc((size_t)(n_tokens * stride), sizeof *h->out);
    for (int64_t t = 0; t < n_tokens; t++) {
        h->gate[t] = 3.0f * (h->gate[t] - 1.0f);
        h->beta[t] = 0.5f * (h->beta[t] + 1.0f);
        double norm = 0.0; /* of length 1, as the models' are: else the state grows without bounds */
        for (int64_t i = 0; i < size; i++) norm += pow((double)h->key[t * stride + i], 2.0);
        for (int64_t i = 0; i < size; i++) h->key[t * stride + i] /= (float)sqrt(norm);
    }
    size_t apart = (size_t)stride;
    h->net = (weir__delta_net){size,    n_tokens, h->query, h->key, h->value,
                               h->gate, h->beta,  apart,    apart,  apart,
                               1,       1,        h->from,  h->to,  (size_t)(size * size),
                               1,       h->out,   apart};
}

static void head_fini(head *h)
{
    float *all[] = {h->query, h->key, h->value, h->gate, h->beta, h->from, h->to, h->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The formula, in double precision. state: [size][size], in and out; out: [tokens][size]. */
static void compute_plainly(const head *h, double *state, double *out)
{
    int64_t size = h->net.size, stride = size + GAP;
    for (int64_t t = 0; t < h->net.n_tokens; t++)
        for (int64_t j = 0; j < size; j++) {
            double *row = state + j * size, product = 0.0, result = 0.0;
            for (int64_t i = 0; i < size; i++) {
                row[i] *= exp((double)h->gate[t]);
                product += row[i] * (double)h->key[t * stride + i];
            }
            double difference = ((double)h->value[t * stride + j] - product) * (double)h->beta[t];
            for (int64_t i = 0; i < size; i++) {
                row[i] += difference * (double)h->key[t * stride + i];
                result += row[i] * (double)h->query[t * stride + i];
            }
            out[t * size + j] = result / sqrt((double)size);
        }
}

static void a_net_is_that_of_the_formula(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 48, 64, 128, 256}, tokens[] = {1, 2, 23, 24, MOST_TOKENS};
    const weir__recurrent *kernels;
    for (int level = 0; (kernels = weir__kernels_recurrent(level)) != NULL; level++)
        for (size_t n = 0; n < 25; n++) {
            int64_t size = sizes[n % 5], n_tokens = tokens[n / 5];
            dice d = {n + 1};
            head h;
            head_init(&h, &d, size, n_tokens);
            double *want = malloc((size_t)(size * size) * sizeof *want);
            double *out = malloc((size_t)(n_tokens * size) * sizeof *out);
            for (int64_t i = 0; i < size * size; i++) want[i] = (double)h.from[i];
            compute_plainly(&h, want, out);
            kernels->delta_net(&h.net, 0, size);
            for (int64_t i = 0; i < size * size; i++)
                if (!(fabs((double)h.to[i] - want[i]) < 2e-5))
                    fail_msg("level %d, size %d, %d tokens: %d of the state is %g, not %g", level, (int)size,
                             (int)n_tokens, (int)i, (double)h.to[i], want[i]);
            for (int64_t i = 0; i < n_tokens * size; i++) {
                double got = (double)h.out[i / size * (size + GAP) + i % size];
                if (!(fabs(got - out[i]) < 2e-5))
                    fail_msg("level %d, size %d, %d tokens: result %d is %g, not %g", level, (int)size,
                             (int)n_tokens, (int)i, got, out[i]);
            }
            for (int64_t t = 0; t < n_tokens; t++)
                for (int64_t i = size; i < size + GAP; i++) assert_true(h.out[t * (size + GAP) + i] == 0.0f);
            free(out);
            free(want);
            head_fini(&h);
        }
}

/* All tokens at once on the best level have the same bits as in chunks and parts at random, in place, on any
 * level. */
static void chunks_and_parts_do_not_matter(void **state)
{
    (void)state;
    const weir__recurrent *kernels, *best = weir__kernels_recurrent(0);
    for (int level = 0; (kernels = weir__kernels_recurrent(level)) != NULL; level++)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            dice d = {seed};
            int64_t size = 16 * dice_in(&d, 1, 16), n_tokens = dice_in(&d, 1, MOST_TOKENS);
            int64_t bytes = size * size * (int64_t)sizeof(float), stride = size + GAP;
            head h;
            head_init(&h, &d, size, n_tokens);
            float *after = malloc((size_t)bytes * MOST_KEPT),
                  *results = malloc((size_t)(n_tokens * stride) * 4);
            h.net.n_to = dice_in(&d, 1, n_tokens < MOST_KEPT ? (int32_t)n_tokens : MOST_KEPT);
            best->delta_net(&h.net, 0, size);
            memcpy(after, h.to, (size_t)(bytes * h.net.n_to));
            memcpy(results, h.out, (size_t)(n_tokens * stride) * sizeof *results);
            memset(h.to, 0, (size_t)(bytes * MOST_KEPT));
            memset(h.out, 0, (size_t)(n_tokens * stride) * sizeof *results);
            int64_t n_to = h.net.n_to;
            for (int64_t t = 0, n; t < n_tokens; t += n) {
                weir__delta_net part = h.net;
                part.n_tokens = n = dice_in(&d, 1, (int32_t)(n_tokens - t));
                part.query += t * stride;
                part.key += t * stride;
                part.value += t * stride;
                part.gate += t;
                part.beta += t;
                part.out += t * stride;
                part.to = h.from;
                part.n_to = 1;
                for (int64_t j = 0, more; j < size; j += more) {
                    more = 16 * dice_in(&d, 1, (int32_t)(size - j) / 16);
                    kernels->delta_net(&part, j, j + more);
                }
                int64_t back = n_tokens - t - n;
                if (back < n_to && n == 1)
                    assert_memory_equal(h.from, after + back * size * size, (size_t)bytes);
            }
            assert_memory_equal(h.from, after, (size_t)bytes);
            assert_memory_equal(h.out, results, (size_t)(n_tokens * stride) * sizeof *results);
            free(results);
            free(after);
            head_fini(&h);
        }
}

/* The states after the last tokens are those that shorter calls end with. */
static void states_on_the_way_are_kept(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 3, 6, 23, 24, 40};
    const weir__recurrent *kernels;
    for (int level = 0; (kernels = weir__kernels_recurrent(level)) != NULL; level++)
        for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
            enum { SIZE = 64 };
            int64_t n_tokens = tokens[n];
            dice d = {n + 1};
            head h;
            head_init(&h, &d, SIZE, n_tokens);
            float *kept = calloc(MOST_KEPT, SIZE * SIZE * sizeof *kept);
            weir__delta_net net = h.net;
            net.to = kept;
            net.n_to = n_tokens < MOST_KEPT ? n_tokens : MOST_KEPT;
            kernels->delta_net(&net, 0, SIZE);
            for (int64_t back = 0; back < net.n_to; back++) {
                h.net.n_tokens = n_tokens - back;
                kernels->delta_net(&h.net, 0, SIZE);
                assert_memory_equal(h.to, kept + back * SIZE * SIZE, SIZE * SIZE * sizeof *kept);
            }
            for (int64_t i = net.n_to * SIZE * SIZE; i < MOST_KEPT * SIZE * SIZE; i++)
                assert_true(kept[i] == 0.0f);
            free(kept);
            head_fini(&h);
        }
}

/* ---- Short convolutions ---- */

static void a_convolution_is_that_of_the_formula(void **state)
{
    (void)state;
    const weir__recurrent *kernels, *best = weir__kernels_recurrent(0);
    for (int level = 0; (kernels = weir__kernels_recurrent(level)) != NULL; level++)
        for (uint64_t seed = 1; seed <= 100; seed++) {
            dice d = {seed};
            int32_t n_taps = (int32_t)(seed % WEIR__TAPS_MAX) + 1;
            int64_t n = 16 * dice_in(&d, 1, 40), n_tokens = dice_in(&d, 1, 20), stride = n + GAP;
            float *x = numbers(&d, (n_tokens + n_taps - 1) * stride), *weights = numbers(&d, n * n_taps);
            size_t bytes = (size_t)(n_tokens * stride) * sizeof(float);
            float *out = malloc(bytes), *again = malloc(bytes);
            weir__convolution c = {n_tokens, n_taps, x, weights, out, (size_t)stride, (size_t)stride};
            memset(out, 0, bytes);
            memset(again, 0, bytes);
            best->convolve(&c, 0, n);
            for (int64_t i = 0; i < n_tokens * stride; i++) {
                double want = 0.0;
                for (int32_t tap = 0; tap < n_taps && i % stride < n; tap++)
                    want += (double)x[i + tap * stride] * (double)weights[i % stride * n_taps + tap];
                if (!(fabs((double)out[i] - want) < 1e-6))
                    fail_msg("level %d, %d taps: %d is %g, not %g", level, n_taps, (int)i, (double)out[i],
                             want);
            }
            c.n_tokens = 1;
            for (int64_t t = 0; t < n_tokens; t++, c.x += stride)
                for (int64_t i = 0, more; i < n; i += more) {
                    more = 16 * dice_in(&d, 1, (int32_t)(n - i) / 16);
                    c.out = again + t * stride;
                    kernels->convolve(&c, i, i + more);
                }
            assert_memory_equal(out, again, bytes);
            free(again);
            free(out);
            free(weights);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {LEVEL_TESTS, cmocka_unit_test(a_net_is_that_of_the_formula),
                                       cmocka_unit_test(chunks_and_parts_do_not_matter),
                                       cmocka_unit_test(states_on_the_way_are_kept),
                                       cmocka_unit_test(a_convolution_is_that_of_the_formula)};
    return cmocka_run_group_tests_name("recurrent", tests, NULL, NULL);
}
