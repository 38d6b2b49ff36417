/* tape.c: the replay buffer of a stream that outlives its connections (ADR 0044). The answer goes to a call
 * without a connection, which writes each event into the tape; readers copy events from there at their own
 * pace, by number. All tapes share a limit of bytes: over it, the owner with most bytes loses a tape that
 * does not run, else the older half of its longest, and a reader that still needed that is ended. Some time
 * after its last reader has left, an answer that still comes is given up, unless it runs in the background,
 * and one that has ended is forgotten.
 * SPDX-License-Identifier: Apache-2.0 */
#include "tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/access/keys.h"
#include "server/models/model.h"
#include "server/request/call.h"
#include "server/request/workers.h"

/* The place where an event ends in the bytes; headed: the tape's head goes before its own. */
typedef struct mark {
    size_t end;
    bool headed;
} mark;

/* Invariant: bytes hold the events first … first + n_marks - 1, one behind the other. A tape that nobody can
 * find any more (`lost`) lives as long as its readers and its answer. */
struct serve_tape {
    serve_tapes *of;
    serve_tape *next;
    char id[SERVE_ID_MAX]; /* zeroes behind it */
    int32_t key;
    serve_owner owner;
    serve_answer *answer; /* NULL: nothing more will come */
    serve_call *readers;
    int32_t n_readers;
    int64_t alone_ns; /* since when it has no reader, or has ended without one */
    weir__text head, bytes;
    mark *marks; /* [n_marks] */
    size_t n_marks, capacity;
    uint64_t first; /* the number of the first event that is still here; they count from 1 */
    bool ended, failed, lost, background;
    bool revoked;   /* its key is no longer one: nobody can come for it */
    size_t counted; /* of of->bytes */
};

struct serve_tapes {
    serve_server *server;
    serve_tape *newest;
    serve_share bytes;
    serve_tapes_stats stats; /* n and the counters */
};

/* ---- Room ---- */

/* False: out of memory, which can be only the first time. */
static bool count_tape(serve_tape *tape)
{
    size_t n = sizeof *tape + tape->head.capacity + tape->bytes.capacity + tape->capacity * sizeof(mark);
    serve_share *bytes = &tape->of->bytes;
    if (n > tape->counted && !serve_share_hold(bytes, tape->owner, n - tape->counted)) return false;
    if (n < tape->counted) serve_share_release(bytes, tape->owner, tape->counted - n);
    tape->counted = n;
    return true;
}

static void tape_destroy(serve_tape *tape)
{
    serve_tape **at = &tape->of->newest;
    while (*at != tape) at = &(*at)->next;
    *at = tape->next;
    tape->of->stats.n--;
    serve_share_release(&tape->of->bytes, tape->owner, tape->counted);
    weir__text_fini(&tape->head);
    weir__text_fini(&tape->bytes);
    weir__mem_free(tape->marks);
    weir__mem_free(tape);
}

/* True if its answer still comes, or it is read: then it stays. */
static bool is_running(const serve_tape *tape)
{
    return tape->answer != NULL || tape->n_readers > 0;
}

/* The owner's tapes that run, or those that do not. */
static size_t n_tapes(const serve_tapes *tapes, serve_owner owner, bool running)
{
    size_t n = 0;
    for (const serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next)
        n += is_running(tape) == running && serve_owner_is(tape->owner, owner);
    return n;
}

static size_t n_running(const serve_tapes *tapes)
{
    size_t n = 0;
    for (const serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next) n += is_running(tape);
    return n;
}

/* Drops the tape of the owner that does not run and was read longest ago. False: there is none. */
static bool drop_tape_of(serve_tapes *tapes, serve_owner owner)
{
    serve_tape *oldest = NULL;
    for (serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next)
        if (!is_running(tape) && serve_owner_is(tape->owner, owner) &&
            (oldest == NULL || tape->alone_ns < oldest->alone_ns))
            oldest = tape;
    if (oldest == NULL) return false;
    tapes->stats.n_dropped++;
    tape_destroy(oldest);
    return true;
}

/* Drops a tape of the owner who has most that do not run. False: there is none. */
static bool drop_tape(serve_tapes *tapes)
{
    const serve_tape *victim = NULL;
    size_t most = 0;
    for (const serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next) {
        if (is_running(tape)) continue;
        size_t n = n_tapes(tapes, tape->owner, false);
        if (n > most) victim = tape;
        if (n > most) most = n;
    }
    return victim != NULL && drop_tape_of(tapes, victim->owner);
}

