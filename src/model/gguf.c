/* gguf.c: reads a GGUF file as a stranger would, before llama.cpp trusts it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rules of the container are those of ggml/src/gguf.cpp, those of keys are the asserts, divisions and
 * array bounds that metadata reaches in llama-model.cpp, llama-vocab.cpp, models/ and ggml's operations
 * (llama.cpp v0.5.0). What makes llama.cpp throw is left to it: the shim turns that into a status.
 *
 * The first failure sticks: every step looks at check.status first, so the steps need no error paths. */
#include "model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"

#define WINDOW 65536 /* bytes of the file held at a time: one read for most of a tensor table */

/* gguf.cpp compares every key and every tensor name with every other one; these keep that under seconds.
 * Models have some 50 keys and up to 2,000 tensors. */
#define KV_MAX     4096
#define TENSOR_MAX 32768

#define KEY_MAX    256        /* the longest key of llama.cpp has 47 bytes */
#define NAME_MAX_  63         /* GGML_MAX_NAME - 1 */
#define STRING_MAX (1u << 30) /* GGUF_MAX_STRING_LENGTH */
#define ARRAY_MAX  (1u << 24) /* 60 times the largest merge table; each string costs llama.cpp 32 bytes */
#define DIM_MAX    ((uint64_t)INT32_MAX) /* ggml's kernels count rows and columns in int */
#define BYTES_MAX  ((uint64_t)1 << 48)   /* of a tensor; times TENSOR_MAX it still fits 64 bits */
#define ALIGN_MIN  32                    /* ggml-cpu's TENSOR_ALIGNMENT, which a mapped tensor must keep */
#define SHARD_MAX  1024 /* files kept open at once by the loader; the largest models have some 60 */

#define TOKENS_MAX (1u << 22) /* 16 times the largest vocabulary */
/* llama.cpp keeps tokens in recursive tries and, where a byte is not decodable, writes a token out once per
 * character: the stack grows with the longest token and memory with the squares of all. Real tokens have at
 * most some 250 bytes. */
#define TOKEN_LEN_MAX     4096
#define TOKEN_SQUARES_MAX (1u << 28)

