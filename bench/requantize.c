/* requantize.c: writes a model in another format, for measurements of formats: the values come from what the
 * file holds, so its text is worse than that of a model quantized from the original.
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: requantize IN.gguf OUT.gguf FORMAT, one of those below */
#include <llama.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum llama_ftype type;
} formats[] = {
    {"f32", LLAMA_FTYPE_ALL_F32},          {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
    {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},     {"q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},
    {"q5_0", LLAMA_FTYPE_MOSTLY_Q5_0},     {"q5_1", LLAMA_FTYPE_MOSTLY_Q5_1},
    {"q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M}, {"q5_k_m", LLAMA_FTYPE_MOSTLY_Q5_K_M},
    {"q6_k", LLAMA_FTYPE_MOSTLY_Q6_K},     {"iq4_nl", LLAMA_FTYPE_MOSTLY_IQ4_NL},
    {"bf16", LLAMA_FTYPE_MOSTLY_BF16},     {"f16", LLAMA_FTYPE_MOSTLY_F16},
};

int main(int argc, char **argv)
{
    struct llama_model_quantize_params params = llama_model_quantize_default_params();
    size_t i = 0, n = sizeof formats / sizeof *formats;
    if (argc == 4)
        while (i < n && strcmp(formats[i].name, argv[3]) != 0) i++;
    if (argc != 4 || i == n) {
        fputs("usage: requantize IN.gguf OUT.gguf "
              "f32|q8_0|q4_0|q4_1|q5_0|q5_1|q4_k_m|q5_k_m|q6_k|iq4_nl|bf16|f16\n",
              stderr);
        return 2;
    }
    params.ftype = formats[i].type;
    params.allow_requantize = true;
    llama_backend_init();
    return llama_model_quantize(argv[1], argv[2], &params) == 0 ? 0 : 1;
}
