/* gguf_rules.c: checks the assumptions that llama.cpp makes about a model's metadata, and says in weir's
 * words what llama.cpp refused.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each rule stands for an assert, a division, an array bound or an allocation of llama.cpp v0.5.0 that
 * metadata can reach: in llama-model.cpp, llama-vocab.cpp, models/, and in ggml's operations when the graph
 * is built. They were found by reading these and by loading some 10^5 mutated files of its architectures.
 * Where llama.cpp throws, the backend returns a status, and no rule is needed. So absent keys and values of
 * types that llama.cpp does not read mostly pass. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf_internal.h"

#define LAYERS_MAX  512  /* LLAMA_MAX_LAYERS */
#define EXPERTS_MAX 1024 /* LLAMA_MAX_EXPERTS */

#define TOKENS_MAX (1u << 22) /* 16 times the largest vocabulary */
/* llama.cpp keeps tokens in recursive tries and, where a byte cannot be decoded, writes a token once per
 * character: the stack grows with the longest token, memory with the sum of all squared lengths. Real tokens
 * have at most some 250 bytes. */
#define TOKEN_LEN_MAX     4096
#define TOKEN_SQUARES_MAX (1u << 28)

/* ---- Values --------------------------------------------------------------------------------------- */

/* Element i of numbers that llama.cpp reads as uint32. A scalar is the same for all i. */
static bool number_at(gguf_check *c, const gguf_entry *e, uint64_t i, uint32_t *value)
{
    unsigned char bit = 0;
    if (e == NULL || c->status != WEIR_OK || (e->is_array && i >= e->n)) return false;
    if (e->is_array && e->type == GGUF_BOOL) {
        c->at = e->value_at + i;
        *value = weir__gguf_take(c, &bit, 1) && bit != 0;
    } else if (e->type == GGUF_U32 || (e->is_array && e->type == GGUF_I32)) {
        c->at = e->value_at + (e->is_array ? 4 * i : 0);
        *value = weir__gguf_take_u32(c);
    } else {
        return false;
    }
    return c->status == WEIR_OK;
}

static uint32_t number_or(gguf_check *c, const char *suffix, uint64_t i, uint32_t otherwise)
{
    uint32_t value;
    return number_at(c, weir__gguf_find_arch(c, suffix), i, &value) ? value : otherwise;
}

/* A float of the architecture. */
static double real_or(gguf_check *c, const char *suffix, double otherwise)
{
    const gguf_entry *e = weir__gguf_find_arch(c, suffix);
    float value;
    if (e == NULL || e->type != GGUF_F32 || e->is_array) return otherwise;
    c->at = e->value_at;
    return weir__gguf_take(c, &value, sizeof value) ? (double)value : otherwise;
}

/* 1, 0, or -1 if absent or no bool. */
static int truth_of(gguf_check *c, const gguf_entry *e)
{
    unsigned char value;
    if (e == NULL || e->type != GGUF_BOOL || e->is_array) return -1;
    c->at = e->value_at;
    return weir__gguf_take(c, &value, 1) ? value != 0 : -1;
}

/* Copies a string as llama.cpp sees it: up to a NUL. False: absent, no string, or longer than size - 1. */
static bool text_of(gguf_check *c, const char *key, char *to, size_t size)
{
    const gguf_entry *e = weir__gguf_find(c, key);
    to[0] = '\0';
    if (e == NULL || e->type != GGUF_STRING || e->is_array) return false;
    c->at = e->value_at;
    uint64_t n = weir__gguf_take_u64(c);
    if (n >= size || !weir__gguf_take(c, to, (size_t)n)) return false;
    to[n] = '\0';
    return true;
}

/* True if word is in list, which begins and ends with a space. */
static bool is_listed(const char *list, const char *word)
{
    char spaced[GGUF_KEY_MAX];
    snprintf(spaced, sizeof spaced, " %s ", word);
    return strstr(list, spaced) != NULL;
}

/* ---- Hyperparameters ------------------------------------------------------------------------------ */

static bool is_arch(const gguf_check *c, const char *list)
{
    return is_listed(list, c->info.architecture);
}

/* Safe values of the architecture's numbers with which llama.cpp divides, allocates or asserts. All elements
 * of an array have the same bounds. */
static const struct {
    const char *key;
    uint32_t min, max;
} bounds[] = {
    {"context_length", 1, 1u << 28}, /* llama.cpp pads it to 256 in 32 bits and sizes caches by it */
    {"embedding_length", 1, 1u << 20},
    {"embedding_length_out", 0, 1u << 20},
    {"block_count", 1, LAYERS_MAX},
    {"decoder_block_count", 0, LAYERS_MAX},
    {"feed_forward_length", 0, 1u << 24},
    {"attention.head_count", 0, 1u << 16},
    {"attention.head_count_kv", 0, 1u << 16},
    {"attention.key_length", 1, 1u << 16},
    {"attention.value_length", 1, 1u << 16},
    {"rope.dimension_count", 0, 1u << 16},
    {"expert_count", 0, EXPERTS_MAX},
    {"expert_gating_func", 0, 4}, /* LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS */
    {"wkv.head_size", 0, 1u << 16},
    {"n_deepstack_layers", 0, 64},
    {"token_shift_count", 0, 2},
    {"ssm.conv_kernel", 0, 1u << 10},
    {"ssm.inner_size", 0, 1u << 20},
    {"ssm.state_size", 0, 1u << 16},
    {"ssm.time_step_rank", 0, 1u << 16},
    {"ssm.group_count", 0, 1u << 16},
    {"attention.indexer.block_size", 0, 1u << 20},
    {"shortconv.l_cache", 0, 1u << 10},
};

