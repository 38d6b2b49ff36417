/* tls.h: TLS in front of HTTP, by OpenSSL. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_SYSTEM_TLS_H
#define WEIR_SERVER_SYSTEM_TLS_H

#include <openssl/ssl.h>
#include <weir/weir.h>

/* PEM files: a certificate with its chain, and its key; without a certificate *tls is NULL. Errors: IO
 * (tls_cert), NO_MEMORY. */
weir_status serve_tls_create(const char *cert, const char *key, SSL_CTX **tls, weir_error *error);

/* Begins TLS on a connection that was accepted; NULL: out of memory. */
SSL *serve_tls_accept(SSL_CTX *tls, int fd);

/* Results as of read(2) and write(2), with these values for errors. */
#define SERVE_TLS_AGAIN (-1) /* not now */
#define SERVE_TLS_GONE  (-2)
int serve_tls_shake(SSL *ssl); /* 1: done */
int serve_tls_read(SSL *ssl, void *bytes, size_t n);
int serve_tls_write(SSL *ssl, const void *bytes, size_t n);

#endif
