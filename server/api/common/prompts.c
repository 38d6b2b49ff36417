/* SPDX-License-Identifier: Apache-2.0 */
#include "prompts.h"

#include "base/mem.h"
#include "dialect.h"
#include "field.h"
#include "fim.h"
#include "server/models/tokens.h"

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
               serve_fim_make(call, "input_suffix", before, between, after,
                              serve_ask_given(ask, "input_extra"), &one->tokens, &one->n);
    }
    if (json_string_length(ask->suffix) == 0)
        return serve_field_texts(call, "prompt", ask->prompt, SERVE_PROMPTS_MAX, add_prompt, list);
    list->n = 1;
    return (json_is_string(ask->prompt) || serve_field_refuse(call, "prompt", "a string beside suffix")) &&
           serve_fim_make(call, "suffix", ask->prompt, NULL, ask->suffix, NULL, &one->tokens, &one->n);
}

void serve_prompts_fini(serve_prompts *list)
{
    for (size_t i = 0; i < list->n; i++) weir__mem_free(list->all[i].tokens);
}
