/* doctor.h: explains to a request why more of its prompt was not cached.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_DOCTOR_H
#define WEIR_ENGINE_DOCTOR_H

#include "cache/cache.h"
#include "engine/request.h"

/* Writes what the look-up found into request->miss. Where the prompt diverged it looks at the tokens before
 * that. Allocates nothing. */
void weir__doctor_note(const weir_model *model, weir__request *request, const weir__cache_hit *hit);

/* Takes back what is said of a prompt that diverged: it is another miss after all. */
void weir__doctor_forget(weir_miss_info *info);

#endif
