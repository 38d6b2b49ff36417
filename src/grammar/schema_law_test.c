/* schema_law_test.c: the schema is law: what it does not describe may be there, and what contradicts it may
 * not. The grammars are read by the tests' own GBNF reader. SPDX-License-Identifier: Apache-2.0 */
#include "support/schema_examples.h"

/* Texts that must and must not be possible. */
static const struct example examples[] = {
    /* what the schema does not describe: properties in any place, items behind, other types */
    {"{\"type\":\"object\",\"properties\":{\"foo\":{\"type\":\"null\"},\"bar\":{\"type\":\"null\"}},"
     "\"required\":[\"foo\"]}",
     {"{\"foo\":null}", "{\"x\":1,\"foo\":null,\"fo\":{},\"bar\":null,\"foob\":[]}",
      "{\"foo\":null,\"x\":1,\"x\":2}", "{\"\\\"\":1,\"é\":2,\"foo\":null}"},
     {"{\"foo\":1}", "{\"foo\":null,\"foo\":1}", "{\"x\":1}", "{\"foo\":null,\"bar\":1}",
      "{\"\\u0066oo\":1,\"foo\":null}", "{\"foo\":null,\"x\":1,}", "{,\"foo\":null}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}}}",
     {"1", "\"x\"", "[]", "{\"b\":1}", "{}", "{\"b\":1,\"a\":null}"},
     {"{\"a\":1}", "{\"b\":1,\"a\":1}"}},
    {"{\"minimum\":5}", {"\"x\"", "5", "null", "{\"a\":[1]}"}, {"4"}},
    {"{\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}]}",
     {"[]", "[null]", "[null,1]", "[null,1,\"x\",{}]", "{}"},
     {"[1]", "[null,2]", "[null,]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}],\"items\":{\"const\":2},"
     "\"minItems\":1,\"maxItems\":4}",
     {"[null]", "[null,1]", "[null,1,2]", "[null,1,2,2]"},
     {"[]", "[null,1,1]", "[null,1,2,2,2]"}},
    {"{\"type\":\"array\",\"items\":[true],\"additionalItems\":false}", {"[]", "[1]"}, {"[1,2]"}},
    {"{\"type\":\"array\",\"prefixItems\":[true],\"minItems\":3}",
     {"[1,2,3]", "[1,2,3,4]"},
     {"[1]", "[1,2]"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"x\":true},\"required\":[\"x\"],"
     "\"dependentRequired\":{\"x\":[\"y\"]}},{\"type\":\"object\",\"required\":[\"y\"]}]}",
     {"{\"y\":1}", "{\"z\":1,\"y\":1}"},
     {"{\"x\":1}", "{\"x\":1,\"y\":1}", "{}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"x\"],\"propertyNames\":{\"enum\":[\"x\",\"y\"]}},{"
     "\"type\":\"object\",\"required\":[\"y\"]}]}",
     {"{\"x\":1}", "{\"y\":1,\"z\":1}"},
     {"{\"x\":1,\"y\":1}", "{\"y\":1,\"x\":1}", "{\"x\":1,\"z\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{}},\"oneOf\":[{\"required\":["
     "\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":null}", "{\"b\":1}", "{\"c\":1,\"b\":1}"},
     {"{}", "{\"a\":null,\"b\":1}", "{\"a\":1}"}},
    /* what contradicts a schema */
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"},\"minimum\":-1,\"maximum\":12}",
     {"1.5", "-0.5", "11.9"},
     {"-1.5", "12.5", "12.0", "3"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"},\"exclusiveMaximum\":-2}",
     {"-2.5", "-13.25"},
     {"-1.5", "2.5", "-3"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}",
     {"1.5", "-0.01", "10.0001", "-9.5"},
     {"1", "1.0", "-0", "1e3"}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"ab\",3]}}",
     {"\"\"", "\"b\"", "\"abc\"", "\"aa\""},
     {"\"a\"", "\"ab\"", "3", "\"\\u0061\""}},
    {"{\"not\":{\"enum\":[1,\"a\",null]}}",
     {"2", "\"b\"", "1.5", "[]", "true"},
     {"1", "\"a\"", "null", "1.0"}},
    {"{\"not\":{\"minimum\":3,\"type\":\"integer\"}}", {"\"x\"", "2", "2.5", "3.5"}, {"3", "4"}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\"}}", {"\"\"", "\"ba\""}, {"\"a\"", "\"ab\""}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\"],\"properties\":{\"b\":{\"const\":1}}}}",
     {"{}", "{\"c\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"not\":{\"not\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    {"{\"if\":{\"maxLength\":3},\"then\":{\"minLength\":1}}", {"\"a\"", "\"abcd\"", "1"}, {"\"\""}},
    {"{\"if\":{\"exclusiveMaximum\":0},\"then\":{\"minimum\":-10},\"else\":{\"enum\":[2,\"x\"]}}",
     {"-5", "2", "\"x\"", "\"y\""},
     {"-11", "3"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", {"1", "2.5", "\"a\""}, {"3", "2"}},
    {"{\"type\":\"string\",\"oneOf\":[{\"minLength\":2},{\"maxLength\":4}]}",
     {"\"a\"", "\"abcde\""},
     {"\"abc\"", "\"ab\""}},
    {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}}},{\"type\":\"string\"}]}",
     {"{\"a\":null}", "1", "{}"},
     {"\"x\"", "{\"a\":1}"}},
    /* items that are counted or differ */
    {"{\"type\":\"array\",\"contains\":{\"const\":1}}",
     {"[1]", "[\"a\",1,2]", "[1,1]"},
     {"[]", "[2]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minContains\":2,"
     "\"maxContains\":2,\"maxItems\":4}",
     {"[5,6]", "[1,5,2,7]", "[5,1,1,5]"},
     {"[5]", "[5,6,7]", "[1,1]", "[5,5,\"a\"]", "[1,1,1,5,5]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"contains\":{\"const\":1},\"minItems\":3}",
     {"[null,1,2]", "[null,2,1]", "[null,\"a\",{},1]"},
     {"[1,null,1]", "[null,1]", "[null,2,3]"}},
    {"{\"contains\":{\"type\":\"null\"},\"minContains\":0}", {"[]", "[1]", "\"a\""}, {""}},
    {"{\"minContains\":3}", {"[]"}, {""}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1,1.0]},\"uniqueItems\":true,\"minItems\":1}",
     {"[\"a\"]", "[\"b\",\"a\",1]", "[1]"},
     {"[]", "[\"a\",\"a\"]", "[\"b\",\"a\",\"b\"]", "[\"c\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]},\"uniqueItems\":true,\"maxItems\":2}",
     {"[]", "[true,null]", "[false,true]"},
     {"[true,true]", "[true,false,null]"}},
    /* schemas with URIs of their own */
    {"{\"$id\":\"http://a.example/x/root.json\",\"$ref\":\"item.json#/$defs/"
     "n\",\"$defs\":{\"i\":{\"$id\":\"item.json\",\"$defs\":{\"n\":{\"$ref\":\"#m\"},\"o\":{\"$anchor\":"
     "\"m\",\"type\":\"null\"}}}}}",
     {"null"},
     {"1"}},
    {"{\"properties\":{\"a\":{\"$id\":\"urn:x\",\"type\":\"null\"},\"b\":{\"$ref\":\"urn:x\"},\"c\":{\"$"
     "ref\":\"#/properties/enum\"},\"enum\":{\"$id\":\"/d/e\",\"$ref\":\"./../d/./f\"},\"f\":{\"$id\":\"/d/"
     "f\",\"const\":1}},\"$schema\":\"https://json-schema.org/draft/2020-12/schema\"}",
     {"{\"a\":null,\"b\":null}", "{\"c\":1}"},
     {"{\"b\":1}", "{\"c\":2}"}},
    {"{\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#n\"},\"$defs\":{\"x\":{\"$dynamicAnchor\":\"n\","
     "\"type\":\"null\"}}}",
     {"[null]"},
     {"[1]"}},
    /* anchors: in properties of any names, and not in data */
    {"{\"properties\":{\"examples\":{\"$anchor\":\"n\",\"type\":\"null\"},\"b\":{\"$ref\":\"#n\"}}}",
     {"{\"b\":null}"},
     {"{\"b\":1}"}},
    {"{\"properties\":{\"enum\":{\"$anchor\":\"n\",\"type\":\"null\"},\"b\":{\"$ref\":\"#n\"}}}",
     {"{\"b\":null}"},
     {"{\"b\":1}"}},
    {"{\"examples\":[{\"$anchor\":\"n\"}],\"items\":{\"$ref\":\"#n\"},\"$defs\":{\"a\":{\"$anchor\":\"n\","
     "\"type\":\"null\"}}}",
     {"[null]"},
     {"[1]"}},
    /* numbers by their values */
    {"{\"enum\":[1,-2.0,0.5,[{\"a\":3}]]}",
     {"1", "1.0", "1.00", "-2", "0.50", "[{\"a\":3.0}]"},
     {"1.", "1.01", "2", "01", "0.51", "1.0.0", "[{\"a\":3.1}]"}},
    {"{\"const\":9007199254740993}",
     {"9007199254740993", "9007199254740993.0"},
     {"9007199254740992", "9007199254740993.5"}},
    {"{\"properties\":{\"a\":{\"id\":\"/properties/a\",\"items\":{\"$ref\":\"#/definitions/"
     "n\"}}},\"definitions\":{\"n\":{\"type\":\"null\"}}}",
     {"{\"a\":[null]}"},
     {"{\"a\":[1]}"}},
    /* names as patterns */
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"z$\":{\"minimum\":5}},"
     "\"properties\":{\"az\":{},\"b\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"string\"}}",
     {"{\"a\":1,\"ab\":2}", "{\"az\":5}", "{\"abz\":6,\"b\":null,\"c\":\"x\",\"z\":7}", "{\"z\":\"x\"}"},
     {"{\"a\":\"1\"}", "{\"az\":4}", "{\"az\":\"x\"}", "{\"abz\":4}", "{\"c\":1}", "{\"z\":4}",
      "{\"b\":\"x\"}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^[a-c]{1,2}$\":{\"type\":\"null\"}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"a\":null,\"bc\":null}"},
     {"{\"abc\":null}", "{\"\":null}", "{\"d\":null}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^a\",\"maxLength\":3},\"required\":[\"ab\"]}",
     {"{\"ab\":1}", "{\"a\":1,\"ab\":2,\"abc\":3}"},
     {"{\"b\":1,\"ab\":1}", "{\"a\":1}", "{\"abcd\":1,\"ab\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/"
     "n\"},\"$defs\":{\"n\":{\"anyOf\":[{\"const\":\"x\"},{\"pattern\":\"^y+$\"}]}}}",
     {"{}", "{\"x\":1,\"yy\":2}"},
     {"{\"xx\":1}", "{\"z\":1}"}},
    {"{\"type\":\"object\",\"unevaluatedProperties\":{\"type\":\"null\"},\"properties\":{\"a\":{}}}",
     {"{\"a\":1,\"b\":null}"},
     {"{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"properties\":{\"b\":{}},"
     "\"unevaluatedProperties\":{\"type\":\"null\"}}",
     {"{\"a\":null}", "{\"b\":1,\"a\":null}"},
     {"{\"a\":1}", "{\"c\":null}"}},
    /* numbers of properties */
    {"{\"type\":\"object\",\"minProperties\":1}", {"{\"a\":1}", "{\"a\":1,\"b\":2}"}, {"{}", "{ }"}},
    {"{\"type\":\"object\",\"maxProperties\":2}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,"
     "\"additionalProperties\":false}",
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2,\"maxProperties\":2}",
     {"{\"a\":1,\"b\":2}", "{\"x\":1,\"b\":2}", "{\"b\":1,\"x\":2}"},
     {"{}", "{\"a\":1}", "{\"x\":1}", "{\"x\":1,\"x\":2}", "{\"a\":1,\"b\":2,\"x\":3}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\"],"
     "\"maxProperties\":2}",
     {"{\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}", "{\"c\":1,\"x\":1}"},
     {"{\"a\":1,\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"a\":1}", "{\"x\":1,\"a\":1,\"c\":1}"}},
    /* what several patterns and lengths have in common */
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2\"}",
     {"\"2024-02-29\""},
     {"\"1999-12-31\"", "\"2\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(ab|c)*$\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"cc\"", "\"abc\"", "\"cab\"", "\"ccc\""},
     {"\"c\"", "\"\"", "\"abab\"", "\"aa\""}},
    {"{\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"b$\"},{\"pattern\":\"c\"}],\"type\":\"string\"}",
     {"\"acb\"", "\"aaccbb\"", "\"a\\ncb\""},
     {"\"ab\"", "\"acbc\"", "\"cb\""}},
    {"{\"type\":\"string\",\"pattern\":\"\\\\\\\\\",\"maxLength\":2}",
     {"\"\\\\\"", "\"\\\\n\"", "\"\\\"\\\\\""},
     {"\"n\"", "\"\\n\"", "\"\\\\nn\""}},
    /* numbers without values */
    {"{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true,\"not\":{\"const\":3}}",
     {"6", "5.5"},
     {"5", "3", "4"}},
    {"{\"type\":\"integer\",\"maximum\":5,\"exclusiveMaximum\":true,\"not\":{\"enum\":[7,3]}}",
     {"4", "2"},
     {"5", "3", "7"}},
    {"{\"type\":\"integer\",\"maximum\":5,\"exclusiveMaximum\":false,\"not\":{\"enum\":[3,2,3.0,1.5]}}",
     {"5", "4", "1"},
     {"6", "3", "2"}},
    {"{\"type\":\"number\",\"not\":{\"anyOf\":[{\"type\":\"integer\"},{\"const\":1}]}}", {"1.5"}, {"1", "2"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"},\"minimum\":9007199254740993}",
     {"9007199254740993.5"},
     {"9007199254740992.5", "9007199254740993"}},
    {"{\"type\":\"integer\",\"not\":{\"enum\":[12345678901234567,5]}}",
     {"4", "6"},
     {"5", "12345678901234567"}},
    {"{\"type\":\"boolean\",\"not\":{\"const\":true}}", {"false"}, {"true", "null"}},
    {"{\"type\":[\"boolean\",\"null\"],\"not\":{\"enum\":[true,null,3]}}", {"false"}, {"true", "null"}},
    {"{\"type\":\"string\",\"not\":{\"const\":\"a\"},\"anyOf\":[{\"enum\":[\"a\",\"b\"]}]}",
     {"\"b\""},
     {"\"a\""}},
    {"{\"type\":\"number\",\"not\":{\"const\":3},\"anyOf\":[{\"enum\":[3.0,4]},{\"const\":5}]}",
     {"4", "5"},
     {"3", "3.0"}},
    /* properties and items of several schemas */
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"boolean\",\"anyOf\":[{\"const\":true}]}"
     "}",
     {"[true]", "[]"},
     {"[false]", "[true,true]"}},
    {"{\"const\":{\"$dynamicRef\":\"#a\"}}", {"{\"$dynamicRef\":\"#a\"}"}, {"{\"$ref\":\"#a\"}"}},
    {"{\"properties\":{\"const\":{\"$dynamicRef\":\"#a\"}},\"$defs\":{\"x\":{\"$dynamicAnchor\":\"a\","
     "\"type\":\"null\"}}}",
     {"{\"const\":null}"},
     {"{\"const\":1}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}},"
     "{\"additionalProperties\":{\"minimum\":5}}]}",
     {"{\"x\":5}", "{\"x\":6,\"y\":7}"},
     {"{\"x\":\"s\"}", "{\"x\":4}", "{\"x\":5,\"y\":\"s\"}"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"allOf\":[{\"unevaluatedItems\":{\"type\":"
     "\"integer\"}}]}",
     {"[]"},
     {"[\"a\"]", "[\"a\",5]", "[5]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"maximum\":9},\"allOf\":[{"
     "\"prefixItems\":[{\"minimum\":3},{\"type\":\"integer\"}]},{\"items\":[true],\"additionalItems\":{"
     "\"minimum\":5}}]}",
     {"[]", "[3,9]", "[4,5,\"a\"]"},
     {"[2]", "[3,4]", "[3,10]", "[3,5.5]", "[3,5,10]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"allOf\":[{\"items\":{\"enum\":[1,2,3]},\"additionalItems\":false},{\"items\":{"
     "\"maximum\":"
     "2}}],\"items\":{\"enum\":[0,2]},\"uniqueItems\":true}",
     {"[2]", "[]"},
     {"[1]", "[3]", "[2,2]", "[0]"}},
    /* a reference beside what it leaves unevaluated */
    {"{\"$ref\":\"#/$defs/"
     "b\",\"unevaluatedProperties\":false,\"$defs\":{\"b\":{\"type\":\"object\",\"properties\":{\"a\":{"
     "\"type\":\"integer\"}},\"required\":[\"a\"]}}}",
     {"{\"a\":1}"},
     {"{\"a\":1,\"b\":2}", "{}", "{\"a\":\"x\"}"}},
    {"{\"$ref\":\"#/$defs/"
     "b\",\"properties\":{\"c\":{\"type\":\"null\"}},\"unevaluatedProperties\":{\"const\":0},\"$defs\":{"
     "\"b\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}}",
     {"{\"a\":1}", "{\"c\":null,\"a\":1}", "{\"d\":0,\"c\":null,\"a\":1}"},
     {"{\"a\":1,\"d\":2}", "{\"c\":0,\"a\":1}", "{\"c\":null}"}},
    /* what only a dependency names stands before what needs it */
    {"{\"type\":\"object\",\"dependentRequired\":{\"q\":[\"a\",\"b\"]}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2,\"q\":3}"},
     {"{\"q\":1}", "{\"a\":1,\"q\":2}", "{\"q\":1,\"z\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"q\":{},\"a\":{}},\"dependentRequired\":{\"q\":[\"a\"]}}",
     {"{\"q\":1,\"a\":2}", "{\"a\":2}"},
     {"{\"q\":1}"}},
    /* two plain members of a listed object come in either order */
    {"{\"enum\":[{\"a\":1,\"b\":\"x\"},{\"a\":[],\"b\":1},{\"a\":1,\"b\":2,\"c\":3}]}",
     {"{\"a\":1,\"b\":\"x\"}", "{\"b\":\"x\",\"a\":1.0}", "{\"a\":[],\"b\":1}", "{\"a\":1,\"b\":2,\"c\":3}"},
     {"{\"b\":\"x\"}", "{\"a\":1,\"a\":1}", "{\"b\":\"x\",\"b\":\"x\"}"}},
    /* what `if` alone matches is evaluated */
    {"{\"type\":\"object\",\"if\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},"
     "\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1}"},
     {"{\"a\":2}", "{\"b\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"$ref\":\"#/$defs/"
     "b\",\"unevaluatedItems\":false,\"$defs\":{\"b\":{\"type\":\"array\",\"prefixItems\":[{\"type\":"
     "\"integer\"}]}}}",
     {"[]", "[1]"},
     {"[1,2]", "[\"a\"]"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/b\"}],\"$ref\":\"#/$defs/"
     "c\",\"unevaluatedProperties\":false,\"$defs\":{\"b\":{\"type\":\"object\",\"properties\":{\"a\":{"
     "\"type\":\"integer\"}},\"required\":[\"a\"]},\"c\":{\"type\":\"object\",\"properties\":{\"d\":{}}}}}",
     {"{\"a\":1}", "{\"a\":1,\"d\":1}"},
     {"{\"a\":1,\"e\":1}", "{\"d\":1}"}},
    {"{\"$ref\":\"#/$defs/"
     "n\",\"unevaluatedProperties\":false,\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{},"
     "\"next\":{\"$ref\":\"#/$defs/n\",\"unevaluatedProperties\":false}}}}}",
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":1,\"next\":{\"next\":{}}}}"},
     {"{\"x\":1}", "{\"next\":{\"x\":2}}", "{\"next\":{\"v\":1,\"next\":{\"next\":{\"y\":1}}}}"}},
    {"{\"$ref\":\"#/$defs/"
     "o\",\"unevaluatedProperties\":false,\"$defs\":{\"o\":{\"oneOf\":[{\"type\":\"object\",\"properties\":{"
     "\"k\":{\"const\":1},\"x\":{}},\"required\":[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
     "\"const\":2},\"y\":{}},\"required\":[\"k\"]}]}}}",
     {"{\"k\":1,\"x\":1}", "{\"k\":2,\"y\":1}"},
     {"{\"k\":1,\"y\":1}", "{\"k\":2,\"z\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"p\":{\"$ref\":\"#/$defs/"
     "b\",\"unevaluatedProperties\":false}},\"allOf\":[{\"properties\":{\"p\":{\"$ref\":\"#/$defs/"
     "b\",\"properties\":{\"e\":{}}}}}],\"$defs\":{\"b\":{\"type\":\"object\",\"properties\":{\"a\":{"
     "\"type\":\"integer\"}},\"required\":[\"a\"]}}}",
     {"{\"p\":{\"a\":1}}"},
     {"{\"p\":{\"a\":1,\"e\":1}}", "{\"p\":{\"a\":1,\"f\":1}}"}},
    {"{\"$ref\":\"#/$defs/"
     "r\",\"required\":[\"b\"],\"unevaluatedProperties\":false,\"$defs\":{\"r\":{\"type\":"
     "\"object\",\"unevaluatedProperties\":true}}}",
     {"{\"b\":1,\"c\":2}"},
     {"{}"}},
    /* what contradicts objects without other properties, tuples, dependencies, oneOf and if */
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":false}]}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"a\":1,\"b\":1}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"x1\":{}},\"additionalProperties\":false,"
     "\"not\":{\"properties\":{\"a\":{}},\"patternProperties\":{\"^x\":{\"type\":\"null\"}},"
     "\"additionalProperties\":false}}",
     {"{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"x1\":1}"},
     {"{\"a\":1}", "{\"x1\":null}", "{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"additionalProperties\":{\"type\":"
     "\"integer\"}}}",
     {"{\"a\":\"x\"}", "{\"a\":1,\"b\":null}"},
     {"{\"a\":1}", "{}", "{\"a\":1,\"b\":2}"}},
    {"{\"type\":\"array\",\"not\":{\"prefixItems\":[{\"type\":\"integer\"},{\"const\":\"a\"}]}}",
     {"[\"a\"]", "[1,\"b\"]"},
     {"[]", "[1]", "[1,\"a\",2]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"not\":{\"dependentRequired\":{\"a\":[\"b\"]}}"
     "}",
     {"{\"a\":1}"},
     {"{}", "{\"a\":1,\"b\":1}", "{\"b\":1}"}},
    {"{\"type\":\"integer\",\"not\":{\"oneOf\":[{\"minimum\":5},{\"maximum\":3},{\"const\":9}]}}",
     {"4", "9"},
     {"5", "3", "10"}},
    {"{\"type\":\"integer\",\"not\":{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},\"else\":{\"minimum\":3}"
     "}}",
     {"8", "2"},
     {"5", "7", "3"}},
    {"{\"properties\":{\"foo\":{}},\"oneOf\":[{\"properties\":{\"bar\":{\"const\":1}},\"required\":[\"bar\"]}"
     ",{\"properties\":{\"baz\":{\"const\":1}},\"required\":[\"baz\"]}],\"type\":\"object\","
     "\"unevaluatedProperties\":false}",
     {"{\"foo\":1,\"bar\":1}", "{\"baz\":1}"},
     {"{\"bar\":1,\"baz\":1}", "{\"foo\":1}", "{\"bar\":1,\"q\":1}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"b\":{}},\"additionalProperties\":false},{\"type\":"
     "\"object\",\"properties\":{\"k\":{}},\"required\":[\"k\",\"a\"],\"additionalProperties\":false}]}",
     {"{\"b\":1}", "{}"},
     {"{\"k\":1,\"a\":1}"}},
    /* values that a schema lists, and what stands beside them */
    {"{\"enum\":[\"ab\",\"b\",1,{\"a\":1},{\"a\":\"x\"},[1],[1,1],null],\"pattern\":\"^a\",\"properties\":{"
     "\"a\":{\"type\":\"integer\"}},\"uniqueItems\":true,\"not\":{\"type\":\"null\"}}",
     {"\"ab\"", "1", "{\"a\":1}", "[1]"},
     {"\"b\"", "{\"a\":\"x\"}", "[1,1]", "null"}},
    {"{\"oneOf\":[{\"enum\":[{\"k\":1},{\"k\":2}]},{\"type\":\"object\",\"properties\":{\"k\":{\"minimum\":3}"
     "},\"required\":[\"k\"]}]}",
     {"{\"k\":1}", "{\"k\":3}"},
     {"{\"k\":0}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\",\"c\"]},\"required\":[\"c\",\"a\"]}",
     {"{\"c\":1,\"a\":1}", "{\"c\":1,\"a\":1,\"b\":1}"},
     {"{\"c\":1}"}},
    {"{\"type\":\"object\",\"required\":[\"a\"],\"not\":{\"additionalProperties\":false}}",
     {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"b\":1}", "[]"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"type\":\"object\",\"additionalProperties\":{"
     "\"type\":\"integer\"}}]}",
     {"{\"a\":\"x\"}", "{\"b\":1}", "{}"},
     {"{\"a\":1}", "{\"b\":\"x\"}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"patternProperties\":{\"^x-\":{}},\"properties\":{\"b\":{}},"
     "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"a\":{}},"
     "\"additionalProperties\":false}]}",
     {"{\"b\":1}", "{\"b\":1,\"x-1\":1}", "{\"a\":1}"},
     {"{}", "{\"c\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"enum\":[1.5,2,2.25,0.3,-1,\"x\"],\"multipleOf\":0.5}", {"1.5", "2", "-1", "\"x\""}, {"2.25", "0.3"}},
    {"{\"enum\":[0.3,0.25,1e20],\"multipleOf\":0.1,\"maximum\":5}",
     {"0.3"},
     {"0.25", "100000000000000000000"}},
    {"{\"type\":\"string\",\"enum\":[\"red\"],\"format\":\"enum\"}", {"\"red\""}, {"\"blue\""}},
    {"{\"type\":\"integer\",\"enum\":[5,-2147483648,2147483648],\"format\":\"int32\"}",
     {"5", "-2147483648"},
     {"2147483648"}},
    {"{\"enum\":[{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":"
     "1}}}}}}}}}}}}},{\"c\":1}],\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
     "n\"}},\"patternProperties\":{\"^b\":true},\"additionalProperties\":false,\"$defs\":{\"n\":{"
     "\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
     "n\"}},\"patternProperties\":{\"^b\":true},\"additionalProperties\":false}}}",
     {"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}}}}}"
      "}}}"},
     {"{\"c\":1}"}},
    /* in old drafts a reference hides what stands beside it */
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/"
     "i\",\"maximum\":3,\"definitions\":{\"i\":{\"type\":\"integer\"}}}",
     {"3"},
     {"4", "\"a\""}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"not\":{\"$ref\":\"#/definitions/"
     "i\",\"description\":\"x\"},\"definitions\":{\"i\":{\"type\":\"integer\"}}}",
     {"5.5"},
     {"5"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"not\":{\"$ref\":\"#/definitions/"
     "i\",\"type\":\"string\"},\"definitions\":{\"i\":{\"type\":\"integer\"}}}",
     {"5.5", "\"a\""},
     {"5"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"oneOf\":[{\"type\":\"integer\"},{\"$ref\":\"#/definitions/"
     "i\",\"type\":\"string\"}],\"definitions\":{\"i\":{}}}",
     {"\"a\""},
     {"5"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"]},{\"$ref\":\"#/definitions/"
     "o\",\"required\":[\"b\"]}],\"definitions\":{\"o\":{\"type\":\"object\"}}}",
     {"{\"b\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/"
     "schema#\",\"oneOf\":[{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":1}}},{"
     "\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"$ref\":\"#/definitions/"
     "any\",\"const\":2}}}],\"definitions\":{\"any\":{}}}",
     {"{\"k\":2}"},
     {"{\"k\":1}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"properties\":{\"v\":{\"$ref\":\"#/"
     "definitions/"
     "i\",\"maximum\":3}},\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},{"
     "\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"]}],\"definitions\":{\"i\":{\"type\":"
     "\"integer\"}}}",
     {"{\"v\":3,\"k\":1}", "{\"k\":2}"},
     {"{\"v\":4,\"k\":1}", "{\"k\":3}", "{}"}},
};

static void test_law(void **state)
{
    (void)state;
    check_examples(examples, sizeof examples / sizeof *examples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_law)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
