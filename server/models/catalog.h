/* catalog.h: the models that requests may name, and those of them that are in memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_MODELS_CATALOG_H
#define WEIR_SERVER_MODELS_CATALOG_H

#include "loaded.h"
#include "model.h"
#include "server/request/serve.h"

typedef struct serve_catalog serve_catalog;

/* Creates the catalog. Without models in the parameters there is one, which serve_server_ready brings.
 * NO_MEMORY, INVALID (models). */
weir_status serve_catalog_create(const serve_params *params, serve_catalog **out, weir_error *error);

/* Destroys the catalog. No call may have a lease. NULL is ignored. */
void serve_catalog_destroy(serve_catalog *catalog);

/* Sets the publisher, and the functions that add an engine to it and remove one. Call it before the first
 * lease. */
typedef bool serve_catalog_joined(serve_kv_events *events, const char *model, weir_engine *engine);
typedef void serve_catalog_left(serve_kv_events *events, const weir_engine *engine);
void serve_catalog_publish(serve_catalog *catalog, serve_kv_events *events, serve_catalog_joined *joined,
                           serve_catalog_left *left);

/* Adds the engine of the only model, which the caller loaded. False: out of memory. */
bool serve_catalog_join(serve_catalog *catalog, const char *name, weir_engine *engine);

/* All below: any thread. */

/* The pool that loads the models; NULL: there is one model, which the caller loaded. */
weir_pool *serve_catalog_pool(const serve_catalog *catalog);

/* The parameters' models in place of these. Requests keep the one that they have. INVALID, NO_MEMORY: nothing
 * has changed. */
weir_status serve_catalog_set(serve_catalog *catalog, const serve_params *params, weir_error *error);

/* The model that has this name, or an adapter of it. NULL, "", "default": the first one. Held. NULL: there is
 * none. */
serve_model *serve_catalog_find(serve_catalog *catalog, const char *name);

bool serve_catalog_has(serve_catalog *catalog, const char *name);

/* True if it is a model's own name, which no adapter may have. */
bool serve_catalog_names(serve_catalog *catalog, const char *name);

/* Appends the models' names, in quotes, as far as a message has room for them. */
void serve_catalog_add_names(serve_catalog *catalog, weir__text *text);

/* All models, held. False: out of memory. */
bool serve_catalog_list(serve_catalog *catalog, serve_model ***models, size_t *n);
void serve_catalog_list_fini(serve_model **models, size_t n);

/* Locks the catalog, so that the models in memory stay there. The model's; NULL: it is not in memory, or
 * `model` is NULL. */
serve_loaded *serve_catalog_lock(serve_catalog *catalog, const serve_model *model);
void serve_catalog_unlock(serve_catalog *catalog);

/* The first one of the models in memory, which are linked; while it is locked. */
serve_loaded *serve_catalog_loaded(serve_catalog *catalog);

/* The server's part of a leased model, which stays as long as the lease. NULL: out of memory. */
serve_loaded *serve_catalog_enter(serve_catalog *catalog, const serve_model *model, const weir_lease *lease);

/* ---- Names in requests ---- */

/* True if `name`, a request's "model", is one of this server's, or NULL. *adapter: the same where it is an
 * adapter's, else NULL; borrowed. Of a tagged route, an unknown name loses its tag. False: the call has its
 * answer. */
bool serve_name_read(serve_call *call, const json_t *name, const char **adapter);

/* Bytes of a name before the ":latest" that Ollama's clients add; 0: it has none. */
size_t serve_name_untagged(const char *name);

#endif
