/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/literal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The decimal exponents with which a number is written without one. */
#define EXPONENT_MIN (-4)
#define EXPONENT_MAX 14

static bool add_quoted(weir__text *json, const char *string, size_t n)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* a character and the letter of its escape */
    bool ok = weir__text_add_string(json, "\"");
    for (size_t i = 0; ok && i < n; i++) {
        char escape[8];
        const char *pair = named;
        while (*pair != '\0' && *pair != string[i]) pair += 2;
        if (*pair != '\0')
            snprintf(escape, sizeof escape, "\\%c", pair[1]);
        else if ((unsigned char)string[i] < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)string[i]);
        else
            snprintf(escape, sizeof escape, "%c", string[i]);
        ok = weir__text_add_string(json, escape);
    }
    return ok && weir__text_add_string(json, "\"");
}

/* With the fewest digits that identify the number. */
static bool add_real(weir__text *json, double value)
{
    char text[64];
    int precision = 0, exponent;
    do snprintf(text, sizeof text, "%.*e", precision, value);
    while (strtod(text, NULL) != value && ++precision <= 16);
    exponent = atoi(strchr(text, 'e') + 1);
    if (EXPONENT_MIN <= exponent && exponent <= EXPONENT_MAX)
        snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, value);
    /* The locale's decimal point stands behind the first digits, and may have several bytes. */
    size_t whole = strspn(text, "-0123456789"), point = strcspn(text + whole, "0123456789e");
    return weir__text_add(json, text, whole) && weir__text_add_string(json, point > 0 ? "." : "") &&
           weir__text_add_string(json, text + whole + point);
}

static bool add_json(weir__text *json, const json_t *value)
{
    char text[32];
    const char *name;
    json_t *part;
    size_t i;
    bool ok = true, first = true;
    switch (json_typeof(value)) {
    case JSON_NULL: return weir__text_add_string(json, "null");
    case JSON_TRUE: return weir__text_add_string(json, "true");
    case JSON_FALSE: return weir__text_add_string(json, "false");
    case JSON_STRING: return add_quoted(json, json_string_value(value), json_string_length(value));
    case JSON_REAL: return add_real(json, json_real_value(value));
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return weir__text_add_string(json, text);
    case JSON_ARRAY:
        ok = weir__text_add_string(json, "[");
        json_array_foreach(value, i, part)
        {
            ok = ok && weir__text_add_string(json, i > 0 ? "," : "") && add_json(json, part);
        }
        return ok && weir__text_add_string(json, "]");
    case JSON_OBJECT: break;
    }
    ok = weir__text_add_string(json, "{");
    json_object_foreach((json_t *)value, name, part)
    {
        ok = ok && weir__text_add_string(json, first ? "" : ",") && add_quoted(json, name, strlen(name)) &&
             weir__text_add_string(json, ":") && add_json(json, part);
        first = false;
    }
    return ok && weir__text_add_string(json, "}");
}

/* The JSON text between quotes, with GBNF's escapes; the text is freed. */
static bool add_literal(weir__text *text, weir__text *json, bool ok)
{
    ok = ok && weir__text_add_string(text, "\"");
    for (size_t from = 0, n; ok && from < json->n; from += n) {
        const char *c = json->bytes + from;
        n = strcspn(c, "\"\\");
        ok = weir__text_add(text, c, n);
        if (!ok || from + n == json->n) continue;
        char escape[2] = {'\\', c[n++]};
        ok = weir__text_add(text, escape, sizeof escape);
    }
    weir__text_fini(json);
    return ok && weir__text_add_string(text, "\"");
}

bool weir__literal_add(weir__text *text, const json_t *value)
{
    weir__text json = {0};
    bool ok = add_json(&json, value);
    return add_literal(text, &json, ok);
}

bool weir__literal_add_string(weir__text *text, const char *string)
{
    weir__text json = {0};
    bool ok = add_quoted(&json, string, strlen(string));
    return add_literal(text, &json, ok);
}
