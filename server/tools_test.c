/* Answers with calls, read in pieces: against jansson, which writes them and reads what comes out.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "support/dice.h"
#include "tools.h"

#define ROUNDS 2000

typedef struct heard {
    serve_text name, arguments, content, id;
    int n_calls;
    bool refuse; /* as if memory was out */
    bool form;   /* responses are JSON */
} heard;

static bool take(void *user, const weir_delta *delta)
{
    heard *h = user;
    if (h->refuse) return false;
    serve_text *to = delta->kind == WEIR_DELTA_TOOL_CALL   ? &h->name
                     : delta->kind == WEIR_DELTA_ARGUMENTS ? &h->arguments
                                                           : &h->content;
    assert_true(delta->length > 0);
    assert_true(delta->kind != WEIR_DELTA_ARGUMENTS || h->n_calls == 1); /* the head comes first */
    if (delta->kind == WEIR_DELTA_TOOL_CALL) {
        h->n_calls++;
        assert_non_null(delta->id);
        serve_text_puts(&h->id, delta->id);
    }
    serve_text_add(to, delta->text, delta->length);
    return true;
}

static void heard_fini(heard *h)
{
    serve_text_fini(&h->name);
    serve_text_fini(&h->arguments);
    serve_text_fini(&h->content);
    serve_text_fini(&h->id);
}

/* In pieces of up to `most` bytes. */
static void read_in_pieces(dice *d, const char *text, int32_t most, heard *h)
{
    serve_caller caller = {.number = 7, .form = h->form};
    size_t n = strlen(text);
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = (size_t)dice_in(d, 1, most);
        if (piece > n - at) piece = n - at;
        assert_true(serve_caller_feed(&caller, text + at, piece, take, h));
    }
    assert_true(serve_caller_end(&caller, take, h));
    serve_caller_fini(&caller);
}

static json_t *random_string(dice *d)
{
    static const char *const parts[] = {"a",  "\"", "\\", "{", "}",    "]", "\n",
                                        "\t", "é",  "日", "😀", "\x01", " ", "/"};
    serve_text text = {0};
    serve_text_puts(&text, "");
    for (int32_t i = dice_in(d, 0, 12); i > 0; i--)
        serve_text_puts(&text, parts[dice_in(d, 0, (int32_t)(sizeof parts / sizeof *parts) - 1)]);
    json_t *string = json_stringn(text.bytes, text.n);
    serve_text_fini(&text);
    return string;
}

static json_t *random_value(dice *d, int depth)
{
    switch (dice_in(d, 0, depth > 0 ? 6 : 3)) {
    case 0: return json_integer(dice_in(d, -1000, 1000));
    case 1: return json_null();
    case 2:
    case 3: return random_string(d);
    case 4: return json_pack("[oo]", random_value(d, depth - 1), random_value(d, depth - 1));
    default: return json_pack("{soso}", "x", random_value(d, depth - 1), "y}", random_value(d, depth - 1));
    }
}

static char *dump(dice *d, json_t *value)
{
    size_t flags =
        (dice_one_in(d, 2) ? JSON_INDENT(2) : JSON_COMPACT) | (dice_one_in(d, 2) ? JSON_ENSURE_ASCII : 0);
    char *text = json_dumps(value, flags);
    assert_non_null(text);
    json_decref(value);
    return text;
}

static void test_calls(void **state)
{
    dice d = {dice_environment("WEIR_TEST_SEED", 20261122)};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *arguments = json_pack("{soso}", "a", random_value(&d, 3), "b", random_value(&d, 3));
        char *text = dump(&d, json_pack("{sssO}", "name", "get_weather", "arguments", arguments));
        heard h = {0};
        read_in_pieces(&d, text, dice_one_in(&d, 2) ? 1 : 20, &h);
        assert_int_equal(h.n_calls, 1);
        assert_string_equal(h.name.bytes, "get_weather");
        json_t *got = json_loadb(h.arguments.bytes, h.arguments.n, 0, NULL);
        assert_non_null(got);
        assert_true(json_equal(got, arguments));
        assert_int_equal(h.content.n, 0);
        json_decref(got);
        json_decref(arguments);
        heard_fini(&h);
        free(text);
    }
}

