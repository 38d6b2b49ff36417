/* paths.h: the table of paths. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_HTTP_PATHS_H
#define WEIR_SERVER_HTTP_PATHS_H

#include "server/request/serve.h"

/* The name that stands in a path at its row's star, as it was sent; at NULL: the row has none. */
typedef struct serve_path_name {
    const char *at;
    size_t n;
    bool is_id; /* and gives access */
} serve_path_name;

/* The row of a path [n] as it was sent: nothing in it but a name may be percent-encoded. NULL: there is none
 * with this method; *allow: the methods of those with another one, or NULL. *name: the first one's. */
const serve_route *serve_route_find(const char *method, const char *path, size_t n, serve_path_name *name,
                                    const char **allow);

/* The form in which the API of a path writes errors, also where nothing is at the path. NULL: as OpenAI's. */
serve_error_form *serve_route_error(const char *path);

#endif
