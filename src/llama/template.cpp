/* template.cpp: chat templates, parsed and rendered by llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/chat_parts.h"
#include "llama/guard.h"
#include "llama/limits.h"

#include <chat-auto-parser-helpers.h>
#include <log.h>

#include <pthread.h>

#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

using kept_answers = std::list<std::pair<std::string, std::shared_ptr<weir__llama_answers>>>;

struct weir__llama_template {
    std::unique_ptr<const common_chat_template> whole;
    /* The template without the end token's text, or empty. llama.cpp takes that text for a part of the form
     * of calls, and then misses ids before the arguments. So parsers of calls come from here; prompts do
     * not. */
    std::unique_ptr<const common_chat_template> endless;
    bool shows_end; /* the texts of both may differ */
    /* llama.cpp has no handler for it: it renders examples to find how reasoning and calls are marked. */
    bool analyzed;
    std::size_t n_shared;                                              /* as weir::count_shared has it */
    mutable std::mutex mutex;                                          /* protects the next ones */
    mutable std::shared_ptr<const autoparser::autoparser> analyses[2]; /* of `whole`, of `endless` */
    /* Forms of answers by their keys, the most recently used first. */
    mutable kept_answers found;
};

namespace
{

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

/* Clients send the same tools again and again, and a template ends prompts in few ways. */
constexpr std::size_t found_max = 8, found_bytes = 2 << 20; /* each: its key, grammar and parser */

/* Those under this key, which become the first; nullptr: none. */
std::shared_ptr<weir__llama_answers> find_kept(kept_answers &kept, const std::string &key)
{
    for (auto i = kept.begin(); i != kept.end(); ++i) {
        if (i->first != key) continue;
        kept.splice(kept.begin(), kept, i);
        return i->second;
    }
    return nullptr;
}

/* About the bytes of a form. */
std::size_t bytes_of(const std::string &key, const weir__llama_answers &answers)
{
    return key.size() + answers.params.grammar.size() +
           answers.parser.parser.size() * sizeof(common_peg_parser_variant);
}

bool lacks_handler(const common_chat_template &parsed)
{
    try {
        autoparser::generation_params params;
        params.messages = common_json::parse("[{\"role\": \"user\", \"content\": \"x\"}]");
        params.add_generation_prompt = true;
        return !common_chat_try_specialized_template(parsed, parsed.source(), params).has_value();
    } catch (const std::exception &) { /* its handler threw */
        return false;
    }
}

/* llama.cpp's analysis, which depends on the template alone. */
std::shared_ptr<const autoparser::autoparser> analysis_of(const weir__llama_template *t, bool endless)
{
    {
        const std::lock_guard<std::mutex> lock(t->mutex);
        if (t->analyses[endless] != nullptr) return t->analyses[endless];
    }
    const auto analysis = std::make_shared<autoparser::autoparser>();
    analysis->analyze_template(weir::template_of(t, endless));
    weir::refuse_starved(); /* it would be kept */
    const std::lock_guard<std::mutex> lock(t->mutex);
    t->analyses[endless] = analysis;
    return analysis;
}

void name_thinking(const autoparser::autoparser &analysis, common_chat_params &params)
{
    params.supports_thinking = analysis.reasoning.mode != autoparser::reasoning_mode::NONE;
    if (!params.supports_thinking) return;
    params.thinking_start_tag = trim_whitespace(analysis.reasoning.start);
    const std::string end = trim_whitespace(analysis.reasoning.end);
    if (!end.empty()) params.thinking_end_tags = {end};
}

/* The prompt and the parser of answers, as common_chat_templates_apply makes them by the analysis. */
common_chat_params parse_by_analysis(const weir__llama_template *t,
                                     const autoparser::generation_params &given, bool endless)
{
    const auto analysis = analysis_of(t, endless);
    const common_chat_template &rendered = weir::template_of(t, endless && t->shows_end);
    common_chat_params params = autoparser::peg_generator::generate_parser(rendered, given, *analysis);
    name_thinking(*analysis, params);
    return params;
}

/* The parser alone, which generate_parser would save as a text, behind two prompts and a grammar. */
weir::form form_by_analysis(const weir__llama_template *t, const autoparser::generation_params &given,
                            bool endless, const std::string &beginning)
{
    const auto analysis = analysis_of(t, endless);
    const autoparser::tool_format_analysis &calls = analysis->tools.format;
    const std::string &mark = calls.section_start.empty() ? calls.per_call_start : calls.section_start;
    const bool has_tools = calls.mode != autoparser::tool_format::NONE && !given.tools.empty();
    const bool has_schema = !given.json_schema.empty();
    weir::form form;
    form.params.format = COMMON_CHAT_FORMAT_PEG_NATIVE;
    form.params.generation_prompt = beginning;
    form.params.preserved_tokens = analysis->preserved_tokens;
    form.params.additional_stops = analysis->additional_stops;
    name_thinking(*analysis, form.params);
    form.parser = analysis->build_parser(given, beginning);
    const bool optional = has_tools && given.tool_choice == COMMON_CHAT_TOOL_CHOICE_AUTO && !mark.empty();
    const bool required = has_tools && given.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    form.constrains = has_schema || optional || required;
    form.params.grammar_lazy = optional && !has_schema;
    if (form.params.grammar_lazy) {
        form.params.grammar_triggers = {{COMMON_GRAMMAR_TRIGGER_TYPE_WORD, mark}};
        if (calls.openai_wrapper_trigger)
            form.params.grammar_triggers.push_back(
                {COMMON_GRAMMAR_TRIGGER_TYPE_WORD, "{\"type\": \"function\","});
    }
    return form;
}

/* Jinja's reason for which it cannot be parsed; "" = it can. Throws what is not Jinja's. */
std::string parse_error(const std::string &source)
{
    try {
        const common_chat_template parsed(source, "", "");
        return "";
    } catch (const std::exception &e) {
        std::string reason = weir::template_reason(e, true);
        if (reason.empty()) throw;
        return reason;
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
        const auto same = [&] { return bare(parse_error(source.substr(0, ends[middle]))) == bare(reason); };
        if (weir::attempt(false, same))
            high = middle;
        else
            low = middle + 1;
    }
    return low + 1;
}

} // namespace

