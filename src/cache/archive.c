/* archive.c: the files of a folder of snapshots in order of use, and the thread that writes.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver owns the list and decides which file goes. It gives the writer one state at a time (IDLE, GIVEN,
 * WRITTEN or FAILED, then IDLE), and files to unlink whenever it wants. The writer also looks for changes by
 * other processes when there is nothing else to do, and leaves them as news for the driver. The times of
 * files that others use are read by the reader before the oldest file is removed. */
#include "cache/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cache/folder.h"

#define FILES_MAX 16384          /* the tokens of all of them are in memory */
#define KNOWN_NS  WEIR__NS_PER_S /* a file's time is as good as new for so long */

typedef enum phase { IDLE, GIVEN, WRITTEN, FAILED } phase;

/* The mutex protects the members below it. The driver owns the list, n_bytes and n_files; the rest is
 * constant after open. Invariant: n_bytes is the sum over the list. */
struct weir__archive {
    weir__archive_params params; /* path: a copy */
    int folder;
    uint64_t tag; /* in the names of files that are being written: no other archive's, on whatever machine */
    weir__archive_file *newest, *oldest;
    uint64_t n_bytes;
    size_t n_files;
    weir__watch watch; /* the writer's */
    weir__reader reader;

    weir__helper helper;
    bool failing;               /* was logged */
    weir__archive_file *doomed; /* to be unlinked and freed, by `older` */
    weir__watch_news news;      /* the driver's while there are any, else the writer's */
    bool has_news;
    phase phase;
    weir__snapshot text; /* of `state`; the writer's while GIVEN, the driver's afterwards */
    weir__folder_file written;
    void *state;
    bool owned;
};

/* ---- The list ---- */

static void list_in(weir__archive *a, weir__archive_file *file)
{
    file->newer = NULL;
    file->older = a->newest;
    *(a->newest != NULL ? &a->newest->newer : &a->oldest) = file;
    a->newest = file;
    a->n_bytes += file->n_bytes;
    a->n_files++;
}

static void list_out(weir__archive *a, weir__archive_file *file)
{
    *(file->newer != NULL ? &file->newer->older : &a->newest) = file->older;
    *(file->older != NULL ? &file->older->newer : &a->oldest) = file->newer;
    a->n_bytes -= file->n_bytes;
    a->n_files--;
}

static weir__archive_file *find_file(const weir__archive *a, const char *name)
{
    weir__archive_file *file = a->oldest; /* mostly one of these */
    while (file != NULL && strcmp(file->name, name) != 0) file = file->newer;
    return file;
}

uint64_t weir__archive_bytes(const weir__archive *a)
{
    return a->n_bytes;
}

/* ---- The writer ---- */

static void file_name(const weir__archive *a, char name[WEIR__FOLDER_NAME])
{
    snprintf(name, WEIR__FOLDER_NAME, "%016" PRIx64 WEIR__FOLDER_ENDING, weir__snapshot_name(&a->text));
}

/* Writes the state's file under another name and renames it when it is complete. The file is not
 * synchronized: after a power loss the checksums reveal a damaged file, and its tokens are computed again. */