/* Numbers that must not be 0 in certain architectures; in others they often are. absent: the key may be
 * missing. */
static const struct {
    const char *archs, *key;
    bool absent;
} not_zero[] = {
    {" bailingmoe2 glm4moe grovemoe lfm2moe llada-moe mellum qwen2moe qwen35moe qwen3moe qwen3next "
     "qwen3vlmoe qwen4exp rnd1 smallthinker ",
     "expert_count", false},
    {" cohere2 olmo2 phimoe ", "attention.head_count", false},
    {" deepseek4 ", "attention.output_group_count", false},
    {" falcon-h1 granitehybrid mamba2 nemotron_h nemotron_h_moe ", "ssm.group_count", false},
    {" falcon-h1 granitehybrid mamba2 nemotron_h nemotron_h_moe plamo2 ", "ssm.time_step_rank", false},
    {" dots1 hy_v4 minimax-m2 smallthinker ", "expert_gating_func", false},
    {" grovemoe ", "experts_per_group", false},
    {" afmoe ", "attention.sliding_window", false},
    {" minimax-m3 ", "attention.indexer.block_size", false},
    {" arwkv7 rwkv6 rwkv6qwen2 rwkv7 ", "wkv.head_size", false},
    {" minimax-01 qwen35 qwen35moe qwen3next qwen4exp ", "full_attention_interval", true},
};

static void check_numbers(gguf_check *c)
{
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds && c->status == WEIR_OK; k++) {
        const gguf_entry *e = weir__gguf_find_arch(c, bounds[k].key);
        uint32_t value;
        for (uint64_t i = 0; number_at(c, e, i, &value); i++) {
            if (value < bounds[k].min || value > bounds[k].max)
                weir__gguf_refuse(c, "key '%s.%s' is %u; allowed are %u to %u", c->info.architecture,
                                  bounds[k].key, value, bounds[k].min, bounds[k].max);
            if (!e->is_array) break;
        }
    }
    for (size_t k = 0; k < sizeof not_zero / sizeof *not_zero && c->status == WEIR_OK; k++) {
        if (is_arch(c, not_zero[k].archs) && number_or(c, not_zero[k].key, 0, not_zero[k].absent) == 0)
            weir__gguf_refuse(c, "key '%s.%s' is %s0", c->info.architecture, not_zero[k].key,
                              not_zero[k].absent ? "" : "missing or ");
    }
}

/* Architectures whose graph asserts that the heads of keys and values have the same size... */
static const char equal_heads[] =
    " afmoe bailingmoe2 bert bitnet bloom chatglm cohere2 command-r dflash eagle3 eurobert gemma"
    " gemma-embedding gemma2 gemma3 glm4 glm4moe gpt-oss gpt2 gptneox granitehybrid jais jina-bert-v2"
    " jina-bert-v3 laguna lfm2 lfm2moe maple minimax-m3 modern-bert mpt muse-glimmer nanbeige nemotron_h"
    " nemotron_h_moe neo-bert nomic-bert nomic-bert-moe openelm phi2 phi3 phimoe plamo3 qwen qwen35"
    " qwen35moe qwen3next qwen4exp refact spark2_5 stablelm starcoder t5 t5encoder ";
/* Architectures of which llama.cpp also assumes that the rotation covers the whole head. */
static const char whole_rotation[] =
    " apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream"
    " ernie4_5 ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa granitemoe"
    " graniteswitch grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais2 llada"
    " llada-moe llama llama-embed llama4 maincoder mellum minicpm minimax-01 minimax-m2 mistral3"
    " nemotron olmo olmo2 olmoe orion paddleocr pangu-embedded plamo pockettts qwen2 qwen2moe qwen2vl"
    " qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 talkie"
    " xverse ";

/* Architectures that work without a rotation; with others llama.cpp never ends. */
static const char no_rotation[] =
    " bailingmoe3 bert bloom gpt2 granitehybrid jais jamba jina-bert-v2 kimi-k3 kimi-linear mpt nemotron_h "
    "nemotron_h_moe refact starcoder t5 t5encoder ";
/* Architectures that store keys and values together at a low rank (MLA). */
static const char low_rank[] =
    " bailingmoe3 deepseek2 deepseek32 dots3note glm-dsa hy_v4 kimi-k3 kimi-linear mistral4 ";

/* Dimensions of a head: of keys, of values, and rotated ones. */
typedef struct head {
    uint32_t key, value, rotated;
} head;

