/* conversation.cpp: a conversation as templates get it, from jansson's values by one walk, and its prompts.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The messages get the form that llama.cpp's common_chat_templates_apply gives them, which reads and writes
 * them as JSON twice. llama.cpp's handlers take them as its JSON. Where weir runs a template itself, they
 * become values of Jinja at once. */
#include "llama/chat_parts.h"
#include "llama/guard.h"
#include "llama/limits.h"

#include <chat-auto-parser-helpers.h>

#include <jinja/caps.h>
#include <jinja/runtime.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

extern "C" {
#include "base/json.h"
#include "base/json_read.h"
}

namespace
{

std::string text_of(const json_t *value)
{
    return std::string(json_string_value(value), json_string_length(value));
}

/* Members of messages that are texts, or are left out. */
std::string member_text(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? text_of(value) : std::string();
}

/* An integer beyond 64 bits: see common_json::parse. */
common_json big_integer(const char *digits)
{
    char *end;
    errno = 0;
    const unsigned long long value = std::strtoull(digits, &end, 10);
    if (digits[0] != '-' && errno == 0) return common_json(static_cast<uint64_t>(value));
#if WEIR_PATCHED
    return common_json(std::string(WEIR__JSON_BIG) + digits);
#else
    return common_json(std::strtod(digits, nullptr));
#endif
}

/* What conversations are made into: llama.cpp's JSON for its handlers, and values of its Jinja. */
struct json_maker {
    using value = common_json;

    static value object()
    {
        return common_json::object();
    }
    static value array()
    {
        return common_json::array();
    }
    static void set(value &object, const char *key, value member)
    {
        object[key] = std::move(member);
    }
    static void push(value &array, value element)
    {
        array.push_back(std::move(element));
    }
    static value text(const std::string &of)
    {
        return of;
    }
    static value simple(const json_t *of)
    {
        if (const char *digits = weir__json_digits(of)) return big_integer(digits);
        switch (json_typeof(of)) {
        case JSON_INTEGER: { /* of the types that reading a text gives */
            const json_int_t number = json_integer_value(of);
            if (number < 0) return static_cast<int64_t>(number);
            return static_cast<uint64_t>(number);
        }
        case JSON_REAL: return json_real_value(of);
        case JSON_TRUE: return true;
        case JSON_FALSE: return false;
        default: return nullptr;
        }
    }
};

struct jinja_maker {
    using value = jinja::value;

    static value object()
    {
        return jinja::mk_val<jinja::value_object>();
    }
    static value array()
    {
        return jinja::mk_val<jinja::value_array>();
    }
    static void set(value &object, const char *key, const value &member)
    {
        static_cast<jinja::value_object_t &>(*object).insert(key, member);
    }
    static void push(value &array, const value &element)
    {
        static_cast<jinja::value_array_t &>(*array).push_back(element);
    }
    static value text(const std::string &of)
    {
        const auto made = jinja::mk_val<jinja::value_string>(of);
        made->mark_input();
        return made;
    }
    static value simple(const json_t *of)
    {
        if (const char *digits = weir__json_digits(of)) {
#if WEIR_PATCHED
            return jinja::mk_val<jinja::value_int>(std::string(digits));
#else
            return jinja::mk_val<jinja::value_float>(std::strtod(digits, nullptr));
#endif
        }
        switch (json_typeof(of)) {
        case JSON_INTEGER:
            return jinja::mk_val<jinja::value_int>(static_cast<int64_t>(json_integer_value(of)));
        case JSON_REAL: return jinja::mk_val<jinja::value_float>(json_real_value(of));
        case JSON_TRUE: return jinja::mk_val<jinja::value_bool>(true);
        case JSON_FALSE: return jinja::mk_val<jinja::value_bool>(false);
        default: return jinja::mk_val<jinja::value_none>();
        }
    }
};

template <typename Maker> typename Maker::value value_of(const json_t *from)
{
    const char *key;
    json_t *one;
    std::size_t i;
    if (json_is_string(from)) return Maker::text(text_of(from));
    if (json_is_array(from)) {
        auto array = Maker::array();
        json_array_foreach(const_cast<json_t *>(from), i, one) Maker::push(array, value_of<Maker>(one));
        return array;
    }
    if (!json_is_object(from) || weir__json_digits(from) != nullptr) return Maker::simple(from);
    auto object = Maker::object();
    json_object_foreach(const_cast<json_t *>(from), key, one) Maker::set(object, key, value_of<Maker>(one));
    return object;
}

/* What makes a message's form. */
struct terms {
    const jinja::caps &caps;
    bool trims;     /* this template goes wrong with white space around texts */
    bool developer; /* it knows this role */

