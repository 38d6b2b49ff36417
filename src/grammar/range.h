/* range.h: ranges of numbers as GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_RANGE_H
#define WEIR_GRAMMAR_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* Bounds as JSON writes them; NULL: none. */
typedef struct weir__range {
    const char *low, *high;
    bool low_out, high_out; /* they are exclusive */
    int places;             /* the most digits after the point that are not zero; < 0: any */
} weir__range;

/* Rules that the expression may name: digits after the point and the point, or nothing; up to 16 digits; up
 * to 16 zeros. */
#define WEIR__RANGE_FRACTION "any-fraction"
#define WEIR__RANGE_DIGITS   "any-digits"
#define WEIR__RANGE_ZEROS    "any-zeros"

#define WEIR__RANGE_ELEMENTS 800 /* of an expression's rules, at most */

/* Adds an expression of the numbers of at most 16 digits on each side of the point that lie between the
 * bounds, and, unless `places` is given, of those with one digit before the point and an exponent of at most
 * 307 on either side of 0. False: there is none, and nothing is added. */
bool weir__range_add(weir__text *text, const weir__range *range);

/* Appends GBNF alternatives, without parentheses around them, that match the decimal numbers from least to
 * most, both included, without leading zeros. least <= most. */
void weir__digits_add(weir__text *text, uint64_t least, uint64_t most);

#endif
