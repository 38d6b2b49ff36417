/* panel.c: from the file's order to the kernels'.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The block layouts read here are ggml's (ggml-common.h). */
#include "backend/kernels/panel.h"

#include <string.h>

const uint8_t weir__panel_iq4_nl[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                        129, 141, 153, 166, 181, 197, 217, 241};
const uint8_t weir__panel_mxfp4[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                       128, 127, 126, 125, 124, 122, 120, 116};

size_t weir__panel_bytes(weir__panel_format format, int64_t rows, int64_t columns)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    size_t units = (size_t)(l->columns / WEIR__UNIT);
    size_t block = (size_t)l->head_bytes + units * (size_t)l->unit_bytes;
    return (size_t)(rows / WEIR__PANEL_ROWS) * (size_t)(columns / l->columns) * block;
}

/* ---- One row's block ------------------------------------------------------------------------------- */

/* The 32 values of one unit as unsigned numbers, and its scales. */
typedef struct unit {
    uint8_t values[WEIR__UNIT];
    uint8_t scales[4]; /* what of the file's bytes stands at scales_at, bytes of one row */
} unit;

static void split_nibbles(const unsigned char *packed, uint8_t *values)
{
    for (int i = 0; i < 16; i++) {
        values[i] = packed[i] & 15;
        values[i + 16] = packed[i] >> 4;
    }
}

static void add_high_bits(const unsigned char *bits, uint8_t *values)
{
    for (int i = 0; i < WEIR__UNIT; i++) values[i] |= (uint8_t)((bits[i / 8] >> i % 8 & 1) << 4);
}

/* Scale and minimum of a unit, six bits each, packed into 12 bytes for eight units. */
static void read_scales_k(const unsigned char *packed, int i, uint8_t *scales)
{
    if (i < 4) {
        scales[0] = packed[i] & 63;
        scales[1] = packed[i + 4] & 63;
    } else {
        scales[0] = (uint8_t)((packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4);
        scales[1] = (uint8_t)(packed[i + 4] >> 4 | (packed[i] >> 6) << 4);
    }
}

/* Units 2j and 2j + 1 are the low and the high nibbles of the same 32 bytes. */
static void read_nibbles_k(const unsigned char *packed, int i, uint8_t *values)
{
    for (int k = 0; k < WEIR__UNIT; k++) {
        unsigned char byte = packed[i / 2 * 32 + k];
        values[k] = i % 2 == 0 ? byte & 15 : byte >> 4;
    }
}

/* 128 columns at a time: 64 bytes of low nibbles, 32 of high pairs of bits. */
static void read_q6_k(const unsigned char *block, int i, uint8_t *values)
{
    const unsigned char *low = block + i / 4 * 64 + i % 2 * 32, *high = block + 128 + i / 4 * 32;
    for (int k = 0; k < WEIR__UNIT; k++) {
        uint8_t four = i % 4 < 2 ? low[k] & 15 : low[k] >> 4;
        values[k] = (uint8_t)(four | (high[k] >> 2 * (i % 4) & 3) << 4);
    }
}

/* Unit i of a block. */
static void read_unit(weir__panel_format format, const unsigned char *block, int i, unit *u)
{
    switch (format) {
    case WEIR__PANEL_Q8_0:
        for (int k = 0; k < WEIR__UNIT; k++) u->values[k] = block[2 + k] ^ 0x80; /* plus 128 */
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q4_0:
    case WEIR__PANEL_IQ4_NL:
        split_nibbles(block + 2, u->values);
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q4_1:
        split_nibbles(block + 4, u->values);
        memcpy(u->scales, block, 4);
        break;
    case WEIR__PANEL_Q5_0:
        split_nibbles(block + 6, u->values);
        add_high_bits(block + 2, u->values);
        memcpy(u->scales, block, 2);
        break;
    case WEIR__PANEL_Q5_1:
        split_nibbles(block + 8, u->values);
        add_high_bits(block + 4, u->values);
        memcpy(u->scales, block, 4);
        break;
    case WEIR__PANEL_MXFP4:
        split_nibbles(block + 1, u->values);
        u->scales[0] = block[0];
        break;
    case WEIR__PANEL_Q4_K:
        read_nibbles_k(block + 16, i, u->values);
        read_scales_k(block + 4, i, u->scales);
        break;
    case WEIR__PANEL_Q5_K:
        read_nibbles_k(block + 48, i, u->values);
        for (int k = 0; k < WEIR__UNIT; k++) u->values[k] |= (uint8_t)((block[16 + k] >> i & 1) << 4);
        read_scales_k(block + 4, i, u->scales);
        break;
    case WEIR__PANEL_Q6_K:
    default:
        read_q6_k(block, i, u->values);
        memcpy(u->scales, block + 192 + 2 * i, 2);
        break;
    }
}

/* ---- Panels ---------------------------------------------------------------------------------------- */

/* In an unpacked unit four neighbouring columns of a row stand together, and a quad of one row stands 64
 * bytes before the same row's next. */
#define QUAD      4
#define QUAD_STEP (QUAD * WEIR__PANEL_ROWS)

static void put_quads(const uint8_t *values, int n, int row, unsigned char *out)
{
    for (int q = 0; q < n / QUAD; q++) memcpy(out + q * QUAD_STEP + row * QUAD, values + q * QUAD, QUAD);
}

/* One bit of each value, a quad of them in half a byte. */
static void put_plane(const uint8_t *values, int bit, int row, unsigned char *out)
{
    uint8_t bits[WEIR__UNIT];
    for (int k = 0; k < WEIR__UNIT; k++) bits[k] = (uint8_t)((values[k] >> bit & 1) << k % QUAD);
    for (int q = 0; q < WEIR__UNIT / QUAD; q++) {
        const uint8_t *b = bits + q * QUAD;
        out[q * QUAD_STEP / 8 + row / 2] |= (unsigned char)((b[0] | b[1] | b[2] | b[3]) << row % 2 * QUAD);
    }
}

static void put_values(weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    int planes = (l->scales_at - WEIR__PANEL_NIBBLES) / WEIR__PANEL_PLANE;
    uint8_t nibbles[WEIR__UNIT / 2];
    if (format == WEIR__PANEL_Q8_0) {
        put_quads(u->values, WEIR__UNIT, row, out);
        return;
    }
    for (int k = 0; k < WEIR__UNIT / 2; k++)
        nibbles[k] = (uint8_t)((u->values[k] & 15) | u->values[k + 16] << 4);
    put_quads(nibbles, WEIR__UNIT / 2, row, out);
    for (int p = 0; p < planes; p++)
        put_plane(u->values, 4 + p, row, out + WEIR__PANEL_NIBBLES + p * WEIR__PANEL_PLANE);
}

/* The bytes of one row's scales, each kind in 16 rows' column: `width` bytes each. */
static void put_scales(weir__panel_format format, const unit *u, int row, unsigned char *out)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    size_t bytes = (size_t)(l->unit_bytes - l->scales_at) / WEIR__PANEL_ROWS;
    size_t width = l->columns == WEIR__UNIT && format != WEIR__PANEL_MXFP4 ? 2 : 1;
    for (size_t i = 0; i < bytes; i += width)
        memcpy(out + i * WEIR__PANEL_ROWS + (size_t)row * width, u->scales + i, width);
}

