/* hub.c: hub.h's functions for models by name.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A call opens a session: configuration, name, connection. It asks the hub for the repository's files, or the
 * cache if it must do without network, chooses the name's files, and fetches each file of a split model. The
 * revision is noted last, so that it means a commit that is complete. SIGPIPE and SIGXFSZ are blocked during
 * a call, and those that it caused are taken away at its end. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/member.h"
#include "base/text.h"
#include "cache.h"
#include "config.h"
#include "http.h"
#include "name.h"

#define ANSWER_MAX ((size_t)32 << 20)

struct weir_hub_files {
    weir__name_files files;
};

/* ---- Signals ---- */

/* A peer that left, and a file over the process's limit, must end a call and not the program. Both signals go
 * to the thread that writes. */
typedef struct quiet {
    sigset_t before, pending;
} quiet;

static void quiet_begin(quiet *q)
{
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    sigpending(&q->pending);
    pthread_sigmask(SIG_BLOCK, &both, &q->before);
}

static void quiet_end(const quiet *q)
{
    static const int signals[] = {SIGPIPE, SIGXFSZ};
    sigset_t now;
    sigpending(&now);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigset_t one;
        int taken;
        if (!sigismember(&now, signals[i]) || sigismember(&q->pending, signals[i])) continue;
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        sigwait(&one, &taken);
    }
    pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

/* ---- The state of a call ---- */

typedef struct session {
    weir__name name;
    weir__config config;
    weir__http *http;
    quiet quiet;
} session;

static weir_status session_begin(session *s, const char *name, const weir_hub_params *params,
                                 weir_error *error)
{
    *s = (session){0};
    if (name != NULL) {
        weir_status status = weir__name_parse(name, &s->name, error);
        if (status != WEIR_OK) return status;
    }
    weir_status status = weir__config_read(params, &s->config, error);
    s->config.field = name != NULL ? "name" : "path";
    if (status == WEIR_OK) quiet_begin(&s->quiet);
    return status;
}

static void session_end(session *s)
{
    weir__http_destroy(s->http);
    weir__config_fini(&s->config);
    quiet_end(&s->quiet);
}

static weir_status open_http(session *s, weir_error *error)
{
    return s->http != NULL ? WEIR_OK : weir__http_create(&s->config, &s->http, error);
}

/* The repository's files in the hub; those that the cache has get their paths. */
static weir_status ask_hub(session *s, int32_t n_retries, weir__name_files *files, weir_error *error)
{
    char *json = NULL, *url;
    size_t length = 0;
    weir_status status = open_http(s, error);
    if (status != WEIR_OK) return status;
    url = weir__text_format("%s/api/models/%s/revision/%s?blobs=true", s->config.endpoint, s->name.repo,
                            s->config.revision);
    if (url == NULL) return weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory");
    status =
        weir__http_text(s->http, &s->config, url, ANSWER_MAX, s->name.repo, n_retries, &json, &length, error);
    weir__mem_free(url);
    if (status == WEIR_OK) status = weir__list_read(s->name.repo, json, length, files, error);
    weir__mem_free(json);
    for (size_t i = 0; status == WEIR_OK && i < files->n; i++) {
        weir__name_file *file = &files->items[i];
        struct stat st;
        char *path = weir__cache_file(s->config.cache, file->repo, files->commit, file->name);
        if (path == NULL)
            status = weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory");
        else if (stat(path, &st) == 0 && (uint64_t)st.st_size == file->n_bytes)
            file->path = path;
        else
            weir__mem_free(path);
    }
    if (status != WEIR_OK) weir__name_files_fini(files);
    return status;
}

/* The files of this revision that the cache has; NOT_FOUND: none. */
static weir_status recall_cached(const session *s, weir__name_files *files, weir_error *error)
{
    char commit[65];
    weir_status status = weir__cache_commit(s->config.cache, s->name.repo, s->config.revision, commit);
    if (status == WEIR_OK) status = weir__cache_scan(s->config.cache, s->name.repo, commit, files);
    if (status == WEIR_OK && files->n == 0) status = WEIR_NOT_FOUND;
    if (status == WEIR_OK) return WEIR_OK;
    weir__name_files_fini(files);
    if (status == WEIR_NO_MEMORY) return weir__error_set(error, status, "name", "out of memory");
    return weir__error_set(
        error, WEIR_NOT_FOUND, "name",
        "%s, revision %.60s, is not in the cache %.150s, and weir is offline (%s): download it first",
        s->name.repo, s->config.revision, s->config.cache, s->config.offline_by);
}

