/* shim_chat.cpp: llama.cpp's chat templates and parsers of answers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/shim_chat.h"
#include "backend/shim_guard.h"
#include "backend/shim_limits.h"

#include <chat-auto-parser.h>
#include <chat-peg-parser.h>
#include <chat.h>
#include <json-schema-to-grammar.h>
#include <json-schema.h>
#include <log.h>

#include <pthread.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
}

using weir::guard;

/* The result of llama.cpp's analysis for prompts that end like this. */
struct weir__shim_found {
    std::string generation_prompt;
    bool parse_reasoning;
    common_chat_params params; /* without the prompt */
};

struct weir__shim_template {
    common_chat_templates_ptr templates;
    /* The same without the end token's text, or empty. llama.cpp takes that text for a part of the form of
     * calls, and then misses ids before the arguments. So parsers of calls come from here; prompts do not. */
    common_chat_templates_ptr endless;
    /* llama.cpp has no handler for it: it renders examples to find how reasoning and calls are marked, again
     * for each prompt. */
    bool analyzed;
    bool knows_tools;
    mutable std::mutex mutex; /* protects `found` */
    mutable std::vector<weir__shim_found> found;
};

/* Texts without the white space at their end, which an answer may lack. */
struct text_set {
    std::set<std::string> texts;
    std::set<std::string> shortened; /* those that had it */

    void add(const std::string &text)
    {
        const std::string shorter = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
        if (!shorter.empty()) texts.insert(shorter);
        if (shorter.size() > 1 && shorter != text) shortened.insert(shorter);
    }
};

struct weir__shim_chat {
    common_chat_params params;
    common_chat_parser_params parser;
    weir__shim_rendered rendered; /* its texts lie in params, its arrays in the next */
    std::vector<weir__trigger> triggers;
    std::vector<const char *> stops, preserved, reasoning_ends;
    std::set<std::string> delimiters; /* of the form */
    text_set ends;                    /* delimiters of content and reasoning */
    text_set words;                   /* that trigger the grammar */
    std::string reasoning_closing;
};

namespace
{

struct parsed_message {
    common_chat_msg message;
    std::vector<weir__shim_call> calls;
};

/* common logs its internal decisions to stderr, beside llama.cpp's log. */
void start_chat(void)
{
    common_log_set_verbosity_thold(-1000);
}

void quiet(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_chat);
}

/* Follows parsers that only name or wrap another one. */
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

void add_delimiter(const std::string &delimiter, weir__shim_form &form, std::set<std::string> &delimiters)
{
    if (delimiter.empty()) return;
    form.breaks[static_cast<unsigned char>(delimiter[0])] = 1;
    if (delimiter.size() > 1) delimiters.insert(delimiter);
}

