/* parser_templates_test.c: answers that end within their reasoning or within a call, and reasoning that
 * is ended early, with every template of the pin.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/parser.h"

#include <ctype.h>

#include "engine/reasoning.h"
#include "support/effort.h"

/* ---- Answers that end within their reasoning ---- */

/* Where the engine finds the prompt's end. */
static weir__reasoning_place place_of(const weir_chat *chat)
{
    weir__reasoning reasoning = {0};
    weir_request request = weir_request_default();
    assert_int_equal(weir__reasoning_init(&reasoning, model, &request, chat, NULL), WEIR_OK);
    weir__reasoning_place place = reasoning.place;
    weir__reasoning_fini(&reasoning);
    return place;
}

static const char *past_space(const char *text)
{
    return text + strspn(text, " \n");
}

/* Each beginning of the text gives the same answer whether it is read whole, byte by byte or in random
 * pieces. Where it ends between the places from and to, all behind `from` is reasoning. */
static void read_beginnings(weir_chat *chat, const char *name, const char *text, size_t from, size_t to)
{
    static answer whole, split;
    uint64_t seed = 5;
    for (size_t n = 0; n <= strlen(text); n += EFFORT(1, 7)) {
        char cut[512];
        assert_true(n < sizeof cut);
        snprintf(cut, n + 1, "%s", text);
        read_answer(chat, cut, n, NULL, &whole);
        read_answer(chat, cut, 0, NULL, &split);
        bool equal = same(&split, &whole, false);
        read_answer(chat, cut, n + 1, &seed, &split);
        equal = equal && same(&split, &whole, false);
        if (from <= n && n <= to) {
            const char *said = past_space(cut + from);
            equal = equal && whole.content[0] == '\0' &&
                    strncmp(past_space(whole.reasoning), said, strlen(said)) == 0;
        }
        if (equal) continue;
        show("whole", &whole);
        show("split", &split);
        fail_msg("%s: %s", name, cut);
    }
}

#define THOUGHT "Sum it, as 2 < 3"

/* The text between the end of reasoning and the content in this template's answers. */
static const char *before_content(const weir_chat *chat)
{
    const char *end = weir_chat_reasoning_end(chat);
    return strcmp(end, "<|end|>") == 0            ? "<|start|>assistant<|channel|>final<|message|>"
           : strcmp(end, "<|END_THINKING|>") == 0 ? "<|START_RESPONSE|>"
                                                  : "";
}

/* Answers that begin with reasoning. False: the model of this template does not open it. */
static bool read_own_beginnings(weir_chat *chat, const char *name)
{
    static answer a;
    const char *start = chat->reasoning.start;
    char text[512];
    size_t from = strlen(start), to = from + strlen(THOUGHT);
    if (from == 0) return false;
    snprintf(text, sizeof text, "%s" THOUGHT, start);
    read_answer(chat, text, 0, NULL, &a);
    if (a.reasoning[0] == '\0') return false; /* the prompt has ended it */
    snprintf(text, sizeof text, "%s" THOUGHT "%s%sIt is 4 </th", start, weir_chat_reasoning_end(chat),
             before_content(chat));
    read_beginnings(chat, name, text, from, to);
    return true;
}

/* The pieces of each beginning of each template's answers put together are the whole answer, and what comes
 * before the end of reasoning that the prompt or the model opens is reasoning. */
static void test_ends_within_reasoning(void **state)
{
    static const char *const texts[] = {"Sum <b> it.\n\nThen</think>\n\nIt is 4 </th",
                                        "<think>\nSum it.</think>It is 4.", "\n\n", "It is 4."};
    size_t n_templates = 0, n_open = 0, n_own = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk); n_templates++) {
        for (int with_tools = 0; with_tools < 2; with_tools++) {
            weir_error error = {0};
            weir_chat *chat = chat_tried(walk.name, with_tools, &error);
            if (chat == NULL) continue; /* it does not know tools */
            weir__reasoning_place place = place_of(chat);
            bool open = place == WEIR__REASONING_WITHIN;
            bool held =
                chat->constraint != NULL && !chat->grammar.lazy; /* these are no answers of its form */
            n_open += open;
            for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
                const char *end = strstr(texts[i], "</think>");
                size_t to =
                    end != NULL ? (size_t)(end - texts[i]) + strlen("</think>") - 1 : strlen(texts[i]);
                bool within = open && !held && texts[i][0] != '<';
                read_beginnings(chat, walk.name, texts[i], within ? 0 : SIZE_MAX, to);
            }
            if (!held && place == WEIR__REASONING_BEFORE) n_own += read_own_beginnings(chat, walk.name);
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu prompts that open reasoning, %zu whose answers do\n", n_templates,
                  n_open, n_own);
    assert_true(n_open > 0 && n_own > 0);
}

