/* json.h: what is wrong with a JSON text, for those who wrote it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_JSON_H
#define WEIR_BASE_JSON_H

#include <jansson.h>

/* In the reader's words: jansson's own speak to whoever calls it, of its flags and types. With the place in
 * the text that it names, if any. */
typedef struct weir__json_words {
    char text[256];
} weir__json_words;
weir__json_words weir__json_problem(const json_error_t *what);

#endif
