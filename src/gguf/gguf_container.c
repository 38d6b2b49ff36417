/* gguf_container.c: checks the container of a GGUF file: header, keys, tensor table.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rules are those of ggml/src/gguf.cpp (llama.cpp v0.5.0). The file is read through a window: the header,
 * each key with the place of its value, and the table of tensors, whose data must lie one after the other and
 * end within the file. The first fault stays in the check, and later reads give zeros, so that callers check
 * once. Keys and names of tensors are known by their hashes, which are sorted to find equal ones. At the end
 * the file gets a fingerprint, from its size, all before the weights and samples of these, and an identity,
 * which has its time, too. */
#include "gguf/gguf_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/signature.h"

/* gguf.cpp compares each key and each tensor name with all others, which these limit to less than seconds.
 * Models have some 50 keys and up to 2,000 tensors. */
#define KV_MAX     4096
#define TENSOR_MAX 32768

#define NAME_MAX_  63         /* GGML_MAX_NAME - 1 */
#define STRING_MAX (1u << 30) /* GGUF_MAX_STRING_LENGTH */
#define ARRAY_MAX  (1u << 24) /* 60 times the largest merge table; each string costs llama.cpp 32 bytes */
#define DIM_MAX    ((uint64_t)INT32_MAX) /* ggml's kernels count rows and columns in int */
#define BYTES_MAX  ((uint64_t)1 << 48)   /* of a tensor; TENSOR_MAX of them fit in 64 bits */
#define ALIGN_MIN  32                    /* ggml-cpu's TENSOR_ALIGNMENT, needed by mapped tensors */

