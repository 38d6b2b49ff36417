/* batch.c: reads a request file into requests.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The top of the file and each request are objects whose members are options of weir run, besides some keys.
 * A value is brought into the text that the command line would have, so that the option's own check reads it.
 * Each error names the place in the file; errors of the library are given the name of the member that set the
 * parameter. */
#include "batch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/words.h"
#include "figures.h"
#include "file.h"
#include "out.h"

#define REQUESTS_MAX 4096 /* each needs a descriptor or two */
#define WHERE_MAX    160  /* of "requests[2].logit_bias" */

/* Keys that are no options, at the top of the file and in a request. */
static const char *const top_keys[] = {"model", "requests"};
static const char *const item_keys[] = {"name", "prompt", "messages"};

/* ---- Messages ---- */

static cli_exit refuse_request(const cli_batch *batch, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static const char *name_of(const cli_batch *batch)
{
    return strcmp(batch->path, "-") == 0 ? "stdin" : batch->path;
}

/* path: of the value in the file; "" = the whole. */
static cli_exit refuse_request(const cli_batch *batch, const char *path, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return cli_fail(CLI_USAGE, "%s: %s%s%s", name_of(batch), path, path[0] != '\0' ? ": " : "", message);
}

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    default: return "null";
    }
}

static cli_exit refuse_value(const cli_batch *batch, const char *path, const json_t *value, const char *what)
{
    return refuse_request(batch, path, "this is %s; expected: %s", kind_of(value), what);
}

/* ---- Values of options: as text, as the command line has them ---- */

/* The JSON type of an option; NULL: the value is of that type. */
static const char *wanted_kind(const cli_option *option, const json_t *value)
{
    switch (option->kind) {
    case CLI_FLAG:
    case CLI_FLAG_OFF: return json_is_boolean(value) ? NULL : "true or false";
    case CLI_INT32:
    case CLI_INT64:
    case CLI_SEED: return json_is_integer(value) ? NULL : "a whole number";
    case CLI_FLOAT: return json_is_number(value) ? NULL : "a number";
    default: return json_is_string(value) ? NULL : "a string";
    }
}

static cli_exit set_option(const cli_batch *batch, const char *path, const cli_option *option,
                           const char *text, cli_ask *ask)
{
    char *shown = cli_format("%s: %s", name_of(batch), path);
    cli_exit code = cli_options_set(ask, option, shown, text);
    cli_free(shown);
    return code;
}

static cli_exit take_value(const cli_batch *batch, const char *path, const cli_option *option,
                           const json_t *value, cli_ask *ask)
{
    const char *what = wanted_kind(option, value);
    if (what != NULL) return refuse_value(batch, path, value, what);
    char *text;
    if (json_is_string(value)) {
        if (strlen(json_string_value(value)) != json_string_length(value))
            return refuse_request(batch, path, "this string has a NUL character, which cannot be used here");
        text = cli_format("%s", json_string_value(value));
    } else if (json_is_boolean(value)) /* the field of such an option says the opposite of its name */
        text = cli_format("%d", json_is_true(value) == (option->kind == CLI_FLAG));
    else if (json_is_integer(value))
        text = cli_format("%lld", (long long)json_integer_value(value));
    else
        text = cli_format("%.15g", json_real_value(value)); /* 15 digits: 0.1 stays 0.1 */
    cli_exit code = set_option(batch, path, option, text, ask);
    cli_free(text);
    return code;
}

/* A string, or an array of them. */
static cli_exit take_list(const cli_batch *batch, const char *path, const cli_option *option, json_t *value,
                          cli_ask *ask)
{
    cli_exit code = CLI_OK;
    json_t *item;
    size_t i;
    if (!json_is_array(value)) return take_value(batch, path, option, value, ask);
    json_array_foreach(value, i, item)
    {
        char place[WHERE_MAX];
        snprintf(place, sizeof place, "%.120s[%zu]", path, i);
        if ((code = take_value(batch, place, option, item, ask)) != CLI_OK) break;
    }
    return code;
}

/* false: never. */
static cli_exit take_bias(const cli_batch *batch, const char *path, const cli_option *option,
                          const char *token, const json_t *bias, cli_ask *ask)
{
    if (!json_is_number(bias) && !json_is_false(bias))
        return refuse_value(batch, path, bias, "a number, or false to forbid the token");
    char *text = json_is_false(bias) ? cli_format("%s-inf", token)
                                     : cli_format("%s%+.9g", token, json_number_value(bias));
    cli_exit code = set_option(batch, path, option, text, ask);
    cli_free(text);
    return code;
}

