/* panel.h: a matrix of weights in the order in which the kernels read it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen rows stand side by side as a panel, which is cut into units of 32 columns. A unit holds vectors of
 * 64 bytes: four columns of one row are neighbours and the sixteen rows follow each other, which is what
 * vpdpbusd multiplies with four activations that all lanes share. Formats of four to six bits keep two
 * columns, 16 apart, in one byte, formats of two and three bits four columns, 8 apart; further bits stand in
 * planes of one bit for each byte of the unpacked unit. Formats with a codebook keep its indices, which a
 * kernel looks up when it reads a unit, and the signs as a plane. Of BF16 two columns are neighbours, for
 * vdpbf16ps, and of F16 each stands alone. Values and scales are the file's own; none is rounded anew. Except
 * for F32: a row's 32 columns become 16-bit integers with a scale of their own, two neighbours for vpdpwssd.
 *
 * To add a format, give it a name in a list and a row in the table of layouts here, and read a unit of its
 * file's block in panel.c. */
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
    X(Q6_K)                                                                                                  \
    X(Q2_K)                                                                                                  \
    X(Q3_K)                                                                                                  \
    X(IQ4_XS)                                                                                                \
    X(IQ3_XXS)                                                                                               \
    X(IQ3_S)                                                                                                 \
    X(IQ2_XXS)                                                                                               \
    X(IQ2_XS)                                                                                                \
    X(IQ2_S)                                                                                                 \
    X(IQ1_S)                                                                                                 \
    X(IQ1_M)                                                                                                 \
    X(TQ1_0)                                                                                                 \
    X(TQ2_0)                                                                                                 \
    X(Q1_0)                                                                                                  \
    X(Q2_0)                                                                                                  \
    X(NVFP4)
#define WEIR__PANEL_FLOATS(X)                                                                                \
    X(BF16)                                                                                                  \
    X(F16)                                                                                                   \
    X(F32)

typedef enum weir__panel_format {
#define X(name) WEIR__PANEL_##name,
    WEIR__PANEL_QUANTIZED(X) WEIR__PANEL_FLOATS(X)
#undef X
} weir__panel_format;

#define WEIR__PANEL_N_FORMATS (WEIR__PANEL_F32 + 1)

/* Bytes of a unit of 16 rows: one bit of each value, a half-precision number for each row, indices of eight
 * and of four columns. */
#define WEIR__PANEL_PLANE    (WEIR__PANEL_ROWS * WEIR__UNIT / 8)
#define WEIR__PANEL_HALVES   (WEIR__PANEL_ROWS * 2)
#define WEIR__PANEL_OCTETS   (WEIR__PANEL_ROWS * WEIR__UNIT / 8)
#define WEIR__PANEL_QUARTETS (WEIR__PANEL_ROWS * WEIR__UNIT / 4)

/* What a unit's values are: a byte, four or two bits each; planes only; an index into a codebook for four or
 * for eight columns: its low eight bits, then a plane of all indices for each further one. */
typedef enum weir__panel_values {
    WEIR__VALUES_BYTES,
    WEIR__VALUES_NIBBLES,
    WEIR__VALUES_PAIRS,
    WEIR__VALUES_PLANES,
    WEIR__VALUES_QUARTETS,
    WEIR__VALUES_OCTETS,
    WEIR__VALUES_FLOATS,
} weir__panel_values;

/* A row's scale, of a unit or of each half. `head` is the block's own number. Scales of 16 rows are
 * neighbours. */
typedef enum weir__panel_scales {
    WEIR__SCALES_HALF,       /* in half precision */
    WEIR__SCALES_HALF_MIN,   /* the same, and a minimum */
    WEIR__SCALES_EXPONENT,   /* half of two to the power of a byte */
    WEIR__SCALES_HEAD,       /* head */
    WEIR__SCALES_BYTE,       /* head × a signed byte */
    WEIR__SCALES_BYTE_MIN,   /* head × a byte, and minus a second head × a byte as minimum */
    WEIR__SCALES_NIBBLE_MIN, /* the same, a byte holding scale and minimum of a half */
    WEIR__SCALES_ODD,    /* factor × head × (2 n + 1), n of four bits: a byte holds those of both halves, or
                              * of rows r and r + 8 */
    WEIR__SCALES_FLOAT8, /* four bits of exponent, three of mantissa, times 128 as half precision */
    WEIR__SCALES_NONE,
} weir__panel_scales;

/* Codebooks. */
typedef enum weir__panel_book {
    WEIR__BOOK_IQ3_XXS,
    WEIR__BOOK_IQ3_S,
    WEIR__BOOK_IQ2_XXS,
    WEIR__BOOK_IQ2_XS,
    WEIR__BOOK_IQ2_S,
    WEIR__BOOK_IQ1,
    WEIR__BOOK_NONE,
} weir__panel_book;

