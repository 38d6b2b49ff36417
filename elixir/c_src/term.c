/* term.c: terms in, terms out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nif.h"

bool nif_get_bool(ErlNifEnv *env, ERL_NIF_TERM term, bool *value)
{
    *value = enif_is_identical(term, enif_make_atom(env, "true"));
    return *value || enif_is_identical(term, enif_make_atom(env, "false"));
}

bool nif_get_i32(ErlNifEnv *env, ERL_NIF_TERM term, int32_t *value)
{
    int number;
    if (!enif_get_int(env, term, &number)) return false;
    *value = number;
    return true;
}

bool nif_get_float(ErlNifEnv *env, ERL_NIF_TERM term, float *value)
{
    double number;
    ErlNifSInt64 integer;
    if (enif_get_double(env, term, &number)) {
        /* A double beyond a float's range has no defined conversion. */
        *value = number > 3e38 ? INFINITY : number < -3e38 ? -INFINITY : (float)number;
        return true;
    }
    if (!enif_get_int64(env, term, &integer)) return false;
    *value = (float)integer;
    return true;
}

bool nif_get_tokens(ErlNifEnv *env, ERL_NIF_TERM term, nif_tokens *tokens)
{
    unsigned n;
    ERL_NIF_TERM head;
    *tokens = (nif_tokens){0};
    if (!enif_get_list_length(env, term, &n)) return false;
    tokens->ids = enif_alloc(n > 0 ? n * sizeof *tokens->ids : 1);
    if (tokens->ids == NULL) return false;
    for (; enif_get_list_cell(env, term, &head, &term); tokens->n++) {
        if (!nif_get_i32(env, head, &tokens->ids[tokens->n])) {
            nif_free(tokens->ids);
            *tokens = (nif_tokens){0};
            return false;
        }
    }
    return true;
}

bool nif_get_text(ErlNifEnv *env, ERL_NIF_TERM term, ErlNifBinary *text)
{
    if (!enif_inspect_binary(env, term, text)) return false;
    return text->size == 0 || memchr(text->data, 0, text->size) == NULL;
}

bool nif_get_string(ErlNifEnv *env, ERL_NIF_TERM term, bool nil, char **text)
{
    ErlNifBinary binary;
    *text = NULL;
    if (nil && enif_is_identical(term, enif_make_atom(env, "nil"))) return true;
    if (!nif_get_text(env, term, &binary)) return false;
    *text = enif_alloc(binary.size + 1);
    if (*text == NULL) return false;
    if (binary.size > 0) memcpy(*text, binary.data, binary.size);
    (*text)[binary.size] = '\0';
    return true;
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

ERL_NIF_TERM nif_atom(ErlNifEnv *env, const char *name)
{
    return enif_make_atom(env, name);
}

ERL_NIF_TERM nif_ok(ErlNifEnv *env, ERL_NIF_TERM term)
{
    return enif_make_tuple2(env, enif_make_atom(env, "ok"), term);
}

ERL_NIF_TERM nif_binary(ErlNifEnv *env, const char *text, size_t length)
{
    ERL_NIF_TERM term = nif_atom(env, "nil");
    if (length == WEIR_NUL) length = strlen(text);
    unsigned char *bytes = enif_make_new_binary(env, length, &term);
    if (bytes != NULL && length > 0) memcpy(bytes, text, length);
    return term;
}

/* Erlang has no infinity; OpenAI's API gives this for the logprob of what cannot be. */
ERL_NIF_TERM nif_number(ErlNifEnv *env, double number)
{
    return enif_make_double(env, isfinite(number) ? number : -9999.0);
}

void nif_put(ErlNifEnv *env, ERL_NIF_TERM *map, const char *name, ERL_NIF_TERM value)
{
    enif_make_map_put(env, *map, nif_atom(env, name), value, map);
}

ERL_NIF_TERM nif_failed(ErlNifEnv *env, const char *message)
{
    return enif_make_tuple2(env, enif_make_atom(env, "error"), nif_binary(env, message, WEIR_NUL));
}

ERL_NIF_TERM nif_no_memory(ErlNifEnv *env)
{
    return nif_failed(env, weir_status_text(WEIR_NO_MEMORY));
}

ERL_NIF_TERM nif_refused(ErlNifEnv *env, weir_status status, const weir_error *error)
{
    char text[sizeof error->field + sizeof error->message + 2];
    if (error == NULL || error->message[0] == '\0') return nif_failed(env, weir_status_text(status));
    /* most messages name the field themselves */
    if (error->field[0] == '\0' || strstr(error->message, error->field) != NULL)
        return nif_failed(env, error->message);
    snprintf(text, sizeof text, "%s: %s", error->field, error->message);
    return nif_failed(env, text);
}

ERL_NIF_TERM nif_status(ErlNifEnv *env, weir_status status, const weir_error *error)
{
    return status == WEIR_OK ? enif_make_atom(env, "ok") : nif_refused(env, status, error);
}
