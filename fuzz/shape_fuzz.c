/* shape_fuzz.c: conversations of any roles and shapes, put into the form that strict templates take.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: two bytes of refused shapes, then a byte for each message. Each text must be in the new messages, in
 * order; putting them again must change nothing; and the messages must not be more than twice as many, apart
 * from calls that get one each. */
#include <stdio.h>

#include "base/mem.h"
#include "chat/reshape.h"
#include "fuzz.h"

#define MESSAGES 2000

static const char *const roles[] = {"system", "developer", "user", "user",     "assistant", "assistant",
                                    "tool",   "tool",      "tool", "function", "critic",    "assistant"};

static void write_mark(char mark[32], size_t i, const char *what)
{
    snprintf(mark, 32, "<%zu%s>", i, what);
}

/* bits: how the calls and ids look. */
static json_t *make_calls(size_t i, unsigned bits)
{
    static const char *const ids[] = {"abcdefgh1", "call_0123456789", NULL, ""};
    json_t *calls = json_array();
    for (unsigned k = 0; k <= bits % 3; k++) {
        char mark[32], name[8];
        snprintf(name, sizeof name, "c%u", k);
        write_mark(mark, i, name);
        json_t *arguments = json_sprintf("{\"x\":\"%s\"}", mark);
        json_array_append_new(calls, json_pack("{s:s*,s:s,s:{s:s,s:o}}", "id", ids[(bits + k) % 4], "type",
                                               "function", "function", "name", "f", "arguments", arguments));
    }
    return calls;
}

static json_t *make_content(size_t i, unsigned bits)
{
    char mark[32], other[32];
    write_mark(mark, i, "");
    write_mark(other, i, "b");
    switch (bits % 4) {
    case 0:
        return json_pack("[{s:s,s:s},{s:s},{s:s,s:s}]", "type", "text", "text", mark, "type", "image", "type",
                         "text", "text", other);
    case 1: return json_pack("[{s:s},{s:s,s:s}]", "type", "image_url", "type", "text", "text", mark);
    default: return json_string(mark);
    }
}

static json_t *make_message(size_t i, unsigned byte)
{
    const char *role = roles[byte % 12];
    const unsigned bits = byte / 12;
    bool calls = byte % 12 == 11;
    json_t *message = json_pack("{s:s,s:o}", "role", role, "content",
                                calls && bits % 2 == 0 ? json_null() : make_content(i, bits));
    if (calls) json_object_set_new(message, "tool_calls", make_calls(i, bits));
    if (strcmp(role, "tool") == 0 && bits % 3 != 0)
        json_object_set_new(message, "tool_call_id", json_string(bits % 3 == 1 ? "abcdefgh1" : "call_x"));
    return message;
}

/* The end of the text's first place at or after `at`. */
static const char *find(const char *at, size_t i, const char *what)
{
    char mark[32];
    write_mark(mark, i, what);
    at = strstr(at, mark);
    require(at != NULL);
    return at + strlen(mark);
}

static void require_texts(const json_t *messages, const char *text)
{
    json_t *message;
    size_t i;
    json_array_foreach((json_t *)messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        size_t n_calls = json_array_size(json_object_get(message, "tool_calls"));
        if (!json_is_null(content)) text = find(text, i, "");
        if (json_array_size(content) == 3) text = find(text, i, "b");
        for (size_t k = 0; k < n_calls; k++) text = find(text, i, k == 0 ? "c0" : k == 1 ? "c1" : "c2");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > MESSAGES + 2) return 0;
    const unsigned refused = (data[0] | (unsigned)data[1] << 8) & WEIR__SHAPE_ALL;
    json_t *given = json_array(), *copy, *put = NULL, *again = NULL;
    weir__text lines = {0};
    for (size_t i = 2; i < size; i++) json_array_append_new(given, make_message(i - 2, data[i]));
    copy = json_deep_copy(given);
    (void)weir__chat_is_regular(given);
    require(weir__chat_reshape(given, refused, 0, &put, &lines));
    require(json_equal(given, copy) && (put != NULL) == (lines.n > 0) && lines.n <= WEIR__SHAPE_LINES_MAX);
    if (put != NULL) {
        char *text = weir__json_dump(put);
        require(text != NULL && json_array_size(put) <= 4 * json_array_size(given) + 1);
        require_texts(given, text);
        require(weir__chat_reshape(put, refused, 0, &again, NULL) && again == NULL);
        weir__mem_free(text);
    }
    weir__text_fini(&lines);
    json_decref(put);
    json_decref(copy);
    json_decref(given);
    return 0;
}