#define LAYERS_MAX  512  /* LLAMA_MAX_LAYERS */
#define EXPERTS_MAX 1024 /* LLAMA_MAX_EXPERTS */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, N_VALUE_TYPES };
static const unsigned char value_size[N_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum { GGML_F32 = 0, GGML_I32 = 26, GGML_I64 = 27 };

/* [ggml type] elements and bytes of a block; 0: removed, or made while computing and never stored. */
static const struct {
    uint16_t elements, bytes;
} block[] = {
    {1, 4},    {1, 2},    {32, 18},   {32, 20},   {0, 0},     {0, 0},     {32, 22}, {32, 24},  {32, 34},
    {0, 0},    {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {0, 0},   {256, 66}, {256, 74},
    {256, 98}, {256, 50}, {32, 18},   {256, 110}, {256, 82},  {256, 136}, {0, 0},   {0, 0},    {1, 4},
    {1, 8},    {0, 0},    {256, 56},  {1, 2},     {0, 0},     {0, 0},     {0, 0},   {256, 54}, {256, 66},
    {0, 0},    {0, 0},    {0, 0},     {32, 17},   {64, 36},   {128, 18},  {64, 18},
};

/* One key and where its value lies. */
typedef struct entry {
    uint64_t hash;
    uint64_t key_at;   /* offset of the key's bytes */
    uint64_t value_at; /* offset of the value, or of the first element */
    uint64_t n;        /* elements; 1 unless an array */
    uint32_t key_n;
    uint8_t type; /* of the value or of the elements */
    bool is_array;
} entry;

/* A string of the file by its hash, to find equal ones. */
typedef struct mark {
    uint64_t hash;
    uint64_t at; /* offset of its length */
} mark;

/* The check of one file. at <= size; window holds window_n bytes from window_at, within size. */
typedef struct check {
    int fd;                    /* -1: memory */
    const unsigned char *data; /* [size], when fd is -1 */
    uint64_t size;
    uint64_t at;
    const char *part; /* of the file, for "ends inside" */

    weir_status status;
    weir_error *error;
    const char *name; /* for messages */

    weir__gguf_info info;
    entry *entries; /* [info.n_kv] */
    mark *tensors;  /* [info.n_tensors], by hash */
    uint32_t n_vocab;

    uint64_t window_at;
    size_t window_n;
    unsigned char window[WINDOW];
} check;

static void fail(check *c, weir_status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void fail(check *c, weir_status code, const char *format, ...)
{
    if (c->status != WEIR_OK) return;
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *advice = code == WEIR_FORMAT ? "; the file is damaged, download it again" : "";
    c->status = weir__error_set(c->error, code, "path", "%.80s: %s%s", c->name, text, advice);
}

/* ---- Bytes ---------------------------------------------------------------------------------------- */

static bool within(check *c, uint64_t n)
{
    if (c->status == WEIR_OK && n > c->size - c->at)
        fail(c, WEIR_FORMAT, "ends at byte %" PRIu64 ", inside %s", c->size, c->part);
    return c->status == WEIR_OK;
}

static bool skip(check *c, uint64_t n)
{
    if (within(c, n)) c->at += n;
    return c->status == WEIR_OK;
}

/* Makes window begin at c->at. */
static void fill_window(check *c)
{
    size_t want = c->size - c->at < WINDOW ? (size_t)(c->size - c->at) : WINDOW;
    c->window_at = c->at;
    c->window_n = 0;
    while (c->window_n < want) {
        ssize_t n = pread(c->fd, c->window + c->window_n, want - c->window_n, (off_t)(c->at + c->window_n));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            fail(c, WEIR_IO, "cannot be read at byte %" PRIu64 ": %s", c->at + c->window_n,
                 n < 0 ? strerror(errno) : "it became shorter");
            return;
        }
        c->window_n += (size_t)n;
    }
}

/* Copies the next n <= WINDOW bytes; zeroes after a failure, so that callers may go on. */
static bool take(check *c, void *to, size_t n)
{
    if (within(c, n)) {
        if (c->fd < 0) {
            memcpy(to, c->data + c->at, n);
        } else {
            if (c->at < c->window_at || c->at + n > c->window_at + c->window_n) fill_window(c);
            if (c->status == WEIR_OK) memcpy(to, c->window + (c->at - c->window_at), n);
        }
    }
    if (c->status != WEIR_OK) {
        memset(to, 0, n);
        return false;
    }
    c->at += n;
    return true;
}

static uint32_t take_u32(check *c)
{
    uint32_t value;
    take(c, &value, sizeof value);
    return value;
}

static uint64_t take_u64(check *c)
{
    uint64_t value;
    take(c, &value, sizeof value);
    return value;
}

/* FNV-1a. Two strings with one hash count as equal: by chance that happens to one vocabulary in 10^8, and who
 * makes it happen has his file refused. */
static uint64_t hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = ((const mark *)a)->hash;
    uint64_t y = ((const mark *)b)->hash;
    return x < y ? -1 : x > y;
}

/* Sorts marks and refuses two equal ones. */
static void refuse_twins(check *c, mark *marks, size_t n, const char *what)
{
    if (n > 0) qsort(marks, n, sizeof *marks, by_hash);
    for (size_t i = 1; i < n && c->status == WEIR_OK; i++) {
        if (marks[i].hash == marks[i - 1].hash)
            fail(c, WEIR_FORMAT, "has the same %s at bytes %" PRIu64 " and %" PRIu64, what, marks[i - 1].at,
                 marks[i].at);
    }
}

/* ---- Keys and values ------------------------------------------------------------------------------ */

static void read_entry(check *c, entry *e, uint64_t i)
{
    char key[KEY_MAX + 1];
    uint64_t n = take_u64(c);
    if (c->status == WEIR_OK && (n == 0 || n > KEY_MAX))
        fail(c, WEIR_FORMAT,
             "key %" PRIu64 " at byte %" PRIu64 " is %" PRIu64 " bytes long; allowed are 1 to %d", i,
             c->at - 8, n, KEY_MAX);
    e->key_at = c->at;
    e->key_n = (uint32_t)n;
    if (c->status != WEIR_OK || !take(c, key, (size_t)n)) return;
    key[n] = '\0';
    /* llama.cpp reads keys up to a NUL, so two keys could become one. */
    if (strlen(key) != n) fail(c, WEIR_FORMAT, "key '%.40s' contains a NUL byte", key);
    e->hash = hash_bytes(key, (size_t)n);

    uint32_t type = take_u32(c);
    e->is_array = type == ARRAY;
    e->n = 1;
    if (e->is_array) {
        type = take_u32(c);
        e->n = take_u64(c);
    }
    if (c->status != WEIR_OK) return;
    if (type >= N_VALUE_TYPES || type == ARRAY) {
        fail(c, WEIR_FORMAT, "key '%.60s' has a value of unknown type %" PRIu32, key, type);
    } else if (e->n > ARRAY_MAX) {
        fail(c, WEIR_FORMAT, "key '%.60s' has %" PRIu64 " elements; at most %u are allowed", key, e->n,
             ARRAY_MAX);
    }
    e->type = (uint8_t)type;
    e->value_at = c->at;
    if (c->status == WEIR_OK && type != STRING) skip(c, e->n * value_size[type]);
    for (uint64_t k = 0; k < e->n && type == STRING && c->status == WEIR_OK; k++) {
        n = take_u64(c);
        if (n > STRING_MAX)
            fail(c, WEIR_FORMAT, "key '%.60s' has a string of %" PRIu64 " bytes at byte %" PRIu64, key, n,
                 c->at - 8);
        skip(c, n);
    }
}

static void read_entries(check *c)
{
    c->part = "the metadata";
    mark *marks = weir__mem_calloc((size_t)c->info.n_kv + 1, sizeof *marks);
    c->entries = weir__mem_calloc((size_t)c->info.n_kv + 1, sizeof *c->entries);
    if (marks == NULL || c->entries == NULL) fail(c, WEIR_NO_MEMORY, "no memory to check it");
    for (uint64_t i = 0; i < c->info.n_kv && c->status == WEIR_OK; i++) {
        read_entry(c, &c->entries[i], i);
        marks[i] = (mark){c->entries[i].hash, c->entries[i].key_at - 8};
    }
    if (c->status == WEIR_OK) refuse_twins(c, marks, (size_t)c->info.n_kv, "key");
    weir__mem_free(marks);
}

/* NULL: there is no such key. */
static const entry *find(check *c, const char *key)
{
    size_t n = strlen(key);
    uint64_t hash = hash_bytes(key, n);
    for (uint64_t i = 0; i < c->info.n_kv && c->status == WEIR_OK; i++) {
        const entry *e = &c->entries[i];
        char bytes[KEY_MAX];
        if (e->hash != hash || e->key_n != n) continue;
        c->at = e->key_at;
        if (take(c, bytes, n) && memcmp(bytes, key, n) == 0) return e;
    }
    return NULL;
}

/* The same for a key of the architecture: "block_count" finds "llama.block_count". */
static const entry *find_arch(check *c, const char *suffix)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s.%s", c->info.architecture, suffix);
    return find(c, key);
}

