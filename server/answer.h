/* answer.h: what the engine generates for a call: choices, as events or as a whole.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_ANSWER_H
#define WEIR_SERVER_ANSWER_H

#include "scores.h"
#include "serve.h"

/* A tool call of an answer that is not streamed. */
typedef struct serve_tool {
    char *id;
    char *name;
    weir__text arguments;
} serve_tool;

typedef struct serve_choice {
    serve_answer *answer;
    int32_t index;
    weir_stream *stream;
    weir_flight *flight;      /* NULL: its chunks are its own, taken from `stream` */
    uint64_t flight_at;       /* of the flight's chunks, the next one */
    weir_chat_parser *parser; /* NULL: its text as it comes */
    const char *echo;         /* goes before the text, owned by its prompt's first choice; NULL = nothing */
    size_t echo_length;
    bool begun; /* what goes before the first chunk is told */
    bool finished;
    weir_reason reason;
    weir_usage usage;
    weir_error error;
    serve_scores scores; /* not told yet */
    /* When not streamed: what came so far. */
    weir__text content, reasoning;
    serve_tool *tools; /* [n_tools]; streamed: n_tools only counts */
    size_t n_tools, tools_capacity;
} serve_choice;

/* What chat and completions write differently. All write JSON objects, without what surrounds them. */
typedef struct serve_form {
    const char *id;     /* "chatcmpl" */
    const char *object; /* of a whole answer */
    const char *chunk;  /* of an event */
    bool bare; /* the objects stand alone: no frame around them, no [DONE] (llama-server's own form) */
    void (*begin)(serve_choice *choice, weir__text *text); /* NULL: nothing comes first */
    void (*delta)(serve_choice *choice, const weir_delta *delta, weir__text *text);
    void (*end)(serve_choice *choice, weir__text *text);
    void (*whole)(serve_choice *choice, weir__text *text);
    void (*rest)(const serve_answer *answer, weir__text *text); /* at a whole answer's end; NULL: nothing */
} serve_form;

#define SERVE_ID_MAX 64
struct serve_answer {
    serve_call *call;
    char id[SERVE_ID_MAX]; /* not to be guessed: whoever has it may fork the answer, or resume it */
    const serve_form *form;
    weir_chat *chat; /* held; NULL for completions */
    bool stream, include_usage;
    bool resume;        /* its events go on tape, and it outlives its connection */
    bool begins;        /* form->begin comes first */
    bool share;         /* an identical request's generation will do */
    bool stopped;       /* at a client's word: to be cancelled is no error */
    serve_tape *tape;   /* once it has begun; NULL: events go to the call */
    weir__text event;   /* the one that is being written */
    bool tells_scores;  /* of generated tokens; best-of needs them even when nobody asked */
    bool echoes_scores; /* those of the prompt, where its text goes before the answer */
    bool tells_prompt;  /* its logprobs, as vLLM has them */
    bool kept;          /* for forks, once it is submitted */
    bool shows_prompt;  /* its words, where the cache missed: the client sent them */
    bool shows_cached;  /* the cache's, which are no stranger's */
    int32_t n_top;      /* of each score that is told */
    bool starved;       /* chunks wait for room in call->out */
    int64_t created_s;
    const char *model; /* the server's name for it, or own_model */
    char *own_model;   /* an adapter's name; NULL = none */
    int32_t n, n_finished;
    int32_t n_each; /* choices of one prompt: choices[i] is of prompt i / n_each */
    int32_t n_told; /* of these, the best ones: told in the end; n_each = all, as they are */
    serve_choice choices[];
};

#define SERVE_CHOICES_MAX 128 /* of one prompt, as OpenAI allows */

/* n choices with streams; the worker submits to them. NULL: out of memory. */
serve_answer *serve_answer_create(serve_call *call, const serve_form *form, weir_chat *chat, int32_t n);

/* The answer calls its model by this name; NULL: as before. False: out of memory. */
bool serve_answer_call_model(serve_answer *answer, const char *name);

/* Submits one request for all choices, or one for each: all or none. An error becomes the call's answer.
 * Worker. */
bool serve_answer_submit(serve_answer *answer, weir_request *requests, size_t n_requests);
void serve_answer_destroy(serve_answer *answer);

/* Service thread: the answer was submitted. It may be gone afterwards, and its call refused. */
void serve_answer_start(serve_answer *answer);

/* Service thread: something can be taken. */
void serve_answer_pump(serve_answer *answer);

/* Ends a stream's events with what there is: at a client's word, or with an error, as the server ends.
 * Service thread. */
void serve_answer_stop(serve_answer *answer, bool asked);

/* Why the prompt was not cached as far as it might have been, as an object, with a few words of the prompt
 * and of the cached text if these are to be told; false: there is nothing to tell, and nothing was added. */
bool serve_miss_tell(const weir_stream *stream, bool prompt, bool cached, weir__text *text);

/* ---- choice.c ---- */

/* False: out of memory; freed with fini always. */
bool serve_choice_init(serve_choice *choice, serve_answer *answer, int32_t index);
void serve_choice_fini(serve_choice *choice);

/* Whether the service thread is to be told when something can be taken. False: out of memory. */
bool serve_choice_watch(serve_choice *choice);
void serve_choice_unwatch(serve_choice *choice);

/* The next chunk, if it is there; whether all are. */
bool serve_choice_take(serve_choice *choice, weir_chunk *chunk);
bool serve_choice_complete(const serve_choice *choice);

/* Gives `take` what a chunk means; and before the first one the prompt's scores, and of a fork of a chat the
 * message so far, which the parser has to see. False: out of memory, as take's. */
typedef bool (*serve_choice_fn)(serve_choice *choice, const weir_delta *delta);
bool serve_choice_read(serve_choice *choice, const weir_chunk *chunk, serve_choice_fn take);
bool serve_choice_begin(serve_choice *choice, serve_choice_fn take);

/* A serve_choice_fn: keeps it for a whole answer; forget frees that. */
bool serve_choice_keep(serve_choice *choice, const weir_delta *delta);
void serve_choice_forget(serve_choice *choice);

/* Ends it: with a reason; because memory is out; what it generates, unless others share it. */
void serve_choice_finish(serve_choice *choice, weir_reason reason);
void serve_choice_fail(serve_choice *choice);
void serve_choice_cancel(serve_choice *choice);

/* Whether it ended with an error, or by the server; then the status of HTTP and the message. text: as long as
 * an error's message; may be what is returned. */
bool serve_choice_failed(const serve_choice *choice);
int serve_choice_status(const serve_choice *choice);
const char *serve_choice_message(const serve_choice *choice, char *text);

/* The prompt's logprobs; OK, TIMEOUT: not yet, others: there are none. */
weir_status serve_choice_prompt(const serve_choice *choice, weir_chunk *prompt);

/* What OpenAI's forms share: the members that end a choice's object, and its end; the prompt's logprobs as
 * vLLM has them, where they were asked for. */
void serve_choice_tell_reason(const serve_choice *choice, weir__text *text);
void serve_choice_tell_prompt(const serve_choice *choice, weir__text *text);

#endif
