/* grammar.h: GBNF: check a text, or compile it to an automaton.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_GRAMMAR_H
#define WEIR_GRAMMAR_GRAMMAR_H

#include "grammar/automaton.h"

/* Limits of a GBNF text. They bound the parser's recursion and the copies of repeated items; the limits for
 * the automaton's work are in grammar_rules.h. */
#define WEIR__GRAMMAR_BYTES_MAX    (1 << 20)
#define WEIR__GRAMMAR_NESTING_MAX  100    /* of parentheses */
#define WEIR__GRAMMAR_ELEMENTS_MAX 400000 /* with repetitions written out; 8 bytes each */
#define WEIR__GRAMMAR_REPEAT_MAX   2000   /* llama.cpp's */

/* Checks the grammar of a schema, which `field` names, as weir_grammar_check does. GRAMMAR also: no finite
 * text matches. */
weir_status weir__grammar_check_ending(const char *grammar, const char *field, weir_error *error);

/* A result of `find` below that is no token. */
#define WEIR__GRAMMAR_NO_TOKEN  (-1) /* the text is not one token */
#define WEIR__GRAMMAR_NO_MEMORY (-2)

/* Finds the token of a text such as "<|im_end|>". */
typedef struct weir__grammar_tokens {
    const void *model;
    int32_t (*find)(const void *model, const char *text, size_t length);
} weir__grammar_tokens;

/* The automaton of a text; root NULL = "root". The tree must outlive it. tokens NULL: any text may be a
 * token, as in weir_grammar_check. Errors: as weir_grammar_check; GRAMMAR for unknown tokens. */
weir_status weir__grammar_compile(const char *grammar, const char *root, const weir__grammar_tokens *tokens,
                                  const weir__trie *trie, weir__automaton **automaton, weir_error *error);

#endif
