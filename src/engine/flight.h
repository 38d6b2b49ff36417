/* flight.h: one generation for any number of readers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_ENGINE_FLIGHT_H
#define WEIR_ENGINE_FLIGHT_H

#include "weir/weir.h"

/* The key of a request, for tests: bytes that are equal for requests that may share a generation; free with
 * weir__mem_free. NULL: the request must not be shared or, if *n is 1, out of memory. */
char *weir__flight_key(const weir_request *request, size_t *n);

#endif
