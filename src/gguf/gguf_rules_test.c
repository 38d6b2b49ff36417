/* gguf_rules_test.c: metadata that llama.cpp would not survive: hyperparameters and vocabularies.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- Hyperparameters ------------------------------------------------------------------------------ */

/* Gives the model another architecture's name: "llama.x" becomes "NAME.x". */
static void as(model *m, const char *architecture)
{
    set_text(m, "general.architecture", architecture);
    for (int i = 0; i < m->n_keys; i++) {
        key *k = &m->keys[i];
        char rest[320];
        if (strncmp(k->name, "llama.", 6) != 0) continue;
        snprintf(rest, sizeof rest, "%s", k->name + 6);
        snprintf(k->name, sizeof k->name, "%.64s.%.200s", architecture, rest);
        k->name_n = strlen(k->name);
    }
}

/* Gives the model another architecture's name, and one key of that; suffix: the text after the name's dot. */
static void with(model *m, const char *architecture, const char *suffix, uint32_t value)
{
    char name[128];
    as(m, architecture);
    snprintf(name, sizeof name, "%s.%s", architecture, suffix);
    set_u32(m, name, value);
}

static void and_u32(model *m, const char *suffix, uint32_t value)
{
    char name[128], architecture[64];
    const key *k = find_key(m, "general.architecture");
    snprintf(architecture, sizeof architecture, "%.*s", (int)(k->value.n - 8),
             (const char *)k->value.bytes + 8);
    snprintf(name, sizeof name, "%s.%s", architecture, suffix);
    set_u32(m, name, value);
}

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
    CASE(WEIR_FORMAT, "does not suit 1 heads",
         (set_u32(m, "llama.attention.head_count", 1), set_u32(m, "llama.rope.dimension_count", 32)));
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

/* The bounds of each number, repeated here. */
static void numbers_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t least, most;
    } bounds[] = {
        {"context_length", 1, 1u << 28},       {"embedding_length", 1, 1u << 20},
        {"embedding_length_out", 0, 1u << 20}, {"block_count", 1, 512},
        {"decoder_block_count", 0, 512},       {"feed_forward_length", 0, 1u << 24},
        {"attention.head_count", 0, 65536},    {"attention.head_count_kv", 0, 65536},
        {"attention.key_length", 1, 65536},    {"attention.value_length", 1, 65536},
        {"rope.dimension_count", 0, 65536},    {"expert_count", 0, 1024},
        {"expert_gating_func", 0, 4},          {"wkv.head_size", 0, 65536},
        {"n_deepstack_layers", 0, 64},         {"token_shift_count", 0, 2},
        {"ssm.conv_kernel", 0, 1024},          {"ssm.inner_size", 0, 1u << 20},
        {"ssm.state_size", 0, 65536},          {"ssm.time_step_rank", 0, 65536},
        {"ssm.group_count", 0, 65536},         {"attention.indexer.block_size", 0, 1u << 20},
        {"shortconv.l_cache", 0, 1024},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        char words[96];
        snprintf(words, sizeof words, "allowed are %u to %u", bounds[i].least, bounds[i].most);
        CASE(WEIR_FORMAT, words, with(m, "llama", bounds[i].key, bounds[i].most + 1));
        if (bounds[i].least > 0) CASE(WEIR_FORMAT, words, with(m, "llama", bounds[i].key, 0));
    }
    /* every element of an array is held to them */
    CASE(WEIR_FORMAT, "allowed are", set_u32s(m, "llama.feed_forward_length", 32, (1u << 24) + 1));
}

/* Numbers by which some architectures divide; files of others may have 0. */
static void divisors_are_not_zero(void **state)
{
    (void)state;
    static const char *const divided[][2] = {
        {"qwen3moe", "expert_count"},
        {"olmo2", "attention.head_count"},
        {"deepseek4", "attention.output_group_count"},
        {"mamba2", "ssm.group_count"},
        {"plamo2", "ssm.time_step_rank"},
        {"dots1", "expert_gating_func"},
        {"grovemoe", "expert_count"},
        {"afmoe", "attention.sliding_window"},
        {"minimax-m3", "attention.indexer.block_size"},
        {"rwkv7", "wkv.head_size"},
        {"minimax-01", "full_attention_interval"},
    };
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++) {
        char words[96];
        snprintf(words, sizeof words, "%s.%s' is", divided[i][0], divided[i][1]);
        CASE(WEIR_FORMAT, words, with(m, divided[i][0], divided[i][1], 0));
    }
    CASE(WEIR_FORMAT, "grovemoe.experts_per_group",
         (with(m, "grovemoe", "expert_count", 4), and_u32(m, "expert_used_count", 2)));
    CASE(WEIR_OK, "", as(m, "minimax-01")); /* this one has a default */
    CASE(WEIR_OK, "", with(m, "llama", "wkv.head_size", 0));
}

