/* marks_test.c: the places of messages' texts in prompts, random ones among them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/marks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"

/* The marks of messages in a prompt, whatever a template makes of them: [role] text, with the role as it
 * is. */
static weir__chat_mark *marks_of(const char *messages_json, const char *prompt, size_t *n)
{
    json_t *messages = json_loads(messages_json, 0, NULL);
    assert_non_null(messages);
    *n = json_array_size(messages);
    weir__chat_mark *marks = weir__chat_marks(messages, prompt, strlen(prompt));
    json_decref(messages);
    assert_non_null(marks);
    return marks;
}

/* The message at the first place where the prompt has `what`, plus `beyond` bytes. */
static int32_t at(const weir__chat_mark *marks, size_t n, const char *prompt, const char *what, size_t beyond,
                  bool *within)
{
    const char *place = strstr(prompt, what);
    assert_non_null(place);
    return weir__chat_mark_at(marks, n, (size_t)(place - prompt) + beyond, within);
}

static void test_texts_are_found(void **state)
{
    (void)state;
    static const char prompt[] =
        "<tools>[]</tools>[system]Be brief.[user]What is a weir?[assistant]A dam.[user]"
        "Why?[assistant]";
    size_t n;
    bool within;
    weir__chat_mark *marks =
        marks_of("[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                 "{\"role\":\"user\",\"content\":\"What is a weir?\\n\"},"
                 "{\"role\":\"assistant\",\"content\":\"A dam.\"},"
                 "{\"role\":\"user\",\"content\":[{\"type\":\"media_marker\",\"text\":\"q1m0e\"},"
                 "{\"type\":\"text\",\"text\":\"Why?\"}]}]",
                 prompt, &n);
    assert_int_equal(at(marks, n, prompt, "<tools>", 3, &within), 0);
    assert_false(within);
    assert_int_equal(at(marks, n, prompt, "Be brief", 0, &within), 0);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "Be brief.", 9, &within),
                     1); /* its end is the next one's beginning */
    assert_false(within);
    assert_int_equal(at(marks, n, prompt, "a weir", 0, &within), 1);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "dam", 0, &within), 2);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "Why", 0, &within), 3);
    assert_true(within);
    assert_int_equal(weir__chat_mark_at(marks, n, strlen(prompt), &within), 4);
    assert_false(within);
    assert_string_equal(marks[0].role, "system");
    assert_string_equal(marks[3].role, "user");
    weir__mem_free(marks);
}

/* A text in several parts reaches from the first one to the last, whatever the template puts between them. */
static void test_parts(void **state)
{
    (void)state;
    static const char prompt[] = "[system]id: 1\n\nBe brief.[user]hi";
    size_t n;
    bool within;
    weir__chat_mark *marks =
        marks_of("[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"id: 1\"},"
                 "{\"type\":\"text\",\"text\":\"Be brief.\\n\"}]},"
                 "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"},"
                 "{\"type\":\"text\",\"text\":\"left out\"}]},"
                 "{\"role\":\"user\",\"content\":\"hi\"}]",
                 prompt, &n);
    assert_int_equal(at(marks, n, prompt, "[system]", 2, &within), 0);
    assert_false(within);
    assert_int_equal(at(marks, n, prompt, "id: 1", 4, &within), 0);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "\n\n", 1, &within), 0);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "brief", 1, &within), 0);
    assert_true(within);
    assert_false(marks[1].found);
    assert_int_equal(at(marks, n, prompt, "hi", 1, &within), 2);
    assert_true(within);
    weir__mem_free(marks);
}

/* A text that can lie in several places is reported only if all of them give the same message. */
static void test_doubt(void **state)
{
    (void)state;
    static const char prompt[] = "[user]hi[assistant]hi, this is it[user]more";
    size_t n;
    bool within;
    weir__chat_mark *marks = marks_of("[{\"role\":\"user\",\"content\":\"hi\"},"
                                      "{\"role\":\"assistant\",\"content\":\"is\"},"
                                      "{\"role\":\"user\",\"content\":\"more\"}]",
                                      prompt, &n);
    assert_int_equal(weir__chat_mark_at(marks, n, 2, &within), 0);
    assert_int_equal(at(marks, n, prompt, "[assistant]", 5, &within), -1);
    assert_int_equal(at(marks, n, prompt, "more", 1, &within), 2);
    assert_true(within);
    weir__mem_free(marks);
}

