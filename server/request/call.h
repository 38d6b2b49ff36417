/* call.h: one request and its answer, as bytes. The struct is in serve.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_REQUEST_CALL_H
#define WEIR_SERVER_REQUEST_CALL_H

#include "serve.h"

serve_call *serve_call_create(serve_server *server, serve_connection *connection);

/* The answer's X-Request-Id: the client's own, if it is fit for a header, else call->id. */
const char *serve_call_request_id(const serve_call *call);

/* True if the call is an operator's now: its key is one, or there are no keys, only this machine reaches the
 * server (ADR 0095), and no page of another origin asks (ADR 0132). A reload may change it. */
bool serve_call_operates(const serve_call *call);

#define SERVE_LEFT 499 /* the status of a call whose client left; no answer has it */

/* The status for log and metrics; 0: the call has none. */
int serve_call_status(const serve_call *call);

/* Sends a whole answer; later ones for the same call are ignored. 429 and 503 have Retry-After. A large one
 * takes its part of the answers' quota, or becomes 503. */
void serve_call_answer(serve_call *call, int status, const char *type, const char *bytes, size_t n);

/* Sends a text likewise, which is freed. It has the answers' quota already if the request decides its
 * length. */
void serve_call_answer_text(serve_call *call, int status, const char *type, weir__text *text);

/* Sends 200 and a text of JSON likewise, which gets a newline at its end. */
void serve_call_answer_json(serve_call *call, weir__text *text);

/* Sends a whole answer likewise; `more` are lines of the head, each with its end. */
void serve_call_answer_more(serve_call *call, int status, const char *type, const char *more,
                            const char *bytes, size_t n);

/* Errors, in the shape of the call's route; field and code may be NULL. All return false. */
bool serve_call_refuse(serve_call *call, int status, const char *field, const char *code, const char *format,
                       ...) __attribute__((format(printf, 5, 6)));
bool serve_call_no_memory(serve_call *call);

/* Ends the call, whose job was interrupted: the client has left, the server stops, or --work-timeout has
 * passed. Returns false. */
bool serve_call_interrupted(serve_call *call);

/* Asks the worker's interrupt once in some thousand calls; for each turn of a loop over what a request has.
 * False: the client has left, or --work-timeout has passed, and the call has its answer. */
bool serve_call_goes_on(serve_call *call);
bool serve_call_stopping(serve_call *call);

/* Appends the error in OpenAI's shape, as an object, the value of "error". */
void serve_call_error_json(weir__text *text, int status, const char *field, const char *code,
                           const char *message);

/* Begins an answer of n bytes, which are added to call->out as they are. */
void serve_call_begin_sized(serve_call *call, const char *type, uint64_t n);

/* Begins an answer of unknown length; its body goes through serve_call_begin_piece and end_piece. */
void serve_call_begin(serve_call *call, const char *type);

/* Enclose bytes that are added to call->out; no bytes = no piece. */
size_t serve_call_begin_piece(serve_call *call);
void serve_call_end_piece(serve_call *call, size_t at);
void serve_call_end(serve_call *call);

/* True if the client has let bytes wait for longer than stall_s. Called at each sweep. Service thread. */
bool serve_call_is_stalled(serve_call *call, int64_t now_ns);

/* Counts bytes of the call's images and sounds until its end, or until they are dropped. False: its owner may
 * have no more of media_bytes now, and nothing was counted. */
static inline bool serve_call_hold_media(serve_call *call, size_t n)
{
    serve_server *server = call->server;
    bool held = serve_share_take(&server->media, call->owner, n, (size_t)server->params.media_bytes) ==
                SERVE_SHARE_OK;
    call->media_bytes += held ? n : 0;
    return held;
}

static inline void serve_call_drop_media(serve_call *call, size_t n)
{
    call->media_bytes -= n;
    serve_share_release(&call->server->media, call->owner, n);
}

/* ---- Retries ---- */

#define SERVE_RETRY_MOST_S 120 /* clients wait no longer for a second try */

/* Sets the call's Retry-After. False: that is too long, and the call gets none. */
bool serve_retry_after(serve_call *call, int64_t seconds);

/* Settles call->retry_s for a refusal with this status and call->code. Afterwards it is SERVE_NEVER where no
 * retry helps. False: clients do not repeat a request after this status anyway. */
bool serve_retry_decide(serve_call *call, int status);

#endif
