/* words.c: names that were mistyped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <stdint.h>

#include "base/ascii.h"
#include "base/largest.h"

#define LETTERS_MAX 40 /* of the longest name that is compared; known ones have fewer */
#define BYTES_MAX   80 /* the same with "_" and "-" */

/* A name as it is compared. */
typedef struct near_name {
    char letters[LETTERS_MAX];
    size_t n;
    uint32_t set; /* which letters it has, by their five lowest bits */
} near_name;

/* False: it is too long to be near a known one. */
static bool fold_name(near_name *folded, const char *name)
{
    *folded = (near_name){.n = 0};
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (i == BYTES_MAX) return false;
        if (name[i] == '_' || name[i] == '-') continue;
        if (folded->n == LETTERS_MAX) return false;
        char letter = weir__ascii_upper(name[i]);
        folded->letters[folded->n++] = letter;
        folded->set |= 1u << ((unsigned char)letter & 31);
    }
    return true;
}

/* The number of edits (Damerau and Levenshtein, where no part is edited twice). */
static int count_edits(const near_name *a, const near_name *b)
{
    int rows[3][LETTERS_MAX + 1];
    int *before = rows[0], *last = rows[1], *next = rows[2];
    for (size_t k = 0; k <= b->n; k++) last[k] = before[k] = (int)k;
    for (size_t i = 1; i <= a->n; i++) {
        next[0] = (int)i;
        for (size_t k = 1; k <= b->n; k++) {
            bool same = a->letters[i - 1] == b->letters[k - 1];
            next[k] = (int)weir__min(last[k - 1] + !same, weir__min(last[k], next[k - 1]) + 1);
            if (i > 1 && k > 1 && a->letters[i - 1] == b->letters[k - 2] &&
                a->letters[i - 2] == b->letters[k - 1])
                next[k] = (int)weir__min(next[k], before[k - 2] + 1);
        }
        int *free_row = before;
        before = last;
        last = next;
        next = free_row;
    }
    return last[b->n];
}

int weir__words_near(const char *name, const char *known)
{
    near_name a, b;
    if (!fold_name(&a, name) || !fold_name(&b, known) || b.n == 0) return -1;
    if (a.n == b.n && memcmp(a.letters, b.letters, a.n) == 0) return 0;
    size_t most = b.n < 3 ? 0 : b.n < 6 ? 1 : 2, apart = a.n > b.n ? a.n - b.n : b.n - a.n;
    /* An edit changes the set by two letters at most. */
    if (a.n < 3 || apart > most || (size_t)__builtin_popcount(a.set ^ b.set) > 2 * most) return -1;
    int edits = count_edits(&a, &b);
    return (size_t)edits <= most ? edits : -1;
}
