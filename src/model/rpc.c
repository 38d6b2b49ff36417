/* rpc.c: a worker for models of other machines.
 * SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/member.h"
#include "model/model.h"
#include "params/members.h"

#define LISTEN_DEFAULT "127.0.0.1:50052"

weir_status weir__rpc_check(weir_error *error)
{
#ifdef WEIR_RPC
    (void)error;
    return WEIR_OK;
#else
    return weir__error_set(error, WEIR_UNSUPPORTED, "rpc",
                           "this weir was built without weir rpc and --rpc: WEIR_WITH_RPC=ON "
                           "scripts/build.sh builds it with them");
#endif
}

void weir_rpc_params_init(weir_rpc_params *params, size_t size)
{
    weir__members_init(&weir__rpc_members, params, size);
    if (params != NULL && size > offsetof(weir_rpc_params, listen)) params->listen = LISTEN_DEFAULT;
}

/* True for loopback, and for RFC 1918's and RFC 3927's addresses. */
static bool is_private(uint32_t address)
{
    return address >> 24 == 127 || address >> 24 == 10 || address >> 20 == (172u << 4 | 1) ||
           address >> 16 == (192u << 8 | 168) || address >> 16 == (169u << 8 | 254);
}

/* ggml does not say why it cannot listen. */
static weir_status check_free(const char *listen, const struct sockaddr_in *at, weir_error *error)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    bool bound = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                 bind(fd, (const struct sockaddr *)at, sizeof *at) == 0;
    int why = errno;
    if (fd >= 0) close(fd);
    if (bound) return WEIR_OK;
    return weir__error_set(error, WEIR_IO, "listen", "cannot listen on %.64s: %s", listen, strerror(why));
}

static weir_status read_listen(const weir_rpc_params *params, struct sockaddr_in *at, weir_error *error)
{
    const char *listen = params->listen, *colon = listen != NULL ? strrchr(listen, ':') : NULL;
    char host[INET_ADDRSTRLEN], *end = NULL;
    long port = 0;
    size_t length = colon != NULL ? (size_t)(colon - listen) : sizeof host;
    bool valid = length < sizeof host && colon[1] >= '0' && colon[1] <= '9';
    if (valid) {
        memcpy(host, listen, length);
        host[length] = '\0';
        port = strtol(colon + 1, &end, 10);
        valid = *end == '\0' && port >= 1 && port <= 65535 && inet_pton(AF_INET, host, &at->sin_addr) == 1;
    }
    if (!valid)
        return weir__invalid(error, WEIR_ERROR_FORM, "listen",
                             "`listen` is \"%.64s\"; give an IPv4 address and a port from 1 to 65535, such "
                             "as " LISTEN_DEFAULT,
                             listen != NULL ? listen : "NULL");
    at->sin_family = AF_INET;
    at->sin_port = htons((uint16_t)port);
    if (params->insecure || is_private(ntohl(at->sin_addr.s_addr))) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_CONFLICT, "listen",
                         "%s is neither a loopback nor a private address, and anyone who reaches a worker "
                         "can crash it and read its memory; `insecure` (--insecure-rpc) allows it",
                         host);
}

weir_status weir_rpc_run(const weir_rpc_params *given, weir_error *error)
{
    weir_rpc_params params = weir_rpc_params_default();
    weir_status status = weir__sized_take(&params, sizeof params, given, "params", error);
    if (status == WEIR_OK) status = weir__members_check(&weir__rpc_members, &params, "", error);
    struct sockaddr_in at = {0};
    if (status == WEIR_OK) status = read_listen(&params, &at, error);
    if (status == WEIR_OK) status = weir__rpc_check(error);
    if (status == WEIR_OK) status = check_free(params.listen, &at, error);
    if (status != WEIR_OK) return status;
    if (params.n_threads == 0) params.n_threads = weir__cpu_count();
#ifndef WEIR_NO_LLAMA
    return weir__backend_llama.rpc_serve(&params, error);
#else
    return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this build has no llama.cpp");
#endif
}
