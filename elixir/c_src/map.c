/* map.c: options and requests as maps of the caller's, field by field; structs as maps.
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

void nif_map_u64(nif_map *map, const char *name, uint64_t *value)
{
    ERL_NIF_TERM term;
    ErlNifUInt64 number;
    if (!find(map, name, &term)) return;
    if (enif_get_uint64(map->env, term, &number))
        *value = number;
    else if (enif_is_identical(term, enif_make_atom(map->env, "auto")))
        *value = WEIR_AUTO;
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

static ERL_NIF_TERM field_value(ErlNifEnv *env, const nif_field *field, const void *from)
{
    const char *at = (const char *)from + field->at;
    switch (field->type) {
    case NIF_FIELD_I32: return enif_make_int(env, *(const int32_t *)(const void *)at);
    case NIF_FIELD_I64: return enif_make_int64(env, *(const int64_t *)(const void *)at);
    case NIF_FIELD_U64: return enif_make_uint64(env, *(const uint64_t *)(const void *)at);
    case NIF_FIELD_BOOL: break;
    }
    return nif_atom(env, *(const bool *)(const void *)at ? "true" : "false");
}

ERL_NIF_TERM nif_map_of(ErlNifEnv *env, const nif_field *fields, size_t n, const void *from)
{
    ERL_NIF_TERM keys[NIF_FIELDS_MAX], values[NIF_FIELDS_MAX], map = enif_make_new_map(env);
    for (size_t i = 0; i < n; i++) {
        keys[i] = nif_atom(env, fields[i].name);
        values[i] = field_value(env, &fields[i], from);
    }
    enif_make_map_from_arrays(env, keys, values, n, &map);
    return map;
}

bool nif_map_term(nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return find(map, name, value);
}

bool nif_map_given(nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return find(map, name, value) && !enif_is_identical(*value, enif_make_atom(map->env, "nil"));
}
