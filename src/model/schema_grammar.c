/* schema_grammar.c: JSON Schemas as GBNF, by llama.cpp's converter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/schema_grammar.h"

#ifndef WEIR_NO_LLAMA
#include "backend/shim_chat.h"
#endif
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

weir_status weir__grammar_from_schema(const json_t *rewritten, char **grammar, weir_error *error)
{
#ifdef WEIR_NO_LLAMA
    (void)rewritten;
    (void)grammar;
    return weir__error_set(error, WEIR_UNSUPPORTED, "schema",
                           "this build has no llama.cpp, whose converter makes grammars of schemas");
#else
    char *text = NULL;
    char *schema = weir__json_dump(rewritten);
    if (schema == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "schema", "out of memory for the schema");
    weir_status status = weir__shim_schema_to_grammar(schema, &text, error);
    if (status == WEIR_OK) status = weir__grammar_check_ending(text, error);
    weir__mem_free(schema);
    if (status == WEIR_OK)
        *grammar = text;
    else
        weir__mem_free(text);
    return status;
#endif
}

weir_status weir_grammar_from_json_schema(const char *schema, size_t length, char **grammar,
                                          weir_error *error)
{
    static const weir__schema_terms terms = {.where = "", .tag = "w"};
    json_t *given = NULL, *rewritten = NULL;
    weir_status status = weir__json_parse(schema, length, "schema", WEIR_GRAMMAR, &given, error);
    if (status == WEIR_OK) status = weir__schema_rewrite(given, &terms, &rewritten, error);
    if (status == WEIR_OK) status = weir__grammar_from_schema(rewritten, grammar, error);
    json_decref(rewritten);
    json_decref(given);
    return status;
}
