/* render.c: renders a conversation with its template.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A rendering checks the arguments, changes messages that the template refuses (reshape.c), asks llama.cpp
 * for prompt, grammar and parser, and may do so twice: an answer that goes on must fit its form. Then BOS
 * and EOS are cut off, control tokens in contents are found (content.c), and the chat gets the results.
 * Templates run on a thread with enough stack and within limits. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/deep.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "chat/chat.h"
#include "chat/continued.h"
#include "chat/reshape.h"
#include "chat/template.h"

/* render.c: finds which parts of the rendered prompt are contents that must remain text. deletes, again,
 * user: as in weir__chat_content_find. */
static weir_status find_content(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                                bool deletes, weir__chat_render_fn again, void *user, weir_error *error)
{
    const weir__controls *controls;
    weir_status status = weir__model_controls(chat->model, &controls, error);
    if (status == WEIR_OK)
        status = weir__chat_content_find(controls, messages, params->special_content, deletes, chat->prompt,
                                         chat->prompt_length, again, user, &chat->spans, error);
    chat->special = chat->spans.known ? params->special_content : WEIR_SPECIAL_ALL;
    return status;
}

#ifndef WEIR_NO_LLAMA

/* One rendering: its input, data derived from that (owned), and the result. */
typedef struct rendering {
    const weir_chat_params *params;
    const json_t *messages; /* what is rendered: those given, or `put` */
    json_t *put;            /* owned */
    size_t n_added;         /* the first of them, which the caller did not give */
    const weir__chat_tools *tools;
    weir__text *relaxed; /* as weir__chat_render has it */
    time_t now;
    bool enable_thinking;
    weir__chat_template *template;
    json_t *schema, *args;
    weir__chat_continued last;
    weir__continuation continuation; /* of the next run */
    json_t *sent;                    /* the messages of the next run; owned */
    weir__llama_chat *out;           /* the caller's; NULL unless status is WEIR_OK */
    weir__text *prompt;              /* gets a prompt that is rendered alone; NULL: create the chat */
    weir_status status;
    weir_error error;
} rendering;

/* ---- Variables of the template ---- */

static weir_status add_argument(rendering *r, const char *key, json_t *value, weir_error *error)
{
    return json_object_set_new(r->args, key, value) == 0 ? WEIR_OK : weir__chat_no_memory(error);
}

static weir_status add_given(rendering *r, size_t i, weir_error *error)
{
    static const char *const reserved[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                           "eos_token"};
    const weir_template_arg *given = &r->params->args[i];
    char field[32];
    json_t *value = NULL;
    snprintf(field, sizeof field, "args[%zu]", i);
    if (given->key == NULL || given->key[0] == '\0' || given->value == NULL)
        return weir__invalid(error, WEIR_ERROR_MISSING, field, "`%s` must have a key and a value", field);
    if (!weir__utf8_valid(given->key, strlen(given->key)) ||
        !weir__utf8_valid(given->value, strlen(given->value)))
        return weir__invalid(error, WEIR_ERROR_FORM, field, "`%s` is not well-formed UTF-8", field);
    for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
        if (strcmp(given->key, reserved[k]) == 0)
            return weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                                 "`%s`: the key \"%s\" is set by weir and cannot be given", field,
                                 given->key);
    if (json_object_get(r->args, given->key) != NULL)
        return weir__invalid(error, WEIR_ERROR_DUPLICATE, field, "`%s`: the key \"%.60s\" is given twice",
                             field, given->key);
    weir_status status = weir__json_parse_texts(given->value, WEIR_NUL, field, WEIR_INVALID, &value, NULL);
    if (status == WEIR_NO_MEMORY || status == WEIR_ABORTED) return weir__chat_no_memory(error);
    if (status != WEIR_OK) value = json_string(given->value);
    if (!weir__json_is_narrow(value)) {
        json_decref(value);
        return weir__chat_too_wide(field, WEIR_INVALID, error);
    }
    if (strcmp(given->key, "enable_thinking") == 0) {
        if (!json_is_boolean(value)) {
            json_decref(value);
            return weir__invalid(error, WEIR_ERROR_FORM, field,
                                 "`%s`: `enable_thinking` must be true or false", field);
        }
        r->enable_thinking = json_is_true(value);
    }
    return add_argument(r, given->key, value, error);
}

