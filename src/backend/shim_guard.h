/* shim_guard.h: nothing that llama.cpp throws leaves weir's C++. For the shim's own files only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_BACKEND_SHIM_GUARD_H
#define WEIR_BACKEND_SHIM_GUARD_H

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

extern "C" {
#include "base/error.h"
}

/* Whether scripts/llama.patch is in the tree: templates and tokenizers then say what they do. */
#if __has_include(<jinja/limits.h>)
#define WEIR_PATCHED 1
#else
#define WEIR_PATCHED 0
#endif

namespace weir
{

/* Thrown into llama.cpp's work where a budget is over. It is no std::exception, so that nothing there catches
 * it. */
struct over {
};

/* What llama.cpp says at error level on this thread while a capture stands: the reason that its return values
 * leave out. The text is cut at its capacity; the first lines name the cause. Such lines are logged as
 * information only, since they come back as an error. */
struct capture {
    char text[360];
    std::size_t length = 0;
    capture *outer;
    /* Sees each line, of any level, and may throw: that ends what llama.cpp's C++ does. */
    void (*watch)(const char *line, void *user) = nullptr;
    void *watch_user = nullptr;
    bool mute = false; /* nothing but errors is logged */

    capture();
    ~capture();
    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;

    void add(const char *line);
    bool says(const char *part) const
    {
        return std::strstr(text, part) != nullptr;
    }
    /* The reason, or `otherwise` when nothing was logged. */
    const char *reason(const char *otherwise) const
    {
        return length > 0 ? text : otherwise;
    }
};

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

/* The same for what has no way to tell more than that it failed. */
template <typename T, typename F> T attempt(T failed, F fn)
{
    try {
        return fn();
    } catch (...) {
        return failed;
    }
}

} // namespace weir

#endif
