/* parser.c: answers, parsed piece by piece: content, reasoning and tool calls. llama/answer.cpp runs the
 * parser of a template that has a form of calls; calls.c reads those of the others.
 *
 * llama.cpp's parsers read a whole text and return the message so far. So the text is kept and parsed again
 * as it grows, and the new part of the message is delivered. A message that contradicts the delivered part is
 * skipped. If that lasts for PATIENCE bytes or to the end, the rest of the answer is plain text: everything
 * after the last delivered piece becomes content, once.
 *
 * The text grows by a character at a time, however it is fed. So the message depends on the text alone, and
 * not on how it was split: a stream's pieces put together are the whole answer, for any text.
 *
 * Cost: the text is parsed again after it has grown by a fiftieth, so all parses together read at most about
 * 51 times the answer, at some 100 MB/s. Mostly nothing is parsed: once content or reasoning has reached the
 * end of the text, bytes that begin no delimiter of the form continue it, and a form without tools has no
 * delimiters after its content.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/deep.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "chat/calls.h"
#include "chat/chat.h"

#define PATIENCE 256 /* longer than any delimiter that a parse may stop in */

/* Limits on brackets in the whole text: parsers recurse over nested JSON, with 2.2 kB of stack per level. */
#define BRACKETS_HERE 64    /* on the caller's thread */
#define BRACKETS_MAX  20000 /* on a thread with more stack */
#define DEEP_STACK    ((size_t)64 << 20)

/* A queued delta; its texts are in the parser's `out`. */
typedef struct delta {
    weir_delta_kind kind;
    int32_t index;
    size_t at, length;
    size_t id; /* WEIR_DELTA_TOOL_CALL */
} delta;

typedef struct call {
    bool begun; /* its head was delivered */
    weir__text arguments;
} call;

/* Invariant: content, reasoning and calls are the delivered ones, after those of a continued message; raw[0
 * .. settled) is the text that they came from, as far as is known; settled <= raw.n. With reads_calls,
 * calls_reader reads content, and has read content[0 .. read). */
struct weir_chat_parser {
    weir_chat *chat;                /* held */
    const weir__llama_chat *reader; /* NULL: all is content */
    weir__llama_form form;
    weir__utf8 utf8;
    weir__text fed; /* well-formed text; fed[taken .. n) is not yet in raw */
    size_t taken;
    weir__text raw;
    size_t settled;
    size_t parsed;   /* raw.n at the last parse */
    size_t failing;  /* raw.n at the first of the parses that fail now; SIZE_MAX = the last one succeeded */
    size_t brackets; /* in raw and in the text that it continues */
    weir__text content, reasoning;
    bool reads_calls;
    weir__chat_calls_reader calls_reader;
    size_t read;
    call *calls; /* [n_calls] */
    size_t n_calls;
    size_t calls_capacity;
    bool verbatim; /* raw ends within text of verbatim_kind, all of it delivered */
    weir_delta_kind verbatim_kind;
    bool plain; /* all that follows is content, without parsing */
    bool finished;
    bool kept; /* a feed failed after it added its text to raw; the repeated call must not add it again */
    weir__text out;
    delta *deltas; /* [n_deltas]; those before `next` were taken */
    size_t n_deltas;
    size_t deltas_capacity;
    size_t next;
};

static weir_status no_memory(weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, NULL,
                           "out of memory for an answer; nothing is lost when this call is repeated");
}

/* ---- Deltas ---- */

/* True if the text continues the last delta, which was not taken yet. */
static bool is_more(const weir_chat_parser *p, weir_delta_kind kind, int32_t index)
{
    const delta *last = p->next < p->n_deltas ? &p->deltas[p->n_deltas - 1] : NULL;
    return last != NULL && kind != WEIR_DELTA_TOOL_CALL && last->kind == kind && last->index == index;
}

