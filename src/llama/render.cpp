/* render.cpp: conversations rendered for an answer: prompt, grammar, marks of reasoning.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp gives a grammar and a parser, and where it has a handler for the template, the prompt. Where its
 * grammar is not strict enough, its parser, which has a form in JSON, is changed here, and the grammar made
 * again from it. A template keeps the last forms of answers, since a client sends the same tools with each
 * request (ADR 0155). */
#include "llama/chat_parts.h"
#include "llama/guard.h"
#include "llama/limits.h"

#include <algorithm>
#include <chat-peg-parser.h>
#include <json-schema-to-grammar.h>
#include <json-schema.h>

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "base/budget.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "grammar/grammar.h"
#include "grammar/schema_grammar.h"
}

using weir::guard;

namespace
{

/* ---- Answers that must be a call, or a call or a text of a given form ----
 *
 * llama.cpp's own grammar for required calls allows any text before them, and has no form of a text beside
 * calls. So its parser is changed (as JSON: nodes that name each other by number), and the grammar made
 * again. */

/* Makes nodes with this tag match only the empty text. They become a choice of one: only a choice gets
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

/* ---- Schemas ----
 *
 * llama.cpp's converter ignores most keywords, so weir's converter makes the rules of schemas in grammars
 * that llama.cpp makes of parsers. It finds a schema by the name that llama.cpp's handlers give it. */

struct named_schema {
    common_chat_schema_document_ptr document;
    const common_chat_schema *node;
    const json_t *schema, *definitions;
    std::string rule;
};
using schema_map = std::map<std::string, named_schema>;

common_chat_schema_document_ptr read_schema(const common_json &schema)
{
    return std::make_shared<const common_chat_schema_document>(common_chat_schema_from_json(schema));
}

/* Maps the names of an argument's schema and of its parts, where a handler writes calls as XML. Of two with
 * one name, neither is known. */
void name_parts(schema_map &named, const std::string &name, const named_schema &whole)
{
    const auto added = named.insert({name + "-schema", whole});
    if (!added.second) added.first->second.schema = nullptr;
    const auto part = [&](const std::string &of, const common_chat_schema *node, const json_t *schema,
                          std::size_t i) {
        name_parts(
            named, name + "-" + of,
            {whole.document, node, schema, whole.definitions, whole.rule + "-of-" + std::to_string(i)});
    };
    if (const auto *object = dynamic_cast<const common_chat_schema_object *>(whole.node)) {
        const json_t *properties = json_object_get(whole.schema, "properties");
        for (std::size_t i = 0; i < object->properties.size(); i++)
            part(object->properties[i].name, object->properties[i].schema.get(),
                 json_object_get(properties, object->properties[i].name.c_str()), i);
    } else if (const auto *array = dynamic_cast<const common_chat_schema_array *>(whole.node)) {
        part("item", array->items.get(), json_object_get(whole.schema, "items"), 0);
    } else if (const auto *any = dynamic_cast<const common_chat_schema_any_of *>(whole.node)) {
        for (std::size_t i = 0; i < any->children.size(); i++)
            part(std::to_string(i), any->children[i].get(),
                 json_array_get(json_object_get(whole.schema, "anyOf"), i), i);
    }
}

const std::string ling = "ling3-arg-";

/* How a handler begins the names of its schemas of single arguments; "" = it has none. */
std::string argument_style(const common_peg_arena &arena)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        const auto *schema = std::get_if<common_peg_schema_parser>(&arena.get(i));
        if (schema == nullptr || schema->name.find("-arg-") == std::string::npos) continue;
        return schema->name.compare(0, ling.size(), ling) == 0 ? ling : "tool-";
    }
    return "";
}

schema_map name_schemas(const weir::conversation &talk, const weir__llama_render *in,
                        const common_peg_arena &arena)
{
    const std::string style = argument_style(arena);
    schema_map named;
    for (std::size_t i = 0; i < talk.tools.size(); i++) {
        const common_json &function = talk.tools.at(i).at("function");
        const std::string tool = function.at("name").get<std::string>();
        const auto document = read_schema(common_chat_tool_parameters(function));
        const json_t *schema =
            json_object_get(json_object_get(json_array_get(in->enforced_tools, i), "function"), "parameters");
        const named_schema whole = {document, document->root.get(), schema, json_object_get(schema, "$defs"),
                                    "schema-" + std::to_string(i)};
        named["tool-" + tool + "-schema"] = whole;
        if (!style.empty()) name_parts(named, style + tool + (style == "tool-" ? "-arg" : ""), whole);
    }
    if (in->json_schema != nullptr) {
        const auto document = read_schema(talk.schema);
        named[schema_name] = named["response-format"] = {document, document->root.get(), in->json_schema,
                                                         json_object_get(in->json_schema, "$defs"), "schema"};
    }
    return named;
}

