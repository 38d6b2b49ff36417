/* chat.c: rendered conversations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "chat/calls.h"
#include "model/sampler.h"
#include "params/members.h"

#define ARGS_MAX 64 /* templates know a handful of variables; each rendering copies all */

/* ---- Getters ---- */

const char *weir_chat_relaxed(const weir_chat *chat)
{
    return chat != NULL && chat->relaxed != NULL ? chat->relaxed : "";
}

const char *weir_chat_reshaped(const weir_chat *chat)
{
    return chat != NULL && chat->reshaped.n > 0 ? chat->reshaped.bytes : "";
}

const char *weir_chat_prompt(const weir_chat *chat, size_t *length)
{
    if (length != NULL) *length = chat != NULL ? chat->prompt_length : 0;
    return chat != NULL ? chat->prompt : "";
}

const char *weir_chat_reasoning_end(const weir_chat *chat)
{
    return chat != NULL && chat->reasoning.n_ends > 0 ? chat->reasoning.closing : "";
}

weir_special_content weir_chat_special_content(const weir_chat *chat)
{
    return chat != NULL ? chat->special : WEIR_SPECIAL_TRUSTED;
}

const weir_media_use *weir_chat_media(const weir_chat *chat, size_t *n)
{
    if (n != NULL) *n = chat != NULL ? chat->n_media : 0;
    return chat != NULL ? chat->media : NULL;
}

weir_status weir__chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                size_t *places, weir_error *error)
{
    if (chat->prompt_length > WEIR__TEXT_MAX)
        return weir__error_range(error, WEIR_INVALID, "chat", (double)chat->prompt_length, 0, WEIR__TEXT_MAX,
                                 "the prompt has %zu bytes", chat->prompt_length);
    return weir__chat_tokens(chat->model, chat->prompt, chat->prompt_length, &chat->parts, chat->media,
                             chat->n_media, tokens, capacity, n_tokens, places, error);
}

weir_status weir_chat_tokenize(const weir_chat *chat, int32_t *tokens, size_t capacity, size_t *n_tokens,
                               weir_error *error)
{
    if (chat == NULL) return weir__error_null(error, "chat");
    if (tokens == NULL && capacity > 0)
        return weir__invalid(error, WEIR_ERROR_MISSING, "tokens", "`tokens` is NULL and capacity is %zu",
                             capacity);
    if (n_tokens == NULL) return weir__error_null(error, "n_tokens");
    return weir__chat_tokenize(chat, tokens, capacity, n_tokens, NULL, error);
}

weir_chat *weir_chat_hold(weir_chat *chat)
{
    if (chat != NULL) atomic_fetch_add_explicit(&chat->refs, 1, memory_order_relaxed);
    return chat;
}

void weir_chat_release(weir_chat *chat)
{
    if (chat == NULL || atomic_fetch_sub_explicit(&chat->refs, 1, memory_order_acq_rel) > 1) return;
    weir__mem_free(chat->triggers);
    weir__mem_free(chat->schema_grammar);
    weir__mem_free(chat->relaxed);
    weir__text_fini(&chat->reshaped);
    weir__mem_free(chat->marks);
    weir__mem_free(chat->parts.at);
    for (size_t i = 0; i < chat->n_media; i++) weir_media_release(chat->media[i].media);
    weir__mem_free(chat->media);
    weir__spans_fini(&chat->spans);
    weir__mem_free(chat->preserved);
    weir__mem_free(chat->own_prompt);
    weir__mem_free(chat->begun);
#ifndef WEIR_NO_LLAMA
    weir__llama_chat_destroy(chat->reader);
#endif
    weir_model_release(chat->model);
    weir__mem_free(chat);
}

/* ---- Parameters ---- */

void weir_chat_params_init(weir_chat_params *params, size_t size)
{
    weir__members_init(&weir__chat_members, params, size);
}