    bool only_typed() const
    {
        return !caps.supports_string_content && caps.supports_typed_content;
    }

    std::string text(const json_t *object, const char *name) const
    {
        const std::string given = member_text(object, name);
        return trims ? trim_whitespace(given) : given;
    }
};

/* The texts in one; none has a line of its own beside a marker of a medium. */
std::string joined_parts(const terms &as, const json_t *parts)
{
    std::string text;
    bool after_marker = false;
    json_t *part;
    std::size_t i;
    json_array_foreach(const_cast<json_t *>(parts), i, part)
    {
        const bool is_text = member_text(part, "type") == "text";
        if (is_text && !after_marker && !text.empty()) text += '\n';
        text += is_text ? as.text(part, "text") : member_text(part, "text");
        after_marker = !is_text;
    }
    return text;
}

bool has_media(const json_t *parts)
{
    json_t *part;
    std::size_t i;
    bool has = false;
    json_array_foreach(const_cast<json_t *>(parts), i, part) has = has || member_text(part, "type") != "text";
    return has;
}

template <typename Maker> typename Maker::value text_part(const std::string &text)
{
    auto part = Maker::object();
    Maker::set(part, "type", Maker::text("text"));
    Maker::set(part, "text", Maker::text(text));
    return part;
}

/* True if a message's content is one text. */
bool is_one_text(const terms &as, const json_t *given)
{
    return json_array_size(given) == 0 || has_media(given) ||
           (as.caps.supports_string_content && !as.caps.supports_typed_content);
}

std::string one_text(const terms &as, const json_t *message)
{
    const json_t *given = json_object_get(message, "content");
    return json_is_array(given) ? joined_parts(as, given) : as.text(message, "content");
}

template <typename Maker> typename Maker::value content_of(const terms &as, const json_t *message)
{
    const json_t *given = json_object_get(message, "content");
    const bool is_one = is_one_text(as, given);
    if (is_one && !as.only_typed()) return Maker::text(one_text(as, message));
    auto parts = Maker::array();
    if (is_one) {
        Maker::push(parts, text_part<Maker>(one_text(as, message)));
        return parts;
    }
    json_t *part;
    std::size_t i;
    json_array_foreach(const_cast<json_t *>(given), i, part)
        Maker::push(parts, text_part<Maker>(as.text(part, "text")));
    return parts;
}

struct json_release {
    void operator()(json_t *value) const
    {
        json_decref(value);
    }
};

/* Arguments are JSON, or the text of it, which message.c has read already. The probes of reshape.c did not
 * pass it. */
template <typename Maker> typename Maker::value arguments_of(const terms &as, const json_t *function)
{
    const json_t *given = json_object_get(function, "arguments"),
                 *parsed = json_is_object(given) ? given : json_object_get(function, WEIR__CHAT_PARSED);
    std::unique_ptr<json_t, json_release> own;
    if (!as.caps.supports_object_arguments && json_is_string(given)) return Maker::text(text_of(given));
    if (parsed == nullptr) {
        weir__json_fault fault;
        own.reset(weir__json_read(json_string_value(given), json_string_length(given), WEIR__JSON_DEPTH_MAX,
                                  false, true, &fault));
        parsed = own.get();
    }
    if (parsed == nullptr) throw weir::failure("the arguments of a call cannot be read");
    if (as.caps.supports_object_arguments) return value_of<Maker>(parsed);
    return Maker::text(value_of<json_maker>(parsed).dump());
}

template <typename Maker> typename Maker::value calls_of(const terms &as, const json_t *given)
{
    auto calls = Maker::array();
    json_t *one;
    std::size_t i;
    json_array_foreach(const_cast<json_t *>(given), i, one)
    {
        const json_t *of = json_object_get(one, "function");
        const std::string id = member_text(one, "id");
        auto call = Maker::object(), function = Maker::object();
        Maker::set(function, "name", Maker::text(member_text(of, "name")));
        Maker::set(function, "arguments", arguments_of<Maker>(as, of));
        Maker::set(call, "type", Maker::text("function"));
        Maker::set(call, "function", std::move(function));
        if (!id.empty()) Maker::set(call, "id", Maker::text(id));
        Maker::push(calls, std::move(call));
    }
    return calls;
}

template <typename Maker>
typename Maker::value message_of(const terms &as, const json_t *given, typename Maker::value content)
{
    const std::string role = member_text(given, "role"), reasoning = as.text(given, "reasoning_content");
    const json_t *calls = json_object_get(given, "tool_calls");
    auto message = Maker::object();
    Maker::set(message, "role", Maker::text(role == "developer" && !as.developer ? "system" : role));
    Maker::set(message, "content", std::move(content));
    if (!reasoning.empty()) Maker::set(message, "reasoning_content", Maker::text(reasoning));
    for (const char *name : {"name", "tool_call_id"}) {
        const std::string text = member_text(given, name);
        if (!text.empty()) Maker::set(message, name, Maker::text(text));
    }
    if (json_array_size(calls) > 0) Maker::set(message, "tool_calls", calls_of<Maker>(as, calls));
    return message;
}

/* The first n messages. A system message goes into the next one where the template knows none. */
template <typename Maker>
typename Maker::value messages_of(const terms &as, const json_t *given, std::size_t n)
{
    auto messages = Maker::array();
    const std::string role = n > 0 ? member_text(json_array_get(given, 0), "role") : "";
    const bool drops =
        !as.caps.supports_system_role && (role == "system" || (role == "developer" && !as.developer));
    for (std::size_t i = drops ? 1 : 0; i < n; i++) {
        const json_t *message = json_array_get(given, i);
        auto content = content_of<Maker>(as, message);
        if (drops && i == 1) {
            const auto text = [&](std::size_t of) {
                return content_of<json_maker>(as, json_array_get(given, of)).template get<std::string>();
            };
            content = Maker::text(text(0) + "\n" + text(1));
        }
        Maker::push(messages, message_of<Maker>(as, message, std::move(content)));
    }
    return messages;
}

/* The message that goes on. */
common_chat_msg last_of(const json_t *given)
{
    common_chat_msg message;
    const json_t *content = json_object_get(given, "content");
    json_t *part;
    std::size_t i;
    message.role = member_text(given, "role");
    message.content = member_text(given, "content");
    message.reasoning_content = member_text(given, "reasoning_content");
    message.tool_name = member_text(given, "name");
    message.tool_call_id = member_text(given, "tool_call_id");
    json_array_foreach(const_cast<json_t *>(content), i, part)
        message.content_parts.push_back({member_text(part, "type"), member_text(part, "text")});
    return message;
}

common_chat_continuation continuation(weir__continuation kind)
{
    switch (kind) {
    case WEIR__CONTINUE_TEXT: return COMMON_CHAT_CONTINUATION_CONTENT;
    case WEIR__CONTINUE_REASONING: return COMMON_CHAT_CONTINUATION_REASONING;
    default: return COMMON_CHAT_CONTINUATION_NONE;
    }
}

terms terms_of(const common_chat_template &whole)
{
    const std::string &source = whole.source();
    return {whole.caps,
            source.find("You have access to the following functions in JSONSchema format") !=
                std::string::npos,
            source.find("<|channel|>") != std::string::npos};
}

} // namespace

