/* utf8_cpython_helper.c: the sanitizer's side of utf8_cpython.py.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Standard input is a sequence of strings: uint32 n_pieces, then each piece as uint32 length and bytes. For
 * each string it writes, in the same form: the output of each piece, that of the flush, and the whole string
 * sanitized at once. Native byte order. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define MAX_STRING 65536

static uint32_t read_count(void)
{
    uint32_t n;
    if (fread(&n, sizeof n, 1, stdin) == 1 && n <= MAX_STRING) return n;
    fprintf(stderr, "utf8_cpython_helper: malformed input\n");
    exit(2);
}

static void write_piece(const char *bytes, size_t n)
{
    uint32_t count = (uint32_t)n;
    fwrite(&count, sizeof count, 1, stdout);
    fwrite(bytes, 1, n, stdout);
}

int main(void)
{
    static char whole[MAX_STRING];
    static char out[WEIR__UTF8_BOUND(MAX_STRING)];
    for (int next = getchar(); next != EOF; next = getchar()) {
        weir__utf8 state;
        size_t n = 0;
        ungetc(next, stdin);
        weir__utf8_init(&state);
        for (uint32_t left = read_count(); left > 0; left--) {
            uint32_t n_piece = read_count();
            if (n_piece > MAX_STRING - n || fread(whole + n, 1, n_piece, stdin) != n_piece) return 2;
            write_piece(out, weir__utf8_feed(&state, whole + n, n_piece, out));
            n += n_piece;
        }
        write_piece(out, weir__utf8_flush(&state, out));
        write_piece(out, weir__utf8_sanitize(whole, n, out));
    }
    return fflush(stdout) == 0 ? 0 : 2;
}