static void heads_fit_the_graph(void **state)
{
    (void)state;
    /* keys and values of one size, but any even part of them rotated */
    CASE(WEIR_OK, "", as(m, "gemma"));
    CASE(WEIR_OK, "", with(m, "gemma", "rope.dimension_count", 8));
    CASE(WEIR_FORMAT, "rotates 15 of 16", with(m, "gemma", "rope.dimension_count", 15));
    CASE(WEIR_FORMAT, "rotates 18 of 16", with(m, "gemma", "rope.dimension_count", 18));
    CASE(WEIR_FORMAT, "rotates 0 of 16", with(m, "gemma", "rope.dimension_count", 0));
    CASE(WEIR_OK, "", with(m, "mpt", "rope.dimension_count", 0));
    CASE(WEIR_FORMAT, "values of 8", with(m, "gemma", "attention.value_length", 8));
    CASE(WEIR_FORMAT, "values of 8 dimensions_swa", with(m, "gemma2", "attention.value_length_swa", 8));
    /* sections */
    CASE(WEIR_FORMAT, "dimension_sections' is missing or 0", as(m, "qwen2vl"));
    CASE(WEIR_FORMAT, "dimension_sections' is missing or 0",
         (as(m, "qwen2vl"), set_u32s(m, "qwen2vl.rope.dimension_sections", 0, 0)));
    CASE(WEIR_OK, "", (as(m, "qwen2vl"), set_u32s(m, "qwen2vl.rope.dimension_sections", 8, 8)));
    CASE(WEIR_FORMAT, "dimension_sections' exceeds 16",
         (as(m, "qwen2vl"), set_u32s(m, "qwen2vl.rope.dimension_sections", 9, 8)));
    /* MLA: the rotated part is less than a head, and rank and rotation make up the keys */
    CASE(WEIR_FORMAT, "rotates 16", as(m, "deepseek2"));
    CASE(WEIR_OK, "", with(m, "deepseek2", "rope.dimension_count", 8));
    CASE(WEIR_FORMAT, "rank 9",
         (with(m, "deepseek2", "rope.dimension_count", 8), and_u32(m, "attention.key_length_mla", 12),
          and_u32(m, "attention.kv_lora_rank", 9)));
    /* a scale by length divides by that */
    CASE(WEIR_FORMAT, "temperature_length",
         (with(m, "deepseek2", "rope.dimension_count", 8),
          set_f32(m, "deepseek2.attention.temperature_scale", 0.5f)));
    CASE(WEIR_OK, "",
         (with(m, "deepseek2", "rope.dimension_count", 8), and_u32(m, "attention.temperature_length", 100),
          set_f32(m, "deepseek2.attention.temperature_scale", 0.5f)));
    /* groups of the output */
    CASE(WEIR_OK, "", with(m, "deepseek4", "attention.output_group_count", 2));
    CASE(WEIR_FORMAT, "uneven groups", with(m, "deepseek4", "attention.output_group_count", 3));
    CASE(WEIR_FORMAT, "not one of keys",
         (with(m, "deepseek4", "attention.output_group_count", 2), and_u32(m, "attention.head_count_kv", 2),
          m->n_tensors = 3));
}

static void windows_of(model *m, uint32_t first, uint32_t second)
{
    set_u32(m, "llama.attention.sliding_window", 16);
    set_u32s(m, "llama.attention.sliding_window_pattern", first, second);
}

static void used_experts(model *m, const char *architecture, uint32_t first, uint32_t second)
{
    char name[96];
    with(m, architecture, "expert_count", 4);
    snprintf(name, sizeof name, "%s.expert_used_count", architecture);
    set_u32s(m, name, first, second);
}

static void hybrid(model *m, const char *architecture, uint32_t inner, uint32_t rank, uint32_t groups)
{
    with(m, architecture, "ssm.inner_size", inner);
    and_u32(m, "ssm.time_step_rank", rank);
    and_u32(m, "ssm.group_count", groups);
}

static void stacks(model *m, uint32_t layers, uint32_t high, uint32_t low)
{
    with(m, "hrm_text", "hrm.layers_per_stack", layers);
    and_u32(m, "hrm.h_cycles", high);
    and_u32(m, "hrm.l_cycles", low);
}

static void gates(model *m, bool safe, float bound)
{
    with(m, "bailingmoe3", "rope.dimension_count", 8);
    set_bool(m, "bailingmoe3.kda.safe_gate", safe);
    set_f32(m, "bailingmoe3.kda.gate_lower_bound", bound);
}

