/* continued.c: a last message that the answer continues: copies of the conversation in which that message
 * has a mark, one part or no text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "chat/continued.h"

#include <string.h>

#include "base/mem.h"
#include "chat/message.h"

static const json_t *last_of(const json_t *messages)
{
    return json_array_get(messages, json_array_size(messages) - 1);
}

bool weir__chat_continued_init(weir__chat_continued *last, const json_t *messages, bool required)
{
    weir__text text = {0};
    const json_t *message = last_of(messages);
    char *all = weir__json_dump(messages);
    bool ok = all != NULL && weir__chat_placeholder_choose(last->mark, all, strlen(all));
    weir__mem_free(all);
    ok = ok && weir__text_add_string(&text, "") &&
         weir__chat_add_content(&text, json_object_get(message, "content"));
    last->text = text.bytes;
    last->reasons = json_string_length(json_object_get(message, "reasoning_content")) > 0;
    last->kind = text.n == 0 && last->reasons ? WEIR__CONTINUE_REASONING : WEIR__CONTINUE_TEXT;
    last->apart = required;
    return ok;
}

void weir__chat_continued_fini(weir__chat_continued *last)
{
    weir__mem_free(last->text);
    *last = (weir__chat_continued){0};
}

/* The messages with another member of the last one. Takes the value. */
static json_t *with_member(const json_t *messages, const char *name, json_t *value)
{
    json_t *all = weir__json_copy(messages), *message = weir__json_copy(last_of(messages));
    /* The setters take ownership, even when they fail. */
    bool ok = json_object_set_new(message, name, value) == 0;
    ok = json_array_set_new(all, json_array_size(all) - 1, message) == 0 && ok;
    if (ok) return all;
    json_decref(all);
    return NULL;
}

static json_t *marked_text(const weir__chat_continued *last, const json_t *text)
{
    weir__text all = {0};
    bool ok = weir__text_add(&all, json_string_value(text), json_string_length(text)) &&
              weir__text_add_string(&all, last->mark);
    json_t *marked = ok ? json_stringn(all.bytes, all.n) : NULL;
    weir__text_fini(&all);
    return marked;
}

/* A content has texts only. */
static json_t *marked_content(const weir__chat_continued *last, const json_t *content)
{
    size_t n = json_array_size(content);
    if (n == 0) return marked_text(last, content);
    json_t *parts = weir__json_copy(content), *part = weir__json_copy(json_array_get(content, n - 1));
    bool ok = json_object_set_new(part, "text", marked_text(last, json_object_get(part, "text"))) == 0;
    ok = json_array_set_new(parts, n - 1, part) == 0 && ok;
    if (ok) return parts;
    json_decref(parts);
    return NULL;
}

json_t *weir__chat_continued_marked(const weir__chat_continued *last, const json_t *messages)
{
    bool reasons = last->kind == WEIR__CONTINUE_REASONING;
    const char *name = reasons ? "reasoning_content" : "content";
    const json_t *value = json_object_get(last_of(messages), name);
    return with_member(messages, name, reasons ? marked_text(last, value) : marked_content(last, value));
}

json_t *weir__chat_continued_single(const weir__chat_continued *last, const json_t *messages,
                                    const char *text)
{
    if (last->kind == WEIR__CONTINUE_REASONING) return with_member(messages, "content", json_string(""));
    return with_member(messages, "content", json_pack("[{s:s,s:s}]", "type", "text", "text", text));
}

json_t *weir__chat_continued_joined(const weir__chat_continued *last, const json_t *messages)
{
    weir__text text = {0};
    bool ok = weir__text_add_string(&text, "") &&
              weir__chat_add_content(&text, json_object_get(last_of(messages), "content"));
    json_t *all = ok ? weir__chat_continued_single(last, messages, text.bytes) : NULL;
    weir__text_fini(&text);
    return all;
}

json_t *weir__chat_continued_before(const json_t *messages)
{
    json_t *all = weir__json_copy(messages);
    if (all != NULL) json_array_remove(all, json_array_size(all) - 1);
    return all;
}

json_t *weir__chat_continued_alone(const weir__chat_continued *last, const json_t *messages, const char *text)
{
    json_t *given = json_string(text);
    json_t *marked = given != NULL ? marked_text(last, given) : NULL;
    json_decref(given);
    return with_member(messages, "content", marked);
}

bool weir__chat_continued_cut(const weir__chat_continued *last, weir__text *prompt)
{
    const char *found = NULL;
    for (size_t at = 0; at < prompt->n;) {
        const char *next = memmem(prompt->bytes + at, prompt->n - at, last->mark, WEIR__CHAT_PLACEHOLDER);
        if (next == NULL) break;
        found = next;
        at = (size_t)(next - prompt->bytes) + WEIR__CHAT_PLACEHOLDER;
    }
    if (found == NULL) return false;
    prompt->n = (size_t)(found - prompt->bytes);
    prompt->bytes[prompt->n] = '\0';
    return true;
}