/* Puts the schemas back that saving a parser loses. False: one is not known by name. */
bool return_schemas(common_peg_arena &arena, const schema_map &named)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        auto *schema = std::get_if<common_peg_schema_parser>(&arena.get(i));
        if (schema == nullptr) continue;
        const auto found = named.find(schema->name);
        if (found == named.end()) return false;
        schema->doc = found->second.document;
        schema->node = found->second.node;
    }
    return true;
}

/* Only grammars are made of schemas: a parser that is kept would hold them for nothing. */
void drop_schemas(common_peg_arena &arena)
{
    for (std::size_t i = 0; i < arena.size(); i++) {
        auto *schema = std::get_if<common_peg_schema_parser>(&arena.get(i));
        if (schema == nullptr) continue;
        schema->node = nullptr;
        schema->doc.reset();
    }
}

/* Adds the rules of a schema, and returns the name of the first. */
std::string add_rules(const common_grammar_builder &builder, const schema_map &named, const std::string &name)
{
    const auto found = named.find(name);
    if (found == named.end() || found->second.schema == nullptr)
        throw weir::failure("a handler of llama.cpp names a schema that weir does not know: " + name);
    const named_schema &one = found->second;
    weir__text text = {};
    weir_error error = {};
    const weir_status status =
        weir__grammar_add_rules(one.schema, one.definitions, one.rule.c_str(), &text, &error);
    const std::unique_ptr<char, decltype(&weir_free)> held(text.bytes, weir_free);
    if (status == WEIR_NO_MEMORY) throw std::bad_alloc();
    if (status != WEIR_OK) throw weir::failure(error.message);
    for (const char *line = text.bytes; *line != '\0';) {
        const char *end = std::strchr(line, '\n'), *is = std::strstr(line, " ::= ");
        const std::string rule(line, is);
        if (builder.add_rule(rule, std::string(is + 5, end)) != rule)
            throw weir::failure("a handler of llama.cpp has another rule " + rule);
        line = end + 1;
    }
    return one.rule;
}

