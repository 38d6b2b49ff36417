/* chat_parts.h: what the files of backend/chat.h share: a conversation, its rendering, and answers as its
 * parser reads them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_CHAT_PARTS_H
#define WEIR_LLAMA_CHAT_PARTS_H

#include "backend/chat.h"

#include <chat-auto-parser.h>

#include <ctime>
#include <memory>
#include <set>
#include <string>
#include <vector>

/* Texts without the white space at their end, which an answer may lack. */
struct weir__llama_texts {
    std::set<std::string> texts;
    std::set<std::string> shortened; /* those that had it */

    void add(const std::string &text)
    {
        const std::string shorter = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
        if (!shorter.empty()) texts.insert(shorter);
        if (shorter.size() > 1 && shorter != text) shortened.insert(shorter);
    }
};

/* How answers are constrained and read. Chats whose answers have the same form share it, and then nothing in
 * it changes. */
struct weir__llama_answers {
    common_chat_params params; /* without a prompt and the parser's text */
    common_chat_parser_params parser;
    weir__llama_rendered rendered; /* without a prompt; its texts lie in params, its arrays in the next */
    std::vector<weir__trigger> triggers;
    std::vector<const char *> stops, preserved, reasoning_ends;
    std::set<std::string> delimiters; /* of the form */
    weir__llama_texts ends;           /* delimiters of content and reasoning */
    weir__llama_texts words;          /* that trigger the grammar */
    std::string reasoning_closing;
};

struct weir__llama_chat {
    std::shared_ptr<weir__llama_answers> answers;
    std::string prompt;
    weir__llama_rendered rendered; /* of answers, with the prompt */
};

namespace weir
{

/* The template as it was given, with both tokens; or without the end token's text. */
const common_chat_template &template_of(const weir__llama_template *t, bool endless);

/* The number of statements at the template's start that run once for both texts: they do not depend on
 * add_generation_prompt. 0: all of it runs for each, with values of its own. */
std::size_t shared_statements(const weir__llama_template *t);
std::size_t count_shared(const common_chat_template &of);

/* True if weir runs the template itself: llama.cpp has no handler for it. */
bool is_analyzed(const weir__llama_template *t);

/* True if parsers of calls come from the template without the end token's text, and that renders other
 * texts. */
bool ends_differ(const weir__llama_template *t);

/* The form of answers that was kept under this key; nullptr: none. */
std::shared_ptr<weir__llama_answers> find_answers(const weir__llama_template *t, const std::string &key);
/* Keeps answers under this key. Those that another thread keeps there already take their place. */
void keep_answers(const weir__llama_template *t, std::string key,
                  std::shared_ptr<weir__llama_answers> &answers);

/* A prompt, and what it holds of the answer. */
struct prompt {
    std::string text, beginning;
};

/* What a handler makes for a conversation. */
struct form {
    common_chat_params params; /* without the parser's text */
    common_peg_arena parser;   /* empty: an answer is all content */
    bool constrains = false;   /* answers get a grammar; params.grammar, or one that is made of the parser */
};

/* A conversation as templates get it. */
class conversation
{
  public:
    conversation(const weir__llama_template *of, const weir__llama_render *from);

    /* True if weir runs the template itself. Then prompts come from the next two functions, and the others
     * make none. */
    bool is_own() const
    {
        return is_analyzed(t) && !continues;
    }

    /* The prompt and what begins the answer. endless: of the template without the end token's text. */
    prompt render(bool endless) const;
    /* The prompt alone. begun: with what begins the answer. */
    std::string run(bool begun) const;

    /* The prompt as a handler makes it. */
    std::string render_by_handler(common_chat_tool_choice choice);

    /* The parser of answers with this choice of tools. beginning: what begins the answer, if is_own().
     * Without tools, the prompt of a handler is that of the conversation. */
    form make_form(common_chat_tool_choice choice, bool with_schema, const std::string &beginning);

    void read_form();          /* fills the next two, before make_form */
    common_json tools, schema; /* those that are enforced, or null */

  private:
    const weir__llama_render *in;
    const weir__llama_template *t;
    bool continues, is_read = false;
    autoparser::generation_params given;

    void read(); /* fills the rest of `given`, for handlers */
    /* Prompt and parser for `given`, by the template's handler, or by its analysis if it has none. */
    common_chat_params apply(bool endless);
    void set_variables(jinja::context &ctx, const common_chat_template &of) const;
    std::string run(const common_chat_template &of, bool begun, std::time_t now) const;
    /* Makes the text with what begins the answer, texts[true], and the one without. The first n statements
     * run once. False: the first text's end changed values that the second one reads, and it is not made. */
    bool run_twice(const common_chat_template &of, std::size_t n, std::time_t now,
                   std::string texts[2]) const;
};

/* Reads from the parser how its texts end: rendered.form, delimiters, ends. */
void read_form(weir__llama_answers &answers);

/* True if the parser takes this beginning of an answer for a call of the tool. */
bool begins_call(const weir__llama_answers &answers, const std::string &text, const std::string &tool);

/* Finds the text that ends reasoning early. Handlers name marks without their white space, which some parsers
 * need, and some name them although their parser finds no reasoning. Where no content may follow at once,
 * because it has marks of its own or is a call, nothing does. False: there is no such text, or a mark is too
 * long. */
bool find_closing(weir__llama_answers &answers);

} // namespace weir

#endif
