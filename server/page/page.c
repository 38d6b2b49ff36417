/* page.c: GET / and the page's other files, with gzip for whoever takes it, and once for whoever keeps them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "page.h"
#include "files.h"
#include "server/request/call.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The page may load and run only its own files. A script in a model's answer is none of them. */
static const char head[] =
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'\r\n"
    "Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\nVary: Accept-Encoding\r\n";

static const weir__page_file *find_file(const char *path, size_t n)
{
    for (size_t i = 0; i < weir__n_page_files; i++)
        if (strlen(weir__page_files[i].path) == n && memcmp(weir__page_files[i].path, path, n) == 0)
            return &weir__page_files[i];
    return NULL;
}

bool serve_page_has(const char *path, size_t n)
{
    return find_file(path, n) != NULL;
}

/* ---- Which form of a file ---- */

/* True if the weight among a coding's parameters, such as ";q=0.5", is 0: the client refuses the coding. */
static bool is_refused(const char *parameters, size_t n)
{
    size_t at = 0;
    while (at < n && strchr("; \t", parameters[at]) != NULL) at++;
    if (n - at < 3 || strncasecmp(parameters + at, "q=0", 3) != 0) return false;
    size_t digits = strspn(parameters + at + 3, ".0");
    return at + 3 + digits >= n || strchr("; \t", parameters[at + 3 + digits]) != NULL;
}

bool serve_page_takes_gzip(const char *codings)
{
    bool others = false; /* "*": all that the list does not name */
    for (const char *at = codings; *at != '\0';) {
        at += strspn(at, ", \t");
        size_t n = strcspn(at, ",; \t"), n_all = strcspn(at, ",");
        bool taken = !is_refused(at + n, n_all - n);
        if (n == 4 && strncasecmp(at, "gzip", n) == 0) return taken;
        if (n == 1 && *at == '*') others = taken;
        at += n_all;
    }
    return others;
}

/* True if the client has the file with this tag. A proxy that packs a file itself puts W/ before it. */
static bool is_known(const char *known, const char *tag)
{
    return strcmp(known, "*") == 0 || strstr(known, tag) != NULL;
}

void serve_page(serve_call *call)
{
    const weir__page_file *file = find_file(call->path, strlen(call->path));
    char tag[48], more[sizeof head + 128];
    snprintf(tag, sizeof tag, "\"%s%s\"", file->hash, call->gzip ? "-gzip" : "");
    bool known = is_known(call->known, tag);
    snprintf(more, sizeof more, "%sETag: %s\r\n%s", head, tag,
             call->gzip && !known ? "Content-Encoding: gzip\r\n" : "");
    if (known)
        serve_call_answer_more(call, 304, NULL, more, "", 0);
    else if (call->gzip)
        serve_call_answer_more(call, 200, file->type, more, (const char *)file->packed, file->packed_size);
    else
        serve_call_answer_more(call, 200, file->type, more, (const char *)file->bytes, file->size);
}
