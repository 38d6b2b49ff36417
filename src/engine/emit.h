/* emit.h: turns tokens into text for the stream: detokenizes, makes UTF-8 well-formed, holds back text that
 * may start a stop string.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_EMIT_H
#define WEIR_ENGINE_EMIT_H

#include <weir/weir.h>

#include "base/text.h"
#include "base/utf8.h"
#include "engine/stop.h"
#include "model/model.h"

/* A request's text on its way out. Invariants: bytes [sent_text .. text.n) of text may be sent and are in no
 * chunk yet; sent_tokens counts generated tokens that are in chunks. */
typedef struct weir__emit {
    const weir_model *model;
    bool special;             /* control tokens are rendered */
    const int32_t *preserved; /* [n_preserved], ascending: control tokens that are rendered in any case */
    size_t n_preserved;
    weir__stop *stop; /* owned; NULL = no stop strings */
    weir__stop_state stop_state;
    int32_t n_kept_stops;   /* the first of the stop strings stay in the text */
    int32_t n_before_stops; /* tokens whose text has no stop strings, from the next one on */
    bool before_stops;      /* the newest token is one of these */
    bool in_call;           /* all text that comes now is of a call: stop strings do not apply */
    weir__utf8 utf8;
    weir__text text;
    uint64_t n_made, n_released; /* bytes of text so far: of all tokens, and those that were not held back */
    size_t sent_text;
    size_t sent_tokens;
    bool started; /* a chunk was sent */
} weir__emit;

/* Buffers for the bytes of one token, shared by all slots of an engine. */
typedef struct weir__emit_scratch {
    weir__text piece, clean;
} weir__emit_scratch;

void weir__emit_init(weir__emit *emit, const weir_model *model);
void weir__emit_fini(weir__emit *emit);
void weir__emit_scratch_fini(weir__emit_scratch *scratch);

/* Adds the text of a generated token. before_call: how many bytes of it come before a call; once a call has
 * begun, stop strings are not looked for. *stopped: a stop string is complete; nothing after it will appear.
 * NO_MEMORY: the token's text is lost. */
weir_status weir__emit_token(weir__emit *emit, weir__emit_scratch *scratch, int32_t token, size_t before_call,
                             bool *stopped);

/* Releases the text held back: no more tokens will come. *stopped as above: the last bytes may complete a
 * stop string. NO_MEMORY: the held-back text is lost. */
weir_status weir__emit_end(weir__emit *emit, weir__emit_scratch *scratch, bool *stopped);

#endif
