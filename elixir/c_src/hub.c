/* hub.c: models by name, from a hub. Calls block, on dirty schedulers, and end when the calling process does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* A call's parameters, and whom its progress is told. */
typedef struct session {
    ErlNifEnv *env;
    ErlNifEnv *messages; /* NULL: nobody is told */
    ErlNifPid to;
    ERL_NIF_TERM ref;
    char *name;
    nif_map options;
    weir_hub_params params;
} session;

static void session_fini(session *s)
{
    nif_free(s->name);
    nif_map_fini(&s->options);
    if (s->messages != NULL) enif_free_env(s->messages);
}

static ERL_NIF_TERM text_or_nil(ErlNifEnv *env, const char *text)
{
    return text != NULL && text[0] != '\0' ? nif_binary(env, text, WEIR_NUL) : nif_atom(env, "nil");
}

static bool progress(const weir_hub_progress *p, void *user)
{
    session *s = user;
    if (!enif_is_current_process_alive(s->env)) return false;
    if (s->messages == NULL) return true;
    ERL_NIF_TERM map = enif_make_new_map(s->messages);
    nif_put(s->messages, &map, "file", nif_binary(s->messages, p->file, WEIR_NUL));
    nif_put(s->messages, &map, "shard", enif_make_int(s->messages, p->shard));
    nif_put(s->messages, &map, "n_shards", enif_make_int(s->messages, p->n_shards));
    nif_put(s->messages, &map, "done", enif_make_uint64(s->messages, p->n_done));
    nif_put(s->messages, &map, "total", enif_make_uint64(s->messages, p->n_bytes));
    nif_put(s->messages, &map, "rate", enif_make_double(s->messages, p->rate));
    ERL_NIF_TERM told = enif_make_tuple2(s->messages, nif_atom(s->messages, "progress"), map);
    ERL_NIF_TERM ref = enif_make_copy(s->messages, s->ref);
    bool heard = enif_send(s->env, &s->to, s->messages, enif_make_tuple2(s->messages, ref, told)) != 0;
    enif_clear_env(s->messages);
    return heard;
}

/* False: an argument is of the wrong type. Ends with session_fini() either way. */
static bool session_init(session *s, ErlNifEnv *env, ERL_NIF_TERM name, bool nil, ERL_NIF_TERM options)
{
    *s = (session){.env = env, .params = weir_hub_params_default(), .options = {.env = env, .term = options}};
    if (!enif_is_map(env, options) || !nif_get_string(env, name, nil, &s->name)) return false;
    nif_map_members(&s->options, "hub", &s->params);
    s->params.progress = progress;
    s->params.progress_user = s;
    return s->options.wrong == NULL;
}

/* {:ok, text}, of a string that the library allotted */
static ERL_NIF_TERM answer(ErlNifEnv *env, weir_status status, char *text, size_t length,
                           const weir_error *error)
{
    if (status != WEIR_OK) return nif_refused(env, status, error);
    ERL_NIF_TERM result = nif_ok(env, nif_binary(env, text, length));
    weir_free(text);
    return result;
}

static ERL_NIF_TERM file_map(ErlNifEnv *env, const weir_hub_file *file)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "repo", nif_binary(env, file->repo, WEIR_NUL));
    nif_put(env, &map, "filename", nif_binary(env, file->name, WEIR_NUL));
    nif_put(env, &map, "path", text_or_nil(env, file->path));
    nif_put(env, &map, "size", enif_make_uint64(env, file->n_bytes));
    nif_put(env, &map, "sha256", text_or_nil(env, file->sha256));
    nif_put(env, &map, "quantization", text_or_nil(env, file->quantization));
    nif_put(env, &map, "shard", enif_make_int(env, file->shard));
    nif_put(env, &map, "n_shards", enif_make_int(env, file->n_shards));
    return map;
}

/* hub_list(name or nil, options): {:ok, files} of a repository, or of the cache */
ERL_NIF_TERM nif_hub_list(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    session s;
    weir_error error = {0};
    weir_hub_files *files = NULL;
    weir_hub_file file = {.size = sizeof file};
    ERL_NIF_TERM result = 0; /* stays 0: an argument is of the wrong type */
    if (!session_init(&s, env, argv[0], true, argv[1])) goto end;
    weir_status status = weir_hub_list(s.name, &s.params, &files, &error);
    if (status != WEIR_OK) {
        result = nif_refused(env, status, &error);
        goto end;
    }
    size_t n = 0;
    while (weir_hub_files_get(files, n, &file) == WEIR_OK) n++;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    while (n-- > 0 && weir_hub_files_get(files, n, &file) == WEIR_OK)
        list = enif_make_list_cell(env, file_map(env, &file), list);
    weir_hub_files_destroy(files);
    result = nif_ok(env, list);
end:
    session_fini(&s);
    return result != 0 ? result : enif_make_badarg(env);
}

typedef weir_status ask_fn(const char *name, const weir_hub_params *params, char **text, size_t *length,
                           weir_error *error);

/* {:ok, text}: what one question to the hub gives */
static ERL_NIF_TERM ask(ErlNifEnv *env, const ERL_NIF_TERM argv[], ask_fn *fn)
{
    session s;
    weir_error error = {0};
    char *text = NULL;
    size_t length = 0;
    ERL_NIF_TERM result = 0;
    if (session_init(&s, env, argv[0], false, argv[1])) {
        weir_status status = fn(s.name, &s.params, &text, &length, &error);
        result = answer(env, status, text, length, &error);
    }
    session_fini(&s);
    return result != 0 ? result : enif_make_badarg(env);
}

static weir_status resolve(const char *name, const weir_hub_params *params, char **file, size_t *length,
                           weir_error *error)
{
    *length = WEIR_NUL;
    return weir_hub_resolve(name, params, file, error);
}

/* hub_resolve(name, options): {:ok, file} */
ERL_NIF_TERM nif_hub_resolve(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return ask(env, argv, resolve);
}

/* hub_get(path, options): {:ok, json} */
ERL_NIF_TERM nif_hub_get(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return ask(env, argv, weir_hub_get);
}

/* hub_download(name, options, pid or nil, ref): {:ok, path}; {ref, {:progress, map}} to pid meanwhile */
ERL_NIF_TERM nif_hub_download(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    session s;
    weir_error error = {0};
    char *path = NULL;
    ERL_NIF_TERM result = 0;
    bool told = !enif_is_identical(argv[2], nif_atom(env, "nil"));
    if (!session_init(&s, env, argv[0], false, argv[1])) goto end;
    if (told && (!enif_get_local_pid(env, argv[2], &s.to) || !enif_is_ref(env, argv[3]))) goto end;
    if (told && (s.messages = enif_alloc_env()) == NULL) {
        result = nif_no_memory(env);
        goto end;
    }
    s.ref = argv[3];
    weir_status status = weir_hub_download(s.name, &s.params, &path, &error);
    result = answer(env, status, path, WEIR_NUL, &error);
end:
    session_fini(&s);
    return result != 0 ? result : enif_make_badarg(env);
}
