/* shim.cpp: the C++ of weir. No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "backend/shim.h"
#include "backend/shim_chat.h"

#include <chat-peg-parser.h>
#include <chat.h>
#include <json-schema-to-grammar.h>
#include <log.h>

/* Not public: llama.h neither shows how far a grammar has come nor carries out pending copies. */
#include <../src/llama-context.h>
#include <../src/llama-grammar.h>

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <regex>
#include <string>
#include <vector>

extern "C" {
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
}

namespace
{

/* What llama.cpp says at error level on this thread while a capture stands: the reason that its return values
 * leave out. The text is cut at its capacity; the first lines name the cause. Such lines are logged as
 * information only, since they come back as an error. */
struct capture {
    char text[360];
    std::size_t length = 0;
    capture *outer;

    capture();
    ~capture();
    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;

    void add(const char *line);
    bool says(const char *part) const
    {
        return std::strstr(text, part) != nullptr;
    }
    /* The reason, or `otherwise` when nothing was logged. */
    const char *reason(const char *otherwise) const
    {
        return length > 0 ? text : otherwise;
    }
};

thread_local capture *current_capture = nullptr;

capture::capture() : outer(current_capture)
{
    text[0] = '\0';
    current_capture = this;
}

capture::~capture()
{
    current_capture = outer;
}

/* Without the name of the function that says it. */
void capture::add(const char *line)
{
    std::size_t name = std::strspn(line, "abcdefghijklmnopqrstuvwxyz_0123456789");
    if (name > 0 && std::strncmp(line + name, ": ", 2) == 0) line += name + 2;
    std::size_t n = std::strlen(line);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (n == 0) return;
    if (length > 0 && length + 2 < sizeof text) {
        std::memcpy(text + length, "; ", 2);
        length += 2;
    }
    if (n > sizeof text - 1 - length) n = sizeof text - 1 - length;
    std::memcpy(text + length, line, n);
    length += n;
    text[length] = '\0';
}

void on_log(ggml_log_level level, const char *text, void *user)
{
    (void)user;
    thread_local ggml_log_level continued = GGML_LOG_LEVEL_INFO;
    if (level == GGML_LOG_LEVEL_CONT) level = continued;
    continued = level;
    weir_log_level to = WEIR_LOG_INFO;
    if (level == GGML_LOG_LEVEL_DEBUG) to = WEIR_LOG_DEBUG;
    if (current_capture != nullptr) {
        if (level == GGML_LOG_LEVEL_ERROR) current_capture->add(text);
    } else {
        if (level == GGML_LOG_LEVEL_WARN) to = WEIR_LOG_WARN;
        if (level == GGML_LOG_LEVEL_ERROR) to = WEIR_LOG_ERROR;
    }
    weir__log(to, "%s", text);
}

/* Runs fn, which returns a weir_status. An exception becomes `code`, with its text; bad_alloc NO_MEMORY. */
template <typename F> weir_status guard(weir_error *error, weir_status code, const char *what, F fn)
{
    try {
        return fn();
    } catch (const std::bad_alloc &) {
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "%s: out of memory", what);
    } catch (const std::exception &e) {
        return weir__error_set(error, code, nullptr, "%s: %s", what, e.what());
    } catch (...) {
        return weir__error_set(error, code, nullptr, "%s: llama.cpp threw what is no std::exception", what);
    }
}

/* The same for what has no way to tell more than that it failed. */
template <typename T, typename F> T attempt(T failed, F fn)
{
    try {
        return fn();
    } catch (...) {
        return failed;
    }
}

pthread_once_t started = PTHREAD_ONCE_INIT;

void start(void)
{
    llama_log_set(on_log, nullptr);
    llama_backend_init();
}

} // namespace

void weir__shim_start(void)
{
    pthread_once(&started, start);
}

/* ---- Model ---------------------------------------------------------------------------------------- */

