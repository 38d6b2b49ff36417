/* chat_parts.h: what the files of backend/chat.h share: a conversation, its rendering, and answers as its
 * parser reads them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_CHAT_PARTS_H
#define WEIR_LLAMA_CHAT_PARTS_H

#include "backend/chat.h"

#include <chat-auto-parser.h>

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

struct weir__llama_chat {
    common_chat_params params;
    common_chat_parser_params parser;
    weir__llama_rendered rendered; /* its texts lie in params, its arrays in the next */
    std::vector<weir__trigger> triggers;
    std::vector<const char *> stops, preserved, reasoning_ends;
    std::set<std::string> delimiters; /* of the form */
    weir__llama_texts ends;           /* delimiters of content and reasoning */
    weir__llama_texts words;          /* that trigger the grammar */
    std::string reasoning_closing;
};

namespace weir
{

/* The template as it was given, with both tokens. */
const common_chat_template &whole_template(const weir__llama_template *t);

/* A conversation as templates get it, read once and rendered as often as parsers are made for it. */
class conversation
{
  public:
    conversation(const weir__llama_template *of, const weir__llama_render *in);

    /* The prompt, and the parser of answers with this choice of tools. bare: only the prompt of the result is
     * used; without it, and with tools, the prompt is not. */
    common_chat_params render(common_chat_tool_choice choice, bool with_schema, bool bare = false);

    common_json tools, schema; /* those that are enforced, or null */

  private:
    const weir__llama_template *t;
    autoparser::generation_params given;
};

/* Reads from the chat's serialized parser how its texts end: rendered.form, delimiters, ends. */
void read_form(weir__llama_chat &chat);

/* True if the parser takes this beginning of an answer for a call of the tool. */
bool begins_call(const weir__llama_chat &chat, const std::string &text, const std::string &tool);

/* Finds the text that ends reasoning early. Handlers name marks without their white space, which some parsers
 * need, and some name them although their parser finds no reasoning. Where no content may follow at once,
 * because it has marks of its own or is a call, nothing does. False: there is no such text, or a mark is too
 * long. */
bool find_closing(weir__llama_chat &chat);

} // namespace weir

#endif
