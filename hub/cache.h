/* cache.h: the folder of models that Hugging Face's clients share.
 * SPDX-License-Identifier: Apache-2.0
 *
 *     models--OWNER--REPO/blobs/SHA256                     contents
 *     models--OWNER--REPO/blobs/SHA256.incomplete          contents on their way
 *     models--OWNER--REPO/refs/REVISION                    a commit
 *     models--OWNER--REPO/snapshots/COMMIT/FILE            -> ../../blobs/SHA256
 *     .locks/models--OWNER--REPO/SHA256.lock               flock, while it is on its way */
#ifndef WEIR_HUB_CACHE_H
#define WEIR_HUB_CACHE_H

#include <stdbool.h>

#include "name.h"

/* NULL: out of memory. Freed with weir__mem_free, as are all paths here. */
char *weir__cache_blob(const char *cache, const char *repo, const char *blob);
char *weir__cache_file(const char *cache, const char *repo, const char *commit, const char *name);

/* Makes the folders above a path. IO (field "cache_dir"). */
weir_status weir__cache_make_parents(const char *path, weir_error *error);

/* Waits until no other process has the lock of a blob. Ends with close(*descriptor). tick (may be NULL) is
 * called while it waits; false: ABORTED. try_once: STATE where another has it. */
weir_status weir__cache_lock(const char *cache, const char *repo, const char *blob, bool try_once,
                             bool (*tick)(void *user), void *user, int *descriptor, weir_error *error);

/* The commit that a revision is, as the cache knows it; NOT_FOUND without a message. */
weir_status weir__cache_commit(const char *cache, const char *repo, const char *revision, char commit[65]);
weir_status weir__cache_set_ref(const char *cache, const char *repo, const char *revision, const char *commit,
                                weir_error *error);

/* Makes the name of a blob in a snapshot. */
weir_status weir__cache_link(const char *cache, const char *repo, const char *commit, const char *name,
                             const char *blob, weir_error *error);

/* Adds the GGUF files of a snapshot, or of all snapshots of all repositories; sorted, each once.
 * NO_MEMORY. */
weir_status weir__cache_scan(const char *cache, const char *repo, const char *commit,
                             weir__name_files *files);
weir_status weir__cache_scan_all(const char *cache, weir__name_files *files);

/* Removes the files of a name, as weir_hub_remove says. */
weir_status weir__cache_remove(const char *cache, const weir__name *name, uint64_t *n_bytes,
                               weir_error *error);

#endif
