/* meta.c: the metadata of a llama.cpp model.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "llama/internal.h"

int64_t weir__llama_meta_number(const weir__bmodel *model, const char *name, int64_t otherwise)
{
    char key[128], text[32];
    snprintf(key, sizeof key, "%s.%s", model->architecture, name);
    if (weir__shim_meta(model->model, key, text, sizeof text) <= 0) return otherwise;
    char *end;
    long long value = strtoll(text, &end, 10);
    return *end == '\0' && value >= 0 ? value : otherwise;
}

int64_t weir__llama_model_meta(const weir__bmodel *model, const char *key, char *text, size_t capacity)
{
    return weir__shim_meta(model->model, key, text, capacity);
}

int64_t weir__llama_model_meta_key(const weir__bmodel *model, size_t i, char *key, size_t capacity)
{
    if (i >= (size_t)llama_model_meta_count(model->model)) return -1;
    return llama_model_meta_key_by_index(model->model, (int32_t)i, key, capacity);
}

/* Architectures whose MTP layers can be used: weir__shim_mtp_layers. */
static const char *const with_mtp[] = {"glm4moe", "hy_v3", "deepseek2"};

bool weir__llama_has_mtp(const char *architecture)
{
    return weir__words_have(with_mtp, sizeof with_mtp / sizeof *with_mtp, architecture);
}
