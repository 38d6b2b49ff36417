/* map.c: options and requests as maps of the caller's; structs as maps.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

bool nif_map_term(nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return enif_get_map_value(map->env, map->term, enif_make_atom(map->env, name), value) != 0;
}

bool nif_map_given(nif_map *map, const char *name, ERL_NIF_TERM *value)
{
    return nif_map_term(map, name, value) && !enif_is_identical(*value, enif_make_atom(map->env, "nil"));
}

/* ---- Members ---- */

struct nif_block {
    nif_block *next;
};

/* Memory until nif_map_fini(), aligned for pointers; NULL: there is none. */
static void *keep(nif_map *map, size_t size)
{
    nif_block *block = enif_alloc(sizeof *block + size);
    if (block == NULL) return NULL;
    block->next = map->blocks;
    map->blocks = block;
    return block + 1;
}

void nif_map_fini(nif_map *map)
{
    while (map->blocks != NULL) {
        nif_block *block = map->blocks;
        map->blocks = block->next;
        enif_free(block);
    }
}

static bool read_int64(nif_map *map, ERL_NIF_TERM term, int64_t *value)
{
    ErlNifSInt64 number;
    if (!enif_get_int64(map->env, term, &number)) return false;
    *value = number;
    return true;
}

static bool read_uint64(nif_map *map, ERL_NIF_TERM term, uint64_t *value)
{
    ErlNifUInt64 number = WEIR_AUTO;
    if (!enif_get_uint64(map->env, term, &number) && !enif_is_identical(term, nif_atom(map->env, "auto")))
        return false;
    *value = number;
    return true;
}

static bool read_choice(nif_map *map, const weir_member *member, ERL_NIF_TERM term, void *value)
{
    int32_t number = (int32_t)member->min;
    for (const char *const *name = member->choices; *name != NULL; name++, number++) {
        if (!enif_is_identical(term, nif_atom(map->env, *name))) continue;
        memcpy(value, &number, sizeof number);
        return true;
    }
    return false;
}

static bool read_text(nif_map *map, ERL_NIF_TERM term, const char **text)
{
    ErlNifBinary binary;
    if (!nif_get_text(map->env, term, &binary)) return false;
    char *copy = keep(map, binary.size + 1);
    if (copy == NULL) return false;
    if (binary.size > 0) memcpy(copy, binary.data, binary.size);
    copy[binary.size] = '\0';
    *text = copy;
    return true;
}

static bool read_texts(nif_map *map, ERL_NIF_TERM list, const char *const **texts, size_t *n)
{
    ERL_NIF_TERM head;
    unsigned length;
    if (!enif_get_list_length(map->env, list, &length)) return false;
    const char **copies = keep(map, length * sizeof *copies);
    if (copies == NULL) return false;
    for (*n = 0; enif_get_list_cell(map->env, list, &head, &list); (*n)++)
        if (!read_text(map, head, &copies[*n])) return false;
    *texts = copies;
    return true;
}

static bool read_biases(nif_map *map, ERL_NIF_TERM list, const weir_logit_bias **biases, size_t *n)
{
    ERL_NIF_TERM head;
    const ERL_NIF_TERM *pair;
    unsigned length;
    int arity;
    if (!enif_get_list_length(map->env, list, &length)) return false;
    weir_logit_bias *copies = keep(map, length * sizeof *copies);
    if (copies == NULL) return false;
    for (*n = 0; enif_get_list_cell(map->env, list, &head, &list); (*n)++) {
        if (!enif_get_tuple(map->env, head, &arity, &pair) || arity != 2 ||
            !nif_get_i32(map->env, pair[0], &copies[*n].token) ||
            !nif_get_float(map->env, pair[1], &copies[*n].bias))
            return false;
    }
    *biases = copies;
    return true;
}