static weir_status check_params(const weir_chat_params *params, const weir__chat_tools *tools,
                                weir_error *error)
{
    weir_status status = weir__members_check(&weir__chat_members, params, "", error);
    if (status != WEIR_OK) return status;
    if (params->tool_choice == WEIR_TOOLS_REQUIRED && tools->shown == NULL)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "tool_choice",
                             "`tool_choice` asks for a call, but there are no tools in `tools_json`");
    if (params->n_args > 0 && params->args == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "args", "`args` is NULL and `n_args` is %zu",
                             params->n_args);
    if (params->n_args > ARGS_MAX)
        return weir__error_range(error, WEIR_INVALID, "n_args", (double)params->n_args, 0, ARGS_MAX,
                                 "`n_args` is %zu", params->n_args);
    if (params->n_media > 0 && params->media == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "media", "`media` is NULL and `n_media` is %zu",
                             params->n_media);
    return WEIR_OK;
}

/* ---- Creation ---- */

/* Creates a chat of these messages and tools, whatever params has of both. n_added: the first messages that
 * the caller did not give. */
static weir_status create_chat(weir_model *model, const weir_chat_params *params, const json_t *messages,
                               size_t n_added, const weir__chat_tools *tools, weir__text *relaxed,
                               weir_chat **out, weir_error *error)
{
    weir_chat *chat = weir__mem_calloc(1, sizeof *chat);
    if (chat == NULL) return weir__chat_no_memory(error);
    atomic_init(&chat->refs, 1);
    chat->model = weir_model_hold(model);
    chat->n_added = n_added;
    weir_status status = weir__chat_render(chat, params, messages, tools, relaxed, error);
    if (status == WEIR_OK)
        *out = chat;
    else
        weir_chat_release(chat);
    return status;
}

/* True if a chat could not be created because the template lacks a form of calls. */
static bool is_of_tools(const weir_error *error)
{
    return strcmp(error->field, "tools_json") == 0 || strcmp(error->field, "tool_choice") == 0 ||
           strcmp(error->field, "json_schema") == 0;
}

/* Creates a chat whose messages describe the tools: the template knows none, or its form of calls cannot be
 * enforced. */
static weir_status create_described(weir_model *model, weir_chat_params params, const json_t *messages,
                                    weir__chat_tools *tools, weir_chat **out, weir_error *error)
{
    static const weir__chat_tools none = {0};
    json_t *form = NULL, *described = NULL;
    char *schema = NULL;
    weir_chat *chat = NULL;
    weir_status status = WEIR_OK;
    if (params.tool_choice == WEIR_TOOLS_NONE) /* they must not be called anyway */
        return create_chat(model, &params, messages, 0, &none, &tools->relaxed, out, error);
    weir__chat_calls_talk talk = params.tool_choice == WEIR_TOOLS_REQUIRED ? WEIR__TALK_NONE
                                 : params.json_schema != NULL              ? WEIR__TALK_FORM
                                                                           : WEIR__TALK_WORDS;
    if (talk == WEIR__TALK_FORM)
        status = weir__json_parse(params.json_schema, WEIR_NUL, "json_schema", WEIR_GRAMMAR, &form, error);
    if (status == WEIR_OK) {
        const weir__schema_terms terms = weir__chat_schema_terms(&params, &tools->relaxed);
        status = weir__chat_calls_describe(messages, tools, talk, params.continue_final, form, &terms,
                                           &described, &schema, error);
    }
    if (status == WEIR_OK) {
        params.json_schema = schema;
        params.strict_schema = false; /* unenforceable parts were refused or reported above */
        status =
            create_chat(model, &params, described, json_array_size(described) - json_array_size(messages),
                        &none, NULL, &chat, error);
        if (status == WEIR_GRAMMAR) snprintf(error->field, sizeof error->field, "tools_json");
    }
    if (status == WEIR_UNSUPPORTED) snprintf(error->field, sizeof error->field, "tools_json");
    if (chat != NULL) {
        chat->calls = true;
        chat->form = talk == WEIR__TALK_FORM;
        weir__chat_calls_mark(&chat->grammar, talk);
        *out = chat;
    }
    weir__mem_free(schema);
    json_decref(described);
    json_decref(form);
    return status;
}