/* Element i of a number that llama.cpp reads as uint32; a scalar stands for every i. False: absent, or of a
 * type on which llama.cpp throws. */
static bool number(check *c, const entry *e, uint64_t i, uint32_t *value)
{
    if (e == NULL || (e->type != U32 && !(e->is_array && e->type == I32))) return false;
    if (e->is_array && i >= e->n) return false;
    c->at = e->value_at + (e->is_array ? 4 * i : 0);
    *value = take_u32(c);
    return c->status == WEIR_OK;
}

static uint32_t number_or(check *c, const char *suffix, uint64_t i, uint32_t otherwise)
{
    uint32_t value;
    return number(c, find_arch(c, suffix), i, &value) ? value : otherwise;
}

/* 1, 0, or -1 when absent or no bool. */
static int truth(check *c, const char *key)
{
    const entry *e = find(c, key);
    unsigned char value;
    if (e == NULL || e->type != BOOL || e->is_array) return -1;
    c->at = e->value_at;
    return take(c, &value, 1) ? value != 0 : -1;
}

/* Copies a string as llama.cpp sees it: up to a NUL. False: absent, no string, or longer than size - 1. */
static bool text(check *c, const char *key, char *to, size_t size)
{
    const entry *e = find(c, key);
    to[0] = '\0';
    if (e == NULL || e->type != STRING || e->is_array) return false;
    c->at = e->value_at;
    uint64_t n = take_u64(c);
    if (n >= size || !take(c, to, (size_t)n)) return false;
    to[n] = '\0';
    return true;
}

/* Whether word is in list, which begins and ends with a space. */
static bool listed(const char *list, const char *word)
{
    char spaced[KEY_MAX];
    snprintf(spaced, sizeof spaced, " %s ", word);
    return strstr(list, spaced) != NULL;
}

/* ---- Hyperparameters ------------------------------------------------------------------------------ */

/* Numbers of the architecture that llama.cpp divides by, allocates by or asserts on, with the values that are
 * safe. Each element of an array is held to the same bounds. */
static const struct {
    const char *key;
    uint32_t min, max;
} bounds[] = {
    {"context_length", 1, 1u << 28}, /* llama.cpp pads it to 256 in 32 bits and sizes caches by it */
    {"embedding_length", 1, 1u << 20},      {"block_count", 1, LAYERS_MAX},
    {"decoder_block_count", 0, LAYERS_MAX}, {"feed_forward_length", 0, 1u << 24},
    {"attention.head_count", 0, 1u << 16},  {"attention.head_count_kv", 0, 1u << 16},
    {"attention.key_length", 1, 1u << 16},  {"attention.value_length", 1, 1u << 16},
    {"rope.dimension_count", 0, 1u << 16},  {"expert_count", 0, EXPERTS_MAX},
};

static void check_bounds(check *c)
{
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds && c->status == WEIR_OK; k++) {
        const entry *e = find_arch(c, bounds[k].key);
        uint32_t value;
        for (uint64_t i = 0; number(c, e, i, &value); i++) {
            if (value < bounds[k].min || value > bounds[k].max)
                fail(c, WEIR_FORMAT, "key '%s.%s' is %" PRIu32 "; allowed are %" PRIu32 " to %" PRIu32,
                     c->info.architecture, bounds[k].key, value, bounds[k].min, bounds[k].max);
            if (!e->is_array) break;
        }
    }
}

