/* files.h: the files of server/page/web/, inside the program (cmake/embed.cmake puts it there).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_PAGE_FILES_H
#define WEIR_SERVER_PAGE_FILES_H

#include <stddef.h>

/* A file of the page. All of it lives as long as the program. */
typedef struct weir__page_file {
    const char *path;           /* as in a request: "/app.js"; index.html is "/" */
    const char *type;           /* Content-Type */
    const char *hash;           /* of the bytes, in hexadecimal digits */
    const unsigned char *bytes; /* [size] */
    size_t size;
    const unsigned char *packed; /* [packed_size], the same with gzip */
    size_t packed_size;
} weir__page_file;

extern const weir__page_file weir__page_files[]; /* [weir__n_page_files] */
extern const size_t weir__n_page_files;

#endif
