/* media.h: the images and sounds that slots compute next.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_MEDIA_H
#define WEIR_ENGINE_MEDIA_H

#include "engine/slot.h"

/* Asks for the embeddings that slots need next, and notes which are there. True: some slots have failed,
 * because there will be none. encoder NULL: does nothing. */
bool weir__media_collect(weir__encoder *encoder, const weir__slots *slots);

/* The slot gives back the embeddings that it needs now. */
void weir__media_leave(weir__encoder *encoder, weir__slot *slot);

/* The request ends: gives back those that were encoded ahead. */
void weir__media_drop(weir__encoder *encoder, weir__request *request);

#endif
