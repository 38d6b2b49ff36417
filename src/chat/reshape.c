/* reshape.c: puts a conversation into a form that a template takes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Messages are taken one by one, and appended as turns to a new list. What the template refuses is changed on
 * the way: a message joins the one before it, becomes a user's text, or gets an empty message before it.
 * Contents that join are collected and written once, when the turn ends. Ids of calls that do not fit are
 * replaced in the call and in its result. What a template refuses is found by rendering small conversations,
 * and looking whether each text comes in its order. */
#include "chat/reshape.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/deep.h"
#include "base/error.h"
#include "chat/calls.h"
#include "chat/chat.h"
#include "chat/message.h"

typedef enum kind { NOTHING, SYSTEM, USER, WORDS, CALLS, RESULT, OTHER } kind;

static kind kind_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0) return SYSTEM;
    if (strcmp(role, "user") == 0) return USER;
    if (strcmp(role, "tool") == 0) return RESULT;
    if (strcmp(role, "assistant") != 0) return OTHER;
    return json_array_size(json_object_get(message, "tool_calls")) > 0 ? CALLS : WORDS;
}

bool weir__chat_is_regular(const json_t *messages)
{
    size_t n = json_array_size(messages), i = kind_of(json_array_get(messages, 0)) == SYSTEM;
    bool regular = i < n;
    for (size_t k = i; k < n && regular; k++)
        regular = kind_of(json_array_get(messages, k)) == ((k - i) % 2 == 0 ? USER : WORDS);
    return regular;
}

/* A conversation while it is put. */
typedef struct putting {
    unsigned refused;
    json_t *list;        /* the new messages */
    json_t *last;        /* of them, borrowed; a copy of its own where `joined` is not NULL */
    json_t *joined;      /* owned: contents for it, its own first; NULL: nothing joins it */
    kind tail;           /* what it is */
    size_t turn;         /* the message that it comes from */
    size_t n_open;       /* calls of the last message with calls that wait for a result */
    bool is_put;         /* the message was put into a user's place */
    bool begun;          /* it, or one before it, is no system message */
    json_t *ids, *taken; /* objects: given ids and those in their places; the latter */
    json_t *waiting;     /* ids of calls whose results come next */
    size_t next, n_ids;  /* the first of `waiting` without a result; ids that were made */
    size_t n_added;      /* messages at the front that the caller did not give */
    weir__text *lines;
    bool changed, failed;
} putting;

static void check_putting(putting *p, bool ok)
{
    p->failed = p->failed || !ok;
}

/* ---- The list of messages that were put ---- */

static const char *shape_name(unsigned shape)
{
    static const char *const names[] = {
        "tool_calls",   "tool_results",      "call_id",         "no_call_id",      "call_twice",
        "system_first", "system_only",       "assistant_first", "assistant_twice", "system_twice",
        "user_twice",   "user_after_result", "user_after_call", "result_twice",    "result_without_call",
        "system_late",
    };
    size_t i = 0;
    while (shape >> i > 1) i++;
    return names[i];
}

/* Message i has this shape; in: the message in whose turn it is now, SIZE_MAX: its own. */
static void note_message(putting *p, size_t i, unsigned shape, size_t in)
{
    static const char more[] = "...\n";
    char line[96], *end = line + sizeof line;
    p->changed = true;
    if (i < p->n_added) return; /* nobody gave it */
    if (p->lines == NULL || p->lines->n + sizeof line + sizeof more > WEIR__SHAPE_LINES_MAX) {
        if (p->lines != NULL && strcmp(p->lines->bytes + p->lines->n - (sizeof more - 1), more) != 0)
            check_putting(p, weir__text_add_string(p->lines, more));
        return;
    }
    int n = snprintf(line, sizeof line, "messages[%zu]: %s", i - p->n_added, shape_name(shape));
    if (in != SIZE_MAX && in >= p->n_added)
        snprintf(line + n, (size_t)(end - line - n), " in messages[%zu]", in - p->n_added);
    check_putting(p, weir__text_printf(p->lines, "%s\n", line));
}

