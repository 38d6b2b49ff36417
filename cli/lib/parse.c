/* Config file, environment and command line into cli_args; the functions are options.h's.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Config file, environment and command line are applied in this order, each over the one before. The lines of
 * a preset or of a model's section come last, but only where the command line says nothing. Every value goes
 * through cli_options_set, whose message names the source. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/words.h"
#include "config_file.h"
#include "file.h"
#include "load.h"
#include "options.h"
#include "shortname.h"

static cli_exit bad_value(const char *shown, const char *value, const char *expected)
{
    return cli_fail(CLI_USAGE, "%s is \"%.80s\"; expected: %s", shown, value, expected);
}

static bool parse_integer(const char *value, long long min, long long max, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(value, &end, 10);
    return end != value && *end == '\0' && errno == 0 && *number >= min && *number <= max;
}

static cli_exit bad_integer(const weir_member *member, const char *shown, const char *value)
{
    char expected[128];
    if (member == NULL) return bad_value(shown, value, "a whole number");
    snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f%s", member->min, member->max,
             member->or_minus_one ? ", or -1" : "");
    return bad_value(shown, value, expected);
}

static cli_exit set_integer(void *at, const cli_option *option, const char *shown, const char *value)
{
    const weir_member *member = option->of != NULL ? weir_member_find(option->of, option->field) : NULL;
    long long number;
    switch (option->kind) {
    case CLI_INT32:
        if (member != NULL && (strcmp(value, "auto") == 0 ||
                               (option->standard != NULL && strcmp(value, option->standard) == 0))) {
            *(int32_t *)at = (int32_t)member->initial;
            return CLI_OK;
        }
        if (!parse_integer(value, -INT32_MAX, INT32_MAX, &number)) return bad_integer(member, shown, value);
        *(int32_t *)at = (int32_t)number;
        return CLI_OK;
    case CLI_INT64:
        if (!parse_integer(value, INT64_MIN, INT64_MAX, &number)) return bad_integer(member, shown, value);
        *(int64_t *)at = number;
        return CLI_OK;
    default:
        if (!parse_integer(value, -1, UINT32_MAX, &number))
            return bad_value(shown, value, "0 to 4294967295, or -1 for another seed each time");
        *(uint32_t *)at = number < 0 ? WEIR_SEED_RANDOM : (uint32_t)number;
        return CLI_OK;
    }
}

static cli_exit set_size(uint64_t *at, const char *shown, const char *value)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end & ~0x20) : NULL;
    int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    if (strcmp(value, "auto") == 0) {
        *at = WEIR_AUTO;
        return CLI_OK;
    }
    if (*value < '0' || *value > '9' || errno != 0 || end[unit != NULL] != '\0' ||
        number > UINT64_MAX >> shift)
        return bad_value(shown, value, "a number of bytes, such as 500M or 2G, or auto");
    *at = (uint64_t)number << shift;
    return CLI_OK;
}

static cli_exit set_duration(int64_t *at, const char *shown, const char *value)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (strcmp(value, "never") == 0) {
        *at = 0;
        return CLI_OK;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units && *value >= '0' && *value <= '9' && errno == 0;
         i++) {
        if (strcmp(end, units[i].unit) != 0 || number > INT32_MAX) continue;
        *at = number * units[i].ms;
        return CLI_OK;
    }
    return bad_value(shown, value, "a time, such as 90s, 10m or 2h, or never");
}

static cli_exit set_float(float *at, const char *shown, const char *value)
{
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != '\0') return bad_value(shown, value, "a number");
    *at = (float)number;
    return CLI_OK;
}

static cli_exit set_flag(bool *at, bool on, const char *shown, const char *value)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"0", "false", "no", "off",
                                                                                ""};
    bool is_yes = weir__words_have(yes, sizeof yes / sizeof *yes, value);
    if (!is_yes && !weir__words_have(no, sizeof no / sizeof *no, value))
        return bad_value(shown, value, "1 or 0");
    *at = is_yes == on;
    return CLI_OK;
}

static cli_exit set_choice(int *at, const cli_option *option, const char *shown, const char *value)
{
    char expected[128] = "";
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            *at = i;
            return CLI_OK;
        }
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
    }
    return bad_value(shown, value, expected);
}

static cli_exit set_strategy(const weir_strategy **at, const char *shown, const char *value)
{
    char expected[128] = "";
    const weir_strategy *strategy;
    if ((strategy = weir_strategy_find(value)) != NULL) {
        *at = strategy;
        return CLI_OK;
    }
    for (size_t i = 0; (strategy = weir_strategy_get(i)) != NULL; i++) {
        size_t n = strlen(expected);
        snprintf(expected + n, sizeof expected - n, "%s%s", i == 0 ? "" : ", ", strategy->name);
    }
    return bad_value(shown, value, expected);
}

/* "15043+1", "15043-2.5", "15043-inf" */
static cli_exit add_bias(cli_biases *biases, const char *shown, const char *value)
{
    char *end, *bias_end;
    errno = 0;
    long token = strtol(value, &end, 10);
    if (end == value || errno != 0 || token < INT32_MIN || token > INT32_MAX || (*end != '+' && *end != '-'))
        return bad_value(shown, value, "TOKEN+BIAS or TOKEN-BIAS, e.g. 15043+1 or 15043-inf");
    double bias = strtod(end, &bias_end);
    if (bias_end == end || *bias_end != '\0') return bad_value(shown, value, "a number after the sign");
    cli_grow(&biases->items, &biases->capacity, biases->n + 1, sizeof *biases->items);
    biases->items[biases->n++] = (weir_logit_bias){.token = (int32_t)token, .bias = (float)bias};
    return CLI_OK;
}

