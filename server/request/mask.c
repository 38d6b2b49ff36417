/* mask.c: takes ids of answers and folders of this machine out of texts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"

#include <string.h>

#include "base/ascii.h"
#include "serve.h"

#define SHOWN 8 /* digits: enough to tell ids apart, and 96 bits stay secret */

/* True if digits that begin here can be those of an id: "resp_" and "chatcmpl-" stand before them. Ids of
 * traces have no such word. */
static bool follows_word(const char *text, const char *at)
{
    return at >= text + 2 && (at[-1] == '-' || at[-1] == '_') && weir__ascii_is_letter(at[-2]);
}

void serve_mask_ids(char *text, size_t capacity)
{
    bool cut = strlen(text) + 1 >= capacity;
    for (char *at = text; *at != '\0';) {
        size_t n = strspn(at, "0123456789abcdefABCDEF");
        bool whole = n >= SERVE_TOKEN || (n > SHOWN && at[n] == '\0' && cut);
        if (whole && follows_word(text, at)) {
            at[SHOWN] = '*';
            memmove(at + SHOWN + 1, at + n, strlen(at + n) + 1);
            n = SHOWN + 1;
        }
        at += n > 0 ? n : 1;
    }
}

/* Bytes of the path that begins at a word's beginning. */
static size_t path_length(const char *text, const char *at)
{
    const char quote[] = {at > text ? at[-1] : '\0', '\0'};
    bool quoted = quote[0] == '"' || quote[0] == '\'';
    return strcspn(at, quoted ? quote : " \t\n\"'(),:;");
}

void serve_mask_paths(char *text)
{
    for (char *at = text; (at = strchr(at, '/')) != NULL;) {
        bool begins = at == text || strchr(" \t\n\"'(=", at[-1]) != NULL;
        size_t n = begins ? path_length(text, at) : 0;
        char *last = at;
        for (size_t i = 1; i + 1 < n; i++) /* one at the end belongs to the last part */
            if (at[i] == '/') last = at + i;
        if (n > 1)
            memmove(at, last + 1, strlen(last + 1) + 1);
        else
            at++;
    }
}
