/* transfer.h: HTTP requests, several at a time in one thread, by libcurl. Nothing else includes its header.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TRANSFER_TRANSFER_H
#define WEIR_TRANSFER_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

struct sockaddr;

/* Transfers under way, and connections that are kept for the next request. One thread at a time. */
typedef struct weir__transfers weir__transfers;
typedef struct weir__transfer weir__transfer;

typedef enum weir__transfer_end {
    WEIR__TRANSFER_WHOLE, /* an answer came, of whatever status, and all of it */
    WEIR__TRANSFER_LEFT,  /* on_header or on_bytes returned false */
    WEIR__TRANSFER_NO_MEMORY,
    WEIR__TRANSFER_BAD_URL,
    WEIR__TRANSFER_CLOSED,     /* nobody listens there */
    WEIR__TRANSFER_BARRED,     /* may_connect refused an address of the host, and no other answered */
    WEIR__TRANSFER_UNREACHED,  /* there is no such host, or no connection to it */
    WEIR__TRANSFER_DISTRUSTED, /* its certificate proves nothing */
    WEIR__TRANSFER_LATE,       /* total_ms or idle_ms were over */
    WEIR__TRANSFER_NOT_HTTP,
    WEIR__TRANSFER_CUT, /* for another reason before its end */
} weir__transfer_end;

/* The head of an answer. */
typedef struct weir__transfer_head {
    long status;      /* of HTTP; 0 = none came */
    const char *type; /* Content-Type; NULL = none */
    int64_t length;   /* of the body; -1 = unknown */
} weir__transfer_head;

/* The end of a transfer; texts are valid during on_end. */
typedef struct weir__transfer_result {
    weir__transfer_end end;
    weir__transfer_head head;
    const char *problem; /* why the answer is not whole: a short text, the same for all that end so */
    const char *detail;  /* or one that names hosts and numbers */
    const char *next;    /* where a redirect points; NULL = it is none */
    int64_t retry_s;     /* Retry-After; 0 = not given */
} weir__transfer_result;

/* A GET, or a POST with a body, over HTTP/1.1. Redirects are not followed. Certificates are trusted as curl's
 * command would (CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR). */
typedef struct weir__transfer_request {
    const char *url;
    const char *unix_path;           /* of the socket; NULL = TCP */
    const char *body;                /* outlives the transfer; NULL = GET */
    const char *const *headers;      /* NULL-terminated lines; NULL = none */
    const char *proxy, *no_proxy;    /* NULL = as the environment says; proxy "" = none */
    long connect_ms;                 /* the most for a connection */
    long total_ms, idle_ms;          /* the most for everything, and without a byte; 0 = no limit */
    long buffer_bytes;               /* that are read at once, for long answers; 0 = libcurl's default */
    const char *secret, *secret_for; /* a line of the head, where url has the origin of secret_for; or NULL */
    /* A line of an answer's head; bytes of its body. False ends the transfer. on_header may be NULL. */
    bool (*on_header)(const char *line, size_t n, void *user);
    /* True if a connection to this address, of a name that was resolved, may be opened; NULL = to any. With a
     * proxy it is the proxy's address. */
    bool (*may_connect)(const struct sockaddr *address, void *user);
    bool (*on_bytes)(const weir__transfer_head *head, const char *bytes, size_t n, void *user);
    /* The transfer is freed when it returns. */
    void (*on_end)(const weir__transfer_result *result, void *user);
    void *user;
} weir__transfer_request;

/* The parts of a URL that decide where it leads. */
typedef struct weir__transfer_url {
    char host[256]; /* lower case; an IPv6 address has no brackets, a name no final dot */
    uint16_t port;
    bool secure, is_default_port;
} weir__transfer_url;

/* Reads a URL as libcurl will. False: it is no http or https URL, or it has a user or a password. */
bool weir__transfer_read_url(const char *url, weir__transfer_url *parts);

/* True if this weir was built with libcurl. If not, there are no transfers. */
extern const bool weir__transfer_exists;

/* most: connections that are kept; 0 = a few. NULL: out of memory. */
weir__transfers *weir__transfers_create(long most);

/* Frees the pool of connections; no transfer may be under way. NULL is ignored. */
void weir__transfers_destroy(weir__transfers *transfers);

/* Begins one; it goes on in weir__transfers_wait. NULL: out of memory. */
weir__transfer *weir__transfers_start(weir__transfers *transfers, const weir__transfer_request *request);

/* Waits up to timeout_ms for bytes, or until fds [n], at most 2, can be read; takes the bytes and ends
 * finished transfers. The bits of fds from which something can be read. */
unsigned weir__transfers_wait(weir__transfers *transfers, const int *fds, unsigned n, int timeout_ms);

/* Makes one request and waits for its end; no other transfer may be under way. OK: on_end was called.
 * ABORTED: on_tick, called about ten times a second with the request's user, returned false. NO_MEMORY. */
weir_status weir__transfers_run(weir__transfers *transfers, const weir__transfer_request *request,
                                bool (*on_tick)(void *user));

/* Ends it without a word. Not within its own functions. NULL is ignored. */
void weir__transfer_drop(weir__transfer *transfer);

#endif
