/* hub.c: models by name, from a hub. Calls block, on dirty schedulers, and end when the calling process does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

/* A call's arguments, and where its progress goes. */
typedef struct session {
    nif_call *call;
    const char *name;
    weir_hub_params params;
    ErlNifEnv *messages; /* NULL: nobody gets progress */
    ErlNifPid to;
    ERL_NIF_TERM ref;
} session;

static bool send_progress(const weir_hub_progress *p, void *user)
{
    session *s = user;
    ErlNifEnv *env = s->messages;
    if (!enif_is_current_process_alive(s->call->env)) return false;
    if (env == NULL) return true;
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "file", nif_binary(env, p->file, WEIR_NUL));
    nif_put(env, &map, "shard", enif_make_int(env, p->shard));
    nif_put(env, &map, "n_shards", enif_make_int(env, p->n_shards));
    nif_put(env, &map, "done", enif_make_uint64(env, p->n_done));
    nif_put(env, &map, "total", enif_make_uint64(env, p->n_bytes));
    nif_put(env, &map, "rate", enif_make_double(env, p->rate));
    ERL_NIF_TERM what = enif_make_tuple2(env, nif_atom(env, "progress"), map);
    ERL_NIF_TERM message = enif_make_tuple2(env, enif_make_copy(env, s->ref), what);
    bool sent = enif_send(s->call->env, &s->to, env, message) != 0;
    enif_clear_env(env);
    return sent;
}

/* `name` is NULL for nil where `nil` allows it. False: the call ends otherwise. */
static bool session_init(session *s, nif_call *call, const ERL_NIF_TERM argv[], bool nil)
{
    *s = (session){.call = call, .params = weir_hub_params_default()};
    s->name = nil ? nif_text_or_null(call, argv[0]) : nif_text(call, argv[0]);
    nif_options(call, argv[1], "hub", NULL, &s->params);
    s->params.progress = send_progress;
    s->params.progress_user = s;
    return call->end == NIF_RESULT;
}

/* {:ok, text} of a string that the library allocated */
static ERL_NIF_TERM answer_text(nif_call *call, weir_status status, char *text, size_t length)
{
    if (status != WEIR_OK) return nif_status(call, status);
    ERL_NIF_TERM result = nif_ok(call->env, nif_binary(call->env, text, length));
    weir_free(text);
    return result;
}

static ERL_NIF_TERM file_map(ErlNifEnv *env, const weir_hub_file *file)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "repo", nif_binary(env, file->repo, WEIR_NUL));
    nif_put(env, &map, "filename", nif_binary(env, file->name, WEIR_NUL));
    nif_put(env, &map, "path", nif_text_or_nil(env, file->path));
    nif_put(env, &map, "size", enif_make_uint64(env, file->n_bytes));
    nif_put(env, &map, "sha256", nif_text_or_nil(env, file->sha256));
    nif_put(env, &map, "quantization", nif_text_or_nil(env, file->quantization));
    nif_put(env, &map, "shard", enif_make_int(env, file->shard));
    nif_put(env, &map, "n_shards", enif_make_int(env, file->n_shards));
    return map;
}

/* hub_list(name or nil, options): {:ok, files} of a repository, or of the cache */
ERL_NIF_TERM nif_hub_list(nif_call *call, const ERL_NIF_TERM argv[])
{
    session s;
    size_t n = 0;
    weir_hub_files *files = NULL;
    weir_hub_file file = {.size = sizeof file};
    if (!session_init(&s, call, argv, true)) return 0;
    weir_status status = weir_hub_list(s.name, &s.params, &files, &call->error);
    if (status != WEIR_OK) return nif_status(call, status);
    while (weir_hub_files_get(files, n, &file) == WEIR_OK) n++;
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    while (n-- > 0 && weir_hub_files_get(files, n, &file) == WEIR_OK)
        list = enif_make_list_cell(call->env, file_map(call->env, &file), list);
    weir_hub_files_destroy(files);
    return nif_ok(call->env, list);
}

/* hub_resolve(name, options): {:ok, file} */
ERL_NIF_TERM nif_hub_resolve(nif_call *call, const ERL_NIF_TERM argv[])
{
    session s;
    char *file = NULL;
    if (!session_init(&s, call, argv, false)) return 0;
    weir_status status = weir_hub_resolve(s.name, &s.params, &file, &call->error);
    return answer_text(call, status, file, WEIR_NUL);
}

/* hub_get(path, options): {:ok, json} */
ERL_NIF_TERM nif_hub_get(nif_call *call, const ERL_NIF_TERM argv[])
{
    session s;
    char *json = NULL;
    size_t length = 0;
    if (!session_init(&s, call, argv, false)) return 0;
    weir_status status = weir_hub_get(s.name, &s.params, &json, &length, &call->error);
    return answer_text(call, status, json, length);
}

/* hub_download(name, options, pid or nil, ref): {:ok, path}; pid gets {ref, {:progress, map}} meanwhile */
ERL_NIF_TERM nif_hub_download(nif_call *call, const ERL_NIF_TERM argv[])
{
    session s;
    char *path = NULL;
    bool reports = !nif_is(call->env, argv[2], "nil");
    if (!session_init(&s, call, argv, false)) return 0;
    if (reports) {
        s.to = nif_pid(call, argv[2]);
        s.ref = argv[3];
        if (!enif_is_ref(call->env, argv[3])) nif_stop(call, NIF_WRONG);
        if (call->end != NIF_RESULT) return 0;
        s.messages = enif_alloc_env();
        if (s.messages == NULL) return nif_stop(call, NIF_NO_MEMORY);
    }
    weir_status status = weir_hub_download(s.name, &s.params, &path, &call->error);
    if (s.messages != NULL) enif_free_env(s.messages);
    return answer_text(call, status, path, WEIR_NUL);
}