weir_status weir__shim_model_load(const char *path, llama_model_params params, llama_model **model,
                                  weir_error *error)
{
    return guard(error, WEIR_FORMAT, "the model cannot be loaded", [&] {
        capture said;
        *model = llama_model_load_from_file(path, params);
        if (*model != nullptr) return WEIR_OK;
        weir_status status = WEIR_FORMAT;
        if (said.says("unknown model architecture") || said.says("unknown pre-tokenizer") ||
            said.says("unknown tokenizer") || said.says("unsupported model"))
            status = WEIR_UNSUPPORTED;
        if (said.says("unable to allocate") || said.says("failed to allocate") || said.says("bad_alloc"))
            status = WEIR_NO_MEMORY;
        return weir__error_set(error, status, "path", "the model cannot be loaded: %s",
                               said.reason("llama.cpp gives no reason"));
    });
}

weir_status weir__shim_tokenize(const llama_vocab *vocab, const char *text, int32_t length, bool add_special,
                                bool parse_special, int32_t *tokens, int32_t capacity, int32_t *n_tokens,
                                weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the text cannot be tokenized", [&] {
        int32_t n = llama_tokenize(vocab, text, length, tokens, capacity, add_special, parse_special);
        if (n == INT32_MIN)
            return weir__error_set(error, WEIR_TOO_LONG, "text",
                                   "the text has more tokens than can be counted");
        *n_tokens = n < 0 ? -n : n;
        if (n >= 0) return WEIR_OK;
        return weir__error_set(error, WEIR_TOO_LONG, "tokens", "the text has %d tokens, there is room for %d",
                               -n, capacity);
    });
}

int32_t weir__shim_piece(const llama_vocab *vocab, int32_t token, bool special, char *bytes, int32_t capacity)
{
    return attempt<int32_t>(0,
                            [&] { return llama_token_to_piece(vocab, token, bytes, capacity, 0, special); });
}

/* ---- Context -------------------------------------------------------------------------------------- */

weir_status weir__shim_context_create(llama_model *model, llama_context_params params,
                                      llama_context **context, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the context cannot be made", [&] {
        capture said;
        *context = llama_init_from_model(model, params);
        if (*context != nullptr) return WEIR_OK;
        weir_status status = WEIR_BACKEND;
        if (said.says("does not divide") || said.says("requires") || said.says("does not support"))
            status = WEIR_UNSUPPORTED;
        if (said.says("failed to allocate") || said.says("failed to reserve") || said.says("bad_alloc"))
            status = WEIR_NO_MEMORY;
        return weir__error_set(error, status, nullptr, "the context cannot be made: %s",
                               said.reason("llama.cpp gives no reason"));
    });
}

weir_status weir__shim_decode(llama_context *context, llama_batch batch, bool encode, bool *began,
                              weir_error *error)
{
    *began = false;
    return guard(error, WEIR_BACKEND, "the pass failed", [&] {
        capture said;
        int32_t code = encode ? llama_encode(context, batch) : llama_decode(context, batch);
        *began = code != -1;
        switch (code) {
        case 0: return WEIR_OK;
        case 1:
            return weir__error_set(error, WEIR_NO_SPACE, nullptr, "no KV cells are left for %d tokens",
                                   batch.n_tokens);
        case 2: return weir__error_set(error, WEIR_ABORTED, nullptr, "the pass was aborted");
        case -1:
            return weir__error_set(error, WEIR_INVALID, "batch", "the batch is not sound: %s",
                                   said.reason("llama.cpp gives no reason"));
        default:
            return weir__error_set(error, WEIR_BACKEND, nullptr, "the pass failed (%d): %s", code,
                                   said.reason("llama.cpp gives no reason"));
        }
    });
}

weir_status weir__shim_outputs(llama_context *context, float **logits, float **embeddings, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the pass cannot be read", [&] {
        *logits = llama_get_logits(context);
        *embeddings = llama_get_embeddings(context);
        return WEIR_OK;
    });
}

const float *weir__shim_pooled(llama_context *context, int32_t seq)
{
    return attempt<const float *>(nullptr, [&] { return llama_get_embeddings_seq(context, seq); });
}

