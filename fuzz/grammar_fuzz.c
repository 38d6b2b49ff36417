/* grammar_fuzz.c: any text as GBNF: accepted or refused with a reason, in bounded time and memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "weir/more.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = {0};
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    weir_status status = weir_grammar_check(text, NULL, &error);
    if (status != WEIR_OK && (status != WEIR_GRAMMAR || error.message[0] == '\0')) abort();
    free(text);
    return 0;
}
