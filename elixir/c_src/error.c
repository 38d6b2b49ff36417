/* error.c: errors of the library as Weir.Error, in the names that Elixir's options have.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "nif.h"

/* ---- Names ---- */

/* Members whose option has a different name, or that are part of an option. of: the struct that they are an
 * option of; NULL: the name occurs only in errors. within: only if the error's field begins with this,
 * because other structs have a member of the same name. */
static const struct {
    const char *of, *member, *option, *within;
} renamed[] = {
    {"engine", "n_slots", "n_parallel", NULL},
    {"engine", "n_kv", "n_ctx", NULL},
    {"engine", "queue_limit", "max_queue", NULL},
    {"request", "deadline_ms", "deadline", NULL},
    {"request", "itl_target_ms", "itl_target", NULL},
    {"request", "n_logprobs", "top_logprobs", NULL},
    {"request", "source_at", "at", NULL},
    {"request", "adapters", "lora", NULL},
    {"context", "pooling", "pooling_type", NULL},
    {"chat", "add_generation_prompt", "add_assistant", NULL},
    {"chat", "template_source", "template", NULL},
    {"hub", "timeout_ms", "timeout", NULL},
    {"pool", "memory_bytes", "memory", NULL},
    {"pool", "queue_limit", "max_queue", NULL},
    {"pool_model", "idle_ms", "idle", NULL},
    {"pool_model", "path", "model_path", "models["},
    {"pool_model", "draft_path", "draft_model", NULL},
    {"pool_model", "adapters", "lora", NULL},
    {NULL, "text", "prompt", "requests["},
    {NULL, "tokens", "prompt", "requests["},
    {NULL, "n_tokens", "prompt", "requests["},
    {NULL, "n_prompt", "prompt", NULL},
    {NULL, "chat", "messages", "requests["},
    {NULL, "media", "messages", NULL},
    {NULL, "n_media", "messages", NULL},
    {NULL, "messages_json", "messages", NULL},
    {NULL, "n_messages", "messages", NULL},
    {NULL, "tools_json", "tools", NULL},
    {NULL, "n_args", "chat_template_kwargs", NULL},
    {NULL, "n_adapters", "lora", NULL},
    {NULL, "n_stop", "stop", NULL},
    {NULL, "stop_length", "stop", NULL},
    {NULL, "n_stop_tokens", "stop_tokens", NULL},
    {NULL, "n_allowed_tokens", "allowed_tokens", NULL},
    {NULL, "n_bad_words", "bad_words", NULL},
    {NULL, "n_logit_bias", "logit_bias", NULL},
    {NULL, "n_dry_breakers", "dry_breakers", NULL},
};

#define N_RENAMED (sizeof renamed / sizeof *renamed)

const char *nif_option_name(const char *of, const char *member)
{
    for (size_t i = 0; i < N_RENAMED; i++)
        if (renamed[i].of != NULL && strcmp(renamed[i].of, of) == 0 && strcmp(renamed[i].member, member) == 0)
            return renamed[i].option;
    return member;
}

typedef struct naming {
    const char *field, *option; /* the error's, in both terms */
    bool told;                  /* the message has named it */
    char name[sizeof((weir_error *)NULL)->field + 16];
} naming;

/* Skips the struct's name: a call has one request, and a model's options form one list. *kept: the length of
 * the prefix that stays, the model's place in the list. */
static const char *skip_structs(const char *name, int *kept)
{
    static const char *const structs[] = {"sampler.", "engine.", "model."};
    unsigned i;
    if (sscanf(name, "requests[%u].%n", &i, kept) == 1 && *kept > 0)
        name += *kept, *kept = 0;
    else if (sscanf(name, "models[%u].%n", &i, kept) == 1)
        name += *kept;
    for (size_t k = 0; k < sizeof structs / sizeof *structs; k++)
        if (strncmp(name, structs[k], strlen(structs[k])) == 0) return name + strlen(structs[k]);
    return name;
}

static const char *find_option(const char *member, size_t length, const char *field)
{
    for (size_t i = 0; i < N_RENAMED; i++) {
        const char *within = renamed[i].within;
        if (strlen(renamed[i].member) == length && memcmp(renamed[i].member, member, length) == 0 &&
            (within == NULL || strncmp(field, within, strlen(within)) == 0))
            return renamed[i].option;
    }
    return NULL;
}

/* A weir_name_fn: "requests[0].sampler.top_k" as "top_k", "tokens[3]" as "prompt[3]". */
static const char *option_of(const char *name, void *user)
{
    int kept = 0;
    naming *n = user;
    const char *member = skip_structs(name, &kept);
    size_t length = strcspn(member, "[./");
    const char *option = find_option(member, length, n->field);
    if (member[0] == '/') /* a place in the schemas of tools */
        snprintf(n->name, sizeof n->name, "tools%s", member);
    else if (option != NULL)
        snprintf(n->name, sizeof n->name, "%.*s%s%s", kept, name, option, member + length);
    else
        snprintf(n->name, sizeof n->name, "%.*s%s", kept, name, member);
    if (n->option != NULL && strncmp(n->name, n->option, strcspn(n->option, "[./")) == 0) n->told = true;
    return n->name;
}

/* ---- Codes ---- */

/* A status as Weir.Error's code, with the HTTP status that weir's server answers with. */
typedef struct failure {
    const char *code;
    int http;
} failure;