bool weir__shim_seq_remove(llama_context *context, int32_t seq, int32_t from, int32_t to)
{
    return attempt(false, [&] { return llama_memory_seq_rm(llama_get_memory(context), seq, from, to); });
}

bool weir__shim_seq_copy(llama_context *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    return attempt(false, [&] {
        llama_memory_seq_cp(llama_get_memory(context), seq, to_seq, from, to);
        return true;
    });
}

bool weir__shim_seq_keep(llama_context *context, int32_t seq)
{
    return attempt(false, [&] {
        llama_memory_seq_keep(llama_get_memory(context), seq);
        return true;
    });
}

void weir__shim_clear(llama_context *context)
{
    attempt(false, [&] {
        llama_memory_clear(llama_get_memory(context), false);
        return true;
    });
}

weir_status weir__shim_flush(llama_context *context, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "pending copies failed", [&] {
        llama_synchronize(context);
        context->memory_update(false);
        return WEIR_OK;
    });
}

size_t weir__shim_state_size(llama_context *context, int32_t seq)
{
    capture said;
    return attempt<size_t>(0, [&] { return llama_state_seq_get_size(context, seq); });
}

size_t weir__shim_state_save(llama_context *context, int32_t seq, void *bytes, size_t capacity)
{
    capture said;
    return attempt<size_t>(
        0, [&] { return llama_state_seq_get_data(context, static_cast<uint8_t *>(bytes), capacity, seq); });
}

weir_status weir__shim_state_load(llama_context *context, int32_t seq, const void *bytes, size_t length,
                                  weir_error *error)
{
    return guard(error, WEIR_FORMAT, "the state cannot be loaded", [&] {
        capture said;
        if (llama_state_seq_set_data(context, static_cast<const uint8_t *>(bytes), length, seq) != 0)
            return WEIR_OK;
        if (said.says("available cells"))
            return weir__error_set(error, WEIR_NO_SPACE, nullptr,
                                   "the state cannot be loaded: no KV cells are left");
        return weir__error_set(error, WEIR_FORMAT, "bytes", "the state cannot be loaded: %s",
                               said.reason("llama.cpp gives no reason"));
    });
}

/* ---- Sampler -------------------------------------------------------------------------------------- */

namespace
{

struct sampler_deleter {
    void operator()(llama_sampler *sampler) const
    {
        llama_sampler_free(sampler);
    }
};

struct chain_builder {
    std::unique_ptr<llama_sampler, sampler_deleter> chain;