/* Messages without a text, or whose text the template leaves out, are stepped over. */
static void test_missing_texts_are_stepped_over(void **state)
{
    (void)state;
    static const char prompt[] = "[user]one[assistant]{call}[tool]three[user]four";
    size_t n;
    bool within;
    weir__chat_mark *marks = marks_of("[{\"role\":\"user\",\"content\":\"one\"},"
                                      "{\"role\":\"assistant\",\"content\":null},"
                                      "{\"role\":\"tool\",\"content\":\"three\"},"
                                      "{\"role\":\"a very long role that nobody has\",\"content\":\"four\"},"
                                      "{\"role\":\"user\",\"content\":\"left out\"}]",
                                      prompt, &n);
    assert_int_equal(at(marks, n, prompt, "{call}", 2, &within), 1);
    assert_false(within);
    assert_int_equal(at(marks, n, prompt, "three", 2, &within), 2);
    assert_true(within);
    assert_int_equal(at(marks, n, prompt, "four", 2, &within), 3);
    assert_true(within);
    assert_string_equal(marks[3].role, "");
    assert_int_equal(weir__chat_mark_at(marks, n, strlen(prompt), &within), 4);
    assert_false(marks[4].found);
    weir__mem_free(marks);
    marks = marks_of("[]", "", &n);
    assert_int_equal(weir__chat_mark_at(marks, 0, 0, &within), 0);
    weir__mem_free(marks);
}

/* Texts that are not there take a walk through the prompt each: after many of them nothing is looked for. */
static void test_walks_in_vain_have_an_end(void **state)
{
    (void)state;
    const size_t length = 1 << 20;
    char *prompt = malloc(length + 1);
    assert_non_null(prompt);
    memset(prompt, '.', length);
    memcpy(prompt + length - 5, "there", 6);
    for (int n = 10; n <= 1000; n *= 100) {
        json_t *messages = json_array();
        for (int i = 0; i <= n; i++)
            json_array_append_new(
                messages, json_pack("{s:s, s:s}", "role", "user", "content", i < n ? "nowhere" : "there"));
        weir__chat_mark *marks = weir__chat_marks(messages, prompt, length);
        assert_non_null(marks);
        assert_false(marks[0].found);
        assert_int_equal(marks[n].found, n == 10);
        assert_string_equal(marks[n].role, "user");
        weir__mem_free(marks);
        json_decref(messages);
    }
    free(prompt);
}

/* The report is right, or there is none, for texts that are rendered here, so that the place of each is
 * known. */
static void test_random_texts(void **state)
{
    (void)state;
    uint64_t seed = dice_environment("WEIR_TEST_SEED", 7), n_told = 0, n_asked = 0;
    print_message("WEIR_TEST_SEED=%llu\n", (unsigned long long)seed);
    dice d = {seed};
    for (int world = 0; world < 300; world++) {
        char prompt[2048] = "";
        size_t from[16], to[16], n = (size_t)dice_in(&d, 1, 12), length = 0;
        json_t *messages = json_array();
        for (size_t i = 0; i < n; i++) {
            char text[48];
            size_t size = (size_t)dice_in(&d, 1, dice_one_in(&d, 2) ? 3 : 40);
            for (size_t k = 0; k < size; k++) text[k] = (char)('a' + dice_in(&d, 0, 3));
            text[size] = '\0';
            prompt[length++] = '[';
            prompt[length++] = "abu"[dice_in(&d, 0, 2)];
            prompt[length++] = ']';
            from[i] = length;
            memcpy(prompt + length, text, size);
            to[i] = length += size;
            json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", text));
        }
        weir__chat_mark *marks = weir__chat_marks(messages, prompt, length);
        assert_non_null(marks);
        for (size_t i = 0; i < n; i++) {
            assert_true(marks[i].found && marks[i].from <= from[i] && from[i] <= marks[i].last_from);
            assert_int_equal(marks[i].to - marks[i].from, to[i] - from[i]);
        }
        for (size_t byte = 0; byte < length; byte++, n_asked++) {
            size_t is = 0;
            bool within;
            while (is < n && to[is] <= byte) is++;
            int32_t told = weir__chat_mark_at(marks, n, byte, &within);
            if (told < 0) continue;
            n_told++;
            assert_int_equal(told, is);
            if (within) assert_true(is < n && byte >= from[is]);
        }
        weir__mem_free(marks);
        json_decref(messages);
    }
    assert_true(n_told > n_asked / 3);
}

static void test_without_memory(void **state)
{
    (void)state;
    json_t *messages =
        json_loads("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"bc\"}]", 0, NULL);
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__mem_fail_after(n);
        weir__chat_mark *marks = weir__chat_marks(messages, "[a][bc]", 7);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(marks != NULL, pending);
        weir__mem_free(marks);
        assert_int_equal(weir__mem_live(), live);
        if (pending) break;
    }
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_found),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_missing_texts_are_stepped_over),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_walks_in_vain_have_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