/* Reads from a serialized parser how its texts end. */
void read_form(const std::string &parser, weir__shim_form &form, std::set<std::string> &delimiters,
               text_set &ends)
{
    form = weir__shim_form();
    if (parser.empty()) {
        form.plain_tail = form.has_breaks = true; /* common then treats all as content */
        return;
    }
    const common_json arena = common_json::parse(parser);
    const common_json &parsers = arena.at("parsers");
    form.plain_tail = form.has_breaks = true;
    for (std::size_t i = 0; i < parsers.size(); i++) {
        const common_json &p = parsers.at(i);
        std::string type = p.at("type").get<std::string>();
        if (type == "literal") add_delimiter(p.at("literal").get<std::string>(), form, delimiters);
        if (type == "until" || type == "ac")
            for (std::size_t k = 0; k < p.at("delimiters").size(); k++)
                add_delimiter(p.at("delimiters").at(k).get<std::string>(), form, delimiters);
        if (type != "tag") continue;
        std::string tag = p.at("tag").get<std::string>();
        if (tag == common_chat_peg_builder::CONTENT || tag == common_chat_peg_builder::REASONING) {
            const common_json &inner = parsers.at(inner_parser(arena, p.at("child").get<std::size_t>()));
            bool until = inner.at("type").get<std::string>() == "until";
            form.has_breaks = form.has_breaks && until;
            for (std::size_t k = 0; until && k < inner.at("delimiters").size(); k++)
                ends.add(inner.at("delimiters").at(k).get<std::string>());
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

/* Like common_chat_parse, which does not report how a parse ended: an answer that breaks off within markup
 * counts as whole, and one that cannot continue as partial. False: there is no message. */
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
    /* Some forms end where they find nothing more to read, and ignore the rest. */
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

/* A template can end a prompt in few ways: with or without reasoning, which is parsed or not. */
constexpr std::size_t found_max = 8;

bool is_analyzed(const common_chat_templates *templates, const char *bos, const char *eos)
{
    try {
        const common_chat_template parsed(common_chat_templates_source(templates), bos, eos);
        autoparser::generation_params params;
        params.messages = common_json::parse("[{\"role\": \"user\", \"content\": \"x\"}]");
        params.add_generation_prompt = true;
        return !common_chat_try_specialized_template(parsed, parsed.source(), params).has_value();
    } catch (const std::exception &) { /* its handler threw */
        return false;
    }
}

/* Without tools, schema and a message to continue, the result of the analysis depends only on how the prompt
 * ends. So the prompt is rendered alone, and the rest is reused. */
common_chat_params apply_analyzed(const weir__shim_template *t, common_chat_templates_inputs &inputs)
{
    const bool parse_reasoning = inputs.reasoning_format != COMMON_REASONING_FORMAT_NONE;
    inputs.force_pure_content = true;
    common_chat_params rendered = common_chat_templates_apply(t->templates.get(), inputs);
    {
        const std::lock_guard<std::mutex> lock(t->mutex);
        for (const weir__shim_found &found : t->found) {
            if (found.generation_prompt != rendered.generation_prompt ||
                found.parse_reasoning != parse_reasoning)
                continue;
            common_chat_params params = found.params;
            params.prompt = std::move(rendered.prompt);
            return params;
        }
    }
    inputs.force_pure_content = false;
    common_chat_params params = common_chat_templates_apply(t->templates.get(), inputs);
    weir__shim_found found = {params.generation_prompt, parse_reasoning, params};
    found.params.prompt.clear();
    weir::refuse_starved(); /* it would be kept */
    const std::lock_guard<std::mutex> lock(t->mutex);
    if (t->found.size() == found_max) t->found.erase(t->found.begin());
    t->found.push_back(std::move(found));
    return params;
}

common_chat_continuation continuation(weir__continuation kind)
{
    switch (kind) {
    case WEIR__CONTINUE_TEXT: return COMMON_CHAT_CONTINUATION_CONTENT;
    case WEIR__CONTINUE_REASONING: return COMMON_CHAT_CONTINUATION_REASONING;
    default: return COMMON_CHAT_CONTINUATION_NONE;
    }
}

/* Renders with these tools, this choice and this schema. bare: only the prompt of the result is used; without
 * it, and with tools, the prompt is not. */
common_chat_params render(const weir__shim_template *t, const weir__shim_render *in, const char *tools,
                          common_chat_tool_choice choice, const char *schema, bool bare = false)
{
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(common_json::parse(in->messages));
    if (tools != nullptr) inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(tools));
    inputs.tool_choice = choice;
    if (schema != nullptr) inputs.json_schema = schema;
    const common_json args = common_json::parse(in->args);
    for (const auto &arg : args.items()) inputs.chat_template_kwargs[arg.key()] = arg.value().dump();
    inputs.parallel_tool_calls = in->parallel_tool_calls;
    inputs.add_generation_prompt = in->add_generation_prompt && in->continuation == WEIR__CONTINUE_NONE;
    /* Without it, some handlers do not read the reasoning that goes on. */
    inputs.enable_thinking = in->enable_thinking || in->continuation == WEIR__CONTINUE_REASONING;
    inputs.continue_final_message = continuation(in->continuation);
    inputs.reasoning_format =
        in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    const bool continues = in->continuation != WEIR__CONTINUE_NONE;
    inputs.force_pure_content = bare && t->analyzed && !continues;
    const bool parses_calls = tools != nullptr && !bare && t->endless != nullptr;
    if (parses_calls) return common_chat_templates_apply(t->endless.get(), inputs);
    if (t->analyzed && tools == nullptr && schema == nullptr && !continues && !bare)
        return apply_analyzed(t, inputs);
    return common_chat_templates_apply(t->templates.get(), inputs);
}

/* ---- Answers that must be a call, or a call or a text of a given form ----
 *
 * llama.cpp's own grammar for required calls allows any text before them, and has no form of a text beside
 * calls. So its parser is changed (saved, it is JSON: nodes that name each other by number), and the grammar
 * made again. */

/* Makes nodes with this tag match only the empty text. As a choice of one, because only a choice gets
 * brackets in the grammar, and a "?" may follow. */
void silence(common_json &arena, const char *tag)
{
    common_json &parsers = arena.at("parsers");
    const std::size_t n = parsers.size();
    parsers.push_back(common_json{{"type", "literal"}, {"literal", ""}});
    for (std::size_t i = 0; i < n; i++)
        if (parsers.at(i).at("type").get<std::string>() == "tag" &&
            parsers.at(i).at("tag").get<std::string>() == tag)
            parsers.at(i) = common_json{{"type", "choice"}, {"children", std::vector<std::size_t>{n}}};
}

bool is_fence(const common_json &parser)
{
    return parser.at("type").get<std::string>() == "literal" &&
           parser.at("literal").get<std::string>().compare(0, 3, "```") == 0;
}

bool begins_with_fence(const common_json &parsers, std::size_t id)
{
    const common_json &parser = parsers.at(id);
    if (parser.at("type").get<std::string>() == "sequence")
        return begins_with_fence(parsers, parser.at("children").at(0).get<std::size_t>());
    return is_fence(parser);
}

/* Removes the Markdown fences that llama.cpp's handlers allow or require around an answer with a schema: a
 * client that asked for JSON would get them if a stop string or the maximum length ended the answer within
 * one. */
void drop_fences(common_json &arena)
{
    common_json &parsers = arena.at("parsers");
    for (std::size_t i = 0; i < parsers.size(); i++) {
        if (parsers.at(i).at("type").get<std::string>() != "choice") continue;
        std::vector<std::size_t> kept;
        for (const std::size_t child : parsers.at(i).at("children").get<std::vector<std::size_t>>())
            if (!begins_with_fence(parsers, child)) kept.push_back(child);
        if (!kept.empty()) parsers.at(i)["children"] = kept;
    }
    for (std::size_t i = 0; i < parsers.size(); i++)
        if (is_fence(parsers.at(i))) parsers.at(i)["literal"] = "";
}

constexpr int word_max = 32; /* the most characters of words that some forms allow beside calls */

/* Grammars cannot look ahead, so a parser that does may refuse a text that its grammar allows: in some forms,
 * a space before the end of a call. The grammar suffices, so lookaheads are dropped. And words get a maximum
 * length. */
void narrow(common_json &arena)
{
    common_json &parsers = arena.at("parsers");
    for (std::size_t i = 0; i < parsers.size(); i++) {
        const std::string type = parsers.at(i).at("type").get<std::string>();
        if (type == "and") parsers.at(i) = common_json{{"type", "literal"}, {"literal", ""}};
        if (type == "chars" && parsers.at(i).at("max_count").get<int>() < 0)
            parsers.at(i)["max_count"] = std::max(word_max, parsers.at(i).at("min_count").get<int>());
    }
}

const char *const schema_name = "response-format-schema"; /* as most of llama.cpp's handlers call it */

/* Gives the content a schema, also if the template's handler has none. */
void give_schema(common_json &arena)
{
    common_json &parsers = arena.at("parsers");
    const std::size_t n = parsers.size();
    for (std::size_t i = 0; i < n; i++)
        if (parsers.at(i).at("type").get<std::string>() == "schema") return;
    for (std::size_t i = 0; i < n; i++) {
        if (parsers.at(i).at("type").get<std::string>() != "tag" ||
            parsers.at(i).at("tag").get<std::string>() != common_chat_peg_builder::CONTENT)
            continue;
        const std::size_t child = parsers.at(i).at("child").get<std::size_t>();
        parsers.push_back(
            common_json{{"type", "schema"}, {"child", child}, {"name", schema_name}, {"raw", false}});
        parsers.at(i)["child"] = parsers.size() - 1;
    }
}

/* Makes a accept all texts that a or b accepts; a comes first. */
void add_alternative(common_json &a, const common_json &b)
{
    const std::string prefix = "answer-";
    common_json &parsers = a.at("parsers");
    const std::size_t n = parsers.size();
    for (std::size_t i = 0; i < b.at("parsers").size(); i++) {
        common_json p = b.at("parsers").at(i);
        if (p.contains("child")) p["child"] = p.at("child").get<std::size_t>() + n;
        if (p.contains("children")) {
            auto children = p.at("children").get<std::vector<std::size_t>>();
            for (std::size_t &child : children) child += n;
            p["children"] = children;
        }
        const std::string type = p.at("type").get<std::string>();
        if (type == "rule" || type == "ref") p["name"] = prefix + p.at("name").get<std::string>();
        parsers.push_back(p);
    }
    for (const auto &rule : b.at("rules").items())
        a.at("rules")[prefix + rule.key()] = rule.value().get<std::size_t>() + n;
    const std::vector<std::size_t> both = {a.at("root").get<std::size_t>(),
                                           b.at("root").get<std::size_t>() + n};
    parsers.push_back(common_json{{"type", "choice"}, {"children", both}});
    a["root"] = parsers.size() - 1;
}

using schema_map =
    std::map<std::string, std::pair<common_chat_schema_document_ptr, const common_chat_schema *>>;

common_chat_schema_document_ptr read_schema(const common_json &schema)
{
    return std::make_shared<const common_chat_schema_document>(common_chat_schema_from_json(schema));
}

/* Maps the names that parsers have for schemas to the schemas, which saving a parser loses. */
schema_map name_schemas(const weir__shim_render *in)
{
    schema_map named;
    const common_json tools =
        in->enforced_tools != nullptr ? common_json::parse(in->enforced_tools) : common_json::array();
    for (std::size_t i = 0; i < tools.size(); i++) {
        const common_json &function = tools.at(i).at("function");
        const std::string tool = "tool-" + function.at("name").get<std::string>();
        const auto document = read_schema(common_chat_tool_parameters(function));
        named[tool + "-schema"] = {document, document->root.get()};
        const auto *object = dynamic_cast<const common_chat_schema_object *>(document->root.get());
        for (std::size_t k = 0; object != nullptr && k < object->properties.size(); k++)
            named[tool + "-arg-" + object->properties[k].name + "-schema"] = {
                document, object->properties[k].schema.get()};
    }
    if (in->json_schema != nullptr) {
        const auto document = read_schema(common_json::parse(in->json_schema));
        named[schema_name] = named["response-format"] = {document, document->root.get()};
    }
    return named;
}

/* Puts the schemas back. False: one is not known by name. */
bool return_schemas(common_peg_arena &arena, const schema_map &named)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        auto *schema = std::get_if<common_peg_schema_parser>(&arena.get(i));
        if (schema == nullptr) continue;
        const auto found = named.find(schema->name);
        if (found == named.end()) return false;
        schema->doc = found->second.first;
        schema->node = found->second.second;
    }
    return true;
}