static const unsigned char value_size[GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

enum { GGML_F32 = 0, GGML_I32 = 26, GGML_I64 = 27 };

/* [ggml type] elements and bytes of a block; 0: removed types, and those that are never stored. */
static const struct {
    uint16_t elements, bytes;
} block[] = {
    {1, 4},    {1, 2},    {32, 18},   {32, 20},   {0, 0},     {0, 0},     {32, 22}, {32, 24},  {32, 34},
    {0, 0},    {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {0, 0},   {256, 66}, {256, 74},
    {256, 98}, {256, 50}, {32, 18},   {256, 110}, {256, 82},  {256, 136}, {0, 0},   {0, 0},    {1, 4},
    {1, 8},    {0, 0},    {256, 56},  {1, 2},     {0, 0},     {0, 0},     {0, 0},   {256, 54}, {256, 66},
    {0, 0},    {0, 0},    {0, 0},     {32, 17},   {64, 36},   {128, 18},  {64, 18},
};

static void fail_check(gguf_check *c, weir_status code, const char *format, const char *advice, va_list args)
{
    char text[320], path[WEIR__ERROR_PATH];
    if (c->status != WEIR_OK) return;
    vsnprintf(text, sizeof text, format, args);
    c->status = c->fd < 0 && c->data != NULL
                    ? weir__error_set(c->error, code, "path", "%s: %s%s", c->path, text, advice)
                    : weir__error_set(c->error, code, "path", "\"%s\": %s%s", weir__error_path(path, c->path),
                                      text, advice);
}

void weir__gguf_fail(gguf_check *c, weir_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_check(c, code, format, "", args);
    va_end(args);
}

void weir__gguf_refuse(gguf_check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_check(c, WEIR_FORMAT, format,
               "; the file is damaged or was written wrongly: download or convert it again", args);
    va_end(args);
}

/* FORMAT: bytes are missing at the end. */
__attribute__((format(printf, 2, 3))) static void refuse_cut(gguf_check *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_check(c, WEIR_FORMAT, format, "; the file is incomplete or damaged: download or copy it again",
               args);
    va_end(args);
}

/* ---- Bytes ---------------------------------------------------------------------------------------- */

static bool has_bytes(gguf_check *c, uint64_t n)
{
    if (c->status == WEIR_OK && n > c->size - c->at)
        refuse_cut(c, "ends at byte %" PRIu64 ", inside %s", c->size, c->part);
    return c->status == WEIR_OK;
}

static bool skip_bytes(gguf_check *c, uint64_t n)
{
    if (has_bytes(c, n)) c->at += n;
    return c->status == WEIR_OK;
}

/* Makes window begin at c->at. */
static void fill_window(gguf_check *c)
{
    size_t want = c->size - c->at < GGUF_WINDOW ? (size_t)(c->size - c->at) : GGUF_WINDOW;
    c->window_at = c->at;
    c->window_n = weir__file_read(c->fd, c->window, want, c->at) ? want : 0;
    if (c->window_n < want)
        weir__gguf_fail(c, WEIR_IO, "cannot be read from byte %" PRIu64 " on: %s", c->at,
                        errno != 0 ? strerror(errno) : "it became shorter");
}

bool weir__gguf_take(gguf_check *c, void *to, size_t n)
{
    if (has_bytes(c, n)) {
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

uint32_t weir__gguf_take_u32(gguf_check *c)
{
    uint32_t value = 0;
    weir__gguf_take(c, &value, sizeof value);
    return value;
}

uint64_t weir__gguf_take_u64(gguf_check *c)
{
    uint64_t value = 0;
    weir__gguf_take(c, &value, sizeof value);
    return value;
}

/* FNV-1a. Strings with the same hash count as equal. By chance that refuses one vocabulary in 10^8. */
uint64_t weir__gguf_hash(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = ((const gguf_mark *)a)->hash;
    uint64_t y = ((const gguf_mark *)b)->hash;
    return x < y ? -1 : x > y;
}

void weir__gguf_refuse_twins(gguf_check *c, gguf_mark *marks, size_t n, const char *what)
{
    if (marks == NULL || n == 0) return;
    qsort(marks, n, sizeof *marks, by_hash);
    for (size_t i = 1; i < n && c->status == WEIR_OK; i++) {
        if (marks[i].hash == marks[i - 1].hash)
            weir__gguf_refuse(c, "has the same %s at bytes %" PRIu64 " and %" PRIu64, what, marks[i - 1].at,
                              marks[i].at);
    }
}

/* ---- Keys and values ------------------------------------------------------------------------------ */

static void read_entry(gguf_check *c, gguf_entry *e, uint64_t i)
{
    char key[GGUF_KEY_MAX + 1];
    uint64_t n = weir__gguf_take_u64(c);
    if (c->status == WEIR_OK && (n == 0 || n > GGUF_KEY_FORMAT_MAX))
        weir__gguf_refuse(
            c, "key %" PRIu64 " at byte %" PRIu64 " is %" PRIu64 " bytes long; allowed are 1 to %d", i,
            c->at - 8, n, GGUF_KEY_FORMAT_MAX);
    else if (c->status == WEIR_OK && n > GGUF_KEY_MAX)
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "key %" PRIu64 " at byte %" PRIu64 " is %" PRIu64
                        " bytes long; weir reads at most %d",
                        i, c->at - 8, n, GGUF_KEY_MAX);
    e->key_at = c->at;
    e->key_n = (uint32_t)n;
    if (c->status != WEIR_OK || !weir__gguf_take(c, key, (size_t)n)) return;
    key[n] = '\0';
    /* llama.cpp reads keys up to a NUL, where two keys could be equal. */
    if (strlen(key) != n) weir__gguf_refuse(c, "key '%.40s' contains a NUL byte", key);
    e->hash = weir__gguf_hash(key, (size_t)n);

    uint32_t type = weir__gguf_take_u32(c);
    e->is_array = type == GGUF_ARRAY;
    e->n = 1;
    if (e->is_array) {
        type = weir__gguf_take_u32(c);
        e->n = weir__gguf_take_u64(c);
    }
    if (c->status != WEIR_OK) return;
    if (e->is_array && type == GGUF_ARRAY) {
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "key '%.60s' is an array of arrays, which llama.cpp does not read", key);
    } else if (type >= GGUF_N_TYPES) {
        weir__gguf_refuse(c, "key '%.60s' has a value of unknown type %u", key, type);
    } else if (e->n > ARRAY_MAX) {
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "key '%.60s' has %" PRIu64 " elements; weir reads at most %u",
                        key, e->n, ARRAY_MAX);
    }
    e->type = (uint8_t)type;
    e->value_at = c->at;
    if (c->status == WEIR_OK && type != GGUF_STRING) skip_bytes(c, e->n * value_size[type]);
    for (uint64_t k = 0; k < e->n && type == GGUF_STRING && c->status == WEIR_OK; k++) {
        n = weir__gguf_take_u64(c);
        if (n > STRING_MAX)
            weir__gguf_refuse(c, "key '%.60s' has a string of %" PRIu64 " bytes at byte %" PRIu64, key, n,
                              c->at - 8);
        skip_bytes(c, n);
    }
}

static void read_entries(gguf_check *c)
{
    c->part = "the metadata";
    gguf_mark *marks = weir__mem_calloc((size_t)c->info.n_kv + 1, sizeof *marks);
    c->entries = weir__mem_calloc((size_t)c->info.n_kv + 1, sizeof *c->entries);
    bool whole = marks != NULL && c->entries != NULL;
    if (!whole) weir__gguf_fail(c, WEIR_NO_MEMORY, "no memory to check it");
    for (uint64_t i = 0; whole && i < c->info.n_kv && c->status == WEIR_OK; i++) {
        read_entry(c, &c->entries[i], i);
        marks[i] = (gguf_mark){c->entries[i].hash, c->entries[i].key_at - 8};
    }
    if (c->status == WEIR_OK) weir__gguf_refuse_twins(c, marks, (size_t)c->info.n_kv, "key");
    weir__mem_free(marks);
}

const gguf_entry *weir__gguf_find(gguf_check *c, const char *key)
{
    size_t n = strlen(key);
    uint64_t hash = weir__gguf_hash(key, n);
    for (uint64_t i = 0; i < c->info.n_kv && c->status == WEIR_OK; i++) {
        const gguf_entry *e = &c->entries[i];
        char bytes[GGUF_KEY_MAX];
        if (e->hash != hash || e->key_n != n) continue;
        c->at = e->key_at;
        if (weir__gguf_take(c, bytes, n) && memcmp(bytes, key, n) == 0) return e;
    }
    return NULL;
}

const gguf_entry *weir__gguf_find_arch(gguf_check *c, const char *suffix)
{
    char key[GGUF_KEY_MAX];
    snprintf(key, sizeof key, "%s.%s", c->info.architecture, suffix);
    return weir__gguf_find(c, key);
}

/* ---- Tensors -------------------------------------------------------------------------------------- */

/* Reads name, dimensions and type of a tensor in the table. */
static void read_shape(gguf_check *c, char name[NAME_MAX_ + 1], uint64_t dim[4], uint32_t *n_dims,
                       uint32_t *type)
{
    uint64_t at = c->at;
    uint64_t n = weir__gguf_take_u64(c);
    name[0] = '\0';
    for (int k = 0; k < 4; k++) dim[k] = 1;
    if (n > NAME_MAX_)
        weir__gguf_refuse(c, "tensor at byte %" PRIu64 " has a name of %" PRIu64 " bytes", at, n);
    if (c->status != WEIR_OK || !weir__gguf_take(c, name, (size_t)n)) return;
    name[n] = '\0';
    if (strlen(name) != n) weir__gguf_refuse(c, "tensor '%s' has a NUL byte in its name", name);
    *n_dims = weir__gguf_take_u32(c);
    if (*n_dims > 4)
        weir__gguf_refuse(c, "tensor '%s' has %u dimensions; at most 4 are allowed", name, *n_dims);
    for (uint32_t k = 0; k < *n_dims && c->status == WEIR_OK; k++) dim[k] = weir__gguf_take_u64(c);
    *type = weir__gguf_take_u32(c);
}

bool weir__gguf_dims(gguf_check *c, const char *name, uint64_t dim[4])
{
    gguf_mark wanted = {weir__gguf_hash(name, strlen(name)), 0};
    const gguf_mark *found = bsearch(&wanted, c->tensors, (size_t)c->info.n_tensors, sizeof wanted, by_hash);
    char other[NAME_MAX_ + 1];
    uint32_t n_dims;
    uint32_t type;
    if (found == NULL || c->status != WEIR_OK) return false;
    c->at = found->at;
    read_shape(c, other, dim, &n_dims, &type);
    return c->status == WEIR_OK && strcmp(name, other) == 0;
}

/* True if llama.cpp can compute with this type in this tensor. On the CPU, vectors, norms, biases, short
 * convolutions and parameters of state spaces must be F32. Two tables contain integers. */
static bool type_fits(const char *name, uint32_t n_dims, uint32_t type)
{
    static const char *const parts[] = {"norm", "ssm_conv1d", "shortconv.conv", "token_types"};
    static const char *const endings[] = {".bias", ".ssm_a", ".ssm_d"};
    const char *last = strrchr(name, '.');
    if (type == GGML_F32) return true;
    if (type == GGML_I64) return strcmp(name, "d2t") == 0;
    if (type == GGML_I32) return strstr(name, "tid2eid") != NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]) != NULL) return false;
    for (size_t i = 0; last != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(last, endings[i]) == 0) return false;
    return n_dims > 1;
}

