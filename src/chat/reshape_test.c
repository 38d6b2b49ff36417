/* Conversations put into the form that strict templates take: each shape by example, and random ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "chat/reshape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"
#include "support/effort.h"

/* ---- Conversations as letters: the text of message i is its letter and i ---- */

static const char letters[] = "suactpxdrmwo";

static json_t *call(const char *id, char letter, size_t i)
{
    char arguments[48];
    snprintf(arguments, sizeof arguments, "{\"x\":\"%c%zu.\"}", letter, i);
    return json_pack("{s:s*,s:s,s:{s:s,s:s}}", "id", id, "type", "function", "function", "name", "f",
                     "arguments", arguments);
}

/* s(ystem), u(ser), a(ssistant), c(all), t(ool), p: two calls, x: a call and a result with a long id, d: a
 * call and r: a result without one, m: parts with an image, w: words and a call, o: another role. */
static json_t *message(char letter, size_t i)
{
    char text[32];
    snprintf(text, sizeof text, "%c%zu.", letter, i);
    switch (letter) {
    case 's': return json_pack("{s:s,s:s}", "role", i % 2 ? "developer" : "system", "content", text);
    case 'u': return json_pack("{s:s,s:s}", "role", "user", "content", text);
    case 'a': return json_pack("{s:s,s:s}", "role", "assistant", "content", text);
    case 'o': return json_pack("{s:s,s:s}", "role", "critic", "content", text);
    case 'c':
        return json_pack("{s:s,s:n,s:[o]}", "role", "assistant", "content", "tool_calls",
                         call("abcdefgh1", letter, i));
    case 'd':
        return json_pack("{s:s,s:n,s:[o]}", "role", "assistant", "content", "tool_calls",
                         call(NULL, letter, i));
    case 'p':
        return json_pack("{s:s,s:n,s:[o,o]}", "role", "assistant", "content", "tool_calls",
                         call("abcdefgh1", letter, i), call("call_long", letter, i + 1000));
    case 'w':
        return json_pack("{s:s,s:s,s:[o]}", "role", "assistant", "content", text, "tool_calls",
                         call("call_0123456789", letter, i + 1000));
    case 'm':
        return json_pack("{s:s,s:[{s:s,s:s},{s:s}]}", "role", "user", "content", "type", "text", "text", text,
                         "type", "image_url");
    case 'x':
        return json_pack("{s:s,s:s,s:s}", "role", "tool", "content", text, "tool_call_id", "call_0123456789");
    case 'r': return json_pack("{s:s,s:s}", "role", "tool", "content", text);
    default: return json_pack("{s:s,s:s,s:s}", "role", "tool", "content", text, "tool_call_id", "abcdefgh1");
    }
}

static json_t *conversation(const char *word)
{
    json_t *messages = json_array();
    for (size_t i = 0; word[i] != '\0'; i++)
        assert_int_equal(json_array_append_new(messages, message(word[i], i)), 0);
    return messages;
}

static json_t *put(const json_t *messages, unsigned refused, weir__text *lines)
{
    json_t *new = NULL;
    assert_true(weir__chat_reshape(messages, refused, 0, &new, lines));
    return new != NULL ? new : json_incref((json_t *)messages);
}

/* ---- Each shape ---- */

