/* items.h: items of a conversation, as they are kept. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_OPENAI_ITEMS_H
#define WEIR_SERVER_API_OPENAI_ITEMS_H

#include "base/json.h"

/* The part of an item that was read which is kept: all that a prompt uses, and what clients expect to be
 * repeated, with a type and an id. Annotations, logprobs and whatever else no prompt has are left out. id:
 * for an item that has none. Freed with json_decref; NULL: out of memory. */
json_t *serve_item_lean(const json_t *item, const char *id);

#endif
