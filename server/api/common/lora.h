/* lora.h: the adapters that a request asks for. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_LORA_H
#define WEIR_SERVER_API_COMMON_LORA_H

#include "server/models/adapters.h"
#include "server/request/serve.h"

/* Reads a list of ids and scales, a request's `field` or NULL for its body, into an empty set. False: the
 * call has its answer. */
bool serve_lora_read(serve_call *call, const char *field, const json_t *value, serve_adapter_set *set);

/* Fills an empty set with the adapters of a request's "lora", else with the adapter that its "model"
 * names, else with the server's default; either may be NULL. False: the call has its answer. */
bool serve_lora_choose(serve_call *call, const char *adapter, const json_t *list, serve_adapter_set *set);

#endif
