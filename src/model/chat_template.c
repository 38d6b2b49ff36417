/* chat_template.c: a model's chat templates, parsed once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_template.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/deep.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "model/chat.h"

#ifndef WEIR_NO_LLAMA

/* Bytes of a source whose nesting fits on any stack. */
#define SHORT_SOURCE 1024

/* The model's two, and some that callers gave. */
#define N_CACHED 8

struct weir__chat_template {
    char *source;
    weir__shim_template *parsed;
    _Atomic int refs;
    _Atomic bool warned;
};

/* lock guards the rest. The most recently asked for comes first. */
typedef struct cache {
    pthread_mutex_t lock;
    weir__chat_template *templates[N_CACHED]; /* each held; [n] */
    size_t n;
} cache;

/* ---- Templates ---- */

static void run_destroy(void *parsed)
{
    weir__shim_template_destroy(parsed);
}

void weir__chat_template_release(weir__chat_template *t)
{
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) > 1) return;
    /* Freed by calls as deep as its expressions are. Where there is no such stack to be had it stays. */
    if (strlen(t->source) <= SHORT_SOURCE)
        weir__shim_template_destroy(t->parsed);
    else
        (void)weir__deep_run(run_destroy, t->parsed, WEIR__CHAT_STACK_GIVEN, NULL);
    weir__mem_free(t->source);
    weir__mem_free(t);
}

const char *weir__chat_template_source(const weir__chat_template *t)
{
    return t->source;
}

const weir__shim_template *weir__chat_template_parsed(const weir__chat_template *t)
{
    return t->parsed;
}

bool weir__chat_template_warn_once(weir__chat_template *t)
{
    return !atomic_exchange(&t->warned, true);
}