/* Reads a tensor of the table, whose data must begin at *offset. *offset moves behind it. */
static void read_tensor(gguf_check *c, uint64_t i, uint64_t alignment, uint64_t *offset)
{
    char name[NAME_MAX_ + 1];
    uint64_t dim[4];
    uint32_t n_dims = 0;
    uint32_t type = 0;
    c->tensors[i].at = c->at;
    read_shape(c, name, dim, &n_dims, &type);
    c->tensors[i].hash = weir__gguf_hash(name, strlen(name));
    uint64_t begin = weir__gguf_take_u64(c);
    if (c->status != WEIR_OK) return;
    if (type >= sizeof block / sizeof *block || block[type].elements == 0) {
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "tensor '%s' has type %u, which this build cannot compute with",
                        name, type);
        return;
    }
    if (!type_fits(name, n_dims, type)) {
        weir__gguf_fail(c, WEIR_UNSUPPORTED,
                        "tensor '%s' has type %u, which llama.cpp cannot compute with there", name, type);
        return;
    }
    if (dim[0] % block[type].elements != 0) {
        weir__gguf_refuse(c, "tensor '%s' has rows of %" PRIu64 " elements, not a multiple of %d", name,
                          dim[0], block[type].elements);
        return;
    }
    uint64_t bytes = block[type].bytes;
    for (int k = 0; k < 4 && c->status == WEIR_OK; k++) {
        uint64_t factor = k == 0 ? dim[0] / block[type].elements : dim[k];
        if (factor == 0 || dim[k] > DIM_MAX || bytes > BYTES_MAX / factor)
            weir__gguf_refuse(c, "tensor '%s' is %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64, name,
                              dim[0], dim[1], dim[2], dim[3]);
        else
            bytes *= factor;
    }
    if (c->status != WEIR_OK) return;
    if (begin != *offset)
        weir__gguf_refuse(c, "tensor '%s' begins at %" PRIu64 " of the data; %" PRIu64 " was expected", name,
                          begin, *offset);
    *offset += (bytes + alignment - 1) / alignment * alignment;
    c->info.tensor_bytes += bytes;
}

