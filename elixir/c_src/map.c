/* map.c: options and requests as maps of the caller's, field by field.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

static bool find(const nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return enif_get_map_value(map->env, map->term, enif_make_atom(map->env, name), value) != 0;
}

static void wrong(nif_map *map, const char *name)
{
    if (map->wrong == NULL) map->wrong = name;
}

void nif_map_i32(nif_map *map, const char *name, int32_t *value)
{
    ERL_NIF_TERM term;
    if (find(map, name, &term) && !nif_get_i32(map->env, term, value)) wrong(map, name);
}

void nif_map_i64(nif_map *map, const char *name, int64_t *value)
{
    ERL_NIF_TERM term;
    ErlNifSInt64 number;
    if (!find(map, name, &term)) return;
    if (enif_get_int64(map->env, term, &number))
        *value = number;
    else
        wrong(map, name);
}

void nif_map_u32(nif_map *map, const char *name, uint32_t *value)
{
    ERL_NIF_TERM term;
    unsigned number;
    if (!find(map, name, &term)) return;
    if (enif_get_uint(map->env, term, &number))
        *value = number;
    else
        wrong(map, name);
}

void nif_map_float(nif_map *map, const char *name, float *value)
{
    ERL_NIF_TERM term;
    if (find(map, name, &term) && !nif_get_float(map->env, term, value)) wrong(map, name);
}

void nif_map_bool(nif_map *map, const char *name, bool *value)
{
    ERL_NIF_TERM term;
    if (find(map, name, &term) && !nif_get_bool(map->env, term, value)) wrong(map, name);
}

void nif_map_string(nif_map *map, const char *name, char **value)
{
    ERL_NIF_TERM term;
    if (find(map, name, &term) && !nif_get_string(map->env, term, true, value)) wrong(map, name);
}

int nif_map_choice(nif_map *map, const char *name, const char *const *names, int otherwise)
{
    ERL_NIF_TERM term;
    if (!find(map, name, &term)) return otherwise;
    for (int i = 0; names[i] != NULL; i++) {
        if (enif_is_identical(term, enif_make_atom(map->env, names[i]))) return i;
    }
    wrong(map, name);
    return otherwise;
}

bool nif_map_term(nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return find(map, name, value);
}
