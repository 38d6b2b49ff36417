/* log.c: the library's log as messages to a process: {:weir_log, level, text}.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>

#include "nif.h"

/* As Logger has them, in weir_log_level's order; with :none nothing is sent. */
static const char *const levels[] = {"debug", "info", "warning", "error", "none"};
#define N_LEVELS ((int)(sizeof levels / sizeof *levels))

/* The lock is for those who change it; weir_log_set sees to it that nobody logs here meanwhile. */
static struct {
    pthread_mutex_t lock;
    ErlNifPid to;
    int lowest;
} receiver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* On whatever thread logs. What cannot be sent is not lost. */
static void to_process(weir_log_level level, const char *message, void *user)
{
    (void)user;
    if ((int)level < receiver.lowest || (int)level >= N_LEVELS) return;
    ErlNifEnv *env = enif_alloc_env();
    bool sent = false;
    if (env != NULL) {
        ERL_NIF_TERM what = enif_make_tuple3(env, nif_atom(env, "weir_log"), nif_atom(env, levels[level]),
                                             nif_binary(env, message, WEIR_NUL));
        sent = enif_send(NULL, &receiver.to, env, what) != 0;
        enif_free_env(env);
    }
    if (!sent && level >= WEIR_LOG_WARN) fprintf(stderr, "weir: %s\n", message);
}

/* log_to(pid, level): what is at least of this level; with nil warnings and errors go to stderr */
ERL_NIF_TERM nif_log_to(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    ErlNifPid to;
    int lowest = 0;
    bool nobody = enif_is_identical(argv[0], nif_atom(env, "nil"));
    if (!nobody && !enif_get_local_pid(env, argv[0], &to)) return enif_make_badarg(env);
    while (lowest < N_LEVELS && !enif_is_identical(argv[1], nif_atom(env, levels[lowest]))) lowest++;
    if (lowest == N_LEVELS) return enif_make_badarg(env);
    pthread_mutex_lock(&receiver.lock);
    weir_log_set(NULL, NULL);
    if (!nobody) {
        receiver.to = to;
        receiver.lowest = lowest;
        weir_log_set(to_process, NULL);
    }
    pthread_mutex_unlock(&receiver.lock);
    return nif_atom(env, "ok");
}