/* Reasoning is read beside tools as without them, even where weir's own form of calls forbids the text behind
 * it. */
static void test_reasoning_beside_tools(void **state)
{
    static const char *const texts[] = {"Sum <b> it.</think>\n\nIt is 4.",
                                        "<think>\nSum it.\n</think>\n\nIt is 4.", "It is 4."};
    static answer alone, beside;
    size_t n_templates = 0;
    bool good = true;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        weir_error error = {0};
        weir_chat *without = chat_tried(walk.name, false, &error),
                  *with = chat_tried(walk.name, true, &error);
        for (size_t i = 0; without != NULL && with != NULL && i < sizeof texts / sizeof *texts; i++) {
            read_answer(without, texts[i], 16, NULL, &alone);
            if (strcmp(past_space(alone.content), "It is 4.") != 0) continue;
            n_templates += i == 0;
            read_answer(with, texts[i], 16, NULL, &beside);
            if (strcmp(past_space(beside.content), "It is 4.") == 0) continue;
            print_message("%s: %s\n", walk.name, texts[i]);
            show("without tools", &alone);
            show("beside tools", &beside);
            good = false;
        }
        weir_chat_release(without);
        weir_chat_release(with);
    }
    print_message("%zu templates\n", n_templates);
    assert_true(good);
}

/* ---- Answers that break off within a call ---- */

#define ASKED "{\"role\":\"user\",\"content\":\"What is the weather in Paris?\"}"
#define CALLED                                                                                               \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"123456789\",\"type\":\"function\","  \
    "\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"Paris\\\"}\"}}]}"

static weir_chat *chat_of(const char *template, const char *messages, bool begins, weir_tool_choice choice)
{
    weir_chat_params params = weir_chat_params_default();
    char *source = pin_template(template);
    weir_chat *chat = NULL;
    params.messages_json = messages;
    params.template_source = source;
    params.tools_json = tools;
    params.tool_choice = choice;
    params.enable_thinking = false;
    params.add_generation_prompt = begins;
    if (weir_chat_create(model, &params, &chat, NULL) != WEIR_OK) chat = NULL;
    free(source);
    return chat;
}

/* A call as the template writes it, up to its last bracket or mark; false: it writes none that its parser
 * reads. */
static bool write_call(const char *template, weir_chat *chat, char text[1024])
{
    static answer a;
    weir_chat *told = chat_of(template, "[" ASKED "," CALLED "]", false, WEIR_TOOLS_AUTO);
    const char *all = told != NULL ? weir_chat_prompt(told, NULL) : "",
               *prompt = weir_chat_prompt(chat, NULL);
    size_t n = strlen(prompt), found = 0;
    bool begins = told != NULL && strncmp(all, prompt, n) == 0;
    snprintf(text, 1024, "%s", begins ? all + n : "");
    weir_chat_release(told);
    for (size_t k = strlen(text); k > 0 && found == 0; k--) {
        text[k] = '\0';
        read_answer(chat, text, k, NULL, &a);
        bool city =
            strstr(a.calls[0].arguments, "Paris") != NULL && strchr(a.calls[0].arguments, '}') != NULL;
        if (a.n_calls == 1 && city && past_space(a.content)[0] == '\0') found = k;
    }
    return found > 0;
}

static bool has_trigger(const weir_chat *chat, const char *text)
{
    for (size_t i = 0; i < chat->grammar.n_triggers; i++) {
        const char *word = chat->grammar.triggers[i].value;
        size_t n = strlen(word);
        while (n > 0 && isspace((unsigned char)word[n - 1])) n--;
        for (const char *at = text; (at = strchr(at, word[0])) != NULL; at++)
            if (strncmp(at, word, n) == 0) return true;
    }
    return false;
}

/* A call that a template writes is cut anywhere, where calls are required and where they are not. There it is
 * certain once the trigger of the grammar is complete. */