/* Gives back unused memory of its arrays. */
static void fit_tape(serve_tape *tape)
{
    char *bytes = weir__mem_realloc(tape->bytes.bytes, tape->bytes.n + 1);
    mark *marks = weir__mem_realloc(tape->marks, tape->n_marks * sizeof *marks);
    if (bytes != NULL) {
        tape->bytes.bytes = bytes;
        tape->bytes.capacity = tape->bytes.n + 1;
    }
    if (marks != NULL) {
        tape->marks = marks;
        tape->capacity = tape->n_marks;
    }
    (void)count_tape(tape);
}

/* Forgets its first n events. */
static void cut_tape(serve_tape *tape, size_t n)
{
    size_t gone = tape->marks[n - 1].end;
    tape->bytes.n -= gone;
    tape->n_marks -= n;
    tape->first += n;
    memmove(tape->bytes.bytes, tape->bytes.bytes + gone, tape->bytes.n + 1);
    memmove(tape->marks, tape->marks + n, tape->n_marks * sizeof *tape->marks);
    for (size_t i = 0; i < tape->n_marks; i++) tape->marks[i].end -= gone;
    fit_tape(tape);
}

/* The owner's longest tape that still has events. */
static serve_tape *longest_of(const serve_tapes *tapes, serve_owner owner)
{
    serve_tape *longest = NULL;
    for (serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next)
        if (tape->n_marks > 0 && serve_owner_is(tape->owner, owner) &&
            (longest == NULL || tape->counted > longest->counted))
            longest = tape;
    return longest;
}

/* Brings all tapes down to their limit: of the owner with most bytes drops a tape that does not run, else the
 * older half of its longest. So no owner has less than its share. */
static void make_room(serve_tapes *tapes)
{
    serve_owner owner;
    while (serve_share_used(&tapes->bytes) > (size_t)tapes->server->params.resume_bytes &&
           serve_share_largest(&tapes->bytes, &owner)) {
        if (drop_tape_of(tapes, owner)) continue;
        serve_tape *longest = longest_of(tapes, owner);
        if (longest == NULL) return;
        cut_tape(longest, (longest->n_marks + 1) / 2);
    }
}

/* ---- Readers ---- */

static uint64_t last_event(const serve_tape *tape)
{
    return tape->first + tape->n_marks - 1;
}

static void attach_reader(serve_tape *tape, serve_call *reader, uint64_t from)
{
    reader->tape = tape;
    reader->tape_at = from;
    reader->stream_id = tape->id;
    reader->reader_before = NULL;
    reader->reader_after = tape->readers;
    if (tape->readers != NULL) tape->readers->reader_before = reader;
    tape->readers = reader;
    tape->n_readers++;
    serve_call_begin(reader, "text/event-stream; charset=utf-8");
}

void serve_tape_leave(serve_call *reader)
{
    serve_tape *tape = reader->tape;
    reader->tape = NULL;
    reader->stream_id = NULL;
    *(reader->reader_before != NULL ? &reader->reader_before->reader_after : &tape->readers) =
        reader->reader_after;
    if (reader->reader_after != NULL) reader->reader_after->reader_before = reader->reader_before;
    if (--tape->n_readers > 0) return;
    tape->alone_ns = weir__clock_now_ns();
    if (tape->lost && tape->answer == NULL) tape_destroy(tape);
}

/* The stream's end, for a reader that cannot have its rest. */
static void end_reader(serve_call *reader, int status, const char *code, const char *message)
{
    size_t at = serve_call_begin_piece(reader);
    weir__text_add_string(&reader->out, "data: {\"error\":");
    serve_call_error_json(&reader->out, status, NULL, code, message);
    weir__text_add_string(&reader->out, "}\n\n");
    serve_call_end_piece(reader, at);
    serve_call_end(reader);
    serve_call_send(reader);
}

/* An event that begins with its type has this as its name, too, as in streams without a tape. */
static void write_name(const char *event, weir__text *out)
{
    static const char before[] = "{\"type\":\"";
    if (strncmp(event, before, sizeof before - 1) != 0) return;
    event += sizeof before - 1;
    weir__text_printf(out, "event: %.*s\n", (int)strcspn(event, "\""), event);
}

