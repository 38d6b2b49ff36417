/* "Did you mean". The functions are cli.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define LONGEST 48 /* names beyond that resemble nothing */

static int distance_of(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

cli_nearest cli_nearest_to(const char *given)
{
    size_t n = strlen(given + strspn(given, "-/"));
    bool is_short_option = given[0] == '-' && given[1] != '-';
    int most = is_short_option || n < 3 ? 0 : n < 6 ? 1 : 2; /* edits */
    return (cli_nearest){.given = given, .least = most + 1};
}

void cli_nearest_try(cli_nearest *nearest, const char *candidate)
{
    int distance = distance_of(nearest->given, candidate);
    if (distance >= nearest->least) return;
    nearest->least = distance;
    snprintf(nearest->best, sizeof nearest->best, "%s", candidate);
}

const char *cli_nearest_hint(const cli_nearest *nearest, const char *otherwise)
{
    static char hint[96];
    if (nearest->best[0] == '\0') return otherwise;
    snprintf(hint, sizeof hint, "; did you mean %s?", nearest->best);
    return hint;
}
