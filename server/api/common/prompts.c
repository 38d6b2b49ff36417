/* prompts.c: the prompts of completions, and of models that fill in the middle (FIM).
 * SPDX-License-Identifier: Apache-2.0 */
#include "prompts.h"

#include <string.h>

#include "base/mem.h"
#include "error.h"
#include "field.h"
#include "server/models/loaded.h"
#include "server/models/tokens.h"
#include "server/request/call.h"

/* ---- Filling in the middle ---- */

#define FILES_MAX 256

typedef struct prompt {
    serve_call *call;
    int32_t *tokens; /* [n] */
    size_t n, capacity;
} prompt;

static bool add_token(prompt *p, int32_t token)
{
    if (token < 0) return true;
    if (!weir__mem_grow(&p->tokens, &p->capacity, p->n + 1, sizeof *p->tokens))
        return serve_call_no_memory(p->call);
    p->tokens[p->n++] = token;
    return true;
}

/* Adds a text without control tokens: code may hold their text. */
static bool add_text(prompt *p, const json_t *text)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    weir_error error = {0};
    if (text == NULL || json_string_length(text) == 0) return true;
    weir_status status = serve_tokens_of(p->call->loaded, text, false, false, &tokens, &n, &error);
    bool ok = serve_call_passes(p->call, status, &error);
    if (ok && !weir__mem_grow(&p->tokens, &p->capacity, p->n + n, sizeof *p->tokens))
        ok = serve_call_no_memory(p->call);
    if (ok && n > 0) memcpy(p->tokens + p->n, tokens, n * sizeof *tokens);
    if (ok) p->n += n;
    weir__mem_free(tokens);
    return ok;
}

static bool add_line(prompt *p, const char *line)
{
    json_t *text = json_string(line);
    bool ok = text != NULL ? add_text(p, text) : serve_call_no_memory(p->call);
    json_decref(text);
    return ok;
}

/* A file that goes before the one that is edited. */
static bool add_file(prompt *p, const weir_model_info *info, const json_t *file)
{
    const json_t *text = json_object_get(file, "text"), *name = json_object_get(file, "filename");
    if (!json_is_string(text) || (name != NULL && !json_is_string(name)))
        return serve_field_refuse(p->call, "input_extra",
                                  "an array of objects with text and filename, strings");
    if (info->token_fim_file < 0) return add_line(p, "\n\n--- snippet ---\n\n") && add_text(p, text);
    return add_token(p, info->token_fim_file) && add_text(p, name) &&
           add_line(p, name != NULL ? "\n" : "tmp\n") && add_text(p, text);
}

static bool add_extra(prompt *p, const weir_model_info *info, const json_t *extra)
{
    size_t n = json_array_size(extra);
    if (extra != NULL && (!json_is_array(extra) || n > FILES_MAX))
        return serve_field_refuse(p->call, "input_extra", "an array of at most 256 objects");
    if (n == 0) return true;
    if (info->token_fim_repo >= 0 && !(add_token(p, info->token_fim_repo) && add_line(p, "myproject\n")))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!add_file(p, info, json_array_get(extra, i))) return false;
    return info->token_fim_file < 0 || (add_token(p, info->token_fim_file) && add_line(p, "filename\n"));
}

/* The tokens of a prompt for the text between two others, into *tokens, [*n], which the caller frees in any
 * case. before, between, after: strings, or NULL for ""; the generated text goes behind before and between.
 * extra: NULL, or an array of {"filename": …, "text": …} that the model sees first, as llama-server's /infill
 * has it. field: of the request, for errors. False: the call has its answer. */
static bool make_infill(serve_call *call, const char *field, const json_t *before, const json_t *between,
                        const json_t *after, const json_t *extra, int32_t **tokens, size_t *n)
{
    prompt p = {.call = call};
    weir_model_info info = {.size = sizeof info};
    weir_model_describe(call->loaded->model, &info);
    bool ok = serve_loaded_infills(&info) ||
              serve_call_refuse(call, 400, field, "unsupported_value",
                                "this model cannot fill in the middle: its vocabulary has no tokens for it");
    ok = ok && (!info.add_bos || add_token(&p, info.token_bos)) && add_extra(&p, &info, extra) &&
         add_token(&p, info.token_fim_prefix) && add_text(&p, before) && add_text(&p, between) &&
         add_token(&p, info.token_fim_suffix) && add_text(&p, after) && add_token(&p, info.token_fim_middle);
    *tokens = p.tokens;
    *n = p.n;
    return ok;
}

/* ---- Requests ---- */

static bool add_prompt(serve_call *call, void *to, const char *name, const json_t *value)
{
    serve_prompts *list = to;
    serve_prompt *one = &list->all[list->n++];
    if (json_is_array(value)) return serve_call_read_ids(call, name, value, &one->tokens, &one->n);
    one->text = value;
    return true;
}

/* A string of a request for the text between two others; *value NULL: it is not given. */
static bool read_side(const serve_ask *ask, const char *name, const json_t **value)
{
    *value = serve_ask_given(ask, name);
    return *value == NULL || json_is_string(*value) || serve_field_refuse(ask->call, name, "a string");
}

bool serve_prompts_read(serve_ask *ask, serve_prompts *list)
{
    serve_call *call = ask->call;
    serve_prompt *one = &list->all[0];
    const json_t *before, *between, *after;
    if ((ask->where & SERVE_ASK_INFILL) != 0) {
        list->n = 1;
        return read_side(ask, "input_prefix", &before) && read_side(ask, "prompt", &between) &&
               read_side(ask, "input_suffix", &after) &&
               make_infill(call, "input_suffix", before, between, after, serve_ask_given(ask, "input_extra"),
                           &one->tokens, &one->n);
    }
    if (json_string_length(ask->suffix) == 0)
        return serve_field_texts(call, "prompt", ask->prompt, SERVE_PROMPTS_MAX, add_prompt, list);
    list->n = 1;
    return (json_is_string(ask->prompt) || serve_field_refuse(call, "prompt", "a string beside suffix")) &&
           make_infill(call, "suffix", ask->prompt, NULL, ask->suffix, NULL, &one->tokens, &one->n);
}

void serve_prompts_fini(serve_prompts *list)
{
    for (size_t i = 0; i < list->n; i++) weir__mem_free(list->all[i].tokens);
}