static cli_exit set_numbers(cli_numbers *numbers, const char *shown, const char *value)
{
    const char *rest = value;
    numbers->n = 0;
    for (;;) {
        char *end;
        long number = strtol(rest, &end, 10);
        if (end == rest || (*end != ',' && *end != '\0') || number < 1)
            return bad_value(shown, value, "numbers of at least 1, separated by commas");
        if (number > 1 << 20) return bad_value(shown, value, "numbers of at most 1048576");
        cli_grow(&numbers->items, &numbers->capacity, numbers->n + 1, sizeof *numbers->items);
        numbers->items[numbers->n++] = (int32_t)number;
        if (*end == '\0') return CLI_OK;
        rest = end + 1;
    }
}

static cli_exit set_shares(cli_shares *shares, const char *shown, const char *value)
{
    const char *rest = value;
    shares->n = 0;
    for (;;) {
        char *end;
        float number = strtof(rest, &end);
        if (end == rest || (*end != ',' && *end != '\0'))
            return bad_value(shown, value, "numbers separated by commas, such as 3,1");
        cli_grow(&shares->items, &shares->capacity, shares->n + 1, sizeof *shares->items);
        shares->items[shares->n++] = number;
        if (*end == '\0') return CLI_OK;
        rest = end + 1;
    }
}

static cli_exit set_template(char **at, const cli_option *option, const char *shown, const char *value)
{
    int position = 0;
    const char *source = cli_template_find(value);
    if (source == NULL) return set_choice(&position, option, shown, value); /* refuses it, with the names */
    cli_free(*at);
    *at = cli_format("%s", source);
    return CLI_OK;
}

static cli_exit set_file(char **at, const char *shown, const char *value)
{
    char *bytes;
    size_t length;
    cli_exit code = cli_file_read(value, shown, &bytes, &length);
    if (code != CLI_OK) return code;
    if (memchr(bytes, '\0', length) != NULL) {
        cli_free(bytes);
        return cli_fail(CLI_FAILED, "cannot read %s from %s: it has a NUL byte, so it is not text", shown,
                        value);
    }
    cli_free(*at);
    *at = bytes;
    return CLI_OK;
}

cli_exit cli_options_set(void *target, const cli_option *option, const char *shown, const char *value)
{
    void *at = (char *)target + option->target;
    cli_list *list = at;
    char **string = at;
    switch (option->kind) {
    case CLI_FLAG:
    case CLI_FLAG_OFF: return set_flag(at, option->kind == CLI_FLAG, shown, value);
    case CLI_INT32:
    case CLI_INT64:
    case CLI_SEED: return set_integer(at, option, shown, value);
    case CLI_SIZE: return set_size(at, shown, value);
    case CLI_DURATION: return set_duration(at, shown, value);
    case CLI_FLOAT: return set_float(at, shown, value);
    case CLI_CHOICE: return set_choice(at, option, shown, value);
    case CLI_STRATEGY: return set_strategy(at, shown, value);
    case CLI_BIAS: return add_bias(at, shown, value);
    case CLI_NUMBERS: return set_numbers(at, shown, value);
    case CLI_SHARES: return set_shares(at, shown, value);
    case CLI_TEMPLATE: return set_template(string, option, shown, value);
    case CLI_FILE: return set_file(string, shown, value);
    case CLI_STRING:
        cli_free(*string);
        *string = cli_format("%s", value);
        return CLI_OK;
    case CLI_LIST: cli_list_add(list, cli_format("%s", value)); return CLI_OK;
    }
    return CLI_OK;
}

