/* sized.c: copies as much of a struct as the caller's size says.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/sized.h"

#include <string.h>

#include "base/error.h"

static weir_status given_size(const void *given, size_t full_size, const char *name, size_t *size,
                              weir_error *error)
{
    memcpy(size, given, sizeof *size);
    if (*size < sizeof *size || *size > full_size)
        return weir__invalid(
            error, WEIR_ERROR_CONFLICT, name,
            "`%s.size` is %zu, this library knows %zu to %zu bytes: take the struct from its _default() "
            "function or set size to its sizeof, and use a library as new as the header",
            name, *size, sizeof *size, full_size);
    return WEIR_OK;
}

weir_status weir__sized_take(void *full, size_t full_size, const void *given, const char *name,
                             weir_error *error)
{
    size_t size;
    if (given == NULL) return WEIR_OK;
    weir_status status = given_size(given, full_size, name, &size, error);
    if (status == WEIR_OK) {
        memcpy(full, given, size);
        memcpy(full, &full_size, sizeof full_size);
    }
    return status;
}

weir_status weir__sized_give(void *given, const void *full, size_t full_size, const char *name,
                             weir_error *error)
{
    size_t size;
    weir_status status = given_size(given, full_size, name, &size, error);
    if (status == WEIR_OK)
        memcpy((char *)given + sizeof size, (const char *)full + sizeof size, size - sizeof size);
    return status;
}
