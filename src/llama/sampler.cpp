/* sampler.cpp: sampling: biases, llama.cpp's chain, the grammar.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A choice is made without the grammar first, and only if the grammar refuses it, among the tokens that the
 * grammar's mask allows. Greedy choices read the row alone; others list the likeliest tokens and run
 * llama.cpp's chain over them. Scratch is lent by the model. */
#include "llama/grammar.h"
#include "llama/guard.h"
#include "llama/internal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "base/largest.h"
}

using weir::guard;

/* Room for one sampling. */
struct weir__llama_scratch {
    weir__llama_scratch *next = nullptr; /* while it is free */
    std::vector<llama_token_data> candidates;
    std::vector<uint64_t> mask;
    std::vector<float> allowed; /* logits of tokens that a grammar allows, else -INFINITY */

    explicit weir__llama_scratch(std::size_t n) : candidates(n), mask(WEIR__AUTOMATON_WORDS(n)), allowed(n)
    {
    }
};

void weir__llama_scratch_free(weir__llama_scratch *all)
{
    while (all != nullptr) {
        weir__llama_scratch *next = all->next;
        delete all;
        all = next;
    }
}

namespace
{

struct sampler_deleter {
    void operator()(llama_sampler *sampler) const
    {
        llama_sampler_free(sampler);
    }
};

using sampler_ptr = std::unique_ptr<llama_sampler, sampler_deleter>;

} // namespace

struct weir__bsampler {
    weir__bmodel *model;
    std::vector<weir_logit_bias> bias; /* the caller's, then the model's own; a token may have several */
    std::size_t n_given = 0;           /* of them, the caller's */
    sampler_ptr chain; /* without logit bias and grammar; nullptr: takes the most likely token */
    bool selects;      /* the chain selects a token at its end */
    int32_t n_largest; /* the chain uses only this many of the largest logits; 0: it does not */
    std::unique_ptr<weir::grammar> grammar;
};

namespace
{

/* The largest logit; larger ones count as this one, so that sums, divisions by the lowest temperature and
 * bucket sorts stay within float and int. Such a token is certain anyway. */
constexpr float most_logit = 1e5f;

/* The lowest temperature; lower ones count as 0, as dividing by them would give infinities. */
constexpr float least_temp = 1e-3f;

/* The most tokens in a row that a waiting grammar may refuse, because they would start it wrongly, before it
 * counts as stuck. */
constexpr int max_refusals = 16;

/* ---- The chain ------------------------------------------------------------------------------------ */

/* weir's own sampler, before the one that draws: extreme penalties and temperatures can leave infinities,
 * which the draw would turn into NaN. */
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

/* weir's own, too: removes candidates that cannot be drawn. It follows top_n_sigma, which only sets what it
 * excludes to -infinity, so that no other sampler counts that. And it precedes typ_p, which takes the
 * logarithm of each probability: it removes logits so far below the largest that this may be 0 as a float. */
void possible_apply(llama_sampler *sampler, llama_token_data_array *candidates)
{
    const float distance = *static_cast<const float *>(sampler->ctx);
    llama_token_data *data = candidates->data;
    float max = -INFINITY;
    for (std::size_t i = 0; i < candidates->size; i++) max = std::max(max, data[i].logit);
    const float least = std::max(max - distance, std::numeric_limits<float>::lowest());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < candidates->size; i++)
        if (data[i].logit >= least) data[kept++] = data[i];
    if (kept > 0) candidates->size = kept;
}

const char *possible_name(const llama_sampler *)
{
    return "possible";
}

llama_sampler_i possible_interface = {
    possible_name, nullptr, possible_apply, nullptr, nullptr, nullptr,
    nullptr,       nullptr, nullptr,        nullptr, nullptr, nullptr,
};

float any_distance = INFINITY, typical_distance = 70.0f; /* e^-70 among 10^7 candidates is a normal float */

/* True if a sampler that the order names does anything. A new one stands here, in make_sampler and in
 * order_names of model/sampler.c, and in may_drop_first below if it may remove the likeliest candidate: where
 * nothing does, greedy sampling leaves out all but the penalties and DRY. Mirostat replaces them all. */
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
    return name == "infill"; /* adaptive_p always comes last */
}

llama_sampler *make_sampler(const std::string &name, const llama_vocab *vocab, const weir_sampler_params &p)
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

