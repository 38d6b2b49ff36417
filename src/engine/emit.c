/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/emit.h"

#include <string.h>

#include "base/mem.h"
#include "engine/request.h"
#include "engine/stream.h"
#include "model/sampler.h"

#define PIECE_BYTES 64 /* nearly all pieces of all vocabularies; a longer one grows the scratch once */

void weir__emit_init(weir__emit *emit)
{
    memset(emit, 0, sizeof *emit);
    weir__utf8_init(&emit->utf8);
    weir__stop_state_init(&emit->stop);
}

void weir__emit_fini(weir__emit *emit)
{
    weir__mem_free(emit->text);
    memset(emit, 0, sizeof *emit);
}

void weir__emit_scratch_fini(weir__emit_scratch *scratch)
{
    weir__mem_free(scratch->piece);
    weir__mem_free(scratch->clean);
    memset(scratch, 0, sizeof *scratch);
}

static bool is_preserved(const weir__request *request, int32_t token)
{
    size_t low = 0, high = request->n_preserved;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (request->preserved[middle] == token) return true;
        if (request->preserved[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Writes the token's bytes to scratch->piece. Returns their number, or -1 if out of memory. */
static int32_t read_piece(weir__emit_scratch *scratch, const weir__request *request, int32_t token)
{
    const weir_model *model = request->sampler->model;
    bool special = request->special || is_preserved(request, token);
    int32_t need = PIECE_BYTES;
    for (;;) {
        if (!weir__mem_grow(&scratch->piece, &scratch->piece_capacity, (size_t)need, 1)) return -1;
        int32_t n =
            model->ops->piece(model->model, token, special, scratch->piece, (int32_t)scratch->piece_capacity);
        if (n >= 0) return n;
        need = -n;
    }
}

/* Passes well-formed text through the stop matcher, if there is one. */
static weir_status emit_text(weir__emit *emit, const weir__stop *stop, const char *text, size_t length,
                             bool *stopped)
{
    size_t held = stop ? weir__stop_max_len(stop) : 0;
    if (!weir__mem_grow(&emit->text, &emit->capacity, emit->n_text + length + held + 1, 1))
        return WEIR_NO_MEMORY;
    if (stop == NULL) {
        memcpy(emit->text + emit->n_text, text, length);
        emit->n_text += length;
    } else {
        size_t n;
        if (weir__stop_feed(stop, &emit->stop, text, length, emit->text + emit->n_text, &n) >= 0)
            *stopped = true;
        emit->n_text += n;
    }
    return WEIR_OK;
}

weir_status weir__emit_token(weir__request *request, weir__emit_scratch *scratch, int32_t token,
                             bool *stopped)
{
    weir__emit *emit = &request->emit;
    int32_t n = read_piece(scratch, request, token);
    if (n < 0 || !weir__mem_grow(&scratch->clean, &scratch->clean_capacity, WEIR__UTF8_BOUND(n), 1))
        return WEIR_NO_MEMORY;
    size_t length = weir__utf8_feed(&emit->utf8, scratch->piece, (size_t)n, scratch->clean);
    return emit_text(emit, request->stop, scratch->clean, length, stopped);
}

weir_status weir__emit_end(weir__request *request, weir__emit_scratch *scratch, bool *stopped)
{
    weir__emit *emit = &request->emit;
    /* Most have nothing held back, and an end without text must not fail for lack of memory. */
    if (emit->utf8.n_held == 0 && (request->stop == NULL || weir__stop_held(request->stop, &emit->stop) == 0))
        return WEIR_OK;
    if (!weir__mem_grow(&scratch->clean, &scratch->clean_capacity, WEIR__UTF8_FLUSH_BOUND, 1))
        return WEIR_NO_MEMORY;
    size_t length = weir__utf8_flush(&emit->utf8, scratch->clean);
    weir_status status = emit_text(emit, request->stop, scratch->clean, length, stopped);
    if (status == WEIR_OK && request->stop != NULL) {
        if (!weir__mem_grow(&emit->text, &emit->capacity,
                            emit->n_text + weir__stop_max_len(request->stop) + 1, 1))
            return WEIR_NO_MEMORY;
        emit->n_text += weir__stop_flush(request->stop, &emit->stop, emit->text + emit->n_text);
    }
    return status;
}

weir_chunk weir__emit_tokens(const weir__request *request, size_t from, size_t n)
{
    weir_chunk chunk = {.n_tokens = n, .text = "", .reason = WEIR_REASON_NOT_FINISHED};
    if (n == 0) return chunk;
    chunk.tokens = request->history.tokens + request->history.n_prompt + from;
    if (request->scored) chunk.logprobs = request->logprob + from;
    if (request->n_top > 0) {
        chunk.top_logprobs = request->top + from * (size_t)request->n_top;
        chunk.n_top_logprobs = request->n_top;
    }
    return chunk;
}

weir_chunk weir__emit_rest(const weir__request *request)
{
    const weir__emit *emit = &request->emit;
    weir_chunk rest =
        weir__emit_tokens(request, emit->sent_tokens, weir__request_n_output(request) - emit->sent_tokens);
    rest.length = emit->n_text - emit->sent_text;
    rest.text = rest.length > 0 ? emit->text + emit->sent_text : "";
    return rest;
}

bool weir__emit_chunk(weir__request *request, const weir_usage *usage)
{
    weir__emit *emit = &request->emit;
    if (request->stream == NULL || emit->n_text == emit->sent_text) return true;
    weir_chunk rest = weir__emit_rest(request);
    if (emit->started && rest.n_tokens < (size_t)weir_stream_interval(request->stream)) return true;
    if (!weir__stream_push(request->stream, &rest, usage)) return false;
    emit->started = true;
    emit->sent_tokens += rest.n_tokens;
    if (request->result == NULL) emit->n_text = 0; /* a result needs the whole text */
    emit->sent_text = emit->n_text;
    return true;
}
