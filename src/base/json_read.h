/* json_read.h: JSON texts as jansson's values. jansson's own reader looks at only some of its allocations:
 * where one fails, it reads past a token or loses bytes of it, and calls a valid text invalid.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_JSON_READ_H
#define WEIR_BASE_JSON_READ_H

#include <jansson.h>
#include <stdbool.h>

/* The reason for which a text could not be read. The token that is at fault is text[from, at); both are the
 * length at the end of the text. */
typedef struct weir__json_fault {
    enum json_error_code code; /* stack_overflow: too deep; null_character: an unfit escape, see json.h;
                                * index_out_of_range: too many integers beyond 64 bits */
    size_t from, at;
    bool interrupted; /* weir_interrupt_set's function asked for the end */
} weir__json_fault;

/* text[length] is well-formed UTF-8. depth_max: how deep brackets may be nested. mends: unfit escapes become
 * U+FFFD. exact: integers beyond 64 bits keep their digits. NULL: *fault says why. */
json_t *weir__json_read(const char *text, size_t length, int depth_max, bool mends, bool exact,
                        weir__json_fault *fault);

/* The digits of an integer beyond 64 bits; NULL: it is none. jansson has no type for it: it is an object of
 * one member, whose name are two noncharacters. */
#define WEIR__JSON_BIG_MAX ((size_t)65536) /* in one text: each is an object */
#define WEIR__JSON_BIG     "\xef\xb7\x90\xef\xb7\x90"
const char *weir__json_digits(const json_t *value);

#endif
