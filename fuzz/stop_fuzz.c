/* stop_fuzz.c: the stop string matcher fed in pieces against a search in the whole text.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte that seeds the cuts, then stop strings, each a byte of length and its bytes, up to a length
 * of 0; the rest is the text. */
#include "base/mem.h"
#include "engine/stop.h"
#include "fuzz.h"

#define MAX_STRINGS 16

static bool ends_with(const char *text, size_t n, const char *end, size_t n_end)
{
    return n_end <= n && memcmp(text + n - n_end, end, n_end) == 0;
}

/* The string that ends the text, -1 if none does, and how many bytes get out before it, or so far. */
static int reference(const char *const *strings, const size_t *lens, size_t n_strings, const char *text,
                     size_t n, size_t *n_out)
{
    for (size_t at = 1; at <= n; at++) {
        int matched = -1;
        for (size_t i = 0; i < n_strings; i++)
            if (ends_with(text, at, strings[i], lens[i]) && (matched < 0 || lens[i] > lens[matched]))
                matched = (int)i;
        if (matched < 0) continue;
        *n_out = at - lens[matched];
        return matched;
    }
    size_t held = 0;
    for (size_t i = 0; i < n_strings; i++)
        for (size_t len = lens[i] - 1; len > held; len--)
            if (ends_with(text, n, strings[i], len)) held = len;
    *n_out = n - held;
    return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *strings[MAX_STRINGS];
    size_t lens[MAX_STRINGS];
    size_t n_strings = 0;
    if (size == 0 || size > 4096) return 0;

    uint32_t cuts = data[0];
    size_t from = 1;
    while (from < size && n_strings < MAX_STRINGS) {
        size_t len = data[from++];
        if (len > size - from) len = size - from;
        if (len == 0) break;
        strings[n_strings] = (const char *)data + from;
        lens[n_strings++] = len;
        from += len;
    }
    if (n_strings == 0) return 0;
    const char *text = (const char *)data + from;
    size_t n = size - from;

    weir__stop *stop;
    require(weir__stop_create(strings, lens, n_strings, &stop) == WEIR_OK);
    size_t max_len = weir__stop_max_len(stop);
    char *got = malloc(n + 1);
    require(got != NULL);

    weir__stop_state state;
    size_t n_got = 0;
    int matched = -1;
    weir__stop_state_init(&state);
    for (size_t at = 0; at < n;) {
        cuts = cuts * 1664525U + 1013904223U;
        size_t n_fed = 1 + (cuts >> 24) % 9;
        if (n_fed > n - at) n_fed = n - at;
        char *out = malloc(n_fed + max_len); /* of the promised size, for the address sanitizer */
        size_t n_out;
        require(out != NULL);
        matched = weir__stop_feed(stop, &state, text + at, n_fed, out, &n_out);
        at += n_fed;
        require(n_out <= n - n_got);
        memcpy(got + n_got, out, n_out);
        n_got += n_out;
        free(out);
        require(weir__stop_held(stop, &state) == (matched < 0 ? at - n_got : 0));
    }
    size_t n_want;
    require(matched == reference(strings, lens, n_strings, text, n, &n_want) && n_got == n_want);

    char *rest = malloc(max_len);
    require(rest != NULL);
    size_t n_rest = weir__stop_flush(stop, &state, rest);
    require(matched >= 0 ? n_rest == 0 : n_got + n_rest == n);
    memcpy(got + n_got, rest, n_rest);
    require(memcmp(got, text, n_got + n_rest) == 0);

    free(rest);
    free(got);
    weir__stop_destroy(stop);
    require(weir__mem_live() == 0);
    return 0;
}
