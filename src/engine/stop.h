/* stop.h: finds stop strings in a stream of text, and holds back text that may be their start.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_STOP_H
#define WEIR_ENGINE_STOP_H

#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* The compiled stop strings: an Aho-Corasick automaton. Immutable: any number of streams and threads may use
 * it at the same time. */
typedef struct weir__stop weir__stop;

/* The state of one stream. The caller owns it; it needs no fini and may be copied; one thread at a time. It
 * holds no text: the held-back text is the prefix for which `node` stands. */
typedef struct weir__stop_state {
    uint32_t node;
    int32_t matched; /* index of the stop string that ended the stream, -1: none yet */
} weir__stop_state;

/* Compiles n >= 1 strings of lens[i] bytes (NUL is an ordinary byte), which are copied. Takes 29 bytes for
 * each byte of the strings and 4 for each string. WEIR_INVALID: n is 0 or a string is empty; WEIR_TOO_LONG:
 * more than 64 MiB in all; WEIR_NO_MEMORY. *out is NULL unless WEIR_OK. The caller owns it. Any thread. */
weir_status weir__stop_create(const char *const *strings, const size_t *lens, size_t n, weir__stop **out);

/* stop may be NULL. Its states must not be used afterwards. */
void weir__stop_destroy(weir__stop *stop);

/* Length of the longest string. */
size_t weir__stop_max_len(const weir__stop *stop);

void weir__stop_state_init(weir__stop_state *state);

/* Takes the next n bytes of the stream and writes the released ones to out[n + max_len], *n_out of them; text
 * and out must not overlap. Returns the index of the string that was found, or -1. The match that completes
 * first wins; of several that complete at the same byte, the longest; of equal strings, the one with the
 * lowest index. The text before the match is released. The match and all that follows are dropped, and later
 * feeds return the same index. Holds back the longest suffix of the stream that is a proper prefix of a
 * string. The result does not depend on how the stream is divided into feeds. If the strings are well-formed
 * UTF-8 and feeds end at code points, the released text ends at a code point too. Allocates nothing. Takes
 * time linear in n, times the most children of a node. */
int weir__stop_feed(const weir__stop *stop, weir__stop_state *state, const char *text, size_t n, char *out,
                    size_t *n_out);

/* Bytes held back; 0 after a match, less than max_len always. */
size_t weir__stop_held(const weir__stop *stop, const weir__stop_state *state);

/* Writes string i to out[max_len] and returns its length. */
size_t weir__stop_copy(const weir__stop *stop, int i, char *out);

/* The stream ends: writes the held-back text to out[max_len] and returns its length. A match remains. */
size_t weir__stop_flush(const weir__stop *stop, weir__stop_state *state, char *out);

#endif
