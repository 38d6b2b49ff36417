/* jansson.h: for tests: an allocation of jansson that fails. From json_set_alloc_funcs(failing_malloc, free)
 * to json_set_alloc_funcs(malloc, free), the one after the next `allocations_left` fails.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_JANSSON_H
#define WEIR_TESTS_JANSSON_H

#include <stddef.h>
#include <stdlib.h>

static long allocations_left = -1; /* negative: none fails, or one has */

static inline void *failing_malloc(size_t size)
{
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL : malloc(size);
}

#endif