static void test_words(void **state)
{
    dice d = {dice_environment("WEIR_TEST_SEED", 20261123)};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (int round = 0; round < ROUNDS; round++) {
        json_t *words = random_string(&d);
        char *text = dump(&d, json_pack("{sO}", "response", words));
        heard h = {0};
        read_in_pieces(&d, text, dice_one_in(&d, 2) ? 1 : 20, &h);
        assert_int_equal(h.n_calls, 0);
        assert_int_equal(h.content.n, json_string_length(words));
        if (h.content.n > 0) assert_memory_equal(h.content.bytes, json_string_value(words), h.content.n);
        json_decref(words);
        heard_fini(&h);
        free(text);
    }
}

/* JSON of any form: what comes out is the same JSON. Calls are read as before. */
static void test_forms(void **state)
{
    static const char *const texts[][2] = {
        {"{\"response\": 5}", "5"},
        {"{\"response\":true }", "true"},
        {"{\"response\": [] }", "[]"},
        {"{\"response\": \"}\"}", "\"}\""},
        {"{\"response\": {\"a\": [1", "{\"a\": [1"},
    };
    dice d = {dice_environment("WEIR_TEST_SEED", 20261124)};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)d.state);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        heard h = {.form = true};
        read_in_pieces(&d, texts[i][0], 1 + (int32_t)i, &h);
        assert_string_equal(h.content.bytes, texts[i][1]);
        heard_fini(&h);
    }
    for (int round = 0; round < ROUNDS; round++) {
        json_t *value = random_value(&d, 3);
        char *text = dump(&d, json_pack("{sO}", "response", value));
        heard h = {.form = true};
        read_in_pieces(&d, text, dice_one_in(&d, 2) ? 1 : 20, &h);
        assert_int_equal(h.n_calls, 0);
        json_t *got = json_loadb(h.content.bytes, h.content.n, JSON_DECODE_ANY, NULL);
        assert_non_null(got);
        assert_true(json_equal(got, value));
        json_decref(got);
        json_decref(value);
        heard_fini(&h);
        free(text);
    }
    heard h = {.form = true};
    read_in_pieces(&d, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", 3, &h);
    assert_string_equal(h.name.bytes, "f");
    assert_string_equal(h.arguments.bytes, "{\"a\": 1}");
    heard_fini(&h);
}

/* What is no such answer comes out as it was, also when it ends early. */
static void test_other_texts(void **state)
{
    static const char *const texts[][2] = {
        {"Hello there", "Hello there"},
        {" [1]", " [1]"},
        {"{\"what\": 1}", "{\"what\": 1}"},
        {"{1}", "{1}"},
        {"{\"name\" 5}", "{\"name\" 5}"},
        {"{\"response\": 5}", "{\"response\": 5}"},
        {"{\"response\": \"a\"} b", "a} b"},
        {"{\"resp", "{\"resp"},
        {"{\"response\": \"a", "a"},
        {"", ""},
        {"{\"response\": \"\\ud83d\\ude00\\udc00\\u0041\"}", "😀\xef\xbf\xbd"
                                                             "A"},
    };
    dice d = {1};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        heard h = {0};
        read_in_pieces(&d, texts[i][0], 1, &h);
        assert_int_equal(h.n_calls, 0);
        assert_string_equal(h.content.bytes != NULL ? h.content.bytes : "", texts[i][1]);
        heard_fini(&h);
    }
}

static void test_a_cut_call(void **state)
{
    static const char text[] = "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2";
    dice d = {1};
    heard h = {0};
    (void)state;
    read_in_pieces(&d, text, 3, &h);
    assert_string_equal(h.name.bytes, "f");
    assert_string_equal(h.arguments.bytes, "{\"a\": [1, 2");
    assert_int_equal(h.content.n, 0);
    heard_fini(&h);
}

static void test_refusal(void **state)
{
    heard h = {.refuse = true};
    serve_caller caller = {0};
    (void)state;
    assert_false(serve_caller_feed(&caller, "{\"response\": \"a\"}", 17, take, &h));
    serve_caller_fini(&caller);
}

