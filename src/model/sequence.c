/* sequence.c: sequences of the low-level API: cut, copy, keep, save, load; and its loop: a prompt in, a text
 * out, token by token.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "model/context.h"
#include "model/sampler.h"

/* ---- Cut, copy, keep ------------------------------------------------------------------------------ */

/* INVALID if *from > *to. Resolves negative ends; *to stays negative for the end. */
static weir_status check_range(int32_t *from, int32_t *to, weir_error *error)
{
    if (*from < 0) *from = 0;
    if (*to < 0) *to = -1;
    if (*to < 0 || *from <= *to) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_CONFLICT, "to",
                         "`to` is %d and lies before from, %d; negative = the end", *to, *from);
}

weir_status weir_sequence_remove(weir_context *context, int32_t seq, int32_t from, int32_t to,
                                 weir_error *error)
{
    weir_status status = weir__context_check_seq(context, seq, "seq", error);
    if (status == WEIR_OK) status = check_range(&from, &to, error);
    if (status != WEIR_OK) return status;
    if (from == to || context->model->ops->seq_remove(context->context, seq, from, to)) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, "from",
                           "this model's memory cannot be cut at %d; the whole sequence can be removed",
                           from);
}

weir_status weir_sequence_copy(weir_context *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to,
                               weir_error *error)
{
    weir_status status = weir__context_check_seq(context, seq, "seq", error);
    if (status == WEIR_OK) status = weir__context_check_seq(context, to_seq, "to_seq", error);
    if (status == WEIR_OK) status = check_range(&from, &to, error);
    if (status != WEIR_OK) return status;
    if (seq == to_seq)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "to_seq", "`to_seq` is %d, which is seq itself",
                             to_seq);
    if (context->model->ops->seq_copy(context->context, seq, to_seq, from, to)) return WEIR_OK;
    return weir__error_set(error, WEIR_UNSUPPORTED, "to",
                           "this model's memory cannot be cut there: copy the whole sequence, 0 to -1");
}

weir_status weir_sequence_keep(weir_context *context, int32_t seq, weir_error *error)
{
    weir_status status = weir__context_check_seq(context, seq, "seq", error);
    if (status != WEIR_OK) return status;
    for (int32_t s = 0; s < context->info.n_seq_max; s++)
        if (s != seq) context->model->ops->seq_remove(context->context, s, 0, -1);
    return WEIR_OK;
}

int32_t weir_sequence_pos_max(const weir_context *context, int32_t seq)
{
    if (context == NULL || seq < 0 || seq >= context->info.n_seq_max) return -1;
    return context->model->ops->seq_pos_max(context->context, seq);
}

/* ---- State ---------------------------------------------------------------------------------------- */

/* Precedes the backend's bytes, in the machine's byte order. A machine with another byte order rejects the
 * magic number. */
typedef struct header {
    uint32_t magic;
    uint32_t version;
    uint64_t fingerprint; /* of model and context */
    uint64_t length;      /* of the backend's bytes */
    uint64_t checksum;    /* of those bytes and of the three fields above */
} header;

#define MAGIC   UINT32_C(0x53726557) /* "WerS" */
#define VERSION 2

/* The bytes by which a metadata value counts; a longer one counts by its first bytes and its length. */
#define META_BYTES 512

static uint64_t context_fingerprint(const weir_context *context)
{
    const weir_model *model = context->model;
    const int64_t numbers[] = {
        (int64_t)model->info.n_params, (int64_t)model->info.n_bytes,
        model->info.n_vocab,           model->info.n_embd,
        model->info.n_layer,           context->info.layout,
        context->info.n_ctx_seq,       context->info.n_seq_max,
        context->params.type_k,        context->params.type_v,
    };
    uint64_t h = weir__hash(model->attention, numbers, sizeof numbers);
    char key[256], value[META_BYTES];
    size_t length;
    for (size_t i = 0; weir_model_meta_key(model, i, key, sizeof key, &length) == WEIR_OK; i++) {
        h = weir__hash(h, key, strlen(key));
        if (weir_model_meta(model, key, value, sizeof value, &length) != WEIR_OK) continue;
        h = weir__hash(h + length, value, strlen(value));
    }
    return h;
}

static uint64_t state_checksum(const header *head, const void *bytes, size_t n)
{
    return weir__hash(weir__hash(head->fingerprint ^ head->version, &head->length, sizeof head->length),
                      bytes, n);
}

weir_status weir_state_save(weir_context *context, int32_t seq, void *bytes, size_t capacity, size_t *length,
                            weir_error *error)
{
    weir_status status = weir__context_check_seq(context, seq, "seq", error);
    if (status != WEIR_OK) return status;
    if (length == NULL) return weir__error_null(error, "length");
    if (bytes == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "bytes", "`bytes` is NULL and capacity is %zu",
                             capacity);
    status = context->model->ops->settle(context->context, error);
    if (status != WEIR_OK) return status;

    const weir__backend *ops = context->model->ops;
    header head = {.magic = MAGIC, .version = VERSION, .fingerprint = context_fingerprint(context)};
    size_t need = sizeof head + ops->state_size(context->context, seq);
    if (bytes == NULL || capacity < need) {
        *length = need;
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "the state of sequence %d has %zu bytes, there is room for %zu", seq, need,
                               capacity);
    }
    char *rest = (char *)bytes + sizeof head;
    size_t n = ops->state_save(context->context, seq, rest, need - sizeof head);
    if (n == 0 || n > need - sizeof head)
        return weir__error_set(error, WEIR_BACKEND, "seq", "the backend could not save sequence %d", seq);
    head.length = n;
    head.checksum = state_checksum(&head, rest, n);
    memcpy(bytes, &head, sizeof head);
    *length = sizeof head + n;
    return WEIR_OK;
}

weir_status weir_state_load(weir_context *context, int32_t seq, const void *bytes, size_t length,
                            weir_error *error)
{
    header head;
    weir_status status = weir__context_check_seq(context, seq, "seq", error);
    if (status != WEIR_OK) return status;
    if (bytes == NULL) return weir__error_null(error, "bytes");

    if (length >= sizeof head) memcpy(&head, bytes, sizeof head);
    if (length < sizeof head || head.magic != MAGIC)
        return weir__error_set(error, WEIR_FORMAT, "bytes", "%zu bytes are not the saved state of a sequence",
                               length);
    if (head.version != VERSION)
        return weir__error_set(error, WEIR_FORMAT, "bytes", "the state has version %u, this library reads %d",
                               head.version, VERSION);
    const char *rest = (const char *)bytes + sizeof head;
    if (head.length != length - sizeof head)
        return weir__error_set(error, WEIR_FORMAT, "length", "the state has %zu bytes, %zu were given",
                               (size_t)head.length + sizeof head, length);
    if (head.checksum != state_checksum(&head, rest, length - sizeof head))
        return weir__error_set(error, WEIR_FORMAT, "bytes", "the state is damaged: its checksum is wrong");
    if (head.fingerprint != context_fingerprint(context))
        return weir__error_set(
            error, WEIR_FORMAT, "bytes",
            "the state belongs to another model, or to a context with another layout, KV type, "
            "length or number of sequences");
    status = context->model->ops->settle(context->context, error);
    if (status != WEIR_OK) return status;
    return context->model->ops->state_load(context->context, seq, rest, length - sizeof head, error);
}

/* ---- The loop of the low-level API ---- */

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