typedef struct weir__panel_layout {
    const char *name;
    int32_t columns;     /* of a block in the file: 32 to 256; without blocks, of a unit */
    int32_t block_bytes; /* in the file, one row */
    int32_t head_at;     /* of a block's head in the file; -1: it lies in pieces */
    int32_t head_bytes;  /* of 16 rows' blocks: scales that all their units share */
    int32_t scales_at;   /* in a unit, after its values and planes */
    int32_t unit_bytes;
    weir__panel_values values;
    int32_t planes;    /* further bits of each value; with a codebook, the signs */
    int32_t code_bits; /* of an index, 8 to 11 */
    int32_t parts;     /* 2: each half of a unit has its own scale */
    weir__panel_scales scales;
    float factor;         /* of scales that are odd numbers */
    int32_t offset;       /* unpacked values are larger by two to this power; -1: they are not */
    int32_t most;         /* the largest of them; of values with eight bits, of a nibble; with a codebook, the
                           * largest size */
    const uint8_t *table; /* [16]: of nibbles' values, with the offset; NULL: there is none */
    weir__panel_book book; /* of indices. Without a plane of signs each index has a further bit, which lowers
                            * all its columns by two */
} weir__panel_layout;

/* The values of IQ4_NL's codes plus 128, and of four-bit floats' plus 16. */
extern const uint8_t weir__panel_iq4_nl[16], weir__panel_e2m1[16];

/* Layouts, defined here so that the kernels see constants. */
/* clang-format off */
static const weir__panel_layout weir__panel_layouts[WEIR__PANEL_N_FORMATS] = {
#define V(kind) WEIR__VALUES_##kind
#define S(kind) WEIR__SCALES_##kind
#define B(name) WEIR__BOOK_##name
    /* file: columns, bytes, head at; head, scales at, unit; values, planes, bits, parts; scales, factor, offset, most, table, book */
    {"q8_0",     32,  34,   0,  0,  512,  544, V(BYTES),    0,  0, 1, S(HALF),       1.0f,    7, 15, NULL, B(NONE)},
    {"q4_0",     32,  18,   0,  0,  256,  288, V(NIBBLES),  0,  0, 1, S(HALF),       1.0f,    3, 15, NULL, B(NONE)},
    {"q4_1",     32,  20,   0,  0,  256,  320, V(NIBBLES),  0,  0, 1, S(HALF_MIN),   1.0f,   -1, 15, NULL, B(NONE)},
    {"q5_0",     32,  22,   0,  0,  320,  352, V(NIBBLES),  1,  0, 1, S(HALF),       1.0f,    4, 31, NULL, B(NONE)},
    {"q5_1",     32,  24,   0,  0,  320,  384, V(NIBBLES),  1,  0, 1, S(HALF_MIN),   1.0f,   -1, 31, NULL, B(NONE)},
    {"iq4_nl",   32,  18,   0,  0,  256,  288, V(NIBBLES),  0,  0, 1, S(HALF),       1.0f,    7, 15, weir__panel_iq4_nl, B(NONE)},
    {"mxfp4",    32,  17,   0,  0,  256,  272, V(NIBBLES),  0,  0, 1, S(EXPONENT),   1.0f,    4, 28, weir__panel_e2m1, B(NONE)},
    {"q4_K",    256, 144,   0, 64,  256,  288, V(NIBBLES),  0,  0, 1, S(BYTE_MIN),   1.0f,   -1, 15, NULL, B(NONE)},
    {"q5_K",    256, 176,   0, 64,  320,  352, V(NIBBLES),  1,  0, 1, S(BYTE_MIN),   1.0f,   -1, 31, NULL, B(NONE)},
    {"q6_K",    256, 210, 208, 32,  384,  416, V(NIBBLES),  2,  0, 2, S(BYTE),       1.0f,    5, 63, NULL, B(NONE)},
    {"q2_K",    256,  84,  80, 64,  128,  160, V(PAIRS),    0,  0, 2, S(NIBBLE_MIN), 1.0f,   -1,  3, NULL, B(NONE)},
    {"q3_K",    256, 110, 108, 32,  192,  224, V(PAIRS),    1,  0, 2, S(BYTE),       1.0f,    2,  7, NULL, B(NONE)},
    {"iq4_xs",  256, 136,   0, 32,  256,  272, V(NIBBLES),  0,  0, 1, S(BYTE),       1.0f,    7, 15, weir__panel_iq4_nl, B(NONE)},
    {"iq3_xxs", 256,  98,   0, 32,  192,  200, V(QUARTETS), 1,  8, 1, S(ODD),        0.25f,   7, 62, NULL, B(IQ3_XXS)},
    {"iq3_s",   256, 110,   0, 32,  208,  216, V(QUARTETS), 1,  9, 1, S(ODD),        1.0f,    7, 15, NULL, B(IQ3_S)},
    {"iq2_xxs", 256,  66,   0, 32,  128,  136, V(OCTETS),   1,  8, 1, S(ODD),        0.125f,  7, 43, NULL, B(IQ2_XXS)},
    {"iq2_xs",  256,  74,   0, 32,  136,  152, V(OCTETS),   1,  9, 2, S(ODD),        0.125f,  7, 43, NULL, B(IQ2_XS)},
    {"iq2_s",   256,  82,   0, 32,  144,  160, V(OCTETS),   1, 10, 2, S(ODD),        0.125f,  7, 43, NULL, B(IQ2_S)},
    {"iq1_s",   256,  50,   0, 32,   96,  104, V(OCTETS),   0, 11, 1, S(ODD),        0.125f,  4, 25, NULL, B(IQ1)},
    {"iq1_m",   256,  56,  -1, 32,   96,  112, V(OCTETS),   0, 11, 2, S(ODD),        0.125f,  4, 25, NULL, B(IQ1)},
    {"tq1_0",   256,  54,  52, 32,  128,  128, V(PAIRS),    0,  0, 1, S(HEAD),       1.0f,    0,  3, NULL, B(NONE)},
    {"tq2_0",   256,  66,  64, 32,  128,  128, V(PAIRS),    0,  0, 1, S(HEAD),       1.0f,    0,  3, NULL, B(NONE)},
    {"q1_0",    128,  18,   0, 32,   64,   64, V(PLANES),   1,  0, 1, S(HEAD),       1.0f,    0,  2, NULL, B(NONE)},
    {"q2_0",     64,  18,   0, 32,  128,  128, V(PAIRS),    0,  0, 1, S(HEAD),       1.0f,    0,  3, NULL, B(NONE)},
    {"nvfp4",    64,  36,   0,  0,  256,  288, V(NIBBLES),  0,  0, 2, S(FLOAT8),     1.0f,    4, 28, weir__panel_e2m1, B(NONE)},
    {"bf16",     32,  64,   0,  0, 1024, 1024, V(FLOATS),   0,  0, 1, S(NONE),       1.0f,   -1,  0, NULL, B(NONE)},
    {"f16",      32,  64,   0,  0, 1024, 1024, V(FLOATS),   0,  0, 1, S(NONE),       1.0f,   -1,  0, NULL, B(NONE)},
    {"f32",      32, 128,   0,  0, 1024, 1088, V(FLOATS),   0,  0, 1, S(NONE),       1.0f,   -1,  0, NULL, B(NONE)},
#undef V
#undef S
#undef B
};
/* clang-format on */

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

