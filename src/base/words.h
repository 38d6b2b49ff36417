/* words.h: lists of strings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_WORDS_H
#define WEIR_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static inline bool weir__words_have(const char *const *words, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], word) == 0) return true;
    return false;
}

/* Compares two words for qsort(). */
static inline int weir__words_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
