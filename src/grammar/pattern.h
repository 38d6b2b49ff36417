/* pattern.h: regular expressions of a JSON Schema, rewritten in terms of JSON strings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_PATTERN_H
#define WEIR_GRAMMAR_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* llama.cpp's converter copies patterns between the quotes of a JSON string without escaping them: "^.*$"
 * would let a model close the string and continue. It drops the parts that it cannot read, with a line on
 * stderr, and lets a quantifier after an escape repeat the whole literal before it. So patterns are parsed
 * here and written again with classes, groups and quantifiers only, in terms of JSON's escapes. Between ^ and
 * $ the result is GBNF. */

#define WEIR__PATTERN_BYTES_MAX   4096 /* each may become several rules */
#define WEIR__PATTERN_NESTING_MAX 32   /* of groups; the parser recurses */
#define WEIR__PATTERN_ENDLESS     UINT64_MAX
#define WEIR__PATTERN_TIMES_MAX   1000000

/* Rewrites an ECMA 262 pattern, NUL-terminated, well-formed UTF-8, to *rewritten (NUL-terminated, freed with
 * weir__mem_free), which matches nothing that the given one does not. *shortest and *longest: the lengths of
 * the matching texts in code points. Returns NULL, or the reason of a failure as a static text (out of
 * memory: weir__pattern_no_memory). Of the bounds of a quantifier above WEIR__PATTERN_TIMES_MAX, the upper
 * one is lowered to it, and the lower one is refused. */
const char *weir__pattern_rewrite(const char *pattern, char **rewritten, uint64_t *shortest,
                                  uint64_t *longest);

/* True if the rewritten pattern may match less than the given one, whose counts are large; so what does not
 * match it is unknown. */
bool weir__pattern_may_narrow(const char *pattern);

/* The number of a grammar's elements that a rewritten pattern becomes, roughly. */
uint64_t weir__pattern_elements(const char *rewritten);

extern const char weir__pattern_no_memory[];

#endif