static void test_cut_templates(void **state)
{
    static answer a;
    size_t n_required = 0, n_auto = 0;
    uint64_t seed = 9;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        for (int required = 0; required < 2; required++) {
            char text[1024], cut[1024];
            weir_chat *chat =
                chat_of(walk.name, "[" ASKED "]", true, required ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO);
            if (chat == NULL || chat->calls || !write_call(walk.name, chat, text)) {
                weir_chat_release(chat);
                continue;
            }
            *(required ? &n_required : &n_auto) += 1;
            for (size_t n = 1; n < strlen(text); n += EFFORT(1, 5)) {
                memcpy(cut, text, n);
                cut[n] = '\0';
                read_cut(chat, cut, &seed, &a);
                bool certain = required || has_trigger(chat, cut);
                if (!certain || past_space(a.content)[0] == '\0') continue;
                show("read", &a);
                fail_msg("%s: %s", walk.name, cut);
            }
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu with a required call\n", n_auto, n_required);
    assert_true(n_auto > 5 && n_required > 5);
}

/* ---- Answers that are split ---- */

#define STEP EFFORT((size_t)7, (size_t)61)
#define CALL(id, city)                                                                                       \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"arguments\":"         \
    "\"{\\\"city\\\":\\\"" city "\\\",\\\"days\\\":2}\"}}"
#define SAYS(members) "[" ASKED ",{\"role\":\"assistant\"," members "}]"

/* What the template writes for the last message, from where the prompt ends or differs near its end, with the
 * end of the turn; false: nothing. */
static bool write_message(const char *template, const char *prompt, const char *messages, char text[2048])
{
    weir_chat *told = chat_of(template, messages, false, WEIR_TOOLS_AUTO);
    const char *all = told != NULL ? weir_chat_prompt(told, NULL) : "";
    size_t n = 0;
    while (prompt[n] != '\0' && prompt[n] == all[n]) n++;
    snprintf(text, 2048, "%s", strlen(prompt + n) < 24 ? all + n : "");
    weir_chat_release(told);
    return text[0] != '\0';
}

/* What a template writes for a message, with what follows it in the conversation, and cut anywhere, is the
 * same answer however it is split, even if the stream has already shown a call when text follows that no call
 * may have behind it. */
static void test_split_templates(void **state)
{
    static const char *const messages[] = {
        SAYS("\"content\":\"\",\"tool_calls\":[" CALL("123456789", "Paris") "]"),
        SAYS("\"content\":\"I look.\",\"tool_calls\":[" CALL("123456789", "Paris") "," CALL("a23456789",
                                                                                            "<b>") "]"),
        SAYS("\"content\":\"\",\"reasoning_content\":\"Hm <x>\",\"tool_calls\":[" CALL("123456789",
                                                                                       "Paris") "]"),
        SAYS("\"content\":\"It is {\\\"name\\\": 4} <b>.\",\"reasoning_content\":\"Hm\""),
    };
    static answer a;
    size_t n_templates = 0, n_texts = 0;
    uint64_t seed = 11;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk); n_templates++) {
        for (int required = 0; required < 2; required++) {
            weir_chat *chat =
                chat_of(walk.name, "[" ASKED "]", true, required ? WEIR_TOOLS_REQUIRED : WEIR_TOOLS_AUTO);
            for (size_t i = 0; chat != NULL && i < sizeof messages / sizeof *messages; i++) {
                char text[2048], cut[2048];
                if (!write_message(walk.name, weir_chat_prompt(chat, NULL), messages[i], text)) continue;
                n_texts++;
                for (size_t n = strlen(text); n > 0; n -= n < STEP ? n : STEP) {
                    snprintf(cut, n + 1, "%s", text);
                    read_cut(chat, cut, &seed, &a);
                }
            }
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu texts\n", n_templates, n_texts);
    assert_true(n_texts > 2 * n_templates);
}

/* ---- Answers whose reasoning is ended early ---- */

/* The end of the text, but for white space. */
static bool ends_as(const char *text, const char *wanted)
{
    const char *at = strstr(text, wanted);
    return at != NULL && *past_space(at + strlen(wanted)) == '\0';
}

/* The chat's answer that thinks, is ended, and says `said`. */
static void end_reasoning(weir_chat *chat, bool open, const char *said, char *text, size_t capacity,
                          answer *a)
{
    snprintf(text, capacity, "%s" THOUGHT "%s%s", open ? "" : chat->reasoning.start,
             weir_chat_reasoning_end(chat), said);
    read_answer(chat, text, 0, NULL, a);
}

/* True if the parser takes for reasoning what comes before the closing text, and for content what follows;
 * *exact: without the closing text, which is content in forms that have marks around content. never: the
 * prompt has ended the reasoning. */
static bool reads_ended(weir_chat *chat, bool open, bool never, bool *exact)
{
    static answer thought, read;
    char text[512], said[128];
    end_reasoning(chat, open, "", text, sizeof text, &thought);
    snprintf(said, sizeof said, "%sIt is 4.", before_content(chat));
    end_reasoning(chat, open, said, text, sizeof text, &read);
    *exact = never || strcmp(past_space(read.content), "It is 4.") == 0;
    bool good = never ? read.reasoning[0] == '\0'
                      : ends_as(thought.reasoning, THOUGHT) && ends_as(read.reasoning, THOUGHT) &&
                            ends_as(read.content, "It is 4.");
    if (good) return true;
    print_message("%s\n", text);
    show("thought", &thought);
    show("read", &read);
    return false;
}

/* The tokens of reasoning that the engine finds in the same answer, of one byte each. */
static int32_t count_ended(weir_chat *chat, weir__reasoning *reasoning, bool open)
{
    static answer read;
    char text[512];
    end_reasoning(chat, open, "It is 4, not <think>5.", text, sizeof text, &read);
    for (const char *at = text; *at != '\0'; at++)
        assert_true(weir__reasoning_take(reasoning, (unsigned char)*at, false));
    return weir__reasoning_n(reasoning);
}

/* The parser and the engine find the end of reasoning in the same place, for each template whose reasoning
 * can be ended. */
static void test_reasoning_that_is_ended(void **state)
{
    size_t n_templates = 0, n_open = 0, n_exact = 0;
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        for (int with_tools = 0; with_tools < 2; with_tools++) {
            weir_error error = {0};
            weir__reasoning reasoning = {0};
            weir_request request = weir_request_default();
            weir_chat *chat = chat_tried(walk.name, with_tools, &error);
            if (chat == NULL) continue; /* it does not know tools */
            assert_int_equal(weir__reasoning_init(&reasoning, model, &request, chat, NULL), WEIR_OK);
            bool open = reasoning.place == WEIR__REASONING_WITHIN, exact;
            bool never = reasoning.place == WEIR__REASONING_NEVER; /* the prompt has ended it */
            if (weir_chat_reasoning_end(chat)[0] != '\0') {
                if (!reads_ended(chat, open, never, &exact)) fail_msg("%s", walk.name);
                int32_t spaces = weir_chat_reasoning_end(chat)[0] == '\n'; /* before the mark */
                assert_in_range(count_ended(chat, &reasoning, open), never ? 0 : sizeof THOUGHT - 1,
                                never ? 0 : sizeof THOUGHT - 1 + (size_t)spaces);
                n_templates++;
                n_open += open;
                n_exact += exact;
            }
            weir__reasoning_fini(&reasoning);
            weir_chat_release(chat);
        }
    }
    print_message("%zu templates, %zu prompts that open reasoning, %zu with plain content\n", n_templates,
                  n_open, n_exact);
    assert_true(n_open > 0 ? n_exact * 10 > n_templates * 9 : n_templates == 0);
}

