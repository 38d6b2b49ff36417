/* body.c: a request's body as JSON, and the arguments of its address. SPDX-License-Identifier: Apache-2.0 */
#include "body.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/mem.h"
#include "call.h"

/* The model of the address is that of a body which names none. */
static bool add_model(serve_call *call, json_t *json)
{
    if (call->asked[0] == '\0' || !json_is_object(json)) return true;
    const json_t *name = json_object_get(json, "model");
    if (name == NULL && call->route->tagged) name = json_object_get(json, "name");
    const char *word = json_string_value(name);
    if (name == NULL || json_is_null(name) || (word != NULL && word[0] == '\0'))
        return json_object_set_new(json, "model", json_string(call->asked)) == 0 ||
               serve_call_no_memory(call);
    return word == NULL || strcmp(word, call->asked) == 0 ||
           serve_call_refuse(call, 400, "model", "invalid_value",
                             "model is \"%.100s\" in the body and \"%.100s\" in the address: name one model",
                             word, call->asked);
}

bool serve_call_read_any(serve_call *call, json_t **json)
{
    weir_error error = {0};
    *json = json_incref(call->json);
    if (*json != NULL) return true;
    weir_status status = weir__json_parse_texts(call->body.bytes != NULL ? call->body.bytes : "",
                                                call->body.n, "body", WEIR_INVALID, json, &error);
    if (status == WEIR_ABORTED) return serve_call_interrupted(call);
    if (status == WEIR_NO_MEMORY) return serve_call_no_memory(call);
    if (status != WEIR_OK)
        return serve_call_refuse(call, 400, NULL, "invalid_json", "%s", weir__error_words(&error).text);
    if (add_model(call, *json)) return true;
    json_decref(*json);
    *json = NULL;
    return false;
}

bool serve_call_read_json(serve_call *call, json_t **json)
{
    if (!serve_call_read_any(call, json)) return false;
    if (json_is_object(*json)) return true;
    json_decref(*json);
    *json = NULL;
    return serve_call_refuse(call, 400, NULL, "invalid_json", "the body must be a JSON object");
}

bool serve_json_whole(const json_t *value, json_int_t *n)
{
    double number = json_is_real(value) ? json_real_value(value) : 0;
    bool exact = number == floor(number) && fabs(number) <= 9007199254740992.0; /* 2^53 */
    *n = json_is_integer(value) ? json_integer_value(value) : exact ? (json_int_t)number : 0;
    return json_is_integer(value) || (json_is_real(value) && exact);
}

const char *serve_argument_find(const char *query, const char *name, size_t *n)
{
    size_t length = strlen(name);
    while (strncmp(query, name, length) != 0 || query[length] != '=') {
        if ((query = strchr(query, '&')) == NULL) return NULL;
        query++;
    }
    *n = strcspn(query + length + 1, "&");
    return query + length + 1;
}

bool serve_argument_decode(const char *from, size_t n, char *to, size_t capacity)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)from[i];
        if (c == '%') {
            int high = weir__ascii_hex(from[i + 1]), low = high < 0 ? -1 : weir__ascii_hex(from[i + 2]);
            c = low < 0 ? 0 : high * 16 + low;
            i += 2;
        }
        if (c == 0) return false;
        if (length + 1 < capacity) to[length++] = (char)c;
    }
    to[length] = '\0';
    return true;
}

bool serve_call_argument(const serve_call *call, const char *name, char *value, size_t capacity)
{
    size_t n;
    const char *at = serve_argument_find(call->query, name, &n);
    if (at != NULL) snprintf(value, capacity, "%.*s", (int)n, at);
    return at != NULL;
}

bool serve_call_arguments(serve_call *call, const char *known)
{
    for (const char *at = call->query; *at != '\0'; at += *at == '&') {
        char name[32] = " ", list[128];
        size_t n = strcspn(at, "=&");
        snprintf(name, sizeof name, " %.*s ", (int)(n < 28 ? n : 28), at);
        snprintf(list, sizeof list, " %s ", known);
        if (n > 0 && strstr(list, name) == NULL)
            return serve_call_refuse(call, 400, NULL, "unknown_parameter",
                                     "the address has an unknown argument \"%.*s\"%s%s",
                                     (int)(n < 28 ? n : 28), at, known[0] != '\0' ? "; known: " : "", known);
        at += strcspn(at, "&");
    }
    return true;
}
