/* name.h: the model that a request names. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_NAME_H
#define WEIR_SERVER_MODELS_NAME_H

#include "server/request/serve.h"

/* True if `name`, a request's "model", is one of this server's, or NULL. *adapter: the same where it is an
 * adapter's, else NULL; borrowed. Of a tagged route, an unknown name loses its tag. False: the call has its
 * answer. */
bool serve_name_read(serve_call *call, const json_t *name, const char **adapter);

/* Bytes of a name before the ":latest" that Ollama's clients add; 0: it has none. */
size_t serve_name_untagged(const char *name);

#endif
