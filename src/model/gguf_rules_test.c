/* gguf_rules_test.c: metadata that llama.cpp would not survive: hyperparameters and vocabularies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- Hyperparameters ------------------------------------------------------------------------------ */

static void nan_epsilon(model *m)
{
    uint32_t bits = 0x7fc00000;
    put(&set(m, "llama.attention.layer_norm_rms_epsilon", F32)->value, &bits, 4);
}

static void experts(model *m, uint32_t count, uint32_t groups, uint32_t groups_used)
{
    set_u32(m, "llama.expert_count", count);
    set_u32(m, "llama.expert_used_count", 2);
    set_u32(m, "llama.expert_group_count", groups);
    set_u32(m, "llama.expert_group_used_count", groups_used);
}

static void window(model *m, uint32_t pattern)
{
    set_u32(m, "llama.attention.sliding_window", 16);
    set_u32(m, "llama.attention.sliding_window_pattern", pattern);
}

static void faults_of_hyperparameters_are_named(void **state)
{
    (void)state;
    CASE(WEIR_FORMAT, "general.architecture", remove_key(m, "general.architecture"));
    CASE(WEIR_FORMAT, "general.architecture", set_u32(m, "general.architecture", 1));
    CASE(WEIR_FORMAT, "general.architecture", set_text(m, "general.architecture", ""));
    CASE(WEIR_FORMAT, "llama.block_count' is 0", set_u32(m, "llama.block_count", 0));
    CASE(WEIR_FORMAT, "block_count' is 513", set_u32(m, "llama.block_count", 513));
    CASE(WEIR_FORMAT, "context_length' is 0", set_u32(m, "llama.context_length", 0));
    CASE(WEIR_FORMAT, "context_length", set_u32(m, "llama.context_length", UINT32_MAX));
    CASE(WEIR_FORMAT, "embedding_length' is 0", set_u32(m, "llama.embedding_length", 0));
    CASE(WEIR_FORMAT, "embedding_length_out", set_u32(m, "llama.embedding_length_out", 33));
    CASE(WEIR_FORMAT, "rotates 16 of 10", set_u32(m, "llama.attention.head_count", 3));
    CASE(WEIR_FORMAT, "blk.1.attn_output.weight' does not suit 4",
         set_u32s(m, "llama.attention.head_count", 2, 4));
    CASE(WEIR_FORMAT, "3 heads of keys", set_u32(m, "llama.attention.head_count_kv", 3));
    CASE(WEIR_FORMAT, "attn_k.weight", set_u32(m, "llama.attention.head_count_kv", 0));
    CASE(WEIR_FORMAT, "values of 8", set_u32(m, "llama.attention.value_length", 8));
    CASE(WEIR_FORMAT, "rotates 18 of 16", set_u32(m, "llama.rope.dimension_count", 18));
    CASE(WEIR_FORMAT, "rotates 15", set_u32(m, "llama.rope.dimension_count", 15));
    CASE(WEIR_FORMAT, "rotates 8", set_u32(m, "llama.rope.dimension_count", 8));
    CASE(WEIR_UNSUPPORTED, "'su'", set_text(m, "llama.rope.scaling.type", "su"));
    CASE(WEIR_OK, "", set_text(m, "llama.rope.scaling.type", "yarn"));
    CASE(WEIR_FORMAT, "epsilon' is -1", set_f32(m, "llama.attention.layer_norm_rms_epsilon", -1));
    CASE(WEIR_FORMAT, "epsilon", nan_epsilon(m));
    CASE(WEIR_FORMAT, "uses 0 of 4 experts", set_u32(m, "llama.expert_count", 4));
    CASE(WEIR_FORMAT, "uses 2 of 0 experts", set_u32(m, "llama.expert_used_count", 2));
    CASE(WEIR_FORMAT, "expert_count", set_u32(m, "llama.expert_count", 1025));
    CASE(WEIR_FORMAT, "in 4 groups", experts(m, 4, 4, 1));
    CASE(WEIR_FORMAT, "in 2 groups", experts(m, 5, 2, 1));
    CASE(WEIR_FORMAT, "uses 2 of these", experts(m, 4, 2, 2));
    CASE(WEIR_OK, "", experts(m, 4, 2, 1));
    CASE(WEIR_FORMAT, "pooling_type", set_u32(m, "llama.pooling_type", 5));
    CASE(WEIR_OK, "", set_u32(m, "llama.pooling_type", UINT32_MAX));
    CASE(WEIR_FORMAT, "predicts with 3 of 2", set_u32(m, "llama.nextn_predict_layers", 3));
    CASE(WEIR_FORMAT, "sliding_window_pattern", window(m, 1));
    CASE(WEIR_OK, "", window(m, 2));
    CASE(WEIR_UNSUPPORTED, "is an adapter", set_text(m, "general.type", "adapter"));
    CASE(WEIR_OK, "", set_text(m, "general.type", "model"));
    CASE(WEIR_UNSUPPORTED, "images", set_text(m, "general.architecture", "clip"));
    CASE(WEIR_FORMAT, "wkv.head_size", set_text(m, "general.architecture", "rwkv6"));
}