/* Queues a delta, or makes the last one longer; id may be NULL. False: out of memory, nothing was queued. */
static bool queue_delta(weir_chat_parser *p, weir_delta_kind kind, int32_t index, const char *bytes, size_t n,
                        const char *id)
{
    size_t at = p->out.n, id_at = 0;
    if (is_more(p, kind, index)) {
        if (!weir__text_reserve(&p->out, n + 1)) return false;
        p->out.n--; /* the NUL */
        weir__text_add(&p->out, bytes, n);
        weir__text_add(&p->out, "", 1);
        p->deltas[p->n_deltas - 1].length += n;
        return true;
    }
    if (!weir__mem_grow(&p->deltas, &p->deltas_capacity, p->n_deltas + 1, sizeof *p->deltas)) return false;
    bool ok = weir__text_add(&p->out, bytes, n) && weir__text_add(&p->out, "", 1);
    if (ok && id != NULL) {
        id_at = p->out.n;
        ok = weir__text_add(&p->out, id, strlen(id) + 1);
    }
    if (!ok) {
        weir__text_cut(&p->out, at);
        return false;
    }
    p->deltas[p->n_deltas++] = (delta){kind, index, at, n, id_at};
    return true;
}

/* Delivers more content or reasoning. read_calls queues content that holds calls. */
static bool deliver_piece(weir_chat_parser *p, weir_delta_kind kind, const char *bytes, size_t n)
{
    weir__text *sent = kind == WEIR_DELTA_CONTENT ? &p->content : &p->reasoning;
    size_t before = sent->n;
    if (n == 0) return true;
    if (!weir__text_add(sent, bytes, n)) return false;
    if (kind == WEIR_DELTA_CONTENT && p->reads_calls) return true;
    if (queue_delta(p, kind, -1, bytes, n, NULL)) return true;
    sent->n = before;
    return false;
}

/* The bytes of the rest up to the end of the mark that ends reasoning, if all that was delivered is
 * reasoning and the mark is next. A form that the answer then contradicts settles the reasoning alone. */
static size_t count_closing(const weir_chat_parser *p)
{
    const weir__chat_reasoning *reasoning = &p->chat->reasoning;
    const char *rest = p->raw.bytes + p->settled;
    size_t left = p->raw.n - p->settled, space = 0;
    if (p->reasoning.n == 0 || p->content.n > 0 || p->n_calls > 0) return 0;
    while (space < left && strchr(" \n", rest[space]) != NULL) space++;
    for (size_t i = 0; i < reasoning->n_ends; i++) {
        size_t n = strlen(reasoning->ends[i]);
        if (n <= left - space && memcmp(rest + space, reasoning->ends[i], n) == 0) return space + n;
    }
    return 0;
}

static bool deliver_rest(weir_chat_parser *p)
{
    size_t from = p->settled + count_closing(p);
    if (!deliver_piece(p, WEIR_DELTA_CONTENT, p->raw.bytes + from, p->raw.n - from)) return false;
    p->settled = p->raw.n;
    p->plain = true;
    return true;
}

#define ID_LENGTH 9 /* Mistral's templates take no other ids in a history */

/* Letters and digits: enough to distinguish calls, not a secret. */
static void make_id(char id[ID_LENGTH + 1])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    static _Atomic uint64_t counter;
    uint64_t z = (uint64_t)weir__clock_now_ns() ^ (uint64_t)getpid() << 40;
    z += atomic_fetch_add(&counter, 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9); /* splitmix64 */
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    for (int i = 0; i < ID_LENGTH; i++, z /= sizeof letters - 1) id[i] = letters[z % (sizeof letters - 1)];
    id[ID_LENGTH] = '\0';
}

static bool queue_read(void *user, const weir_delta *read)
{
    char id[ID_LENGTH + 1];
    bool head = read->kind == WEIR_DELTA_TOOL_CALL;
    if (head) make_id(id);
    return queue_delta(user, read->kind, read->index, read->text, read->length, head ? id : NULL);
}

/* False: out of memory; calls_reader keeps its progress. */
static bool read_calls(weir_chat_parser *p)
{
    size_t used;
    bool ok = weir__chat_calls_feed(&p->calls_reader, p->content.bytes + p->read, p->content.n - p->read,
                                    queue_read, p, &used);
    p->read += used;
    return ok && (!p->finished || weir__chat_calls_end(&p->calls_reader, queue_read, p));
}

/* Moves fed text into raw. False: out of memory, nothing was moved. */
static bool take_fed(weir_chat_parser *p, size_t n)
{
    const char *bytes = p->fed.bytes + p->taken;
    if (!weir__text_add(&p->raw, bytes, n)) return false;
    for (size_t i = 0; i < n; i++) p->brackets += weir__chat_is_bracket(bytes[i]);
    p->taken += n;
    return true;
}

