/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#define ENDING    ".weirkv"
#define PART      ".part"
#define FILES_MAX 16384 /* the tokens of all of them are in memory */

typedef enum phase { IDLE, GIVEN, WRITTEN, FAILED } phase;

/* The mutex protects the members below it. The driver owns the list, n_bytes and n_files; the rest is
 * constant after open. Invariant: n_bytes is the sum over the list. */
struct weir__archive {
    weir__archive_params params; /* path: a copy */
    int folder;
    weir__archive_file *newest, *oldest;
    uint64_t n_bytes;
    size_t n_files;
    pthread_t thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closing;
    bool failing;               /* was logged */
    weir__archive_file *doomed; /* to be unlinked and freed, by `older` */
    phase phase;
    weir__snapshot text; /* of `state`; the writer's while GIVEN, the driver's afterwards */
    void *state;
    bool owned;
};

/* ---- The list ---- */

static void list_in(weir__archive *a, weir__archive_file *file)
{
    file->newer = NULL;
    file->older = a->newest;
    if (a->newest != NULL)
        a->newest->newer = file;
    else
        a->oldest = file;
    a->newest = file;
    a->n_bytes += file->n_bytes;
    a->n_files++;
}

static void list_out(weir__archive *a, weir__archive_file *file)
{
    if (file->newer != NULL)
        file->newer->older = file->older;
    else
        a->newest = file->older;
    if (file->older != NULL)
        file->older->newer = file->newer;
    else
        a->oldest = file->newer;
    a->n_bytes -= file->n_bytes;
    a->n_files--;
}

static weir__archive_file *find_file(const weir__archive *a, const char *name)
{
    weir__archive_file *file = a->newest;
    while (file != NULL && strcmp(file->name, name) != 0) file = file->older;
    return file;
}

uint64_t weir__archive_bytes(const weir__archive *a)
{
    return a->n_bytes;
}

/* ---- The writer ---- */

static void file_name(const weir__archive *a, char name[WEIR__ARCHIVE_NAME])
{
    snprintf(name, WEIR__ARCHIVE_NAME, "%016" PRIx64 ENDING, weir__snapshot_name(&a->text));
}

/* Has another name until it is complete. Not synchronized: after a power loss the checksums reveal a damaged
 * file, and its tokens are computed again. */
static bool write_file(weir__archive *a)
{
    char name[WEIR__ARCHIVE_NAME], part[WEIR__ARCHIVE_NAME];
    file_name(a, name);
    snprintf(part, sizeof part, "%016" PRIx64 ".%ld" PART, weir__snapshot_name(&a->text), (long)getpid());
    unlinkat(a->folder, part, 0); /* of an earlier process with this id */
    int fd = openat(a->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool done = weir__snapshot_write(&a->text, a->state, fd);
    int why = errno;
    if (close(fd) != 0 && done) {
        done = false;
        why = errno;
    }
    if (done && renameat(a->folder, part, a->folder, name) == 0) return true;
    if (done) why = errno;
    unlinkat(a->folder, part, 0);
    errno = why;
    return false;
}

static void unlink_all(const weir__archive *a, weir__archive_file *doomed)
{
    while (doomed != NULL) {
        weir__archive_file *next = doomed->older;
        unlinkat(a->folder, doomed->name, 0); /* another process may have removed it */
        weir__mem_free(doomed);
        doomed = next;
    }
}

static void *run_writer(void *user)
{
    weir__archive *a = user;
    pthread_mutex_lock(&a->mutex);
    for (;;) {
        while (!a->closing && a->doomed == NULL && a->phase != GIVEN)
            pthread_cond_wait(&a->changed, &a->mutex);
        weir__archive_file *doomed = a->doomed;
        bool given = a->phase == GIVEN, failing = a->failing;
        a->doomed = NULL;
        if (doomed == NULL && !given) break;
        pthread_mutex_unlock(&a->mutex);
        unlink_all(a, doomed); /* first, to make room */
        bool done = given && write_file(a);
        if (given && !done && !failing)
            weir__log(WEIR_LOG_WARN, "%s: cached prompts cannot be saved: %s", a->params.path,
                      strerror(errno));
        pthread_mutex_lock(&a->mutex);
        if (!given) continue;
        a->failing = !done;
        a->phase = done ? WRITTEN : FAILED;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->mutex);
        a->params.ring(a->params.user);
        pthread_mutex_lock(&a->mutex);
    }
    pthread_mutex_unlock(&a->mutex);
    return NULL;
}

