/* SPDX-License-Identifier: Apache-2.0 */
#include "support/engine/engine.h"

/* ---- Asking ---- */

/* The chat of these messages under the salt, answered with one token; returns its miss. */
static weir_miss_info ask(rig *r, const char *salt, const weir_message *messages, size_t n, int32_t *n_cached)
{
    weir_error error = {0};
    weir_chat_params params = weir_chat_params_default();
    weir_chat *chat = NULL;
    weir_request request = weir_request_default();
    params.messages = messages;
    params.n_messages = n;
    if (weir_chat_create(r->model, &params, &chat, &error) != WEIR_OK) fail_msg("%s", error.message);
    request.chat = chat;
    request.cache_salt = salt;
    request.sampler = &r->greedy;
    request.max_tokens = 1;
    weir_stream *stream = rig_submit(r, &request);
    weir_miss_info before = {.size = sizeof before}, miss = before;
    assert_int_equal(weir_stream_miss(stream, &before), WEIR_OK);
    assert_int_equal(before.miss, WEIR_MISS_NONE);
    rig_run(r);
    assert_int_equal(weir_stream_miss(stream, &miss), WEIR_OK);
    weir_usage usage = weir_stream_usage(stream);
    assert_int_equal(usage.miss, miss.miss);
    if (n_cached != NULL) *n_cached = usage.n_cached;
    weir_chat_release(chat);
    return miss;
}

static void start(rig *r)
{
    r->params.n_ctx = 512;
    r->params.n_slots = 2;
    r->params.layout = WEIR_LAYOUT_UNIFIED;
    r->params.cache_sequences = -1;
    rig_start(r);
}

#define ASK_COUNTED(r, salt, n_cached, ...)                                                                  \
    ask(r, salt, (const weir_message[]){__VA_ARGS__},                                                        \
        sizeof((const weir_message[]){__VA_ARGS__}) / sizeof(weir_message), n_cached)
#define ASK(r, ...) ASK_COUNTED(r, "a secret", NULL, __VA_ARGS__)

