/* panel.c: from the file's order to the kernels'.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The block layouts read here are ggml's (ggml-common.h). */
#include "kernels/panel.h"

#include <math.h>
#include <string.h>

#include "kernels/inline.h"

const uint8_t weir__panel_iq4_nl[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                        129, 141, 153, 166, 181, 197, 217, 241};
const uint8_t weir__panel_e2m1[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

weir__codebook weir__codebooks[WEIR__BOOK_NONE];

size_t weir__panel_bytes(weir__panel_format format, int64_t rows, int64_t columns)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    size_t units = (size_t)(l->columns / WEIR__UNIT);
    size_t block = (size_t)l->head_bytes + units * (size_t)l->unit_bytes;
    int64_t n_blocks = (columns + l->columns - 1) / l->columns;
    return (size_t)(rows / WEIR__PANEL_ROWS) * (size_t)n_blocks * block;
}

/* ---- One row's block ------------------------------------------------------------------------------- */

/* One row's 32 columns of a unit, taken apart no further than its panel needs. */
typedef struct unit {
    uint8_t values[WEIR__UNIT]; /* bytes: plus 128; 16 nibbles: of columns k and k + 16; 8 pairs of bits: of
                                 * columns k, k + 8, k + 16 and k + 24 */
    uint16_t codes[WEIR__UNIT / 4]; /* indices into a codebook */
    uint32_t planes[2];             /* one bit of column k: bit k */
    uint8_t scales[4];              /* a row's bytes at scales_at */
} unit;

INLINE uint64_t read_word(const unsigned char *bytes, const int n)
{
    uint64_t word = 0;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) word |= (uint64_t)bytes[i] << 8 * i;
    return word;
}

/* One bit of each of 32 bytes. */
INLINE uint32_t read_plane(const unsigned char *bytes, int bit)
{
    uint32_t plane = 0;
    for (int k = 0; k < WEIR__UNIT; k += 8) {
        uint64_t bits = read_word(bytes + k, 8) >> bit & 0x0101010101010101;
        plane |= (uint32_t)(bits * 0x0102040810204080 >> 56) << k; /* byte i's bit moves to bit 56 + i */
    }
    return plane;
}

