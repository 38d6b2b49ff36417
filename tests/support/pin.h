/* pin.h: the chat templates that come with the pinned llama.cpp. For cmocka programs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_TESTS_PIN_H
#define WEIR_TESTS_PIN_H

#include <stdio.h>
#include <stdlib.h>

/* The template's source, to be freed; NULL where WEIR_LLAMA_SOURCE names no folder. */
static inline char *pin_template(const char *name)
{
    char path[1024];
    const char *root = getenv("WEIR_LLAMA_SOURCE");
    if (root == NULL || root[0] == '\0') return NULL;
    snprintf(path, sizeof path, "%s/models/templates/%s.jinja", root, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s cannot be opened", path);
    char *source = calloc(1, 1 << 18);
    assert_non_null(source);
    assert_true(fread(source, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return source;
}

#endif
