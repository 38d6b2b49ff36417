/* vocab.cpp: the vocabulary of a llama.cpp model (tokens from text, bytes of tokens), and its metadata.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/guard.h"
#include "llama/internal.h"

#include <../src/llama-model.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "base/budget.h"
#include "base/deep.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/words.h"
}

using weir::attempt;
using weir::guard;

#if WEIR_PATCHED
extern "C" void (*llama_tokenize_step)(void);
#endif

namespace
{

/* The largest text that is tokenized on the caller's thread. A longer one gets a thread whose stack grows
 * with it: some vocabularies split words by regular expressions of libstdc++, which recurses over each byte
 * of a run. The stack's pages are touched only as far as that goes. */
constexpr int32_t short_text = 256;
constexpr size_t stack_base = 512 << 10;
constexpr size_t stack_per_byte = 1024; /* about 300 are needed at -O2 */

/* Lets the interrupt function, while it exists, end the tokenization of a long text on this thread. */
struct interruptible {
    weir__budget budget;

    interruptible();
    ~interruptible();
    interruptible(const interruptible &) = delete;
    interruptible &operator=(const interruptible &) = delete;

    bool is_over() const
    {
        return weir__budget_over(&budget);
    }
};

thread_local interruptible *current_interruptible = nullptr;

interruptible::interruptible()
{
    weir__budget_init(&budget, UINT64_MAX, UINT64_MAX);
    current_interruptible = this;
}

interruptible::~interruptible()
{
    current_interruptible = nullptr;
}

#if WEIR_PATCHED
/* Loads of vocabularies tokenize too, without a budget. */
void tokenize_step(void)
{
    if (current_interruptible != nullptr && !weir__budget_step(&current_interruptible->budget, 4))
        throw weir::over();
}
#endif

struct tokenizing {
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
};

void tokenize_now(void *user)
{
    tokenizing &t = *static_cast<tokenizing *>(user);
    interruptible limits;
    t.status = guard(t.error, WEIR_BACKEND, "the text cannot be tokenized", [&] {
        const int32_t n = llama_tokenize(t.model->vocab, t.text, t.length, t.tokens, t.capacity,
                                         t.add_special, t.parse_special);
        if (n == INT32_MIN)
            return weir__error_set(t.error, WEIR_TOO_LONG, "text",
                                   "the text has more tokens than can be counted");
        t.n_tokens = n < 0 ? -n : n;
        if (n >= 0) return WEIR_OK;
        return weir__error_set(t.error, WEIR_TOO_LONG, "capacity",
                               "the text has %d tokens, there is room for %d", -n, t.capacity);
    });
    if (limits.is_over()) t.status = weir__interrupt_error(t.error);
}

void tokenize_safely(tokenizing &t)
{
    if (llama_vocab_type(t.model->vocab) == LLAMA_VOCAB_TYPE_BPE && t.length > short_text) {
        const size_t stack = stack_base + static_cast<size_t>(t.length) * stack_per_byte;
        const weir_status status = weir__deep_run(tokenize_now, &t, stack, t.error);
        if (status != WEIR_OK) t.status = status;
    } else
        tokenize_now(&t);
}

} // namespace

void weir::watch_tokenizing()
{
#if WEIR_PATCHED
    llama_tokenize_step = tokenize_step;
#endif
}