static const struct {
    unsigned refused;
    const char *word, *expected, *lines;
} examples[] = {
    {WEIR__SHAPE_ALL & ~WEIR__SHAPE_SYSTEM_FIRST, "suau", "S:s0. U:u1. A:a2. U:u3.", NULL},
    {WEIR__SHAPE_SYSTEM_LATE, "usu", "U:u0.|s1. U:u2.", "messages[1]: system_late in messages[0]\n"},
    {WEIR__SHAPE_SYSTEM_LATE | WEIR__SHAPE_USER_TWICE, "usu", "U:u0.|s1.|u2.",
     "messages[1]: system_late in messages[0]\nmessages[2]: user_twice in messages[0]\n"},
    {WEIR__SHAPE_SYSTEM_LATE, "uasu", "U:u0. A:a1. U:s2.|u3.",
     "messages[2]: system_late\nmessages[3]: user_twice in messages[2]\n"},
    {WEIR__SHAPE_SYSTEM_LATE, "ucts", "U:u0. A:(c1.)abcdefgh1 T:t2.=abcdefgh1 U:s3.",
     "messages[3]: system_late\n"},
    {WEIR__SHAPE_SYSTEM_LATE | WEIR__SHAPE_USER_AFTER_RESULT, "uctsa",
     "U:u0. A:(c1.)abcdefgh1 T:t2.|s3.=abcdefgh1 A:a4.", "messages[3]: system_late in messages[2]\n"},
    {WEIR__SHAPE_SYSTEM_TWICE, "ssu", "S:s0.|s1. U:u2.", "messages[1]: system_twice in messages[0]\n"},
    {WEIR__SHAPE_SYSTEM_FIRST, "suct", "U:s0.|u1. A:(c2.)abcdefgh1 T:t3.=abcdefgh1",
     "messages[0]: system_first\nmessages[1]: user_twice in messages[0]\n"},
    {WEIR__SHAPE_SYSTEM_ONLY, "s", "S:s0. U:", "messages[0]: system_only\n"},
    {WEIR__SHAPE_USER_TWICE, "uum", "U:u0.|u1.|m2.[image_url]",
     "messages[1]: user_twice in messages[0]\nmessages[2]: user_twice in messages[0]\n"},
    {WEIR__SHAPE_USER_TWICE, "mu", "U:m0.[image_url]u1.", "messages[1]: user_twice in messages[0]\n"},
    {WEIR__SHAPE_ASSISTANT_FIRST, "sau", "S:s0. U: A:a1. U:u2.", "messages[1]: assistant_first\n"},
    {WEIR__SHAPE_ASSISTANT_TWICE, "uaa", "U:u0. A:a1. U: A:a2.", "messages[2]: assistant_twice\n"},
    {WEIR__SHAPE_ASSISTANT_TWICE, "uacta", "U:u0. A:a1. U: A:(c2.)abcdefgh1 T:t3.=abcdefgh1 A:a4.",
     "messages[2]: assistant_twice\n"},
    {WEIR__SHAPE_USER_AFTER_RESULT, "uctu", "U:u0. A:(c1.)abcdefgh1 T:t2.|u3.=abcdefgh1",
     "messages[3]: user_after_result in messages[2]\n"},
    {WEIR__SHAPE_USER_AFTER_CALL, "ucu", "U:u0. A:(c1.)abcdefgh1 T:u2.=abcdefgh1",
     "messages[2]: user_after_call in messages[1]\n"},
    {WEIR__SHAPE_RESULT_WITHOUT_CALL, "ut", "U:u0.|Result of the function: t1.",
     "messages[1]: result_without_call in messages[0]\n"},
    {WEIR__SHAPE_TOOL_CALLS | WEIR__SHAPE_TOOL_RESULTS, "uwx",
     "U:u0. A:w1.^{\"name\":\"f\",\"arguments\":{\"x\":\"w1001.\"}} U:Result of the function: x2.",
     "messages[1]: tool_calls\nmessages[2]: tool_results\n"},
    {WEIR__SHAPE_TOOL_CALLS, "uct", "U:u0. A:{\"name\":\"f\",\"arguments\":{\"x\":\"c1.\"}} T:t2.=abcdefgh1",
     "messages[1]: tool_calls\n"},
    {WEIR__SHAPE_CALL_TWICE, "upt", "U:u0. A:(p1.)abcdefgh1 A:(p1001.)call_long T:t2.=abcdefgh1",
     "messages[1]: call_twice\n"},
    {WEIR__SHAPE_CALL_ID, "uptwx",
     "U:u0. A:(p1.)abcdefgh1(p1001.)call00001 T:t2.=abcdefgh1 A:w3.(w1003.)call00002 T:x4.=call00002",
     "messages[1]: call_id\nmessages[3]: call_id\nmessages[4]: call_id\n"},
    {WEIR__SHAPE_CALL_ID, "udrwx", "U:u0. A:(d1.) T:r2. A:w3.(w1003.)call00001 T:x4.=call00001",
     "messages[3]: call_id\nmessages[4]: call_id\n"},
    {WEIR__SHAPE_NO_CALL_ID, "udrcr",
     "U:u0. A:(d1.)call00001 T:r2.=call00001 A:(c3.)abcdefgh1 T:r4.=abcdefgh1",
     "messages[1]: no_call_id\nmessages[2]: no_call_id\nmessages[4]: no_call_id\n"},
    {WEIR__SHAPE_ALL, "uoo", "U:u0. ?:o1. ?:o2.", NULL},
};

static void show_content(weir__text *text, const json_t *content)
{
    const char *string = json_string_value(content);
    for (size_t i = 0; string != NULL && string[i] != '\0'; i++)
        if (strncmp(string + i, "\n\n", 2) == 0)
            weir__text_add_string(text, "|"), i++;
        else
            weir__text_add(text, string[i] == '\n' ? "^" : string + i, 1);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (strcmp(type, "text") == 0)
            show_content(text, json_object_get(part, "text"));
        else
            weir__text_printf(text, "[%s]", type);
    }
}

