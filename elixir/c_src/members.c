/* members.c: the rows of weir_members() as maps, which the package makes its options from.
 * SPDX-License-Identifier: Apache-2.0 */
#include "nif.h"

static const char *const types[] = {
    [WEIR_MEMBER_BOOL] = "bool",       [WEIR_MEMBER_INT32] = "int32",   [WEIR_MEMBER_UINT32] = "uint32",
    [WEIR_MEMBER_INT64] = "int64",     [WEIR_MEMBER_UINT64] = "uint64", [WEIR_MEMBER_FLOAT] = "float",
    [WEIR_MEMBER_DOUBLE] = "double",   [WEIR_MEMBER_CHOICE] = "choice", [WEIR_MEMBER_STRING] = "string",
    [WEIR_MEMBER_STRINGS] = "strings", [WEIR_MEMBER_BIASES] = "biases", [WEIR_MEMBER_OTHER] = "other",
};

/* Doubles that stand for the largest 64-bit numbers are one too large. */
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
    if (member->type == WEIR_MEMBER_BOOL) return nif_atom(env, member->initial != 0 ? "true" : "false");
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

static ERL_NIF_TERM member_map(ErlNifEnv *env, const weir_member *member)
{
    ERL_NIF_TERM map = enif_make_new_map(env);
    nif_put(env, &map, "name", nif_atom(env, member->name));
    nif_put(env, &map, "type", nif_atom(env, types[member->type]));
    nif_put(env, &map, "min", number_term(env, member->type, member->min));
    nif_put(env, &map, "max", number_term(env, member->type, member->max));
    nif_put(env, &map, "or_minus_one", nif_atom(env, member->or_minus_one ? "true" : "false"));
    nif_put(env, &map, "initial", initial_term(env, member));
    nif_put(env, &map, "choices", choices_term(env, member));
    nif_put(env, &map, "unit", nif_binary(env, member->unit, WEIR_NUL));
    nif_put(env, &map, "help", nif_binary(env, member->help, WEIR_NUL));
    return map;
}

/* members(struct): a map for each of its members, in order */
ERL_NIF_TERM nif_members(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    char *of;
    size_t n;
    if (!nif_get_string(env, argv[0], false, &of)) return enif_make_badarg(env);
    const weir_member *member = weir_members(of, &n);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    nif_free(of);
    if (member == NULL) return enif_make_badarg(env);
    while (n-- > 0) list = enif_make_list_cell(env, member_map(env, &member[n]), list);
    return list;
}
