/* template.c: the template of a conversation: its source, checked, dated and parsed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/template.h"

#include "base/error.h"

#ifndef WEIR_NO_LLAMA

#include <stdatomic.h>
#include <string.h>

#include "base/deep.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "chat/chat.h"

/* ---- Parsing ---- */

typedef struct parsing {
    const char *source;
    weir__text bos, eos; /* the tokens' texts */
    weir__llama_template *parsed;
    weir_status status;
    weir_error error;
} parsing;

static void run_parse(void *user)
{
    parsing *p = user;
    p->status = weir__llama_template_create(p->source, p->bos.bytes, p->eos.bytes, &p->parsed, &p->error);
}

static weir_status parse_template(const weir_model *model, const char *source, size_t stack,
                                  weir__chat_template **out, weir_error *error)
{
    parsing p = {.source = source};
    weir__chat_template *t = weir__mem_calloc(1, sizeof *t);
    if (t == NULL) return weir__chat_no_memory(error);
    t->source = weir__mem_strdup(source);
    bool whole = t->source != NULL && weir__model_add_piece(model, model->info.token_bos, true, &p.bos) &&
                 weir__model_add_piece(model, model->info.token_eos, true, &p.eos);
    weir_status status = whole ? weir__deep_run(run_parse, &p, stack, error) : weir__chat_no_memory(error);
    if (status == WEIR_OK && p.status != WEIR_OK) status = weir__error_copy(error, &p.error);
    weir__text_fini(&p.eos);
    weir__text_fini(&p.bos);
    if (status != WEIR_OK) {
        weir__mem_free(t->source);
        weir__mem_free(t);
        return status;
    }
    t->parsed = p.parsed;
    atomic_init(&t->refs, 1);
    *out = t;
    return WEIR_OK;
}

/* ---- Sources ---- */

static weir_status check_source(const char *source, weir_error *error)
{
    size_t length = strlen(source), n_brackets = 0;
    if (length == 0 || length > WEIR__CHAT_TEMPLATE_BYTES_MAX)
        return weir__error_range(error, WEIR_INVALID, "template_source", (double)length, 1,
                                 WEIR__CHAT_TEMPLATE_BYTES_MAX, "`template_source` has %zu bytes", length);
    if (!weir__utf8_valid(source, length))
        return weir__invalid(error, WEIR_ERROR_FORM, "template_source",
                             "`template_source` is not well-formed UTF-8");
    for (size_t i = 0; i < length; i++)
        n_brackets += source[i] == '(' || source[i] == '[' || source[i] == '{';
    if (n_brackets > WEIR__CHAT_TEMPLATE_BRACKETS_MAX)
        return weir__error_range(error, WEIR_INVALID, "template_source", (double)n_brackets, 0,
                                 WEIR__CHAT_TEMPLATE_BRACKETS_MAX, "`template_source` has %zu brackets",
                                 n_brackets);
    return WEIR_OK;
}

/* The model's template, copied to *own if it is the one for conversations with tools. False: no memory. */
static bool find_source(const weir_model *model, bool tools, char **own, const char **source)
{
    static const char key[] = WEIR__CHAT_TEMPLATE_TOOLS_KEY;
    int64_t n = tools ? model->ops->model_meta(model->model, key, NULL, 0) : 0;
    *source = model->info.chat_template;
    if (n <= 0) return true;
    *source = *own = weir__mem_calloc((size_t)n + 1, 1);
    if (*own != NULL) model->ops->model_meta(model->model, key, *own, (size_t)n + 1);
    return *own != NULL;
}

static const char now_call[] = "strftime_now(";

/* The end of the call that begins at `at`, if its argument is a literal, else NULL. Prints the date. */
static const char *print_date(const char *at, const struct tm *local, char *date, size_t capacity)
{
    char format[64];
    const char *open = at + sizeof now_call - 1;
    open += strspn(open, " ");
    const char *close = *open == '"' || *open == '\'' ? strchr(open + 1, *open) : NULL;
    const char *last = close != NULL ? close + 1 + strspn(close + 1, " ") : NULL;
    if (last == NULL || *last != ')' || (size_t)(close - open) > sizeof format) return NULL;
    memcpy(format, open + 1, (size_t)(close - open) - 1);
    format[close - open - 1] = '\0';
    if (strftime(date, capacity, format, local) == 0 || strpbrk(date, "\"\\") != NULL) date[0] = '\0';
    return last + 1;
}

/* llama.cpp's strftime_now("…") returns the present time. So calls are replaced by the text that they would
 * return at the time `now`. */
