/* json.h: JSON texts of callers, read with bounds; values and texts written as JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_JSON_H
#define WEIR_BASE_JSON_H

#include <jansson.h>
#include <weir/weir.h>

#include "base/text.h"

/* A message for people who write JSON: jansson's own messages are for programmers and name its flags and
 * types. It has the place in the text, if jansson names one. */
typedef struct weir__json_words {
    char text[256];
} weir__json_words;
weir__json_words weir__json_problem(const json_error_t *what);

/* The depth of brackets: everything that walks these values recurses, here, in llama.cpp and in templates. */
#define WEIR__JSON_DEPTH_MAX 100
#define WEIR__JSON_BYTES_MAX ((size_t)256 << 20) /* the parsed tree takes several times that */

/* Each value takes memory and some hundred nanoseconds, an object or array several times that, whatever its
 * bytes are. As many as the ids of the longest prompts. */
#define WEIR__JSON_VALUES_MAX     ((size_t)2 << 20)
#define WEIR__JSON_CONTAINERS_MAX ((size_t)256 << 10)
#define WEIR__JSON_MEMBERS_MAX    ((size_t)512 << 10) /* of all objects */
#define WEIR__JSON_WIDTH_MAX      ((size_t)64 << 10)  /* members of one object, which has a hash table */

/* Any JSON value; freed with json_decref. length may be WEIR_NUL. The text must be well-formed UTF-8. It must
 * not repeat a key, nor escape U+0000, which no text here can contain, or half a pair of surrogates. Integers
 * beyond 64 bits become reals. Errors: INVALID (text is NULL), `code` (with line and column), NO_MEMORY;
 * error->field is `field`. ABORTED, as weir_interrupt_set says. */
weir_status weir__json_parse(const char *text, size_t length, const char *field, weir_status code,
                             json_t **value, weir_error *error);

/* Parses texts of conversations, as above, but these escapes become U+FFFD: a tool's output may have them,
 * and clients cut texts within a pair. A refusal would end the conversation. Integers beyond 64 bits keep
 * their digits, see json_read.h. */
weir_status weir__json_parse_texts(const char *text, size_t length, const char *field, weir_status code,
                                   json_t **value, weir_error *error);

/* Parses as weir__json_parse does, but integers beyond 64 bits keep their digits. */
weir_status weir__json_parse_exact(const char *text, size_t length, const char *field, weir_status code,
                                   json_t **value, weir_error *error);

/* Checks a value that was not read here: that a text could have given it, with the limits of above. INVALID:
 * error->field is `field`. */
weir_status weir__json_check(const json_t *value, const char *field, weir_error *error);

/* Takes 1 of *left for each value, and for each array and object as many more as VALUES_MAX has for each of
 * CONTAINERS_MAX. False: there was too little. */
bool weir__json_spend(const json_t *value, size_t *left);

/* The bytes of its text, about: an escape counts as its character, a number as 8. */
size_t weir__json_size(const json_t *value);

/* A copy with arrays and objects of its own, at any depth, which shares the other values. NULL: out of
 * memory. */
json_t *weir__json_own(const json_t *value);

/* The value with reals in place of integers beyond 64 bits (json_read.h). NULL: out of memory. */
json_t *weir__json_near(const json_t *value);

/* The copy of an array, object or other value; its elements and members are shared. NULL: out of memory.
 * json_copy leaves out those for which it has no memory. */
json_t *weir__json_copy(const json_t *value);

/* True if few pairs of members are in the same object, 2^25 in all. llama.cpp's JSON, which keeps the
 * order of members, compares each with all before it. */
bool weir__json_is_narrow(const json_t *value);

/* The shortest text that reads as the same finite number, as Python's repr writes it, with a NUL. Returns its
 * length. In any locale. */
#define WEIR__JSON_REAL_MAX 32
size_t weir__json_real_text(double value, char text[WEIR__JSON_REAL_MAX]);

/* Compact text, keys in their order, NUL-terminated, freed with weir__mem_free; NULL: out of memory, or
 * interrupted, which the caller may ask (weir_interrupt_asked). */
char *weir__json_dump(const json_t *value);

/* The text of weir__json_dump if it has at most so many bytes. NULL, and *longer is true: there are more. */
char *weir__json_dump_most(const json_t *value, size_t most, bool *longer);

/* ---- Into a text, piece by piece ---- */

/* A comma, unless an object or array was begun just now. */
void weir__json_next(weir__text *text);

/* The name of a member, after a comma where one is due; its value follows. */
void weir__json_key(weir__text *text, const char *name);

/* A string with its quotes; invalid UTF-8 becomes U+FFFD. bytes are NULL when n is 0. */
void weir__json_quote(weir__text *text, const char *bytes, size_t n);

/* Add members to a text. A string that is NULL becomes null; a number is as short as `decimals` allows, and 0
 * if it is not finite. */
void weir__json_bytes(weir__text *text, const char *name, const char *bytes, size_t n);
void weir__json_string(weir__text *text, const char *name, const char *string);
void weir__json_number(weir__text *text, const char *name, double value, int decimals);

/* Adds a member with the fewest digits that read back as the same float; 0 if it is not finite. */
void weir__json_float(weir__text *text, const char *name, float value);

#endif
