/* hosts.h: by which names the server may be asked. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_HTTP_HOSTS_H
#define WEIR_SERVER_HTTP_HOSTS_H

#include "server/settings/params.h"

typedef enum serve_host {
    SERVE_HOST_NONE,  /* it is no host with or without a port */
    SERVE_HOST_OTHER, /* not one of this server's */
    SERVE_HOST_OWN,   /* an address, localhost, the machine's name, where it listens, or params->hosts */
} serve_host;

/* local: over a Unix socket, which also has names without a dot. */
serve_host serve_hosts_find(const serve_params *params, const char *authority, bool local);

#endif
