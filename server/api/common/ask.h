/* ask.h: a request for text, read from its JSON. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_COMMON_ASK_H
#define WEIR_SERVER_API_COMMON_ASK_H

#include <string.h>

#include "answer.h"
#include "field.h"
#include "server/models/adapters.h"
#include "server/models/kept.h"

#define SERVE_N_MAX      SERVE_CHOICES_MAX
#define SERVE_STOP_MAX   64   /* the library's limit */
#define SERVE_TOOLS_MAX  1024 /* the library's limit */
#define SERVE_TOOLS_TEXT "1024"
#define SERVE_SPACES_MAX 256 /* namespaces of tools */
#define SERVE_ARGS_MAX   62  /* variables of a template; the library allows 64 */

/* Bytes of the tools, and of a schema: they are read and written several times. */
#define SERVE_FORM_BYTES ((size_t)2 << 20)

/* Bytes of the cache's salt: of a request's own part, which stands behind its key's digest, and of both. */
#define SERVE_SALT_OWN 256
#define SERVE_SALT_MAX 512

/* All that one request fetches. */
typedef struct serve_fetches {
    int32_t n;
    size_t n_bytes;
} serve_fetches;

/* Values borrow from `json`, which is owned. */
typedef struct serve_ask {
    serve_call *call;
    unsigned where; /* bits of SERVE_ASK_* */
    json_t *json;
    weir_sampler_params sampler; /* these three: the members that fields set */
    weir_chat_params chat;
    weir_request request;
    bool stream, include_usage, continuous_usage, timings, progress, resume, share, echo, returns_ids;
    bool unkept;     /* store: false */
    bool unrecorded; /* likewise */
    bool drawn;      /* the seed, by the server, for a record */
    bool background; /* the answer is read later, and needs no connection */
    int32_t n, best_of;
    int32_t n_dropped; /* lines that change */
    size_t most_parts; /* texts, images and calls that the messages may have */
    const json_t *prompt, *suffix, *messages, *tools, *kwargs, *lora, *fork; /* NULL = not given */
    const char *tool_name; /* the one that is to be called; NULL = any */
    const char *cache_salt, *reasoning_effort;
    const char *unused; /* these two: of fields that have no effect */
    int32_t unused_number;
    bool unused_flag;
    const json_t *later;                /* of fields that a dialect's reader reads from `json` */
    json_t *made_messages, *made_tools; /* of another dialect, as chat completions have them; owned */
    json_t *made_name;                  /* tool_name, if it was put together; owned */
    json_t *previous;                   /* items of the response that the request continues; owned */
    json_t *tools_allowed;              /* their names; owned; NULL = all */
    json_t *namespaces;                 /* names of the tools' namespaces; owned */
    json_t *plain;   /* by a namespace's name of a tool: its full name, null if several have it; owned */
    json_t *customs; /* keys: names of the custom tools, as templates see them; owned */
    json_t *numbers; /* by name: the number of the first tool that has it; owned */
    size_t n_numbered;
    size_t tool_bytes;   /* of the names and descriptions of made_tools */
    json_t *left_out;    /* tools that run on another server, the first SERVE_TOOLS_MAX; owned */
    json_t *brought;     /* tools that items or blocks bring; owned */
    serve_places places; /* [size of brought] where they are */
    bool again;          /* they are being read: a name that is there already is the same tool */
    weir__text dropped;  /* lines for serve_call_reshaped: the messages that had such lines */
    weir__text reshaped; /* lines of weir_chat_reshaped, once the messages are rendered */
    weir__text prediction;
    const char *adapter; /* the model that was asked for is one; NULL = it is not */
    serve_adapter_set adapters;
    const char *stop[SERVE_STOP_MAX];
    size_t stop_length[SERVE_STOP_MAX];
    size_t n_stop;
    int32_t *stop_ids, *allowed_ids; /* owned, as are the next ones */
    const char **bad_words;
    weir_logit_bias *biases;
    const char **breakers;
    char *order;
    char *schema; /* the answer's; NULL = any */
    char salt[SERVE_SALT_MAX];
    char tenant[SERVE_OWNER_NAME]; /* without a key */
    serve_kept_choice source;      /* of a fork */
    weir_media **media;            /* [n_media] of the messages; owned, held */
    size_t n_media;
    serve_fetches fetches;
    weir_chat *rendered; /* held; NULL = no chat's */
} serve_ask;

