/* hub.h: models by name. A library of its own, libweir_hub, which needs libweir and libcurl.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_H
#define WEIR_HUB_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Finds, downloads and lists models by name, from a hub with Hugging Face's API. The cache folder is the one
 * that other clients of the hub use.
 *
 * A name is "hf:OWNER/REPO", "hf:OWNER/REPO:QUANTIZATION" or "hf:OWNER/REPO:FILE.gguf". A quantization
 * matches the end of a file's name or of its folder's name ("Q4_K_M", "UD-Q4_K_XL", in upper or lower case);
 * if several files match, the one with the shortest name is used. Without a quantization the first of these
 * that exists is used: Q4_K_M, Q4_K_S, Q4_0, Q4_1, IQ4_NL, IQ4_XS, Q5_K_M, Q5_K_S, Q5_0, Q6_K, Q8_0, MXFP4,
 * Q3_K_L, Q3_K_M, Q3_K_S, BF16, F16, F32, IQ3_M, Q2_K, any other.
 *
 * These functions block. Any thread may call them, without synchronization. They read environment variables
 * (HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE,
 * LLAMA_OFFLINE, https_proxy and the other proxy variables, CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR), so
 * no thread may change the environment meanwhile. In a build without libcurl, calls that need the network
 * return UNSUPPORTED. */

typedef struct weir_hub_progress {
    const char *file;        /* its name in the repository; valid during the call */
    int32_t shard, n_shards; /* shard counts from 1; both are 1 if the model is one file */
    uint64_t n_done;         /* bytes of this file downloaded so far */
    uint64_t n_bytes;        /* size of this file */
    double rate;             /* recent bytes per second; 0 = unknown, or waiting */
    const char *sha256;      /* of this file, hexadecimal; "" = unknown; valid during the call */
} weir_hub_progress;

/* Called about ten times a second during a download, on the caller's thread, also while the download waits
 * for another process or because the hub asked for a delay. False ends the download with WEIR_ABORTED. The
 * bytes downloaded so far are kept, and a later download continues from there. */
typedef bool (*weir_hub_progress_fn)(const weir_hub_progress *progress, void *user);

typedef struct weir_hub_params {
    size_t size;
    /* NULL = HF_HUB_CACHE, HF_HOME/hub, or huggingface/hub in the user's cache folder */
    const char *cache_dir;
    const char *token;    /* NULL = HF_TOKEN, or the token file that other clients use; "" = none */
    const char *endpoint; /* NULL = HF_ENDPOINT, or Hugging Face */
    const char *revision; /* branch, tag or commit; NULL = "main" */
    const char *proxy;    /* NULL = from the environment; "" = none */
    const char *no_proxy; /* hosts, separated by commas; NULL = from the environment */
    bool offline;         /* use the cache only; HF_HUB_OFFLINE=1 or LLAMA_OFFLINE=1 does the same */
    bool force;           /* download cached files again */
    int32_t n_retries;    /* 5; 0 … 100; retries in a row without progress */
    int32_t timeout_ms;   /* 30000; 1 … 3600000; time without a connection or without a byte */
    weir_hub_progress_fn progress;
    void *progress_user;
} weir_hub_params;

/* Fills params as weir_model_params_init does. */
WEIR_API void weir_hub_params_init(weir_hub_params *params, size_t size);
static inline weir_hub_params weir_hub_params_default(void)
{
    weir_hub_params params;
    weir_hub_params_init(&params, sizeof params);
    return params;
}

/* Returns the path of a model's file, for weir_model_load, and downloads missing files. For a model in
 * several files it is the path of the first, and all are complete. A file gets its name once its size and
 * SHA-256 match the hub's; an interrupted download continues where it stopped. Processes that need the same
 * file download it once. The token is sent to the endpoint's host only. If the hub cannot be reached and the
 * cache has the model, that one is used, with a warning in the log. Free *path with weir_free. params may be
 * NULL. Errors: INVALID; NOT_FOUND (no such repository, revision or file; or offline and not in the cache);
 * DENIED (the repository is gated or private); IO (network or disk, also a full disk); FORMAT (the data does
 * not match the hub's size or checksum, and was deleted; or the hub's answer is malformed); UNSUPPORTED;
 * NO_MEMORY; ABORTED. */
WEIR_API WEIR_CHECKED weir_status weir_hub_download(const char *name, const weir_hub_params *params,
                                                    char **path, weir_error *error);

/* Returns the file of the repository that a name selects, without downloading it. Free *file with weir_free.
 * params may be NULL. Errors: as weir_hub_download. */
WEIR_API WEIR_CHECKED weir_status weir_hub_resolve(const char *name, const weir_hub_params *params,
                                                   char **file, weir_error *error);

typedef struct weir_hub_files weir_hub_files;

/* A GGUF file. Strings stay valid until the list is destroyed. */
typedef struct weir_hub_file {
    size_t size;
    const char *repo; /* "OWNER/REPO" */
    const char *name; /* in the repository */
    const char *path; /* in the cache; NULL = not in the cache, or another version of the file */
    uint64_t n_bytes;
    char sha256[65];         /* hexadecimal; "" = unknown */
    char quantization[16];   /* from the file's name, e.g. "Q4_K_M"; "" = unknown */
    int32_t shard, n_shards; /* shard counts from 1; both are 1 if the model is one file */
} weir_hub_file;

/* Lists the GGUF files of a repository, sorted by name; a quantization or file in `name` is ignored. Offline
 * it lists the files in the cache. name NULL = all files in the cache, of every repository and revision,
 * without the network. params may be NULL. Errors: as weir_hub_download. */
WEIR_API WEIR_CHECKED weir_status weir_hub_list(const char *name, const weir_hub_params *params,
                                                weir_hub_files **files, weir_error *error);

/* Fills *file, except `size`, with the i-th file. END: after the last. */
WEIR_API weir_status weir_hub_files_get(const weir_hub_files *files, size_t i, weir_hub_file *file);
WEIR_API void weir_hub_files_destroy(weir_hub_files *files);

/* Removes files from the cache, in all revisions: the whole repository if `name` has no quantization or file,
 * otherwise the file, or the files of the quantization with all their shards. *n_bytes (n_bytes may be NULL)
 * is the space freed. Loaded models stay usable. params may be NULL. Errors: INVALID, NOT_FOUND, IO,
 * NO_MEMORY, STATE (a file is being downloaded). */
WEIR_API weir_status weir_hub_remove(const char *name, const weir_hub_params *params, uint64_t *n_bytes,
                                     weir_error *error);

/* Sends GET `path` ("/api/models?search=smol&limit=5") to the hub and returns its JSON unchanged, for
 * requests that weir has no function for. *json is NUL-terminated, has *length bytes and is freed with
 * weir_free. length and params may be NULL. Errors: as weir_hub_download; TOO_LONG (more than 32 MiB). */
WEIR_API WEIR_CHECKED weir_status weir_hub_get(const char *path, const weir_hub_params *params, char **json,
                                               size_t *length, weir_error *error);

#ifdef __cplusplus
}
#endif

#endif
