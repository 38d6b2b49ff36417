/* tape.h: streams that outlive their connections: the events by their numbers, kept for readers that come and
 * go (ADR 0044). The service thread's alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_TAPE_H
#define WEIR_SERVER_API_COMMON_TAPE_H

#include "server/models/kept.h"
#include "server/request/serve.h"

#define SERVE_TAPES_MOST 256 /* that run: the most of one caller that is alone are three quarters */

serve_tapes *serve_tapes_create(serve_server *server);
void serve_tapes_destroy(serve_tapes *tapes); /* no call is left */

/* Moves the call's answer, which was submitted, to a call without a connection (*made), which lives until
 * the answer has ended. Unless it is `unread`, makes the call the first reader of the answer's events. id:
 * the answer's; head: the common beginning of most events; background: it runs on without readers. NULL:
 * there is no room, the call has its refusal and still its answer. Else the caller sets the answer's tape and
 * call. */
serve_tape *serve_tape_start(serve_call *call, const char id[SERVE_ID_MAX], const weir__text *head,
                             bool background, bool unread, serve_call **made);

/* Adds an event, without "data: ". Readers get it at once, as far as they have room. */
void serve_tape_add(serve_tape *tape, const weir__text *event);
void serve_tape_end(serve_tape *tape);

/* Sends a whole event or comment to the readers that have all others, but does not keep it. urgent: also to
 * those that have not read what came before. */
void serve_tape_pass(serve_tape *tape, const weir__text *event, bool urgent);

/* True if an event was lost because memory ran out: give the answer up. */
bool serve_tape_failed(const serve_tape *tape);

/* The answer is gone. If it had not ended, the readers get an error, and the tape is no longer found. */
void serve_tape_orphan(serve_tape *tape);

/* The call has room for further events, or leaves. */
void serve_tape_feed(serve_call *reader);
void serve_tape_leave(serve_call *reader);

/* The tape that the call's path names. NULL: the call has its answer. */
serve_tape *serve_tape_find(serve_call *call);

/* The tape with this id, which has SERVE_ID_MAX bytes, if the call's key may read it; else NULL. */
serve_tape *serve_tape_of(const serve_call *call, const char *id);

/* Makes the call a reader, from the event that it asks for. offset: an event's number less the client's
 * number in starting_after. */
void serve_tape_read(serve_call *call, serve_tape *tape, uint64_t offset);

/* NULL: nothing more will come. */
serve_answer *serve_tape_answer(const serve_tape *tape);

/* Drops tapes that ended and that nobody has read for too long. Returns the answer of one that has not ended,
 * which the caller destroys, and with it the tape; NULL: there is none. */
serve_answer *serve_tapes_drop(serve_tapes *tapes, int64_t now_ns);

/* Keys were replaced: whose key was removed reads no further, and its answers in the background end as others
 * that nobody reads. */
void serve_tapes_revoke(serve_tapes *tapes);

/* call_end.c: ends answers that nobody has read for too long. */
void serve_tapes_sweep(serve_tapes *tapes, int64_t now_ns);

typedef struct serve_tapes_stats {
    int32_t n, n_running, n_alone; /* all; whose answer still comes; of these, those without a reader */
    size_t n_bytes;
    uint64_t n_resumed, n_abandoned,
        n_dropped; /* readers that came; answers given up; tapes, when room runs out */
} serve_tapes_stats;

serve_tapes_stats serve_tapes_get_stats(const serve_tapes *tapes);

serve_handler serve_stream_read, serve_stream_cancel;

#endif