/* Scale and minimum of a unit, six bits each, packed into 12 bytes for eight units. */
INLINE void read_scales_k(const unsigned char *packed, int i, uint8_t *scales)
{
    if (i < 4) {
        scales[0] = packed[i] & 63;
        scales[1] = packed[i + 4] & 63;
    } else {
        scales[0] = (uint8_t)((packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4);
        scales[1] = (uint8_t)(packed[i + 4] >> 4 | (packed[i] >> 6) << 4);
    }
}

/* Reads 32 columns in as many bytes, from bit `shift` on. */
INLINE void read_nibbles(const unsigned char *bytes, int shift, uint8_t *values)
{
    for (int k = 0; k < WEIR__UNIT / 2; k++)
        values[k] = (uint8_t)((bytes[k] >> shift & 15) | (bytes[k + 16] >> shift & 15) << 4);
}

/* Reads 32 columns in as many bytes, of which each has two bits from bit `shift` on. */
INLINE void read_pairs(const unsigned char *bytes, int shift, uint8_t *values)
{
    for (int k = 0; k < WEIR__UNIT / 4; k++) {
        unsigned pairs = 0;
        for (int q = 0; q < 4; q++) pairs |= (bytes[k + 8 * q] >> shift & 3u) << 2 * q;
        values[k] = (uint8_t)pairs;
    }
}

/* Pairs of bits that stand one behind the other. */
INLINE void read_packed_pairs(const unsigned char *bytes, uint8_t *values)
{
    unsigned char each[WEIR__UNIT];
    for (int k = 0; k < WEIR__UNIT; k++) each[k] = bytes[k / 4] >> k % 4 * 2 & 3;
    read_pairs(each, 0, values);
}

/* Numbers 0 to 2 of unit i: five of them are a fraction of 256 in one byte, the first in its highest place.
 * Of 32 bytes each has columns that stand 32 apart, of the next 16 bytes 16 apart; four bytes have four
 * each. */
INLINE void read_trits(const unsigned char *block, int i, uint8_t *values)
{
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    unsigned char each[WEIR__UNIT];
    for (int k = 0; k < WEIR__UNIT; k++) {
        int column = i * WEIR__UNIT + k, at, place;
        if (column < 160)
            at = column % 32, place = column / 32;
        else if (column < 240)
            at = 32 + column % 16, place = (column - 160) / 16;
        else
            at = 48 + column % 4, place = (column - 240) / 4;
        each[k] = (unsigned char)((uint8_t)(block[at] * powers[place]) * 3 >> 8);
    }
    read_pairs(each, 0, values);
}

/* The signs of four times eight columns: seven bits each, and an eighth that makes their number even. */
INLINE uint32_t even_signs(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t signs = (a & 127) | (b & 127) << 8 | (c & 127) << 16 | (d & 127) << 24;
    uint32_t odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return signs | (odd & 0x01010101) << 7;
}

/* Scale i of sixteen with six bits each: four low bits in eight bytes, two high ones in four. */
INLINE uint8_t read_scale_q3(const unsigned char *packed, int i)
{
    int low = packed[i % 8] >> i / 8 * 4 & 15, high = packed[8 + i % 4] >> i / 4 * 2 & 3;
    return (uint8_t)((low | high << 4) - 32);
}

/* A positive float of eight bits, where 127 is zero. */
INLINE uint8_t read_float8(unsigned char x)
{
    return x == 0x7f ? 0 : x & 0x7f;
}

/* Units of blocks with a codebook. */
INLINE void read_iq2_xxs(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 8 * i;
    uint32_t word = (uint32_t)read_word(at + 4, 4);
    for (int q = 0; q < 4; q++) u->codes[q] = at[q];
    u->planes[0] = even_signs(word, word >> 7, word >> 14, word >> 21);
    u->scales[0] = (uint8_t)(word >> 28);
}

INLINE void read_iq2_xs(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 8 * i;
    for (int q = 0; q < 4; q++) u->codes[q] = (uint16_t)(read_word(at + 2 * q, 2) & 511);
    u->planes[0] = even_signs(at[1] >> 1, at[3] >> 1, at[5] >> 1, at[7] >> 1);
    u->scales[0] = block[66 + i];
}

INLINE void read_iq2_s(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 4 * i;
    for (int q = 0; q < 4; q++) u->codes[q] = (uint16_t)(at[q] | (block[66 + i] >> 2 * q & 3) << 8);
    u->planes[0] = (uint32_t)read_word(at + 32, 4);
    u->scales[0] = block[74 + i];
}

INLINE void read_iq3_xxs(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 8 * i;
    uint32_t word = (uint32_t)read_word(block + 66 + 4 * i, 4);
    for (int q = 0; q < 8; q++) u->codes[q] = at[q];
    u->planes[0] = even_signs(word, word >> 7, word >> 14, word >> 21);
    u->scales[0] = (uint8_t)(word >> 28);
}

INLINE void read_iq3_s(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 8 * i;
    for (int q = 0; q < 8; q++) u->codes[q] = (uint16_t)(at[q] | (block[66 + i] >> q & 1) << 8);
    u->planes[0] = (uint32_t)read_word(block + 74 + 4 * i, 4);
    u->scales[0] = block[106 + i / 2] >> i % 2 * 4 & 15;
}

/* All columns are shifted in the same direction. */
INLINE void read_iq1_s(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 2 + 4 * i;
    uint32_t word = (uint32_t)read_word(block + 34 + 2 * i, 2);
    for (int q = 0; q < 4; q++)
        u->codes[q] = (uint16_t)(at[q] | (word >> 3 * q & 7) << 8 | (word >> 15) << 11);
    u->scales[0] = word >> 12 & 7;
}

INLINE void read_iq1_m(const unsigned char *block, int i, unit *u)
{
    const unsigned char *at = block + 4 * i;
    uint32_t word = (uint32_t)read_word(block + 32 + 2 * i, 2);
    for (int q = 0; q < 4; q++) u->codes[q] = (uint16_t)(at[q] | (word >> 4 * q & 15) << 8);
    uint32_t scales = (uint32_t)read_word(block + 48 + i / 2 * 2, 2) >> i % 2 * 6;
    u->scales[0] = (uint8_t)((scales & 7) | (scales >> 3 & 7) << 4);
}

/* Unit i of a block. Of Q4_K and Q5_K units 2j and 2j + 1 are the low and the high nibbles of the same 32
 * bytes. Of Q6_K 128 columns stand together: 64 bytes of low nibbles, 32 of high pairs of bits. */
INLINE void read_unit(const weir__panel_format format, const unsigned char *block, int i, unit *u)
{
    const int half = WEIR__UNIT / 2;
    switch (format) {
    case WEIR__PANEL_Q8_0:
        for (int k = 0; k < WEIR__UNIT; k++) u->values[k] = block[2 + k] ^ 0x80; /* plus 128 */
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q4_0:
    case WEIR__PANEL_IQ4_NL:
        memcpy(u->values, block + 2, half);
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q4_1:
        memcpy(u->values, block + 4, half);
        memcpy(u->scales, block, 4);
        break;
    case WEIR__PANEL_Q5_0:
        memcpy(u->values, block + 6, half);
        u->planes[0] = (uint32_t)read_word(block + 2, 4);
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q5_1:
        memcpy(u->values, block + 8, half);
        u->planes[0] = (uint32_t)read_word(block + 4, 4);
        memcpy(u->scales, block, 4);
        break;
    case WEIR__PANEL_MXFP4:
        memcpy(u->values, block + 1, half);
        u->scales[0] = block[0];
        break;
    case WEIR__PANEL_Q4_K:
        read_nibbles(block + 16 + i / 2 * 32, i % 2 * 4, u->values);
        read_scales_k(block + 4, i, u->scales);
        break;
    case WEIR__PANEL_Q5_K:
        read_nibbles(block + 48 + i / 2 * 32, i % 2 * 4, u->values);
        u->planes[0] = read_plane(block + 16, i);
        read_scales_k(block + 4, i, u->scales);
        break;
    case WEIR__PANEL_Q2_K:
        read_pairs(block + 16 + i / 4 * 32, i % 4 * 2, u->values);
        memcpy(u->scales, block + 2 * i, 2);
        break;
    case WEIR__PANEL_Q3_K:
        read_pairs(block + 32 + i / 4 * 32, i % 4 * 2, u->values);
        u->planes[0] = read_plane(block, i);
        for (int part = 0; part < 2; part++) u->scales[part] = read_scale_q3(block + 96, 2 * i + part);
        break;
    case WEIR__PANEL_IQ4_XS:
        memcpy(u->values, block + 8 + half * i, half);
        u->scales[0] =
            (uint8_t)(((block[4 + i / 2] >> i % 2 * 4 & 15) | (block[2 + i / 4] >> i % 4 * 2 & 3) << 4) - 32);
        break;
    case WEIR__PANEL_TQ1_0: read_trits(block, i, u->values); break;
    case WEIR__PANEL_TQ2_0: read_pairs(block + i / 4 * 32, i % 4 * 2, u->values); break;
    case WEIR__PANEL_Q1_0: u->planes[0] = (uint32_t)read_word(block + 2 + 4 * i, 4); break;
    case WEIR__PANEL_Q2_0: read_packed_pairs(block + 2 + 8 * i, u->values); break;
    case WEIR__PANEL_NVFP4: /* of each half of a unit, columns k and k + 8 are a byte's nibbles */
        for (int k = 0; k < 8; k++) {
            unsigned first = block[4 + half * i + k], second = block[4 + half * i + 8 + k];
            u->values[k] = (uint8_t)((first & 15) | (second & 15) << 4);
            u->values[k + 8] = (uint8_t)(first >> 4 | (second & 0xf0));
        }
        for (int part = 0; part < 2; part++) u->scales[part] = read_float8(block[2 * i + part]);
        break;
    case WEIR__PANEL_IQ2_XXS: read_iq2_xxs(block, i, u); break;
    case WEIR__PANEL_IQ2_XS: read_iq2_xs(block, i, u); break;
    case WEIR__PANEL_IQ2_S: read_iq2_s(block, i, u); break;
    case WEIR__PANEL_IQ3_XXS: read_iq3_xxs(block, i, u); break;
    case WEIR__PANEL_IQ3_S: read_iq3_s(block, i, u); break;
    case WEIR__PANEL_IQ1_S: read_iq1_s(block, i, u); break;
    case WEIR__PANEL_IQ1_M: read_iq1_m(block, i, u); break;
    case WEIR__PANEL_Q6_K:
        read_nibbles(block + i / 4 * 64 + i % 2 * 32, i / 2 % 2 * 4, u->values);
        for (int p = 0; p < 2; p++) u->planes[p] = read_plane(block + 128 + i / 4 * 32, i % 4 * 2 + p);
        memcpy(u->scales, block + 192 + 2 * i, 2);
        break;
    case WEIR__PANEL_BF16:
    case WEIR__PANEL_F16:
    case WEIR__PANEL_F32: break; /* they have no blocks */
    }
}

/* ---- Panels ---------------------------------------------------------------------------------------- */

/* Neighbouring columns: four of a row stand together in an unpacked unit, and a quad of one row stands 64
 * bytes before the same row's next. */
#define QUAD      4
#define QUAD_STEP (QUAD * WEIR__PANEL_ROWS)

/* Puts the low n bits of x at bit `at` of bytes that are filled in this order. */
INLINE void put_bits(unsigned char *bytes, int at, const int n, unsigned x)
{
    unsigned char *byte = bytes + at / 8;
    *byte = (unsigned char)((at % 8 == 0 ? 0u : *byte) | (x & ((1u << n) - 1)) << at % 8);
}

/* A row's indices: their low bytes, and behind those of all rows a plane for each further bit. */
INLINE void put_codes(const weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int n = l->values == WEIR__VALUES_OCTETS ? WEIR__UNIT / 8 : WEIR__UNIT / 4,
              more = l->code_bits - 8 + weir__panel_has_shift(format);
    for (int q = 0; q < n; q++) {
        int at = q * WEIR__PANEL_ROWS + row;
        out[at] = (unsigned char)u->codes[q];
        for (int bit = 0; bit < more; bit++)
            put_bits(out + n * (WEIR__PANEL_ROWS + 2 * bit), at, 1, u->codes[q] >> (8 + bit));
    }
}

/* Rows come in order: the first of several that share a byte sets it. */
INLINE void put_values(const weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int n_bytes = l->values == WEIR__VALUES_BYTES     ? WEIR__UNIT
                        : l->values == WEIR__VALUES_NIBBLES ? WEIR__UNIT / 2
                        : l->values == WEIR__VALUES_PAIRS   ? WEIR__UNIT / 4
                                                            : 0;
    unsigned char *planes = out + l->scales_at - l->planes * WEIR__PANEL_PLANE;
    for (int q = 0; q < n_bytes / QUAD; q++)
        memcpy(out + q * QUAD_STEP + row * QUAD, u->values + q * QUAD, QUAD);
    if (weir__panel_has_codes(format)) put_codes(format, u, row, out);
    for (int p = 0; p < l->planes; p++, planes += WEIR__PANEL_PLANE)
        for (int q = 0; q < WEIR__UNIT / QUAD; q++)
            put_bits(planes, q * QUAD_STEP + row * QUAD, QUAD, u->planes[p] >> q * QUAD);
}

/* The bytes of one row's scales, each kind in 16 rows' column. */
INLINE void put_scales(const weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const size_t bytes = (size_t)(l->unit_bytes - l->scales_at) / WEIR__PANEL_ROWS;
    const size_t width = l->scales == WEIR__SCALES_HALF || l->scales == WEIR__SCALES_HALF_MIN ? 2 : 1;
    if (l->scales == WEIR__SCALES_ODD && l->parts == 1) {
        unsigned char *byte = out + row % 8;
        *byte = (unsigned char)(row < 8 ? u->scales[0] : *byte | u->scales[0] << 4);
        return;
    }
    for (size_t i = 0; i < bytes; i += width)
        memcpy(out + i * WEIR__PANEL_ROWS + (size_t)row * width, u->scales + i, width);
}

/* The scales that a block has once: d, or d and dmin. */
INLINE void put_head(const weir__panel_format format, const unsigned char *block, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    unsigned char whole[2] = {0};
    const unsigned char *at = block + l->head_at;
    if (l->head_at < 0) { /* IQ1_M: the fourth nibbles of four words */
        whole[0] = (unsigned char)(block[49] >> 4 | (block[51] & 0xf0));
        whole[1] = (unsigned char)(block[53] >> 4 | (block[55] & 0xf0));
        at = whole;
    }
    for (int i = 0; i < l->head_bytes / WEIR__PANEL_HALVES; i++)
        memcpy(out + i * WEIR__PANEL_HALVES + row * 2, at + 2 * i, 2);
}

/* Values of 16 bits stay as they are, `width` neighbouring columns of a row in one piece. */
INLINE void pack_floats(const int width, int64_t columns, const unsigned char *rows, unsigned char *panels,
                        int64_t first, int64_t end)
{
    const size_t size = (size_t)width * sizeof(uint16_t);
    size_t row_bytes = (size_t)columns * sizeof(uint16_t);
    const unsigned char *from = rows + (size_t)first * WEIR__PANEL_ROWS * row_bytes;
    unsigned char *out = panels + (size_t)first * WEIR__PANEL_ROWS * row_bytes;
    for (int64_t p = first; p < end; p++, from += WEIR__PANEL_ROWS * row_bytes)
        for (size_t at = 0; at < row_bytes; at += size)
            for (size_t row = 0; row < WEIR__PANEL_ROWS; row++, out += size)
                memcpy(out, from + row * row_bytes + at, size);
}

/* Rounds up to a unit's numbers to integers; returns the factor that gives them back, NaN if the sum of their
 * squares is not finite. */
static float to_integers(const float *from, int n, int16_t *q)
{
    const float rounder = 0x1.8p23f; /* a sum with it has no fraction */
    float x[WEIR__UNIT] = {0.0f}, most = 0.0f, squares = 0.0f;
    memcpy(x, from, (size_t)n * sizeof *x);
    for (int i = 0; i < WEIR__UNIT; i++) {
        float size = fabsf(x[i]);
        most = size > most ? size : most;
        squares += x[i] * x[i];
    }
    float by_norm = sqrtf(squares) / WEIR__INTEGERS_NORM, by_most = most / WEIR__INTEGERS_MOST;
    float factor = by_norm > by_most ? by_norm : by_most;
    if (most < WEIR__INTEGERS_LEAST) factor = 0.0f;
    if (!isfinite(squares)) factor = NAN;
    float scale = factor > 0.0f ? 1.0f / factor : 0.0f;
    for (int i = 0; i < WEIR__UNIT; i++) {
        float whole = x[i] * scale + rounder;
        int32_t bits;
        memcpy(&bits, &whole, sizeof bits);
        q[i] = (int16_t)bits;
    }
    return factor;
}

static void pack_integers(int64_t columns, const float *rows, unsigned char *panels, int64_t first,
                          int64_t end)
{
    const weir__panel_layout *l = &weir__panel_layouts[WEIR__PANEL_F32];
    unsigned char *out =
        panels + (size_t)first * weir__panel_bytes(WEIR__PANEL_F32, WEIR__PANEL_ROWS, columns);
    for (int64_t p = first; p < end; p++)
        for (int64_t at = 0; at < columns; at += WEIR__UNIT, out += l->unit_bytes)
            for (int64_t row = 0; row < WEIR__PANEL_ROWS; row++) {
                const float *x = rows + (p * WEIR__PANEL_ROWS + row) * columns + at;
                int n = columns - at < WEIR__UNIT ? (int)(columns - at) : WEIR__UNIT;
                int16_t q[WEIR__UNIT];
                float factor = to_integers(x, n, q);
                for (size_t i = 0; i < WEIR__UNIT; i += 2)
                    memcpy(out + (i * WEIR__PANEL_ROWS + (size_t)row * 2) * sizeof *q, q + i, 2 * sizeof *q);
                memcpy(out + l->scales_at + (size_t)row * sizeof factor, &factor, sizeof factor);
            }
}

INLINE void pack_units(const weir__panel_format format, int64_t columns, const unsigned char *rows,
                       unsigned char *panels, int64_t first, int64_t end)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int n_units = l->columns / WEIR__UNIT;
    int64_t n_blocks = columns / l->columns;
    size_t row_bytes = (size_t)n_blocks * (size_t)l->block_bytes;
    const unsigned char *from = rows + (size_t)first * WEIR__PANEL_ROWS * row_bytes;
    unsigned char *out = panels + (size_t)first * weir__panel_bytes(format, WEIR__PANEL_ROWS, columns);
    for (int64_t p = first; p < end; p++, from += WEIR__PANEL_ROWS * row_bytes)
        for (int64_t b = 0; b < n_blocks; b++, out += l->head_bytes + n_units * l->unit_bytes)
            for (int row = 0; row < WEIR__PANEL_ROWS; row++) {
                const unsigned char *block =
                    from + (size_t)row * row_bytes + (size_t)b * (size_t)l->block_bytes;
                if (l->head_bytes > 0) put_head(format, block, row, out);
                for (int i = 0; i < n_units; i++) {
                    unsigned char *at = out + l->head_bytes + i * l->unit_bytes;
                    unit u;
                    read_unit(format, block, i, &u);
                    put_values(format, &u, row, at);
                    put_scales(format, &u, row, at + l->scales_at);
                }
            }
}