/* ---- Contents that join others ---- */

static bool is_text(const json_t *part)
{
    return weir__chat_part_kind(part) == WEIR__PART_TEXT;
}

/* Adds the text as a part, if there is one, and empties it. */
static void end_text(putting *p, json_t *parts, weir__text *text)
{
    check_putting(p, !text->failed);
    if (text->n == 0) return;
    json_t *words = text->failed ? NULL : json_stringn(text->bytes, text->n);
    check_putting(p,
                  json_array_append_new(parts, json_pack("{s:s,s:o}", "type", "text", "text", words)) == 0);
    weir__text_clear(text);
}

static void add_text(weir__text *text, const json_t *string)
{
    weir__text_add(text, json_string_value(string), json_string_length(string));
}

/* The last text of a content and the first of the next become one, as in join_texts. */
static json_t *join_parts(putting *p)
{
    json_t *parts = json_array(), *content, *part;
    size_t i, k;
    weir__text text = {0};
    json_array_foreach(p->joined, i, content)
    {
        const json_t *first = json_is_string(content) ? content : json_array_get(content, 0);
        if (text.n > 0 && (json_string_length(first) > 0 || is_text(first)))
            weir__text_add_string(&text, "\n\n");
        add_text(&text, content);
        json_array_foreach(content, k, part)
        {
            if (k > 0 || !is_text(part)) end_text(p, parts, &text);
            if (is_text(part))
                add_text(&text, json_object_get(part, "text"));
            else
                check_putting(p, json_array_append(parts, part) == 0);
        }
    }
    end_text(p, parts, &text);
    weir__text_fini(&text);
    return parts;
}

static json_t *join_texts(putting *p)
{
    weir__text text = {0};
    json_t *content;
    size_t i;
    json_array_foreach(p->joined, i, content)
    {
        if (text.n > 0 && json_string_length(content) > 0) weir__text_add_string(&text, "\n\n");
        add_text(&text, content);
    }
    json_t *joined = text.failed ? NULL : json_stringn(text.n > 0 ? text.bytes : "", text.n);
    weir__text_fini(&text);
    return joined;
}

/* Writes the joined contents, once: joining them one by one would take quadratic time. */
static void end_turn(putting *p)
{
    bool parts = false;
    json_t *content;
    size_t i;
    if (p->joined == NULL) return;
    json_array_foreach(p->joined, i, content) parts = parts || json_is_array(content);
    content = parts ? join_parts(p) : join_texts(p);
    check_putting(p, json_object_set_new(p->last, "content", content) == 0);
    json_decref(p->joined);
    p->joined = NULL;
}

/* Takes the message, which message i was. */
static void add_turn(putting *p, json_t *message, kind as, size_t i)
{
    end_turn(p);
    check_putting(p, json_array_append_new(p->list, message) == 0);
    p->last = p->failed ? NULL : message;
    p->tail = as;
    p->turn = i;
    p->is_put = false;
    p->begun = p->begun || as != SYSTEM;
}

static void join_turn(putting *p, json_t *content)
{
    if (p->failed) return;
    if (p->joined == NULL) {
        json_t *own = weir__json_copy(p->last), *before = json_object_get(p->last, "content");
        p->joined = before != NULL ? json_pack("[O]", before) : json_array();
        check_putting(p, own != NULL && json_array_set_new(p->list, json_array_size(p->list) - 1, own) == 0);
        p->last = own;
    }
    check_putting(p, json_array_append(p->joined, content != NULL ? content : json_null()) == 0);
}

/* ---- Ids of calls ---- */

static bool is_short(const json_t *id)
{
    static const char *const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return json_string_length(id) == 9 && strspn(json_string_value(id), set) == 9;
}

/* An id that no call before has; borrowed. */
static json_t *make_id(putting *p)
{
    char text[24];
    do snprintf(text, sizeof text, "call%05zu", ++p->n_ids);
    while (json_object_get(p->taken, text) != NULL);
    check_putting(p, json_object_set_new(p->taken, text, json_string(text)) == 0);
    return json_object_get(p->taken, text);
}

