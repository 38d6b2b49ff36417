/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "figures.h"
#include "file.h"
#include "out.h"
#include "place.h"

#define REQUESTS_MAX 4096 /* each needs a descriptor or two */

/* What is no option: the same for the top of the file and for a request. */
static const char *const top_keys[] = {"model", "requests"};
static const char *const item_keys[] = {"name", "prompt", "messages"};

/* ---- Messages ---- */

static cli_exit bad(const cli_batch *batch, cli_exit code, const cli_place *place, bool key,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

static cli_exit bad(const cli_batch *batch, cli_exit code, const cli_place *place, bool key,
                    const char *format, ...)
{
    char message[512], path[160], where[48] = "";
    int line, column;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    cli_place_path(place, path, sizeof path);
    if (cli_place_find(place, batch->text, batch->length, key, &line, &column))
        snprintf(where, sizeof where, ":%d:%d", line, column);
    return cli_fail(code, "%s%s: %s%s%s", strcmp(batch->path, "-") == 0 ? "stdin" : batch->path, where, path,
                    path[0] != '\0' ? ": " : "", message);
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

static cli_exit expected(const cli_batch *batch, const cli_place *place, const json_t *value,
                         const char *what)
{
    return bad(batch, CLI_USAGE, place, false, "this is %s; expected: %s", kind_of(value), what);
}

/* ---- Values of options ---- */

static cli_exit take_string(const cli_batch *batch, const cli_place *place, const json_t *value,
                            char **string)
{
    if (!json_is_string(value)) return expected(batch, place, value, "a string");
    if (strlen(json_string_value(value)) != json_string_length(value))
        return bad(batch, CLI_USAGE, place, false,
                   "this string has a NUL character, which cannot be used here");
    cli_free(*string);
    *string = cli_format("%s", json_string_value(value));
    return CLI_OK;
}

static cli_exit take_integer(const cli_batch *batch, const cli_place *place, const json_t *value,
                             cli_kind kind, void *at)
{
    long long number = json_integer_value(value);
    long long min = kind == CLI_SEED ? -1 : kind == CLI_INT32 ? -INT32_MAX : INT64_MIN;
    long long max = kind == CLI_SEED ? UINT32_MAX : kind == CLI_INT32 ? INT32_MAX : INT64_MAX;
    if (!json_is_integer(value)) return expected(batch, place, value, "a whole number");
    if (number < min || number > max)
        return bad(batch, CLI_USAGE, place, false, "%lld is out of range; expected: %lld to %lld", number,
                   min, max);
    if (kind == CLI_INT64)
        *(int64_t *)at = number;
    else if (kind == CLI_SEED)
        *(uint32_t *)at = number < 0 ? WEIR_SEED_RANDOM : (uint32_t)number;
    else
        *(int32_t *)at = (int32_t)number;
    return CLI_OK;
}

/* A string, or an array of them; replaces what the list had. */
static cli_exit take_list(const cli_batch *batch, const cli_place *place, const json_t *value, cli_list *list)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    cli_exit code = CLI_OK;
    if (!json_is_array(value) && !json_is_string(value))
        return expected(batch, place, value, "a string or an array of strings");
    while (list->n > 0) cli_free(list->items[--list->n]);
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        cli_place element = cli_place_element(place, i);
        bool array = json_is_array(value);
        cli_grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items);
        list->items[list->n] = NULL;
        code = take_string(batch, array ? &element : place, array ? json_array_get(value, i) : value,
                           &list->items[list->n]);
        if (code == CLI_OK) list->n++;
    }
    return code;
}

/* {"15043": 1.5, "7": false} or [[15043, 1.5], [7, false]]; false = never. */
static cli_exit take_bias(const cli_batch *batch, const cli_place *place, const char *key,
                          const json_t *token, const json_t *bias, cli_biases *biases)
{
    char *end = NULL;
    long long id = key != NULL ? strtoll(key, &end, 10) : json_integer_value(token);
    if (key != NULL ? end == key || *end != '\0' : !json_is_integer(token))
        return bad(batch, CLI_USAGE, place, true, "expected: a token's id");
    if (id < INT32_MIN || id > INT32_MAX)
        return bad(batch, CLI_USAGE, place, true, "%lld is no token's id", id);
    if (!json_is_number(bias) && !json_is_false(bias))
        return expected(batch, place, bias, "a number, or false to forbid the token");
    cli_grow(&biases->items, &biases->capacity, biases->n + 1, sizeof *biases->items);
    biases->items[biases->n++] = (weir_logit_bias){
        .token = (int32_t)id,
        .bias = json_is_false(bias) ? -INFINITY : (float)json_number_value(bias),
    };
    return CLI_OK;
}