/* llama.cpp would use the present date. */
static weir_status add_date(rendering *r, const char *key, const char *format, weir_error *error)
{
    char text[64];
    struct tm local;
    if (json_object_get(r->args, key) != NULL) return WEIR_OK;
    if (localtime_r(&r->now, &local) == NULL || strftime(text, sizeof text, format, &local) == 0)
        return weir__invalid(error, WEIR_ERROR_FORM, "now", "`now` is not a date that can be printed");
    return add_argument(r, key, json_string(text), error);
}

static weir_status read_args(rendering *r, weir_error *error)
{
    weir_status status = WEIR_OK;
    r->args = json_object();
    for (size_t i = 0; status == WEIR_OK && i < r->params->n_args; i++) status = add_given(r, i, error);
    if (status == WEIR_OK) status = add_date(r, "datetime", "%b %d %Y", error);
    if (status == WEIR_OK) status = add_date(r, "date_string", "%d %b %Y", error);
    return status;
}

/* ---- The template's run ---- */

static weir_status find_template(rendering *r, weir_model *model, weir_error *error)
{
    bool with_tools = r->tools->shown != NULL;
    weir_status status = weir__chat_template_choose(model, r->params->template_source, with_tools,
                                                    (time_t)r->params->now, &r->template, error);
    if (status != WEIR_OK) return status;
    if (with_tools && !weir__llama_template_knows_tools(r->template->parsed))
        return weir__error_set(error, WEIR_UNSUPPORTED, "tools_json",
                               "the chat template does not know tools");
    return WEIR_OK;
}

static weir_status read_schema(rendering *r, weir_error *error)
{
    const weir__schema_terms terms = weir__chat_schema_terms(r->params, r->relaxed);
    json_t *given = NULL;
    if (r->params->json_schema == NULL) return WEIR_OK;
    weir_status status =
        weir__json_parse(r->params->json_schema, WEIR_NUL, "json_schema", WEIR_GRAMMAR, &given, error);
    if (status == WEIR_OK && !weir__json_is_narrow(given))
        status = weir__chat_too_wide("json_schema", WEIR_GRAMMAR, error);
    if (status == WEIR_OK) status = weir__schema_rewrite(given, &terms, &r->schema, error);
    json_decref(given);
    return status;
}

/* True if a text or key in the value has WEIR__JSON_BIG. */
static bool has_big_mark(const json_t *value)
{
    const char *key, *text = json_string_value(value);
    bool found = text != NULL && strstr(text, WEIR__JSON_BIG) != NULL;
    json_t *one;
    size_t i;
    if (weir__json_digits(value) != NULL) return false;
    json_object_foreach((json_t *)value, key, one)
    {
        found = found || strstr(key, WEIR__JSON_BIG) != NULL || has_big_mark(one);
    }
    json_array_foreach((json_t *)value, i, one) found = found || has_big_mark(one);
    return found;
}

/* llama.cpp's JSON keeps integers beyond 64 bits as texts that begin with WEIR__JSON_BIG. A text that has it
 * would be taken for one. */
static weir_status check_text(const json_t *value, const char *field, weir_error *error)
{
    if (!has_big_mark(value)) return WEIR_OK;
    return weir__invalid(error, WEIR_ERROR_FORM, field,
                         "`%s` has the noncharacter U+FDD0 twice in a row, which is no text: Unicode "
                         "reserves it for the inside of programs; leave it out",
                         field);
}

static weir_status check_texts(const rendering *r, const json_t *messages, weir_error *error)
{
    const json_t *const values[] = {r->tools->shown, r->tools->enforced, r->schema, r->args};
    static const char *const names[] = {"tools_json", "tools_json", "json_schema", "args"};
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < sizeof values / sizeof *values; i++)
        status = check_text(values[i], names[i], error);
    for (size_t i = 0; status == WEIR_OK && i < json_array_size(messages); i++) {
        char field[64] = "messages";
        if (i >= r->n_added) snprintf(field, sizeof field, "messages[%zu]", i - r->n_added);
        status = check_text(json_array_get(messages, i), field, error);
    }
    return status;
}

