/* adapters.h: the adapters that requests may name. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_ADAPTERS_H
#define WEIR_SERVER_MODELS_ADAPTERS_H

#include "base/text.h"
#include "weir/weir.h"

#define SERVE_ADAPTERS_MOST 64
#define SERVE_ADAPTER_NAME  128

typedef struct serve_adapters serve_adapters;

/* The adapters of a request: held; zeroes = none. */
typedef struct serve_adapter_set {
    weir_adapter_use uses[WEIR_ADAPTERS_MAX];
    size_t n;
} serve_adapter_set;

serve_adapters *serve_adapters_create(void);
void serve_adapters_destroy(serve_adapters *adapters);

/* All below: any thread. */

/* Holds it. scale: of requests that do not say which adapters they want; fixed: it came with the model,
 * and no request removes it. INVALID (lora_name: no name, or one that is taken), BUSY (there are too
 * many), NO_MEMORY. */
weir_status serve_adapters_add(serve_adapters *adapters, const char *name, weir_adapter *adapter, float scale,
                               bool fixed, weir_error *error);

/* Requests that have it keep it. NOT_FOUND: there is none of that name; STATE: it is fixed. */
weir_status serve_adapters_remove(serve_adapters *adapters, const char *name);

bool serve_adapters_has(serve_adapters *adapters, const char *name);

/* The one of that name alone, at its scale, or 1 where that is 0. False: there is none. */
bool serve_adapters_named(serve_adapters *adapters, const char *name, serve_adapter_set *set);

/* The adapters of requests that do not say which they want. */
void serve_adapters_standard(serve_adapters *adapters, serve_adapter_set *set);

/* Adds the adapter with this number, replacing an entry of the set; a scale of 0 removes it. False: there is
 * no such adapter, or the set is full. */
bool serve_adapters_numbered(serve_adapters *adapters, int64_t id, float scale, serve_adapter_set *set);

/* Makes the set the standard; all others have the scale 0. */
void serve_adapters_set_standard(serve_adapters *adapters, const serve_adapter_set *set);

/* Lists the adapters as llama-server has them: an array of objects. A path is the file's name: where it lies
 * is the operator's. */
void serve_adapters_list(serve_adapters *adapters, weir__text *text);

/* Writes adapters as entries of /v1/models: all of them into an array that was begun, or only the one of that
 * name. False: there is none. */
bool serve_adapters_list_models(serve_adapters *adapters, const char *name, const char *parent,
                                int64_t created_s, int32_t n_ctx, weir__text *text);

/* The labels of lora_requests_info: how many there may be, and which ones requests use that run or wait.
 * Nothing where there are none. */
void serve_adapters_labels(serve_adapters *adapters, weir__text *text);

void serve_adapter_set_fini(serve_adapter_set *set);

/* The file that a request names, in the folder that the operator allows: an absolute path, freed with free.
 * NULL: there is none such in it. */
char *serve_adapters_path(const char *folder, const char *name);

#endif
