/* file.c: reads and writes that go on after an interruption or a part; stamps of files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

bool weir__file_read(int fd, void *bytes, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t part = pread(fd, (char *)bytes + done, n - done, (off_t)(at + done));
        if (part < 0 && errno == EINTR) continue;
        if (part == 0) errno = 0;
        if (part <= 0) return false;
        done += (size_t)part;
    }
    return true;
}

bool weir__file_write(int fd, const void *bytes, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t part = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (part < 0 && errno == EINTR) continue;
        if (part == 0) errno = ENOSPC;
        if (part <= 0) return false;
        done += (size_t)part;
    }
    return true;
}

void weir__file_send(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t part = write(fd, bytes, n);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return;
        bytes += part;
        n -= (size_t)part;
    }
}

/* ---- Stamps ---- */

typedef struct stamp {
    int fd;
    char *path;
    uint64_t size;
    int64_t written_s, written_ns;
} stamp;

struct weir__stamps {
    stamp *all; /* [n] */
    size_t n, capacity;
    _Atomic int64_t due_ns; /* of the next look */
    _Atomic size_t changed; /* 0, or one more than the index of a file that has changed */
};

weir__stamps *weir__stamps_create(void)
{
    return weir__mem_calloc(1, sizeof(weir__stamps));
}

static stamp read_stamp(const struct stat *is)
{
    stamp read = {.size = (uint64_t)is->st_size, .written_s = (int64_t)is->st_mtime};
#ifdef __APPLE__
    read.written_ns = (int64_t)is->st_mtimespec.tv_nsec;
#else
    read.written_ns = (int64_t)is->st_mtim.tv_nsec;
#endif
    return read;
}

/* The path's last part: answers of a server have this error, and show no folders. */
static const char *stamp_name(const stamp *s)
{
    const char *slash = strrchr(s->path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : s->path;
}

weir_status weir__stamps_add(weir__stamps *stamps, int fd, const char *path, weir_error *error)
{
    struct stat is;
    if (fstat(fd, &is) != 0)
        return weir__error_set(error, WEIR_IO, "path", "%.200s cannot be read: %s", path, strerror(errno));
    stamp made = read_stamp(&is);
    made.path = weir__mem_strdup(path);
    if (made.path == NULL || !weir__mem_grow(&stamps->all, &stamps->capacity, stamps->n + 1, sizeof made)) {
        weir__mem_free(made.path);
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a model");
    }
    made.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (made.fd < 0) {
        weir__mem_free(made.path);
        return weir__error_set(error, WEIR_IO, "path", "%.200s cannot be kept open: %s", path,
                               strerror(errno));
    }
    stamps->all[stamps->n++] = made;
    return WEIR_OK;
}

static bool has_changed(const stamp *s)
{
    struct stat is;
    if (fstat(s->fd, &is) != 0) return true;
    stamp now = read_stamp(&is);
    return now.size != s->size || now.written_s != s->written_s || now.written_ns != s->written_ns;
}

static bool is_elsewhere(const stamp *s)
{
    struct stat own, there;
    return fstat(s->fd, &own) != 0 || stat(s->path, &there) != 0 || own.st_dev != there.st_dev ||
           own.st_ino != there.st_ino;
}

weir_status weir__stamps_settle(weir__stamps *stamps, weir_error *error)
{
    char path[WEIR__ERROR_PATH];
    for (size_t i = 0; i < stamps->n; i++)
        if (has_changed(&stamps->all[i]) || is_elsewhere(&stamps->all[i]))
            return weir__error_set(error, WEIR_IO, "path",
                                   "\"%s\" was changed while it was being loaded; load it again",
                                   weir__error_path(path, stamps->all[i].path));
    return WEIR_OK;
}

weir_status weir__stamps_check(weir__stamps *stamps, weir_error *error)
{
    if (stamps == NULL) return WEIR_OK;
    size_t changed = atomic_load_explicit(&stamps->changed, memory_order_relaxed);
    int64_t now_ns = weir__clock_now_ns();
    if (changed == 0 && now_ns >= atomic_load_explicit(&stamps->due_ns, memory_order_relaxed)) {
        for (size_t i = 0; i < stamps->n && changed == 0; i++)
            if (has_changed(&stamps->all[i])) changed = i + 1;
        if (changed > 0) atomic_store_explicit(&stamps->changed, changed, memory_order_relaxed);
        atomic_store_explicit(&stamps->due_ns, now_ns + WEIR__STAMPS_MS * WEIR__NS_PER_MS,
                              memory_order_relaxed);
    }
    if (changed == 0) return WEIR_OK;
    return weir__error_set(error, WEIR_BACKEND, "path",
                           "%.200s was changed while the model was in use; load the model again, and rename "
                           "a new file over the old one instead of writing into it",
                           stamp_name(&stamps->all[changed - 1]));
}

void weir__stamps_destroy(weir__stamps *stamps)
{
    if (stamps == NULL) return;
    for (size_t i = 0; i < stamps->n; i++) {
        close(stamps->all[i].fd);
        weir__mem_free(stamps->all[i].path);
    }
    weir__mem_free(stamps->all);
    weir__mem_free(stamps);
}