/* kind of layer: "" or "_swa". */
static head check_head(gguf_check *c, const char *kind, head otherwise)
{
    char name[64];
    snprintf(name, sizeof name, "attention.key_length%s", kind);
    uint32_t key = number_or(c, name, 0, otherwise.key);
    snprintf(name, sizeof name, "attention.value_length%s", kind);
    uint32_t value = number_or(c, name, 0, otherwise.value);
    snprintf(name, sizeof name, "rope.dimension_count%s", kind);
    uint32_t rotated = number_or(c, name, 0, otherwise.rotated == 0 ? key : otherwise.rotated);
    bool whole = is_arch(c, whole_rotation);
    if (key != value && (whole || is_arch(c, equal_heads)))
        weir__gguf_refuse(c, "has keys of %u and values of %u dimensions%s", key, value, kind);
    if (rotated > key || rotated % 2 != 0 || (whole && rotated != key) ||
        (rotated == 0 && !is_arch(c, no_rotation)))
        weir__gguf_refuse(c, "rotates %u of %u dimensions%s", rotated, key, kind);
    if (is_arch(c, low_rank)) {
        snprintf(name, sizeof name, "attention.key_length_mla%s", kind);
        uint32_t whole_key = number_or(c, name, 0, 0);
        snprintf(name, sizeof name, "attention.kv_lora_rank%s", kind);
        uint32_t rank = number_or(c, name, 0, 0);
        if (rotated >= (whole_key > 0 ? whole_key : key) ||
            (whole_key > 0 && rank > 0 && (key != rank + rotated || value != rank)))
            weir__gguf_refuse(c, "has keys of %u and %u dimensions%s, rank %u, rotates %u", key, whole_key,
                              kind, rank, rotated);
    }
    return (head){key, value, rotated};
}

/* Checks the heads of a layer. In many architectures the loader uses the first layer's number of heads and
 * the graph each layer's. Without a uniform head size only layers without heads of keys are compared. */
static void check_layer_heads(gguf_check *c, uint32_t i, uint32_t heads, uint32_t heads_kv, head full,
                              head swa)
{
    bool uniform = is_arch(c, equal_heads) || is_arch(c, whole_rotation);
    uint64_t dim[4];
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_output.weight", i);
    if (uniform && heads_kv > 0 && weir__gguf_dims(c, name, dim) && dim[0] != (uint64_t)heads * full.value &&
        dim[0] != (uint64_t)heads * swa.value)
        weir__gguf_refuse(c, "tensor '%s' does not suit %u heads", name, heads);
    snprintf(name, sizeof name, "blk.%u.attn_k.weight", i);
    if ((uniform || heads_kv == 0) && weir__gguf_dims(c, name, dim) &&
        dim[1] != (uint64_t)heads_kv * full.key && dim[1] != (uint64_t)heads_kv * swa.key)
        weir__gguf_refuse(c, "tensor '%s' does not suit %u heads", name, heads_kv);
}

/* Tensors that are optional for the loader but not for the graph. */
static const struct {
    const char *archs, *present, *wanted;
} companions[] = {
    {" falcon-h1 granitehybrid nemotron_h nemotron_h_moe ", "ssm_conv1d.weight", "ssm_conv1d.bias"},
    {" glm-dsa ", "indexer.k_norm.weight", "indexer.proj.weight"},
    {" glm-dsa ", "indexer.k_norm.weight", "indexer.attn_k.weight"},
    {" glm-dsa ", "indexer.k_norm.weight", "indexer.attn_q_b.weight"},
    {" glm-dsa ", "indexer.attn_k.weight", "indexer.k_norm.weight"},
};

static void check_companions(gguf_check *c, uint32_t n_layers)
{
    for (size_t k = 0; k < sizeof companions / sizeof *companions; k++) {
        if (!is_arch(c, companions[k].archs)) continue;
        for (uint32_t i = 0; i < n_layers && c->status == WEIR_OK; i++) {
            uint64_t dim[4];
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", i, companions[k].present);
            if (!weir__gguf_dims(c, name, dim)) continue;
            snprintf(name, sizeof name, "blk.%u.%s", i, companions[k].wanted);
            if (!weir__gguf_dims(c, name, dim)) weir__gguf_refuse(c, "has no tensor '%s'", name);
        }
    }
}

static void check_attention(gguf_check *c, uint32_t n_layers)
{
    uint32_t first = number_or(c, "attention.head_count", 0, 0);
    uint32_t size = first == 0 ? 0 : number_or(c, "embedding_length", 0, 0) / first;
    head full = {size, size, 0};
    head swa = full;
    if (first != 0) { /* else llama.cpp reads none of these */
        full = check_head(c, "", full);
        swa = check_head(c, "_swa", full);
    }
    uint32_t groups = number_or(c, "attention.output_group_count", 0, 1);
    if (is_arch(c, " deepseek4 ") &&
        (groups == 0 || first % groups != 0 || number_or(c, "attention.head_count_kv", 0, first) != 1))
        weir__gguf_refuse(c, "has %u heads, but not one of keys or uneven groups", first);
    for (uint32_t i = 0; i < n_layers && c->status == WEIR_OK; i++) {
        uint32_t heads = number_or(c, "attention.head_count", i, 0);
        uint32_t heads_kv = number_or(c, "attention.head_count_kv", i, heads);
        if (heads_kv > 0 && heads % heads_kv != 0)
            weir__gguf_refuse(c, "has %u heads for %u heads of keys in layer %u", heads, heads_kv, i);
        if (heads > 0) check_layer_heads(c, i, heads, heads_kv, full, swa);
    }

    /* Sections of a rotation in several directions. */
    static const char sectioned[] =
        " paddleocr qwen2vl qwen35 qwen35moe qwen3tts qwen3vl qwen3vlmoe qwen4exp ";
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4; i++) {
        sum += number_or(c, "rope.dimension_sections", i, 0);
        if (i == 2 && sum == 0 && is_arch(c, sectioned))
            weir__gguf_refuse(c, "key '%s.rope.dimension_sections' is missing or 0", c->info.architecture);
    }
    if (sum > full.key && first != 0)
        weir__gguf_refuse(c, "key '%s.rope.dimension_sections' exceeds %u dimensions", c->info.architecture,
                          full.key);
    if (is_arch(c, " deepseek2 mistral4 ") && real_or(c, "attention.temperature_scale", 0) != 0 &&
        number_or(c, "attention.temperature_length", 0, 0) == 0)
        weir__gguf_refuse(c, "key '%s.attention.temperature_length' is missing or 0", c->info.architecture);
}

