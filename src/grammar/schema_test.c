/* schema_test.c: which texts the grammars of schemas match, and which schemas are refused. The grammars are
 * read by the tests' own GBNF reader. SPDX-License-Identifier: Apache-2.0 */
#include "support/schema_examples.h"

#include "base/mem.h"

/* ---- Honoured keywords: texts that must and must not be possible ---- */

static const struct example examples[] = {
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
    {"{\"const\":2.0,\"enum\":[1,2,3]}", {"2"}, {"1", "3"}},
    /* integers that are one double */
    {"{\"enum\":[9007199254740992,9007199254740993],\"not\":{\"const\":9007199254740992}}",
     {"9007199254740993"},
     {"9007199254740992"}},
    {"{\"enum\":[9007199254740992,9007199254740993],\"not\":{\"const\":9007199254740992.0}}",
     {"9007199254740993"},
     {"9007199254740992"}},
    {"{\"enum\":[9223372036854775807],\"not\":{\"const\":9223372036854775808.0}}",
     {"9223372036854775807"},
     {"9223372036854775808"}},
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
    {"{\"type\":\"string\",\"format\":\"json-pointer\"}", {"\"\"", "\"/a/b~1\""}, {"\"a\"", "\"/~2\""}},
    {"{\"type\":\"string\",\"format\":\"relative-json-pointer\"}",
     {"\"0\"", "\"12/a\"", "\"1#\""},
     {"\"01\"", "\"/a\""}},
    {"{\"type\":\"string\",\"format\":\"color\",\"maxLength\":3}",
     {"\"red\""},
     {"\"blue\"", "1"}}, /* an annotation */
    {"{\"type\":\"integer\",\"format\":\"timestamp\"}", {"1"}, {"1.5"}},
    {"{\"type\":\"string\",\"format\":\"duration\"}",
     {"\"P3D\"", "\"PT1H30M\"", "\"P1Y2M3DT4H5M6S\"", "\"P2W\""},
     {"\"P\"", "\"PT\"", "\"3D\"", "\"P1DT\"", "\"P1D2M\"", "\"P1S\""}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "1", "0.0001", "1.0", "1e-06", "5E-2"},
     {"-0.1", "1.1", "2", "10", "1.0001", "1e1", "01"}},
    {"{\"type\":\"number\",\"minimum\":0}", {"0", "0.0", "12.5", "1e300"}, {"-1", "-0.1", "1e999"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-1", "-1e-5"}, {"0", "-0.0", "2"}},
    {"{\"type\":\"number\",\"minimum\":2.5,\"exclusiveMinimum\":2.5}", {"2.51", "3"}, {"2.5", "2.50", "2"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":0}", {"0", "9.99", "3.100"}, {"0.001", "-1"}},
    {"{\"type\":\"number\",\"multipleOf\":0.5,\"minimum\":-1,\"exclusiveMaximum\":1}",
     {"-1", "-0.5", "0", "0.5"},
     {"1", "0.25", "-1.5"}},
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
     {"{\"a\":null}", "{\"a\":null,\"b\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":null,\"c\":1}", "{\"b\":1}"}},
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
    {"{\"const\":{\"a\":[1,{}]}}",
     {"{\"a\":[1,{}]}", "{ \"a\" : [1, {}] }"},
     {"{\"a\":[1]}", "{\"a\":[1,{ }]}"}},
    {"{\"const\":\"a\\\"\\n\"}", {"\"a\\\"\\n\""}, {"\"a\""}},
    {"{\"anyOf\":[{\"type\":\"integer\"},false,{\"type\":\"null\"}]}", {"1", "null"}, {"\"a\""}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"}},\"required\":[\"t\"]},"
     "{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"},\"x\":{\"type\":\"null\"}},\"required\":["
     "\"t\"]}]}",
     {"{\"t\":\"a\"}", "{\"t\":\"b\",\"x\":null}"},
     {"{\"t\":\"b\",\"x\":1}", "{\"t\":\"c\"}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
     "{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],\"title\":\"x\"}",
     {"{\"a\":1,\"b\":null}"},
     {"{\"a\":1}", "{\"b\":null}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},{\"minimum\":2},{\"maximum\":12}]}",
     {"2", "9"},
     {"1", "10"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":1,\"type\":\"number\"}},"
     "\"required\":[\"a\"]},"
     "{\"properties\":{\"a\":{\"type\":\"integer\"}}}]}",
     {"{\"a\":1}", "{\"a\":12}"},
     {"{\"a\":0}", "{\"a\":1.5}", "{}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},"
     "{\"properties\":{\"b\":{},\"a\":{\"type\":\"null\"}}}]}",
     {"{}", "{\"a\":null}"},
     {"{\"b\":1}", "{\"a\":1}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"null\"}},"
     "{\"properties\":{\"b\":{}},\"required\":[\"b\"]}]}",
     {"{\"b\":null}", "{\"a\":1,\"b\":null}"},
     {"{\"b\":1}", "{}"}},
    {"{\"allOf\":[{\"prefixItems\":[true]},{\"unevaluatedItems\":false}]}", {"[]"}, {"[1]"}},
    {"{\"minLength\":1,\"minItems\":1,\"minimum\":3}", {"\"a\"", "[1]", "3.5"}, {"\"\"", "[]", "2"}},
    {"{\"$ref\":\"#/$defs/n\",\"maximum\":5,\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":3}}}",
     {"3", "5"},
     {"2", "6"}},
    {"{\"items\":{\"$ref\":\"#n\"},\"$defs\":{\"a\":{\"$anchor\":\"n\",\"type\":\"null\"}}}",
     {"[null]"},
     {"[1]"}},
    {"{\"properties\":{\"a\":{\"enum\":[1,2,3]},\"b\":{\"type\":\"null\"}},\"required\":[\"a\"],"
     "\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":[\"b\"]},\"else\":{\"properties\":"
     "{\"b\":false}}}",
     {"{\"a\":1,\"b\":null}", "{\"a\":2}"},
     {"{\"a\":1}", "{\"a\":3,\"b\":null}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"},\"c\":{\"type\":\"null\"}},"
     "\"dependentRequired\":{\"a\":[\"b\"]},\"dependentSchemas\":{\"c\":{\"required\":[\"a\"]}}}",
     {"{}", "{\"b\":null}", "{\"a\":null,\"b\":null,\"c\":null}"},
     {"{\"a\":null}", "{\"c\":null}", "{\"b\":null,\"c\":null}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}],\"$defs\":{"
     "\"a\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/$defs/a\"},\"v\":{\"minimum\":1}}},"
     "\"b\":{\"properties\":{\"n\":{\"$ref\":\"#/$defs/b\"},\"v\":{\"maximum\":2,\"type\":\"integer\"}}}}}",
     {"{}", "{\"n\":{\"n\":{\"v\":2}},\"v\":1}"},
     {"{\"n\":{\"v\":3}}", "{\"v\":0}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"allOf\":[{\"properties\":{\"x\":{\"type\":\"integer\",\"minimum\":0}"
     "}},{\"properties\":{\"x\":{\"maximum\":100}}}]},"
     "{\"allOf\":[{\"properties\":{\"x\":{\"minimum\":50}}},{\"properties\":{\"x\":{\"type\":\"integer\"}}}]}"
     "]}",
     {"{\"x\":50}", "{\"x\":100}"},
     {"{\"x\":5}", "{\"x\":101}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":9007199254740992},{\"minimum\":9007199254740993}]}",
     {"9007199254740993"},
     {"9007199254740992"}},
    {"{\"enum\":[9007199254740992,9007199254740993],\"minimum\":9007199254740993}",
     {"9007199254740993"},
     {"9007199254740992"}},
    {"{\"type\":\"number\",\"minimum\":9007199254740993,\"exclusiveMinimum\":9007199254740992}",
     {"9007199254740993"},
     {"9007199254740992.5"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2,3]},\"b\":{\"type\":\"null\"},\"c\":{"
     "\"type\":\"null\"}},\"required\":[\"a\"],\"allOf\":["
     "{\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"required\":[\"b\"]}},"
     "{\"if\":{\"properties\":{\"a\":{\"const\":2}}},\"then\":{\"required\":[\"c\"]}}]}",
     {"{\"a\":1,\"b\":null}", "{\"a\":2,\"c\":null}", "{\"a\":3}"},
     {"{\"a\":1}", "{\"a\":2,\"b\":null}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},"
     "\"unevaluatedProperties\":true},"
     "{\"properties\":{\"b\":{}}}]}",
     {"{}", "{\"b\":null}"},
     {"{\"b\":1}"}},
    {"{\"allOf\":[{\"allOf\":[{\"maximum\":3}],\"enum\":[1,2,5],\"if\":{\"const\":1},\"then\":{\"minimum\":2}"
     "}]}",
     {"2"},
     {"1", "5"}},
    {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[3,2,\"x\"]}],\"maximum\":2}", {"2"}, {"1", "3"}},
    {"{\"enum\":[\"a\",\"bcd\",7,null],\"minLength\":2,\"exclusiveMinimum\":7}",
     {"\"bcd\"", "null"},
     {"\"a\"", "7"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"allOf\":[{\"items\":{\"enum\":[1,\"a\"]},"
     "\"minItems\":1}]}",
     {"[1]", "[1,1]"},
     {"[]", "[\"a\"]", "[2]"}},
    {"{\"allOf\":[{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},{\"anyOf\":[{\"type\":\"integer\"}"
     ",{\"type\":\"string\"}]}]}",
     {"1"},
     {"null", "\"a\""}},
    {"{\"type\":\"string\",\"anyOf\":[{\"type\":\"integer\"},{\"maxLength\":1}],\"oneOf\":[{\"minLength\":1},"
     "{\"type\":\"null\"}]}",
     {"\"a\""},
     {"\"\"", "1", "\"ab\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
     {"{}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/p\"}],\"description\":\"x\",\"$defs\":{\"p\":{\"type\":\"object\","
     "\"properties\":{\"p\":{\"allOf\":[{\"$ref\":\"#/$defs/p\"}]}}}}}",
     {"{}", "{\"p\":{\"p\":{}}}"},
     {"{\"p\":1}"}},
    {"true", {"1", "[{\"a\":[]}]", "\"x\""}, {"", "x"}},
    /* annotations, those of other programs too; also where schemas are merged and types are not given */
    {"{\"type\":\"boolean\",\"default\":true,\"x-note\":[1],\"_type\":1,\"x-minimum\":1,\"note\":2}",
     {"true", "false"},
     {"null"}},
    {"{\"type\":\"null\",\"title\":0,\"description\":0,\"default\":0,\"examples\":0,\"example\":0,"
     "\"$schema\":0,\"$id\":0,\"id\":0,\"$comment\":0,\"$vocabulary\":0,\"$anchor\":0,\"$defs\":0,"
     "\"definitions\":0,\"deprecated\":0,\"readOnly\":0,\"readonly\":0,\"writeOnly\":0,\"nullable\":0,"
     "\"discriminator\":0,\"externalDocs\":0,\"xml\":0,\"$dynamicAnchor\":0,\"enumNames\":0,\"self\":0,"
     "\"optional\":0,\"order\":0,\"unit\":0,\"links\":0,\"media\":0,\"name\":0,\"version\":0}",
     {"null"},
     {"1"}},
    {"{\"id\":\"a\",\"allOf\":[{\"type\":\"integer\",\"self\":1},{\"self\":2,\"anyOf\":[{\"group\":1}]}]}",
     {"1"},
     {"null"}},
    {"{\"group\":{\"type\":3},\"maxLength\":1}", {"\"a\"", "1"}, {"\"ab\""}},
};

static void test_honoured(void **state)
{
    (void)state;
    check_examples(examples, sizeof examples / sizeof *examples);
}

/* ---- Refusals, their places and reasons ---- */

static const struct refusal {
    const char *schema, *pointer, *word;
} refusals[] = {
    {"", "schema", "not JSON"},
    {"{\"type\":", "schema", "line 1"},
    {"{\"type\":\"null\",\"type\":\"null\"}", "schema", "duplicate"},
    {"\"\xFF\"", "schema", "UTF-8"},
    {"3", "", "object or a boolean"},
    {"false", "", "nothing can satisfy"},
    {"{\"type\":\"integer\",\"enum\":[\"a\"]}", "", "nothing can satisfy"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "", "nothing can satisfy"},
    {"{\"type\":\"text\"}", "", "'type'"},
    {"{\"type\":[]}", "", "'type'"},
    {"{\"enum\":[]}", "", "'enum'"},
    {"{\"const\":4,\"enum\":[1,2,3]}", "", "nothing can satisfy"},
    {"{\"$ref\":\"#/$defs/a~2b\",\"$defs\":{\"a~2b\":{}}}", "", "not a JSON pointer"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}", "",
     "itself"},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{}],\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/"
     "$defs/a\"}}}",
     "", "without end"},
    {"{\"not\":{}}", "", "nothing can satisfy"},
    {"{\"enum\":[1,2],\"not\":{\"enum\":[2,1.0]}}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"minimum\":2,\"maximum\":1}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMaximum\":1}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"minimum\":2e-310,\"maximum\":3e-310}", "", "too near to 0"},
    {"{\"type\":\"number\",\"minimum\":0.11,\"maximum\":0.19,\"multipleOf\":0.1}", "", "nothing can satisfy"},
    {"{\"type\":\"number\",\"multipleOf\":1001.5}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":0}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":1001,\"minimum\":0,\"maximum\":2002000}", "", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1,\"maximum\":6}", "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"properties\":{\"a/b~c\":{\"type\":\"number\",\"multipleOf\":-1}}}",
     "/properties/a~1b~0c", "'multipleOf'"},
    {"{\"type\":\"integer\",\"multipleOf\":1009}", "", "needs minimum and maximum"},
    {"{\"type\":\"integer\",\"minimum\":1e17}", "", "'minimum'"},
    {"{\"type\":\"integer\",\"minimum\":\"1\"}", "", "'minimum'"},
    {"{\"allOf\":[{\"prefixItems\":[true],\"unevaluatedItems\":false,\"anyOf\":[{}]},{}]}", "/allOf/0",
     "'unevaluatedItems'"},
    {"{\"$ref\":\"#/$defs/"
     "s\",\"$defs\":{\"s\":{\"type\":\"array\",\"unevaluatedItems\":false,\"contains\":true}},\"minItems\":"
     "1}",
     "/allOf/1", "'unevaluatedItems'"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"regex\"}}", "/items", "'format'"},
    {"{\"type\":\"string\",\"format\":\"datetime\"}", "", "write 'date-time'"},
    {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":3}", "", "nothing can satisfy"},
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
    {"{\"type\":\"object\",\"patternProperties\":[]}", "", "'patternProperties'"},
    {"{\"type\":\"object\",\"patternProperties\":{\"(?=a)\":{}}}", "", "lookaround"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":3}", "", "'minProperties'"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2,\"additionalProperties\":false}", "",
     "nothing can satisfy"},
    {"{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}", "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"propertyNames\":{\"pattern\":\"^b\"}}", "",
     "nothing can satisfy"},
    {"{\"type\":\"object\",\"properties\":[]}", "", "'properties'"},
    {"{\"type\":\"object\",\"properties\":{\"*\":{}}}", "", "'properties'"},
    {"{\"type\":\"object\",\"required\":[1]}", "", "'required'"},
    {"{\"type\":\"string\",\"maxlength\":3}", "", "write 'maxLength'"},
    {"{\"type\":\"string\",\"minLenght\":3}", "", "write 'minLength'"},
    {"{\"anyOf\":[{\"type\":\"array\",\"max_item\":3}]}", "/anyOf/0", "write 'maxItems'"},
    {"{\"allOf\":[{\"type\":\"null\"},{\"typ\":\"null\"}]}", "/allOf/1", "write 'type'"},
    {"{\"type\":\"object\",\"require\":[\"a\"]}", "", "write 'required'"},
    {"{\"ref\":\"#\"}", "", "write '$ref'"},
    {"{\"patternPropertys\":{}}", "", "write 'patternProperties'"},
    {"{\"type\":\"integer\",\"divisibleBy\":3}", "", "write multipleOf"},
    {"{\"anyOf\":[]}", "", "'anyOf'"},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"not\":{\"format\":\"date\"}}]}", "/anyOf/1", "'not'"},
    {"{\"if\":{\"format\":\"date\"},\"then\":{\"minLength\":1}}", "", "'if'"},
    {"{\"oneOf\":[{\"format\":\"date\"},{\"format\":\"time\"}]}", "", "'oneOf'"},
    {"{\"oneOf\":[{\"type\":\"object\",\"patternProperties\":{\"^x-\":{}},\"additionalProperties\":false},{"
     "\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":false}]}",
     "/oneOf/0/anyOf/2", "'oneOf': only properties that are not listed"},
    {"{\"type\":\"object\",\"not\":{\"additionalProperties\":false}}", "",
     "'not': only properties that are not listed"},
    {"{\"type\":\"object\",\"if\":{\"additionalProperties\":false},\"then\":{\"required\":[\"a\"]}}",
     "/anyOf/1", "'if': only properties that are not listed"},
    {"{\"enum\":[\"\",\"2020-01-01\"],\"minLength\":1,\"format\":\"date\"}", "",
     "'format': it stands beside enum"},
    {"{\"enum\":[\"a\",\"é\"],\"pattern\":\"^\\\\p{L}$\"}", "", "'pattern': it stands beside enum"},
    {"{\"enum\":[\"a\\u007F\"],\"pattern\":\"a\"}", "", "'pattern': it stands beside enum"},
    {"{\"type\":\"number\",\"not\":{\"anyOf\":[{\"type\":\"integer\"},{\"const\":1.5}]}}", "", "'not'"},
    {"{\"type\":\"number\",\"minimum\":1.2,\"maximum\":1.8,\"not\":{\"type\":\"integer\"}}", "", "'not'"},
    {"{\"type\":\"number\",\"minimum\":2,\"maximum\":2,\"not\":{\"type\":\"integer\"}}", "",
     "nothing can satisfy"},
    {"{\"type\":[\"boolean\",\"null\"],\"not\":{\"enum\":[true,null,false]}}", "", "nothing can satisfy"},
    {"{\"type\":\"string\",\"format\":\"date\",\"anyOf\":[{\"enum\":[\"a\",\"b\"]}]}", "/anyOf/0",
     "'format': it stands beside enum"},
    {"{\"type\":\"array\",\"not\":{\"const\":[1]}}", "", "'not'"},
    {"{\"type\":\"object\",\"patternProperties\":{\"\":{\"type\":\"integer\"}},\"properties\":{\"a\\u0001\":{"
     "}}}",
     "", "'patternProperties'"},
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\\u0001\":{}}},{\"patternProperties\":{\"\":{}},"
     "\"additionalProperties\":false}]}",
     "/allOf/1", "'patternProperties'"},
    {"{\"propertyNames\":{\"minLength\":1},\"required\":[\"a\\u007f\"]}", "", "'propertyNames'"},
    {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", "", "nothing can satisfy"},
    {"{\"allOf\":[{\"const\":1},{\"const\":2}]}", "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{"
     "\"required\":[\"b\"]}]}",
     "", "nothing can satisfy"},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"z\"],\"b\":[\"z\"],\"c\":[\"z\"],\"d\":[\"z\"],"
     "\"e\":[\"z\"],\"f\":[\"z\"],\"g\":[\"z\"],"
     "\"h\":[\"z\"],\"i\":[\"z\"],\"j\":[\"z\"]}}",
     "", "too many alternatives"},
    {"{\"enum\":[\"a\",\"b\"],\"format\":\"date\"}", "", "'format'"},
    {"{\"$ref\":\"http://a/b\"}", "", "'$ref'"},
    {"{\"$ref\":\"#/$defs/none\"}", "", "'$ref'"},
    {"{\"$ref\":\"#foo\"}", "", "'$ref'"},
    {"{\"$ref\":\"#\"}", "", "'$ref'"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "/anyOf/0", "'$ref'"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "schema",
     "never comes to an end"},
    {"{\"$dynamicRef\":\"#x\"}", "", "nothing at '#x'"},
    {"{\"$dynamicRef\":\"#x\",\"$defs\":{\"a\":{\"$dynamicAnchor\":\"x\"},\"b\":{\"$id\":\"b\",\"$"
     "dynamicAnchor\":\"x\"}}}",
     "", "'$dynamicRef'"},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9]},\"uniqueItems\":true}", "",
     "'uniqueItems'"},
    {"{\"type\":\"array\",\"contains\":{\"format\":\"date\"},\"maxContains\":2}", "", "'maxContains'"},
    {"{\"const\":\"\\u0000\"}", "schema", "byte 10"},
    {"{\"enum\":[\"\\ud83d\"]}", "schema", "byte 10"},
    {"{\"const\":\"a\\ud83db\"}", "schema", "byte 11"},
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
    char *text = NULL;
    assert_int_equal(weir_grammar_from_json_schema(NULL, 0, &text, NULL), WEIR_INVALID);
    assert_int_equal(weir_grammar_from_json_schema("{}", WEIR_NUL, NULL, NULL), WEIR_INVALID);
}

