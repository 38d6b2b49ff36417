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
    const char *slash = strrchr(path, '/');
    struct stat st;
    c->name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
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
        const char *kind = S_ISDIR(st.st_mode) ? "a directory" : S_ISFIFO(st.st_mode) ? "a FIFO" : "a device";
        c->status =
            weir__error_set(c->error, WEIR_FORMAT, "path", "%.80s: is %s, not a model file", c->name, kind);
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

/* Checks shards 2 to count, whose first is at path, and adds them to *sum. */
static void check_shards(gguf_check *c, const char *path, uint16_t count, weir__gguf_info *sum)
{
    char ending[32];
    size_t n = strlen(path);
    size_t n_ending = (size_t)snprintf(ending, sizeof ending, "-00001-of-%05d.gguf", count);
    char numbered[64];
    char *shard = weir__mem_strdup(path);
    if (shard == NULL) {
        weir__gguf_fail(c, WEIR_NO_MEMORY, "no memory to check it");
        return;
    }
    if (count > SHARD_MAX)
        weir__gguf_refuse(c, "is split into %d files; at most %d are allowed", count, SHARD_MAX);
    if (c->status == WEIR_OK && (n <= n_ending || strcmp(path + n - n_ending, ending) != 0))
        weir__gguf_refuse(c, "is one of %d files, so its name must end in '%s'", count, ending);
    for (int i = 2; i <= count && c->status == WEIR_OK; i++) {
        uint16_t no;
        snprintf(numbered, sizeof numbered, "-%05d-of-%05d.gguf", i, count);
        memcpy(shard + n - n_ending, numbered, n_ending); /* as long as ending: i <= count <= SHARD_MAX */
        close_file(c);
        open_file(c, shard);
        if (c->status == WEIR_OK) weir__gguf_check_container(c);
        /* Without the type check llama.cpp aborts here. */
        if (c->status == WEIR_OK && (!split_number(c, "split.no", &no) || no != i - 1))
            weir__gguf_refuse(c, "is not file %d of %d of this model (key 'split.no')", i, count);
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

typedef void check_rules(gguf_check *c);

/* Of the file, or of data [size] where that is not NULL. NULL: out of memory. */
static gguf_check *check_one(const char *name, const void *data, size_t size, check_rules *rules,
                             weir__stamps *files, weir_error *error)
{
    gguf_check *c = weir__mem_calloc(1, sizeof *c);
    if (c == NULL) {
        weir__error_set(error, WEIR_NO_MEMORY, "path", "no memory to check %.80s", name);
        return NULL;
    }
    c->name = name;
    c->error = error;
    c->fd = -1;
    c->data = data;
    c->files = files;
    c->size = size;
    if (data == NULL) open_file(c, name);
    if (c->status == WEIR_OK) weir__gguf_check_container(c);
    if (c->status == WEIR_OK) rules(c);
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
    gguf_check *c = check_one(path, NULL, 0, weir__gguf_check_rules, files, error);
    uint16_t count, no;
    if (c != NULL && c->status == WEIR_OK && split_number(c, "split.count", &count) && count > 1) {
        weir__gguf_info sum = c->info;
        if (!split_number(c, "split.no", &no) || no != 0)
            weir__gguf_refuse(c, "is one of %d files of a model, and not the first; give the first", count);
        check_shards(c, path, count, &sum);
        c->info = sum;
    }
    return end_check(c, info);
}

weir_status weir__gguf_check_adapter(const char *path, weir__gguf_info *info, weir_error *error)
{
    gguf_check *c = check_one(path, NULL, 0, weir__gguf_check_adapter_rules, NULL, error);
    if (c != NULL) c->part = "the tensors";
    if (c != NULL && c->status == WEIR_OK) c->info.identity = weir__gguf_checksum(c, 0, c->size);
    return end_check(c, info);
}

weir_status weir__gguf_check_projector(const char *path, weir__gguf_info *info, weir_error *error)
{
    return end_check(check_one(path, NULL, 0, weir__gguf_check_projector_rules, NULL, error), info);
}

weir_status weir__gguf_check_memory(const void *data, size_t size, weir__gguf_info *info, weir_error *error)
{
    gguf_check *c = check_one("the model", data, size, weir__gguf_check_rules, NULL, error);
    uint16_t count;
    if (c != NULL && c->status == WEIR_OK && split_number(c, "split.count", &count) && count > 1)
        weir__gguf_fail(c, WEIR_UNSUPPORTED, "is one of %d files", count);
    return end_check(c, info);
}

weir_status weir__gguf_check_projector_memory(const void *data, size_t size, weir__gguf_info *info,
                                              weir_error *error)
{
    return end_check(check_one("the projector", data, size, weir__gguf_check_projector_rules, NULL, error),
                     info);
}