/* llama.cpp asserts that a model with a sliding window has a layer that uses it. */
static void check_window(gguf_check *c, uint32_t n_layers)
{
    const gguf_entry *e = weir__gguf_find_arch(c, "attention.sliding_window_pattern");
    uint32_t value;
    uint32_t n_windows = 0;
    if (e == NULL || weir__gguf_find_arch(c, "attention.sliding_window") == NULL ||
        is_arch(c, " dflash eagle3 "))
        return;
    for (uint32_t i = 0; i < n_layers && e->is_array && number_at(c, e, i, &value); i++)
        n_windows += value != 0;
    if (e->is_array ? n_windows == 0 : number_at(c, e, 0, &value) && value == 1)
        weir__gguf_refuse(c, "key '%s.attention.sliding_window_pattern' leaves no layer with a window",
                          c->info.architecture);
}

/* The asserts on experts in llama_model_base::load_hparams, and divisions by their number. */
static void check_experts(gguf_check *c, uint32_t n_layers)
{
    uint32_t count = number_or(c, "expert_count", 0, 0);
    uint32_t groups = number_or(c, "expert_group_count", 0, 0);
    uint32_t first = number_or(c, "expert_used_count", 0, 0);
    uint32_t used = first;
    for (uint32_t i = 1; i < n_layers && c->status == WEIR_OK; i++) {
        uint32_t layer = number_or(c, "expert_used_count", i, 0);
        used = layer > used ? layer : used;
        if (layer != first && !is_arch(c, " nemotron_h_moe "))
            weir__gguf_refuse(c, "uses %u experts in layer %u, and %u in the first", layer, i, first);
    }
    if (used > count || (count > 0 && used == 0)) weir__gguf_refuse(c, "uses %u of %u experts", used, count);
    if (count == 0 ? groups > 0 : groups >= count)
        weir__gguf_refuse(c, "has %u experts in %u groups", count, groups);
    uint32_t groups_used = number_or(c, "expert_group_used_count", 0, 0);
    if (groups > 1 && (count % groups != 0 || groups_used == 0 || groups_used >= groups))
        weir__gguf_refuse(c, "has %u experts in %u groups and uses %u of these", count, groups, groups_used);
}

/* Layers without attention. */
static void check_recurrent(gguf_check *c, uint32_t n_layers)
{
    uint32_t n_embd = number_or(c, "embedding_length", 0, 0);
    uint32_t head_size = number_or(c, "wkv.head_size", 0, 0);
    if (head_size != 0 && is_arch(c, " rwkv6 rwkv6qwen2 rwkv7 arwkv7 ") && n_embd % head_size != 0)
        weir__gguf_refuse(c, "has %u dimensions in heads of %u", n_embd, head_size);
    uint32_t inner = number_or(c, "ssm.inner_size", 0, 0);
    uint32_t rank = number_or(c, "ssm.time_step_rank", 0, 1);
    uint32_t groups = number_or(c, "ssm.group_count", 0, 1);
    bool flat = is_arch(c, " plamo2 ");
    if (flat ? groups != 0 || inner % rank != 0
             : is_arch(c, " falcon-h1 granitehybrid mamba2 nemotron_h nemotron_h_moe ") &&
                   (inner % rank != 0 || inner % groups != 0))
        weir__gguf_refuse(c, "has state of %u in %u heads and %u groups", inner, rank, groups);
    if (is_arch(c, " granitehybrid jamba ") && inner != 2 * n_embd)
        weir__gguf_refuse(c, "key '%s.ssm.inner_size' is not twice the embedding length",
                          c->info.architecture);
    if (is_arch(c, " bailingmoe3 ") && (truth_of(c, weir__gguf_find_arch(c, "kda.safe_gate")) != 1 ||
                                        !(real_or(c, "kda.gate_lower_bound", 0) < 0)))
        weir__gguf_refuse(c, "keys 'bailingmoe3.kda.safe_gate' and '.gate_lower_bound' are not set");
    if (is_arch(c, " hrm_text ") && n_layers != (uint64_t)number_or(c, "hrm.layers_per_stack", 0, 0) *
                                                    number_or(c, "hrm.h_cycles", 0, 0) *
                                                    (number_or(c, "hrm.l_cycles", 0, 0) + 1))
        weir__gguf_refuse(c, "has %u layers, which its keys 'hrm_text.hrm.*' contradict", n_layers);
}

