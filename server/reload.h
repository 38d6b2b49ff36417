/* reload.h: what a running server reads anew. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_RELOAD_H
#define WEIR_SERVER_RELOAD_H

#include "serve.h"

/* Service thread: takes what serve_server_reload wants to be taken. */
void serve_reload_take(serve_server *server);

#endif