/* Takes the messages, NULL: out of memory. */
static weir_status send_messages(rendering *r, json_t *messages, weir_error *error)
{
    json_decref(r->sent);
    r->sent = messages;
    return messages != NULL ? WEIR_OK : weir__chat_no_memory(error);
}

static bool add_prompt(void *user, const char *prompt, size_t n)
{
    return weir__text_add(user, prompt, n);
}

static void run_template(void *user)
{
    rendering *r = user;
    const weir__llama_render in = {
        .messages = r->sent,
        .tools = r->tools->shown,
        .enforced_tools = r->tools->enforced,
        .json_schema = r->schema,
        .args = r->args,
        .tool_choice = r->params->tool_choice,
        .parallel_tool_calls = r->params->parallel_tool_calls,
        .add_generation_prompt = r->params->add_generation_prompt,
        .enable_thinking = r->enable_thinking,
        .continuation = r->continuation,
        .fenced = r->last.text != NULL && strstr(r->last.text, "```") != NULL,
        .parse_reasoning = r->params->parse_reasoning,
    };
    const weir__llama_template *parsed = r->template->parsed;
    r->status = r->prompt == NULL ? weir__llama_chat_create(parsed, &in, &r->out, &r->error)
                                  : weir__llama_chat_prompt(parsed, &in, add_prompt, r->prompt, &r->error);
}

static size_t stack_of(const rendering *r)
{
    return r->params->template_source != NULL ? WEIR__CHAT_STACK_GIVEN : WEIR__CHAT_STACK;
}

/* Runs the template with enough stack, as templates recurse. */
static weir_status run_on_stack(rendering *r, weir_error *error)
{
    weir_status status = weir__deep_run(run_template, r, stack_of(r), error);
    return status == WEIR_OK && r->status != WEIR_OK ? weir__error_copy(error, &r->error) : status;
}

/* The prompt alone; takes the messages. */
static weir_status render_alone(rendering *r, json_t *messages, weir__text *prompt, weir_error *error)
{
    weir_status status = send_messages(r, messages, error);
    r->prompt = prompt;
    prompt->n = 0;
    if (status == WEIR_OK) status = run_on_stack(r, error);
    r->prompt = NULL;
    return status;
}

/* The text that the answer begins with for its form. */
static const char *begun_of(const weir__chat_continued *last)
{
    return last->apart ? "" : last->text;
}

static weir_status create_form(rendering *r, weir_error *error)
{
    json_t *messages = r->last.kind == WEIR__CONTINUE_NONE
                           ? json_incref((json_t *)r->messages)
                           : weir__chat_continued_single(&r->last, r->messages, begun_of(&r->last));
    weir_status status = send_messages(r, messages, error);
    r->continuation = r->last.kind;
    r->prompt = NULL;
    return status == WEIR_OK ? run_on_stack(r, error) : status;
}

/* An answer as it has begun. */
typedef struct begun {
    const weir__llama_chat *reader;
    weir__llama_message m;
    weir_status status;
    weir_error error;
} begun;

static void parse_begun(void *user)
{
    begun *b = user;
    b->status = weir__llama_chat_parse(b->reader, "", 0, false, &b->m, &b->error);
}

/* Brackets of a text that goes on in JSON: parsers recurse over them, with 2.2 kB of stack for each. */
#define BEGUN_BRACKETS_MAX 2000

static weir_status check_begun(const rendering *r, const json_t *messages, weir_error *error)
{
    size_t n = 0;
    char field[48];
    if (r->last.kind == WEIR__CONTINUE_NONE || (r->schema == NULL && r->tools->shown == NULL)) return WEIR_OK;
    for (const char *at = r->last.text; *at != '\0'; at++) n += weir__chat_is_bracket(*at);
    if (n <= BEGUN_BRACKETS_MAX) return WEIR_OK;
    snprintf(field, sizeof field, "messages[%zu].content", json_array_size(messages) - 1 - r->n_added);
    return weir__error_numbers(error, WEIR_INVALID, field, (double)n, 0, BEGUN_BRACKETS_MAX,
                               "`%s` has %zu brackets; a text that goes on beside a schema or tools can have "
                               "%d: continue a shorter one",
                               field, n, BEGUN_BRACKETS_MAX);
}

