/* hub.h: models by name, with a progress line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HUB_H
#define WEIR_CLI_HUB_H

#include <weir/hub.h>

#include "options.h"

/* What the options say to the hub. */
weir_hub_params cli_hub_params(const cli_args *args);

/* Downloads what a name means, if it is not there, and says how far it is: a bar on a terminal, elsewhere a
 * line now and then. *path is freed with weir_free. CLI_OK, or a code after a message. */
cli_exit cli_hub_download(const cli_args *args, const char *name, char **path);

/* What a failure of the hub's ends the program with, after a message. */
cli_exit cli_hub_fail(const cli_args *args, const char *name, const weir_error *error);

#endif
