/* pattern.h: regular expressions of a JSON Schema, rewritten in terms of JSON strings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_PATTERN_H
#define WEIR_GRAMMAR_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* llama.cpp's converter copies a pattern into the grammar as the text between the quotes of a JSON string,
 * without escaping: "^.*$" would let a model close the string and go on. It also drops, with a line on
 * stderr, what it cannot read, and lets a quantifier after an escape repeat the whole literal before it. So
 * patterns are parsed here and written again with classes, groups and quantifiers only, in terms of JSON's
 * escapes. What stands between ^ and $ is GBNF as well. */

#define WEIR__PATTERN_BYTES_MAX   4096 /* it becomes rules of a grammar, some of them for each byte */
#define WEIR__PATTERN_NESTING_MAX 32   /* groups: the parser calls itself */
#define WEIR__PATTERN_ENDLESS     UINT64_MAX
#define WEIR__PATTERN_TIMES_MAX   1000000

/* Rewrites an ECMA 262 pattern, [length] of well-formed UTF-8, to *rewritten (NUL-terminated, freed with
 * weir__mem_free). *shortest and *longest are the lengths that it can match, in code points; what it matches
 * is among what the given one matches. NULL: done; else why not: a text that is static ("out of memory" too,
 * as weir__pattern_no_memory). */
const char *weir__pattern_rewrite(const char *pattern, size_t length, char **rewritten, uint64_t *shortest,
                                  uint64_t *longest);

/* The same for "any string of `least` to `most` code points"; most WEIR__PATTERN_ENDLESS: no bound. Bounds
 * above WEIR__PATTERN_TIMES_MAX are lowered to it (most) or refused (least). */
const char *weir__pattern_of_length(uint64_t least, uint64_t most, char **rewritten);

/* Elements of a grammar that a rewritten pattern makes, about. */
uint64_t weir__pattern_elements(const char *rewritten);

extern const char weir__pattern_no_memory[];

#endif
