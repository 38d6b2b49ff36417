/* emit.h: turns tokens into text for the stream: detokenizes, makes UTF-8 well-formed, holds back text that
 * may start a stop string.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_EMIT_H
#define WEIR_ENGINE_EMIT_H

#include <weir/weir.h>

#include "base/utf8.h"
#include "engine/stop.h"

typedef struct weir__request weir__request;

/* A request's text on its way out. Invariants: text[sent_text .. n_text) may be sent and is in no chunk yet;
 * sent_tokens counts generated tokens that are in chunks. */
typedef struct weir__emit {
    weir__utf8 utf8;
    weir__stop_state stop;
    char *text;
    size_t n_text, capacity;
    size_t sent_text;
    size_t sent_tokens;
    bool started; /* a chunk was sent */
} weir__emit;

/* Buffers for the bytes of one token, shared by all slots of an engine. */
typedef struct weir__emit_scratch {
    char *piece;
    size_t piece_capacity;
    char *clean;
    size_t clean_capacity;
} weir__emit_scratch;

void weir__emit_init(weir__emit *emit);
void weir__emit_fini(weir__emit *emit);
void weir__emit_scratch_fini(weir__emit_scratch *scratch);

/* Adds the text of a generated token. *stopped: a stop string is complete; nothing after it will appear.
 * NO_MEMORY: the token's text is lost. */
weir_status weir__emit_token(weir__request *request, weir__emit_scratch *scratch, int32_t token,
                             bool *stopped);

/* No more tokens will come: releases the text held back. *stopped as above: the last bytes may complete a
 * stop string. NO_MEMORY: the held-back text is lost. */
weir_status weir__emit_end(weir__request *request, weir__emit_scratch *scratch, bool *stopped);

/* Puts the released text and the tokens so far into the request's stream, if a chunk is due. False: out of
 * memory; the text stays, and the next call tries again. */
bool weir__emit_chunk(weir__request *request, const weir_usage *usage);

/* A chunk, without text, of n generated tokens from index `from` on. */
weir_chunk weir__emit_tokens(const weir__request *request, size_t from, size_t n);

/* The tokens and the text that are in no chunk yet. The text is not NUL-terminated. */
weir_chunk weir__emit_rest(const weir__request *request);

#endif
