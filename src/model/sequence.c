/* sequence.c: sequences: cut, copy, keep, save, load.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "model/context.h"

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
