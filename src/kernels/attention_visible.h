/* attention_visible.h: which cells a mask does not hide.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_KERNELS_ATTENTION_VISIBLE_H
#define WEIR_KERNELS_ATTENTION_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __ARM_NEON

#include <arm_neon.h>

static int32_t visible(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain)
{
    int32_t found = 0, i = 0;
    *plain = true;
    for (; i < n; i++) {
        /* Most of the cells of a long context are hidden. */
        while (i + 8 <= n && vmaxvq_u16(vsubq_u16(vld1q_u16(mask + i), vdupq_n_u16(0xfc00))) == 0) i += 8;
        if (i == n) break;
        if (mask[i] == 0xfc00) continue;
        if ((mask[i] & 0x7fff) != 0) *plain = false;
        cells[found++] = i;
    }
    return found;
}

#else

#include <immintrin.h>

#ifdef __AVX512F__

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
        /* Compressed, then stored: Zen 5 takes three times as long to do both at once. */
        _mm512_storeu_si512(cells + found, _mm512_maskz_compress_epi32((__mmask16)seen, at));
        found += __builtin_popcount(seen & 0xffff);
        at = _mm512_add_epi32(at, _mm512_set1_epi32(16));
        _mm512_storeu_si512(cells + found, _mm512_maskz_compress_epi32((__mmask16)(seen >> 16), at));
        found += __builtin_popcount(seen >> 16);
    }
    return found;
}

#else

static int32_t visible(const uint16_t *mask, int32_t n, int32_t *cells, bool *plain)
{
    const __m256i hidden = _mm256_set1_epi16((short)0xfc00);
    const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    int32_t found = 0, i = 0;
    *plain = true;
    for (; i + 16 <= n; i += 16) {
        __m256i m = _mm256_loadu_si256((const __m256i *)(mask + i));
        __m256i unseen = _mm256_cmpeq_epi16(m, hidden);
        uint32_t seen = ~(uint32_t)_mm256_movemask_epi8(unseen); /* two bits each */
        __m256i sizes = _mm256_andnot_si256(unseen, _mm256_and_si256(m, _mm256_set1_epi16(0x7fff)));
        if (!_mm256_testz_si256(sizes, sizes)) *plain = false;
        if (seen == UINT32_MAX) {
            __m256i at = _mm256_add_epi32(count, _mm256_set1_epi32(i));
            _mm256_storeu_si256((__m256i *)(cells + found), at);
            _mm256_storeu_si256((__m256i *)(cells + found + 8), _mm256_add_epi32(at, _mm256_set1_epi32(8)));
            found += 16;
        } else {
            for (; seen != 0; seen &= seen - 1, seen &= seen - 1)
                cells[found++] = i + __builtin_ctz(seen) / 2;
        }
    }
    for (; i < n; i++) {
        if (mask[i] == 0xfc00) continue;
        if ((mask[i] & 0x7fff) != 0) *plain = false;
        cells[found++] = i;
    }
    return found;
}

#endif

#endif

#endif