#ifndef WEIR_NO_LLAMA

/* The end of the next occurrence of these bytes after `settled`, or 0. */
static size_t find_raw(const weir_chat_parser *p, const char *bytes, size_t n)
{
    const char *from = p->raw.bytes + p->settled, *end = p->raw.bytes + p->raw.n;
    while (n > 0 && (size_t)(end - from) >= n) {
        const char *at = memchr(from, bytes[0], (size_t)(end - from) - n + 1);
        if (at == NULL) break;
        if (memcmp(at, bytes, n) == 0) return (size_t)(at - p->raw.bytes) + n;
        from = at + 1;
    }
    return 0;
}

/* Moves `settled` behind the delivered text, whose leading space may come from the prompt. Text that does not
 * occur, such as unescaped text, settles all of raw, and returns false. */
static bool settle_raw(weir_chat_parser *p, const char *bytes, size_t n)
{
    size_t end = 0, skip = 0;
    while (skip < n && (end = find_raw(p, bytes + skip, n - skip)) == 0 &&
           strchr(" \t\r\n", bytes[skip]) != NULL)
        skip++;
    if (end != 0)
        p->settled = end;
    else if (skip < n)
        p->settled = p->raw.n;
    return end != 0;
}

/* ---- Messages ---- */

static bool is_space(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(" \t\r\n", bytes[i]) == NULL || bytes[i] == '\0') return false;
    return true;
}

/* True if `now` continues the text that was sent. A shorter text brings nothing new; that of a whole answer
 * lacks at most white space. */
static bool goes_on(const weir__text *sent, const char *now, size_t n, bool whole)
{
    size_t common = n < sent->n ? n : sent->n;
    if (common > 0 && memcmp(sent->bytes, now, common) != 0) return false;
    return !whole || common == sent->n || is_space(sent->bytes + common, sent->n - common);
}

static bool message_goes_on(const weir_chat_parser *p, const weir__llama_message *m, bool whole)
{
    if (!goes_on(&p->content, m->content, m->content_length, whole) ||
        !goes_on(&p->reasoning, m->reasoning, m->reasoning_length, whole))
        return false;
    for (size_t i = 0; i < p->n_calls; i++) {
        if (!p->calls[i].begun) continue;
        if (i >= m->n_calls ||
            !goes_on(&p->calls[i].arguments, m->calls[i].arguments, m->calls[i].arguments_length, whole))
            return false;
    }
    return true;
}

static bool deliver_text(weir_chat_parser *p, weir_delta_kind kind, const char *now, size_t n)
{
    size_t sent = kind == WEIR_DELTA_CONTENT ? p->content.n : p->reasoning.n;
    if (n <= sent) return true;
    if (!deliver_piece(p, kind, now + sent, n - sent)) return false;
    p->verbatim = settle_raw(p, now + sent, n - sent) && p->settled == p->raw.n;
    p->verbatim_kind = kind;
    return true;
}

/* A call's name can grow until its arguments begin ("{" is there from the start), and in some forms its id
 * comes last. */
static bool is_settled(const weir_chat_parser *p, const weir__llama_message *m, size_t i, bool finished)
{
    const weir__llama_call *c = &m->calls[i];
    if (finished || i + 1 < m->n_calls) return true;
    return c->arguments_length >= 2 && (!p->form.has_ids || c->id_length > 0);
}

/* open: more arguments may come, though the parser has closed their object. */
static bool deliver_call(weir_chat_parser *p, const weir__llama_call *c, size_t i, bool open)
{
    call *sent = &p->calls[i];
    char id[256];
    if (!sent->begun) {
        if (c->id_length > 0 && c->id_length < sizeof id) {
            memcpy(id, c->id, c->id_length);
            id[c->id_length] = '\0';
        } else {
            make_id(id);
        }
        if (!queue_delta(p, WEIR_DELTA_TOOL_CALL, (int32_t)i, c->name, c->name_length, id)) return false;
        sent->begun = true;
        settle_raw(p, c->name, c->name_length);
    }
    size_t length = c->arguments_length, before = sent->arguments.n;
    if (open && length > 0 && c->arguments[length - 1] == '}') length--;
    if (length <= before) return true;
    const char *more = c->arguments + before;
    size_t n = length - before;
    if (!weir__text_add(&sent->arguments, more, n)) return false;
    if (!queue_delta(p, WEIR_DELTA_ARGUMENTS, (int32_t)i, more, n, NULL)) {
        sent->arguments.n = before;
        return false;
    }
    settle_raw(p, more, n);
    return true;
}

