/* optimized_file.c: a model's packed weights, in a file that loads map.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A reader checks header and table when it opens the file, maps one buffer after another, and compares each
 * tensor with the table. A writer collects the bytes of buffers in pieces in a temporary file, and renames it
 * when all of it is on the disk; then the folder's entry is synced too, where the file system can. */
#include "hook/optimized_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

#define VERSION     2
#define TENSORS_MAX 65536             /* twice the limit for a model's file */
#define PIECE       ((size_t)1 << 20) /* bytes read, written and hashed at once */

static const char magic[8] = {'w', 'e', 'i', 'r', 'p', 'a', 'c', 'k'};

typedef struct header {
    char magic[8];
    uint32_t version;
    uint32_t n_tensors; /* the table follows the header */
    weir__optimized_kind kind;
    uint64_t payload_at; /* behind the table, a multiple of WEIR__OPTIMIZED_STEP */
    uint64_t payload_size;
    uint64_t payload_checksum; /* of its pieces, in order */
    uint64_t checksum;         /* of the fields above and the table */
} header;

_Static_assert(sizeof(header) == 88 && sizeof(weir__optimized_tensor) == 120,
               "no padding that would be written");

static uint64_t round_to_steps(uint64_t size)
{
    return (size + WEIR__OPTIMIZED_STEP - 1) / WEIR__OPTIMIZED_STEP * WEIR__OPTIMIZED_STEP;
}

static uint64_t header_checksum(const header *head, const weir__optimized_tensor *table)
{
    return weir__hash(weir__hash(0, head, offsetof(header, checksum)), table,
                      head->n_tensors * sizeof *table);
}

static uint64_t payload_at(uint32_t n_tensors)
{
    return round_to_steps(sizeof(header) + n_tensors * sizeof(weir__optimized_tensor));
}

static weir_status no_memory(const char *path, weir_error *error)
{
    return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for %.200s", path);
}

/* ---- Reading -------------------------------------------------------------------------------------- */

struct weir__optimized_file {
    int fd;
    char *path;
    header head;
    weir__optimized_tensor *table; /* [head.n_tensors], `at` counted from the start of the payload */
    uint32_t n_seen;               /* tensors that is_next has compared */
    uint64_t buffer_at;            /* in the payload: the buffer mapped last, and the next */
    uint64_t next_at;
};

static weir_status refuse_unreadable(const weir__optimized_file *f, weir_error *error)
{
    return weir__error_set(error, WEIR_IO, "optimized", "%.200s cannot be read: %s", f->path,
                           errno != 0 ? strerror(errno) : "it became shorter");
}

static weir_status refuse_damaged(const weir__optimized_file *f, const char *what, weir_error *error)
{
    return weir__error_set(error, WEIR_FORMAT, "optimized", "%.200s is damaged: %s", f->path, what);
}

/* Opens f->path and reads header and table. */
static weir_status read_head(weir__optimized_file *f, weir_error *error)
{
    struct stat st;
    header *head = &f->head;
    /* O_NONBLOCK: do not wait on a FIFO, which is refused below. */
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return weir__error_set(error, errno == ENOENT || errno == ENOTDIR ? WEIR_NOT_FOUND : WEIR_IO,
                               "optimized", "%.200s cannot be opened: %s", f->path, strerror(errno));
    if (fstat(f->fd, &st) != 0) return refuse_unreadable(f, error);
    if (!S_ISREG(st.st_mode))
        return weir__error_set(error, WEIR_FORMAT, "optimized", "%.200s is not a file", f->path);
    uint64_t size = (uint64_t)st.st_size;
    if (size >= sizeof *head && !weir__file_read(f->fd, head, sizeof *head, 0))
        return refuse_unreadable(f, error);
    if (size < sizeof *head || memcmp(head->magic, magic, sizeof magic) != 0)
        return weir__error_set(error, WEIR_FORMAT, "optimized", "%.200s holds no optimized weights", f->path);
    if (head->version != VERSION)
        return weir__error_set(error, WEIR_UNSUPPORTED, "optimized",
                               "%.200s has version %" PRIu32 ", this weir reads %d", f->path, head->version,
                               VERSION);
    if (head->n_tensors > TENSORS_MAX || head->payload_at != payload_at(head->n_tensors) ||
        head->payload_size % WEIR__OPTIMIZED_STEP != 0)
        return refuse_damaged(f, "its header is wrong", error);
    if (size < head->payload_at || size - head->payload_at != head->payload_size)
        return refuse_damaged(f, "it is not as long as it was written", error);
    f->table = weir__mem_calloc(head->n_tensors, sizeof *f->table);
    if (f->table == NULL) return no_memory(f->path, error);
    if (!weir__file_read(f->fd, f->table, head->n_tensors * sizeof *f->table, sizeof *head))
        return refuse_unreadable(f, error);
    if (head->checksum != header_checksum(head, f->table))
        return refuse_damaged(f, "the checksum of its header is wrong", error);
    return WEIR_OK;
}

