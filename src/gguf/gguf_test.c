/* gguf_test.c: the container: whole, damaged and split files, their header, keys and tensors.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/gguf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/dice.h"
#include "support/temp.h"

/* ---- Files on disk -------------------------------------------------------------------------------- */

static void save(const char *name, const void *bytes, size_t n, char path[TEMP_PATH_MAX])
{
    temp_path(path, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

/* ---- Good files ----------------------------------------------------------------------------------- */

static void good_file_passes(void **state)
{
    (void)state;
    model m;
    char path[TEMP_PATH_MAX];
    weir__gguf_info from_memory;
    weir__gguf_info from_file;
    weir_error error;
    init_model(&m);
    file f = write_model(&m);
    memset(&from_memory, 0, sizeof from_memory);
    memset(&from_file, 0, sizeof from_file);
    assert_int_equal(weir__gguf_check_memory(f.bytes, f.n, &from_memory, &error), WEIR_OK);
    save("good.gguf", f.bytes, f.n, path);
    assert_int_equal(weir__gguf_check(path, NULL, &from_file, NULL), WEIR_OK);
    assert_int_equal(weir__gguf_check(path, NULL, NULL, &error), WEIR_OK);
    assert_true(from_memory.identity != from_file.identity); /* memory has no time */
    from_memory.identity = from_file.identity;
    assert_memory_equal(&from_memory, &from_file, sizeof from_file);
    assert_int_equal(from_file.version, 3);
    assert_int_equal(from_file.n_shards, 1);
    assert_int_equal(from_file.n_kv, 12);
    assert_int_equal(from_file.n_tensors, 7);
    assert_int_equal(from_file.file_bytes, f.n);
    assert_int_equal(from_file.tensor_bytes, 136 + 128 + 1024 + 2048 + 128 + 1024 + 2048);
    assert_int_equal(from_file.n_positions, 0);
    assert_string_equal(from_file.architecture, "llama");
    free(f.bytes);
    m.version = 2;
    assert_int_equal(check(&m, &error), WEIR_OK);
    add_tensor(&m, "position_embd.weight", T_F32, 2048, 32, 16);
    f = write_model(&m);
    assert_int_equal(weir__gguf_check_memory(f.bytes, f.n, &from_memory, &error), WEIR_OK);
    assert_int_equal(from_memory.n_positions, 16);
    free(f.bytes);
    m.n_tensors = 0; /* a vocabulary alone */
    assert_int_equal(check(&m, &error), WEIR_OK);
    fini_model(&m);
}

/* Strings and tables that lie across the reader's window of 64 KiB, at every phase. */
static void large_vocabulary_passes_from_a_file(void **state)
{
    (void)state;
    for (size_t shift = 0; shift < 24; shift++) {
        model m;
        char path[TEMP_PATH_MAX];
        char name[64];
        weir_error error;
        init_model(&m);
        m.n_tensors = 0;
        memset(name, 'x', sizeof name);
        name[shift + 1] = '\0';
        set_u32(&m, name, 1);
        key *tokens = set_array(&m, "tokenizer.ggml.tokens", STRING, 20000);
        for (int i = 0; i < 20000; i++) {
            int n = snprintf(name, sizeof name, "token %d", i);
            put_string(&tokens->value, name, (size_t)n);
        }
        remove_key(&m, "tokenizer.ggml.scores");
        file f = write_model(&m);
        save("vocabulary.gguf", f.bytes, f.n, path);
        if (weir__gguf_check(path, NULL, NULL, &error) != WEIR_OK) fail_msg("%s", error.message);
        /* The last token becomes the first one. */
        unsigned char *last = f.bytes + f.n - 10;
        while (memcmp(--last, "token 19999", 11) != 0) assert_true(last > f.bytes);
        memcpy(last, "token 10000", 11);
        save("vocabulary.gguf", f.bytes, f.n, path);
        assert_int_equal(weir__gguf_check(path, NULL, NULL, &error), WEIR_FORMAT);
        assert_non_null(strstr(error.message, "the same token"));
        free(f.bytes);
        fini_model(&m);
    }
}

/* ---- No model at all ------------------------------------------------------------------------------ */

static void assert_refused(const char *path, weir_status status, const char *text)
{
    weir_error error;
    memset(&error, 0, sizeof error);
    assert_int_equal(weir__gguf_check(path, NULL, NULL, &error), status);
    assert_int_equal(error.code, status);
    if (strstr(error.message, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", error.message, text);
    assert_int_equal(weir__gguf_check(path, NULL, NULL, NULL), status);
}

static void files_that_are_no_models_are_refused(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    temp_path(path, "missing.gguf");
    assert_refused(path, WEIR_NOT_FOUND, "missing.gguf\": cannot be opened");
    assert_refused("", WEIR_NOT_FOUND, "cannot be opened");
    /* A path is shown as it was given: people see that no shell expanded it. */
    assert_refused("~/models/missing.gguf", WEIR_NOT_FOUND, "\"~/models/missing.gguf\": cannot be opened");
    char deep[600];
    snprintf(deep, sizeof deep, "~/%0500d/missing.gguf", 0);
    assert_refused(deep, WEIR_NOT_FOUND, "\"~/000");
    assert_refused(deep, WEIR_NOT_FOUND, "000/missing.gguf\": cannot be opened: No such file or directory");
    assert_refused(temp_folder(), WEIR_FORMAT, "a directory");
    assert_refused("/dev/null", WEIR_FORMAT, "a device");
    temp_path(path, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(300); /* a reader that waits for a writer never returns */
    assert_refused(path, WEIR_FORMAT, "a FIFO");
    alarm(0);
    save("empty.gguf", "", 0, path);
    assert_refused(path, WEIR_FORMAT, "is empty");
    save("other.gguf", "Once upon a time", 16, path);
    assert_refused(path, WEIR_FORMAT, "begins with 4f 6e 63 65; give a GGUF file");
}

/* ---- Files of other kinds ------------------------------------------------------------------------- */

#define BYTES(text) (text), sizeof(text) - 1

/* Files of other kinds, and what to do with them; nothing of them is damaged. [n] bytes at `at`, the rest is
 * zeroes. */
static const struct {
    const char *bytes;
    size_t n, at, size;
    const char *kind, *advice;
} others[] = {
    {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:"), 0, 130, "Git LFS pointer",
     "git lfs pull"},
    {BYTES("\xef\xbb\xbf\n  <!DoCtYpE hTmL><title>Log in"), 0, 90, "web page", "download the file itself"},
    {BYTES("<html><body>404"), 0, 15, "web page", "download the file itself"},
    {BYTES("<?xml version='1.0'?><Error><Code>AccessDenied"), 0, 80, "XML", "download the file itself"},
    {BYTES("{\"error\":\"Repository not found\"}"), 0, 32, "JSON", "download the file itself"},
    {BYTES("\x20\0\0\0\0\0\0\0{\"__metadata__\":{}}"), 0, 100, "safetensors", "convert_hf_to_gguf.py"},
    {BYTES("PK\3\4"), 0, 200, "zip archive", "unpack it"},
    {BYTES("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"), 0, 200, "PyTorch",
     "convert_hf_to_gguf.py"},
    {BYTES("\x80\2}q\0"), 0, 200, "pickle", "convert_hf_to_gguf.py"},
    {BYTES("\x1f\x8b\x08"), 0, 200, "gzip", "unpack it"},
    {BYTES("\xfd"
           "7zXZ"),
     0, 200, "xz", "unpack it"},
    {BYTES("\x28\xb5\x2f\xfd"), 0, 200, "zstd", "unpack it"},
    {BYTES("BZh9"), 0, 200, "bzip2", "unpack it"},
    {BYTES("7z\xbc\xaf\x27\x1c"), 0, 200, "7z archive", "unpack it"},
    {BYTES("ustar"), 257, 1024, "tar archive", "unpack it"},
    {BYTES("\x89HDF\r\n\x1a\n"), 0, 200, "HDF5", "original"},
    {BYTES("tjgg"), 0, 200, "before GGUF", "GGUF version"},
    {BYTES("weirpack"), 0, 200, "weir optimize", "the model itself"},
    {BYTES(""), 0, 4096, "zeroes", "not complete"},
};

static void files_of_other_kinds_are_named(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *bytes = calloc(1, others[i].size);
        assert_non_null(bytes);
        memcpy(bytes + others[i].at, others[i].bytes, others[i].n);
        save("other.gguf", bytes, others[i].size, path);
        weir_error error = {0};
        assert_int_equal(weir__gguf_check(path, NULL, NULL, &error), WEIR_FORMAT);
        if (strstr(error.message, others[i].kind) == NULL ||
            strstr(error.message, others[i].advice) == NULL || strstr(error.message, "damaged") != NULL)
            fail_msg("%s, not %s: %s", error.message, others[i].kind, others[i].advice);
        assert_int_equal(weir__gguf_check_memory(bytes, others[i].size, NULL, &error), WEIR_FORMAT);
        assert_non_null(strstr(error.message, others[i].kind));
        free(bytes);
    }
}

/* Every file is converted by the program for its use. */
static void each_use_has_its_converter(void **state)
{
    (void)state;
    static const char weights[] = "\x20\0\0\0\0\0\0\0{\"__metadata__\":{}}                 ";
    char path[TEMP_PATH_MAX];
    weir_error error = {0};
    save("adapter_model.safetensors", weights, sizeof weights - 1, path);
    assert_int_equal(weir__gguf_check_adapter(path, NULL, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "convert_lora_to_gguf.py"));
    assert_int_equal(weir__gguf_check_projector(path, NULL, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "convert_hf_to_gguf.py --mmproj"));
    assert_refused(temp_folder(), WEIR_FORMAT, "convert_hf_to_gguf.py");
}

/* Headers of a few bytes, and texts that only resemble one of the kinds. */
static void short_and_similar_files_are_read_in_bounds(void **state)
{
    (void)state;
    weir_error error = {0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t n = 0; n <= others[i].n; n++) {
            char *cut = malloc(n + (n == 0)); /* a sanitizer sees a read behind it */
            assert_non_null(cut);
            memcpy(cut, others[i].bytes, n);
            assert_int_equal(weir__gguf_check_memory(cut, n, NULL, &error), WEIR_FORMAT);
            free(cut);
        }
    assert_int_equal(weir__gguf_check_memory("\xff\xff\xff\xff\xff\xff\xff\x7f{", 9, NULL, &error),
                     WEIR_FORMAT);
    assert_null(strstr(error.message, "safetensors")); /* its header would be longer than the file */
}

static void random_bytes_are_refused(void **state)
{
    (void)state;
    unsigned seed = (unsigned)dice_environment("WEIR_TEST_SEED", 1);
    print_message("WEIR_TEST_SEED=%u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        unsigned char bytes[512];
        size_t n = (size_t)rand() % sizeof bytes;
        weir_error error;
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(rand() >> 7);
        if (round % 2 == 0 && n >= 24) { /* a valid header, so that the rest is read */
            static const unsigned char header[24] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 1, 0, 0, 0,
                                                     0,   0,   0,   0,   2, 0, 0, 0, 0, 0, 0, 0};
            memcpy(bytes, header, sizeof header);
        }
        weir_status status = weir__gguf_check_memory(bytes, n, NULL, &error);
        if (status == WEIR_OK) fail_msg("round %d of seed %u passed", round, seed);
    }
}

/* ---- Damage --------------------------------------------------------------------------------------- */

static void every_truncation_is_refused(void **state)
{
    (void)state;
    model m;
    weir_error error;
    init_model(&m);
    file f = write_model(&m);
    size_t data_end =
        f.n; /* without the padding behind the last tensor, which may be absent; here it has none */
    for (size_t n = 0; n < data_end; n++) {
        /* A copy of exactly n bytes, so that a sanitizer sees a read behind them. */
        unsigned char *cut = malloc(n + (n == 0));
        assert_non_null(cut);
        memcpy(cut, f.bytes, n);
        weir_status status = weir__gguf_check_memory(cut, n, NULL, &error);
        if (status != WEIR_FORMAT) fail_msg("%zu of %zu bytes: status %d", n, f.n, status);
        if (n >= 4 && n < m.table_end && strstr(error.message, "ends at byte") == NULL)
            fail_msg("%zu bytes: %s", n, error.message);
        if (n >= m.table_end && strstr(error.message, "its tensors end at byte") == NULL)
            fail_msg("%zu bytes: %s", n, error.message);
        free(cut);
    }
    char path[TEMP_PATH_MAX];
    save("cut.gguf", f.bytes, data_end - 1, path);
    assert_refused(path, WEIR_FORMAT, "its tensors end at byte");
    save("cut.gguf", f.bytes, m.table_end - 20, path);
    assert_refused(path, WEIR_FORMAT, "inside the tensor table");
    free(f.bytes);
    fini_model(&m);
}

/* Every byte of header, keys and table takes other values; nothing may break, and changes of bytes that
 * nothing depends on are not reported as damage. */
static void every_byte_may_change(void **state)
{
    (void)state;
    static const unsigned char flips[] = {0x01, 0x02, 0x10, 0x80, 0xff};
    model m;
    weir_error error;
    size_t passed = 0;
    size_t refused = 0;
    init_model(&m);
    file f = write_model(&m);
    for (size_t i = 0; i < m.table_end; i++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            f.bytes[i] ^= flips[k];
            weir_status status = weir__gguf_check_memory(f.bytes, f.n, NULL, &error);
            f.bytes[i] ^= flips[k];
            if (status == WEIR_OK) {
                passed++;
            } else {
                refused++;
                assert_true(status == WEIR_FORMAT || status == WEIR_UNSUPPORTED);
                assert_true(strlen(error.message) > 20);
            }
        }
    }
    assert_true(passed > 100);
    assert_true(refused > 1000);
    free(f.bytes);
    fini_model(&m);
}

/* ---- One fault each ------------------------------------------------------------------------------- */

static void twin_key(model *m)
{
    set_u32(m, "x", 1);
    set_u32(m, "y", 1);
    strcpy(find_key(m, "y")->name, "x");
}

static void long_key(model *m)
{
    key *k = find_key(m, "llama.block_count");
    memset(k->name, 'x', 257);
    k->name_n = 257;
}

static void twin_tensor(model *m)
{
    m->tensors[4] = m->tensors[1];
}

static void overflow(model *m)
{
    tensor *t = find_tensor(m, "blk.0.attn_k.weight");
    t->n_dims = 4;
    for (int i = 0; i < 4; i++) t->dim[i] = INT32_MAX;
}

static void faults_of_the_header_are_named(void **state)
{
    (void)state;
    CASE(WEIR_UNSUPPORTED, "version 1", m->version = 1);
    CASE(WEIR_UNSUPPORTED, "version 4", m->version = 4);
    CASE(WEIR_UNSUPPORTED, "byte order", m->version = 0x03000000);
    CASE(WEIR_FORMAT, "", m->n_kv_add = 1);
    CASE(WEIR_UNSUPPORTED, "keys", m->n_kv_add = UINT64_MAX / 2);
    CASE(WEIR_UNSUPPORTED, "tensors", m->n_tensors_add = UINT64_MAX / 2);
    CASE(WEIR_FORMAT, "", m->n_tensors_add = 1);
}

static void faults_of_keys_are_named(void **state)
{
    (void)state;
    CASE(WEIR_FORMAT, "0 bytes long", find_key(m, "llama.block_count")->name_n = 0);
    CASE(WEIR_FORMAT, "the same key", twin_key(m));
    CASE(WEIR_FORMAT, "contains a NUL", find_key(m, "llama.block_count")->name_n++);
    CASE(WEIR_UNSUPPORTED, "weir reads at most 256", long_key(m));
    CASE(WEIR_FORMAT, "unknown type 13", set(m, "x", 13));
    CASE(WEIR_UNSUPPORTED, "'x' is an array of arrays", set_array(m, "x", ARRAY, 1));
    CASE(WEIR_FORMAT, "unknown type 77", set_array(m, "x", 77, 1));
    CASE(WEIR_UNSUPPORTED, "elements", set_array(m, "x", U64, UINT64_MAX / 8 + 2));
    CASE(WEIR_FORMAT, "ends at byte", set_array(m, "x", U32, 1 << 20));
    CASE(WEIR_FORMAT, "string of", put_u64(&set(m, "x", STRING)->value, UINT64_MAX - 3));
    CASE(WEIR_FORMAT, "ends at byte", put_u64(&set(m, "x", STRING)->value, 1 << 20));
    CASE(WEIR_FORMAT, "'general.alignment' is 0, no power of two", set_u32(m, "general.alignment", 0));
    CASE(WEIR_UNSUPPORTED, "'general.alignment' is 8; weir reads powers of two from 32",
         set_u32(m, "general.alignment", 8));
    CASE(WEIR_UNSUPPORTED, "convert the original model again", set_u32(m, "general.alignment", 16));
    CASE(WEIR_FORMAT, "'general.alignment' is 48, no power of two", set_u32(m, "general.alignment", 48));
    CASE(WEIR_FORMAT, "general.alignment", set_text(m, "general.alignment", "32"));
    CASE(WEIR_OK, "", set_u32(m, "general.alignment", 32));
}

static void faults_of_tensors_are_named(void **state)
{
    (void)state;
    CASE(WEIR_FORMAT, "a name of 64 bytes", m->tensors[0].name_n = 64);
    CASE(WEIR_FORMAT, "NUL byte", m->tensors[0].name_n++);
    CASE(WEIR_FORMAT, "", strcpy(m->tensors[4].name, "output_norm.weight"));
    CASE(WEIR_FORMAT, "the same tensor name", twin_tensor(m));
    CASE(WEIR_FORMAT, "5 dimensions", m->tensors[0].n_dims = 5);
    CASE(WEIR_FORMAT, "is 0 x 1", m->tensors[1].dim[0] = 0);
    CASE(WEIR_FORMAT, "output_norm.weight", m->tensors[1].dim[0] = UINT64_MAX / 4 + 9);
    CASE(WEIR_FORMAT, "2147483647 x 2147483647", overflow(m));
    CASE(WEIR_UNSUPPORTED, "type 99", m->tensors[0].type = T_UNKNOWN);
    CASE(WEIR_UNSUPPORTED, "type 4", m->tensors[0].type = T_Q4_2);
    CASE(WEIR_UNSUPPORTED, "type 9", m->tensors[0].type = T_Q8_1);
    CASE(WEIR_UNSUPPORTED, "cannot compute with there", m->tensors[1].type = T_F16);
    CASE(WEIR_UNSUPPORTED, "cannot compute with there", m->tensors[2].type = T_I32);
    CASE(WEIR_FORMAT, "not a multiple of 32", m->tensors[0].dim[0] = 33);
    CASE(WEIR_FORMAT, "was expected", m->tensors[2].offset_add = -32);
    CASE(WEIR_FORMAT, "was expected", m->tensors[2].offset_add = 32);
    CASE(WEIR_FORMAT, "was expected", m->tensors[4].offset_add = 1 << 30);
    CASE(WEIR_FORMAT, "its tensors end", m->tensors[6].dim[1] = 1 << 20);
}

/* ---- Split models --------------------------------------------------------------------------------- */

/* Writes shard no (from 0) of count under a name with number named. */
static void save_shard(const char *stem, int no, int count, int named, uint32_t no_type,
                       char path[TEMP_PATH_MAX])
{
    model m;
    char name[64];
    init_model(&m);
    set_u16(&m, "split.count", (uint16_t)count);
    if (no_type == U16)
        set_u16(&m, "split.no", (uint16_t)no);
    else
        set_u32(&m, "split.no", (uint32_t)no);
    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", stem, named, count);
    file f = write_model(&m);
    save(name, f.bytes, f.n, path);
    free(f.bytes);
    fini_model(&m);
}

/* A model in memory has no further shards. */
static void memory_holds_no_shards(void **state)
{
    (void)state;
    CASE(WEIR_OK, "", set_u16(m, "split.count", 1));
    CASE(WEIR_UNSUPPORTED, "one of 2 files", set_u16(m, "split.count", 2));
}

/* All files that a check has read are watched, and none of a check that failed is left open. */
static void every_shard_is_watched(void **state)
{
    (void)state;
    char first[TEMP_PATH_MAX], path[TEMP_PATH_MAX];
    weir_error error;
    save_shard("watched", 1, 3, 2, U16, path);
    save_shard("watched", 2, 3, 3, U16, path);
    save_shard("watched", 0, 3, 1, U16, first);
    weir__stamps *files = weir__stamps_create();
    assert_int_equal(weir__gguf_check(first, files, NULL, NULL), WEIR_OK);
    assert_int_equal(weir__stamps_settle(files, NULL), WEIR_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(weir__stamps_check(files, &error), WEIR_BACKEND);
    assert_non_null(strstr(error.message, "watched-00003-of-00003.gguf was changed"));
    weir__stamps_destroy(files);
    files = weir__stamps_create();
    assert_int_equal(weir__gguf_check(first, files, NULL, NULL), WEIR_FORMAT);
    weir__stamps_destroy(files);
}

static void shards_are_checked_each(void **state)
{
    (void)state;
    char first[TEMP_PATH_MAX];
    char path[TEMP_PATH_MAX];
    weir__gguf_info one;
    weir__gguf_info all;
    save_shard("good", 0, 3, 1, U16, first);
    assert_refused(
        first, WEIR_NOT_FOUND,
        "good-00002-of-00003.gguf\": is missing, part 2 of 3 of the model: all parts belong into one folder");
    save_shard("good", 1, 3, 2, U16, path);
    assert_refused(
        path, WEIR_FORMAT,
        "good-00002-of-00003.gguf\": is part 2 of 3 of a model; open part 1: good-00001-of-00003.gguf");
    save_shard("good", 2, 3, 3, U16, path);
    assert_int_equal(weir__gguf_check(first, NULL, &all, NULL), WEIR_OK);
    assert_int_equal(all.n_shards, 3);
    assert_int_equal(all.n_tensors, 21);
    assert_string_equal(all.architecture, "llama");
    save_shard("one", 0, 1, 1, U16, path);
    assert_int_equal(weir__gguf_check(path, NULL, &one, NULL), WEIR_OK);
    assert_int_equal(one.n_shards, 1);
    assert_int_equal(all.tensor_bytes, 3 * one.tensor_bytes);

    save_shard("good", 0, 3, 2, U16, path);
    assert_refused(first, WEIR_FORMAT, "not part 2 of 3");
    save_shard("good", 1, 3, 2, U32, path); /* aborts llama.cpp */
    assert_refused(first, WEIR_FORMAT, "not part 2 of 3");
    assert_int_equal(truncate(path, 100), 0);
    assert_refused(first, WEIR_FORMAT, "good-00002-of-00003.gguf\": ends at byte 100");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(first, WEIR_FORMAT, "a directory");
    save_shard("renamed", 0, 3, 2, U16, path);
    assert_refused(path, WEIR_FORMAT, "must end in '-00001-of-00003.gguf'");
    save_shard("many", 0, 2000, 1, U16, path);
    assert_refused(path, WEIR_UNSUPPORTED, "split into 2000 files");
}

/* What llama.cpp says of a file that passes the check is about a name that the file has or lacks. */
static void refused_for(const char *path, const char *reason, weir_status status, const char *part)
{
    weir_error error;
    assert_int_equal(weir__gguf_refused(path, reason, "cannot be used", &error), status);
    if (strstr(error.message, part) == NULL || strstr(error.message, path) == NULL)
        fail_msg("%s", error.message);
    assert_string_equal(error.field, "path");
}

static void a_reason_is_told_by_the_files_names(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    static const struct {
        const char *reason;
        weir_status status;
        const char *part;
    } rows[] = {
        {"error loading model: unknown model architecture: 'llama'", WEIR_UNSUPPORTED,
         "has the architecture 'llama', which this build"},
        {"key not found in model: llama.rope.freq; failed to load model", WEIR_FORMAT,
         "has no key 'llama.rope.freq'; the file is damaged"},
        {"key not found in model: llama.rope.freq.", WEIR_FORMAT,
         "has no key 'llama.rope.freq'; the file is damaged"},
        {"key llama.block_count has wrong type str", WEIR_FORMAT,
         "key 'llama.block_count' has a value that does not fit"},
        {"missing tensor 'blk.9.ffn_up.weight'", WEIR_FORMAT, "has no tensor 'blk.9.ffn_up.weight';"},
        {"x: tensor 'token_embd.weight' has wrong shape; expected", WEIR_FORMAT,
         "tensor 'token_embd.weight' is "},
        {"error loading model vocabulary: no merges", WEIR_FORMAT,
         "is refused as a model of the architecture 'llama'; the log has llama.cpp's reason"},
    };
    save_shard("told", 0, 1, 1, U16, path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused_for(path, rows[i].reason, rows[i].status, rows[i].part);
    save_shard("told", 0, 2, 1, U16, path);
    refused_for(path, "missing tensor 'blk.9.ffn_up.weight'", WEIR_FORMAT,
                "has no tensor 'blk.9.ffn_up.weight' that fits its metadata");
    assert_int_equal(unlink(path), 0);
    refused_for(path, "something else", WEIR_NOT_FOUND, "cannot be opened");
}

/* Names and paths of which the reason does not complain are no faults of the file. */
static void a_name_without_a_complaint_is_not_blamed(void **state)
{
    (void)state;
    static const char *const unread[] = {
        "failed to open /m/llama.Q4_K_M.gguf: Too many open files",
        "error loading model: read error: Input/output error; failed to load model",
        "failed to open GGUF file '/m/token_embd.weight' (Permission denied)",
        "mmap failed: No such device",
        "unexpectedly reached end of file",
    };
    static const char *const unknown[] = {
        "something else",
        "failed to find a compatible buffer type for tensor token_embd.weight",
        "'llama' failed",
        "no llama.",
        "key not found in model: ",
        ("key not found in model: "
         "llama.........................................................................x"),
    };
    char path[TEMP_PATH_MAX];
    save_shard("told", 0, 1, 1, U16, path);
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        refused_for(path, unread[i], WEIR_IO, "cannot be read; the log has llama.cpp's reason");
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        refused_for(path, unknown[i], WEIR_BACKEND, "cannot be used; the log has llama.cpp's reason");
    refused_for(path, "", WEIR_BACKEND, "cannot be used; llama.cpp gives no reason");

    /* A pre-tokenizer that is called as the architecture is. */
    model m;
    init_model(&m);
    set_text(&m, "tokenizer.ggml.pre", "llama");
    file f = write_model(&m);
    save("named.gguf", f.bytes, f.n, path);
    refused_for(path, "error loading model vocabulary: unknown pre-tokenizer type: 'llama'", WEIR_UNSUPPORTED,
                "has the pre-tokenizer 'llama', which this build");
    free(f.bytes);
    fini_model(&m);
}

/* A later part names the first one, as llama.cpp writes them: the metadata of the model is in the first part
 * only. */
static void a_later_part_names_the_first(void **state)
{
    (void)state;
    model m;
    char path[TEMP_PATH_MAX];
    weir_error error = {0};
    memset(&m, 0, sizeof m);
    m.version = 3;
    set_u16(&m, "split.count", 3);
    set_u16(&m, "split.no", 2);
    add_tensor(&m, "blk.1.attn_k.weight", T_F16, 1024, 32, 16);
    file f = write_model(&m);
    save("parts-00003-of-00003.gguf", f.bytes, f.n, path);
    assert_refused(path, WEIR_FORMAT, "is part 3 of 3 of a model; open part 1: parts-00001-of-00003.gguf");
    assert_int_equal(weir__gguf_check_adapter(path, NULL, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "open part 1: parts-00001-of-00003.gguf"));
    assert_int_equal(weir__gguf_check_projector(path, NULL, &error), WEIR_FORMAT);
    assert_non_null(strstr(error.message, "open part 1: parts-00001-of-00003.gguf"));
    save("model.gguf", f.bytes, f.n, path);
    assert_refused(path, WEIR_FORMAT, "open part 1, whose name ends in '-00001-of-00003.gguf'");
    assert_int_equal(weir__gguf_check_memory(f.bytes, f.n, NULL, &error), WEIR_UNSUPPORTED);
    free(f.bytes);
    remove_key(&m, "split.no"); /* the split keys contradict each other */
    f = write_model(&m);
    save("model.gguf", f.bytes, f.n, path);
    assert_refused(path, WEIR_FORMAT, "key 'split.no'");
    free(f.bytes);
    fini_model(&m);
}

/* Advice to download it again is given only where bytes are missing or contradict each other. */
static void only_faults_of_the_file_advise_another_copy(void **state)
{
    (void)state;
    CASE(WEIR_FORMAT, "download or convert it again", twin_key(m));
    CASE(WEIR_FORMAT, "incomplete or damaged", set_array(m, "x", U32, 1 << 20));
    model m;
    weir_error error = {0};
    init_model(&m);
    set_u32(&m, "general.alignment", 8);
    assert_int_equal(check(&m, &error), WEIR_UNSUPPORTED);
    assert_null(strstr(error.message, "download"));
    set_u32(&m, "general.alignment", 32);
    m.n_kv_add = 5000;
    assert_int_equal(check(&m, &error), WEIR_UNSUPPORTED);
    assert_null(strstr(error.message, "download"));
    fini_model(&m);
}

static uint64_t identity_of(const char *path)
{
    weir__gguf_info info;
    assert_int_equal(weir__gguf_check(path, NULL, &info, NULL), WEIR_OK);
    return info.identity;
}

static void set_time(const char *path, long nanoseconds)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000, .tv_nsec = nanoseconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void set_byte(const char *path, long at, int whence)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, whence), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, f), byte ^ 1);
    assert_int_equal(fclose(f), 0);
}

