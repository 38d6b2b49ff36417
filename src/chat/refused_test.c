/* Conversations that templates of the pin refuse: each is rendered all the same, with every text in its
 * place. SPDX-License-Identifier: Apache-2.0 */
#include "support/chat/parser.h"

#include "base/json.h"
#include "base/mem.h"
#include "support/dice.h"

/* ---- Conversations as letters ---- */

/* The text of message i. */
static void write_mark(char mark[32], size_t i)
{
    snprintf(mark, 32, "mark%02zuq", i);
}

static json_t *make_call(const char *id, const char *mark)
{
    char arguments[48];
    snprintf(arguments, sizeof arguments, "{\"city\":\"%s\"}", mark);
    return json_pack("{s:s*,s:s,s:{s:s,s:s}}", "id", id, "type", "function", "function", "name",
                     "get_weather", "arguments", arguments);
}

/* s(ystem), d(eveloper), u(ser), a(ssistant), c(all), t(ool), p: two calls, x: a call and y: a result with an
 * id as OpenAI's, n: a call and r: a result without one. */
static json_t *make_message(char letter, size_t i, size_t last_call)
{
    char short_id[40], long_id[64];
    snprintf(short_id, sizeof short_id, "abcdefg%02zu", last_call);
    snprintf(long_id, sizeof long_id, "call_0123456789abcdefghijkl%02zu", last_call);
    const char *role = letter == 's'                   ? "system"
                       : letter == 'd'                 ? "developer"
                       : letter == 'u'                 ? "user"
                       : strchr("try", letter) != NULL ? "tool"
                                                       : "assistant";
    const char *id = strchr("xy", letter) != NULL ? long_id : strchr("nr", letter) != NULL ? NULL : short_id;
    char mark[32];
    write_mark(mark, i);
    if (strchr("cpxn", letter) == NULL)
        return json_pack("{s:s,s:s,s:s*}", "role", role, "content", mark, "tool_call_id",
                         strcmp(role, "tool") == 0 ? id : NULL);
    return json_pack("{s:s,s:n,s:[o,o*]}", "role", role, "content", "tool_calls", make_call(id, mark),
                     letter == 'p' ? make_call("abcdefgh2", "twin") : NULL);
}

static char *make_messages(const char *word, size_t n)
{
    json_t *messages = json_array();
    for (size_t i = 0, last_call = 99; i < n; i++) {
        if (strchr("cpxn", word[i]) != NULL) last_call = i;
        assert_int_equal(json_array_append_new(messages, make_message(word[i], i, last_call)), 0);
    }
    char *text = weir__json_dump(messages);
    json_decref(messages);
    assert_non_null(text);
    return text;
}

typedef struct terms {
    const char *source;
    bool tools, strict, open; /* open: with a generation prompt */
} terms;

/* The first n messages of the word; NULL: the template refuses them. */
static weir_chat *render(terms t, const char *word, size_t n, weir_error *error)
{
    weir_chat_params params = weir_chat_params_default();
    weir_chat *chat = NULL;
    char *messages = make_messages(word, n);
    params.messages_json = messages;
    params.template_source = t.source;
    params.tools_json = t.tools ? tools : NULL;
    params.strict_messages = t.strict;
    params.add_generation_prompt = t.open;
    params.now = 1700000000;
    weir_status status = weir_chat_create(model, &params, &chat, error);
    weir__mem_free(messages);
    if (status != WEIR_OK && status != WEIR_TEMPLATE) fail_msg("%s: %s", word, error->message);
    return status == WEIR_OK ? chat : NULL;
}

/* The end of the last of n texts that stand in order; 0: they do not. */
static size_t texts_end(const weir_chat *chat, size_t n)
{
    const char *prompt = weir_chat_prompt(chat, NULL), *at = prompt;
    char mark[32];
    for (size_t i = 0; i < n; i++) {
        write_mark(mark, i);
        at = strstr(at, mark);
        if (at == NULL) return 0;
        at += strlen(mark);
    }
    return (size_t)(at - prompt);
}

/* ---- Each shape, with the template that refuses it ---- */

static const struct {
    const char *template, *word, *field, *reshaped;
    bool silent; /* the template leaves text out, or moves it to the front, and raises no error */
} examples[] = {
    {"Qwen3.5-4B", "usu", "messages[1]", "messages[1]: system_late in messages[0]\n", false},
    {"Qwen3.5-4B", "udu", "messages[1]", "messages[1]: system_late in messages[0]\n", false},
    {"Qwen3.5-4B", "s", "messages[0]", "messages[0]: system_only\n", false},
    {"Mistral-Small-3.2-24B-Instruct-2506", "suctuadu", "messages[4]",
     "messages[4]: user_after_result in messages[3]\nmessages[6]: system_late\n"
     "messages[7]: user_twice in messages[6]\n",
     false},
    {"Mistral-Small-3.2-24B-Instruct-2506", "uxy", "messages[1]",
     "messages[1]: call_id\nmessages[2]: call_id\n", false},
    {"Mistral-Small-3.2-24B-Instruct-2506", "unr", "messages[1]",
     "messages[1]: no_call_id\nmessages[2]: no_call_id\n", false},
    {"mistralai-Mistral-Nemo-Instruct-2407", "suct", "",
     "messages[0]: system_first\nmessages[1]: user_twice in messages[0]\n", true},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "ucu", "messages[2]",
     "messages[2]: user_after_call in messages[1]\n", false},
    {"google-gemma-2-2b-it", "suu", "messages[2]", "messages[2]: user_twice in messages[1]\n", false},
    {"google-gemma-2-2b-it", "au", "messages[0]", "messages[0]: assistant_first\n", false},
    {"google-gemma-2-2b-it", "uaa", "messages[2]", "messages[2]: assistant_twice\n", false},
    {"google-gemma-2-2b-it", "uc", "", "messages[1]: tool_calls\n", true},
    {"google-gemma-2-2b-it", "ucta", "messages[2]", "messages[1]: tool_calls\nmessages[2]: tool_results\n",
     false},
    {"Apertus-8B-Instruct", "ut", "messages[1]", "messages[1]: result_without_call in messages[0]\n", false},
    {"Apertus-8B-Instruct", "ssu", "messages[1]", "messages[1]: system_twice in messages[0]\n", false},
    {"openai-gpt-oss-120b", "uasu", "", "messages[2]: system_late\nmessages[3]: user_twice in messages[2]\n",
     true},
    {"meta-llama-Llama-3.1-8B-Instruct", "uptt", "messages[1]", "messages[1]: call_twice\n", false},
    {"upstage-Solar-Open-100B", "uas", "", "messages[2]: system_late\n", true},
};

