/* schema_test.c: what schemas become. The grammars are read by a GBNF of the tests' own, and the texts that
 * they make by a validator of the tests' own. SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema.h"

#include <locale.h>
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/gbnf.h"

static gbnf *grammar_of(const char *schema)
{
    char *text = NULL;
    weir_error error = {0};
    weir_status status = weir_grammar_from_json_schema(schema, WEIR_NUL, &text, &error);
    if (status != WEIR_OK) fail_msg("%s: %s [%s]", schema, error.message, error.field);
    gbnf *g = gbnf_parse(text);
    weir_free(text);
    return g;
}

/* ---- What is honoured: texts that must and must not be made ---- */

static const struct example {
    const char *schema;
    const char *made[6];
    const char *refused[8];
} examples[] = {
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},"
     "\"required\":[\"a\"],\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"a\":-20,\"b\":\"x\"}", "{ \"a\": 0, \"b\": \"\\u00e9\\n\"}"},
     {"{}", "{\"b\":\"x\"}", "{\"a\":1.5}", "{\"a\":\"1\"}", "{\"a\":1,\"c\":2}", "{\"a\":01}", "[]"}},
    /* ~0, ~1 and %: names that a pointer must escape, one of which looks like another one escaped */
    {"{\"type\":\"array\",\"prefixItems\":[{\"$ref\":\"#/$defs/a~1b\"},{\"$ref\":\"#/$defs/a~0b\"},"
     "{\"$ref\":\"#/$defs/a~01b\"},{\"$ref\":\"#/$defs/a%25b\"}],\"minItems\":4,\"$defs\":{\"a/"
     "b\":{\"const\":1},"
     "\"a~b\":{\"const\":2},\"a~1b\":{\"const\":3},\"a%b\":{\"const\":4}}}",
     {"[1,2,3,4]"},
     {"[2,1,3,4]", "[1,2,1,4]", "[1,2,3]"}},
    {"{\"const\":2,\"enum\":[1,2,3]}", {"2"}, {"1", "3"}},
    {"{\"enum\":[1,\"a\",2.5],\"type\":[\"string\",\"integer\"]}", {"1", "\"a\""}, {"2.5"}},
    {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}",
     {"{}", "{ }"},
     {"{\"a\":1}", "[]"}},
    {"{\"type\":\"object\",\"required\":[\"x\"]}", {"{\"x\":[null]}"}, {"{}", "{\"y\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":true},\"required\":[\"a\",\"b\"],"
     "\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{\"a\":1,\"b\":true}"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":\"1\"}", "[]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}",
     {"{}", "{\"b\":null}"},
     {"{\"a\":1}"}},
    /* a name that resembles one of a rule */
    {"{\"type\":\"object\",\"properties\":{\"date_time\":{\"type\":\"integer\"},\"integral_part\":{\"type\":"
     "\"null\"},"
     "\"x\":{\"type\":\"string\",\"format\":\"date-time\"},\"y\":{\"type\":\"number\"}},"
     "\"required\":[\"date_time\",\"integral_part\",\"x\",\"y\"]}",
     {"{\"date_time\":3,\"integral_part\":null,\"x\":\"2024-01-31T23:59:59Z\",\"y\":1.5e3}"},
     {"{\"date_time\":3,\"integral_part\":null,\"x\":\"3\",\"y\":1}",
      "{\"date_time\":3,\"integral_part\":null,\"x\":\"2024-01-31T23:59:59Z\",\"y\":null}"}},
    /* references that differ in punctuation only */
    {"{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/$defs/a_b\"},\"q\":{\"$ref\":\"#/$defs/"
     "a-b\"}},"
     "\"required\":[\"p\",\"q\"],\"$defs\":{\"a_b\":{\"type\":\"integer\"},\"a-b\":{\"type\":\"null\"}}}",
     {"{\"p\":1,\"q\":null}"},
     {"{\"p\":1,\"q\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},"
     "\"required\":[\"next\"]}",
     {"{\"next\":null}", "{\"next\":{\"next\":{\"next\":null}}}"},
     {"{}", "{\"next\":{}}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
     {"[1,2]", "[1, 2, 3]"},
     {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":"
     "\"null\"}}",
     {"[1,\"a\"]"},
     {"[\"a\",1]", "[1,\"a\",2]", "[1,\"a\",\"b\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[true,true,true],\"maxItems\":2}", {"[1,2]"}, {"[1,2,3]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":4}",
     {"\"ab\"", "\"\\\"\\n\"", "\"\xC3\xA4\xF0\x9F\x98\x80o\""},
     {"\"\"", "\"a\"", "\"abcde\"", "\"\\ud83d\\ude00\"", "\"a\", \"b\""}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-f]{2,3}-\\\\d+$\"}",
     {"\"ab-1\"", "\"abc-123\""},
     {"\"a-1\"", "\"abcd-1\"", "\"ab-\"", "\"xab-1\"", "\"ab-1x\""}},
    {"{\"type\":\"string\",\"pattern\":\"^.*$\"}",
     {"\"\"", "\"a\\\"b\\\\\""},
     {"\"a\",\"b\"", "\"a\nb\"", "\"\\n\"", "\"\\\""}},
    {"{\"type\":\"string\",\"pattern\":\"b+c\"}", {"\"bc\"", "\"x\\nbbcy\""}, {"\"b\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xax\""}},
    {"{\"type\":\"string\",\"pattern\":\"^ab\\\\.*$\"}", {"\"ab\"", "\"ab..\""}, {"\"ab.ab.\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[^a\\\\]]$\"}",
     {"\"b\"", "\"\\\"\"", "\"\\n\""},
     {"\"a\"", "\"]\"", "\"\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\w(?:-\\\\s)?$\",\"minLength\":1,\"maxLength\":3}",
     {"\"_\"", "\"a- \"", "\"a-\\t\""},
     {"\"-\"", "\"\xC3\xA4\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0001-01-01\""},
     {"\"2024-13-01\"", "\"24-01-01\"", "\"2023-02-29\"", "\"1900-02-29\"", "\"2024-02-30\"",
      "\"2024-04-31\"", "\"0000-01-01\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+02:00\""},
     {"\"2024-02-30T00:00:00Z\"", "\"2024-01-01 00:00:00Z\"", "\"2024-01-01T24:00:00Z\"",
      "\"2024-01-01T00:00:00\""}},
    {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254,\"minLength\":3}",
     {"\"ada@example.org\"", "\"a.b+c@mail.ex-ample.co.uk\""},
     {"\"ada\"", "\"@x.org\"", "\"a..b@x.org\"", "\"a@x\"", "\"a@-x.org\"", "\"a b@x.org\""}},
    {"{\"type\":\"string\",\"format\":\"hostname\"}",
     {"\"example.org\"", "\"localhost\"", "\"a-b.c\""},
     {"\"\"", "\"-a\"", "\"a-\"", "\"a..b\"", "\"a b\"", "\"a_b\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.255.255.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::1\"", "\"2001:db8::ff00:42:8329\"", "\"fe80::\"", "\"1:2:3:4:5:6:7:8\""},
     {"\":1\"", "\"1:2:3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""}},
    {"{\"type\":\"string\",\"format\":\"uri\"}",
     {"\"https://example.org/a/b?c=d#e\"", "\"mailto:ada@example.org\"", "\"http://localhost:8080/%20\"",
      "\"file:///tmp/x\""},
     {"\"example.org\"", "\"/a\"", "\"http://a b\"", "\"http://x/%2\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"uri-reference\"}",
     {"\"/a/b\"", "\"a?b#c\"", "\"https://x.org\"", "\"\""},
     {"\"a b\"", "\"\\\\\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P3D\"", "\"PT1H30M\"", "\"P1Y2M3DT4H5M6S\"", "\"P2W\""},
     {"\"P\"", "\"PT\"", "\"3D\"", "\"P1DT\"", "\"P1D2M\"", "\"P1S\""}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.5", "0.07", "0.001"},
     {"-0.1", "1.1", "2", "10", "0.0001"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-2.5,\"maximum\":97.5,\"exclusiveMaximum\":97}",
     {"-2.4", "0", "96.9"},
     {"-2.5", "97", "97.5", "-3"}},
    {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMinimum\":true,\"maximum\":3}",
     {"3", "1.01"},
     {"1", "3.1"}},
    {"{\"type\":\"number\",\"multipleOf\":1,\"minimum\":1}", {"1", "20"}, {"0", "1.5"}},
    {"{\"type\":\"integer\",\"multipleOf\":15,\"minimum\":-20,\"exclusiveMaximum\":60}",
     {"-15", "0", "15", "45"},
     {"60", "-30", "5", "7"}},
    {"{\"not\":{\"type\":[\"string\",\"object\",\"array\"]}}", {"null", "1", "true"}, {"\"a\"", "{}", "[]"}},
    {"{\"type\":\"integer\",\"not\":false}", {"1"}, {"null"}},
    {"{\"type\":[\"string\",\"null\"],\"not\":{\"type\":\"null\"}}", {"\"a\""}, {"null"}},
    {"{\"enum\":[1,2,\"a\"],\"not\":{\"enum\":[2.0,\"a\"]}}", {"1"}, {"2", "\"a\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}},\"b\":{}}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"type\":"
     "\"integer\"}}",
     {"{}", "{\"a\":1}"},
     {"{\"a\":\"b\"}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"type\":"
     "\"integer\"}}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"c\":1}", "{\"a\":\"b\"}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"properties\":{\"a\":{\"type\":"
     "\"null\"},\"c\":{}},"
     "\"required\":[\"a\"]}",
     {"{\"a\":null}"},
     {"{}", "{\"a\":1}", "{\"a\":null,\"c\":1}", "{\"a\":null,\"b\":1}"}},
    {"{\"type\":[\"integer\",\"null\"],\"minimum\":5,\"maximum\":12}",
     {"5", "12", "null"},
     {"4", "13", "05", "-5"}},
    {"{\"type\":\"integer\",\"minimum\":105}",
     {"105", "1000", "9999999999999999"},
     {"15", "104", "99", "-105", "0"}},
    {"{\"type\":\"integer\",\"maximum\":-5}", {"-5", "-10", "-123"}, {"-4", "0", "-01", "5", "-05"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"minimum\":-5}", {"1", "20"}, {"0", "-1"}},
    {"{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true,\"maximum\":4.5}", {"4"}, {"3", "5"}},
    {"{\"type\":\"integer\",\"format\":\"int32\"}",
     {"2147483647", "-2147483648"},
     {"2147483648", "-2147483649"}},
    {"{\"enum\":[\"a\",1,null,{\"k\":[1.5]}]}", {"\"a\"", "1", "null", "{\"k\":[1.5]}"}, {"\"b\"", "2"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"const\":\"a\\\"\\n\"}", {"\"a\\\"\\n\""}, {"\"a\""}},
    {"{\"anyOf\":[{\"type\":\"integer\"},false,{\"type\":\"null\"}]}", {"1", "null"}, {"\"a\""}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"}},\"required\":[\"t\"]},"
     "{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"},\"x\":{\"type\":\"null\"}},\"required\":["
     "\"t\"]}]}",
     {"{\"t\":\"a\"}", "{\"t\":\"b\",\"x\":null}"},
     {"{\"t\":\"a\",\"x\":null}", "{\"t\":\"c\"}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
     "{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],\"title\":\"x\"}",
     {"{\"a\":1,\"b\":null}"},
     {"{\"a\":1}", "{\"b\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/p\"}],\"description\":\"x\",\"$defs\":{\"p\":{\"type\":\"object\","
     "\"properties\":{\"p\":{\"allOf\":[{\"$ref\":\"#/$defs/p\"}]}}}}}",
     {"{}", "{\"p\":{\"p\":{}}}"},
     {"{\"p\":1}"}},
    {"true", {"1", "[{\"a\":[]}]", "\"x\""}, {"", "x"}},
    {"{\"type\":\"boolean\",\"default\":true,\"x-note\":[1]}", {"true", "false"}, {"null"}},
};

static void test_honoured(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        gbnf *g = grammar_of(e->schema);
        for (size_t k = 0; k < 6 && e->made[k] != NULL; k++)
            if (!gbnf_matches(g, e->made[k])) fail_msg("%s does not make %s", e->schema, e->made[k]);
        for (size_t k = 0; k < 8 && e->refused[k] != NULL; k++)
            if (gbnf_matches(g, e->refused[k])) fail_msg("%s makes %s", e->schema, e->refused[k]);
        gbnf_free(g);
    }
}

/* ---- What is refused, where and why ---- */

static const struct refusal {
    const char *schema, *pointer, *word;
} refusals[] = {
    {"", "schema", "not JSON"},
    {"{\"type\":", "schema", "line 1"},
    {"{\"type\":\"null\",\"type\":\"null\"}", "schema", "duplicate"},
    {"\"\xFF\"", "schema", "UTF-8"},
    {"{\"const\":\"\\u0000\"}", "schema", "not JSON"},
    {"3", "", "object or a boolean"},
    {"false", "", "nothing can satisfy"},
    {"{\"type\":\"integer\",\"enum\":[\"a\"]}", "", "nothing can satisfy"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "", "nothing can satisfy"},
    {"{\"type\":\"text\"}", "", "'type'"},
    {"{\"type\":[]}", "", "'type'"},
    {"{\"enum\":[]}", "", "'enum'"},
    {"{\"const\":4,\"enum\":[1,2,3]}", "", "nothing can satisfy"},
    {"{\"$ref\":\"#/$defs/a~2b\",\"$defs\":{\"a~2b\":{}}}", "", "no JSON pointer"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}", "",
     "itself"},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{}],\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/"
     "$defs/a\"}}}",
     "", "without end"},
    {"{\"not\":{}}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", "", "'not'"},
    {"{\"type\":\"string\",\"not\":{\"const\":\"a\"}}", "", "'not'"},
    {"{\"enum\":[1,2],\"not\":{\"enum\":[2,1.0]}}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":101}", "", "'minimum'"},
    {"{\"type\":\"number\",\"minimum\":2,\"maximum\":1}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"multipleOf\":0.5}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":0}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":2,\"minimum\":0,\"maximum\":2002}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1,\"maximum\":6}", "", "nothing can satisfy"},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2\"}", "", "'pattern'"},
    {"{\"type\":\"object\",\"properties\":{\"a/b~c\":{\"type\":\"number\",\"minimum\":0}}}",
     "/properties/a~1b~0c", "'minimum'"},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", "", "'exclusiveMaximum'"},
    {"{\"type\":\"integer\",\"multipleOf\":2}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"minimum\":1e17}", "", "'minimum'"},
    {"{\"type\":\"integer\",\"minimum\":\"1\"}", "", "'minimum'"},
    {"{\"minimum\":3}", "", "'minimum'"},
    {"{\"minLength\":1,\"minItems\":1}", "", "'minItems'"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"color\"}}", "/items", "'format'"},
    {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":3}", "", "'maxLength'"},
    {"{\"type\":\"string\",\"pattern\":\"^a+$\",\"maxLength\":3}", "", "'maxLength'"},
    {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":3}", "", "'minLength'"},
    {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "", "lookaround"},
    {"{\"type\":\"string\",\"pattern\":\"(a\"}", "", "parenthesis"},
    {"{\"type\":\"string\",\"pattern\":\"a)\"}", "", "parenthesis"},
    {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "", "back references"},
    {"{\"type\":\"string\",\"pattern\":\"a\\\\b\"}", "", "\\b"},
    {"{\"type\":\"string\",\"pattern\":\"(a*)*\"}", "", "without bound"},
    {"{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "", "reversed"},
    {"{\"type\":\"string\",\"pattern\":\"\\\\p{L}\"}", "", "\\p"},
    {"{\"type\":\"string\",\"pattern\":\"a$b\"}", "", "^ and $"},
    {"{\"type\":\"string\",\"minLength\":-1}", "", "'minLength'"},
    {"{\"type\":\"string\",\"minLength\":2000000}", "", "'minLength'"},
    {"{\"type\":\"array\",\"minItems\":3000}", "", "'minItems'"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "", "'uniqueItems'"},
    {"{\"type\":\"array\",\"contains\":{}}", "", "'contains'"},
    {"{\"type\":\"array\",\"prefixItems\":[true],\"minItems\":2}", "", "'minItems'"},
    {"{\"type\":\"object\",\"patternProperties\":{}}", "", "'patternProperties'"},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^a\"}}", "", "'propertyNames'"},
    {"{\"type\":\"object\",\"minProperties\":1}", "", "'minProperties'"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":1}", "", "'minProperties'"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":1}", "", "'maxProperties'"},
    {"{\"type\":\"object\",\"properties\":[]}", "", "'properties'"},
    {"{\"type\":\"object\",\"properties\":{\"*\":{}}}", "", "'properties'"},
    {"{\"type\":\"object\",\"required\":[1]}", "", "'required'"},
    {"{\"type\":\"object\",\"dependentRequired\":{}}", "", "'dependentRequired'"},
    {"{\"type\":\"object\",\"unevaluatedProperties\":{\"type\":\"null\"}}", "", "'unevaluatedProperties'"},
    {"{\"if\":{},\"then\":{}}", "", "'if'"},
    {"{\"type\":\"string\",\"contentEncoding\":\"base64\"}", "", "'contentEncoding'"},
    {"{\"type\":\"string\",\"maxlength\":3}", "", "'maxlength'"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "", "'oneOf'"},
    {"{\"oneOf\":[{\"properties\":{\"a\":{}}},{\"type\":\"string\"}]}", "", "'oneOf'"},
    {"{\"oneOf\":[{\"type\":\"null\"}],\"anyOf\":[{\"type\":\"null\"}]}", "", "'oneOf'"},
    {"{\"anyOf\":[]}", "", "'anyOf'"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"not\":{\"minLength\":1}}]}", "/anyOf/1", "'not'"},
    {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", "/allOf/1", "'type'"},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":1},{\"minimum\":2}]}", "/allOf/1", "'minimum'"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}]}",
     "/allOf/1", "'additionalProperties'"},
    {"{\"enum\":[1,2],\"minimum\":2}", "", "'minimum'"},
    {"{\"$ref\":\"http://a/b\"}", "", "'$ref'"},
    {"{\"$ref\":\"#/$defs/none\"}", "", "'$ref'"},
    {"{\"$ref\":\"#foo\"}", "", "'$ref'"},
    {"{\"$ref\":\"#\"}", "", "'$ref'"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "/anyOf/0", "'$ref'"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\",\"minProperties\":1}}}", "/properties/a",
     "'minProperties'"},
    {"{\"properties\":{\"a\":{\"$id\":\"x\"}}}", "/properties/a", "'$id'"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "grammar", "never comes to an end"},
    {"{\"$dynamicRef\":\"#x\"}", "", "'$dynamicRef'"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        char *text = NULL;
        weir_error error = {0};
        weir_status status = weir_grammar_from_json_schema(r->schema, WEIR_NUL, &text, &error);
        if (status != WEIR_GRAMMAR) fail_msg("%s: %s", r->schema, weir_status_name(status));
        if (strcmp(error.field, r->pointer) != 0)
            fail_msg("%s: field is '%s', not '%s'", r->schema, error.field, r->pointer);
        if (strstr(error.message, r->word) == NULL) fail_msg("%s: %s", r->schema, error.message);
        assert_null(text);
    }
    assert_int_equal(weir_grammar_from_json_schema(NULL, 0, NULL, NULL), WEIR_INVALID);
}

/* ---- Bounds of integers, all of them ---- */

static void test_integer_bounds(void **state)
{
    static const long bounds[] = {-10000, -1000, -999, -105, -100, -99, -11, -10,  -9,   -5,
                                  -1,     0,     1,    2,    7,    9,   10,  11,   19,   20,
                                  21,     99,    100,  101,  105,  199, 999, 1000, 1005, 9999};
    static const size_t n = sizeof bounds / sizeof *bounds;
    (void)state;
    for (size_t i = 0; i <= n; i++)
        for (size_t k = i == n ? 0 : i; k <= n; k++) {
            char schema[128] = "{\"type\":\"integer\"", text[32];
            if (i < n) snprintf(schema + strlen(schema), 40, ",\"minimum\":%ld", bounds[i]);
            if (k < n) snprintf(schema + strlen(schema), 40, ",\"maximum\":%ld", bounds[k]);
            strcat(schema, "}");
            gbnf *g = grammar_of(schema);
            for (size_t b = 0; b < n; b++)
                for (long v = bounds[b] - 2; v <= bounds[b] + 2; v++) {
                    bool in = (i == n || v >= bounds[i]) && (k == n || v <= bounds[k]);
                    snprintf(text, sizeof text, "%ld", v);
                    if (gbnf_matches(g, text) != in) fail_msg("%s and %s", schema, text);
                    snprintf(text, sizeof text, "%s0%ld", v < 0 ? "-" : "", labs(v));
                    if (gbnf_matches(g, text)) fail_msg("%s and %s", schema, text);
                }
            gbnf_free(g);
        }
}

/* ---- Random schemas: whatever their grammars make satisfies them ---- */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % n;
}

static bool has_type(const json_t *value, const char *type)
{
    bool whole = json_is_integer(value) ||
                 (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value));
    return (strcmp(type, "null") == 0 && json_is_null(value)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(value)) ||
           (strcmp(type, "integer") == 0 && whole) ||
           (strcmp(type, "number") == 0 && json_is_number(value)) ||
           (strcmp(type, "string") == 0 && json_is_string(value)) ||
           (strcmp(type, "array") == 0 && json_is_array(value)) ||
           (strcmp(type, "object") == 0 && json_is_object(value));
}

static size_t code_points(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static bool valid(const json_t *root, const json_t *schema, const json_t *value)
{
    const json_t *k;
    const char *name;
    json_t *item;
    size_t i, n_true = 0;
    if (json_is_boolean(schema)) return json_is_true(schema);
    if ((k = json_object_get(schema, "$ref")) != NULL) {
        const char *ref = json_string_value(k);
        const json_t *target =
            ref[1] == '\0' ? root : json_object_get(json_object_get(root, "$defs"), ref + 8);
        assert_non_null(target);
        return valid(root, target, value);
    }
    if ((k = json_object_get(schema, "type")) != NULL) {
        bool any = json_is_string(k) && has_type(value, json_string_value(k));
        json_array_foreach(k, i, item) any |= has_type(value, json_string_value(item));
        if (!any) return false;
    }
    if ((k = json_object_get(schema, "const")) != NULL && !json_equal(k, value)) return false;
    if ((k = json_object_get(schema, "enum")) != NULL) {
        bool any = false;
        json_array_foreach(k, i, item) any |= json_equal(item, value);
        if (!any) return false;
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, item) if (!valid(root, item, value)) return false;
    if ((k = json_object_get(schema, "anyOf")) != NULL) {
        json_array_foreach(k, i, item) n_true += valid(root, item, value);
        if (n_true == 0) return false;
    }
    n_true = 0;
    if ((k = json_object_get(schema, "oneOf")) != NULL) {
        json_array_foreach(k, i, item) n_true += valid(root, item, value);
        if (n_true != 1) return false;
    }
    if (json_is_number(value)) {
        double v = json_number_value(value);
        if ((k = json_object_get(schema, "minimum")) != NULL && v < json_number_value(k)) return false;
        if ((k = json_object_get(schema, "maximum")) != NULL && v > json_number_value(k)) return false;
        if ((k = json_object_get(schema, "exclusiveMinimum")) != NULL && v <= json_number_value(k))
            return false;
        if ((k = json_object_get(schema, "exclusiveMaximum")) != NULL && v >= json_number_value(k))
            return false;
    }
    if (json_is_string(value)) {
        size_t n = code_points(json_string_value(value));
        if ((k = json_object_get(schema, "minLength")) != NULL && n < (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "maxLength")) != NULL && n > (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "pattern")) != NULL) {
            regex_t regex;
            assert_int_equal(regcomp(&regex, json_string_value(k), REG_EXTENDED | REG_NOSUB), 0);
            bool matches = regexec(&regex, json_string_value(value), 0, NULL, 0) == 0;
            regfree(&regex);
            if (!matches) return false;
        }
    }
    if (json_is_array(value)) {
        const json_t *prefix = json_object_get(schema, "prefixItems"),
                     *items = json_object_get(schema, "items");
        if ((k = json_object_get(schema, "minItems")) &&
            json_array_size(value) < (size_t)json_integer_value(k))
            return false;
        if ((k = json_object_get(schema, "maxItems")) &&
            json_array_size(value) > (size_t)json_integer_value(k))
            return false;
        json_array_foreach(value, i, item)
        {
            const json_t *s = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
            if (s != NULL && !valid(root, s, item)) return false;
        }
    }
    if (json_is_object(value)) {
        const json_t *properties = json_object_get(schema, "properties");
        const json_t *others = json_object_get(schema, "additionalProperties");
        json_array_foreach(json_object_get(schema, "required"), i,
                           item) if (json_object_get(value, json_string_value(item)) == NULL) return false;
        json_object_foreach((json_t *)value, name, item)
        {
            const json_t *s = json_object_get(properties, name);
            if (s == NULL) s = others;
            if (s != NULL && !valid(root, s, item)) return false;
        }
    }
    return true;
}

static json_t *random_schema(uint64_t *seed, int depth);

static void maybe(uint64_t *seed, json_t *schema, const char *keyword, json_t *value, uint32_t one_in)
{
    if (draw(seed, one_in) == 0)
        json_object_set_new(schema, keyword, value);
    else
        json_decref(value);
}

static json_t *some(uint64_t *seed, int depth, uint32_t least, uint32_t most)
{
    json_t *list = json_array();
    for (uint32_t n = least + draw(seed, most - least + 1); n > 0; n--)
        json_array_append_new(list, random_schema(seed, depth + 1));
    return list;
}

static json_t *random_value(uint64_t *seed)
{
    switch (draw(seed, 6)) {
    case 0: return json_null();
    case 1: return json_integer((int)draw(seed, 30) - 10);
    case 2: return json_real(draw(seed, 10) + 0.5);
    case 3: return json_pack("[i,s]", 1, "\"x\\");
    case 4: return json_string("quote \" and \n");
    default: return json_string("v");
    }
}

static void random_object(uint64_t *seed, json_t *s, int depth)
{
    static const char *const names[] = {"a",        "b",       "date_time",  "a b",
                                        "\xC3\xA4", "quote\"", "additional", "value"};
    json_t *properties = json_object(), *required = json_array();
    for (uint32_t n = draw(seed, 5); n > 0; n--) {
        const char *name = names[draw(seed, 8)];
        if (json_object_get(properties, name) != NULL) continue;
        json_object_set_new(properties, name, random_schema(seed, depth + 1));
        if (draw(seed, 2) == 0) json_array_append_new(required, json_string(name));
    }
    if (draw(seed, 10) == 0) json_array_append_new(required, json_string("extra"));
    maybe(seed, s, "properties", json_incref(properties), 1);
    if (draw(seed, 8) == 0) json_object_del(s, "properties");
    maybe(seed, s, "required", json_incref(required), 1);
    if (draw(seed, 4) == 0)
        json_object_set_new(s, "additionalProperties",
                            draw(seed, 2) ? json_false() : random_schema(seed, depth + 1));
    json_decref(properties);
    json_decref(required);
}

static json_t *random_schema(uint64_t *seed, int depth)
{
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    static const char *const patterns[] = {"^[a-c]{1,3}$", "^(ab|c)+$", "x?y",     "^[0-9]{2}:[0-9]{2}$",
                                           "^a.c",         "b$",        "^[^x]+$", "^(a|b){2,4}[.]$"};
    json_t *s = json_object();
    uint32_t pick = draw(seed, depth > 3 ? 8 : 14);
    if (pick < 8 || pick == 9) {
        const char *type = types[depth > 3 ? draw(seed, 5) : draw(seed, 7)];
        json_object_set_new(s, "type", json_string(type));
        if (draw(seed, 8) == 0)
            json_object_set_new(s, "type", json_pack("[s,s]", type, types[draw(seed, 5)]));
        maybe(seed, s, "title", json_string("t"), 4);
        maybe(seed, s, "minimum", json_integer((int)draw(seed, 300) - 150), 12);
        maybe(seed, s, "maximum", json_integer((int)draw(seed, 3000) - 150), 12);
        maybe(seed, s, "exclusiveMinimum", json_real((int)draw(seed, 30) - 15.5), 20);
        maybe(seed, s, "minLength", json_integer(draw(seed, 3)), 8);
        maybe(seed, s, "maxLength", json_integer(draw(seed, 5)), 8);
        maybe(seed, s, "pattern", json_string(patterns[draw(seed, 8)]), 5);
        maybe(seed, s, "minItems", json_integer(draw(seed, 3)), 8);
        maybe(seed, s, "maxItems", json_integer(draw(seed, 5)), 8);
        if (depth <= 3) {
            maybe(seed, s, "items", random_schema(seed, depth + 1), 3);
            maybe(seed, s, "prefixItems", some(seed, depth, 0, 3), 8);
            if (strcmp(type, "object") == 0) random_object(seed, s, depth);
        }
        maybe(seed, s, "multipleOf", json_integer(2), 60);
    } else if (pick == 8) {
        json_object_set_new(s, "$ref",
                            json_string(draw(seed, 3) == 0 ? "#"
                                        : draw(seed, 2)    ? "#/$defs/a_b"
                                                           : "#/$defs/a-b"));
    } else if (pick == 10) {
        json_t *list = json_array();
        for (uint32_t n = 1 + draw(seed, 3); n > 0; n--) json_array_append_new(list, random_value(seed));
        json_object_set_new(s, "enum", list);
        maybe(seed, s, "type", json_pack("[s,s]", "string", "integer"), 3);
    } else if (pick == 11) {
        json_object_set_new(s, draw(seed, 2) ? "anyOf" : "oneOf", some(seed, depth, 1, 3));
        if (draw(seed, 3) == 0) {
            json_object_set_new(s, "type", json_string("object"));
            random_object(seed, s, depth + 1);
        }
    } else if (pick == 12) {
        json_object_set_new(s, "allOf", some(seed, depth, 1, 2));
    } else if (draw(seed, 4) == 0) {
        json_decref(s);
        return draw(seed, 3) == 0 ? json_false() : json_true();
    } else {
        json_object_set_new(s, "const", random_value(seed));
    }
    return s;
}

static void test_never_weaker(void **state)
{
    enum { SCHEMAS = 300, SAMPLES = 30 };
    (void)state;
    const char *given = getenv("WEIR_TEST_SEED");
    /* regexec then counts code points */
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) assert_non_null(setlocale(LC_CTYPE, "en_US.UTF-8"));
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 20261121;
    print_message("seed %llu (WEIR_TEST_SEED)\n", (unsigned long long)seed);
    size_t n_made = 0, n_refused = 0, n_texts = 0;
    while (n_made < SCHEMAS) {
        json_t *schema = random_schema(&seed, 0);
        if (json_is_object(schema)) {
            json_t *defs = json_object();
            json_object_set_new(defs, "a_b", random_schema(&seed, 2));
            json_object_set_new(defs, "a-b", random_schema(&seed, 2));
            json_object_set_new(schema, "$defs", defs);
        }
        char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY), *grammar = NULL;
        weir_error error = {0};
        weir_status status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
        if (status != WEIR_OK) {
            if (status != WEIR_GRAMMAR) fail_msg("%s: %s", text, error.message);
            /* The rewritten schema always has a grammar, though perhaps one without an end. */
            if (strstr(error.message, "line ") == error.message && strstr(error.message, "to an end") == NULL)
                fail_msg("%s: %s", text, error.message);
            n_refused++;
            assert_true(n_refused < 20 * SCHEMAS);
        } else {
            n_made++;
            gbnf *g = gbnf_parse(grammar);
            for (int i = 0; i < SAMPLES; i++) {
                static char sample[1 << 16];
                json_error_t what;
                if (!gbnf_sample(g, &seed, sample, sizeof sample)) continue;
                json_t *value = json_loads(sample, JSON_DECODE_ANY | JSON_ALLOW_NUL, &what);
                /* Strings may hold lone surrogates, and numbers be out of range. */
                if (value == NULL &&
                    (strstr(what.text, "\\u") != NULL || strstr(what.text, "overflow") != NULL ||
                     strstr(what.text, "surrogate") != NULL || strstr(what.text, "integer") != NULL))
                    continue;
                if (value == NULL) fail_msg("%s makes %s: %s\n%s", text, sample, what.text, grammar);
                if (!valid(schema, schema, value)) fail_msg("%s makes %s\n%s", text, sample, grammar);
                json_decref(value);
                n_texts++;
            }
            gbnf_free(g);
        }
        weir_free(grammar);
        free(text);
        json_decref(schema);
    }
    print_message("%zu schemas, %zu texts; %zu schemas were refused\n", n_made, n_texts, n_refused);
    assert_true(n_texts > 10 * SCHEMAS);
}

