/* weir completion SHELL
 * SPDX-License-Identifier: Apache-2.0 */
#include "completion.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "out.h"

/* What may follow an option. */
enum value { NOTHING, ANYTHING, A_FILE, A_CHOICE };

static enum value value_of(const cli_option *option)
{
    if (cli_options_is_flag(option)) return NOTHING;
    if (option->kind == CLI_CHOICE || option->kind == CLI_STRATEGY) return A_CHOICE;
    if (option->kind == CLI_FILE || strncmp(option->argument, "FILE", 4) == 0 ||
        strcmp(option->argument, "MODEL") == 0)
        return A_FILE;
    return ANYTHING;
}

/* "auto unified per_slot" */
static void add_choices(cli_text *text, const cli_option *option)
{
    const weir_strategy *strategy;
    for (size_t i = 0; option->kind == CLI_CHOICE && option->choices[i] != NULL; i++)
        cli_text_printf(text, "%s%s", i > 0 ? " " : "", option->choices[i]);
    for (size_t i = 0; option->kind == CLI_STRATEGY && (strategy = weir_strategy_get(i)) != NULL; i++)
        cli_text_printf(text, "%s%s", i > 0 ? " " : "", strategy->name);
}

/* The beginning of an explanation, without what would have to be quoted. */
static void add_brief(cli_text *text, const char *string)
{
    size_t n = strcspn(string, ";");
    for (size_t i = 0; i < n; i++)
        if (strchr("'\"\\[]:`$", string[i]) == NULL) cli_text_add(text, string + i, 1);
}

/* Calls fn for each spelling: "--max-tokens", "-n", "--n-predict". */
static void each_spelling(const cli_option *option,
                          void (*fn)(cli_text *text, const char *spelling, const cli_option *option),
                          cli_text *text)
{
    char one[CLI_SPELLING_MAX];
    for (size_t i = 0; cli_options_spelling(option, i, one); i++)
        if (strcmp(one, "-?") != 0) fn(text, one, option); /* a pattern, for shells */
}

static bool has(const cli_option *option, const cli_command *command)
{
    return (option->commands & command->bit) != 0;
}

/* The first words of commands, each once, with the summary of the first of that name. */
static bool first_of_its_word(const cli_command *command, char *word, size_t capacity)
{
    snprintf(word, capacity, "%.*s", (int)strcspn(command->name, " "), command->name);
    for (const cli_command *before = cli_commands; before < command; before++)
        if (strncmp(before->name, word, strlen(word)) == 0 && before->name[strlen(word)] == ' ') return false;
    return true;
}

/* ---- bash ---- */

static void put_word(cli_text *text, const char *spelling, const cli_option *option)
{
    (void)option;
    cli_text_printf(text, " %s", spelling);
}

static void bash_alternative(cli_text *text, const char *spelling, const cli_option *option)
{
    bool first = text->bytes[text->length - 1] == '\n';
    (void)option;
    cli_text_printf(text, first ? "        %s" : " | %s", spelling);
}

static void bash_command(cli_text *text, const cli_command *command)
{
    cli_text_printf(text, "    '%s')\n        options='", command->name);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if (has(option, command)) each_spelling(option, put_word, text);
    cli_text_puts(text, "'\n        case $before in\n");
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        enum value value = value_of(option);
        if (!has(option, command) || value == NOTHING) continue;
        each_spelling(option, bash_alternative, text);
        cli_text_puts(text, value == A_FILE     ? ") value=files"
                            : value == A_CHOICE ? ") value='"
                                                : ") value=any");
        if (value == A_CHOICE) {
            add_choices(text, option);
            cli_text_puts(text, "'");
        }
        cli_text_puts(text, " ;;\n");
    }
    cli_text_puts(text, "        esac\n        ;;\n");
}