static void show_calls(weir__text *text, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *one = json_array_get(calls, i);
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *arguments =
            json_string_value(json_object_get(json_object_get(one, "function"), "arguments"));
        weir__text_printf(text, "(%.*s)%s", (int)strcspn(arguments + 6, "\""), arguments + 6,
                          id != NULL ? id : "");
    }
}

static char *show(const json_t *messages)
{
    weir__text text = {0};
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *one = json_array_get(messages, i), *id = json_object_get(one, "tool_call_id");
        const char *role = json_string_value(json_object_get(one, "role"));
        const char *letter = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0 ? "S"
                             : strcmp(role, "user") == 0                                   ? "U"
                             : strcmp(role, "assistant") == 0                              ? "A"
                             : strcmp(role, "tool") == 0                                   ? "T"
                                                                                           : "?";
        weir__text_printf(&text, "%s%s:", i > 0 ? " " : "", letter);
        show_content(&text, json_object_get(one, "content"));
        show_calls(&text, json_object_get(one, "tool_calls"));
        if (id != NULL) weir__text_printf(&text, "=%s", json_string_value(id));
    }
    assert_false(text.failed);
    return text.bytes;
}

static void every_shape_has_one_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        json_t *given = conversation(examples[i].word), *copy = json_deep_copy(given);
        weir__text lines = {0};
        json_t *new = put(given, examples[i].refused, &lines);
        char *shown = show(new);
        assert_string_equal(shown, examples[i].expected);
        assert_string_equal(lines.n > 0 ? lines.bytes : "",
                            examples[i].lines != NULL ? examples[i].lines : "");
        assert_true(json_equal(given, copy)); /* the caller's messages stay as they are */
        if (examples[i].lines == NULL) assert_ptr_equal(new, given);
        weir__mem_free(shown);
        weir__text_fini(&lines);
        json_decref(new);
        json_decref(copy);
        json_decref(given);
    }
}

/* An id that a client gave is not given to another call. */
static void made_ids_are_new(void **state)
{
    (void)state;
    json_t *given = json_pack("[{s:s,s:s},{s:s,s:n,s:[o,o,o]}]", "role", "user", "content", "u", "role",
                              "assistant", "content", "tool_calls", call("call00001", 'c', 0),
                              call("x", 'c', 1), call("call00002", 'c', 2));
    json_t *new = put(given, WEIR__SHAPE_CALL_ID, NULL);
    char *shown = show(new);
    assert_string_equal(shown, "U:u A:(c0.)call00001(c1.)call00002(c2.)call00003");
    weir__mem_free(shown);
    json_decref(new);
    json_decref(given);
}

/* Calls of others than the assistant are allowed; such a message may have no content. */
static void a_message_without_content_is_put(void **state)
{
    (void)state;
    json_t *given = json_pack("[{s:s,s:s},{s:s,s:[o]}]", "role", "user", "content", "u", "role", "user",
                              "tool_calls", call("x", 'c', 0));
    json_t *new = put(given, WEIR__SHAPE_USER_TWICE, NULL);
    assert_int_equal(json_array_size(new), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(new, 0), "content")), "u");
    json_decref(new);
    json_decref(given);
}

/* ---- Random conversations ---- */

static void roll_word(dice *d, char word[24])
{
    size_t n = (size_t)dice_in(d, 1, 20), i;
    for (i = 0; i < n; i++) word[i] = letters[dice_in(d, 0, (int32_t)sizeof letters - 2)];
    word[i] = '\0';
}

/* The marks of message i, in order. */
static const char *find_texts(const char *at, char letter, size_t i)
{
    const size_t marks[2] = {i, i + 1000};
    const bool has[2] = {true, letter == 'p' || letter == 'w'};
    for (int k = 0; k < 2 && at != NULL; k++) {
        char mark[32];
        snprintf(mark, sizeof mark, "%c%zu.", letter, marks[k]);
        if (has[k]) at = strstr(at, mark);
    }
    return at;
}

static void random_ones_keep_all_texts_and_are_put_once(void **state)
{
    (void)state;
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (uint64_t round = 0; round < dice_environment("WEIR_TEST_ROUNDS", EFFORT(20000, 2000)); round++) {
        char word[24];
        unsigned refused = (unsigned)dice_roll(&d) & WEIR__SHAPE_ALL;
        roll_word(&d, word);
        json_t *given = conversation(word), *once = put(given, refused, NULL), *twice = NULL;
        assert_true(weir__chat_reshape(once, refused, 0, &twice, NULL));
        char *text = weir__json_dump(once);
        const char *at = text;
        for (size_t i = 0; word[i] != '\0'; i++)
            if ((at = find_texts(at, word[i], i)) == NULL)
                fail_msg("%s (%x): message %zu is not in place: %s", word, refused, i, text);
        if (twice != NULL) fail_msg("%s (%x): put twice: %s", word, refused, text);
        weir__mem_free(text);
        json_decref(once);
        json_decref(given);
    }
}