static void layers_fit_the_graph(void **state)
{
    (void)state;
    CASE(WEIR_FORMAT, "sliding_window_pattern", windows_of(m, 0, 0));
    CASE(WEIR_OK, "", windows_of(m, 0, 1));
    CASE(WEIR_FORMAT, "uses 1 experts in layer 1, and 2 in the first", used_experts(m, "llama", 2, 1));
    CASE(WEIR_OK, "", used_experts(m, "llama", 2, 2));
    CASE(WEIR_FORMAT, "uses 5 of 4 experts", used_experts(m, "llama", 5, 5));
    CASE(WEIR_FORMAT, "32 dimensions in heads of 12", with(m, "rwkv6", "wkv.head_size", 12));
    CASE(WEIR_OK, "", with(m, "rwkv6", "wkv.head_size", 16));
    CASE(WEIR_OK, "", hybrid(m, "mamba2", 12, 4, 3));
    CASE(WEIR_FORMAT, "state of 12 in 5 heads", hybrid(m, "mamba2", 12, 5, 3));
    CASE(WEIR_FORMAT, "and 5 groups", hybrid(m, "mamba2", 12, 4, 5));
    CASE(WEIR_OK, "", hybrid(m, "plamo2", 12, 4, 0));
    CASE(WEIR_FORMAT, "and 1 groups", hybrid(m, "plamo2", 12, 4, 1));
    CASE(WEIR_FORMAT, "in 5 heads", hybrid(m, "plamo2", 12, 5, 0));
    CASE(WEIR_OK, "", hybrid(m, "granitehybrid", 64, 4, 2));
    CASE(WEIR_FORMAT, "not twice the embedding length", hybrid(m, "granitehybrid", 60, 4, 2));
    CASE(WEIR_OK, "", stacks(m, 1, 1, 1));
    CASE(WEIR_FORMAT, "has 2 layers", stacks(m, 1, 1, 2));
    CASE(WEIR_FORMAT, "has 2 layers", stacks(m, 1u << 31, 1u << 31, 3)); /* 2 in 64 bits would be 0 */
    CASE(WEIR_OK, "", gates(m, true, -1));
    CASE(WEIR_FORMAT, "gate_lower_bound", gates(m, true, 0));
    CASE(WEIR_FORMAT, "safe_gate", gates(m, false, -1));
    CASE(WEIR_FORMAT, "has no tensor 'blk.1.ssm_conv1d.bias'",
         (hybrid(m, "granitehybrid", 64, 4, 2), add_tensor(m, "blk.1.ssm_conv1d.weight", T_F32, 128, 32, 0)));
    CASE(WEIR_OK, "",
         (hybrid(m, "granitehybrid", 64, 4, 2), add_tensor(m, "blk.1.ssm_conv1d.weight", T_F32, 128, 32, 0),
          add_tensor(m, "blk.1.ssm_conv1d.bias", T_F32, 128, 32, 0)));
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

/* n tokens of 4096 bytes, each another. */
static void long_tokens(model *m, int n)
{
    static char text[4096];
    memset(text, 'x', sizeof text);
    key *k = set_array(m, "tokenizer.ggml.tokens", STRING, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        text[0] = (char)('a' + i);
        put_string(&k->value, text, sizeof text);
    }
}

static void many_tokens(model *m, uint64_t n)
{
    key *k = set_array(m, "tokenizer.ggml.tokens", STRING, n);
    for (uint64_t i = 0; i < n; i++) put_u64(&k->value, 0);
}

static void begins(model *m, const char *tokenizer, const char *pre)
{
    TOKENS("a", "b");
    set_text(m, "tokenizer.ggml.model", tokenizer);
    set_text(m, "tokenizer.ggml.pre", pre);
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
    CASE(WEIR_OK, "", long_tokens(m, 16));
    CASE(WEIR_FORMAT, "token 16 ", long_tokens(m, 17)); /* the squares of all */
    CASE(WEIR_FORMAT, "4194305 tokens", many_tokens(m, 4194305));
    CASE(WEIR_FORMAT, "BOS token", TOKENS("a"));
    CASE(WEIR_FORMAT, "BOS token", begins(m, "gemma4", ""));
    CASE(WEIR_FORMAT, "BOS token", begins(m, "gpt2", "gemma4"));
    CASE(WEIR_OK, "", begins(m, "gpt2", "glm4"));
    CASE(WEIR_FORMAT, "BOS token",
         (begins(m, "gpt2", "glm4"), set_bool(m, "tokenizer.ggml.add_bos_token", true)));
    CASE(WEIR_FORMAT, "BOS token", begins(m, "gpt2", ""));
    CASE(WEIR_FORMAT, "EOS token",
         (begins(m, "gpt2", "glm4"), set_bool(m, "tokenizer.ggml.add_eos_token", true)));
    CASE(WEIR_FORMAT, "EOS token", (TOKENS("a"), set_text(m, "tokenizer.ggml.model", "t5")));
    CASE(WEIR_OK, "", begins(m, "t5", ""));
    CASE(WEIR_OK, "", few_tokens(m));
    CASE(WEIR_FORMAT, "EOS token", no_end(m));
    CASE(WEIR_FORMAT, "separator token", set_text(m, "tokenizer.ggml.model", "bert"));
    CASE(WEIR_FORMAT, "'whitespace'", set_text(m, "tokenizer.ggml.pre", "whitespace"));
    CASE(WEIR_FORMAT, "begin with byte 0x0a", rwkv(m, "\\n\\n", NULL));
    CASE(WEIR_OK, "", rwkv(m, "\\n\\n", "\\x0a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_hyperparameters_are_named),
        cmocka_unit_test(numbers_have_bounds),
        cmocka_unit_test(divisors_are_not_zero),
        cmocka_unit_test(heads_fit_the_graph),
        cmocka_unit_test(layers_fit_the_graph),
        cmocka_unit_test(faults_of_the_vocabulary_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
