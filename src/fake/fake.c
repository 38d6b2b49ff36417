/* fake.c: a deterministic model without weights: options, vocabulary, tokenizer.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tokens are control tokens, words and single bytes, and the tokenizer takes the longest that fits. The next
 * token is a hash of all tokens before it, so that each text has one right continuation; a test can script
 * it, and let chosen calls fail. */
#include "fake/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "fake/internal.h"

#define PIECE_MAX    24    /* bytes of a piece, with terminator */
#define LOAD_STEP_US 10000 /* how often a slow load calls the progress callback */

static const char chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Words with one to four bytes per code point, some after a space, as in real vocabularies. */
static const char *const words[] = {
    " the", " of", " and",    "ing", " stream", "er",   " token", "\n\n",    ".",   ", ",
    "é",    "ß",   " größer", "λ",   "日",      "本語", "🙂",   " end of", "```", "{\"",
};
#define N_WORDS (sizeof words / sizeof words[0])

/* ---- Options -------------------------------------------------------------------------------------- */

static const weir__fake_option options[] = {
#define OPTION(name, start, min, max) WEIR__FAKE_OPTION(weir__fake_options, name, start, min, max)
    OPTION(n_vocab, 320, WEIR__FAKE_WORDS, 1 << 20),
    OPTION(n_ctx_train, 4096, 1, 1 << 20),
    OPTION(seed, 0, 0, INT32_MAX),
    OPTION(eos_every, 0, 0, INT32_MAX),
    OPTION(any, 0, 0, 1),
    OPTION(longest, 0, 0, 1),
    OPTION(tick_us, 0, 0, HOUR_US),
    OPTION(token_us, 0, 0, HOUR_US),
    OPTION(load_us, 0, 0, HOUR_US),
    OPTION(free_us, 0, 0, HOUR_US),
    OPTION(embedder_us, 0, 0, HOUR_US),
    OPTION(fail_embedders, 0, 0, INT32_MAX),
    OPTION(exact, 0, 0, 1),
    OPTION(recurrent, 0, 0, 1),
    OPTION(hybrid, 0, 0, 1),
    OPTION(n_swa, 0, 0, 1 << 20),
    OPTION(fim, 0, 0, 1),
    OPTION(fail_pass, -1, -1, INT32_MAX),
    OPTION(n_bytes, 0, 0, INT64_MAX / 2),
    OPTION(fail_load, 0, 0, 1),
    OPTION(change_pass, -1, -1, INT32_MAX),
#undef OPTION
};
#define N_OPTIONS (sizeof options / sizeof options[0])

static weir_status unknown_option(const weir__fake_option *of, size_t n, const char *what, const char *name,
                                  int length, weir_error *error)
{
    char known[256] = "";
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", of[i].name);
    }
    return weir__invalid(error, WEIR_ERROR_UNKNOWN, "path",
                         "\"%.*s\" is not an option of the fake %s; known: %s", length, name, what, known);
}

weir_status weir__fake_options_read(void *all, const weir__fake_option *of, size_t n, const char *what,
                                    const char *text, weir_error *error)
{
    for (size_t i = 0; i < n; i++) memcpy((char *)all + of[i].offset, &of[i].start, sizeof of[i].start);
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        size_t name = strcspn(text, "=,");
        const weir__fake_option *option = NULL;
        for (size_t i = 0; i < n; i++)
            if (strlen(of[i].name) == name && memcmp(of[i].name, text, name) == 0) option = &of[i];
        if (option == NULL) return unknown_option(of, n, what, text, name > 64 ? 64 : (int)name, error);

        char *end = NULL;
        errno = 0;
        int64_t value = name < length ? strtoll(text + name + 1, &end, 10) : 0;
        if (name == length || end == text + name + 1 || end != text + length || errno != 0 ||
            value < option->min || value > option->max)
            return weir__invalid(error, WEIR_ERROR_FORM, "path",
                                 "option %s of the fake %s needs a number from %lld to %lld", option->name,
                                 what, (long long)option->min, (long long)option->max);
        memcpy((char *)all + option->offset, &value, sizeof value);
        text += length;
        if (*text == ',') text++;
    }
    return WEIR_OK;
}