/* The parts that a grammar made of these parsers leaves open. Reasoning, ids and text arguments may be
 * open. */
struct openness {
    bool free_text = false;     /* any text is allowed elsewhere */
    bool sure_argument = false; /* an argument that every call has */
    bool arguments = false, calls = false;
};

void look_for_openness(const common_peg_arena &arena, std::size_t id, bool sure,
                       std::set<std::pair<std::size_t, bool>> &seen, openness &found)
{
    if (!seen.insert({id, sure}).second) return;
    const auto look = [&](std::size_t child, bool still_sure) {
        look_for_openness(arena, child, still_sure, seen, found);
    };
    const common_peg_parser_variant &parser = arena.get(id);
    if (std::holds_alternative<common_peg_until_parser>(parser) ||
        std::holds_alternative<common_peg_any_parser>(parser) ||
        std::holds_alternative<common_peg_string_parser>(parser))
        found.free_text = true;
    else if (const auto *tag = std::get_if<common_peg_tag_parser>(&parser)) {
        const std::string &name = tag->tag;
        found.calls = found.calls || name == common_chat_peg_builder::TOOL_NAME;
        if (name == common_chat_peg_builder::TOOL_ARG) {
            found.arguments = true;
            found.sure_argument = found.sure_argument || sure;
        }
        const bool free_text = found.free_text;
        look(tag->child, sure);
        if (name == common_chat_peg_builder::REASONING || name == common_chat_peg_builder::TOOL_ID ||
            name == common_chat_peg_builder::TOOL_ARG_STRING_VALUE)
            found.free_text = free_text;
    } else if (const auto *sequence = std::get_if<common_peg_sequence_parser>(&parser))
        for (std::size_t child : sequence->children) look(child, sure);
    else if (const auto *choice = std::get_if<common_peg_choice_parser>(&parser))
        for (std::size_t child : choice->children) look(child, sure);
    else if (const auto *repetition = std::get_if<common_peg_repetition_parser>(&parser))
        look(repetition->child, sure && repetition->min_count > 0);
    else if (const auto *rule = std::get_if<common_peg_rule_parser>(&parser))
        look(rule->child, sure);
    else if (const auto *ref = std::get_if<common_peg_ref_parser>(&parser))
        look(arena.get_rule(ref->name), sure);
    else if (const auto *atomic = std::get_if<common_peg_atomic_parser>(&parser))
        look(atomic->child, sure);
    else if (const auto *ac = std::get_if<common_peg_ac_parser>(&parser))
        look(ac->child, sure);
    /* The rest: literals, character classes, schemas, and texts with a grammar of their own. */
}

