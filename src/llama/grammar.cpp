/* grammar.cpp: feeds an automaton with the tokens of an answer, from its start or from a trigger on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/grammar.h"

#include <algorithm>
#include <cstring>

extern "C" {
#include "base/error.h"
}

namespace
{

/* The last bytes of the answer that trigger patterns see. libstdc++ recurses over repetitions, so this bounds
 * its stack; triggers are much shorter. */
constexpr std::size_t trigger_window = 256;

/* Turns an automaton's answer about a token into an error. */
weir_status report(weir_status status, int32_t token, weir_error *error)
{
    switch (status) {
    case WEIR_OK: return WEIR_OK;
    case WEIR_REFUSED:
        return weir__error_set(error, status, "token", "the grammar does not allow token %d here", token);
    case WEIR_GRAMMAR:
        return weir__error_set(error, status, "grammar",
                               "the grammar would need more than 128 MiB for its states; nest less in it, "
                               "count less, name fewer different characters, or move the common beginning "
                               "of rules into one rule");
    default: return weir__error_set(error, status, nullptr, "no memory for the grammar");
    }
}

} // namespace

namespace weir
{

grammar::grammar(const llama_vocab *v, weir__automaton *a, bool is_lazy, bool is_calls_only)
    : vocab(v), automaton(weir__automaton_hold(a)), place(weir__automaton_start(a)), first(place),
      lazy(is_lazy), calls_only(is_calls_only), watches(is_lazy),
      before_call(is_calls_only ? 0 : WEIR__NO_CALL)
{
}

grammar::~grammar()
{
    weir__automaton_release(automaton);
}

std::string grammar::piece(int32_t token) const
{
    std::string text(64, '\0');
    int32_t n = llama_token_to_piece(vocab, token, &text[0], static_cast<int32_t>(text.size()), 0, true);
    if (n < 0) {
        text.resize(static_cast<std::size_t>(-n));
        n = llama_token_to_piece(vocab, token, &text[0], static_cast<int32_t>(text.size()), 0, true);
    }
    text.resize(static_cast<std::size_t>(std::max(n, 0)));
    return text;
}

/* The place where the constrained text starts in seen, npos = no trigger. The first old_length bytes, before
 * the last token, have been searched. */
std::size_t grammar::triggered(std::size_t old_length) const
{
    for (const std::string &word : words) {
        std::size_t from = old_length + 1 > word.size() ? old_length + 1 - word.size() : 0;
        std::size_t at = seen.find(word, from);
        if (at != std::string::npos) return at;
    }
    std::size_t from = seen.size() > trigger_window ? seen.size() - trigger_window : 0;
    auto flags = std::regex_constants::match_default;
    if (cut || from > 0) flags |= std::regex_constants::match_not_bol;
    for (const std::regex &pattern : patterns) {
        std::smatch match;
        if (!std::regex_search(seen.begin() + static_cast<std::ptrdiff_t>(from), seen.end(), match, pattern,
                               flags))
            continue;
        std::size_t group = 0; /* the first group that matched something, else the whole match */
        for (std::size_t i = 1; i < match.size() && group == 0; i++)
            if (match.length(i) > 0) group = i;
        return from + static_cast<std::size_t>(match.position(group));
    }
    return std::string::npos;
}

/* Drops the part of seen that no trigger can begin in any more. */
void grammar::shorten()
{
    std::size_t keep = trigger_window;
    for (const std::string &word : words) keep = std::max(keep, word.size());
    if (seen.size() < 2 * keep) return;
    std::size_t drop = seen.size() - keep;
    seen.erase(0, drop);
    cut = true;
    std::size_t gone = 0;
    while (gone < parts.size() && parts[gone].end <= drop) gone++;
    parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(gone));
    for (part &p : parts) {
        p.begin = p.begin > drop ? p.begin - drop : 0;
        p.end -= drop;
    }
}

/* Adds the token's text to seen. Returns where the text of calls starts in it, npos = nowhere yet. */
std::size_t grammar::see(int32_t token)
{
    const std::size_t old_length = seen.size();
    seen += piece(token);
    parts.push_back({token, old_length, seen.size()});
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end() ? old_length
                                                                          : triggered(old_length);
}

void grammar::unsee(std::size_t old_length)
{
    seen.resize(old_length);
    parts.pop_back();
}