void weir__panel_pack(weir__panel_format format, int64_t columns, const void *rows, void *panels,
                      int64_t first, int64_t end)
{
    switch (format) {
    case WEIR__PANEL_BF16: pack_floats(2, columns, rows, panels, first, end); break;
    case WEIR__PANEL_F16: pack_floats(1, columns, rows, panels, first, end); break;
    case WEIR__PANEL_F32: pack_integers(columns, rows, panels, first, end); break;
#define PACK(name)                                                                                           \
    case WEIR__PANEL_##name: pack_units(WEIR__PANEL_##name, columns, rows, panels, first, end); break;
        WEIR__PANEL_QUANTIZED(PACK)
    }
}

/* ---- Codebooks ------------------------------------------------------------------------------------- */

/* The places of indices in a format's block. Low bytes begin at byte 2, high bits at byte high_at. */
static const struct book {
    weir__panel_format format;
    int n;          /* entries */
    int unit, step; /* bytes from a unit's low bytes to the next unit's, and from an index to the next */
    int high_at;
    int high_unit; /* bytes from a unit's high bits to the next unit's */
    int shift;     /* bits from an index's high bits to the next index's */
    float inverse; /* times the block's numbers gives integers */
} books[WEIR__BOOK_NONE] = {
    [WEIR__BOOK_IQ3_XXS] = {WEIR__PANEL_IQ3_XXS, 256, 8, 1, 0, 0, 0, 4.0f},
    [WEIR__BOOK_IQ3_S] = {WEIR__PANEL_IQ3_S, 512, 8, 1, 66, 1, 1, 1.0f},
    [WEIR__BOOK_IQ2_XXS] = {WEIR__PANEL_IQ2_XXS, 256, 8, 1, 0, 0, 0, 8.0f},
    [WEIR__BOOK_IQ2_XS] = {WEIR__PANEL_IQ2_XS, 512, 8, 2, 3, 8, 16, 8.0f},
    [WEIR__BOOK_IQ2_S] = {WEIR__PANEL_IQ2_S, 1024, 4, 1, 66, 1, 2, 8.0f},
    [WEIR__BOOK_IQ1] = {WEIR__PANEL_IQ1_S, 2048, 4, 1, 34, 2, 3, 8.0f},
};

