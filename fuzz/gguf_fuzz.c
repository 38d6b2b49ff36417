/* gguf_fuzz.c: the checks of model and projector files, fed with damaged ones.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a GGUF file. If it passes, sizes fit the file and the name ends; otherwise there is a message. */
#include "fuzz.h"
#include "gguf/gguf.h"

typedef weir_status check_function(const void *data, size_t size, weir__gguf_info *info, weir_error *error);

static void check_bytes(check_function *function, const uint8_t *data, size_t size)
{
    weir__gguf_info info;
    weir_error error;
    memset(&info, 0xff, sizeof info);
    memset(&error, 0xff, sizeof error);
    weir_status status = function(data, size, &info, &error);
    require(function(data, size, NULL, NULL) == status);
    if (status == WEIR_OK) {
        require(info.version == 2 || info.version == 3);
        require(info.n_shards == 1);
        require(info.file_bytes == size);
        require(info.tensor_bytes < size);
        require(info.n_kv * 13 < size && info.n_tensors * 24 < size); /* the shortest entries */
        require(memchr(info.architecture, '\0', sizeof info.architecture) != NULL);
        require(info.architecture[0] != '\0');
    } else {
        require(status == WEIR_FORMAT || status == WEIR_UNSUPPORTED);
        require(error.code == status);
        require(memchr(error.message, '\0', sizeof error.message) != NULL && strlen(error.message) > 20);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_bytes(weir__gguf_check_memory, data, size);
    check_bytes(weir__gguf_check_projector_memory, data, size);
    return 0;
}
