/* answer.cpp: answers, their tool calls included, read by the parser that llama.cpp makes for a rendering.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/chat_parts.h"
#include "llama/guard.h"

#include <chat-peg-parser.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <variant>

using weir::guard;

namespace
{

struct parsed_message {
    common_chat_msg message;
    std::vector<weir__llama_call> calls;
};

/* Follows parsers that only name or wrap another one. */
const common_peg_parser_variant &inner_parser(const common_peg_arena &arena, std::size_t id)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        const common_peg_parser_variant &p = arena.get(id);
        if (const auto *rule = std::get_if<common_peg_rule_parser>(&p))
            id = rule->child;
        else if (const auto *atomic = std::get_if<common_peg_atomic_parser>(&p))
            id = atomic->child;
        else if (const auto *tag = std::get_if<common_peg_tag_parser>(&p))
            id = tag->child;
        else if (const auto *gbnf = std::get_if<common_peg_gbnf_parser>(&p))
            id = gbnf->child;
        else if (const auto *ref = std::get_if<common_peg_ref_parser>(&p))
            id = arena.get_rule(ref->name);
        else if (const auto *all = std::get_if<common_peg_sequence_parser>(&p);
                 all != nullptr && !all->children.empty())
            id = all->children.back();
        else
            break;
    }
    return arena.get(id);
}

void add_delimiter(weir__llama_answers &answers, const std::string &delimiter)
{
    if (delimiter.empty()) return;
    answers.rendered.form.breaks[static_cast<unsigned char>(delimiter[0])] = 1;
    if (delimiter.size() > 1) answers.delimiters.insert(delimiter);
}

/* Parses as common_chat_parse does, which does not report how a parse ended: an answer that breaks off within
 * markup counts as whole, and one that cannot continue as partial. False: there is no message. */
bool parse_answer(const weir__llama_answers *answers, const std::string &answer, bool whole,
                  common_chat_msg &message, bool &broken)
{
    broken = false;
    if (answers->parser.parser.empty()) {
        message = common_chat_parse(answer, false, answers->parser);
        return true;
    }
    common_peg_parse_context context(answers->parser.generation_prompt + answer,
                                     whole ? COMMON_PEG_PARSE_FLAG_NONE : COMMON_PEG_PARSE_FLAG_LENIENT);
    common_peg_parse_result result = answers->parser.parser.parse(context);
    /* Some forms end where they find nothing more to read, and ignore the rest. */
    bool left = context.input.find_first_not_of(" \t\r\n", result.end) != std::string::npos;
    if (whole && (!result.success() || left)) return false;
    if (result.fail() && result.end == 0) return false;
    broken = result.fail() || (result.success() && left);
    common_chat_peg_mapper plain(message);
    common_chat_peg_gemma4_mapper gemma4(message);
    common_chat_peg_minimax_m3_mapper minimax_m3(message);
    switch (answers->parser.format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4: gemma4.from_ast(context.ast, result); break;
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3: minimax_m3.from_ast(context.ast, result); break;
    default: plain.from_ast(context.ast, result); break;
    }
    return true;
}

/* True if the parser takes an answer that is `before`, a letter, `closing` and `after` for reasoning that
 * ends with the letter, and the rest for content. */
bool closes(const weir__llama_answers &answers, const std::string &before, const std::string &closing,
            const std::string &after)
{
    static const char white[] = " \n";
    common_chat_msg message;
    bool broken;
    try {
        if (!parse_answer(&answers, before + "x" + closing + after, false, message, broken) || broken)
            return false;
    } catch (const std::exception &) { /* a mapper threw */
        return false;
    }
    const std::string &reasoning = message.reasoning_content, &content = message.content;
    const std::size_t last = reasoning.find_last_not_of(white), first = content.find_first_not_of(white);
    if (last == std::string::npos || reasoning[last] != 'x') return false;
    return first == std::string::npos ? after.empty() : content.compare(first, std::string::npos, after) == 0;
}

/* SIZE_MAX: it is not there. */
std::size_t find_text(const std::string &what, const char *text, std::size_t length)
{
    const char *at = std::search(text, text + length, what.begin(), what.end());
    return at != text + length ? static_cast<std::size_t>(at - text) : SIZE_MAX;
}

} // namespace

