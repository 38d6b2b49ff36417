/* http.c: requests, as llhttp reads them. Its callbacks keep the target and the fields of a head; where the
 * head ends, a call is made and passes the gate. Room for a body is reserved before it is read: all of it
 * where its length is known, else chunk by chunk. At the end of the request a worker gets the call, or its
 * handler runs here. Bytes that are no request are refused, and the connection closes: nobody knows where the
 * next request begins.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "connection.h"
#include "server/api/common/lease.h"
#include "server/request/call.h"
#include "server/request/workers.h"
#include "server/routers/router.h"

#define BODIES_MAX 16                 /* × body_bytes: the limit of all bodies together */
#define SMALL_BODY ((size_t)64 << 10) /* always has room, so that announced large ones keep nobody out */
#define EXTRA_MAX  SERVE_HEAD_BYTES   /* of chunks' extensions and of fields behind them */

static serve_connection *connection_of(const llhttp_t *parser)
{
    return parser->data;
}

/* ---- Heads ---- */

static int add_bytes(llhttp_t *parser, const char *bytes, size_t n)
{
    serve_head *head = &connection_of(parser)->head;
    if (head->complete) {
        head->n_extra += n;
        return head->n_extra > EXTRA_MAX ? -1 : 0;
    }
    weir__text_add(&head->bytes, bytes, n);
    return head->bytes.failed ? -1 : 0;
}

static int end_bytes(llhttp_t *parser)
{
    serve_head *head = &connection_of(parser)->head;
    if (!head->complete) weir__text_add(&head->bytes, "", 1);
    return head->bytes.failed ? -1 : 0;
}

/* Ends a value, without blanks behind it. */
static int end_value(llhttp_t *parser)
{
    weir__text *bytes = &connection_of(parser)->head.bytes;
    while (!connection_of(parser)->head.complete && bytes->n > 0 &&
           (bytes->bytes[bytes->n - 1] == ' ' || bytes->bytes[bytes->n - 1] == '\t'))
        bytes->n--;
    return end_bytes(parser);
}

/* ---- Calls ---- */

static serve_call *create_call(serve_connection *connection)
{
    const llhttp_t *parser = &connection->head.parser;
    serve_server *server = connection->server;
    serve_call *call = serve_call_create(server, connection);
    if (call == NULL) return NULL;
    connection->call = call;
    call->http_1_0 = parser->http_major == 1 && parser->http_minor == 0;
    call->deadline_ns = call->began_ns + (int64_t)server->params.live.body_s * WEIR__NS_PER_S;
    return call;
}

/* The bytes are no request that can be answered, and where the next one begins is not known. */
static void refuse_request(serve_connection *connection, int status, const char *code, const char *message)
{
    serve_call *call = connection->call != NULL ? connection->call : create_call(connection);
    if (call == NULL) {
        connection->starved = true;
        return;
    }
    call->close = true;
    call->state = SERVE_ANSWERING;
    serve_call_refuse(call, status, NULL, code, "%s", message);
}

static bool has_body(const llhttp_t *parser)
{
    return (parser->flags & F_CHUNKED) != 0 || parser->content_length > 0;
}

static serve_share_result hold_body(serve_call *call, size_t n)
{
    size_t most = (size_t)call->body_most, small = most / 16 < SMALL_BODY ? most / 16 : SMALL_BODY;
    serve_share *bodies = &call->server->bodies;
    if (call->body_length + n > small) return serve_share_take(bodies, call->owner, n, most * BODIES_MAX);
    return serve_share_hold(bodies, call->owner, n) ? SERVE_SHARE_OK : SERVE_SHARE_NO_MEMORY;
}