/* ---- The order of properties: all selections of all orders ---- */

enum { PROPERTIES = 4 };

/* Texts of objects with these properties, and with each of the others behind them. */
static void check_orders(gbnf *g, const char *schema, unsigned required, const int *chosen, size_t n)
{
    char text[64] = "{";
    unsigned set = 0;
    bool in = true;
    for (size_t i = 0; i < n; i++) {
        sprintf(text + strlen(text), "%s\"%c\":%d", i > 0 ? "," : "", 'a' + chosen[i], chosen[i]);
        in = in && (i == 0 || chosen[i] > chosen[i - 1]);
        set |= 1u << chosen[i];
    }
    strcat(text, "}");
    if (gbnf_matches(g, text) != (in && (required & ~set) == 0)) fail_msg("%s and %s", schema, text);
    for (int one = 0; one < PROPERTIES; one++) {
        int more[PROPERTIES];
        if ((set & 1u << one) != 0) continue;
        if (n > 0) memcpy(more, chosen, n * sizeof *chosen);
        more[n] = one;
        check_orders(g, schema, required, more, n + 1);
    }
}

static void test_orders(void **state)
{
    (void)state;
    for (unsigned required = 0; required < 1u << PROPERTIES; required++) {
        char schema[256] = "{\"properties\":{";
        for (int i = 0; i < PROPERTIES; i++)
            sprintf(schema + strlen(schema), "%s\"%c\":{\"const\":%d}", i > 0 ? "," : "", 'a' + i, i);
        strcat(schema, "},\"required\":[");
        for (int i = PROPERTIES - 1, n = 0; i >= 0; i--) /* the order of this list has no meaning */
            if ((required & 1u << i) != 0)
                sprintf(schema + strlen(schema), "%s\"%c\"", n++ > 0 ? "," : "", 'a' + i);
        strcat(schema, "]}");
        gbnf *g = grammar_of(schema);
        check_orders(g, schema, required, NULL, 0);
        gbnf_free(g);
    }
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

    /* A keyword that would make too large a grammar is refused at its place. */
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
    /* Arrays of as many items as there may be, and of more. */
    for (int n = 1998; n <= 2001; n++) {
        sprintf(text, "{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"maxItems\":%d%s}", n,
                n % 2 ? ",\"minItems\":1998" : "");
        status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
        assert_int_equal(status, WEIR_OK);
        weir_free(grammar);
        grammar = NULL;
    }

    /* Every definition refers twice to the next: 2^30 schemas, if each reference were followed. */
    end = text + sprintf(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d30\":{\"type\":\"null\"}");
    for (int i = 0; i < 30; i++)
        end += sprintf(
            end,
            ",\"d%d\":{\"properties\":{\"l\":{\"$ref\":\"#/$defs/d%d\"},\"r\":{\"$ref\":\"#/$defs/d%d\"}}}",
            i, i + 1, i + 1);
    strcpy(end, "}}");
    status = weir_grammar_from_json_schema(text, WEIR_NUL, &grammar, &error);
    if (status != WEIR_OK) fail_msg("%s [%s]", error.message, error.field);
    assert_true(strlen(grammar) < 50000); /* the rules of each definition are there once */
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
    long live = weir__mem_live(), n = 0;
    for (;; n++) {
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
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honoured), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_orders),   cmocka_unit_test(test_integer_bounds),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
