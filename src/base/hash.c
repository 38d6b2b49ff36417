/* hash.c: checksums of data kept outside the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <string.h>

uint64_t weir__hash_begin(uint64_t seed, size_t n)
{
    return seed ^ (n * UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t weir__hash_more(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (; n > 0;) {
        uint64_t word = 0;
        size_t part = n < sizeof word ? n : sizeof word;
        memcpy(&word, at, part);
        h = (h ^ word) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
        at += part;
        n -= part;
    }
    return h;
}

uint64_t weir__hash_end(uint64_t h)
{
    /* A multiplication carries upwards only; the last word's upper bytes must reach the lowest bits, which
     * tables use. As MurmurHash3 ends. */
    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

uint64_t weir__hash(uint64_t seed, const void *bytes, size_t n)
{
    return weir__hash_end(weir__hash_more(weir__hash_begin(seed, n), bytes, n));
}
