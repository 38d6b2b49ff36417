/* multiples.h: multiples of a step as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_MULTIPLES_H
#define WEIR_GRAMMAR_MULTIPLES_H

#include <stdint.h>

#include "grammar/schema_emit.h"

/* The most digits before the point. */
#define WEIR__MULTIPLES_DIGITS 16

/* The multiples of step / 10^places with up to WEIR__MULTIPLES_DIGITS digits before the point that lie
 * between low and high, both included. With places, low is the least number or 0, and high the largest. */
typedef struct weir__multiples {
    uint64_t step; /* at least 1 */
    int places;    /* at most 15 */
    int64_t low, high;
} weir__multiples;

/* What they take of WEIR__SCHEMA_ELEMENTS_MAX: no less than what their text is of WEIR__GRAMMAR_BYTES_MAX. */
uint64_t weir__multiples_size(const weir__multiples *of);

uint64_t weir__common_divisor(uint64_t a, uint64_t b);

/* Adds an expression, and its rules. At least one number must be between the bounds. */
void weir__emit_multiples(weir__emitter *e, weir__text *text, const weir__multiples *of);

#endif