static weir_status date_source(const char *source, time_t now, weir__text *dated, weir_error *error)
{
    struct tm local;
    char date[128];
    bool ok = true;
    if (localtime_r(&now, &local) == NULL)
        return weir__invalid(error, WEIR_ERROR_FORM, "now", "`now` is not a date that can be printed");
    for (const char *at = strstr(source, now_call); ok && at != NULL; at = strstr(at, now_call)) {
        const char *end = print_date(at, &local, date, sizeof date);
        if (end != NULL) {
            ok = weir__text_add(dated, source, (size_t)(at - source)) && weir__text_add_string(dated, "\"") &&
                 weir__text_add_string(dated, date) && weir__text_add_string(dated, "\"");
            source = end;
        }
        at = end != NULL ? end : at + sizeof now_call - 1;
    }
    return ok && weir__text_add_string(dated, source) ? WEIR_OK : weir__chat_no_memory(error);
}

/* ---- Sources, parsed ---- */

static weir_status get_parsed(weir_model *model, const char *source, size_t stack, weir__chat_template **out,
                              weir_error *error)
{
    *out = weir__chat_templates_find(&model->templates, source);
    if (*out != NULL) return WEIR_OK;
    weir_status status = check_source(source, error);
    /* Parsing may take long. Two threads may both parse it. */
    if (status == WEIR_OK) status = parse_template(model, source, stack, out, error);
    if (status == WEIR_OK) weir__chat_templates_add(&model->templates, *out);
    return status;
}

/* Says which template it was, and what can be done about it. */
static void name_source(bool given, bool tools, const weir_error *why, weir_error *error)
{
    if (why->code == WEIR_NO_MEMORY)
        weir__error_copy(error, why);
    else if (given)
        weir__error_as(error, why, why->code, "template_source");
    else
        weir__error_set(error, why->code, "",
                        "key '%s' of the model: %.250s; give another template in its place (--chat-template, "
                        "--chat-template-file)",
                        tools ? WEIR__CHAT_TEMPLATE_TOOLS_KEY : WEIR__CHAT_TEMPLATE_KEY, why->message);
}

weir_status weir__chat_template_choose(weir_model *model, const char *source, bool tools, time_t now,
                                       weir__chat_template **out, weir_error *error)
{
    char *own = NULL;
    weir__text dated = {0};
    weir_error why = {0};
    weir_status status = WEIR_OK;
    const char *text = source;
    size_t stack = source != NULL ? WEIR__CHAT_STACK_GIVEN : WEIR__CHAT_STACK;
    if (source == NULL && !find_source(model, tools, &own, &text)) return weir__chat_no_memory(error);
    if (text == NULL || (source == NULL && text[0] == '\0'))
        return weir__error_set(error, WEIR_UNSUPPORTED, "template_source",
                               "the model has no chat template; give `template_source`, or a prompt as text");
    if (now != 0 && strstr(text, now_call) != NULL) {
        status = date_source(text, now, &dated, error);
        if (dated.bytes != NULL) text = dated.bytes;
    }
    if (status == WEIR_OK) status = get_parsed(model, text, stack, out, &why);
    if (why.code != WEIR_OK) name_source(source != NULL, own != NULL, &why, error);
    weir__text_fini(&dated);
    weir__mem_free(own);
    return status;
}

/* The model's own templates, of which each is optional. */
static weir_status check_own(weir_model *model, weir_error *error)
{
    weir_status status = WEIR_OK;
    bool has = model->ops->model_meta(model->model, WEIR__CHAT_TEMPLATE_TOOLS_KEY, NULL, 0) > 0;
    for (int tools = 0; tools <= (has ? 1 : 0) && status == WEIR_OK; tools++) {
        weir__chat_template *parsed = NULL;
        if (tools == 0 && (model->info.chat_template == NULL || *model->info.chat_template == '\0')) continue;
        status = weir__chat_template_choose(model, NULL, tools != 0, 0, &parsed, error);
        weir__chat_template_release(parsed);
    }
    return status;
}

weir_status weir_chat_check(weir_model *model, const char *template_source, weir_error *error)
{
    weir__chat_template *parsed = NULL;
    if (model == NULL) return weir__error_null(error, "model");
    if (template_source == NULL) return check_own(model, error);
    weir_status status = weir__chat_template_choose(model, template_source, false, 0, &parsed, error);
    weir__chat_template_release(parsed);
    return status;
}

#else

weir_status weir_chat_check(weir_model *model, const char *template_source, weir_error *error)
{
    (void)template_source;
    return model != NULL ? WEIR_OK : weir__error_null(error, "model");
}

#endif
