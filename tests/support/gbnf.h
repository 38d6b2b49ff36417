/* gbnf.h: GBNF for tests, written apart from the library: texts that a grammar makes, and whether it makes
 * one. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_SUPPORT_GBNF_H
#define WEIR_TESTS_SUPPORT_GBNF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gbnf gbnf;

/* Well-formed grammars only: ends the program on others. */
gbnf *gbnf_parse(const char *text);
void gbnf_free(gbnf *grammar);

/* Whether the text (well-formed UTF-8, up to 255 bytes) is one that the grammar makes. */
bool gbnf_matches(gbnf *grammar, const char *text);

/* A random text of the grammar, NUL-terminated, in out; false when it does not fit. */
bool gbnf_sample(gbnf *grammar, uint64_t *seed, char *out, size_t capacity);

#endif