/* {"15043": 1.5, "7": false} or [[15043, 1.5], [7, false]] */
static cli_exit take_biases(const cli_batch *batch, const char *path, const cli_option *option, json_t *value,
                            cli_ask *ask)
{
    char place[WHERE_MAX], token[32];
    cli_exit code = CLI_OK;
    const char *key;
    json_t *bias;
    size_t i;
    if (json_is_object(value)) {
        json_object_foreach(value, key, bias)
        {
            snprintf(place, sizeof place, "%.120s.%.30s", path, key);
            if ((code = take_bias(batch, place, option, key, bias, ask)) != CLI_OK) break;
        }
        return code;
    }
    if (!json_is_array(value)) return refuse_value(batch, path, value, "an object {\"token id\": bias}");
    json_array_foreach(value, i, bias)
    {
        snprintf(place, sizeof place, "%.120s[%zu]", path, i);
        if (!json_is_array(bias) || json_array_size(bias) != 2 || !json_is_integer(json_array_get(bias, 0)))
            return refuse_value(batch, place, bias, "[token id, bias]");
        snprintf(token, sizeof token, "%lld", (long long)json_integer_value(json_array_get(bias, 0)));
        code = take_bias(batch, place, option, token, json_array_get(bias, 1), ask);
        if (code != CLI_OK) break;
    }
    return code;
}

static cli_exit take_option(const cli_batch *batch, const char *path, const cli_option *option, json_t *value,
                            cli_ask *ask)
{
    bool schema = strcmp(option->field, "json_schema") == 0;
    cli_options_clear(ask, option); /* its value from the top of the file or the command line */
    if (option->kind == CLI_LIST) return take_list(batch, path, option, value, ask);
    if (option->kind == CLI_BIAS) return take_biases(batch, path, option, value, ask);
    if (!schema || (!json_is_object(value) && !json_is_boolean(value)))
        return take_value(batch, path, option, value, ask);
    char *text = weir__json_dump(value);
    if (text == NULL) cli_no_memory();
    cli_exit code = set_option(batch, path, option, text, ask);
    weir__mem_free(text);
    return code;
}

/* All members of an object that are options; `keys` are its other members. path: of the object, with a dot.
 */