static cli_exit take_biases(const cli_batch *batch, const cli_place *place, json_t *value, cli_biases *biases)
{
    const char *key;
    json_t *bias;
    size_t i;
    cli_exit code = CLI_OK;
    biases->n = 0;
    if (json_is_object(value)) {
        json_object_foreach(value, key, bias)
        {
            cli_place member = cli_place_member(place, key);
            if (code == CLI_OK) code = take_bias(batch, &member, key, NULL, bias, biases);
        }
        return code;
    }
    if (!json_is_array(value)) return expected(batch, place, value, "an object {\"token id\": bias}");
    json_array_foreach(value, i, bias)
    {
        cli_place element = cli_place_element(place, i);
        if (code != CLI_OK) break;
        if (!json_is_array(bias) || json_array_size(bias) != 2)
            code = expected(batch, &element, bias, "[token id, bias]");
        else
            code = take_bias(batch, &element, NULL, json_array_get(bias, 0), json_array_get(bias, 1), biases);
    }
    return code;
}

static cli_exit take_option(const cli_batch *batch, const cli_place *place, const cli_option *option,
                            json_t *value, cli_ask *ask)
{
    void *at = (char *)ask + option->target;
    char **string = at;
    switch (option->kind) {
    case CLI_FLAG:
    case CLI_FLAG_OFF: /* its field says the opposite of its name */
        if (!json_is_boolean(value)) return expected(batch, place, value, "true or false");
        *(bool *)at = json_is_true(value);
        return CLI_OK;
    case CLI_INT32:
    case CLI_INT64:
    case CLI_SEED: return take_integer(batch, place, value, option->kind, at);
    case CLI_FLOAT:
        if (!json_is_number(value)) return expected(batch, place, value, "a number");
        *(float *)at = (float)json_number_value(value);
        return CLI_OK;
    case CLI_LIST: return take_list(batch, place, value, at);
    case CLI_BIAS: return take_biases(batch, place, value, at);
    default: break;
    }
    if (string == &ask->json_schema && (json_is_object(value) || json_is_boolean(value))) {
        char *schema = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (schema == NULL) cli_no_memory();
        cli_free(*string);
        *string = cli_format("%s", schema);
        free(schema); /* jansson's own memory */
        return CLI_OK;
    }
    return take_string(batch, place, value, string);
}

