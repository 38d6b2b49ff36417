/* chat.h: shared by tests of conversations, on the fake backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_CHAT_CHAT_H
#define WEIR_SUPPORT_CHAT_CHAT_H

#include "chat/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"

static weir_model *model;

static void no_log(weir_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

static int load(void **state)
{
    (void)state;
    weir_log_set(no_log, NULL);
    return weir_model_load("fake:", NULL, &model, NULL) == WEIR_OK ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    weir_model_release(model);
    weir_log_set(NULL, NULL);
    return 0;
}

static bool no_llama(void)
{
    return strcmp(weir_backend_version(), "none") == 0;
}

static const weir_message question[] = {{"system", "Be brief."}, {"user", "Hi"}};

static weir_chat_params params_of(const char *source)
{
    weir_chat_params params = weir_chat_params_default();
    params.messages = question;
    params.n_messages = 2;
    params.template_source = source;
    return params;
}

static weir_chat *create(const weir_chat_params *params)
{
    weir_chat *chat = NULL;
    weir_error error = {0};
    if (weir_chat_create(model, params, &chat, &error) != WEIR_OK)
        fail_msg("[%s] %s", error.field, error.message);
    return chat;
}

static inline void expect_prompt(const weir_chat_params *params, const char *prompt)
{
    size_t length;
    weir_chat *chat = create(params);
    assert_string_equal(weir_chat_prompt(chat, &length), prompt);
    assert_int_equal(length, strlen(prompt));
    weir_chat_release(chat);
}

static void expect_error(const weir_chat_params *params, weir_status status, const char *field,
                         const char *word)
{
    weir_chat *chat = NULL;
    weir_error error = {0};
    weir_status got = weir_chat_create(model, params, &chat, &error);
    if (got != status)
        fail_msg("%s instead of %s: %s", weir_status_name(got), weir_status_name(status), error.message);
    assert_null(chat);
    assert_int_equal(error.code, status);
    if (strcmp(error.field, field) != 0)
        fail_msg("field '%s' instead of '%s': %s", error.field, field, error.message);
    if (strstr(error.message, word) == NULL) fail_msg("'%s' is not in: %s", word, error.message);
}

/* Only the pinned llama.cpp counts the steps of templates. */
static inline bool is_pinned(void)
{
    return !no_llama() && weir_backend_version()[0] == 'v';
}

/* Most templates reach a limit as soon as they are analyzed. */
static inline void expect_limit(const char *source, const char *word)
{
    weir_chat_params params = params_of(source);
    expect_error(&params, WEIR_TEMPLATE, "template_source", word);
}

#endif
