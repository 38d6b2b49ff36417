/* literal.c: writes the compact JSON text of a value within the quotes of a GBNF literal.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/literal.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* The JSON text as a literal of GBNF. */
static void add_literal(weir__text *text, const char *json)
{
    weir__text_add_string(text, "\"");
    while (*json != '\0') {
        size_t n = strcspn(json, "\"\\");
        weir__text_add(text, json, n);
        json += n;
        if (*json != '\0') weir__text_printf(text, "\\%c", *json++);
    }
    weir__text_add_string(text, "\"");
}

void weir__literal_add(weir__text *text, const json_t *value)
{
    char *json = weir__json_dump(value);
    if (json != NULL)
        add_literal(text, json);
    else
        text->failed = true;
    weir__mem_free(json);
}

void weir__literal_add_string(weir__text *text, const char *string)
{
    weir__text json = {0};
    weir__json_quote(&json, string, strlen(string));
    if (!json.failed)
        add_literal(text, json.bytes);
    else
        text->failed = true;
    weir__text_fini(&json);
}