static phase writer_phase(const weir__archive *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&a->mutex;
    pthread_mutex_lock(mutex);
    phase is = a->phase;
    pthread_mutex_unlock(mutex);
    return is;
}

bool weir__archive_is_busy(const weir__archive *a)
{
    return writer_phase(a) != IDLE;
}

static uint64_t file_size(const weir__prefix_key *key, int32_t n_tokens, uint64_t state_size)
{
    const weir__snapshot s = {
        .head = {.n_tokens = (uint32_t)n_tokens, .salt_length = key->salt_length, .state_size = state_size}};
    return weir__snapshot_size(&s);
}

bool weir__archive_fits(const weir__archive *a, const weir__prefix_key *key, int32_t n_tokens,
                        uint64_t state_size)
{
    return key->salt_length <= WEIR__SNAPSHOT_SALT_MAX && state_size <= a->params.n_bytes &&
           file_size(key, n_tokens, state_size) <= a->params.n_bytes;
}

weir__archive_file *weir__archive_crowded(const weir__archive *a, const weir__prefix_key *key,
                                          int32_t n_tokens, uint64_t state_size)
{
    bool fits = a->n_bytes + file_size(key, n_tokens, state_size) <= a->params.n_bytes;
    return fits && a->n_files < FILES_MAX ? NULL : a->oldest;
}

bool weir__archive_put(weir__archive *a, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       void *state, size_t size, bool owned)
{
    weir__snapshot text;
    if (!weir__snapshot_init(&text, a->params.limits.kind, key, tokens, n, size)) return false;
    pthread_mutex_lock(&a->mutex);
    a->text = text;
    a->state = state;
    a->owned = owned;
    a->phase = GIVEN;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
    return true;
}

bool weir__archive_adopt(weir__archive *a, const void *state)
{
    if (state == NULL || writer_phase(a) == IDLE || a->state != state) return false;
    a->owned = true;
    return true;
}

const weir__snapshot *weir__archive_collect(weir__archive *a, weir__archive_file **file)
{
    phase is = writer_phase(a);
    if (is != WRITTEN && is != FAILED) return NULL;
    char name[WEIR__ARCHIVE_NAME];
    file_name(a, name);
    weir__archive_file *before = find_file(a, name);
    bool taken = before != NULL && before->owner != NULL; /* two texts with the same name */
    *file = is == WRITTEN && !taken ? weir__mem_calloc(1, sizeof **file) : NULL;
    if (*file == NULL) return &a->text; /* a file that is not in the list is found by the next process */
    memcpy((*file)->name, name, sizeof name);
    (*file)->checksum = a->text.head.checksum;
    (*file)->n_bytes = weir__snapshot_size(&a->text);
    if (before != NULL) { /* was not usable, and is replaced */
        list_out(a, before);
        weir__mem_free(before);
    }
    list_in(a, *file);
    return &a->text;
}

void weir__archive_clear(weir__archive *a)
{
    if (a->owned) weir__mem_free(a->state);
    weir__snapshot_fini(&a->text);
    a->state = NULL;
    a->owned = false;
    pthread_mutex_lock(&a->mutex);
    a->phase = IDLE;
    pthread_mutex_unlock(&a->mutex);
}

void weir__archive_wait(weir__archive *a)
{
    pthread_mutex_lock(&a->mutex);
    while (a->phase == GIVEN) pthread_cond_wait(&a->changed, &a->mutex);
    pthread_mutex_unlock(&a->mutex);
}

void weir__archive_remove(weir__archive *a, weir__archive_file *file)
{
    list_out(a, file);
    pthread_mutex_lock(&a->mutex);
    file->older = a->doomed;
    a->doomed = file;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
}