bool have_required(const char *tools_json)
{
    const common_json tools = common_json::parse(tools_json);
    for (std::size_t i = 0; i < tools.size(); i++) {
        const common_json parameters = common_chat_tool_parameters(tools.at(i).at("function"));
        if (parameters.contains("required") && parameters.at("required").size() > 0) return true;
    }
    return false;
}

/* Whether every answer that the parser accepts is a call of a known tool with all required arguments. */
bool holds_to_calls(const common_peg_arena &arena, const weir__shim_render *in)
{
    std::set<std::pair<std::size_t, bool>> seen;
    openness found;
    look_for_openness(arena, arena.root(), true, seen, found);
    return found.calls && !found.free_text &&
           (!found.arguments || found.sure_argument || !have_required(in->enforced_tools));
}

/* Makes params' grammar again, from this parser. Without enable_thinking, reasoning is empty unless the
 * prompt itself has started it. False: a schema is unknown. */
bool constrain(const weir__shim_render *in, const schema_map &named, const common_json &arena,
               common_chat_params &params)
{
    std::string text = arena.dump();
    common_peg_arena parser;
    if (!in->enable_thinking) {
        common_json quick = arena;
        silence(quick, common_chat_peg_builder::REASONING);
        parser.load(quick.dump());
        common_peg_parse_context begin(params.generation_prompt, COMMON_PEG_PARSE_FLAG_LENIENT);
        if (!parser.parse(begin).fail()) text = quick.dump();
    }
    parser.load(text);
    if (!return_schemas(parser, named)) return false;
    params.parser = text;
    params.grammar =
        build_grammar([&](const common_grammar_builder &builder) { parser.build_grammar(builder); });
    params.grammar_lazy = false;
    params.grammar_triggers.clear();
    return true;
}