    chain_builder()
    {
        llama_sampler_chain_params params = llama_sampler_chain_default_params();
        params.no_perf = true;
        chain.reset(llama_sampler_chain_init(params));
    }
    void add(llama_sampler *sampler)
    {
        std::unique_ptr<llama_sampler, sampler_deleter> owned(sampler);
        llama_sampler_chain_add(chain.get(), sampler);
        owned.release();
    }
};

/* A member of weir's own, before the one that draws: penalties and temperatures at the ends of their ranges
 * can leave infinities, of which the draw would make NaN. */
void finite_apply(llama_sampler *, llama_token_data_array *candidates)
{
    constexpr float most = 1e30f;
    float max = -INFINITY;
    for (std::size_t i = 0; i < candidates->size; i++) {
        float &logit = candidates->data[i].logit;
        if (!(logit <= most)) logit = std::isnan(logit) ? -INFINITY : most;
        if (logit > max) max = logit;
    }
    if (max == -INFINITY && candidates->size > 0) candidates->data[0].logit = 0.0f;
}

const char *finite_name(const llama_sampler *)
{
    return "finite";
}

llama_sampler_i finite_interface = {
    finite_name, nullptr, finite_apply, nullptr, nullptr, nullptr,
    nullptr,     nullptr, nullptr,      nullptr, nullptr, nullptr,
};

bool is_active(const std::string &name, const weir_sampler_params &p)
{
    if (name == "penalties")
        return p.penalty_last_n > 0 &&
               (p.penalty_repeat != 1 || p.penalty_freq != 0 || p.penalty_present != 0);
    if (name == "dry") return p.dry_multiplier != 0 && p.dry_base >= 1 && p.dry_penalty_last_n > 0;
    if (name == "top_n_sigma") return p.top_n_sigma > 0;
    if (name == "top_k") return p.top_k > 0;
    if (name == "typ_p") return p.typical_p < 1;
    if (name == "top_p") return p.top_p < 1;
    if (name == "min_p") return p.min_p > 0;
    if (name == "xtc") return p.xtc_probability > 0 && p.xtc_threshold <= 0.5f;
    if (name == "temperature") return p.temp != 1 || p.dynatemp_range > 0;
    return name == "infill"; /* adaptive_p stands at the end wherever it is named */
}

llama_sampler *make(const std::string &name, const llama_vocab *vocab, const weir_sampler_params &p)
{
    std::size_t keep = static_cast<std::size_t>(p.min_keep);
    if (name == "penalties")
        return llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), p.penalty_last_n, p.penalty_repeat,
                                            p.penalty_freq, p.penalty_present);
    if (name == "dry")
        return llama_sampler_init_dry(vocab, p.dry_multiplier, p.dry_base, p.dry_allowed_length,
                                      p.dry_penalty_last_n, const_cast<const char **>(p.dry_breakers),
                                      p.n_dry_breakers);
    if (name == "top_n_sigma") return llama_sampler_init_top_n_sigma(p.top_n_sigma);
    if (name == "top_k") return llama_sampler_init_top_k(p.top_k);
    if (name == "typ_p") return llama_sampler_init_typical(p.typical_p, keep);
    if (name == "top_p") return llama_sampler_init_top_p(p.top_p, keep);
    if (name == "min_p") return llama_sampler_init_min_p(p.min_p, keep);
    if (name == "xtc") return llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, keep, p.seed);
    if (name == "temperature")
        return llama_sampler_init_temp_ext(p.temp, p.dynatemp_range, p.dynatemp_exponent);
    return llama_sampler_init_infill(vocab);
}

} // namespace

weir_status weir__shim_chain_create(const llama_vocab *vocab, const weir_sampler_params *params,
                                    llama_sampler **chain, bool *selects, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the sampler cannot be made", [&] {
        const weir_sampler_params &p = *params;
        bool greedy = p.temp < WEIR__SHIM_LEAST_TEMP;
        std::vector<std::string> names;
        bool may_drop_first = false; /* something may remove the likeliest candidate */
        std::string order = p.order;
        for (std::size_t at = 0; at < order.size();) {
            std::size_t end = std::min(order.find(';', at), order.size());
            std::string name = order.substr(at, end - at);
            at = end + 1;
            if (!is_active(name, p)) continue;
            if (name == "infill" && llama_vocab_eot(vocab) < 0 && llama_vocab_eos(vocab) < 0)
                return weir__error_set(error, WEIR_UNSUPPORTED, "order",
                                       "infill needs a vocabulary with an end token");
            if (name == "infill" && p.ignore_eos)
                return weir__error_set(
                    error, WEIR_INVALID, "order",
                    "infill chooses end tokens, which ignore_eos forbids; leave one of them out");
            may_drop_first |= name == "typ_p" || name == "xtc" || name == "infill";
            names.push_back(name);
        }

        chain_builder made;
        if (!greedy && p.mirostat != 0) {
            if (p.temp != 1) made.add(llama_sampler_init_temp(p.temp));
            made.add(llama_sampler_init(&finite_interface, nullptr));
            made.add(p.mirostat == 1
                         ? llama_sampler_init_mirostat(llama_vocab_n_tokens(vocab), p.seed, p.mirostat_tau,
                                                       p.mirostat_eta, 100)
                         : llama_sampler_init_mirostat_v2(p.seed, p.mirostat_tau, p.mirostat_eta));
        } else {
            for (const std::string &name : names) {
                if (greedy && name == "temperature") continue;
                if (greedy && !may_drop_first && name != "penalties" && name != "dry") continue;
                made.add(make(name, vocab, p));
            }
            if (!greedy) {
                made.add(llama_sampler_init(&finite_interface, nullptr));
                made.add(p.adaptive_target >= 0
                             ? llama_sampler_init_adaptive_p(p.adaptive_target, p.adaptive_decay, p.seed)
                             : llama_sampler_init_dist(p.seed));
            }
        }
        *selects = !greedy;
        *chain = llama_sampler_chain_n(made.chain.get()) > 0 ? made.chain.release() : nullptr;
        return WEIR_OK;
    });
}

