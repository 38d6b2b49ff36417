/* cache.c: paths, locks and files of the cache.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A blob is named by its checksum, and names of files are links to blobs, in one folder for each commit.
 * Locks are those that Hugging Face's clients take. Listing walks the folders of commits. Removing takes the
 * names away first, and then each blob that no name leads to. */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/text.h"

#define DEPTH_MAX 16 /* of folders in a repository */
#define PREFIX    "models--"

static weir_status no_memory(weir_error *error)
{
    weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "out of memory for the model cache");
    return WEIR_NO_MEMORY;
}

static weir_status refuse_path(const char *what, const char *path, weir_error *error)
{
    weir__error_set(error, WEIR_IO, "cache_dir", "%.250s cannot be %s: %s", path, what, strerror(errno));
    return WEIR_IO;
}

/* ---- Paths ---- */

/* "models--OWNER--REPO"; NULL: out of memory. */
static char *folder_name(const char *repo)
{
    const char *slash = strchr(repo, '/');
    return weir__text_format(PREFIX "%.*s--%s", (int)(slash - repo), repo, slash + 1);
}

static char *repo_folder(const char *cache, const char *repo)
{
    char *name = folder_name(repo);
    char *path = name != NULL ? weir__text_format("%s/%s", cache, name) : NULL;
    weir__mem_free(name);
    return path;
}

static char *path_below(const char *cache, const char *repo, const char *a, const char *b)
{
    char *folder = repo_folder(cache, repo);
    char *path = folder != NULL ? weir__text_format("%s/%s/%s", folder, a, b) : NULL;
    weir__mem_free(folder);
    return path;
}

char *weir__cache_blob(const char *cache, const char *repo, const char *blob)
{
    return path_below(cache, repo, "blobs", blob);
}

char *weir__cache_file(const char *cache, const char *repo, const char *commit, const char *name)
{
    char *snapshot = path_below(cache, repo, "snapshots", commit);
    char *path = snapshot != NULL ? weir__text_format("%s/%s", snapshot, name) : NULL;
    weir__mem_free(snapshot);
    return path;
}

weir_status weir__cache_make_parents(const char *path, weir_error *error)
{
    weir_status status = WEIR_OK;
    char *part = weir__mem_strdup(path);
    if (part == NULL) return no_memory(error);
    for (char *c = part + 1; *c != '\0' && status == WEIR_OK; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) status = refuse_path("made", part, error);
        *c = '/';
    }
    weir__mem_free(part);
    return status;
}

/* ---- Locks ---- */

/* True if the file that was locked is still the one of that name. */
static bool is_current(int descriptor, const char *path)
{
    struct stat mine, now;
    return fstat(descriptor, &mine) == 0 && stat(path, &now) == 0 && mine.st_ino == now.st_ino &&
           mine.st_dev == now.st_dev;
}

static weir_status lock_path(const char *path, bool try_once, bool (*tick)(void *user), void *user,
                             int *descriptor, weir_error *error)
{
    const struct timespec nap = {.tv_nsec = 100000000};
    for (;;) {
        int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (opened < 0) return refuse_path("opened", path, error);
        while (flock(opened, LOCK_EX | LOCK_NB) != 0) {
            int code = errno;
            weir_status status = WEIR_OK;
            if (code != EWOULDBLOCK && code != EINTR)
                status = refuse_path("locked", path, error);
            else if (try_once)
                status =
                    weir__error_set(error, WEIR_STATE, "name", "it is being downloaded; try again later");
            else if (tick != NULL && !tick(user))
                status =
                    weir__error_set(error, WEIR_ABORTED, "progress", "the caller's callback asked to stop");
            if (status != WEIR_OK) {
                close(opened);
                return status;
            }
            nanosleep(&nap, NULL);
        }
        if (is_current(opened, path)) {
            *descriptor = opened;
            return WEIR_OK;
        }
        close(opened); /* its last holder has removed it */
    }
}

