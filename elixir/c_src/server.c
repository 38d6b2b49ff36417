/* server.c: what a server asks of its engine beside the streams: what a request has cost, an end without
 * messages, the record of ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

#define TICKS_MAX 16
#define PARTS_MAX 256

/* engine_usage(ref): counts and times of a request until now */
ERL_NIF_TERM nif_engine_usage(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    nif_stream *s = nif_resource_get(env, argv[0], NIF_STREAM);
    if (s == NULL) return enif_make_badarg(env);
    weir_usage usage = nif_stream_usage(s);
    return nif_usage_map(env, &usage);
}

/* engine_close(ref): cancels; no message follows */
ERL_NIF_TERM nif_engine_close(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    nif_stream *s = nif_resource_get(env, argv[0], NIF_STREAM);
    if (s == NULL) return enif_make_badarg(env);
    nif_stream_down(env, s, NULL, NULL); /* as if the consumer had ended */
    return nif_atom(env, "ok");
}

/* Slots that had work in a tick; what happened before it stands among its parts as well. */
static int32_t n_active(const weir_engine *engine, const weir_tick *tick)
{
    weir_tick_slot parts[PARTS_MAX];
    size_t n = 0, most = tick->n_slots < PARTS_MAX ? (size_t)tick->n_slots : PARTS_MAX;
    int32_t active = 0;
    if (weir_engine_tick_slots(engine, tick->first_slot, parts, most, &n) != WEIR_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].tick != tick->serial || parts[i].slot < 0) continue;
        if (parts[i].suspended || parts[i].resumed) continue;
        active += parts[i].n_tokens > 0 || parts[i].end_ns == 0;
    }
    return active;
}

/* engine_ticks(engine, from): {next, ticks} of the record, some at a time */
ERL_NIF_TERM nif_engine_ticks(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    ErlNifUInt64 from;
    weir_tick ticks[TICKS_MAX];
    size_t n = 0;
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL || !enif_get_uint64(env, argv[1], &from)) return enif_make_badarg(env);
    if (weir_engine_ticks(engine->object.handle, from, ticks, TICKS_MAX, &n) != WEIR_OK) n = 0;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = n; i-- > 0;) {
        ERL_NIF_TERM map = nif_map_of(env, "tick", &ticks[i]);
        nif_put(env, &map, "n_active", enif_make_int(env, n_active(engine->object.handle, &ticks[i])));
        list = enif_make_list_cell(env, map, list);
    }
    ERL_NIF_TERM next = enif_make_uint64(env, n > 0 ? ticks[n - 1].serial + 1 : from);
    return enif_make_tuple2(env, next, list);
}

/* engine_slots(engine): the slots' parts in the last tick */
ERL_NIF_TERM nif_engine_slots(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    weir_engine_stats stats = {.size = sizeof stats};
    weir_tick tick;
    weir_tick_slot parts[PARTS_MAX];
    size_t n = 0;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    nif_engine *engine = nif_resource_get(env, argv[0], NIF_ENGINE);
    if (engine == NULL) return enif_make_badarg(env);
    if (weir_engine_get_stats(engine->object.handle, &stats) != WEIR_OK || stats.n_ticks == 0 ||
        weir_engine_ticks(engine->object.handle, stats.n_ticks - 1, &tick, 1, &n) != WEIR_OK ||
        weir_engine_tick_slots(engine->object.handle, tick.first_slot, parts,
                               tick.n_slots < PARTS_MAX ? (size_t)tick.n_slots : PARTS_MAX, &n) != WEIR_OK)
        return list;
    while (n-- > 0) {
        const weir_tick_slot *part = &parts[n];
        if (part->tick != tick.serial || part->slot < 0 || part->end_ns != 0) continue;
        if (part->suspended || part->resumed) continue;
        list = enif_make_list_cell(env, nif_map_of(env, "tick_slot", part), list);
    }
    return list;
}
