/* grammar.h: GBNF texts, checked and compiled to automata.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_GRAMMAR_H
#define WEIR_GRAMMAR_GRAMMAR_H

#include "grammar/automaton.h"

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

/* What a look-up of a token returns in place of one. */
#define WEIR__GRAMMAR_NO_TOKEN  (-1) /* the text is not one token */
#define WEIR__GRAMMAR_NO_MEMORY (-2)

/* Which token a text such as "<|im_end|>" is. */
typedef struct weir__grammar_tokens {
    const void *model;
    int32_t (*find)(const void *model, const char *text, size_t length);
} weir__grammar_tokens;

/* The automaton of a text; root NULL = "root". The tree must outlive it. tokens NULL: as weir_grammar_check,
 * any text may be a token. Errors: as weir_grammar_check, and what only the vocabulary shows. */
weir_status weir__grammar_compile(const char *grammar, const char *root, const weir__grammar_tokens *tokens,
                                  const weir__trie *trie, weir__automaton **automaton, weir_error *error);

#endif
