/* models.h: the models of this machine, as weir list shows them. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_MODELS_H
#define WEIR_CLI_MODELS_H

#include "cli/lib/options.h"

/* Prints the models in the cache, the default model and the presets. CLI_OK, or a code after a message. */
cli_exit cli_models_print(const cli_args *args);

#endif
