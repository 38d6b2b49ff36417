/* shim.cpp: the C++ of weir. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/shim.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "base/error.h"
#include "base/log.h"
}

namespace
{

/* What llama.cpp says at error level on this thread while a capture stands: the reason that its return values
 * leave out. The text is cut at its capacity; the first lines name the cause. */
struct capture {
    char text[360];
    std::size_t length = 0;
    capture *outer;

    capture();
    ~capture();
    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;

    void add(const char *line);
    /* The reason, or `otherwise` when nothing was logged. */
    const char *reason(const char *otherwise) const
    {
        return length > 0 ? text : otherwise;
    }
};

thread_local capture *current_capture = nullptr;

capture::capture() : outer(current_capture)
{
    text[0] = '\0';
    current_capture = this;
}

capture::~capture()
{
    current_capture = outer;
}

void capture::add(const char *line)
{
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

void on_log(ggml_log_level level, const char *text, void *user)
{
    (void)user;
    thread_local ggml_log_level continued = GGML_LOG_LEVEL_INFO;
    if (level == GGML_LOG_LEVEL_CONT) level = continued;
    continued = level;
    if (level == GGML_LOG_LEVEL_ERROR && current_capture != nullptr) current_capture->add(text);
    switch (level) {
    case GGML_LOG_LEVEL_ERROR: weir__log(WEIR_LOG_ERROR, "%s", text); break;
    case GGML_LOG_LEVEL_WARN: weir__log(WEIR_LOG_WARN, "%s", text); break;
    case GGML_LOG_LEVEL_DEBUG: weir__log(WEIR_LOG_DEBUG, "%s", text); break;
    default: weir__log(WEIR_LOG_INFO, "%s", text); break;
    }
}

/* Runs fn, which returns a weir_status. An exception becomes `code`, with its text; bad_alloc NO_MEMORY. */
template <typename F> weir_status guard(weir_error *error, weir_status code, const char *what, F fn)
{
    try {
        return fn();
    } catch (const std::bad_alloc &) {
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "%s: out of memory", what);
    } catch (const std::exception &e) {
        return weir__error_set(error, code, nullptr, "%s: %s", what, e.what());
    } catch (...) {
        return weir__error_set(error, code, nullptr, "%s: llama.cpp threw what is no std::exception", what);
    }
}

pthread_once_t started = PTHREAD_ONCE_INIT;

void start(void)
{
    llama_log_set(on_log, nullptr);
    llama_backend_init();
}

} // namespace

void weir__shim_start(void)
{
    pthread_once(&started, start);
}

/* ---- chat ---- */
