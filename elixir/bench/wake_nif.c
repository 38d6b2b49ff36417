/* wake_nif.c: threads that only send, for wake.exs: the minimum cost of a message from a thread that is not a
 * scheduler.
 * SPDX-License-Identifier: Apache-2.0 */
#include <erl_nif.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef struct sender {
    ErlNifPid to;
    unsigned n;
} sender;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *send_times(void *user)
{
    sender *s = user;
    ErlNifEnv *env = enif_alloc_env();
    for (unsigned i = 0; env != NULL && i < s->n; i++) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        ERL_NIF_TERM name = enif_make_atom(env, "wake");
        ERL_NIF_TERM message = enif_make_tuple2(env, name, enif_make_int64(env, now_ns()));
        enif_send(NULL, &s->to, env, message);
        enif_clear_env(env);
    }
    if (env != NULL) enif_free_env(env);
    enif_free(s);
    return NULL;
}

/* start(pid, n): {wake, Ns} n times, a millisecond apart, each with the time it was sent */
static ERL_NIF_TERM start(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    pthread_t thread;
    sender *s = enif_alloc(sizeof *s);
    (void)argc;
    if (s == NULL || !enif_get_local_pid(env, argv[0], &s->to) || !enif_get_uint(env, argv[1], &s->n) ||
        pthread_create(&thread, NULL, send_times, s) != 0) {
        if (s != NULL) enif_free(s);
        return enif_make_badarg(env);
    }
    pthread_detach(thread);
    return enif_make_atom(env, "ok");
}

static ErlNifFunc functions[] = {{"start", 2, start, 0}};

ERL_NIF_INIT(Elixir.Wake, functions, NULL, NULL, NULL, NULL)
