/* chat.c: chat templates, and JSON Schema to grammar.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

/* A list of {binary, binary}, as NUL-terminated strings. */
typedef struct pairs {
    char **texts; /* [2 n] */
    size_t n;
} pairs;

static void pairs_fini(pairs *p)
{
    for (size_t i = 0; i < 2 * p->n; i++) nif_free(p->texts[i]);
    nif_free(p->texts);
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
    weir_template_arg *list = enif_alloc((args.n + 1) * sizeof *list);
    if (list == NULL) {
        result = nif_no_memory(env);
        goto end;
    }
    for (size_t i = 0; i < args.n; i++)
        list[i] = (weir_template_arg){args.texts[2 * i], args.texts[2 * i + 1]};
    params.args = list;
    params.n_args = args.n;
    result = render(env, nif_model_handle(model), &params, &messages);
    nif_free(list);
end:
    pairs_fini(&args);
    pairs_fini(&messages);
    return result;
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