/* Gives a lazy grammar the text from `begin` on. */
weir_status grammar::start(int32_t token, std::size_t begin, weir_error *error)
{
    weir_status status = WEIR_OK;
    for (const part &p : parts) {
        if (p.end <= begin && !(p.begin == begin && p.token == token)) continue;
        std::size_t from = std::max(p.begin, begin);
        status = weir__automaton_accept_bytes(automaton, &place, p.token, seen.data() + from, p.end - from);
        if (status != WEIR_OK) break;
    }
    if (status == WEIR_OK) return WEIR_OK;
    place = first;
    if (status != WEIR_REFUSED) return report(status, token, error);
    return weir__error_set(error, WEIR_REFUSED, "token",
                           "token %d starts the grammar with text that it does not allow", token);
}

/* Accepts a token while no trigger was found yet. */
weir_status grammar::watch(int32_t token, weir_error *error)
{
    const std::size_t old_length = seen.size(), begin = see(token);
    const bool found = begin != std::string::npos;
    weir_status status = WEIR_OK;
    if (!lazy)
        status = report(weir__automaton_accept(automaton, &place, token), token, error);
    else if (found)
        status = start(token, begin, error);
    if (status != WEIR_OK) {
        unsee(old_length);
        return status;
    }
    if (found) {
        before_call = std::max(begin, old_length) - old_length;
        watches = false;
        seen.clear();
        parts.clear();
    } else {
        shorten();
    }
    return WEIR_OK;
}

void grammar::add_trigger(const weir__trigger &trigger)
{
    std::string text = trigger.value != nullptr ? trigger.value : "";
    watches = lazy || !calls_only;
    if (trigger.kind == WEIR__TRIGGER_FULL_PATTERN) {
        bool begins = !text.empty() && text.front() == '^';
        bool ends = !text.empty() && text.back() == '$';
        text = (begins ? "" : "^") + text + (ends ? "" : "$");
    }
    switch (trigger.kind) {
    case WEIR__TRIGGER_WORD:
        if (!text.empty()) words.push_back(text);
        break;
    case WEIR__TRIGGER_PATTERN:
    case WEIR__TRIGGER_FULL_PATTERN: patterns.emplace_back(text); break;
    case WEIR__TRIGGER_TOKEN: tokens.push_back(trigger.token); break;
    }
}

weir_status grammar::begin(const char *text, weir_error *error)
{
    std::size_t length = std::strlen(text);
    if (length > INT32_MAX / 2)
        return weir__error_set(error, WEIR_TOO_LONG, "grammar",
                               "the text that the grammar begins with is too long");
    std::vector<int32_t> ids(length + 16);
    int32_t n = length == 0 ? 0
                            : llama_tokenize(vocab, text, static_cast<int32_t>(length), ids.data(),
                                             static_cast<int32_t>(ids.size()), false, true);
    for (int32_t i = 0; i < n; i++) {
        int32_t id = ids[static_cast<std::size_t>(i)];
        std::string bytes = piece(id);
        /* Some tokenizers add a space before the first token, or to it. */
        bool spaced = i == 0 && !bytes.empty() && bytes[0] == ' ' && text[0] != ' ';
        if (spaced && bytes.size() == 1) continue;
        weir_status status =
            spaced ? weir__automaton_accept_bytes(automaton, &place, id, bytes.data() + 1, bytes.size() - 1)
                   : weir__automaton_accept(automaton, &place, id);
        if (status == WEIR_REFUSED)
            return weir__error_set(
                error, WEIR_GRAMMAR, "grammar",
                "the grammar does not allow the part of the answer that the prompt already holds");
        if (status != WEIR_OK) return report(status, id, error);
    }
    first = place;
    return WEIR_OK;
}

void grammar::reset()
{
    place = first;
    watches = lazy || (!calls_only && !(words.empty() && patterns.empty() && tokens.empty()));
    before_call = calls_only ? 0 : WEIR__NO_CALL;
    cut = false;
    seen.clear();
    parts.clear();
}

weir_status grammar::accept(int32_t token, weir_error *error)
{
    if (watches) return watch(token, error);
    const weir_status status = report(weir__automaton_accept(automaton, &place, token), token, error);
    if (status == WEIR_OK && before_call != WEIR__NO_CALL) before_call = 0;
    return status;
}

weir_status grammar::mask(uint64_t *bits, weir_error *error) const
{
    if (waits()) {
        std::memset(bits, 0xff, WEIR__AUTOMATON_WORDS(llama_vocab_n_tokens(vocab)) * sizeof *bits);
        return WEIR_OK;
    }
    return report(weir__automaton_mask(automaton, &place, bits), -1, error);
}

} // namespace weir
