/* schema_grammar_test.c: the GBNF of rewritten schemas. schema_test.c has the texts that schemas allow.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema_grammar.h"

#include "support/model.h"
#include "support/schema_examples.h"

/* A schema's grammar; as_parameters: as of a function, which stand in the root itself. */
static char *grammar_text(const char *schema, bool as_parameters)
{
    const weir__schema_terms terms = {.where = "", .tag = "w", .inline_root = as_parameters};
    char *text = NULL;
    assert_ok(schema_compile(schema, &terms, &text, error));
    return text;
}

/* Lists of texts end with NULL. */
static void assert_texts(const char *schema, bool as_parameters, const char *const *made,
                         const char *const *refused)
{
    char *text = grammar_text(schema, as_parameters);
    gbnf *g = gbnf_parse(text);
    check_texts(g, schema, made, SIZE_MAX, refused, SIZE_MAX);
    gbnf_free(g);
    weir_free(text);
}

static void a_grammar_has_the_rules_that_it_uses(void **state)
{
    (void)state;
    char *text = grammar_text("{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\"]},"
                              "\"b\":{\"$ref\":\"#\"}},\"required\":[\"a\"],\"additionalProperties\":false}",
                              false);
    assert_string_equal(text, "any-zeros ::= [0]{0,16}\n"
                              "any-naught ::= (\".\" [0] any-zeros)?\n"
                              "any-space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n"
                              "root ::= w0x\n"
                              "w0x-2 ::= \"1\" any-naught | \"\\\"x\\\"\"\n"
                              "w0x-1 ::= \"\\\"a\\\"\" any-space \":\" any-space w0x-2 w0x-3\n"
                              "w0x-3 ::= | \",\" any-space w0x-4\n"
                              "w0x-4 ::= \"\\\"b\\\"\" any-space \":\" any-space w0x\n"
                              "w0x ::= \"{\" any-space w0x-1 any-space \"}\"\n");
    weir_free(text);
    text = grammar_text("{\"type\":\"integer\"}", false);
    assert_string_equal(text, "any-integer ::= \"-\"? any-whole\n"
                              "any-whole ::= [0] | [1-9] [0-9]{0,15}\n"
                              "root ::= w0x\n"
                              "w0x ::= any-integer\n");
    weir_free(text);
}

static void optional_properties_come_in_their_order(void **state)
{
    (void)state;
    static const char *const made[] = {"{\"r\":1}",
                                       "{\"a\":1,\"r\":1}",
                                       "{\"r\":1,\"c\":1}",
                                       "{\"a\":1,\"r\":1,\"c\":1}",
                                       "{\"a\":1,\"r\":1,\"b\":1,\"c\":1}",
                                       NULL};
    static const char *const refused[] = {
        "{}",         "{\"a\":1}",  "{\"r\":1,\"a\":1}", "{\"r\":1,\"c\":1,\"b\":1}", "{\"r\":1,}",
        "{\"a\":1,}", "{,\"r\":1}", "{\"a\":1\"r\":1}",  "{\"a\":1,\"a\":1,\"r\":1}", NULL};
    assert_texts(
        "{\"properties\":{\"a\":{\"const\":1},\"r\":{\"const\":1},\"b\":{\"const\":1},\"c\":{\"const\":1}},"
        "\"required\":[\"r\"]}",
        false, made, refused);
}

static void names_of_properties_meet_no_rule(void **state)
{
    (void)state;
    static const char *const made[] = {
        "{\"\":1,\"-\":null,\"root\":true,\"space\":\"a\",\"\xC3\xA4\":2,\"\xC3\xB6\":3}", NULL};
    static const char *const refused[] = {
        "1", "{\"\":null,\"-\":null,\"root\":true,\"space\":\"a\",\"\xC3\xA4\":2,\"\xC3\xB6\":3}",
        "{\"\":1,\"-\":null,\"root\":true,\"space\":\"a\",\"\xC3\xA4\":3,\"\xC3\xB6\":3}", NULL};
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\"},\"-\":{\"type\":\"null\"},\"root\":"
        "{\"const\":true},"
        "\"space\":{\"const\":\"a\"},\"\xC3\xA4\":{\"const\":2},\"\xC3\xB6\":{\"const\":3}},"
        "\"required\":[\"\",\"-\",\"root\",\"space\",\"\xC3\xA4\",\"\xC3\xB6\"]}";
    assert_texts(schema, false, made, refused);
    assert_texts(schema, true, made, refused);
    /* the arguments of a function are an object without saying so, too */
    static const char *const objects[] = {"{}", "{\"a\":null}", "{\"b\":1,\"a\":null}", NULL};
    static const char *const others[] = {"1", "[]", "{\"a\":1}", NULL};
    assert_texts("{\"properties\":{\"a\":{\"type\":\"null\"}}}", true, objects, others);
}

static void spaces_are_bounded(void **state)
{
    (void)state;
    static const char *const made[] = {"{\"a\":[1]}", "{ \"a\" : [ 1 ] }", "{\n\n\t\"a\":\n [1]\n}",
                                       "{\"a\":[1, 2,\n3]}", NULL};
    static const char *const refused[] = {"{  \"a\":[1]}",
                                          "{\"a\":[1]\n\n\n}",
                                          " {\"a\":[1]}",
                                          "{\"a\":[1]} ",
                                          "{\"a\":[1 ,2]}",
                                          "{\"a\":[1\t]}",
                                          NULL};
    assert_texts("{\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1}"
                 "},\"required\":[\"a\"]}",
                 false, made, refused);
}

static void long_lists_of_references(void **state)
{
    (void)state;
    static const char *const made[] = {"[]", "[{}]", "[{},{\"a\":[{}]}]", NULL};
    static const char *const refused[] = {"[{\"a\":{}}]", "[1]", NULL};
    assert_texts("{\"type\":\"array\",\"maxItems\":1999,\"items\":{\"$ref\":\"#/$defs/n\"},"
                 "\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}}}}}",
                 false, made, refused);
}

static void repeated_groups_of_patterns(void **state)
{
    (void)state;
    static const char *const made[] = {"\"aab\"", "\"bb\"", "\"abab\xC3\xA9\xC3\xA9\"", "\"\"", NULL};
    static const char *const refused[] = {"\"aaab\"", "\"a\"", "\"b\xC3\xA9\"", "\"bbbbb\"", NULL};
    assert_texts("{\"type\":\"string\",\"pattern\":\"^((a{0,2}b){1,4}(\xC3\xA9{2})?)?$\"}", false, made,
                 refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_has_the_rules_that_it_uses),
        cmocka_unit_test(optional_properties_come_in_their_order),
        cmocka_unit_test(names_of_properties_meet_no_rule),
        cmocka_unit_test(spaces_are_bounded),
        cmocka_unit_test(long_lists_of_references),
        cmocka_unit_test(repeated_groups_of_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
