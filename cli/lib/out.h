/* out.h: stdout, written at once and whole; a reader that left is noticed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_OUT_H
#define WEIR_CLI_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "cli.h"

/* Writes all of it, waiting for a slow reader; after a signal for two seconds at the most. False: the reader
 * has left or writing failed, now or before. */
bool cli_out(const char *bytes, size_t n);

/* Writes a text as cli_out does, and frees it. */
bool cli_out_text(weir__text *text);

/* One line of JSON. Takes the reference of `json`, which may be NULL (out of memory). */
bool cli_out_json(json_t *json);

/* True if writing makes no sense any more. Looks, without writing, whether a pipe's reader has left. */
bool cli_out_closed(void);

/* The program's exit code: `code`, unless writing to stdout failed (which is reported) or a signal came. */
cli_exit cli_out_finish(cli_exit code);

#endif
