/* attention_avx512.c: for processors with AVX-512.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A score is sixteen sums of every sixteenth product, which are then added in pairs; sixteen cells at a time, so that
 * their sums do not wait for each other. Keys are read once for all rows. */
#include "backend/kernels/attention.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "backend/kernels/inline.h"

#define ROWS WEIR__ATTENTION_ROWS

/* Cells whose scores are weighed together. */
#define BLOCK 64

/* Rows whose values are summed at the same time: sixty-four dimensions of each stay in registers. */
#define SUM_ROWS 4

/* e^x for x <= 0: 2^n times a polynomial in the rest (Cephes' coefficients), within 2 units in the last place. */
INLINE __m512 exponential(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x); /* below, the result rounds to zero; NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

static int32_t visible(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain)
{
    const __m512i hidden = _mm512_set1_epi16((short)0xfc00);
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int32_t found = 0;
    *plain = true;
    for (int32_t i = 0; i < n; i += 32) {
        __mmask32 valid = n - i < 32 ? ((__mmask32)1 << (n - i)) - 1 : (__mmask32)-1;
        __m512i m = _mm512_maskz_loadu_epi16(valid, mask + i);
        __mmask32 seen = _mm512_mask_cmpneq_epi16_mask(valid, m, hidden);
        if (seen == 0) continue;
        if (_mm512_mask_test_epi16_mask(seen, m, _mm512_set1_epi16(0x7fff)) != 0) *plain = false;
        __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32(i));
        _mm512_mask_compressstoreu_epi32(cells + found, (__mmask16)seen, at);
        found += __builtin_popcount(seen & 0xffff);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
        _mm512_mask_compressstoreu_epi32(cells + found, (__mmask16)(seen >> 16), at);
        found += __builtin_popcount(seen >> 16);
    }
    return found;
}

/* Sixteen dimensions from d on. */
INLINE __m512 floats(const weir__attention_format format, const char *cell, int32_t d)
{
    if (format == WEIR__ATTENTION_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(cell + 2 * (size_t)d)));
    const char *block = cell + (size_t)(d / 32) * 34;
    __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 2 + d % 32));
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), _mm512_set1_ps(_cvtsh_ss(scale)));
}

/* ---- One block ---- */

/* What a call keeps for its rows. */
typedef struct rows {
    float q[ROWS][WEIR__ATTENTION_SIZE]; /* scaled */
    float out[ROWS][WEIR__ATTENTION_SIZE];
    float scores[ROWS][BLOCK];
    float keys[16][WEIR__ATTENTION_SIZE];
    float values[BLOCK * WEIR__ATTENTION_SIZE]; /* of Q8_0 */
    float max[ROWS], sum[ROWS];
} rows;

/* Sixteen sums of sixteen numbers each: lane i is the sum of a[i]'s lanes, added in pairs. */
INLINE __m512 sum_lanes(const __m512 *a)
{
    __m512 two[8], four[4], eight[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        two[i] = _mm512_add_ps(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                               _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = _mm512_add_ps(_mm512_shuffle_ps(two[2 * i], two[2 * i + 1], 0x44),
                                _mm512_shuffle_ps(two[2 * i], two[2 * i + 1], 0xee));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x88),
                                 _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(eight[0], eight[1], 0x88),
                         _mm512_shuffle_f32x4(eight[0], eight[1], 0xdd));
}

/* Keys and values of a cell are far from those of the next one, so that the processor does not foresee them. */
static void fetch(const char *const *cells, int32_t n, int32_t bytes)
{
    for (int32_t c = 0; c < n; c++)
        for (int32_t at = 0; at < bytes; at += 64) _mm_prefetch(cells[c] + at, _MM_HINT_T0);
}

static int32_t bytes_of(weir__attention_format format, int32_t size)
{
    return format == WEIR__ATTENTION_F16 ? 2 * size : size / 32 * 34;
}

/* Scores of sixteen cells, which become scores [at, at + 16) of each row. */
INLINE void score(const weir__attention_format format, rows *s, int n_rows, int32_t size,
                  const char *const *cells, int32_t at)
{
    for (int c = 0; c < 16; c++)
        for (int32_t d = 0; d < size; d += 16) _mm512_store_ps(s->keys[c] + d, floats(format, cells[c], d));
    for (int r = 0; r < n_rows; r++) {
        __m512 acc[16];
#pragma GCC unroll 16
        for (int c = 0; c < 16; c++) acc[c] = _mm512_setzero_ps();
        for (int32_t d = 0; d < size; d += 16) {
            __m512 q = _mm512_load_ps(s->q[r] + d);
#pragma GCC unroll 16
            for (int c = 0; c < 16; c++) acc[c] = _mm512_fmadd_ps(q, _mm512_load_ps(s->keys[c] + d), acc[c]);
        }
        _mm512_store_ps(s->scores[r] + at, sum_lanes(acc));
    }
}