/* The id for the prompt, borrowed; id: as given, or NULL. */
static json_t *id_of(putting *p, json_t *id)
{
    const char *text = json_string_value(id);
    json_t *known = text != NULL ? json_object_get(p->ids, text) : NULL;
    if (known != NULL || p->failed) return known;
    if (text == NULL) return (p->refused & WEIR__SHAPE_NO_CALL_ID) != 0 ? make_id(p) : NULL;
    bool keep =
        (p->refused & WEIR__SHAPE_CALL_ID) == 0 || (is_short(id) && json_object_get(p->taken, text) == NULL);
    known = keep ? id : make_id(p);
    if (keep) check_putting(p, json_object_set(p->taken, text, id) == 0);
    check_putting(p, json_object_set(p->ids, text, known) == 0);
    return known;
}

static bool is_same(const json_t *a, const json_t *b)
{
    return a == b || (a != NULL && b != NULL && json_equal((json_t *)a, (json_t *)b));
}

static void note_id(putting *p, size_t i, const json_t *had)
{
    note_message(p, i, had != NULL ? WEIR__SHAPE_CALL_ID : WEIR__SHAPE_NO_CALL_ID, SIZE_MAX);
}

/* A copy of `of` with this id. */
static json_t *with_id(putting *p, json_t *of, const char *name, json_t *id)
{
    json_t *copy = weir__json_copy(of);
    check_putting(p, copy != NULL && json_object_set(copy, name, id) == 0);
    return copy;
}

#define REFUSES_IDS (WEIR__SHAPE_CALL_ID | WEIR__SHAPE_NO_CALL_ID)

/* The message with ids of calls that the template takes. */
static json_t *name_calls(putting *p, json_t *message, size_t i)
{
    json_t *calls = json_object_get(message, "tool_calls"), *own = NULL, *call;
    size_t k;
    if ((p->refused & REFUSES_IDS) == 0) return json_incref(message);
    if (p->tail != CALLS) {
        p->next = 0;
        check_putting(p, json_array_clear(p->waiting) == 0);
    }
    json_array_foreach(calls, k, call)
    {
        json_t *had = json_object_get(call, "id"), *id = id_of(p, had);
        check_putting(p, json_array_append(p->waiting, id != NULL ? id : json_null()) == 0);
        if (p->failed || is_same(id, had)) continue;
        if (own == NULL) {
            note_id(p, i, had);
            own = weir__json_copy(calls);
        }
        check_putting(p, own != NULL && json_array_set_new(own, k, with_id(p, call, "id", id)) == 0);
    }
    if (own == NULL) return json_incref(message);
    json_t *copy = weir__json_copy(message);
    check_putting(p, copy != NULL && json_object_set(copy, "tool_calls", own) == 0);
    json_decref(own);
    return copy;
}

/* The message of a result with an id that the template takes; without an id of its own, that of the next
 * call. */
static json_t *name_result(putting *p, json_t *message, size_t i)
{
    json_t *had = json_object_get(message, "tool_call_id"), *id;
    if ((p->refused & REFUSES_IDS) == 0) return json_incref(message);
    id = json_array_get(p->waiting, p->next);
    if (id != NULL) p->next++;
    if (had != NULL || (p->refused & WEIR__SHAPE_NO_CALL_ID) == 0 || !json_is_string(id)) id = id_of(p, had);
    if (is_same(id, had) || p->failed) return json_incref(message);
    note_id(p, i, had);
    return with_id(p, message, "tool_call_id", id);
}

/* ---- Messages ---- */

