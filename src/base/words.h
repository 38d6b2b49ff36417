/* words.h: lists of strings, and names that were mistyped.
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

/* The number of edits by which `name` differs from `known`, if few, else -1: then it is no mistyped one. Both
 * are compared without case, "_" and "-". An edit leaves out, adds or exchanges a character, or swaps
 * neighbours. One edit is few, and two from six characters of `known` on. Names of one or two characters have
 * none. */
int weir__words_near(const char *name, const char *known);

#endif
