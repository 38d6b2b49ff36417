/* key_file.h: a file of API keys, one a line: KEY [operator] [priority=N] [requests=N]
 * [rate=N].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SETTINGS_KEY_FILE_H
#define WEIR_SERVER_SETTINGS_KEY_FILE_H

#include "params.h"

/* Reads `text`, which is changed, and to which the keys point. *keys is an array that the caller frees with
 * weir__mem_free. Empty lines, and those that begin with #, are skipped. INVALID: a line that says something
 * else, or no key at all; NO_MEMORY. */
weir_status serve_key_file_read(char *text, serve_key **keys, size_t *n, weir_error *error);

#endif
