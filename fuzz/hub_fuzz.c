/* hub_fuzz.c: a hub's answers about a repository: every file that comes out has a name that stays in its
 * folder, a checksum and a size, and a name at the hub means one of them or none.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: the part behind the colon of hf:o/r:…, a line break, then the JSON. */
#include <stdio.h>

#include "fuzz.h"
#include "hub/name.h"

static void look(const weir__name_file *file)
{
    char quantization[16];
    int32_t shard, n_shards;
    require(weir__name_is_safe(file->name) && strstr(file->name, "..") != file->name);
    require(strstr(file->name, "/../") == NULL && file->name[0] != '/' && file->n_bytes <= (uint64_t)1 << 62);
    require(file->blob != NULL && weir__name_is_hex(file->blob, file->sha256[0] != '\0' ? 64 : 40));
    weir__name_quantization(file->name, quantization);
    weir__name_shard(file->name, &shard, &n_shards);
    require(strlen(quantization) < sizeof quantization && shard >= 1 && shard <= n_shards);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[300];
    weir__name name;
    weir__name_files files;
    weir_error error = {0};
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    if (end == NULL) return 0;
    size_t n_what = (size_t)(end - data), chosen;
    snprintf(text, sizeof text, "hf:o/r%s%.*s", n_what > 0 ? ":" : "", n_what < 200 ? (int)n_what : 200,
             (const char *)data);
    if (weir__name_parse(text, &name, &error) != WEIR_OK) return 0;
    weir_status status = weir__list_read("o/r", (const char *)end + 1, size - n_what - 1, &files, &error);
    if (status != WEIR_OK) {
        require(status == WEIR_FORMAT || status == WEIR_NO_MEMORY);
        require(files.n == 0 && error.message[0] != '\0');
        return 0;
    }
    require(weir__name_is_commit(files.commit));
    for (size_t i = 0; i < files.n; i++) look(&files.items[i]);
    if (weir__name_choose(&name, &files, &chosen, &error) == WEIR_OK) {
        int32_t shard, n_shards;
        require(chosen < files.n);
        weir__name_shard(files.items[chosen].name, &shard, &n_shards);
        for (int32_t i = 1; i <= n_shards && i < 50; i++) weir__name_shard_of(&files, chosen, i);
    }
    weir__name_files_fini(&files);
    return 0;
}