static void bash_add(cli_text *text)
{
    char word[32];
    cli_text_puts(text,
                  "# bash completion for weir, made by weir completion bash\n"
                  "_weir() {\n"
                  "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                  "    local command=${COMP_WORDS[1]-} second=${COMP_WORDS[2]-} options= value= from=2\n"
                  "    COMPREPLY=()\n"
                  "    # --name=value arrives as three words\n"
                  "    if [[ $current == = ]]; then\n"
                  "        current=\n"
                  "    elif [[ $before == = ]]; then\n"
                  "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                  "    fi\n"
                  "    if ((COMP_CWORD == 1)); then\n"
                  "        COMPREPLY=($(compgen -W 'help");
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (first_of_its_word(command, word, sizeof word)) cli_text_printf(text, " %s", word);
    cli_text_puts(text, "' -- \"$current\"))\n"
                        "        return\n"
                        "    fi\n"
                        "    if [[ $command == help || $command == config ]]; then\n"
                        "        if ((COMP_CWORD == 2)); then\n"
                        "            COMPREPLY=($(compgen -W '");
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (first_of_its_word(command, word, sizeof word)) cli_text_printf(text, "%s ", word);
    cli_text_puts(text, "' -- \"$current\"))\n"
                        "            return\n"
                        "        fi\n"
                        "        command=$second second=${COMP_WORDS[3]-} from=3\n"
                        "    fi\n"
                        "    if [[ $command == completion ]] && ((COMP_CWORD == from)); then\n"
                        "        COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\"))\n"
                        "        return\n"
                        "    fi\n"
                        "    if [[ $command == bench ]]; then\n"
                        "        if ((COMP_CWORD == from)); then\n"
                        "            COMPREPLY=($(compgen -W '");
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strncmp(command->name, "bench ", 6) == 0) cli_text_printf(text, "%s ", command->name + 6);
    cli_text_puts(text, "' -- \"$current\"))\n"
                        "            return\n"
                        "        fi\n"
                        "        command=\"bench $second\"\n"
                        "    fi\n"
                        "    case $command in\n");
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        bash_command(text, command);
    cli_text_puts(text, "    esac\n"
                        "    if [[ $value == any ]]; then\n"
                        "        return\n"
                        "    elif [[ -n $value && $value != files ]]; then\n"
                        "        COMPREPLY=($(compgen -W \"$value\" -- \"$current\"))\n"
                        "    elif [[ $current == -* && -z $value ]]; then\n"
                        "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
                        "    else\n"
                        "        local IFS=$'\\n'\n"
                        "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
                        "    fi\n"
                        "}\n"
                        "complete -o filenames -F _weir weir\n");
}

/* ---- zsh ---- */

static void zsh_option(cli_text *text, const char *spelling, const cli_option *option)
{
    enum value value = value_of(option);
    bool again = cli_options_is_list(option);
    cli_text_puts(text, "        '");
    if (again)
        cli_text_puts(text, "*");
    else {
        cli_text_puts(text, "(");
        each_spelling(option, put_word, text);
        cli_text_puts(text, ")");
    }
    cli_text_printf(text, "%s%s[", spelling, value == NOTHING ? "" : spelling[1] == '-' ? "=" : "");
    add_brief(text, option->help);
    cli_text_puts(text, "]");
    if (value != NOTHING) {
        cli_text_puts(text, ":");
        add_brief(text, option->argument);
    }
    if (value == A_FILE) cli_text_puts(text, ":_files");
    if (value == ANYTHING) cli_text_puts(text, ": ");
    if (value == A_CHOICE) {
        cli_text_puts(text, ":(");
        add_choices(text, option);
        cli_text_puts(text, ")");
    }
    cli_text_puts(text, "'\n");
}

static void zsh_words(cli_text *text, bool bench)
{
    char word[32];
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        if (bench && strncmp(command->name, "bench ", 6) != 0) continue;
        if (!bench && !first_of_its_word(command, word, sizeof word)) continue;
        cli_text_printf(text, "        '%s:", bench ? command->name + 6 : word);
        add_brief(text, strcmp(bench ? "" : word, "bench") == 0 ? "measure" : command->summary);
        cli_text_puts(text, "'\n");
    }
}

static void zsh_add(cli_text *text)
{
    cli_text_puts(text, "#compdef weir\n"
                        "# zsh completion for weir, made by weir completion zsh\n"
                        "_weir() {\n"
                        "    local -a commands benches options\n"
                        "    local command\n"
                        "    commands=(\n"
                        "        'help:what there is'\n");
    zsh_words(text, false);
    cli_text_puts(text, "    )\n    benches=(\n");
    zsh_words(text, true);
    cli_text_puts(text, "    )\n"
                        "    if (( CURRENT == 2 )); then\n"
                        "        _describe command commands\n"
                        "        return\n"
                        "    fi\n"
                        "    if [[ $words[2] == (help|config) ]]; then\n"
                        "        if (( CURRENT == 3 )); then\n"
                        "            _describe command commands\n"
                        "            return\n"
                        "        fi\n"
                        "        shift words\n"
                        "        (( CURRENT-- ))\n"
                        "    fi\n"
                        "    command=$words[2]\n"
                        "    if [[ $command == completion ]]; then\n"
                        "        compadd bash zsh fish\n"
                        "        return\n"
                        "    fi\n"
                        "    if [[ $command == bench ]]; then\n"
                        "        if (( CURRENT == 3 )); then\n"
                        "            _describe bench benches\n"
                        "            return\n"
                        "        fi\n"
                        "        command=\"bench $words[3]\"\n"
                        "        shift words\n"
                        "        (( CURRENT-- ))\n"
                        "    fi\n"
                        "    shift words\n"
                        "    (( CURRENT-- ))\n"
                        "    case $command in\n");
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        cli_text_printf(text, "    ('%s') options=(\n", command->name);
        for (const cli_option *option = cli_options; option->name != NULL; option++)
            if (has(option, command)) each_spelling(option, zsh_option, text);
        cli_text_puts(text, "        ) ;;\n");
    }
    cli_text_puts(text, "    esac\n"
                        "    _arguments $options '*: :_files'\n"
                        "}\n"
                        "if [[ $funcstack[1] == _weir ]]; then\n"
                        "    _weir \"$@\"\n"
                        "else\n"
                        "    compdef _weir weir\n"
                        "fi\n");
}

