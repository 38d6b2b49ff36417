/* template.cpp: chat templates, parsed and rendered by llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/chat_parts.h"
#include "llama/guard.h"
#include "llama/limits.h"

#include <chat-auto-parser-helpers.h>
#include <log.h>

#include <pthread.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

/* The result of llama.cpp's analysis for prompts that end like this. */
struct weir__llama_found {
    std::string generation_prompt;
    bool parse_reasoning;
    common_chat_params params; /* without the prompt */
};

struct weir__llama_template {
    std::unique_ptr<const common_chat_template> whole;
    /* The template without the end token's text, or empty. llama.cpp takes that text for a part of the form
     * of calls, and then misses ids before the arguments. So parsers of calls come from here; prompts do
     * not. */
    std::unique_ptr<const common_chat_template> endless;
    bool shows_end; /* the texts of both may differ */
    /* llama.cpp has no handler for it: it renders examples to find how reasoning and calls are marked. */
    bool analyzed;
    mutable std::mutex mutex;                                          /* protects the next ones */
    mutable std::shared_ptr<const autoparser::autoparser> analyses[2]; /* of `whole`, of `endless` */
    mutable std::vector<weir__llama_found> found;
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

/* A template can end a prompt in few ways: with or without reasoning, which is parsed or not. */
constexpr std::size_t found_max = 8;

bool is_analyzed(const common_chat_template &parsed)
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
    const auto made = std::make_shared<autoparser::autoparser>();
    made->analyze_template(endless ? *t->endless : *t->whole);
    weir::refuse_starved(); /* it would be kept */
    const std::lock_guard<std::mutex> lock(t->mutex);
    t->analyses[endless] = made;
    return made;
}

/* The prompt and the parser of answers, as common_chat_templates_apply makes them by the analysis. */
common_chat_params parse_by_analysis(const weir__llama_template *t,
                                     const autoparser::generation_params &given, bool endless)
{
    const auto analysis = analysis_of(t, endless);
    const common_chat_template &rendered = endless && t->shows_end ? *t->endless : *t->whole;
    common_chat_params params = autoparser::peg_generator::generate_parser(rendered, given, *analysis);
    params.supports_thinking = analysis->reasoning.mode != autoparser::reasoning_mode::NONE;
    if (params.supports_thinking) {
        params.thinking_start_tag = trim_whitespace(analysis->reasoning.start);
        const std::string end = trim_whitespace(analysis->reasoning.end);
        if (!end.empty()) params.thinking_end_tags = {end};
    }
    return params;
}

/* Renders the prompt alone, and reuses the rest: without tools, schema and a message to continue, the parser
 * depends only on how the prompt ends. */
common_chat_params parse_by_end(const weir__llama_template *t, const autoparser::generation_params &given)
{
    const bool parse_reasoning = given.reasoning_format != COMMON_REASONING_FORMAT_NONE;
    std::string prompt = common_chat_template_direct_apply(*t->whole, given);
    const std::string end = common_chat_template_generation_prompt(*t->whole, given);
    {
        const std::lock_guard<std::mutex> lock(t->mutex);
        for (const weir__llama_found &found : t->found) {
            if (found.generation_prompt != end || found.parse_reasoning != parse_reasoning) continue;
            common_chat_params params = found.params;
            params.prompt = std::move(prompt);
            return params;
        }
    }
    common_chat_params params = parse_by_analysis(t, given, false);
    weir__llama_found found = {params.generation_prompt, parse_reasoning, params};
    found.params.prompt.clear();
    weir::refuse_starved(); /* it would be kept */
    const std::lock_guard<std::mutex> lock(t->mutex);
    if (t->found.size() == found_max) t->found.erase(t->found.begin());
    t->found.push_back(std::move(found));
    return params;
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

const common_chat_template &weir::whole_template(const weir__llama_template *t)
{
    return *t->whole;
}

common_chat_params weir::conversation::render(common_chat_tool_choice choice, bool with_schema, bool bare)
{
    static const common_json none;
    const bool continues = given.continue_final_message != COMMON_CHAT_CONTINUATION_NONE;
    given.tools = bare ? none : tools;
    given.tool_choice = choice;
    given.json_schema = with_schema ? schema : none;
    if (!t->analyzed) {
        autoparser::generation_params own = given; /* handlers change it */
        return common_chat_try_specialized_template(*t->whole, t->whole->source(), own).value();
    }
    if (bare && !continues) {
        common_chat_params params;
        params.prompt = common_chat_template_direct_apply(*t->whole, given);
        return params;
    }
    if (given.tools.is_null() && given.json_schema.is_null() && !continues) return parse_by_end(t, given);
    return parse_by_analysis(t, given, !given.tools.is_null() && t->endless != nullptr);
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
        t->analyzed = is_analyzed(*t->whole);
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