/* True if a minimum is added to a format's products. */
static inline bool weir__panel_has_min(weir__panel_format format)
{
    const weir__panel_scales scales = weir__panel_layouts[format].scales;
    return scales == WEIR__SCALES_HALF_MIN || scales == WEIR__SCALES_BYTE_MIN ||
           scales == WEIR__SCALES_NIBBLE_MIN;
}

/* Bytes of rows × columns weights as panels. rows must be a multiple of 16, columns of the block's (F32: of
 * 16). */
size_t weir__panel_bytes(weir__panel_format format, int64_t rows, int64_t columns);

/* Packs panels [first, end) of a matrix. rows: the file's bytes of the whole matrix, row after row; panels:
 * where all of them go. Ranges may be packed on several threads at once. */
void weir__panel_pack(weir__panel_format format, int64_t columns, const void *rows, void *panels,
                      int64_t first, int64_t end);

/* ---- Codebooks ---- */

/* True if a format's values are indices. */
static inline bool weir__panel_has_codes(weir__panel_format format)
{
    return weir__panel_layouts[format].values == WEIR__VALUES_OCTETS ||
           weir__panel_layouts[format].values == WEIR__VALUES_QUARTETS;
}

/* A codebook. */
typedef struct weir__codebook {
    /* Of a book of up to 512 entries: two or four bits for each size, into levels. */
    uint16_t words[512] __attribute__((aligned(64)));
    uint8_t levels[16]; /* the sizes that occur, plus 128 */
    union {             /* what eight or four columns have */
        uint64_t octets[2048];
        uint32_t quartets[512];
    };
    bool known; /* it was read */
} weir__codebook;

/* Entries are sizes, whose signs are a plane. Those of IQ1 have none: they are eight times as large as in the
 * file, and 17 more. */
extern weir__codebook weir__codebooks[WEIR__BOOK_NONE];

static inline const weir__codebook *weir__codebook_of(weir__panel_format format)
{
    return &weir__codebooks[weir__panel_layouts[format].book];
}

static inline bool weir__panel_has_signs(weir__panel_format format)
{
    return weir__panel_has_codes(format) && weir__panel_layouts[format].planes > 0;
}

/* True if an index has a further bit, which shifts its columns. */
static inline bool weir__panel_has_shift(weir__panel_format format)
{
    return weir__panel_has_codes(format) && weir__panel_layouts[format].planes == 0;
}

/* Turns a row of blocks in the file into n numbers. */
typedef void weir__panel_reader(const void *row, float *to, int64_t n);

/* Reads a format's codebook through ggml's reader of its blocks; does nothing for formats without one. Called
 * before the first product, on one thread. */
void weir__panel_learn(weir__panel_format format, weir__panel_reader *read);

/* True if a format has no codebook, or one that was read and that the kernels can multiply. */
bool weir__panel_is_known(weir__panel_format format);

#endif