/* ---- Words ---- */

/* llama.cpp's option for a model of the hub. */
static bool is_repository(const char *word, size_t length)
{
    return (length == 3 && memcmp(word, "-hf", 3) == 0) ||
           ((length == 4 || length == 9) && memcmp(word, "--hf-repo", length) == 0);
}

static cli_exit refuse_unknown(const cli_args *args, const char *word, size_t length)
{
    char given[64], one[CLI_SPELLING_MAX], lists[64];
    const char *name = args->command->name, all[] = "--help-all";
    bool has_all = cli_options_find(args->command->bit, all, sizeof all - 1) != NULL;
    snprintf(lists, sizeof lists, has_all ? "; weir %s --help-all lists them" : "; weir help %s lists them",
             name);
    snprintf(given, sizeof given, "%.*s", (int)(length < 60 ? length : 60), word);
    if (is_repository(word, length) && cli_options_find(args->command->bit, "--model", 7) != NULL)
        return cli_fail(CLI_USAGE,
                        "weir %s has no option %s: -m hf:OWNER/REPO[:QUANTIZATION] names a model of the hub",
                        name, given);
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (cli_options_find(command->bit, word, length))
            return cli_fail(CLI_USAGE, "weir %s has no option %s (weir %s has it)%s", name, given,
                            command->name, lists);
    cli_nearest nearest = cli_nearest_to(given);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        for (size_t i = 0; (option->commands & args->command->bit) && cli_options_spelling(option, i, one);
             i++)
            cli_nearest_try(&nearest, one);
    return cli_fail(CLI_USAGE, "weir %s has no option %s%s", name, given, cli_nearest_hint(&nearest, lists));
}

/* Sets an option, and remembers from where. */
static cli_exit set_from(cli_args *args, const cli_option *option, const char *shown, const char *value,
                         cli_from from, int line)
{
    cli_origin *origin = &args->sources[option - cli_options];
    bool adds = cli_options_is_list(option) && origin->text != NULL;
    if (args->of_model && !cli_options_of_model(option)) return CLI_OK;
    if (args->recorded && from < CLI_FROM_PRESET && cli_options_in_recordings(option)) return CLI_OK;
    if (value[0] == '\0' && option->empty == CLI_EMPTY_REFUSED)
        return cli_fail(CLI_USAGE,
                        "%s is empty: give it a value, or take it away; an empty one does not count as not "
                        "given, because %s protects",
                        shown, option->name);
    if (adds && origin->from != from) { /* the command line's list replaces the environment's, and so on */
        cli_options_clear(args, option);
        adds = false;
    }
    char *text = adds ? cli_format("%s, %s", origin->text, value) : cli_format("%s", value);
    cli_free(origin->text);
    *origin = (cli_origin){.from = from, .line = line, .text = text};
    return cli_options_set(args, option, shown, value);
}

/* Reads the option at argv[0], and its value where that is a word of its own. *used words. */
static cli_exit parse_option(cli_args *args, int n, char **argv, int *used)
{
    unsigned command = args->command->bit;
    const char *word = argv[0];
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    const cli_option *option = cli_options_find(command, word, length);
    char shown[64];
    *used = 1;
    if (option == NULL) return refuse_unknown(args, word, length);
    if (strcmp(option->name, "--model") == 0 && args->sources[option - cli_options].from == CLI_FROM_WORDS)
        return cli_fail(CLI_USAGE,
                        "-m is given twice: it names one model; weir serve --models FILE serves several");
    snprintf(shown, sizeof shown, "%.*s", (int)length, word);
    if (cli_options_is_flag(option))
        return set_from(args, option, shown, value != NULL ? value : "1", CLI_FROM_WORDS, 0);
    if (value == NULL) {
        bool other = n > 1 && argv[1][0] == '-' && cli_options_find(command, argv[1], strcspn(argv[1], "="));
        if (n < 2 || other)
            return cli_fail(CLI_USAGE, "%s needs a value: %s %s%s%s", shown, shown, option->argument,
                            other ? "; a value that looks like an option: " : "",
                            other ? "--name=value" : "");
        value = argv[1];
        *used = 2;
    }
    return set_from(args, option, shown, value, CLI_FROM_WORDS, 0);
}