/* Reads the answer as it has begun: *fits, if it fits its form; *reasons, if it is within reasoning. */
static weir_status read_begun(const rendering *r, bool *fits, bool *reasons, weir_error *error)
{
    begun b = {.reader = r->out};
    weir_error why = {0};
    weir_status status = weir__deep_run(parse_begun, &b, WEIR__CHAT_STACK, &why);
    if (status == WEIR_OK) {
        status = b.status;
        why = b.error;
    }
    weir__llama_message m = b.m;
    *fits = status == WEIR_OK && !m.broken;
    *reasons = status == WEIR_OK && m.reasoning_length > 0;
    if (status == WEIR_OK) weir__llama_message_fini(&m);
    return status == WEIR_NO_MEMORY || status == WEIR_ABORTED ? weir__error_copy(error, &why) : WEIR_OK;
}

/* Renders the text that the template adds for the last message, up to the end of the message's own text. */
static weir_status render_added(rendering *r, weir__text *added, weir_error *error)
{
    weir__text before = {0};
    size_t n = 0;
    r->continuation = WEIR__CONTINUE_NONE;
    weir_status status = render_alone(r, weir__chat_continued_before(r->messages), &before, error);
    if (status == WEIR_OK)
        status = render_alone(r, weir__chat_continued_alone(&r->last, r->messages, begun_of(&r->last)), added,
                              error);
    if (status == WEIR_OK && weir__chat_continued_cut(&r->last, added)) {
        while (n < before.n && n < added->n && before.bytes[n] == added->bytes[n]) n++;
        memmove(added->bytes, added->bytes + n, added->n - n + 1);
    } else if (status == WEIR_OK) {
        added->n = 0;
    }
    weir__text_fini(&before);
    return status;
}

/* Some handlers begin an answer with reasoning that their own form lacks. Then it begins as in the prompt, if
 * that fits. */
static weir_status fit_form(rendering *r, weir_error *error)
{
    weir__text added = {0};
    bool fits, reasons;
    char *own = NULL;
    weir_error why = {0};
    weir_status status = read_begun(r, &fits, &reasons, error);
    if (status != WEIR_OK || fits) return status;
    own = weir__mem_strdup(weir__llama_chat_rendered(r->out)->generation_prompt);
    status = own != NULL ? render_added(r, &added, &why) : weir__chat_no_memory(&why);
    if (status == WEIR_OK && added.n > 0) {
        status = weir__llama_chat_begin(r->out, added.bytes, &why);
        if (status == WEIR_OK) status = read_begun(r, &fits, &reasons, &why);
        fits = fits && (!reasons || r->last.reasons); /* the text itself is not reasoning */
        if (status == WEIR_OK && !fits) status = weir__llama_chat_begin(r->out, own, &why);
    }
    weir__mem_free(own);
    weir__text_fini(&added);
    return status == WEIR_NO_MEMORY || status == WEIR_ABORTED ? weir__error_copy(error, &why) : WEIR_OK;
}

/* Reasoning that has no place in the form of the answer is left out, and the text begins. */
static weir_status create_chat(rendering *r, weir_error *error)
{
    bool fits, reasons = true;
    weir_status status = create_form(r, error);
    if (status == WEIR_OK && r->last.kind == WEIR__CONTINUE_REASONING && r->params->parse_reasoning)
        status = read_begun(r, &fits, &reasons, error);
    if (status == WEIR_OK && !reasons) {
        weir__llama_chat_destroy(r->out);
        r->out = NULL;
        r->last.kind = WEIR__CONTINUE_TEXT;
        status = create_form(r, error);
    }
    return status == WEIR_OK && r->last.kind == WEIR__CONTINUE_TEXT ? fit_form(r, error) : status;
}

