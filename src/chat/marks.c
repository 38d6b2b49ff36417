/* marks.c: where the texts of messages are in a rendered prompt.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/marks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "chat/message.h"

/* Bytes of the prompt that fruitless searches may read: some 20 ms. A text that is missing costs a search to
 * the end, and a hundred thousand of them must not block a thread for minutes. */
#define WALK_MOST ((size_t)64 << 20)

/* The parts of a message's text: those of its content, or 1 for a content that is one text. */
static size_t n_parts(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return json_is_array(content) ? json_array_size(content) : 1;
}

/* Part i without surrounding white space, which many templates strip; 0 bytes: it is no text. */
static const char *text_of(const json_t *message, size_t i, size_t *n)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) {
        const json_t *part = json_array_get(content, i);
        content = weir__chat_part_kind(part) == WEIR__PART_TEXT ? json_object_get(part, "text") : NULL;
    }
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

static void reverse_bytes(char *to, const char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = from[n - 1 - i];
}

/* A reversed copy of the prompt, searched from the end. */
typedef struct backward {
    char *prompt, *text;
    size_t length, capacity, at;
} backward;

/* Finds the last place of a message's parts that leaves room for the later ones. */
static bool find_last(weir__chat_mark *mark, const json_t *message, backward *b)
{
    bool last = true;
    for (size_t i = n_parts(message); i-- > 0;) {
        size_t n;
        const char *given = text_of(message, i, &n);
        if (n == 0) continue;
        if (!weir__mem_grow(&b->text, &b->capacity, n, 1)) return false;
        reverse_bytes(b->text, given, n);
        const char *place = memmem(b->prompt + b->at, b->length - b->at, b->text, n); /* never NULL: the first
                                                                                       * place counts */
        b->at = (size_t)(place - b->prompt) + n;
        mark->last_from = b->length - b->at;
        if (last) mark->last_to = mark->last_from + n;
        last = false;
    }
    return true;
}

static bool find_all_last(weir__chat_mark *marks, const json_t *messages, const char *prompt, size_t length)
{
    backward b = {.prompt = weir__mem_alloc(length), .length = length};
    bool done = b.prompt != NULL;
    if (done) reverse_bytes(b.prompt, prompt, length);
    for (size_t i = json_array_size(messages); done && i-- > 0;)
        done = !marks[i].found || find_last(&marks[i], json_array_get(messages, i), &b);
    weir__mem_free(b.text);
    weir__mem_free(b.prompt);
    return done;
}

/* Finds the first place of a message's parts, one behind the other, from `at` on. */
static void find_first(weir__chat_mark *mark, const json_t *message, const char *prompt, size_t length,
                       size_t at, size_t *n_walked)
{
    const size_t from = at;
    bool any = false;
    for (size_t i = 0; i < n_parts(message); i++) {
        size_t n;
        const char *text = text_of(message, i, &n);
        if (n == 0) continue;
        const char *place = *n_walked > WALK_MOST ? NULL : memmem(prompt + at, length - at, text, n);
        if (place == NULL) {
            *n_walked += length - from; /* the next message's search begins there again */
            return;
        }
        if (!any) mark->from = (size_t)(place - prompt);
        mark->to = at = (size_t)(place - prompt) + n;
        any = true;
    }
    mark->found = any;
}

weir__chat_mark *weir__chat_marks(const json_t *messages, const char *prompt, size_t length)
{
    size_t n_messages = json_array_size(messages), at = 0, n_walked = 0;
    weir__chat_mark *marks = weir__mem_calloc(n_messages, sizeof *marks);
    if (marks == NULL) return NULL;
    for (size_t i = 0; i < n_messages; i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role != NULL && strlen(role) < sizeof marks[i].role)
            memcpy(marks[i].role, role, strlen(role) + 1);
        find_first(&marks[i], message, prompt, length, at, &n_walked);
        if (marks[i].found) at = marks[i].to;
    }
    if (find_all_last(marks, messages, prompt, length)) return marks;
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