/* False: out of memory. */
static bool deliver_calls(weir_chat_parser *p, const weir__llama_message *m, bool finished)
{
    for (size_t i = 0; i < m->n_calls; i++) {
        if (i == p->n_calls) {
            if (!weir__mem_grow(&p->calls, &p->calls_capacity, i + 1, sizeof *p->calls)) return false;
            memset(&p->calls[p->n_calls++], 0, sizeof *p->calls);
        }
        if (!is_settled(p, m, i, finished)) break;
        bool open = p->form.loose_arguments && !p->finished && i + 1 == m->n_calls;
        if (!deliver_call(p, &m->calls[i], i, open)) return false;
    }
    return true;
}

/* Delivers the new part of the message. False: out of memory; queued deltas stay queued, and a parse delivers
 * the others. */
static bool deliver_message(weir_chat_parser *p, const weir__llama_message *m, bool finished)
{
    p->verbatim = false;
    bool ok = deliver_text(p, WEIR_DELTA_REASONING, m->reasoning, m->reasoning_length) &&
              deliver_text(p, WEIR_DELTA_CONTENT, m->content, m->content_length);
    if (!ok || m->n_calls > 0) p->verbatim = false;
    if (!ok || !deliver_calls(p, m, finished)) return false;
    if (p->verbatim && p->form.plain_tail && p->verbatim_kind == WEIR_DELTA_CONTENT) p->plain = true;
    p->verbatim = p->verbatim && p->form.has_breaks;
    return true;
}

/* ---- Parsing ---- */

typedef struct parse {
    const weir_chat_parser *parser;
    weir__llama_message *message;
    bool whole;
    weir_status status;
} parse;

/* True if a character was cut off, for which U+FFFD stands. */
static bool ends_with_half(const weir__text *raw)
{
    return raw->n >= 3 && memcmp(raw->bytes + raw->n - 3, "\xEF\xBF\xBD", 3) == 0;
}

static void run_parse(void *user)
{
    parse *a = user;
    const weir_chat_parser *p = a->parser;
    size_t n = p->raw.n;
    if (!a->whole && p->finished && ends_with_half(&p->raw)) n -= 3;
    if (!a->whole) n -= weir__llama_chat_undecided(p->reader, p->raw.bytes, n);
    a->status = weir__llama_chat_parse(p->reader, p->raw.bytes, n, a->whole, a->message, NULL);
}

/* WEIR_OK: *m is a message that continues the delivered one. BACKEND: there is none. NO_MEMORY. */
static weir_status parse_raw(const weir_chat_parser *p, bool whole, weir__llama_message *m)
{
    parse a = {p, m, whole, WEIR_OK};
    memset(m, 0, sizeof *m);
    if (p->brackets > BRACKETS_MAX) return WEIR_BACKEND;
    if (p->brackets <= BRACKETS_HERE)
        run_parse(&a);
    else if (weir__deep_run(run_parse, &a, DEEP_STACK, NULL) != WEIR_OK)
        return WEIR_NO_MEMORY;
    if (a.status != WEIR_OK) return a.status;
    if (message_goes_on(p, m, whole)) return WEIR_OK;
    weir__llama_message_fini(m);
    return WEIR_BACKEND;
}

static weir_status read_more(weir_chat_parser *p, weir_error *error)
{
    weir__llama_message m;
    bool ok = true;
    weir_status status = parse_raw(p, false, &m);
    if (status == WEIR_NO_MEMORY) return no_memory(error);
    p->verbatim = false;
    if (status == WEIR_OK && !m.broken)
        p->failing = SIZE_MAX;
    else if (p->failing == SIZE_MAX)
        p->failing = p->raw.n;
    if (status == WEIR_OK) {
        ok = deliver_message(p, &m, false);
        weir__llama_message_fini(&m);
    }
    if (ok && p->failing != SIZE_MAX && p->raw.n - p->failing >= PATIENCE) ok = deliver_rest(p);
    if (!ok) return no_memory(error); /* the repeated call parses the same text again */
    p->parsed = p->raw.n;
    return WEIR_OK;
}

