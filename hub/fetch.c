/* fetch.c: downloads a file into the cache.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The lock of the file's blob is taken first, so that another process that downloads it is waited for. Bytes
 * go into BLOB.incomplete; an earlier part is hashed and continued. Failures of the network are tried again
 * from the last byte. A whole file whose checksum differs is downloaded once more if a part of it was of an
 * earlier process. The file gets its name last, when it is on the disk. */
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"
#include "cache.h"
#include "config.h"

#define PROGRESS_NS (100 * WEIR__NS_PER_MS) /* between two calls of it: smooth for the eye */
#define RATE_NS     (500 * WEIR__NS_PER_MS) /* that a rate is of: less would flicker */
#define FURTHER     ((uint64_t)1 << 20)     /* bytes after which failures are counted anew */

typedef struct fetch {
    const weir__config *config;
    const weir__name_file *file;
    int32_t shard, n_shards;
    int descriptor; /* of the part received so far */
    uint64_t n_done;
    weir__sha256 sha256; /* of the first n_done bytes */
    char etag[160];      /* of these bytes, as the store behind the hub calls them; "" = unknown */
    bool restarted;      /* this process has begun at byte 0 */
    weir_status problem; /* why a callback ended the request */
    weir_error *error;
    int64_t shown_ns, rate_ns; /* when progress was shown, when the rate was taken */
    uint64_t rate_done;
    double rate;
} fetch;

static bool end_fetch(fetch *f, weir_status status)
{
    f->problem = status;
    return false;
}

/* ---- Progress ---- */

static bool show_progress(fetch *f, bool always)
{
    int64_t now = weir__clock_now_ns();
    if (f->config->progress == NULL || (!always && now - f->shown_ns < PROGRESS_NS)) return true;
    f->shown_ns = now;
    if (now - f->rate_ns >= RATE_NS) {
        double fresh = f->n_done > f->rate_done
                           ? (double)(f->n_done - f->rate_done) * 1e9 / (double)(now - f->rate_ns)
                           : 0;
        f->rate = f->rate > 0 && fresh > 0 ? 0.7 * f->rate + 0.3 * fresh : fresh;
        f->rate_ns = now;
        f->rate_done = f->n_done;
    }
    const weir_hub_progress progress = {.file = f->file->name,
                                        .shard = f->shard,
                                        .n_shards = f->n_shards,
                                        .n_done = f->n_done,
                                        .n_bytes = f->file->n_bytes,
                                        .rate = f->rate,
                                        .sha256 = f->file->sha256};
    if (f->config->progress(&progress, f->config->progress_user)) return true;
    weir__error_set(f->error, WEIR_ABORTED, "progress", "the caller's callback asked to stop");
    return end_fetch(f, WEIR_ABORTED);
}

static bool tick_fetch(void *user)
{
    return show_progress(user, false);
}

/* ---- The file on its way ---- */

static bool disk_failed(fetch *f, const char *what)
{
    int code = errno;
    const char *hint = "";
    if (code == ENOSPC || code == EDQUOT)
        hint = "; free some, or choose another folder with HF_HUB_CACHE; the part so far is kept";
    if (code == EFBIG) /* of the file system, or ulimit -f: room does not help */
        hint =
            "; raise the limit of the size of files, or choose another folder with HF_HUB_CACHE; the part so "
            "far is kept";
    weir__error_set(f->error, WEIR_IO, "cache_dir", "%.150s of %s cannot be %s in %.100s: %s%s",
                    f->file->name, f->file->repo, what, f->config->cache, strerror(code), hint);
    return end_fetch(f, WEIR_IO);
}

static bool start_over(fetch *f)
{
    weir__sha256_init(&f->sha256);
    f->n_done = f->rate_done = 0;
    f->etag[0] = '\0';
    f->restarted = true;
    return ftruncate(f->descriptor, 0) == 0 || disk_failed(f, "begun again");
}

/* Continues an earlier download. */
static bool take_up(fetch *f)
{
    static const size_t step = (size_t)1 << 20;
    struct stat st;
    weir__sha256_init(&f->sha256);
    if (fstat(f->descriptor, &st) != 0 || !S_ISREG(st.st_mode)) return disk_failed(f, "resumed");
    if (st.st_size == 0 || (uint64_t)st.st_size > f->file->n_bytes || f->config->force) return start_over(f);
    unsigned char *bytes = weir__mem_alloc(step);
    if (bytes == NULL) {
        weir__error_set(f->error, WEIR_NO_MEMORY, "name", "out of memory for a download");
        return end_fetch(f, WEIR_NO_MEMORY);
    }
    bool ok = true;
    while (ok && f->n_done < (uint64_t)st.st_size) {
        uint64_t left = (uint64_t)st.st_size - f->n_done;
        size_t n = left < step ? (size_t)left : step;
        if (!weir__file_read(f->descriptor, bytes, n, f->n_done)) {
            ok = disk_failed(f, "read");
            break;
        }
        weir__sha256_feed(&f->sha256, bytes, n);
        f->n_done += n;
        ok = show_progress(f, false);
    }
    weir__mem_free(bytes);
    f->rate_done = f->n_done;
    f->rate_ns = weir__clock_now_ns();
    return ok;
}