/* Content of message i that is a user's. shape: why it became one, or 0. */
static void put_user(putting *p, json_t *message, json_t *content, unsigned shape, size_t i)
{
    unsigned here = p->tail == USER     ? WEIR__SHAPE_USER_TWICE
                    : p->tail == RESULT ? WEIR__SHAPE_USER_AFTER_RESULT
                    : p->tail == CALLS  ? WEIR__SHAPE_USER_AFTER_CALL
                                        : 0;
    bool joins = p->tail == USER && (shape != 0 || p->is_put);
    if ((here & p->refused) == 0 && !joins) {
        if (shape != 0) note_message(p, i, shape, SIZE_MAX);
        if (shape == 0)
            add_turn(p, json_incref(message), USER, i);
        else
            add_turn(p, json_pack("{s:s,s:O?}", "role", "user", "content", content), USER, i);
        p->is_put = shape != 0;
        return;
    }
    note_message(p, i, shape != 0 ? shape : here, p->turn);
    if (here == WEIR__SHAPE_USER_AFTER_CALL) {
        json_t *result = json_pack("{s:s,s:O?}", "role", "tool", "content", content), *call;
        size_t n = json_array_size(json_object_get(p->last, "tool_calls"));
        call = json_array_get(json_object_get(p->last, "tool_calls"), n - 1);
        if (json_object_get(call, "id") != NULL)
            check_putting(p, json_object_set(result, "tool_call_id", json_object_get(call, "id")) == 0);
        add_turn(p, result, RESULT, p->turn);
        p->n_open--;
    } else {
        join_turn(p, content);
    }
}

/* A message becomes text of a user. */
static void put_text(putting *p, json_t *message, unsigned shape, size_t i)
{
    json_t *written = weir__chat_calls_write(message);
    check_putting(p, written != NULL);
    if (written != NULL) put_user(p, written, json_object_get(written, "content"), shape, i);
    json_decref(written);
}

/* An empty message of a user, where templates want one before message i. */
static void put_nothing(putting *p, unsigned shape, size_t i)
{
    note_message(p, i, shape, SIZE_MAX);
    add_turn(p, json_pack("{s:s,s:s}", "role", "user", "content", ""), USER, i);
}

static void put_system(putting *p, json_t *message, size_t i)
{
    json_t *content = json_object_get(message, "content");
    if (!p->begun && (p->refused & WEIR__SHAPE_SYSTEM_FIRST) != 0) {
        put_user(p, message, content, WEIR__SHAPE_SYSTEM_FIRST, i);
    } else if (p->begun && (p->refused & WEIR__SHAPE_SYSTEM_LATE) != 0) {
        put_user(p, message, content, WEIR__SHAPE_SYSTEM_LATE, i);
    } else if (!p->begun && p->tail == SYSTEM && (p->refused & WEIR__SHAPE_SYSTEM_TWICE) != 0) {
        note_message(p, i, WEIR__SHAPE_SYSTEM_TWICE, p->turn);
        join_turn(p, content);
    } else {
        add_turn(p, json_incref(message), SYSTEM, i);
    }
}

/* Each call gets a message; the text is that of the first. Takes the message. */
static void put_calls(putting *p, json_t *message, size_t i)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t k;
    if (json_array_size(calls) < 2 || (p->refused & WEIR__SHAPE_CALL_TWICE) == 0) {
        p->n_open = json_array_size(calls);
        add_turn(p, message, CALLS, i);
        return;
    }
    p->n_open = 1;
    note_message(p, i, WEIR__SHAPE_CALL_TWICE, SIZE_MAX);
    json_array_foreach(calls, k, call)
    {
        json_t *one =
            k == 0 ? weir__json_copy(message) : json_pack("{s:s,s:n}", "role", "assistant", "content");
        check_putting(p, json_object_set_new(one, "tool_calls", json_pack("[O]", call)) == 0);
        add_turn(p, one, CALLS, i);
    }
    json_decref(message);
}

static void put_assistant(putting *p, json_t *message, kind as, size_t i)
{
    if (!p->begun && (p->refused & WEIR__SHAPE_ASSISTANT_FIRST) != 0)
        put_nothing(p, WEIR__SHAPE_ASSISTANT_FIRST, i);
    else if (p->tail == WORDS && (p->refused & WEIR__SHAPE_ASSISTANT_TWICE) != 0)
        put_nothing(p, WEIR__SHAPE_ASSISTANT_TWICE, i);
    if (as == WORDS) {
        add_turn(p, json_incref(message), WORDS, i);
    } else if ((p->refused & WEIR__SHAPE_TOOL_CALLS) == 0) {
        put_calls(p, name_calls(p, message, i), i);
    } else {
        note_message(p, i, WEIR__SHAPE_TOOL_CALLS, SIZE_MAX);
        add_turn(p, weir__chat_calls_write(message), WORDS, i);
    }
}