static void test_describing(void **state)
{
    json_t *messages = json_loads(
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":\"ok\"}]}]",
        0, NULL);
    json_t *tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]",
        0, NULL);
    char *text = NULL, *schema = NULL;
    (void)state;
    assert_non_null(messages);
    assert_true(serve_tools_describe(messages, tools, SERVE_TALK_WORDS, NULL, &text, &schema));
    json_t *got = json_loads(text, 0, NULL), *form = json_loads(schema, 0, NULL);
    assert_int_equal(json_array_size(got), 4);
    const char *system = json_string_value(json_object_get(json_array_get(got, 0), "content"));
    assert_ptr_equal(strstr(system, "Be brief."), system);
    assert_non_null(strstr(system, "\"name\":\"g\""));
    assert_string_equal(json_string_value(json_object_get(json_array_get(got, 2), "content")),
                        "{\"name\":\"f\",\"arguments\":{\"a\":1}}");
    assert_string_equal(json_string_value(json_object_get(json_array_get(got, 3), "role")), "user");
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(got, 3), "content")), "ok"));
    assert_int_equal(json_array_size(json_object_get(form, "anyOf")), 3);
    json_decref(form);
    json_decref(got);
    weir__mem_free(schema);
    weir__mem_free(text);
    assert_true(serve_tools_describe(messages, tools, SERVE_TALK_NONE, NULL, &text, &schema));
    assert_null(strstr(schema, "response"));
    weir__mem_free(schema);
    weir__mem_free(text);
    json_decref(tools);
    json_decref(messages);
}

/* References in schemas that stand in another one now. */
static void test_references(void **state)
{
    static const char given[] =
        "{\"$id\":\"x\",\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"$ref\":"
        "{\"const\":{\"$ref\":\"#\"}},\"default\":{\"$ref\":\"#/$defs/"
        "enum\"}},\"$defs\":{\"enum\":{},\"b\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}}}";
    static const char *const wanted[] = {
        "\"$ref\":\"#/anyOf/0/properties/arguments/$defs/b\"",
        "\"$ref\":\"#/anyOf/0/properties/arguments\"",
        "\"$ref\":\"#/anyOf/1/properties/response/$defs/b\"",
        "\"$ref\":\"#/anyOf/1/properties/response\"",
        "{\"const\":{\"$ref\":\"#\"}}",
        "\"default\":{\"$ref\":\"#/anyOf/0/properties/arguments/$defs/enum\"}"};
    json_t *messages = json_loads("[{\"role\":\"user\",\"content\":\"Hi\"}]", 0, NULL);
    json_t *form = json_loads(given, 0, NULL);
    json_t *tools = json_pack("[{s:{s:s,s:O}}]", "function", "name", "f", "parameters", form);
    char *text = NULL, *schema = NULL;
    (void)state;
    assert_non_null(tools);
    assert_true(serve_tools_describe(messages, tools, SERVE_TALK_FORM, form, &text, &schema));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strstr(schema, wanted[i]) == NULL) fail_msg("%s not in %s", wanted[i], schema);
    assert_null(strstr(schema, "$id"));
    assert_non_null(strstr(text, "JSON Schema"));
    weir__mem_free(schema);
    weir__mem_free(text);
    bool done = false;
    for (long n = 0; !done; n++) {
        weir__mem_fail_after(n);
        bool ok = serve_tools_describe(messages, tools, SERVE_TALK_FORM, form, &text, &schema);
        done = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(ok == done);
        if (!ok) continue;
        weir__mem_free(schema);
        weir__mem_free(text);
    }
    json_decref(tools);
    json_decref(form);
    json_decref(messages);
}

/* Every allocation fails once; what was half done is freed (the sanitizers look). */
static void test_no_memory(void **state)
{
    static const char text[] = "{\"name\": \"f\", \"arguments\": {\"a\": \"\\n\"}}";
    bool done = false;
    (void)state;
    for (long n = 0; !done; n++) {
        heard h = {0};
        serve_caller caller = {0};
        weir__mem_fail_after(n);
        bool ok = serve_caller_feed(&caller, text, sizeof text - 1, take, &h);
        done = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(ok || !done);
        serve_caller_fini(&caller);
        heard_fini(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),       cmocka_unit_test(test_words),
        cmocka_unit_test(test_other_texts), cmocka_unit_test(test_a_cut_call),
        cmocka_unit_test(test_refusal),     cmocka_unit_test(test_describing),
        cmocka_unit_test(test_forms),       cmocka_unit_test(test_references),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
