/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <stdio.h>
#include <string.h>

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