/* The path of the file that the name means, if the cache has all of it. */
static weir_status recall_path(const session *s, char **path, weir_error *error)
{
    weir__name_files files = {0};
    size_t first;
    int32_t shard, n_shards;
    weir_status status = recall_cached(s, &files, error);
    if (status != WEIR_OK || (status = weir__name_choose(&s->name, &files, &first, error)) != WEIR_OK)
        goto done;
    weir__name_shard(files.items[first].name, &shard, &n_shards);
    for (int32_t i = 1; i <= n_shards; i++)
        if (weir__name_shard_of(&files, first, i) == NULL) {
            status = weir__error_set(error, WEIR_NOT_FOUND, "name",
                                     "part %d of %d of %.150s is not in the cache, and weir is offline (%s): "
                                     "download it first",
                                     (int)i, (int)n_shards, files.items[first].name, s->config.offline_by);
            goto done;
        }
    *path = files.items[first].path;
    files.items[first].path = NULL;
done:
    weir__name_files_fini(&files);
    return status;
}

/* ---- Downloading ---- */

/* One file, and its name in the snapshot. */
static weir_status fetch_one(session *s, const weir__name_file *file, const char *commit, weir_error *error)
{
    weir_status status = weir__fetch(s->http, &s->config, file, commit, error);
    if (status != WEIR_OK) return status;
    return weir__cache_link(s->config.cache, file->repo, commit, file->name, file->blob, error);
}

