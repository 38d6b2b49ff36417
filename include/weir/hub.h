/* hub.h: models by name.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HUB_H
#define WEIR_HUB_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Models by name, from a hub with Hugging Face's API, in the cache folder that its other clients use as well.
 * A name is "hf:OWNER/REPO", "hf:OWNER/REPO:QUANTIZATION" or "hf:OWNER/REPO:FILE.gguf". A quantization is
 * what a file's or its folder's name ends with ("Q4_K_M", "UD-Q4_K_XL", in any case); of several files the
 * one with the shortest name is taken. Without one the first of these that there is: Q4_K_M, Q4_K_S, Q4_0,
 * Q4_1, IQ4_NL, IQ4_XS, Q5_K_M, Q5_K_S, Q5_0, Q6_K, Q8_0, MXFP4, Q3_K_L, Q3_K_M, Q3_K_S, BF16, F16, F32,
 * IQ3_M, Q2_K, any.
 *
 * All block, and may be called from any thread; no two threads need to agree. They read the environment
 * (HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE,
 * LLAMA_OFFLINE, https_proxy and its like, CURL_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR), so that no other
 * thread may be changing it. In a build without libcurl, what needs the network is UNSUPPORTED. */

typedef struct weir_hub_progress {
    const char *file;        /* its name in the repository; valid during the call */
    int32_t shard, n_shards; /* 1 and 1 where the model is one file */
    uint64_t n_done;         /* bytes of this file that are there */
    uint64_t n_bytes;        /* its size */
    double rate;             /* bytes per second lately; 0 = unknown, or waiting */
} weir_hub_progress;

/* Called some ten times a second during a download, also while it waits (for another process, or for a hub
 * that asked to), on the caller's thread; false ends it with WEIR_ABORTED. What was downloaded is kept, and a
 * later download goes on from there. */
typedef bool (*weir_hub_progress_fn)(const weir_hub_progress *progress, void *user);

typedef struct weir_hub_params {
    size_t size;
    const char *cache_dir; /* NULL = HF_HUB_CACHE, HF_HOME/hub, or huggingface/hub among the user's caches */
    const char *token;     /* NULL = HF_TOKEN, or the file that other clients keep it in; "" = none */
    const char *endpoint;  /* NULL = HF_ENDPOINT, or Hugging Face */
    const char *revision;  /* branch, tag or commit; NULL = "main" */
    const char *proxy;     /* NULL = the environment's; "" = none */
    const char *no_proxy;  /* hosts, apart by commas; NULL = the environment's */
    bool offline;          /* use what is in the cache; also by HF_HUB_OFFLINE=1 */
    bool force;            /* download files that are there */
    int32_t n_retries;     /* in a row, without getting further: 0 to 100 (5) */
    int32_t timeout_ms;    /* without a connection, or without a byte (30000) */
    weir_hub_progress_fn progress;
    void *progress_user;
} weir_hub_params;

/* As weir_model_params_init. */
WEIR_API void weir_hub_params_init(weir_hub_params *params, size_t size);
static inline weir_hub_params weir_hub_params_default(void)
{
    weir_hub_params params;
    weir_hub_params_init(&params, sizeof params);
    return params;
}

/* The path of a model's file, for weir_model_load; of a model in several files the first, once all are there.
 * Downloads what is missing, into a file that gets its name when its size and SHA-256 are what the hub says;
 * an interrupted download goes on where it was. Processes that want the same file download it once. The token
 * goes to the endpoint's host only. When the hub cannot be reached and the cache has the model, that is used
 * and the log says so. *path is freed with weir_free. params may be NULL. Errors: INVALID; NOT_FOUND (no such
 * repository, revision or file, or offline and not in the cache); DENIED (the repository is gated or
 * private); IO (network, or disk, also a full one); FORMAT (what came is not what the hub says it is; nothing
 * is kept); UNSUPPORTED; NO_MEMORY; ABORTED. */
WEIR_API WEIR_CHECKED weir_status weir_hub_download(const char *name, const weir_hub_params *params,
                                                    char **path, weir_error *error);

/* Which file of its repository a name means, without downloading it. *file is freed with weir_free. Errors as
 * above. */
WEIR_API WEIR_CHECKED weir_status weir_hub_resolve(const char *name, const weir_hub_params *params,
                                                   char **file, weir_error *error);

typedef struct weir_hub_files weir_hub_files;

/* A GGUF file; strings are valid until its list is destroyed. */
typedef struct weir_hub_file {
    size_t size;
    const char *repo; /* "OWNER/REPO" */
    const char *name; /* in the repository */
    const char *path; /* in the cache; NULL = it is not there, or not as it is at the hub now */
    uint64_t n_bytes;
    char sha256[65];         /* hexadecimal; "" = unknown */
    char quantization[16];   /* by its name, e.g. "Q4_K_M"; "" = unknown */
    int32_t shard, n_shards; /* 1 and 1 where the model is one file */
} weir_hub_file;

/* The GGUF files of a repository, by name; what the name says after the repository counts for nothing.
 * Offline those in the cache. name NULL: all in the cache, of every repository and revision; that needs no
 * network. Errors: weir_hub_download's. */
WEIR_API WEIR_CHECKED weir_status weir_hub_list(const char *name, const weir_hub_params *params,
                                                weir_hub_files **files, weir_error *error);

/* The i-th file: all of *file but `size`. WEIR_END past the last. */
WEIR_API weir_status weir_hub_files_get(const weir_hub_files *files, size_t i, weir_hub_file *file);
WEIR_API void weir_hub_files_destroy(weir_hub_files *files);

/* Removes from the cache what a name means there, in all revisions: the whole repository where it names
 * nothing else, or a file, or the files of a quantization with all their shards. *n_bytes (may be NULL) is
 * what that frees. A model that is loaded stays usable. Errors: INVALID, NOT_FOUND, IO, NO_MEMORY, STATE (it
 * is being downloaded). */
WEIR_API weir_status weir_hub_remove(const char *name, const weir_hub_params *params, uint64_t *n_bytes,
                                     weir_error *error);

/* What the hub answers to GET `path` ("/api/models?search=smol&limit=5"), JSON as it came; *json is
 * NUL-terminated, of *length bytes, and is freed with weir_free. length may be NULL. For what weir has no
 * function for. Errors: weir_hub_download's; TOO_LONG: it is more than 32 MB. */
WEIR_API WEIR_CHECKED weir_status weir_hub_get(const char *path, const weir_hub_params *params, char **json,
                                               size_t *length, weir_error *error);

#ifdef __cplusplus
}
#endif

#endif
