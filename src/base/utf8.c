/* utf8.c: a streaming sanitizer: bytes in, well-formed UTF-8 out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

typedef enum kind {
    WHOLE,   /* a well-formed sequence */
    PARTIAL, /* all bytes given, a proper prefix of a well-formed sequence */
    BROKEN,  /* a maximal ill-formed subpart */
} kind;

static const char replacement[3] = {'\xef', '\xbf', '\xbd'};

/* Looks at the sequence that begins at s[0], n >= 1; its length goes to *length. The ranges are those of
 * Table 3-7 of the Unicode Standard: only the second byte's range depends on the first. */
static kind classify_sequence(const unsigned char *s, size_t n, size_t *length)
{
    unsigned char lead = s[0];
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t wanted;

    *length = 1;
    if (lead < 0x80) return WHOLE;
    if (lead < 0xc2 || lead > 0xf4) return BROKEN;
    if (lead < 0xe0) {
        wanted = 2;
    } else if (lead < 0xf0) {
        wanted = 3;
        if (lead == 0xe0) low = 0xa0;  /* below: overlong */
        if (lead == 0xed) high = 0x9f; /* above: surrogates */
    } else {
        wanted = 4;
        if (lead == 0xf0) low = 0x90;  /* below: overlong */
        if (lead == 0xf4) high = 0x8f; /* above: beyond U+10FFFF */
    }

    for (size_t i = 1; i < wanted; i++) {
        *length = i;
        if (i == n) return PARTIAL;
        if (s[i] < low || s[i] > high) return BROKEN;
        low = 0x80;
        high = 0xbf;
    }
    *length = wanted;
    return WHOLE;
}

/* Length of the longest well-formed prefix. */
static size_t well_formed(const unsigned char *s, size_t n)
{
    size_t at = 0;
    for (;;) {
        while (n - at >= sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, s + at, sizeof word);
            if (word & UINT64_C(0x8080808080808080)) break;
            at += sizeof word;
        }
        while (at < n && s[at] < 0x80) at++;
        size_t length;
        if (at == n || classify_sequence(s + at, n - at, &length) != WHOLE) return at;
        at += length;
    }
}

static size_t put_bytes(char *out, size_t n_out, const void *bytes, size_t n)
{
    memcpy(out + n_out, bytes, n);
    return n_out + n;
}

void weir__utf8_init(weir__utf8 *state)
{
    state->n_held = 0;
}

size_t weir__utf8_feed(weir__utf8 *state, const char *bytes, size_t n, char *out)
{
    const unsigned char *s = (const unsigned char *)bytes;
    size_t at = 0;
    size_t n_out = 0;
    size_t length;

    assert(state->n_held <= sizeof state->held);
    while (state->n_held > 0 && at < n) {
        unsigned char joined[4];
        memcpy(joined, state->held, state->n_held);
        joined[state->n_held] = s[at];
        switch (classify_sequence(joined, state->n_held + 1U, &length)) {
        case WHOLE:
            n_out = put_bytes(out, n_out, joined, length);
            state->n_held = 0;
            at++;
            break;
        case PARTIAL: state->held[state->n_held++] = s[at++]; break;
        case BROKEN: /* the held bytes are the subpart; s[at] begins anew */
            n_out = put_bytes(out, n_out, replacement, sizeof replacement);
            state->n_held = 0;
            break;
        }
    }

    while (at < n) {
        size_t run = well_formed(s + at, n - at);
        n_out = put_bytes(out, n_out, s + at, run);
        at += run;
        if (at == n) break;
        if (classify_sequence(s + at, n - at, &length) == PARTIAL) {
            memcpy(state->held, s + at, length);
            state->n_held = (unsigned char)length;
            break;
        }
        n_out = put_bytes(out, n_out, replacement, sizeof replacement);
        at += length;
    }
    return n_out;
}

size_t weir__utf8_flush(weir__utf8 *state, char *out)
{
    if (state->n_held == 0) return 0;
    state->n_held = 0;
    return put_bytes(out, 0, replacement, sizeof replacement);
}

size_t weir__utf8_sanitize(const char *bytes, size_t n, char *out)
{
    weir__utf8 state;
    weir__utf8_init(&state);
    size_t n_out = weir__utf8_feed(&state, bytes, n, out);
    return n_out + weir__utf8_flush(&state, out + n_out);
}

size_t weir__utf8_copy(char *out, size_t capacity, const char *bytes, size_t n)
{
    weir__utf8 state;
    size_t n_out = 0;
    weir__utf8_init(&state);
    for (size_t i = 0; i <= n; i++) {
        char piece[WEIR__UTF8_BOUND(1)];
        size_t n_piece =
            i < n ? weir__utf8_feed(&state, bytes + i, 1, piece) : weir__utf8_flush(&state, piece);
        if (n_piece >= capacity - n_out) break;
        n_out = put_bytes(out, n_out, piece, n_piece);
    }
    out[n_out] = '\0';
    return n_out;
}

bool weir__utf8_valid(const char *bytes, size_t n)
{
    return well_formed((const unsigned char *)bytes, n) == n;
}

size_t weir__utf8_cut(const char *bytes, size_t n)
{
    const unsigned char *s = (const unsigned char *)bytes;
    /* An incomplete sequence is at most 3 bytes: find the last lead byte there. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char byte = s[n - back];
        if (byte < 0x80) return n;
        if (byte < 0xc0) continue;
        size_t length;
        return classify_sequence(s + n - back, back, &length) == PARTIAL ? n - back : n;
    }
    return n;
}