static void check_hyperparameters(gguf_check *c)
{
    static const char *const epsilons[] = {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
                                           "attention.group_norm_epsilon"};
    const char *arch = c->info.architecture;
    if (is_arch(c, " clip wavtokenizer-dec "))
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "is part of a model of images or sounds ('%s'), not a language model", arch);
    check_numbers(c);
    uint32_t pooling = number_or(c, "pooling_type", 0, UINT32_MAX);
    if (pooling != UINT32_MAX && pooling > 4) /* unspecified; LLAMA_POOLING_TYPE_RANK */
        weir__gguf_refuse(c, "key '%s.pooling_type' is %u; allowed are 0 to 4", arch, pooling);
    for (size_t i = 0; i < sizeof epsilons / sizeof *epsilons; i++) {
        double value = real_or(c, epsilons[i], 0);
        if (!(value >= 0))
            weir__gguf_refuse(c, "key '%s.%s' is %g; it must not be negative", arch, epsilons[i], value);
    }
    char scaling[32] = "linear";
    char key[GGUF_KEY_MAX];
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    const gguf_entry *e = weir__gguf_find(c, key);
    if (e != NULL && e->type == GGUF_STRING && !e->is_array &&
        (!text_of(c, key, scaling, sizeof scaling) || !is_listed(" none linear yarn longrope ", scaling)))
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "key '%s' is '%s', which llama.cpp does not know", key, scaling);
    /* Embeddings are read with this width from rows of the embedding length, unless a last layer widens them.
     */
    uint64_t dim[4];
    if (!is_arch(c, " deepseek4 dflash eagle3 gemma4-assistant qwen4exp ") &&
        !weir__gguf_dims(c, "dense_2.weight", dim) &&
        number_or(c, "embedding_length_out", 0, 0) > number_or(c, "embedding_length", 0, UINT32_MAX))
        weir__gguf_refuse(c, "key '%s.embedding_length_out' exceeds the embedding length", arch);
    uint32_t n_layers = number_or(c, "block_count", 0, 0);
    uint32_t n_next = number_or(c, "nextn_predict_layers", 0, 0);
    if (n_next > n_layers) weir__gguf_refuse(c, "predicts with %u of %u layers", n_next, n_layers);
    check_attention(c, n_layers);
    check_window(c, n_layers);
    check_companions(c, n_layers);
    check_experts(c, n_layers);
    check_recurrent(c, n_layers);
}

/* ---- Vocabulary ----------------------------------------------------------------------------------- */

/* The RWKV tokenizer walks a trie of unescaped tokens. At a byte that starts tokens but is none itself, it
 * may find no token and start again, forever. */
typedef struct rwkv_bytes {
    bool begins[256];
    bool is_token[256];
} rwkv_bytes;

/* Unescapes as llama.cpp does: \t \n \r \xhh (lower case); other escaped bytes stand for themselves. */
static void note_rwkv_token(rwkv_bytes *rwkv, const char *token)
{
    unsigned char first = 0;
    unsigned char hex = 0;
    int n = 0;
    int n_hex = 0;
    bool escaped = false;
    for (const char *p = token; *p != '\0'; p++) {
        unsigned char byte = (unsigned char)*p;
        if (n_hex > 0) {
            hex = (unsigned char)(hex << 4 | ((*p >= 'a' ? *p - 'a' + 10 : *p - '0') & 0xff));
            if (--n_hex > 0) continue;
            byte = hex;
        } else if (escaped) {
            escaped = false;
            if (*p == 'x') {
                n_hex = 2;
                hex = 0;
                continue;
            }
            byte = *p == 't' ? '\t' : *p == 'n' ? '\n' : *p == 'r' ? '\r' : byte;
        } else if (*p == '\\') {
            escaped = true;
            continue;
        }
        if (n++ == 0) first = byte;
    }
    if (n > 0) rwkv->begins[first] = true;
    if (n == 1) rwkv->is_token[first] = true;
}

static void check_tokens(gguf_check *c, const gguf_entry *e, const char *model)
{
    rwkv_bytes rwkv = {{false}, {false}};
    bool is_rwkv = strcmp(model, "rwkv") == 0;
    uint64_t squares = 0;
    char token[TOKEN_LEN_MAX + 1];
    gguf_mark *marks = weir__mem_calloc((size_t)e->n, sizeof *marks);
    if (marks == NULL) {
        weir__gguf_fail(c, WEIR_NO_MEMORY, "no memory to check it");
        return;
    }
    c->at = e->value_at;
    for (uint64_t i = 0; i < e->n && c->status == WEIR_OK; i++) {
        marks[i].at = c->at;
        uint64_t n = weir__gguf_take_u64(c);
        squares +=
            n <= TOKEN_LEN_MAX ? n * n : 0; /* longer ones are refused, and their squares might not fit */
        if (n > TOKEN_LEN_MAX || squares > TOKEN_SQUARES_MAX) {
            weir__gguf_refuse(c, "token %" PRIu64 " at byte %" PRIu64 " has %" PRIu64 " bytes; too long", i,
                              marks[i].at, n);
        } else if (weir__gguf_take(c, token, (size_t)n)) {
            token[n] = '\0'; /* llama.cpp takes a token up to its first NUL, and names empty ones */
            if (token[0] == '\0') snprintf(token, sizeof token, "[EMPTY_%" PRIu64 "]", i);
            marks[i].hash = weir__gguf_hash(token, strlen(token));
            if (is_rwkv) note_rwkv_token(&rwkv, token);
        }
    }
    if (c->status == WEIR_OK) weir__gguf_refuse_twins(c, marks, (size_t)e->n, "token");
    weir__mem_free(marks);
    for (int i = 0; i < 256 && c->status == WEIR_OK; i++) {
        if (rwkv.begins[i] && !rwkv.is_token[i])
            weir__gguf_refuse(c, "has tokens that begin with byte 0x%02x, and no token for that byte alone",
                              i);
    }
}

