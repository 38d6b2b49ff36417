/* gguf.c: checks GGUF files: opens them, with their shards, and checks container and metadata of each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/mem.h"
#include "gguf/gguf_internal.h"

static const gguf_use for_model = {weir__gguf_check_rules, "convert_hf_to_gguf.py"},
                      for_adapter = {weir__gguf_check_adapter_rules, "convert_lora_to_gguf.py"},
                      for_projector = {weir__gguf_check_projector_rules, "convert_hf_to_gguf.py --mmproj"};

#define SHARD_MAX 1024 /* files that the loader keeps open; the largest models have some 60 */

/* A key of split models. False: absent or no uint16. */
static bool split_number(gguf_check *c, const char *key, uint16_t *value)
{
    const gguf_entry *e = weir__gguf_find(c, key);
    if (e == NULL || e->type != GGUF_U16 || e->is_array) return false;
    c->at = e->value_at;
    return weir__gguf_take(c, value, sizeof *value);
}

static void close_file(gguf_check *c)
{
    if (c->fd >= 0) close(c->fd);
    weir__mem_free(c->entries);
    weir__mem_free(c->tensors);
    c->fd = -1;
    c->entries = NULL;
    c->tensors = NULL;
}

static void open_file(gguf_check *c, const char *path)
{
    struct stat st;
    c->path = path;
    c->at = 0;
    c->window_at = 0;
    c->window_n = 0;
    memset(&c->info, 0, sizeof c->info);
    /* O_NONBLOCK: opening a FIFO without a writer would block. It has no effect on files. */
    c->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c->fd < 0) {
        weir__gguf_fail(c, errno == ENOENT || errno == ENOTDIR ? WEIR_NOT_FOUND : WEIR_IO,
                        "cannot be opened: %s", strerror(errno));
    } else if (fstat(c->fd, &st) != 0) {
        weir__gguf_fail(c, WEIR_IO, "cannot be read: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode))
            weir__gguf_fail(
                c, WEIR_FORMAT,
                "is a directory, not a model file: give a GGUF file in it; a model in safetensors is "
                "converted with llama.cpp's %s first",
                c->use->converter);
        else
            weir__gguf_fail(c, WEIR_FORMAT, "is %s, not a model file: give a GGUF file",
                            S_ISFIFO(st.st_mode) ? "a FIFO" : "a device");
    } else {
        c->size = (uint64_t)st.st_size;
        c->written_s = (uint64_t)st.st_mtime;
#ifdef __APPLE__
        c->written_ns = (uint64_t)st.st_mtimespec.tv_nsec;
#else
        c->written_ns = (uint64_t)st.st_mtim.tv_nsec;
#endif
        if (c->files != NULL) c->status = weir__stamps_add(c->files, c->fd, path, c->error);
    }
}

/* Opens a part after the first. */
static void open_part(gguf_check *c, const char *path, int part, int count)
{
    struct stat st;
    if (stat(path, &st) == 0 || errno != ENOENT) {
        open_file(c, path);
        return;
    }
    c->path = path;
    weir__gguf_fail(c, WEIR_NOT_FOUND,
                    "is missing, part %d of %d of the model: all parts belong into one folder", part, count);
}

/* The ending of a part's name, as llama.cpp writes and expects it. */
static size_t part_ending(char ending[32], int part, int count)
{
    return (size_t)snprintf(ending, 32, "-%05d-of-%05d.gguf", part, count);
}

static bool has_ending(const char *path, const char *ending, size_t n)
{
    size_t length = strlen(path);
    return length > n && strcmp(path + length - n, ending) == 0;
}

/* Refuses a later part of a split model: the first one has the metadata, and its loader finds the others. */
static void refuse_later_part(gguf_check *c, int part, int count)
{
    char ending[32], first[32];
    size_t n = part_ending(ending, part, count), n_first = part_ending(first, 1, count);
    const char *slash = strrchr(c->path, '/'), *name = slash != NULL ? slash + 1 : c->path;
    if (has_ending(name, ending, n))
        weir__gguf_fail(c, WEIR_FORMAT, "is part %d of %d of a model; open part 1: %.*s%s", part, count,
                        (int)(strlen(name) - n), name, first);
    else
        weir__gguf_fail(c, WEIR_FORMAT, "is part %d of %d of a model; open part 1, whose name ends in '%.*s'",
                        part, count, (int)n_first, first);
}

/* The number of files of the model, of which this must be the first one. */
static uint16_t count_parts(gguf_check *c)
{
    uint16_t count, no;
    if (!split_number(c, "split.count", &count) || count <= 1) return 1;
    if (c->fd < 0)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is one of %d files; give a model in one file", count);
    else if (!split_number(c, "split.no", &no) || no >= count)
        weir__gguf_refuse(c, "is one of %d files of a model, but its key 'split.no' is missing or wrong",
                          count);
    else if (no > 0)
        refuse_later_part(c, no + 1, count);
    return count;
}