weir_status weir__cache_lock(const char *cache, const char *repo, const char *blob, bool try_once,
                             bool (*tick)(void *user), void *user, int *descriptor, weir_error *error)
{
    char *name = folder_name(repo);
    char *path = name != NULL ? weir__text_format("%s/.locks/%s/%s.lock", cache, name, blob) : NULL;
    weir_status status = path != NULL ? weir__cache_make_parents(path, error) : no_memory(error);
    if (status == WEIR_OK) status = lock_path(path, try_once, tick, user, descriptor, error);
    weir__mem_free(name);
    weir__mem_free(path);
    return status;
}

/* ---- Revisions ---- */

weir_status weir__cache_commit(const char *cache, const char *repo, const char *revision, char commit[65])
{
    char text[66] = "";
    if (weir__name_is_commit(revision)) {
        snprintf(commit, 65, "%.64s", revision);
        return WEIR_OK;
    }
    char *path = path_below(cache, repo, "refs", revision);
    if (path == NULL) return WEIR_NO_MEMORY;
    FILE *file = fopen(path, "re");
    weir__mem_free(path);
    if (file == NULL) return WEIR_NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = '\0';
    if (!weir__name_is_commit(text)) return WEIR_NOT_FOUND;
    snprintf(commit, 65, "%.64s", text);
    return WEIR_OK;
}

weir_status weir__cache_set_ref(const char *cache, const char *repo, const char *revision, const char *commit,
                                weir_error *error)
{
    if (strcmp(revision, commit) == 0) return WEIR_OK;
    char *path = path_below(cache, repo, "refs", revision);
    char *fresh = path != NULL ? weir__text_format("%s.%ld.new", path, (long)getpid()) : NULL;
    weir_status status = fresh != NULL ? weir__cache_make_parents(path, error) : no_memory(error);
    FILE *file = status == WEIR_OK ? fopen(fresh, "we") : NULL;
    if (status == WEIR_OK && file == NULL) status = refuse_path("written", fresh, error);
    if (file != NULL) {
        bool ok = fputs(commit, file) >= 0;
        ok = fclose(file) == 0 && ok;
        if (!ok || rename(fresh, path) != 0) {
            status = refuse_path("written", path, error);
            unlink(fresh);
        }
    }
    weir__mem_free(fresh);
    weir__mem_free(path);
    return status;
}

/* ---- Snapshots ---- */

weir_status weir__cache_link(const char *cache, const char *repo, const char *commit, const char *name,
                             const char *blob, weir_error *error)
{
    char target[PATH_MAX] = "../../";
    weir_status status = WEIR_OK;
    char *path = weir__cache_file(cache, repo, commit, name);
    char *fresh = path != NULL ? weir__text_format("%s.%ld.new", path, (long)getpid()) : NULL;
    if (fresh == NULL) {
        status = no_memory(error);
        goto done;
    }
    size_t n = strlen(target);
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '/' && n + 4 < sizeof target) n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "blobs/%s", blob);
    if ((status = weir__cache_make_parents(path, error)) != WEIR_OK) goto done;
    unlink(fresh);
    if (symlink(target, fresh) != 0 || rename(fresh, path) != 0) {
        status = refuse_path("made (the folder of models must allow symbolic links)", path, error);
        unlink(fresh);
    }
done:
    weir__mem_free(fresh);
    weir__mem_free(path);
    return status;
}

/* Called for each file of a snapshot: `name` in it, `path`, and the blob that it links to ("" = none). */
typedef weir_status visit_fn(const char *name, const char *path, const char *blob, void *user);

/* The last part of a link's target, where that is a blob's name. */
static void blob_of(const char *path, char blob[65])
{
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    blob[0] = '\0';
    if (n <= 0) return;
    target[n] = '\0';
    const char *last = strrchr(target, '/');
    last = last != NULL ? last + 1 : target;
    if (weir__name_is_hex(last, strlen(last) == 64 ? 64 : 40)) snprintf(blob, 65, "%.64s", last);
}