/* Reserves room for a body whose length is known. */
static bool admit_body(serve_call *call, uint64_t n)
{
    serve_server *server = call->server;
    uint64_t most = (uint64_t)call->body_most;
    bool close = call->close;
    call->close = true; /* if it is refused: the rest of the body is not read */
    if (call->body_length + n > most || n > most)
        return serve_call_refuse(call, 413, NULL, "body_too_large",
                                 "the body is larger than the limit of %llu bytes", (unsigned long long)most);
    switch (hold_body(call, (size_t)n)) {
    case SERVE_SHARE_FULL:
        return serve_call_refuse(call, 503, NULL, "too_many_bodies",
                                 "too many large requests are being read");
    case SERVE_SHARE_NO_MEMORY: return serve_call_no_memory(call);
    default: break;
    }
    call->body_length += (size_t)n;
    call->close = close;
    size_t used = serve_share_used(&server->bodies);
    if (used > server->most_bodies) server->most_bodies = used;
    return true;
}

/* A client that waits for a word before it sends its body gets it, unless the body is there. */
static void check_expectation(serve_connection *connection)
{
    int n;
    const char *expect = serve_gate_field(connection, "Expect", &n);
    if (expect == NULL || connection->call->http_1_0) return;
    connection->head.expects = n == 1 && strcasecmp(expect, "100-continue") == 0;
    if (!connection->head.expects)
        serve_call_refuse(connection->call, 417, NULL, "expectation_failed",
                          "the only supported Expect is 100-continue");
}

static int end_head(llhttp_t *parser)
{
    serve_connection *connection = connection_of(parser);
    serve_call *call = create_call(connection);
    bool body = has_body(parser), close = connection->server->draining || !llhttp_should_keep_alive(parser) ||
                                          parser->method == HTTP_CONNECT;
    if (call == NULL) return -1;
    connection->head.complete = true;
    snprintf(call->method, sizeof call->method, "%s", llhttp_method_name((llhttp_method_t)parser->method));
    call->head_only = parser->method == HTTP_HEAD;
    call->has_body = body;
    bool passed = serve_gate_pass(call, close);
    call->owner = serve_owner_of(call->key, connection->address);
    if (passed) {
        if ((parser->flags & F_CHUNKED) == 0) (void)admit_body(call, parser->content_length);
        if (!call->begun && body) check_expectation(connection);
    }
    weir__text_fini(&connection->head.bytes);
    if (!call->begun) {
        call->close = close;
        return 0;
    }
    call->state = SERVE_ANSWERING;
    return body ? HPE_PAUSED : 0;
}

/* ---- Bodies ---- */

static int add_body(llhttp_t *parser, const char *bytes, size_t n)
{
    serve_call *call = connection_of(parser)->call;
    if ((parser->flags & F_CHUNKED) != 0 && !admit_body(call, n)) {
        call->state = SERVE_ANSWERING;
        return HPE_USER;
    }
    weir__text_add(&call->body, bytes, n);
    return call->body.failed ? HPE_USER : 0;
}

/* A chunk that cannot fit is refused before it comes. */
static int begin_chunk(llhttp_t *parser)
{
    serve_call *call = connection_of(parser)->call;
    uint64_t most = (uint64_t)call->body_most;
    if (parser->content_length <= most && call->body_length + parser->content_length <= most) return 0;
    (void)admit_body(call, parser->content_length);
    call->state = SERVE_ANSWERING;
    return HPE_USER;
}

static int end_request(llhttp_t *parser)
{
    connection_of(parser)->head.ended = true;
    return HPE_PAUSED;
}

static void handle_call(serve_call *call)
{
    call->n_received = call->body.n;
    if (call->begun) {
        serve_call_send(call);
    } else if (call->route->work) {
        serve_workers_give(serve_prefix_workers(call), call, serve_lease_work);
    } else {
        call->state = SERVE_ANSWERING;
        serve_lease_glance(call);
        serve_call_send(call);
    }
}

/* ---- Pieces ---- */

