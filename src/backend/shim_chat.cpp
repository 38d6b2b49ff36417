/* shim_chat.cpp: llama.cpp's chat templates, output parsers and schema converter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/shim_chat.h"
#include "backend/shim_guard.h"

#include <chat-peg-parser.h>
#include <chat.h>
#include <json-schema-to-grammar.h>
#include <log.h>

#include <pthread.h>

#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "base/mem.h"
}

using weir::guard;

struct weir__shim_template {
    common_chat_templates_ptr templates;
};

struct weir__shim_chat {
    common_chat_params params;
    common_chat_parser_params parser;
    weir__shim_form form;
};

namespace
{

struct parsed_message {
    common_chat_msg message;
    std::vector<weir__shim_call> calls;
};

/* What common logs itself, beside llama.cpp's log, is about choices made inside it, and goes to stderr. */
void start_chat(void)
{
    common_log_set_verbosity_thold(-1000);
}

void quiet(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_chat);
}

/* Follows what only names a parser to the parser itself. */
std::size_t inner_parser(const common_json &arena, std::size_t id)
{
    const common_json &parsers = arena.at("parsers");
    for (std::size_t i = 0; i < parsers.size(); i++) {
        const common_json &p = parsers.at(id);
        std::string type = p.at("type").get<std::string>();
        if (type == "rule" || type == "atomic" || type == "tag" || type == "gbnf")
            id = p.at("child").get<std::size_t>();
        else if (type == "ref")
            id = arena.at("rules").at(p.at("name").get<std::string>()).get<std::size_t>();
        else if (type == "sequence" && p.at("children").size() > 0)
            id = p.at("children").back().get<std::size_t>();
        else
            break;
    }
    return id;
}

void mark_breaks(weir__shim_form &form, const std::string &delimiter)
{
    if (!delimiter.empty()) form.breaks[static_cast<unsigned char>(delimiter[0])] = 1;
}

/* Looks through a serialized parser for how its texts end. */
void read_form(const std::string &parser, weir__shim_form &form)
{
    form = weir__shim_form();
    if (parser.empty()) {
        form.plain_tail = form.has_breaks = true; /* common then takes all as content */
        return;
    }
    const common_json arena = common_json::parse(parser);
    const common_json &parsers = arena.at("parsers");
    form.plain_tail = form.has_breaks = true;
    for (std::size_t i = 0; i < parsers.size(); i++) {
        const common_json &p = parsers.at(i);
        std::string type = p.at("type").get<std::string>();
        if (type == "literal") mark_breaks(form, p.at("literal").get<std::string>());
        if (type == "until" || type == "ac")
            for (std::size_t k = 0; k < p.at("delimiters").size(); k++)
                mark_breaks(form, p.at("delimiters").at(k).get<std::string>());
        if (type != "tag") continue;
        std::string tag = p.at("tag").get<std::string>();
        if (tag == common_chat_peg_builder::CONTENT || tag == common_chat_peg_builder::REASONING) {
            const common_json &inner = parsers.at(inner_parser(arena, p.at("child").get<std::size_t>()));
            bool until = inner.at("type").get<std::string>() == "until";
            form.has_breaks = form.has_breaks && until;
            if (tag == common_chat_peg_builder::CONTENT)
                form.plain_tail = form.plain_tail && until && inner.at("delimiters").size() == 0;
        } else if (tag != common_chat_peg_builder::REASONING_BLOCK) {
            form.plain_tail = false;
            if (tag == common_chat_peg_builder::TOOL_ID) form.has_ids = true;
            if (tag == common_chat_peg_builder::TOOL_ARGS &&
                parsers.at(inner_parser(arena, p.at("child").get<std::size_t>()))
                        .at("type")
                        .get<std::string>() != "schema")
                form.loose_arguments = true;
            if (tag.compare(0, std::strlen(common_chat_peg_builder::TOOL_ARG) + 1, "tool-arg-") == 0)
                form.loose_arguments = true;
        }
    }
}

/* As common_chat_parse, which does not tell how a parse went: an answer that breaks off in the middle of
 * markup is whole to it, and one that cannot go on is partial. False: there is no message at all. */
bool parse_answer(const weir__shim_chat *chat, const std::string &answer, bool whole,
                  common_chat_msg &message, bool &broken)
{
    broken = false;
    if (chat->parser.parser.empty()) {
        message = common_chat_parse(answer, false, chat->parser);
        return true;
    }
    common_peg_parse_context context(chat->parser.generation_prompt + answer,
                                     whole ? COMMON_PEG_PARSE_FLAG_NONE : COMMON_PEG_PARSE_FLAG_LENIENT);
    common_peg_parse_result result = chat->parser.parser.parse(context);
    /* Some forms end where they find nothing more to read, and leave the rest. */
    bool left = context.input.find_first_not_of(" \t\r\n", result.end) != std::string::npos;
    if (whole && (!result.success() || left)) return false;
    if (result.fail() && result.end == 0) return false;
    broken = result.fail() || (result.success() && left);
    common_chat_peg_mapper plain(message);
    common_chat_peg_gemma4_mapper gemma4(message);
    common_chat_peg_minimax_m3_mapper minimax_m3(message);
    switch (chat->parser.format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4: gemma4.from_ast(context.ast, result); break;
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3: minimax_m3.from_ast(context.ast, result); break;
    default: plain.from_ast(context.ast, result); break;
    }
    return true;
}