static bool write_file(weir__archive *a)
{
    a->written = (weir__folder_file){0};
    char name[WEIR__FOLDER_NAME], part[WEIR__FOLDER_NAME];
    file_name(a, name);
    snprintf(part, sizeof part, "%016" PRIx64 ".%016" PRIx64 WEIR__FOLDER_PART, weir__snapshot_name(&a->text),
             a->tag);
    int fd = openat(a->folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool done = weir__snapshot_write(&a->text, a->state, fd);
    int why = errno;
    if (close(fd) != 0 && done) {
        done = false;
        why = errno;
    }
    if (done && renameat(a->folder, part, a->folder, name) == 0) {
        weir__watch_add(&a->watch, name);
        if (!weir__folder_find(a->folder, name, &a->written)) a->written.name[0] = '\0';
        return true;
    }
    if (done) why = errno;
    unlinkat(a->folder, part, 0);
    errno = why;
    return false;
}

static void unlink_all(weir__archive *a, weir__archive_file *doomed)
{
    while (doomed != NULL) {
        weir__archive_file *next = doomed->older;
        unlinkat(a->folder, doomed->name, 0); /* another process may have removed it */
        weir__watch_drop(&a->watch, doomed->name);
        weir__mem_free(doomed);
        doomed = next;
    }
}

/* Looks whether other processes have changed the folder; false: nothing is new. The mutex is not held. */
static bool look_around(weir__archive *a, int64_t *due)
{
    bool found = weir__watch_look(&a->watch, &a->news);
    *due = found && a->news.more ? 0 : weir__clock_now_ns() + a->params.watch_ns;
    return found;
}

/* Waits, with the mutex, for something to do. True if it is time to look at the folder. */
static bool await_work(weir__archive *a, int64_t due)
{
    while (!a->helper.ending && a->doomed == NULL && a->phase != GIVEN) {
        bool watches = a->params.watch_ns > 0 && !a->has_news;
        if (watches && weir__clock_now_ns() >= due) return true;
        (void)weir__clock_cond_wait(&a->helper.changed, &a->helper.mutex, watches ? due : WEIR__CLOCK_NEVER);
    }
    return false;
}

static void *run_writer(void *user)
{
    weir__archive *a = user;
    int64_t due = weir__clock_now_ns() + a->params.watch_ns;
    pthread_mutex_lock(&a->helper.mutex);
    for (;;) {
        bool looks = await_work(a, due);
        weir__archive_file *doomed = a->doomed;
        bool given = a->phase == GIVEN, failing = a->failing;
        a->doomed = NULL;
        if (doomed == NULL && !given && !looks) break;
        pthread_mutex_unlock(&a->helper.mutex);
        unlink_all(a, doomed); /* first, to make room */
        bool done = given && write_file(a);
        if (given && !done && !failing)
            weir__log(WEIR_LOG_WARN, "%s: cached prompts cannot be saved: %s", a->params.path,
                      strerror(errno));
        bool found = looks && look_around(a, &due);
        pthread_mutex_lock(&a->helper.mutex);
        a->has_news = a->has_news || found;
        if (given) {
            a->failing = !done;
            a->phase = done ? WRITTEN : FAILED;
        }
        if (!given && !found) continue;
        pthread_cond_broadcast(&a->helper.changed);
        pthread_mutex_unlock(&a->helper.mutex);
        a->params.wake(a->params.user);
        pthread_mutex_lock(&a->helper.mutex);
    }
    pthread_mutex_unlock(&a->helper.mutex);
    return NULL;
}

static phase writer_phase(const weir__archive *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&a->helper.mutex;
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

bool weir__archive_is_crowded(const weir__archive *a, const weir__prefix_key *key, int32_t n_tokens,
                              uint64_t state_size)
{
    return a->n_bytes + file_size(key, n_tokens, state_size) > a->params.n_bytes || a->n_files >= FILES_MAX;
}

bool weir__archive_is_overfull(const weir__archive *a)
{
    return a->n_bytes > a->params.n_bytes || a->n_files > FILES_MAX;
}

bool weir__archive_put(weir__archive *a, const weir__prefix_key *key, const int32_t *tokens, int32_t n,
                       void *state, size_t size, bool owned)
{
    weir__snapshot text;
    if (!weir__snapshot_init(&text, a->params.limits.kind, key, tokens, n, size)) return false;
    pthread_mutex_lock(&a->helper.mutex);
    a->text = text;
    a->state = state;
    a->owned = owned;
    a->phase = GIVEN;
    pthread_cond_broadcast(&a->helper.changed);
    pthread_mutex_unlock(&a->helper.mutex);
    return true;
}

bool weir__archive_adopt(weir__archive *a, const void *state)
{
    if (state == NULL || writer_phase(a) == IDLE || a->state != state) return false;
    a->owned = true;
    return true;
}

static weir__archive_file *new_file(weir__archive *a, const weir__folder_file *found)
{
    weir__archive_file *file = weir__mem_calloc(1, sizeof *file);
    if (file == NULL) return NULL;
    file->n_bytes = found->n_bytes;
    file->used = found->used;
    memcpy(file->name, found->name, sizeof file->name);
    list_in(a, file);
    return file;
}

/* Lists a file. A file of the same name that was not usable is replaced. NULL: no memory, or the name is
 * taken by another text. */
static weir__archive_file *add_file(weir__archive *a, const weir__folder_file *found)
{
    weir__archive_file *before = find_file(a, found->name);
    if (before != NULL && before->owner != NULL) return NULL;
    weir__archive_file *file = new_file(a, found);
    if (file != NULL && before != NULL) {
        list_out(a, before);
        weir__mem_free(before);
    }
    return file;
}

const weir__snapshot *weir__archive_collect(weir__archive *a, weir__archive_file **file)
{
    phase is = writer_phase(a);
    if (is != WRITTEN && is != FAILED) return NULL;
    *file = is == WRITTEN && a->written.name[0] != '\0' ? add_file(a, &a->written) : NULL;
    return &a->text; /* a file that is not in the list is found by the next process */
}

void weir__archive_clear(weir__archive *a)
{
    if (a->owned) weir__mem_free(a->state);
    weir__snapshot_fini(&a->text);
    a->state = NULL;
    a->owned = false;
    pthread_mutex_lock(&a->helper.mutex);
    a->phase = IDLE;
    pthread_mutex_unlock(&a->helper.mutex);
}

void weir__archive_wait(weir__archive *a)
{
    pthread_mutex_lock(&a->helper.mutex);
    while (a->phase == GIVEN) pthread_cond_wait(&a->helper.changed, &a->helper.mutex);
    pthread_mutex_unlock(&a->helper.mutex);
}

void weir__archive_remove(weir__archive *a, weir__archive_file *file)
{
    list_out(a, file);
    pthread_mutex_lock(&a->helper.mutex);
    file->older = a->doomed;
    a->doomed = file;
    pthread_cond_broadcast(&a->helper.changed);
    pthread_mutex_unlock(&a->helper.mutex);
}

/* ---- Other processes ---- */

static void forget_file(weir__archive *a, const char *name, void (*gone)(void *owner, void *user), void *user)
{
    weir__archive_file *file = find_file(a, name);
    if (file == NULL) return;
    void *owner = file->owner;
    list_out(a, file);
    weir__mem_free(file);
    if (owner != NULL) gone(owner, user);
}

bool weir__archive_follow(weir__archive *a, weir__archive_fn found, void (*gone)(void *owner, void *user),
                          void *user)
{
    pthread_mutex_lock(&a->helper.mutex);
    bool has_news = a->has_news;
    pthread_mutex_unlock(&a->helper.mutex);
    if (!has_news) return false;
    for (size_t i = 0; i < a->news.n_removed; i++) forget_file(a, a->news.removed[i].name, gone, user);
    for (size_t i = 0; i < a->news.n_added; i++) {
        const weir__watch_file *added = &a->news.added[i];
        weir__archive_file *file = add_file(a, &added->file);
        if (file != NULL && added->text.tokens != NULL) file->owner = found(file, &added->text, user);
    }
    weir__watch_news_fini(&a->news);
    pthread_mutex_lock(&a->helper.mutex);
    a->has_news = false;
    pthread_cond_broadcast(&a->helper.changed);
    pthread_mutex_unlock(&a->helper.mutex);
    return true;
}

/* ---- Reading ---- */

/* The file was used: it is the newest. */
static void renew_file(weir__archive *a, weir__archive_file *file)
{
    file->known_ns = 0;
    list_out(a, file);
    list_in(a, file);
}

weir__reader *weir__archive_reader(weir__archive *a)
{
    return &a->reader;
}

bool weir__archive_ask(weir__archive *a, weir__archive_file *file, const weir__prefix_key *key,
                       const int32_t *tokens, int32_t n)
{
    if (!weir__reader_ask(&a->reader, file->name, key, tokens, n)) return false;
    renew_file(a, file);
    return true;
}

weir_status weir__archive_read(weir__archive *a, weir__archive_file *file, const void **state, size_t *size,
                               weir_error *error)
{
    const weir__reader *r = &a->reader;
    if (r->status != WEIR_OK) return weir__error_as(error, &r->error, r->status, "");
    *state = r->state;
    *size = r->text.head.state_size;
    if (weir__folder_is_later(r->used, file->used)) file->used = r->used;
    renew_file(a, file);
    return WEIR_OK;
}

/* Asks for the times of the oldest files, unless the reader has something else. */
static void ask_times(weir__archive *a)
{
    weir__folder_file files[WEIR__READER_FILES];
    size_t n = 0;
    if (weir__reader_phase_of(&a->reader) != WEIR__READER_FREE) return;
    for (const weir__archive_file *file = a->oldest; file != NULL && n < WEIR__READER_FILES;
         file = file->newer) {
        files[n] = (weir__folder_file){.used = file->used};
        memcpy(files[n++].name, file->name, sizeof file->name);
    }
    weir__reader_look(&a->reader, files, n);
}

/* Files that another process has used become newer. */
static void note_times(weir__archive *a)
{
    int64_t now = weir__clock_now_ns();
    for (size_t i = 0; i < a->reader.n_files; i++) {
        const weir__folder_file *is = &a->reader.files[i];
        weir__archive_file *file = find_file(a, is->name);
        if (file == NULL) continue;
        file->known_ns = now + KNOWN_NS;
        if (!weir__folder_is_later(is->used, file->used)) continue;
        file->used = is->used;
        renew_file(a, file);
    }
}

weir__archive_file *weir__archive_oldest(weir__archive *a)
{
    if (a->oldest == NULL) return NULL;
    if (weir__clock_now_ns() < a->oldest->known_ns) return a->oldest;
    ask_times(a);
    return NULL;
}

void weir__archive_put_away(weir__archive *a)
{
    note_times(a);
    weir__reader_clear(&a->reader);
}

/* ---- The folder ---- */

static int by_age(const void *a, const void *b)
{
    const weir__folder_file *x = a, *y = b;
    if (weir__folder_is_later(x->used, y->used)) return 1;
    return weir__folder_is_later(y->used, x->used) ? -1 : strcmp(x->name, y->name);
}

/* Lists the files, the last used one as the newest. */
static weir_status list_files(weir__archive *a, weir_error *error)
{
    weir__folder_file *files = NULL;
    size_t n = 0;
    weir_status status = weir__folder_list(a->folder, a->params.path, &files, &n, error);
    if (status != WEIR_OK) return status;
    if (n > 0) qsort(files, n, sizeof *files, by_age);
    for (size_t i = 0; i < n && status == WEIR_OK; i++)
        if (new_file(a, &files[i]) == NULL)
            status = weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for the files of %.200s",
                                     a->params.path);
    weir__watch_init(&a->watch, a->folder, a->params.path, &a->params.limits, files, n);
    return status;
}

void weir__archive_index(weir__archive *a, weir__archive_fn found, void *user)
{
    size_t n_other = 0;
    while (a->oldest != NULL && (a->n_bytes > a->params.n_bytes || a->n_files > FILES_MAX))
        weir__archive_remove(a, a->oldest);
    for (weir__archive_file *file = a->oldest; file != NULL; file = file->newer) {
        weir__snapshot s = {0};
        if (!weir__folder_is_complete(file->name)) continue;
        weir_status status = weir__watch_read(&a->watch, file->name, &s);
        if (status == WEIR_OK) file->owner = found(file, &s, user);
        n_other += status == WEIR_UNSUPPORTED;
        weir__snapshot_fini(&s);
    }
    if (n_other > 0)
        weir__log(WEIR_LOG_INFO, "%s: %zu cached prompts of other models, KV types or versions",
                  a->params.path, n_other);
}

/* ---- Life ---- */

static void free_archive(weir__archive *a)
{
    for (weir__archive_file *file = a->newest, *next; file != NULL; file = next) {
        next = file->older;
        weir__mem_free(file);
    }
    if (a->has_news) weir__watch_news_fini(&a->news);
    weir__watch_fini(&a->watch);
    if (a->folder >= 0) close(a->folder);
    weir__mem_free((char *)a->params.path);
    weir__mem_free(a);
}

weir_status weir__archive_open(const weir__archive_params *params, weir__archive **archive, weir_error *error)
{
    weir__archive *a = weir__mem_calloc(1, sizeof *a);
    if (a == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "cache_dir", "no memory for `cache_dir`");
    a->params = *params;
    a->folder = -1;
    if (getentropy(&a->tag, sizeof a->tag) != 0) a->tag = (uint64_t)weir__clock_now_ns();
    a->params.path = weir__mem_strdup(params->path);
    weir_status status = a->params.path != NULL ? weir__folder_open(a->params.path, &a->folder, error)
                                                : weir__error_set(error, WEIR_NO_MEMORY, "cache_dir",
                                                                  "no memory for `cache_dir`");
    if (status == WEIR_OK) status = list_files(a, error);
    if (status != WEIR_OK) goto no_folder;
    status = WEIR_NO_MEMORY;
    a->reader = (weir__reader){.folder = a->folder,
                               .limits = params->limits,
                               .open_file = weir__folder_open_file,
                               .find_file = weir__folder_find,
                               .wake = params->wake,
                               .user = params->user};
    if (!weir__reader_start(&a->reader)) goto no_reader;
    if (!weir__helper_start(&a->helper, run_writer, a)) goto no_writer;
    *archive = a;
    return WEIR_OK;

no_writer:
    weir__reader_close(&a->reader);
no_reader:
    weir__error_set(error, status, "cache_dir", "no thread for `cache_dir`: the process has reached a limit");
no_folder:
    free_archive(a);
    return status;
}

void weir__archive_close(weir__archive *a)
{
    if (a == NULL) return;
    weir__helper_join(&a->helper);
    weir__reader_close(&a->reader);
    if (a->phase != IDLE) weir__archive_clear(a);
    weir__helper_fini(&a->helper);
    free_archive(a);
}
