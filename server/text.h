/* text.h: bytes that grow, and JSON written into them. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_TEXT_H
#define WEIR_SERVER_TEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Memory that several texts share, of any threads. A text counts with its capacity once that is above
 * `small`: small ones always have room. Invariant: used <= most. */
typedef struct serve_quota {
    size_t most, small;
    _Atomic size_t used;
} serve_quota;

/* bytes [n], NUL after them where something was added. Once memory is out, or the quota is used up, `failed`
 * stays and nothing more is added: writers look at it once, at the end. Begins as zeroes, but for the
 * quota. */
typedef struct serve_text {
    char *bytes;
    size_t n;
    size_t capacity;
    bool failed;
    bool over;          /* it failed because the quota was used up */
    bool too_long;      /* and would not fit if it had all of it */
    serve_quota *quota; /* NULL: none */
    size_t counted;     /* bytes of the quota that it has */
} serve_text;

/* Also gives back what it has of its quota. */
void serve_text_fini(serve_text *text);

/* Room for n more bytes, without adding them. */
bool serve_text_reserve(serve_text *text, size_t n);

/* Puts these before the others, and gives back capacity that is left over. */
void serve_text_close(serve_text *text, const char *before, size_t n);

void serve_text_add(serve_text *text, const char *bytes, size_t n);
void serve_text_puts(serve_text *text, const char *string);
void serve_text_printf(serve_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; what is no UTF-8 in it becomes U+FFFD. bytes are NULL when n is 0. */
void serve_text_json(serve_text *text, const char *bytes, size_t n);
void serve_text_json_puts(serve_text *text, const char *string);

/* A JSON number: as short as `decimals` allows; 0 for what is no finite number. */
void serve_text_number(serve_text *text, double value, int decimals);

/* Random hexadecimal digits, n of them (even, at most 512), and a zero. False: the system gives no random
 * bytes. */
bool serve_text_random(char *hex, size_t n);

/* Whether two ids of the same capacity, filled up with zeroes, are the same; the time tells nothing about
 * them. */
bool serve_text_same(const char *a, const char *b, size_t capacity);

#endif