/* Scores become softcap × tanh(score). */
static void cap(rows *s, int r, int32_t n, float softcap)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int32_t c = 0; c < n; c += 16) {
        __m512 score = _mm512_load_ps(s->scores[r] + c), size = _mm512_abs_ps(score);
        __m512 e = exponential(_mm512_mul_ps(size, _mm512_set1_ps(-2.0f)));
        __m512 tanh = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
        __mmask16 negative = _mm512_cmp_ps_mask(score, _mm512_setzero_ps(), _CMP_LT_OQ);
        tanh = _mm512_mask_sub_ps(tanh, negative, _mm512_setzero_ps(), tanh);
        tanh = _mm512_mask_mov_ps(tanh, _mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q), score);
        _mm512_store_ps(s->scores[r] + c, _mm512_mul_ps(tanh, _mm512_set1_ps(softcap)));
    }
}

/* Adds the masks of the first n cells, times slope. */
static void add_mask(rows *s, int r, const uint16_t *mask, const int32_t *cells, int32_t n, float slope)
{
    for (int32_t c = 0; c < n; c++) s->scores[r][c] += slope * _cvtsh_ss(mask[cells[c]]);
}

/* Makes weights of a row's scores, of which the first n are seen, and rescales what was summed before. */
INLINE void weigh(rows *s, int r, int32_t n, int32_t size_v)
{
    __m512 score[BLOCK / 16], max = _mm512_set1_ps(-INFINITY), sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        int32_t left = n - 16 * i;
        __mmask16 seen = left >= 16 ? 0xffff : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        score[i] = _mm512_mask_load_ps(_mm512_set1_ps(-INFINITY), seen, s->scores[r] + 16 * i);
        max = _mm512_max_ps(max, score[i]);
    }
    float highest = _mm512_reduce_max_ps(max);
    if (highest > s->max[r]) {
        __m512 factor = exponential(_mm512_set1_ps(s->max[r] - highest));
        s->max[r] = highest;
        s->sum[r] *= _mm512_cvtss_f32(factor);
        for (int32_t d = 0; d < size_v; d += 16)
            _mm512_store_ps(s->out[r] + d, _mm512_mul_ps(_mm512_load_ps(s->out[r] + d), factor));
    }
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK / 16; i++) {
        __mmask16 seen = _mm512_cmp_ps_mask(score[i], _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
        __m512 weight =
            _mm512_maskz_mov_ps(seen, exponential(_mm512_sub_ps(score[i], _mm512_set1_ps(s->max[r]))));
        _mm512_store_ps(s->scores[r] + 16 * i, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    s->sum[r] += _mm512_reduce_add_ps(sum);
}

/* Adds the weighted values of n cells to rows [at, at + n_rows), n_rows <= SUM_ROWS: sixteen × `vectors` dimensions
 * from d on. halves: values are in half precision, else floats. */
INLINE void add_values(const bool halves, const int n_rows, const int vectors, rows *s, int at,
                       const char *const *cells, int32_t n, int32_t d)
{
    __m512 acc[SUM_ROWS][4];
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) acc[r][i] = _mm512_load_ps(s->out[at + r] + d + 16 * i);
    for (int32_t c = 0; c < n; c++) {
        __m512 value[4];
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++)
            value[i] = halves ? floats(WEIR__ATTENTION_F16, cells[c], d + 16 * i)
                              : _mm512_load_ps((const float *)cells[c] + d + 16 * i);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            __m512 weight = _mm512_set1_ps(s->scores[at + r][c]);
#pragma GCC unroll 4
            for (int i = 0; i < vectors; i++) acc[r][i] = _mm512_fmadd_ps(weight, value[i], acc[r][i]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) _mm512_store_ps(s->out[at + r] + d + 16 * i, acc[r][i]);
}

INLINE void add_some_values(const bool halves, const int n_rows, rows *s, int at, const char *const *cells,
                            int32_t n, int32_t size)
{
    int32_t d = 0;
    for (; d + 64 <= size; d += 64) add_values(halves, n_rows, 4, s, at, cells, n, d);
    for (; d < size; d += 16) add_values(halves, n_rows, 1, s, at, cells, n, d);
}

INLINE void add_all_values(const bool halves, int n_rows, rows *s, const char *const *cells, int32_t n,
                           int32_t size)
{
    int at = 0;
    for (; at + SUM_ROWS <= n_rows; at += SUM_ROWS) add_some_values(halves, SUM_ROWS, s, at, cells, n, size);
    switch (n_rows - at) {
    case 1: add_some_values(halves, 1, s, at, cells, n, size); break;
    case 2: add_some_values(halves, 2, s, at, cells, n, size); break;
    case 3: add_some_values(halves, 3, s, at, cells, n, size); break;
    default: break;
    }
}

/* Makes floats of the values of n cells in Q8_0. */
static void expand(rows *s, const char **cells, int32_t n, int32_t size)
{
    for (int32_t c = 0; c < n; c++) {
        float *to = s->values + c * size;
        for (int32_t d = 0; d < size; d += 16)
            _mm512_store_ps(to + d, floats(WEIR__ATTENTION_Q8_0, cells[c], d));
        cells[c] = (const char *)to;
    }
}

/* What is left to multiply a row's sum of values by. */
static float last_factor(const rows *s, int32_t r, const float *sink)
{
    float sum = s->sum[r], factor = 1.0f;
    if (sink != NULL) {
        float max = s->max[r] > *sink ? s->max[r] : *sink;
        factor = expf(s->max[r] - max);
        sum = sum * factor + expf(*sink - max);
    }
    return sum > 0.0f ? factor / sum : sum; /* NaN stays NaN */
}

/* ---- A call ---- */

static void attend(const weir__attention_task *t, int32_t n, const int32_t *n_cells)
{
    _Alignas(64) rows s;
    int32_t most = 0, n_rows = n * t->n_heads;
    int32_t k_bytes = bytes_of(t->k_format, t->size_k), v_bytes = bytes_of(t->v_format, t->size_v);
    float scale = t->softcap != 0.0f ? t->scale / t->softcap : t->scale;
    for (int32_t i = 0; i < n; i++) most = n_cells[i] > most ? n_cells[i] : most;
    for (int r = 0; r < n_rows; r++) {
        const char *q = t->q + (size_t)(r / t->n_heads) * t->q_query + (size_t)(r % t->n_heads) * t->q_head;
        for (int32_t d = 0; d < t->size_k; d += 16)
            _mm512_store_ps(s.q[r] + d,
                            _mm512_mul_ps(_mm512_loadu_ps((const float *)q + d), _mm512_set1_ps(scale)));
        for (int32_t d = 0; d < t->size_v; d += 16) _mm512_store_ps(s.out[r] + d, _mm512_setzero_ps());
        s.max[r] = -INFINITY;
        s.sum[r] = 0.0f;
    }
    for (int32_t begin = 0; begin < most; begin += BLOCK) {
        const char *keys[BLOCK], *values[BLOCK];
        int32_t count = most - begin < BLOCK ? most - begin : BLOCK;
        for (int32_t c = 0; c < BLOCK; c++) { /* past the last: that again, which is not seen */
            size_t cell = (size_t)t->cells[begin + (c < count ? c : count - 1)];
            keys[c] = t->k + cell * t->k_cell;
            values[c] = t->v + cell * t->v_cell;
        }
        for (int32_t c = 0; c < count; c += 16) {
            if (c + 16 < count) fetch(keys + c + 16, 16, k_bytes);
            fetch(values + c, 16, v_bytes);
            if (t->k_format == WEIR__ATTENTION_F16)
                score(WEIR__ATTENTION_F16, &s, n_rows, t->size_k, keys + c, c);
            else
                score(WEIR__ATTENTION_Q8_0, &s, n_rows, t->size_k, keys + c, c);
        }
        for (int r = 0; r < n_rows; r++) {
            int32_t seen = n_cells[r / t->n_heads] - begin;
            const uint16_t *mask = t->masks[r / t->n_heads];
            if (seen > BLOCK) seen = BLOCK;
            float slope = mask != NULL && t->slopes != NULL ? t->slopes[r % t->n_heads] : 1.0f;
            if (seen > 0 && t->softcap != 0.0f) cap(&s, r, seen, t->softcap);
            if (seen > 0 && mask != NULL) add_mask(&s, r, mask, t->cells + begin, seen, slope);
            if (seen > 0)
                weigh(&s, r, seen, t->size_v);
            else
                memset(s.scores[r], 0, sizeof s.scores[r]);
        }
        if (t->v_format == WEIR__ATTENTION_F16) {
            add_all_values(true, n_rows, &s, values, count, t->size_v);
        } else {
            expand(&s, values, count, t->size_v);
            add_all_values(false, n_rows, &s, values, count, t->size_v);
        }
    }
    for (int32_t r = 0; r < n_rows; r++) {
        char *out = t->out + (size_t)(r / t->n_heads) * t->out_query + (size_t)(r % t->n_heads) * t->out_head;
        __m512 factor =
            _mm512_set1_ps(last_factor(&s, r, t->sinks != NULL ? &t->sinks[r % t->n_heads] : NULL));
        for (int32_t d = 0; d < t->size_v; d += 16)
            _mm512_storeu_ps((float *)out + d, _mm512_mul_ps(_mm512_load_ps(s.out[r] + d), factor));
    }
}

const weir__attention weir__attention_avx512 = {"avx512", visible, attend};