static void write_event(const serve_tape *tape, uint64_t number, weir__text *out)
{
    size_t i = (size_t)(number - tape->first), begin = i > 0 ? tape->marks[i - 1].end : 0;
    weir__text_printf(out, "id: %llu\n", (unsigned long long)number);
    if (tape->head.n == 0) write_name(tape->bytes.bytes + begin, out);
    weir__text_add_string(out, "data: ");
    if (tape->marks[i].headed) weir__text_add(out, tape->head.bytes, tape->head.n);
    weir__text_add(out, tape->bytes.bytes + begin, tape->marks[i].end - begin);
    weir__text_add_string(out, "\n\n");
}

void serve_tape_feed(serve_call *reader)
{
    const serve_tape *tape = reader->tape;
    if (reader->ended) return;
    if (reader->tape_at < tape->first) {
        end_reader(reader, 503, "events_gone",
                   "the reader was too slow: events that it has not read are gone");
        return;
    }
    size_t at = serve_call_begin_piece(reader);
    while (reader->tape_at <= last_event(tape) && reader->out.n - reader->out_at < SERVE_BUFFER_MAX)
        write_event(tape, reader->tape_at++, &reader->out);
    serve_call_end_piece(reader, at);
    if (tape->ended && reader->tape_at > last_event(tape)) serve_call_end(reader);
    if (reader->ended || reader->out.n > reader->out_at) serve_call_send(reader);
}

/* ---- Events ---- */

void serve_tape_add(serve_tape *tape, const weir__text *event)
{
    bool headed = event->n >= tape->head.n && memcmp(event->bytes, tape->head.bytes, tape->head.n) == 0;
    size_t skipped = headed ? tape->head.n : 0;
    tape->failed = tape->failed || event->failed ||
                   !weir__mem_grow(&tape->marks, &tape->capacity, tape->n_marks + 1, sizeof *tape->marks);
    if (tape->failed) return;
    weir__text_add(&tape->bytes, event->bytes + skipped, event->n - skipped);
    tape->failed = tape->bytes.failed;
    if (tape->failed) return;
    tape->marks[tape->n_marks++] = (mark){.end = tape->bytes.n, .headed = headed};
    for (serve_call *reader = tape->readers; reader != NULL; reader = reader->reader_after)
        serve_tape_feed(reader);
    (void)count_tape(tape);
    make_room(tape->of);
}

void serve_tape_pass(serve_tape *tape, const weir__text *event, bool urgent)
{
    for (serve_call *reader = tape->readers; reader != NULL; reader = reader->reader_after) {
        size_t waiting = reader->out.n - reader->out_at;
        if (event->failed || reader->ended || reader->tape_at <= last_event(tape) ||
            waiting >= (urgent ? SERVE_BUFFER_MAX : 1))
            continue;
        size_t at = serve_call_begin_piece(reader);
        weir__text_add(&reader->out, event->bytes, event->n);
        serve_call_end_piece(reader, at);
        serve_call_send(reader);
    }
}

void serve_tape_end(serve_tape *tape)
{
    if (tape->failed) return;
    tape->ended = true;
    tape->alone_ns = weir__clock_now_ns();
    fit_tape(tape);
    for (serve_call *reader = tape->readers; reader != NULL; reader = reader->reader_after)
        serve_tape_feed(reader);
}

bool serve_tape_failed(const serve_tape *tape)
{
    return tape->failed;
}

/* ---- Answers ---- */

/* True if there is room for one more that runs; those that do not run have what is left. False: the call has
 * its answer. */
static bool has_room(serve_call *call)
{
    serve_tapes *tapes = call->server->tapes;
    size_t n = n_running(tapes), held = n_tapes(tapes, call->owner, true);
    if (!serve_share_admits(held, 1, n, SERVE_TAPES_MOST))
        return serve_call_refuse(call, 429, NULL, "too_many_streams",
                                 "%zu resumable streams run, %zu of them yours; allowed: %d in all, and of "
                                 "one caller at most three times as many as are free",
                                 n, held, SERVE_TAPES_MOST);
    if (tapes->stats.n >= SERVE_TAPES_MOST) (void)drop_tape(tapes); /* there is one: not all of them run */
    return true;
}

/* Gives a call without a connection what belongs to the request's answer: its name in the log, its trace, its
 * model, its place among its key's, and the answer itself. */
