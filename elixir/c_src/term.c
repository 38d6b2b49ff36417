/* term.c: terms to values, and values to terms.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nif.h"

/* ---- Terms to values ---- */

bool nif_is(ErlNifEnv *env, ERL_NIF_TERM term, const char *atom)
{
    return enif_is_identical(term, enif_make_atom(env, atom)) != 0;
}

bool nif_bool(nif_call *call, ERL_NIF_TERM term)
{
    bool value = nif_is(call->env, term, "true");
    if (!value && !nif_is(call->env, term, "false")) nif_stop(call, NIF_WRONG);
    return value;
}

int32_t nif_i32(nif_call *call, ERL_NIF_TERM term)
{
    int number = 0;
    if (!enif_get_int(call->env, term, &number)) nif_stop(call, NIF_WRONG);
    return number;
}

int32_t nif_i32_in(nif_call *call, ERL_NIF_TERM term, int32_t min, int32_t max)
{
    int32_t number = nif_i32(call, term);
    if (number < min || number > max) nif_stop(call, NIF_WRONG);
    return number;
}

float nif_float(nif_call *call, ERL_NIF_TERM term)
{
    double number = 0;
    ErlNifSInt64 integer = 0;
    if (enif_get_double(call->env, term, &number)) {
        /* A double beyond a float's range has no defined conversion. */
        return number > 3e38 ? INFINITY : number < -3e38 ? -INFINITY : (float)number;
    }
    if (!enif_get_int64(call->env, term, &integer)) nif_stop(call, NIF_WRONG);
    return (float)integer;
}

ErlNifBinary nif_bytes(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifBinary bytes = {.size = 0};
    if (!enif_inspect_binary(call->env, term, &bytes)) nif_stop(call, NIF_WRONG);
    return bytes;
}

const char *nif_text(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifBinary bytes = nif_bytes(call, term);
    if (bytes.size > 0 && memchr(bytes.data, 0, bytes.size) != NULL) nif_stop(call, NIF_WRONG);
    char *text = nif_alloc(call, bytes.size + 1);
    if (text == NULL) return NULL;
    if (bytes.size > 0) memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    return text;
}

const char *nif_text_or_null(nif_call *call, ERL_NIF_TERM term)
{
    return nif_is(call->env, term, "nil") ? NULL : nif_text(call, term);
}

ErlNifPid nif_pid(nif_call *call, ERL_NIF_TERM term)
{
    ErlNifPid pid = {0};
    if (!enif_get_local_pid(call->env, term, &pid)) nif_stop(call, NIF_WRONG);
    return pid;
}

void *nif_list(nif_call *call, ERL_NIF_TERM list, size_t size, size_t *n)
{
    unsigned length = 0;
    if (!enif_get_list_length(call->env, list, &length)) nif_stop(call, NIF_WRONG);
    *n = length;
    return nif_alloc(call, length * size);
}

bool nif_next(nif_call *call, ERL_NIF_TERM *list, ERL_NIF_TERM *head)
{
    return call->end == NIF_RESULT && enif_get_list_cell(call->env, *list, head, list) != 0;
}

bool nif_next_tuple(nif_call *call, ERL_NIF_TERM *list, int arity, const ERL_NIF_TERM **elements)
{
    ERL_NIF_TERM head;
    int found;
    if (!nif_next(call, list, &head)) return false;
    if (enif_get_tuple(call->env, head, &found, elements) && found == arity) return true;
    nif_stop(call, NIF_WRONG);
    return false;
}

const char **nif_texts(nif_call *call, ERL_NIF_TERM list, size_t *n)
{
    ERL_NIF_TERM head;
    const char **texts = nif_list(call, list, sizeof *texts, n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) texts[i] = nif_text(call, head);
    return texts;
}

weir_tokens nif_tokens(nif_call *call, ERL_NIF_TERM list)
{
    size_t n;
    ERL_NIF_TERM head;
    int32_t *ids = nif_list(call, list, sizeof *ids, &n);
    for (size_t i = 0; nif_next(call, &list, &head); i++) ids[i] = nif_i32(call, head);
    return (weir_tokens){ids, n};
}

bool nif_key(nif_call *call, ERL_NIF_TERM map, const char *name, ERL_NIF_TERM *value)
{
    return enif_get_map_value(call->env, map, nif_atom(call->env, name), value) &&
           !nif_is(call->env, *value, "nil");
}

size_t nif_size(ErlNifEnv *env, ERL_NIF_TERM term)
{
    ErlNifBinary binary;
    return enif_inspect_binary(env, term, &binary) ? binary.size : 0;
}

bool nif_longer_than(ErlNifEnv *env, ERL_NIF_TERM list, size_t limit)
{
    ERL_NIF_TERM head;
    for (size_t n = 0; enif_get_list_cell(env, list, &head, &list); n++) {
        if (n == limit) return true;
    }
    return false;
}

/* ---- Values to terms ---- */

ERL_NIF_TERM nif_atom(ErlNifEnv *env, const char *name)
{
    return enif_make_atom(env, name);
}

ERL_NIF_TERM nif_truth(ErlNifEnv *env, bool value)
{
    return nif_atom(env, value ? "true" : "false");
}

ERL_NIF_TERM nif_ok(ErlNifEnv *env, ERL_NIF_TERM term)
{
    return enif_make_tuple2(env, nif_atom(env, "ok"), term);
}

ERL_NIF_TERM nif_binary(ErlNifEnv *env, const char *text, size_t length)
{
    ERL_NIF_TERM term = nif_atom(env, "nil");
    if (length == WEIR_NUL) length = strlen(text);
    unsigned char *bytes = enif_make_new_binary(env, length, &term);
    if (bytes != NULL && length > 0) memcpy(bytes, text, length);
    return term;
}

ERL_NIF_TERM nif_text_or_nil(ErlNifEnv *env, const char *text)
{
    return text != NULL && text[0] != '\0' ? nif_binary(env, text, WEIR_NUL) : nif_atom(env, "nil");
}

/* Erlang has no infinity; OpenAI's API uses this number for the logprob of an impossible token. */
ERL_NIF_TERM nif_number(ErlNifEnv *env, double number)
{
    return enif_make_double(env, isfinite(number) ? number : -9999.0);
}

ERL_NIF_TERM nif_ids(ErlNifEnv *env, const int32_t *tokens, size_t n)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    while (n > 0) list = enif_make_list_cell(env, enif_make_int(env, tokens[--n]), list);
    return list;
}

void nif_put(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, ERL_NIF_TERM value)
{
    enif_make_map_put(env, *map, nif_atom(env, name), value, map);
}
