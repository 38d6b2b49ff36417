/* weir completion SHELL, and `weir __complete WORD...`, which its scripts call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "cli/lib/config_file.h"
#include "cli/lib/options.h"
#include "cli/lib/out.h"
#include "cli/lib/shortname.h"
#include "cli/lib/text.h"

/* ---- The answer to a Tab ---- */

/* A line "word TAB explanation" if the word starts with the current one. prefix goes in front of the word. */
static void offer_word(cli_text *text, const char *current, const char *prefix, const char *word,
                       const char *help)
{
    if (strncmp(word, current, strlen(current)) != 0) return;
    cli_text_printf(text, "%s%s\t", prefix, word);
    cli_text_add(text, help, strcspn(help, ";\n"));
    cli_text_puts(text, "\n");
}

/* The first words of commands, each once. */
static void offer_commands(cli_text *text, const char *current)
{
    offer_word(text, current, "", "help", "options and examples of a command");
    offer_word(text, current, "", "bench", "measure models, kernels and servers");
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strchr(command->name, ' ') == NULL)
            offer_word(text, current, "", command->name, command->summary);
}

static void offer_benches(cli_text *text, const char *current)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++)
        if (strncmp(command->name, "bench ", 6) == 0)
            offer_word(text, current, "", command->name + 6, command->summary);
}

static void offer_options(cli_text *text, const cli_command *command, const char *current)
{
    char one[CLI_SPELLING_MAX];
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        for (size_t i = 0; (option->commands & command->bit) && cli_options_spelling(option, i, one); i++)
            if (strcmp(one, "-?") != 0)
                offer_word(text, current, "", one, option->help); /* a pattern, for shells */
}

static void offer_presets(cli_text *text, const char *current, const char *prefix)
{
    cli_list names = cli_preset_names();
    for (size_t i = 0; i < names.n; i++) offer_word(text, current, prefix, names.items[i], "a preset");
    cli_list_fini(&names);
}

/* Offers the names that a model may have. */
static void offer_names(cli_text *text, const char *current, const char *prefix)
{
    cli_list names = cli_shortname_names();
    offer_word(text, current, prefix, "default", "a small model to try weir with");
    for (size_t i = 0; i < names.n; i++)
        offer_word(text, current, prefix, names.items[i], "a model of the hub");
    cli_list_fini(&names);
}

static void offer_value(cli_text *text, const cli_option *option, const char *current, const char *prefix)
{
    const weir_strategy *strategy;
    for (size_t i = 0; option->choices != NULL && option->choices[i] != NULL; i++)
        offer_word(text, current, prefix, option->choices[i], "");
    for (size_t i = 0; option->kind == CLI_STRATEGY && (strategy = weir_strategy_get(i)) != NULL; i++)
        offer_word(text, current, prefix, strategy->name, "");
    if (strcmp(option->argument, "MODEL") == 0) {
        offer_presets(text, current, prefix);
        offer_names(text, current, prefix);
    }
    if (cli_options_is_file(option)) cli_text_puts(text, ":files\n");
}

/* words [n + 1] of a command; the last one is being typed. */
static void offer_after_command(cli_text *text, const cli_command *command, int n, char *const *words,
                                const char *current)
{
    const char *equals = strchr(current, '='), *before = n > 0 ? words[n - 1] : "";
    const cli_option *option = cli_options_find(command->bit, before, strlen(before));
    if (option != NULL && !cli_options_is_flag(option)) {
        offer_value(text, option, current, "");
    } else if (current[0] == '-' && equals != NULL) {
        char prefix[CLI_SPELLING_MAX + 1];
        option = cli_options_find(command->bit, current, (size_t)(equals - current));
        snprintf(prefix, sizeof prefix, "%.*s=", (int)(equals - current), current);
        if (option != NULL && !cli_options_is_flag(option)) offer_value(text, option, equals + 1, prefix);
    } else if (current[0] == '-') {
        offer_options(text, command, current);
    } else if (command->bit == CLI_RECORD && n == 0) {
        for (size_t i = 0; cli_record_verbs[i].name != NULL; i++)
            offer_word(text, current, "", cli_record_verbs[i].name, cli_record_verbs[i].help);
    } else if (command->bit == CLI_COMPLETION) {
        for (size_t i = 0; cli_shells[i].name != NULL; i++)
            offer_word(text, current, "", cli_shells[i].name, "");
    } else {
        if (command->bit & (CLI_TAKES_MODEL | CLI_RUN | CLI_PRESET | CLI_RM))
            offer_presets(text, current, "");
        if (command->bit & (CLI_TAKES_MODEL | CLI_RUN | CLI_PULL | CLI_LIST_MODELS | CLI_RM))
            offer_names(text, current, "");
        cli_text_puts(text, ":files\n");
    }
}

/* bash splits qwen3:4b into three words, and replaces the one behind the colon: the words up to it are joined
 * to *joined, and the answer is without them. How many words are left; *cut: bytes of each line. */
