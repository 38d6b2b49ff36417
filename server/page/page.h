/* page.h: the page at /. SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_PAGE_PAGE_H
#define WEIR_SERVER_PAGE_PAGE_H

#include "server/request/serve.h"

serve_handler serve_page;
bool serve_page_has(const char *path, size_t n);

/* True if a list of codings, such as "br, gzip;q=0.5", has gzip. */
bool serve_page_takes_gzip(const char *codings);

#endif
