/* progress.h: the progress line on stderr.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_PROGRESS_H
#define WEIR_CLI_PROGRESS_H

#include "options.h"

/* Shows a line instead of the one before, cut at the terminal's width; nothing when stderr is no terminal.
 * To end it: cli_term_progress_end. */
void cli_progress_line(const char *line);

/* Shows a line with how far the stream's prompt is, once its prefill takes long; nothing with --quiet, and
 * nothing new once all of the prompt is there. */
void cli_progress_prompt(const cli_args *args, const weir_stream *stream);

/* A progress line, "loading MODEL ███ 40 %". */
typedef struct cli_progress {
    const char *verb, *name;
    int shown; /* percent, -1 = nothing yet */
} cli_progress;

/* Begins a progress line, which --quiet hides. To end it: cli_term_progress_end. */
cli_progress cli_progress_begin(const cli_args *args, const char *verb, const char *path);

/* A weir_progress_fn; user is the cli_progress. A signal ends the transfer or load that is shown. */
bool cli_progress_step(float progress, void *user);

#endif
