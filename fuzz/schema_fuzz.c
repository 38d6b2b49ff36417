/* schema_fuzz.c: any text as a JSON Schema: a grammar that can be used, or refused with a reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "fuzz.h"
#include "grammar/schema.h"
#include "grammar/schema_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = {0};
    json_t *schema = NULL, *rewritten = NULL;
    if (size == 0) return 0;
    const weir__schema_terms terms = {.where = "", .tag = "w", .inline_root = data[0] & 1};
    if (weir__json_parse((const char *)data + 1, size - 1, "schema", WEIR_GRAMMAR, &schema, &error) !=
        WEIR_OK)
        return 0;
    weir_status status = weir__schema_rewrite(schema, &terms, &rewritten, &error);
    if ((status == WEIR_OK) != (rewritten != NULL)) abort();
    if (status != WEIR_OK && error.message[0] == '\0') abort();
    char *grammar = NULL;
    if (status == WEIR_OK && weir__grammar_from_schema(rewritten, "schema", &grammar, &error) != WEIR_OK &&
        strstr(error.message, "never comes to an end") == NULL && strstr(error.message, " is above ") == NULL)
        abort(); /* a rewritten schema has a grammar, unless it has no end or is too large */
    weir__mem_free(grammar);
    json_decref(rewritten);
    json_decref(schema);
    return 0;
}
