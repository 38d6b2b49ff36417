/* log.c: the library's log as messages to a process: {:weir_log, level, text}.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>

#include "nif.h"

/* Logger's names, in weir_log_level's order; with :none nothing is sent. */
static const char *const levels[] = {"debug", "info", "warning", "error", "none"};
#define N_LEVELS ((int)(sizeof levels / sizeof *levels))

/* The lock is for changes; weir_log_set ensures that nobody logs meanwhile. */
static struct {
    pthread_mutex_t lock;
    ErlNifPid to;
    int lowest;
} receiver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Runs on the thread that logs. Warnings that cannot be sent go to stderr. */
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

/* log_to(pid, level): messages from this level up; with nil, warnings and errors go to stderr */
ERL_NIF_TERM nif_log_to(nif_call *call, const ERL_NIF_TERM argv[])
{
    int lowest = 0;
    bool nobody = nif_is(call->env, argv[0], "nil");
    ErlNifPid to = {0};
    if (!nobody) to = nif_pid(call, argv[0]);
    while (lowest < N_LEVELS && !nif_is(call->env, argv[1], levels[lowest])) lowest++;
    if (lowest == N_LEVELS) nif_stop(call, NIF_WRONG);
    if (call->end != NIF_RESULT) return 0;
    pthread_mutex_lock(&receiver.lock);
    weir_log_set(NULL, NULL);
    if (!nobody) {
        receiver.to = to;
        receiver.lowest = lowest;
        weir_log_set(to_process, NULL);
    }
    pthread_mutex_unlock(&receiver.lock);
    return nif_atom(call->env, "ok");
}