/* Checks parts 2 to count, whose first is at path, and adds them to *sum. */
static void check_shards(gguf_check *c, const char *path, uint16_t count, weir__gguf_info *sum)
{
    char ending[32], numbered[32];
    size_t n = strlen(path), n_ending = part_ending(ending, 1, count);
    char *shard = weir__mem_strdup(path);
    if (shard == NULL) {
        weir__gguf_fail(c, WEIR_NO_MEMORY, "no memory to check it");
        return;
    }
    if (count > SHARD_MAX)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is split into %d files; weir reads at most %d", count,
                        SHARD_MAX);
    if (c->status == WEIR_OK && !has_ending(path, ending, n_ending))
        weir__gguf_fail(
            c, WEIR_FORMAT,
            "is part 1 of %d of a model, so its name must end in '%s': give the files back their names",
            count, ending);
    for (int i = 2; i <= count && c->status == WEIR_OK; i++) {
        uint16_t no;
        part_ending(numbered, i, count);
        memcpy(shard + n - n_ending, numbered, n_ending); /* as long as ending: i <= count <= SHARD_MAX */
        close_file(c);
        open_part(c, shard, i, count);
        if (c->status == WEIR_OK) weir__gguf_check_container(c);
        /* A type other than the expected one would make llama.cpp abort. */
        if (c->status == WEIR_OK && (!split_number(c, "split.no", &no) || no != i - 1))
            weir__gguf_fail(
                c, WEIR_FORMAT,
                "is not part %d of %d of this model (key 'split.no'): give the files back their names", i,
                count);
        sum->n_shards++;
        sum->n_kv += c->info.n_kv;
        sum->n_tensors += c->info.n_tensors;
        sum->file_bytes += c->info.file_bytes;
        sum->tensor_bytes += c->info.tensor_bytes;
        sum->identity = weir__hash(sum->identity, &c->info.identity, sizeof c->info.identity);
        sum->fingerprint = weir__hash(sum->fingerprint, &c->info.fingerprint, sizeof c->info.fingerprint);
    }
    weir__mem_free(shard);
}

/* Checks the file, or data [size] where that is not NULL. *n_parts: of the model. NULL: out of memory. */
static gguf_check *check_one(const char *path, const void *data, size_t size, const gguf_use *use,
                             weir__stamps *files, uint16_t *n_parts, weir_error *error)
{
    gguf_check *c = weir__mem_calloc(1, sizeof *c);
    if (c == NULL) {
        char shown[WEIR__ERROR_PATH];
        weir__error_set(error, WEIR_NO_MEMORY, "path", "no memory to check %s",
                        weir__error_path(shown, path));
        return NULL;
    }
    c->path = path;
    c->error = error;
    c->use = use;
    c->fd = -1;
    c->data = data;
    c->files = files;
    c->size = size;
    if (data == NULL) open_file(c, path);
    if (c->status == WEIR_OK) weir__gguf_check_container(c);
    *n_parts = c->status == WEIR_OK ? count_parts(c) : 1;
    if (c->status == WEIR_OK) use->check_rules(c);
    return c;
}

/* c NULL: there was no memory for it. info may be NULL. */
static weir_status end_check(gguf_check *c, weir__gguf_info *info)
{
    if (c == NULL) return WEIR_NO_MEMORY;
    weir_status status = c->status;
    if (status == WEIR_OK && info != NULL) *info = c->info;
    close_file(c);
    weir__mem_free(c);
    return status;
}

weir_status weir__gguf_check(const char *path, weir__stamps *files, weir__gguf_info *info, weir_error *error)
{
    uint16_t n_parts;
    gguf_check *c = check_one(path, NULL, 0, &for_model, files, &n_parts, error);
    if (c != NULL && c->status == WEIR_OK && n_parts > 1) {
        weir__gguf_info sum = c->info;
        check_shards(c, path, n_parts, &sum);
        c->info = sum;
    }
    return end_check(c, info);
}

weir_status weir__gguf_refused(const char *path, const char *reason, const char *failed, weir_error *error)
{
    uint16_t n_parts;
    gguf_check *c = check_one(path, NULL, 0, &for_model, NULL, &n_parts, error);
    if (c != NULL) weir__gguf_blame(c, reason, n_parts == 1, failed);
    return end_check(c, NULL);
}

weir_status weir__gguf_check_adapter(const char *path, weir__gguf_info *info, weir_error *error)
{
    uint16_t n_parts;
    gguf_check *c = check_one(path, NULL, 0, &for_adapter, NULL, &n_parts, error);
    if (c != NULL) c->part = "the tensors";
    if (c != NULL && c->status == WEIR_OK) c->info.identity = weir__gguf_checksum(c, 0, c->size);
    return end_check(c, info);
}

weir_status weir__gguf_check_projector(const char *path, weir__gguf_info *info, weir_error *error)
{
    uint16_t n_parts;
    return end_check(check_one(path, NULL, 0, &for_projector, NULL, &n_parts, error), info);
}

weir_status weir__gguf_check_memory(const void *data, size_t size, weir__gguf_info *info, weir_error *error)
{
    uint16_t n_parts;
    return end_check(check_one("the model", data, size, &for_model, NULL, &n_parts, error), info);
}

weir_status weir__gguf_check_projector_memory(const void *data, size_t size, weir__gguf_info *info,
                                              weir_error *error)
{
    uint16_t n_parts;
    return end_check(check_one("the projector", data, size, &for_projector, NULL, &n_parts, error), info);
}