/* A control token as text; "" when the model has none. out is freed with weir__mem_free. */
static weir_status token_text(const weir_model *model, int32_t token, char **out, weir_error *error)
{
    char *text = NULL;
    int32_t n = 0;
    if (token >= 0) n = model->ops->piece(model->model, token, true, NULL, 0);
    text = weir__mem_calloc((size_t)(n < 0 ? -n : n) + 1, 1);
    if (text == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat template");
    if (n < 0) model->ops->piece(model->model, token, true, text, -n);
    *out = text;
    return WEIR_OK;
}

typedef struct parse {
    const char *source, *bos, *eos;
    weir__shim_template *parsed;
    weir_status status;
    weir_error error;
} parse;

static void run_parse(void *user)
{
    parse *p = user;
    p->status = weir__shim_template_create(p->source, p->bos, p->eos, &p->parsed, &p->error);
}

/* Takes source, also when it fails. */
static weir_status create(const weir_model *model, char *source, size_t stack, weir__chat_template **out,
                          weir_error *error)
{
    char *bos = NULL, *eos = NULL;
    parse p = {.source = source};
    weir__chat_template *t = weir__mem_calloc(1, sizeof *t);
    weir_status status =
        t == NULL ? weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat template")
                  : token_text(model, model->info.token_bos, &bos, error);
    if (status == WEIR_OK) status = token_text(model, model->info.token_eos, &eos, error);
    if (status == WEIR_OK) {
        p.bos = bos;
        p.eos = eos;
        status = weir__deep_run(run_parse, &p, stack, error);
        if (status == WEIR_OK && p.status != WEIR_OK) status = weir__error_copy(error, &p.error);
    }
    weir__mem_free(eos);
    weir__mem_free(bos);
    if (t == NULL || status != WEIR_OK) {
        weir__mem_free(t);
        weir__mem_free(source);
        return status;
    }
    t->source = source;
    t->parsed = p.parsed;
    atomic_init(&t->refs, 1);
    *out = t;
    return WEIR_OK;
}

/* ---- The cache ---- */

static cache *cache_of(weir_model *model)
{
    void *known = atomic_load_explicit(&model->chat_cache, memory_order_acquire);
    if (known != NULL) return known;
    cache *made = weir__mem_calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    if (pthread_mutex_init(&made->lock, NULL) != 0) {
        weir__mem_free(made);
        return NULL;
    }
    if (atomic_compare_exchange_strong(&model->chat_cache, &known, (void *)made)) return made;
    weir__chat_cache_free(made);
    return known;
}

/* The template of this source, held and moved to the front, or NULL. With the lock. */
static weir__chat_template *find(cache *c, const char *source)
{
    size_t i = 0;
    while (i < c->n && strcmp(c->templates[i]->source, source) != 0) i++;
    if (i == c->n) return NULL;
    weir__chat_template *t = c->templates[i];
    memmove(c->templates + 1, c->templates, i * sizeof *c->templates);
    c->templates[0] = t;
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void weir__chat_cache_free(void *user)
{
    cache *c = user;
    if (c == NULL) return;
    for (size_t i = 0; i < c->n; i++) weir__chat_template_release(c->templates[i]);
    pthread_mutex_destroy(&c->lock);
    weir__mem_free(c);
}

/* ---- Sources ---- */

static weir_status check_source(const char *source, weir_error *error)
{
    size_t length = strlen(source), n_brackets = 0;
    if (length == 0 || length > WEIR__CHAT_TEMPLATE_BYTES_MAX)
        return weir__error_set(error, WEIR_INVALID, "template_source",
                               "template_source has %zu bytes; allowed: 1 to %d", length,
                               WEIR__CHAT_TEMPLATE_BYTES_MAX);
    if (!weir__utf8_valid(source, length))
        return weir__error_set(error, WEIR_INVALID, "template_source",
                               "template_source is not well-formed UTF-8");
    for (size_t i = 0; i < length; i++)
        n_brackets += source[i] == '(' || source[i] == '[' || source[i] == '{';
    if (n_brackets > WEIR__CHAT_TEMPLATE_BRACKETS_MAX)
        return weir__error_set(error, WEIR_INVALID, "template_source",
                               "template_source has %zu brackets; allowed: up to %d", n_brackets,
                               WEIR__CHAT_TEMPLATE_BRACKETS_MAX);
    return WEIR_OK;
}

/* *text is the template that the model has for conversations with tools, NULL when it has none. False: out of
 * memory. */
static bool tool_source(const weir_model *model, char **text)
{
    static const char key[] = "tokenizer.chat_template.tool_use";
    int64_t n = model->ops->model_meta(model->model, key, NULL, 0);
    *text = NULL;
    if (n <= 0) return true;
    *text = weir__mem_calloc((size_t)n + 1, 1);
    if (*text != NULL) model->ops->model_meta(model->model, key, *text, (size_t)n + 1);
    return *text != NULL;
}

weir_status weir__chat_template_get(weir_model *model, const char *source, bool tools,
                                    weir__chat_template **out, weir_error *error)
{
    char *own = NULL;
    weir_status status;
    size_t stack = source != NULL ? WEIR__CHAT_STACK_GIVEN : WEIR__CHAT_STACK;
    if (source == NULL) {
        if (tools && !tool_source(model, &own))
            return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat template");
        source = own != NULL ? own : model->info.chat_template;
        if (source == NULL || source[0] == '\0') {
            weir__mem_free(own);
            return weir__error_set(
                error, WEIR_UNSUPPORTED, "template_source",
                "the model has no chat template; give template_source, or a prompt as text");
        }
    }
    cache *c = cache_of(model);
    if (c == NULL) {
        status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for chat templates");
        goto out;
    }
    pthread_mutex_lock(&c->lock);
    weir__chat_template *t = find(c, source);
    pthread_mutex_unlock(&c->lock);
    if (t == NULL) {
        if ((status = check_source(source, error)) != WEIR_OK) goto out;
        char *copy = weir__mem_strdup(source);
        if (copy == NULL) {
            status = weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for a chat template");
            goto out;
        }
        /* Without the lock: a template of a caller's may take its time. Two threads may both parse it. */
        if ((status = create(model, copy, stack, &t, error)) != WEIR_OK) goto out;
        weir__chat_template *dropped = NULL;
        pthread_mutex_lock(&c->lock);
        if (c->n == N_CACHED) dropped = c->templates[--c->n];
        memmove(c->templates + 1, c->templates, c->n * sizeof *c->templates);
        c->templates[0] = t;
        c->n++;
        atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
        pthread_mutex_unlock(&c->lock);
        weir__chat_template_release(dropped);
    }
    *out = t;
    status = WEIR_OK;
out:
    weir__mem_free(own);
    return status;
}

#else

void weir__chat_cache_free(void *user)
{
    (void)user;
}

#endif
