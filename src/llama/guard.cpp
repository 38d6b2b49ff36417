/* guard.cpp: llama.cpp's start and log, and how a failed allocation is known.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Lines that llama.cpp logs go to weir's log, and errors also to the innermost capture of their thread. A
 * handler of operator new notices that memory ran out. */
#include "llama/guard.h"
#include "hook/hook.h"
#include "llama/internal.h"

#include <ggml-cpu.h>

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
}

using weir::capture;

namespace
{
thread_local capture *current_capture = nullptr;
thread_local bool is_starving = false;

std::new_handler next_handler = nullptr;

/* Notes the failure and does what operator new does without a handler. */
void on_no_memory(void)
{
    is_starving = true;
    if (next_handler == nullptr) throw std::bad_alloc();
    next_handler();
}

pthread_once_t watching = PTHREAD_ONCE_INIT;

void watch_memory(void)
{
    next_handler = std::set_new_handler(on_no_memory);
}
} // namespace

weir::starving::starving() : before(is_starving)
{
    pthread_once(&watching, watch_memory);
    is_starving = false;
}

weir::starving::~starving()
{
    is_starving = is_starving || before;
}

bool weir::starving::is_known()
{
    return is_starving;
}

weir::capture::capture() : outer(current_capture)
{
    text[0] = '\0';
    current_capture = this;
}

weir::capture::~capture()
{
    current_capture = outer;
}

/* Drops the name of the logging function. */
void weir::capture::add(const char *line)
{
    std::size_t name = std::strspn(line, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (name > 0 && std::strncmp(line + name, ": ", 2) == 0) line += name + 2;
    std::size_t n = std::strlen(line);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (n == 0) return;
    if (length > 0 && length + 2 < sizeof text) {
        std::memcpy(text + length, "; ", 2);
        length += 2;
    }
    if (n > sizeof text - 1 - length) n = sizeof text - 1 - length;
    std::memcpy(text + length, line, n);
    length += n;
    text[length] = '\0';
}

bool weir::capture::starved() const
{
    static const char *const parts[] = {
        "failed to allocate",
        "unable to allocate",
        "failed to reserve",
        "insufficient memory",
        "out of memory",
        "Cannot allocate memory", /* errno's */
        "Out of memory",
        "OutOfDeviceMemory",
        "OutOfHostMemory",
        "memory allocation of",
        "failed to init ggml context",
        "failed to initialize ggml context",
        "failed to create ggml context",
        "bad_alloc",
    };
    for (const char *part : parts)
        if (says(part)) return true;
    return false;
}

unsigned long long weir::capture::starved_bytes() const
{
    const char *at;
    double mib;
    if ((at = std::strstr(text, "of size ")) != nullptr) return std::strtoull(at + 8, nullptr, 10);
    if ((at = std::strstr(text, "attempted to allocate ")) != nullptr)
        at += 22;
    else if ((at = std::strstr(text, "allocating ")) != nullptr)
        at += 11;
    mib = at != nullptr ? std::strtod(at, nullptr) : 0;
    return mib > 0 ? static_cast<unsigned long long>(mib * 1048576.0) : 0;
}

weir_status weir::refuse_memory(weir_error *error, const char *field, const capture &said, const char *what,
                                const char *advice)
{
    const unsigned long long bytes = said.starved_bytes();
    char size[80] = "";
    if (bytes > 0)
        std::snprintf(size, sizeof size, ", where an allocation of %llu %s failed",
                      bytes >= 1048576 ? bytes >> 20 : bytes, bytes >= 1048576 ? "MiB" : "bytes");
    return weir__error_set(error, WEIR_NO_MEMORY, field, "no memory for %s%s: %s", what, size, advice);
}

weir_status weir::refuse_thrown(weir_error *error, weir_status code, const char *what, const char *text)
{
    if (!starving::is_known()) weir__log(WEIR_LOG_ERROR, "%s: llama.cpp threw: %s", what, text);
    return weir__error_set(error, code, nullptr, "%s; the log has the reason", what);
}

namespace
{

void on_log(ggml_log_level level, const char *text, void *user)
{
    (void)user;
    thread_local ggml_log_level continued = GGML_LOG_LEVEL_INFO;
    if (level == GGML_LOG_LEVEL_CONT) level = continued;
    continued = level;
    weir_log_level to = WEIR_LOG_INFO;
    if (level == GGML_LOG_LEVEL_DEBUG) to = WEIR_LOG_DEBUG;
    if (current_capture != nullptr) {
        if (current_capture->mute && level != GGML_LOG_LEVEL_ERROR) return;
        if (level == GGML_LOG_LEVEL_ERROR) current_capture->add(text);
        if (current_capture->watch != nullptr) current_capture->watch(text, current_capture->watch_user);
    } else {
        if (level == GGML_LOG_LEVEL_WARN) to = WEIR_LOG_WARN;
        if (level == GGML_LOG_LEVEL_ERROR) to = WEIR_LOG_ERROR;
    }
    weir__log(to, "%s", text);
}

pthread_once_t started = PTHREAD_ONCE_INIT;

void start_llama(void)
{
    llama_log_set(on_log, nullptr);
    llama_backend_init();
    weir__hook_install();
    weir::watch_tokenizing();
}

/* The instructions that ggml was compiled for and so needs. */
struct demand {
    int (*compiled)(void);
    weir__cpu_feature feature;
    const char *name;
};
const demand demands[] = {
    {ggml_cpu_has_avx2, WEIR__CPU_AVX2, "AVX2"},
    {ggml_cpu_has_fma, WEIR__CPU_FMA, "FMA"},
    {ggml_cpu_has_f16c, WEIR__CPU_F16C, "F16C"},
    {ggml_cpu_has_bmi2, WEIR__CPU_BMI2, "BMI2"},
    {ggml_cpu_has_avx512, WEIR__CPU_AVX512, "AVX-512"},
    {ggml_cpu_has_avx512_vbmi, WEIR__CPU_AVX512_VBMI, "AVX-512 VBMI"},
    {ggml_cpu_has_avx512_vnni, WEIR__CPU_AVX512_VNNI, "AVX-512 VNNI"},
    {ggml_cpu_has_avx512_bf16, WEIR__CPU_AVX512_BF16, "AVX-512 BF16"},
    {ggml_cpu_has_dotprod, WEIR__CPU_DOTPROD, "dotprod"},
    {ggml_cpu_has_matmul_int8, WEIR__CPU_I8MM, "i8mm"},
};

} // namespace

weir_status weir__llama_start(weir_error *error)
{
    uint32_t features = weir__cpu_features();
    for (const demand &d : demands)
        if (d.compiled() != 0 && (features & d.feature) == 0)
            return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                                   "this build of weir needs a processor with %s, which this one lacks; %s",
                                   d.name,
                                   d.feature < WEIR__CPU_AVX512
                                       ? "all x86-64-v3 processors have it"
                                       : "it was built with GGML_NATIVE on another one, so build it without");
    pthread_once(&started, start_llama);
    return WEIR_OK;
}
