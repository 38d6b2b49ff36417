/* signature.h: kinds of files that are not models but are given for one, by their first bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_SIGNATURE_H
#define WEIR_BASE_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__SIGNATURE_BYTES 512 /* enough to recognize each kind; a tar archive's word is at byte 257 */

typedef struct weir__signature {
    const char *kind;   /* "a zip archive" */
    const char *advice; /* "unpack it and …"; NULL: weights, to be converted to GGUF */
} weir__signature;

/* The kind of a file of `size` bytes that begins with bytes [n]. Static; NULL: none of those
 * that are known. */
const weir__signature *weir__signature_find(const void *bytes, size_t n, uint64_t size);

#endif