/* Architectures whose graph asserts that keys and values have heads of one size... */
static const char equal_heads[] =
    " afmoe bailingmoe2 bert bitnet bloom chatglm cohere2 command-r dflash eagle3 eurobert gemma gemma-"
    " embedding gemma2 gemma3 glm4 glm4moe gpt-oss gpt2 gptneox granitehybrid jais jina-bert-v2 jina-"
    " bert-v3 laguna lfm2 lfm2moe maple minimax-m3 modern-bert mpt muse-glimmer nanbeige nemotron_h"
    " nemotron_h_moe neo-bert nomic-bert nomic-bert-moe openelm phi2 phi3 phimoe plamo3 qwen qwen35"
    " qwen35moe qwen3next qwen4exp refact spark2_5 stablelm starcoder t5 t5encoder ";
/* ...and that rotation covers all of a head as well. */
static const char whole_rotation[] =
    " apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream"
    " ernie4_5 ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa granitemoe graniteswitch"
    " grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais2 llada llada-moe llama"
    " llama-embed llama4 maincoder mellum minicpm minimax-01 minimax-m2 mistral3 nemotron olmo olmo2 olmoe"
    " orion paddleocr pangu-embedded plamo pockettts qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3tts"
    " qwen3vl qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 talkie xverse ";

/* Sizes of heads: of keys, values and what is rotated, for one kind of layer ("" or "_swa"). */
static void check_heads(check *c, const char *kind, uint32_t otherwise)
{
    const char *arch = c->info.architecture;
    char name[64];
    snprintf(name, sizeof name, "attention.key_length%s", kind);
    uint32_t key = number_or(c, name, 0, otherwise);
    snprintf(name, sizeof name, "attention.value_length%s", kind);
    uint32_t value = number_or(c, name, 0, otherwise);
    snprintf(name, sizeof name, "rope.dimension_count%s", kind);
    uint32_t rotated = number_or(c, name, 0, key);
    bool whole = listed(whole_rotation, arch);
    if (key != value && (whole || listed(equal_heads, arch)))
        fail(c, WEIR_FORMAT,
             "has keys of %" PRIu32 " and values of %" PRIu32 " dimensions%s; they must be equal", key, value,
             kind);
    if (rotated > key || rotated % 2 != 0 || (whole && rotated != key))
        fail(c, WEIR_FORMAT, "rotates %" PRIu32 " of %" PRIu32 " dimensions (key '%s.%s')", rotated, key,
             arch, name);
}

static void check_attention(check *c, uint32_t n_layers)
{
    uint32_t n_embd = number_or(c, "embedding_length", 0, 0);
    uint32_t first = number_or(c, "attention.head_count", 0, 0);
    for (uint32_t i = 0; i < n_layers && c->status == WEIR_OK; i++) {
        uint32_t heads = number_or(c, "attention.head_count", i, 0);
        uint32_t heads_kv = number_or(c, "attention.head_count_kv", i, heads);
        if (heads_kv > 0 && heads % heads_kv != 0)
            fail(c, WEIR_FORMAT, "has %" PRIu32 " heads for %" PRIu32 " heads of keys in layer %" PRIu32,
                 heads, heads_kv, i);
    }
    if (first == 0) return; /* no attention, and llama.cpp reads none of what follows */
    uint32_t size = n_embd / first;
    check_heads(c, "", size);
    check_heads(c, "_swa", number_or(c, "attention.key_length", 0, size));
}

/* The asserts on experts in llama_model_base::load_hparams, and what divides by their number. */
static void check_experts(check *c, uint32_t n_layers)
{
    uint32_t count = number_or(c, "expert_count", 0, 0);
    uint32_t groups = number_or(c, "expert_group_count", 0, 0);
    uint32_t used = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        uint32_t layer = number_or(c, "expert_used_count", i, 0);
        used = layer > used ? layer : used;
    }
    if (used > count || (count > 0 && used == 0))
        fail(c, WEIR_FORMAT, "uses %" PRIu32 " of %" PRIu32 " experts", used, count);
    if (count == 0 ? groups > 0 : groups >= count)
        fail(c, WEIR_FORMAT, "has %" PRIu32 " experts in %" PRIu32 " groups", count, groups);
    uint32_t groups_used = number_or(c, "expert_group_used_count", 0, 0);
    if (groups > 1 && (count % groups != 0 || groups_used == 0 || groups_used >= groups))
        fail(c, WEIR_FORMAT, "has %" PRIu32 " experts in %" PRIu32 " groups and uses %" PRIu32 " groups",
             count, groups, groups_used);
}

