/* error.c: turns errors of the library into answers, in the request's words, and its remarks into headers. An
 * error's field and message name members of the library. The fields that set one member are in the rows of
 * ask_fields.c, and a table here has the other names; a place in messages or tools becomes the one that the
 * dialect has. Lines of weir_chat_relaxed and weir_chat_reshaped become hints and a header in the same way.
 * SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "field.h"
#include "hint.h"
#include "server/models/loaded.h"
#include "server/request/call.h"
#include "server/system/log.h"

/* ---- Names ---- */

/* The library's name, and the field of a request or the option of the server. Fields that set one member are
 * in ask_fields.c. */
static const char *const names[][2] = {
    /* weir_request */
    {"text", "prompt"},
    {"tokens", "prompt"},
    {"n_tokens", "prompt"},
    {"chat", "messages"},
    {"n_stop", "stop"},
    {"stop_length", "stop"},
    {"n_stop_tokens", "stop_token_ids"},
    {"n_allowed_tokens", "allowed_token_ids"},
    {"n_bad_words", "bad_words"},
    {"source_at", "fork.at"},
    {"adapters", "lora"},
    {"n_adapters", "lora"},
    /* weir_sampler_params */
    {"sampler", "grammar"},
    {"n_dry_breakers", "dry_sequence_breakers"},
    {"n_logit_bias", "logit_bias"},
    {"grammar_root", "grammar"},
    /* weir_chat_params */
    {"messages_json", "messages"},
    {"tools_json", "tools"},
    {"n_messages", "messages"},
    {"n_args", "chat_template_kwargs"},
    {"media", "messages"},
    {"n_media", "messages"},
    {"template_source", "messages"}, /* the server's template does not know these */
    /* weir_engine_params, as options of weir serve */
    {"n_ctx", "--ctx"},
    {"n_kv", "--kv"},
    {"n_batch", "--batch-size"},
    {"n_slots", "--slots"},
    {"n_ubatch", "--ubatch-size"},
    {"queue_limit", "--queue"},
    {"draft_model", "--draft-model"},
    {"cache_bytes", "--cache-memory"},
    /* weir_pool_params, likewise */
    {"memory_bytes", "--memory"},
};

/* Names that differ in a dialect. */
static const struct {
    unsigned where;
    const char *name, *field;
} others[] = {
    {SERVE_ASK_MESSAGES, "n_stop", "stop_sequences"},   {SERVE_ASK_MESSAGES, "stop_length", "stop_sequences"},
    {SERVE_ASK_MESSAGES, "stop", "stop_sequences"},     {SERVE_ASK_RESPONSES, "chat", "input"},
    {SERVE_ASK_RESPONSES, "n_messages", "input"},       {SERVE_ASK_RESPONSES, "messages_json", "input"},
    {SERVE_ASK_RESPONSES, "template_source", "input"},  {SERVE_ASK_GENERATE, "chat", "prompt"},
    {SERVE_ASK_GENERATE, "n_messages", "prompt"},       {SERVE_ASK_GENERATE, "messages_json", "prompt"},
    {SERVE_ASK_GENERATE, "template_source", "prompt"},  {SERVE_ASK_OPTIONS, "n_stop", "options.stop"},
    {SERVE_ASK_OPTIONS, "stop_length", "options.stop"}, {SERVE_ASK_OPTIONS, "stop", "options.stop"},
};

static const char *find_name(const char *name, size_t n, const serve_terms *terms)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((others[i].where & terms->where) != 0 && strlen(others[i].name) == n &&
            memcmp(others[i].name, name, n) == 0)
            return others[i].field;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == n && memcmp(names[i][0], name, n) == 0) return names[i][1];
    return serve_fields_name(NULL, name, n, terms->where);
}

/* Skips the part that names the request and its member. */
static const char *skip_prefix(const char *field)
{
    const char *dot = strncmp(field, "requests[", 9) == 0 ? strstr(field, "].") : NULL;
    if (dot != NULL) field = dot + 2;
    return strncmp(field, "sampler.", 8) == 0 ? field + 8 : field;
}

/* "tools[4].tools[0]" as "tools/4/tools/0". */
static void as_pointer(char *place)
{
    char *out = place;
    for (const char *c = place; *c != '\0'; c++)
        if (*c != ']') *out++ = *c == '[' || *c == '.' ? '/' : *c;
    *out = '\0';
}

#define OWN_MESSAGE "the server's system message" /* in place of a field of the request */

