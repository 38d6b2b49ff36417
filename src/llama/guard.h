/* guard.h: turns llama.cpp's exceptions, and what it logs of a failure, into errors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_GUARD_H
#define WEIR_LLAMA_GUARD_H

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

extern "C" {
#include "base/error.h"
#include "base/mem.h"
}

/* 1 if scripts/llama.patch is applied: then templates and tokenizers report their work. */
#if __has_include(<jinja/limits.h>)
#define WEIR_PATCHED 1
#else
#define WEIR_PATCHED 0
#endif

namespace weir
{

/* An exception that passes through llama.cpp if a budget is exceeded. No std::exception, so that nothing
 * there catches it. */
struct over {
};

/* A failure that weir itself finds within a call of llama.cpp. Its text is for users. */
struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* vocab.cpp: lets interrupt functions end tokenizations. Once, after llama.cpp's start. */
void watch_tokenizing();

/* Collects, while it exists, the lines that llama.cpp logs at error level on this thread: the reasons that
 * its return values lack. The text is cut at its capacity; the first lines name the cause. No error
 * quotes it; the lines are logged at WEIR_LOG_INFO. */
struct capture {
    char text[360];
    std::size_t length = 0;
    capture *outer;
    /* Gets each line, of any level. It may throw, which ends the call of llama.cpp. */
    void (*watch)(const char *line, void *user) = nullptr;
    void *watch_user = nullptr;
    bool mute = false; /* only errors are logged */

    capture();
    ~capture();
    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;

    void add(const char *line);
    bool says(const char *part) const
    {
        return std::strstr(text, part) != nullptr;
    }
    /* True if an allocation failed, as llama.cpp and its backends say it. */
    bool starved() const;
    /* The bytes of the first allocation that failed; 0 = unknown. */
    unsigned long long starved_bytes() const;
};

/* Watches, while it exists, whether operator new fails on this thread. llama.cpp turns bad_alloc into other
 * exceptions or goes on without what it wanted, and C++'s streams lose text. */
class starving
{
  public:
    starving();
    ~starving();
    starving(const starving &) = delete;
    starving &operator=(const starving &) = delete;

    static bool is_known(); /* of the innermost one on this thread */

  private:
    bool before;
};

/* Throws if memory ran out. Called at the end of a function that makes a result, before it is handed over:
 * the result may be incomplete. */
inline void refuse_starved()
{
    if (starving::is_known()) throw std::bad_alloc();
}

/* A call of llama.cpp threw an exception. Its text, which may name C++ types, goes to the log alone. */
weir_status refuse_thrown(weir_error *error, weir_status code, const char *what, const char *text);

/* Runs fn, which returns a weir_status. An exception becomes `code`; only the text of a weir::failure is in
 * the message. NO_MEMORY: bad_alloc, and any failure when an allocation failed. After weir::over the caller
 * says which budget it was. */
template <typename F> weir_status guard(weir_error *error, weir_status code, const char *what, F fn)
{
    const starving watched;
    weir_status status;
    try {
        status = fn();
    } catch (const std::bad_alloc &) {
        status = WEIR_NO_MEMORY;
        weir__error_set(error, status, nullptr, "%s: out of memory", what);
    } catch (const over &) {
        status = weir__error_set(error, code, nullptr, "%s", what);
    } catch (const failure &e) {
        status = weir__error_set(error, code, nullptr, "%s: %s", what, e.what());
    } catch (const std::exception &e) {
        status = refuse_thrown(error, code, what, e.what());
    } catch (...) {
        status = refuse_thrown(error, code, what, "an exception without a text");
    }
    if (status == WEIR_OK || status == WEIR_NO_MEMORY || !starving::is_known()) return status;
    return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "%s: out of memory", what);
}

/* NO_MEMORY. The message says for what there is none, how large it is where that is known, and what to do;
 * what llama.cpp said is in the log. */
weir_status refuse_memory(weir_error *error, const char *field, const capture &said, const char *what,
                          const char *advice);

/* A failure whose cause weir does not know. logged: the log has what llama.cpp said of it. */
inline weir_status refuse_unknown(weir_error *error, weir_status code, const char *field, const char *what,
                                  bool logged)
{
    return weir__error_set(error, code, field, "%s; %s", what,
                           logged ? "the log has llama.cpp's reason" : "llama.cpp gives no reason");
}

/* Makes room for n zeroed values, which weir__mem_free frees. False: no memory. */
template <typename T> bool allocate(T *&values, std::size_t n)
{
    values = static_cast<T *>(weir__mem_calloc(n, sizeof(T)));
    return values != nullptr;
}

/* Runs a function that can only report failure: `failed` if it throws. */
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