static void check_hyperparameters(check *c)
{
    static const char *const epsilons[] = {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
                                           "attention.group_norm_epsilon"};
    check_bounds(c);
    uint32_t pooling = number_or(c, "pooling_type", 0, UINT32_MAX);
    if (pooling != UINT32_MAX && pooling > 4) /* unspecified; LLAMA_POOLING_TYPE_RANK */
        fail(c, WEIR_FORMAT, "key '%s.pooling_type' is %" PRIu32 "; allowed are 0 to 4", c->info.architecture,
             pooling);
    for (size_t i = 0; i < sizeof epsilons / sizeof *epsilons; i++) {
        const entry *e = find_arch(c, epsilons[i]);
        float value = 0;
        if (e == NULL || e->type != F32 || e->is_array) continue;
        c->at = e->value_at;
        if (take(c, &value, sizeof value) && !(value >= 0))
            fail(c, WEIR_FORMAT, "key '%s.%s' is %g; it must not be negative", c->info.architecture,
                 epsilons[i], (double)value);
    }
    char scaling[32] = "linear";
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s.rope.scaling.type", c->info.architecture);
    const entry *e = find(c, key);
    if (e != NULL && e->type == STRING && !e->is_array &&
        (!text(c, key, scaling, sizeof scaling) || !listed(" none linear yarn longrope ", scaling)))
        fail(c, WEIR_UNSUPPORTED, "key '%s' is '%s', which llama.cpp does not know", key, scaling);
    uint32_t n_layers = number_or(c, "block_count", 0, 0);
    uint32_t n_next = number_or(c, "nextn_predict_layers", 0, 0);
    if (n_next > n_layers)
        fail(c, WEIR_FORMAT, "predicts with %" PRIu32 " of %" PRIu32 " layers", n_next, n_layers);
    check_attention(c, n_layers);
    check_experts(c, n_layers);
}

/* ---- Vocabulary ----------------------------------------------------------------------------------- */

/* The RWKV tokenizer walks a trie of unescaped tokens; where it meets a byte that begins tokens but is none
 * itself, it may find no token at all and begins again, for ever. */
typedef struct rwkv_bytes {
    bool begins[256];
    bool is_token[256];
} rwkv_bytes;

/* Unescapes as llama.cpp does: \t \n \r \xhh (lower case), any other escaped byte as it is. */
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

static void check_tokens(check *c, const entry *e, const char *model)
{
    rwkv_bytes rwkv = {{false}, {false}};
    bool is_rwkv = strcmp(model, "rwkv") == 0;
    uint64_t squares = 0;
    char token[TOKEN_LEN_MAX + 1];
    mark *marks = weir__mem_calloc((size_t)e->n, sizeof *marks);
    if (marks == NULL) fail(c, WEIR_NO_MEMORY, "no memory to check it");
    c->at = e->value_at;
    for (uint64_t i = 0; i < e->n && c->status == WEIR_OK; i++) {
        marks[i].at = c->at;
        uint64_t n = take_u64(c);
        squares += n < TOKEN_LEN_MAX ? n * n : 0;
        if (n > TOKEN_LEN_MAX || squares > TOKEN_SQUARES_MAX) {
            fail(c, WEIR_FORMAT, "token %" PRIu64 " at byte %" PRIu64 " has %" PRIu64 " bytes; too long", i,
                 marks[i].at, n);
        } else if (take(c, token, (size_t)n)) {
            token[n] = '\0'; /* llama.cpp takes a token up to its first NUL, and names empty ones */
            if (token[0] == '\0') snprintf(token, sizeof token, "[EMPTY_%" PRIu64 "]", i);
            marks[i].hash = hash_bytes(token, strlen(token));
            if (is_rwkv) note_rwkv_token(&rwkv, token);
        }
    }
    if (c->status == WEIR_OK) refuse_twins(c, marks, (size_t)e->n, "token");
    weir__mem_free(marks);
    for (int i = 0; i < 256 && c->status == WEIR_OK; i++) {
        if (rwkv.begins[i] && !rwkv.is_token[i])
            fail(c, WEIR_FORMAT, "has tokens that begin with byte 0x%02x, and no token for that byte alone",
                 i);
    }
}

/* The id under key as llama.cpp settles it: out of range counts as not given. -1: none. */
static int64_t special_id(check *c, const char *key, int64_t otherwise)
{
    uint32_t id;
    if (number(c, find(c, key), 0, &id) && id < c->n_vocab) return id;
    return otherwise < c->n_vocab ? otherwise : -1;
}

