/* recurrent_vector.h: layers with a state, for a level's vectors. All levels give the same bits.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A sum over a row's numbers has sixteen parts, one for each remainder of a number's place by 16, each added
 * in order. The parts a to p become four sums, the first of them (a + i) + (e + m), as fourth_sums adds; and
 * these are added in pairs.
 * Few tokens are computed row by row, with a row's numbers in a vector's lanes: each row is read and written
 * once. For many tokens the lanes are rows, kept in the first-level cache, and sums need no operation across
 * lanes. */
#ifndef WEIR_KERNELS_RECURRENT_VECTOR_H
#define WEIR_KERNELS_RECURRENT_VECTOR_H

#include "kernels/attention_vector.h"
#include "kernels/recurrent.h"

/* ---- Gated delta net ---- */

/* From so many tokens on lanes are rows: the state is transposed twice for that. */
#define MANY_TOKENS 24

/* The sums of four vectors. */
INLINE four_floats four_sums(const sixteen *x)
{
    four_floats y[4];
    for (int i = 0; i < 4; i++) y[i] = fourth_sums(x[i].part);
    transpose_four(y);
    return FOUR(add_ps)(FOUR(add_ps)(y[0], y[1]), FOUR(add_ps)(y[2], y[3]));
}

/* Where the state after token t goes; NULL: it is not kept. */
INLINE float *kept(const weir__delta_net *net, int64_t t)
{
    int64_t back = net->n_tokens - 1 - t;
    return back < net->n_to ? net->to + (size_t)back * net->to_stride : NULL;
}

/* Four rows from the j-th on. */
INLINE void four_rows(const weir__delta_net *net, int64_t j, const int64_t size)
{
    float work[4 * WEIR__DELTA_NET_MAX];
    const float *from = net->from + j * size;
    const four_floats scale = FOUR(set1_ps)(1.0f / sqrtf((float)size));
    for (int64_t t = 0; t < net->n_tokens; t++) {
        const float *key = net->key + (size_t)t * net->key_stride;
        const float *query = net->query + (size_t)t * net->query_stride;
        float decay = expf(net->gate[(size_t)t * net->gate_stride]);
        four_floats beta = FOUR(set1_ps)(net->beta[(size_t)t * net->beta_stride]);
        float *state = kept(net, t), differences[4];
        float *to = state != NULL ? state + j * size : work;
        sixteen sums[4] = {all_of(0.0f), all_of(0.0f), all_of(0.0f), all_of(0.0f)};
        for (int64_t i = 0; i < size; i += 16) {
            sixteen k = load(key + i);
            for (int r = 0; r < 4; r++) sums[r] = multiply_add(load(from + r * size + i), k, sums[r]);
        }
        four_floats product = FOUR(mul_ps)(FOUR(set1_ps)(decay), four_sums(sums));
        four_floats value = FOUR(loadu_ps)(net->value + (size_t)t * net->value_stride + j);
        FOUR(storeu_ps)(differences, FOUR(mul_ps)(FOUR(sub_ps)(value, product), beta));
        for (int r = 0; r < 4; r++) sums[r] = all_of(0.0f);
        for (int64_t i = 0; i < size; i += 16) {
            sixteen k = load(key + i), q = load(query + i);
            for (int r = 0; r < 4; r++) {
                sixteen row = multiply_add(all_of(differences[r]), k,
                                           multiply(all_of(decay), load(from + r * size + i)));
                store(to + r * size + i, row);
                sums[r] = multiply_add(row, q, sums[r]);
            }
        }
        FOUR(storeu_ps)(net->out + (size_t)t * net->out_stride + j, FOUR(mul_ps)(scale, four_sums(sums)));
        from = to;
    }
}

/* Adds the four parts that have the same remainder by 4. */
INLINE vector quarter(const vector *parts)
{
    return MM(add_ps)(MM(add_ps)(parts[0], parts[2]), MM(add_ps)(parts[1], parts[3]));
}

/* The sum of all, from the quarters. */
INLINE vector sum_of(const vector *quarters)
{
    return MM(add_ps)(MM(add_ps)(quarters[0], quarters[1]), MM(add_ps)(quarters[2], quarters[3]));
}

/* The products of the rows, one in each lane, with the key. */
INLINE vector products(const float *rows, const float *key, const int64_t size)
{
    vector quarters[4];
    for (int r = 0; r < 4; r++) {
        vector parts[4] = {MM(setzero_ps)(), MM(setzero_ps)(), MM(setzero_ps)(), MM(setzero_ps)()};
        for (int64_t i = r; i < size; i += 16)
            for (int c = 0; c < 4; c++)
                parts[c] = MM(fmadd_ps)(MM(loadu_ps)(rows + (i + 4 * c) * WIDTH), MM(set1_ps)(key[i + 4 * c]),
                                        parts[c]);
        quarters[r] = quarter(parts);
    }
    return sum_of(quarters);
}

