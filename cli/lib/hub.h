/* hub.h: models by name, with a progress line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_HUB_H
#define WEIR_CLI_HUB_H

#include <weir/hub.h>

#include "options.h"
#include "text.h"

/* The hub's parameters from the options. */
weir_hub_params cli_hub_params(const cli_args *args);

/* Downloads the file of a name unless it is cached, and shows the progress: a bar on a terminal, elsewhere a
 * line now and then. *path is freed with weir_free. CLI_OK, or a code after a message. */
cli_exit cli_hub_download(const cli_args *args, const char *name, char **path);

/* Obtains the file of `name`, which `word` is short for. A file that is not in the cache is downloaded once
 * the user agrees to its size: on a terminal that is asked, elsewhere --yes says it. A cached file needs no
 * network. *path and the code are as above. */
cli_exit cli_hub_obtain(const cli_args *args, const char *word, const char *name, char **path);

/* True if the user says yes; `standard`: what Enter says. A signal ends the reading, and is no yes. */
bool cli_hub_ask(cli_text *question, bool standard);

/* The exit code for a failure of the hub, after a message. */
cli_exit cli_hub_fail(const cli_args *args, const char *name, const weir_error *error);

#endif
