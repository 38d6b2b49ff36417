/* base64.h: bytes as text (RFC 4648). SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_BASE64_H
#define WEIR_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/weir.h"

/* Decodes text[n]; white space is skipped, and the padding may be missing. *bytes: [*n_bytes], freed with
 * weir__mem_free. INVALID: it is no base64. NO_MEMORY. */
weir_status weir__base64_decode(const char *text, size_t n, unsigned char **bytes, size_t *n_bytes);

/* Finds where the base64 begins in a URL "data:TYPE;base64,…". False: it is none. */
bool weir__base64_in_url(const char *url, size_t n, size_t *from);

#endif
