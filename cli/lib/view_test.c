/* view_test.c: the lines of an event, of a part of it, and of none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "text.h"
#include "view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TOTAL                                                                                                \
    ",\"total\":{\"submitted\":70,\"refused\":2,\"prompt_tokens\":6000,\"generated_tokens\":5000,"           \
    "\"ticks\":900,\"busy_seconds\":12.5,\"finished\":{\"end\":60,\"error\":0}}"

#define EVENT                                                                                                \
    "{\"ticks\":[{\"t_ms\":1,\"ms\":4.0,\"prefill\":0,\"decode\":2},{\"ms\":8.0}],"                          \
    "\"slots\":[{\"id\":0,\"state\":\"generating\",\"prompt\":120,\"done\":120,\"generated\":45,"            \
    "\"cached\":100,\"priority\":-1},{\"id\":1,\"state\":\"prefilling\",\"prompt\":200,\"done\":50,"         \
    "\"generated\":0,\"cached\":0,\"priority\":0},{\"id\":2,\"state\":\"idle\"}],"                           \
    "\"queue\":3,\"suspended\":1,\"kv\":{\"used\":1234,\"size\":4096},\"cache\":{\"entries\":12,"            \
    "\"bytes\":3400000,\"prompt_tokens\":18345,\"cached_tokens\":12345,\"hits\":0.6729},"                    \
    "\"rates\":{\"prefill\":1234.4,\"decode\":12.34},\"ttft_ms\":{\"p50\":45,\"p99\":120,\"lately\":false}," \
    "\"itl_ms\":{\"p50\":0.0,\"p99\":15,\"lately\":true},\"tpot_ms\":{\"p50\":3.1,\"p99\":4},\"model\":\"m." \
    "gguf\"" TOTAL "}"

static char *shown(const cli_text *marked, int columns)
{
    static cli_text text;
    weir__text_clear(&text);
    cli_mark_print(marked, columns, &text);
    return text.bytes;
}

static void test_lines(void **state)
{
    (void)state;
    cli_view view = {0};
    cli_text text = {0};
    cli_view_head(&view, 80, true, &text); /* nothing is known yet */
    cli_view_table(&view, 80, true, &text);
    assert_int_equal(text.n, 0);
    assert_true(cli_view_event(&view, EVENT, strlen(EVENT)));
    cli_view_head(&view, 80, true, &text);
    assert_string_equal(
        shown(&text, 0),
        "requests  2 running (1 reading, 1 writing), 3 waiting (1 suspended); 3 slots\n"
        "rates     12.3 tok/s written, 1,234 tok/s read\n"
        "latency   first token 45.0 / 120 ms so far  (p50 / p99)\n"
        "          per token 3.10 / 4.00 ms, between pieces - / 15.0 ms\n"
        "cells     ██████░░░░░░░░░░░░░░ 1,234 of 4,096\n"
        "cache     12 prompts kept, 3.4 MB of states; 12,345 of 18,345 prompt tokens found there\n"
        "ticks     ▄█ 8.00 ms, at most 8.00 ms\n"
        "so far    70 requests (60 end), 2 refused\n"
        "          5,000 tokens written, 6,000 read, in 900 ticks of 12.50 s\n");
    weir__text_clear(&text);
    cli_view_table(&view, 79, false, &text);
    assert_string_equal(shown(&text, 0), "slot  state            prompt  answer  cached  priority\n"
                                         "   0  generating          120      45     100        -1\n"
                                         "   1  prefilling       50/200       0       0         0\n");
    weir__text_clear(&text);
    cli_view_table(&view, 80, true, &text);
    assert_non_null(strstr(shown(&text, 0), "█████░░░░░░░░░░░░░░░\n   2  idle      \n"));
    weir__text_fini(&text);
    cli_view_fini(&view);
}

