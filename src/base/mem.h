/* mem.h: every allocation of weir's own, with a fault hook for tests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_MEM_H
#define WEIR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* Any thread. NULL means out of memory and nothing else: a size of 0 gives a block too. Blocks are freed with
 * weir__mem_free only: free() would upset the count of live blocks. */
void *weir__mem_alloc(size_t size) __attribute__((warn_unused_result));

/* n items of size bytes, zeroed; NULL also when n * size does not fit. */
void *weir__mem_calloc(size_t n, size_t size) __attribute__((warn_unused_result));

/* ptr may be NULL. After NULL was returned ptr is still valid and unchanged. A size of 0 does not free. */
void *weir__mem_realloc(void *ptr, size_t size) __attribute__((warn_unused_result));

/* ptr may be NULL. Keeps errno. */
void weir__mem_free(void *ptr);

char *weir__mem_strdup(const char *text) __attribute__((warn_unused_result));

/* A copy of size bytes; ptr may be NULL when size is 0. */
void *weir__mem_dup(const void *ptr, size_t size) __attribute__((warn_unused_result));

/* Makes room for need items of item_size bytes in a growable array. items is the address of the array's
 * pointer (`T *array = NULL; weir__mem_grow(&array, &capacity, n + 1, sizeof *array)`), *capacity counts
 * items and starts at 0. Capacity doubles, so appending one by one is linear in all. False: out of memory,
 * array and capacity unchanged. New items are not cleared. */
bool weir__mem_grow(void *items, size_t *capacity, size_t need, size_t item_size)
    __attribute__((warn_unused_result));

/* ---- For tests ---- */

/* The next n allocations (alloc, calloc, realloc, strdup, dup, grow that grows) succeed, the one after them
 * fails, those after that succeed again. Negative: off, as at start. Process-wide, one relaxed atomic: with
 * several threads exactly one allocation fails, but which one is up to their order. */
void weir__mem_fail_after(long n);

/* True if the failure that was asked for is still to come. A loop over n ends when a run leaves it pending.
 */
bool weir__mem_fail_pending(void);

/* Blocks allocated and not yet freed, process-wide, one relaxed atomic: exact when no other thread allocates.
 */
long weir__mem_live(void);

#endif
