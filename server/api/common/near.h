/* near.h: whether a name is another one that was mistyped. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_NEAR_H
#define WEIR_SERVER_API_COMMON_NEAR_H

/* The number of edits by which `name` differs from `known`, if few: then who wrote it is likely to have meant
 * that. Else -1. Both are compared without case, "_" and
 * "-". An edit leaves out, adds or exchanges a character, or swaps neighbours. One edit is few, and two from
 * six characters of `known` on. Names of one or two characters have none. */
int serve_near(const char *name, const char *known);

#endif
