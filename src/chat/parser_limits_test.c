/* parser_limits_test.c: answers as large as parsers take them, and a little larger.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/parser.h"

#include <sys/resource.h>

/* The content that comes out before the end of an answer. */
static void read_content(weir_chat *chat, const char *begin, const char *rest, char content[512])
{
    weir_delta d;
    weir_chat_parser *parser = NULL;
    content[0] = '\0';
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser, begin, WEIR_NUL, false, NULL), WEIR_OK);
    assert_int_equal(weir_chat_parser_feed(parser, rest, WEIR_NUL, false, NULL), WEIR_OK);
    while (weir_chat_parser_next(parser, &d) == WEIR_OK) {
        assert_int_equal(d.kind, WEIR_DELTA_CONTENT);
        assert_true(strlen(content) + d.length < 512);
        strcat(content, d.text);
    }
    weir_chat_parser_destroy(parser);
}

/* Text that cannot belong to the form any longer is held back for 256 bytes and a fiftieth of it, which no
 * parse looks at; then it is content. */
static void test_patience(void **state)
{
    (void)state;
    static const char begin[] = "<tool_call>\nn";
    char rest[264], whole[512], content[512];
    weir_chat *chat = chat_with("Qwen-Qwen2.5-7B-Instruct", true);
    if (chat == NULL) skip();
    memset(rest, '.', sizeof rest);
    rest[255] = '\0';
    read_content(chat, begin, rest, content);
    assert_string_equal(content, "");
    rest[255] = '.';
    rest[sizeof rest - 1] = '\0';
    read_content(chat, begin, rest, content);
    snprintf(whole, sizeof whole, "%s%s", begin, rest);
    assert_memory_equal(content, whole, sizeof begin - 1 + 256);
    weir_chat_release(chat);
}

/* Ids of up to 255 bytes are the model's own. */
static void test_long_ids(void **state)
{
    (void)state;
    char text[512], id[257];
    weir_delta d = {0};
    weir_chat *chat = chat_with("moonshotai-Kimi-K2", true);
    if (chat == NULL) skip();
    for (int n = 255; n <= 256; n++) {
        weir_chat_parser *parser = NULL;
        snprintf(id, sizeof id, "functions.get_weather:%0*d", n - 22, 7);
        snprintf(
            text, sizeof text,
            "<|tool_calls_section_begin|><|tool_call_begin|>%s<|tool_call_argument_begin|>{\"city\":\"\"}"
            "<|tool_call_end|><|tool_calls_section_end|>",
            id);
        assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
        assert_int_equal(weir_chat_parser_feed(parser, text, WEIR_NUL, true, NULL), WEIR_OK);
        assert_int_equal(weir_chat_parser_next(parser, &d), WEIR_OK);
        assert_int_equal(d.kind, WEIR_DELTA_TOOL_CALL);
        if (n < 256)
            assert_string_equal(d.id, id);
        else
            assert_int_equal(strlen(d.id), 9);
        weir_chat_parser_destroy(parser);
    }
    weir_chat_release(chat);
}

/* A call with n brackets in all, to be freed. */
static char *call_with(size_t n)
{
    static const char begin[] = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"",
                      end[] = "\"}}\n</tool_call>";
    char *text = malloc(n + sizeof begin + sizeof end);
    assert_non_null(text);
    strcpy(text, begin);
    memset(text + sizeof begin - 1, '[', n - 2);
    strcpy(text + sizeof begin - 1 + n - 2, end);
    return text;
}

/* True if a complete call is read from it, and no memory for it. */
static bool is_read(weir_chat *chat, size_t n, weir_status *status)
{
    weir_delta d = {0};
    weir_chat_parser *parser = NULL;
    char *text = call_with(n);
    bool complete = false;
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    *status = weir_chat_parser_feed(parser, text, WEIR_NUL, true, NULL);
    while (weir_chat_parser_next(parser, &d) == WEIR_OK)
        complete =
            d.kind == WEIR_DELTA_ARGUMENTS && d.length > 2 && strcmp(d.text + d.length - 2, "\"}") == 0;
    weir_chat_parser_destroy(parser);
    free(text);
    return complete;
}

/* More than 64 brackets need a thread with more stack, and for more than 20,000 no stack is enough. */
static void test_brackets(void **state)
{
    (void)state;
    weir_status status;
    weir_chat *chat = chat_with("Qwen-Qwen2.5-7B-Instruct", true);
    if (chat == NULL) skip();
    assert_true(is_read(chat, 20000, &status));
    assert_false(is_read(chat, 20001, &status));
    assert_int_equal(status, WEIR_OK);
#ifndef WEIR_SANITIZED
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    none = before;
    none.rlim_cur = 1 << 20;                 /* no more memory than there is */
    assert_true(is_read(chat, 64, &status)); /* which is enough for this */
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    bool on_own_stack = is_read(chat, 64, &status);
    bool complete = is_read(chat, 65, &status);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(on_own_stack);
    assert_false(complete);
    assert_int_equal(status, WEIR_NO_MEMORY);
#endif
    weir_chat_release(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_long_ids),
        cmocka_unit_test(test_brackets),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