static weir_status check_kind(const weir__optimized_file *f, const weir__optimized_kind *want,
                              weir_error *error)
{
    const weir__optimized_kind *is = &f->head.kind;
    if (is->panels != want->panels)
        return weir__error_set(error, WEIR_UNSUPPORTED, "optimized",
                               "%.200s has weights in order %" PRIu32 ", these kernels read %" PRIu32,
                               f->path, is->panels, want->panels);
    if (memcmp(is->kernels, want->kernels, sizeof is->kernels) != 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, "optimized",
                               "%.200s is for the kernels %.28s, this processor runs %.28s", f->path,
                               is->kernels, want->kernels);
    if (is->model != want->model)
        return weir__error_set(error, WEIR_UNSUPPORTED, "optimized",
                               "%.200s was made from another model, or the model was written since", f->path);
    return WEIR_OK;
}

weir_status weir__optimized_file_open(const char *path, const weir__optimized_kind *kind,
                                      weir__optimized_file **file, weir_error *error)
{
    weir__optimized_file *f = weir__mem_calloc(1, sizeof *f);
    if (f == NULL) return no_memory(path, error);
    f->fd = -1;
    f->path = weir__mem_strdup(path);
    weir_status status = f->path != NULL ? read_head(f, error) : no_memory(path, error);
    if (status == WEIR_OK) status = check_kind(f, kind, error);
    if (status == WEIR_OK)
        *file = f;
    else
        weir__optimized_file_close(f);
    return status;
}

void weir__optimized_file_close(weir__optimized_file *f)
{
    if (f == NULL) return;
    if (f->fd >= 0) close(f->fd);
    weir__mem_free(f->table);
    weir__mem_free(f->path);
    weir__mem_free(f);
}

void *weir__optimized_file_map(weir__optimized_file *f, size_t size)
{
    if (size == 0 || size > f->head.payload_size - f->next_at) return NULL;
    void *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, f->fd, (off_t)(f->head.payload_at + f->next_at));
    if (at == MAP_FAILED) return NULL;
    posix_madvise(at, size, POSIX_MADV_WILLNEED); /* start reading ahead */
    f->buffer_at = f->next_at;
    f->next_at += round_to_steps(size);
    return at;
}

weir_status weir__optimized_file_watch(const weir__optimized_file *f, weir__stamps *files, weir_error *error)
{
    return weir__stamps_add(files, f->fd, f->path, error);
}

bool weir__optimized_file_is_next(weir__optimized_file *f, const weir__optimized_tensor *tensor)
{
    if (f->n_seen == f->head.n_tensors) return false;
    weir__optimized_tensor want = *tensor;
    want.at += f->buffer_at;
    return memcmp(&f->table[f->n_seen++], &want, sizeof want) == 0;
}