weir_status weir__llama_tokenize(const weir__bmodel *model, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                 weir_error *error)
{
    const weir_model_info *info = &model->info;
    const enum llama_vocab_type type = llama_vocab_type(model->vocab);
    if (type == LLAMA_VOCAB_TYPE_NONE)
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr, "this model has no vocabulary");
    bool needs_bos = info->add_bos || type == LLAMA_VOCAB_TYPE_WPM;
    bool needs_eos = info->add_eos;
    if (add_special && ((needs_bos && info->token_bos < 0) || (needs_eos && info->token_eos < 0) ||
                        (type == LLAMA_VOCAB_TYPE_WPM && llama_vocab_sep(model->vocab) < 0)))
        return weir__error_set(error, WEIR_UNSUPPORTED, "add_special",
                               "the model requires special tokens that its vocabulary does not have");
    tokenizing t = {};
    t.model = model;
    t.text = text;
    t.length = static_cast<int32_t>(length);
    t.add_special = add_special;
    t.parse_special = parse_special;
    t.tokens = tokens;
    t.capacity = capacity < INT32_MAX ? static_cast<int32_t>(capacity) : INT32_MAX;
    t.error = error;
    tokenize_safely(t);
    if (t.status == WEIR_BACKEND && !weir__utf8_valid(text, length)) {
        /* llama.cpp throws on some ill-formed UTF-8; it accepts most. */
        char *sane = static_cast<char *>(weir__mem_alloc(WEIR__UTF8_BOUND(length)));
        if (sane == nullptr)
            return weir__error_set(error, WEIR_NO_MEMORY, "text", "no memory for a copy of the text");
        t.text = sane;
        t.length = static_cast<int32_t>(weir__utf8_sanitize(text, length, sane));
        tokenize_safely(t);
        weir__mem_free(sane);
    }
    if (t.status == WEIR_OK || t.status == WEIR_TOO_LONG) *n_tokens = static_cast<size_t>(t.n_tokens);
    return t.status;
}

int32_t weir__llama_piece(const weir__bmodel *model, int32_t token, bool special, char *bytes,
                          int32_t capacity)
{
    const llama_vocab *vocab = model->vocab;
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) return 0;
    return attempt<int32_t>(0,
                            [&] { return llama_token_to_piece(vocab, token, bytes, capacity, 0, special); });
}

bool weir__llama_is_eog(const weir__bmodel *model, int32_t token)
{
    return llama_vocab_is_eog(model->vocab, token);
}

const char *weir__llama_control_text(const weir__bmodel *model, int32_t token, size_t *n, int *strip)
{
    if (llama_vocab_type(model->vocab) == LLAMA_VOCAB_TYPE_NONE) return nullptr;
    const unsigned attr = static_cast<unsigned>(llama_vocab_get_attr(model->vocab, token));
    if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) == 0) return nullptr;
    const char *text = llama_vocab_get_text(model->vocab, token);
    *n = std::strlen(text);
    *strip = ((attr & LLAMA_TOKEN_ATTR_LSTRIP) != 0 ? WEIR__STRIP_LEFT : 0) |
             ((attr & LLAMA_TOKEN_ATTR_RSTRIP) != 0 ? WEIR__STRIP_RIGHT : 0);
    return text;
}

/* ---- Metadata ---- */

/* llama.h's function for it allocates. */
int64_t weir__llama_model_meta(const weir__bmodel *model, const char *key, char *text, size_t capacity)
{
    for (const auto &[name, value] : model->model->gguf_kv)
        if (name == key) return std::snprintf(text, capacity, "%s", value.c_str());
    if (capacity > 0) text[0] = '\0';
    return -1;
}

int64_t weir__llama_model_meta_key(const weir__bmodel *model, size_t i, char *key, size_t capacity)
{
    if (i >= static_cast<size_t>(llama_model_meta_count(model->model))) return -1;
    return llama_model_meta_key_by_index(model->model, static_cast<int32_t>(i), key, capacity);
}

int64_t weir__llama_meta_number(const weir__bmodel *model, const char *name, int64_t otherwise)
{
    char key[128], text[32];
    std::snprintf(key, sizeof key, "%s.%s", model->architecture, name);
    if (weir__llama_model_meta(model, key, text, sizeof text) <= 0) return otherwise;
    char *end;
    const long long value = std::strtoll(text, &end, 10);
    return *end == '\0' && value >= 0 ? value : otherwise;
}

bool weir__llama_has_mtp(const char *architecture)
{
    /* Architectures whose MTP layers can be used: weir__llama_mtp_layers. */
    static const char *const with_mtp[] = {"glm4moe", "hy_v3", "deepseek2"};
    return weir__words_have(with_mtp, sizeof with_mtp / sizeof *with_mtp, architecture);
}