/* Finds the media and the messages in the prompt, and cuts it into the parts that are tokenized. */
static weir_status read_prompt(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                               const weir__chat_markers *markers, weir_error *error)
{
    const weir__controls *controls;
    weir_status status = weir__chat_media_find(chat, params, messages, markers, error);
    if (status == WEIR_OK) status = weir__model_controls(chat->model, &controls, error);
    if (status == WEIR_OK)
        status = weir__chat_cut(controls, chat->prompt, chat->prompt_length, &chat->spans, chat->media,
                                chat->n_media, &chat->parts, error);
    weir__spans_fini(&chat->spans);
    if (status != WEIR_OK) return status;
    chat->n_messages = json_array_size(messages);
    chat->marks = weir__chat_marks(messages, chat->prompt, chat->prompt_length);
    return chat->marks != NULL ? WEIR_OK : weir__chat_no_memory(error);
}

/* Refuses a text that goes on if no answer in the form that is enforced begins with it. */
static weir_status check_begun(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                               weir_error *error)
{
    weir__grammar whole = chat->grammar;
    weir_sampler *sampler = NULL;
    weir_error own = {0};
    char field[64];
    if (chat->begun == NULL || chat->constraint == NULL || whole.prefill == NULL) return WEIR_OK;
    weir_status status = weir__sampler_create(chat->model, NULL, &chat->grammar, "", &sampler, &own);
    if (status == WEIR_OK) weir_sampler_destroy(sampler);
    if (status != WEIR_GRAMMAR) return status == WEIR_OK ? status : weir__error_copy(error, &own);
    whole.prefill = NULL;
    status = weir__sampler_create(chat->model, NULL, &whole, "", &sampler, NULL);
    if (status == WEIR_OK) weir_sampler_destroy(sampler);
    if (status != WEIR_OK) return weir__error_copy(error, &own); /* the grammar itself is at fault */
    snprintf(field, sizeof field, "messages[%zu].content", json_array_size(messages) - 1);
    return params->tool_choice == WEIR_TOOLS_REQUIRED
               ? weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                               "`%s` goes on, and `tool_choice` asks for a call, which cannot follow a text "
                               "in the form of calls that this model's template has; leave out one of both",
                               field)
               : weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                               "`%s` goes on, but no answer that `%s` allows begins with it; give the "
                               "beginning of one, or leave out one of both",
                               field, params->json_schema != NULL ? "json_schema" : "tools_json");
}

weir_status weir_chat_create(weir_model *model, const weir_chat_params *given, weir_chat **out,
                             weir_error *error)
{
    weir_chat_params params;
    weir__chat_tools tools = {0};
    weir__chat_markers markers = {0};
    json_t *messages = NULL;
    weir_chat *chat = NULL;
    weir_error own = {0}; /* of a first attempt, after which a second one may succeed */
    weir_chat_params_init(&params, sizeof params);
    if (model == NULL) return weir__error_null(error, "model");
    if (out == NULL) return weir__error_null(error, "chat");
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = weir__chat_messages(&params, &messages, error);
    if (status == WEIR_OK) status = weir__chat_tools_init(&params, &tools, error);
    if (status == WEIR_OK) status = check_params(&params, &tools, error);
    if (status == WEIR_OK) status = weir__chat_media_mark(&params, messages, &markers, error);
    if (status != WEIR_OK) goto out;

    status = create_chat(model, &params, messages, 0, &tools, &tools.relaxed, &chat, &own);
    if (status == WEIR_UNSUPPORTED && tools.shown != NULL && is_of_tools(&own))
        (void)create_described(model, params, messages, &tools, &chat, &own);
    if (chat == NULL) {
        status = weir__error_copy(error, &own);
        goto out;
    }
    status = read_prompt(chat, &params, messages, &markers, error);
    if (status == WEIR_OK) status = check_begun(chat, &params, messages, error);
    if (status != WEIR_OK) {
        weir_chat_release(chat);
        goto out;
    }
    chat->relaxed = tools.relaxed.bytes;
    tools.relaxed = (weir__text){0};
    *out = chat;
out:
    weir__chat_tools_fini(&tools);
    json_decref(messages);
    return status;
}