static void assert_says(const weir_miss_info *miss, const char *part)
{
    char text[512];
    size_t n = weir_miss_text(miss, text, sizeof text);
    assert_int_equal(n, strlen(text));
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* ---- Tests ---- */

static void test_which_message_and_why(void **state)
{
    rig *r = *state;
    start(r);
    weir_miss_info miss = ASK(r, {"system", "Be kind. Today is 2026-11-21."}, {"user", "What is a weir?"});
    assert_int_equal(miss.miss, WEIR_MISS_COLD);
    assert_int_equal(miss.message, -1);
    assert_string_equal(miss.role, "");
    assert_says(&miss, "no cached text has the same beginning");

    miss = ASK(r, {"system", "Be kind. Today is 2026-11-22."}, {"user", "What is a weir?"});
    assert_int_equal(miss.miss, WEIR_MISS_DIVERGED);
    assert_int_equal(miss.message, 0);
    assert_true(miss.in_message);
    assert_string_equal(miss.role, "system");
    assert_string_equal(miss.line, "Be kind. Today is 2026-11-2");
    assert_non_null(strstr(miss.prompt, "11-22"));
    assert_non_null(strstr(miss.cached, "11-21"));
    assert_says(&miss, "in message 0 (system)");
    assert_says(&miss, "11-21");

    miss = ASK(r, {"system", "Be kind. Today is 2026-11-22."}, {"user", "What is a dam?"});
    assert_int_equal(miss.miss, WEIR_MISS_DIVERGED);
    assert_int_equal(miss.message, 1);
    assert_true(miss.in_message);
    assert_string_equal(miss.role, "user");

    /* another role: before the message's text */
    miss = ASK(r, {"system", "Be kind. Today is 2026-11-22."}, {"tool", "What is a dam?"});
    assert_int_equal(miss.miss, WEIR_MISS_DIVERGED);
    assert_int_equal(miss.message, 1);
    assert_false(miss.in_message);
    assert_string_equal(miss.line, "");
    assert_string_equal(miss.role, "tool");
    assert_says(&miss, "before message 1 (tool)");

    miss = ASK(r, {"system", "Be kind. Today is 2026-11-22."}, {"user", "What is a dam?"});
    assert_int_equal(miss.miss, WEIR_MISS_NONE);
    char text[8];
    assert_int_equal(weir_miss_text(&miss, text, sizeof text), 0);
    assert_string_equal(text, "");
}

/* Own text alone: not a word of the cached one, and no more matched tokens than usage has cached ones. */
static void assert_own(const weir_miss_info *miss, int32_t n_cached)
{
    char text[512];
    assert_string_equal(miss->cached, "");
    assert_string_equal(miss->line, "");
    assert_true(miss->n_matched <= n_cached);
    weir_miss_text(miss, text, sizeof text);
    assert_null(strstr(text, "11-21"));
}

/* Any caller may have sent the cached text where there is no salt, or an empty one. */
static void test_without_a_salt_only_own_words(void **state)
{
    rig *r = *state;
    static const char *const salts[] = {NULL, ""};
    for (int i = 0; i < 2; i++) {
        int32_t n_cached;
        rig_stop(r);
        start(r);
        ASK_COUNTED(r, NULL, &n_cached, {"system", "Be kind. Today is 2026-11-21."},
                    {"user", "What is a weir?"});
        weir_miss_info miss = ASK_COUNTED(r, salts[i], &n_cached, {"system", "Be kind. Today is 2026-11-22."},
                                          {"user", "What is a weir?"});
        assert_int_equal(miss.miss, WEIR_MISS_DIVERGED);
        assert_int_equal(miss.n_matched, n_cached);
        assert_int_equal(miss.message, 0);
        assert_true(miss.in_message);
        assert_string_equal(miss.role, "system");
        assert_non_null(strstr(miss.prompt, "11-22"));
        assert_own(&miss, n_cached);
        assert_says(&miss, "in message 0 (system); now \"");
        assert_says(&miss, "cache_salt");
    }
}

/* The texts of another salt are not even there, and of those without a salt only the fact is told. */
static void test_another_salt_has_other_texts(void **state)
{
    rig *r = *state;
    int32_t n_cached;
    start(r);
    ASK(r, {"system", "Be kind. Today is 2026-11-21."}, {"user", "What is a weir?"});
    weir_miss_info miss = ASK_COUNTED(r, "another", &n_cached, {"system", "Be kind. Today is 2026-11-22."},
                                      {"user", "What is a weir?"});
    assert_int_equal(miss.miss, WEIR_MISS_COLD);
    assert_int_equal(miss.n_matched, 0);
    assert_own(&miss, n_cached);
    ASK_COUNTED(r, NULL, NULL, {"system", "Be kind. Today is 2026-11-21."}, {"user", "What is a dam?"});
    miss = ASK_COUNTED(r, "a third", &n_cached, {"system", "Be kind. Today is 2026-11-22."},
                       {"user", "What is a dam?"});
    assert_int_equal(miss.miss, WEIR_MISS_SALT);
    assert_int_equal(miss.n_matched, 0);
    assert_own(&miss, n_cached);
    miss = ASK(r, {"system", "Be kind. Today is 2026-11-22."}, {"user", "What is a weir?"});
    assert_int_equal(miss.miss, WEIR_MISS_DIVERGED);
    assert_non_null(strstr(miss.cached, "11-21"));
}

/* A prompt that is no chat has no messages. */
static void test_without_a_chat(void **state)
{
    rig *r = *state;
    start(r);
    const char *texts[] = {"The time is 10:15 and all is well", "The time is 10:16 and all is well"};
    for (int i = 0; i < 2; i++) {
        weir_request request = weir_request_default();
        request.text = texts[i];
        request.sampler = &r->greedy;
        request.max_tokens = 1;
        weir_stream *stream = rig_submit(r, &request);
        rig_run(r);
        weir_miss_info miss = {.size = sizeof miss};
        assert_int_equal(weir_stream_miss(stream, &miss), WEIR_OK);
        assert_int_equal(miss.message, -1);
    }
}

/* Each reason has its sentence, and whatever the room is, it is a whole text. */
static void test_sentences(void **state)
{
    (void)state;
    char text[600];
    weir_miss_info miss = {.size = sizeof miss, .message = -1};
    for (int i = 0; i < WEIR_MISS_COUNT; i++) {
        miss.miss = (weir_miss)i;
        size_t n = weir_miss_text(&miss, text, sizeof text);
        assert_int_equal(n, strlen(text));
        assert_int_equal(n > 10, i != WEIR_MISS_NONE);
    }
    miss = (weir_miss_info){.size = sizeof miss, .miss = WEIR_MISS_DIVERGED, .n_matched = 12, .message = 3};
    strcpy(miss.prompt, "größer\n日本語");
    strcpy(miss.cached, "tab\there");
    size_t full = weir_miss_text(&miss, text, sizeof text);
    assert_null(strpbrk(text, "\n\t"));
    assert_non_null(strstr(text, "before message 3;"));
    for (size_t capacity = 1; capacity < full + 2; capacity++) {
        char cut[600];
        memset(cut, 'x', sizeof cut);
        size_t n = weir_miss_text(&miss, cut, capacity);
        assert_true(n < capacity && cut[n] == '\0' && weir__utf8_valid(cut, n));
        assert_memory_equal(cut, text, n);
        assert_int_equal(cut[capacity], 'x');
    }
    assert_int_equal(weir_miss_text(NULL, text, sizeof text), 0);
    assert_int_equal(weir_miss_text(&miss, NULL, 5), 0);
    assert_int_equal(weir_miss_text(&miss, text, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_which_message_and_why),
        RIG_TEST(test_without_a_salt_only_own_words),
        RIG_TEST(test_another_salt_has_other_texts),
        RIG_TEST(test_without_a_chat),
        RIG_TEST(test_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