/* True if the text ends with the character; it is removed. */
static bool take_last(const char *text, size_t *n, char last)
{
    if (*n == 0 || text[*n - 1] != last) return false;
    --*n;
    return true;
}

static const char probe_byte = '\1';

/* Parses the text with another character behind it: what ends with it goes on. Space at the end of a text
 * shows only then. As parse_raw. */
static weir_status parse_probed(weir_chat_parser *p, weir__llama_message *m)
{
    if (!weir__text_add(&p->raw, &probe_byte, 1)) return WEIR_NO_MEMORY;
    weir_status status = parse_raw(p, false, m);
    p->raw.bytes[--p->raw.n] = '\0';
    return status;
}

/* Delivers all that is left as reasoning, if the text ends within reasoning: if another character would be
 * reasoning, too. A parser of whole texts knows no such end, and would take the reasoning for content. */
static weir_status read_reasoning(weir_chat_parser *p, bool *within)
{
    weir__llama_message m;
    *within = false;
    if (p->verbatim && p->verbatim_kind == WEIR_DELTA_CONTENT) return WEIR_OK;
    weir_status status = parse_probed(p, &m);
    if (status != WEIR_OK) return status == WEIR_NO_MEMORY ? status : WEIR_OK;
    *within = take_last(m.reasoning, &m.reasoning_length, probe_byte);
    if (*within) {
        if (is_space(m.reasoning, m.reasoning_length)) m.reasoning_length = 0;
        if (!deliver_message(p, &m, false)) status = WEIR_NO_MEMORY;
        p->settled = p->raw.n;
    }
    weir__llama_message_fini(&m);
    return status;
}

/* Content that follows a schema ends at no delimiter. */
static bool has_schema(const weir_chat_parser *p)
{
    return p->chat->constraint != NULL && !p->chat->grammar.lazy && p->content.n > 0;
}

/* True if the rest begins a call, although it could be read as content: the grammar would not have let it. */
static bool is_call(const weir_chat_parser *p, const weir__llama_message *m)
{
    return m->n_calls == 0 && !has_schema(p) &&
           weir__llama_chat_calls(p->reader, p->raw.bytes + p->settled, p->raw.n - p->settled);
}

/* True if the rest of an answer that breaks off within its form is certainly markup. It is if a call's name
 * has begun, if nothing but calls may come, or if a delimiter has ended the text before it. */
static bool is_markup(const weir_chat_parser *p, const weir__llama_message *m)
{
    if (weir__llama_chat_rendered(p->reader)->calls_only) return true;
    for (size_t i = 0; i < m->n_calls; i++)
        if (m->calls[i].name_length > 0) return true;
    return !has_schema(p) &&
           weir__llama_chat_delimits(p->reader, p->raw.bytes + p->settled, p->raw.n - p->settled);
}

/* Parses the complete text. If it does not have the form from end to end, its beginning may: then that
 * counts, and the rest is content unless it is markup. */
static weir_status read_end(weir_chat_parser *p, weir_error *error)
{
    weir__llama_message m;
    bool whole = true, ok = true, drop_delta = false, within;
    weir_status status = read_reasoning(p, &within);
    if (status == WEIR_NO_MEMORY) return no_memory(error);
    if (within) return WEIR_OK;
    status = parse_raw(p, true, &m);
    if (status == WEIR_OK && is_call(p, &m)) {
        weir__llama_message_fini(&m);
        status = WEIR_BACKEND;
    }
    if (status == WEIR_BACKEND) {
        whole = false;
        status = parse_raw(p, false, &m);
    }
    if (status == WEIR_NO_MEMORY) return no_memory(error);
    if (status == WEIR_OK) {
        /* A call without a certain name does not count in a text that breaks off. */
        ok = deliver_message(p, &m, whole);
        drop_delta = whole || (!m.broken && is_markup(p, &m));
        weir__llama_message_fini(&m);
    }
    if (ok && !drop_delta) ok = deliver_rest(p);
    return ok ? WEIR_OK : no_memory(error);
}

/* Delivers bytes that certainly continue the text before them; a parse reads the rest of raw. */
static bool pass_through(weir_chat_parser *p)
{
    size_t end = p->settled;
    while (end < p->raw.n && !p->form.breaks[(unsigned char)p->raw.bytes[end]]) end++;
    if (!deliver_piece(p, p->verbatim_kind, p->raw.bytes + p->settled, end - p->settled)) return false;
    p->settled = end;
    if (end == p->raw.n)
        p->parsed = end;
    else
        p->verbatim = false;
    return true;
}