weir_status weir__shim_chain_apply(llama_sampler *chain, llama_token_data_array *candidates,
                                   weir_error *error)
{
    return guard(error, WEIR_BACKEND, "sampling failed", [&] {
        llama_sampler_apply(chain, candidates);
        return WEIR_OK;
    });
}

weir_status weir__shim_chain_accept(llama_sampler *chain, int32_t token, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the token cannot be counted", [&] {
        llama_sampler_accept(chain, token);
        return WEIR_OK;
    });
}

weir_status weir__shim_chain_reset(llama_sampler *chain, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the sampler cannot be reset", [&] {
        llama_sampler_reset(chain);
        return WEIR_OK;
    });
}

/* ---- Grammar -------------------------------------------------------------------------------------- */

namespace
{

/* Stacks, that is ways to read what was accepted, above which a grammar is given up: each costs a look at
 * every candidate, and ambiguous grammars double them with each character. */
constexpr std::size_t most_stacks = 4096;

/* Bytes of the answer that trigger patterns see: libstdc++ recurses over what a pattern repeats, so this
 * bounds its stack; triggers are much shorter. */
constexpr std::size_t trigger_window = 256;

struct progress {
    llama_grammar_stacks stacks;
    llama_partial_utf8 partial;
};

} // namespace

/* Invariant: while `waiting`, seen holds the last bytes of the answer and parts the tokens they came with,
 * and the grammar stands at `first`; afterwards both are empty. The grammar always has a stack: llama.cpp
 * aborts on one that has none. */
struct weir__shim_grammar {
    struct part {
        int32_t token;
        std::size_t begin, end; /* in seen */
    };

    const llama_vocab *vocab;
    llama_grammar *grammar = nullptr; /* never lazy in llama.cpp's sense: waiting is done here */
    progress first;                   /* what reset comes back to */
    bool lazy = false;
    bool waiting = false;
    bool cut = false; /* seen is not all of the answer */
    std::string seen;
    std::vector<part> parts;
    std::vector<std::string> words;
    std::vector<std::regex> patterns;
    std::vector<int32_t> tokens;

    explicit weir__shim_grammar(const llama_vocab *v) : vocab(v)
    {
    }
    ~weir__shim_grammar()
    {
        llama_grammar_free_impl(grammar);
    }
    weir__shim_grammar(const weir__shim_grammar &) = delete;
    weir__shim_grammar &operator=(const weir__shim_grammar &) = delete;

    progress now() const
    {
        return {grammar->stacks, grammar->partial_utf8};
    }
    void go_back(progress &&to)
    {
        grammar->stacks = std::move(to.stacks);
        grammar->partial_utf8 = to.partial;
    }
    std::string piece(int32_t token) const;
    bool allows(int32_t token) const;
    std::size_t triggered(std::size_t old_length) const;
    void shorten();
    weir_status advance(int32_t token, weir_error *error);
    weir_status wait(int32_t token, weir_error *error);
};

std::string weir__shim_grammar::piece(int32_t token) const
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

/* Accepting is laxer than this test in some ways (tokens without text, half code points) and stricter in
 * others, so both decide. */
