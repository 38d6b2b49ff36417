/* media.h: the images and sounds that slots compute next, and those that are encoded before slots need them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_MEDIA_H
#define WEIR_ENGINE_MEDIA_H

#include <stdint.h>

#include "engine/slot.h"

typedef struct weir__driver weir__driver;

/* Asks for the embeddings that slots need next, and notes which are there. True: some slots have failed,
 * because there will be none. encoder NULL: does nothing. */
bool weir__media_collect(weir__encoder *encoder, const weir__slots *slots);

/* The slot gives back the embeddings that it needs now. */
void weir__media_leave(weir__encoder *encoder, weir__slot *slot);

/* The request ends: gives back those that were encoded ahead. */
void weir__media_drop(weir__encoder *encoder, weir__request *request);

/* Lets the encoder, if it is idle, encode media of slots, then of queued requests, as far as its budget goes.
 * now: as in weir__admit. */
void weir__media_look_ahead(weir__driver *driver, int64_t now);

#endif
