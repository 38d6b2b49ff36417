/* utf8_fuzz.c: the sanitizer fed in pieces against the sanitizer fed at once.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte that seeds the cuts, then the text. */
#include "base/utf8.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    uint32_t cuts = data[0];
    const char *text = (const char *)data + 1;
    size_t n = size - 1;

    char *whole = malloc(WEIR__UTF8_BOUND(n));
    char *pieces = malloc(WEIR__UTF8_BOUND(n));
    char *copy = malloc(n + 1);
    require(whole != NULL && pieces != NULL && copy != NULL);

    size_t n_whole = weir__utf8_sanitize(text, n, whole);
    require(weir__utf8_valid(whole, n_whole));
    int unchanged = n_whole == n && memcmp(whole, text, n) == 0;
    require(weir__utf8_valid(text, n) == unchanged);

    weir__utf8 state;
    size_t n_pieces = 0;
    weir__utf8_init(&state);
    for (size_t at = 0; at < n;) {
        cuts = cuts * 1664525U + 1013904223U;
        size_t n_fed = 1 + (cuts >> 24) % 6;
        if (n_fed > n - at) n_fed = n - at;
        char *out = malloc(WEIR__UTF8_BOUND(n_fed)); /* of the promised size, for the address sanitizer */
        require(out != NULL);
        size_t n_out = weir__utf8_feed(&state, text + at, n_fed, out);
        require(weir__utf8_valid(out, n_out));
        memcpy(pieces + n_pieces, out, n_out);
        free(out);
        n_pieces += n_out;
        at += n_fed;
    }
    n_pieces += weir__utf8_flush(&state, pieces + n_pieces);
    require(n_pieces == n_whole && memcmp(pieces, whole, n_whole) == 0);

    /* The part that fits: a prefix of the same, in whole characters */
    size_t n_copy = weir__utf8_copy(copy, n + 1, text, n);
    require(n_copy <= n && n_copy <= n_whole && copy[n_copy] == '\0');
    require(memcmp(copy, whole, n_copy) == 0 && weir__utf8_valid(copy, n_copy));

    size_t n_cut = weir__utf8_cut(text, n);
    require(n_cut <= n && n - n_cut <= 3);
    if (unchanged) require(n_cut == n);
    for (size_t end = 0; unchanged && end <= n; end++)
        require(weir__utf8_valid(text, weir__utf8_cut(text, end)));

    free(copy);
    free(pieces);
    free(whole);
    return 0;
}