static bool has_room(fetch *f)
{
    struct statvfs fs;
    if (fstatvfs(f->descriptor, &fs) != 0) return true;
    uint64_t unit = fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize;
    uint64_t room = unit > 0 && fs.f_bavail < UINT64_MAX / unit ? fs.f_bavail * unit : UINT64_MAX;
    uint64_t needed = f->file->n_bytes - f->n_done;
    if (room >= needed) return true;
    weir__error_set(f->error, WEIR_IO, "cache_dir",
                    "%.150s of %s needs %" PRIu64 " MB more and %.100s has room for %" PRIu64
                    ": free some, or choose another folder with HF_HUB_CACHE",
                    f->file->name, f->file->repo, needed / 1000000 + 1, f->config->cache, room / 1000000);
    return end_fetch(f, WEIR_IO);
}

/* ---- One request ---- */

static bool refuse_file(fetch *f, const char *what)
{
    weir__error_set(f->error, WEIR_FORMAT, "name",
                    "%.150s of %s %s; a proxy may have changed it, or the hub is damaged: try again later",
                    f->file->name, f->file->repo, what);
    return end_fetch(f, WEIR_FORMAT);
}

static bool on_begin(const weir__http_answer *answer, void *user)
{
    fetch *f = user;
    if (answer->total >= 0 && (uint64_t)answer->total != f->file->n_bytes)
        return refuse_file(f, "has another size than the hub reports");
    if (answer->linked_etag[0] != '\0' && f->file->sha256[0] != '\0' &&
        strcmp(answer->linked_etag, f->file->sha256) != 0)
        return refuse_file(f, "has another checksum than the hub's list");
    if (answer->code == 206 && answer->begin != f->n_done)
        return refuse_file(f, "starts at another byte than was requested");
    /* The server honours no ranges, or has other bytes by now. */
    if (answer->code == 200 && f->n_done > 0 && !start_over(f)) return false;
    snprintf(f->etag, sizeof f->etag, "%s", answer->etag);
    return true;
}

static bool on_write(const void *bytes, size_t n, void *user)
{
    fetch *f = user;
    if (n > f->file->n_bytes - f->n_done) return refuse_file(f, "is longer than the hub reports");
    weir__sha256_feed(&f->sha256, bytes, n);
    if (!weir__file_write(f->descriptor, bytes, n, f->n_done)) return disk_failed(f, "written");
    f->n_done += n;
    return true;
}

/* Requests until all bytes are there. */
static weir_status get_all(fetch *f, weir__http *http, const char *url)
{
    weir__http_retry retry = {0};
    weir__http_answer answer;
    uint64_t best = f->n_done;
    while (f->n_done < f->file->n_bytes) {
        const weir__http_request request = {.url = url,
                                            .from = f->n_done,
                                            .if_range = f->etag,
                                            .begin = on_begin,
                                            .write = on_write,
                                            .tick = tick_fetch,
                                            .user = f};
        weir_status status = weir__http_get(http, &request, &answer);
        if (f->problem != WEIR_OK) return f->problem;
        if (status == WEIR_NO_MEMORY)
            return weir__error_set(f->error, status, "name", "out of memory for a download");
        if (f->n_done == f->file->n_bytes) break;
        bool whole = status == WEIR_OK && (answer.code == 200 || answer.code == 206);
        if (status == WEIR_OK && answer.code == 416 && f->n_done > 0) {
            if (!start_over(f)) return f->problem; /* it has fewer bytes than we */
        } else if (!whole && !weir__http_may_retry(status, &answer))
            return weir__http_explain(f->config, &answer, f->file->repo, f->n_done > 0, f->error);
        if (f->n_done >= best + FURTHER) {
            best = f->n_done;
            retry = (weir__http_retry){0};
        }
        if (whole) snprintf(answer.reason, sizeof answer.reason, "it ended too early");
        status = weir__http_wait(&retry, f->config, &answer, tick_fetch, f);
        if (f->problem != WEIR_OK) return f->problem;
        if (status != WEIR_OK)
            return weir__http_explain(f->config, &answer, f->file->repo, f->n_done > 0, f->error);
        weir__hub_log(WEIR_LOG_INFO, "%s of %s: going on at byte %" PRIu64 " after: %s", f->file->name,
                      f->file->repo, f->n_done, answer.reason[0] != '\0' ? answer.reason : "a busy hub");
    }
    return WEIR_OK;
}

