/* constraint.c: how the answer of a chat is constrained and read, from the template handler's analysis.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/schema_grammar.h"

#ifndef WEIR_NO_LLAMA

static int compare_ids(const void *a, const void *b)
{
    int32_t first = *(const int32_t *)a, second = *(const int32_t *)b;
    return (first > second) - (first < second);
}

/* *token: the token whose text this is, or -1. */
static weir_status find_token(const weir_model *model, const char *text, int32_t *token, weir_error *error)
{
    int32_t tokens[2];
    size_t n = 0;
    weir_status status =
        model->ops->tokenize(model->model, text, strlen(text), false, true, tokens, 2, &n, NULL);
    *token = status == WEIR_OK && n == 1 ? tokens[0] : -1;
    return status == WEIR_NO_MEMORY ? weir__chat_no_memory(error) : WEIR_OK;
}

static weir_status read_preserved(weir_chat *chat, const weir__llama_rendered *rendered, weir_error *error)
{
    size_t n = 0;
    chat->preserved = weir__mem_calloc(rendered->n_preserved, sizeof *chat->preserved);
    if (chat->preserved == NULL) return weir__chat_no_memory(error);
    for (size_t i = 0; i < rendered->n_preserved; i++) {
        int32_t token;
        weir_status status = find_token(chat->model, rendered->preserved[i], &token, error);
        if (status != WEIR_OK) return status;
        if (token >= 0) chat->preserved[n++] = token;
    }
    qsort(chat->preserved, n, sizeof *chat->preserved, compare_ids);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || chat->preserved[i - 1] != chat->preserved[i])
            chat->preserved[chat->n_preserved++] = chat->preserved[i];
    return WEIR_OK;
}

/* A word that is one token of the model triggers as that token. */
static weir_status read_triggers(weir_chat *chat, const weir__llama_rendered *rendered, weir_error *error)
{
    chat->triggers = weir__mem_dup(rendered->triggers, rendered->n_triggers * sizeof *rendered->triggers);
    if (chat->triggers == NULL) return weir__chat_no_memory(error);
    for (size_t i = 0; i < rendered->n_triggers; i++) {
        weir__trigger *t = &chat->triggers[i];
        if (t->kind != WEIR__TRIGGER_WORD && t->kind != WEIR__TRIGGER_TOKEN) continue;
        weir_status status = find_token(chat->model, t->value, &t->token, error);
        if (status != WEIR_OK) return status;
        t->kind = t->token >= 0 ? WEIR__TRIGGER_TOKEN : WEIR__TRIGGER_WORD;
    }
    chat->grammar.triggers = chat->triggers;
    chat->grammar.n_triggers = rendered->n_triggers;
    return WEIR_OK;
}

static weir_status read_grammar(weir_chat *chat, const weir__llama_rendered *rendered, const json_t *schema,
                                weir_error *error)
{
    weir_status status = WEIR_OK;
    bool given = rendered->grammar[0] != '\0', lazy = rendered->lazy;
    if (schema != NULL && (!given || lazy)) {
        /* The handler knows no form for the schema, so the answer is the JSON text and nothing else. */
        chat->plain = true;
        status = weir__grammar_from_schema(schema, "json_schema", &chat->schema_grammar, error);
        chat->grammar.text = chat->schema_grammar;
        if (chat->begun != NULL && chat->begun[0] != '\0') chat->grammar.prefill = chat->begun;
    } else if (!given || (lazy && rendered->n_triggers == 0)) { /* without triggers it could never begin */
        return WEIR_OK;
    } else {
        chat->grammar.text = rendered->grammar;
        chat->grammar.lazy = lazy;
        chat->grammar.calls_only = rendered->calls_only;
        status = read_triggers(chat, rendered, error);
        if (!lazy && rendered->generation_prompt[0] != '\0')
            chat->grammar.prefill = rendered->generation_prompt;
    }
    if (status == WEIR_OK) chat->constraint = &chat->grammar;
    return status;
}

weir_status weir__chat_read_constraint(weir_chat *chat, const weir__llama_rendered *rendered,
                                       const json_t *schema, weir_error *error)
{
    chat->stops = rendered->stops;
    chat->n_stops = rendered->n_stops;
    weir_status status = read_preserved(chat, rendered, error);
    if (status == WEIR_OK) status = read_grammar(chat, rendered, schema, error);
    if (status == WEIR_OK && !chat->plain)
        chat->reasoning = (weir__chat_reasoning){rendered->reasoning_start, rendered->reasoning_ends,
                                                 rendered->n_reasoning_ends, rendered->reasoning_closing,
                                                 rendered->generation_prompt};
    return status;
}

#endif
