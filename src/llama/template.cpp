/* template.cpp: chat templates, parsed and rendered by llama.cpp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/chat_parts.h"
#include "llama/guard.h"
#include "llama/limits.h"

#include <chat-auto-parser.h>
#include <log.h>

#include <pthread.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

/* The result of llama.cpp's analysis for prompts that end like this. */
struct weir__shim_found {
    std::string generation_prompt;
    bool parse_reasoning;
    common_chat_params params; /* without the prompt */
};

struct weir__shim_template {
    common_chat_templates_ptr templates;
    /* The templates without the end token's text, or empty. llama.cpp takes that text for a part of the form
     * of calls, and then misses ids before the arguments. So parsers of calls come from here; prompts do
     * not. */
    common_chat_templates_ptr endless;
    /* llama.cpp has no handler for it: it renders examples to find how reasoning and calls are marked, again
     * for each prompt. */
    bool analyzed;
    bool knows_tools;
    mutable std::mutex mutex; /* protects `found` */
    mutable std::vector<weir__shim_found> found;
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

/* Renders the prompt alone, and reuses the rest: without tools, schema and a message to continue, the result
 * of the analysis depends only on how the prompt ends. */
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

/* The reason for which it cannot be parsed; "" = it can. */
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

common_chat_params weir::render_template(const weir__shim_template *t, const weir__shim_render *in,
                                         const char *tools, common_chat_tool_choice choice,
                                         const char *schema, bool bare)
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
    /* Some handlers read reasoning that goes on only if it is enabled. */
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
    /* The second set has limits of its own, as llama.cpp renders the template for each of them. */
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
