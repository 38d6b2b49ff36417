/* nif.c: the table of native functions: name, arity, scheduler (nif.h), and what loads and upgrades it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

bool nif_on_normal_scheduler(void)
{
    return enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER;
}

ERL_NIF_TERM nif_dirty(ErlNifEnv *env, const char *name, nif_fn *fn, int argc, const ERL_NIF_TERM argv[])
{
    return enif_schedule_nif(env, name, ERL_NIF_DIRTY_JOB_CPU_BOUND, fn, argc, argv);
}

/* Kept for programs that call them: weir needs no global start and end. */
ERL_NIF_TERM nif_backend_init(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc, (void)argv;
    return nif_atom(env, "ok");
}

ERL_NIF_TERM nif_backend_free(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc, (void)argv;
    return nif_atom(env, "ok");
}

ERL_NIF_TERM nif_backend_version(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc, (void)argv;
    return nif_binary(env, weir_backend_version(), WEIR_NUL);
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    (void)priv, (void)info;
    return nif_resources_open(env) ? 0 : 1;
}

static int upgrade(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info)
{
    (void)old;
    return load(env, priv, info);
}

/* Asked by the library during long calls, on this thread or one that works for it. */
static bool caller_is_gone(void *user)
{
    return !enif_is_process_alive(NULL, user);
}

void nif_uninterrupted(void)
{
    weir_interrupt_set(NULL, NULL);
}

/* A process that is killed inside a native function does not end it; the VM goes on without it, and the
 * scheduler is held. So the library ends the call. */
static ERL_NIF_TERM run_dirty(nif_fn *fn, ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid self;
    if (enif_self(env, &self) != NULL) weir_interrupt_set(caller_is_gone, &self);
    ERL_NIF_TERM result = fn(env, argc, argv);
    weir_interrupt_set(NULL, NULL);
    return result;
}

/* Tells the VM which part of a timeslice (1 ms) a call took: many short ones in a row are long, too. */
static ERL_NIF_TERM run(nif_fn *fn, ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    if (!nif_on_normal_scheduler()) return run_dirty(fn, env, argc, argv);
    ErlNifTime start = enif_monotonic_time(ERL_NIF_USEC);
    ERL_NIF_TERM result = fn(env, argc, argv);
    ErlNifTime percent = (enif_monotonic_time(ERL_NIF_USEC) - start) / 10;
    if (percent > 0) enif_consume_timeslice(env, percent < 100 ? (int)percent : 100);
    return result;
}

#define RUN(name, arity, flags)                                                                              \
    ERL_NIF_TERM nif_run_##name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])                         \
    {                                                                                                        \
        return run(nif_##name, env, argc, argv);                                                             \
    }
NIF_TABLE(RUN)

#define ENTRY(name, arity, flags) {#name, arity, nif_run_##name, flags},
static ErlNifFunc functions[] = {NIF_TABLE(ENTRY)};

ERL_NIF_INIT(Elixir.Weir.NIF, functions, load, NULL, upgrade, NULL)
