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
const uint8_t weir__panel_mxfp4[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                       128, 127, 126, 125, 124, 122, 120, 116};

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
    uint8_t values[WEIR__UNIT]; /* Q8_0: plus 128; else 16 bytes: low four bits of columns k and k + 16 */
    uint32_t planes[2];         /* the fifth and the sixth bit of column k: bit k */
    uint8_t scales[4];          /* a row's bytes at scales_at, as in the file */
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
    case WEIR__PANEL_Q6_K:
    default:
        read_nibbles(block + i / 4 * 64 + i % 2 * 32, i / 2 % 2 * 4, u->values);
        for (int p = 0; p < 2; p++) u->planes[p] = read_plane(block + 128 + i / 4 * 32, i % 4 * 2 + p);
        memcpy(u->scales, block + 192 + 2 * i, 2);
        break;
    }
}

/* ---- Panels ---------------------------------------------------------------------------------------- */

/* Neighbouring columns: four of a row stand together in an unpacked unit, and a quad of one row stands 64
 * bytes before the same row's next. */
#define QUAD      4
#define QUAD_STEP (QUAD * WEIR__PANEL_ROWS)

/* Rows come in order: the first of two that share bytes of a plane sets them. */
INLINE void put_values(const weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    const int n_planes =
        format == WEIR__PANEL_Q8_0 ? 0 : (l->scales_at - WEIR__PANEL_NIBBLES) / WEIR__PANEL_PLANE;
    const int n_bytes = format == WEIR__PANEL_Q8_0 ? WEIR__UNIT : WEIR__UNIT / 2;
    for (int q = 0; q < n_bytes / QUAD; q++)
        memcpy(out + q * QUAD_STEP + row * QUAD, u->values + q * QUAD, QUAD);
    for (int p = 0; p < n_planes; p++)
        for (int q = 0; q < WEIR__UNIT / QUAD; q++) {
            unsigned char *byte =
                out + WEIR__PANEL_NIBBLES + p * WEIR__PANEL_PLANE + (q * QUAD_STEP + row * QUAD) / 8;
            uint32_t bits = u->planes[p] >> q * QUAD & 15;
            *byte = (unsigned char)(row % 2 == 0 ? bits : *byte | bits << QUAD);
        }
}

/* The bytes of one row's scales, each kind in 16 rows' column: `width` bytes each. */
INLINE void put_scales(const weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    size_t bytes = (size_t)(l->unit_bytes - l->scales_at) / WEIR__PANEL_ROWS;
    size_t width = l->columns == WEIR__UNIT && format != WEIR__PANEL_MXFP4 ? 2 : 1;
    for (size_t i = 0; i < bytes; i += width)
        memcpy(out + i * WEIR__PANEL_ROWS + (size_t)row * width, u->scales + i, width);
}

/* The scales that a block of 256 columns has once: d and dmin, or d alone at the end of the block. */
INLINE void put_head(const weir__panel_format format, const unsigned char *block, int row, unsigned char *out)
{
    if (format == WEIR__PANEL_Q6_K) {
        memcpy(out + row * 2, block + 208, 2);
    } else {
        memcpy(out + row * 2, block, 2);
        memcpy(out + WEIR__PANEL_HALVES + row * 2, block + 2, 2);
    }
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
