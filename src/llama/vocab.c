/* vocab.c: the vocabulary of a llama.cpp model: tokens from text, bytes of tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/deep.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "llama/internal.h"

/* Longer texts are tokenized on a thread whose stack grows with them: some vocabularies split words by
 * regular expressions of libstdc++, which recurses over each byte of a run. The stack's pages are touched
 * only as far as that goes. */
#define SHORT_TEXT     256
#define STACK_BASE     ((size_t)512 << 10)
#define STACK_PER_BYTE 1024 /* about 300 are needed at -O2 */

typedef struct tokenizing {
    const weir__bmodel *model;
    const char *text;
    int32_t length;
    bool add_special;
    bool parse_special;
    int32_t *tokens;
    int32_t capacity;
    int32_t n_tokens;
    weir_status status;
    weir_error *error;
} tokenizing;

static void tokenize_now(void *user)
{
    tokenizing *t = user;
    t->status = weir__shim_tokenize(t->model->vocab, t->text, t->length, t->add_special, t->parse_special,
                                    t->tokens, t->capacity, &t->n_tokens, t->error);
}

static void tokenize_safely(tokenizing *t)
{
    if (llama_vocab_type(t->model->vocab) == LLAMA_VOCAB_TYPE_BPE && t->length > SHORT_TEXT) {
        size_t stack = STACK_BASE + (size_t)t->length * STACK_PER_BYTE;
        weir_status status = weir__deep_run(tokenize_now, t, stack, t->error);
        if (status != WEIR_OK) t->status = status;
    } else
        tokenize_now(t);
}

weir_status weir__llama_tokenize(const weir__bmodel *model, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                 weir_error *error)
{
    const weir_model_info *info = &model->info;
    enum llama_vocab_type type = llama_vocab_type(model->vocab);
    if (type == LLAMA_VOCAB_TYPE_NONE)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this model has no vocabulary");
    bool needs_bos = info->add_bos || type == LLAMA_VOCAB_TYPE_WPM;
    bool needs_eos = info->add_eos;
    if (add_special && ((needs_bos && info->token_bos < 0) || (needs_eos && info->token_eos < 0) ||
                        (type == LLAMA_VOCAB_TYPE_WPM && llama_vocab_sep(model->vocab) < 0)))
        return weir__error_set(error, WEIR_UNSUPPORTED, "add_special",
                               "the model requires special tokens that its vocabulary does not have");
    tokenizing t = {
        .model = model,
        .text = text,
        .length = (int32_t)length,
        .add_special = add_special,
        .parse_special = parse_special,
        .capacity = capacity < INT32_MAX ? (int32_t)capacity : INT32_MAX,
        .error = error,
    };
    t.tokens = tokens;
    tokenize_safely(&t);
    if (t.status == WEIR_BACKEND && !weir__utf8_valid(text, length)) {
        /* llama.cpp throws on some ill-formed UTF-8; it accepts most. */
        char *sane = weir__mem_alloc(WEIR__UTF8_BOUND(length));
        if (sane == NULL)
            return weir__error_set(error, WEIR_NO_MEMORY, "text", "no memory for a copy of the text");
        t.text = sane;
        t.length = (int32_t)weir__utf8_sanitize(text, length, sane);
        tokenize_safely(&t);
        weir__mem_free(sane);
    }
    if (t.status == WEIR_OK || t.status == WEIR_TOO_LONG) *n_tokens = (size_t)t.n_tokens;
    return t.status;
}

int32_t weir__llama_piece(const weir__bmodel *model, int32_t token, bool special, char *bytes,
                          int32_t capacity)
{
    if (llama_vocab_type(model->vocab) == LLAMA_VOCAB_TYPE_NONE) return 0;
    return weir__shim_piece(model->vocab, token, special, bytes, capacity);
}

bool weir__llama_is_eog(const weir__bmodel *model, int32_t token)
{
    return llama_vocab_is_eog(model->vocab, token);
}

const char *weir__llama_control_text(const weir__bmodel *model, int32_t token, size_t *n, int *strip)
{
    if (llama_vocab_type(model->vocab) == LLAMA_VOCAB_TYPE_NONE) return NULL;
    const unsigned attr = (unsigned)llama_vocab_get_attr(model->vocab, token);
    if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) return NULL;
    const char *text = llama_vocab_get_text(model->vocab, token);
    *n = strlen(text);
    *strip = ((attr & LLAMA_TOKEN_ATTR_LSTRIP) != 0 ? WEIR__STRIP_LEFT : 0) |
             ((attr & LLAMA_TOKEN_ATTR_RSTRIP) != 0 ? WEIR__STRIP_RIGHT : 0);
    return text;
}