/* Renders the tools as they were given. */
common_chat_params render_tools(const weir__shim_template *t, const weir__shim_render *in)
{
    return render(t, in, in->tools, COMMON_CHAT_TOOL_CHOICE_NONE, in->json_schema, true);
}

const char *const cannot_render = "the chat template cannot be rendered";

/* The bytes that a template gets to render. */
std::size_t text_bytes(const weir__shim_render *in)
{
    std::size_t n = std::strlen(in->messages) + std::strlen(in->args);
    if (in->tools != nullptr) n += std::strlen(in->tools);
    if (in->json_schema != nullptr) n += std::strlen(in->json_schema);
    return n;
}

/* Changes params, those of required calls. False: this template's handler has no form of calls that can be
 * enforced. */
bool enforce(const weir__shim_template *t, const weir__shim_render *in, common_chat_params &params)
{
    if (params.parser.empty()) return false;
    const schema_map named = name_schemas(in);
    common_json calls = common_json::parse(params.parser);
    common_peg_arena parser;
    silence(calls, common_chat_peg_builder::CONTENT);
    narrow(calls);
    parser.load(calls.dump());
    if (!return_schemas(parser, named) || !holds_to_calls(parser, in)) return false;
    if (in->tool_choice != WEIR_TOOLS_REQUIRED) {
        const common_chat_params words =
            render(t, in, in->enforced_tools, COMMON_CHAT_TOOL_CHOICE_NONE, in->json_schema);
        if (words.parser.empty()) return false;
        common_json other = common_json::parse(words.parser);
        if (!in->fenced) drop_fences(other);
        give_schema(other);
        add_alternative(calls, other);
    }
    return constrain(in, named, calls, params);
}

weir__trigger_kind trigger_kind(common_grammar_trigger_type type)
{
    switch (type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: return WEIR__TRIGGER_PATTERN;
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: return WEIR__TRIGGER_FULL_PATTERN;
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN: return WEIR__TRIGGER_TOKEN;
    default: return WEIR__TRIGGER_WORD;
    }
}

/* Whether the parser takes an answer that is `before`, a letter, `closing` and `after` for reasoning that
 * ends with the letter, and the rest for content. */
bool closes(const weir__shim_chat &chat, const std::string &before, const std::string &closing,
            const std::string &after)
{
    static const char white[] = " \n";
    common_chat_msg message;
    bool broken;
    try {
        if (!parse_answer(&chat, before + "x" + closing + after, false, message, broken) || broken)
            return false;
    } catch (const std::exception &) { /* a mapper threw */
        return false;
    }
    const std::string &reasoning = message.reasoning_content, &content = message.content;
    const std::size_t last = reasoning.find_last_not_of(white), first = content.find_first_not_of(white);
    if (last == std::string::npos || reasoning[last] != 'x') return false;
    return first == std::string::npos ? after.empty() : content.compare(first, std::string::npos, after) == 0;
}

