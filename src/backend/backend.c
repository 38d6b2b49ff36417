/* backend.c: code common to all backends: batches, and the version of llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include <string.h>

#include "base/error.h"
#include "base/mem.h"

weir_status weir__batch_init(weir__batch *batch, int32_t capacity, weir_error *error)
{
    memset(batch, 0, sizeof *batch);
    size_t n = (size_t)capacity;
    batch->token = weir__mem_calloc(n, sizeof *batch->token);
    batch->pos = weir__mem_calloc(n, sizeof *batch->pos);
    batch->seq = weir__mem_calloc(n, sizeof *batch->seq);
    batch->logits = weir__mem_calloc(n, sizeof *batch->logits);
    if (batch->token == NULL || batch->pos == NULL || batch->seq == NULL || batch->logits == NULL) {
        weir__batch_fini(batch);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a batch of %d tokens", capacity);
    }
    batch->capacity = capacity;
    return WEIR_OK;
}

void weir__batch_fini(weir__batch *batch)
{
    weir__mem_free(batch->logits);
    weir__mem_free(batch->seq);
    weir__mem_free(batch->pos);
    weir__mem_free(batch->token);
    memset(batch, 0, sizeof *batch);
}

const char *weir_backend_version(void)
{
#if defined(WEIR_NO_LLAMA)
    return "none";
#else /* the build defines both */
    return WEIR_LLAMA_VERSION " " WEIR_LLAMA_BACKEND;
#endif
}