static void read_tensors(gguf_check *c)
{
    uint64_t table_at = c->at;
    uint32_t alignment = 32; /* GGUF_DEFAULT_ALIGNMENT */
    const gguf_entry *e = weir__gguf_find(c, "general.alignment");
    if (e != NULL) c->at = e->value_at;
    if (e != NULL && (e->type != GGUF_U32 || e->is_array))
        weir__gguf_refuse(c, "key 'general.alignment' is not a uint32");
    else if (e != NULL)
        alignment = weir__gguf_take_u32(c);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0)
        weir__gguf_refuse(c, "key 'general.alignment' is %u, no power of two", alignment);
    else if (alignment < ALIGN_MIN)
        weir__gguf_fail(
            c, WEIR_UNSUPPORTED,
            "key 'general.alignment' is %u; weir reads powers of two from %d: convert the original "
            "model again without a key for the alignment",
            alignment, ALIGN_MIN);
    if (c->status != WEIR_OK) return;
    c->at = table_at;
    c->part = "the tensor table";
    c->tensors = weir__mem_calloc((size_t)c->info.n_tensors + 1, sizeof *c->tensors);
    if (c->tensors == NULL) weir__gguf_fail(c, WEIR_NO_MEMORY, "no memory to check it");
    uint64_t offset = 0;
    uint64_t last = 0;
    for (uint64_t i = 0; i < c->info.n_tensors && c->status == WEIR_OK; i++) {
        last = c->info.tensor_bytes;
        uint64_t begin = offset;
        read_tensor(c, i, alignment, &offset);
        last = begin + (c->info.tensor_bytes - last);
    }
    if (c->status != WEIR_OK || alignment == 0) return; /* which is refused before */
    /* last is the end of the last tensor without its padding, which may be missing. */
    uint64_t data_at = (c->at + alignment - 1) / alignment * alignment;
    if (c->info.n_tensors > 0 && (data_at > c->size || last > c->size - data_at))
        refuse_cut(c, "has %" PRIu64 " bytes; its tensors end at byte %" PRIu64, c->size, data_at + last);
    weir__gguf_refuse_twins(c, c->tensors, (size_t)c->info.n_tensors, "tensor name");
}

/* ---- One file ------------------------------------------------------------------------------------- */