static weir_status fetch_all(session *s, const weir__name_files *files, char **path, weir_error *error)
{
    size_t first;
    int32_t shard, n_shards;
    weir_status status = weir__name_choose(&s->name, files, &first, error);
    if (status != WEIR_OK) return status;
    const weir__name_file *file = &files->items[first];
    weir__name_shard(file->name, &shard, &n_shards);
    for (int32_t i = 1; i <= n_shards; i++)
        if (weir__name_shard_of(files, first, i) == NULL)
            return weir__error_set(error, WEIR_NOT_FOUND, "name", "%s has no part %d of %d of %.150s",
                                   file->repo, (int)i, (int)n_shards, file->name);
    for (int32_t i = 1; i <= n_shards && status == WEIR_OK; i++)
        status = fetch_one(s, weir__name_shard_of(files, first, i), files->commit, error);
    /* Last: offline, the revision means a commit that is complete in the cache. */
    if (status == WEIR_OK)
        status = weir__cache_set_ref(s->config.cache, file->repo, s->config.revision, files->commit, error);
    if (status == WEIR_OK &&
        (*path = weir__cache_file(s->config.cache, file->repo, files->commit, file->name)) == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory");
    return status;
}

static weir_status download_files(session *s, char **path, weir_error *error)
{
    weir__name_files files = {0};
    char *cached = NULL, *out = NULL;
    weir_error problem = {0};
    if (s->config.offline) return recall_path(s, path, error);
    weir_status status = recall_path(s, &cached, &problem);
    if (status == WEIR_NO_MEMORY) return weir__error_copy(error, &problem);
    if (cached != NULL && weir__name_is_commit(s->config.revision) && !s->config.force) {
        *path = cached;
        return WEIR_OK;
    }
    status = ask_hub(s, cached != NULL ? 0 : s->config.n_retries, &files, &problem);
    if (status == WEIR_OK)
        status = fetch_all(s, &files, &out, &problem);
    else if (status == WEIR_IO && cached != NULL) {
        weir__hub_log(WEIR_LOG_WARN, "using %s as the cache has it: %s", s->name.repo, problem.message);
        out = cached;
        cached = NULL;
        status = WEIR_OK;
    }
    weir__name_files_fini(&files);
    weir__mem_free(cached);
    if (status != WEIR_OK) return weir__error_copy(error, &problem);
    *path = out;
    return WEIR_OK;
}

weir_status weir_hub_download(const char *name, const weir_hub_params *params, char **path, weir_error *error)
{
    session s;
    if (path == NULL) return weir__error_null(error, "path");
    if (name == NULL) return weir__name_parse(NULL, NULL, error);
    weir_status status = session_begin(&s, name, params, error);
    if (status != WEIR_OK) return status;
    status = download_files(&s, path, error);
    session_end(&s);
    return status;
}

/* ---- Looking ---- */

weir_status weir_hub_resolve(const char *name, const weir_hub_params *params, char **file, weir_error *error)
{
    session s;
    weir__name_files files = {0};
    size_t first;
    if (file == NULL) return weir__error_null(error, "file");
    if (name == NULL) return weir__name_parse(NULL, NULL, error);
    weir_status status = session_begin(&s, name, params, error);
    if (status != WEIR_OK) return status;
    status =
        s.config.offline ? recall_cached(&s, &files, error) : ask_hub(&s, s.config.n_retries, &files, error);
    if (status == WEIR_OK) status = weir__name_choose(&s.name, &files, &first, error);
    if (status == WEIR_OK) {
        *file = files.items[first].name;
        files.items[first].name = NULL;
    }
    weir__name_files_fini(&files);
    session_end(&s);
    return status;
}

weir_status weir_hub_list(const char *name, const weir_hub_params *params, weir_hub_files **out,
                          weir_error *error)
{
    session s;
    if (out == NULL) return weir__error_null(error, "files");
    weir_status status = session_begin(&s, name, params, error);
    if (status != WEIR_OK) return status;
    weir_hub_files *files = weir__mem_calloc(1, sizeof *files);
    if (files == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, "files", "out of memory");
    else if (name != NULL)
        status = s.config.offline ? recall_cached(&s, &files->files, error)
                                  : ask_hub(&s, s.config.n_retries, &files->files, error);
    else if ((status = weir__cache_scan_all(s.config.cache, &files->files)) != WEIR_OK)
        weir__error_set(error, status, "files", "out of memory");
    session_end(&s);
    if (status == WEIR_OK)
        *out = files;
    else
        weir_hub_files_destroy(files);
    return status;
}

weir_status weir_hub_files_get(const weir_hub_files *files, size_t i, weir_hub_file *file)
{
    if (files == NULL || file == NULL) return WEIR_INVALID;
    if (i >= files->files.n) return WEIR_END;
    const weir__name_file *from = &files->files.items[i];
    weir_hub_file full = {
        .repo = from->repo, .name = from->name, .path = from->path, .n_bytes = from->n_bytes};
    memcpy(full.sha256, from->sha256, sizeof full.sha256);
    weir__name_quantization(from->name, full.quantization);
    weir__name_shard(from->name, &full.shard, &full.n_shards);
    return weir__sized_give(file, &full, sizeof full, "file", NULL);
}

void weir_hub_files_destroy(weir_hub_files *files)
{
    if (files == NULL) return;
    weir__name_files_fini(&files->files);
    weir__mem_free(files);
}

/* ---- The rest ---- */

weir_status weir_hub_remove(const char *name, const weir_hub_params *params, uint64_t *n_bytes,
                            weir_error *error)
{
    session s;
    uint64_t freed = 0;
    if (name == NULL) return weir__name_parse(NULL, NULL, error);
    weir_status status = session_begin(&s, name, params, error);
    if (status != WEIR_OK) return status;
    status = weir__cache_remove(s.config.cache, &s.name, &freed, error);
    session_end(&s);
    if (status == WEIR_OK && n_bytes != NULL) *n_bytes = freed;
    return status;
}

weir_status weir_hub_get(const char *path, const weir_hub_params *params, char **json, size_t *length,
                         weir_error *error)
{
    session s;
    size_t n = 0;
    if (json == NULL) return weir__error_null(error, "json");
    if (path == NULL || path[0] != '/' || path[1] == '/')
        return weir__invalid(error, WEIR_ERROR_FORM, "path",
                             "`path` is %.100s; expected: the part after the endpoint, /api/…",
                             path != NULL ? path : "NULL");
    for (const char *c = path; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return weir__invalid(error, WEIR_ERROR_FORM, "path",
                                 "`path` has a character at byte %d that must be escaped (%%XX)",
                                 (int)(c - path) + 1);
    weir_status status = session_begin(&s, NULL, params, error);
    if (status != WEIR_OK) return status;
    char *url = weir__text_format("%s%s", s.config.endpoint, path);
    if (url == NULL)
        status = weir__error_set(error, WEIR_NO_MEMORY, "path", "out of memory");
    else if (s.config.offline)
        status = weir__error_set(error, WEIR_NOT_FOUND, "path", "weir is offline (%s)", s.config.offline_by);
    else if ((status = open_http(&s, error)) == WEIR_OK)
        status =
            weir__http_text(s.http, &s.config, url, ANSWER_MAX, path, s.config.n_retries, json, &n, error);
    weir__mem_free(url);
    session_end(&s);
    if (status == WEIR_OK && length != NULL) *length = n;
    return status;
}
