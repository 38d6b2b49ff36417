/* blocks.h: rows of quantized weights that are made of random bytes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ggml rounds to some formats by a long search, or only with a file of importances. Random bytes are valid
 * blocks of these formats, too. They have every value, every index of a codebook, every sign and every step
 * of a scale; a search would choose few of them. */
#ifndef WEIR_TESTS_BLOCKS_H
#define WEIR_TESTS_BLOCKS_H

#include <string.h>

#include <ggml.h>

#include "support/dice.h"

/* The places of a block's numbers in half precision; -1: there is no such number. IQ1_M has one in pieces. */
typedef struct block_halves {
    int at[2];
} block_halves;

static inline block_halves block_halves_of(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_MXFP4:
    case GGML_TYPE_NVFP4:
    case GGML_TYPE_IQ1_M: return (block_halves){{-1, -1}};
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q4_K:
    case GGML_TYPE_Q5_K: return (block_halves){{0, 2}};
    case GGML_TYPE_Q2_K: return (block_halves){{80, 82}};
    case GGML_TYPE_Q3_K: return (block_halves){{108, -1}};
    case GGML_TYPE_Q6_K: return (block_halves){{208, -1}};
    case GGML_TYPE_TQ1_0: return (block_halves){{52, -1}};
    case GGML_TYPE_TQ2_0: return (block_halves){{64, -1}};
    default: return (block_halves){{0, -1}};
    }
}

/* True for the formats that are filled instead of rounded to. */
static inline bool blocks_are_random(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_Q2_K:
    case GGML_TYPE_Q3_K:
    case GGML_TYPE_TQ1_0:
    case GGML_TYPE_TQ2_0:
    case GGML_TYPE_Q1_0:
    case GGML_TYPE_Q2_0:
    case GGML_TYPE_NVFP4: return true;
    default: return strncmp(ggml_type_name(type), "iq", 2) == 0 && type != GGML_TYPE_IQ4_NL;
    }
}

/* The bits of a block's byte that belong to its numbers in half precision. */
static inline unsigned block_head_bits(enum ggml_type type, size_t at)
{
    block_halves halves = block_halves_of(type);
    for (int i = 0; i < 2 && halves.at[i] >= 0; i++)
        if (at / 2 * 2 == (size_t)halves.at[i]) return 0xff;
    return type == GGML_TYPE_IQ1_M && at > 48 && at % 2 == 1 ? 0xf0 : 0;
}

/* Gives a block this number in half precision, if it has one. */
static inline void block_set_head(enum ggml_type type, unsigned char *block, float head)
{
    block_halves halves = block_halves_of(type);
    ggml_fp16_t half = ggml_fp32_to_fp16(head);
    for (int i = 0; i < 2 && halves.at[i] >= 0; i++) memcpy(block + halves.at[i], &half, sizeof half);
    for (int i = 0; i < 4 && type == GGML_TYPE_IQ1_M; i++) {
        unsigned char *high = block + 49 + 2 * i;
        *high = (unsigned char)((*high & 15) | (half >> 4 * i & 15) << 4);
    }
}

/* Fills `size` bytes of rows. Their scales are finite, and neither very large nor very small. */
static inline void blocks_fill(enum ggml_type type, unsigned char *rows, size_t size, dice *d)
{
    size_t block = ggml_type_size(type);
    block_halves halves = block_halves_of(type);
    for (size_t i = 0; i < size; i++) rows[i] = (unsigned char)dice_roll(d);
    for (unsigned char *b = rows; b < rows + size; b += block) {
        for (int i = 0; i < 2 && halves.at[i] >= 0; i++) {
            ggml_fp16_t half = ggml_fp32_to_fp16((float)dice_in(d, -1000, 1000) * 1e-4f);
            memcpy(b + halves.at[i], &half, sizeof half);
        }
        if (type == GGML_TYPE_IQ1_M) b[55] = (unsigned char)((b[55] & 0x8f) | 0x20); /* the exponent */
    }
}

#endif