bool weir__shim_grammar::allows(int32_t token) const
{
    llama_token_data one = {token, 0.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    llama_grammar_apply_impl(*grammar, &array);
    return one.logit == 0.0f;
}

weir_status weir__shim_grammar::advance(int32_t token, weir_error *error)
{
    if (!allows(token))
        return weir__error_set(error, WEIR_REFUSED, "token", "the grammar does not allow token %d here",
                               token);
    progress before = now();
    bool taken = attempt(false, [&] {
        llama_grammar_accept_impl(*grammar, token);
        return true;
    });
    if (taken && grammar->stacks.size() <= most_stacks) return WEIR_OK;
    go_back(std::move(before));
    if (taken)
        return weir__error_set(error, WEIR_GRAMMAR, "grammar",
                               "the grammar is too ambiguous: there are more than %zu ways to read the text",
                               most_stacks);
    return weir__error_set(error, WEIR_REFUSED, "token", "the grammar does not allow token %d here", token);
}

/* Where in seen the constrained text begins, npos when no trigger is there. What was there before the last
 * token, in the first old_length bytes, has been searched. */
std::size_t weir__shim_grammar::triggered(std::size_t old_length) const
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
        std::size_t group = 0; /* the first one that matched something, else the whole */
        for (std::size_t i = 1; i < match.size() && group == 0; i++)
            if (match.length(i) > 0) group = i;
        return from + static_cast<std::size_t>(match.position(group));
    }
    return std::string::npos;
}

/* Forgets what no trigger can begin in any more. */
void weir__shim_grammar::shorten()
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

weir_status weir__shim_grammar::wait(int32_t token, weir_error *error)
{
    std::size_t old_length = seen.size();
    std::size_t begin = std::string::npos;
    std::string text = piece(token);
    parts.push_back({token, old_length, old_length + text.size()});
    seen += text;
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end())
        begin = old_length;
    else
        begin = triggered(old_length);
    if (begin == std::string::npos) {
        shorten();
        return WEIR_OK;
    }

    progress before = now();
    bool taken = attempt(false, [&] {
        for (const part &p : parts) {
            if (p.end <= begin && !(p.begin == begin && p.token == token)) continue;
            std::size_t from = std::max(p.begin, begin);
            llama_grammar_accept_token(*grammar, p.token, seen.substr(from, p.end - from));
        }
        return true;
    });
    if (!taken) {
        go_back(std::move(before));
        seen.resize(old_length);
        parts.pop_back();
        return weir__error_set(error, WEIR_REFUSED, "token",
                               "token %d starts the grammar with text that it does not allow", token);
    }
    waiting = false;
    seen.clear();
    parts.clear();
    return WEIR_OK;
}

weir_status weir__shim_grammar_create(const llama_vocab *vocab, const char *text, const char *root, bool lazy,
                                      weir__shim_grammar **grammar, weir_error *error)
{
    return guard(error, WEIR_GRAMMAR, "the grammar cannot be used", [&] {
        /* Rule by rule, because llama_grammar_parser::parse prints its errors. */
        llama_grammar_parser parser(vocab);
        const char *pos = text;
        for (;;) {
            while (*pos != '\0' && std::strchr(" \t\r\n#", *pos) != nullptr)
                pos += *pos == '#' ? std::strcspn(pos, "\r\n") : 1;
            if (*pos == '\0') break;
            std::size_t line = 1 + static_cast<std::size_t>(std::count(text, pos, '\n'));
            try {
                pos = parser.parse_rule(pos);
            } catch (const std::exception &e) {
                return weir__error_set(error, WEIR_GRAMMAR, "grammar", "the rule on line %zu: %.200s", line,
                                       e.what());
            }
        }
        auto start = parser.symbol_ids.find(root != nullptr ? root : "root");
        if (start == parser.symbol_ids.end() || parser.rules.empty())
            return weir__error_set(error, WEIR_GRAMMAR, "grammar_root", "the grammar has no rule '%.100s'",
                                   root != nullptr ? root : "root");
        for (const llama_grammar_rule &rule : parser.rules)
            if (rule.empty())
                return weir__error_set(error, WEIR_GRAMMAR, "grammar", "a rule is used but not defined");
        capture said;
        auto made = std::make_unique<weir__shim_grammar>(vocab);
        llama_grammar_stack rules = parser.c_rules();
        made->grammar = llama_grammar_init_impl(vocab, rules.data(), rules.size(), start->second);
        if (made->grammar == nullptr || made->grammar->stacks.empty())
            return weir__error_set(error, WEIR_GRAMMAR, "grammar", "the grammar cannot be used: %s",
                                   said.reason("nothing matches it"));
        made->lazy = made->waiting = lazy;
        made->first = made->now();
        *grammar = made.release();
        return WEIR_OK;
    });
}

