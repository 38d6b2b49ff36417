/* vocab.c: text to tokens and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/model.h"

#define PIECE_BYTES 256 /* sanitized at a time */

static weir_status check_token(const weir_model *model, int32_t token, size_t i, weir_error *error)
{
    if (token >= 0 && token < model->info.n_vocab) return WEIR_OK;
    return weir__error_range(error, WEIR_INVALID, "tokens", (double)token, 0,
                             (double)(model->info.n_vocab - 1), "token %zu is %d", i, token);
}

weir_status weir_tokenize(const weir_model *model, const char *text, size_t length, bool add_special,
                          bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                          weir_error *error)
{
    if (model == NULL) return weir__error_null(error, "model");
    if (text == NULL && length != 0) return weir__error_null(error, "text");
    if (tokens == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and capacity is %zu",
                             capacity);
    if (n_tokens == NULL) return weir__error_null(error, "n_tokens");
    if (text == NULL) text = "";
    if (length == WEIR_NUL) length = strlen(text);
    if (length > WEIR__TEXT_MAX)
        return weir__error_range(error, WEIR_INVALID, "length", (double)length, 0, WEIR__TEXT_MAX,
                                 "`length` is %zu bytes", length);
    return model->ops->tokenize(model->model, text, length, add_special, parse_special, tokens, capacity,
                                n_tokens, error);
}

/* The output of a detokenization. */
typedef struct sink {
    char *text;
    size_t capacity;
    size_t length; /* needed; may exceed capacity */
} sink;

static void sink_add(sink *to, const char *bytes, size_t n)
{
    if (to->length < to->capacity) {
        size_t room = to->capacity - to->length;
        memcpy(to->text + to->length, bytes, n < room ? n : room);
    }
    to->length += n;
}

bool weir__model_add_piece(const weir_model *model, int32_t token, bool special, weir__text *out)
{
    if (!weir__text_add(out, "", 0)) return false;
    while (token >= 0) {
        size_t room = out->capacity - out->n - 1;
        int32_t n = model->ops->piece(model->model, token, special, out->bytes + out->n,
                                      room < INT32_MAX ? (int32_t)room : INT32_MAX);
        if (n >= 0) {
            out->n += (size_t)n;
            break;
        }
        if (!weir__text_reserve(out, (size_t)-n)) return false;
    }
    out->bytes[out->n] = '\0';
    return true;
}

/* Appends a token's bytes, sanitized. */
static void add_piece(sink *to, weir__utf8 *utf8, const weir__text *piece)
{
    char out[WEIR__UTF8_BOUND(PIECE_BYTES)];
    for (size_t i = 0; i < piece->n; i += PIECE_BYTES) {
        size_t part = piece->n - i < PIECE_BYTES ? piece->n - i : PIECE_BYTES;
        sink_add(to, out, weir__utf8_feed(utf8, piece->bytes + i, part, out));
    }
}

weir_status weir_detokenize(const weir_model *model, const int32_t *tokens, size_t n_tokens, bool special,
                            char *text, size_t capacity, size_t *length, weir_error *error)
{
    if (model == NULL) return weir__error_null(error, "model");
    if (tokens == NULL && n_tokens > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and `n_tokens` is %zu",
                             n_tokens);
    if (text == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "text", "`text` is NULL and capacity is %zu",
                             capacity);
    if (length == NULL) return weir__error_null(error, "length");
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < n_tokens && status == WEIR_OK; i++)
        status = check_token(model, tokens[i], i, error);

    weir__utf8 utf8;
    weir__text piece = {0};
    sink all = {.text = text, .capacity = capacity};
    weir__utf8_init(&utf8);
    for (size_t i = 0; i < n_tokens && status == WEIR_OK; i++) {
        piece.n = 0;
        if (weir__model_add_piece(model, tokens[i], special, &piece))
            add_piece(&all, &utf8, &piece);
        else
            status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a token's text");
    }
    weir__text_fini(&piece);
    if (status != WEIR_OK) return status;

    char rest[WEIR__UTF8_FLUSH_BOUND];
    sink_add(&all, rest, weir__utf8_flush(&utf8, rest));
    *length = all.length;
    if (all.length > capacity)
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "the text has %zu bytes, there is room for %zu", all.length, capacity);
    if (all.length < capacity) text[all.length] = '\0';
    return WEIR_OK;
}

weir_status weir_piece(const weir_model *model, int32_t token, bool special, char *bytes, size_t capacity,
                       size_t *length, weir_error *error)
{
    if (model == NULL) return weir__error_null(error, "model");
    if (bytes == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "bytes", "`bytes` is NULL and capacity is %zu",
                             capacity);
    if (length == NULL) return weir__error_null(error, "length");
    if (token < 0 || token >= model->info.n_vocab)
        return weir__error_range(error, WEIR_INVALID, "token", (double)token, 0,
                                 (double)(model->info.n_vocab - 1), "`token` is %d", token);
    char none;
    int32_t n = model->ops->piece(model->model, token, special, capacity > 0 ? bytes : &none,
                                  capacity < INT32_MAX ? (int32_t)capacity : INT32_MAX);
    *length = (size_t)(n < 0 ? -n : n);
    if (n < 0)
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "the piece has %d bytes, there is room for %zu", -n, capacity);
    return WEIR_OK;
}

bool weir_is_eog(const weir_model *model, int32_t token)
{
    return model != NULL && token >= 0 && token < model->info.n_vocab &&
           model->ops->is_eog(model->model, token);
}

void weir_free(void *memory)
{
    weir__mem_free(memory);
}
