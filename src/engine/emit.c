/* emit.c: turns tokens into text for the stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/emit.h"

#include <string.h>

#define PIECE_BYTES 64 /* nearly all pieces of all vocabularies; a longer one grows the scratch once */

void weir__emit_init(weir__emit *emit, const weir_model *model)
{
    memset(emit, 0, sizeof *emit);
    emit->model = model;
    weir__utf8_init(&emit->utf8);
    weir__stop_state_init(&emit->stop_state);
}

void weir__emit_fini(weir__emit *emit)
{
    weir__stop_destroy(emit->stop);
    weir__text_fini(&emit->text);
    memset(emit, 0, sizeof *emit);
}

void weir__emit_scratch_fini(weir__emit_scratch *scratch)
{
    weir__text_fini(&scratch->piece);
    weir__text_fini(&scratch->clean);
    memset(scratch, 0, sizeof *scratch);
}

static bool is_preserved(const weir__emit *emit, int32_t token)
{
    size_t low = 0, high = emit->n_preserved;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (emit->preserved[middle] == token) return true;
        if (emit->preserved[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Writes the token's bytes to scratch->piece. Returns their number, or -1 if out of memory. */
static int32_t read_piece(weir__emit_scratch *scratch, const weir__emit *emit, int32_t token)
{
    const weir_model *model = emit->model;
    bool special = emit->special || is_preserved(emit, token);
    int32_t need = PIECE_BYTES;
    for (;;) {
        if (!weir__text_reserve(&scratch->piece, (size_t)need)) return -1;
        int32_t n = model->ops->piece(model->model, token, special, scratch->piece.bytes,
                                      (int32_t)scratch->piece.capacity);
        if (n >= 0) return n;
        need = -n;
    }
}

/* n bytes were written behind the text. */
static void add_released(weir__emit *emit, size_t n)
{
    emit->text.n += n;
    emit->n_released += n;
}

static bool looks_for_stops(const weir__emit *emit)
{
    return emit->stop != NULL && !emit->in_call && !emit->before_stops;
}

/* Passes well-formed text through the stop matcher, if there is one and the text is not a call's. */
static weir_status emit_text(weir__emit *emit, const char *text, size_t length, bool *stopped)
{
    const weir__stop *stop = looks_for_stops(emit) ? emit->stop : NULL;
    size_t held = stop ? weir__stop_max_len(stop) : 0;
    if (!weir__text_reserve(&emit->text, length + held)) return WEIR_NO_MEMORY;
    if (stop == NULL) {
        memcpy(emit->text.bytes + emit->text.n, text, length);
        add_released(emit, length);
    } else {
        size_t n;
        int i = weir__stop_feed(stop, &emit->stop_state, text, length, emit->text.bytes + emit->text.n, &n);
        *stopped = *stopped || i >= 0;
        add_released(emit, n);
        if (i >= 0 && i < emit->n_kept_stops)
            add_released(emit, weir__stop_copy(stop, i, emit->text.bytes + emit->text.n));
    }
    emit->n_made += length;
    return WEIR_OK;
}

static weir_status emit_bytes(weir__emit *emit, weir__emit_scratch *scratch, const char *bytes, size_t n,
                              bool *stopped)
{
    if (!weir__text_reserve(&scratch->clean, WEIR__UTF8_BOUND(n))) return WEIR_NO_MEMORY;
    size_t length = weir__utf8_feed(&emit->utf8, bytes, n, scratch->clean.bytes);
    return emit_text(emit, scratch->clean.bytes, length, stopped);
}

/* The held-back text has turned out not to begin a stop string. */
static weir_status release_held(weir__emit *emit)
{
    if (emit->stop == NULL) return WEIR_OK;
    if (!weir__text_reserve(&emit->text, weir__stop_max_len(emit->stop))) return WEIR_NO_MEMORY;
    add_released(emit, weir__stop_flush(emit->stop, &emit->stop_state, emit->text.bytes + emit->text.n));
    return WEIR_OK;
}

weir_status weir__emit_token(weir__emit *emit, weir__emit_scratch *scratch, int32_t token, size_t before_call,
                             bool *stopped)
{
    int32_t n = read_piece(scratch, emit, token);
    if (n < 0) return WEIR_NO_MEMORY;
    size_t length = (size_t)n, before = before_call < length ? before_call : length;
    emit->before_stops = emit->n_before_stops > 0;
    emit->n_before_stops -= emit->before_stops;
    weir_status status = emit->before_stops ? release_held(emit) : WEIR_OK; /* of a fork's source */
    if (status != WEIR_OK) return status;
    status = emit_bytes(emit, scratch, scratch->piece.bytes, before, stopped);
    if (status != WEIR_OK || *stopped || before_call == WEIR__NO_CALL) return status;
    if (!emit->in_call) status = release_held(emit);
    emit->in_call = true;
    if (status != WEIR_OK) return status;
    return emit_bytes(emit, scratch, scratch->piece.bytes + before, length - before, stopped);
}

weir_status weir__emit_end(weir__emit *emit, weir__emit_scratch *scratch, bool *stopped)
{
    /* Ends mostly have nothing held back, and one without text must not fail for lack of memory. */
    if (emit->utf8.n_held == 0 && (emit->stop == NULL || weir__stop_held(emit->stop, &emit->stop_state) == 0))
        return WEIR_OK;
    if (!weir__text_reserve(&scratch->clean, WEIR__UTF8_FLUSH_BOUND)) return WEIR_NO_MEMORY;
    size_t length = weir__utf8_flush(&emit->utf8, scratch->clean.bytes);
    weir_status status = emit_text(emit, scratch->clean.bytes, length, stopped);
    return status == WEIR_OK ? release_held(emit) : status;
}
