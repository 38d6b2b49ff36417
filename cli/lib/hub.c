/* hub.c: downloads with a bar or with lines, and asks before it does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "hub.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "progress.h"
#include "signals.h"
#include "term.h"
#include "text.h"

#define BAR      20 /* columns */
#define FIGURES  62 /* columns of the line beside the file's name */
#define PART     10 /* percent between the lines where there is no terminal */
#define NAME_MIN 8

weir_hub_params cli_hub_params(const cli_args *args)
{
    weir_hub_params params = weir_hub_params_default();
    params.revision = args->revision;
    params.offline = args->offline;
    params.force = args->force;
    return params;
}

cli_exit cli_hub_fail(const cli_args *args, const char *name, const weir_error *error)
{
    cli_exit code = error->code == WEIR_INVALID                                   ? CLI_USAGE
                    : error->code == WEIR_NOT_FOUND || error->code == WEIR_DENIED ? CLI_NO_MODEL
                                                                                  : CLI_FAILED;
    return cli_fail_error(args, code, name, error);
}

struct display {
    const cli_args *args;
    int32_t shard; /* of the last line; 0 = none yet */
    int percent;   /* of the last line */
    bool asked;    /* it was said that the hub is asked */
};

static void add_amount(cli_text *line, const weir_hub_progress *progress, int percent)
{
    cli_text_printf(line, " %d %%  %s of %s", percent, cli_bytes(progress->n_done).text,
                    cli_bytes(progress->n_bytes).text);
    if (progress->rate <= 0) return;
    cli_text_printf(line, "  %s/s", cli_bytes((uint64_t)progress->rate).text);
    double left = (double)(progress->n_bytes - progress->n_done) / progress->rate;
    if (left >= 100 * 3600.0 || progress->n_done == progress->n_bytes) return;
    int s = (int)(left + 0.5);
    if (s >= 3600)
        cli_text_printf(line, "  %d:%02d:%02d left", s / 3600, s / 60 % 60, s % 60);
    else
        cli_text_printf(line, "  %d:%02d left", s / 60, s % 60);
}

static void add_name(cli_text *line, const weir_hub_progress *progress, int width)
{
    const char *name = cli_file_name(progress->file);
    cli_text_add_cut(line, name, strlen(name), width, false);
    if (progress->n_shards > 1)
        cli_text_printf(line, " %d/%d", (int)progress->shard, (int)progress->n_shards);
}

static void show_bar(const weir_hub_progress *progress, int percent)
{
    cli_text line = {0};
    int width = cli_term_columns() - FIGURES;
    add_name(&line, progress, width > NAME_MIN ? width : NAME_MIN);
    cli_text_puts(&line, " ");
    if (width > NAME_MIN) {
        cli_text_fill(&line, "█", percent * BAR / 100);
        cli_text_fill(&line, "░", BAR - percent * BAR / 100);
    }
    add_amount(&line, progress, percent);
    cli_progress_line(line.bytes);
    weir__text_fini(&line);
}

static void show_line(const weir_hub_progress *progress, int percent)
{
    cli_text line = {0};
    cli_text_puts(&line, "weir: ");
    add_name(&line, progress, 80);
    add_amount(&line, progress, percent);
    cli_text_puts(&line, "\n");
    cli_text_tell(&line);
}

static bool show_progress(const weir_hub_progress *progress, void *user)
{
    struct display *display = user;
    bool asking = progress->file[0] == '\0';
    if (display->args->quiet) return cli_signals_ended() == 0;
    int percent =
        progress->n_bytes > 0 ? (int)((double)progress->n_done * 100 / (double)progress->n_bytes) : 0;
    if (cli_term_err()) {
        if (asking && !display->asked) cli_progress_line("asking the hub");
        if (!asking) show_bar(progress, percent);
        display->asked = true;
    } else if (!asking && (progress->shard != display->shard || percent < display->percent ||
                           percent / PART > display->percent / PART)) {
        show_line(progress, percent);
        display->shard = progress->shard;
        display->percent = percent;
    }
    return cli_signals_ended() == 0;
}

cli_exit cli_hub_download(const cli_args *args, const char *name, char **path)
{
    struct display display = {.args = args};
    weir_hub_params params = cli_hub_params(args);
    weir_error error = {0};
    if (cli_signals_ended() != 0) return cli_signals_exit();
    params.progress = show_progress;
    params.progress_user = &display;
    weir_status status = weir_hub_download(name, &params, path, &error);
    cli_term_progress_end();
    if (status != WEIR_OK) return cli_hub_fail(args, name, &error);
    return CLI_OK;
}

/* ---- Names that are short for others ---- */

/* The bytes of the files that a name selects. CLI_OK, or a code after a message. */
static cli_exit find_size(const cli_args *args, const char *name, uint64_t *n_bytes)
{
    weir_hub_params params = cli_hub_params(args);
    weir_hub_files *files = NULL;
    weir_hub_file file = {.size = sizeof file};
    weir_error error = {0};
    char *first = NULL;
    int32_t n_left = 0;
    *n_bytes = 0;
    weir_status status = weir_hub_resolve(name, &params, &first, &error);
    if (status == WEIR_OK) status = weir_hub_list(name, &params, &files, &error);
    for (size_t i = 0; status == WEIR_OK && weir_hub_files_get(files, i, &file) == WEIR_OK; i++) {
        if (strcmp(file.name, first) == 0) n_left = file.n_shards; /* the others follow it */
        if (n_left-- > 0) *n_bytes += file.n_bytes;
    }
    weir_hub_files_destroy(files);
    weir_free(first);
    return status == WEIR_OK ? CLI_OK : cli_hub_fail(args, name, &error);
}

bool cli_hub_ask(cli_text *question, bool standard)
{
    char line[16];
    cli_text_puts(question, standard ? " [Y/n] " : " [y/N] ");
    cli_text_tell(question);
    clearerr(stdin); /* Ctrl-D answers one question */
    if (fgets(line, sizeof line, stdin) == NULL) return false;
    for (int c = 0; strchr(line, '\n') == NULL && c != EOF && c != '\n';) c = getchar();
    return line[0] == 'y' || line[0] == 'Y' || (standard && line[0] == '\n');
}

cli_exit cli_hub_obtain(const cli_args *args, const char *word, const char *name, char **path)
{
    weir_hub_params params = cli_hub_params(args);
    cli_text text = {0};
    uint64_t n_bytes;
    params.offline = true;
    if (!args->force && weir_hub_download(name, &params, path, NULL) == WEIR_OK) return CLI_OK;
    cli_exit code = args->offline ? CLI_OK : find_size(args, name, &n_bytes);
    if (code != CLI_OK || args->offline) return code == CLI_OK ? cli_hub_download(args, name, path) : code;
    bool asks = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    cli_text_printf(&text, "%.100s is %.200s, a download of %s", word, name, cli_bytes(n_bytes).text);
    if (args->yes) {
        if (!args->quiet) cli_note("%s", text.bytes);
    } else if (!asks) {
        code = cli_fail(CLI_NO_MODEL, "%s; weir pull %.100s --yes agrees to it", text.bytes, word);
    } else {
        cli_text_puts(&text, ": go on?");
        if (!cli_hub_ask(&text, true))
            code = cli_signals_ended() != 0 ? cli_signals_exit()
                                            : cli_fail(CLI_NO_MODEL, "nothing was downloaded");
    }
    weir__text_fini(&text);
    return code == CLI_OK ? cli_hub_download(args, name, path) : code;
}
