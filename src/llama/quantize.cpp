/* quantize.cpp: llama.cpp's quantization of model files. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/guard.h"
#include "llama/internal.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

extern "C" {
#include "base/thread.h"
#include "gguf/gguf.h"
}

using weir::capture;
using weir::guard;

namespace
{

struct {
    const char *name;
    llama_ftype type;
} const types[] = {
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

struct quantizing {
    weir_progress_fn progress; /* NULL: none */
    void *user;
    sigset_t before; /* the caller's signals: blocked while llama.cpp may start threads */
    bool aborted;
};

/* llama_model_quantize reports its progress in its log alone: "[  12/ 272] name …". It catches an exception
 * from there between two tensors, when none of its threads run. */
void on_line(const char *line, void *user)
{
    auto *q = static_cast<quantizing *>(user);
    int done, all;
    if (std::sscanf(line, "[%d/%d]", &done, &all) != 2 || done < 1 || all < done) return;
    weir__thread_restore(&q->before);
    q->aborted = q->progress != nullptr &&
                 !q->progress(static_cast<float>(done - 1) / static_cast<float>(all), q->user);
    weir__thread_quiet(&q->before);
    if (q->aborted) throw std::runtime_error("ended by the caller");
}

/* A write failed, and its stream does not say why: a full disk or a limit refuses 64 KiB more, too. */
weir_status write_failed(const char *out, weir_error *error)
{
    static const char block[4096] = {};
    struct statvfs disk;
    char left[48] = "";
    int file = open(out, O_WRONLY | O_APPEND | O_CLOEXEC), number = file < 0 ? errno : 0;
    for (int i = 0; i < 16 && number == 0; i++)
        if (write(file, block, sizeof block) < 0) number = errno;
    if (file >= 0) close(file);
    if (number == 0)
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr,
                               "no memory for the quantization: free memory, or use fewer threads");
    if (statvfs(out, &disk) == 0)
        std::snprintf(left, sizeof left, " (%llu MB are free there)",
                      static_cast<unsigned long long>(disk.f_bavail) * disk.f_frsize / 1000000);
    return weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written to its end: %s%s", out,
                           std::strerror(number), left);
}

weir_status quantize(const char *path, const char *out, const llama_model_quantize_params *params,
                     quantizing *q, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the model cannot be quantized", [&] {
        capture said;
        said.watch = on_line;
        said.watch_user = q;
        if (llama_model_quantize(path, out, params) == 0) return WEIR_OK;
        if (q->aborted)
            return weir__error_set(error, WEIR_ABORTED, "progress",
                                   "the progress callback ended the quantization");
        if (said.says("requantizing from type"))
            return weir__error_set(
                error, WEIR_UNSUPPORTED, "requantize",
                "the model's weights are quantized already: quantize the original, or ask for "
                "it nevertheless (requantize), which loses more");
        if (said.says("iostream")) return write_failed(out, error);
        if (said.starved())
            return weir::refuse_memory(error, nullptr, said, "the quantization",
                                       "free memory, or use fewer threads");
        return weir__gguf_refused(path, said.text, "cannot be quantized", error);
    });
}

/* llama.cpp writes through a stream that reports neither a full disk nor a missing folder. */
weir_status check_written(const char *out, weir_error *error)
{
    int file = open(out, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fsync(file) != 0) {
        int number = errno;
        if (file >= 0) close(file);
        return weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out,
                               std::strerror(number));
    }
    close(file);
    weir_status status = weir__gguf_check(out, nullptr, nullptr, error);
    if (status == WEIR_OK || status == WEIR_NO_MEMORY) return status;
    return weir__error_set(error, WEIR_IO, "out",
                           "what was written to %.200s is not whole: is the disk full?", out);
}

} // namespace

weir_status weir__llama_model_quantize(const char *path, const char *out, const weir_quantize_params *params,
                                       weir_error *error)
{
    llama_model_quantize_params p = llama_model_quantize_default_params();
    weir_status status = weir__llama_start(error);
    if (status == WEIR_OK) status = weir__gguf_check(path, nullptr, nullptr, error);
    if (status != WEIR_OK) return status;
    int file = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return weir__error_set(error, WEIR_IO, "out", "%.200s cannot be written: %s", out,
                               std::strerror(errno));
    close(file);
    for (const auto &known : types)
        if (std::strcmp(known.name, params->type) == 0) p.ftype = known.type;
    p.nthread = params->n_threads;
    p.allow_requantize = params->requantize;
    /* llama.cpp ends the process if a thread cannot be started. */
    if (!weir__thread_room(p.nthread < 1024 ? p.nthread : 1024))
        return weir__error_set(error, WEIR_NO_MEMORY, "n_threads", "cannot start %d threads; use fewer",
                               p.nthread);
    quantizing q = {params->progress, params->progress_user, {}, false};
    weir__thread_quiet(&q.before);
    status = quantize(path, out, &p, &q, error);
    weir__thread_restore(&q.before);
    return status == WEIR_OK ? check_written(out, error) : status;
}