/* The config file's settings for all commands, or for this one, as far as the command has them. */
static cli_exit take_settings(cli_args *args, const cli_config *config, bool own)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < config->n && code == CLI_OK; i++) {
        const cli_setting *setting = &config->items[i];
        if (own != (setting->section != CLI_CONFIG_NONE)) continue;
        if (own && config->sections[setting->section].command != args->command) continue;
        const cli_option *option = cli_options_by_setting(args->command->bit, setting->key);
        if (option == NULL) continue;
        char *shown = cli_format("%s:%d: %s", config->path, setting->line, setting->key);
        code = set_from(args, option, shown, setting->value, CLI_FROM_FILE, setting->line);
        cli_free(shown);
    }
    return code;
}

static cli_exit take_environment(cli_args *args)
{
    cli_exit code = CLI_OK;
    for (const cli_option *option = cli_options; option->name != NULL && code == CLI_OK; option++) {
        if (!(option->commands & args->command->bit) || option->env == NULL) continue;
        const char *value = getenv(option->env);
        if (value != NULL && (*value != '\0' || option->empty != CLI_EMPTY_UNSAID))
            code = set_from(args, option, option->env, value, CLI_FROM_ENVIRONMENT, 0);
    }
    return code;
}

static cli_exit take_defaults(cli_args *args)
{
    cli_config config = {0};
    cli_exit code = CLI_OK;
    if (!cli_options_has_settings(args->command->bit)) return CLI_OK;
    code = cli_config_read(&config);
    if (code == CLI_OK) code = take_settings(args, &config, false);
    if (code == CLI_OK) code = take_settings(args, &config, true);
    if (code == CLI_OK) code = take_environment(args);
    cli_config_fini(&config);
    return code;
}

/* True if one word looks like a model's name of other programs, such as llama3.2 or qwen3:8b. */
static bool resembles_model(const char *word)
{
    bool digit = false, colon = false;
    if (*word < 'a' || *word > 'z') return false;
    for (const char *c = word; *c != '\0'; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !weir__ascii_is_digit(*c) && strchr(".:-_/", *c) == NULL)
            return false;
        digit = digit || weir__ascii_is_digit(*c);
        colon = colon || (*c == ':' && c[1] != '\0');
    }
    return digit || colon;
}

/* The words of weir run, of which the first may be the model. */
static cli_exit check_run_words(const cli_list *words, bool given, bool is_model)
{
    const char *first = words->n > 0 ? words->items[0] : "";
    if (words->n > (given ? 1u : 2u))
        return cli_fail(CLI_USAGE, "weir run takes [MODEL] \"PROMPT\": quote a prompt of several words");
    if (given || is_model) return CLI_OK;
    cli_nearest nearest = cli_nearest_to(first);
    if (words->n == 2 || resembles_model(first)) cli_shortname_try(&nearest);
    if (words->n == 2)
        return cli_fail(CLI_USAGE,
                        "weir run takes [MODEL] \"PROMPT\": quote a prompt of several words; %.60s is not a "
                        "model here%s A model is " CLI_SHORTNAME_FORMS,
                        first, cli_nearest_hint(&nearest, "."));
    if (resembles_model(first))
        return cli_fail(CLI_USAGE,
                        "%.60s is not a model here%s A model is " CLI_SHORTNAME_FORMS
                        ". -p %.60s sends it as the prompt",
                        first, cli_nearest_hint(&nearest, "."), first);
    return CLI_OK;
}

/* Makes a word the model: `weir info MODEL`; of weir run the first of two, or the only one where it names a
 * model. */
static cli_exit take_model_word(cli_args *args)
{
    cli_list *words = &args->words;
    const cli_option *option = cli_options_find(args->command->bit, "--model", 7);
    bool given = cli_options_given(args, "--model");
    if (args->command->bit == CLI_RUN) {
        bool is_model = false;
        cli_exit bad = !given && words->n > 0 ? cli_load_is_model(words->items[0], &is_model) : CLI_OK;
        if (bad == CLI_OK) bad = check_run_words(words, given, is_model);
        if (bad != CLI_OK || !is_model) return bad;
    } else if (!(args->command->bit & CLI_TAKES_MODEL) || words->n == 0)
        return CLI_OK;
    else if (words->n > 1 || given)
        return cli_fail(CLI_USAGE, "weir %s takes one model", args->command->name);
    char *model = words->items[0];
    memmove(words->items, words->items + 1, --words->n * sizeof *words->items);
    cli_exit code = set_from(args, option, "MODEL", model, CLI_FROM_WORDS, 0);
    cli_free(model);
    return code;
}

