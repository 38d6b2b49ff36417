/* pages.h: large memory that is zeroes, and is there only where it was written to.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_PAGES_H
#define WEIR_BASE_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Makes malloc's memory zeroes. On Linux its whole pages are given back to the system, which gives zeroes
 * when they are touched again; absent pages count as promised until weir__pages_forget. Elsewhere, and
 * where the system refuses, it is written to. Any thread, but one at a time for one piece of memory. */
void weir__pages_clear(void *memory, size_t size);

/* Call before memory that was cleared is freed; other memory is ignored. */
void weir__pages_forget(const void *memory);

/* Bytes of all memory that was cleared which are not there yet, and will be taken without being asked for.
 * A system call for each 128 MiB. Any thread. */
uint64_t weir__pages_promised(void);

#endif