/* ---- Vocabulary ----------------------------------------------------------------------------------- */

static bool vocabulary_make(weir__bmodel *model)
{
    int64_t n = model->options.n_vocab;
    model->pieces = weir__mem_calloc((size_t)n, sizeof *model->pieces);
    model->text = weir__mem_alloc((size_t)n * PIECE_MAX);
    if (model->pieces == NULL || model->text == NULL) return false;

    static const char *const specials[] = {"<s>", "</s>", "<|im_end|>", "<|im_start|>"};
    char *text = model->text;
    for (int64_t i = 0; i < n; i++, text += PIECE_MAX) {
        weir__fake_token *piece = &model->pieces[i];
        piece->bytes = text;
        if (i < 256) {
            text[0] = (char)(unsigned char)i;
            piece->length = 1;
        } else if (i < WEIR__FAKE_WORDS) {
            piece->length = snprintf(text, PIECE_MAX, "%s", specials[i - 256]);
            piece->kind = i == WEIR__FAKE_EOS || i == WEIR__FAKE_EOT ? WEIR__FAKE_END : WEIR__FAKE_CONTROL;
        } else if ((size_t)(i - WEIR__FAKE_WORDS) < N_WORDS) {
            piece->length = snprintf(text, PIECE_MAX, "%s", words[i - WEIR__FAKE_WORDS]);
        } else {
            piece->length = snprintf(text, PIECE_MAX, " w%d", (int)i);
        }
    }
    return true;
}

int32_t weir__fake_piece(const weir__bmodel *model, int32_t token, bool special, char *bytes,
                         int32_t capacity)
{
    const weir__fake_token *piece = &model->pieces[token];
    if (piece->kind != WEIR__FAKE_TEXT && !special) return 0;
    if (piece->length > capacity) return -piece->length;
    if (piece->length > 0) memcpy(bytes, piece->bytes, (size_t)piece->length);
    return piece->length;
}

bool weir__fake_is_eog(const weir__bmodel *model, int32_t token)
{
    return model->pieces[token].kind == WEIR__FAKE_END;
}

/* The tokenizer below parses those that begin with "<". */
const char *weir__fake_control_text(const weir__bmodel *model, int32_t token, size_t *n, int *strip)
{
    const weir__fake_token *piece = &model->pieces[token];
    *n = (size_t)piece->length;
    *strip = 0;
    return piece->kind != WEIR__FAKE_TEXT && piece->length > 0 && piece->bytes[0] == '<' ? piece->bytes
                                                                                         : NULL;
}

static int32_t longest_piece(const weir__bmodel *model)
{
    int32_t longest = 1;
    for (int32_t i = 0; i < model->options.n_vocab; i++)
        if (model->pieces[i].length > longest) longest = model->pieces[i].length;
    return longest;
}

/* The longest piece of this kind that is a prefix of the text, -1 = none. Searches the whole vocabulary. */
static int32_t match_word(const weir__bmodel *model, const char *text, size_t length, bool control)
{
    int32_t best = -1, best_length = 0;
    for (int32_t i = 256; i < model->options.n_vocab; i++) {
        const weir__fake_token *piece = &model->pieces[i];
        if (piece->length <= best_length || (size_t)piece->length > length ||
            (piece->kind != WEIR__FAKE_TEXT) != control)
            continue;
        if (memcmp(piece->bytes, text, (size_t)piece->length) == 0) {
            best = i;
            best_length = piece->length;
        }
    }
    return best;
}

weir_status weir__fake_tokenize(const weir__bmodel *model, const char *text, size_t length, bool add_special,
                                bool parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                weir_error *error)
{
    size_t n = 0;
    if (add_special) {
        if (n < capacity) tokens[n] = WEIR__FAKE_BOS;
        n++;
    }
    for (size_t i = 0; i < length;) {
        int32_t token = -1;
        if (parse_special && text[i] == '<') token = match_word(model, text + i, length - i, true);
        if (token < 0 && model->options.longest) token = match_word(model, text + i, length - i, false);
        size_t used = token < 0 ? 1 : (size_t)model->pieces[token].length;
        if (token < 0) token = (unsigned char)text[i];
        if (n < capacity) tokens[n] = token;
        n++;
        i += used;
    }
    *n_tokens = n;
    if (n > capacity)
        return weir__error_set(error, WEIR_TOO_LONG, "capacity",
                               "the text has %zu tokens, there is room for %zu", n, capacity);
    return WEIR_OK;
}