/* Finds the text that ends reasoning early. Handlers name marks without their white space, which some parsers
 * need, and some name them although their parser finds no reasoning. Where no content may follow at once,
 * because it has marks of its own or is a call, nothing does. False: there is no such text, or a mark is too
 * long. */
bool find_closing(weir__shim_chat &chat)
{
    static const char *const spaces[][2] = {{"", ""}, {"", "\n"}, {"", "\n\n"}, {"\n", "\n\n"}};
    const std::vector<std::string> &ends = chat.params.thinking_end_tags;
    const std::string &start = chat.params.thinking_start_tag;
    const auto is_long = [](const std::string &mark) { return mark.size() > WEIR__MARK_MAX; };
    if (ends.empty() || ends[0].empty() || is_long(start) || std::any_of(ends.begin(), ends.end(), is_long))
        return false;
    for (const char *after : {"y", ""})
        for (const auto &space : spaces) {
            chat.reasoning_closing = space[0] + ends[0] + space[1];
            if (chat.parser.reasoning_format == COMMON_REASONING_FORMAT_NONE ||
                closes(chat, "", chat.reasoning_closing, after) ||
                closes(chat, start, chat.reasoning_closing, after))
                return true;
        }
    return false;
}

void fill_rendered(weir__shim_chat &chat, bool calls_only)
{
    const common_chat_params &p = chat.params;
    weir__shim_rendered &r = chat.rendered;
    r = weir__shim_rendered();
    r.prompt = p.prompt.c_str();
    r.prompt_length = p.prompt.size();
    r.grammar = p.grammar.c_str();
    r.lazy = p.grammar_lazy;
    r.calls_only = calls_only;
    r.generation_prompt = p.generation_prompt.c_str();
    for (const common_grammar_trigger &t : p.grammar_triggers)
        chat.triggers.push_back({trigger_kind(t.type), t.value.c_str(), -1});
    for (const weir__trigger &t : chat.triggers)
        if (t.kind == WEIR__TRIGGER_WORD) chat.words.add(t.value);
    for (const std::string &stop : p.additional_stops)
        if (!stop.empty()) chat.stops.push_back(stop.c_str());
    for (const std::string &text : p.preserved_tokens) chat.preserved.push_back(text.c_str());
    if (find_closing(chat))
        for (const std::string &end : p.thinking_end_tags)
            if (!end.empty()) chat.reasoning_ends.push_back(end.c_str());
    r.triggers = chat.triggers.data();
    r.n_triggers = chat.triggers.size();
    r.stops = chat.stops.data();
    r.n_stops = chat.stops.size();
    r.preserved = chat.preserved.data();
    r.n_preserved = chat.preserved.size();
    r.reasoning_start = p.thinking_start_tag.c_str();
    r.reasoning_ends = chat.reasoning_ends.data();
    r.n_reasoning_ends = chat.reasoning_ends.size();
    r.reasoning_closing = chat.reasoning_closing.c_str();
    read_form(p.parser, r.form, chat.delimiters, chat.ends);
}

/* Whether the parser takes this beginning of an answer for a call of the tool. */
bool begins_call(const weir__shim_chat &chat, const std::string &text, const std::string &tool)
{
    common_chat_msg message;
    bool broken;
    return parse_answer(&chat, text, false, message, broken) && !broken && message.tool_calls.size() == 1 &&
           message.tool_calls[0].name == tool;
}

/* What an unmarked call begins with, in one of the ways in which JSON is usually written. */
std::string unmarked_call(const std::string &tool, const char *key, const char *space)
{
    return std::string("{\"name\":") + space + "\"" + tool + "\"," + space + "\"" + key + "\":";
}

bool has_trigger_rule(const common_peg_arena &arena)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        const auto *rule = std::get_if<common_peg_rule_parser>(&arena.get(i));
        if (rule != nullptr && rule->trigger) return true;
    }
    return false;
}

/* Gives optional calls that are JSON without a mark a grammar, as llama.cpp gives those with one. A tool's
 * name and the key of its arguments begin it. The first tool shows the key. */
