/* batch.h: a request file of weir stream, read and checked.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_BATCH_H
#define WEIR_CLI_BATCH_H

#include <jansson.h>

#include "options.h"

typedef struct cli_batch_item {
    char *name;         /* never NULL: "3" when the file gives none */
    const char *prompt; /* in the file's text; NULL: messages */
    size_t prompt_length;
    json_t *messages; /* of the file; borrowed */
    cli_ask ask;
} cli_batch_item;

typedef struct cli_batch {
    const char *path; /* as given; "-" = stdin */
    char *text;
    size_t length;
    json_t *root;
    const char *model;     /* NULL: the file names none */
    cli_batch_item *items; /* [n] */
    size_t n;
} cli_batch;

/* Reads and checks; messages name the path of the offending field. CLI_OK, or a code after a message. Freed
 * with fini in any case. */
cli_exit cli_batch_read(cli_batch *batch, const cli_args *args, const char *path);
void cli_batch_fini(cli_batch *batch);

/* Tells an error of the library about request i: at the field that it names, if the file has it. */
cli_exit cli_batch_refused(const cli_batch *batch, const cli_args *args, size_t i, const weir_error *error);

/* The request that an error's field names ("requests[2].sampler.temp"), 0 when it names none. */
size_t cli_batch_index(const cli_batch *batch, const weir_error *error);

#endif