enum { COLUMNS = 256, MOST_BYTES = 128 }; /* of a block */

/* Writes index `code` as the q-th of unit i. */
static void put_index(const struct book *b, int code, int i, int q, unsigned char *block)
{
    block[2 + i * b->unit + q * b->step] |= (unsigned char)code;
    int bit = q * b->shift, high = code >> 8 << bit % 8;
    unsigned char *at = block + b->high_at + i * b->high_unit + bit / 8;
    at[0] |= (unsigned char)high;
    at[1] |= (unsigned char)(high >> 8);
}

/* Numbers the sizes that occur among n entries of `width` bytes, and writes entries as these numbers. False:
 * there are too many. */
static bool number_levels(weir__codebook *book, int n, int width)
{
    const int bits = 16 / width;
    bool occurs[256] = {false};
    uint8_t number[256] = {0};
    int n_levels = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            uint64_t entry = width == 8 ? book->octets[i] : book->quartets[i];
            unsigned word = 0;
            for (int k = 0; k < width; k++) {
                uint8_t size = (uint8_t)(entry >> 8 * k);
                occurs[size] = true;
                word |= (unsigned)number[size] << bits * k;
            }
            book->words[i] = (uint16_t)word;
        }
        for (int size = 0; size < 256 && pass == 0; size++) {
            if (!occurs[size]) continue;
            if (n_levels == 1 << bits) return false;
            book->levels[n_levels] = (uint8_t)(128 + size);
            number[size] = (uint8_t)n_levels++;
        }
    }
    return true;
}