common_chat_params render(const weir__shim_template *t, const weir__shim_render *in, bool shown)
{
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(in->messages));
    const char *tools = shown ? in->tools : in->enforced_tools;
    if (tools != nullptr) inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(tools));
    switch (in->tool_choice) {
    case WEIR_TOOLS_AUTO: inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO; break;
    case WEIR_TOOLS_REQUIRED: inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED; break;
    case WEIR_TOOLS_NONE: inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE; break;
    }
    /* The text is the same whatever the choice, and without it no grammar is made of parameters as given. */
    if (shown) inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    if (in->json_schema != nullptr) inputs.json_schema = in->json_schema;
    for (std::size_t i = 0; i < in->n_args; i++)
        inputs.chat_template_kwargs[in->arg_keys[i]] = in->arg_values[i];
    inputs.parallel_tool_calls = in->parallel_tool_calls;
    inputs.add_generation_prompt = in->add_generation_prompt && !in->continue_final;
    inputs.enable_thinking = in->enable_thinking;
    inputs.continue_final_message =
        in->continue_final ? COMMON_CHAT_CONTINUATION_AUTO : COMMON_CHAT_CONTINUATION_NONE;
    inputs.reasoning_format =
        in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    return common_chat_templates_apply(t->templates.get(), inputs);
}

} // namespace

weir_status weir__shim_template_create(const char *source, const char *bos, const char *eos,
                                       weir__shim_template **out, weir_error *error)
{
    quiet();
    return guard(error, WEIR_TEMPLATE, "the chat template cannot be parsed", [&] {
        std::unique_ptr<weir__shim_template> t(new weir__shim_template());
        t->templates = common_chat_templates_init(nullptr, source, bos, eos);
        *out = t.release();
        return WEIR_OK;
    });
}

void weir__shim_template_destroy(weir__shim_template *t)
{
    delete t;
}

bool weir__shim_template_knows_tools(const weir__shim_template *t)
{
    bool knows = false;
    guard(nullptr, WEIR_TEMPLATE, "", [&] {
        auto caps = common_chat_templates_get_caps(t->templates.get());
        knows = caps["supports_tools"] || caps["supports_tool_calls"];
        return WEIR_OK;
    });
    return knows;
}

weir_status weir__shim_chat_create(const weir__shim_template *t, const weir__shim_render *in,
                                   weir__shim_chat **out, weir_error *error)
{
    return guard(error, WEIR_TEMPLATE, "the chat template cannot be rendered", [&] {
        std::unique_ptr<weir__shim_chat> chat(new weir__shim_chat());
        chat->params = render(t, in, false);
        if (in->tools != nullptr) chat->params.prompt = render(t, in, true).prompt;
        chat->parser = common_chat_parser_params(chat->params);
        chat->parser.reasoning_format =
            in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
        if (!chat->params.parser.empty()) chat->parser.parser.load(chat->params.parser);
        read_form(chat->params.parser, chat->form);
        *out = chat.release();
        return WEIR_OK;
    });
}

void weir__shim_chat_destroy(weir__shim_chat *chat)
{
    delete chat;
}

void weir__shim_chat_look(const weir__shim_chat *chat, weir__shim_chat_view *view)
{
    const common_chat_params &p = chat->params;
    view->prompt = p.prompt.c_str();
    view->prompt_length = p.prompt.size();
    view->grammar = p.grammar.c_str();
    view->lazy = p.grammar_lazy;
    view->generation_prompt = p.generation_prompt.c_str();
    view->n_triggers = p.grammar_triggers.size();
    view->n_stops = p.additional_stops.size();
    view->n_preserved = p.preserved_tokens.size();
}

const char *weir__shim_chat_trigger(const weir__shim_chat *chat, size_t i, int *kind)
{
    const common_grammar_trigger &trigger = chat->params.grammar_triggers[i];
    switch (trigger.type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: *kind = 0; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: *kind = 1; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: *kind = 2; break;
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN: *kind = 3; break;
    }
    return trigger.value.c_str();
}

const char *weir__shim_chat_stop(const weir__shim_chat *chat, size_t i)
{
    return chat->params.additional_stops[i].c_str();
}

const char *weir__shim_chat_preserved(const weir__shim_chat *chat, size_t i)
{
    return chat->params.preserved_tokens[i].c_str();
}

void weir__shim_chat_form(const weir__shim_chat *chat, weir__shim_form *form)
{
    *form = chat->form;
}

weir_status weir__shim_chat_parse(const weir__shim_chat *chat, const char *text, size_t length, bool whole,
                                  weir__shim_message *message, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the answer cannot be read", [&] {
        std::unique_ptr<parsed_message> parsed(new parsed_message());
        std::string answer(text, length);
        if (!parse_answer(chat, answer, whole, parsed->message, message->broken)) return WEIR_BACKEND;
        for (const common_chat_tool_call &call : parsed->message.tool_calls) {
            weir__shim_call c = {};
            c.name = call.name.data();
            c.name_length = call.name.size();
            c.arguments = call.arguments.data();
            c.arguments_length = call.arguments.size();
            c.id = call.id.data();
            c.id_length = call.id.size();
            parsed->calls.push_back(c);
        }
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

void weir__shim_message_fini(weir__shim_message *message)
{
    delete static_cast<parsed_message *>(message->owner);
    *message = weir__shim_message();
}

weir_status weir__shim_schema_to_grammar(const char *schema, char **grammar, weir_error *error)
{
    quiet();
    return guard(error, WEIR_GRAMMAR, "the schema has no grammar", [&] {
        std::string text = json_schema_to_grammar(common_json::parse(schema), true);
        *grammar = weir__mem_strdup(text.c_str());
        if (*grammar == nullptr) throw std::bad_alloc();
        return WEIR_OK;
    });
}
