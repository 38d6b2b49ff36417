/* folder.c: checks that the folder is the user's own, and lists, finds and opens its files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
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
