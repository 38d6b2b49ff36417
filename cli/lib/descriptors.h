/* descriptors.h: how many files and connections this process may have open; usually 1024.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_DESCRIPTORS_H
#define WEIR_CLI_DESCRIPTORS_H

#include <stddef.h>

/* Raises the limit to `wanted`, or as far as allowed; never lowers it. Returns the limit, 0 = unknown. */
size_t cli_descriptors_raise(size_t wanted);

#endif