static const llhttp_settings_t parser_settings = {
    .on_url = add_bytes,
    .on_url_complete = end_bytes,
    .on_header_field = add_bytes,
    .on_header_field_complete = end_bytes,
    .on_header_value = add_bytes,
    .on_header_value_complete = end_value,
    .on_headers_complete = end_head,
    .on_chunk_extension_name = add_bytes,
    .on_chunk_extension_value = add_bytes,
    .on_chunk_header = begin_chunk,
    .on_body = add_body,
    .on_message_complete = end_request,
};

void serve_http_reset(serve_connection *connection)
{
    serve_head *head = &connection->head;
    weir__text_fini(&head->bytes);
    memset(head, 0, sizeof *head);
    llhttp_init(&head->parser, HTTP_REQUEST, &parser_settings);
    head->parser.data = connection;
}

void serve_http_late(serve_connection *connection)
{
    char message[64];
    snprintf(message, sizeof message, "the request's head did not come within %d s",
             connection->server->params.live.head_s);
    refuse_request(connection, 408, "request_timeout", message);
    if (!connection->dead && connection->call != NULL) serve_call_send(connection->call);
}

static void refuse_error(serve_connection *connection, llhttp_errno_t error)
{
    const llhttp_t *parser = &connection->head.parser;
    const char *why = llhttp_get_error_reason(parser);
    char message[160];
    bool known =
        parser->http_major == 1 && parser->http_minor <= 1; /* then the error is behind the version */
    bool version = error == HPE_PAUSED_H2_UPGRADE || (error == HPE_INVALID_VERSION && !known);
    snprintf(message, sizeof message, "this is not HTTP/1.1: %s",
             why != NULL && why[0] != '\0' ? why : "invalid");
    bool no_call = error == HPE_CB_HEADERS_COMPLETE; /* which end_head could not make */
    if (no_call || connection->head.bytes.failed ||
        (connection->call != NULL && connection->call->body.failed))
        refuse_request(connection, 503, "out_of_memory", "the server is out of memory for this request");
    else if (connection->head.n_extra > EXTRA_MAX)
        refuse_request(connection, 400, "bad_chunks",
                       "the body's chunks have extensions or trailers of more than 16 KiB");
    else if (version)
        refuse_request(connection, 505, "http_version", "this server speaks HTTP/1.1 and HTTP/1.0");
    else
        refuse_request(connection, 400, "bad_request", message);
}

/* Gives llhttp the bytes received, of a head no more than its limit. False: it gets no more. */
static bool read_piece(serve_connection *connection)
{
    serve_head *head = &connection->head;
    const char *bytes = connection->in.bytes + connection->in_at;
    size_t n = connection->in.n - connection->in_at;
    if (!head->complete && n > SERVE_HEAD_BYTES - head->n_read) n = SERVE_HEAD_BYTES - head->n_read;
    llhttp_errno_t error = llhttp_execute(&head->parser, bytes, n);
    size_t n_taken = error == HPE_OK ? n : (size_t)(llhttp_get_error_pos(&head->parser) - bytes);
    connection->in_at += n_taken;
    head->n_read += n_taken;
    if (error == HPE_OK && !head->complete && head->n_read == SERVE_HEAD_BYTES)
        refuse_request(connection, 431, "head_too_large",
                       "the request's head is larger than the limit of 16 KiB");
    if (error != HPE_OK && error != HPE_PAUSED && error != HPE_PAUSED_UPGRADE)
        refuse_error(connection, error);
    return error == HPE_OK && !connection->dead && !connection->starved &&
           (connection->call == NULL || !connection->call->begun);
}

void serve_http_read(serve_connection *connection)
{
    serve_head *head = &connection->head;
    while (connection->in_at < connection->in.n && (connection->call == NULL || !connection->call->begun))
        if (!read_piece(connection)) break;
    if (connection->dead || !head->complete || connection->call == NULL) return;
    if (head->ended) {
        handle_call(connection->call);
    } else if (head->expects && !connection->call->begun && connection->call->body.n == 0) {
        head->expects = false;
        (void)serve_connection_say(connection, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    }
}
