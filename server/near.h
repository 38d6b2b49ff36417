/* near.h: whether a name is another one that was mistyped. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_NEAR_H
#define WEIR_SERVER_NEAR_H

#include <stdbool.h>

/* Whether somebody who wrote `name` is likely to have meant `known`. Both are compared without case, "_" and
 * "-". They are near if they are then equal, or if few edits lead from one to the other: characters that are
 * left out, added or exchanged, and neighbours that are swapped. One edit is few, and two from six characters
 * of `known` on. Names of one or two characters are near only if they are equal. */
bool serve_near(const char *name, const char *known);

#endif