weir::conversation::conversation(const weir__llama_template *of, const weir__llama_render *from)
    : in(from), t(of), continues(from->continuation != WEIR__CONTINUE_NONE)
{
    given.parallel_tool_calls = in->parallel_tool_calls;
    given.add_generation_prompt = in->add_generation_prompt && !continues;
    /* Some handlers read reasoning that goes on only if it is enabled. */
    given.enable_thinking = in->enable_thinking || in->continuation == WEIR__CONTINUE_REASONING;
    given.continue_final_message = continuation(in->continuation);
    given.reasoning_format =
        in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
}

void weir::conversation::read_form()
{
    if (in->enforced_tools != nullptr) tools = value_of<json_maker>(in->enforced_tools);
    if (in->json_schema != nullptr) schema = value_of<json_maker>(in->json_schema);
}

void weir::conversation::read()
{
    if (is_read) return;
    const std::size_t n = json_array_size(in->messages), n_rendered = n > 0 && continues ? n - 1 : n;
    const common_chat_template &whole = template_of(t, false);
    given.messages = messages_of<json_maker>(terms_of(whole), in->messages, n_rendered);
    if (n_rendered < n) given.continue_msg = last_of(json_array_get(in->messages, n - 1));
    given.extra_context = value_of<json_maker>(in->args);
    if (in->tools != nullptr)
        given.extra_context["tools"] = value_of<json_maker>(in->tools); /* in place of given.tools */
#if WEIR_PATCHED
    given.rendered = std::make_shared<std::vector<std::pair<common_json, std::string>>>();
#endif
    is_read = true;
}

/* ---- Prompts ---- */

