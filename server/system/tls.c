/* tls.c: TLS in front of HTTP, by OpenSSL. SPDX-License-Identifier: Apache-2.0 */
#include "tls.h"

#include <limits.h>
#include <openssl/err.h>

#include "base/error.h"

/* HTTP/1.1 only; a client that offers only other protocols is refused. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out, const unsigned char *in,
                           unsigned n_in, void *user)
{
    static const unsigned char protocols[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    (void)ssl, (void)user;
    if (SSL_select_next_proto(&chosen, n_out, protocols, sizeof protocols - 1, in, n_in) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

weir_status serve_tls_create(const char *cert, const char *key, SSL_CTX **tls, weir_error *error)
{
    *tls = NULL;
    if (cert == NULL) return WEIR_OK;
    SSL_CTX *made = SSL_CTX_new(TLS_server_method());
    if (made == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for TLS");
    SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
    SSL_CTX_set_options(made,
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    SSL_CTX_set_options(made, SSL_OP_IGNORE_UNEXPECTED_EOF); /* see serve_tls_read */
#endif
    SSL_CTX_set_mode(made, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                               SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(made, choose_protocol, NULL);
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(made, cert) == 1 &&
        SSL_CTX_use_PrivateKey_file(made, key, SSL_FILETYPE_PEM) == 1 &&
        SSL_CTX_check_private_key(made) == 1) {
        *tls = made;
        return WEIR_OK;
    }
    const char *why = ERR_reason_error_string(ERR_peek_error());
    SSL_CTX_free(made);
    return weir__error_set(error, WEIR_IO, "tls_cert", "the certificate %s or its key %s cannot be used: %s",
                           cert, key, why != NULL ? why : "unknown error");
}

SSL *serve_tls_accept(SSL_CTX *tls, int fd)
{
    SSL *ssl = SSL_new(tls);
    if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

/* Translates the result of a call of OpenSSL; `ended`: the other side will send no more. */
static int translate_result(SSL *ssl, int result, int ended)
{
    if (result > 0) return result;
    switch (SSL_get_error(ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return SERVE_TLS_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return ended;
    default: return SERVE_TLS_GONE;
    }
}

static int int_length(size_t n)
{
    return n > INT_MAX ? INT_MAX : (int)n;
}

int serve_tls_shake(SSL *ssl)
{
    ERR_clear_error();
    return translate_result(ssl, SSL_do_handshake(ssl), SERVE_TLS_GONE);
}

/* The end of TCP without close_notify is an end as well: a request says its length, so that a part of one is
 * never taken for all of it, and complete ones are answered (RFC 9112, 9.8). */
int serve_tls_read(SSL *ssl, void *bytes, size_t n)
{
    ERR_clear_error();
    return translate_result(ssl, SSL_read(ssl, bytes, int_length(n)), 0);
}

int serve_tls_write(SSL *ssl, const void *bytes, size_t n)
{
    ERR_clear_error();
    return translate_result(ssl, SSL_write(ssl, bytes, int_length(n)), SERVE_TLS_GONE);
}