/* ---- Reading ---- */

/* Opens a regular file that only its owner, this user, can write to. */
static weir_status open_file(const weir__archive *a, const char *name, int *fd, weir_error *error)
{
    struct stat is;
    /* O_NONBLOCK: opening a FIFO must not block */
    *fd = openat(a->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return weir__error_set(error, errno == ENOENT ? WEIR_NOT_FOUND : WEIR_IO, "",
                               "it cannot be opened: %s", strerror(errno));
    if (fstat(*fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() && (is.st_mode & 022) == 0)
        return WEIR_OK;
    close(*fd);
    return weir__error_set(error, WEIR_IO, "", "it is not a regular file that only its owner can write to");
}

weir_status weir__archive_read(weir__archive *a, weir__archive_file *file, void **state, size_t *size,
                               weir_error *error)
{
    int fd;
    weir__snapshot s = {0};
    weir_status status = open_file(a, file->name, &fd, error);
    if (status != WEIR_OK) return status;
    status = weir__snapshot_read(&s, &a->params.limits, fd, error);
    if (status == WEIR_OK && s.head.checksum != file->checksum)
        status = weir__error_set(error, WEIR_FORMAT, "", "its content has changed");
    if (status == WEIR_OK) status = weir__snapshot_read_state(&s, fd, state, error);
    if (status == WEIR_OK) {
        *size = s.head.state_size;
        futimens(fd, NULL); /* gives the next process the order */
        list_out(a, file);
        list_in(a, file);
    }
    weir__snapshot_fini(&s);
    close(fd);
    return status;
}

/* ---- The folder ---- */

static int by_age(const void *a, const void *b)
{
    const weir__archive_file *x = *(weir__archive_file *const *)a, *y = *(weir__archive_file *const *)b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* 16 digits and our ending, or a writer's unfinished file. */
static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    if (n >= WEIR__ARCHIVE_NAME || strspn(name, "0123456789abcdef") != 16) return false;
    return strcmp(name + 16, ENDING) == 0 || strcmp(name + n - strlen(PART), PART) == 0;
}

/* *file: NULL if it is none of ours. False: out of memory. */
static bool read_name(const weir__archive *a, const char *name, weir__archive_file **file)
{
    struct stat is;
    *file = NULL;
    if (!is_ours(name) || fstatat(a->folder, name, &is, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(is.st_mode))
        return true;
    *file = weir__mem_calloc(1, sizeof **file);
    if (*file == NULL) return false;
    memcpy((*file)->name, name, strlen(name) + 1); /* is_ours has checked its length */
    (*file)->n_bytes = is.st_size > 0 ? (uint64_t)is.st_size : 0;
#ifdef __APPLE__
    (*file)->used = is.st_mtimespec;
#else
    (*file)->used = is.st_mtim;
#endif
    return true;
}

/* Lists the files, the last used one as the newest. */
static weir_status list_folder(weir__archive *a, weir_error *error)
{
    weir_status status = WEIR_OK;
    weir__archive_file **all = NULL;
    size_t n = 0, capacity = 0;
    const struct dirent *at;
    int fd = openat(a->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) close(fd);
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be read: %s", a->params.path,
                               strerror(errno));
    }
    while (status == WEIR_OK && (at = readdir(dir)) != NULL) {
        weir__archive_file *file;
        if (!read_name(a, at->d_name, &file) || !weir__mem_grow(&all, &capacity, n + 1, sizeof *all))
            status = weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for the files of %.200s",
                                     a->params.path);
        if (status == WEIR_OK && file != NULL)
            all[n++] = file;
        else
            weir__mem_free(file);
    }
    closedir(dir);
    if (n > 0) qsort(all, n, sizeof *all, by_age);
    for (size_t i = 0; i < n; i++) {
        if (status == WEIR_OK)
            list_in(a, all[i]);
        else
            weir__mem_free(all[i]);
    }
    weir__mem_free(all);
    return status;
}

