/* reads.h: the media that a model reads, and the tokens of images and sounds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_READS_H
#define WEIR_CLI_READS_H

#include <jansson.h>

#include "text.h"

#include <weir/more.h>

/* "texts and images", and lines for some sizes, each with its newline; `indent` goes before all but the
 * first. Without an engine, no sizes. */
void cli_reads_print(cli_text *text, const weir_model_info *info, weir_engine *engine, const char *indent);

/* [{"width", "height", "tokens"}] and [{"seconds", "tokens"}]; tokens is null where the engine takes none of
 * that size. NULL: out of memory. */
json_t *cli_reads_images(const weir_model_info *info, weir_engine *engine);
json_t *cli_reads_sounds(const weir_model_info *info, weir_engine *engine);

#endif
