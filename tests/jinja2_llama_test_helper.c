/* jinja2_llama_test_helper.c: renders templates for jinja2_llama_test.py. Reads lines with {"template": ...,
 * "args": variables of it}, and answers each with a line: {"text": ...} or {"error": ...}.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/chat.h"
#include "base/json.h"

static bool add_prompt(void *user, const char *prompt, size_t n)
{
    return weir__text_add(user, prompt, n);
}

/* The last template: conversations follow each other with the same one, which is analysed when it is
 * created. */
static weir__llama_template *last;
static char *last_source;

static weir_status take_template(const char *source, weir_error *error)
{
    if (last != NULL && strcmp(source, last_source) == 0) return WEIR_OK;
    weir__llama_template_destroy(last);
    free(last_source);
    last = NULL;
    last_source = strdup(source);
    return weir__llama_template_create(source, "<s>", "</s>", &last, error);
}

static weir_status render(const char *source, const json_t *args, weir__text *prompt, weir_error *error)
{
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");
    const weir__llama_render in = {
        .messages = messages, .args = args, .add_generation_prompt = true, .enable_thinking = true};
    weir_status status = take_template(source, error);
    if (status == WEIR_OK) status = weir__llama_chat_prompt(last, &in, add_prompt, prompt, error);
    json_decref(messages);
    return status;
}

static bool answer(const char *line)
{
    weir__text prompt = {0}, out = {0};
    weir_error error = {0};
    json_t *given = NULL;
    if (weir__json_parse_texts(line, WEIR_NUL, "line", WEIR_INVALID, &given, &error) != WEIR_OK) return false;
    weir_status status = render(json_string_value(json_object_get(given, "template")),
                                json_object_get(given, "args"), &prompt, &error);
    weir__text_add(&out, "{", 1);
    if (status == WEIR_OK)
        weir__json_bytes(&out, "text", prompt.bytes, prompt.n);
    else
        weir__json_string(&out, "error", error.message);
    weir__text_add(&out, "}", 1);
    puts(out.bytes);
    fflush(stdout);
    weir__text_fini(&out);
    weir__text_fini(&prompt);
    json_decref(given);
    return true;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    bool fine = true;
    while (fine && getline(&line, &capacity, stdin) > 0) fine = answer(line);
    weir__llama_template_destroy(last);
    free(last_source);
    free(line);
    return fine ? 0 : 1;
}
