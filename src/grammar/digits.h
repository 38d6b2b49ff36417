/* digits.h: ranges of integers as a grammar of their digits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_DIGITS_H
#define WEIR_GRAMMAR_DIGITS_H

#include <stdint.h>

#include "base/text.h"

/* Appends GBNF alternatives, without parentheses around them, that match the decimal numbers from least to
 * most, both included, without leading zeros. least <= most. */
void weir__digits_add(weir__text *text, uint64_t least, uint64_t most);

#endif