void add(const sampler_ptr &chain, llama_sampler *sampler)
{
    sampler_ptr owned(sampler);
    llama_sampler_chain_add(chain.get(), sampler);
    static_cast<void>(owned.release());
}

weir_status make_chain(weir__bsampler &s, const weir_sampler_params &p, weir_error *error)
{
    const llama_vocab *vocab = s.model->vocab;
    const bool greedy = p.temp < least_temp;
    const std::string order = p.order;
    std::vector<std::string> names;
    bool may_drop_first = false; /* a sampler may remove the most likely candidate */
    for (std::size_t at = 0; at < order.size();) {
        std::size_t end = std::min(order.find(';', at), order.size());
        std::string name = order.substr(at, end - at);
        at = end + 1;
        if (!is_active(name, p)) continue;
        if (name == "infill" && llama_vocab_eot(vocab) < 0 && llama_vocab_eos(vocab) < 0)
            return weir__error_set(error, WEIR_UNSUPPORTED, "order",
                                   "infill needs a vocabulary with an end token");
        if (name == "infill" && p.ignore_eos)
            return weir__invalid(
                error, WEIR_ERROR_FORM, "order",
                "infill chooses end tokens, which `ignore_eos` forbids; leave one of them out");
        may_drop_first |= name == "typ_p" || name == "xtc" || name == "infill";
        names.push_back(name);
    }

    llama_sampler_chain_params params = llama_sampler_chain_default_params();
    params.no_perf = true;
    sampler_ptr chain(llama_sampler_chain_init(params));
    if (!greedy && p.mirostat != 0) {
        if (p.temp != 1) add(chain, llama_sampler_init_temp(p.temp));
        add(chain, llama_sampler_init(&finite_interface, nullptr));
        add(chain, p.mirostat == 1 ? llama_sampler_init_mirostat(llama_vocab_n_tokens(vocab), p.seed,
                                                                 p.mirostat_tau, p.mirostat_eta, 100)
                                   : llama_sampler_init_mirostat_v2(p.seed, p.mirostat_tau, p.mirostat_eta));
    } else {
        for (const std::string &name : names) {
            if (greedy && name == "temperature") continue;
            if (greedy && !may_drop_first && name != "penalties" && name != "dry") continue;
            if (name == "top_k" && llama_sampler_chain_n(chain.get()) == 0) s.n_largest = p.top_k;
            if (name == "typ_p") add(chain, llama_sampler_init(&possible_interface, &typical_distance));
            add(chain, make_sampler(name, vocab, p));
            if (name == "top_n_sigma") add(chain, llama_sampler_init(&possible_interface, &any_distance));
        }
        if (greedy && llama_sampler_chain_n(chain.get()) == 0) s.n_largest = 1;
        if (!greedy) {
            add(chain, llama_sampler_init(&finite_interface, nullptr));
            add(chain, p.adaptive_target >= 0
                           ? llama_sampler_init_adaptive_p(p.adaptive_target, p.adaptive_decay, p.seed)
                           : llama_sampler_init_dist(p.seed));
        }
    }
    s.selects = !greedy;
    if (llama_sampler_chain_n(chain.get()) > 0) s.chain = std::move(chain);
    return WEIR_OK;
}

weir_status make_grammar(weir__bsampler &s, const weir_sampler_params &params, const weir__grammar *grammar,
                         weir_error *error)
{
    const char *text = grammar != nullptr ? grammar->text : params.grammar;
    const char *root = grammar != nullptr ? grammar->root : params.grammar_root;
    if (text == nullptr && params.json_schema != nullptr)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "json_schema",
                             "a schema must have been made a grammar before");
    if (text == nullptr) return WEIR_OK;
    weir__automaton *automaton = nullptr;
    weir_status status = weir__llama_grammar_get(s.model, text, root, &automaton, error);
    if (status != WEIR_OK) return status;
    return guard(error, WEIR_GRAMMAR, "the grammar cannot be used", [&] {
        const std::unique_ptr<weir__automaton, decltype(&weir__automaton_release)> held(
            automaton, weir__automaton_release);
        const bool lazy = grammar != nullptr && grammar->lazy;
        const bool calls_only = grammar != nullptr && grammar->calls_only;
        s.grammar = std::make_unique<weir::grammar>(s.model->vocab, automaton, lazy, calls_only);
        for (std::size_t i = 0; grammar != nullptr && i < grammar->n_triggers; i++)
            s.grammar->add_trigger(grammar->triggers[i]);
        /* A lazy grammar describes the text after its trigger. */
        const bool begun = !lazy && grammar != nullptr && grammar->prefill != nullptr;
        return begun ? s.grammar->begin(grammar->prefill, error) : WEIR_OK;
    });
}

