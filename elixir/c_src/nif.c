/* nif.c: native functions as the VM calls them, the table that it loads, and the library's log as messages to
 * a process: {:weir_log, level, text}.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

#include <pthread.h>
#include <stdio.h>

typedef ERL_NIF_TERM vm_fn(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

typedef struct function {
    const char *name;
    nif_fn *fn;
    vm_fn *run;
} function;

/* True if the caller is gone. Asked by the library during long calls, on this thread or one that works for
 * it. */
static bool caller_is_gone(void *user)
{
    return !enif_is_process_alive(NULL, user);
}

/* Runs on a dirty scheduler. When a process is killed inside a native function, the VM continues without it,
 * but the function keeps the scheduler. So the library ends the call. */
static ERL_NIF_TERM run_dirty(const function *f, nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifPid self;
    if (enif_self(call->env, &self) != NULL) weir_interrupt_set(caller_is_gone, &self);
    ERL_NIF_TERM result = f->fn(call, argv);
    nif_uninterrupted();
    return result;
}

/* Reports the part of a timeslice (1 ms) that the call took: many short calls in a row are long, too. */
static ERL_NIF_TERM run_normal(const function *f, nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifTime start = enif_monotonic_time(ERL_NIF_USEC);
    ERL_NIF_TERM result = f->fn(call, argv);
    ErlNifTime percent = (enif_monotonic_time(ERL_NIF_USEC) - start) / 10;
    if (percent > 0) enif_consume_timeslice(call->env, percent < 100 ? (int)percent : 100);
    return result;
}

static ERL_NIF_TERM run_function(const function *f, ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    nif_call call = {.env = env, .normal = enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER};
    ERL_NIF_TERM result = call.normal ? run_normal(f, &call, argv) : run_dirty(f, &call, argv);
    nif_call_fini(&call);
    switch (call.end) {
    case NIF_RESULT: break;
    case NIF_WRONG: return enif_make_badarg(env);
    case NIF_NO_MEMORY: return nif_failed(env, WEIR_NO_MEMORY);
    case NIF_STOPPED: return nif_failed(env, WEIR_STOPPED);
    case NIF_DIRTY: return enif_schedule_nif(env, f->name, ERL_NIF_DIRTY_JOB_CPU_BOUND, f->run, argc, argv);
    }
    return result;
}

#define RUN(name, arity, flags)                                                                              \
    static ERL_NIF_TERM run_##name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])                      \
    {                                                                                                        \
        static const function f = {#name, nif_##name, run_##name};                                           \
        return run_function(&f, env, argc, argv);                                                            \
    }
NIF_TABLE(RUN)

/* ---- The log ---- */

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

/* ---- Loading ---- */

ERL_NIF_TERM nif_backend_version(nif_call *call, const ERL_NIF_TERM argv[])
{
    (void)argv;
    return nif_binary(call->env, weir_backend_version(), WEIR_NUL);
}

static int load_nif(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    (void)priv, (void)info;
    return nif_resources_open(env, nif_stream_down, nif_lease_down) ? 0 : 1;
}

static int upgrade_module(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info)
{
    (void)old;
    return load_nif(env, priv, info);
}

#define ENTRY(name, arity, flags) {#name, arity, run_##name, flags},
static ErlNifFunc functions[] = {NIF_TABLE(ENTRY)};

ERL_NIF_INIT(Elixir.Weir.NIF, functions, load_nif, NULL, upgrade_module, NULL)
