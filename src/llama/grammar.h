/* grammar.h: the state of an answer in a grammar, and how a lazy grammar waits for its trigger.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_LLAMA_GRAMMAR_H
#define WEIR_LLAMA_GRAMMAR_H

#include <llama.h>

#include <regex>
#include <string>
#include <vector>

extern "C" {
#include "backend/backend.h"
#include "grammar/automaton.h"
}

namespace weir
{

/* One thread at a time. Invariant: while it watches for a trigger, seen holds the last bytes of the answer
 * and parts the tokens that they came with; if it also waits, place is `first`. Afterwards seen and parts are
 * empty. */
class grammar
{
  public:
    /* Holds the automaton. lazy: everything is allowed until a trigger appears. calls_only: all text is of
     * calls, and not only that from a trigger on. */
    grammar(const llama_vocab *vocab, weir__automaton *automaton, bool lazy, bool calls_only);
    ~grammar();
    grammar(const grammar &) = delete;
    grammar &operator=(const grammar &) = delete;

    void add_trigger(const weir__trigger &trigger);

    /* Accepts text that the answer already starts with. Reset returns to this state. */
    weir_status begin(const char *text, weir_error *error);
    void reset();

    /* Accepts one token. REFUSED: not allowed here; GRAMMAR: too many ways to read the text. The state is
     * unchanged after both. */
    weir_status accept(int32_t token, weir_error *error);

    /* The tokens that accept would take, as in weir__automaton_mask. While the grammar waits: all, although
     * accept may refuse one that would start it wrongly. */
    weir_status mask(uint64_t *bits, weir_error *error) const;

    /* See text_before_call in backend/operations.h. */
    std::size_t text_before_call() const
    {
        return before_call;
    }

  private:
    struct part {
        int32_t token;
        std::size_t begin, end; /* in seen */
    };

    const llama_vocab *vocab;
    weir__automaton *automaton; /* held */
    weir__automaton_place place;
    weir__automaton_place first; /* reset returns here */
    const bool lazy, calls_only;
    bool watches;            /* a trigger was not found yet */
    std::size_t before_call; /* of the last token, or WEIR__NO_CALL */
    bool cut = false;        /* seen lacks the beginning of the answer */
    std::string seen;
    std::vector<part> parts;
    std::vector<std::string> words;
    std::vector<std::regex> patterns;
    std::vector<int32_t> tokens;

    std::string piece(int32_t token) const;
    bool waits() const
    {
        return lazy && watches;
    }
    std::size_t triggered(std::size_t old_length) const;
    void shorten();
    std::size_t see(int32_t token);
    void unsee(std::size_t old_length);
    weir_status start(int32_t token, std::size_t begin, weir_error *error);
    weir_status watch(int32_t token, weir_error *error);
};

} // namespace weir

#endif
