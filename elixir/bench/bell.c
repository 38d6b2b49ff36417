/* bell.c: the least that a message from a C thread takes in this VM, for latency.exs, which compiles it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <erl_nif.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

struct bell {
    ErlNifPid to;
    int n, pause_us;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *ring(void *user)
{
    struct bell *bell = user;
    struct timespec pause = {0, bell->pause_us * 1000L};
    ErlNifEnv *env = enif_alloc_env();
    for (int i = 0; env != NULL && i < bell->n; i++) {
        nanosleep(&pause, NULL);
        enif_send(NULL, &bell->to, env, enif_make_int64(env, now_ns()));
        enif_clear_env(env);
    }
    if (env != NULL) enif_free_env(env);
    enif_free(bell);
    return NULL;
}

/* ring(pid, n, pause_us): n messages, the time before the send in each; pause_us below 1,000,000 */
static ERL_NIF_TERM nif_ring(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    pthread_t thread;
    struct bell *bell = enif_alloc(sizeof *bell);
    if (bell == NULL || !enif_get_local_pid(env, argv[0], &bell->to) ||
        !enif_get_int(env, argv[1], &bell->n) || !enif_get_int(env, argv[2], &bell->pause_us) ||
        pthread_create(&thread, NULL, ring, bell) != 0)
        return enif_make_badarg(env);
    pthread_detach(thread);
    return enif_make_atom(env, "ok");
}

static ErlNifFunc functions[] = {{"ring", 3, nif_ring, 0}};
ERL_NIF_INIT(Elixir.Bell, functions, NULL, NULL, NULL, NULL)