static bool is_one_of(const char *key, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* All members of an object that are options; `keys` are its other members. */
static cli_exit take_options(const cli_batch *batch, const cli_place *place, json_t *object,
                             const char *const *keys, size_t n_keys, cli_ask *ask)
{
    const cli_option *seen[CLI_OPTIONS_MAX] = {0};
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        cli_place member = cli_place_member(place, key);
        if (is_one_of(key, keys, n_keys)) continue;
        const cli_option *option = cli_options_by_key(key);
        if (option == NULL) {
            char similar[64];
            cli_options_similar_key(key, keys, n_keys, similar, sizeof similar);
            if (similar[0] == '\0') return bad(batch, CLI_USAGE, &member, true, "there is no such field");
            return bad(batch, CLI_USAGE, &member, true, "there is no such field; did you mean \"%s\"?",
                       similar);
        }
        if (seen[option - cli_options] != NULL)
            return bad(batch, CLI_USAGE, &member, true, "this is given twice, under two names");
        seen[option - cli_options] = option;
        cli_exit code = take_option(batch, &member, option, value, ask);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* ---- Requests ---- */

static cli_exit take_messages(const cli_batch *batch, const cli_place *place, json_t *messages,
                              cli_batch_item *item)
{
    json_t *message;
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return expected(batch, place, messages, "an array of messages, not empty");
    json_array_foreach(messages, i, message)
    {
        cli_place element = cli_place_element(place, i), role = cli_place_member(&element, "role");
        if (!json_is_object(message))
            return expected(batch, &element, message, "{\"role\": …, \"content\": …}");
        json_t *value = json_object_get(message, "role");
        if (value == NULL) return bad(batch, CLI_USAGE, &element, false, "this message has no \"role\"");
        if (!json_is_string(value)) return expected(batch, &role, value, "a string");
    }
    char *dumped = json_dumps(messages, JSON_COMPACT);
    if (dumped == NULL) cli_no_memory();
    item->messages = cli_format("%s", dumped);
    free(dumped); /* jansson's own memory */
    return CLI_OK;
}

static cli_exit take_item(const cli_batch *batch, const cli_place *place, json_t *object, size_t i,
                          cli_batch_item *item)
{
    cli_place name = cli_place_member(place, "name"), prompt = cli_place_member(place, "prompt"),
              messages = cli_place_member(place, "messages");
    json_t *value;
    cli_exit code = CLI_OK;
    if (!json_is_object(object)) return expected(batch, place, object, "a request: {\"prompt\": …}");
    code = take_options(batch, place, object, item_keys, sizeof item_keys / sizeof *item_keys, &item->ask);
    if (code != CLI_OK) return code;
    if ((value = json_object_get(object, "name")) != NULL)
        code = take_string(batch, &name, value, &item->name);
    if (code != CLI_OK) return code;
    if (item->name == NULL) item->name = cli_format("%zu", i + 1);
    value = json_object_get(object, "prompt");
    json_t *list = json_object_get(object, "messages");
    if (value != NULL && list != NULL)
        return bad(batch, CLI_USAGE, &prompt, true, "a request has \"prompt\" or \"messages\", not both");
    if (list != NULL) return take_messages(batch, &messages, list, item);
    if (value == NULL)
        return bad(batch, CLI_USAGE, place, false, "this request has no \"prompt\" and no \"messages\"");
    if (!json_is_string(value)) return expected(batch, &prompt, value, "a string");
    item->prompt = json_string_value(value);
    item->prompt_length = json_string_length(value);
    if (item->prompt_length == 0) return bad(batch, CLI_USAGE, &prompt, false, "the prompt is empty");
    return CLI_OK;
}

static cli_exit take_root(cli_batch *batch, const cli_args *args)
{
    cli_place top = {0}, model = cli_place_member(&top, "model"),
              requests = cli_place_member(&top, "requests");
    cli_ask common;
    cli_ask_copy(&common, &args->ask);
    cli_exit code = CLI_OK;
    json_t *value, *list;
    if (!json_is_object(batch->root)) {
        code = expected(batch, &top, batch->root, "{\"requests\": [ … ]}");
        goto done;
    }
    code = take_options(batch, &top, batch->root, top_keys, sizeof top_keys / sizeof *top_keys, &common);
    if (code != CLI_OK) goto done;
    if ((value = json_object_get(batch->root, "model")) != NULL) {
        if (!json_is_string(value) || json_string_length(value) == 0)
            code = expected(batch, &model, value, "the path of a model");
        else
            batch->model = json_string_value(value);
    }
    if (code != CLI_OK) goto done;
    list = json_object_get(batch->root, "requests");
    if (list == NULL)
        code = bad(batch, CLI_USAGE, &top, false, "the file has no \"requests\"");
    else if (!json_is_array(list))
        code = expected(batch, &requests, list, "an array of requests");
    else if (json_array_size(list) == 0)
        code = bad(batch, CLI_USAGE, &requests, false, "there is no request in it");
    else if (json_array_size(list) > REQUESTS_MAX)
        code = bad(batch, CLI_USAGE, &requests, false, "%zu requests are more than %d", json_array_size(list),
                   REQUESTS_MAX);
    if (code != CLI_OK) goto done;
    batch->items = cli_alloc(json_array_size(list), sizeof *batch->items);
    for (size_t i = 0; i < json_array_size(list) && code == CLI_OK; i++) {
        cli_place element = cli_place_element(&requests, i);
        cli_ask_copy(&batch->items[i].ask, &common);
        batch->n++;
        code = take_item(batch, &element, json_array_get(list, i), i, &batch->items[i]);
    }
done:
    cli_ask_fini(&common);
    return code;
}

cli_exit cli_batch_read(cli_batch *batch, const cli_args *args, const char *path)
{
    json_error_t error;
    *batch = (cli_batch){.path = path};
    cli_exit code = cli_file_read(path, "requests", &batch->text, &batch->length);
    if (code != CLI_OK) return code;
    batch->root = json_loadb(batch->text, batch->length,
                             JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (batch->root == NULL)
        return cli_fail(CLI_USAGE, "%s:%d:%d: %s", strcmp(path, "-") == 0 ? "stdin" : path,
                        error.line < 1 ? 1 : error.line, error.column < 1 ? 1 : error.column,
                        weir__json_problem(&error).text);
    return take_root(batch, args);
}

void cli_batch_fini(cli_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        cli_free(batch->items[i].name);
        cli_free(batch->items[i].messages);
        cli_ask_fini(&batch->items[i].ask);
    }
    cli_free(batch->items);
    json_decref(batch->root);
    cli_free(batch->text);
    *batch = (cli_batch){0};
}

/* ---- What the library says ---- */

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
    cli_place top = {0}, requests = cli_place_member(&top, "requests"),
              request = cli_place_element(&requests, i);
    json_t *object = json_array_get(json_object_get(batch->root, "requests"), i);
    const cli_option *option =
        error->field[0] != '\0' ? cli_options_by_field(CLI_STREAM, error->field) : NULL;
    const char *key = option != NULL ? member_of(object, option) : NULL;
    const char *top_key = option != NULL && key == NULL ? member_of(batch->root, option) : NULL;
    cli_exit code = cli_error_is_usage(error) ? CLI_USAGE : CLI_REFUSED;
    cli_place place = request;
    if (option != NULL && key == NULL && top_key == NULL)
        return cli_fail_error(args, CLI_REFUSED, NULL, error);
    if (key != NULL) place = cli_place_member(&request, key);
    if (top_key != NULL) place = cli_place_member(&top, top_key);
    if (key == NULL && top_key == NULL && json_object_get(object, "messages") != NULL &&
        strncmp(error->field, "messages", 8) == 0)
        place = cli_place_member(&request, "messages");
    bad(batch, code, &place, false, "%s%s", error->message, cli_error_hint(error));
    if (args->json) cli_out_json(json_pack("{s:o}", "error", cli_figures_error(error)));
    return code;
}