/* ---- Limits, memory ---- */

static void test_limits(void **state)
{
    (void)state;
    enum { N = 3000 };
    char *text = malloc(64 * N), *grammar = NULL;
    weir_error error = {0};
    assert_non_null(text);

    text[0] = '\0';
    for (int i = 0; i < 60; i++) strcat(text, "{\"items\":");
    strcat(text, "{}");
    for (int i = 0; i < 60; i++) strcat(text, "}");
    weir_status status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
    assert_int_equal(status, WEIR_OK);
    weir_free(grammar);
    grammar = NULL;

    text[0] = '\0';
    for (int i = 0; i < 90; i++) strcat(text, "{\"items\":");
    strcat(text, "{}");
    for (int i = 0; i < 90; i++) strcat(text, "}");
    assert_int_equal(weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "deeper than 64"));

    memset(text, '[', N);
    text[N] = '\0';
    assert_int_equal(weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "deeper than 100"));

    char *end = text + sprintf(text, "{\"properties\":{");
    for (int i = 0; i < 257; i++) end += sprintf(end, "%s\"p%d\":{}", i > 0 ? "," : "", i);
    strcpy(end, "}}");
    assert_int_equal(weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "at most 256"));

    sprintf(text, "{\"properties\":{\"%0300d\":{}}}", 0);
    assert_int_equal(weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error), WEIR_GRAMMAR);
    assert_non_null(strstr(error.message, "256 bytes"));

    /* What would make too large a grammar is refused where it stands. */
    static const struct {
        const char *schema, *pointer, *word;
    } large[] = {
        {"{\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2000}}}",
         "/properties/a", "'minItems'"},
        {"{\"type\":\"array\",\"maxItems\":90,\"items\":{\"type\":\"array\",\"prefixItems\":["
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900})$"
         "\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900})*$"
         "\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900})+$"
         "\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900})?$"
         "\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900}){1,"
         "2}$\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900}){2}"
         "$\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900}){3}"
         "$\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900}){4}"
         "$\"},"
         "{\"pattern\":\"^(a{900}b{900}c{900}d{900}e{900}f{900}g{900}h{900}i{900}j{900}k{900}l{900}m{900}){5}"
         "$\"}]}}",
         "/items/prefixItems/8", "'pattern'"},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(weir_grammar_from_json_schema(large[i].schema, WEIR_NUL, &grammar, &error),
                         WEIR_GRAMMAR);
        assert_string_equal(error.field, large[i].pointer);
        assert_non_null(strstr(error.message, large[i].word));
    }
    /* As many items as there may be, and more. */
    for (int n = 1998; n <= 2001; n++) {
        sprintf(text, "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":%d%s}", n,
                n % 2 ? ",\"minItems\":1998" : "");
        status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
        assert_int_equal(status, WEIR_OK);
        weir_free(grammar);
        grammar = NULL;
    }

    /* Every definition refers twice to the next: 2^60 schemas, if each reference were followed. */
    end = text + sprintf(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d60\":{\"type\":\"null\"}");
    for (int i = 0; i < 60; i++)
        end += sprintf(
            end,
            ",\"d%d\":{\"properties\":{\"l\":{\"$ref\":\"#/$defs/d%d\"},\"r\":{\"$ref\":\"#/$defs/d%d\"}}}",
            i, i + 1, i + 1);
    strcpy(end, "}}");
    status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
    assert_true(status == WEIR_GRAMMAR || status == WEIR_OK);
    weir_free(grammar);
    free(text);
}

static void test_no_memory(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/"
        "n\"},{\"maximum\":9}]},\"b\":{\"type\":"
        "\"string\",\"pattern\":\"^[a-z]{1,2000}$\"},\"c\":{\"type\":\"string\",\"maxLength\":9}},"
        "\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":3}}}";
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        char *grammar = NULL;
        weir_error error = {0};
        weir__mem_fail_after(n);
        weir_status status = weir_grammar_from_json_schema(schema, WEIR_NUL, &grammar, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        if (status != (pending ? WEIR_OK : WEIR_NO_MEMORY)) fail_msg("allocation %ld: %s", n, error.message);
        weir_free(grammar);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honoured),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_integer_bounds), cmocka_unit_test(test_never_weaker),
        cmocka_unit_test(test_limits),         cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