/* Changes the rows, and returns their products with the query; *next: those with the next token's key. */
INLINE vector change(float *rows, float decay, vector differences, const float *key, const float *query,
                     const float *next_key, vector *next, const int64_t size)
{
    vector results[4], nexts[4];
    for (int r = 0; r < 4; r++) {
        vector result[4], sum[4];
        for (int c = 0; c < 4; c++) result[c] = sum[c] = MM(setzero_ps)();
        for (int64_t i = r; i < size; i += 16)
            for (int c = 0; c < 4; c++) {
                float *at = rows + (i + 4 * c) * WIDTH;
                vector row = MM(fmadd_ps)(differences, MM(set1_ps)(key[i + 4 * c]),
                                          MM(mul_ps)(MM(set1_ps)(decay), MM(loadu_ps)(at)));
                MM(storeu_ps)(at, row);
                result[c] = MM(fmadd_ps)(row, MM(set1_ps)(query[i + 4 * c]), result[c]);
                sum[c] = MM(fmadd_ps)(row, MM(set1_ps)(next_key[i + 4 * c]), sum[c]);
            }
        results[r] = quarter(result);
        nexts[r] = quarter(sum);
    }
    *next = sum_of(nexts);
    return sum_of(results);
}

/* As many rows as a vector has lanes, from the j-th on. */
INLINE void rows_in_lanes(const weir__delta_net *net, int64_t j, const int64_t size)
{
    float rows[WEIR__DELTA_NET_MAX * WIDTH] __attribute__((aligned(64)));
    const vector scale = MM(set1_ps)(1.0f / sqrtf((float)size));
    for (int64_t l = 0; l < WIDTH; l++)
        for (int64_t i = 0; i < size; i++) rows[i * WIDTH + l] = net->from[(j + l) * size + i];
    vector product = products(rows, net->key, size);
    for (int64_t t = 0; t < net->n_tokens; t++) {
        const float *key = net->key + (size_t)t * net->key_stride;
        const float *next_key = t + 1 < net->n_tokens ? key + net->key_stride : key;
        float decay = expf(net->gate[(size_t)t * net->gate_stride]);
        vector beta = MM(set1_ps)(net->beta[(size_t)t * net->beta_stride]);
        vector value = MM(loadu_ps)(net->value + (size_t)t * net->value_stride + j);
        vector differences = MM(mul_ps)(MM(sub_ps)(value, MM(mul_ps)(MM(set1_ps)(decay), product)), beta);
        vector result = change(rows, decay, differences, key, net->query + (size_t)t * net->query_stride,
                               next_key, &product, size);
        MM(storeu_ps)(net->out + (size_t)t * net->out_stride + j, MM(mul_ps)(scale, result));
        float *to = kept(net, t);
        if (to == NULL) continue;
        for (int64_t l = 0; l < WIDTH; l++)
            for (int64_t i = 0; i < size; i++) to[(j + l) * size + i] = rows[i * WIDTH + l];
    }
}

INLINE void all_rows(const weir__delta_net *net, int64_t first, int64_t end, const int64_t size)
{
    if (net->n_tokens < MANY_TOKENS)
        for (int64_t j = first; j < end; j += 4) four_rows(net, j, size);
    else
        for (int64_t j = first; j < end; j += WIDTH) rows_in_lanes(net, j, size);
}

static void delta_net(const weir__delta_net *net, int64_t first, int64_t end)
{
    if (net->size == 128)
        all_rows(net, first, end, 128);
    else
        all_rows(net, first, end, net->size);
}

/* ---- Short convolutions ---- */

/* Channels whose weights and last numbers stay in the first-level cache. */
#define CHANNELS 256

INLINE void channels(const weir__convolution *c, int64_t first, int64_t n, const int32_t n_taps)
{
    float weights[WEIR__TAPS_MAX * CHANNELS];
    for (int64_t i = 0; i < n; i++)
        for (int32_t tap = 0; tap < n_taps; tap++)
            weights[tap * CHANNELS + i] = c->weights[(first + i) * n_taps + tap];
    for (int64_t t = 0; t < c->n_tokens; t++) {
        const float *x = c->x + (size_t)t * c->x_stride + first;
        float *out = c->out + (size_t)t * c->out_stride + first;
        for (int64_t i = 0; i < n; i += 16) {
            sixteen sum = multiply(load(x + i), load(weights + i));
            for (int32_t tap = 1; tap < n_taps; tap++)
                sum = multiply_add(load(x + (size_t)tap * c->x_stride + i),
                                   load(weights + tap * CHANNELS + i), sum);
            store(out + i, sum);
        }
    }
}

static void convolve(const weir__convolution *c, int64_t first, int64_t end)
{
    for (; first < end; first += CHANNELS) {
        int64_t n = end - first < CHANNELS ? end - first : CHANNELS;
        switch (c->n_taps) {
        case 3: channels(c, first, n, 3); break;
        case 4: channels(c, first, n, 4); break;
        default: channels(c, first, n, c->n_taps); break;
        }
    }
}

#endif
