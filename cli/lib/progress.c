/* progress.c: draws the progress line, and follows a prompt's prefill and a load with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "file.h"
#include "signals.h"
#include "term.h"
#include "text.h"

#define BAR         20                      /* columns */
#define PATIENCE_NS (300 * WEIR__NS_PER_MS) /* of a prefill before a line tells of it */

void cli_progress_line(const char *line)
{
    cli_text text = {0};
    cli_text_puts(&text, cli_term_style_err(CLI_DIM));
    cli_text_add_cut(&text, line, strlen(line), cli_term_columns() - 1, false);
    cli_text_puts(&text, cli_term_style_err(CLI_PLAIN));
    cli_term_progress(text.bytes);
    weir__text_fini(&text);
}

void cli_progress_prompt(const cli_args *args, const weir_stream *stream)
{
    weir_progress progress = {.size = sizeof progress};
    char line[96];
    if (args->quiet || weir_stream_progress(stream, &progress) != WEIR_OK ||
        progress.n_processed == progress.n_prompt || progress.prefill_ns < PATIENCE_NS)
        return;
    snprintf(line, sizeof line, "reading the prompt: %d of %d tokens", progress.n_processed,
             progress.n_prompt);
    cli_progress_line(line);
}

bool cli_progress_step(float progress, void *user)
{
    cli_progress *p = user;
    int percent = (int)(progress * 100);
    if (percent > 100) percent = 100;
    if (percent > p->shown) {
        cli_text line = {0};
        p->shown = percent;
        cli_text_printf(&line, "%s %s ", p->verb, p->name);
        cli_text_fill(&line, "█", percent * BAR / 100);
        cli_text_fill(&line, "░", BAR - percent * BAR / 100);
        cli_text_printf(&line, " %d %%", percent);
        cli_progress_line(line.bytes);
        weir__text_fini(&line);
    }
    return cli_signals_ended() == 0;
}

cli_progress cli_progress_begin(const cli_args *args, const char *verb, const char *path)
{
    cli_progress progress = {.verb = verb, .name = cli_file_name(path), .shown = args->quiet ? 100 : -1};
    cli_progress_step(0, &progress);
    return progress;
}