/* ---- Scratch -------------------------------------------------------------------------------------- */

/* Lends scratch of a model, from the first use on. */
class loan
{
  public:
    explicit loan(weir__bmodel *m) : model(m)
    {
    }
    ~loan()
    {
        if (scratch == nullptr) return;
        pthread_mutex_lock(&model->scratch_lock);
        scratch->next = model->scratch;
        model->scratch = scratch;
        pthread_mutex_unlock(&model->scratch_lock);
    }
    loan(const loan &) = delete;
    loan &operator=(const loan &) = delete;

    weir__llama_scratch *operator->()
    {
        if (scratch != nullptr) return scratch;
        pthread_mutex_lock(&model->scratch_lock);
        scratch = model->scratch;
        if (scratch != nullptr) model->scratch = scratch->next;
        pthread_mutex_unlock(&model->scratch_lock);
        if (scratch == nullptr)
            scratch = new weir__llama_scratch(static_cast<std::size_t>(model->info.n_vocab));
        return scratch;
    }

  private:
    weir__bmodel *model;
    weir__llama_scratch *scratch = nullptr;
};

/* ---- Candidates ----------------------------------------------------------------------------------- */

/* Moves the tokens that may be chosen to the front, in order, and returns their number. NaN is excluded. */
std::size_t keep_possible(llama_token_data *candidates, std::size_t n)
{
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; i++) {
        float logit = candidates[i].logit;
        candidates[kept] = candidates[i];
        candidates[kept].logit = logit < most_logit ? logit : most_logit;
        kept += logit > -INFINITY;
    }
    return kept;
}

std::size_t list_candidates(const weir__bsampler &s, const float *logits, llama_token_data *candidates)
{
    const std::size_t n = static_cast<std::size_t>(s.model->info.n_vocab);
    if (!s.bias.empty()) {
        for (std::size_t i = 0; i < n; i++) candidates[i] = {static_cast<llama_token>(i), logits[i], 0.0f};
        for (const weir_logit_bias &b : s.bias) candidates[b.token].logit += b.bias;
        return keep_possible(candidates, n);
    }
    std::size_t kept = 0; /* lists and filters in one pass */
    for (std::size_t i = 0; i < n; i++) {
        float logit = logits[i] < most_logit ? logits[i] : most_logit;
        candidates[kept] = {static_cast<llama_token>(i), logit, 0.0f};
        kept += logits[i] > -INFINITY;
    }
    return kept;
}

constexpr std::size_t lanes = WEIR__LARGEST_LANES, block = WEIR__LARGEST_BLOCK;

/* Adds a bias to a token, which is listed first if it was not. Returns the number listed. */
std::size_t add_bias(const weir_logit_bias &bias, const float *logits, llama_token_data *candidates,
                     std::size_t n)
{
    std::size_t i = 0;
    while (i < n && candidates[i].id != bias.token) i++;
    if (i == n) candidates[n++] = {bias.token, logits[bias.token], 0.0f};
    candidates[i].logit += bias.bias;
    return n;
}

/* Lists at least the tokens with the k largest logits, biases included: a few more, or all. */
std::size_t list_largest(const weir__bsampler &s, const float *logits, std::size_t k,
                         llama_token_data *candidates)
{
    const std::size_t n = static_cast<std::size_t>(s.model->info.n_vocab), n_blocks = n / block;
    std::size_t kept = 0;
    k += s.bias.size(); /* biases may remove that many */
    if (k > WEIR__LARGEST_MOST || k > n_blocks / 2) return list_candidates(s, logits, candidates);
    const float bound = weir__largest_bound(logits, n_blocks, k);
    for (std::size_t b = 0; b * block < n; b++) {
        std::size_t end = b < n_blocks ? (b + 1) * block : n;
        if (b < n_blocks && !(weir__largest(logits + b * block, block) >= bound)) continue;
        for (std::size_t i = b * block; i < end; i++)
            if (logits[i] >= bound) candidates[kept++] = {static_cast<llama_token>(i), logits[i], 0.0f};
    }
    for (const weir_logit_bias &b : s.bias) kept = add_bias(b, logits, candidates, kept);
    return keep_possible(candidates, kept);
}

