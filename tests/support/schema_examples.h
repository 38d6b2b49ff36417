/* schema_examples.h: schemas with texts that their grammars must and must not make.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_SUPPORT_SCHEMA_EXAMPLES_H
#define WEIR_TESTS_SUPPORT_SCHEMA_EXAMPLES_H

#include "grammar/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/schema_grammar.h"
#include "support/gbnf.h"

struct example {
    const char *schema;
    const char *made[6];
    const char *refused[8];
};

/* *grammar (may be NULL) is freed with weir_free. */
static inline weir_status schema_compile(const char *schema, const weir__schema_terms *terms, char **grammar,
                                         weir_error *error)
{
    json_t *given = json_loads(schema, 0, NULL), *rewritten = NULL; /* deeper than requests can be, too */
    char *text = NULL;
    assert_non_null(given);
    weir_status status = weir__schema_rewrite(given, terms, &rewritten, error);
    if (status == WEIR_OK) status = weir__grammar_from_schema(rewritten, "schema", &text, error);
    json_decref(rewritten);
    json_decref(given);
    if (grammar != NULL && status == WEIR_OK)
        *grammar = text;
    else
        weir_free(text);
    return status;
}

/* The strict grammar of a schema that has one. */
static inline gbnf *grammar_of(const char *schema)
{
    char *text = NULL;
    weir_error error = {0};
    weir_status status = weir_grammar_from_json_schema(schema, WEIR_NUL, &text, &error);
    if (status != WEIR_OK) fail_msg("%s: %s [%s]", schema, error.message, error.field);
    gbnf *g = gbnf_parse(text);
    weir_free(text);
    return g;
}

/* NULL ends a list that is not full. */
static inline void check_texts(gbnf *g, const char *schema, const char *const *made, size_t n_made,
                               const char *const *refused, size_t n_refused)
{
    for (size_t k = 0; k < n_made && made[k] != NULL; k++)
        if (!gbnf_matches(g, made[k])) fail_msg("%s does not make %s", schema, made[k]);
    for (size_t k = 0; k < n_refused && refused[k] != NULL; k++)
        if (gbnf_matches(g, refused[k])) fail_msg("%s makes %s", schema, refused[k]);
}

static inline void check_examples(const struct example *examples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct example *e = &examples[i];
        gbnf *g = grammar_of(e->schema);
        check_texts(g, e->schema, e->made, 6, e->refused, 8);
        gbnf_free(g);
    }
}

#endif