/* The id of a special token in llama.cpp: `otherwise` if the key is out of range. -1: none. */
static int64_t special_id(gguf_check *c, uint32_t n_vocab, const char *key, int64_t otherwise)
{
    uint32_t id;
    if (number_at(c, weir__gguf_find(c, key), 0, &id) && id < n_vocab) return id;
    return otherwise < n_vocab ? otherwise : -1;
}

/* llama.cpp asserts that a begin, end or separator token exists when it adds one. */
static void check_added_tokens(gguf_check *c, uint32_t n_vocab, const char *model, const char *pre)
{
    int64_t bos = -1;
    int64_t eos = -1;
    int add_bos = truth_of(c, weir__gguf_find(c, "tokenizer.ggml.add_bos_token"));
    int add_eos = truth_of(c, weir__gguf_find(c, "tokenizer.ggml.add_eos_token"));
    if (strcmp(model, "llama") == 0) {
        bos = 1;
        eos = 2;
        add_bos = add_bos != 0;
    } else if (strcmp(model, "bert") == 0) {
        bos = 101;
        add_bos = 1;
        add_eos = 0;
        if (special_id(c, n_vocab, "tokenizer.ggml.seperator_token_id", 102) < 0)
            weir__gguf_refuse(c, "has no separator token (key 'tokenizer.ggml.seperator_token_id')");
    } else if (is_listed(" gpt2 hybriddna whitespace ", model)) {
        bos = is_listed(" glm4 chatglm-bpe ", pre) ? -1 : 11;
        eos = 11;
        if (is_listed(" gemma4 granite-embed-multi-311m ", pre) || (bos >= 0 && add_bos < 0)) add_bos = 1;
    } else if (strcmp(model, "gemma4") == 0) {
        add_bos = 1;
    } else if (strcmp(model, "t5") == 0) {
        eos = 1;
        add_eos = add_eos != 0;
    } else {
        return;
    }
    if (add_bos == 1 && special_id(c, n_vocab, "tokenizer.ggml.bos_token_id", bos) < 0)
        weir__gguf_refuse(c, "its tokenizer adds a BOS token, but the vocabulary has none (key "
                             "'tokenizer.ggml.bos_token_id')");
    if (add_eos == 1 && special_id(c, n_vocab, "tokenizer.ggml.eos_token_id", eos) < 0)
        weir__gguf_refuse(c, "its tokenizer adds an EOS token, but the vocabulary has none (key "
                             "'tokenizer.ggml.eos_token_id')");
}

static void check_vocabulary(gguf_check *c)
{
    char model[32];
    char pre[64];
    if (!text_of(c, "tokenizer.ggml.model", model, sizeof model)) return;
    text_of(c, "tokenizer.ggml.pre", pre, sizeof pre);
    if (is_listed(" none no_vocab ", model))
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "has no vocabulary, so it cannot read or write text");
    /* Otherwise runs of blanks reach an assert in the merge lookup. */
    if (strcmp(pre, "whitespace") == 0 && strcmp(model, "whitespace") != 0)
        weir__gguf_refuse(c, "key 'tokenizer.ggml.pre' is 'whitespace' with tokenizer '%s'", model);

    const gguf_entry *e = weir__gguf_find(c, "tokenizer.ggml.tokens");
    if (e == NULL || !e->is_array || e->type != GGUF_STRING) return;
    if (e->n == 0 || e->n > TOKENS_MAX) {
        weir__gguf_refuse(c, "has %" PRIu64 " tokens; allowed are 1 to %u", e->n, TOKENS_MAX);
        return;
    }
    check_tokens(c, e, model);
    check_added_tokens(c, (uint32_t)e->n, model, pre);
}

void weir__gguf_check_rules(gguf_check *c)
{
    const char *key = "general.architecture";
    char kind[32];
    if (text_of(c, "general.type", kind, sizeof kind) && strcmp(kind, "adapter") == 0)
        weir__gguf_fail(
            c, WEIR_UNSUPPORTED,
            "is an adapter: load the model that it was made for, and this one beside it (--lora)");
    else if (!text_of(c, key, c->info.architecture, sizeof c->info.architecture) ||
             c->info.architecture[0] == '\0')
        weir__gguf_refuse(c, "has no key '%s', or one that is not a short string", key);
    if (c->status == WEIR_OK) check_hyperparameters(c);
    if (c->status == WEIR_OK) check_vocabulary(c);
    uint64_t dim[4];
    if (weir__gguf_dims(c, "position_embd.weight", dim)) c->info.n_positions = dim[1];
}

/* ---- Adapters ------------------------------------------------------------------------------------- */

