/* tick.c: an engine's record of ticks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

#define TICKS_MAX 16
#define PARTS_MAX 256

/* The parts of a tick, one for each slot that did something. Events before the tick, which the record has
 * among them, are left out. Returns their number. */
static size_t parts_of(const weir_engine *engine, const weir_tick *tick, weir_tick_slot parts[PARTS_MAX])
{
    size_t n = 0, kept = 0, most = tick->n_slots < PARTS_MAX ? (size_t)tick->n_slots : PARTS_MAX;
    if (weir_engine_tick_slots(engine, tick->first_slot, parts, most, &n) != WEIR_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        const weir_tick_slot *part = &parts[i];
        if (part->tick == tick->serial && part->slot >= 0 && !part->suspended && !part->resumed)
            parts[kept++] = *part;
    }
    return kept;
}

static int32_t n_active(const weir_engine *engine, const weir_tick *tick)
{
    weir_tick_slot parts[PARTS_MAX];
    int32_t active = 0;
    for (size_t i = parts_of(engine, tick, parts); i-- > 0;)
        active += parts[i].n_tokens > 0 || parts[i].end_ns == 0;
    return active;
}

/* engine_ticks(engine, from): {next, ticks}, some at a time */
ERL_NIF_TERM nif_engine_ticks(nif_call *call, const ERL_NIF_TERM argv[])
{
    ErlNifEnv *env = call->env;
    ErlNifUInt64 from = 0;
    weir_tick ticks[TICKS_MAX];
    size_t n = 0;
    const nif_object *object = nif_own_engine(call, argv[0]);
    if (!enif_get_uint64(env, argv[1], &from)) nif_stop(call, NIF_WRONG);
    if (call->end != NIF_RESULT) return 0;
    const weir_engine *engine = object->handle;
    if (weir_engine_ticks(engine, from, ticks, TICKS_MAX, &n) != WEIR_OK) n = 0;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (size_t i = n; i-- > 0;) {
        ERL_NIF_TERM map = nif_map_of(env, "tick", &ticks[i]);
        nif_put(env, &map, "n_active", enif_make_int(env, n_active(engine, &ticks[i])));
        list = enif_make_list_cell(env, map, list);
    }
    ERL_NIF_TERM next = enif_make_uint64(env, n > 0 ? ticks[n - 1].serial + 1 : from);
    return enif_make_tuple2(env, next, list);
}

/* engine_slots(engine): the parts of the last tick that have not ended */
ERL_NIF_TERM nif_engine_slots(nif_call *call, const ERL_NIF_TERM argv[])
{
    weir_engine_stats stats = {.size = sizeof stats};
    weir_tick tick;
    weir_tick_slot parts[PARTS_MAX];
    size_t n = 0;
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    const nif_object *object = nif_own_engine(call, argv[0]);
    if (object == NULL) return 0;
    const weir_engine *engine = object->handle;
    if (weir_engine_get_stats(engine, &stats) != WEIR_OK || stats.n_ticks == 0 ||
        weir_engine_ticks(engine, stats.n_ticks - 1, &tick, 1, &n) != WEIR_OK)
        return list;
    for (size_t i = parts_of(engine, &tick, parts); i-- > 0;)
        if (parts[i].end_ns == 0)
            list = enif_make_list_cell(call->env, nif_map_of(call->env, "tick_slot", &parts[i]), list);
    return list;
}
