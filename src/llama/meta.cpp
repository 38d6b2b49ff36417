/* meta.cpp: the metadata of a llama.cpp model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/internal.h"

#include <../src/llama-model.h>

#include <cstdio>
#include <cstdlib>

extern "C" {
#include "base/words.h"
}

/* llama.h's function for it allocates. */
int64_t weir__llama_model_meta(const weir__bmodel *model, const char *key, char *text, size_t capacity)
{
    for (const auto &[name, value] : model->model->gguf_kv)
        if (name == key) return std::snprintf(text, capacity, "%s", value.c_str());
    if (capacity > 0) text[0] = '\0';
    return -1;
}

int64_t weir__llama_model_meta_key(const weir__bmodel *model, size_t i, char *key, size_t capacity)
{
    if (i >= static_cast<size_t>(llama_model_meta_count(model->model))) return -1;
    return llama_model_meta_key_by_index(model->model, static_cast<int32_t>(i), key, capacity);
}

int64_t weir__llama_meta_number(const weir__bmodel *model, const char *name, int64_t otherwise)
{
    char key[128], text[32];
    std::snprintf(key, sizeof key, "%s.%s", model->architecture, name);
    if (weir__llama_model_meta(model, key, text, sizeof text) <= 0) return otherwise;
    char *end;
    const long long value = std::strtoll(text, &end, 10);
    return *end == '\0' && value >= 0 ? value : otherwise;
}

bool weir__llama_has_mtp(const char *architecture)
{
    /* Architectures whose MTP layers can be used: weir__shim_mtp_layers. */
    static const char *const with_mtp[] = {"glm4moe", "hy_v3", "deepseek2"};
    return weir__words_have(with_mtp, sizeof with_mtp / sizeof *with_mtp, architecture);
}
