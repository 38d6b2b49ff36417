/* chat_parser_testing.h: chats with tools and templates of model families, for tests of parsers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_MODEL_CHAT_PARSER_TESTING_H
#define WEIR_MODEL_CHAT_PARSER_TESTING_H

#include "model/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/pin.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather\","
    "\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},"
    "\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather_map\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"zoom\":{\"type\":\"number\"},\"layers\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}}}]";

static weir_model *model;

static inline int load(void **state)
{
    (void)state;
    return weir_model_load("fake:", NULL, &model, NULL) == WEIR_OK ? 0 : -1;
}

static inline int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    return 0;
}

/* A chat with a template that comes with the pinned source, or the built-in one for NULL; NULL: no such file,
 * or the template refuses. */
static inline weir_chat *chat_tried(const char *name, bool with_tools, weir_error *error)
{
    char *source = NULL;
    weir_chat *chat = NULL;
    weir_chat_params params = weir_chat_params_default();
    weir_message message = {"user", "What is the weather in Paris?"};
    bool no_llama = strcmp(weir_backend_version(), "none") == 0;
    if (with_tools && no_llama) return NULL;
    if (name != NULL) {
        source = no_llama ? NULL : pin_template(name);
        if (source == NULL) return NULL;
    }
    params.messages = &message;
    params.n_messages = 1;
    params.template_source = source;
    params.tools_json = with_tools ? tools : NULL;
    params.parallel_tool_calls = true;
    if (weir_chat_create(model, &params, &chat, error) != WEIR_OK) chat = NULL;
    free(source);
    return chat;
}

static inline weir_chat *chat_with(const char *name, bool with_tools)
{
    weir_error error = {0};
    weir_chat *chat = chat_tried(name, with_tools, &error);
    if (error.code != WEIR_OK) fail_msg("%s: %s", name, error.message);
    return chat;
}

#endif