/* ---- Vocabulary ----------------------------------------------------------------------------------- */

#define TOKENS(...) set_tokens(m, (const char *const[]){__VA_ARGS__, NULL})

static void nul_tokens(model *m)
{
    key *k = set_array(m, "tokenizer.ggml.tokens", STRING, 4);
    put_string(&k->value, "a", 1);
    put_string(&k->value, "b", 1);
    put_string(&k->value, "c", 1);
    put_string(&k->value, "b\0c", 3);
}

static void long_token(model *m, size_t n)
{
    static char text[5000];
    memset(text, 'x', sizeof text);
    key *k = set_array(m, "tokenizer.ggml.tokens", STRING, 3);
    put_string(&k->value, "a", 1);
    put_string(&k->value, text, n);
    put_string(&k->value, "c", 1);
}

static void few_tokens(model *m)
{
    TOKENS("a");
    set_bool(m, "tokenizer.ggml.add_bos_token", false);
}

static void no_end(model *m)
{
    TOKENS("a", "b");
    set_u32(m, "tokenizer.ggml.eos_token_id", 2);
    set_bool(m, "tokenizer.ggml.add_eos_token", true);
}

static void rwkv(model *m, const char *token, const char *other)
{
    set_text(m, "tokenizer.ggml.model", "rwkv");
    set_tokens(m, (const char *const[]){"a", "\\x", token, other, NULL});
}

static void faults_of_the_vocabulary_are_named(void **state)
{
    (void)state;
    CASE(WEIR_UNSUPPORTED, "no vocabulary", set_text(m, "tokenizer.ggml.model", "none"));
    CASE(WEIR_FORMAT, "0 tokens", set_array(m, "tokenizer.ggml.tokens", STRING, 0));
    CASE(WEIR_FORMAT, "the same token", TOKENS("a", "b", "c", "b"));
    CASE(WEIR_OK, "", TOKENS("a", "b", "c", ""));
    CASE(WEIR_FORMAT, "the same token", TOKENS("", "b", "c", "[EMPTY_0]"));
    CASE(WEIR_FORMAT, "the same token", nul_tokens(m));
    CASE(WEIR_FORMAT, "token 1 ", long_token(m, 5000));
    CASE(WEIR_OK, "", long_token(m, 4096));
    CASE(WEIR_FORMAT, "begin token", TOKENS("a"));
    CASE(WEIR_OK, "", few_tokens(m));
    CASE(WEIR_FORMAT, "end token", no_end(m));
    CASE(WEIR_FORMAT, "separator token", set_text(m, "tokenizer.ggml.model", "bert"));
    CASE(WEIR_FORMAT, "'whitespace'", set_text(m, "tokenizer.ggml.pre", "whitespace"));
    CASE(WEIR_FORMAT, "begin with byte 0x0a", rwkv(m, "\\n\\n", NULL));
    CASE(WEIR_OK, "", rwkv(m, "\\n\\n", "\\x0a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_hyperparameters_are_named),
        cmocka_unit_test(faults_of_the_vocabulary_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