static failure failure_of_kind(weir_error_kind kind)
{
    switch (kind) {
    case WEIR_ERROR_MISSING: return (failure){"missing", 400};
    case WEIR_ERROR_RANGE: return (failure){"out_of_range", 400};
    case WEIR_ERROR_CONFLICT: return (failure){"conflict", 400};
    case WEIR_ERROR_DUPLICATE: return (failure){"duplicate", 400};
    case WEIR_ERROR_NONE:
    case WEIR_ERROR_UNKNOWN:
    case WEIR_ERROR_FORM: break;
    }
    return (failure){"invalid", 400};
}

static bool is_prompt(const char *option)
{
    return strcmp(option, "prompt") == 0 || strcmp(option, "messages") == 0;
}

static failure failure_of(weir_status status, weir_error_kind kind, const char *option)
{
    switch (status) {
    case WEIR_INVALID:
        if (kind == WEIR_ERROR_MISSING && is_prompt(option)) return (failure){"empty_prompt", 400};
        return failure_of_kind(kind);
    case WEIR_TOO_LONG:
        return is_prompt(option) ? (failure){"context_full", 400} : (failure){"too_large", 413};
    case WEIR_REFUSED: return (failure){"token_refused", 400};
    case WEIR_GRAMMAR: return (failure){"grammar", 400};
    case WEIR_TEMPLATE: return (failure){"template", 400};
    case WEIR_FORMAT: return (failure){"damaged", 400};
    case WEIR_UNSUPPORTED: return (failure){"unsupported", 400};
    case WEIR_NOT_FOUND: return (failure){"not_found", 404};
    case WEIR_BUSY: return (failure){"queue_full", 429};
    case WEIR_ABORTED: return (failure){"cancelled", 499};
    case WEIR_IO: return (failure){"io", 500};
    case WEIR_STATE: return (failure){"state", 500};
    case WEIR_NO_SPACE: return (failure){"no_space", 500};
    case WEIR_DENIED: return (failure){"denied", 500};
    case WEIR_TIMEOUT: return (failure){"timeout", 503};
    case WEIR_NO_MEMORY: return (failure){"no_memory", 503};
    case WEIR_STOPPED: return (failure){"stopping", 503};
    case WEIR_BACKEND:
    case WEIR_OK:
    case WEIR_END: break;
    }
    return (failure){"backend", 500};
}

static ERL_NIF_TERM struct_term(ErlNifEnv *env, failure f, const char *option, const char *message)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "__struct__", nif_atom(env, "Elixir.Weir.Error"));
    nif_put(env, &map, "__exception__", nif_atom(env, "true"));
    nif_put(env, &map, "status", enif_make_int(env, f.http));
    nif_put(env, &map, "code", nif_atom(env, f.code));
    nif_put(env, &map, "field", nif_text_or_nil(env, option));
    nif_put(env, &map, "message", nif_binary(env, message, WEIR_NUL));
    nif_put(env, &map, "text", nif_atom(env, "nil"));
    return enif_make_tuple2(env, nif_atom(env, "error"), map);
}

/* Puts the field before a message that does not name it. */
static ERL_NIF_TERM error_term(ErlNifEnv *env, weir_status status, const weir_error *error, bool load)
{
    char text[2 * sizeof error->message], whole[sizeof text + sizeof error->field + 32];
    weir_error known = *error;
    naming field = {.field = error->field}, names = {.field = error->field};
    const char *option = names.option = option_of(error->field, &field);
    failure f = failure_of(status, error->kind, option);
    if (load && status == WEIR_BUSY) f.code = "model_busy";
    if (load && f.http != 503 && status != WEIR_BUSY && status != WEIR_TOO_LONG) f.code = "load_failed";
    if (load) f.http = 503;
    known.code = status;
    weir_error_text(&known, option_of, &names, text, sizeof text);
    bool prefixed = option[0] != '\0' && error->message[0] != '\0' && !names.told;
    snprintf(whole, sizeof whole, "%s%s%s", prefixed ? option : "", prefixed ? ": " : "", text);
    return struct_term(env, f, option, whole);
}

ERL_NIF_TERM nif_refused(ErlNifEnv *env, weir_status status, const weir_error *error)
{
    return error_term(env, status, error, false);
}

ERL_NIF_TERM nif_refused_load(ErlNifEnv *env, weir_status status, const weir_error *error)
{
    /* An unknown name is the caller's fault, whoever loads. A lease whose own time is over is BUSY, as a full
     * queue is. */
    if (status == WEIR_NOT_FOUND && strcmp(error->field, "name") == 0) return nif_refused(env, status, error);
    if (status == WEIR_BUSY && strcmp(error->field, "timeout_ms") == 0) status = WEIR_TIMEOUT;
    return error_term(env, status, error, true);
}

ERL_NIF_TERM nif_failed(ErlNifEnv *env, weir_status status)
{
    return nif_refused(env, status, &(weir_error){.code = status});
}

ERL_NIF_TERM nif_error(nif_call *call, weir_status status, const char *field, const char *message)
{
    call->error = (weir_error){.code = status};
    snprintf(call->error.field, sizeof call->error.field, "%s", field);
    snprintf(call->error.message, sizeof call->error.message, "%s", message);
    return nif_refused(call->env, status, &call->error);
}

ERL_NIF_TERM nif_status(nif_call *call, weir_status status)
{
    return status == WEIR_OK ? nif_atom(call->env, "ok") : nif_refused(call->env, status, &call->error);
}