void hold_unmarked(const weir__shim_render *in, weir__shim_chat &chat)
{
    common_chat_params &params = chat.params;
    if (in->tools == nullptr || in->tool_choice != WEIR_TOOLS_AUTO || params.parser.empty() ||
        !params.grammar.empty())
        return;
    const common_json tools = common_json::parse(in->enforced_tools);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tools.size(); i++)
        names.push_back(tools.at(i).at("function").at("name").get<std::string>());
    const char *key = nullptr;
    for (const char *one : {"parameters", "arguments"})
        if (key == nullptr && !names.empty() &&
            begins_call(chat, unmarked_call(names[0], one, " ") + " {", names[0]))
            key = one;
    common_peg_arena parser;
    parser.load(params.parser);
    if (key == nullptr || !has_trigger_rule(parser) || !return_schemas(parser, name_schemas(in))) return;
    params.grammar =
        build_grammar([&](const common_grammar_builder &builder) { parser.build_grammar(builder, true); });
    params.grammar_lazy = true;
    for (const std::string &name : names)
        for (const char *space : {" ", ""})
            params.grammar_triggers.push_back(
                {COMMON_GRAMMAR_TRIGGER_TYPE_WORD, unmarked_call(name, key, space)});
}

/* SIZE_MAX: it is not there. */
std::size_t find_text(const std::string &what, const char *text, std::size_t length)
{
    const char *at = std::search(text, text + length, what.begin(), what.end());
    return at != text + length ? static_cast<std::size_t>(at - text) : SIZE_MAX;
}

} // namespace

namespace
{

/* Why it cannot be parsed; "" = it can. */
std::string parse_error(const std::string &source)
{
    try {
        const common_chat_template parsed(source, "", "");
        return "";
    } catch (const std::exception &e) {
        return weir::template_reason(e.what());
    }
}

/* An error without the text that it cites, which depends on where the source ends. */
std::string bare(const std::string &reason)
{
    return reason.substr(0, reason.find(", near"));
}

/* The line of a parser's error, which has no place: the source up to there already has the same one. Where a
 * block is not closed, that is the line on which it is opened. */
std::size_t error_line(const std::string &source, const std::string &reason)
{
    std::vector<std::size_t> ends;
    for (std::size_t at = source.find('\n'); at != std::string::npos; at = source.find('\n', at + 1))
        ends.push_back(at + 1);
    ends.push_back(source.size());
    std::size_t low = 0, high = ends.size() - 1;
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (bare(parse_error(source.substr(0, ends[middle]))) == bare(reason))
            high = middle;
        else
            low = middle + 1;
    }
    return low + 1;
}

} // namespace

weir_status weir__shim_template_create(const char *source, const char *bos, const char *eos,
                                       weir__shim_template **out, weir_error *error)
{
    std::unique_ptr<weir__shim_template> t;
    quiet();
    weir_status status = weir::limited(0, error, nullptr, "the chat template cannot be parsed", [&] {
        t.reset(new weir__shim_template());
        try {
            t->templates = common_chat_templates_init(nullptr, source, bos, eos);
        } catch (const std::exception &) { /* a copy without the reason, which parsing again gives */
            const std::string reason = parse_error(source);
            if (reason.empty()) throw;
            throw std::runtime_error("line " + std::to_string(error_line(source, reason)) + ": " + reason);
        }
        t->analyzed = is_analyzed(t->templates.get(), bos, eos);
        auto caps = common_chat_templates_get_caps(t->templates.get());
        t->knows_tools = caps["supports_tools"] || caps["supports_tool_calls"];
        weir::refuse_starved();
        return WEIR_OK;
    });
    /* With limits of its own, as llama.cpp renders the template for each of them. */
    if (status == WEIR_OK && t->analyzed && *eos != '\0')
        status = weir::limited(0, error, nullptr, "the chat template cannot be parsed", [&] {
            t->endless = common_chat_templates_init(nullptr, source, bos, "");
            weir::refuse_starved();
            return WEIR_OK;
        });
    if (status == WEIR_OK) *out = t.release();
    return status;
}

void weir__shim_template_destroy(weir__shim_template *t)
{
    delete t;
}

bool weir__shim_template_knows_tools(const weir__shim_template *t)
{
    return t->knows_tools;
}