static cli_exit take_options(const cli_batch *batch, const char *path, json_t *object,
                             const char *const *keys, size_t n_keys, cli_ask *ask)
{
    bool seen[CLI_OPTIONS_MAX] = {0};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char place[WHERE_MAX];
        if (weir__words_have(keys, n_keys, key)) continue;
        snprintf(place, sizeof place, "%.60s%.60s", path, key);
        const cli_option *option = cli_options_by_key(key);
        if (option == NULL) {
            cli_nearest nearest = cli_nearest_to(key);
            for (size_t i = 0; i < n_keys; i++) cli_nearest_try(&nearest, keys[i]);
            cli_options_try_keys(&nearest);
            return refuse_request(batch, place, "there is no such field%s", cli_nearest_hint(&nearest, ""));
        }
        if (seen[option - cli_options])
            return refuse_request(batch, place, "this is given twice, under two names");
        seen[option - cli_options] = true;
        cli_exit code = take_option(batch, place, option, value, ask);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* ---- Requests ---- */

static cli_exit take_messages(const cli_batch *batch, const char *path, json_t *messages,
                              cli_batch_item *item)
{
    json_t *message;
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return refuse_value(batch, path, messages, "an array of messages, not empty");
    json_array_foreach(messages, i, message)
    {
        char place[WHERE_MAX];
        snprintf(place, sizeof place, "%.120s[%zu]", path, i);
        if (!json_is_object(message))
            return refuse_value(batch, place, message, "{\"role\": …, \"content\": …}");
        if (!json_is_string(json_object_get(message, "role")))
            return refuse_request(batch, place, "this message has no \"role\" that is a string");
    }
    item->messages = messages;
    return CLI_OK;
}

static cli_exit take_item(const cli_batch *batch, json_t *object, size_t i, cli_batch_item *item)
{
    char path[32], place[WHERE_MAX];
    snprintf(path, sizeof path, "requests[%zu].", i);
    snprintf(place, sizeof place, "requests[%zu]", i);
    if (!json_is_object(object)) return refuse_value(batch, place, object, "a request: {\"prompt\": …}");
    cli_exit code =
        take_options(batch, path, object, item_keys, sizeof item_keys / sizeof *item_keys, &item->ask);
    if (code != CLI_OK) return code;
    const json_t *name = json_object_get(object, "name"), *prompt = json_object_get(object, "prompt");
    json_t *messages = json_object_get(object, "messages");
    if (name != NULL && !json_is_string(name)) {
        snprintf(place, sizeof place, "%sname", path);
        return refuse_value(batch, place, name, "a string");
    }
    item->name = name != NULL ? cli_format("%s", json_string_value(name)) : cli_format("%zu", i + 1);
    if (prompt == NULL && messages == NULL)
        return refuse_request(batch, place, "this request has no \"prompt\" and no \"messages\"");
    if (prompt != NULL && messages != NULL)
        return refuse_request(batch, place, "a request has \"prompt\" or \"messages\", not both");
    snprintf(place, sizeof place, "%s%s", path, messages != NULL ? "messages" : "prompt");
    if (messages != NULL) return take_messages(batch, place, messages, item);
    if (!json_is_string(prompt)) return refuse_value(batch, place, prompt, "a string");
    item->prompt = json_string_value(prompt);
    item->prompt_length = json_string_length(prompt);
    if (item->prompt_length == 0) return refuse_request(batch, place, "the prompt is empty");
    return CLI_OK;
}

/* Checks the top of the file. */
static cli_exit take_root(cli_batch *batch, cli_ask *common)
{
    if (!json_is_object(batch->root)) return refuse_value(batch, "", batch->root, "{\"requests\": [ … ]}");
    cli_exit code =
        take_options(batch, "", batch->root, top_keys, sizeof top_keys / sizeof *top_keys, common);
    if (code != CLI_OK) return code;
    const json_t *model = json_object_get(batch->root, "model"),
                 *list = json_object_get(batch->root, "requests");
    if (model != NULL && json_string_length(model) == 0)
        return refuse_value(batch, "model", model, "the path of a model");
    batch->model = json_string_value(model);
    if (list == NULL) return refuse_request(batch, "", "the file has no \"requests\"");
    if (!json_is_array(list)) return refuse_value(batch, "requests", list, "an array of requests");
    if (json_array_size(list) == 0) return refuse_request(batch, "requests", "there is no request in it");
    if (json_array_size(list) > REQUESTS_MAX)
        return refuse_request(batch, "requests", "%zu requests are more than %d", json_array_size(list),
                              REQUESTS_MAX);
    return CLI_OK;
}

cli_exit cli_batch_read(cli_batch *batch, const cli_args *args, const char *path)
{
    json_error_t error;
    cli_ask common;
    *batch = (cli_batch){.path = path};
    cli_exit code = cli_file_read(path, "requests", &batch->text, &batch->length);
    if (code != CLI_OK) return code;
    batch->root = json_loadb(batch->text, batch->length,
                             JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (batch->root == NULL)
        return cli_fail(CLI_USAGE, "%s:%d:%d: %s", name_of(batch), error.line < 1 ? 1 : error.line,
                        error.column < 1 ? 1 : error.column, weir__json_problem(&error).text);
    cli_ask_copy(&common, &args->ask);
    code = take_root(batch, &common);
    json_t *list = json_object_get(batch->root, "requests");
    if (code == CLI_OK) batch->items = cli_alloc(json_array_size(list), sizeof *batch->items);
    for (size_t i = 0; code == CLI_OK && i < json_array_size(list); i++) {
        cli_ask_copy(&batch->items[i].ask, &common);
        batch->n++;
        code = take_item(batch, json_array_get(list, i), i, &batch->items[i]);
    }
    cli_ask_fini(&common);
    return code;
}

void cli_batch_fini(cli_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        cli_free(batch->items[i].name);
        cli_ask_fini(&batch->items[i].ask);
    }
    cli_free(batch->items);
    json_decref(batch->root);
    cli_free(batch->text);
    *batch = (cli_batch){0};
}

/* ---- Messages of the library ---- */

size_t cli_batch_index(const cli_batch *batch, const weir_error *error)
{
    unsigned long i = 0;
    if (sscanf(error->field, "requests[%lu]", &i) != 1 || i >= batch->n) return 0;
    return (size_t)i;
}

/* The member of an object that sets this option, NULL = none. */
static const char *member_of(json_t *object, const cli_option *option)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) if (cli_options_by_key(key) == option) return key;
    return NULL;
}

cli_exit cli_batch_refused(const cli_batch *batch, const cli_args *args, size_t i, const weir_error *error)
{
    json_t *object = json_array_get(json_object_get(batch->root, "requests"), i);
    const cli_option *option = cli_error_option(error, CLI_STREAM);
    const char *key = option != NULL ? member_of(object, option) : NULL;
    const char *top_key = option != NULL && key == NULL ? member_of(batch->root, option) : NULL;
    cli_exit code = cli_error_is_usage(error) ? CLI_USAGE : CLI_REFUSED;
    char request[32] = "", place[96];
    if (option != NULL && key == NULL && top_key == NULL) /* the command line has it */
        return cli_fail_error(args, CLI_REFUSED, NULL, error);
    if (top_key == NULL) snprintf(request, sizeof request, "requests[%zu]%s", i, key != NULL ? "." : "");
    snprintf(place, sizeof place, "%s%s", request, key != NULL ? key : top_key != NULL ? top_key : "");
    cli_fail(code, "%s: %s", name_of(batch), cli_error_words(error, CLI_STREAM, place, place).text);
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}