weir_status weir__optimized_file_check(weir__optimized_file *f, weir_progress_fn progress, void *user,
                                       weir_error *error)
{
    weir_status status = WEIR_OK;
    uint64_t size = f->head.payload_size, h = 0;
    unsigned char *bytes = weir__mem_alloc(PIECE);
    if (bytes == NULL) return no_memory(f->path, error);
    for (uint64_t at = 0; at < size && status == WEIR_OK; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        if (!weir__file_read(f->fd, bytes, n, f->head.payload_at + at))
            status = refuse_unreadable(f, error);
        else if (progress != NULL && !progress((float)((double)at / (double)size), user))
            status =
                weir__error_set(error, WEIR_ABORTED, "progress", "the progress callback ended the check");
        h = weir__hash(h, bytes, n);
    }
    if (status == WEIR_OK && h != f->head.payload_checksum)
        status = refuse_damaged(f, "the checksum of its weights is wrong", error);
    if (status == WEIR_OK && progress != NULL) progress(1.0f, user);
    weir__mem_free(bytes);
    return status;
}

/* ---- Writing -------------------------------------------------------------------------------------- */

struct weir__optimized_writer {
    int fd;
    char *path;
    char *temporary;               /* "" once the file is in place */
    weir__optimized_tensor *table; /* [n], `at` counted from the start of the payload */
    size_t n, table_capacity;
    const void **panels; /* [n] */
    size_t panels_capacity;
    uint64_t buffer_at, end; /* of the payload */
    unsigned char *piece;    /* [PIECE], the next bytes of the payload */
    size_t n_piece;
    uint64_t written, checksum; /* of the payload */
};

static weir_status refuse_unwritable(const weir__optimized_writer *w, weir_error *error)
{
    return weir__error_set(error, WEIR_IO, "optimized", "%.200s cannot be written: %s", w->path,
                           strerror(errno));
}

/* Creates the file. mkstemp would not let the umask decide who may read it. */
static weir_status create_temporary(weir__optimized_writer *w, size_t room, weir_error *error)
{
    for (int i = 0; i < 100; i++) {
        snprintf(w->temporary, room, "%s.%ld-%d.part", w->path, (long)getpid(), i);
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) return WEIR_OK;
        if (errno != EEXIST) break;
    }
    w->temporary[0] = '\0';
    return refuse_unwritable(w, error);
}

bool weir__optimized_file_may_replace(const char *path)
{
    struct stat is;
    char begin[sizeof magic];
    if (stat(path, &is) != 0) return true; /* errors show up when it is written */
    if (!S_ISREG(is.st_mode)) return false;
    if (is.st_size == 0) return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, begin, sizeof begin);
    close(fd);
    return n == (ssize_t)sizeof begin && memcmp(begin, magic, sizeof magic) == 0;
}

weir_status weir__optimized_writer_open(const char *path, weir__optimized_writer **writer, weir_error *error)
{
    size_t room = strlen(path) + 48;
    weir__optimized_writer *w = weir__mem_calloc(1, sizeof *w);
    if (w == NULL) return no_memory(path, error);
    w->fd = -1;
    w->path = weir__mem_strdup(path);
    w->temporary = weir__mem_calloc(1, room);
    w->piece = weir__mem_alloc(PIECE);
    bool whole = w->path != NULL && w->temporary != NULL && w->piece != NULL;
    weir_status status = whole ? create_temporary(w, room, error) : no_memory(path, error);
    if (status == WEIR_OK)
        *writer = w;
    else
        weir__optimized_writer_close(w);
    return status;
}

void weir__optimized_writer_close(weir__optimized_writer *w)
{
    if (w == NULL) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary != NULL && w->temporary[0] != '\0') unlink(w->temporary);
    weir__mem_free(w->piece);
    weir__mem_free(w->panels);
    weir__mem_free(w->table);
    weir__mem_free(w->temporary);
    weir__mem_free(w->path);
    weir__mem_free(w);
}

void weir__optimized_writer_buffer(weir__optimized_writer *w, size_t size)
{
    w->buffer_at = w->end;
    w->end += round_to_steps(size);
}

