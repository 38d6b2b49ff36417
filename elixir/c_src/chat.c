/* chat.c: conversations: templates, tools, and what answers mean; JSON Schema to grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

#define PROMPT_MAX 65536 /* bytes that a normal scheduler copies */

/* A list of {binary, binary}, as NUL-terminated strings. */
typedef struct pairs {
    char **texts; /* [2 n] */
    size_t n;
} pairs;

static void pairs_fini(pairs *p)
{
    for (size_t i = 0; i < 2 * p->n; i++) nif_free(p->texts[i]);
    nif_free(p->texts);
    *p = (pairs){0};
}

static bool get_pairs(ErlNifEnv *env, ERL_NIF_TERM list, pairs *p)
{
    unsigned length;
    int arity;
    ERL_NIF_TERM head;
    const ERL_NIF_TERM *at;
    *p = (pairs){0};
    if (!enif_get_list_length(env, list, &length)) return false;
    p->texts = enif_alloc((2 * (size_t)length + 1) * sizeof *p->texts);
    if (p->texts == NULL) return false;
    for (; enif_get_list_cell(env, list, &head, &list); p->n++) {
        char **text = &p->texts[2 * p->n];
        if (!enif_get_tuple(env, head, &arity, &at) || arity != 2 ||
            !nif_get_string(env, at[0], false, &text[0]))
            goto error;
        if (!nif_get_string(env, at[1], false, &text[1])) {
            nif_free(text[0]);
            goto error;
        }
    }
    return true;
error:
    pairs_fini(p);
    return false;
}

/* A list of {key, value} as the template's arguments: [p->n], to be freed; NULL: no memory. */
static weir_template_arg *template_args(const pairs *p)
{
    weir_template_arg *args = enif_alloc((p->n + 1) * sizeof *args);
    for (size_t i = 0; args != NULL && i < p->n; i++)
        args[i] = (weir_template_arg){p->texts[2 * i], p->texts[2 * i + 1]};
    return args;
}

static ERL_NIF_TERM render(ErlNifEnv *env, weir_model *model, weir_chat_params *params, const pairs *messages)
{
    weir_error error = {0};
    weir_chat *chat = NULL;
    size_t length;
    weir_message *list = enif_alloc((messages->n + 1) * sizeof *list);
    if (list == NULL) return nif_no_memory(env);
    for (size_t i = 0; i < messages->n; i++)
        list[i] = (weir_message){messages->texts[2 * i], messages->texts[2 * i + 1]};
    params->messages = list;
    params->n_messages = messages->n;
    weir_status status = weir_chat_create(model, params, &chat, &error);
    nif_free(list);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    const char *prompt = weir_chat_prompt(chat, &length);
    ERL_NIF_TERM result = nif_ok(env, nif_binary(env, prompt, length));
    weir_chat_release(chat);
    return result;
}

/* chat_apply_template(template, messages, add_assistant): a template without its model */
ERL_NIF_TERM nif_chat_apply_template(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_chat_params params = weir_chat_params_default();
    weir_model *model = NULL;
    pairs messages = {0};
    char *source;
    ERL_NIF_TERM result = 0; /* stays 0: an argument is of the wrong type */
    if (!nif_get_bool(env, argv[2], &params.add_generation_prompt) ||
        !nif_get_string(env, argv[0], false, &source))
        return enif_make_badarg(env);
    if (!get_pairs(env, argv[1], &messages)) goto end;
    params.template_source = source;
    /* The library renders for a model; one without weights will do. */
    weir_status status = weir_model_load("fake:", NULL, &model, &error);
    result = status == WEIR_OK ? render(env, model, &params, &messages) : nif_refused(env, status, &error);
    weir_model_release(model);
    pairs_fini(&messages);
end:
    nif_free(source);
    return result != 0 ? result : enif_make_badarg(env);
}