static int join_colons(int n, char *const *words, const char **current, cli_text *joined, size_t *cut)
{
    bool after = n > 1 && strcmp(words[n - 1], ":") == 0, at = strcmp(*current, ":") == 0;
    *cut = 0;
    if (n < 1 || (!after && !at)) return n;
    cli_text_printf(joined, "%s:", words[n - (after ? 2 : 1)]);
    *cut = joined->n;
    if (after) cli_text_puts(joined, *current);
    *current = joined->bytes;
    return n - (after ? 2 : 1);
}

/* Takes the first bytes of each line away, and the line for files. */
static void cut_lines(cli_text *text, size_t cut)
{
    size_t n = 0;
    for (size_t i = 0, length; i < text->n; i += length) {
        const char *end = memchr(text->bytes + i, '\n', text->n - i);
        length = (size_t)(end - (text->bytes + i)) + 1;
        if (length <= cut || strncmp(text->bytes + i, ":files", 6) == 0) continue;
        memmove(text->bytes + n, text->bytes + i + cut, length - cut);
        n += length - cut;
    }
    text->n = n;
}

cli_exit cli_complete(int n, char *const *words)
{
    cli_text text = {0}, joined = {0};
    const char *current = n > 0 ? words[--n] : "";
    size_t cut;
    int used;
    n = join_colons(n, words, &current, &joined, &cut);
    /* bash splits --name=value into three words. */
    if (n > 1 && strcmp(words[n - 1], "=") == 0)
        n--;
    else if (strcmp(current, "=") == 0)
        current = "";
    if (n > 0 && (strcmp(words[0], "help") == 0 || strcmp(words[0], "config") == 0)) {
        words++;
        n--;
    }
    const cli_command *command = cli_command_find(n, words, &used);
    if (n == 0)
        offer_commands(&text, current);
    else if (n == 1 && strcmp(words[0], "bench") == 0)
        offer_benches(&text, current);
    else if (command != NULL)
        offer_after_command(&text, command, n - used, words + used, current);
    if (cut > 0) cut_lines(&text, cut);
    cli_out_text(&text);
    weir__text_fini(&joined);
    return CLI_OK;
}

/* ---- The scripts ---- */

const cli_shell cli_shells[] = {
    {"bash", "bash-completion/completions/weir",
     "# bash completion for weir, made by weir completion bash\n"
     "_weir() {\n"
     "    local line current=${COMP_WORDS[COMP_CWORD]}\n"
     "    case $current in \\\"* | \\'*) current=${current:1} ;; esac\n"
     "    COMPREPLY=()\n"
     "    while IFS= read -r line; do\n"
     "        if [[ $line == :files ]]; then\n"
     "            while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -f -- "
     "\"${current#=}\")\n"
     "        else\n"
     "            COMPREPLY+=(\"${line%%$'\\t'*}\")\n"
     "        fi\n"
     "    done < <(\"${COMP_WORDS[0]}\" __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
     "}\n"
     "complete -o filenames -F _weir weir\n"},
    {"zsh", "zsh/site-functions/_weir",
     "#compdef weir\n"
     "# zsh completion for weir, made by weir completion zsh\n"
     "_weir() {\n"
     "    local line word\n"
     "    local -a found\n"
     "    for line in \"${(@f)$($words[1] __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\"; do\n"
     "        if [[ $line == :files ]]; then\n"
     "            _files\n"
     "        elif [[ -n $line ]]; then\n"
     "            word=${line%%$'\\t'*}\n"
     "            line=${line#*$'\\t'}\n"
     "            found+=(\"${word//:/\\\\:}${line:+:$line}\")\n"
     "        fi\n"
     "    done\n"
     "    (( $#found )) && _describe weir found\n"
     "}\n"
     "if [[ $funcstack[1] == _weir ]]; then\n"
     "    _weir \"$@\"\n"
     "else\n"
     "    compdef _weir weir\n"
     "fi\n"},
    {"fish", "fish/vendor_completions.d/weir.fish",
     "# fish completion for weir, made by weir completion fish\n"
     "function __weir_complete\n"
     "    set -l words (commandline -opc) (commandline -ct)\n"
     "    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)\n"
     "        if test \"$line\" = :files\n"
     "            __fish_complete_path (commandline -ct)\n"
     "        else\n"
     "            echo $line\n"
     "        end\n"
     "    end\n"
     "end\n"
     "complete -c weir -f -a '(__weir_complete)'\n"},
    {NULL, NULL, NULL},
};

cli_exit cli_completion(cli_args *args)
{
    const char *wanted = args->words.n == 1 ? args->words.items[0] : "";
    for (size_t i = 0; cli_shells[i].name != NULL; i++) {
        if (strcmp(cli_shells[i].name, wanted) != 0) continue;
        cli_out(cli_shells[i].script, strlen(cli_shells[i].script));
        return CLI_OK;
    }
    return cli_fail(CLI_USAGE, "name a shell: weir completion bash, zsh or fish");
}
