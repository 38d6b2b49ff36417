/* Answers with calls, read in pieces: against jansson, which writes them and reads the results.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/calls.h"
#include "support/dice.h"

#define ROUNDS 2000

typedef struct bytes {
    char *bytes;
    size_t n, capacity;
} bytes;

/* Appends bytes in memory that is not weir's: it does not run out where weir's does. */
static void add(bytes *to, const char *more, size_t n)
{
    to->bytes = realloc(to->bytes, to->n + n + 1);
    assert_non_null(to->bytes);
    memcpy(to->bytes + to->n, more, n);
    to->n += n;
    to->bytes[to->n] = '\0';
}

static void bytes_fini(bytes *b)
{
    free(b->bytes);
    *b = (bytes){0};
}

typedef struct heard {
    bytes name, arguments, content;
    int n_calls;
    bool form; /* responses are JSON */
} heard;

static bool take(void *user, const weir_delta *delta)
{
    heard *h = user;
    bytes *to = delta->kind == WEIR_DELTA_TOOL_CALL   ? &h->name
                : delta->kind == WEIR_DELTA_ARGUMENTS ? &h->arguments
                                                      : &h->content;
    assert_true(delta->length > 0 && weir__utf8_valid(delta->text, delta->length));
    assert_true(delta->kind != WEIR_DELTA_ARGUMENTS || h->n_calls == 1); /* the head comes first */
    h->n_calls += delta->kind == WEIR_DELTA_TOOL_CALL;
    add(to, delta->text, delta->length);
    return true;
}

static void heard_fini(heard *h)
{
    bytes_fini(&h->name);
    bytes_fini(&h->arguments);
    bytes_fini(&h->content);
}

/* Reads the text in pieces of up to `most` bytes and the rest of a character. */
static void read_in_pieces(dice *d, const char *text, int32_t most, heard *h)
{
    weir__chat_calls_reader reader = {.form = h->form};
    size_t n = strlen(text), used;
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = (size_t)dice_in(d, 1, most);
        if (piece > n - at) piece = n - at;
        while (((unsigned char)text[at + piece] & 0xC0) == 0x80) piece++;
        assert_true(weir__chat_calls_feed(&reader, text + at, piece, take, h, &used));
        assert_int_equal(used, piece);
    }
    assert_true(weir__chat_calls_end(&reader, take, h));
    weir__chat_calls_fini(&reader);
}

static json_t *random_string(dice *d)
{
    static const char *const parts[] = {"a",  "\"", "\\", "{", "}",    "]", "\n",
                                        "\t", "é",  "日", "😀", "\x01", " ", "/"};
    bytes text = {0};
    add(&text, "", 0);
    for (int32_t i = dice_in(d, 0, 12); i > 0; i--) {
        const char *part = parts[dice_in(d, 0, (int32_t)(sizeof parts / sizeof *parts) - 1)];
        add(&text, part, strlen(part));
    }
    json_t *string = json_stringn(text.bytes, text.n);
    bytes_fini(&text);
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

/* JSON of any form: the result is the same JSON. Calls are read as before. */
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

/* Any other answer comes out unchanged, also when it ends early. */
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
        {"{\"resp", ""}, /* the frame is no content */
        {"{\"rasp", "{\"rasp"},
        {"{\"response\": \"a", "a"},
        {"", ""},
        {"日本", "日本"},
        {"{\"response\": \"a\\é \\u00é \\\"}", "a\\é \\u00é \"}"},
        {"{ é", "{ é"},
        {"{\"\": 1}", "{\"\": 1}"},
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
    for (size_t n = 1; n < strlen("{\"name\": \"f\""); n++) {
        char cut[sizeof text] = "";
        memcpy(cut, text, n);
        read_in_pieces(&d, cut, 3, &h);
        assert_int_equal(h.n_calls, 0);
        assert_int_equal(h.content.n, 0);
    }
    read_in_pieces(&d, text, 3, &h);
    assert_string_equal(h.name.bytes, "f");
    assert_string_equal(h.arguments.bytes, "{\"a\": [1, 2");
    assert_int_equal(h.content.n, 0);
    heard_fini(&h);
}

/* The receiver refuses one delta after the other: text that was read is not read again, and the rest is not
 * lost. */
typedef struct unwilling {
    heard heard;
    int n_refused, n_left; /* takes until it refuses */
} unwilling;

static bool take_some(void *user, const weir_delta *delta)
{
    unwilling *u = user;
    if (u->n_left-- > 0) return take(&u->heard, delta);
    u->n_refused++;
    u->n_left = 1;
    return false;
}