/* A field of the request; NULL: it is not given, or null. */
static inline const json_t *serve_ask_given(const serve_ask *ask, const char *name)
{
    const json_t *value = json_object_get(ask->json, name);
    return json_is_null(value) ? NULL : value;
}

/* The field that has the conversation. */
static inline const char *serve_ask_conversation(const serve_ask *ask)
{
    return (ask->where & SERVE_ASK_RESPONSES) != 0  ? "input"
           : (ask->where & SERVE_ASK_GENERATE) != 0 ? "prompt"
                                                    : "messages";
}

static inline bool serve_ask_is(const char *word, const char *wanted)
{
    return word != NULL && strcmp(word, wanted) == 0;
}

static inline bool serve_ask_has_role(const json_t *message, const char *role)
{
    return serve_ask_is(json_string_value(json_object_get(message, "role")), role);
}

/* Reads call->body. False: the call has its answer, a refusal that names the field. Freed with fini
 * always. */
bool serve_ask_read(serve_ask *ask, serve_call *call, unsigned where);
void serve_ask_fini(serve_ask *ask);

/* Fills the members that all requests of the ask share, and a fork's source; borrows from it. False: the call
 * has its answer. */
bool serve_ask_request(serve_ask *ask, weir_request *request);

/* Creates the call's answer with n choices and the request's options for it. NULL: out of memory, and the
 * call has its answer. */
serve_answer *serve_ask_answer(const serve_ask *ask, const serve_form *form, int32_t n);

/* ---- ask_fields.c ---- */

/* Reads ask->json. given_for: the field that was given for this member of the library's struct; NULL: none
 * was. has_option: true if Ollama's requests may have "options.NAME". */
bool serve_ask_fields(serve_ask *ask);
const char *serve_ask_given_for(const serve_ask *ask, const char *of, const char *member);
bool serve_ask_has_option(const char *name);

/* ---- ask_readers.c: readers of fields (serve_field); `to` is a serve_ask ---- */

/* The schema of the answer, or that of any object; place: where it is in the request, static. */
bool serve_ask_set_schema(serve_ask *ask, const char *name, const char *place, const json_t *schema);
bool serve_ask_set_any_object(serve_ask *ask, const char *name, const char *place);
/* Reads a level of effort. A word that is not known is a hint, and the template's own level holds. what: what
 * the value must be. False: the call has its answer. */
bool serve_ask_effort(serve_ask *ask, const char *name, const json_t *value, const char *what);
serve_reader serve_ask_json_schema, serve_ask_response_format;
serve_reader serve_ask_stop, serve_ask_logit_bias, serve_ask_seed, serve_ask_breakers, serve_ask_samplers;
serve_reader serve_ask_stop_ids, serve_ask_allowed_ids, serve_ask_bad_words, serve_ask_truncate;
serve_reader serve_ask_reasoning_effort, serve_ask_cache_control, serve_ask_cache_salt, serve_ask_fork,
    serve_ask_logprobs, serve_ask_metadata, serve_ask_native, serve_ask_num_ctx, serve_ask_num_predict,
    serve_ask_prediction, serve_ask_priority, serve_ask_prompt_logprobs, serve_ask_repeat_last_n,
    serve_ask_store, serve_ask_stream_options;

/* Widens the window of vLLM's repetition_penalty, where the request has no window, to all of prompt and
 * answer; after serve_ask_fields. */
void serve_ask_widen_penalty(serve_ask *ask);

/* ---- ask_messages.c ---- */

/* Takes the messages of chat completions, if they have no unknown members. */
serve_reader serve_ask_chat_messages;

/* The number of texts, images and calls that the messages may have: more than the context has tokens need not
 * be rendered, and few cost little, whether they fit or not. */
size_t serve_ask_room(const serve_call *call);

/* True if the messages may have n texts, images and calls, each of which is at least a token. False: the
 * call has its answer. */