/* chat_apply_template_jinja(model, messages, add_assistant, enable_thinking, kwargs) */
ERL_NIF_TERM nif_chat_apply_template_jinja(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_chat_params params = weir_chat_params_default();
    pairs messages, args;
    ERL_NIF_TERM result;
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !nif_get_bool(env, argv[2], &params.add_generation_prompt) ||
        !nif_get_bool(env, argv[3], &params.enable_thinking) || !get_pairs(env, argv[1], &messages))
        return enif_make_badarg(env);
    if (!get_pairs(env, argv[4], &args)) {
        pairs_fini(&messages);
        return enif_make_badarg(env);
    }
    weir_template_arg *list = template_args(&args);
    if (list == NULL) {
        result = nif_no_memory(env);
        goto end;
    }
    params.args = list;
    params.n_args = args.n;
    result = render(env, nif_model_handle(model), &params, &messages);
    nif_free(list);
end:
    pairs_fini(&args);
    pairs_fini(&messages);
    return result;
}

/* chat_create(model, options): {:ok, chat} */
ERL_NIF_TERM nif_chat_create(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    static const nif_rename renames[] = {{"messages_json", "messages"},
                                         {"tools_json", "tools"},
                                         {"template_source", "template"},
                                         {"add_generation_prompt", "add_assistant"},
                                         {NULL, NULL}};
    weir_chat_params params = weir_chat_params_default();
    weir_error error = {0};
    weir_chat *handle = NULL;
    weir_template_arg *list = NULL;
    pairs args = {0};
    nif_map map = {.env = env, .term = argv[1], .renames = renames};
    ERL_NIF_TERM value, result = 0; /* stays 0: an argument is of the wrong type */
    const nif_model *model = nif_resource_get(env, argv[0], NIF_MODEL);
    if (model == NULL || !enif_is_map(env, argv[1])) return enif_make_badarg(env);
    params.messages_json = "[]";
    nif_map_members(&map, "chat", &params);
    if (map.wrong != NULL || (nif_map_term(&map, "args", &value) && !get_pairs(env, value, &args))) goto end;
    nif_chat *chat = nif_resource_new(NIF_CHAT);
    list = template_args(&args);
    if (chat == NULL || list == NULL) {
        if (chat != NULL) nif_resource_drop(chat);
        result = nif_no_memory(env);
        goto end;
    }
    params.args = list;
    params.n_args = args.n;
    weir_status status = weir_chat_create(nif_model_handle(model), &params, &handle, &error);
    chat->object.handle = handle;
    if (status == WEIR_OK) {
        result = nif_ok(env, nif_resource_term(env, chat));
    } else {
        nif_resource_drop(chat);
        result = nif_refused(env, status, &error);
    }
end:
    nif_free(list);
    pairs_fini(&args);
    nif_map_fini(&map);
    return result != 0 ? result : enif_make_badarg(env);
}

/* chat_relaxed(chat): the keywords that the grammar does not enforce; a few KB at most */
ERL_NIF_TERM nif_chat_relaxed(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    const nif_chat *chat = nif_resource_get(env, argv[0], NIF_CHAT);
    if (chat == NULL) return enif_make_badarg(env);
    const char *lines = weir_chat_relaxed(chat->object.handle);
    return nif_binary(env, lines, strlen(lines));
}

/* chat_prompt(chat): the rendered text */
ERL_NIF_TERM nif_chat_prompt(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    size_t length;
    const nif_chat *chat = nif_resource_get(env, argv[0], NIF_CHAT);
    if (chat == NULL) return enif_make_badarg(env);
    const char *prompt = weir_chat_prompt(chat->object.handle, &length);
    if (length > PROMPT_MAX && nif_on_normal_scheduler())
        return nif_dirty(env, "chat_prompt", nif_run_chat_prompt, argc, argv);
    return nif_binary(env, prompt, length);
}

/* chat_tokens(chat): {:ok, ids} */
ERL_NIF_TERM nif_chat_tokens(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    const nif_chat *chat = nif_resource_get(env, argv[0], NIF_CHAT);
    if (chat == NULL) return enif_make_badarg(env);
    size_t n, capacity;
    (void)weir_chat_prompt(chat->object.handle, &n);
    n += 4; /* most tokens have a byte or more */
    int32_t *tokens = NULL;
    weir_status status;
    do {
        capacity = n;
        nif_free(tokens);
        tokens = enif_alloc(capacity * sizeof *tokens);
        if (tokens == NULL) return nif_no_memory(env);
        status = weir_chat_tokenize(chat->object.handle, tokens, capacity, &n, &error);
    } while (status == WEIR_TOO_LONG && n > capacity);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    while (status == WEIR_OK && n > 0) list = enif_make_list_cell(env, enif_make_int(env, tokens[--n]), list);
    nif_free(tokens);
    return status == WEIR_OK ? nif_ok(env, list) : nif_refused(env, status, &error);
}