void weir__gguf_check_adapter_rules(gguf_check *c)
{
    const char *alpha = "adapter.lora.alpha";
    char kind[32];
    if (!text_of(c, "general.type", kind, sizeof kind) || strcmp(kind, "adapter") != 0)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is not an adapter: key 'general.type' is '%s', not 'adapter'",
                        kind);
    else if (!text_of(c, "adapter.type", kind, sizeof kind) || strcmp(kind, "lora") != 0)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is not a LoRA adapter: key 'adapter.type' is '%s'", kind);
    else if (!text_of(c, "general.architecture", c->info.architecture, sizeof c->info.architecture))
        weir__gguf_refuse(c, "has no key 'general.architecture', or one that is not a short string");
    else if (weir__gguf_find(c, "adapter.alora.invocation_tokens") != NULL)
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "is an activated LoRA, which applies to a part of a text only; weir cannot do that");
    else if (c->info.n_tensors == 0)
        weir__gguf_refuse(c, "has no matrices");
    const gguf_entry *e = weir__gguf_find(c, alpha);
    if (e != NULL && (e->type != GGUF_F32 || e->is_array))
        weir__gguf_refuse(c, "key '%s' is not a number in single precision", alpha);
}

/* ---- Projectors ----------------------------------------------------------------------------------- */

/* Numbers by which libmtmd divides, allocates or counts; each of images and of sounds ("clip.vision.",
 * "clip.audio."). llama/projector.cpp catches the assertions of its graphs when it encodes a trial. */
static const struct {
    const char *key;
    uint32_t min, max;
} projector_bounds[] = {
    {"embedding_length", 1, 1u << 20},
    {"feed_forward_length", 0, 1u << 24},
    {"block_count", 0, LAYERS_MAX},
    {"projection_dim", 1, 1u << 20},
    {"attention.head_count", 1, 1u << 16},
    {"attention.head_count_kv", 1, 1u << 16},
    {"attention.head_dim", 1, 1u << 16},
    {"image_size", 1, 1u << 14},
    {"patch_size", 1, 1u << 12},
    {"image_min_pixels", 0, 1u << 28},
    {"image_max_pixels", 1, 1u << 28},
    {"preproc_image_size", 1, 1u << 14},
    {"preproc_min_tiles", 0, 1u << 10},
    {"preproc_max_tiles", 1, 1u << 10},
    {"projector.scale_factor", 1, 1u << 8},
    {"projector.query_side", 1, 1u << 10},
    {"projector.window_side", 1, 1u << 10},
    {"spatial_merge_size", 1, 1u << 8},
    {"n_wa_pattern", 1, LAYERS_MAX},
    {"window_size", 1, 1u << 16},
    {"expert_used_count", 1, EXPERTS_MAX},
    {"sam.block_count", 1, LAYERS_MAX},
    {"sam.head_count", 1, 1u << 16},
    {"sam.embedding_length", 1, 1u << 20},
    {"num_mel_bins", 1, 1u << 10},
    {"projector.stack_factor", 1, 1u << 6},
    {"subsampling_factor", 1, 1u << 6},
    {"conv_kernel_size", 1, 1u << 10},
    {"chunk_size", 1, 1u << 16},
    {"max_pos_emb", 1, 1u << 20},
    {"projector.window_size", 1, 1u << 16},
    {"projector.downsample_rate", 1, 1u << 10},
    {"projector.head_count", 1, 1u << 16},
};

static void check_projector_part(gguf_check *c, const char *part)
{
    char key[GGUF_KEY_MAX];
    uint32_t value, width = 0, heads = 1;
    for (size_t i = 0; i < sizeof projector_bounds / sizeof *projector_bounds && c->status == WEIR_OK; i++) {
        snprintf(key, sizeof key, "clip.%s.%s", part, projector_bounds[i].key);
        const gguf_entry *e = weir__gguf_find(c, key);
        if (e != NULL && (e->is_array || e->type != GGUF_U32))
            weir__gguf_refuse(c, "key '%s' is not a 32-bit number", key);
        if (!number_at(c, e, 0, &value)) continue;
        if (value < projector_bounds[i].min || value > projector_bounds[i].max)
            weir__gguf_refuse(c, "key '%s' is %" PRIu32 "; allowed are %" PRIu32 " to %" PRIu32, key, value,
                              projector_bounds[i].min, projector_bounds[i].max);
        if (strcmp(projector_bounds[i].key, "embedding_length") == 0) width = value;
        if (strcmp(projector_bounds[i].key, "attention.head_count") == 0) heads = value;
    }
    if (c->status == WEIR_OK && width % heads != 0)
        weir__gguf_refuse(c,
                          "the width of 'clip.%s', %" PRIu32 ", is not a multiple of its %" PRIu32 " heads",
                          part, width, heads);
}

/* Kinds whose images depend on their place in the prompt: how many cells one has (DeepSeek), or the positions
 * of these (Hunyuan). weir computes images apart from prompts. */
static void check_projector_kind(gguf_check *c, const char *key)
{
    char kind[64];
    if (text_of(c, key, kind, sizeof kind) && is_listed(" deepseek4v hunyuanvl ", kind))
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "is a projector of the kind '%s', whose images depend on their place in the prompt: "
                        "weir does not have this kind",
                        kind);
}

