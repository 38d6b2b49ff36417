/* gguf.h: shared by the tests of GGUF files: a small model, built and changed in memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_GGUF_H
#define WEIR_SUPPORT_GGUF_H

#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Files in memory ------------------------------------------------------------------------------ */

enum { U16 = 2, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 };
enum { T_F32 = 0, T_F16 = 1, T_Q4_2 = 4, T_Q8_0 = 8, T_Q8_1 = 9, T_I32 = 26, T_UNKNOWN = 99 };

/* A file that grows. */
typedef struct file {
    unsigned char *bytes;
    size_t n;
} file;

/* Small files have blocks of their exact size, so that a sanitizer sees reads beyond; large ones grow by
 * doubling. */
static size_t room(size_t n)
{
    size_t size = 1 << 16;
    if (n <= size) return n;
    while (size < n) size *= 2;
    return size;
}

static void put(file *f, const void *bytes, size_t n)
{
    if (f->bytes == NULL || room(f->n + n + 1) != room(f->n + 1))
        f->bytes = realloc(f->bytes, room(f->n + n + 1));
    assert_non_null(f->bytes);
    if (n > 0) memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void put_u32(file *f, uint32_t value)
{
    put(f, &value, sizeof value);
}

static void put_u64(file *f, uint64_t value)
{
    put(f, &value, sizeof value);
}

static void put_string(file *f, const char *text, size_t n)
{
    put_u64(f, n);
    put(f, text, n);
}

/* One key; the value as it stands in the file after its type. */
typedef struct key {
    char name[320];
    size_t name_n;
    uint32_t type;
    file value;
} key;

typedef struct tensor {
    char name[80];
    size_t name_n;
    uint32_t n_dims, type;
    uint64_t dim[6];
    uint64_t bytes;     /* that its data takes */
    int64_t offset_add; /* added to the value in the table */
} tensor;

/* A model as tests change it before it is written. */
typedef struct model {
    uint32_t version;
    uint64_t n_kv_add, n_tensors_add; /* added to the values in the header */
    int n_keys, n_tensors;
    key keys[48];
    tensor tensors[24];
    size_t table_end; /* filled by write_model: where the tensor table ends */
} model;

static key *find_key(model *m, const char *name)
{
    for (int i = 0; i < m->n_keys; i++)
        if (strcmp(m->keys[i].name, name) == 0) return &m->keys[i];
    return NULL;
}

/* A new or emptied key, whose value is to be put. */
static key *set(model *m, const char *name, uint32_t type)
{
    key *k = find_key(m, name);
    if (k == NULL) {
        assert_true(m->n_keys < (int)(sizeof m->keys / sizeof *m->keys));
        k = &m->keys[m->n_keys++];
        memset(k, 0, sizeof *k);
        snprintf(k->name, sizeof k->name, "%s", name);
        k->name_n = strlen(name);
    }
    k->value.n = 0;
    k->type = type;
    return k;
}

static void set_u32(model *m, const char *name, uint32_t value)
{
    put_u32(&set(m, name, U32)->value, value);
}

static void set_f32(model *m, const char *name, float value)
{
    put(&set(m, name, F32)->value, &value, sizeof value);
}

static inline void set_bool(model *m, const char *name, bool value)
{
    unsigned char byte = value;
    put(&set(m, name, BOOL)->value, &byte, 1);
}

static inline void set_u16(model *m, const char *name, uint16_t value)
{
    put(&set(m, name, U16)->value, &value, sizeof value);
}

static void set_text(model *m, const char *name, const char *text)
{
    put_string(&set(m, name, STRING)->value, text, strlen(text));
}

static key *set_array(model *m, const char *name, uint32_t type, uint64_t n)
{
    key *k = set(m, name, ARRAY);
    put_u32(&k->value, type);
    put_u64(&k->value, n);
    return k;
}

static inline void set_u32s(model *m, const char *name, uint32_t a, uint32_t b)
{
    key *k = set_array(m, name, U32, 2);
    put_u32(&k->value, a);
    put_u32(&k->value, b);
}

/* Tokens from a NULL-terminated list. */
static void set_tokens(model *m, const char *const *tokens)
{
    uint64_t n = 0;
    while (tokens[n] != NULL) n++;
    key *k = set_array(m, "tokenizer.ggml.tokens", STRING, n);
    for (uint64_t i = 0; i < n; i++) put_string(&k->value, tokens[i], strlen(tokens[i]));
}

static void remove_key(model *m, const char *name)
{
    key *k = find_key(m, name);
    assert_non_null(k);
    free(k->value.bytes);
    *k = m->keys[--m->n_keys];
}

static inline tensor *find_tensor(model *m, const char *name)
{
    for (int i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void add_tensor(model *m, const char *name, uint32_t type, uint64_t bytes, uint64_t x, uint64_t y)
{
    assert_true(m->n_tensors < (int)(sizeof m->tensors / sizeof *m->tensors));
    tensor *t = &m->tensors[m->n_tensors++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->name_n = strlen(name);
    t->n_dims = y == 0 ? 1 : 2;
    t->dim[0] = x;
    t->dim[1] = y;
    t->type = type;
    t->bytes = bytes;
}

/* A llama of 2 layers (as far as the check looks), 32 dimensions, 2 heads, 4 tokens: passes. */
static void init_model(model *m)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", NULL};
    memset(m, 0, sizeof *m);
    m->version = 3;
    set_text(m, "general.architecture", "llama");
    set_u32(m, "llama.context_length", 128);
    set_u32(m, "llama.embedding_length", 32);
    set_u32(m, "llama.block_count", 2);
    set_u32(m, "llama.feed_forward_length", 32);
    set_u32(m, "llama.attention.head_count", 2);
    set_u32(m, "llama.attention.head_count_kv", 1);
    set_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set_u32(m, "llama.rope.dimension_count", 16);
    set_text(m, "tokenizer.ggml.model", "llama");
    set_tokens(m, tokens);
    key *scores = set_array(m, "tokenizer.ggml.scores", F32, 4);
    for (int i = 0; i < 4; i++) put_u32(&scores->value, 0);
    add_tensor(m, "token_embd.weight", T_Q8_0, 136, 32, 4);
    add_tensor(m, "output_norm.weight", T_F32, 128, 32, 0);
    add_tensor(m, "blk.0.attn_k.weight", T_F16, 1024, 32, 16);
    add_tensor(m, "blk.0.attn_output.weight", T_F16, 2048, 32, 32);
    add_tensor(m, "blk.0.ffn_norm.weight", T_F32, 128, 32, 0);
    add_tensor(m, "blk.1.attn_k.weight", T_F16, 1024, 32, 16);
    add_tensor(m, "blk.1.attn_output.weight", T_F16, 2048, 32, 32);
}

static void fini_model(model *m)
{
    for (int i = 0; i < m->n_keys; i++) free(m->keys[i].value.bytes);
}

static void pad(file *f)
{
    while (f->n % 32 != 0) put(f, "", 1);
}

static file write_model(model *m)
{
    file f = {NULL, 0};
    uint64_t offset = 0;
    put(&f, "GGUF", 4);
    put_u32(&f, m->version);
    put_u64(&f, (uint64_t)m->n_tensors + m->n_tensors_add);
    put_u64(&f, (uint64_t)m->n_keys + m->n_kv_add);
    for (int i = 0; i < m->n_keys; i++) {
        put_string(&f, m->keys[i].name, m->keys[i].name_n);
        put_u32(&f, m->keys[i].type);
        put(&f, m->keys[i].value.bytes, m->keys[i].value.n);
    }
    for (int i = 0; i < m->n_tensors; i++) {
        tensor *t = &m->tensors[i];
        put_string(&f, t->name, t->name_n);
        put_u32(&f, t->n_dims);
        for (uint32_t k = 0; k < t->n_dims; k++) put_u64(&f, t->dim[k]);
        put_u32(&f, t->type);
        put_u64(&f, offset + (uint64_t)t->offset_add);
        offset += (t->bytes + 31) / 32 * 32;
    }
    m->table_end = f.n;
    for (int i = 0; i < m->n_tensors; i++) {
        pad(&f);
        for (uint64_t k = 0; k < m->tensors[i].bytes; k++) put(&f, "", 1);
    }
    pad(&f);
    return f;
}

static weir_status check(model *m, weir_error *error)
{
    file f = write_model(m);
    weir_status status = weir__gguf_check_memory(f.bytes, f.n, NULL, error);
    free(f.bytes);
    return status;
}

/* ---- One fault each ------------------------------------------------------------------------------- */

/* The good model with one edit, and the words that the message must contain. WEIR_OK: it must still pass. */
static void expect(model *m, weir_status status, const char *words, const char *edit)
{
    weir_error error;
    memset(&error, 0, sizeof error);
    weir_status got = check(m, &error);
    if (got != status) fail_msg("%s: status %d instead of %d (%s)", edit, got, status, error.message);
    if (status != WEIR_OK && strstr(error.message, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", edit, error.message, words);
}

#define CASE(status, words, edit)                                                                            \
    do {                                                                                                     \
        model m_;                                                                                            \
        model *m = &m_;                                                                                      \
        init_model(m);                                                                                       \
        edit;                                                                                                \
        expect(m, status, words, #edit);                                                                     \
        fini_model(m);                                                                                       \
    } while (0)

#endif