static void test_refusal(void **state)
{
    static const char *const texts[][4] = {
        {"{\"response\": \"a\\n\\u00e9b\"}", "", "",
         "a\né"
         "b"},
        {"{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "f", "{\"a\": 1}", ""},
        {"{\"what\": 1}", "", "", "{\"what\": 1}"},
        {" 5", "", "", " 5"},
        {"{\"nu", "", "", "{\"nu"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        unwilling u = {.n_left = 0};
        weir__chat_calls_reader reader = {0};
        size_t n = strlen(texts[i][0]), at = 0, used;
        while (!weir__chat_calls_feed(&reader, texts[i][0] + at, n - at, take_some, &u, &used)) at += used;
        assert_int_equal(at + used, n);
        while (!weir__chat_calls_end(&reader, take_some, &u)) {
        }
        assert_true(u.n_refused > 0);
        assert_string_equal(u.heard.name.n > 0 ? u.heard.name.bytes : "", texts[i][1]);
        assert_string_equal(u.heard.arguments.n > 0 ? u.heard.arguments.bytes : "", texts[i][2]);
        assert_string_equal(u.heard.content.n > 0 ? u.heard.content.bytes : "", texts[i][3]);
        weir__chat_calls_fini(&reader);
        heard_fini(&u.heard);
    }
}

/* ---- Describing ---- */

/* The library's own reader of tools_json, which is built without llama.cpp, too. */
static weir_status describe(const char *messages, const char *tools_json, weir__chat_calls_talk talk,
                            const char *form, json_t **described, char **schema, weir_error *error)
{
    static const weir__schema_terms terms = {.where = "json_schema", .tag = "w"};
    weir__chat_tools tools;
    json_t *list = NULL, *form_json = form != NULL ? json_loads(form, 0, NULL) : NULL;
    const weir_chat_params params = {.messages_json = messages, .tools_json = tools_json};
    weir_status status = weir__chat_messages(&params, &list, error);
    if (status != WEIR_OK) goto out;
    status = weir__chat_tools_init(&params, &tools, error);
    if (status == WEIR_OK)
        status =
            weir__chat_calls_describe(list, &tools, talk, false, form_json, &terms, described, schema, error);
    weir__chat_tools_fini(&tools);
out:
    json_decref(form_json);
    json_decref(list);
    return status;
}

static void test_describing(void **state)
{
    static const char messages[] =
        "[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":\"ok\"},"
        "{\"type\":\"text\",\"text\":\"so far\"}]}]";
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]";
    json_t *got = NULL;
    char *schema = NULL;
    (void)state;
    assert_int_equal(describe(messages, tools, WEIR__TALK_WORDS, NULL, &got, &schema, NULL), WEIR_OK);
    json_t *form = json_loads(schema, 0, NULL);
    assert_int_equal(json_array_size(got), 4);
    const char *system = json_string_value(json_object_get(json_array_get(got, 0), "content"));
    assert_ptr_equal(strstr(system, "Be brief."), system);
    assert_non_null(strstr(system, "{\"name\":\"g\"}"));
    assert_string_equal(json_string_value(json_object_get(json_array_get(got, 2), "content")),
                        "{\"name\":\"f\",\"arguments\":{\"a\":1}}");
    assert_string_equal(json_string_value(json_object_get(json_array_get(got, 3), "role")), "user");
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(got, 3), "content")), "ok\nso far"));
    assert_int_equal(json_array_size(json_object_get(form, "anyOf")), 3);
    json_decref(form);
    json_decref(got);
    weir__mem_free(schema);
    assert_int_equal(describe(messages, tools, WEIR__TALK_NONE, NULL, &got, &schema, NULL), WEIR_OK);
    assert_null(strstr(schema, "response"));
    json_decref(got);
    weir__mem_free(schema);
    /* Arguments are an object, whatever a schema that is not strict says. */
    static const char *const types[] = {"{\"type\":\"string\"}", "true", "{\"description\":\"x\"}",
                                        "{\"type\":[\"object\",\"null\"]}"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char other[200];
        snprintf(other, sizeof other, "[{\"function\":{\"name\":\"f\",\"parameters\":%s}}]", types[i]);
        assert_int_equal(describe(messages, other, WEIR__TALK_NONE, NULL, &got, &schema, NULL), WEIR_OK);
        form = json_loads(schema, 0, NULL);
        const json_t *call = json_object_get(json_array_get(json_object_get(form, "anyOf"), 0), "properties");
        const json_t *type = json_object_get(json_object_get(call, "arguments"), "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "object") != 0)
            fail_msg("%s: %s", types[i], schema);
        json_decref(form);
        json_decref(got);
        weir__mem_free(schema);
    }
}

