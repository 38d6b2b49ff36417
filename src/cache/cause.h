/* cause.h: the likely reason why two texts diverge after a common prefix.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CACHE_CAUSE_H
#define WEIR_CACHE_CAUSE_H

#include "weir/weir.h"

/* The likely cause. prompt [n_prompt] and cached [n_cached] are the texts around the divergence, from the
 * same token on. Their first n_common bytes are equal, and there the first different token starts. Pure; any
 * bytes. */
weir_cause weir__cause_of(const char *prompt, size_t n_prompt, const char *cached, size_t n_cached,
                          size_t n_common);

#endif
