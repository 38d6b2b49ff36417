/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"

static const char *words_for(const json_error_t *what)
{
    switch (json_error_code(what)) {
    case json_error_premature_end_of_input: return "it ends too early";
    case json_error_end_of_input_expected: return "something follows behind its end";
    case json_error_null_character:
    case json_error_null_byte_in_key: return "the character U+0000 is not allowed";
    case json_error_duplicate_key: return "duplicate key in an object";
    case json_error_numeric_overflow: return "the number is too large";
    case json_error_stack_overflow: return "it is nested too deep";
    default: return "this is no value, key or sign that may stand here";
    }
}

weir__json_words weir__json_problem(const json_error_t *what)
{
    weir__json_words words;
    const char *near = strstr(what->text, " near '"); /* and what stands there */
    snprintf(words.text, sizeof words.text, "%s%s%s", words_for(what), near != NULL ? "," : "",
             near != NULL ? near : "");
    return words;
}

/* ---- Reading ---- */

/* Whether brackets are nested at most WEIR__JSON_DEPTH_MAX deep: before jansson, which recurses, sees them.
 */
static bool is_shallow(const char *text, size_t length)
{
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > WEIR__JSON_DEPTH_MAX) return false;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return true;
}

weir_status weir__json_parse(const char *text, size_t length, const char *field, weir_status code,
                             json_t **value, weir_error *error)
{
    json_error_t what;
    if (text == NULL) return weir__error_set(error, WEIR_INVALID, field, "%s is NULL", field);
    if (length == WEIR_NUL) length = strlen(text);
    if (length > WEIR__JSON_BYTES_MAX)
        return weir__error_set(error, code, field, "%s has %zu bytes; allowed: up to %zu", field, length,
                               WEIR__JSON_BYTES_MAX);
    if (!weir__utf8_valid(text, length))
        return weir__error_set(error, code, field, "%s is not well-formed UTF-8", field);
    if (!is_shallow(text, length))
        return weir__error_set(error, code, field, "%s is nested deeper than %d", field,
                               WEIR__JSON_DEPTH_MAX);
    json_t *parsed = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &what);
    if (parsed == NULL) {
        if (json_error_code(&what) == json_error_out_of_memory)
            return weir__error_set(error, WEIR_NO_MEMORY, field, "out of memory for %s", field);
        return weir__error_set(error, code, field, "%s is not JSON: line %d, column %d: %s", field, what.line,
                               what.column, weir__json_problem(&what).text);
    }
    *value = parsed;
    return WEIR_OK;
}

typedef struct text {
    char *bytes;
    size_t n;
    size_t capacity;
    bool failed; /* jansson does not look at every return value */
} text;

static int add_text(const char *bytes, size_t n, void *user)
{
    text *t = user;
    t->failed |= !weir__mem_grow(&t->bytes, &t->capacity, t->n + n, 1);
    if (t->failed) return -1;
    if (n > 0) memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    return 0;
}

char *weir__json_dump(const json_t *value)
{
    text t = {0};
    if (json_dump_callback(value, add_text, &t, JSON_COMPACT | JSON_ENCODE_ANY) != 0 ||
        add_text("", 1, &t) != 0) {
        weir__mem_free(t.bytes);
        return NULL;
    }
    return t.bytes;
}
