/* page.c: GET / and the page's other files. SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <string.h>

#include "serve.h"

/* The page may load and run only its own files. A script in a model's answer is none of them. */
static const char head[] =
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'\r\n"
    "Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";

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

void serve_page(serve_call *call)
{
    const weir__page_file *file = find_file(call->path, strlen(call->path));
    serve_call_answer_more(call, 200, file->type, head, (const char *)file->bytes, file->size);
}
