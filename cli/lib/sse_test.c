/* sse_test.c: events and answers in pieces of any size, and broken ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sse.h"

/* ---- Streams and their events ---- */

static const struct {
    const char *bytes;
    size_t n;            /* 0 = up to the NUL */
    const char *events;  /* each event's data followed by '|' */
    const char *problem; /* NULL = well-formed */
    bool complete;
} streams[] = {
    {"", 0, "", NULL, true},
    {"data: a\n\n", 0, "a|", NULL, true},
    {"data:a\n\n", 0, "a|", NULL, true},
    {"data:  a\n\n", 0, " a|", NULL, true}, /* one blank belongs to the field */
    {"data: a\r\n\r\n", 0, "a|", NULL, true},
    {"data: a\r\rdata: b\n\r\n", 0, "a|b|", NULL, true},
    {"data: a\n\r", 0, "a|", NULL, true},
    {"data: a\r\ndata: b\r\n\r\n", 0, "a\nb|", NULL, true},
    {"data: a\ndata: b\n\n", 0, "a\nb|", NULL, true},
    {"data\n\n", 0, "|", NULL, true},
    {"data: a\ndata\ndata:\n\n", 0, "a\n\n|", NULL, true},
    {"\xef\xbb\xbf"
     "data: a\n\n",
     0, "a|", NULL, true},
    {"\n\xef\xbb\xbf"
     "data: a\n\n",
     0, "", "a line is not a field of an event stream", false},
    {": comment\n\n:\n\ndata: a\n:x\n\n", 0, "a|", NULL, true},
    {"event: x\nid: 1\nretry: 10\ndata: a\n\n", 0, "a|", NULL, true},
    {"event: x\n\ndata: a\n\n", 0, "a|", NULL, true}, /* an event without data is none */
    {"\n\n\n", 0, "", NULL, true},
    {"data: a", 0, "", NULL, false},
    {"data: a\n", 0, "", NULL, false},
    {"data: a\n\nid: 1\n", 0, "a|", NULL, false},
    {"data: a\n\n: half a comment", 0, "a|", NULL, false},
    {"retry: \ndata: a\n\n", 0, "", "retry is not a number", false},
    {"retry: 1x\ndata: a\n\n", 0, "", "retry is not a number", false},
    {"Data: a\n\n", 0, "", "a line is not a field of an event stream", false},
    {"data : a\n\n", 0, "", "a line is not a field of an event stream", false},
    {"<html>\n", 0, "", "a line is not a field of an event stream", false},
    {"data: a\n\n{\"x\":1}\n\ndata: b\n\n", 0, "a|", "a line is not a field of an event stream", false},
    {"data: \xff\n\n", 0, "", "a line is not UTF-8", false},
    {"data: \xed\xa0\x80\n\n", 0, "", "a line is not UTF-8", false},
    {"data: a\0b\n\n", 11, "", "a line has a NUL byte", false},
    {"data: \xe6\x97\xa5\n\n", 0, "\xe6\x97\xa5|", NULL, true},
};

static bool collect(const char *data, size_t length, void *user)
{
    char *seen = user;
    assert_int_equal(strlen(data), length);
    strcat(strcat(seen, data), "|");
    return true;
}

static void test_streams(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        size_t n = streams[i].n > 0 ? streams[i].n : strlen(streams[i].bytes);
        for (size_t piece = 1; piece <= n + 1; piece++) { /* in pieces of every size */
            char seen[256] = "";
            cli_sse sse = {0};
            for (size_t at = 0; at < n; at += piece)
                cli_sse_feed(&sse, streams[i].bytes + at, n - at < piece ? n - at : piece, collect, seen);
            assert_string_equal(seen, streams[i].events);
            assert_int_equal(sse.status, streams[i].problem != NULL ? CLI_SSE_MALFORMED : CLI_SSE_OK);
            if (streams[i].problem != NULL) assert_string_equal(sse.problem, streams[i].problem);
            assert_int_equal(cli_sse_complete(&sse), streams[i].complete);
            cli_sse_fini(&sse);
        }
    }
}

static bool leave_at_once(const char *data, size_t length, void *user)
{
    (void)data;
    (void)length;
    ++*(int *)user;
    return false;
}

static void test_leaving(void **state)
{
    (void)state;
    cli_sse sse = {0};
    int n = 0;
    static const char two[] = "data: a\n\ndata: b\n\n";
    assert_int_equal(cli_sse_feed(&sse, two, sizeof two - 1, leave_at_once, &n), CLI_SSE_LEFT);
    assert_int_equal(cli_sse_feed(&sse, two, sizeof two - 1, leave_at_once, &n), CLI_SSE_LEFT);
    assert_int_equal(n, 1);
    cli_sse_fini(&sse);
}

/* Lines and events are bounded, wherever the bytes are cut. */
static void test_limits(void **state)
{
    (void)state;
    static char line[CLI_SSE_MAX / 2];
    memset(line, 'x', sizeof line);
    char seen[8] = "";
    cli_sse sse = {0};
    cli_sse_feed(&sse, "data: ", 6, collect, seen);
    cli_sse_feed(&sse, line, sizeof line, collect, seen);
    assert_int_equal(sse.status, CLI_SSE_OK);
    assert_int_equal(cli_sse_feed(&sse, line, sizeof line, collect, seen), CLI_SSE_MALFORMED);
    assert_string_equal(sse.problem, "a line is longer than 1 MiB");
    cli_sse_fini(&sse);
    for (int i = 0; i < 3 && sse.status == CLI_SSE_OK; i++) {
        cli_sse_feed(&sse, "data: ", 6, collect, seen);
        cli_sse_feed(&sse, line, sizeof line, collect, seen);
        cli_sse_feed(&sse, "\n", 1, collect, seen);
    }
    assert_string_equal(sse.problem, "an event is longer than 1 MiB");
    cli_sse_fini(&sse);
}