/* ---- fish ---- */

static void fish_spelling(cli_text *text, const char *spelling, const cli_option *option)
{
    (void)option;
    const char *name = spelling + strspn(spelling, "-");
    if (spelling[1] == '-')
        cli_text_printf(text, " -l %s", name);
    else
        cli_text_printf(text, " -%c %s", name[1] == '\0' ? 's' : 'o', name);
}

static void fish_add(cli_text *text)
{
    char word[32];
    cli_text_puts(text,
                  "# fish completion for weir, made by weir completion fish\n"
                  "function __weir_is --description 'whether the command line begins with these words'\n"
                  "    set -l words (commandline -opc)[2..-1]\n"
                  "    if contains -- \"$words[1]\" help config\n"
                  "        set -e words[1]\n"
                  "    end\n"
                  "    test \"$words[1..\"(count $argv)\"]\" = \"$argv\"\n"
                  "end\n"
                  "function __weir_only --description 'whether these words are all so far'\n"
                  "    set -l words (commandline -opc)[2..-1]\n"
                  "    if contains -- \"$words[1]\" help config\n"
                  "        set -e words[1]\n"
                  "    end\n"
                  "    test \"$words\" = \"$argv\"\n"
                  "end\n"
                  "function __weir_first --description 'whether a command is to come'\n"
                  "    set -l words (commandline -opc)[2..-1]\n"
                  "    test (count $words) -eq 0\n"
                  "    or begin\n"
                  "        test (count $words) -eq 1; and contains -- $words[1] help config\n"
                  "    end\n"
                  "end\n"
                  "complete -c weir -n __weir_first -f -a help -d 'what there is'\n"
                  "complete -c weir -n '__weir_is completion' -f -a 'bash zsh fish'\n");
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        if (first_of_its_word(command, word, sizeof word)) {
            cli_text_printf(text, "complete -c weir -n __weir_first -f -a %s -d '", word);
            add_brief(text, strcmp(word, "bench") == 0 ? "measure" : command->summary);
            cli_text_puts(text, "'\n");
        }
        if (strncmp(command->name, "bench ", 6) == 0) {
            cli_text_printf(text, "complete -c weir -n '__weir_only bench' -f -a %s -d '", command->name + 6);
            add_brief(text, command->summary);
            cli_text_puts(text, "'\n");
        }
        for (const cli_option *option = cli_options; option->name != NULL; option++) {
            enum value value = value_of(option);
            if (!has(option, command)) continue;
            cli_text_printf(text, "complete -c weir -n '__weir_is %s'", command->name);
            each_spelling(option, fish_spelling, text);
            if (value == A_FILE) cli_text_puts(text, " -r -F");
            if (value == ANYTHING) cli_text_puts(text, " -x");
            if (value == A_CHOICE) {
                cli_text_puts(text, " -x -a '");
                add_choices(text, option);
                cli_text_puts(text, "'");
            }
            cli_text_puts(text, " -d '");
            add_brief(text, option->help);
            cli_text_puts(text, "'\n");
        }
    }
}

/* ---- The command ---- */

const cli_shell cli_shells[] = {
    {"bash", "bash-completion/completions/weir", bash_add},
    {"zsh", "zsh/site-functions/_weir", zsh_add},
    {"fish", "fish/vendor_completions.d/weir.fish", fish_add},
    {NULL, NULL, NULL},
};

cli_exit cli_completion(cli_args *args)
{
    cli_text text = {0};
    const char *wanted = args->words.n == 1 ? args->words.items[0] : "";
    for (size_t i = 0; cli_shells[i].name != NULL; i++) {
        if (strcmp(cli_shells[i].name, wanted) != 0) continue;
        cli_shells[i].add(&text);
        cli_out(text.bytes, text.length);
        cli_text_fini(&text);
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "for which shell? weir completion bash, zsh or fish");
}