namespace
{

const std::string generation_variable = "add_generation_prompt";

/* Runs the statements from `at` on behind the values of those before. */
std::string finish(const jinja::program &program, std::size_t at, jinja::context &ctx,
                   std::vector<jinja::value> done)
{
    for (; at < program.body.size(); at++) done.push_back(program.body[at]->execute(ctx));
    const auto results = jinja::mk_val<jinja::value_array>(std::move(done));
    return jinja::runtime::gather_string_parts(results)->as_string().str();
}

/* True if the source may call pop(), which shortens a list and does not report it: it has the word, or calls
 * a method by a computed name. */
bool may_pop(const std::string &source)
{
    if (source.find("pop") != std::string::npos) return true;
    for (std::size_t at = source.find(']'); at != std::string::npos; at = source.find(']', at + 1)) {
        const std::size_t next = source.find_first_not_of(" \t\r\n", at + 1);
        if (next != std::string::npos && source[next] == '(') return true;
    }
    return false;
}

} // namespace

std::size_t weir::count_shared(const common_chat_template &of)
{
    const std::size_t first = of.source().find(generation_variable);
    const jinja::statements &body = of.prog.body;
    std::size_t n = 0;
    if (may_pop(of.source())) return 0;
    for (std::size_t i = 1; i < body.size(); i++) {
        if (body[i]->pos < body[i - 1]->pos) return 0;
        if (body[i]->pos <= first) n = i;
    }
    return first == std::string::npos ? body.size() : n;
}

void weir::conversation::set_variables(jinja::context &ctx, const common_chat_template &of) const
{
    const char *key;
    json_t *value;
    const json_t *preserve = json_object_get(in->args, "preserve_reasoning"),
                 *effort = json_object_get(in->args, "reasoning_effort");
    /* Names that other templates have for these come first: one that is given itself replaces them. */
    if (json_is_boolean(preserve)) jinja::caps_apply_preserve_reasoning(ctx, json_is_true(preserve));
    if (json_is_string(effort)) jinja::caps_apply_reasoning_effort(ctx, text_of(effort));
    ctx.set_val("messages", messages_of<jinja_maker>(terms_of(template_of(t, false)), in->messages,
                                                     json_array_size(in->messages)));
    ctx.set_val("bos_token", jinja_maker::text(of.bos_token()));
    ctx.set_val("eos_token", jinja_maker::text(of.eos_token()));
    ctx.set_val("enable_thinking", jinja::mk_val<jinja::value_bool>(given.enable_thinking));
    json_object_foreach(const_cast<json_t *>(in->args), key, value)
        ctx.set_val(key, value_of<jinja_maker>(value));
    if (in->tools != nullptr) ctx.set_val("tools", value_of<jinja_maker>(in->tools));
}

std::string weir::conversation::run(bool begun) const
{
    return run(template_of(t, false), begun, std::time(nullptr));
}

std::string weir::conversation::run(const common_chat_template &of, bool begun, std::time_t now) const
{
    jinja::context ctx(of.source());
    ctx.current_time = now;
    set_variables(ctx, of);
    if (begun) ctx.set_val(generation_variable, jinja::mk_val<jinja::value_bool>(true));
    return finish(of.prog, 0, ctx, {});
}

bool weir::conversation::run_twice(const common_chat_template &of, std::size_t n, std::time_t now,
                                   std::string texts[2]) const
{
    const bool first = given.add_generation_prompt;
    std::vector<jinja::value> done;
    jinja::context ctx(of.source());
    ctx.current_time = now;
    set_variables(ctx, of);
    for (std::size_t i = 0; i < n; i++) done.push_back(of.prog.body[i]->execute(ctx));
    jinja::context second(ctx);
    (first ? ctx : second).set_val(generation_variable, jinja::mk_val<jinja::value_bool>(true));
    const std::size_t before = template_limits::changes();
    texts[first] = finish(of.prog, n, ctx, done);
    if (template_limits::changes() != before) return false;
    texts[!first] = finish(of.prog, n, second, std::move(done));
    return true;
}

weir::prompt weir::conversation::render(bool endless) const
{
    const common_chat_template &of = template_of(t, endless);
    const std::size_t n = shared_statements(t);
    const bool first = given.add_generation_prompt;
    const std::time_t now = std::time(nullptr);
    std::string texts[2]; /* [true]: with what begins the answer */
    if (n == 0) texts[first] = run(of, first, now);
    if (n == 0 || !run_twice(of, n, now, texts)) texts[!first] = run(of, !first, now);
    std::size_t same = 0;
    while (same < texts[0].size() && same < texts[1].size() && texts[0][same] == texts[1][same]) same++;
    std::string beginning = texts[1].substr(same);
    return {std::move(texts[first]), std::move(beginning)};
}