/* llama.cpp asserts that a begin, end or separator token exists when it comes to add one. */
static void check_added_tokens(check *c, const char *model, const char *pre)
{
    int64_t bos = -1;
    int64_t eos = -1;
    int add_bos = truth(c, "tokenizer.ggml.add_bos_token");
    int add_eos = truth(c, "tokenizer.ggml.add_eos_token");
    if (strcmp(model, "llama") == 0) {
        bos = 1;
        eos = 2;
        add_bos = add_bos != 0;
    } else if (strcmp(model, "bert") == 0) {
        bos = 101;
        add_bos = 1;
        add_eos = 0;
        if (special_id(c, "tokenizer.ggml.seperator_token_id", 102) < 0)
            fail(c, WEIR_FORMAT, "has no separator token (key 'tokenizer.ggml.seperator_token_id')");
    } else if (listed(" gpt2 hybriddna whitespace ", model)) {
        bos = listed(" glm4 chatglm-bpe ", pre) ? -1 : 11;
        eos = 11;
        if (listed(" gemma4 granite-embed-multi-311m ", pre) || (bos >= 0 && add_bos < 0)) add_bos = 1;
    } else if (strcmp(model, "gemma4") == 0) {
        add_bos = 1;
    } else if (strcmp(model, "t5") == 0) {
        eos = 1;
        add_eos = add_eos != 0;
    } else {
        return;
    }
    if (add_bos == 1 && special_id(c, "tokenizer.ggml.bos_token_id", bos) < 0)
        fail(c, WEIR_FORMAT, "adds a begin token and has none (key 'tokenizer.ggml.bos_token_id')");
    if (add_eos == 1 && special_id(c, "tokenizer.ggml.eos_token_id", eos) < 0)
        fail(c, WEIR_FORMAT, "adds an end token and has none (key 'tokenizer.ggml.eos_token_id')");
}

static void check_vocabulary(check *c)
{
    char model[32];
    char pre[64];
    if (!text(c, "tokenizer.ggml.model", model, sizeof model)) return;
    text(c, "tokenizer.ggml.pre", pre, sizeof pre);
    if (listed(" none no_vocab ", model))
        fail(c, WEIR_UNSUPPORTED, "has no vocabulary, so it cannot read or write text");
    /* Else runs of blanks reach an assert in the merge lookup. */
    if (strcmp(pre, "whitespace") == 0 && strcmp(model, "whitespace") != 0)
        fail(c, WEIR_FORMAT, "key 'tokenizer.ggml.pre' is 'whitespace' with tokenizer '%s'", model);

    const entry *e = find(c, "tokenizer.ggml.tokens");
    if (e == NULL || !e->is_array || e->type != STRING) return;
    if (e->n == 0 || e->n > TOKENS_MAX) {
        fail(c, WEIR_FORMAT, "has %" PRIu64 " tokens; allowed are 1 to %u", e->n, TOKENS_MAX);
        return;
    }
    c->n_vocab = (uint32_t)e->n;
    check_tokens(c, e, model);
    check_added_tokens(c, model, pre);
}

/* ---- Tensors -------------------------------------------------------------------------------------- */

/* Reads one line of the table; *offset is where its data must begin and moves behind it. */
static void read_tensor(check *c, uint64_t i, uint64_t alignment, uint64_t *offset)
{
    char name[NAME_MAX_ + 1];
    c->tensors[i].at = c->at;
    uint64_t n = take_u64(c);
    if (c->status == WEIR_OK && n > NAME_MAX_)
        fail(c, WEIR_FORMAT, "tensor %" PRIu64 " at byte %" PRIu64 " has a name of %" PRIu64 " bytes", i,
             c->at - 8, n);
    if (c->status != WEIR_OK || !take(c, name, (size_t)n)) return;
    name[n] = '\0';
    if (strlen(name) != n) fail(c, WEIR_FORMAT, "tensor '%s' has a NUL byte in its name", name);
    c->tensors[i].hash = hash_bytes(name, (size_t)n);

    uint64_t dim[4] = {1, 1, 1, 1};
    uint32_t n_dims = take_u32(c);
    if (n_dims > 4)
        fail(c, WEIR_FORMAT, "tensor '%s' has %" PRIu32 " dimensions; at most 4 are allowed", name, n_dims);
    for (uint32_t k = 0; k < n_dims && c->status == WEIR_OK; k++) dim[k] = take_u64(c);
    uint32_t type = take_u32(c);
    uint64_t begin = take_u64(c);
    if (c->status != WEIR_OK) return;
    if (type >= sizeof block / sizeof *block || block[type].elements == 0) {
        fail(c, WEIR_UNSUPPORTED, "tensor '%s' has type %" PRIu32 ", which this build cannot compute with",
             name, type);
        return;
    }
    if ((type == GGML_I32 && strstr(name, "tid2eid") == NULL) ||
        (type == GGML_I64 && strcmp(name, "d2t") != 0) ||
        (n_dims < 2 && type != GGML_F32 && type != GGML_I64)) {
        fail(c, WEIR_UNSUPPORTED,
             "tensor '%s' has type %" PRIu32 ", which llama.cpp cannot compute with there", name, type);
        return;
    }
    if (dim[0] % block[type].elements != 0) {
        fail(c, WEIR_FORMAT, "tensor '%s' has rows of %" PRIu64 " elements, not a multiple of %d", name,
             dim[0], block[type].elements);
        return;
    }
    uint64_t bytes = block[type].bytes;
    for (int k = 0; k < 4 && c->status == WEIR_OK; k++) {
        uint64_t factor = k == 0 ? dim[0] / block[type].elements : dim[k];
        if (factor == 0 || dim[k] > DIM_MAX || bytes > BYTES_MAX / factor)
            fail(c, WEIR_FORMAT, "tensor '%s' is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64, name,
                 dim[0], dim[1], dim[2], dim[3]);
        else
            bytes *= factor;
    }
    if (c->status != WEIR_OK) return;
    if (begin != *offset)
        fail(c, WEIR_FORMAT, "tensor '%s' begins at %" PRIu64 " of the data; %" PRIu64 " was expected", name,
             begin, *offset);
    *offset += (bytes + alignment - 1) / alignment * alignment;
    c->info.tensor_bytes += bytes;
}

