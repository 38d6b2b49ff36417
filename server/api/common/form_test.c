/* form_test.c: the events of an answer with every kind of part, as each dialect writes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "ask.h"
#include "base/mem.h"
#include "call_end.h"
#include "server/api/anthropic/anthropic.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/openai.h"
#include "server/models/model.h"
#include "server/request/call.h"
#include "support/jansson.h"

static serve_server server;
static serve_model model = {.name = "tiny", .n_holders = 1};

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
    call->model = serve_model_hold(&model);
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
    answer->choices[0].usage = (weir_usage){.n_prompt = 9,
                                            .n_cached = 4,
                                            .n_generated = 5,
                                            .n_reasoning = 2,
                                            .queue_ns = 10,
                                            .ttft_ns = 30,
                                            .total_ns = 90};
}

/* The events come in two halves: C has a limit for literals. */
static void assert_events(serve_answer *answer, const char *wanted, const char *rest)
{
    const weir__text *out = &answer->call->out;
    assert_false(out->failed);
    assert_int_equal(strncmp(out->bytes, wanted, strlen(wanted)), 0);
    assert_string_equal(out->bytes + strlen(wanted), rest);
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
    if (answer->form->start != NULL) answer->form->start(answer);
    play(&answer->choices[0]);
    end(answer, WEIR_REASON_END);
    answer->form->end(&answer->choices[0]);
    if (answer->form->finish != NULL) answer->form->finish(answer);
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

#define MESSAGE_DELTA(reason)                                                                                \
    EVENT("message_delta",                                                                                   \
          ",\"delta\":{\"stop_reason\":\"" reason                                                            \
          "\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":5,"                                        \
          "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":5,"             \
          "\"output_tokens_details\":{\"thinking_tokens\":2}}")

/* clang-format off */
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
        BLOCK("start", 0, ",\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}")
        DELTA(0, "thinking_delta", "thinking", "hm")
        DELTA(0, "thinking_delta", "thinking", " \\\"so\\\"")
        DELTA(0, "signature_delta", "signature", "")
        BLOCK("stop", 0, "")
        BLOCK("start", 1, ",\"content_block\":{\"type\":\"text\",\"text\":\"\"}")
        DELTA(1, "text_delta", "text", "Let me")
        DELTA(1, "text_delta", "text", " see.")
        BLOCK("stop", 1, ""),
        BLOCK("start", 2,
              ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"weather\",\"input\":{}}")
        DELTA(2, "input_json_delta", "partial_json", "{\\\"town\\\":")
        DELTA(2, "input_json_delta", "partial_json", "\\\"Ulm\\\"}")
        BLOCK("stop", 2, "")
        BLOCK("start", 3,
              ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_2\",\"name\":\"clock\",\"input\":{}}")
        DELTA(3, "input_json_delta", "partial_json", "{}")
        BLOCK("stop", 3, "")
        MESSAGE_DELTA("tool_use")
        EVENT("message_stop", ""));
    assert_whole(
        keep_all(begin(&serve_messages_form, "msg_2")),
        "{\"id\":\"msg_2\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"tiny\",\"content\":["
        "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"Let "
        "me\"},{\"type\":\"tool_use\",\"id\":\"call_1\",\"name\":\"weather\",\"input\":{\"town\":\"Ulm\"}},"
        "{\"type\":\"text\",\"text\":\"Ok\"}],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":5,"
        "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":5,"
        "\"output_tokens_details\":{\"thinking_tokens\":2}}}");
}

static void test_messages_without_text(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_messages_form, "msg_1");
    end(answer, WEIR_REASON_END);
    answer->form->end(&answer->choices[0]);
    answer->form->finish(answer);
    assert_events(answer, MESSAGE_DELTA("end_turn"), EVENT("message_stop", ""));
}
/* clang-format on */

/* ---- OpenAI's Responses ---- */

#define NUMBERED(number, name, rest)                                                                         \
    "event: response." name "\ndata: {\"type\":\"response." name "\",\"sequence_number\":" #number rest      \
    "}\n\n"
