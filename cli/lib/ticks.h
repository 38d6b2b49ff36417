/* ticks.h: an engine's record of its last ticks, into a file.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_TICKS_H
#define WEIR_CLI_TICKS_H

#include "options.h"
#include "record.h"

/* Begins the record with the engine's parameters. */
void cli_ticks_begin(cli_record *record, const weir_engine *engine, const weir_engine_params *params);

/* Adds the ticks that the engine has recorded since. */
void cli_ticks_take(cli_record *record, const weir_engine *engine);

/* Stops the engine and writes all of it into args->ring_path, if there is one and the engine is: a new file
 * that replaces the old one when it is whole. `code`, or CLI_FAILED after a message. */
cli_exit cli_ticks_save(const cli_args *args, weir_engine *engine, cli_exit code);

#endif
