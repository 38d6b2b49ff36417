/* grammar.h: GBNF texts, checked before llama.cpp reads them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_GRAMMAR_H
#define WEIR_GRAMMAR_GRAMMAR_H

#include <weir/weir.h>

/* Limits of a GBNF text. llama.cpp has hardly any of its own: it recurses over nesting and over chains of
 * rules, and copies what a repetition repeats. */
#define WEIR__GRAMMAR_BYTES_MAX    (1 << 20)
#define WEIR__GRAMMAR_NESTING_MAX  100     /* parentheses in each other */
#define WEIR__GRAMMAR_ELEMENTS_MAX 400000  /* after repetitions are written out; 8 bytes each, and copied */
#define WEIR__GRAMMAR_REPEAT_MAX   2000    /* llama.cpp's; above it, it drops an upper bound without a word */
#define WEIR__GRAMMAR_CHAIN_MAX    1000    /* rules that begin with one another */
#define WEIR__GRAMMAR_CALLS_MAX    4000000 /* of its search for left recursion, which repeats itself */

/* As weir_grammar_check, for grammars made of schemas: GRAMMAR also where no finite text satisfies them. */
weir_status weir__grammar_check_ending(const char *grammar, weir_error *error);

#endif
