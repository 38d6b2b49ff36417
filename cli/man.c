/* SPDX-License-Identifier: Apache-2.0 */
#include "man.h"

#include <stdio.h>
#include <string.h>

#include "help.h"
#include "options.h"

void cli_man_name(const cli_command *command, char *name, size_t capacity)
{
    snprintf(name, capacity, "weir-%s", command->name);
    for (char *c = name; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
}

/* Text as roff shows it: hyphens stay hyphens, nothing is taken for a request. Newlines begin paragraphs. */
static void put(cli_text *text, const char *string, size_t n)
{
    bool begins = text->n == 0 || text->bytes[text->n - 1] == '\n';
    for (size_t i = 0; i < n; i++) {
        if (begins && (string[i] == '.' || string[i] == '\'')) cli_text_puts(text, "\\&");
        begins = false;
        switch (string[i]) {
        case '\\': cli_text_puts(text, "\\e"); break;
        case '-': cli_text_puts(text, "\\-"); break;
        case '\'': cli_text_puts(text, "\\(aq"); break;
        case '^': cli_text_puts(text, "\\(ha"); break;
        case '~': cli_text_puts(text, "\\(ti"); break;
        case '`': cli_text_puts(text, "\\(ga"); break;
        case '\n':
            while (string[i + 1] == '\n') i++;
            cli_text_puts(text, "\n.PP\n");
            begins = true;
            break;
        default: cli_text_add(text, string + i, 1); break;
        }
    }
}

static void puts_escaped(cli_text *text, const char *string)
{
    put(text, string, strlen(string));
}

/* \fB…\fR or \fI…\fR */
static void font(cli_text *text, char which, const char *string, size_t n)
{
    cli_text_printf(text, "\\f%c", which);
    put(text, string, n);
    cli_text_puts(text, "\\fR");
}

static void section(cli_text *text, const char *title)
{
    cli_text_printf(text, ".SH %s\n", title);
}

static void item(cli_text *text, const char *label, const char *explanation)
{
    cli_text_puts(text, ".TP\n");
    font(text, 'B', label, strlen(label));
    cli_text_puts(text, "\n");
    puts_escaped(text, explanation);
    cli_text_puts(text, "\n");
}

static void examples(cli_text *text, const char *lines)
{
    section(text, "EXAMPLES");
    cli_text_puts(text, ".nf\n");
    for (; *lines != '\0'; lines += *lines == '\n') {
        size_t n = strcspn(lines, "\n");
        put(text, lines, n);
        cli_text_puts(text, "\n");
        lines += n;
    }
    cli_text_puts(text, ".fi\n");
}

/* "-n, --max-tokens N": every spelling, short ones first. */
static void spellings(cli_text *text, const cli_option *option)
{
    bool first = true;
    cli_text_puts(text, ".TP\n");
    for (int brief = 1; brief >= 0; brief--) {
        char one[CLI_SPELLING_MAX];
        for (size_t i = 0; cli_options_spelling(option, i, one); i++) {
            if ((one[1] != '-') != (brief == 1)) continue;
            if (!first) cli_text_puts(text, ", ");
            font(text, 'B', one, strlen(one));
            first = false;
        }
    }
    if (option->argument != NULL) {
        cli_text_puts(text, " ");
        font(text, 'I', option->argument, strlen(option->argument));
    }
    cli_text_puts(text, "\n");
}

static void options(cli_text *text, const cli_command *command)
{
    cli_args args;
    cli_args_init(&args, command);
    section(text, "OPTIONS");
    for (int group = 0; group < CLI_N_GROUPS; group++) {
        bool titled = false;
        for (const cli_option *option = cli_options; option->name != NULL; option++) {
            char value[128];
            if ((int)option->group != group || !(option->commands & command->bit)) continue;
            if (!titled) cli_text_printf(text, ".SS %s\n", cli_group_titles[group]);
            titled = true;
            spellings(text, option);
            puts_escaped(text, option->help);
            if (cli_options_is_list(option)) puts_escaped(text, CLI_AGAIN);
            cli_options_value(&args, option, value, sizeof value);
            if (value[0] != '\0') {
                cli_text_puts(text, " [");
                puts_escaped(text, value);
                cli_text_puts(text, "]");
            }
            if (option->env != NULL) {
                cli_text_puts(text, " (");
                font(text, 'B', option->env, strlen(option->env));
                cli_text_puts(text, ")");
            }
            cli_text_puts(text, "\n");
        }
    }
    cli_args_fini(&args);
}

static void exit_codes(cli_text *text)
{
    section(text, "EXIT STATUS");
#define X(name, value, meaning) item(text, #value, meaning);
    CLI_EXIT_MAP(X)
#undef X
}

static void head(cli_text *text, const char *name, const char *summary)
{
    char upper[32];
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < sizeof upper; i++)
        upper[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
    upper[i] = '\0';
    cli_text_printf(text, ".\\\" Made by weir help --man\n.TH %s 1 \"\" \"weir %s\" \"weir\"\n.ad l\n", upper,
                    weir_version());
    section(text, "NAME");
    puts_escaped(text, name);
    cli_text_puts(text, " \\- ");
    puts_escaped(text, summary);
    cli_text_puts(text, "\n");
}

static void all(cli_text *text)
{
    char name[32];
    head(text, "weir", "a streaming inference engine on llama.cpp");
    section(text, "SYNOPSIS");
    cli_text_puts(text, "\\fBweir\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR ...]\n");
    section(text, "COMMANDS");
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        cli_man_name(command, name, sizeof name);
        cli_text_puts(text, ".TP\n");
        font(text, 'B', name, strlen(name));
        cli_text_puts(text, "(1)\n");
        puts_escaped(text, command->summary);
        cli_text_puts(text, "\n");
    }
    section(text, "ENVIRONMENT");
    for (size_t i = 0; cli_help_environment[i].name != NULL; i++)
        item(text, cli_help_environment[i].name, cli_help_environment[i].text);
    section(text, "FILES");
    item(text, "~/.config/weir/config", cli_help_config);
    exit_codes(text);
}

void cli_man_add(cli_text *text, const cli_command *command)
{
    char name[32];
    if (command == NULL) {
        all(text);
        return;
    }
    cli_man_name(command, name, sizeof name);
    head(text, name, command->summary);
    section(text, "SYNOPSIS");
    cli_text_puts(text, "\\fBweir ");
    puts_escaped(text, command->name);
    cli_text_puts(text, "\\fR ");
    puts_escaped(text, command->usage);
    cli_text_puts(text, "\n");
    if (command->text[0] != '\0') {
        section(text, "DESCRIPTION");
        puts_escaped(text, command->text);
        cli_text_puts(text, "\n");
    }
    examples(text, command->examples);
    options(text, command);
    section(text, "SEE ALSO");
    cli_text_puts(text, "\\fBweir\\fR(1): environment, config file, exit status\n");
}