/* ---- Choice --------------------------------------------------------------------------------------- */

/* The lowest index of the largest number; -1: all are NaN or -infinity. */
int32_t argmax(const float *x, std::size_t n)
{
    const std::size_t whole = n / lanes * lanes;
    float max = weir__largest(x, whole);
    for (std::size_t i = whole; i < n; i++) max = x[i] > max ? x[i] : max;
    if (!(max > -INFINITY)) return -1;
    std::size_t i = 0;
    for (; i < whole; i += lanes) {
        int found = 0;
        for (std::size_t j = 0; j < lanes; j++) found |= x[i + j] == max;
        if (found != 0) break;
    }
    while (x[i] != max) i++;
    return static_cast<int32_t>(i);
}

int32_t likeliest(const llama_token_data *candidates, std::size_t n)
{
    const llama_token_data *best = candidates;
    for (const llama_token_data *c = candidates; c < candidates + n; c++)
        if (c->logit > best->logit || (c->logit == best->logit && c->id < best->id)) best = c;
    return best->id;
}

/* Runs the chain over candidates [n], n > 0, and chooses. */
weir_status choose(const weir__bsampler &s, llama_token_data *candidates, std::size_t n, int32_t &token,
                   weir_error *error)
{
    llama_token_data_array array = {candidates, n, -1, false};
    if (s.chain) llama_sampler_apply(s.chain.get(), &array);
    if (s.selects ? array.selected < 0 || static_cast<std::size_t>(array.selected) >= array.size
                  : array.size == 0)
        return weir__error_set(error, WEIR_BACKEND, nullptr, "the sampler chain chose no token");
    token = s.selects ? array.data[array.selected].id : likeliest(array.data, array.size);
    return WEIR_OK;
}

/* True if a token that could be chosen is not there only because the caller's biases exclude it. */
bool bias_excludes(const weir__bsampler &s, const float *logits)
{
    const auto own = s.bias.begin() + static_cast<std::ptrdiff_t>(s.n_given);
    return std::any_of(s.bias.begin(), own, [&](const weir_logit_bias &given) {
        return logits[given.token] > -INFINITY &&
               std::none_of(own, s.bias.end(),
                            [&](const weir_logit_bias &b) { return b.token == given.token; });
    });
}

/* The first choice, without the grammar. */
weir_status first_choice(const weir__bsampler &s, const float *logits, loan &scratch, int32_t &token,
                         weir_error *error)
{
    if (!s.chain && s.bias.empty()) {
        token = argmax(logits, static_cast<std::size_t>(s.model->info.n_vocab));
        if (token >= 0) return WEIR_OK;
    } else {
        llama_token_data *candidates = scratch->candidates.data();
        const std::size_t k = static_cast<std::size_t>(s.n_largest);
        const std::size_t n =
            k > 0 ? list_largest(s, logits, k, candidates) : list_candidates(s, logits, candidates);
        if (n > 0) return choose(s, candidates, n, token, error);
        if (bias_excludes(s, logits))
            return weir__invalid(error, WEIR_ERROR_CONFLICT, "logit_bias",
                                 "`logit_bias` excludes every token that may come next");
    }
    return weir__error_set(error, WEIR_BACKEND, nullptr,
                           "no token can be chosen: all logits are NaN or minus infinity");
}

/* The logits of the tokens in a mask, in the scratch, where the grammar's choice may replace them. */
const float *apply_mask(const float *logits, const uint64_t *mask, loan &scratch)
{
    float *allowed = scratch->allowed.data();
    for (std::size_t i = 0; i < scratch->allowed.size(); i++)
        allowed[i] = (mask[i / 64] >> (i % 64) & 1) != 0 ? logits[i] : -INFINITY;
    return allowed;
}

/* Chooses among the tokens that the grammar allows, after it refused `token`. A waiting grammar allows all,
 * but may refuse one that would start it wrongly. */