static void read_tensors(check *c)
{
    uint64_t table_at = c->at;
    uint32_t alignment = 32; /* GGUF_DEFAULT_ALIGNMENT */
    const entry *e = find(c, "general.alignment");
    if (e != NULL && !number(c, e, 0, &alignment))
        fail(c, WEIR_FORMAT, "key 'general.alignment' is no uint32");
    if (alignment < ALIGN_MIN || (alignment & (alignment - 1)) != 0)
        fail(c, WEIR_FORMAT, "key 'general.alignment' is %" PRIu32 "; allowed are powers of two from %d",
             alignment, ALIGN_MIN);
    c->at = table_at;
    c->part = "the tensor table";
    c->tensors = weir__mem_calloc((size_t)c->info.n_tensors + 1, sizeof *c->tensors);
    if (c->tensors == NULL) fail(c, WEIR_NO_MEMORY, "no memory to check it");
    uint64_t offset = 0;
    uint64_t last = 0;
    for (uint64_t i = 0; i < c->info.n_tensors && c->status == WEIR_OK; i++) {
        last = c->info.tensor_bytes;
        uint64_t begin = offset;
        read_tensor(c, i, alignment, &offset);
        last = begin + (c->info.tensor_bytes - last);
    }
    if (c->status != WEIR_OK) return;
    /* last is the end of the last tensor without its padding, which the file need not have. */
    uint64_t data_at = (c->at + alignment - 1) / alignment * alignment;
    if (c->info.n_tensors > 0 && (data_at > c->size || last > c->size - data_at))
        fail(c, WEIR_FORMAT, "has %" PRIu64 " bytes; its tensors end at byte %" PRIu64, c->size,
             data_at + last);
    refuse_twins(c, c->tensors, (size_t)c->info.n_tensors, "tensor name");
}

/* ---- One file ------------------------------------------------------------------------------------- */

static void read_header(check *c)
{
    unsigned char magic[4];
    c->part = "the header";
    if (c->size == 0) fail(c, WEIR_FORMAT, "is empty");
    if (!take(c, magic, sizeof magic)) return;
    if (memcmp(magic, "GGUF", 4) != 0) {
        fail(c, WEIR_FORMAT, "is no GGUF file: it begins with %02x %02x %02x %02x", magic[0], magic[1],
             magic[2], magic[3]);
        return;
    }
    uint32_t version = take_u32(c);
    if (c->status != WEIR_OK) return;
    if ((version & 0xffff) == 0) fail(c, WEIR_UNSUPPORTED, "has the byte order of another kind of machine");
    if (version < 2 || version > 3)
        fail(c, WEIR_UNSUPPORTED, "is GGUF version %" PRIu32 "; versions 2 and 3 can be read", version);
    c->info.version = version;
    c->info.n_tensors = take_u64(c);
    c->info.n_kv = take_u64(c);
    if (c->status != WEIR_OK) return;
    if (c->info.n_kv > KV_MAX)
        fail(c, WEIR_FORMAT, "claims %" PRIu64 " keys; at most %d are allowed", c->info.n_kv, KV_MAX);
    if (c->info.n_tensors > TENSOR_MAX)
        fail(c, WEIR_FORMAT, "claims %" PRIu64 " tensors; at most %d are allowed", c->info.n_tensors,
             TENSOR_MAX);
}

/* Checks what c reads, as a file of its own. */
static void check_file(check *c)
{
    c->info.file_bytes = c->size;
    c->info.n_shards = 1;
    read_header(c);
    if (c->status == WEIR_OK) read_entries(c);
    if (c->status == WEIR_OK) read_tensors(c);
    c->part = "the metadata";
}

/* Checks what the first shard, or the only file, says about the model. */
static void check_model(check *c)
{
    const char *key = "general.architecture";
    if (c->status == WEIR_OK &&
        (!text(c, key, c->info.architecture, sizeof c->info.architecture) || c->info.architecture[0] == '\0'))
        fail(c, WEIR_FORMAT, "has no key '%s', or one that is no short string", key);
    if (c->status == WEIR_OK) check_hyperparameters(c);
    if (c->status == WEIR_OK) check_vocabulary(c);
}