void weir__gguf_check_projector_rules(gguf_check *c)
{
    if (!text_of(c, "general.architecture", c->info.architecture, sizeof c->info.architecture) ||
        strcmp(c->info.architecture, "clip") != 0)
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "is not a projector: key 'general.architecture' is '%s', not 'clip'",
                        c->info.architecture);
    else if (c->info.n_tensors == 0)
        weir__gguf_refuse(c, "has no weights");
    if (c->status == WEIR_OK) check_projector_kind(c, "clip.projector_type");
    if (c->status == WEIR_OK) check_projector_kind(c, "clip.vision.projector_type");
    if (c->status == WEIR_OK) check_projector_part(c, "vision");
    if (c->status == WEIR_OK) check_projector_part(c, "audio");
}

/* ---- What llama.cpp refuses ----------------------------------------------------------------------- */

/* True if one of the texts is a part of the reason. */
static bool says_one(const char *reason, const char *const texts[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(reason, texts[i]) != NULL) return true;
    return false;
}

/* True if llama.cpp's reason complains of the name at `name`, of n bytes. Other names, and the words of a
 * path, do not say what is wrong. */
static bool is_blamed(const char *reason, const char *name, size_t n)
{
    static const char *const before[] = {"not found in model: ", "for key ", "for key: ", "gguf type for ",
                                         "missing tensor '"};
    static const char *const after[] = {" has wrong ", " is not a ", "' has wrong shape", "' not found"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        size_t length = strlen(before[i]);
        if ((size_t)(name - reason) >= length && memcmp(name - length, before[i], length) == 0) return true;
    }
    for (size_t i = 0; i < sizeof after / sizeof *after; i++)
        if (strncmp(name + n, after[i], strlen(after[i])) == 0) return true;
    return false;
}

/* A name of which the reason complains: of a key or of a tensor. The first fault stays, so that neither this
 * nor blame_rest returns behind one. */
static void blame_name(gguf_check *c, const char *name, bool whole)
{
    const char *arch = c->info.architecture, *last = strrchr(name, '.');
    size_t n = strlen(arch);
    uint64_t dim[4];
    if (last == NULL) return;
    if (strncmp(name, "tokenizer.", 10) == 0 || (strncmp(name, arch, n) == 0 && name[n] == '.'))
        weir__gguf_refuse(c,
                          weir__gguf_find(c, name) != NULL ? "key '%s' has a value that does not fit"
                                                           : "has no key '%s'",
                          name);
    if (strcmp(last, ".weight") != 0 && strcmp(last, ".bias") != 0) return;
    if (weir__gguf_dims(c, name, dim))
        weir__gguf_refuse(c,
                          "tensor '%s' is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                          ", which does not fit its metadata",
                          name, dim[0], dim[1], dim[2], dim[3]);
    weir__gguf_refuse(c, "has no tensor '%s'%s", name, whole ? "" : " that fits its metadata");
}

/* The reason as a whole, where it complains of no name. */
static void blame_rest(gguf_check *c, const char *reason, const char *failed)
{
    static const char *const of_model[] = {
        "model hyperparameters: ",   "model vocabulary: ", "tensors; expected",
        "tensors created; expected", "zero experts",       "n_expert"};
    static const char *const of_reads[] = {"failed to open ", "failed to read ",    "failed to seek ",
                                           "read error: ",    "seek error: ",       "tell error: ",
                                           "mmap failed: ",   "reached end of file"};
    if (says_one(reason, of_model, sizeof of_model / sizeof *of_model))
        weir__gguf_fail(c, WEIR_FORMAT,
                        "is refused as a model of the architecture '%s'; the log has llama.cpp's reason",
                        c->info.architecture);
    if (says_one(reason, of_reads, sizeof of_reads / sizeof *of_reads))
        weir__gguf_fail(c, WEIR_IO, "cannot be read; the log has llama.cpp's reason");
    weir__gguf_fail(c, WEIR_BACKEND, "%s; %s", failed,
                    *reason != '\0' ? "the log has llama.cpp's reason" : "llama.cpp gives no reason");
}

void weir__gguf_blame(gguf_check *c, const char *reason, bool whole, const char *failed)
{
    static const char *const names[][3] = {
        {"general.architecture", "architecture", "model architecture: "},
        {"tokenizer.ggml.model", "tokenizer", "unknown tokenizer: "},
        {"tokenizer.ggml.pre", "pre-tokenizer", "unknown pre-tokenizer type: "}};
    static const char of_names[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char name[64], unknown[2 * sizeof name];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool known = text_of(c, names[i][0], name, sizeof name);
        snprintf(unknown, sizeof unknown, "%s'%s'", names[i][2], name);
        if (known && strstr(reason, unknown) != NULL)
            weir__gguf_fail(
                c, WEIR_UNSUPPORTED,
                "has the %s '%s', which this build does not know: give another model, or a newer weir",
                names[i][1], name);
    }
    const char *at = reason + strcspn(reason, of_names);
    for (size_t length; *at != '\0'; at += length, at += strcspn(at, of_names)) {
        length = strspn(at, of_names);
        size_t n = length;
        while (n > 0 && at[n - 1] == '.') n--; /* the end of a sentence */
        if (n == 0 || n >= sizeof name || !is_blamed(reason, at, n)) continue;
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        blame_name(c, name, whole);
    }
    blame_rest(c, reason, failed);
}