/* True if the command line sets the same value. */
static bool is_overridden(const cli_args *args, const cli_option *option)
{
    for (const cli_option *other = cli_options; other->name != NULL; other++)
        if (other->target == option->target && args->sources[other - cli_options].from == CLI_FROM_WORDS)
            return true;
    return false;
}

/* The lines of a preset, or of a section of the models' file, where the command line says nothing. */
static cli_exit take_lines(cli_args *args, const cli_config *config, size_t section, cli_from from)
{
    cli_exit code = CLI_OK;
    for (size_t i = 0; i < config->n && code == CLI_OK; i++) {
        const cli_setting *setting = &config->items[i];
        if (setting->section != section) continue;
        const cli_option *option = cli_config_option(config, args->command->bit, setting->key);
        if (option == NULL) continue;
        bool model = strcmp(option->name, "--model") == 0;
        char *shown = cli_format("%s:%d: %s", config->path, setting->line, setting->key);
        if (model && from == CLI_FROM_PRESET) /* where it comes from is still known */
            code = cli_options_set(args, option, shown, setting->value);
        else if (!model && !is_overridden(args, option))
            code = set_from(args, option, shown, setting->value, from, setting->line);
        cli_free(shown);
    }
    return code;
}

/* The settings of the preset that the model names, where the command line says nothing. */
static cli_exit take_preset(cli_args *args)
{
    cli_config config = {0};
    cli_exit code = CLI_OK;
    const cli_option *model = cli_options_by_preset(args->command->bit, "model");
    bool loads = model != NULL && cli_options_is_file(model); /* of weir bench http it is a name */
    if (!loads || args->command->bit == CLI_PRESET || args->model_path == NULL) return CLI_OK;
    if ((args->preset_path = cli_preset_path(args->model_path)) == NULL) return CLI_OK;
    code = cli_preset_read(&config, args->preset_path);
    cli_free(args->model_path);
    args->model_path = NULL;
    if (code == CLI_OK) code = take_lines(args, &config, CLI_CONFIG_NONE, CLI_FROM_PRESET);
    cli_config_fini(&config);
    return code;
}

/* Defaults, then the command line's words. */
static cli_exit take_words(cli_args *args, int n, char **argv)
{
    args->n_line = n;
    args->line = argv;
    cli_exit code = take_defaults(args);
    bool only_words = false;
    for (int i = 0, used; i < n && code == CLI_OK; i += used) {
        used = 1;
        if (!only_words && strcmp(argv[i], "--") == 0)
            only_words = true;
        else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0')
            code = parse_option(args, n - i, argv + i, &used);
        else {
            only_words = only_words || (args->command->bit & CLI_TAKES_ANY) != 0;
            cli_list_add(&args->words, cli_format("%s", argv[i]));
        }
    }
    return code;
}

static void point_at_lists(cli_args *args)
{
    args->model.devices = args->devices;
    args->model.rpc = args->rpc;
    args->model.tensor_split = args->tensor_split.items;
    args->model.n_tensor_split = args->tensor_split.n;
}

cli_exit cli_options_parse(cli_args *args, int n, char **argv)
{
    cli_exit code = take_words(args, n, argv);
    if (code == CLI_OK) code = take_model_word(args);
    if (code == CLI_OK) code = take_preset(args);
    point_at_lists(args);
    return code;
}

/* Takes back the settings of config file and environment for a single model. */
static void forget_option(cli_args *args, const char *name)
{
    const cli_option *option = cli_options_by_model(args->command->bit, name);
    cli_origin *origin = &args->sources[option - cli_options];
    cli_options_clear(args, option);
    cli_free(origin->text);
    *origin = (cli_origin){0};
}

cli_exit cli_options_parse_model(cli_args *args, int n, char **argv, const cli_config *config, size_t section,
                                 const char *model)
{
    args->of_model = true;
    cli_exit code = take_words(args, n, argv);
    forget_option(args, "model");
    forget_option(args, "alias");
    if (code == CLI_OK) code = take_lines(args, config, CLI_CONFIG_NONE, CLI_FROM_MODELS);
    const char *named =
        section != CLI_CONFIG_NONE ? cli_config_value(config, section, CLI_SERVE, "--model") : NULL;
    args->model_path = cli_format("%s", named != NULL ? named : model);
    if (code == CLI_OK) code = take_preset(args);
    if (code == CLI_OK && section != CLI_CONFIG_NONE)
        code = take_lines(args, config, section, CLI_FROM_SECTION);
    point_at_lists(args);
    return code;
}
