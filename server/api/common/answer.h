/* answer.h: the engine's answer to a call: choices, streamed as events or sent as a whole.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_ANSWER_H
#define WEIR_SERVER_API_COMMON_ANSWER_H

#include "recorded.h"
#include "records.h"
#include "scores.h"
#include "server/models/kept.h"
#include "server/request/serve.h"

/* The place where JSON that comes in pieces stands: an object, of a call's arguments. Zeroes: before it. */
typedef struct serve_arguments {
    int32_t depth; /* open brackets */
    bool quoted, escaped, ended;
} serve_arguments;

/* A run of an answer's deltas of one kind: content, reasoning, or a tool call with its arguments. */
typedef struct serve_part {
    weir_delta_kind kind; /* never WEIR_DELTA_ARGUMENTS */
    char *id, *name;      /* of a tool call; else NULL */
    weir__text text;      /* a call's is its arguments */
    size_t n_read;        /* bytes of these that a dialect has read */
    weir__text scores;    /* logprobs of the text, as a dialect writes them */
} serve_part;

typedef struct serve_choice {
    serve_answer *answer;
    int32_t index;
    weir_stream *stream;
    weir_flight *flight;      /* NULL: not shared; its chunks come from `stream` */
    uint64_t flight_at;       /* the next chunk of the flight */
    weir_chat_parser *parser; /* NULL: the text is not parsed */
    const char *echo;         /* goes before the text, owned by its prompt's first choice; NULL = nothing */
    size_t echo_length;
    weir_progress shown; /* these two: how far the prompt is, as last written, and when that was */
    int64_t shown_ns;
    bool begun; /* everything before the first chunk has been written */
    bool finished;
    weir_reason reason;
    int32_t n_generated; /* these two: of the last chunk that was read, as weir_chunk has them */
    int64_t total_ns;
    weir_usage usage; /* final, once it has finished */
    weir_error error;
    serve_scores scores; /* not written yet */
    weir__text ids;      /* of tokens that are not written yet, with commas between them */
    bool told_prompt;    /* the prompt's ids are written */
    serve_recorded_choice recorded;
    weir__text miss; /* once it is settled: the log's member, or nothing */
    /* The answer's parts so far, in order. The last one is of `kind`, the one before it of `kind_before`;
     * fresh: the delta that is being passed begins a part. */
    size_t n_parts, n_tools;
    serve_arguments arguments; /* of the last call */
    weir_delta_kind kind, kind_before;
    bool fresh;
    serve_part *parts; /* [n_kept] */
    size_t n_kept, parts_capacity;
} serve_choice;

/* The reason why an answer failed, in the request's terms. */
typedef struct serve_failure {
    int status;     /* HTTP's */
    char field[96]; /* "" = none */
    const char *code;
    char message[sizeof((weir_error *)0)->message];
} serve_failure;

typedef struct serve_openai serve_openai;

/* A dialect's form of an answer (ADR 0076): as events, each between serve_answer_begin_event and end_event,
 * or as a whole. NULL: nothing is written. */
typedef struct serve_form {
    const char *id;   /* prefix of an answer's id */
    const char *ping; /* an event that keeps a silent stream alive; NULL: a comment does */
    bool lines;       /* a stream consists of lines of JSON, and is no event stream */
    bool keeps;       /* a stream's events need the parts so far, see serve_choice_keep; so do those of
                       * custom tools */
    void (*head)(const serve_answer *answer, weir__text *text); /* how most events of a tape begin */
    void (*start)(serve_answer *answer);
    void (*begin)(serve_choice *choice);
    void (*delta)(serve_choice *choice, const weir_delta *delta);
    /* A whole event or comment that no tape keeps: how far the choice's prompt is. */
    void (*progress)(const serve_choice *choice, const weir_progress *progress, weir__text *text);
    void (*end)(serve_choice *choice); /* unless it failed */
    void (*finish)(serve_answer *answer);
    void (*fail)(serve_answer *answer, const serve_failure *why); /* or finish */
    void (*whole)(serve_answer *answer, weir__text *text);
    void (*pending)(const serve_answer *answer, weir__text *text); /* the whole answer while it runs in the
                                                                      background; NULL: it does not */
    const serve_openai *openai; /* OpenAI's objects of choices, see openai.h */
} serve_form;