static void hand_over(serve_call *call, serve_call *maker)
{
    memcpy(maker->method, call->method, sizeof maker->method);
    memcpy(maker->path, call->path, sizeof maker->path);
    memcpy(maker->id, call->id, sizeof maker->id);
    memcpy(maker->client, call->client, sizeof maker->client);
    memcpy(maker->agent, call->agent, sizeof maker->agent);
    memcpy(maker->request_id, call->request_id, sizeof maker->request_id);
    memcpy(maker->session, call->session, sizeof maker->session);
    maker->began_ns = call->began_ns;
    maker->model = serve_model_hold(call->model);
    maker->loaded = call->loaded;
    maker->lease = call->lease;
    maker->key = call->key;
    maker->owner = call->owner;
    maker->counted = call->counted;
    maker->body_length = call->body_length;
    maker->answer = call->answer;
    maker->trace = call->trace;
    maker->load_ns = call->load_ns;
    maker->state = SERVE_ANSWERING;
    maker->begun = true;
    maker->status = 200;
    call->loaded = NULL;
    call->lease = NULL;
    call->counted = 0;
    call->body_length = 0;
    call->answer = NULL;
    call->trace = NULL;
}

serve_tape *serve_tape_start(serve_call *call, const char id[SERVE_ID_MAX], const weir__text *head,
                             bool background, bool unread, serve_call **made)
{
    serve_call *maker = NULL;
    serve_tapes *tapes = call->server->tapes;
    serve_tape *tape = NULL;
    if (!has_room(call)) return NULL;
    if ((tape = weir__mem_calloc(1, sizeof *tape)) == NULL) goto no_memory;
    weir__text_add(&tape->head, head->bytes, head->n);
    if (head->failed || tape->head.failed) goto no_memory;
    tape->of = tapes;
    tape->owner = call->owner;
    if (!count_tape(tape)) goto no_memory;
    if ((maker = serve_call_create(call->server, NULL)) == NULL) goto no_memory;
    tape->answer = call->answer;
    hand_over(call, maker);
    memcpy(tape->id, id, sizeof tape->id);
    tape->next = tapes->newest;
    tapes->newest = tape;
    tapes->stats.n++;
    tape->key = call->key;
    tape->background = background;
    tape->first = 1;
    *made = maker;
    if (unread) return tape;
    attach_reader(tape, call, 1);
    serve_call_send(call);
    return tape;
no_memory:
    if (tape != NULL) {
        serve_share_release(&tapes->bytes, call->owner, tape->counted);
        weir__text_fini(&tape->head);
    }
    weir__mem_free(tape);
    serve_call_no_memory(call);
    return NULL;
}

void serve_tape_orphan(serve_tape *tape)
{
    tape->answer = NULL;
    tape->lost = tape->lost || !tape->ended;
    for (serve_call *reader = tape->readers; reader != NULL && !tape->ended; reader = reader->reader_after)
        if (!reader->ended)
            end_reader(reader, 503, "given_up",
                       "the answer was abandoned: the server has no room for it, or is stopping");
    if (tape->lost && tape->n_readers == 0) tape_destroy(tape);
}

/* ---- GET /v1/streams/ID ---- */

/* Compares all ids as a whole: the time reveals nothing about them. */
serve_tape *serve_tape_of(const serve_call *call, const char *id)
{
    serve_tape *found = NULL;
    for (serve_tape *tape = call->server->tapes->newest; tape != NULL; tape = tape->next)
        if (serve_secret_is(id, tape->id, SERVE_ID_MAX) && tape->key == call->key && !tape->lost)
            found = tape;
    return found;
}

serve_tape *serve_tape_find(serve_call *call)
{
    char id[SERVE_ID_MAX] = {0};
    size_t n = strlen(call->name);
    if (n < sizeof id) memcpy(id, call->name, n);
    serve_tape *found = serve_tape_of(call, id);
    if (found == NULL)
        serve_call_refuse(
            call, 404, NULL, "stream_not_found",
            "there is no stream \"%.*s\" here that this key may read: without a reader an answer "
            "goes on for %d s, and is kept for %d s after its end",
            SERVE_ID_MAX, call->name, call->server->params.grace_s, call->server->params.live.keep_s);
    return found;
}

