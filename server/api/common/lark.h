/* lark.h: grammars in Lark's syntax as regular expressions, where no rule contains itself.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_LARK_H
#define WEIR_SERVER_API_COMMON_LARK_H

#include "base/text.h"

#define SERVE_LARK_WHY_MAX 160

/* Appends the expression that the texts of the rule `start` match. Rules, terminals, strings, expressions
 * without flags, ranges, groups, repetitions, aliases, and imports of common terminals; no templates, no
 * %ignore. False: it cannot be had, because of *why. */
bool serve_lark_pattern(const char *grammar, weir__text *pattern, char why[SERVE_LARK_WHY_MAX]);

#endif
