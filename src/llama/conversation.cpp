/* conversation.cpp: a conversation as templates get it, from jansson's values by one walk.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The messages get the form that llama.cpp's common_chat_templates_apply gives them, which reads and writes
 * them as JSON twice. */
#include "llama/chat_parts.h"
#include "llama/guard.h"

#include <chat-auto-parser-helpers.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

extern "C" {
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

void set_value(common_json &to, const json_t *from)
{
    const char *key, *digits = weir__json_digits(from);
    json_t *one;
    std::size_t i;
    if (digits != nullptr) {
        to = big_integer(digits);
        return;
    }
    switch (json_typeof(from)) {
    case JSON_OBJECT:
        to = common_json::object();
        json_object_foreach(const_cast<json_t *>(from), key, one) set_value(to[key], one);
        break;
    case JSON_ARRAY:
        to = common_json::array();
        json_array_foreach(const_cast<json_t *>(from), i, one)
        {
            to.push_back(nullptr);
            set_value(to.back(), one);
        }
        break;
    case JSON_STRING: to = text_of(from); break;
    case JSON_INTEGER: { /* of the types that reading a text gives */
        const json_int_t value = json_integer_value(from);
        if (value < 0)
            to = static_cast<int64_t>(value);
        else
            to = static_cast<uint64_t>(value);
        break;
    }
    case JSON_REAL: to = json_real_value(from); break;
    case JSON_TRUE: to = true; break;
    case JSON_FALSE: to = false; break;
    default: to = nullptr; break;
    }
}

/* What makes a message's form. */
struct terms {
    const jinja::caps &caps;
    bool trims;     /* this template goes wrong with white space around texts */
    bool developer; /* it knows this role */

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

common_json content_of(const terms &as, const json_t *message)
{
    const json_t *given = json_object_get(message, "content");
    const bool only_string = as.caps.supports_string_content && !as.caps.supports_typed_content,
               only_typed = !as.caps.supports_string_content && as.caps.supports_typed_content;
    common_json parts = common_json::array();
    if (json_array_size(given) == 0 || only_string || has_media(given)) {
        const std::string text = json_is_array(given) ? joined_parts(as, given) : as.text(message, "content");
        if (!only_typed) return common_json(text);
        parts.push_back({{"type", "text"}, {"text", text}});
        return parts;
    }
    json_t *part;
    std::size_t i;
    json_array_foreach(const_cast<json_t *>(given), i, part)
        parts.push_back({{"type", "text"}, {"text", as.text(part, "text")}});
    return parts;
}

/* Arguments are JSON, or the text of it. message.c has read the text already. */
common_json arguments_of(const terms &as, const json_t *function)
{
    const json_t *given = json_object_get(function, "arguments"),
                 *parsed = json_is_object(given) ? given : json_object_get(function, WEIR__CHAT_PARSED);
    common_json arguments;
    if (!as.caps.supports_object_arguments && json_is_string(given)) return common_json(text_of(given));
    if (parsed == nullptr) return common_json::parse(text_of(given));
    set_value(arguments, parsed);
    return as.caps.supports_object_arguments ? arguments : common_json(arguments.dump());
}

common_json calls_of(const terms &as, const json_t *given)
{
    common_json calls = common_json::array();
    json_t *one;
    std::size_t i;
    json_array_foreach(const_cast<json_t *>(given), i, one)
    {
        const json_t *function = json_object_get(one, "function");
        const std::string id = member_text(one, "id");
        common_json call{
            {"type", "function"},
            {"function",
             {{"name", member_text(function, "name")}, {"arguments", arguments_of(as, function)}}},
        };
        if (!id.empty()) call["id"] = id;
        calls.push_back(std::move(call));
    }
    return calls;
}

common_json message_of(const terms &as, const json_t *given)
{
    const std::string role = member_text(given, "role"), reasoning = as.text(given, "reasoning_content");
    const json_t *calls = json_object_get(given, "tool_calls");
    common_json message{{"role", role == "developer" && !as.developer ? "system" : role}};
    message["content"] = content_of(as, given);
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    for (const char *name : {"name", "tool_call_id"}) {
        const std::string text = member_text(given, name);
        if (!text.empty()) message[name] = text;
    }
    if (json_array_size(calls) > 0) message["tool_calls"] = calls_of(as, calls);
    return message;
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

/* Puts a system message into the next one, for a template that knows none. */
void drop_system(common_json &messages)
{
    if (messages.empty() || messages.front().at("role") != "system") return;
    if (messages.size() > 1)
        messages[1]["content"] = messages.front().at("content").get<std::string>() + "\n" +
                                 messages[1].at("content").get<std::string>();
    messages.erase(std::size_t(0));
}

common_chat_continuation continuation(weir__continuation kind)
{
    switch (kind) {
    case WEIR__CONTINUE_TEXT: return COMMON_CHAT_CONTINUATION_CONTENT;
    case WEIR__CONTINUE_REASONING: return COMMON_CHAT_CONTINUATION_REASONING;
    default: return COMMON_CHAT_CONTINUATION_NONE;
    }
}

} // namespace

weir::conversation::conversation(const weir__llama_template *of, const weir__llama_render *in) : t(of)
{
    const common_chat_template &whole = whole_template(of);
    const std::string &source = whole.source();
    const bool continues = in->continuation != WEIR__CONTINUE_NONE;
    const std::size_t n = json_array_size(in->messages), n_rendered = n > 0 && continues ? n - 1 : n;
    const terms as = {whole.caps,
                      source.find("You have access to the following functions in JSONSchema format") !=
                          std::string::npos,
                      source.find("<|channel|>") != std::string::npos};
    given.messages = common_json::array();
    for (std::size_t i = 0; i < n_rendered; i++)
        given.messages.push_back(message_of(as, json_array_get(in->messages, i)));
    if (n_rendered < n) given.continue_msg = last_of(json_array_get(in->messages, n - 1));
    if (!whole.caps.supports_system_role) drop_system(given.messages);
    set_value(given.extra_context, in->args);
    if (in->tools != nullptr)
        set_value(given.extra_context["tools"], in->tools); /* in place of given.tools */
    if (in->enforced_tools != nullptr) set_value(tools, in->enforced_tools);
    if (in->json_schema != nullptr) set_value(schema, in->json_schema);
    given.parallel_tool_calls = in->parallel_tool_calls;
    given.add_generation_prompt = in->add_generation_prompt && !continues;
    /* Some handlers read reasoning that goes on only if it is enabled. */
    given.enable_thinking = in->enable_thinking || in->continuation == WEIR__CONTINUE_REASONING;
    given.continue_final_message = continuation(in->continuation);
    given.reasoning_format =
        in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
#if WEIR_PATCHED
    given.rendered = std::make_shared<std::vector<std::pair<common_json, std::string>>>();
#endif
}