/* Reads after which event to go on. False: the call has its answer. */
static bool read_position(serve_call *call, const serve_tape *tape, uint64_t offset, uint64_t *after)
{
    const char *text = call->position,
               *field = call->position_from != NULL ? call->position_from : "Last-Event-ID";
    size_t n = strlen(text);
    bool number = n > 0 && n <= 18 && strspn(text, "0123456789") == n;
    bool counts = call->position_from != NULL && strcmp(call->position_from, "starting_after") == 0;
    if (!counts) offset = 0;
    uint64_t least = tape->first > offset ? tape->first - 1 - offset : 0;
    *after = number ? strtoull(text, NULL, 10) + offset : 0;
    if (call->position_from != NULL && (!number || *after > last_event(tape)))
        return serve_call_refuse(
            call, 400, field, "invalid_value",
            "\"%.32s\" is not the number of an event that this stream has had; allowed: %llu to %llu", text,
            (unsigned long long)least, (unsigned long long)(last_event(tape) - offset));
    if (*after + 1 < tape->first)
        return serve_call_refuse(call, 410, field, "events_gone",
                                 "the stream's first events are no longer kept; allowed: %llu to %llu",
                                 (unsigned long long)least, (unsigned long long)(last_event(tape) - offset));
    return true;
}

void serve_tape_read(serve_call *call, serve_tape *tape, uint64_t offset)
{
    uint64_t after;
    if (!read_position(call, tape, offset, &after)) return;
    if (tape->ended && after == last_event(tape)) { /* a 204 makes an EventSource stop asking */
        serve_call_answer_more(call, 204, NULL, "Cache-Control: no-store\r\n", "", 0);
        return;
    }
    tape->of->stats.n_resumed++;
    attach_reader(tape, call, after + 1);
    serve_tape_feed(call);
}

void serve_stream_read(serve_call *call)
{
    serve_tape *tape = serve_tape_find(call);
    if (tape != NULL) serve_tape_read(call, tape, 0);
}

/* ---- All of them ---- */

/* Ends the answers of readers that came back to a stream, which have no other end; a request's own one goes
 * on (ADR 0052). */
static void dismiss_readers(serve_tape *tape)
{
    for (serve_call *reader = tape->readers; reader != NULL; reader = reader->reader_after)
        if (strcmp(reader->method, "GET") == 0 && !reader->ended)
            end_reader(reader, 401, "invalid_api_key", "the API key of this reader was removed");
}

void serve_tapes_revoke(serve_tapes *tapes)
{
    for (serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next) {
        bool revoked = !serve_keys_are_valid(tapes->server->keys, tape->key);
        if (revoked) dismiss_readers(tape);
        if (revoked && !tape->revoked && tape->answer != NULL && tape->n_readers == 0)
            tape->alone_ns = weir__clock_now_ns();
        tape->revoked = revoked;
    }
}

serve_tapes *serve_tapes_create(serve_server *server)
{
    serve_tapes *tapes = weir__mem_calloc(1, sizeof *tapes);
    if (tapes == NULL) return NULL;
    tapes->server = server;
    serve_share_init(&tapes->bytes);
    return tapes;
}

void serve_tapes_destroy(serve_tapes *tapes)
{
    if (tapes == NULL) return;
    while (tapes->newest != NULL) tape_destroy(tapes->newest);
    serve_share_fini(&tapes->bytes);
    weir__mem_free(tapes);
}

serve_answer *serve_tape_answer(const serve_tape *tape)
{
    return tape->answer;
}

serve_answer *serve_tapes_drop(serve_tapes *tapes, int64_t now_ns)
{
    const serve_params *params = &tapes->server->params;
    for (serve_tape *tape = tapes->newest, *next; tape != NULL; tape = next) {
        next = tape->next;
        if (tape->answer != NULL && tape->background && !tape->revoked) continue;
        int64_t patience_s = tape->answer != NULL ? params->grace_s : params->live.keep_s;
        if (tape->n_readers > 0 || now_ns - tape->alone_ns < patience_s * WEIR__NS_PER_S) continue;
        if (tape->answer == NULL) {
            tape_destroy(tape);
            continue;
        }
        tapes->stats.n_abandoned++;
        return tape->answer;
    }
    return NULL;
}

serve_tapes_stats serve_tapes_get_stats(const serve_tapes *tapes)
{
    serve_tapes_stats stats = tapes->stats;
    stats.n_bytes = serve_share_used((serve_share *)&tapes->bytes);
    for (const serve_tape *tape = tapes->newest; tape != NULL; tape = tape->next) {
        stats.n_running += tape->answer != NULL;
        stats.n_alone += tape->answer != NULL && tape->n_readers == 0;
    }
    return stats;
}
