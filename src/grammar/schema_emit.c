/* schema_emit.c: literals and rules of GBNF.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_emit.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* ---- Literals ---- */

void weir__emit_literal(weir__text *text, const char *json)
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
        weir__emit_literal(text, json);
    else
        text->failed = true;
    weir__mem_free(json);
}

void weir__literal_add_string(weir__text *text, const char *string)
{
    weir__text json = {0};
    weir__json_quote(&json, string, strlen(string));
    if (!json.failed)
        weir__emit_literal(text, json.bytes);
    else
        text->failed = true;
    weir__text_fini(&json);
}

/* ---- Rules ---- */

void weir__emit_named_rule(weir__emitter *e, const char *name, weir__text *body)
{
    e->rules.failed |= body->failed || !weir__budget_step(&e->budget, body->n / 32 + 1) ||
                       !weir__budget_grow(&e->budget, body->n);
    if (e->rules.failed) {
        weir__text_fini(body);
        return;
    }
    weir__text_printf(&e->rules, "%s ::= %s\n", name, body->bytes != NULL ? body->bytes : "");
    weir__text_fini(body);
}

void weir__emit_rule(weir__emitter *e, size_t part, weir__text *body)
{
    weir__text name = {0};
    weir__text_printf(&name, part == 0 ? "%s" : "%s-%zu", e->name, part);
    body->failed |= name.failed;
    weir__emit_named_rule(e, name.bytes, body);
    weir__text_fini(&name);
}