static void test_no_memory(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long fail = 0;; fail++) {
        char seen[16] = "";
        cli_sse sse = {0};
        weir__mem_fail_after(fail);
        cli_sse_status status = cli_sse_feed(&sse, "data: a\n\n", 9, collect, seen);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? CLI_SSE_OK : CLI_SSE_NO_MEMORY);
        cli_sse_fini(&sse);
        if (pending) break;
    }
    assert_int_equal(weir__mem_live(), live);
}

/* ---- Answers ---- */

static const struct {
    const char *data;
    bool plain;
    cli_answer_kind kind;
    const char *text, *finish, *message; /* NULL = none */
    int n_prompt, n_generated, n_cached; /* -2 = no usage */
} answers[] = {
    {"[DONE]", false, CLI_ANSWER_DONE, NULL, NULL, NULL, -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}", false, CLI_ANSWER_PIECE, "Hi",
     NULL, NULL, -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}", false, CLI_ANSWER_PIECE, NULL,
     NULL, NULL, -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"content\":\"\"}}]}", false, CLI_ANSWER_PIECE, NULL, NULL, NULL, -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}", false, CLI_ANSWER_PIECE, "hm", NULL, NULL,
     -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]}}]}", false,
     CLI_ANSWER_PIECE, "{", NULL, NULL, -2, 0, 0},
    {"{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}", false, CLI_ANSWER_PIECE, NULL, "stop", NULL,
     -2, 0, 0},
    {"{\"choices\":[{\"text\":\"Hi\",\"finish_reason\":\"length\"}]}", true, CLI_ANSWER_PIECE, "Hi", "length",
     NULL, -2, 0, 0},
    {"{\"choices\":[{\"text\":\"Hi\"}]}", false, CLI_ANSWER_MALFORMED, NULL, NULL, "a choice has no delta",
     -2, 0, 0},
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}", false, CLI_ANSWER_PIECE,
     NULL, NULL, NULL, 3, 2, -1},
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"prompt_tokens_details\":{"
     "\"cached_tokens\":1}}}",
     false, CLI_ANSWER_PIECE, NULL, NULL, NULL, 3, 2, 1},
    {"{\"choices\":[],\"usage\":null}", false, CLI_ANSWER_PIECE, NULL, NULL, NULL, -2, 0, 0},
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":2}}", false, CLI_ANSWER_MALFORMED,
     NULL, NULL, "usage has no prompt_tokens and completion_tokens", -2, 0, 0},
    {"{\"choices\":[],\"usage\":{\"prompt_tokens\":3.5,\"completion_tokens\":2}}", false,
     CLI_ANSWER_MALFORMED, NULL, NULL, "usage has no prompt_tokens and completion_tokens", -2, 0, 0},
    {"{\"error\":{\"message\":\"no\",\"code\":500}}", false, CLI_ANSWER_ERROR, NULL, NULL, "no", -2, 0, 0},
    {"{\"error\":\"no\"}", false, CLI_ANSWER_ERROR, NULL, NULL, "no", -2, 0, 0},
    {"{\"error\":{}}", false, CLI_ANSWER_ERROR, NULL, NULL, "an error without a message", -2, 0, 0},
    {"{\"error\":null,\"choices\":[]}", false, CLI_ANSWER_PIECE, NULL, NULL, NULL, -2, 0, 0},
    {"{}", false, CLI_ANSWER_MALFORMED, NULL, NULL, "an event has no choices", -2, 0, 0},
    {"[]", false, CLI_ANSWER_MALFORMED, NULL, NULL, "an event's data is not an object", -2, 0, 0},
    {"", false, CLI_ANSWER_MALFORMED, NULL, NULL, "an event's data is not JSON", -2, 0, 0},
    {"[DONE] ", false, CLI_ANSWER_MALFORMED, NULL, NULL, "an event's data is not JSON", -2, 0, 0},
    {"{\"choices\":[{\"delta\":{\"content\":1}}]}", false, CLI_ANSWER_MALFORMED, NULL, NULL,
     "a choice's text is not a string", -2, 0, 0},
    {"{\"choices\":[{\"delta\":{},\"finish_reason\":1}]}", false, CLI_ANSWER_MALFORMED, NULL, NULL,
     "finish_reason is not a string", -2, 0, 0},
    {"{\"choices\":[{\"delta\":{}},{\"delta\":{}}]}", false, CLI_ANSWER_MALFORMED, NULL, NULL,
     "an event has more choices than the one that was asked for", -2, 0, 0},
    {"{\"choices\":[1]}", true, CLI_ANSWER_MALFORMED, NULL, NULL, "a choice is not an object", -2, 0, 0},
};

static void assert_text(const char *got, const char *expected)
{
    if (expected == NULL)
        assert_null(got);
    else
        assert_string_equal(got, expected);
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        cli_answer answer;
        cli_answer_read(&answer, answers[i].data, strlen(answers[i].data), answers[i].plain);
        assert_int_equal(answer.kind, answers[i].kind);
        assert_text(answer.text, answers[i].text);
        assert_int_equal(answer.n_text, answers[i].text != NULL ? strlen(answers[i].text) : 0);
        assert_text(answer.finish, answers[i].finish);
        assert_string_equal(answer.message, answers[i].message != NULL ? answers[i].message : "");
        assert_int_equal(answer.has_usage, answers[i].n_prompt != -2);
        if (answer.has_usage) {
            assert_int_equal(answer.n_prompt, answers[i].n_prompt);
            assert_int_equal(answer.n_generated, answers[i].n_generated);
            assert_int_equal(answer.n_cached, answers[i].n_cached);
        }
        cli_answer_fini(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_leaving), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
