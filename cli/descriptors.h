/* descriptors.h: how many files and connections this process may have open; usually 1024.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_CLI_DESCRIPTORS_H
#define WEIR_CLI_DESCRIPTORS_H

#include <stddef.h>

/* Asks for so many, or as many as may be had; lowers nothing. How many there may be now, 0 = not known. */
size_t cli_descriptors_raise(size_t wanted);

#endif
