/* panel.h: a matrix of weights in the order in which the kernels read it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen rows stand side by side as a panel, which is cut into units of 32 columns. A unit holds vectors of
 * 64 bytes: four columns of one row are neighbours and the sixteen rows follow each other, which is what
 * vpdpbusd multiplies with four activations that all lanes share. Formats of four to six bits keep two
 * columns, 16 apart, in one byte, and their fifth and sixth bits in planes of one bit for each byte of the
 * unpacked unit. Of BF16 two columns are neighbours, for vdpbf16ps, and of F16 each stands alone. Values and
 * scales are the file's own; none is rounded anew. Except for F32: a row's 32 columns become 16-bit integers
 * with a scale of their own, two neighbours for vpdpwssd. */
#ifndef WEIR_KERNELS_PANEL_H
#define WEIR_KERNELS_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the order of all formats, raised when that of any changes: files hold panels
 * (hook/optimized_file.h). */
#define WEIR__PANEL_VERSION 1

#define WEIR__PANEL_ROWS 16 /* of sums, as many as a register of AVX-512 has */
#define WEIR__UNIT       32 /* columns; also those that share an activation's scale */

/* Formats in the order of the kernels' tables. */
#define WEIR__PANEL_QUANTIZED(X)                                                                             \
    X(Q8_0)                                                                                                  \
    X(Q4_0)                                                                                                  \
    X(Q4_1)                                                                                                  \
    X(Q5_0)                                                                                                  \
    X(Q5_1)                                                                                                  \
    X(IQ4_NL)                                                                                                \
    X(MXFP4)                                                                                                 \
    X(Q4_K)                                                                                                  \
    X(Q5_K)                                                                                                  \
    X(Q6_K)
#define WEIR__PANEL_FLOATS(X)                                                                                \
    X(BF16)                                                                                                  \
    X(F16)                                                                                                   \
    X(F32)
#define WEIR__PANEL_N_FORMATS 13

typedef enum weir__panel_format {
#define X(name) WEIR__PANEL_##name,
    WEIR__PANEL_QUANTIZED(X) WEIR__PANEL_FLOATS(X)
#undef X
} weir__panel_format;

/* Bytes of a unit of 16 rows: all low four bits, one bit of each value, a half-precision number for each
 * row. */
#define WEIR__PANEL_NIBBLES (WEIR__PANEL_ROWS * WEIR__UNIT / 2)
#define WEIR__PANEL_PLANE   (WEIR__PANEL_ROWS * WEIR__UNIT / 8)
#define WEIR__PANEL_HALVES  (WEIR__PANEL_ROWS * 2)

/* Scales of 16 rows are neighbours. */
typedef struct weir__panel_layout {
    const char *name;
    int32_t columns;     /* of a block in the file: 32 or 256; without blocks, of a unit */
    int32_t block_bytes; /* in the file, one row */
    int32_t head_bytes;  /* of 16 rows' blocks: scales that all their units share */
    int32_t scales_at;   /* in a unit, after its values */
    int32_t unit_bytes;
} weir__panel_layout;

/* Layouts, defined here so that the kernels see constants. */
static const weir__panel_layout weir__panel_layouts[WEIR__PANEL_N_FORMATS] = {
    {"q8_0", 32, 34, 0, 512, 512 + 32},    {"q4_0", 32, 18, 0, 256, 256 + 32},
    {"q4_1", 32, 20, 0, 256, 256 + 64},    {"q5_0", 32, 22, 0, 320, 320 + 32},
    {"q5_1", 32, 24, 0, 320, 320 + 64},    {"iq4_nl", 32, 18, 0, 256, 256 + 32},
    {"mxfp4", 32, 17, 0, 256, 256 + 16},   {"q4_K", 256, 144, 64, 256, 256 + 32},
    {"q5_K", 256, 176, 64, 320, 320 + 32}, {"q6_K", 256, 210, 32, 384, 384 + 32},
    {"bf16", 32, 64, 0, 1024, 1024},       {"f16", 32, 64, 0, 1024, 1024},
    {"f32", 32, 128, 0, 1024, 1024 + 64},
};

/* The integers of F32: the largest, and the largest Euclidean norm of a unit. Two units' products add up to
 * less than 2^31. A unit whose largest value is below LEAST counts as zeroes. */
#define WEIR__INTEGERS_MOST  32767.0f
#define WEIR__INTEGERS_NORM  46300.0f
#define WEIR__INTEGERS_LEAST 0x1p-50f

/* Units of a row of k columns. In F32 the last may be half of one, whose other half is zeroes. */
static inline int64_t weir__units_in(int64_t k)
{
    return (k + WEIR__UNIT - 1) / WEIR__UNIT;
}

/* Bytes of rows × columns weights as panels. rows must be a multiple of 16, columns of the block's (F32: of
 * 16). */
size_t weir__panel_bytes(weir__panel_format format, int64_t rows, int64_t columns);

/* Packs panels [first, end) of a matrix. rows: the file's bytes of the whole matrix, row after row; panels:
 * where all of them go. Ranges may be packed on several threads at once. */
void weir__panel_pack(weir__panel_format format, int64_t columns, const void *rows, void *panels,
                      int64_t first, int64_t end);

/* The values of IQ4_NL's and MXFP4's codes, plus 128. */
extern const uint8_t weir__panel_iq4_nl[16], weir__panel_mxfp4[16];

#endif