void weir__shim_grammar_free(weir__shim_grammar *grammar)
{
    delete grammar;
}

weir_status weir__shim_grammar_trigger(weir__shim_grammar *grammar, int kind, const char *value,
                                       int32_t token, weir_error *error)
{
    return guard(error, WEIR_GRAMMAR, "a trigger of the grammar cannot be used", [&] {
        std::string text = value != nullptr ? value : "";
        if (kind == 2) {
            bool begins = !text.empty() && text.front() == '^';
            bool ends = !text.empty() && text.back() == '$';
            text = (begins ? "" : "^") + text + (ends ? "" : "$");
        }
        switch (kind) {
        case 0:
            if (!text.empty()) grammar->words.push_back(text);
            break;
        case 1:
        case 2: grammar->patterns.emplace_back(text); break;
        default: grammar->tokens.push_back(token); break;
        }
        return WEIR_OK;
    });
}

weir_status weir__shim_grammar_begin(weir__shim_grammar *grammar, const char *text, weir_error *error)
{
    return guard(error, WEIR_GRAMMAR, "the grammar cannot begin", [&] {
        std::size_t length = text != nullptr ? std::strlen(text) : 0;
        if (length > INT32_MAX / 2)
            return weir__error_set(error, WEIR_TOO_LONG, "grammar",
                                   "the text that the grammar begins with is too long");
        std::vector<int32_t> ids(length + 16);
        int32_t n = length == 0 ? 0
                                : llama_tokenize(grammar->vocab, text, static_cast<int32_t>(length),
                                                 ids.data(), static_cast<int32_t>(ids.size()), false, true);
        for (int32_t i = 0; i < n; i++) {
            std::string piece = grammar->piece(ids[static_cast<std::size_t>(i)]);
            /* Some tokenizers put a space of their own before the first token. */
            if (i == 0 && !piece.empty() && piece[0] == ' ' && text[0] != ' ') continue;
            weir_status status = grammar->advance(ids[static_cast<std::size_t>(i)], error);
            if (status == WEIR_REFUSED)
                return weir__error_set(
                    error, WEIR_GRAMMAR, "grammar",
                    "the grammar does not allow what the prompt already holds of the answer");
            if (status != WEIR_OK) return status;
        }
        grammar->first = grammar->now();
        return WEIR_OK;
    });
}

weir_status weir__shim_grammar_reset(weir__shim_grammar *grammar, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the grammar cannot be reset", [&] {
        grammar->go_back(progress(grammar->first));
        grammar->waiting = grammar->lazy;
        grammar->cut = false;
        grammar->seen.clear();
        grammar->parts.clear();
        return WEIR_OK;
    });
}

weir_status weir__shim_grammar_accept(weir__shim_grammar *grammar, int32_t token, weir_error *error)
{
    return guard(error, WEIR_GRAMMAR, "the grammar failed", [&] {
        return grammar->waiting ? grammar->wait(token, error) : grammar->advance(token, error);
    });
}

weir_status weir__shim_grammar_filter(const weir__shim_grammar *grammar, llama_token_data *candidates,
                                      size_t n, weir_error *error)
{
    return guard(error, WEIR_GRAMMAR, "the grammar failed", [&] {
        llama_token_data_array array = {candidates, n, -1, false};
        if (!grammar->waiting) llama_grammar_apply_impl(*grammar->grammar, &array);
        return WEIR_OK;
    });
}

/* ---- chat ---- */

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
