/* nif.c: native functions as the VM calls them, and the table that it loads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

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
