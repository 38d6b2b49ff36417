/* sized.h: structs that begin with their own size: how the library reads those of a caller that was compiled
 * against another version of the header.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_SIZED_H
#define WEIR_BASE_SIZED_H

#include <weir/weir.h>

/* Overwrites the head of *full (holding defaults, full_size bytes) with the caller's struct, as far as the
 * caller knows it. given NULL leaves the defaults. INVALID (field: `name`): its size is 0 or larger than this
 * library's. */
weir_status weir__sized_take(void *full, size_t full_size, const void *given, const char *name,
                             weir_error *error);

/* Writes the first `given->size` bytes of *full into the caller's struct and leaves its size. INVALID as
 * above. */
weir_status weir__sized_give(void *given, const void *full, size_t full_size, const char *name,
                             weir_error *error);

#endif