static weir_status render_again(void *user, const json_t *messages, weir__text *prompt, weir_error *error)
{
    rendering *r = user;
    const weir__chat_continued *last = &r->last;
    r->continuation = last->cut ? WEIR__CONTINUE_NONE : last->kind;
    json_t *own = last->cut                           ? weir__chat_continued_marked(last, messages)
                  : last->kind != WEIR__CONTINUE_NONE ? weir__chat_continued_joined(last, messages)
                                                      : json_incref((json_t *)messages);
    weir_status status = render_alone(r, own, prompt, error);
    if (status != WEIR_OK || !last->cut || weir__chat_continued_cut(last, prompt)) return status;
    return weir__error_set(error, WEIR_TEMPLATE, "messages", "the chat template leaves out the last message");
}

/* The prompt of a message that goes on. Some templates leave out reasoning, or all parts of a content but the
 * first one, or raise an error: then the prompt is the handler's. */
static weir_status render_last(rendering *r, weir_chat *chat, weir_error *error)
{
    weir__text prompt = {0};
    weir_error why = {0};
    r->last.cut = true;
    weir_status status = render_again(r, r->messages, &prompt, &why);
    if (status != WEIR_OK && status != WEIR_NO_MEMORY && status != WEIR_ABORTED) {
        r->last.cut = false;
        status = render_again(r, r->messages, &prompt, &why);
    }
    chat->prompt = chat->own_prompt = prompt.bytes;
    chat->prompt_length = prompt.n;
    return status == WEIR_OK ? WEIR_OK : weir__error_copy(error, &why);
}

/* ---- Messages that the template refuses ---- */

/* Takes these messages, or puts what the template refuses of them. */
static weir_status put_messages(rendering *r, const json_t *messages, size_t n_added, weir__text *lines,
                                weir_error *error)
{
    unsigned refused = 0;
    json_decref(r->put);
    r->put = NULL;
    r->messages = messages;
    if (r->params->strict_messages || weir__chat_is_regular(messages)) return WEIR_OK;
    weir_status status = weir__chat_probe(r->template, r->tools->shown != NULL, stack_of(r), &refused, error);
    if (status != WEIR_OK || refused == 0) return status;
    if (!weir__chat_reshape(messages, refused, n_added, &r->put, lines)) return weir__chat_no_memory(error);
    if (r->put != NULL) r->messages = r->put;
    return WEIR_OK;
}

/* Checks that the template takes the first n of these messages. Errors are those of render_again. */
static weir_status try_first(rendering *r, const json_t *messages, size_t n, weir_error *error)
{
    json_t *first = json_array(), *message;
    weir__text prompt = {0};
    size_t i;
    bool ok = first != NULL;
    json_array_foreach((json_t *)messages, i, message)
    {
        if (i < n) ok = ok && json_array_append(first, message) == 0;
    }
    weir_status status = ok ? put_messages(r, first, 0, NULL, error) : weir__chat_no_memory(error);
    if (status == WEIR_OK) status = render_again(r, r->messages, &prompt, error);
    weir__text_fini(&prompt);
    json_decref(first);
    return status;
}

/* True if the template takes a conversation at all. */
static bool takes_hello(rendering *r)
{
    json_t *hello = json_pack("[{s:s,s:s}]", "role", "user", "content", "Hello");
    weir_error own = {0};
    bool takes = hello != NULL && try_first(r, hello, 1, &own) == WEIR_OK;
    json_decref(hello);
    return takes;
}

/* Finds a message that the template refuses although it takes those before it, and names it in the error of
 * the template, which says it of all messages. */
static void find_refused(rendering *r, const json_t *messages, size_t n_added, weir_error *error)
{
    size_t good = 0, bad = json_array_size(messages);
    weir_status status = WEIR_OK;
    weir_error own = {0};
    char field[40];
    weir__chat_continued_fini(&r->last); /* no message goes on */
    while (bad - good > 1 && (status == WEIR_OK || status == WEIR_TEMPLATE)) {
        size_t n = good + (bad - good) / 2;
        status = try_first(r, messages, n, &own);
        if (status == WEIR_OK)
            good = n;
        else
            bad = n;
    }
    if ((status != WEIR_OK && status != WEIR_TEMPLATE) || bad <= n_added) return;
    if (good == 0 && !takes_hello(r)) {
        error->field[0] = '\0'; /* it is not the messages */
        return;
    }
    snprintf(field, sizeof field, "messages[%zu]", bad - 1 - n_added);
    weir__error_wrap(error, error, WEIR_TEMPLATE, field, "`%s`: ", field);
}