struct serve_answer {
    serve_call *call;
    char id[SERVE_ID_MAX]; /* cannot be guessed: it allows forking and resuming the answer */
    const serve_form *form;
    weir_chat *chat; /* held; NULL for completions */
    bool stream, include_usage;
    bool continuous_usage; /* each event has the usage of its choice so far */
    bool timings;          /* and its times */
    bool progress;         /* its events tell how far its prompts are */
    bool resume;           /* its events go to a tape, and it outlives its connection */
    bool chats;            /* it is a conversation's */
    bool begins;           /* its choices have a beginning */
    bool background;       /* it runs on without readers */
    bool unread;           /* its call is answered at once, and reads no events */
    bool share;            /* it may join the generation of an identical request */
    bool stopped;          /* a client asked for it: the cancel is no error */
    serve_tape *tape;      /* from its begin on; NULL: events go to the call */
    weir__text event;      /* for a tape: the event that is being written */
    size_t event_at;       /* else: where it begins in the call's output */
    uint64_t n_events;     /* that a dialect has numbered */
    weir__text repeated;   /* members of the request that a dialect's answers repeat */
    serve_record *record;  /* owned: it is kept at the end; NULL: nothing is */
    bool returns_scores;   /* of generated tokens; best-of needs them even if not requested */
    bool echoes_scores;    /* of the prompt, if its text precedes the answer (echo) */
    bool returns_ids;      /* the ids of the prompt's and the answer's tokens, as vLLM has them */
    bool returns_prompt;   /* its logprobs, as vLLM has them */
    bool kept;             /* for forks, once it is submitted */
    bool shows_texts;      /* a cache miss may quote texts: the client sent the prompt, it is no fork's */
    int32_t n_dropped;     /* lines that change, which were not rendered */
    int32_t n_top;         /* likeliest tokens with each logprob */
    bool starved;          /* chunks wait for room in call->out */
    int64_t created_s;
    int64_t submitted_ns; /* when its requests were given to the engine */
    json_t *namespaces;   /* of the request's tools, owned; NULL: they have none */
    json_t *customs;      /* keys: names of its custom tools, likewise */
    json_t *stops;        /* the request's stop strings, owned */
    const char *model;    /* the server's name for it, or own_model */
    char *own_model;      /* an adapter's name; NULL = none */
    serve_recorded_answer recorded;
    int32_t n, n_finished;
    int32_t n_each;     /* choices of one prompt: choices[i] is of prompt i / n_each */
    const char *each;   /* the field that says n_each */
    int32_t n_returned; /* of these, the best ones that are returned; n_each = all, unranked */
    serve_choice choices[];
};

#define SERVE_CHOICES_MAX 128 /* of one prompt, as OpenAI allows */

/* n choices with streams; the worker submits to them. NULL: out of memory. */
serve_answer *serve_answer_create(serve_call *call, const serve_form *form, weir_chat *chat, int32_t n);

/* Sets the model's name in the answer; NULL: no change. False: out of memory. */
bool serve_answer_call_model(serve_answer *answer, const char *name);

/* Submits one request for all choices, or one for each: all or none. An error becomes the call's answer.
 * Worker. */
bool serve_answer_submit(serve_answer *answer, weir_request *requests, size_t n_requests);
void serve_answer_destroy(serve_answer *answer);

/* True if a name is a custom tool's. */
bool serve_answer_is_custom(const serve_answer *answer, const char *name);

/* The request's stop string by the number in weir_usage; NULL: it was none of these. */
const char *serve_answer_stop_text(const serve_answer *answer, int32_t stop);

/* Service thread: the answer was submitted. It may be gone afterwards, and its call refused. */
void serve_answer_start(serve_answer *answer);

/* Service thread: chunks can be taken. */
void serve_answer_pump(serve_answer *answer);

/* Ends a stream's events with the text so far. asked: at a client's request; otherwise with an error, because
 * the server stops. Service thread. */
void serve_answer_stop(serve_answer *answer, bool asked);

