/* gemm_codes.h: units whose values are indices into a codebook, at all levels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Indices are looked up one by one; what eight rows have is put together in registers. */
#ifndef WEIR_KERNELS_GEMM_CODES_H
#define WEIR_KERNELS_GEMM_CODES_H

#include <string.h>

#include "kernels/inline.h"
#include "kernels/panel.h"

INLINE bool has_octets(const weir__panel_format format)
{
    return weir__panel_layouts[format].values == WEIR__VALUES_OCTETS;
}

/* Indices of a unit. */
INLINE int n_codes(const weir__panel_format format)
{
    return has_octets(format) ? WEIR__PANEL_OCTETS : WEIR__PANEL_QUARTETS;
}

/* Bits of an index beyond eight. */
INLINE int n_high_bits(const weir__panel_format format)
{
    return weir__panel_layouts[format].code_bits - 8;
}

/* The plane of a further bit: those of sixteen rows at index `at`. */
INLINE uint32_t code_plane(const weir__panel_format format, const unsigned char *unit, int bit, int at)
{
    const int n = n_codes(format);
    uint16_t plane;
    memcpy(&plane, unit + n + bit * (n / 8) + at / 8, sizeof plane);
    return plane;
}

#ifndef __ARM_NEON

#include <immintrin.h>

INLINE __m128i two_octets(const uint64_t *octets, unsigned first, unsigned second)
{
    __m128 low = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)&octets[first]));
    return _mm_castps_si128(_mm_loadh_pi(low, (const __m64 *)&octets[second]));
}

/* Eight rows: the first four and the second four columns. */
INLINE void octets_of(const weir__panel_format format, const uint16_t *codes, __m256i *first, __m256i *second)
{
    const uint64_t *octets = weir__codebook_of(format)->octets;
    __m256i a =
        _mm256_set_m128i(two_octets(octets, codes[4], codes[5]), two_octets(octets, codes[0], codes[1]));
    __m256i b =
        _mm256_set_m128i(two_octets(octets, codes[6], codes[7]), two_octets(octets, codes[2], codes[3]));
    __m256 a_ps = _mm256_castsi256_ps(a), b_ps = _mm256_castsi256_ps(b);
    *first = _mm256_castps_si256(_mm256_shuffle_ps(a_ps, b_ps, 0x88));
    *second = _mm256_castps_si256(_mm256_shuffle_ps(a_ps, b_ps, 0xdd));
}

INLINE __m256i quartets_of(const weir__panel_format format, const uint16_t *codes)
{
    const uint32_t *quartets = weir__codebook_of(format)->quartets;
    return _mm256_setr_epi32((int)quartets[codes[0]], (int)quartets[codes[1]], (int)quartets[codes[2]],
                             (int)quartets[codes[3]], (int)quartets[codes[4]], (int)quartets[codes[5]],
                             (int)quartets[codes[6]], (int)quartets[codes[7]]);
}

#endif

#endif
