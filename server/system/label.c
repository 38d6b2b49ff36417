/* label.c: values of labels in Prometheus' text format.
 * SPDX-License-Identifier: Apache-2.0 */
#include "label.h"

#include "base/mem.h"
#include "base/utf8.h"

void serve_label_quote(weir__text *text, const char *value, size_t n)
{
    char *clean = NULL;
    if (!weir__utf8_valid(value, n)) {
        clean = weir__mem_alloc(WEIR__UTF8_BOUND(n));
        text->failed |= clean == NULL;
        n = clean != NULL ? weir__utf8_sanitize(value, n, clean) : 0;
        value = clean;
    }
    weir__text_add(text, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const char *c = value + i;
        if (*c == '"' || *c == '\\' || *c == '\n') weir__text_add(text, "\\", 1);
        weir__text_add(text, *c == '\n' ? "n" : c, 1);
    }
    weir__text_add(text, "\"", 1);
    weir__mem_free(clean);
}
