/* text.h: bytes that grow.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Memory that several texts share. A text counts with its capacity once that is above `small`: small ones
 * always have room. take, give: n bytes more, or back; on the text's thread. take is false where there is no
 * room. */
typedef struct weir__quota weir__quota;
struct weir__quota {
    size_t most, small; /* most: of one text */
    bool (*take)(weir__quota *quota, size_t n);
    void (*give)(weir__quota *quota, size_t n);
};

/* Begins as zeroes, but for the quota. Where memory is out, or the quota used up, nothing of an addition is
 * added, and `failed` stays: a writer may look at it once, at the end. Invariant: bytes is NULL, or
 * n < capacity. */
typedef struct weir__text {
    char *bytes; /* [n], and a NUL once something was added */
    size_t n;
    size_t capacity;
    bool failed;
    bool over;          /* it failed because the quota was used up */
    bool too_long;      /* and would not fit if it had all of it */
    weir__quota *quota; /* NULL: none */
    size_t counted;     /* bytes of the quota that it has */
} weir__text;

/* False: nothing was added. */
bool weir__text_add(weir__text *text, const char *bytes, size_t n);
bool weir__text_add_string(weir__text *text, const char *string);
bool weir__text_printf(weir__text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool weir__text_vprintf(weir__text *text, const char *format, va_list list)
    __attribute__((format(printf, 2, 0)));

/* printf into memory that weir__mem_free frees; NULL: out of memory. */
char *weir__text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Room for n more bytes, without adding them. */
bool weir__text_reserve(weir__text *text, size_t n);

/* Puts these before the others, and gives back capacity that is left over. */
void weir__text_close(weir__text *text, const char *before, size_t n);

/* The first n bytes stay, of as many or more. */
void weir__text_cut(weir__text *text, size_t n);

/* Empty again; keeps the memory. */
void weir__text_clear(weir__text *text);

/* Frees the text, and gives its share back to the quota. */
void weir__text_fini(weir__text *text);

#endif