/* ---- The next token ------------------------------------------------------------------------------- */

/* The finalizer of splitmix64: each bit of x reaches each bit of the result. */
uint64_t weir__fake_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

uint64_t weir__fake_hash_start(const weir__bmodel *model)
{
    return weir__fake_mix((uint64_t)model->options.seed + UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t weir__fake_hash_next(uint64_t hash, int32_t token, uint64_t adapters)
{
    return weir__fake_mix((hash ^ adapters) + UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)token + 1));
}

int32_t weir__fake_choose(const weir__bmodel *model, uint64_t hash)
{
    const weir__fake_options *o = &model->options;
    uint64_t x = weir__fake_mix(hash ^ UINT64_C(0xa0761d6478bd642f));
    if (o->eos_every > 0 && (x >> 33) % (uint64_t)o->eos_every == 0)
        return (x & 1) != 0 ? WEIR__FAKE_EOS : WEIR__FAKE_EOT;
    x = weir__fake_mix(x);
    if (o->any) {
        int32_t token = (int32_t)(x % (uint64_t)(o->n_vocab - 2));
        return token < WEIR__FAKE_EOS ? token : token + 2;
    }
    /* printable ASCII, a newline, the words */
    int32_t n_words = (int32_t)o->n_vocab - WEIR__FAKE_WORDS;
    int32_t i = (int32_t)(x % (uint64_t)(96 + n_words));
    if (i < 95) return ' ' + i;
    return i == 95 ? '\n' : WEIR__FAKE_WORDS + i - 96;
}

float weir__fake_logit(uint64_t hash, int32_t chosen, int32_t token)
{
    /* the others are in [-4, 4): with 320 of them and temp 0.8, the chosen one is drawn about once in four
     * times */
    if (token == chosen) return 6.0f;
    uint64_t x = weir__fake_mix(hash ^ (UINT64_C(0xe7037ed1a0b428db) * ((uint64_t)token + 1)));
    return (float)(x >> 40) * (8.0f / 16777216.0f) - 4.0f;
}

uint64_t weir__fake_adapter_hash(uint64_t number, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return scale == 0.0f ? 0 : weir__fake_mix(weir__fake_mix(number + 1) + bits);
}

weir_status weir__fake_set_adapters(weir__bcontext *context, weir__badapter *const *adapters,
                                    const float *scales, int32_t n, weir_error *error)
{
    weir__fake *hooks = &context->model->hooks;
    atomic_fetch_add(&hooks->n_adapter_sets, 1);
    context->adapters = 0;
    if (n > 0 && atomic_load(&hooks->fail_adapters))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for set_adapters to fail");
    for (int32_t i = 0; i < n; i++)
        context->adapters += weir__fake_adapter_hash(adapters[i]->number, scales[i]);
    return WEIR_OK;
}

/* ---- Load ----------------------------------------------------------------------------------------- */

void weir__fake_model_free(weir__bmodel *model)
{
    if (model == NULL) return;
    weir__fake_wait(model->free_us);
    if (model->pieces != NULL)
        for (int64_t i = 0; i < model->options.n_vocab; i++) weir__mem_free(model->pieces[i].own);
    weir__mem_free(model->log);
    weir__mem_free(model->text);
    weir__mem_free(model->pieces);
    weir__mem_free(model);
}