/* Calls visit for each GGUF file below a folder. Folders that are links are not entered. */
static weir_status walk_folder(const char *folder, const char *prefix, int depth, visit_fn *visit, void *user)
{
    weir_status status = WEIR_OK;
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    if (dir == NULL) return WEIR_OK;
    while (status == WEIR_OK && (entry = readdir(dir)) != NULL) {
        struct stat st;
        if (entry->d_name[0] == '.') continue;
        char *path = weir__text_format("%s/%s", folder, entry->d_name);
        char *name = weir__text_format("%s%s", prefix, entry->d_name);
        char *inner = name != NULL ? weir__text_format("%s/", name) : NULL;
        if (path == NULL || inner == NULL)
            status = WEIR_NO_MEMORY;
        else if (lstat(path, &st) != 0)
            status = WEIR_OK;
        else if (S_ISDIR(st.st_mode))
            status = depth < DEPTH_MAX ? walk_folder(path, inner, depth + 1, visit, user) : WEIR_OK;
        else if (weir__name_is_safe(name) && weir__name_is_model(name)) {
            char blob[65];
            blob_of(path, blob);
            status = visit(name, path, blob, user);
        }
        weir__mem_free(inner);
        weir__mem_free(name);
        weir__mem_free(path);
    }
    closedir(dir);
    return status;
}

/* ---- Listing ---- */

struct scan {
    const char *repo;
    weir__name_files *files;
};

static weir_status add_file(const char *name, const char *path, const char *blob, void *user)
{
    const struct scan *scan = user;
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return WEIR_OK; /* its blob is gone */
    weir__name_file *file = weir__name_files_add(scan->files, scan->repo, name);
    if (file == NULL || (file->path = weir__mem_strdup(path)) == NULL ||
        (file->blob = weir__mem_strdup(blob)) == NULL)
        return WEIR_NO_MEMORY;
    file->n_bytes = (uint64_t)st.st_size;
    if (strlen(blob) == 64) memcpy(file->sha256, blob, sizeof file->sha256);
    return WEIR_OK;
}

weir_status weir__cache_scan(const char *cache, const char *repo, const char *commit, weir__name_files *files)
{
    struct scan scan = {.repo = repo, .files = files};
    char *folder = path_below(cache, repo, "snapshots", commit);
    weir_status status = folder != NULL ? walk_folder(folder, "", 0, add_file, &scan) : WEIR_NO_MEMORY;
    weir__mem_free(folder);
    weir__name_files_sort(files);
    snprintf(files->commit, sizeof files->commit, "%.64s", commit);
    return status;
}

/* "OWNER/REPO" of "models--OWNER--REPO"; false: it is none. */
static bool repo_of(const char *folder, char repo[WEIR__NAME_REPO_MAX])
{
    weir__name name;
    const char *owner = folder + sizeof PREFIX - 1;
    if (strncmp(folder, PREFIX, sizeof PREFIX - 1) != 0) return false;
    const char *gap = strstr(owner, "--");
    if (gap == NULL) return false;
    char *text = weir__text_format("hf:%.*s/%s", (int)(gap - owner), owner, gap + 2);
    bool ok = text != NULL && strchr(text + 3, ':') == NULL && weir__name_parse(text, &name, NULL) == WEIR_OK;
    weir__mem_free(text);
    if (ok) memcpy(repo, name.repo, sizeof name.repo);
    return ok;
}

/* Calls each for every snapshot of a repository. */
static weir_status each_snapshot(const char *cache, const char *repo,
                                 weir_status (*each)(const char *cache, const char *repo, const char *commit,
                                                     void *user),
                                 void *user)
{
    weir_status status = WEIR_OK;
    char *folder = path_below(cache, repo, "snapshots", "");
    if (folder == NULL) return WEIR_NO_MEMORY;
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    weir__mem_free(folder);
    if (dir == NULL) return WEIR_OK;
    while (status == WEIR_OK && (entry = readdir(dir)) != NULL)
        if (weir__name_is_commit(entry->d_name)) status = each(cache, repo, entry->d_name, user);
    closedir(dir);
    return status;
}