/* True if the template has words that remove text from a text. */
static bool template_deletes(const weir__chat_template *t)
{
    static const char *const words[] = {"replace", "split", "join"};
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) found |= strstr(t->source, words[i]) != NULL;
    return found;
}

/* ---- The prompt ---- */

/* True if bytes from..to of the prompt have a byte of a content. */
static bool is_content(const weir_chat *chat, size_t from, size_t to)
{
    for (size_t i = 0; i < chat->spans.n; i++)
        if (chat->spans.at[i].from < to && from < chat->spans.at[i].to) return true;
    return false;
}

/* Removes the first n bytes of the prompt. */
static void cut_front(weir_chat *chat, size_t n)
{
    chat->prompt += n;
    chat->prompt_length -= n;
    for (size_t i = 0; i < chat->spans.n; i++) {
        chat->spans.at[i].from -= n;
        chat->spans.at[i].to -= n;
    }
}

static weir_status cut_back(weir_chat *chat, size_t n, weir_error *error)
{
    size_t length = chat->prompt_length - n;
    char *prompt = weir__mem_calloc(length + 1, 1);
    if (prompt == NULL) return weir__chat_no_memory(error);
    memcpy(prompt, chat->prompt, length);
    weir__mem_free(chat->own_prompt);
    chat->prompt = chat->own_prompt = prompt;
    chat->prompt_length = length;
    return WEIR_OK;
}

/* The tokenizer adds BOS and EOS if the model wants them, so the text must not have them too. */
static weir_status strip_specials(weir_chat *chat, weir_error *error)
{
    const weir_model_info *info = &chat->model->info;
    const int32_t tokens[2] = {info->add_bos ? info->token_bos : -1, info->add_eos ? info->token_eos : -1};
    weir_status status = WEIR_OK;
    weir__text piece = {0};
    for (int i = 0; i < 2 && status == WEIR_OK; i++) {
        piece.n = 0;
        if (!weir__model_add_piece(chat->model, tokens[i], true, &piece))
            status = weir__chat_no_memory(error);
        if (piece.n == 0 || piece.n > chat->prompt_length || status != WEIR_OK) continue;
        size_t n = piece.n, at = i == 0 ? 0 : chat->prompt_length - n;
        if (memcmp(chat->prompt + at, piece.bytes, n) != 0 || is_content(chat, at, at + n)) continue;
        if (i == 0)
            cut_front(chat, n);
        else
            status = cut_back(chat, n, error);
    }
    weir__text_fini(&piece);
    return status;
}

/* ---- The chat ---- */

/* Some templates have calls with arguments one by one, unquoted. Their texts are not constrained. */
static weir_status check_enforcement(const weir_chat *chat, rendering *r, weir_error *error)
{
    if (r->tools->shown == NULL || r->params->tool_choice == WEIR_TOOLS_NONE) return WEIR_OK;
    if (chat->constraint != NULL && !weir__llama_chat_rendered(chat->reader)->form.loose_arguments)
        return WEIR_OK;
    if (r->tools->strict)
        return weir__error_set(error, WEIR_UNSUPPORTED, "tools_json",
                               "the chat template's form of calls cannot be enforced to the letter");
    if (!atomic_exchange(&r->template->warned, true))
        weir__log(WEIR_LOG_WARN,
                  "in the form of calls that this chat template has, parameters of tools are not "
                  "enforced in full; check arguments before use");
    return WEIR_OK;
}

static weir_status read_chat(weir_chat *chat, rendering *r, weir_error *error)
{
    const weir__llama_rendered *rendered = weir__llama_chat_rendered(r->out);
    chat->reader = r->out;
    chat->prompt = rendered->prompt;
    chat->prompt_length = rendered->prompt_length;
    weir_status status = WEIR_OK;
    if (r->last.kind != WEIR__CONTINUE_NONE) status = render_last(r, chat, error);
    if (status == WEIR_OK && r->last.kind != WEIR__CONTINUE_NONE) {
        chat->begun = weir__mem_strdup(begun_of(&r->last));
        if (chat->begun == NULL) status = weir__chat_no_memory(error);
    }
    if (status == WEIR_OK)
        status =
            find_content(chat, r->params, r->messages, template_deletes(r->template), render_again, r, error);
    if (status == WEIR_OK) status = strip_specials(chat, error);
    if (status == WEIR_OK) status = weir__chat_read_constraint(chat, rendered, r->schema, error);
    return status == WEIR_OK ? check_enforcement(chat, r, error) : status;
}

