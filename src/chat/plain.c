/* plain.c: rendering in a build without llama.cpp: ChatML, for the fake model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#ifdef WEIR_NO_LLAMA

#include <string.h>

#include "base/error.h"

static bool add_string(weir__text *t, const json_t *string)
{
    return weir__text_add(t, json_string_value(string), json_string_length(string));
}

static bool add_messages(weir__text *t, const weir_chat_params *params, const json_t *messages)
{
    bool ok = true;
    size_t n = json_array_size(messages);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        ok = weir__text_add_string(t, "<|im_start|>") && add_string(t, json_object_get(message, "role")) &&
             weir__text_add_string(t, "\n") &&
             weir__chat_add_content(t, json_object_get(message, "content")) &&
             ((params->continue_final && i + 1 == n) || weir__text_add_string(t, "<|im_end|>\n"));
    }
    if (params->add_generation_prompt && !params->continue_final)
        ok = ok && weir__text_add_string(t, "<|im_start|>assistant\n");
    return ok;
}

static weir_status render_again(void *user, const json_t *messages, weir__text *prompt, weir_error *error)
{
    return add_messages(prompt, user, messages) ? WEIR_OK : weir__chat_no_memory(error);
}

weir_status weir__chat_render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                              const weir__chat_tools *tools, weir__text *relaxed, weir_error *error)
{
    (void)relaxed;
    weir__text t = {0};
    if (strcmp(chat->model->ops->name, "fake") != 0 || params->template_source != NULL ||
        tools->shown != NULL || params->json_schema != NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED,
                               params->template_source ? "template_source"
                               : tools->shown          ? "tools_json"
                               : params->json_schema   ? "json_schema"
                                                       : NULL,
                               "this build has no llama.cpp, which templates, tools and schemas need");
    bool ok = add_messages(&t, params, messages);
    chat->own_prompt = t.bytes;
    if (!ok) return weir__chat_no_memory(error);
    chat->prompt = t.bytes;
    chat->prompt_length = t.n;
    chat->plain = true;
    return weir__chat_find_content(chat, params, messages, false, render_again, (void *)params, error);
}

#endif