static bool begins_with(const json_t *content, const json_t *start)
{
    weir__text all = {0}, first = {0};
    show_content(&all, content);
    show_content(&first, start);
    bool begins = first.n == 0 || (all.n >= first.n && memcmp(all.bytes, first.bytes, first.n) == 0);
    weir__text_fini(&first);
    weir__text_fini(&all);
    return begins;
}

/* Later messages do not change what becomes of a message, except that text may join the last. Behind an empty
 * user's message that closes system messages others may come. */
static void later_messages_change_nothing(void **state)
{
    (void)state;
    dice d = {dice_environment("WEIR_TEST_SEED", 1)};
    for (uint64_t round = 0; round < dice_environment("WEIR_TEST_ROUNDS", EFFORT(10000, 1000)); round++) {
        char word[24];
        unsigned refused = (unsigned)dice_roll(&d) & WEIR__SHAPE_ALL;
        roll_word(&d, word);
        json_t *all = conversation(word), *before = NULL;
        for (size_t n = 1; n <= strlen(word); n++) {
            json_t *first = json_array();
            for (size_t i = 0; i < n; i++) json_array_append(first, json_array_get(all, i));
            json_t *now = put(first, refused, NULL);
            for (size_t i = 0; i < json_array_size(before); i++) {
                const json_t *a = json_array_get(before, i), *b = json_array_get(now, i);
                bool last = i + 1 == json_array_size(before);
                bool same =
                    last ? strcmp(json_string_value(json_object_get(a, "role")),
                                  json_string_value(json_object_get(b, "role"))) == 0 &&
                               begins_with(json_object_get(b, "content"), json_object_get(a, "content"))
                         : json_equal((json_t *)a, (json_t *)b) != 0;
                bool was_closed = (refused & WEIR__SHAPE_SYSTEM_ONLY) != 0 && strspn(word, "s") >= n - 1;
                if (!same && !was_closed) fail_msg("%s (%x): message %zu of %zu", word, refused, i, n);
            }
            json_decref(before);
            before = now;
            json_decref(first);
        }
        json_decref(before);
        json_decref(all);
    }
}

/* Joining them one by one would copy some 20 GB: a minute of a processor's time. */
static void many_messages_cost_in_proportion(void **state)
{
    (void)state;
    const size_t n = 200000;
    json_t *given = json_array(), *one = json_pack("{s:s,s:s}", "role", "user", "content", "x");
    weir__text lines = {0};
    for (size_t i = 0; i < n; i++) json_array_append(given, one);
    clock_t start = clock();
    json_t *new = put(given, WEIR__SHAPE_ALL, &lines);
    assert_true((clock() - start) / CLOCKS_PER_SEC < EFFORT(10, 60));
    assert_int_equal(json_array_size(new), 1);
    assert_int_equal(json_string_length(json_object_get(json_array_get(new, 0), "content")), 3 * n - 2);
    assert_true(lines.n <= WEIR__SHAPE_LINES_MAX);
    assert_string_equal(lines.bytes + lines.n - 5, "\n...\n");
    weir__text_fini(&lines);
    json_decref(new);
    json_decref(one);
    json_decref(given);
}

static void regular_ones_are_known(void **state)
{
    (void)state;
    static const char *const regular[] = {"u", "su", "ua", "suau", "mam"};
    static const char *const others[] = {"s", "a", "uu", "ssu", "us", "sa", "uaa", "uct", "uw", "ut", "uo"};
    for (size_t i = 0; i < sizeof regular / sizeof *regular; i++) {
        json_t *messages = conversation(regular[i]);
        assert_true(weir__chat_is_regular(messages));
        json_decref(messages);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        json_t *messages = conversation(others[i]);
        assert_false(weir__chat_is_regular(messages));
        json_decref(messages);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_one_rule),
        cmocka_unit_test(made_ids_are_new),
        cmocka_unit_test(a_message_without_content_is_put),
        cmocka_unit_test(regular_ones_are_known),
        cmocka_unit_test(random_ones_keep_all_texts_and_are_put_once),
        cmocka_unit_test(later_messages_change_nothing),
        cmocka_unit_test(many_messages_cost_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
