/* stop.h: finds stop strings in a stream of text, and holds back their first bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STOP_H
#define WEIR_ENGINE_STOP_H

#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* The compiled stop strings (an Aho-Corasick automaton). Immutable: any number of streams and threads may use
 * one at the same time. */
typedef struct weir__stop weir__stop;

/* One stream's place. Owned by the caller, needs no fini, may be copied; one thread at a time. It holds no
 * text: what is held back is a prefix of a stop string, which node tells. */
typedef struct weir__stop_state {
    uint32_t node;
    int32_t matched; /* index of the stop string that ended the stream, -1: none yet */
} weir__stop_state;

/* Compiles n >= 1 strings of lens[i] bytes (NUL is an ordinary byte), which are copied. Takes 29 bytes for
 * each byte of the strings and 4 for each string. WEIR_INVALID: n is 0 or a string is empty; WEIR_TOO_LONG:
 * more than 64 MiB in all; WEIR_NO_MEMORY. *out is NULL unless WEIR_OK. The caller owns it. Any thread. */
weir_status weir__stop_create(const char *const *strings, const size_t *lens, size_t n, weir__stop **out);

/* stop may be NULL. No state may be fed with it any more. */
void weir__stop_destroy(weir__stop *stop);

/* Length of the longest string. */
size_t weir__stop_max_len(const weir__stop *stop);

void weir__stop_state_init(weir__stop_state *state);

/* Takes the next n bytes of the stream and writes those that are free to go to out[n + max_len], *n_out of
 * them; text and out must not overlap. Returns the index of the string that was found, else -1.
 *
 * The match that completes first in the stream wins; of several that complete at the same byte the longest,
 * and of equal strings the one with the lowest index. The text before it is released; it and what follows are
 * dropped, also in later feeds, which return the same index.
 * Held back is the longest end of the stream that is a proper prefix of some string. All this does not depend
 * on how the stream is cut into feeds. When the strings are well-formed UTF-8 and feeds end at code points,
 * so does what is released. Allocates nothing. Time is linear in n, times the most children of a node. */
int weir__stop_feed(const weir__stop *stop, weir__stop_state *state, const char *text, size_t n, char *out,
                    size_t *n_out);

/* Bytes held back; 0 after a match, less than max_len always. */
size_t weir__stop_held(const weir__stop *stop, const weir__stop_state *state);

/* The stream ends: writes what is held back to out[max_len] and returns its length. Afterwards nothing is
 * held; a match remains. */
size_t weir__stop_flush(const weir__stop *stop, weir__stop_state *state, char *out);

#endif
