/* sse_fuzz.c: an event stream fed in pieces gives the same as fed at once, and each event is read as an
 * answer.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a byte that seeds the cuts and chooses the API, then the stream. */
#include "base/utf8.h"
#include "cli/lib/sse.h"
#include "fuzz.h"

struct seen {
    uint64_t hash;
    size_t n;
    bool plain;
};

static bool on_event(const char *data, size_t length, void *user)
{
    struct seen *seen = user;
    cli_answer answer;
    require(data[length] == '\0' && strlen(data) == length && weir__utf8_valid(data, length));
    cli_answer_read(&answer, data, length, seen->plain);
    require(answer.n_text == 0 || weir__utf8_valid(answer.text, answer.n_text));
    require(weir__utf8_valid(answer.message, strlen(answer.message)));
    require(!answer.has_usage || (answer.n_prompt >= 0 && answer.n_generated >= 0 && answer.n_cached >= -1));
    cli_answer_fini(&answer);
    for (size_t i = 0; i <= length; i++) seen->hash = (seen->hash ^ (unsigned char)data[i]) * 1099511628211U;
    return ++seen->n < 64;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    uint32_t cuts = data[0];
    const char *bytes = (const char *)data + 1;
    size_t n = size - 1;
    char message[64];
    cli_answer_error_text(bytes, n, message, sizeof message);
    require(weir__utf8_valid(message, strlen(message)));

    cli_sse whole = {0}, pieces = {0};
    struct seen once = {.plain = cuts & 1}, cut = once;
    cli_sse_feed(&whole, bytes, n, on_event, &once);
    for (size_t at = 0; at < n;) {
        cuts = cuts * 1664525U + 1013904223U;
        size_t n_fed = 1 + (cuts >> 24) % 9;
        if (n_fed > n - at) n_fed = n - at;
        cli_sse_feed(&pieces, bytes + at, n_fed, on_event, &cut);
        at += n_fed;
    }
    require(whole.status == pieces.status && whole.problem == pieces.problem);
    require(once.n == cut.n && once.hash == cut.hash);
    require(cli_sse_complete(&whole) == cli_sse_complete(&pieces));
    cli_sse_fini(&pieces);
    cli_sse_fini(&whole);
    return 0;
}