weir_status weir__fake_model_load(const char *path, const weir_model_params *params, bool outline,
                                  weir__bmodel **model, weir_error *error)
{
    weir_status status;
    weir__bmodel *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) goto no_memory;
    status =
        weir__fake_options_read(&made->options, options, N_OPTIONS, "model", path + strlen("fake:"), error);
    if (status != WEIR_OK) goto fail;

    atomic_store(&made->hooks.fail_decode_at, made->options.fail_pass);
    atomic_store(&made->hooks.fail_sample_at, -1);
    atomic_store(&made->hooks.fail_decode_status, WEIR_BACKEND);
    atomic_store(&made->hooks.tick_us, made->options.tick_us);
    atomic_store(&made->hooks.token_us, made->options.token_us);
    made->vocab_only = params->vocab_only;

    static const float steps[] = {0.0f, 0.5f, 1.0f};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (params->progress != NULL && !params->progress(steps[i], params->progress_user)) goto aborted;
        if (i == 0 && !vocabulary_make(made)) goto no_memory;
        for (int64_t us = i == 0 && !outline ? made->options.load_us : 0; us > 0; us -= LOAD_STEP_US) {
            if (params->progress != NULL && !params->progress(0.0f, params->progress_user)) goto aborted;
            weir__fake_wait(us < LOAD_STEP_US ? us : LOAD_STEP_US);
        }
    }
    if (made->options.fail_load && !outline) goto unreadable;
    made->free_us = outline ? 0 : made->options.free_us;
    made->embedder_us = outline ? 0 : made->options.embedder_us;
    atomic_store(&made->failing_embedders, outline ? 0 : made->options.fail_embedders);
    *model = made;
    return WEIR_OK;

unreadable:
    status = weir__error_set(error, WEIR_IO, "path", "`path` asks for the load to fail");
    goto fail;
aborted:
    status = weir__error_set(error, WEIR_ABORTED, "progress", "the progress callback ended the load");
    goto fail;
no_memory:
    status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the fake model");
fail:
    weir__fake_model_free(made);
    return status;
}

/* A hash of the options that decide the text, without those that take time. */
static uint64_t options_fingerprint(const weir__fake_options *o)
{
    const int64_t numbers[] = {o->n_vocab, o->n_ctx_train, o->seed, o->eos_every, o->any, o->longest, o->fim};
    return weir__hash(0, numbers, sizeof numbers);
}

void weir__fake_model_describe(const weir__bmodel *model, weir_model_info *info)
{
    /* The last words of the vocabulary: text does not become these unless `longest` is set. */
    const int32_t fim = model->options.fim ? (int32_t)model->options.n_vocab - 5 : -1;
    *info = (weir_model_info){
        .size = info->size,
        .backend = info->backend,
        .description = "fake, no weights",
        .architecture = "fake",
        .chat_template = chat_template,
        .n_vocab = (int32_t)model->options.n_vocab,
        .n_ctx_train = (int32_t)model->options.n_ctx_train,
        .n_embd = WEIR__FAKE_WIDTH,
        .n_embd_out = WEIR__FAKE_WIDTH,
        .n_layer = 1,
        .n_head = 1,
        .n_head_kv = 1,
        .token_bos = WEIR__FAKE_BOS,
        .token_eos = WEIR__FAKE_EOS,
        .token_eot = WEIR__FAKE_EOT,
        .token_nl = '\n',
        .token_fim_prefix = fim,
        .token_fim_suffix = fim < 0 ? -1 : fim + 1,
        .token_fim_middle = fim < 0 ? -1 : fim + 2,
        .token_fim_repo = fim < 0 ? -1 : fim + 3,
        .token_fim_file = fim < 0 ? -1 : fim + 4,
        .token_sep = -1,
        .n_bytes = (uint64_t)model->options.n_bytes,
        .add_bos = true,
        .has_decoder = true,
        .kernels = "",
        .n_swa = (int32_t)model->options.n_swa,
        .is_recurrent = model->options.recurrent != 0,
        .is_hybrid = model->options.hybrid != 0,
        .fingerprint = options_fingerprint(&model->options),
        .longest_piece = longest_piece(model),
    };
}

static const char *const meta_keys[] = {"general.architecture", "general.name", "fake.vocab_size",
                                        "fake.context_length",  "fake.seed",    "tokenizer.chat_template"};
#define N_META (sizeof meta_keys / sizeof meta_keys[0])

static int64_t text_give(const char *from, char *text, size_t capacity)
{
    size_t length = strlen(from);
    if (capacity > 0) {
        size_t n = length < capacity ? length : capacity - 1;
        memcpy(text, from, n);
        text[n] = '\0';
    }
    return (int64_t)length;
}

uint64_t weir__fake_model_identity(const weir__bmodel *model)
{
    return weir__hash(0, &model->options, sizeof model->options);
}