/* A developer's message is a system message, and text beside calls stays. */
static void test_describing_keeps_texts(void **state)
{
    static const char messages[] =
        "[{\"role\":\"developer\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Hi\"},"
        "{\"role\":\"assistant\",\"content\":\"Let me see.\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]";
    json_t *got = NULL;
    char *schema = NULL;
    (void)state;
    assert_int_equal(
        describe(messages, "[{\"function\":{\"name\":\"f\"}}]", WEIR__TALK_WORDS, NULL, &got, &schema, NULL),
        WEIR_OK);
    assert_int_equal(json_array_size(got), 3);
    const char *system = json_string_value(json_object_get(json_array_get(got, 0), "content"));
    assert_ptr_equal(strstr(system, "Be brief."), system);
    assert_string_equal(json_string_value(json_object_get(json_array_get(got, 2), "content")),
                        "Let me see.\n{\"name\":\"f\",\"arguments\":{}}");
    json_decref(got);
    weir__mem_free(schema);
}

#define USER "[{\"role\":\"user\",\"content\":\"Hi\"}]"

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
    char tools[1024], *schema = NULL;
    json_t *got = NULL;
    weir_error error = {0};
    (void)state;
    snprintf(tools, sizeof tools, "[{\"function\":{\"name\":\"f\",\"parameters\":%s}}]", given);
    if (describe(USER, tools, WEIR__TALK_FORM, given, &got, &schema, &error) != WEIR_OK)
        fail_msg("%s: %s", error.field, error.message);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strstr(schema, wanted[i]) == NULL) fail_msg("%s not in %s", wanted[i], schema);
    assert_null(strstr(schema, "$id"));
    const char *system = json_string_value(json_object_get(json_array_get(got, 0), "content"));
    assert_non_null(strstr(system, "JSON Schema"));
    json_decref(got);
    weir__mem_free(schema);
    bool done = false;
    for (long n = 0; !done; n++) {
        weir__mem_fail_after(n);
        weir_status status = describe(USER, tools, WEIR__TALK_FORM, given, &got, &schema, NULL);
        done = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, done ? WEIR_OK : WEIR_NO_MEMORY);
    }
    json_decref(got);
    weir__mem_free(schema);
}

/* A schema that cannot be met is refused by its place, though the others could be. */
static void test_schemas_that_nothing_satisfies(void **state)
{
    static const char tools[] =
        "[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/l\"}},\"required\":[\"a\"],\"$defs\":{\"l\":{"
        "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/l\"},\"minItems\":1}}}}}]";
    static const char form[] = "{\"$ref\":\"#/$defs/l\",\"$defs\":{\"l\":{\"type\":\"array\",\"items\":"
                               "{\"$ref\":\"#/$defs/l\"},\"minItems\":1}}}";
    json_t *got = NULL;
    char *schema = NULL;
    weir_error error = {0};
    (void)state;
    assert_int_equal(describe(USER, tools, WEIR__TALK_WORDS, NULL, &got, &schema, &error), WEIR_GRAMMAR);
    assert_string_equal(error.field, "/1/function/parameters");
    assert_int_equal(
        describe(USER, "[{\"function\":{\"name\":\"f\"}}]", WEIR__TALK_FORM, form, &got, &schema, &error),
        WEIR_GRAMMAR);
    assert_string_equal(error.field, "json_schema");
}

/* Every allocation fails once; the rest is given again, and nothing is lost or read twice. */
static void test_no_memory(void **state)
{
    static const char text[] = "{\"name\": \"f\", \"arguments\": {\"a\": \"\\n\"}}";
    bool done = false;
    (void)state;
    for (long n = 0; !done; n++) {
        heard h = {0};
        weir__chat_calls_reader reader = {0};
        size_t at = 0, used;
        weir__mem_fail_after(n);
        bool ok = weir__chat_calls_feed(&reader, text, sizeof text - 1, take, &h, &used);
        done = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(ok == done);
        at = used;
        if (!ok)
            assert_true(weir__chat_calls_feed(&reader, text + at, sizeof text - 1 - at, take, &h, &used));
        assert_string_equal(h.name.bytes, "f");
        assert_string_equal(h.arguments.bytes, "{\"a\": \"\\n\"}");
        weir__chat_calls_fini(&reader);
        heard_fini(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_other_texts),
        cmocka_unit_test(test_a_cut_call),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_describing),
        cmocka_unit_test(test_describing_keeps_texts),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_schemas_that_nothing_satisfies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