static void each_shape_is_put(void **state)
{
    (void)state;
    if (pin_root() == NULL || strcmp(weir_backend_version(), "none") == 0) skip();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const char *word = examples[i].word;
        char *source = pin_template(examples[i].template);
        weir_error error = {0};
        weir_chat *strict = render((terms){source, .strict = true, .open = true}, word, strlen(word), &error);
        if (examples[i].silent) {
            assert_non_null(strict);
            if (texts_end(strict, strlen(word)) > 0) fail_msg("%s: %s", examples[i].template, word);
            assert_string_equal(weir_chat_reshaped(strict), "");
        } else {
            if (strict != NULL) fail_msg("%s: %s", examples[i].template, word);
            if (strcmp(error.field, examples[i].field) != 0)
                fail_msg("%s: %s: %s", examples[i].template, word, error.message);
            assert_string_equal(error.field, examples[i].field);
            assert_ptr_equal(strstr(error.message, error.field), error.message + 1); /* behind "`" */
        }
        weir_chat_release(strict);
        weir_chat *put = render((terms){source, .open = true}, word, strlen(word), &error);
        if (put == NULL) fail_msg("%s: %s: %s", examples[i].template, word, error.message);
        if (strcmp(weir_chat_reshaped(put), examples[i].reshaped) != 0)
            fail_msg("%s: %s: %s", examples[i].template, word, weir_chat_reshaped(put));
        assert_true(texts_end(put, strlen(word)) > 0);
        weir_chat_release(put);
        free(source);
    }
}

/* ---- All templates ---- */

/* Conversations that templates are made for. */
static const char *const plain[] = {"suauaua", "uauaua", "suctauctctaua"};

static size_t common(const weir_chat *a, const weir_chat *b)
{
    size_t n_a, n_b, n = 0;
    const char *first = weir_chat_prompt(a, &n_a), *second = weir_chat_prompt(b, &n_b);
    while (n < n_a && n < n_b && first[n] == second[n]) n++;
    return n;
}

/* True if each prompt begins with that of the messages before, at least up to its last text: what joins a
 * turn stands before the turn's end. *taken: it is rendered, with all texts. */
static bool grows(terms t, const char *word, bool *taken, weir_error *error)
{
    weir_chat *before = NULL;
    bool stable = true;
    *taken = true;
    for (size_t n = 1; n <= strlen(word) && *taken; n++) {
        weir_chat *chat = render(t, word, n, error);
        *taken = chat != NULL && texts_end(chat, n) > 0;
        if (*taken && before != NULL) stable = stable && common(before, chat) >= texts_end(before, n - 1);
        weir_chat_release(before);
        before = chat;
    }
    weir_chat_release(before);
    return stable;
}

static void roll_word(dice *d, char word[16])
{
    static const char letters[] = "sduuaactpxynr";
    size_t n = (size_t)dice_in(d, 1, 9);
    for (size_t i = 0; i < n; i++) word[i] = letters[dice_in(d, 0, (int32_t)sizeof letters - 2)];
    word[n] = '\0';
}

/* Random conversations of one template. True if its prompts grow by those that it is made for. */
static bool render_any(terms t, const char *name, dice *d, uint64_t rounds)
{
    weir_error error = {0};
    bool taken, stable = true;
    char word[16];
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        stable = grows(t, plain[i], &taken, &error) && taken && stable;
    for (uint64_t round = 0; round < rounds; round++) {
        roll_word(d, word);
        bool same = grows(t, word, &taken, &error);
        if (!taken) fail_msg("%s%s: %s: %s", name, t.tools ? ", tools" : "", word, error.message);
        /* Results without ids belong to any call. */
        if (stable && !same && strpbrk(word, "nr") == NULL)
            fail_msg("%s%s: %s: the prompt does not grow", name, t.tools ? ", tools" : "", word);
    }
    return stable;
}

static void any_conversation_is_rendered_and_grows(void **state)
{
    (void)state;
    const uint64_t rounds = dice_environment("WEIR_TEST_ROUNDS", EFFORT(12, 3));
    int n_stable[2] = {0};
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        dice d = {dice_environment("WEIR_TEST_SEED", 1)};
        for (int with_tools = 0; with_tools < 2; with_tools++) {
            terms t = {.source = source, .tools = with_tools};
            n_stable[with_tools] += render_any(t, walk.name, &d, rounds);
        }
        free(source);
    }
    print_message("%d templates, %d with tools\n", n_stable[0], n_stable[1]);
    assert_true(n_stable[0] >= EFFORT(60, 1) && n_stable[1] >= EFFORT(60, 1));
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(each_shape_is_put),
        cmocka_unit_test(any_conversation_is_rendered_and_grows),
    };
    return cmocka_run_group_tests(all, load, unload);
}
