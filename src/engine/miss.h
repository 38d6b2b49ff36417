/* miss.h: finds why more of a prompt was not cached.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_MISS_H
#define WEIR_ENGINE_MISS_H

#include "cache/cache.h"
#include "engine/history.h"

/* Writes the result of a prompt's look-up into *info. If the prompt diverged, looks at the tokens around the
 * divergence. Allocates nothing. */
void weir__miss_note(const weir_model *model, const weir__history *history, const weir__cache_hit *hit,
                     weir_miss_info *info);

/* Removes the details of a divergence, when the miss turns out to have another reason. */
void weir__miss_forget(weir_miss_info *info);

/* Removes what a request without a salt may not know, since others sent the cached texts: their words and
 * lines, and how much more of a text was known than the n_cached tokens that it did not compute. */
void weir__miss_withhold(weir_miss_info *info, int32_t n_cached);

#endif
