/* deep.h: calls that recurse over a caller's data, with as much stack as that needs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_DEEP_H
#define WEIR_BASE_DEEP_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/weir.h"

/* Runs fn with this much stack, on a thread of its own, and returns when it has; its memory is used where fn
 * comes to it. The thread has the calling one's interrupt function. NO_MEMORY when there is no thread to be
 * had. */
weir_status weir__deep_run(void (*fn)(void *user), void *user, size_t stack, weir_error *error);

/* True if little of that stack is left: enough to go back, and for calls of a known depth. False on threads
 * that weir__deep_run did not make. */
bool weir__deep_low(void);

#endif