static weir_status scan_snapshot(const char *cache, const char *repo, const char *commit, void *user)
{
    return weir__cache_scan(cache, repo, commit, user);
}

/* Drops files that have the same contents under the same name in another revision: they count once. */
static void drop_repeats(weir__name_files *files)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->n; i++) {
        weir__name_file *file = &files->items[i];
        bool repeated = false;
        for (size_t k = kept; k-- > 0 && !repeated;) {
            const weir__name_file *other = &files->items[k];
            if (strcmp(other->repo, file->repo) != 0 || strcmp(other->name, file->name) != 0) break;
            repeated = file->blob[0] != '\0' && strcmp(other->blob, file->blob) == 0;
        }
        weir__name_file moved = *file;
        if (repeated) {
            weir__mem_free(moved.repo);
            weir__mem_free(moved.name);
            weir__mem_free(moved.path);
            weir__mem_free(moved.blob);
        } else
            files->items[kept++] = moved;
    }
    files->n = kept;
}

weir_status weir__cache_scan_all(const char *cache, weir__name_files *files)
{
    weir_status status = WEIR_OK;
    DIR *dir = opendir(cache);
    const struct dirent *entry;
    if (dir == NULL) return WEIR_OK;
    while (status == WEIR_OK && (entry = readdir(dir)) != NULL) {
        char repo[WEIR__NAME_REPO_MAX];
        if (repo_of(entry->d_name, repo)) status = each_snapshot(cache, repo, scan_snapshot, files);
    }
    closedir(dir);
    weir__name_files_sort(files);
    if (status == WEIR_OK) drop_repeats(files);
    files->commit[0] = '\0';
    return status;
}

/* ---- Removing ---- */

/* Removes a folder and its contents; links are removed, not followed. */
static weir_status remove_tree(const char *folder, int depth, uint64_t *n_bytes, weir_error *error)
{
    weir_status status = WEIR_OK;
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    if (dir == NULL) return refuse_path("read", folder, error);
    while (status == WEIR_OK && (entry = readdir(dir)) != NULL) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = weir__text_format("%s/%s", folder, entry->d_name);
        if (path == NULL)
            status = no_memory(error);
        else if (lstat(path, &st) != 0)
            status = errno == ENOENT ? WEIR_OK : refuse_path("read", path, error);
        else if (S_ISDIR(st.st_mode))
            status = depth < DEPTH_MAX + 4
                         ? remove_tree(path, depth + 1, n_bytes, error)
                         : weir__error_set(error, WEIR_IO, "cache_dir", "%.250s is too deep", path);
        else if (unlink(path) != 0)
            status = refuse_path("removed", path, error);
        else if (S_ISREG(st.st_mode))
            *n_bytes += (uint64_t)st.st_size;
        weir__mem_free(path);
    }
    closedir(dir);
    if (status == WEIR_OK && rmdir(folder) != 0) status = refuse_path("removed", folder, error);
    return status;
}

/* STATE: some blob of the repository is on its way. */
static weir_status check_idle(const char *cache, const char *repo, weir_error *error)
{
    static const char suffix[] = ".incomplete";
    weir_status status = WEIR_OK;
    char *blobs = path_below(cache, repo, "blobs", "");
    if (blobs == NULL) return no_memory(error);
    DIR *dir = opendir(blobs);
    const struct dirent *entry;
    weir__mem_free(blobs);
    if (dir == NULL) return WEIR_OK;
    while (status == WEIR_OK && (entry = readdir(dir)) != NULL) {
        size_t n = strlen(entry->d_name);
        char blob[65];
        int descriptor = -1;
        if (n <= sizeof suffix - 1 || n - (sizeof suffix - 1) > 64 ||
            strcmp(entry->d_name + n - (sizeof suffix - 1), suffix) != 0)
            continue;
        snprintf(blob, sizeof blob, "%.*s", (int)(n - (sizeof suffix - 1)), entry->d_name);
        if ((status = weir__cache_lock(cache, repo, blob, true, NULL, NULL, &descriptor, error)) == WEIR_OK)
            close(descriptor);
    }
    closedir(dir);
    return status;
}

