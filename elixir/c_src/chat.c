/* chat.c: conversations: templates, tools, media, parsers of answers; JSON Schema to grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

#define PROMPT_MAX 65536 /* bytes that a normal scheduler copies */

/* A list of {key, value} */
static void get_args(nif_call *call, ERL_NIF_TERM list, weir_chat_params *params)
{
    const ERL_NIF_TERM *at;
    weir_template_arg *args = nif_list(call, list, sizeof *args, &params->n_args);
    for (size_t i = 0; nif_next_tuple(call, &list, 2, &at); i++)
        args[i] = (weir_template_arg){nif_text(call, at[0]), nif_text(call, at[1])};
    params->args = args;
}

/* ---- Conversations ---- */

/* chat_create(model, options): {:ok, chat} */
ERL_NIF_TERM nif_chat_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    static const nif_rename renames[] = {{"messages_json", "messages"},
                                         {"tools_json", "tools"},
                                         {"template_source", "template"},
                                         {"add_generation_prompt", "add_assistant"},
                                         {NULL, NULL}};
    weir_chat *chat = NULL;
    ERL_NIF_TERM args, media;
    weir_chat_params params = weir_chat_params_default();
    weir_model *model = nif_model(call, argv[0]);
    params.messages_json = "[]";
    nif_options(call, argv[1], "chat", renames, &params);
    if (nif_key(call, argv[1], "args", &args)) get_args(call, args, &params);
    if (nif_key(call, argv[1], "media", &media)) params.media = nif_media(call, media, &params.n_media);
    nif_object *object = nif_resource_new(call, NIF_CHAT);
    if (object == NULL) return 0;
    weir_status status = weir_chat_create(model, &params, &chat, &call->error);
    return nif_made(call, status, object, chat);
}

/* chat_relaxed(chat): the keywords that the grammar does not enforce; a few KB at most */
ERL_NIF_TERM nif_chat_relaxed(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    return chat == NULL ? 0 : nif_binary(call->env, weir_chat_relaxed(chat), WEIR_NUL);
}

/* chat_reshaped(chat): the messages that were put for the template; a few KB at most */
ERL_NIF_TERM nif_chat_reshaped(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    return chat == NULL ? 0 : nif_binary(call->env, weir_chat_reshaped(chat), WEIR_NUL);
}

/* chat_prompt(chat): the rendered text */
ERL_NIF_TERM nif_chat_prompt(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t length;
    const weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    if (chat == NULL) return 0;
    const char *prompt = weir_chat_prompt(chat, &length);
    return length > PROMPT_MAX && nif_move(call) ? 0 : nif_binary(call->env, prompt, length);
}

/* chat_tokens(chat): {:ok, ids} */
ERL_NIF_TERM nif_chat_tokens(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n, capacity;
    int32_t *tokens;
    weir_status status;
    const weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    (void)weir_chat_prompt(chat, &n);
    n += 4; /* most tokens have a byte or more */
    do {
        capacity = n;
        tokens = nif_alloc(call, capacity * sizeof *tokens);
        if (call->end != NIF_RESULT) return 0;
        status = weir_chat_tokenize(chat, tokens, capacity, &n, &call->error);
    } while (status == WEIR_TOO_LONG && n > capacity);
    return status == WEIR_OK ? nif_ok(call->env, nif_ids(call->env, tokens, n)) : nif_status(call, status);
}

/* chat_special_content(chat): :trusted, :none or :all */
ERL_NIF_TERM nif_chat_special_content(nif_call *call, const ERL_NIF_TERM argv[])
{
    const weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    const weir_member *member = weir_member_find("chat", "special_content");
    return nif_atom(call->env, member->choices[weir_chat_special_content(chat)]);
}

/* ---- Answers ---- */

/* chat_parser(chat): {:ok, parser} */
ERL_NIF_TERM nif_chat_parser(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_chat_parser *parser = NULL;
    weir_chat *chat = nif_handle(call, argv[0], NIF_CHAT);
    nif_object *object = nif_resource_new(call, NIF_PARSER);
    if (object == NULL) return 0;
    weir_status status = weir_chat_parser_create(chat, &parser, &call->error);
    return nif_made(call, status, object, parser);
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
ERL_NIF_TERM nif_chat_parser_feed(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_delta delta;
    ERL_NIF_TERM list = enif_make_list(call->env, 0), deltas;
    nif_object *parser = nif_resource(call, argv[0], NIF_PARSER);
    ErlNifBinary text = nif_bytes(call, argv[1]);
    bool finished = nif_bool(call, argv[2]);
    if (!nif_lock(call, parser)) return 0;
    weir_status status =
        weir_chat_parser_feed(parser->handle, (const char *)text.data, text.size, finished, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    while (weir_chat_parser_next(parser->handle, &delta) == WEIR_OK)
        list = enif_make_list_cell(call->env, delta_term(call->env, &delta), list);
    enif_make_reverse_list(call->env, list, &deltas);
    return nif_ok(call->env, deltas);
}

/* json_schema_to_grammar_nif(json): {:ok, gbnf} */
ERL_NIF_TERM nif_json_schema_to_grammar_nif(nif_call *call, const ERL_NIF_TERM argv[])
{
    char *grammar = NULL;
    ErlNifBinary schema = nif_bytes(call, argv[0]);
    if (call->end != NIF_RESULT) return 0;
    weir_status status =
        weir_grammar_from_json_schema((const char *)schema.data, schema.size, &grammar, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM result = nif_ok(call->env, nif_binary(call->env, grammar, WEIR_NUL));
    weir_free(grammar);
    return result;
}

/* ---- Images and sounds ---- */

/* media_create(model, bytes): {:ok, media}, decoded for the model */
ERL_NIF_TERM nif_media_create(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_media *media = NULL;
    weir_media_params params = weir_media_params_default();
    weir_model_info info = {.size = sizeof info};
    weir_model *model = nif_model(call, argv[0]);
    ErlNifBinary bytes = nif_bytes(call, argv[1]);
    nif_object *object = nif_resource_new(call, NIF_MEDIA);
    if (object == NULL) return 0;
    weir_model_describe(model, &info);
    if (info.sample_rate > 0) params.sample_rate = info.sample_rate;
    weir_status status = weir_media_create(bytes.data, bytes.size, &params, &media, &call->error);
    return nif_made(call, status, object, media);
}

weir_media **nif_media(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    weir_media **media = nif_list(call, list, sizeof(weir_media *), n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) media[i] = nif_handle(call, head, NIF_MEDIA);
    return media;
}