bool weir__optimized_writer_tensor(weir__optimized_writer *w, const weir__optimized_tensor *tensor,
                                   const void *panels)
{
    if (!weir__mem_grow(&w->table, &w->table_capacity, w->n + 1, sizeof *w->table) ||
        !weir__mem_grow(&w->panels, &w->panels_capacity, w->n + 1, sizeof *w->panels))
        return false;
    w->panels[w->n] = panels;
    w->table[w->n] = *tensor;
    w->table[w->n++].at += w->buffer_at;
    return true;
}

/* Writes the buffered payload. An empty piece is not written, as it would change the checksum. */
static bool flush_bytes(weir__optimized_writer *w)
{
    if (w->n_piece == 0) return true;
    if (!weir__file_write(w->fd, w->piece, w->n_piece, payload_at((uint32_t)w->n) + w->written)) return false;
    w->checksum = weir__hash(w->checksum, w->piece, w->n_piece);
    w->written += w->n_piece;
    w->n_piece = 0;
    return true;
}

/* Appends n bytes to the payload; NULL: zeroes. */
static bool append_bytes(weir__optimized_writer *w, const void *bytes, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        size_t room = PIECE - w->n_piece, part = n - done < room ? (size_t)(n - done) : room;
        if (bytes != NULL)
            memcpy(w->piece + w->n_piece, (const char *)bytes + done, part);
        else
            memset(w->piece + w->n_piece, 0, part);
        w->n_piece += part;
        done += part;
        if (w->n_piece == PIECE && !flush_bytes(w)) return false;
    }
    return true;
}

static weir_status write_payload(weir__optimized_writer *w, weir_progress_fn progress, void *user,
                                 weir_error *error)
{
    for (size_t i = 0; i < w->n; i++) {
        const weir__optimized_tensor *tensor = &w->table[i];
        if (progress != NULL && !progress((float)((double)tensor->at / (double)w->end), user))
            return weir__error_set(error, WEIR_ABORTED, "progress",
                                   "the progress callback ended the writing");
        if (!append_bytes(w, NULL, tensor->at - (w->written + w->n_piece)) ||
            !append_bytes(w, w->panels[i], tensor->size))
            return refuse_unwritable(w, error);
    }
    if (!append_bytes(w, NULL, w->end - (w->written + w->n_piece)) || !flush_bytes(w))
        return refuse_unwritable(w, error);
    return WEIR_OK;
}

/* Syncs the folder, so that the entry is on the disk too. Some file systems cannot. */
static void sync_folder(weir__optimized_writer *w)
{
    char *slash = strrchr(w->path, '/'), after = '\0';
    if (slash != NULL) {
        after = slash[1];
        slash[1] = '\0';
    }
    int fd = open(slash != NULL ? w->path : ".", O_RDONLY | O_CLOEXEC);
    if (slash != NULL) slash[1] = after;
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

weir_status weir__optimized_writer_finish(weir__optimized_writer *w, const weir__optimized_kind *kind,
                                          weir_progress_fn progress, void *user, weir_error *error)
{
    weir_status status = write_payload(w, progress, user, error);
    if (status != WEIR_OK) return status;
    header head = {
        .version = VERSION,
        .n_tensors = (uint32_t)w->n,
        .kind = *kind,
        .payload_at = payload_at((uint32_t)w->n),
        .payload_size = w->end,
        .payload_checksum = w->checksum,
    };
    memcpy(head.magic, magic, sizeof magic);
    head.checksum = header_checksum(&head, w->table);
    if (!weir__file_write(w->fd, &head, sizeof head, 0) ||
        !weir__file_write(w->fd, w->table, w->n * sizeof *w->table, sizeof head) || fsync(w->fd) != 0 ||
        rename(w->temporary, w->path) != 0)
        return refuse_unwritable(w, error);
    w->temporary[0] = '\0';
    sync_folder(w);
    if (progress != NULL) progress(1.0f, user);
    return WEIR_OK;
}
