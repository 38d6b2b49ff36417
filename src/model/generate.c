/* generate.c: the low-level API's loop: a prompt in, a text out, token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/error.h"
#include "base/utf8.h"
#include "model/context.h"
#include "model/sampler.h"

/* Delivers tokens to the caller. */
typedef struct output {
    const weir_model *model;
    weir_token_fn fn;
    void *user;
    weir__utf8 utf8;
    weir__text piece, text; /* a token's bytes; sanitized */
    bool enough;            /* the caller wants no more */
} output;

/* Sets out->enough if the caller wants no more. */
static weir_status deliver_token(output *out, int32_t token, weir_error *error)
{
    if (out->fn == NULL) return WEIR_OK;
    out->piece.n = out->text.n = 0;
    if (!weir__model_add_piece(out->model, token, false, &out->piece) ||
        !weir__text_reserve(&out->text, WEIR__UTF8_BOUND(out->piece.n)))
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a token's text");
    out->text.n = weir__utf8_feed(&out->utf8, out->piece.bytes, out->piece.n, out->text.bytes);
    out->enough = !out->fn(token, out->text.bytes, out->text.n, out->user);
    return WEIR_OK;
}

static weir_status generate_tokens(weir_context *context, weir_sampler *sampler, int32_t n_past,
                                   int32_t max_tokens, output *out, weir_reason *reason, weir_error *error)
{
    for (int32_t n = 0;; n++) {
        int32_t token;
        *reason = WEIR_REASON_LENGTH;
        if (max_tokens >= 0 && n == max_tokens) return WEIR_OK;
        /* the first token is sampled from the prompt's row, each other one from its predecessor's row */
        weir_status status = weir_sample(sampler, context, &token, error);
        if (status != WEIR_OK) return status;
        if (weir_is_eog(context->model, token)) {
            *reason = WEIR_REASON_END;
            return WEIR_OK;
        }
        status = deliver_token(out, token, error);
        if (status != WEIR_OK) return status;
        if (out->enough) {
            *reason = WEIR_REASON_CANCELLED;
            return WEIR_OK;
        }
        if (n + 1 == max_tokens || n_past == context->info.n_ctx_seq) return WEIR_OK;
        status = weir_decode_token(context, token, n_past, 0, error);
        if (status != WEIR_OK) return status;
        n_past++;
    }
}

/* Prefills pass by pass, so that the caller can stop in between. */
static weir_status prefill_prompt(weir_context *context, const int32_t *prompt, size_t n_prompt, output *out,
                                  int32_t *n_past, weir_error *error)
{
    size_t n_batch = (size_t)context->info.n_batch;
    while (n_prompt > n_batch) {
        weir_status status = weir_prefill(context, prompt, n_batch, 0, n_past, error);
        if (status != WEIR_OK) return status;
        out->enough = out->fn != NULL && !out->fn(-1, "", 0, out->user);
        if (out->enough) return WEIR_OK;
        prompt += n_batch;
        n_prompt -= n_batch;
    }
    return weir_prefill(context, prompt, n_prompt, 0, n_past, error);
}

weir_status weir_context_generate(weir_context *context, weir_sampler *sampler, const int32_t *prompt,
                                  size_t n_prompt, int32_t max_tokens, weir_token_fn fn, void *user,
                                  weir_reason *reason, weir_error *error)
{
    weir_reason ended = WEIR_REASON_NOT_FINISHED;
    int32_t n_past = 0;
    if (context == NULL) return weir__error_null(error, "context");
    if (sampler == NULL) return weir__error_null(error, "sampler");
    if (sampler->model != context->model)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "sampler", "the sampler was made for another model");
    if (max_tokens < -1)
        return weir__error_numbers(
            error, WEIR_INVALID, "max_tokens", max_tokens, -1, INFINITY,
            "`max_tokens` is %d; allowed: -1 (as many as fit), 0 (the prompt only) and more", max_tokens);
    if (n_prompt > (size_t)context->info.n_ctx_seq)
        return weir__error_set(error, WEIR_TOO_LONG, "n_prompt",
                               "the prompt has %zu tokens, the context holds %d of a sequence", n_prompt,
                               context->info.n_ctx_seq);
    weir_status status = weir__context_check_tokens(context, prompt, n_prompt, error);
    if (status != WEIR_OK) return status;

    output out = {.model = context->model, .fn = fn, .user = user};
    weir__utf8_init(&out.utf8);
    status = weir_sequence_remove(context, 0, -1, -1, error);
    if (status == WEIR_OK) status = prefill_prompt(context, prompt, n_prompt, &out, &n_past, error);
    if (out.enough) {
        ended = WEIR_REASON_CANCELLED;
    } else {
        if (status == WEIR_OK) status = weir_sampler_count(sampler, prompt, n_prompt, error);
        if (status == WEIR_OK)
            status = generate_tokens(context, sampler, n_past, max_tokens, &out, &ended, error);
    }
    if (status == WEIR_OK && ended != WEIR_REASON_CANCELLED && fn != NULL) {
        char rest[WEIR__UTF8_FLUSH_BOUND];
        size_t length = weir__utf8_flush(&out.utf8, rest);
        if (length > 0 && !fn(-1, rest, length, user)) ended = WEIR_REASON_CANCELLED;
    }
    weir__text_fini(&out.text);
    weir__text_fini(&out.piece);
    if (status == WEIR_OK && reason != NULL) *reason = ended;
    return status;
}