void weir__archive_index(weir__archive *a, weir__archive_fn found, void *user)
{
    size_t n_other = 0;
    while (a->oldest != NULL && (a->n_bytes > a->params.n_bytes || a->n_files > FILES_MAX))
        weir__archive_remove(a, a->oldest);
    for (weir__archive_file *file = a->oldest; file != NULL; file = file->newer) {
        int fd;
        weir__snapshot s = {0};
        weir_error error = {0};
        if (strcmp(file->name + 16, ENDING) != 0) continue;
        weir_status status = open_file(a, file->name, &fd, &error);
        if (status == WEIR_OK) {
            status = weir__snapshot_read(&s, &a->params.limits, fd, &error);
            close(fd);
        }
        if (status == WEIR_OK) {
            file->checksum = s.head.checksum;
            file->owner = found(file, &s, user);
            weir__snapshot_fini(&s);
        } else if (status == WEIR_UNSUPPORTED) {
            n_other++;
        } else {
            weir__log(WEIR_LOG_WARN, "%s/%s is ignored: %s", a->params.path, file->name, error.message);
        }
    }
    if (n_other > 0)
        weir__log(WEIR_LOG_INFO, "%s: %zu cached prompts of other models, layouts, KV types or versions",
                  a->params.path, n_other);
}

/* ---- Life ---- */

/* Opens the folder once: later changes of the path do not matter. */
static weir_status open_folder(weir__archive *a, weir_error *error)
{
    struct stat is;
    const char *path = a->params.path;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be created: %s", path,
                               strerror(errno));
    a->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->folder < 0 || fstat(a->folder, &is) != 0)
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be opened: %s", path,
                               strerror(errno));
    if (is.st_uid != geteuid())
        return weir__error_set(error, WEIR_INVALID, "cache_dir",
                               "%.200s belongs to user %ld, this process is user %ld: saved states are "
                               "trusted, so they must be its own",
                               path, (long)is.st_uid, (long)geteuid());
    if ((is.st_mode & 077) != 0)
        return weir__error_set(
            error, WEIR_INVALID, "cache_dir",
            "%.200s has mode %04o; only 0700 is allowed, since saved states are trusted and "
            "hold prompts: chmod 700",
            path, (unsigned)is.st_mode & 07777);
    return WEIR_OK;
}

static void free_archive(weir__archive *a)
{
    for (weir__archive_file *file = a->newest, *next; file != NULL; file = next) {
        next = file->older;
        weir__mem_free(file);
    }
    if (a->folder >= 0) close(a->folder);
    weir__mem_free((char *)a->params.path);
    weir__mem_free(a);
}

weir_status weir__archive_open(const weir__archive_params *params, weir__archive **archive, weir_error *error)
{
    weir__archive *a = weir__mem_calloc(1, sizeof *a);
    if (a == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for cache_dir");
    a->params = *params;
    a->folder = -1;
    a->params.path = weir__mem_strdup(params->path);
    weir_status status = a->params.path != NULL
                             ? open_folder(a, error)
                             : weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for cache_dir");
    if (status == WEIR_OK) status = list_folder(a, error);
    if (status != WEIR_OK) goto no_folder;
    status = WEIR_NO_MEMORY;
    if (pthread_mutex_init(&a->mutex, NULL) != 0) goto no_mutex;
    if (pthread_cond_init(&a->changed, NULL) != 0) goto no_cond;
    if (weir__thread_start(&a->thread, NULL, run_writer, a) != 0) goto no_thread;
    *archive = a;
    return WEIR_OK;

no_thread:
    pthread_cond_destroy(&a->changed);
no_cond:
    pthread_mutex_destroy(&a->mutex);
no_mutex:
    weir__error_set(error, status, "cache_dir", "no thread for cache_dir: the process has reached a limit");
no_folder:
    free_archive(a);
    return status;
}

void weir__archive_close(weir__archive *a)
{
    if (a == NULL) return;
    pthread_mutex_lock(&a->mutex);
    a->closing = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->mutex);
    pthread_join(a->thread, NULL);
    if (a->phase != IDLE) weir__archive_clear(a);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->mutex);
    free_archive(a);
}