struct removal {
    const char *cache;
    const weir__name *name;
    weir__name_files gone; /* the unlinked files, with their blobs */
    weir_error *error;
};

static weir_status unlink_chosen(const char *cache, const char *repo, const char *commit, void *user)
{
    struct removal *removal = user;
    weir__name_files files = {0};
    size_t first;
    int32_t shard, n_shards;
    weir_status status = weir__cache_scan(cache, repo, commit, &files);
    if (status != WEIR_OK || weir__name_choose(removal->name, &files, &first, NULL) != WEIR_OK) goto done;
    weir__name_shard(files.items[first].name, &shard, &n_shards);
    for (int32_t i = 1; i <= n_shards && status == WEIR_OK; i++) {
        const weir__name_file *file = weir__name_shard_of(&files, first, i);
        if (file == NULL) continue;
        if (unlink(file->path) != 0) {
            status = refuse_path("removed", file->path, removal->error);
            break;
        }
        weir__name_file *gone = weir__name_files_add(&removal->gone, repo, file->name);
        if (gone == NULL || (gone->blob = weir__mem_strdup(file->blob)) == NULL) {
            status = no_memory(removal->error);
            break;
        }
        gone->n_bytes = file->n_bytes;
        for (char *slash; (slash = strrchr(file->path, '/')) != NULL;) { /* folders that are empty now */
            *slash = '\0';
            if (weir__name_is_commit(strrchr(file->path, '/') + 1)) {
                rmdir(file->path);
                break;
            }
            if (rmdir(file->path) != 0) break;
        }
    }
done:
    weir__name_files_fini(&files);
    return status;
}

static weir_status remove_files(const char *cache, const weir__name *name, uint64_t *n_bytes,
                                weir_error *error)
{
    struct removal removal = {.cache = cache, .name = name, .error = error};
    weir__name_files left = {0};
    weir_status status = each_snapshot(cache, name->repo, unlink_chosen, &removal);
    if (status == WEIR_OK) status = each_snapshot(cache, name->repo, scan_snapshot, &left);
    if (status == WEIR_OK && removal.gone.n == 0)
        status = weir__error_set(error, WEIR_NOT_FOUND, "name", "no %.100s of %s is in the cache", name->what,
                                 name->repo);
    for (size_t i = 0; status == WEIR_OK && i < removal.gone.n; i++) {
        const weir__name_file *gone = &removal.gone.items[i];
        bool used = gone->blob[0] == '\0';
        for (size_t k = 0; k < left.n; k++) used = used || strcmp(left.items[k].blob, gone->blob) == 0;
        if (used) continue;
        char *blob = weir__cache_blob(cache, name->repo, gone->blob);
        if (blob == NULL)
            status = no_memory(error);
        else if (unlink(blob) == 0)
            *n_bytes += gone->n_bytes;
        else if (errno != ENOENT) /* it went with another name of it */
            status = refuse_path("removed", blob, error);
        weir__mem_free(blob);
    }
    weir__name_files_fini(&removal.gone);
    weir__name_files_fini(&left);
    return status;
}

weir_status weir__cache_remove(const char *cache, const weir__name *name, uint64_t *n_bytes,
                               weir_error *error)
{
    struct stat st;
    char *folder = repo_folder(cache, name->repo);
    if (folder == NULL) return no_memory(error);
    weir_status status;
    if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        status = weir__error_set(error, WEIR_NOT_FOUND, "name",
                                 "%s is not in the cache; weir list shows what is", name->repo);
    else if ((status = check_idle(cache, name->repo, error)) == WEIR_OK)
        status = name->what[0] != '\0' ? remove_files(cache, name, n_bytes, error)
                                       : remove_tree(folder, 0, n_bytes, error);
    weir__mem_free(folder);
    return status;
}
