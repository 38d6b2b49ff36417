/* llama.c: the backend that computes with llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/internal.h"

const weir__backend weir__backend_llama = {
    .name = "llama",
#define OPERATION(result, operation, ...) .operation = weir__llama_##operation,
#define OPTIONAL                          OPERATION
#include "backend/operations.h"
};
