/* chat_marks.c: where the texts of messages are in a rendered prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "model/chat_marks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/chat_message.h"

/* Bytes of the prompt that fruitless searches may read: some 20 ms. A text that is missing costs a search to
 * the end, and a hundred thousand of them must not block a thread for minutes. */
#define WALK_MOST ((size_t)64 << 20)

/* The only text of a content, beside any images and sounds; NULL: it has none, or several. */
static const json_t *only_text(const json_t *content)
{
    const json_t *found = NULL;
    if (!json_is_array(content)) return content;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        if (weir__chat_part_kind(part) != WEIR__PART_TEXT) continue;
        if (found != NULL) return NULL;
        found = json_object_get(part, "text");
    }
    return found;
}

/* A message's text without surrounding white space, which many templates strip. */
static const char *text_of(const json_t *message, size_t *n)
{
    const json_t *content = only_text(json_object_get(message, "content"));
    const char *text = json_string_value(content);
    size_t length = json_string_length(content);
    while (length > 0 && strchr(" \n\r\t", text[length - 1]) != NULL) length--;
    while (length > 0 && strchr(" \n\r\t", *text) != NULL) {
        text++;
        length--;
    }
    *n = length;
    return text;
}

static void reverse(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = from[n - 1 - i];
}

/* Searches a reversed copy from the end, for the last place of each text that leaves room for the later
 * ones. */
static bool find_last(weir__chat_mark *marks, const json_t *messages, const char *prompt, size_t length)
{
    char *backward = weir__mem_alloc(length), *text = NULL;
    size_t capacity = 0, at = 0; /* in the copy */
    bool done = backward != NULL;
    if (done) reverse(backward, prompt, length);
    for (size_t i = json_array_size(messages); done && i-- > 0;) {
        size_t n;
        const char *given = text_of(json_array_get(messages, i), &n);
        if (!marks[i].found) continue;
        done = weir__mem_grow(&text, &capacity, n, 1);
        if (!done) break;
        reverse(text, given, n);
        const char *place = memmem(backward + at, length - at, text, n); /* never NULL: the first place
                                                                          * counts */
        at = (size_t)(place - backward) + n;
        marks[i].last_from = length - at;
        marks[i].last_to = length - at + n;
    }
    weir__mem_free(text);
    weir__mem_free(backward);
    return done;
}

weir__chat_mark *weir__chat_marks(const json_t *messages, const char *prompt, size_t length)
{
    size_t n_messages = json_array_size(messages), at = 0, n_walked = 0;
    weir__chat_mark *marks = weir__mem_calloc(n_messages, sizeof *marks);
    if (marks == NULL) return NULL;
    for (size_t i = 0; i < n_messages; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        size_t n;
        const char *text = text_of(message, &n);
        if (role != NULL && strlen(role) < sizeof marks[i].role)
            memcpy(marks[i].role, role, strlen(role) + 1);
        if (n == 0 || n_walked > WALK_MOST) continue;
        const char *place = memmem(prompt + at, length - at, text, n);
        if (place == NULL) {
            n_walked += length - at;
            continue;
        }
        marks[i].found = true;
        marks[i].from = (size_t)(place - prompt);
        marks[i].to = at = marks[i].from + n;
    }
    if (find_last(marks, messages, prompt, length)) return marks;
    weir__mem_free(marks);
    return NULL;
}

int32_t weir__chat_mark_at(const weir__chat_mark *marks, size_t n, size_t at, bool *within)
{
    size_t next = 0, first = 0; /* behind the last message before `at`; the first found one that does not end
                                 * before it */
    *within = false;
    while (first < n && (!marks[first].found || marks[first].last_to <= at)) {
        if (marks[first].found) next = first + 1;
        first++;
    }
    if (first < n && marks[first].to <= at) return -1;
    *within = first < n && at >= marks[first].last_from;
    return (int32_t)(*within ? first : next);
}