weir_status constrained_choice(const weir__bsampler &s, const float *logits, loan &scratch, int32_t &token,
                               weir_error *error)
{
    weir_error why = {};
    const uint64_t *mask = scratch->mask.data();
    float *allowed = scratch->allowed.data();
    weir_status status = s.grammar->mask(scratch->mask.data(), error);
    if (status != WEIR_OK) return status;
    for (std::size_t i = 0; i < scratch->allowed.size(); i++)
        allowed[i] = (mask[i / 64] >> (i % 64) & 1) != 0 ? logits[i] : -INFINITY;
    for (int n_refused = 1; n_refused <= max_refusals; n_refused++) {
        allowed[token] = -INFINITY;
        status = first_choice(s, allowed, scratch, token, &why);
        if (status == WEIR_BACKEND) break; /* no token is left */
        if (status == WEIR_OK) status = s.grammar->accept(token, &why);
        if (status == WEIR_OK) return status;
        if (status != WEIR_REFUSED) return weir__error_copy(error, &why);
    }
    return weir__error_set(error, WEIR_GRAMMAR, "grammar",
                           "the grammar allows none of the model's tokens here");
}

} // namespace

/* ---- The backend's operations --------------------------------------------------------------------- */

weir_status weir__llama_sampler_create(const weir__bmodel *model, const weir_sampler_params *params,
                                       const weir__grammar *grammar, weir__bsampler **sampler,
                                       weir_error *error)
{
    if (model->info.n_vocab < 1)
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr,
                               "this model has no vocabulary to choose from");
    return guard(error, WEIR_BACKEND, "the sampler cannot be made", [&] {
        auto s = std::make_unique<weir__bsampler>();
        s->model = const_cast<weir__bmodel *>(model);
        s->bias.assign(params->logit_bias, params->logit_bias + params->n_logit_bias);
        s->n_given = params->n_logit_bias;
        s->bias.insert(s->bias.end(), model->banned, model->banned + model->n_banned);
        for (std::size_t i = 0; params->ignore_eos && i < model->n_eog; i++)
            s->bias.push_back({model->eog[i], -INFINITY});
        weir_status status = make_chain(*s, *params, error);
        if (status == WEIR_OK) status = make_grammar(*s, *params, grammar, error);
        if (status == WEIR_OK) *sampler = s.release();
        return status;
    });
}

void weir__llama_sampler_free(weir__bsampler *s)
{
    delete s;
}

weir_status weir__llama_sampler_reset(weir__bsampler *s, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the sampler cannot be reset", [&] {
        if (s->grammar) s->grammar->reset();
        if (s->chain) llama_sampler_reset(s->chain.get());
        return WEIR_OK;
    });
}

weir_status weir__llama_sample(weir__bsampler *s, weir__bcontext *context, int32_t row, const uint64_t *mask,
                               int32_t *token, weir_error *error)
{
    const float *logits = weir__llama_logits(context, row);
    if (logits == nullptr)
        return weir__invalid(error, WEIR_ERROR_CONFLICT, "index", "row %d of the last pass kept no logits",
                             row);
    return guard(error, WEIR_BACKEND, "sampling failed", [&] {
        loan scratch(s->model);
        int32_t chosen = -1;
        if (mask != nullptr) logits = apply_mask(logits, mask, scratch);
        weir_status status = first_choice(*s, logits, scratch, chosen, error);
        if (status == WEIR_OK && s->grammar) {
            weir_error why; /* separate, as a refusal is no failure */
            status = s->grammar->accept(chosen, &why);
            if (status == WEIR_REFUSED)
                status = constrained_choice(*s, logits, scratch, chosen, error);
            else if (status != WEIR_OK)
                weir__error_copy(error, &why);
        }
        if (status != WEIR_OK && status != WEIR_NO_MEMORY && mask != nullptr)
            return weir__error_set(error, WEIR_REFUSED, "", "the mask leaves no token that may come next");
        if (status != WEIR_OK) return status;
        if (s->chain) llama_sampler_accept(s->chain.get(), chosen);
        *token = chosen;
        return WEIR_OK;
    });
}

weir_status weir__llama_count(weir__bsampler *s, int32_t token, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the token cannot be counted", [&] {
        if (s->chain) llama_sampler_accept(s->chain.get(), token);
        return WEIR_OK;
    });
}

size_t weir__llama_text_before_call(const weir__bsampler *s)
{
    return s->grammar ? s->grammar->text_before_call() : WEIR__NO_CALL;
}

weir_status weir__llama_accept(weir__bsampler *s, int32_t token, weir_error *error)
{
    const weir_status status = guard(error, WEIR_GRAMMAR, "the grammar failed",
                                     [&] { return s->grammar ? s->grammar->accept(token, error) : WEIR_OK; });
    return status == WEIR_OK ? weir__llama_count(s, token, error) : status;
}
