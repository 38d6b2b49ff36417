/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/literal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Numbers with a decimal exponent between these are written without one. */
#define EXPONENT_MIN (-4)
#define EXPONENT_MAX 14

/* The number with the fewest digits that identify it. */
static void add_real(weir__text *json, double value)
{
    char text[64];
    int precision = 0, exponent;
    do snprintf(text, sizeof text, "%.*e", precision, value);
    while (strtod(text, NULL) != value && ++precision <= 16);
    exponent = atoi(strchr(text, 'e') + 1);
    if (EXPONENT_MIN <= exponent && exponent <= EXPONENT_MAX)
        snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, value);
    /* The locale's decimal point follows the first digits, and may have several bytes. */
    size_t whole = strspn(text, "-0123456789"), point = strcspn(text + whole, "0123456789e");
    weir__text_printf(json, "%.*s%s%s", (int)whole, text, point > 0 ? "." : "", text + whole + point);
}

static void add_json(weir__text *json, const json_t *value)
{
    const char *name;
    json_t *part;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_NULL: weir__text_add_string(json, "null"); break;
    case JSON_TRUE: weir__text_add_string(json, "true"); break;
    case JSON_FALSE: weir__text_add_string(json, "false"); break;
    case JSON_STRING: weir__json_quote(json, json_string_value(value), json_string_length(value)); break;
    case JSON_REAL: add_real(json, json_real_value(value)); break;
    case JSON_INTEGER: weir__text_printf(json, "%lld", (long long)json_integer_value(value)); break;
    case JSON_ARRAY:
        weir__text_add_string(json, "[");
        json_array_foreach(value, i, part)
        {
            weir__json_next(json);
            add_json(json, part);
        }
        weir__text_add_string(json, "]");
        break;
    case JSON_OBJECT:
        weir__text_add_string(json, "{");
        json_object_foreach((json_t *)value, name, part)
        {
            weir__json_next(json);
            weir__json_quote(json, name, strlen(name));
            weir__text_add_string(json, ":");
            add_json(json, part);
        }
        weir__text_add_string(json, "}");
        break;
    }
}

/* The JSON text as a literal of GBNF. It is freed. */
static void add_literal(weir__text *text, weir__text *json)
{
    weir__text_add_string(text, "\"");
    for (size_t from = 0, n; from < json->n; from += n) {
        const char *c = json->bytes + from;
        n = strcspn(c, "\"\\");
        weir__text_add(text, c, n);
        if (from + n < json->n) weir__text_printf(text, "\\%c", c[n++]);
    }
    weir__text_add_string(text, "\"");
    text->failed |= json->failed;
    weir__text_fini(json);
}

void weir__literal_add(weir__text *text, const json_t *value)
{
    weir__text json = {0};
    add_json(&json, value);
    add_literal(text, &json);
}

void weir__literal_add_string(weir__text *text, const char *string)
{
    weir__text json = {0};
    weir__json_quote(&json, string, strlen(string));
    add_literal(text, &json);
}