/* Finds where the request has a dialect's tool or message. False: the field belongs to neither. */
static bool find_place(const char *field, const serve_terms *terms, char *out, size_t capacity)
{
    static const char function[] = ".function", parameters[] = "/function/parameters";
    unsigned i;
    int end = 0;
    char place[SERVE_PLACE_MAX];
    if (sscanf(field, "messages[%u]%n", &i, &end) == 1 && i < terms->n_added)
        return snprintf(out, capacity, OWN_MESSAGE) > 0;
    if (end > 0) {
        i -= (unsigned)terms->n_added;
        return (i < terms->messages.n ? snprintf(out, capacity, "%s", terms->messages.at[i])
                                      : snprintf(out, capacity, "messages[%u]%s", i, field + end)) > 0;
    }
    if (sscanf(field, "tools[%u]%n", &i, &end) == 1 && i < terms->tools.n &&
        strncmp(field + end, function, strlen(function)) == 0)
        return snprintf(out, capacity, "%s%s", terms->tools.at[i], field + end + strlen(function)) > 0;
    if (sscanf(field, "/%u%n", &i, &end) != 1 || i >= terms->tools.n ||
        strncmp(field + end, parameters, strlen(parameters)) != 0)
        return false;
    memcpy(place, terms->tools.at[i], sizeof place);
    as_pointer(place);
    return snprintf(out, capacity, "%s/%s%s", place, terms->parameters, field + end + strlen(parameters)) > 0;
}

void serve_names_field(const char *field, const serve_terms *terms, char *out, size_t capacity)
{
    field = skip_prefix(field);
    if (find_place(field, terms, out, capacity)) return;
    size_t n = strcspn(field, "[./:"); /* ":" ends the place of a relaxed keyword */
    const char *name = find_name(field, n, terms);
    if (field[0] == '/') /* a place in the tools' schemas */
        snprintf(out, capacity, "tools%s", field);
    else if (name != NULL)
        snprintf(out, capacity, "%s%s", name, field + n);
    else if (terms->schema_field != NULL && n == 11 && memcmp(field, "json_schema", n) == 0)
        snprintf(out, capacity, "%s%s", terms->schema_field, field + n);
    else
        snprintf(out, capacity, "%s", field);
}

/* A name of the library's, as the request has it. */
typedef struct naming {
    const serve_terms *terms;
    char name[256];
} naming;

static const char *name_in_terms(const char *name, void *user)
{
    naming *n = user;
    serve_names_field(name, n->terms, n->name, sizeof n->name);
    return n->name;
}

void serve_names_message(const weir_error *error, const serve_terms *terms, char *out, size_t capacity)
{
    naming n = {.terms = terms};
    weir_error_text(error, name_in_terms, &n, out, capacity);
}

/* ---- Headers ---- */

#define HEADER_MAX 2048 /* of a header's value */
#define MORE       "; and more"

/* Adds an item to a header's value, which holds ASCII. False: it has no room, and that is its end. */
static bool add_item(weir__text *header, const char *item)
{
    if (header->n + 3 * strlen(item) + sizeof MORE >= HEADER_MAX) return false;
    if (header->n > 0) weir__text_add_string(header, "; ");
    for (const char *c = item; *c != '\0'; c++)
        weir__text_printf(header, (unsigned char)*c < 0x80 ? "%c" : "%%%02X", (unsigned char)*c);
    return true;
}

void serve_call_relaxed(serve_call *call, const char *lines)
{
    char line[1024], place[1024];
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, lines);
        serve_names_field(line, &call->terms, place, sizeof place);
        if (!serve_hint_name(call, place)) return;
        lines += n + (lines[n] == '\n');
    }
}

/* A line of weir_chat_reshaped, in the request's terms. */
typedef struct reshaped {
    char message[96], shape[32], in[96]; /* in: "" = none */
} reshaped;

/* False: the list was cut here. */
static bool read_reshaped(const serve_call *call, const char **lines, reshaped *line)
{
    char message[32], in[32] = "";
    int n = sscanf(*lines, "%31[^:]: %31s in %31s", message, line->shape, in);
    *lines += strcspn(*lines, "\n");
    *lines += **lines == '\n';
    line->in[0] = '\0';
    if (n < 2) return false;
    serve_names_field(message, &call->terms, line->message, sizeof line->message);
    if (n > 2) serve_names_field(in, &call->terms, line->in, sizeof line->in);
    return true;
}

