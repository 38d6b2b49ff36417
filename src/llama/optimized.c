/* optimized.c: optimized files of llama.cpp's models.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "hook/hook.h"
#include "kernels/panel.h"
#include "llama/internal.h"

static weir__optimized_kind kind_of(uint64_t identity)
{
    weir__optimized_kind kind = {.model = identity, .panels = WEIR__PANEL_VERSION};
    const char *name = weir__hook_kernels();
    memcpy(kind.kernels, name, strnlen(name, sizeof kind.kernels));
    return kind;
}

/* The named file, or the one beside the model. NULL: no memory. */
static char *path_of(const char *model, const char *named)
{
    if (named != NULL) return weir__mem_strdup(named);
    size_t room = strlen(model) + sizeof WEIR__OPTIMIZED_ENDING;
    char *path = weir__mem_alloc(room);
    if (path != NULL) snprintf(path, room, "%s%s", model, WEIR__OPTIMIZED_ENDING);
    return path;
}

weir__optimized_file *weir__llama_optimized_open(const char *model, const char *named, uint64_t identity)
{
    if (weir__hook_kernels()[0] == '\0' || (named != NULL && *named == '\0')) return NULL;
    weir__optimized_kind kind = kind_of(identity);
    weir__optimized_file *file = NULL;
    weir_error error = {0};
    char *path = path_of(model, named);
    if (path == NULL) return NULL; /* the load itself will fail, or do without */
    weir_status status = weir__optimized_file_open(path, &kind, &file, &error);
    if (status != WEIR_OK && (status != WEIR_NOT_FOUND || named != NULL))
        weir__log(WEIR_LOG_WARN, "%s. The weights are packed anew; `weir optimize` writes a file that fits",
                  weir__error_words(&error).text);
    weir__mem_free(path);
    return file;
}

/* ---- Writing and checking ------------------------------------------------------------------------- */

/* The load is the first half of writing. */
typedef struct halves {
    weir_progress_fn fn; /* NULL: none */
    void *user;
    float from;
    bool aborted;
} halves;

static bool on_progress(float done, void *user)
{
    halves *h = user;
    if (h->fn != NULL && !h->aborted && !h->fn(h->from + done / 2, h->user)) h->aborted = true;
    return !h->aborted;
}

static weir_status no_kernels(weir_error *error)
{
    return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                           "weir's kernels are turned off or do not run on this processor; without them "
                           "nothing is packed");
}

/* Loads the model, which gives the writer its packed weights, and writes the file. */
static weir_status pack_model(const char *path, const weir__gguf_info *file, weir__optimized_writer *writer,
                              halves *watch, weir_error *error)
{
    struct llama_model_params params = llama_model_default_params();
    struct llama_model *model = NULL;
    weir__optimized_kind kind = kind_of(file->identity);
    weir__hook_load how = {.mapped = true, .to = writer};
    uint64_t from_file;
    params.n_gpu_layers = 0;
    params.no_host = true; /* as in a load */
    params.load_mode = LLAMA_LOAD_MODE_MMAP;
    params.load_mtp = weir__llama_has_mtp(file->architecture);
    params.progress_callback = on_progress;
    params.progress_callback_user_data = watch;
    if (!weir__hook_begin(&how))
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the threads that pack weights");
    weir_status status = weir__llama_file_load(path, params, &model, error);
    uint64_t packed = weir__hook_end(model, &from_file);
    if (status != WEIR_OK && watch->aborted)
        return weir__error_set(error, WEIR_ABORTED, "progress", "the progress callback ended the load");
    if (status != WEIR_OK) return status;
    watch->from = 0.5f;
    if (packed > 0)
        status = weir__optimized_writer_finish(writer, &kind, on_progress, watch, error);
    else
        status = weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                                 "%.200s has no weights of a format and shape that weir's kernels multiply; "
                                 "nothing was packed; `weir info` shows why",
                                 path);
    llama_model_free(model);
    return status;
}

static bool same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

weir_status weir__llama_model_optimize(const char *path, const char *out, weir_progress_fn progress,
                                       void *user, weir_error *error)
{
    weir__gguf_info info;
    weir__optimized_writer *writer = NULL;
    halves watch = {.fn = progress, .user = user};
    weir_status status = weir__llama_start(error);
    if (status != WEIR_OK) return status;
    if (weir__hook_kernels()[0] == '\0') return no_kernels(error);
    status = weir__gguf_check(path, NULL, &info, error);
    if (status != WEIR_OK) return status;
    char *file = path_of(path, out);
    if (file == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a path");
    if (same_file(path, file))
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, "optimized", "%.200s is the model itself", file);
    else if (!weir__optimized_file_may_replace(file))
        status = weir__invalid(
            error, WEIR_ERROR_CONFLICT, "optimized",
            "%.200s is there and no optimized file; it is not replaced: move it away, or name another place",
            file);
    if (status == WEIR_OK) status = weir__optimized_writer_open(file, &writer, error);
    if (status == WEIR_OK) status = pack_model(path, &info, writer, &watch, error);
    weir__optimized_writer_close(writer);
    weir__mem_free(file);
    return status;
}

weir_status weir__llama_model_optimize_check(const char *path, const char *named, weir_progress_fn progress,
                                             void *user, weir_error *error)
{
    weir__gguf_info info;
    weir__optimized_file *optimized = NULL;
    weir_status status = weir__llama_start(error);
    if (status != WEIR_OK) return status;
    if (weir__hook_kernels()[0] == '\0') return no_kernels(error);
    status = weir__gguf_check(path, NULL, &info, error);
    if (status != WEIR_OK) return status;
    weir__optimized_kind kind = kind_of(info.identity);
    char *file = path_of(path, named);
    if (file == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for a path");
    status = weir__optimized_file_open(file, &kind, &optimized, error);
    if (status == WEIR_OK) status = weir__optimized_file_check(optimized, progress, user, error);
    weir__optimized_file_close(optimized);
    weir__mem_free(file);
    return status;
}