weir_status weir__shim_chat_create(const weir__shim_template *t, const weir__shim_render *in,
                                   weir__shim_chat **out, weir_error *error)
{
    std::unique_ptr<weir__shim_chat> chat;
    const std::size_t n = text_bytes(in);
    const weir_status status = weir::limited(n, error, "messages", cannot_render, [&] {
        chat.reset(new weir__shim_chat());
        /* The prompt does not depend on the choice, and without calls no grammar is made of the parameters as
         * given. */
        const bool either =
            in->tools != nullptr && in->tool_choice == WEIR_TOOLS_AUTO && in->json_schema != nullptr;
        const bool required = in->tools != nullptr && in->tool_choice == WEIR_TOOLS_REQUIRED;
        if (required || either) {
            chat->params = render(t, in, in->enforced_tools, COMMON_CHAT_TOOL_CHOICE_REQUIRED, nullptr);
            if (!enforce(t, in, chat->params))
                return weir__error_set(error, WEIR_UNSUPPORTED, either ? "json_schema" : "tool_choice",
                                       "the form of calls that this model's template has cannot be enforced");
            if (either)
                chat->params.grammar_triggers =
                    render(t, in, in->enforced_tools, COMMON_CHAT_TOOL_CHOICE_AUTO, nullptr).grammar_triggers;
        } else {
            chat->params = render(t, in, in->enforced_tools,
                                  in->tool_choice == WEIR_TOOLS_AUTO ? COMMON_CHAT_TOOL_CHOICE_AUTO
                                                                     : COMMON_CHAT_TOOL_CHOICE_NONE,
                                  in->json_schema);
            if (in->json_schema != nullptr && !chat->params.grammar_lazy && !chat->params.grammar.empty() &&
                !chat->params.parser.empty()) {
                common_json arena = common_json::parse(chat->params.parser);
                if (!in->fenced) drop_fences(arena);
                constrain(in, name_schemas(in), arena, chat->params);
            }
            if (!chat->params.grammar_lazy) chat->params.grammar_triggers.clear();
        }
        if (in->tools != nullptr) chat->params.prompt = render_tools(t, in).prompt;
        chat->parser = common_chat_parser_params(chat->params);
        chat->parser.reasoning_format =
            in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
        if (!chat->params.parser.empty()) chat->parser.parser.load(chat->params.parser);
        if (in->json_schema == nullptr) hold_unmarked(in, *chat);
        fill_rendered(*chat, required);
        weir::refuse_starved();
        return WEIR_OK;
    });
    if (status == WEIR_OK) *out = chat.release();
    return status;
}

weir_status weir__shim_chat_prompt(const weir__shim_template *t, const weir__shim_render *in,
                                   bool (*add)(void *user, const char *prompt, std::size_t n), void *user,
                                   weir_error *error)
{
    return weir::limited(text_bytes(in), error, "messages", cannot_render, [&] {
        const common_chat_params params =
            in->tools != nullptr ? render_tools(t, in)
                                 : render(t, in, nullptr,
                                          in->tool_choice == WEIR_TOOLS_AUTO ? COMMON_CHAT_TOOL_CHOICE_AUTO
                                                                             : COMMON_CHAT_TOOL_CHOICE_NONE,
                                          in->json_schema, true);
        weir::refuse_starved();
        if (!add(user, params.prompt.data(), params.prompt.size())) throw std::bad_alloc();
        return WEIR_OK;
    });
}

void weir__shim_chat_destroy(weir__shim_chat *chat)
{
    delete chat;
}

weir_status weir__shim_chat_begin(weir__shim_chat *chat, const char *text, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the answer cannot begin", [&] {
        std::string begin = text, again = begin;
        weir::refuse_starved();
        chat->params.generation_prompt = std::move(begin);
        chat->parser.generation_prompt = std::move(again);
        chat->rendered.generation_prompt = chat->params.generation_prompt.c_str();
        return WEIR_OK;
    });
}

const weir__shim_rendered *weir__shim_chat_rendered(const weir__shim_chat *chat)
{
    return &chat->rendered;
}

size_t weir__shim_chat_undecided(const weir__shim_chat *chat, const char *text, size_t length)
{
    std::size_t longest = 0;
    for (const std::string &delimiter : chat->delimiters)
        for (std::size_t n = std::min(length, delimiter.size() - 1); n > longest; n--)
            if (std::memcmp(text + length - n, delimiter.data(), n) == 0) longest = n;
    return longest;
}

bool weir__shim_chat_calls(const weir__shim_chat *chat, const char *text, size_t length)
{
    for (const std::string &word : chat->words.texts)
        if (find_text(word, text, length) != SIZE_MAX) return true;
    for (const std::string &end : chat->ends.shortened)
        if (end.size() <= length && std::memcmp(text + length - end.size(), end.data(), end.size()) == 0)
            return true;
    return false;
}

bool weir__shim_chat_delimits(const weir__shim_chat *chat, const char *text, size_t length)
{
    for (const std::string &end : chat->ends.texts) {
        const std::size_t at = find_text(end, text, length);
        if (at != SIZE_MAX && end.size() > 1) return true;
        for (const std::string &more : chat->delimiters) /* "{" alone is ordinary text */
            if (at != SIZE_MAX && find_text(more, text + at, length - at) != SIZE_MAX) return true;
    }
    return weir__shim_chat_calls(chat, text, length);
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

void weir__shim_message_fini(weir__shim_message *message)
{
    delete static_cast<parsed_message *>(message->owner);
    *message = weir__shim_message();
}