static weir_status read_raw(weir_chat_parser *p, weir_error *error)
{
    if (p->verbatim && !pass_through(p)) return no_memory(error);
    if (p->raw.n == p->parsed || (p->raw.n - p->parsed) * 50 < p->raw.n) return WEIR_OK;
    return read_more(p, error);
}

/* The bytes of fed text to read next: those that certainly continue the text before them, or a character. */
static size_t count_next(const weir_chat_parser *p)
{
    const char *next = p->fed.bytes + p->taken;
    size_t left = p->fed.n - p->taken, n = 0;
    while (p->verbatim && n < left && !p->form.breaks[(unsigned char)next[n]]) n++;
    if (n > 0 || left == 0) return n;
    for (n = 1; n < left && ((unsigned char)next[n] & 0xC0) == 0x80;) n++;
    return n;
}

/* Reads fed text to its end, or to where all that follows is content. */
static weir_status read_fed(weir_chat_parser *p, weir_error *error)
{
    weir_status status = read_raw(p, error); /* where memory was lacking, the last step was not completed */
    while (status == WEIR_OK && !p->plain && p->taken < p->fed.n) {
        if (!take_fed(p, count_next(p))) return no_memory(error);
        status = read_raw(p, error);
    }
    return status;
}

/* Reads the part of the answer that the prompt already holds, which is not delivered: a text that goes on,
 * and what some templates end a prompt with. False: out of memory. */
static bool read_prefill(weir_chat_parser *p)
{
    weir__llama_message m;
    weir_status status = parse_probed(p, &m);
    bool open = status == WEIR_OK && (take_last(m.reasoning, &m.reasoning_length, probe_byte) ||
                                      take_last(m.content, &m.content_length, probe_byte));
    if (!open && status == WEIR_OK) weir__llama_message_fini(&m);
    if (!open && status != WEIR_NO_MEMORY) status = parse_raw(p, false, &m); /* no text may have the probe */
    if (status != WEIR_OK) return status != WEIR_NO_MEMORY;
    bool ok = weir__text_add(&p->content, m.content, m.content_length) &&
              weir__text_add(&p->reasoning, m.reasoning, m.reasoning_length);
    weir__llama_message_fini(&m);
    return ok;
}

#endif

/* ---- The parser ---- */

static bool drop_delta(void *user, const weir_delta *read)
{
    (void)user, (void)read;
    return true;
}

/* Reads the beginning of the answer, which the prompt holds. False: out of memory. */
static bool begin_answer(weir_chat_parser *p)
{
    const char *begun = p->plain && p->chat->begun != NULL ? p->chat->begun : "";
    if (!weir__text_add(&p->raw, "", 0) || !weir__text_add_string(&p->content, begun)) return false;
#ifndef WEIR_NO_LLAMA
    if (!p->plain && !read_prefill(p)) return false;
#endif
    if (!p->reads_calls) return true;
    bool ok =
        weir__chat_calls_feed(&p->calls_reader, p->content.bytes, p->content.n, drop_delta, NULL, &p->read);
    p->calls_reader.seen.n = 0;
    return ok;
}

weir_status weir_chat_parser_create(weir_chat *chat, weir_chat_parser **parser, weir_error *error)
{
    if (chat == NULL) return weir__error_null(error, "chat");
    if (parser == NULL) return weir__error_null(error, "parser");
    weir_chat_parser *p = weir__mem_calloc(1, sizeof *p);
    if (p == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for an answer's parser");
    weir__utf8_init(&p->utf8);
    p->chat = weir_chat_hold(chat);
    p->reader = chat->plain ? NULL : chat->reader;
    p->plain = p->reader == NULL;
    p->failing = SIZE_MAX;
    p->reads_calls = chat->calls;
    p->calls_reader.form = chat->form;
#ifndef WEIR_NO_LLAMA
    if (p->reader != NULL) p->form = weir__llama_chat_rendered(p->reader)->form;
    const char *begun = p->reader != NULL ? weir__llama_chat_rendered(p->reader)->generation_prompt : "";
    for (; *begun != '\0'; begun++) p->brackets += weir__chat_is_bracket(*begun);
#endif
    if (!begin_answer(p)) {
        weir_chat_parser_destroy(p);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "out of memory for an answer's parser");
    }
    *parser = p;
    return WEIR_OK;
}