/* Downloads until the checksum is right; the part left by an earlier process may be wrong, that of this one
 * may not. */
static weir_status get_checked(fetch *f, weir__http *http, const char *url)
{
    for (;;) {
        weir__sha256 sha256;
        char hex[65];
        weir_status status = get_all(f, http, url);
        if (status != WEIR_OK || f->file->sha256[0] == '\0') return status;
        sha256 = f->sha256;
        weir__sha256_hex(&sha256, hex);
        if (strcmp(hex, f->file->sha256) == 0) return WEIR_OK;
        bool again = !f->restarted;
        if (!start_over(f)) return f->problem;
        if (!again) {
            refuse_file(f, "does not have the checksum that the hub reports");
            return f->problem;
        }
        weir__hub_log(WEIR_LOG_WARN, "%s of %s: the part of an earlier download is damaged; beginning again",
                      f->file->name, f->file->repo);
    }
}

/* ---- Under the lock ---- */

static bool is_there(const char *path, uint64_t n_bytes)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == n_bytes;
}

/* The file's address: bytes other than letters, digits and -._~/ as %XX. */
static char *address_of(const weir__config *config, const weir__name_file *file, const char *commit)
{
    static const char digits[] = "0123456789ABCDEF";
    char path[3 * WEIR__NAME_FILE_MAX];
    size_t n = 0;
    for (const char *c = file->name; *c != '\0'; c++) {
        if (weir__ascii_is_alnum(*c) || strchr("-._~/", *c) != NULL) {
            path[n++] = *c;
        } else {
            path[n++] = '%';
            path[n++] = digits[(unsigned char)*c >> 4];
            path[n++] = digits[(unsigned char)*c & 15];
        }
    }
    path[n] = '\0';
    return weir__text_format("%s/%s/resolve/%s/%s", config->endpoint, file->repo, commit, path);
}

static weir_status download_file(fetch *f, weir__http *http, const char *commit, const char *blob)
{
    char *incomplete = weir__text_format("%s.incomplete", blob);
    char *url = address_of(f->config, f->file, commit);
    weir_status status = WEIR_OK;
    if (incomplete == NULL || url == NULL) {
        status = weir__error_set(f->error, WEIR_NO_MEMORY, "name", "out of memory for a download");
        goto done;
    }
    f->descriptor = open(incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->descriptor < 0) {
        disk_failed(f, "begun");
        status = f->problem;
        goto done;
    }
    if (!take_up(f) || !has_room(f) || !show_progress(f, true)) {
        status = f->problem;
        goto done;
    }
    if ((status = get_checked(f, http, url)) != WEIR_OK) {
        if (status == WEIR_FORMAT && f->n_done == 0) unlink(incomplete);
        goto done;
    }
    if (fsync(f->descriptor) != 0 || rename(incomplete, blob) != 0) {
        disk_failed(f, "finished");
        status = f->problem;
        goto done;
    }
    if (!show_progress(f, true)) status = f->problem;
done:
    if (f->descriptor >= 0) close(f->descriptor);
    weir__mem_free(url);
    weir__mem_free(incomplete);
    return status;
}

weir_status weir__fetch(weir__http *http, const weir__config *config, const weir__name_file *file,
                        const char *commit, weir_error *error)
{
    fetch f = {
        .config = config, .file = file, .descriptor = -1, .error = error, .rate_ns = weir__clock_now_ns()};
    int lock = -1;
    weir__name_shard(file->name, &f.shard, &f.n_shards);
    char *blob = weir__cache_blob(config->cache, file->repo, file->blob);
    if (blob == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory for a download");
    weir_status status = WEIR_OK;
    if (!config->force && is_there(blob, file->n_bytes)) goto done;
    if ((status = weir__cache_make_parents(blob, error)) != WEIR_OK) goto done;
    if ((status = weir__cache_lock(config->cache, file->repo, file->blob, false, tick_fetch, &f, &lock,
                                   error)) != WEIR_OK)
        goto done;
    /* Another process may have had it until now. */
    if (config->force || !is_there(blob, file->n_bytes)) status = download_file(&f, http, commit, blob);
done:
    if (lock >= 0) close(lock);
    weir__mem_free(blob);
    return status;
}
