/* hash.h: checksums of what is kept outside the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Not against forgers: against damage, and against what belongs elsewhere. A change of one byte always shows.
 * Each bit depends on all bytes: tables may take as many of the lowest as they need. To go on with more
 * bytes, give the last result as seed; that is not the hash of all of them at once. */
uint64_t weir__hash(uint64_t seed, const void *bytes, size_t n);

#endif