#define ITEM(number, name, index, item)                                                                      \
    NUMBERED(number, "output_item." name, ",\"output_index\":" #index ",\"item\":" item)
#define CONTENT(number, name, kind, index, rest)                                                             \
    NUMBERED(number, name,                                                                                   \
             ",\"item_id\":\"" kind "_1_" #index "\",\"output_index\":" #index ",\"content_index\":0" rest)
#define ARGUMENTS(number, name, index, rest)                                                                 \
    NUMBERED(number, "function_call_arguments." name,                                                        \
             ",\"item_id\":\"fc_1_" #index "\",\"output_index\":" #index rest)
#define REASONING(index, status, content)                                                                    \
    "{\"id\":\"rs_1_" #index "\",\"type\":\"reasoning\",\"status\":\"" status                                \
    "\",\"summary\":[],\"content\":[" content "]}"
#define MESSAGE(index, status, content)                                                                      \
    "{\"id\":\"msg_1_" #index "\",\"type\":\"message\",\"status\":\"" status                                 \
    "\",\"role\":\"assistant\",\"content\":[" content "]}"
#define CALL(index, status, id, name, arguments)                                                             \
    "{\"id\":\"fc_1_" #index "\",\"type\":\"function_call\",\"status\":\"" status "\",\"call_id\":\"" id     \
    "\",\"name\":\"" name "\",\"arguments\":\"" arguments "\"}"
#define THOUGHT(text) "{\"type\":\"reasoning_text\",\"text\":\"" text "\"}"
#define TEXT(text)    "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define RESPONSE(status, output, details, usage)                                                             \
    "{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":7,\"status\":\"" status                       \
    "\",\"model\":\"tiny\",\"output\":[" output "],\"error\":null,\"incomplete_details\":" details           \
    ",\"usage\":" usage "}"
#define USAGE                                                                                                \
    "{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":4,\"cache_write_tokens\":0},"           \
    "\"output_tokens\":5,\"output_tokens_details\":{\"reasoning_tokens\":2},\"total_tokens\":14}"
#define THINKING "hm \\\"so\\\""
#define TOWN     "{\\\"town\\\":\\\"Ulm\\\"}"

/* clang-format off */
static void test_responses(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_responses_form, "resp_1");
    play_events(answer);
    assert_events(
        answer,
        NUMBERED(0, "created", ",\"response\":" RESPONSE("in_progress", "", "null", "null"))
        NUMBERED(1, "in_progress", ",\"response\":" RESPONSE("in_progress", "", "null", "null"))
        ITEM(2, "added", 0, REASONING(0, "in_progress", ""))
        CONTENT(3, "content_part.added", "rs", 0, ",\"part\":" THOUGHT(""))
        CONTENT(4, "reasoning_text.delta", "rs", 0, ",\"delta\":\"hm\"")
        CONTENT(5, "reasoning_text.delta", "rs", 0, ",\"delta\":\" \\\"so\\\"\"")
        CONTENT(6, "reasoning_text.done", "rs", 0, ",\"text\":\"" THINKING "\"")
        CONTENT(7, "content_part.done", "rs", 0, ",\"part\":" THOUGHT(THINKING))
        ITEM(8, "done", 0, REASONING(0, "completed", THOUGHT(THINKING)))
        ITEM(9, "added", 1, MESSAGE(1, "in_progress", ""))
        CONTENT(10, "content_part.added", "msg", 1, ",\"part\":" TEXT(""))
        CONTENT(11, "output_text.delta", "msg", 1, ",\"delta\":\"Let me\",\"logprobs\":[]")
        CONTENT(12, "output_text.delta", "msg", 1, ",\"delta\":\" see.\",\"logprobs\":[]")
        CONTENT(13, "output_text.done", "msg", 1, ",\"text\":\"Let me see.\",\"logprobs\":[]")
        CONTENT(14, "content_part.done", "msg", 1, ",\"part\":" TEXT("Let me see."))
        ITEM(15, "done", 1, MESSAGE(1, "completed", TEXT("Let me see."))),
        ITEM(16, "added", 2, CALL(2, "in_progress", "call_1", "weather", ""))
        ARGUMENTS(17, "delta", 2, ",\"delta\":\"{\\\"town\\\":\"")
        ARGUMENTS(18, "delta", 2, ",\"delta\":\"\\\"Ulm\\\"}\"")
        ARGUMENTS(19, "done", 2, ",\"name\":\"weather\",\"arguments\":\"" TOWN "\"")
        ITEM(20, "done", 2, CALL(2, "completed", "call_1", "weather", TOWN))
        ITEM(21, "added", 3, CALL(3, "in_progress", "call_2", "clock", ""))
        ARGUMENTS(22, "delta", 3, ",\"delta\":\"{}\"")
        ARGUMENTS(23, "done", 3, ",\"name\":\"clock\",\"arguments\":\"{}\"")
        ITEM(24, "done", 3, CALL(3, "completed", "call_2", "clock", "{}"))
        NUMBERED(25, "completed",
                 ",\"response\":" RESPONSE("completed",
                                           REASONING(0, "completed", THOUGHT(THINKING)) ","
                                           MESSAGE(1, "completed", TEXT("Let me see.")) ","
                                           CALL(2, "completed", "call_1", "weather", TOWN) ","
                                           CALL(3, "completed", "call_2", "clock", "{}"),
                                           "null", USAGE)));
    assert_whole(keep_all(begin(&serve_responses_form, "resp_1")),
                 RESPONSE("incomplete",
                          REASONING(0, "completed", THOUGHT("hm")) ","
                          MESSAGE(1, "completed", TEXT("Let me")) ","
                          CALL(2, "completed", "call_1", "weather", TOWN) ","
                          MESSAGE(3, "completed", TEXT("Ok")) ","
                          CALL(4, "incomplete", "call_2", "clock", "{\\\"cut"),
                          "{\"reason\":\"max_output_tokens\"}", USAGE));
}
/* clang-format on */

/* ---- Ollama's chats ---- */

#define OLLAMA_LINE(rest)    "{\"model\":\"tiny\",\"created_at\":\"1970-01-01T00:00:07Z\"" rest "}"
#define OLLAMA_MESSAGE(rest) ",\"message\":{\"role\":\"assistant\",\"content\":" rest "}"
#define OLLAMA_TEXT(rest)    OLLAMA_LINE(OLLAMA_MESSAGE(rest) ",\"done\":false") "\n"
#define OLLAMA_CALL(id, index, name, arguments)                                                              \
    "{\"id\":\"" id "\",\"function\":{\"index\":" #index ",\"name\":\"" name "\",\"arguments\":" arguments   \
    "}}"
#define OLLAMA_END(reason)                                                                                   \
    ",\"done\":true,\"done_reason\":\"" reason                                                               \
    "\",\"total_duration\":90,\"load_duration\":0,\"prompt_eval_count\":9,\"prompt_eval_duration\":20,"      \
    "\"eval_count\":5,\"eval_duration\":60,\"reasoning_tokens\":2"

/* clang-format off */
static void test_ollama(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_ollama_chat_form, "ollama-1");
    play_events(answer);
    assert_events(answer,
                  OLLAMA_TEXT("\"\",\"thinking\":\"hm\"")
                  OLLAMA_TEXT("\"\",\"thinking\":\" \\\"so\\\"\"")
                  OLLAMA_TEXT("\"Let me\"")
                  OLLAMA_TEXT("\" see.\""),
                  OLLAMA_TEXT("\"\",\"tool_calls\":[" OLLAMA_CALL("call_1", 0, "weather", "{\"town\":\"Ulm\"}") "]")
                  OLLAMA_TEXT("\"\",\"tool_calls\":[" OLLAMA_CALL("call_2", 1, "clock", "{}") "]")
                  OLLAMA_LINE(OLLAMA_MESSAGE("\"\"") OLLAMA_END("stop")) "\n");
    assert_whole(keep_all(begin(&serve_ollama_chat_form, "ollama-1")),
                 OLLAMA_LINE(OLLAMA_MESSAGE("\"Let meOk\",\"thinking\":\"hm\",\"tool_calls\":["
                                            OLLAMA_CALL("call_1", 0, "weather", "{\"town\":\"Ulm\"}") "]")
                             OLLAMA_END("length")));
}

static void test_ollama_fails(void **state)
{
    (void)state;
    serve_answer *answer = begin(&serve_ollama_chat_form, "ollama-1");
    pass(&answer->choices[0], WEIR_DELTA_CONTENT, -1, "Let", NULL);
    end(answer, WEIR_REASON_ERROR);
    (answer->form->fail)(
        answer, &(serve_failure){.status = 503, .code = "stopped", .message = "the server is going down"});
    assert_events(answer, OLLAMA_TEXT("\"Let\""),
                  "{\"error\":\"the server is going down\",\"param\":null,\"code\":\"stopped\"}\n");
}
/* clang-format on */

/* Memory runs out at each place in turn: the text written before is still there, and nothing else. */
static void test_responses_without_memory(void **state)
{
    (void)state;
    long n_failed = 0;
    for (bool pending = false; !pending; n_failed++) {
        serve_answer *answer = begin(&serve_responses_form, "resp_1");
        serve_choice *choice = &answer->choices[0];
        const weir_delta call = {
            .kind = WEIR_DELTA_TOOL_CALL, .text = "towns.weather", .length = 13, .id = "call_1"};
        answer->namespaces = json_pack("[s]", "towns");
        pass(choice, WEIR_DELTA_CONTENT, -1, "Let me", NULL);
        weir__mem_fail_after(n_failed);
        bool kept = serve_choice_pass(choice, &call, serve_choice_keep);
        pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_true(kept == pending);
        end(answer, WEIR_REASON_ERROR);
        (answer->form->fail)(answer, &(serve_failure){.status = 503, .message = "out of memory"});
        weir__text_add(&answer->call->out, "", 1);
        assert_non_null(strstr(answer->call->out.bytes, "\"text\":\"Let me\""));
        assert_true(kept == (strstr(answer->call->out.bytes,
                                    "\"namespace\":\"towns\",\"name\":\"weather\"") != NULL));
        assert_true(kept == (strstr(answer->call->out.bytes, "function_call") != NULL));
        serve_call_destroy(answer->call);
    }
    assert_true(n_failed > 2);
}

/* The input of a custom tool is what its arguments say, or there is no memory for it. */
static void test_custom_input_without_memory(void **state)
{
    (void)state;
    static const char arguments[] = "{\"input\": \"a\\n\\u00e4\\\"b\"}", expected[] = "a\n\xc3\xa4\"b";
    int n_failed = 0;
    for (long n = 0; n < 40; n++)
        for (int jansson = 0; jansson < 2; jansson++) {
            weir__text given = {0}, input = {0};
            size_t at = 0;
            weir__text_add_string(&given, arguments);
            json_set_alloc_funcs(failing_malloc, free);
            if (jansson)
                allocations_left = n;
            else
                weir__mem_fail_after(n);
            serve_ask_custom_input(&given, &at, &input);
            weir__mem_fail_after(-1);
            allocations_left = -1;
            json_set_alloc_funcs(malloc, free);
            n_failed += input.failed;
            if (!input.failed) {
                assert_int_equal(input.n, sizeof expected - 1);
                assert_memory_equal(input.bytes, expected, input.n);
            }
            weir__text_fini(&given);
            weir__text_fini(&input);
        }
    assert_true(n_failed > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_custom_input_without_memory),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_messages_without_text),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_responses_without_memory),
        cmocka_unit_test(test_ollama),
        cmocka_unit_test(test_ollama_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
