/* name.h: names of models at the hub, of their files, and which of these a name means.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_NAME_H
#define WEIR_HUB_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/hub.h"

#define WEIR__NAME_REPO_MAX 200 /* bytes with the terminator */
#define WEIR__NAME_FILE_MAX 1024

/* "hf:OWNER/REPO[:WHAT]" in its parts. */
typedef struct weir__name {
    char repo[WEIR__NAME_REPO_MAX];
    char what[WEIR__NAME_FILE_MAX]; /* a file when it ends in .gguf, else a quantization; "" = the default */
} weir__name;

/* One GGUF file of a repository. Strings are owned; weir__name_files_fini frees them. */
typedef struct weir__name_file {
    char *repo, *name, *path; /* path: in the cache; NULL = it is not there */
    char *blob;               /* the cache's name of its contents; NULL = unknown */
    uint64_t n_bytes;
    char sha256[65]; /* "" = unknown */
} weir__name_file;

typedef struct weir__name_files {
    weir__name_file *items; /* [n] */
    size_t n;
    size_t capacity;
    char commit[65];
} weir__name_files;

void weir__name_files_fini(weir__name_files *files);

/* Adds a file, whose strings are copied; NULL: out of memory. */
weir__name_file *weir__name_files_add(weir__name_files *files, const char *repo, const char *name);

/* Sorts by repository and name. */
void weir__name_files_sort(weir__name_files *files);

/* INVALID (field "name"). */
weir_status weir__name_parse(const char *text, weir__name *name, weir_error *error);

/* True if this may be a branch, a tag or a commit, and a path in refs/. */
bool weir__name_is_revision(const char *text);
bool weir__name_is_commit(const char *text);

/* n lower-case hexadecimal digits and nothing else. */
bool weir__name_is_hex(const char *text, size_t n);

/* True if a path stays below the folder that it is put in: relative, no empty part, none that begins with a
 * dot, no backslash, no control character. */
bool weir__name_is_safe(const char *path);

/* True if a file is a model: *.gguf, and neither a projector nor an importance matrix. */
bool weir__name_is_model(const char *file);

/* The part of the file's name that names its quantization, in capitals, e.g. "Q4_K_M"; "" = none does. */
void weir__name_quantization(const char *file, char quantization[16]);

/* The numbers in a name like x-00002-of-00003.gguf, here 2 and 3; 1 and 1 for any other. Both are at least
 * 1. */
void weir__name_shard(const char *file, int32_t *shard, int32_t *n_shards);

/* The file that a name means: the first shard of one with several. NOT_FOUND (field "name"): the message
 * lists the files that exist. */
weir_status weir__name_choose(const weir__name *name, const weir__name_files *files, size_t *chosen,
                              weir_error *error);

/* The i-th shard (from 1) of the file at `first`; `files` is sorted. NULL: it is missing. */
const weir__name_file *weir__name_shard_of(const weir__name_files *files, size_t first, int32_t shard);

/* ---- The hub's list ---- */

/* Reads the answer of /api/models/OWNER/REPO/revision/REVISION?blobs=true: commit and GGUF files, sorted.
 * Files whose names would leave the folder that they are put in are left out. Errors: FORMAT (field "name"),
 * NO_MEMORY; *files is then empty. */
weir_status weir__list_read(const char *repo, const char *json, size_t length, weir__name_files *files,
                            weir_error *error);

#endif
