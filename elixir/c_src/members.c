/* members.c: the library's structs by the rows of weir_members(): the rows themselves as maps, parameters
 * from maps, results as maps.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "nif.h"

/* ---- The rows ---- */

static const char *const type_names[] = {
    [WEIR_MEMBER_BOOL] = "bool",       [WEIR_MEMBER_INT32] = "int32",   [WEIR_MEMBER_UINT32] = "uint32",
    [WEIR_MEMBER_INT64] = "int64",     [WEIR_MEMBER_UINT64] = "uint64", [WEIR_MEMBER_FLOAT] = "float",
    [WEIR_MEMBER_DOUBLE] = "double",   [WEIR_MEMBER_CHOICE] = "choice", [WEIR_MEMBER_STRING] = "string",
    [WEIR_MEMBER_STRINGS] = "strings", [WEIR_MEMBER_BIASES] = "biases", [WEIR_MEMBER_OTHER] = "other",
};

/* A double that stands for the largest 64-bit number is too large by one. */
static ERL_NIF_TERM number_term(ErlNifEnv *env, weir_member_type type, double number)
{
    if (type == WEIR_MEMBER_BOOL || type >= WEIR_MEMBER_STRING) return nif_atom(env, "nil");
    if (type == WEIR_MEMBER_FLOAT || type == WEIR_MEMBER_DOUBLE) return enif_make_double(env, number);
    if (type == WEIR_MEMBER_UINT64)
        return enif_make_uint64(env, number < 0x1p64 ? (uint64_t)number : UINT64_MAX);
    return enif_make_int64(env, number < 0x1p63 ? (int64_t)number : INT64_MAX);
}

static ERL_NIF_TERM initial_term(ErlNifEnv *env, const weir_member *member)
{
    if (member->type == WEIR_MEMBER_BOOL) return nif_truth(env, member->initial != 0);
    if (member->type == WEIR_MEMBER_CHOICE)
        return nif_atom(env, member->choices[(int)(member->initial - member->min)]);
    return number_term(env, member->type, member->initial);
}

static ERL_NIF_TERM choices_term(ErlNifEnv *env, const weir_member *member)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    size_t n = 0;
    if (member->choices == NULL) return nif_atom(env, "nil");
    while (member->choices[n] != NULL) n++;
    while (n-- > 0) list = enif_make_list_cell(env, nif_atom(env, member->choices[n]), list);
    return list;
}

static ERL_NIF_TERM row_map(ErlNifEnv *env, const char *of, const weir_member *member)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "name", nif_atom(env, member->name));
    nif_put(env, &map, "option", nif_atom(env, nif_option_name(of, member->name)));
    nif_put(env, &map, "type", nif_atom(env, type_names[member->type]));
    nif_put(env, &map, "min", number_term(env, member->type, member->min));
    nif_put(env, &map, "max", number_term(env, member->type, member->max));
    nif_put(env, &map, "or_minus_one", nif_truth(env, member->or_minus_one));
    nif_put(env, &map, "initial", initial_term(env, member));
    nif_put(env, &map, "choices", choices_term(env, member));
    nif_put(env, &map, "unit", nif_binary(env, member->unit, WEIR_NUL));
    nif_put(env, &map, "help", nif_binary(env, member->help, WEIR_NUL));
    return map;
}

/* members(struct): its rows, in order */
ERL_NIF_TERM nif_members(nif_call *call, const ERL_NIF_TERM argv[])
{
    size_t n;
    const char *of = nif_text(call, argv[0]);
    if (call->end != NIF_RESULT) return 0;
    const weir_member *rows = weir_members(of, &n);
    if (rows == NULL) return nif_stop(call, NIF_WRONG);
    ERL_NIF_TERM list = enif_make_list(call->env, 0);
    while (n-- > 0) list = enif_make_list_cell(call->env, row_map(call->env, of, &rows[n]), list);
    return list;
}

/* ---- Parameters from maps ---- */

