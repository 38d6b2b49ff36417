/* limits.h: limits on the work of chat templates, at run time and during analysis. For C++ only.
 *
 * A template is a program. llama.patch makes llama.cpp's Jinja pay for its work. An unpatched tree has no
 * limits, and the interrupt function is asked at the end only.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_LIMITS_H
#define WEIR_LLAMA_LIMITS_H

#include <jinja/runtime.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "llama/guard.h"

extern "C" {
#include "base/budget.h"
#include "base/deep.h"
}

namespace weir
{

/* Limits of a chat with n bytes of messages and tools. A conversation takes some hundred steps per message,
 * the analysis of a template some hundred thousand. */
constexpr uint64_t template_steps = 10000000, template_steps_byte = 256;
constexpr uint64_t template_bytes = UINT64_C(256) << 20, template_bytes_byte = 64;  /* memory */
constexpr uint64_t template_output = UINT64_C(4) << 20, template_output_byte = 256; /* an output */

#if WEIR_PATCHED

/* Makes templates on this thread pay from its budget while it exists. */
class template_limits final : public jinja::limits
{
  public:
    explicit template_limits(std::size_t n) : max_output(template_output + template_output_byte * n)
    {
        weir__budget_init(&budget, template_steps + template_steps_byte * n,
                          template_bytes + template_bytes_byte * n);
        current = this;
    }
    ~template_limits()
    {
        /* Values that contain themselves would leak. */
        for (const std::weak_ptr<jinja::value_t> &v : changed)
            if (const std::shared_ptr<jinja::value_t> value = v.lock()) value->let_go();
        current = nullptr;
    }
    template_limits(const template_limits &) = delete;
    template_limits &operator=(const template_limits &) = delete;

    void step(std::size_t n) override
    {
        if (weir__deep_low()) weir__budget_too_deep(&budget);
        if (!weir__budget_step(&budget, n)) throw over();
    }
    void grow(std::size_t n) override
    {
        if (!weir__budget_grow(&budget, n)) throw over();
    }
    void output(std::size_t n) override
    {
        if (n <= max_output) return;
        too_long = true;
        weir__budget_grow(&budget, UINT64_MAX); /* refuses everything from now on */
        throw over();
    }
    void make() override
    {
        if (!weir__budget_grow(&budget, value_bytes)) throw over();
    }
    void unmake() noexcept override
    {
        weir__budget_shrink(&budget, value_bytes);
    }
    void change(const std::shared_ptr<jinja::value_t> &v) override
    {
        n_changes++;
        if (changed.size() >= many) {
            std::vector<std::weak_ptr<jinja::value_t>> alive;
            for (const std::weak_ptr<jinja::value_t> &c : changed)
                if (!c.expired() && (alive.empty() || alive.back().lock() != c.lock())) alive.push_back(c);
            changed = std::move(alive);
            many = 1024 + 2 * changed.size();
        }
        if (changed.empty() || changed.back().lock() != v) changed.push_back(v);
    }

    bool is_over() const
    {
        return weir__budget_over(&budget);
    }
    /* How often templates on this thread have changed a value that others may hold, as far as they report it:
     * pop() does not. */
    static std::size_t changes()
    {
        return static_cast<const template_limits *>(current)->n_changes;
    }
    weir_status report(weir_error *error) const
    {
        if (too_long)
            return weir__error_set(error, WEIR_TEMPLATE, nullptr,
                                   "the chat template's text is longer than %zu KiB, which is too much for "
                                   "these messages",
                                   max_output >> 10);
        return weir__budget_error(&budget, WEIR_TEMPLATE, nullptr, "the chat template", error);
    }

  private:
    static constexpr std::size_t value_bytes = sizeof(jinja::value_object_t) + 64;

    weir__budget budget;
    std::size_t max_output;
    bool too_long = false;
    std::vector<std::weak_ptr<jinja::value_t>> changed;
    std::size_t many = 1024, n_changes = 0;
};

#else

class template_limits final
{
  public:
    explicit template_limits(std::size_t)
    {
    }
    static std::size_t changes() /* unknown */
    {
        static thread_local std::size_t n = 0;
        return n++;
    }
    bool is_over() const
    {
        return weir_interrupt_asked();
    }
    weir_status report(weir_error *error) const
    {
        return weir__interrupt_error(error);
    }
};

#endif

/* A reason in Jinja's own words, without the names of llama.cpp's parts and of C++ types. */
inline std::string plain_reason(std::string reason)
{
    for (const std::string prefix :
         {"Jinja Exception: ", "lexer: ", "parser: ", "Parser Error: ", "NotImplemented: "})
        if (reason.compare(0, prefix.size(), prefix) == 0) reason.erase(0, prefix.size());
    const std::pair<const char *, const char *> types[] = {
        {typeid(jinja::value_int).name(), "Integer"},   {typeid(jinja::value_float).name(), "Float"},
        {typeid(jinja::value_string).name(), "String"}, {typeid(jinja::value_bool).name(), "Boolean"},
        {typeid(jinja::value_array).name(), "Array"},   {typeid(jinja::value_object).name(), "Object"},
    };
    for (const auto &[type, name] : types)
        if (const std::size_t at = reason.find(type); at != std::string::npos)
            reason.replace(at, std::strlen(type), name);
    return reason;
}

/* The reason in an exception of llama.cpp's Jinja, whose text has several lines: a statement, its place, the
 * source around it, the reason; or "parser: ", the reason, the source around it. "": it is not Jinja's, which
 * throws std::runtime_error only while it parses. */
inline std::string template_reason(const std::exception &thrown, bool parses)
{
    static const std::string before = "\nError: ";
    const std::string text = thrown.what();
    const std::size_t error = text.find(before), at = text.find(" at line "), in = text.find(" in source:");
    if (error != std::string::npos && at < in && in < error) {
        return plain_reason(text.substr(error + before.size())) + " (" + text.substr(at + 4, in - at - 4) +
               ")";
    }
    const std::size_t source = text.find("\n..."), end = text.rfind("...\n");
    if (source != std::string::npos && end != std::string::npos && end >= source + 4)
        return plain_reason(text.substr(0, source)) + ", near '" + text.substr(source + 4, end - source - 4) +
               "'";
    const bool own = (parses && typeid(thrown) == typeid(std::runtime_error)) ||
                     dynamic_cast<const jinja::raised_exception *>(&thrown) != nullptr ||
                     dynamic_cast<const jinja::rethrown_exception *>(&thrown) != nullptr ||
                     dynamic_cast<const jinja::not_implemented_exception *>(&thrown) != nullptr;
    return own ? plain_reason(text) : "";
}

/* guard() for functions that run templates, for a chat of n bytes. field: of errors that are the template's
 * own, or nullptr. After an error, results of fn may exist. */
template <typename F>
weir_status limited(std::size_t n, weir_error *error, const char *field, const char *what, F fn)
{
    template_limits limits(n);
    weir_status status = guard(error, WEIR_TEMPLATE, what, [&] {
        try {
            return fn();
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &e) {
            const std::string reason = template_reason(e, false);
            if (reason.empty()) throw;
            throw failure(reason);
        }
    });
    if (limits.is_over()) return limits.report(error);
    if (status != WEIR_TEMPLATE || error == nullptr) return status;
    return weir__error_as(error, error, status, field);
}

} // namespace weir

#endif
