/* optimized_file.h: a model's packed weights, in a file that loads map.
 *
 * A header, a table of the tensors, and the payload: one image for each buffer that a load allocates, in
 * order, at multiples of WEIR__OPTIMIZED_STEP. The header identifies the model and the kernels that the file
 * was made for. Every opening compares the checksum of header and table, only weir__optimized_file_check that
 * of the payload (ADR 0014). All numbers are in the machine's byte order.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_HOOK_OPTIMIZED_FILE_H
#define WEIR_HOOK_OPTIMIZED_FILE_H

#include "base/file.h"
#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR__OPTIMIZED_ENDING ".weir" /* the suffix of the file beside a model */
#define WEIR__OPTIMIZED_STEP   65536   /* a multiple of every page size */

/* The model and the kernels that a file was made for; a file that differs in any of these is not used. */
typedef struct weir__optimized_kind {
    uint64_t model;   /* weir__gguf_info's identity */
    uint32_t panels;  /* WEIR__PANEL_VERSION */
    char kernels[28]; /* their name, padded with NULs */
} weir__optimized_kind;

typedef struct weir__optimized_tensor {
    char name[64];    /* padded with NULs */
    int64_t shape[4]; /* as in the model's file */
    uint64_t type;    /* likewise */
    uint64_t at;      /* in its buffer */
    uint64_t size;    /* as panels */
} weir__optimized_tensor;

/* ---- Reading: one thread ---- */

typedef struct weir__optimized_file weir__optimized_file;

/* Opens a file and checks header and table. NOT_FOUND; IO; FORMAT: damaged, cut or another kind of file;
 * UNSUPPORTED: made from or for something else; NO_MEMORY. Messages start with the path. */
weir_status weir__optimized_file_open(const char *path, const weir__optimized_kind *kind,
                                      weir__optimized_file **file, weir_error *error);
void weir__optimized_file_close(weir__optimized_file *file); /* mappings remain */

/* Maps the next buffer, which has `size` bytes, for reading. The caller unmaps it. NULL: there is no such
 * buffer. */
void *weir__optimized_file_map(weir__optimized_file *file, size_t size);

/* Adds the file to those that must not change. IO, NO_MEMORY. */
weir_status weir__optimized_file_watch(const weir__optimized_file *file, weir__stamps *files,
                                       weir_error *error);

/* True if this is the next tensor of the table, in the buffer that was mapped last. */
bool weir__optimized_file_is_next(weir__optimized_file *file, const weir__optimized_tensor *tensor);

/* Reads the payload and compares its checksum. ABORTED: by progress, which may be NULL; IO; FORMAT. */
weir_status weir__optimized_file_check(weir__optimized_file *file, weir_progress_fn progress, void *user,
                                       weir_error *error);

/* ---- Writing: one thread ---- */

typedef struct weir__optimized_writer weir__optimized_writer;

/* True if the path has nothing, an empty file or an optimized file. */
bool weir__optimized_file_may_replace(const char *path);

/* Starts a file beside `path`, which replaces it when complete. IO, NO_MEMORY. */
weir_status weir__optimized_writer_open(const char *path, weir__optimized_writer **writer, weir_error *error);

/* Adds a buffer, or a tensor of the last buffer, in ascending order; finish reads its panels. False: no
 * memory. */
void weir__optimized_writer_buffer(weir__optimized_writer *writer, size_t size);
bool weir__optimized_writer_tensor(weir__optimized_writer *writer, const weir__optimized_tensor *tensor,
                                   const void *panels);

/* Writes and syncs everything and puts the file in place. IO, NO_MEMORY, ABORTED. */
weir_status weir__optimized_writer_finish(weir__optimized_writer *writer, const weir__optimized_kind *kind,
                                          weir_progress_fn progress, void *user, weir_error *error);

/* Removes an unfinished file. NULL is ignored. */
void weir__optimized_writer_close(weir__optimized_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