static void put_result(putting *p, json_t *message, size_t i)
{
    unsigned shape = p->tail != CALLS && p->tail != RESULT ? WEIR__SHAPE_RESULT_WITHOUT_CALL
                     : p->n_open == 0                      ? WEIR__SHAPE_RESULT_TWICE
                                                           : 0;
    if ((p->refused & WEIR__SHAPE_TOOL_RESULTS) != 0)
        put_text(p, message, WEIR__SHAPE_TOOL_RESULTS, i);
    else if ((p->refused & shape) != 0)
        put_text(p, message, shape, i);
    else
        add_turn(p, name_result(p, message, i), RESULT, i);
    if (p->n_open > 0) p->n_open--;
}

static void put_message(putting *p, json_t *message, size_t i)
{
    const kind as = kind_of(message);
    switch (as) {
    case SYSTEM: put_system(p, message, i); break;
    case USER: put_user(p, message, json_object_get(message, "content"), 0, i); break;
    case WORDS:
    case CALLS: put_assistant(p, message, as, i); break;
    case RESULT: put_result(p, message, i); break;
    default: add_turn(p, json_incref(message), as, i);
    }
}

bool weir__chat_reshape(const json_t *messages, unsigned refused, size_t n_added, json_t **put,
                        weir__text *lines)
{
    putting p = {.refused = refused, .n_added = n_added, .lines = lines};
    json_t *message;
    size_t i;
    if ((refused & WEIR__SHAPE_TOOL_RESULTS) != 0)
        p.refused |= WEIR__SHAPE_TOOL_CALLS; /* which they follow */
    p.list = json_array();
    p.ids = json_object();
    p.taken = json_object();
    p.waiting = json_array();
    check_putting(&p, p.list != NULL && p.ids != NULL && p.taken != NULL && p.waiting != NULL);
    json_array_foreach((json_t *)messages, i, message)
    {
        if (!p.failed) put_message(&p, message, i);
    }
    if (!p.failed && !p.begun && (refused & WEIR__SHAPE_SYSTEM_ONLY) != 0)
        put_nothing(&p, WEIR__SHAPE_SYSTEM_ONLY, i - 1);
    end_turn(&p);
    json_decref(p.waiting);
    json_decref(p.taken);
    json_decref(p.ids);
    *put = p.failed || !p.changed ? NULL : json_incref(p.list);
    json_decref(p.list);
    return !p.failed;
}

/* ---- What a template refuses ---- */

#ifndef WEIR_NO_LLAMA

#define N_CONVERSATIONS 5

/* Conversations of a shape, a letter for each message: s(ystem), u(ser), a(ssistant), c(all), t(ool),
 * p(arallel calls). C and T have an id as OpenAI's, D and R have none. Earlier shapes are put in later ones,
 * so a shape stands behind those that its own conversations may have after it is put. */
