/* list.c: takes sizes, checksums and names of model files from the hub's JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "list.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/signature.h"

/* A size in bytes; false: it is none. 2^62 keeps sums of a few files from overflowing. */
static bool read_size(const json_t *value, uint64_t *n)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > (json_int_t)1 << 62)
        return false;
    *n = (uint64_t)json_integer_value(value);
    return true;
}

/* One file. Files that are no models, or whose names are not safe, are passed over. */
static weir_status read_file(const char *repo, const json_t *entry, weir__name_files *files,
                             weir_error *error)
{
    const char *name = json_string_value(json_object_get(entry, "rfilename"));
    const char *blob = json_string_value(json_object_get(entry, "blobId"));
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const json_t *size = json_object_get(lfs, "size");
    uint64_t n_bytes;
    if (name == NULL || !weir__name_is_safe(name) || !weir__name_is_model(name)) return WEIR_OK;
    if (sha256 != NULL) blob = sha256;
    if (!read_size(size != NULL ? size : json_object_get(entry, "size"), &n_bytes) || blob == NULL ||
        !weir__name_is_hex(blob, sha256 != NULL ? 64 : 40))
        return weir__error_set(error, WEIR_FORMAT, "name",
                               "the hub reports no size or no checksum for %s's file %.150s; is the endpoint "
                               "a hub?",
                               repo, name);
    weir__name_file *file = weir__name_files_add(files, repo, name);
    if (file == NULL || (file->blob = weir__mem_strdup(blob)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory for the files of %s", repo);
    file->n_bytes = n_bytes;
    if (sha256 != NULL) memcpy(file->sha256, sha256, sizeof file->sha256);
    return WEIR_OK;
}

weir_status weir__list_read(const char *repo, const char *json, size_t length, weir__name_files *files,
                            weir_error *error)
{
    json_t *root = NULL;
    size_t i;
    json_t *entry;
    *files = (weir__name_files){0};
    weir_status status = weir__json_parse(json, length, "name", WEIR_FORMAT, &root, error);
    if (status == WEIR_FORMAT) {
        const weir__signature *other = weir__signature_find(json, length, length);
        return weir__error_set(
            error, WEIR_FORMAT, "name",
            "the answer about %s is not in a hub's format%s%s; is the endpoint a hub, and does no "
            "proxy or page to log in answer for it?",
            repo, other != NULL ? " but looks like " : "", other != NULL ? other->kind : "");
    }
    if (status != WEIR_OK) return status;
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *siblings = json_object_get(root, "siblings");
    if (commit == NULL || !weir__name_is_commit(commit) || !json_is_array(siblings)) {
        status = weir__error_set(
            error, WEIR_FORMAT, "name",
            "the hub's answer about %s names no commit, or no files; is the endpoint a hub?", repo);
        goto done;
    }
    memcpy(files->commit, commit, strlen(commit) + 1);
    json_array_foreach(siblings, i, entry)
    {
        if ((status = read_file(repo, entry, files, error)) != WEIR_OK) goto done;
    }
    weir__name_files_sort(files);
done:
    json_decref(root);
    if (status != WEIR_OK) weir__name_files_fini(files);
    return status;
}