/* A model's identity depends on its files' times and on samples of its weights. */
static void identity_is_that_of_files_and_times(void **state)
{
    (void)state;
    char first[TEMP_PATH_MAX], second[TEMP_PATH_MAX];
    save_shard("same", 0, 2, 1, U16, first);
    save_shard("same", 1, 2, 2, U16, second);
    set_time(first, 0);
    set_time(second, 0);
    uint64_t identity = identity_of(first);
    assert_true(identity_of(first) == identity);
    set_time(second, 1);
    assert_true(identity_of(first) != identity);
    set_time(second, 0);
    assert_true(identity_of(first) == identity);

    set_byte(second, -1, SEEK_END); /* as others copy a file with its time */
    set_time(second, 0);
    assert_true(identity_of(first) != identity);
    set_byte(second, -1, SEEK_END);
    set_time(second, 0);
    assert_true(identity_of(first) == identity);

    FILE *shard = fopen(first, "r+b");
    assert_non_null(shard);
    static char bytes[1 << 16];
    size_t n = fread(bytes, 1, sizeof bytes, shard);
    const char name[] = "output_norm";
    size_t at = 0;
    while (at < n && memcmp(bytes + at, name, sizeof name - 1) != 0) at++;
    assert_true(at < n);
    assert_int_equal(fseek(shard, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc('O', shard), 'O');
    assert_int_equal(fclose(shard), 0);
    set_time(first, 0);
    assert_true(identity_of(first) != identity);
}

static uint64_t fingerprint_of(const char *path)
{
    weir__gguf_info info;
    assert_int_equal(weir__gguf_check(path, NULL, &info, NULL), WEIR_OK);
    return info.fingerprint;
}

static void fingerprint_is_that_of_contents(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX], copy[TEMP_PATH_MAX];
    save_shard("original", 0, 1, 1, U16, path);
    save_shard("copy", 0, 1, 1, U16, copy);
    set_time(path, 0);
    set_time(copy, 1);
    uint64_t fingerprint = fingerprint_of(path);
    assert_true(fingerprint_of(copy) == fingerprint);

    /* one weight, the last one */
    FILE *weights = fopen(copy, "r+b");
    assert_non_null(weights);
    assert_int_equal(fseek(weights, -1, SEEK_END), 0);
    int last = fgetc(weights);
    assert_int_equal(fseek(weights, -1, SEEK_END), 0);
    assert_true(fputc(last ^ 1, weights) != EOF);
    assert_int_equal(fclose(weights), 0);
    assert_true(fingerprint_of(copy) != fingerprint);
}