/* chat_special_content(chat): :trusted, :none or :all */
ERL_NIF_TERM nif_chat_special_content(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    static const char *const whose[] = {"trusted", "none", "all"};
    const nif_chat *chat = nif_resource_get(env, argv[0], NIF_CHAT);
    if (chat == NULL) return enif_make_badarg(env);
    return nif_atom(env, whose[weir_chat_special_content(chat->object.handle)]);
}

/* chat_parser(chat): {:ok, parser} */
ERL_NIF_TERM nif_chat_parser(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_chat_parser *handle = NULL;
    const nif_chat *chat = nif_resource_get(env, argv[0], NIF_CHAT);
    if (chat == NULL) return enif_make_badarg(env);
    nif_parser *parser = nif_resource_new(NIF_PARSER);
    if (parser == NULL) return nif_no_memory(env);
    weir_status status = weir_chat_parser_create(chat->object.handle, &handle, &error);
    if (status != WEIR_OK) {
        nif_resource_drop(parser);
        return nif_refused(env, status, &error);
    }
    parser->object.handle = handle;
    return nif_ok(env, nif_resource_term(env, parser));
}

static ERL_NIF_TERM delta_term(ErlNifEnv *env, const weir_delta *delta)
{
    ERL_NIF_TERM text = nif_binary(env, delta->text, delta->length);
    ERL_NIF_TERM index = enif_make_int(env, delta->index);
    switch (delta->kind) {
    case WEIR_DELTA_CONTENT: break;
    case WEIR_DELTA_REASONING: return enif_make_tuple2(env, nif_atom(env, "reasoning"), text);
    case WEIR_DELTA_TOOL_CALL:
        return enif_make_tuple4(env, nif_atom(env, "tool_call"), index,
                                nif_binary(env, delta->id != NULL ? delta->id : "", WEIR_NUL), text);
    case WEIR_DELTA_ARGUMENTS: return enif_make_tuple3(env, nif_atom(env, "arguments"), index, text);
    }
    return enif_make_tuple2(env, nif_atom(env, "content"), text);
}

/* chat_parser_feed(parser, text, finished): {:ok, deltas} */
ERL_NIF_TERM nif_chat_parser_feed(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    weir_delta delta;
    ErlNifBinary text;
    bool finished;
    ERL_NIF_TERM list = enif_make_list(env, 0), deltas;
    nif_parser *parser = nif_resource_get(env, argv[0], NIF_PARSER);
    if (parser == NULL || !enif_inspect_binary(env, argv[1], &text) || !nif_get_bool(env, argv[2], &finished))
        return enif_make_badarg(env);
    enif_mutex_lock(parser->object.lock);
    weir_status status =
        weir_chat_parser_feed(parser->object.handle, (const char *)text.data, text.size, finished, &error);
    while (status == WEIR_OK && weir_chat_parser_next(parser->object.handle, &delta) == WEIR_OK)
        list = enif_make_list_cell(env, delta_term(env, &delta), list);
    enif_mutex_unlock(parser->object.lock);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    enif_make_reverse_list(env, list, &deltas);
    return nif_ok(env, deltas);
}

/* json_schema_to_grammar_nif(json): {:ok, gbnf} */
ERL_NIF_TERM nif_json_schema_to_grammar_nif(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_error error = {0};
    ErlNifBinary schema;
    char *grammar = NULL;
    if (!enif_inspect_binary(env, argv[0], &schema)) return enif_make_badarg(env);
    weir_status status =
        weir_grammar_from_json_schema((const char *)schema.data, schema.size, &grammar, &error);
    if (status != WEIR_OK) return nif_refused(env, status, &error);
    ERL_NIF_TERM result = nif_ok(env, nif_binary(env, grammar, WEIR_NUL));
    weir_free(grammar);
    return result;
}