std::string grammar_of(const common_peg_arena &parser, const schema_map &named, bool lazy)
{
    return build_grammar([&](const common_grammar_builder &builder) {
        common_grammar_builder own = builder;
        own.add_schema = [&](const std::string &name, const common_chat_schema &) {
            return add_rules(builder, named, name);
        };
        parser.build_grammar(own, lazy);
    });
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

bool have_required(const common_json &tools)
{
    for (std::size_t i = 0; i < tools.size(); i++) {
        const common_json parameters = common_chat_tool_parameters(tools.at(i).at("function"));
        if (parameters.contains("required") && parameters.at("required").size() > 0) return true;
    }
    return false;
}

/* True if every answer that the parser accepts is a call of a known tool with all required arguments. */
bool holds_to_calls(const common_peg_arena &arena, const common_json &tools)
{
    std::set<std::pair<std::size_t, bool>> seen;
    openness found;
    look_for_openness(arena, arena.root(), true, seen, found);
    return found.calls && !found.free_text &&
           (!found.arguments || found.sure_argument || !have_required(tools));
}

/* Makes the form's grammar again, from this parser. Without enable_thinking, reasoning is empty unless the
 * prompt itself has started it. False: a schema is unknown. */
bool constrain(const weir__llama_render *in, const schema_map &named, const common_json &arena,
               weir::form &form)
{
    common_peg_arena parser;
    bool quick = false;
    if (!in->enable_thinking) {
        common_json silent = arena;
        silence(silent, common_chat_peg_builder::REASONING);
        parser = common_peg_arena::from_json(silent);
        common_peg_parse_context begin(form.params.generation_prompt, COMMON_PEG_PARSE_FLAG_LENIENT);
        quick = !parser.parse(begin).fail();
    }
    if (!quick) parser = common_peg_arena::from_json(arena);
    if (!return_schemas(parser, named)) return false;
    form.params.grammar = grammar_of(parser, named, false);
    form.params.grammar_lazy = false;
    form.params.grammar_triggers.clear();
    form.parser = std::move(parser);
    form.constrains = true;
    return true;
}

const char *const cannot_render = "the chat template cannot be rendered";

/* About the bytes that a template gets to render. */
std::size_t input_bytes(const weir__llama_render *in)
{
    std::size_t n = 0;
    for (const json_t *value : {in->messages, in->args, in->tools, in->json_schema})
        if (value != nullptr) n += weir__json_size(value);
    return n;
}

/* Changes the form, that of required calls. False: this template's handler has no form of calls that can be
 * enforced. */
bool enforce(weir::conversation &talk, const weir__llama_render *in, const std::string &beginning,
             weir::form &form)
{
    if (form.parser.empty()) return false;
    common_json calls = form.parser.to_json();
    silence(calls, common_chat_peg_builder::CONTENT);
    narrow(calls);
    common_peg_arena parser = common_peg_arena::from_json(calls);
    if (argument_style(parser) == ling) return false; /* its stop texts may end an answer before it begins */
    const schema_map named = name_schemas(talk, in, parser);
    if (!return_schemas(parser, named) || !holds_to_calls(parser, talk.tools)) return false;
    if (in->tool_choice != WEIR_TOOLS_REQUIRED) {
        const weir::form words = talk.make_form(COMMON_CHAT_TOOL_CHOICE_NONE, true, beginning);
        if (words.parser.empty()) return false;
        common_json other = words.parser.to_json();
        if (!in->fenced) drop_fences(other);
        give_schema(other);
        add_alternative(calls, other);
    }
    return constrain(in, named, calls, form);
}

common_chat_tool_choice given_choice(const weir__llama_render *in)
{
    return in->tool_choice == WEIR_TOOLS_AUTO ? COMMON_CHAT_TOOL_CHOICE_AUTO : COMMON_CHAT_TOOL_CHOICE_NONE;
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

void fill_rendered(weir__llama_answers &answers, bool calls_only)
{
    const common_chat_params &p = answers.params;
    weir__llama_rendered &r = answers.rendered;
    r = weir__llama_rendered();
    r.grammar = p.grammar.c_str();
    r.lazy = p.grammar_lazy;
    r.calls_only = calls_only;
    r.generation_prompt = p.generation_prompt.c_str();
    for (const common_grammar_trigger &t : p.grammar_triggers)
        answers.triggers.push_back({trigger_kind(t.type), t.value.c_str(), -1});
    for (const weir__trigger &t : answers.triggers)
        if (t.kind == WEIR__TRIGGER_WORD) answers.words.add(t.value);
    for (const std::string &stop : p.additional_stops)
        if (!stop.empty()) answers.stops.push_back(stop.c_str());
    for (const std::string &text : p.preserved_tokens) answers.preserved.push_back(text.c_str());
    if (weir::find_closing(answers))
        for (const std::string &end : p.thinking_end_tags)
            if (!end.empty()) answers.reasoning_ends.push_back(end.c_str());
    r.triggers = answers.triggers.data();
    r.n_triggers = answers.triggers.size();
    r.stops = answers.stops.data();
    r.n_stops = answers.stops.size();
    r.preserved = answers.preserved.data();
    r.n_preserved = answers.preserved.size();
    r.reasoning_start = p.thinking_start_tag.c_str();
    r.reasoning_ends = answers.reasoning_ends.data();
    r.n_reasoning_ends = answers.reasoning_ends.size();
    r.reasoning_closing = answers.reasoning_closing.c_str();
    weir::read_form(answers);
}

/* The begin of an unmarked call, in one of the ways in which JSON is usually written. */
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

/* The key of a call's arguments where calls are JSON without a mark; nullptr: they are not. The first tool
 * shows it. */
const char *unmarked_key(const weir__llama_answers &answers, const std::vector<std::string> &names)
{
    for (const char *key : {"parameters", "arguments"})
        if (!names.empty() && weir::begins_call(answers, unmarked_call(names[0], key, " ") + " {", names[0]))
            return key;
    return nullptr;
}

/* Gives optional calls that are JSON without a mark triggers, as llama.cpp gives those with one: a tool's
 * name and the key of its arguments begin a call. False: these calls have no grammar. */
bool mark_calls(const weir::conversation &talk, weir__llama_answers &answers)
{
    std::vector<std::string> names;
    for (std::size_t i = 0; i < talk.tools.size(); i++)
        names.push_back(talk.tools.at(i).at("function").at("name").get<std::string>());
    const char *key = has_trigger_rule(answers.parser.parser) ? unmarked_key(answers, names) : nullptr;
    if (key == nullptr) return false;
    answers.params.grammar_lazy = true;
    for (const std::string &name : names)
        for (const char *space : {" ", ""})
            answers.params.grammar_triggers.push_back(
                {COMMON_GRAMMAR_TRIGGER_TYPE_WORD, unmarked_call(name, key, space)});
    return true;
}

/* Makes the grammar of optional calls, with weir's rules for schemas in place of llama.cpp's. constrains: as
 * the form has it. */
void hold_optional(const weir::conversation &talk, const weir__llama_render *in, bool constrains,
                   weir__llama_answers &answers)
{
    common_peg_arena &parser = answers.parser.parser;
    if (!constrains && !mark_calls(talk, answers)) return;
    const schema_map named = name_schemas(talk, in, parser);
    if (!return_schemas(parser, named))
        throw weir::failure("a handler of llama.cpp names a schema that weir does not know");
    answers.params.grammar = grammar_of(parser, named, answers.params.grammar_lazy);
}

/* ---- Forms of answers ---- */

bool is_either(const weir__llama_render *in)
{
    return in->tools != nullptr && in->tool_choice == WEIR_TOOLS_AUTO && in->json_schema != nullptr;
}

weir_status choose_form(weir::conversation &talk, const weir__llama_render *in, const std::string &beginning,
                        weir::form &form, weir_error *error)
{
    const bool either = is_either(in);
    if (either || (in->tools != nullptr && in->tool_choice == WEIR_TOOLS_REQUIRED)) {
        form = talk.make_form(COMMON_CHAT_TOOL_CHOICE_REQUIRED, false, beginning);
        if (!enforce(talk, in, beginning, form))
            return weir__error_set(error, WEIR_UNSUPPORTED, either ? "json_schema" : "tool_choice",
                                   "the form of calls that this model's template has cannot be enforced");
        if (either)
            form.params.grammar_triggers =
                talk.make_form(COMMON_CHAT_TOOL_CHOICE_AUTO, false, beginning).params.grammar_triggers;
        return WEIR_OK;
    }
    form = talk.make_form(given_choice(in), true, beginning);
    if (in->json_schema != nullptr && !form.params.grammar_lazy && form.constrains && !form.parser.empty()) {
        common_json arena = form.parser.to_json();
        if (!in->fenced) drop_fences(arena);
        constrain(in, name_schemas(talk, in, common_peg_arena()), arena, form);
    }
    if (!form.params.grammar_lazy) form.params.grammar_triggers.clear();
    return WEIR_OK;
}

weir_status check_ending(const weir__llama_render *in, const weir__llama_rendered &r, weir_error *error)
{
    const bool starts = !r.lazy || (r.n_triggers > 0 && in->json_schema == nullptr);
    if (r.grammar[0] == '\0' || !starts) return WEIR_OK; /* it is not used */
    return weir__grammar_check_ending(r.grammar, in->json_schema != nullptr ? "json_schema" : "tools_json",
                                      error);
}

weir_status make_answers(weir::conversation &talk, const weir__llama_render *in, const std::string &beginning,
                         weir__llama_chat &chat, weir_error *error)
{
    auto answers = std::make_shared<weir__llama_answers>();
    weir::form form;
    talk.read_form();
    const weir_status status = choose_form(talk, in, beginning, form, error);
    if (status != WEIR_OK) return status;
    if (!talk.is_own())
        chat.prompt = in->tools != nullptr ? talk.render_by_handler(COMMON_CHAT_TOOL_CHOICE_NONE)
                                           : std::move(form.params.prompt);
    form.params.prompt.clear();
    answers->params = std::move(form.params);
    answers->parser = common_chat_parser_params(answers->params);
    answers->parser.reasoning_format =
        in->parse_reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    answers->parser.parser = std::move(form.parser);
    if (in->json_schema == nullptr && in->tools != nullptr && in->tool_choice == WEIR_TOOLS_AUTO &&
        !answers->parser.parser.empty())
        hold_optional(talk, in, form.constrains, *answers);
    drop_schemas(answers->parser.parser);
    fill_rendered(*answers, in->tools != nullptr && in->tool_choice == WEIR_TOOLS_REQUIRED);
    chat.answers = std::move(answers);
    return check_ending(in, chat.answers->rendered, error);
}

/* All that a form of answers depends on, beside the template, where weir runs that itself. */
weir_status form_key(const weir__llama_render *in, const std::string &beginning, std::string &key,
                     weir_error *error)
{
    key = beginning;
    key += {'\0', static_cast<char>('0' + in->tool_choice), in->parallel_tool_calls ? 'p' : '-',
            in->enable_thinking ? 't' : '-', in->parse_reasoning ? 'r' : '-'};
    for (const json_t *value : {in->enforced_tools, in->json_schema}) {
        key += '\n';
        if (value == nullptr) continue;
        const std::unique_ptr<char, decltype(&weir__mem_free)> text(weir__json_dump(value), weir__mem_free);
        if (text == nullptr && weir_interrupt_asked()) return weir__interrupt_error(error);
        if (text == nullptr) throw std::bad_alloc();
        key += text.get();
    }
    return WEIR_OK;
}

/* Tools that are shown are enforced, too: then the parser comes from the template without the end token's
 * text, and what begins the answer must do so as well. */
weir_status create_own(weir::conversation &talk, const weir__llama_template *t, const weir__llama_render *in,
                       weir__llama_chat &chat, weir_error *error)
{
    weir::prompt prompt = talk.render(false);
    if (in->tools != nullptr && weir::ends_differ(t)) prompt.beginning = talk.render(true).beginning;
    std::string key;
    weir_status status = form_key(in, prompt.beginning, key, error);
    if (status != WEIR_OK) return status;
    chat.prompt = std::move(prompt.text);
    chat.answers = weir::find_answers(t, key);
    if (chat.answers != nullptr) return WEIR_OK;
    status = make_answers(talk, in, prompt.beginning, chat, error);
    weir::refuse_starved(); /* it would be kept */
    if (status == WEIR_OK) weir::keep_answers(t, std::move(key), chat.answers);
    return status;
}

} // namespace

weir_status weir__llama_chat_create(const weir__llama_template *t, const weir__llama_render *in,
                                    weir__llama_chat **out, weir_error *error)
{
    std::unique_ptr<weir__llama_chat> chat;
    const std::size_t n = input_bytes(in);
    const weir_status status = weir::limited(n, error, "messages", cannot_render, [&] {
        chat.reset(new weir__llama_chat());
        weir::conversation talk(t, in);
        const weir_status made =
            talk.is_own() ? create_own(talk, t, in, *chat, error) : make_answers(talk, in, "", *chat, error);
        if (made != WEIR_OK) return made;
        chat->rendered = chat->answers->rendered;
        chat->rendered.prompt = chat->prompt.c_str();
        chat->rendered.prompt_length = chat->prompt.size();
        weir::refuse_starved();
        return WEIR_OK;
    });
    if (status == WEIR_OK) *out = chat.release();
    return status;
}

weir_status weir__llama_chat_prompt(const weir__llama_template *t, const weir__llama_render *in,
                                    bool (*add)(void *user, const char *prompt, std::size_t n), void *user,
                                    weir_error *error)
{
    return weir::limited(input_bytes(in), error, "messages", cannot_render, [&] {
        weir::conversation talk(t, in);
        if (!talk.is_own()) talk.read_form();
        const std::string prompt =
            talk.is_own() ? talk.run(in->add_generation_prompt) : talk.render_by_handler(given_choice(in));
        weir::refuse_starved();
        if (!add(user, prompt.data(), prompt.size())) throw std::bad_alloc();
        return WEIR_OK;
    });
}

void weir__llama_chat_destroy(weir__llama_chat *chat)
{
    delete chat;
}

weir_status weir__llama_chat_begin(weir__llama_chat *chat, const char *text, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the answer cannot begin", [&] {
        std::string begin = text, again = begin;
        weir::refuse_starved();
        weir__llama_answers &answers = *chat->answers; /* not shared: the message goes on */
        answers.params.generation_prompt = std::move(begin);
        answers.parser.generation_prompt = std::move(again);
        chat->rendered.generation_prompt = answers.params.generation_prompt.c_str();
        return WEIR_OK;
    });
}

const weir__llama_rendered *weir__llama_chat_rendered(const weir__llama_chat *chat)
{
    return &chat->rendered;
}
