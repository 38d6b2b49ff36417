/* folder.c: checks that the folder is the user's own, and lists, finds and opens its files; finds changes by
 * other processes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Saved states are trusted, so the folder must belong to this user and be closed to all others, and a file
 * must be a regular one that only its owner may write to. Files of other names than ours are ignored. A
 * watch, which the archive's writer has, keeps the names of the last listing, sorted. When the folder's time
 * has changed, it lists the folder again and goes through both lists at once: names that are gone are news,
 * and new files are read, up to WEIR__WATCH_BATCH in one look. A time from the last SETTLED_S seconds may
 * come again after another change, so such a folder is listed anew at the next look. */
#include "cache/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"

static bool has_ending(const char *name, size_t n, const char *ending)
{
    size_t length = strlen(ending);
    return n >= length && strcmp(name + n - length, ending) == 0;
}

/* 16 digits and our ending, or a writer's unfinished file. */
static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    if (n >= WEIR__FOLDER_NAME || strspn(name, "0123456789abcdef") != 16) return false;
    return strcmp(name + 16, WEIR__FOLDER_ENDING) == 0 || has_ending(name, n, WEIR__FOLDER_PART);
}

/* True if nobody else can have a use for the folder: it has only our files, and its mode is not one of
 * folders that are shared. */
static bool is_private(int folder, mode_t mode)
{
    const struct dirent *at;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool ours = dir != NULL && (mode & (S_ISVTX | S_ISGID)) == 0;
    while (ours && (at = readdir(dir)) != NULL)
        ours = strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0 || is_ours(at->d_name);
    if (dir != NULL)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return ours;
}

static weir_status refuse_open(int folder, const char *path, mode_t mode, weir_error *error)
{
    bool lone = is_private(folder, mode); /* otherwise others, or other programs, lose what they have there */
    return weir__invalid(
        error, WEIR_ERROR_FORM, "cache_dir",
        "%.150s has mode %04o; only 0700 is allowed, since saved states are trusted and hold prompts: %s%s%s",
        path, (unsigned)mode & 07777,
        lone ? "chmod 700" : "give a folder of its own, which weir makes, such as ", lone ? "" : path,
        lone ? "" : "/weir");
}

weir_status weir__folder_open(const char *path, int *folder, weir_error *error)
{
    struct stat is;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be created: %s", path,
                               strerror(errno));
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0 || fstat(*folder, &is) != 0)
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be opened: %s", path,
                               strerror(errno));
    if (is.st_uid != geteuid())
        return weir__invalid(
            error, WEIR_ERROR_FORM, "cache_dir",
            "%.200s belongs to user %ld, this process is user %ld: saved states are trusted, so they must be "
            "its own; give a folder of this user, or a new one, which weir makes",
            path, (long)is.st_uid, (long)geteuid());
    if ((is.st_mode & 077) != 0) return refuse_open(*folder, path, is.st_mode, error);
    return WEIR_OK;
}

bool weir__folder_is_complete(const char *name)
{
    return has_ending(name, strlen(name), WEIR__FOLDER_ENDING);
}

bool weir__folder_find(int folder, const char *name, weir__folder_file *file)
{
    struct stat is;
    if (!is_ours(name) || fstatat(folder, name, &is, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(is.st_mode))
        return false;
    memcpy(file->name, name, strlen(name) + 1); /* is_ours has checked its length */
    file->n_bytes = is.st_size > 0 ? (uint64_t)is.st_size : 0;
#ifdef __APPLE__
    file->used = is.st_mtimespec;
#else
    file->used = is.st_mtim;
#endif
    return true;
}

weir_status weir__folder_list(int folder, const char *path, weir__folder_file **files, size_t *n,
                              weir_error *error)
{
    weir__folder_file *all = NULL;
    size_t n_all = 0, capacity = 0;
    const struct dirent *at;
    bool enough = true;
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) close(fd);
        return weir__error_set(error, WEIR_IO, "cache_dir", "%.200s cannot be read: %s", path,
                               strerror(errno));
    }
    while (enough && (at = readdir(dir)) != NULL) {
        weir__folder_file file;
        if (!weir__folder_find(folder, at->d_name, &file)) continue;
        enough = weir__mem_grow(&all, &capacity, n_all + 1, sizeof *all);
        if (enough) all[n_all++] = file;
    }
    closedir(dir);
    *files = all;
    *n = n_all;
    if (enough) return WEIR_OK;
    weir__mem_free(all);
    return weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for the files of %.200s", path);
}