static const struct {
    unsigned shape; /* one shape, or two that show together */
    const char *conversations[N_CONVERSATIONS];
} probes[] = {
    {WEIR__SHAPE_TOOL_CALLS, {"ucta", "uctau"}},
    {WEIR__SHAPE_TOOL_CALLS | WEIR__SHAPE_TOOL_RESULTS, {"ucta", "uctau"}},
    {WEIR__SHAPE_CALL_ID, {"uCTau"}},
    {WEIR__SHAPE_NO_CALL_ID, {"uDRau"}},
    {WEIR__SHAPE_CALL_TWICE, {"upttau"}},
    {WEIR__SHAPE_SYSTEM_FIRST, {"suct"}},
    {WEIR__SHAPE_SYSTEM_ONLY, {"s"}},
    {WEIR__SHAPE_ASSISTANT_FIRST, {"a", "au", "sau", "ctau"}},
    {WEIR__SHAPE_SYSTEM_TWICE, {"ssu"}},
    {WEIR__SHAPE_USER_TWICE, {"uu", "uauu", "uua"}},
    {WEIR__SHAPE_ASSISTANT_TWICE, {"uaa", "uaau", "uactau"}},
    {WEIR__SHAPE_USER_AFTER_RESULT, {"uctu", "uctuau"}},
    {WEIR__SHAPE_USER_AFTER_CALL, {"ucu", "ucuau"}},
    {WEIR__SHAPE_RESULT_TWICE, {"uctta", "uctTa"}},
    {WEIR__SHAPE_RESULT_WITHOUT_CALL, {"uta", "uatau", "ta", "tua"}},
    {WEIR__SHAPE_SYSTEM_LATE, {"usau", "uasu", "uas", "ucts", "ucs"}},
};

#define KNOWN (1u << 31)

static const char short_id[] = "callabcd1", long_id[] = "call_AbCdEfGhIjKlMnOpQrStUvWx";
static const char twin_mark[] = "weirtwinq"; /* of a second call */

typedef struct probing {
    const weir__chat_template *template;
    json_t *tools, *args;
    unsigned refused;
    weir_status status; /* of a failure that says nothing about the template */
    weir_error error;
} probing;

/* ---- Conversations ---- */

static void write_mark(char mark[40], size_t i)
{
    snprintf(mark, 40, "weirmark%02zuq", i);
}

static json_t *make_call(const char *id, const char *mark)
{
    char arguments[48];
    snprintf(arguments, sizeof arguments, "{\"x\":\"%s\"}", mark);
    return json_pack("{s:s,s:s*,s:{s:s,s:s}}", "type", "function", "id", id, "function", "name", "weirprobe",
                     "arguments", arguments);
}

static json_t *make_calls(char letter, const char *mark)
{
    const char *id = letter == 'C' ? long_id : letter == 'D' ? NULL : short_id;
    json_t *call = make_call(id, mark), *twin = letter == 'p' ? make_call("callabcd2", twin_mark) : NULL;
    return json_pack("{s:s,s:n,s:[o,o*]}", "role", "assistant", "content", "tool_calls", call, twin);
}

static json_t *make_message(char letter, size_t i)
{
    char mark[40];
    write_mark(mark, i);
    switch (letter) {
    case 's': return json_pack("{s:s,s:s}", "role", "system", "content", mark);
    case 'u': return json_pack("{s:s,s:s}", "role", "user", "content", mark);
    case 'a': return json_pack("{s:s,s:s}", "role", "assistant", "content", mark);
    case 'c':
    case 'C':
    case 'D':
    case 'p': return make_calls(letter, mark);
    default:
        return json_pack("{s:s,s:s,s:s*}", "role", "tool", "content", mark, "tool_call_id",
                         letter == 'T'   ? long_id
                         : letter == 'R' ? NULL
                                         : short_id);
    }
}

static json_t *make_tools(void)
{
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}}}}}]", "type", "function", "function", "name",
                     "weirprobe", "description", "A probe", "parameters", "type", "object", "properties", "x",
                     "type", "string");
}

/* NULL: out of memory. */
static json_t *make_conversation(const char *letters, size_t n)
{
    json_t *messages = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(messages, make_message(letters[i], i)) != 0) {
            json_decref(messages);
            return NULL;
        }
    return messages;
}

/* ---- What a template takes ---- */

/* True if the prompt has the texts of these messages in order. */
static bool has_marks(const char *prompt, const char *letters)
{
    char mark[40];
    const char *at = prompt;
    for (size_t i = 0; at != NULL && letters[i] != '\0'; i++) {
        write_mark(mark, i);
        at = strstr(at, mark);
        if (at != NULL && letters[i] == 'p') at = strstr(at, twin_mark);
    }
    return at != NULL;
}

static bool add_prompt(void *user, const char *prompt, size_t n)
{
    return weir__text_add(user, prompt, n);
}