bool serve_ask_has_room(const serve_ask *ask, size_t n);

/* Removes lines that change from request to request, and notes their number and places. False: the call has
 * its answer. */
bool serve_ask_drop_lines(serve_ask *ask);

/* ---- ask_media.c ---- */

/* Decodes the images and sounds of the messages, whose payloads it removes. False: the call has its
 * answer. */
bool serve_ask_media(serve_ask *ask);

/* The threads for the call's job. A call that may name an image by URL runs on threads of its own
 * (server->fetchers): a slow host delays no request that needs nothing from it. The body must be there.
 * Service thread. */
serve_workers *serve_ask_media_workers(serve_call *call);

/* ---- ask_tools.c ---- */

/* The name in {"function": {"name": …}} or {"custom": {"name": …}}; NULL: it has none. */
const char *serve_ask_tool_name(const json_t *tool);

/* add_tool: a function, and its place in the request; name, description, schema and strict may be NULL.
 * bring_tool: one that joins the request's own later, when read_brought reads all of these with `each`;
 * is_brought: a tool of this name is there already. */
bool serve_ask_add_tool(serve_ask *ask, const char *place, const json_t *name, const json_t *description,
                        const json_t *schema, const json_t *strict);
bool serve_ask_bring_tool(serve_ask *ask, const char *place, json_t *tool);
bool serve_ask_read_brought(serve_ask *ask, serve_reader *each);
bool serve_ask_is_brought(const serve_ask *ask, const json_t *name);
serve_reader serve_ask_tools, serve_ask_tool_choice;

/* Reads the `mode` and the `tools` of a choice among allowed tools, which is at `place`. `each` reads a tool:
 * it leaves out one that runs on another server (serve_foreign_skip), or passes its name to
 * allow_tool, which takes the reference. If none is left, no tool may be called. False: the call has its
 * answer. */
bool serve_ask_allow_tools(serve_ask *ask, const char *place, const json_t *allowed, serve_reader *each);
bool serve_ask_allow_tool(serve_ask *ask, json_t *name);

/* The tools that may be called, as functions: with a named one, that alone. Freed with json_decref. False:
 * the call has its answer. */
bool serve_ask_choose_tools(serve_ask *ask, json_t **tools);

/* Custom tools have a text as input. Models call them as functions with one parameter. */

/* The function's parameters, {"input": a text of the tool's format}; format may be NULL. place: the format's.
 * Freed with json_decref; NULL: the call has its answer. */
json_t *serve_ask_custom_schema(serve_call *call, const char *place, const json_t *format);

/* Adds a custom tool's name to the ask's; NULL: it has none. False: out of memory, and the call has its
 * answer. */
bool serve_ask_custom_name(serve_ask *ask, const json_t *name);

/* Appends the input that the arguments of a call have, as far as they were generated. *at: bytes of the
 * arguments that were read before, 0 at first. Arguments of another form are the input themselves. */
void serve_ask_custom_input(const weir__text *arguments, size_t *at, weir__text *input);

/* ---- ask_chat.c ---- */

/* Renders the messages, for the request. False: the call has its answer. */
bool serve_ask_render(serve_ask *ask, weir_request *request);

/* An API of conversations (ADR 0076). */
typedef struct serve_dialect {
    unsigned where;               /* a bit of SERVE_ASK_* */
    bool (*read)(serve_ask *ask); /* fields without a row, after serve_ask_read; NULL: none */
    const serve_form *form;
    /* Copies the parts of the request that answers repeat. False: out of memory. NULL: none. */
    bool (*repeat)(const serve_ask *ask, serve_answer *answer);
    const char *count; /* an answer about a counted prompt, up to the number */
} serve_dialect;

/* Answers a request for a conversation that was read. Worker. */
void serve_ask_submit(serve_ask *ask, const serve_dialect *dialect);

/* Answers a request for a conversation; answers one with the number of its prompt's tokens. Worker. */
void serve_ask_converse(serve_call *call, const serve_dialect *dialect);
void serve_ask_count(serve_call *call, const serve_dialect *dialect);

#endif