void weir_chat_parser_destroy(weir_chat_parser *parser)
{
    if (parser == NULL) return;
    for (size_t i = 0; i < parser->n_calls; i++) weir__text_fini(&parser->calls[i].arguments);
    weir__mem_free(parser->calls);
    weir__chat_calls_fini(&parser->calls_reader);
    weir__mem_free(parser->deltas);
    weir__text_fini(&parser->out);
    weir__text_fini(&parser->reasoning);
    weir__text_fini(&parser->content);
    weir__text_fini(&parser->raw);
    weir__text_fini(&parser->fed);
    weir_chat_release(parser->chat);
    weir__mem_free(parser);
}

/* Appends well-formed text to what is to be read. */
static bool add_fed(weir_chat_parser *p, const char *bytes, size_t length)
{
    if (p->taken == p->fed.n) p->fed.n = p->taken = 0;
    if (!weir__text_reserve(&p->fed, WEIR__UTF8_BOUND(length))) return false;
    p->fed.n += weir__utf8_feed(&p->utf8, bytes, length, p->fed.bytes + p->fed.n);
    return true;
}

/* Ends the text, with U+FFFD for a character that was cut off. */
static bool end_raw(weir_chat_parser *p)
{
    if (!weir__text_reserve(&p->raw, WEIR__UTF8_BOUND(0))) return false;
    p->raw.n += weir__utf8_flush(&p->utf8, p->raw.bytes + p->raw.n);
    p->raw.bytes[p->raw.n] = '\0';
    p->finished = true;
    return true;
}

/* Reads what was fed, and the end. */
static weir_status read_on(weir_chat_parser *p, bool finished, weir_error *error)
{
    weir_status status = WEIR_OK;
#ifndef WEIR_NO_LLAMA
    if (!p->finished && !p->plain) status = read_fed(p, error);
#endif
    if (status != WEIR_OK) return status;
    if (!take_fed(p, p->fed.n - p->taken)) return no_memory(error);
    if (finished && !p->finished && !end_raw(p)) return no_memory(error);
#ifndef WEIR_NO_LLAMA
    if (finished && !p->plain) return read_end(p, error);
#endif
    return !p->plain || deliver_rest(p) ? WEIR_OK : no_memory(error);
}

weir_status weir_chat_parser_feed(weir_chat_parser *parser, const char *text, size_t length, bool finished,
                                  weir_error *error)
{
    if (parser == NULL) return weir__error_null(error, "parser");
    if (text == NULL && length != 0 && length != WEIR_NUL)
        return weir__invalid(error, WEIR_ERROR_MISSING, "text", "`text` is NULL and length is %zu", length);
    if (parser->finished && !parser->kept && (text != NULL || !finished))
        return weir__error_set(error, WEIR_STATE, NULL,
                               "the answer was finished before; make another parser");
    if (length == WEIR_NUL) length = text != NULL ? strlen(text) : 0;
    if (length > SIZE_MAX / 4 - parser->raw.n - (parser->fed.n - parser->taken))
        return weir__error_set(error, WEIR_TOO_LONG, "length", "the answer is too long to be kept");
    if (parser->next == parser->n_deltas) parser->out.n = parser->n_deltas = parser->next = 0;
    if (!parser->finished && !parser->kept && !add_fed(parser, text, length)) return no_memory(error);
    weir_status status = read_on(parser, finished, error);
    if (status == WEIR_OK && parser->reads_calls && !read_calls(parser)) status = no_memory(error);
    parser->kept = status != WEIR_OK;
    return status;
}

weir_status weir_chat_parser_next(weir_chat_parser *parser, weir_delta *out)
{
    if (parser == NULL || out == NULL) return WEIR_INVALID;
    if (parser->next == parser->n_deltas) return WEIR_END;
    const delta *d = &parser->deltas[parser->next++];
    *out = (weir_delta){
        .kind = d->kind,
        .index = d->index,
        .text = parser->out.bytes + d->at,
        .length = d->length,
        .id = d->kind == WEIR_DELTA_TOOL_CALL ? parser->out.bytes + d->id : NULL,
    };
    return WEIR_OK;
}