static void test_models(void **state)
{
    (void)state;
    static const char event[] =
        "{\"slots\":[],\"ticks\":[],\"models\":[{\"name\":\"coder\",\"state\":\"loaded\",\"bytes\":"
        "4700000000,"
        "\"pinned\":true,\"running\":2,\"waiting\":0},{\"name\":\"a/very-long-name-of-a-model:Q4_K_M\","
        "\"state\":\"sleeping\",\"bytes\":1200000000,\"pinned\":false,\"running\":0,\"waiting\":1},"
        "{\"name\":\"big\",\"state\":\"loading\",\"progress\":0.4,\"bytes\":0},{\"name\":\"bad\","
        "\"state\":\"failed\",\"error\":\"no such\\u001b[2J file\"},{},7,{\"name\":5,\"state\":[]}]}";
    cli_view view = {0};
    cli_text text = {0};
    assert_true(cli_view_event(&view, event, sizeof event - 1));
    cli_view_head(&view, 80, false, &text);
    const char *lines = shown(&text, 0);
    assert_non_null(
        strstr(lines, "models    coder                     loaded      4.7 GB  2 running  pinned\n"));
    assert_non_null(strstr(lines, "          a/very-long-name-of-a-m…  sleeping    1.2 GB  1 waiting\n"));
    assert_non_null(strstr(lines, "          big                       loading             40 %\n"));
    assert_non_null(strstr(lines, "  no such�[2J file\n"));
    weir__text_clear(&text);
    cli_view_fini(&view);
    cli_text many = {0};
    cli_text_puts(&many, "{\"slots\":[],\"ticks\":[],\"models\":[");
    for (int i = 0; i < 30; i++)
        cli_text_printf(&many, "%s{\"name\":\"m%d\",\"state\":\"unloaded\"}", i > 0 ? "," : "", i);
    cli_text_puts(&many, "]}");
    assert_true(cli_view_event(&view, many.bytes, many.n));
    cli_view_head(&view, 80, false, &text);
    assert_non_null(strstr(shown(&text, 0), "and 19 more"));
    assert_null(strstr(shown(&text, 0), "m11"));
    weir__text_fini(&many);
    weir__text_fini(&text);
    cli_view_fini(&view);
}

static void test_cut(void **state)
{
    (void)state;
    cli_view view = {0};
    cli_text text = {0};
    assert_true(cli_view_event(&view, EVENT, strlen(EVENT)));
    cli_view_head(&view, 80, true, &text);
    cli_view_table(&view, 80, true, &text);
    for (int columns = 1; columns < 100; columns++)
        for (const char *line = shown(&text, columns); *line != '\0';) {
            size_t n = strcspn(line, "\n");
            assert_true(cli_text_width(line, n) <= columns);
            assert_null(memchr(line, '\1', n));
            line += n + 1;
        }
    weir__text_fini(&text);
    cli_view_fini(&view);
}

static void test_json(void **state)
{
    (void)state;
    cli_view view = {0};
    assert_true(cli_view_event(&view, EVENT, strlen(EVENT)));
    json_t *json = cli_view_json(&view);
    json_t *total = json_object_get(json, "total");
    assert_int_equal(json_integer_value(json_object_get(json, "queue")), 3);
    assert_null(json_object_get(json, "rates"));
    assert_null(json_object_get(json, "ticks"));
    assert_int_equal(json_integer_value(json_object_get(total, "submitted")), 70);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(total, "finished"), "end")), 60);
    assert_true(json_real_value(json_object_get(total, "busy_seconds")) == 12.5);
    json_decref(json);
    cli_view_fini(&view);
}

static void test_invalid_events_change_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "[[",
                                      "{\"slots\":[]}",
                                      "{\"slots\":{},\"ticks\":[]}",
                                      "7",
                                      "\"x\"",
                                      "{\"slots\":[],\"ticks\":3}"};
    cli_view view = {0};
    cli_text text = {0};
    assert_true(cli_view_event(&view, EVENT, strlen(EVENT)));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cli_view_event(&view, bad[i], strlen(bad[i])));
    assert_int_equal(cli_view_n_slots(&view), 3); /* as before */
    static const char least[] = "{\"slots\":[],\"ticks\":[]}";
    assert_true(cli_view_event(&view, least, sizeof least - 1));
    cli_view_head(&view, 80, true, &text);
    cli_view_table(&view, 80, true, &text);
    assert_non_null(strstr(shown(&text, 0), "0 running, 0 waiting; 0 slots"));
    weir__text_fini(&text);
    cli_view_fini(&view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_invalid_events_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
