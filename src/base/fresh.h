/* fresh.h: memory that a thread makes present ahead, while others compute something else.
 *
 * The system clears a page when it is first touched. For weights that are packed that takes as long as the
 * packing; done while llama.cpp reads the vocabulary, it takes no time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_FRESH_H
#define WEIR_BASE_FRESH_H

#include <stddef.h>

typedef struct weir__fresh weir__fresh;

/* Addresses of size > 0 bytes, all zeroes, of which a thread of its own begins to touch the first n_ahead;
 * 0: none does. NULL: no memory, or no thread. */
weir__fresh *weir__fresh_begin(size_t size, size_t n_ahead);

/* Stops the thread. The first n bytes, from the beginning of a page on, are the caller's from now on, who
 * gives them back with munmap; they are zeroes whether they were touched or not. NULL: n is 0, or more than
 * there are. All else is given back. fresh may be NULL. */
void *weir__fresh_take(weir__fresh *fresh, size_t n);

#endif