void weir::read_form(weir__llama_answers &answers)
{
    weir__llama_form &form = answers.rendered.form;
    const common_peg_arena &arena = answers.parser.parser;
    form = weir__llama_form();
    form.plain_tail = form.has_breaks = true; /* also without a parser: all is content then */
    for (std::size_t i = 0; i < arena.size(); i++) {
        const common_peg_parser_variant &p = arena.get(i);
        if (const auto *literal = std::get_if<common_peg_literal_parser>(&p))
            add_delimiter(answers, literal->literal);
        if (const auto *until = std::get_if<common_peg_until_parser>(&p))
            for (const std::string &delimiter : until->delimiters) add_delimiter(answers, delimiter);
        if (const auto *ac = std::get_if<common_peg_ac_parser>(&p))
            for (const std::string &delimiter : ac->delimiters) add_delimiter(answers, delimiter);
        const auto *tagged = std::get_if<common_peg_tag_parser>(&p);
        if (tagged == nullptr) continue;
        const std::string &tag = tagged->tag;
        if (tag == common_chat_peg_builder::CONTENT || tag == common_chat_peg_builder::REASONING) {
            const auto *until = std::get_if<common_peg_until_parser>(&inner_parser(arena, tagged->child));
            form.has_breaks = form.has_breaks && until != nullptr;
            if (until != nullptr)
                for (const std::string &delimiter : until->delimiters) answers.ends.add(delimiter);
            if (tag == common_chat_peg_builder::CONTENT)
                form.plain_tail = form.plain_tail && until != nullptr && until->delimiters.empty();
        } else if (tag != common_chat_peg_builder::REASONING_BLOCK) {
            form.plain_tail = false;
            if (tag == common_chat_peg_builder::TOOL_ID) form.has_ids = true;
            if (tag == common_chat_peg_builder::TOOL_ARGS &&
                !std::holds_alternative<common_peg_schema_parser>(inner_parser(arena, tagged->child)))
                form.loose_arguments = true;
            if (tag.compare(0, std::strlen(common_chat_peg_builder::TOOL_ARG) + 1, "tool-arg-") == 0)
                form.loose_arguments = true;
        }
    }
}

bool weir::begins_call(const weir__llama_answers &answers, const std::string &text, const std::string &tool)
{
    common_chat_msg message;
    bool broken;
    return parse_answer(&answers, text, false, message, broken) && !broken &&
           message.tool_calls.size() == 1 && message.tool_calls[0].name == tool;
}

bool weir::find_closing(weir__llama_answers &answers)
{
    static const char *const spaces[][2] = {{"", ""}, {"", "\n"}, {"", "\n\n"}, {"\n", "\n\n"}};
    const std::vector<std::string> &ends = answers.params.thinking_end_tags;
    const std::string &start = answers.params.thinking_start_tag;
    const auto is_long = [](const std::string &mark) { return mark.size() > WEIR__MARK_MAX; };
    if (ends.empty() || ends[0].empty() || is_long(start) || std::any_of(ends.begin(), ends.end(), is_long))
        return false;
    for (const char *after : {"y", ""})
        for (const auto &space : spaces) {
            answers.reasoning_closing = space[0] + ends[0] + space[1];
            if (answers.parser.reasoning_format == COMMON_REASONING_FORMAT_NONE ||
                closes(answers, "", answers.reasoning_closing, after) ||
                closes(answers, start, answers.reasoning_closing, after))
                return true;
        }
    return false;
}

size_t weir__llama_chat_undecided(const weir__llama_chat *chat, const char *text, size_t length)
{
    std::size_t longest = 0;
    for (const std::string &delimiter : chat->answers->delimiters)
        for (std::size_t n = std::min(length, delimiter.size() - 1); n > longest; n--)
            if (std::memcmp(text + length - n, delimiter.data(), n) == 0) longest = n;
    return longest;
}

bool weir__llama_chat_calls(const weir__llama_chat *chat, const char *text, size_t length)
{
    for (const std::string &word : chat->answers->words.texts)
        if (find_text(word, text, length) != SIZE_MAX) return true;
    for (const std::string &end : chat->answers->ends.shortened)
        if (end.size() <= length && std::memcmp(text + length - end.size(), end.data(), end.size()) == 0)
            return true;
    return false;
}

bool weir__llama_chat_delimits(const weir__llama_chat *chat, const char *text, size_t length)
{
    for (const std::string &end : chat->answers->ends.texts) {
        const std::size_t at = find_text(end, text, length);
        if (at != SIZE_MAX && end.size() > 1) return true;
        for (const std::string &more : chat->answers->delimiters) /* "{" alone is ordinary text */
            if (at != SIZE_MAX && find_text(more, text + at, length - at) != SIZE_MAX) return true;
    }
    return weir__llama_chat_calls(chat, text, length);
}

weir_status weir__llama_chat_parse(const weir__llama_chat *chat, const char *text, size_t length, bool whole,
                                   weir__llama_message *message, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the answer cannot be read", [&] {
        std::unique_ptr<parsed_message> parsed(new parsed_message());
        std::string answer(text, length);
        if (!parse_answer(chat->answers.get(), answer, whole, parsed->message, message->broken))
            return WEIR_BACKEND;
        for (const common_chat_tool_call &call : parsed->message.tool_calls) {
            weir__llama_call c = {};
            c.name = call.name.data();
            c.name_length = call.name.size();
            c.arguments = call.arguments.data();
            c.arguments_length = call.arguments.size();
            c.id = call.id.data();
            c.id_length = call.id.size();
            parsed->calls.push_back(c);
        }
        weir::refuse_starved();
        message->content = parsed->message.content.data();
        message->content_length = parsed->message.content.size();
        message->reasoning = parsed->message.reasoning_content.data();
        message->reasoning_length = parsed->message.reasoning_content.size();
        message->calls = parsed->calls.data();
        message->n_calls = parsed->calls.size();
        message->owner = parsed.release();
        return WEIR_OK;
    });
}

void weir__llama_message_fini(weir__llama_message *message)
{
    delete static_cast<parsed_message *>(message->owner);
    *message = weir__llama_message();
}