/* Sends a comment, or the dialect's ping, so that no proxy takes the connection for dead. False: the call
 * streams no events, or has ended. */
bool serve_answer_comment(serve_call *call);

/* Around an event of a stream: the text added in between is its data. name: its type, "" = none. */
weir__text *serve_answer_begin_event(serve_answer *answer, const char *name);
void serve_answer_end_event(serve_answer *answer);

/* Appends the member "prompt_progress", as llama-server has it, without a comma before it. */
void serve_answer_add_progress(const weir_progress *progress, weir__text *text);

/* ---- choice.c ---- */

/* Appends an object that explains why no more of the prompt was cached. texts: it quotes a few words of the
 * prompt and, as far as the library tells them, of the cached text. False: there is no miss, and nothing was
 * added. */
bool serve_choice_add_miss(const serve_choice *choice, bool texts, weir__text *text);

/* Appends it as the member "miss" of an object, if there is one. */
void serve_choice_add_miss_member(const serve_choice *choice, bool texts, weir__text *text);

/* False: out of memory; freed with fini always. */
bool serve_choice_init(serve_choice *choice, serve_answer *answer, int32_t index);

/* Releases, once the choice has finished, all that holds its engine and model. */
void serve_choice_settle(serve_choice *choice);
void serve_choice_fini(serve_choice *choice);

/* Posts the call when a chunk can be taken. False: out of memory. */
bool serve_choice_watch(serve_choice *choice);
void serve_choice_unwatch(serve_choice *choice);

/* take: takes the next chunk if there is one. complete: true if all chunks have been generated. */
bool serve_choice_take(serve_choice *choice, weir_chunk *chunk);
bool serve_choice_complete(const serve_choice *choice);

/* pass counts a delta among the parts and passes it to `take`; read does so with all of a chunk. begin comes
 * before the first chunk: it passes the prompt's scores and, for a fork of a chat, the message so far, which
 * the parser must see. False: out of memory, as take's. */
typedef bool (*serve_choice_fn)(serve_choice *choice, const weir_delta *delta);
bool serve_choice_pass(serve_choice *choice, const weir_delta *delta, serve_choice_fn take);
bool serve_choice_read(serve_choice *choice, const weir_chunk *chunk, serve_choice_fn take);
bool serve_choice_begin(serve_choice *choice, serve_choice_fn take);

/* keep is a serve_choice_fn that collects the answer's parts; forget frees them. add_text appends the texts
 * of all parts of a kind. */
bool serve_choice_keep(serve_choice *choice, const weir_delta *delta);
void serve_choice_forget(serve_choice *choice);
void serve_choice_add_text(const serve_choice *choice, weir_delta_kind kind, weir__text *text);

/* Appends the arguments of a tool call as a JSON object: {} if they were cut off. */
void serve_part_add_arguments(const serve_part *part, weir__text *text);

/* finish ends the choice with a reason; fail, because memory ran out; cancel ends its generation, unless
 * others share it. */
void serve_choice_finish(serve_choice *choice, weir_reason reason);
void serve_choice_fail(serve_choice *choice);
void serve_choice_cancel(serve_choice *choice);

/* Counts and times up to the last chunk that was read; once it has finished, the final ones. */
weir_usage serve_choice_usage(const serve_choice *choice);

/* True if max_tokens, the context's end or the deadline cut the answer. */
bool serve_choice_is_cut(const serve_choice *choice);

/* True if its last part is a call whose arguments are not complete: a client must not make it. */
bool serve_choice_is_open(const serve_choice *choice);

/* The calls that a client is to make: those with complete arguments. */
size_t serve_choice_calls(const serve_choice *choice);

/* True if it ended with calls, all of them complete. */
bool serve_choice_ended_with_calls(const serve_choice *choice);

/* True if it ended with an error or because the server stops; explain says why. */
bool serve_choice_failed(const serve_choice *choice);
void serve_choice_explain(const serve_choice *choice, serve_failure *why);

/* The prompt's logprobs; OK, TIMEOUT: not yet, others: there are none. */
weir_status serve_choice_prompt(const serve_choice *choice, weir_chunk *prompt);

#endif
