/* llama_quantize.c: llama.cpp's quantization of model files.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "backend/llama_internal.h"
#include "base/error.h"
#include "base/thread.h"
#include "gguf/gguf.h"

static const struct {
    const char *name;
    enum llama_ftype type;
} types[] = {
    {"F32", LLAMA_FTYPE_ALL_F32},          {"BF16", LLAMA_FTYPE_MOSTLY_BF16},
    {"F16", LLAMA_FTYPE_MOSTLY_F16},       {"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
    {"Q6_K", LLAMA_FTYPE_MOSTLY_Q6_K},     {"Q5_K_M", LLAMA_FTYPE_MOSTLY_Q5_K_M},
    {"Q5_K_S", LLAMA_FTYPE_MOSTLY_Q5_K_S}, {"Q5_1", LLAMA_FTYPE_MOSTLY_Q5_1},
    {"Q5_0", LLAMA_FTYPE_MOSTLY_Q5_0},     {"Q4_K_M", LLAMA_FTYPE_MOSTLY_Q4_K_M},
    {"Q4_K_S", LLAMA_FTYPE_MOSTLY_Q4_K_S}, {"Q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},
    {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},     {"IQ4_NL", LLAMA_FTYPE_MOSTLY_IQ4_NL},
    {"IQ4_XS", LLAMA_FTYPE_MOSTLY_IQ4_XS}, {"Q3_K_L", LLAMA_FTYPE_MOSTLY_Q3_K_L},
    {"Q3_K_M", LLAMA_FTYPE_MOSTLY_Q3_K_M}, {"Q3_K_S", LLAMA_FTYPE_MOSTLY_Q3_K_S},
    {"Q2_K", LLAMA_FTYPE_MOSTLY_Q2_K},
};

/* llama.cpp writes through a stream that does not tell of a full disk or a missing folder. */
static weir_status check_written(const char *out, weir_error *error)
{
    weir_error why = {0};
    int file = open(out, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fsync(file) != 0) {
        int number = errno;
        if (file >= 0) close(file);
        return weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out, strerror(number));
    }
    close(file);
    if (weir__gguf_check(out, NULL, &why) == WEIR_OK) return WEIR_OK;
    return weir__error_set(error, WEIR_IO, "out", "what was written is not whole; is the disk full? %.200s",
                           why.message);
}

/* The caller's signals are blocked while llama.cpp may start threads, and let in whenever it tells how far it
 * is. */
struct watch {
    weir_progress_fn fn; /* NULL: none */
    void *user;
    sigset_t before;
};

static bool on_progress(float progress, void *user)
{
    struct watch *watch = user;
    weir__thread_restore(&watch->before);
    bool goes_on = watch->fn == NULL || watch->fn(progress, watch->user);
    weir__thread_quiet(&watch->before);
    return goes_on;
}

weir_status weir__llama_model_quantize(const char *path, const char *out, const weir_quantize_params *params,
                                       weir_error *error)
{
    struct llama_model_quantize_params p = llama_model_quantize_default_params();
    weir_status status = weir__shim_start(error);
    if (status == WEIR_OK) status = weir__gguf_check(path, NULL, error);
    if (status != WEIR_OK) return status;
    int file = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out, strerror(errno));
    close(file);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, params->type) == 0) p.ftype = types[i].type;
    p.nthread = params->n_threads;
    p.allow_requantize = params->requantize;
    /* It ends the process when a thread of its own cannot be started. */
    if (!weir__thread_room(p.nthread < 1024 ? p.nthread : 1024))
        return weir__error_set(error, WEIR_NO_MEMORY, "n_threads", "%d threads cannot be started; take fewer",
                               p.nthread);
    struct watch watch = {.fn = params->progress, .user = params->progress_user};
    weir__thread_quiet(&watch.before);
    status = weir__shim_quantize(path, out, &p, on_progress, &watch, error);
    weir__thread_restore(&watch.before);
    return status == WEIR_OK ? check_written(out, error) : status;
}