/* False: the term is of the wrong type, or there is no memory. */
static bool read_member(nif_map *map, const weir_member *member, ERL_NIF_TERM term, char *params)
{
    void *at = params + member->offset, *n = params + member->n_offset;
    bool nil = enif_is_identical(term, nif_atom(map->env, "nil"));
    switch (member->type) {
    case WEIR_MEMBER_BOOL: return nif_get_bool(map->env, term, at);
    case WEIR_MEMBER_INT32: return nif_get_i32(map->env, term, at);
    case WEIR_MEMBER_UINT32: return enif_get_uint(map->env, term, at) != 0;
    case WEIR_MEMBER_INT64: return read_int64(map, term, at);
    case WEIR_MEMBER_UINT64: return read_uint64(map, term, at);
    case WEIR_MEMBER_FLOAT: return nif_get_float(map->env, term, at);
    case WEIR_MEMBER_DOUBLE: break; /* no parameter is one */
    case WEIR_MEMBER_CHOICE: return read_choice(map, member, term, at);
    case WEIR_MEMBER_STRING: return nil || read_text(map, term, at);
    case WEIR_MEMBER_STRINGS: return nil || read_texts(map, term, at, n);
    case WEIR_MEMBER_BIASES: return nil || read_biases(map, term, at, n);
    case WEIR_MEMBER_OTHER: return true; /* the caller reads it */
    }
    return false;
}

static const char *key_of(const nif_map *map, const char *member)
{
    for (const nif_rename *name = map->renames; name != NULL && name->member != NULL; name++)
        if (strcmp(name->member, member) == 0) return name->key;
    return member;
}

void nif_map_members(nif_map *map, const char *of, void *params)
{
    ERL_NIF_TERM term;
    size_t n;
    const weir_member *members = weir_members(of, &n);
    for (size_t i = 0; i < n; i++) {
        const char *key = key_of(map, members[i].name);
        if (nif_map_term(map, key, &term) && !read_member(map, &members[i], term, params) &&
            map->wrong == NULL)
            map->wrong = key;
    }
}

/* ---- Structs as maps ---- */

#define MEMBERS_MAX 64 /* of a struct, as a map */

/* Of a text or a list, which results have no rows for, nil. */
static ERL_NIF_TERM member_term(ErlNifEnv *env, const weir_member *member, const char *from)
{
    const void *at = from + member->offset;
    int32_t choice;
    switch (member->type) {
    case WEIR_MEMBER_BOOL: return nif_atom(env, *(const bool *)at ? "true" : "false");
    case WEIR_MEMBER_INT32: return enif_make_int(env, *(const int32_t *)at);
    case WEIR_MEMBER_UINT32: return enif_make_uint(env, *(const uint32_t *)at);
    case WEIR_MEMBER_INT64: return enif_make_int64(env, *(const int64_t *)at);
    case WEIR_MEMBER_UINT64: return enif_make_uint64(env, *(const uint64_t *)at);
    case WEIR_MEMBER_FLOAT: return nif_number(env, (double)*(const float *)at);
    case WEIR_MEMBER_DOUBLE: return nif_number(env, *(const double *)at);
    case WEIR_MEMBER_CHOICE:
        memcpy(&choice, at, sizeof choice);
        return nif_atom(env, member->choices[choice - (int32_t)member->min]);
    case WEIR_MEMBER_STRING:
    case WEIR_MEMBER_STRINGS:
    case WEIR_MEMBER_BIASES:
    case WEIR_MEMBER_OTHER: break;
    }
    return nif_atom(env, "nil");
}

ERL_NIF_TERM nif_map_of(ErlNifEnv *env, const char *of, const void *from)
{
    ERL_NIF_TERM keys[MEMBERS_MAX], values[MEMBERS_MAX], map = enif_make_new_map(env);
    size_t n;
    const weir_member *members = weir_members(of, &n);
    if (n > MEMBERS_MAX) n = MEMBERS_MAX;
    for (size_t i = 0; i < n; i++) {
        keys[i] = nif_atom(env, members[i].name);
        values[i] = member_term(env, &members[i], from);
    }
    enif_make_map_from_arrays(env, keys, values, n, &map);
    return map;
}
