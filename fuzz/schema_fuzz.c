/* schema_fuzz.c: any text as a JSON Schema: rewritten, or refused with a reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = {0};
    json_t *schema = NULL, *rewritten = NULL;
    if (size == 0) return 0;
    const weir__schema_terms terms = {.where = "", .tag = "w", .inline_root = data[0] & 1};
    if (weir__json_parse((const char *)data + 1, size - 1, "schema", WEIR_GRAMMAR, &schema, &error) !=
        WEIR_OK)
        return 0;
    weir_status status = weir__schema_rewrite(schema, &terms, &rewritten, &error);
    if ((status == WEIR_OK) != (rewritten != NULL)) abort();
    if (status != WEIR_OK && error.message[0] == '\0') abort();
    json_decref(rewritten);
    json_decref(schema);
    return 0;
}