/* True if the prompt begins with that of the messages before the last one, up to its last text: some
 * templates write a system message of their own at the front unless there is another one anywhere. */
static bool begins_with(const char *prompt, const char *before)
{
    const char *last = NULL;
    for (const char *at = before; (at = strstr(at, "weirmark")) != NULL; at++) last = at;
    return last != NULL && strncmp(prompt, before, (size_t)(last - before)) == 0;
}

/* The prompt of messages; empty: they are refused or, with p->status, nothing can be said. */
static weir__text render_messages(probing *p, const json_t *messages)
{
    weir__text prompt = {0};
    const weir__llama_render in = {
        .messages = messages,
        .tools = p->tools,
        .enforced_tools = p->tools,
        .args = p->args,
        .tool_choice = WEIR_TOOLS_AUTO,
        .add_generation_prompt = true,
        .enable_thinking = true,
        .parse_reasoning = true,
    };
    weir_status status = weir__llama_chat_prompt(p->template->parsed, &in, add_prompt, &prompt, &p->error);
    if (status != WEIR_OK && status != WEIR_TEMPLATE) p->status = status;
    return prompt;
}

/* Renders the first n messages of a conversation, whose refused shapes are put. */
static weir__text render_letters(probing *p, const char *letters, size_t n, unsigned refused)
{
    json_t *messages = make_conversation(letters, n), *put = NULL;
    weir__text prompt = {0};
    if (messages != NULL && weir__chat_reshape(messages, refused, 0, &put, NULL))
        prompt = render_messages(p, put != NULL ? put : messages);
    else
        p->status = weir__chat_no_memory(&p->error);
    json_decref(put);
    json_decref(messages);
    return prompt;
}

static bool template_takes(probing *p, const char *letters, unsigned refused)
{
    size_t n = strlen(letters);
    weir__text prompt = render_letters(p, letters, n, refused), before = {0};
    bool taken = prompt.n > 0 && has_marks(prompt.bytes, letters);
    if (taken && n > 1 && letters[n - 1] == 's') {
        before = render_letters(p, letters, n - 1, refused);
        taken = before.n > 0 && begins_with(prompt.bytes, before.bytes);
    }
    weir__text_fini(&before);
    weir__text_fini(&prompt);
    return taken;
}

static bool is_refused(probing *p, const char *letters, unsigned shape)
{
    return !template_takes(p, letters, p->refused) && p->status == WEIR_OK &&
           template_takes(p, letters, p->refused | shape);
}

static void run_probes(void *user)
{
    probing *p = user;
    if (!template_takes(p, "uau", 0)) return; /* this template is not for such conversations */
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        for (size_t k = 0; k < N_CONVERSATIONS && probes[i].conversations[k] != NULL; k++) {
            bool refused = is_refused(p, probes[i].conversations[k], probes[i].shape);
            if (p->status != WEIR_OK) return;
            if (!refused) continue;
            p->refused |= probes[i].shape;
            break;
        }
}

weir_status weir__chat_probe(weir__chat_template *t, bool tools, size_t stack, unsigned *refused,
                             weir_error *error)
{
    probing p = {.template = t};
    unsigned known = atomic_load_explicit(&t->refused[tools], memory_order_relaxed);
    if ((known & KNOWN) == 0) { /* two threads may both find it */
        p.args = json_object();
        p.tools = tools ? make_tools() : NULL;
        weir_status status = p.args != NULL && (p.tools != NULL || !tools)
                                 ? weir__deep_run(run_probes, &p, stack, error)
                                 : weir__chat_no_memory(error);
        if (status == WEIR_OK && p.status != WEIR_OK) status = weir__error_copy(error, &p.error);
        json_decref(p.tools);
        json_decref(p.args);
        if (status != WEIR_OK) return status;
        known = p.refused | KNOWN;
        atomic_store_explicit(&t->refused[tools], known, memory_order_relaxed);
    }
    *refused = known & ~KNOWN;
    return WEIR_OK;
}

#endif