/* A key of split models. False: absent or no uint16. */
static bool split_number(check *c, const char *key, uint16_t *value)
{
    const entry *e = find(c, key);
    if (e == NULL || e->type != U16 || e->is_array) return false;
    c->at = e->value_at;
    return take(c, value, sizeof *value);
}

static void close_file(check *c)
{
    if (c->fd >= 0) close(c->fd);
    weir__mem_free(c->entries);
    weir__mem_free(c->tensors);
    c->fd = -1;
    c->entries = NULL;
    c->tensors = NULL;
}

static void open_file(check *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    c->name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    c->at = 0;
    c->window_at = 0;
    c->window_n = 0;
    memset(&c->info, 0, sizeof c->info);
    /* O_NONBLOCK: a FIFO without a writer would hold us; it means nothing for what we accept. */
    c->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c->fd < 0) {
        fail(c, errno == ENOENT || errno == ENOTDIR ? WEIR_NOT_FOUND : WEIR_IO, "cannot be opened: %s",
             strerror(errno));
    } else if (fstat(c->fd, &st) != 0) {
        fail(c, WEIR_IO, "cannot be read: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        const char *kind = S_ISDIR(st.st_mode) ? "a directory" : S_ISFIFO(st.st_mode) ? "a FIFO" : "a device";
        c->status =
            weir__error_set(c->error, WEIR_FORMAT, "path", "%.80s: is %s, not a model file", c->name, kind);
    } else {
        c->size = (uint64_t)st.st_size;
    }
}

/* Checks shards 2 to count, whose first is at path, and adds them to *sum. */
static void check_shards(check *c, const char *path, uint16_t count, weir__gguf_info *sum)
{
    char ending[32];
    size_t n = strlen(path);
    size_t n_ending = (size_t)snprintf(ending, sizeof ending, "-00001-of-%05d.gguf", count);
    char numbered[64];
    char *shard = weir__mem_strdup(path);
    if (shard == NULL) fail(c, WEIR_NO_MEMORY, "no memory to check it");
    if (count > SHARD_MAX)
        fail(c, WEIR_FORMAT, "is split into %d files; at most %d are allowed", count, SHARD_MAX);
    if (c->status == WEIR_OK && (n <= n_ending || strcmp(path + n - n_ending, ending) != 0))
        fail(c, WEIR_FORMAT, "is one of %d files, so its name must end in '%s'", count, ending);
    for (int i = 2; i <= count && c->status == WEIR_OK; i++) {
        uint16_t no;
        snprintf(numbered, sizeof numbered, "-%05d-of-%05d.gguf", i, count);
        memcpy(shard + n - n_ending, numbered, n_ending); /* as long as ending: i <= count <= SHARD_MAX */
        close_file(c);
        open_file(c, shard);
        if (c->status == WEIR_OK) check_file(c);
        /* Without the type check llama.cpp aborts here. */
        if (c->status == WEIR_OK && (!split_number(c, "split.no", &no) || no != i - 1))
            fail(c, WEIR_FORMAT, "is not file %d of %d of this model (key 'split.no')", i, count);
        sum->n_shards++;
        sum->n_kv += c->info.n_kv;
        sum->n_tensors += c->info.n_tensors;
        sum->file_bytes += c->info.file_bytes;
        sum->tensor_bytes += c->info.tensor_bytes;
    }
    weir__mem_free(shard);
}

weir_status weir__gguf_check(const char *path, weir__gguf_info *info, weir_error *error)
{
    check *c = weir__mem_calloc(1, sizeof *c);
    if (c == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "path", "no memory to check %.80s", path);
    c->error = error;
    open_file(c, path);
    if (c->status == WEIR_OK) check_file(c);
    check_model(c);
    weir__gguf_info sum = c->info;
    uint16_t count;
    uint16_t no;
    if (c->status == WEIR_OK && split_number(c, "split.count", &count) && count > 1) {
        if (!split_number(c, "split.no", &no) || no != 0)
            fail(c, WEIR_FORMAT, "is one of %d files of a model, and not the first; give the first", count);
        check_shards(c, path, count, &sum);
    }
    weir_status status = c->status;
    if (status == WEIR_OK && info != NULL) *info = sum;
    close_file(c);
    weir__mem_free(c);
    return status;
}

weir_status weir__gguf_check_memory(const void *data, size_t size, weir__gguf_info *info, weir_error *error)
{
    check *c = weir__mem_calloc(1, sizeof *c);
    if (c == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "path", "no memory to check the model");
    c->error = error;
    c->name = "the model";
    c->fd = -1;
    c->data = data;
    c->size = size;
    check_file(c);
    check_model(c);
    uint16_t count;
    if (c->status == WEIR_OK && split_number(c, "split.count", &count) && count > 1)
        fail(c, WEIR_UNSUPPORTED, "is one of %d files", count);
    weir_status status = c->status;
    if (status == WEIR_OK && info != NULL) *info = c->info;
    close_file(c);
    weir__mem_free(c);
    return status;
}