static int64_t read_int64(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifSInt64 number = 0;
    if (!enif_get_int64(call->env, term, &number)) nif_stop(call, NIF_WRONG);
    return number;
}

static uint64_t read_uint64(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifUInt64 number = 0; /* is written for other terms, too */
    if (nif_is(call->env, term, "auto")) return WEIR_AUTO;
    if (!enif_get_uint64(call->env, term, &number)) nif_stop(call, NIF_WRONG);
    return number;
}

static void read_choice(nif_call *call, const weir_member *member, ERL_NIF_TERM term, void *value)
{
    int32_t number = (int32_t)member->min;
    for (const char *const *name = member->choices; *name != NULL; name++, number++) {
        if (!nif_is(call->env, term, *name)) continue;
        memcpy(value, &number, sizeof number);
        return;
    }
    nif_stop(call, NIF_WRONG);
}

static weir_logit_bias *read_biases(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    const ERL_NIF_TERM *pair;
    weir_logit_bias *biases = nif_list(call, list, sizeof *biases, n);
    for (size_t i = 0; nif_next_tuple(call, &list, 2, &pair); i++)
        biases[i] = (weir_logit_bias){nif_i32(call, pair[0]), nif_float(call, pair[1])};
    return biases;
}

static void read_member(nif_call *call, const weir_member *member, ERL_NIF_TERM term, char *params)
{
    void *at = params + member->offset, *n = params + member->n_offset;
    if (member->type >= WEIR_MEMBER_STRING && nif_is(call->env, term, "nil")) return;
    switch (member->type) {
    case WEIR_MEMBER_BOOL: *(bool *)at = nif_bool(call, term); break;
    case WEIR_MEMBER_INT32: *(int32_t *)at = nif_i32(call, term); break;
    case WEIR_MEMBER_UINT32:
        if (!enif_get_uint(call->env, term, at)) nif_stop(call, NIF_WRONG);
        break;
    case WEIR_MEMBER_INT64: *(int64_t *)at = read_int64(call, term); break;
    case WEIR_MEMBER_UINT64: *(uint64_t *)at = read_uint64(call, term); break;
    case WEIR_MEMBER_FLOAT: *(float *)at = nif_float(call, term); break;
    case WEIR_MEMBER_CHOICE: read_choice(call, member, term, at); break;
    case WEIR_MEMBER_STRING: *(const char **)at = nif_text(call, term); break;
    case WEIR_MEMBER_STRINGS: *(const char *const **)at = nif_texts(call, term, n); break;
    case WEIR_MEMBER_BIASES: *(const weir_logit_bias **)at = read_biases(call, term, n); break;
    case WEIR_MEMBER_DOUBLE: /* only in results */
    case WEIR_MEMBER_OTHER: break;
    }
}

static const char *key_of(const nif_rename *name, const char *member)
{
    for (; name != NULL && name->member != NULL; name++)
        if (strcmp(name->member, member) == 0) return name->key;
    return member;
}

void nif_options(nif_call *call, ERL_NIF_TERM map, const char *of, const nif_rename *renames, void *params)
{
    ERL_NIF_TERM term;
    size_t n;
    const weir_member *members = weir_members(of, &n);
    if (!enif_is_map(call->env, map)) nif_stop(call, NIF_WRONG);
    for (size_t i = 0; i < n && call->end == NIF_RESULT; i++) {
        ERL_NIF_TERM key = nif_atom(call->env, key_of(renames, members[i].name));
        if (enif_get_map_value(call->env, map, key, &term)) read_member(call, &members[i], term, params);
    }
}

/* ---- Results as maps ---- */

#define MEMBERS_MAX 64 /* of a struct, as a map */

/* nil for texts and lists: results have no rows for them. */
static ERL_NIF_TERM member_term(ErlNifEnv *env, const weir_member *member, const char *from)
{
    const void *at = from + member->offset;
    int32_t choice;
    switch (member->type) {
    case WEIR_MEMBER_BOOL: return nif_truth(env, *(const bool *)at);
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