/* A template's marks may have any length; the engine compares those of WEIR__MARK_MAX bytes. */
static void test_long_marks(void **state)
{
    static const char *const parts[] = {
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
        "{{ m.reasoning_content }}\n</think",
        ">\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{%- if add_generation_prompt %}"
        "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking "
        "%}<think>\n\n</think",
        ">\n\n{% endif %}{% endif %}"};
    (void)state;
    if (strcmp(weir_backend_version(), "none") == 0) skip();
    for (int n = 0; n < 600; n += 50) {
        char source[4096], more[600];
        weir_chat_params params = weir_chat_params_default();
        weir_message message = {"user", "Hello"};
        weir_chat *chat = NULL;
        memset(more, 'k', (size_t)n);
        more[n] = '\0';
        snprintf(source, sizeof source, "%s%s%s%s%s", parts[0], more, parts[1], more, parts[2]);
        params.messages = &message;
        params.n_messages = 1;
        params.template_source = source;
        assert_int_equal(weir_chat_create(model, &params, &chat, NULL), WEIR_OK);
        assert_int_equal(weir_chat_reasoning_end(chat)[0] != '\0', n + 8 <= WEIR__MARK_MAX);
        weir_chat_release(chat);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_within_reasoning),   cmocka_unit_test(test_reasoning_beside_tools),
        cmocka_unit_test(test_cut_templates),           cmocka_unit_test(test_split_templates),
        cmocka_unit_test(test_reasoning_that_is_ended), cmocka_unit_test(test_long_marks),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
