/* command.c: finds the command that a line means. The table of commands: help.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "cli.h"
#include "options.h"

/* weir's name for a command of other programs. */
static const char *own_name(const char *word)
{
    static const struct {
        const char *other, *own;
    } names[] = {{"ls", "list"}, {"show", "info"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].other, word) == 0) return names[i].own;
    return word;
}

/* Weir's counterpart of a command of other programs; NULL: unknown. */
static const char *instead_of(const char *word)
{
    static const struct {
        const char *other, *instead;
    } known[] = {
        {"stop", "end weir serve with Ctrl-C or SIGTERM, or as a service with systemctl stop weir"},
        {"cp", "weir preset NAME -m MODEL gives a model another name"},
        {"create", "weir preset NAME keeps a model with settings under a name"},
        {"download", "weir pull downloads a model"},
        {"models", "weir list shows the models that are here"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].other, word) == 0) return known[i].instead;
    return NULL;
}

const cli_command *cli_command_find(int n, char *const *words, int *used)
{
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        const char *second = strchr(command->name, ' ');
        size_t first = second != NULL ? (size_t)(second - command->name) : strlen(command->name);
        *used = second != NULL ? 2 : 1;
        if (n < *used) continue;
        const char *word = own_name(words[0]);
        if (strlen(word) != first || memcmp(word, command->name, first) != 0) continue;
        if (second == NULL || strcmp(words[1], second + 1) == 0) return command;
    }
    return NULL;
}

/* Asks for the second word of the commands that begin with this word. */
static cli_exit ask_second_word(const char *word, bool alone)
{
    char known[128] = "";
    const char *last = NULL;
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        size_t n = strlen(known), length = strlen(word);
        if (strncmp(command->name, word, length) != 0 || command->name[length] != ' ') continue;
        if (last != NULL) snprintf(known + n, sizeof known - n, "%s%s", n > 0 ? ", " : "", last);
        last = command->name + length + 1;
    }
    return cli_fail(CLI_USAGE, "weir %s needs a second word: %s%s%s%s", word, known,
                    known[0] != '\0' ? " or " : "", last, alone ? "; --help shows the options of each" : "");
}

cli_exit cli_command_unknown(int n, char *const *words)
{
    cli_nearest nearest = cli_nearest_to(words[0]);
    const char *instead = instead_of(words[0]);
    if (instead != NULL) return cli_fail(CLI_USAGE, "there is no command %s: %s", words[0], instead);
    for (const cli_command *command = cli_commands; command->name != NULL; command++) {
        char first[32];
        const char *second = strchr(command->name, ' ');
        snprintf(first, sizeof first, "%.*s", (int)strcspn(command->name, " "), command->name);
        if (strcmp(first, words[0]) == 0) return ask_second_word(words[0], n == 1);
        if (second != NULL && strcmp(second + 1, words[0]) == 0) /* weir replay */
            return cli_fail(CLI_USAGE, "there is no command %s; did you mean weir %s?", words[0],
                            command->name);
        cli_nearest_try(&nearest, first);
    }
    if (nearest.best[0] != '\0')
        return cli_fail(CLI_USAGE, "there is no command %s; did you mean weir %s?", words[0], nearest.best);
    return cli_fail(CLI_USAGE, "there is no command %s; weir help lists them", words[0]);
}

/* ---- Did you mean ---- */

cli_nearest cli_nearest_to(const char *given)
{
    bool is_short_option = given[0] == '-' && given[1] != '-';
    return (cli_nearest){.given = is_short_option ? "" : given, .least = INT_MAX};
}

void cli_nearest_try(cli_nearest *nearest, const char *candidate)
{
    int edits = weir__words_near(nearest->given, candidate);
    if (edits < 0 || edits >= nearest->least) return;
    nearest->least = edits;
    snprintf(nearest->best, sizeof nearest->best, "%s", candidate);
}

const char *cli_nearest_hint(const cli_nearest *nearest, const char *otherwise)
{
    static char hint[96];
    if (nearest->best[0] == '\0') return otherwise;
    snprintf(hint, sizeof hint, "; did you mean %s?", nearest->best);
    return hint;
}