int64_t weir__fake_model_meta(const weir__bmodel *model, const char *key, char *text, size_t capacity)
{
    const weir__fake_options *o = &model->options;
    const struct {
        const char *text;
        int64_t number; /* without a text */
    } values[] = {{.text = "fake"},       {.text = "a model without weights"},
                  {.number = o->n_vocab}, {.number = o->n_ctx_train},
                  {.number = o->seed},    {.text = chat_template}};
    char number[24];
    size_t i = 0;
    while (i < N_META && strcmp(meta_keys[i], key) != 0) i++;
    if (i == N_META) return -1;
    snprintf(number, sizeof number, "%lld", (long long)values[i].number);
    return text_give(values[i].text != NULL ? values[i].text : number, text, capacity);
}

int64_t weir__fake_model_meta_key(const weir__bmodel *model, size_t i, char *key, size_t capacity)
{
    (void)model;
    return i < N_META ? text_give(meta_keys[i], key, capacity) : -1;
}

weir_status weir__fake_model_check(const weir__bmodel *model, weir_error *error)
{
    int64_t at = model->options.change_pass;
    if (at < 0 || atomic_load(&model->hooks.n_passes) < (uint64_t)at) return WEIR_OK;
    return weir__error_set(error, WEIR_BACKEND, "path", "fake: was changed while the model was in use");
}

weir_status weir__fake_model_weights(const weir__bmodel *model, size_t i, weir_model_weights *weights)
{
    (void)model, (void)i, (void)weights;
    return WEIR_END;
}

weir_status weir__fake_device_get(size_t i, weir_device *device)
{
    if (i > 0) return WEIR_END;
    *device = (weir_device){.size = device->size, .name = "fake", .description = "no device", .type = "cpu"};
    return WEIR_OK;
}

/* ---- Adapters ------------------------------------------------------------------------------------- */

weir_status weir__fake_adapter_load(weir__bmodel *model, const char *path, weir__badapter **adapter,
                                    weir_error *error)
{
    char *end = NULL;
    bool fake = strncmp(path, "fake:", strlen("fake:")) == 0;
    unsigned long long number = fake ? strtoull(path + strlen("fake:"), &end, 10) : 0;
    if (!fake || *end != '\0' || end == path + strlen("fake:") || number > INT32_MAX)
        return weir__error_set(error, WEIR_NOT_FOUND, "path",
                               "an adapter of the fake model is \"fake:\" and a number from 0 to %d",
                               INT32_MAX);
    weir__badapter *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for an adapter");
    made->model = model;
    made->number = number;
    atomic_fetch_add(&model->hooks.n_adapters, 1);
    *adapter = made;
    return WEIR_OK;
}

void weir__fake_adapter_free(weir__badapter *adapter)
{
    atomic_fetch_sub(&adapter->model->hooks.n_adapters, 1);
    weir__mem_free(adapter);
}

void weir__fake_adapter_describe(const weir__badapter *adapter, weir_adapter_info *info)
{
    *info = (weir_adapter_info){
        .size = info->size,
        .path = info->path,
        .name = "",
        .n_weights = 1,
        .rank = 1,
        .n_bytes = sizeof *adapter,
        .identity = weir__hash(1, &adapter->number, sizeof adapter->number),
    };
}

void weir__fake_wait(int64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    while (us > 0 && nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

bool weir__fake_fails(_Atomic int64_t *at, _Atomic int64_t *more)
{
    int64_t left = atomic_load(at);
    /* several samplers may count at the same time */
    while (left >= 0) {
        int64_t more_left = atomic_load(more);
        if (left == 0 && more_left > 0) {
            if (more_left == INT64_MAX || atomic_compare_exchange_strong(more, &more_left, more_left - 1))
                return true;
        } else if (atomic_compare_exchange_strong(at, &left, left - 1)) {
            return left == 0;
        }
        left = atomic_load(at);
    }
    return false;
}

const weir__backend weir__backend_fake = {
    .name = "fake",
#define OPERATION(result, operation, ...) .operation = weir__fake_##operation,
#define OPTIONAL(...)
#include "backend/operations.h"
};