/* Says what a file without GGUF's magic number is. */
static void refuse_other(gguf_check *c)
{
    unsigned char head[WEIR__SIGNATURE_BYTES] = {0};
    size_t n = c->size < sizeof head ? (size_t)c->size : sizeof head;
    c->at = 0;
    if (!weir__gguf_take(c, head, n)) return;
    const weir__signature *found = weir__signature_find(head, n, c->size);
    if (found == NULL)
        weir__gguf_fail(c, WEIR_FORMAT,
                        "is not a GGUF file: it begins with %02x %02x %02x %02x; give a GGUF file", head[0],
                        head[1], head[2], head[3]);
    else if (found->advice != NULL)
        weir__gguf_fail(c, WEIR_FORMAT, "is not a GGUF file but %s: %s", found->kind, found->advice);
    else
        weir__gguf_fail(c, WEIR_FORMAT,
                        "is not a GGUF file but %s: convert the model with llama.cpp's %s, or get it as GGUF",
                        found->kind, c->use->converter);
}

static void read_header(gguf_check *c)
{
    unsigned char magic[4] = {0};
    c->part = "the header";
    if (c->size == 0)
        weir__gguf_fail(c, WEIR_FORMAT,
                        "is empty: its download or copy did not begin; download or copy it again");
    if (!weir__gguf_take(c, magic, c->size < sizeof magic ? (size_t)c->size : sizeof magic)) return;
    if (memcmp(magic, "GGUF", c->size < sizeof magic ? (size_t)c->size : sizeof magic) != 0) {
        refuse_other(c);
        return;
    }
    uint32_t version = weir__gguf_take_u32(c);
    if (c->status != WEIR_OK) return;
    if ((version & 0xffff) == 0)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "has the byte order of another kind of machine");
    if (version < 2 || version > 3)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is GGUF version %u; versions 2 and 3 can be read", version);
    c->info.version = version;
    c->info.n_tensors = weir__gguf_take_u64(c);
    c->info.n_kv = weir__gguf_take_u64(c);
    if (c->status != WEIR_OK) return;
    if (c->info.n_kv > KV_MAX)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "claims %" PRIu64 " keys; weir reads at most %d", c->info.n_kv,
                        KV_MAX);
    if (c->info.n_tensors > TENSOR_MAX)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "claims %" PRIu64 " tensors; weir reads at most %d",
                        c->info.n_tensors, TENSOR_MAX);
}

uint64_t weir__gguf_checksum(gguf_check *c, uint64_t h, uint64_t n)
{
    unsigned char bytes[4096];
    c->at = 0;
    while (c->at < n && c->status == WEIR_OK) {
        size_t part = n - c->at < sizeof bytes ? (size_t)(n - c->at) : sizeof bytes;
        if (weir__gguf_take(c, bytes, part)) h = weir__hash(h, bytes, part);
    }
    return h;
}

/* Parts of the weights that a fingerprint covers, and the bytes of each. */
#define SAMPLES      64
#define SAMPLE_BYTES 4096

/* A hash of the file's size, all before the weights, and samples of the weights. Two models with equal
 * metadata differ in most of their weights. */
static uint64_t file_fingerprint(gguf_check *c)
{
    unsigned char bytes[SAMPLE_BYTES];
    const uint64_t start = c->at, span = c->size - start;
    const size_t n = span < sizeof bytes ? (size_t)span : sizeof bytes;
    uint64_t h = weir__gguf_checksum(c, weir__hash(0, &c->size, sizeof c->size), start);
    for (uint64_t i = 0; i < SAMPLES && c->status == WEIR_OK; i++) {
        c->at = start + (span - n) * i / (SAMPLES - 1); /* the last one ends with the file */
        if (weir__gguf_take(c, bytes, n)) h = weir__hash(h, bytes, n);
    }
    return h;
}

/* A hash that tells this file from a copy: the fingerprint and the file's time. */
static uint64_t file_identity(const gguf_check *c)
{
    uint64_t of_file[] = {c->info.fingerprint, c->written_s, c->written_ns};
    return weir__hash(0, of_file, sizeof of_file);
}

void weir__gguf_check_container(gguf_check *c)
{
    c->info.file_bytes = c->size;
    c->info.n_shards = 1;
    read_header(c);
    if (c->status == WEIR_OK) read_entries(c);
    if (c->status == WEIR_OK) read_tensors(c);
    if (c->status == WEIR_OK) c->info.fingerprint = file_fingerprint(c);
    if (c->status == WEIR_OK) c->info.identity = file_identity(c);
    c->part = "the metadata";
}