/* ---- Memory --------------------------------------------------------------------------------------- */

static void each_failed_allocation_is_reported(void **state)
{
    (void)state;
    char path[TEMP_PATH_MAX];
    char second[TEMP_PATH_MAX];
    save_shard("memory", 0, 2, 1, U16, path);
    save_shard("memory", 1, 2, 2, U16, second);
    long live = weir__mem_live();
    long n = 0;
    for (;; n++) {
        weir_error error;
        weir__mem_fail_after(n);
        weir_status status = weir__gguf_check(path, NULL, NULL, &error);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_int_equal(status, WEIR_OK);
            break;
        }
        assert_int_equal(status, WEIR_NO_MEMORY);
        assert_int_equal(error.code, WEIR_NO_MEMORY);
    }
    assert_true(n >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file_passes),
        cmocka_unit_test(identity_is_that_of_files_and_times),
        cmocka_unit_test(fingerprint_is_that_of_contents),
        cmocka_unit_test(large_vocabulary_passes_from_a_file),
        cmocka_unit_test(files_that_are_no_models_are_refused),
        cmocka_unit_test(files_of_other_kinds_are_named),
        cmocka_unit_test(each_use_has_its_converter),
        cmocka_unit_test(short_and_similar_files_are_read_in_bounds),
        cmocka_unit_test(random_bytes_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_byte_may_change),
        cmocka_unit_test(faults_of_the_header_are_named),
        cmocka_unit_test(faults_of_keys_are_named),
        cmocka_unit_test(faults_of_tensors_are_named),
        cmocka_unit_test(memory_holds_no_shards),
        cmocka_unit_test(every_shard_is_watched),
        cmocka_unit_test(shards_are_checked_each),
        cmocka_unit_test(a_later_part_names_the_first),
        cmocka_unit_test(a_reason_is_told_by_the_files_names),
        cmocka_unit_test(a_name_without_a_complaint_is_not_blamed),
        cmocka_unit_test(only_faults_of_the_file_advise_another_copy),
        cmocka_unit_test(each_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