const common_chat_template &weir::template_of(const weir__llama_template *t, bool endless)
{
    return endless ? *t->endless : *t->whole;
}

std::size_t weir::shared_statements(const weir__llama_template *t)
{
    return t->n_shared;
}

bool weir::is_analyzed(const weir__llama_template *t)
{
    return t->analyzed;
}

bool weir::ends_differ(const weir__llama_template *t)
{
    return t->endless != nullptr && t->shows_end;
}

std::shared_ptr<weir__llama_answers> weir::find_answers(const weir__llama_template *t, const std::string &key)
{
    const std::lock_guard<std::mutex> lock(t->mutex);
    return find_kept(t->found, key);
}

void weir::keep_answers(const weir__llama_template *t, std::string key,
                        std::shared_ptr<weir__llama_answers> &answers)
{
    kept_answers one, dropped;
    if (bytes_of(key, *answers) > found_bytes) return;
    one.emplace_back(std::move(key), answers);
    weir::refuse_starved();
    const std::lock_guard<std::mutex> lock(t->mutex);
    if (auto other = find_kept(t->found, one.front().first)) { /* another thread was faster */
        answers.swap(other);
        return;
    }
    t->found.splice(t->found.begin(), one);
    if (t->found.size() > found_max) dropped.splice(dropped.begin(), t->found, std::prev(t->found.end()));
}

common_chat_params weir::conversation::apply(bool endless)
{
    read();
    if (t->analyzed) return parse_by_analysis(t, given, endless);
    autoparser::generation_params own = given; /* handlers change it */
    return common_chat_try_specialized_template(*t->whole, t->whole->source(), own).value();
}

std::string weir::conversation::render_by_handler(common_chat_tool_choice choice)
{
    given.tools = common_json();
    given.tool_choice = choice;
    given.json_schema = schema;
    return apply(false).prompt;
}

weir::form weir::conversation::make_form(common_chat_tool_choice choice, bool with_schema,
                                         const std::string &beginning)
{
    static const common_json none;
    const bool endless = !tools.is_null() && t->endless != nullptr;
    given.tools = tools;
    given.tool_choice = choice;
    given.json_schema = with_schema ? schema : none;
    if (is_own()) return form_by_analysis(t, given, endless, beginning);
    form form;
    form.params = apply(endless);
    if (!form.params.parser.empty()) form.parser.load(form.params.parser);
    form.params.parser.clear();
    form.constrains = !form.params.grammar.empty();
    return form;
}

weir_status weir__llama_template_create(const char *source, const char *bos, const char *eos,
                                        weir__llama_template **out, weir_error *error)
{
    std::unique_ptr<weir__llama_template> t;
    quiet();
    weir_status status = weir::limited(0, error, nullptr, "the chat template cannot be parsed", [&] {
        t.reset(new weir__llama_template());
        try {
            const auto templates = common_chat_templates_init(nullptr, source, bos, eos);
            t->whole.reset(new common_chat_template(common_chat_templates_source(templates.get()), bos, eos));
        } catch (const std::exception &) { /* a copy without its type and text, which parsing again gives */
            const std::string reason = parse_error(source);
            if (reason.empty()) throw;
            throw weir::failure("line " + std::to_string(error_line(source, reason)) + ": " + reason);
        }
        t->analyzed = lacks_handler(*t->whole);
        t->n_shared = weir::count_shared(*t->whole);
        t->shows_end = t->whole->source().find("eos_token") != std::string::npos;
        weir::refuse_starved();
        return WEIR_OK;
    });
    /* The second one has limits of its own, as llama.cpp renders each to learn its properties. */
    if (status == WEIR_OK && t->analyzed && *eos != '\0')
        status = weir::limited(0, error, nullptr, "the chat template cannot be parsed", [&] {
            t->endless.reset(new common_chat_template(t->whole->source(), bos, ""));
            weir::refuse_starved();
            return WEIR_OK;
        });
    if (status == WEIR_OK) *out = t.release();
    return status;
}

void weir__llama_template_destroy(weir__llama_template *t)
{
    delete t;
}

bool weir__llama_template_knows_tools(const weir__llama_template *t)
{
    return t->whole->caps.supports_tools || t->whole->caps.supports_tool_calls;
}