void serve_call_reshaped(serve_call *call, const char *dropped, const char *lines)
{
    weir__text header = {0};
    reshaped line;
    char item[256];
    bool all = true;
    for (size_t n; all && dropped != NULL && (n = strcspn(dropped, "\n")) > 0; dropped += n + 1) {
        snprintf(item, sizeof item, "%.*s: dropped_lines", (int)n, dropped);
        all = add_item(&header, item);
    }
    while (all && lines != NULL && *lines != '\0' && (all = read_reshaped(call, &lines, &line))) {
        snprintf(item, sizeof item, "%s: %s%s%s", line.message, line.shape, line.in[0] != '\0' ? " in " : "",
                 line.in);
        all = add_item(&header, item);
    }
    if (!all) weir__text_add_string(&header, MORE);
    if (header.failed)
        serve_call_no_memory(call);
    else if (header.n > 0)
        serve_log("debug", "messages", "request %s: changed for the prompt: %s", call->id, header.bytes);
    weir__mem_free(call->reshaped);
    call->reshaped = header.bytes;
}

void serve_call_add_reshaped(const serve_call *call, const char *lines, weir__text *text)
{
    reshaped line;
    bool all = true;
    if (lines == NULL || *lines == '\0') return;
    weir__json_key(text, "reshaped");
    weir__text_add_string(text, "[");
    while (*lines != '\0' && (all = read_reshaped(call, &lines, &line))) {
        weir__json_next(text);
        weir__text_add_string(text, "{");
        weir__json_string(text, "message", line.message);
        weir__json_string(text, "shape", line.shape);
        if (line.in[0] != '\0') weir__json_string(text, "in", line.in);
        weir__text_add_string(text, "}");
    }
    weir__text_add_string(text, "]");
    if (!all) weir__text_add_string(text, ",\"reshaped_more\":true");
}

/* ---- Answers ---- */

/* Clients tell a prompt that is too long from other errors by the words that the API's first server used.
 * Other dialects begin it by themselves. */
static void begin_too_long(const serve_call *call, char *begin, size_t capacity)
{
    weir_engine_stats stats = {.size = sizeof stats};
    if (call->loaded != NULL && call->route->engine &&
        weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK)
        snprintf(begin, capacity, "This model's maximum context length is %d tokens. However, ", stats.n_ctx);
    else
        snprintf(begin, capacity, "the request exceeds the available context size: ");
}

bool serve_call_too_long(serve_call *call, const char *field, const char *format, ...)
{
    char begin[96] = "", message[512];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    if (call->error == NULL) begin_too_long(call, begin, sizeof begin);
    return serve_call_refuse(call, 400, field, "context_length_exceeded", "%s%s", begin, message);
}

static bool refuse_call(serve_call *call, const weir_error *error)
{
    char field[sizeof error->field], message[sizeof error->message];
    serve_names_field(error->field, &call->terms, field, sizeof field);
    serve_names_message(error, &call->terms, message, sizeof message);
    if (strcmp(field, OWN_MESSAGE) == 0) field[0] = '\0';
    switch (error->code) {
    case WEIR_INVALID:
    case WEIR_REFUSED:
    case WEIR_GRAMMAR:
    case WEIR_TEMPLATE:
    case WEIR_FORMAT: return serve_call_refuse(call, 400, field, "invalid_value", "%s", message);
    case WEIR_UNSUPPORTED: return serve_call_refuse(call, 400, field, "unsupported_value", "%s", message);
    case WEIR_TOO_LONG: return serve_call_too_long(call, field, "%s", message);
    case WEIR_BUSY: {
        weir_engine_stats stats = {.size = sizeof stats};
        int64_t wait = 0;
        if (call->loaded != NULL && weir_engine_get_stats(call->loaded->engine, &stats) == WEIR_OK)
            wait = stats.retry_ns / WEIR__NS_PER_S;
        bool soon = serve_retry_after(call, wait + (wait > 0));
        return serve_call_refuse(call, 429, NULL, "queue_full", "%s%s", message,
                                 soon ? "" : "; clients wait up to 120 s, so there is no Retry-After");
    }
    case WEIR_NO_MEMORY: return serve_call_no_memory(call);
    case WEIR_ABORTED: return serve_call_interrupted(call);
    case WEIR_BACKEND:
        if (call->loaded == NULL || weir_model_check(call->loaded->model, NULL) == WEIR_OK) break;
        if (call->lease != NULL) (void)serve_retry_after(call, 1); /* the next request has it loaded again */
        return serve_call_refuse(call, 503, NULL, "model_lost", "%s", message);
    case WEIR_STOPPED: return serve_call_stopping(call);
    default: break;
    }
    return serve_call_refuse(call, 500, NULL, weir_status_name(error->code), "%s", message);
}

bool serve_call_passes(serve_call *call, weir_status status, weir_error *error)
{
    error->code = status;
    return status == WEIR_OK || refuse_call(call, error);
}
