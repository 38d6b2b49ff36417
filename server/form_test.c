/* form_test.c: the events of an answer with every kind of part, as each dialect writes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"

static serve_server server = {.name = "tiny"};

static bool take(serve_choice *choice, const weir_delta *delta)
{
    if (choice->answer->form->keeps && !serve_choice_keep(choice, delta)) return false;
    choice->answer->form->delta(choice, delta);
    return true;
}

static void pass(serve_choice *choice, weir_delta_kind kind, int32_t index, const char *text, const char *id)
{
    const weir_delta delta = {.kind = kind, .index = index, .text = text, .length = strlen(text), .id = id};
    assert_true(serve_choice_pass(choice, &delta, take));
}

/* A model that thinks, speaks, and calls two tools. */
static void play(serve_choice *choice)
{
    pass(choice, WEIR_DELTA_REASONING, -1, "hm", NULL);
    pass(choice, WEIR_DELTA_REASONING, -1, " \"so\"", NULL);
    pass(choice, WEIR_DELTA_CONTENT, -1, "Let me", NULL);
    pass(choice, WEIR_DELTA_CONTENT, -1, " see.", NULL);
    pass(choice, WEIR_DELTA_TOOL_CALL, 0, "weather", "call_1");
    pass(choice, WEIR_DELTA_ARGUMENTS, 0, "{\"town\":", NULL);
    pass(choice, WEIR_DELTA_ARGUMENTS, 0, "\"Ulm\"}", NULL);
    pass(choice, WEIR_DELTA_TOOL_CALL, 1, "clock", "call_2");
    pass(choice, WEIR_DELTA_ARGUMENTS, 1, "{}", NULL);
}

static serve_answer *begin(const serve_form *form, const char *id)
{
    serve_call *call = serve_call_create(&server, NULL);
    assert_non_null(call);
    serve_answer *answer = serve_answer_create(call, form, NULL, 1);
    assert_non_null(answer);
    call->answer = answer;
    snprintf(answer->id, sizeof answer->id, "%s", id);
    answer->created_s = 7;
    return answer;
}

static void end(serve_answer *answer, weir_reason reason)
{
    answer->choices[0].finished = true;
    answer->choices[0].reason = reason;
    answer->choices[0].usage = (weir_usage){.n_prompt = 9, .n_cached = 4, .n_generated = 5};
}

static void assert_events(serve_answer *answer, const char *wanted)
{
    const weir__text *out = &answer->call->out;
    assert_false(out->failed);
    assert_string_equal(out->bytes, wanted);
    serve_call_destroy(answer->call);
}

static void assert_whole(serve_answer *answer, const char *wanted)
{
    weir__text text = {0};
    answer->form->whole(answer, &text);
    assert_string_equal(text.bytes, wanted);
    weir__text_fini(&text);
    serve_call_destroy(answer->call);
}

static void play_events(serve_answer *answer)
{
    answer->form->start(answer);
    play(&answer->choices[0]);
    end(answer, WEIR_REASON_END);
    answer->form->end(&answer->choices[0]);
    answer->form->finish(answer);
}

static serve_answer *keep_all(serve_answer *answer)
{
    serve_choice *choice = &answer->choices[0];
    const weir_delta deltas[] = {
        {.kind = WEIR_DELTA_REASONING, .text = "hm", .length = 2},
        {.kind = WEIR_DELTA_CONTENT, .text = "Let", .length = 3},
        {.kind = WEIR_DELTA_CONTENT, .text = " me", .length = 3},
        {.kind = WEIR_DELTA_TOOL_CALL, .text = "weather", .length = 7, .id = "call_1"},
        {.kind = WEIR_DELTA_ARGUMENTS, .text = "{\"town\":", .length = 8},
        {.kind = WEIR_DELTA_ARGUMENTS, .text = "\"Ulm\"}", .length = 6},
        {.kind = WEIR_DELTA_CONTENT, .text = "Ok", .length = 2},
        {.kind = WEIR_DELTA_TOOL_CALL, .text = "clock", .length = 5, .id = "call_2"},
        {.kind = WEIR_DELTA_ARGUMENTS, .text = "{\"cut", .length = 5},
    };
    for (size_t i = 0; i < sizeof deltas / sizeof *deltas; i++)
        assert_true(serve_choice_pass(choice, &deltas[i], serve_choice_keep));
    end(answer, WEIR_REASON_LENGTH);
    return answer;
}

/* ---- Anthropic's Messages ---- */

#define EVENT(name, rest)        "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"
#define BLOCK(name, index, rest) EVENT("content_block_" name, ",\"index\":" #index rest)
#define DELTA(index, type, member, value)                                                                    \
    BLOCK("delta", index, ",\"delta\":{\"type\":\"" type "\",\"" member "\":\"" value "\"}")

static void test_messages(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_messages_form, "msg_1");
    play_events(answer);
    assert_events(
        answer,
        EVENT("message_start",
              ",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"tiny\","
              "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":0,"
              "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0}}")
            BLOCK("start", 0,
                  ",\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}")
                DELTA(0, "thinking_delta", "thinking", "hm") DELTA(
                    0, "thinking_delta", "thinking", " \\\"so\\\"") DELTA(0, "signature_delta", "signature",
                                                                          "") BLOCK("stop", 0, "")
                    BLOCK("start", 1, ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}") DELTA(
                        1, "text_delta", "text", "Let me") DELTA(1, "text_delta", "text", " see.")
                        BLOCK("stop", 1, "") BLOCK("start", 2,
                                                   ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_"
                                                   "1\",\"name\":\"weather\",\"input\":{}}")
                            DELTA(2, "input_json_delta", "partial_json", "{\\\"town\\\":") DELTA(
                                2, "input_json_delta", "partial_json", "\\\"Ulm\\\"}") BLOCK("stop", 2, "")
                                BLOCK("start", 3,
                                      ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_2\",\"name\":"
                                      "\"clock\",\"input\":{}}")
                                    DELTA(3, "input_json_delta", "partial_json", "{}") BLOCK("stop", 3, "")
                                        EVENT("message_delta",
                                              ",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":"
                                              "null},\"usage\":{\"input_tokens\":5,"
                                              "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":"
                                              "4,\"output_tokens\":5}") EVENT("message_stop", ""));
    assert_whole(
        keep_all(begin(&serve_messages_form, "msg_2")),
        "{\"id\":\"msg_2\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"tiny\",\"content\":["
        "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"Let "
        "me\"},{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"weather\",\"input\":{\"town\":\"Ulm\"}},"
        "{\"type\":\"text\",\"text\":\"Ok\"},{\"type\":\"tool_use\",\"id\":\"call_2\",\"name\":\"clock\","
        "\"input\":{}}],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":5,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":5}}");
}

static void test_messages_without_text(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_messages_form, "msg_1");
    end(answer, WEIR_REASON_END);
    answer->form->end(&answer->choices[0]);
    answer->form->finish(answer);
    assert_events(
        answer,
        EVENT(
            "message_delta",
            ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":5,"
            "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":5}")
            EVENT("message_stop", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_without_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
