/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

#include "base/mem.h"

bool weir__text_add(weir__text *text, const char *bytes, size_t n)
{
    if (!weir__mem_grow(&text->bytes, &text->capacity, text->n + n + 1, 1)) return false;
    if (n > 0) memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    text->bytes[text->n] = '\0';
    return true;
}

bool weir__text_add_string(weir__text *text, const char *string)
{
    return weir__text_add(text, string, strlen(string));
}

void weir__text_fini(weir__text *text)
{
    weir__mem_free(text->bytes);
    *text = (weir__text){0};
}
