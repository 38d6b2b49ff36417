/* The values of options: of a request, and of a command. The functions are options.h's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

void cli_list_fini(cli_list *list)
{
    for (size_t i = 0; i < list->n; i++) cli_free(list->items[i]);
    cli_free(list->items);
    *list = (cli_list){0};
}

void cli_list_add(cli_list *list, char *item)
{
    cli_grow(&list->items, &list->capacity, list->n + 1, sizeof *list->items);
    list->items[list->n++] = item;
}

static cli_list list_copy(const cli_list *from)
{
    cli_list to = {0};
    for (size_t i = 0; i < from->n; i++) cli_list_add(&to, cli_format("%s", from->items[i]));
    return to;
}

static cli_biases biases_copy(const cli_biases *from)
{
    cli_biases to = {0};
    cli_grow(&to.items, &to.capacity, from->n, sizeof *to.items);
    for (size_t i = 0; i < from->n; i++) to.items[to.n++] = from->items[i];
    return to;
}

static char *string_copy(const char *string)
{
    return string == NULL ? NULL : cli_format("%s", string);
}

void cli_options_clear(void *target, const cli_option *option)
{
    void *at = (char *)target + option->target;
    char **string = at;
    cli_numbers *numbers = at;
    cli_biases *biases = at;
    cli_shares *shares = at;
    switch (option->kind) {
    case CLI_STRING:
    case CLI_FILE:
    case CLI_TEMPLATE:
        cli_free(*string);
        *string = NULL;
        break;
    case CLI_LIST: cli_list_fini(at); break;
    case CLI_NUMBERS:
        cli_free(numbers->items);
        *numbers = (cli_numbers){0};
        break;
    case CLI_SHARES:
        cli_free(shares->items);
        *shares = (cli_shares){0};
        break;
    case CLI_BIAS:
        cli_free(biases->items);
        *biases = (cli_biases){0};
        break;
    default: break;
    }
}

/* ---- Of a request ---- */

static void ask_init(cli_ask *ask)
{
    *ask = (cli_ask){.sampler = weir_sampler_params_default(), .request = weir_request_default()};
    ask->request.interval = 1;
    ask->request.n_logprobs = CLI_UNSET;
}

void cli_ask_fini(cli_ask *ask)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if (cli_options_in_requests(option)) cli_options_clear(ask, option);
}

void cli_ask_copy(cli_ask *to, const cli_ask *from)
{
    *to = *from;
    to->order = string_copy(from->order);
    to->grammar = string_copy(from->grammar);
    to->grammar_root = string_copy(from->grammar_root);
    to->json_schema = string_copy(from->json_schema);
    to->cache_salt = string_copy(from->cache_salt);
    to->stop = list_copy(&from->stop);
    to->dry_breakers = list_copy(&from->dry_breakers);
    to->biases = biases_copy(&from->biases);
}

weir_request cli_ask_request(cli_ask *ask)
{
    weir_sampler_params *sampler = &ask->sampler;
    weir_request request = ask->request;
    sampler->order = ask->order;
    sampler->grammar = ask->grammar;
    sampler->grammar_root = ask->grammar_root;
    sampler->json_schema = ask->json_schema;
    sampler->logit_bias = ask->biases.items;
    sampler->n_logit_bias = ask->biases.n;
    sampler->dry_breakers = ask->dry_breakers.n > 0 ? (const char *const *)ask->dry_breakers.items : NULL;
    sampler->n_dry_breakers = ask->dry_breakers.n;
    request.sampler = sampler;
    request.logprobs = request.n_logprobs != CLI_UNSET;
    if (!request.logprobs) request.n_logprobs = 0;
    request.cache_salt = ask->cache_salt;
    request.stop = (const char *const *)ask->stop.items;
    request.n_stop = ask->stop.n;
    if (ask->adapters == NULL) return request;
    request.adapters = ask->adapters->uses;
    request.n_adapters = ask->adapters->n;
    return request;
}

/* ---- Of a command ---- */

void cli_numbers_default(cli_numbers *numbers, const int32_t *standard, size_t n)
{
    if (numbers->n > 0) return;
    cli_grow(&numbers->items, &numbers->capacity, n, sizeof *numbers->items);
    for (size_t i = 0; i < n; i++) numbers->items[numbers->n++] = standard[i];
}

void cli_args_init(cli_args *args, const cli_command *command)
{
    *args = (cli_args){
        .command = command,
        .model = weir_model_params_default(),
        .engine = weir_engine_params_default(),
        .best_of = 1,
        .n_prompt_logprobs = CLI_UNSET,
    };
    ask_init(&args->ask);
    args->ask.adapters = args->adapters = cli_alloc(1, sizeof *args->adapters);
    if (command->defaults != NULL) command->defaults(args);
}

void cli_args_salt(cli_args *args)
{
    unsigned char random[16];
    char salt[2 * sizeof random + 1];
    bool alone = (args->command->bit & (CLI_RUN | CLI_CHAT | CLI_STREAM)) != 0 && args->cache_dir == NULL;
    if (!alone || args->ask.cache_salt != NULL || getentropy(random, sizeof random) != 0) return;
    for (size_t i = 0; i < sizeof random; i++) snprintf(salt + 2 * i, 3, "%02x", random[i]);
    args->ask.cache_salt = string_copy(salt);
}

weir_chat_params cli_args_chat(const cli_args *args, const cli_ask *ask)
{
    weir_chat_params params = weir_chat_params_default();
    params.json_schema = ask->json_schema;
    params.template_source = args->chat_template;
    params.enable_thinking = !args->no_thinking;
    params.special_content = (weir_special_content)args->special_content;
    params.strict_messages = args->strict_messages;
    return params;
}

void cli_args_fini(cli_args *args)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        cli_options_clear(args, option);
    cli_list_fini(&args->words);
    cli_free(args->preset_path);
    cli_free(args->keys);
    for (size_t i = 0; i < args->adapters->n; i++) weir_adapter_release(args->adapters->uses[i].adapter);
    cli_free(args->adapters->uses);
    cli_free(args->adapters);
    cli_free(args->settings);
    for (size_t i = 0; i < CLI_OPTIONS_MAX; i++) cli_free(args->sources[i].text);
}