/* What a block of 256 columns has once: d and dmin, or d alone at the end of the block. */
static void put_head(weir__panel_format format, const unsigned char *block, int row, unsigned char *out)
{
    if (format == WEIR__PANEL_Q6_K) {
        memcpy(out + row * 2, block + 208, 2);
    } else {
        memcpy(out + row * 2, block, 2);
        memcpy(out + WEIR__PANEL_HALVES + row * 2, block + 2, 2);
    }
}

/* Values of 16 bits stay as they are, `width` neighbouring columns of a row in one piece. */
static void pack_floats(const int width, int64_t columns, const unsigned char *rows, unsigned char *panels,
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

void weir__panel_pack(weir__panel_format format, int64_t columns, const void *rows, void *panels,
                      int64_t first, int64_t end)
{
    const weir__panel_layout *l = &weir__panel_layouts[format];
    if (format == WEIR__PANEL_BF16) {
        pack_floats(2, columns, rows, panels, first, end);
        return;
    }
    if (format == WEIR__PANEL_F16) {
        pack_floats(1, columns, rows, panels, first, end);
        return;
    }
    int64_t n_blocks = columns / l->columns;
    int n_units = l->columns / WEIR__UNIT;
    size_t row_bytes = (size_t)n_blocks * (size_t)l->block_bytes;
    size_t panel_bytes = weir__panel_bytes(format, WEIR__PANEL_ROWS, columns);
    for (int64_t p = first; p < end; p++) {
        const unsigned char *from = (const unsigned char *)rows + (size_t)p * WEIR__PANEL_ROWS * row_bytes;
        unsigned char *out = (unsigned char *)panels + (size_t)p * panel_bytes;
        memset(out, 0, panel_bytes);
        for (int64_t b = 0; b < n_blocks; b++) {
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
            out += l->head_bytes + n_units * l->unit_bytes;
        }
    }
}
