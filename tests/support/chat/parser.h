/* parser.h: chats with tools and templates of model families, and answers as their parsers read
 * them, for tests.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_CHAT_PARSER_H
#define WEIR_SUPPORT_CHAT_PARSER_H

#include "chat/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "support/pin.h"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"Weather\","
    "\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}},"
    "\"required\":[\"city\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather_map\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"zoom\":{\"type\":\"number\"},\"layers\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}}}]";

static weir_model *model;

/* The first model, and one for each template that use_model_of was called with. */
static struct {
    char name[256];
    weir_model *model;
} models[128];
static size_t n_models;

/* From now on the template's own model: a model forgets what it found out about a template once it has seen
 * a few others, so that each walk over all of them would have to find it out again. */
static inline void use_model_of(const char *name)
{
    size_t i = 0;
    while (i < n_models && strcmp(models[i].name, name) != 0) i++;
    if (i == n_models) {
        assert_true(n_models < sizeof models / sizeof *models && strlen(name) < sizeof models->name);
        assert_int_equal(weir_model_load("fake:", NULL, &models[i].model, NULL), WEIR_OK);
        strcpy(models[n_models++].name, name);
    }
    model = models[i].model;
}

static inline int load(void **state)
{
    (void)state;
    use_model_of("");
    return 0;
}

static inline int unload(void **state)
{
    (void)state;
    while (n_models > 0) weir_model_release(models[--n_models].model);
    return 0;
}

/* A chat with a template that comes with the pinned source, or the built-in one for NULL; NULL: no such file,
 * or the template refuses. */
static inline weir_chat *chat_tried(const char *name, bool with_tools, weir_error *error)
{
    char *source = NULL;
    weir_chat *chat = NULL;
    weir_chat_params params = weir_chat_params_default();
    weir_message message = {"user", "What is the weather in Paris?"};
    bool no_llama = strcmp(weir_backend_version(), "none") == 0;
    if (with_tools && no_llama) return NULL;
    if (name != NULL) {
        source = no_llama ? NULL : pin_template(name);
        if (source == NULL) return NULL;
    }
    params.messages = &message;
    params.n_messages = 1;
    params.template_source = source;
    params.tools_json = with_tools ? tools : NULL;
    params.parallel_tool_calls = true;
    if (weir_chat_create(model, &params, &chat, error) != WEIR_OK) chat = NULL;
    free(source);
    return chat;
}

static inline weir_chat *chat_with(const char *name, bool with_tools)
{
    weir_error error = {0};
    weir_chat *chat = chat_tried(name, with_tools, &error);
    if (error.code != WEIR_OK) fail_msg("%s: %s", name, error.message);
    return chat;
}

/* ---- Answers ---- */

typedef struct answer {
    char content[8192], reasoning[8192];
    struct {
        char name[64], id[64], arguments[2048];
    } calls[4];
    size_t n_calls;
} answer;

static inline void take(weir_chat_parser *parser, answer *a)
{
    weir_delta d;
    weir_status status;
    while ((status = weir_chat_parser_next(parser, &d)) == WEIR_OK) {
        assert_true(weir__utf8_valid(d.text, d.length));
        assert_int_equal(d.text[d.length], '\0');
        assert_int_equal(d.id != NULL, d.kind == WEIR_DELTA_TOOL_CALL);
        char *to = a->content;
        switch (d.kind) {
        case WEIR_DELTA_CONTENT: break;
        case WEIR_DELTA_REASONING: to = a->reasoning; break;
        case WEIR_DELTA_TOOL_CALL:
            assert_int_equal(d.index, a->n_calls);
            assert_true(a->n_calls < 4 && d.length > 0 && d.length < 64);
            strcpy(a->calls[a->n_calls].name, d.text);
            snprintf(a->calls[a->n_calls].id, 64, "%s", d.id);
            a->n_calls++;
            continue;
        case WEIR_DELTA_ARGUMENTS:
            assert_int_equal(d.index, (int32_t)a->n_calls - 1);
            assert_true(d.length > 0);
            to = a->calls[d.index].arguments;
            assert_true(strlen(to) + d.length < 2048);
            strcat(to, d.text);
            continue;
        }
        assert_true(d.length > 0);
        assert_int_equal(d.index, -1);
        assert_true(strlen(to) + d.length < 8192);
        strcat(to, d.text);
    }
    assert_int_equal(status, WEIR_END);
}

/* Feeds the text in pieces of the lengths that next_length draws from *seed; 0: one byte each; 1: all at
 * once. */
static inline void read_answer(weir_chat *chat, const char *text, size_t cut, uint64_t *seed, answer *a)
{
    weir_chat_parser *parser = NULL;
    size_t length = strlen(text);
    memset(a, 0, sizeof *a);
    assert_int_equal(weir_chat_parser_create(chat, &parser, NULL), WEIR_OK);
    for (size_t i = 0; i < length || i == 0;) {
        size_t n = length - i;
        if (seed != NULL) {
            *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            n = (size_t)(*seed >> 33) % 9;
        } else if (cut > 0 && i < cut) {
            n = cut;
        } else if (cut == 0) {
            n = 1;
        }
        if (n > length - i) n = length - i;
        assert_int_equal(weir_chat_parser_feed(parser, text + i, n, false, NULL), WEIR_OK);
        if (seed == NULL || (*seed >> 50) % 3 != 0) take(parser, a);
        i += n;
        if (length == 0) break;
    }
    assert_int_equal(weir_chat_parser_feed(parser, NULL, 0, true, NULL), WEIR_OK);
    take(parser, a);
    assert_int_equal(weir_chat_parser_feed(parser, "more", 4, false, NULL), WEIR_STATE);
    weir_chat_parser_destroy(parser);
}

static inline bool same(const answer *a, const answer *b, bool ids)
{
    bool equal = strcmp(a->content, b->content) == 0 && strcmp(a->reasoning, b->reasoning) == 0 &&
                 a->n_calls == b->n_calls;
    for (size_t i = 0; equal && i < a->n_calls; i++)
        equal = strcmp(a->calls[i].name, b->calls[i].name) == 0 &&
                strcmp(a->calls[i].arguments, b->calls[i].arguments) == 0 &&
                (!ids || strcmp(a->calls[i].id, b->calls[i].id) == 0);
    return equal;
}

static inline void show(const char *what, const answer *a)
{
    print_message("%s: content [%s] reasoning [%s]", what, a->content, a->reasoning);
    for (size_t i = 0; i < a->n_calls; i++)
        print_message(" call %s %s %s", a->calls[i].id, a->calls[i].name, a->calls[i].arguments);
    print_message("\n");
}

/* True if the text has the ids of all calls: those of the others are made up. */
static inline bool has_ids(const char *text, const answer *a)
{
    bool has = true;
    for (size_t i = 0; i < a->n_calls; i++) has = has && strstr(text, a->calls[i].id) != NULL;
    return has;
}

/* Reads the text whole, byte by byte and in random pieces, which must come to the same. */
static inline void read_cut(weir_chat *chat, const char *text, uint64_t *seed, answer *a)
{
    static answer split;
    read_answer(chat, text, strlen(text), NULL, a);
    for (int i = 0; i < 2; i++) {
        read_answer(chat, text, 0, i == 0 ? NULL : seed, &split);
        if (same(&split, a, has_ids(text, a))) continue;
        show("whole", a);
        show("split", &split);
        fail_msg("%s", text);
    }
}

#endif