/* Reads an entry of `width` numbers. False: the kernels cannot multiply one of them. */
static bool read_entry(const weir__panel_layout *l, const struct book *b, const float *numbers, int width,
                       uint64_t *entry)
{
    const long offset = weir__panel_has_signs(b->format) ? 0 : 1 << l->offset;
    *entry = 0;
    for (int k = 0; k < width; k++) {
        long value = offset + lrintf(numbers[k] * b->inverse);
        if (value < 0 || value > l->most) return false;
        *entry |= (uint64_t)value << 8 * k;
    }
    return true;
}

void weir__panel_learn(weir__panel_format format, weir__panel_reader *read)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    if (l->book == WEIR__BOOK_NONE || books[l->book].format != format) return;
    const struct book *b = &books[l->book];
    weir__codebook *book = &weir__codebooks[l->book];
    const int width = l->values == WEIR__VALUES_OCTETS ? 8 : 4, of_unit = WEIR__UNIT / width;
    book->known = true;
    for (int first = 0; first < b->n; first += COLUMNS / width) {
        _Alignas(8) unsigned char block[MOST_BYTES] = {0};
        float numbers[COLUMNS];
        block[l->head_at + 1] = 0x3c; /* 1 in half precision */
        for (int i = 0; i < COLUMNS / width; i++) put_index(b, first + i, i / of_unit, i % of_unit, block);
        read(block, numbers, COLUMNS);
        for (int i = 0; i < COLUMNS / width; i++) {
            uint64_t entry;
            book->known &= read_entry(l, b, numbers + i * width, width, &entry);
            if (width == 8)
                book->octets[first + i] = entry;
            else
                book->quartets[first + i] = (uint32_t)entry;
        }
    }
    if (b->n <= 512) book->known &= number_levels(book, b->n, width);
}

bool weir__panel_is_known(weir__panel_format format)
{
    return !weir__panel_has_codes(format) || weir__codebook_of(format)->known;
}