weir_status weir__chat_render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                              const weir__chat_tools *tools, weir__text *relaxed, weir_error *error)
{
    rendering r = {
        .params = params,
        .messages = messages,
        .tools = tools,
        .relaxed = relaxed,
        .n_added = chat->n_added,
        .now = params->now != 0 ? (time_t)params->now : time(NULL),
        .enable_thinking = params->enable_thinking,
    };
    weir_status status = find_template(&r, chat->model, error);
    if (status == WEIR_OK) status = read_schema(&r, error);
    if (status == WEIR_OK) status = read_args(&r, error);
    if (status == WEIR_OK) status = check_texts(&r, messages, error);
    if (status == WEIR_OK) status = put_messages(&r, messages, chat->n_added, &chat->reshaped, error);
    if (status == WEIR_OK && params->continue_final &&
        !weir__chat_continued_init(&r.last, r.messages, params->tool_choice == WEIR_TOOLS_REQUIRED))
        status = weir__chat_no_memory(error);
    if (status == WEIR_OK) status = check_begun(&r, messages, error);
    if (status == WEIR_OK) {
        status = create_chat(&r, error);
        if (status != WEIR_OK) {
            weir__llama_chat_destroy(r.out);
            r.out = NULL;
        }
        if (status == WEIR_TEMPLATE && strcmp(error->field, "messages") == 0)
            find_refused(&r, messages, chat->n_added, error);
    }
    if (status == WEIR_OK) status = read_chat(chat, &r, error);
    weir__chat_continued_fini(&r.last);
    json_decref(r.sent);
    json_decref(r.args);
    json_decref(r.schema);
    json_decref(r.put);
    weir__chat_template_release(r.template);
    return status;
}

#else

/* ---- Without llama.cpp: ChatML, for the fake model ---- */

static bool add_string(weir__text *t, const json_t *string)
{
    return weir__text_add(t, json_string_value(string), json_string_length(string));
}

static bool add_messages(weir__text *t, const weir_chat_params *params, const json_t *messages)
{
    bool ok = true;
    size_t n = json_array_size(messages);
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *message = json_array_get(messages, i);
        ok = weir__text_add_string(t, "<|im_start|>") && add_string(t, json_object_get(message, "role")) &&
             weir__text_add_string(t, "\n") &&
             weir__chat_add_content(t, json_object_get(message, "content")) &&
             ((params->continue_final && i + 1 == n) || weir__text_add_string(t, "<|im_end|>\n"));
    }
    if (params->add_generation_prompt && !params->continue_final)
        ok = ok && weir__text_add_string(t, "<|im_start|>assistant\n");
    return ok;
}

static weir_status render_again(void *user, const json_t *messages, weir__text *prompt, weir_error *error)
{
    return add_messages(prompt, user, messages) ? WEIR_OK : weir__chat_no_memory(error);
}

weir_status weir__chat_render(weir_chat *chat, const weir_chat_params *params, const json_t *messages,
                              const weir__chat_tools *tools, weir__text *relaxed, weir_error *error)
{
    (void)relaxed;
    weir__text t = {0};
    if (strcmp(chat->model->ops->name, "fake") != 0 || params->template_source != NULL ||
        tools->shown != NULL || params->json_schema != NULL)
        return weir__error_set(error, WEIR_UNSUPPORTED,
                               params->template_source ? "template_source"
                               : tools->shown          ? "tools_json"
                               : params->json_schema   ? "json_schema"
                                                       : NULL,
                               "this build has no llama.cpp, which templates, tools and schemas need");
    bool ok = add_messages(&t, params, messages);
    chat->own_prompt = t.bytes;
    if (!ok) return weir__chat_no_memory(error);
    chat->prompt = t.bytes;
    chat->prompt_length = t.n;
    chat->plain = true;
    return find_content(chat, params, messages, false, render_again, (void *)params, error);
}

#endif