weir_status weir__folder_open_file(int folder, const char *name, int *fd, weir_error *error)
{
    struct stat is;
    /* O_NONBLOCK: opening a FIFO must not block */
    *fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return weir__error_set(error, errno == ENOENT ? WEIR_NOT_FOUND : WEIR_IO, "",
                               "it cannot be opened: %s", strerror(errno));
    if (fstat(*fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_uid == geteuid() && (is.st_mode & 022) == 0)
        return WEIR_OK;
    close(*fd);
    return weir__error_set(error, WEIR_IO, "", "it is not a regular file that only its owner can write to");
}

bool weir__folder_is_later(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* ---- Changes by other processes ---- */

/* A folder that changed so recently may change again with the same time. */
#define SETTLED_S 2

static int by_name(const void *a, const void *b)
{
    const weir__folder_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static void sort_names(weir__folder_file *files, size_t n)
{
    if (n > 0) qsort(files, n, sizeof *files, by_name);
}

void weir__watch_init(weir__watch *watch, int folder, const char *path, const weir__snapshot_limits *limits,
                      weir__folder_file *files, size_t n)
{
    *watch = (weir__watch){
        .folder = folder, .path = path, .limits = *limits, .known = files, .n_known = n, .capacity = n};
    sort_names(files, n);
}

void weir__watch_fini(weir__watch *watch)
{
    weir__mem_free(watch->known);
    *watch = (weir__watch){.folder = -1};
}

/* The index at which the name is, or would be inserted. */
static size_t place_of(const weir__watch *watch, const char *name, bool *there)
{
    size_t at = 0, end = watch->n_known;
    while (at < end) {
        size_t middle = at + (end - at) / 2;
        if (strcmp(watch->known[middle].name, name) < 0)
            at = middle + 1;
        else
            end = middle;
    }
    *there = at < watch->n_known && strcmp(watch->known[at].name, name) == 0;
    return at;
}

void weir__watch_add(weir__watch *watch, const char *name)
{
    bool there;
    size_t at = place_of(watch, name, &there);
    if (there || !weir__mem_grow(&watch->known, &watch->capacity, watch->n_known + 1, sizeof *watch->known))
        return;
    weir__folder_file *file = &watch->known[at];
    memmove(file + 1, file, (watch->n_known - at) * sizeof *file);
    *file = (weir__folder_file){0};
    memcpy(file->name, name, strlen(name) + 1);
    watch->n_known++;
}

void weir__watch_drop(weir__watch *watch, const char *name)
{
    bool there;
    size_t at = place_of(watch, name, &there);
    if (!there) return;
    weir__folder_file *file = &watch->known[at];
    memmove(file, file + 1, (--watch->n_known - at) * sizeof *file);
}

void weir__watch_news_fini(weir__watch_news *news)
{
    for (size_t i = 0; i < news->n_added; i++) weir__snapshot_fini(&news->added[i].text);
    weir__mem_free(news->removed);
    news->removed = NULL;
    news->n_added = news->n_removed = 0;
}

weir_status weir__watch_read(const weir__watch *watch, const char *name, weir__snapshot *text)
{
    int fd;
    weir_error error = {0};
    weir_status status = weir__folder_open_file(watch->folder, name, &fd, &error);
    if (status == WEIR_OK) {
        status = weir__snapshot_read(text, &watch->limits, fd, &error);
        close(fd);
    }
    if (status != WEIR_OK && status != WEIR_UNSUPPORTED && status != WEIR_NOT_FOUND)
        weir__log(WEIR_LOG_WARN, "%s/%s is ignored: %s", watch->path, name, weir__error_words(&error).text);
    return status;
}

/* True if the folder may have changed since the last look. */
static bool has_changed(weir__watch *watch)
{
    struct stat is;
    struct timespec now, at = {0};
    if (fstat(watch->folder, &is) != 0) return false;
    if (is.st_nlink == 0 && !watch->gone)
        weir__log(WEIR_LOG_WARN, "%s was removed: it is not used until the next start", watch->path);
    watch->gone = is.st_nlink == 0;
#ifdef __APPLE__
    at = is.st_mtimespec;
#else
    at = is.st_mtim;
#endif
    if (at.tv_sec == watch->changed.tv_sec && at.tv_nsec == watch->changed.tv_nsec) return false;
    clock_gettime(CLOCK_REALTIME, &now);
    bool settled = labs((long)(now.tv_sec - at.tv_sec)) > SETTLED_S;
    watch->changed = settled ? at : (struct timespec){0};
    return true;
}

/* Reads a file that was added. False: it is gone again. */
static bool read_added(const weir__watch *watch, const weir__folder_file *file, weir__watch_news *news)
{
    weir__watch_file *added = &news->added[news->n_added];
    *added = (weir__watch_file){.file = *file};
    if (weir__watch_read(watch, file->name, &added->text) == WEIR_NOT_FOUND) return false;
    news->n_added++;
    return true;
}

bool weir__watch_look(weir__watch *watch, weir__watch_news *news)
{
    weir__folder_file *files = NULL;
    size_t n = 0, n_kept = 0, at = 0;
    *news = (weir__watch_news){0};
    if (!has_changed(watch)) return false;
    bool listed = weir__folder_list(watch->folder, watch->path, &files, &n, NULL) == WEIR_OK;
    if (listed && watch->n_known > 0) {
        news->removed = weir__mem_alloc(watch->n_known * sizeof *news->removed);
        if (news->removed == NULL) weir__mem_free(files);
        listed = news->removed != NULL;
    }
    if (!listed) {
        watch->changed = (struct timespec){0};
        return false;
    }
    sort_names(files, n);
    for (size_t i = 0; i < n; i++) { /* both in the order of their names; known files stay, others are read */
        while (at < watch->n_known && by_name(&watch->known[at], &files[i]) < 0)
            news->removed[news->n_removed++] = watch->known[at++];
        bool known = at < watch->n_known && by_name(&watch->known[at], &files[i]) == 0;
        at += known;
        bool full = news->n_added == WEIR__WATCH_BATCH;
        bool added = !known && weir__folder_is_complete(files[i].name);
        news->more = news->more || (added && full);
        if (known || (added && !full && read_added(watch, &files[i], news))) files[n_kept++] = files[i];
    }
    while (at < watch->n_known) news->removed[news->n_removed++] = watch->known[at++];
    weir__mem_free(watch->known);
    watch->known = files;
    watch->n_known = n_kept;
    watch->capacity = n;
    if (news->more) watch->changed = (struct timespec){0};
    if (news->n_added > 0 || news->n_removed > 0) return true;
    weir__watch_news_fini(news);
    return false;
}
