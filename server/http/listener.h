/* listener.h: the sockets that the server listens on. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_HTTP_LISTENER_H
#define WEIR_SERVER_HTTP_LISTENER_H

#include "server/request/serve.h"

weir_status serve_listener_open(serve_server *server, weir_error *error);
void serve_listener_close(serve_server *server);
void serve_listener_go_on(serve_server *server); /* accepts again after descriptors ran out */

#endif
