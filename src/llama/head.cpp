/* head.cpp: draft heads: contexts that predict the tokens of another context, their target, from the
 * hidden states of its layers (EAGLE-3 from a file of its own, MTP from the target's file; ADR 0043), and how
 * contexts with and without a head decode and end. No exception leaves it.
 *
 * A head computes a row at position p from token p and from the target's states at position p - 1. It follows
 * its target by itself: its sequences have the target's numbers, and whatever happens to the target's
 * sequences happens to them. Rows of the target's last pass wait until they are needed, so that those of
 * rejected drafts are never computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "llama/cells.h"
#include "llama/guard.h"
#include "llama/internal.h"

/* Headers that llama.cpp does not install: llama.h has no hidden states. */
#include <../src/llama-context.h>
#include <../src/llama-ext.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cstring>
#include <vector>

extern "C" {
#include "base/error.h"
#include "base/mem.h"
}

using weir::allocate;
using weir::attempt;
using weir::guard;

#define TAPS_MAX 8 /* layers of the target that a head may read */
/* The most rows that may wait. More come from prompts, and are computed with the pass, not with a draft. */
#define WAIT_MOST 64
/* Rows that an encoder computes at once: llama.cpp reserves logits for each. */
#define ENCODE_MOST 64

/* Invariant: the head's memory of sequence s ends at position end[s] - 1. Up to known[s], the newest position
 * whose states were read, its rows are of the target's tokens. The row behind it, if any, is of token
 * ahead[s]; later rows are predictions. */
struct weir__llama_following {
    weir__bcontext *target; /* nullptr: it was freed */
    int32_t n_taps;         /* 0: reads the target's last hidden state */
    int32_t taps[TAPS_MAX]; /* else reads the inputs of these layers, concatenated, through an encoder */
    int32_t n_features;     /* floats of the target per position */
    int32_t width;          /* floats of a row's input, beside its token */
    uint64_t identity;      /* the head's identity, for saved states */

    /* The target's last pass, in its order, without rows that were cut since. */
    int32_t n;
    int32_t *token, *pos, *seq; /* [n_batch] */
    float *features;            /* [n_batch * n_features] */
    int32_t *order, *out;       /* [n_batch] scratch */
    float *fused;               /* [n_batch * width] features, encoded; features itself without an encoder */

    int32_t *known, *ahead, *end, *guessed; /* [n_seq_max]; -1 = none, end: 0; guessed: the position of
                                             * `guess` */
    float *state;                           /* [n_seq_max * width] the target's states at `known` */
    float *guess;                           /* [n_seq_max * width] the hidden state of the head's last row */

    weir__batch rows;
    float *embd; /* [n_batch * width] */
};

/* ---- Kept states ---------------------------------------------------------------------------------- */

static float *row_of(float *rows, const weir__llama_following *f, int32_t i)
{
    return rows + (size_t)i * (size_t)f->width;
}

static void keep_state(weir__llama_following *f, int32_t seq, int32_t pos, const float *features)
{
    memcpy(row_of(f->state, f, seq), features, (size_t)f->width * sizeof *features);
    f->known[seq] = pos;
    f->ahead[seq] = -1;
}

/* Removes the memory's rows from position `from` on. */
static void cut_rows(weir__bcontext *head, int32_t seq, int32_t from)
{
    weir__llama_following *f = head->following;
    if (f->end[seq] <= from) return;
    if (from <= 0 || !weir::remove_cells(head->context, seq, from, -1)) {
        weir::remove_cells(head->context, seq, -1, -1);
        from = 0;
    }
    f->end[seq] = from;
    if (from <= f->known[seq] + 1) f->ahead[seq] = -1;
}

void weir__llama_head_forget(weir__bcontext *head)
{
    weir__llama_following *f = head->following;
    f->n = 0;
    weir::clear_cells(head->context);
    for (int32_t s = 0; s < head->n_seq_max; s++) {
        f->known[s] = f->ahead[s] = f->guessed[s] = -1;
        f->end[s] = 0;
    }
}

int32_t weir__llama_head_known(const weir__bcontext *head, int32_t seq)
{
    const weir__llama_following *f = head->following;
    for (int32_t i = f->n - 1; i >= 0; i--)
        if (f->seq[i] == seq) return f->pos[i];
    return f->known[seq];
}

/* The hidden states of the last pass, of the rows that it kept; nullptr: it kept none. */
static const float *hidden_states(weir__bcontext *c)
{
    return attempt<const float *>(nullptr, [&] { return llama_get_embeddings_nextn(c->context); });
}

/* ---- Rows ----------------------------------------------------------------------------------------- */

/* Adds a row to the next pass. features: the target's states at the position before, nullptr = unknown. */
static void add_row(weir__bcontext *head, int32_t seq, int32_t pos, int32_t token, const float *features,
                    bool logits)
{
    weir__llama_following *f = head->following;
    cut_rows(head, seq, pos);
    if (f->end[seq] < pos) cut_rows(head, seq, 0); /* it may begin anywhere, but not have gaps */
    int32_t i = weir__batch_add(&f->rows, token, pos, seq, logits);
    if (features != nullptr)
        memcpy(row_of(f->embd, f, i), features, (size_t)f->width * sizeof *features);
    else
        memset(row_of(f->embd, f, i), 0, (size_t)f->width * sizeof *features);
    f->end[seq] = pos + 1;
}

/* Encodes the states of n rows. */
static bool fuse_rows(weir__bcontext *head, int32_t n)
{
    weir__llama_following *f = head->following;
    for (int32_t i = 0, some; f->n_taps > 0 && i < n; i += some) {
        some = n - i < ENCODE_MOST ? n - i : ENCODE_MOST;
        if (some > (int32_t)llama_n_ubatch(head->context)) some = (int32_t)llama_n_ubatch(head->context);
        llama_batch b = {};
        b.n_tokens = some;
        b.embd = f->features + (size_t)i * (size_t)f->n_features;
        bool began;
        if (weir__llama_compute(head->context, b, true, &began, nullptr) != WEIR_OK) return false;
        const float *fused = hidden_states(head);
        if (fused == nullptr) return false;
        memcpy(row_of(f->fused, f, i), fused, (size_t)some * (size_t)f->width * sizeof *fused);
    }
    return true;
}

/* Adds the waiting rows to the next pass. */
static bool gather_rows(weir__bcontext *head, bool logits)
{
    weir__llama_following *f = head->following;
    int32_t n = f->n;
    f->rows.n = f->n = 0;
    if (!fuse_rows(head, n)) return false;
    for (int32_t i = 0; i < n; i++) {
        int32_t seq = f->seq[i], pos = f->pos[i];
        bool follows = f->known[seq] >= 0 && f->known[seq] == pos - 1;
        bool there = follows && f->ahead[seq] == f->token[i];
        /* EAGLE-3 has no row for the first token of a text; MTP has one, with zeroes. */
        if (!there && (pos > 0 || f->n_taps == 0))
            add_row(head, seq, pos, f->token[i], follows ? row_of(f->state, f, seq) : nullptr, logits);
        keep_state(f, seq, pos, row_of(f->fused, f, i));
    }
    return true;
}

/* Computes the waiting rows. */
static void take_in(weir__bcontext *head)
{
    weir__llama_following *f = head->following;
    if (f->n == 0) return;
    if (!gather_rows(head, false) ||
        (f->rows.n > 0 && weir__llama_pass(head, &f->rows, f->embd, nullptr) != WEIR_OK))
        weir__llama_head_forget(head);
}

/* Adds the rows of predictions to the waiting ones. */
static bool add_guesses(weir__bcontext *head, const weir__batch *batch)
{
    weir__llama_following *f = head->following;
    for (int32_t i = 0; i < batch->n; i++) {
        int32_t seq = batch->seq[i], pos = batch->pos[i];
        bool first = f->known[seq] >= 0 && pos == f->known[seq] + 1;
        if (!first && (f->guessed[seq] < 0 || f->guessed[seq] != pos - 1)) return false;
        add_row(head, seq, pos, batch->token[i], row_of(first ? f->state : f->guess, f, seq), true);
        if (first) f->ahead[seq] = batch->token[i];
    }
    return true;
}

/* Keeps the hidden states of the predictions for the next ones. From here on, rows are the caller's. */
static bool read_guesses(weir__bcontext *head, const weir__batch *batch)
{
    weir__llama_following *f = head->following;
    int32_t n_before = f->rows.n - batch->n;
    const float *said = hidden_states(head);
    if (said == nullptr) return false;
    for (int32_t i = 0; i < batch->n; i++) {
        head->row_of[i] = head->row_of[n_before + i];
        memcpy(row_of(f->guess, f, batch->seq[i]), said + (size_t)head->row_of[i] * (size_t)f->width,
               (size_t)f->width * sizeof *said);
        f->guessed[batch->seq[i]] = batch->pos[i];
    }
    head->n_entries = batch->n;
    return true;
}

static weir_status decode_head(weir__bcontext *head, const weir__batch *batch, weir_error *error)
{
    weir__llama_following *f = head->following;
    if (f->n + batch->n > f->rows.capacity) take_in(head);
    /* The graphs return states, and EAGLE-3's also logits, for the first rows, as many as want logits. So all
     * rows want them. */
    bool good = gather_rows(head, true) && add_guesses(head, batch);
    weir_status status = good ? weir__llama_pass(head, &f->rows, f->embd, error)
                              : weir__invalid(error, WEIR_ERROR_UNKNOWN, "pos",
                                              "the states of the tokens before these are unknown");
    if (status == WEIR_OK && read_guesses(head, batch)) return WEIR_OK;
    weir__llama_head_forget(head);
    return status != WEIR_OK
               ? status
               : weir__error_set(error, WEIR_BACKEND, nullptr, "the head returns no hidden states");
}

void weir__llama_head_cut(weir__bcontext *head, int32_t seq, int32_t from)
{
    cut_rows(head, seq, from);
    head->following->guessed[seq] = -1;
}

/* ---- Changes of the target ------------------------------------------------------------------------ */

/* Finds the order in which llama.cpp computed the batch, and returns the states of layers: entry order[i] is
 * the i-th. In a pool it is the batch's order. Between lanes llama.cpp takes equal numbers of entries of
 * lanes with consecutive numbers at a time (split_equal), and then swaps rows as if all of them were outputs
 * (output_reorder). */
static void find_order(const weir__bcontext *target, const weir__batch *batch, int32_t *order, int32_t *out)
{
    int32_t n = 0, n_out = 0, n_ubatch = (int32_t)llama_n_ubatch(target->context);
    int32_t next[WEIR__SEQ_MAX], left[WEIR__SEQ_MAX] = {0}; /* of each lane */
    if (target->unified || target->n_seq_max == 1) {
        for (int32_t i = 0; i < batch->n; i++) order[i] = i;
        return;
    }
    for (int32_t i = batch->n - 1; i >= 0; i--) {
        next[batch->seq[i]] = i;
        left[batch->seq[i]]++;
    }
    while (n < batch->n) {
        int32_t lanes[WEIR__SEQ_MAX], n_lanes = 0, each = INT32_MAX;
        for (int32_t i = 0; i < batch->n && n_lanes <= n_ubatch; i++) {
            int32_t lane = batch->seq[i];
            if (i < next[lane] || (n_lanes > 0 && lane != lanes[n_lanes - 1] + 1)) continue;
            lanes[n_lanes++] = lane;
            if (left[lane] < each) each = left[lane];
        }
        if (n_lanes == 0) break; /* cannot happen while an entry is left */
        if (each > n_ubatch / n_lanes) each = n_ubatch / n_lanes > 1 ? n_ubatch / n_lanes : 1;
        for (int32_t l = 0; l < n_lanes; l++) {
            for (int32_t k = 0; k < each; k++) order[n++] = next[lanes[l]]++;
            left[lanes[l]] -= each;
        }
    }
    /* Lists the entries of the outputs by row. llama.cpp sorts them by selection, and swaps rows with the
     * outputs' numbers. */
    for (int32_t i = 0; i < n; i++)
        if (batch->logits[order[i]] != 0) out[n_out++] = order[i];
    for (int32_t i = 0; i + 1 < n_out; i++) {
        int32_t least = i;
        for (int32_t j = i + 1; j < n_out; j++)
            if (out[j] < out[least]) least = j;
        if (least == i) continue;
        int32_t a = out[i], b = order[i];
        out[i] = out[least];
        out[least] = a;
        order[i] = order[least];
        order[least] = b;
    }
}

static const float *features_of(const weir__llama_following *f, int32_t tap)
{
    if (f->n_taps == 0) return hidden_states(f->target);
    const auto layer = static_cast<uint32_t>(f->taps[tap]);
    return attempt<const float *>(nullptr,
                                  [&] { return llama_get_embeddings_layer_inp(f->target->context, layer); });
}

static void note_states(weir__bcontext *head, const weir__batch *batch)
{
    weir__llama_following *f = head->following;
    int32_t n_parts = f->n_taps > 0 ? f->n_taps : 1, n_part = f->n_features / n_parts;
    take_in(head); /* the waiting rows were right */
    find_order(f->target, batch, f->order, f->out);
    for (int32_t part = 0; part < n_parts; part++) {
        const float *rows = features_of(f, part);
        if (rows == nullptr) {
            weir__llama_head_forget(head);
            return;
        }
        for (int32_t i = 0; i < batch->n; i++)
            memcpy(f->features + (size_t)f->order[i] * (size_t)f->n_features + (size_t)part * (size_t)n_part,
                   rows + (size_t)i * (size_t)n_part, (size_t)n_part * sizeof *rows);
    }
    size_t bytes = (size_t)batch->n * sizeof *f->token;
    memcpy(f->token, batch->token, bytes);
    memcpy(f->pos, batch->pos, bytes);
    memcpy(f->seq, batch->seq, bytes);
    f->n = batch->n;
    if (f->n > WAIT_MOST) take_in(head);
}

void weir__llama_head_removed(weir__bcontext *head, int32_t seq, int32_t from)
{
    weir__llama_following *f = head->following;
    int32_t n = 0;
    for (int32_t i = 0; i < f->n; i++) {
        if (f->seq[i] == seq && f->pos[i] >= from) continue;
        if (n < i) {
            f->token[n] = f->token[i];
            f->pos[n] = f->pos[i];
            f->seq[n] = f->seq[i];
            memcpy(f->features + (size_t)n * (size_t)f->n_features,
                   f->features + (size_t)i * (size_t)f->n_features,
                   (size_t)f->n_features * sizeof *f->features);
        }
        n++;
    }
    f->n = n;
    cut_rows(head, seq, from);
    f->guessed[seq] = -1;
    if (f->known[seq] >= from) f->known[seq] = f->ahead[seq] = -1;
}

void weir__llama_head_shared(weir__bcontext *head, int32_t from, int32_t to, int32_t n)
{
    weir__llama_following *f = head->following;
    take_in(head);
    weir__llama_head_removed(head, to, from == to ? n : 0);
    if (from == to || n == 0 || !weir::copy_cells(head->context, from, to, 0, n)) return;
    f->end[to] = f->end[from] < n ? f->end[from] : n;
    if (f->known[from] == n - 1) keep_state(f, to, n - 1, row_of(f->state, f, from));
}

/* ---- Saved states --------------------------------------------------------------------------------- */

/* The end of the head's part of a saved state, behind the states of the last position and its own memory. */
typedef struct foot {
    uint64_t magic;
    uint64_t identity;
    uint64_t n_state, n_memory; /* bytes */
} foot;

#define MAGIC UINT64_C(0x6461656872696577) /* "weirhead" */

static size_t state_bytes(const weir__llama_following *f, int32_t seq)
{
    return f->known[seq] >= 0 ? (size_t)f->width * sizeof(float) : 0;
}

size_t weir__llama_head_state_size(weir__bcontext *head, int32_t seq)
{
    const weir__llama_following *f = head->following;
    take_in(head);
    cut_rows(head, seq, f->known[seq] + 1);
    return state_bytes(f, seq) + weir::state_size(head->context, seq, false) + sizeof(foot);
}

size_t weir__llama_head_state_save(weir__bcontext *head, int32_t seq, void *bytes, size_t capacity)
{
    const weir__llama_following *f = head->following;
    size_t size = weir__llama_head_state_size(head, seq);
    const size_t n_state = state_bytes(f, seq);
    if (size > capacity) return 0;
    const foot end = {MAGIC, f->identity, n_state, size - n_state - sizeof end};
    memcpy(bytes, row_of(f->state, f, seq), end.n_state);
    if (weir::save_state(head->context, seq, false, (char *)bytes + end.n_state, end.n_memory) !=
        end.n_memory)
        return 0;
    memcpy((char *)bytes + size - sizeof end, &end, sizeof end);
    return size;
}

void weir__llama_head_state_load(weir__bcontext *head, int32_t seq, const void *bytes, size_t length)
{
    weir__llama_following *f = head->following;
    foot end;
    weir__llama_head_removed(head, seq, 0);
    if (length < sizeof end) return;
    memcpy(&end, (const char *)bytes + length - sizeof end, sizeof end);
    length -= sizeof end;
    if (end.magic != MAGIC || end.identity != f->identity || end.n_memory > length ||
        end.n_state > length - end.n_memory || end.n_state != (size_t)f->width * sizeof(float))
        return;
    const char *memory = (const char *)bytes + length - end.n_memory;
    struct llama_memory_i *of = llama_get_memory(head->context);
    if (weir::load_state(head->context, seq, false, memory, end.n_memory, nullptr) != WEIR_OK) {
        weir::remove_cells(head->context, seq, -1, -1);
        return;
    }
    f->end[seq] = llama_memory_seq_pos_max(of, seq) + 1;
    memcpy(row_of(f->state, f, seq), memory - end.n_state, end.n_state);
    f->known[seq] = llama_memory_seq_pos_max(llama_get_memory(f->target->context), seq);
}

/* ---- Life ----------------------------------------------------------------------------------------- */

/* Makes the target keep the states that the head reads, from the next pass on. Plans for it now: planning
 * reads the model's list of adapters, and passes do not take its lock. */
static weir_status keep_states(const weir__llama_following *f, bool on, weir_error *error)
{
    const weir__bcontext *target = f->target;
    for (int32_t i = 0; i < f->n_taps; i++)
        llama_set_embeddings_layer_inp(target->context, static_cast<uint32_t>(f->taps[i]), on);
    if (f->n_taps == 0) llama_set_embeddings_nextn(target->context, on, false); /* of all rows */
    pthread_mutex_lock(&target->model->adapter_lock);
    weir_status status = guard(error, WEIR_BACKEND, "passes cannot be planned", [&] {
        target->context->sched_reserve();
        return WEIR_OK;
    });
    pthread_mutex_unlock(&target->model->adapter_lock);
    return status;
}

/* Separates a context from its head or target. */
static void detach_context(weir__bcontext *c)
{
    weir__llama_following *f = c->following;
    if (c->head != nullptr) c->head->following->target = nullptr;
    if (f == nullptr) return;
    if (f->target != nullptr && f->target->head == c) {
        keep_states(f, false, nullptr);
        f->target->head = nullptr;
    }
    weir__mem_free(f->embd);
    weir__batch_fini(&f->rows);
    weir__mem_free(f->guess);
    weir__mem_free(f->state);
    weir__mem_free(f->known);
    if (f->fused != f->features) weir__mem_free(f->fused);
    weir__mem_free(f->features);
    weir__mem_free(f->token);
    weir__mem_free(f);
}

void weir__llama_context_free(weir__bcontext *c)
{
    if (c == nullptr) return;
    detach_context(c);
    weir__llama_context_close(c);
}

namespace
{

/* True if the target's graph can return the inputs of its layers. */
bool keeps_layer_inputs(const llama_model *model)
{
    return model->arch == LLM_ARCH_LLAMA || model->arch == LLM_ARCH_QWEN3 ||
           model->arch == LLM_ARCH_QWEN3MOE || model->arch == LLM_ARCH_MINIMAX_M2;
}

/* True if the head's map of logits to tokens is valid. */
bool are_tokens(const ggml_tensor *d2t, int64_t n_vocab)
{
    std::vector<int64_t> ids(static_cast<std::size_t>(ggml_nelements(d2t)));
    ggml_backend_tensor_get(d2t, ids.data(), 0, ggml_nbytes(d2t));
    return std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id >= 0 && id < n_vocab; });
}

} // namespace

/* Checks whether an EAGLE-3 head and its target can be computed together, which llama.cpp asserts. */
static weir_status check_eagle3(const llama_model *head, const llama_model *target, weir_error *error)
{
    return guard(error, WEIR_BACKEND, "the head cannot be read", [&] {
        constexpr const char *field = "draft_model";
        int64_t n_embd = head->hparams.n_embd, n_vocab = head->vocab.n_tokens();
        int32_t n_layer = llama_model_n_layer(target);
        if (head->arch != LLM_ARCH_EAGLE3)
            return weir__error_set(error, WEIR_UNSUPPORTED, field,
                                   "heads of the kind '%s' are not supported; give an EAGLE-3 head (eagle3)",
                                   head->arch_name().c_str());
        if (!keeps_layer_inputs(target))
            return weir__error_set(error, WEIR_UNSUPPORTED, field,
                                   "EAGLE-3 heads are for models of the architectures llama, qwen3, qwen3moe "
                                   "and minimax-m2; this one is %s",
                                   target->arch_name().c_str());
        if (static_cast<int64_t>(head->hparams.n_embd_inp_enc()) !=
            static_cast<int64_t>(head->target_layer_ids.size()) * llama_model_n_embd(target))
            return weir__invalid(
                error, WEIR_ERROR_CONFLICT, field,
                "the head reads hidden states of %u numbers and the model's have %d: it is for another one",
                head->hparams.n_embd_inp_enc() / static_cast<uint32_t>(head->target_layer_ids.size()),
                llama_model_n_embd(target));
        for (int32_t layer : head->target_layer_ids)
            if (layer < 0 || layer >= n_layer)
                return weir__error_set(
                    error, WEIR_UNSUPPORTED, field,
                    "the head reads what goes into layer %d, and the model has layers 0 to "
                    "%d: it is for another one",
                    layer, n_layer - 1);
        bool borrows = head->tok_embd == nullptr || head->output == nullptr;
        if (borrows && (target->hparams.n_embd != n_embd || target->vocab.n_tokens() != n_vocab))
            return weir__invalid(error, WEIR_ERROR_CONFLICT, field,
                                 "the head uses the model's embeddings of tokens, which have %u numbers and "
                                 "%u tokens instead of %lld and %lld: it is for another one",
                                 target->hparams.n_embd, target->vocab.n_tokens(),
                                 static_cast<long long>(n_embd), static_cast<long long>(n_vocab));
        if (borrows && (target->tok_embd == nullptr || target->output == nullptr))
            return weir__error_set(
                error, WEIR_UNSUPPORTED, field,
                "the head uses the model's embeddings and output, and one of them is missing");
        if (llama_model_n_layer(head) != 1)
            return weir__error_set(error, WEIR_UNSUPPORTED, field, "the head has %d layers; allowed: 1",
                                   llama_model_n_layer(head));
        if (head->tok_embd != nullptr && head->tok_embd->ne[1] < n_vocab)
            return weir__error_set(
                error, WEIR_FORMAT, field, "the head has %lld tokens and embeddings of %lld",
                static_cast<long long>(n_vocab), static_cast<long long>(head->tok_embd->ne[1]));
        if (head->d2t != nullptr &&
            (head->d2t->type != GGML_TYPE_I64 || head->output == nullptr || !are_tokens(head->d2t, n_vocab)))
            return weir__error_set(error, WEIR_FORMAT, field,
                                   "the head's list of tokens (d2t) names some that do not exist");
        return WEIR_OK;
    });
}

/* Checks whether the model, which may be the target's own, has a head for it. */
static weir_status check_model(const weir__bmodel *model, const weir__bmodel *target, weir_error *error)
{
    if (model == target && model->info.n_layer_mtp == 0)
        return weir__error_set(error, WEIR_UNSUPPORTED, "mtp", "the model has no layers that guess");
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "draft_model",
                               "the head was loaded without its weights");
    return model == target ? WEIR_OK : check_eagle3(model->model, target->model, error);
}

/* Finds the tensors that the head reads, and its width. */
static void find_shape(weir__llama_following *f, const weir__bmodel *model, const weir__bmodel *target)
{
    f->width = llama_model_n_embd_out(model->model);
    f->n_taps = 0;
    if (model != target)
        for (int32_t layer : model->model->target_layer_ids)
            if (f->n_taps < TAPS_MAX) f->taps[f->n_taps++] = layer;
    f->n_features = model == target ? f->width : f->n_taps * llama_model_n_embd(target->model);
}

static bool make_room(weir__bcontext *head, weir__llama_following *f, weir_error *error)
{
    size_t n = (size_t)head->n_batch, n_seq = (size_t)head->n_seq_max, width = (size_t)f->width;
    if (!allocate(f->token, 5 * n) || !allocate(f->known, 4 * n_seq) ||
        !allocate(f->features, n * (size_t)f->n_features) || !allocate(f->state, n_seq * width) ||
        !allocate(f->guess, n_seq * width) || !allocate(f->embd, n * width) ||
        (f->n_taps > 0 && !allocate(f->fused, n * width)) ||
        weir__batch_init(&f->rows, head->n_batch, error) != WEIR_OK)
        return false;
    if (f->n_taps == 0) f->fused = f->features;
    f->pos = f->token + n;
    f->seq = f->pos + n;
    f->order = f->seq + n;
    f->out = f->order + n;
    f->ahead = f->known + n_seq;
    f->end = f->ahead + n_seq;
    f->guessed = f->end + n_seq;
    return true;
}

weir_status weir__llama_head_create(weir__bcontext *target, weir__bmodel *model,
                                    const weir_context_params *params, weir__bcontext **out,
                                    weir_context_info *info, weir_error *error)
{
    weir__bcontext *head = nullptr;
    weir__llama_following *f = nullptr;
    if (target->head != nullptr)
        return weir__error_set(error, WEIR_BUSY, "draft_model", "the context has a head already");
    weir_status status = check_model(model, target->model, error);
    if (status == WEIR_OK) status = weir__llama_context_open(model, params, target, &head, info, error);
    if (status != WEIR_OK) return status;
    if (head->n_batch < target->n_batch || head->n_seq_max < target->n_seq_max) {
        status = weir__invalid(error, WEIR_ERROR_CONFLICT, "n_batch",
                               "a head follows its target: %d tokens and %d sequences are allowed at least",
                               target->n_batch, target->n_seq_max);
        goto fail;
    }
    if (!allocate(f, 1)) goto no_memory;
    head->following = f;
    f->identity = model->identity;
    find_shape(f, model, target->model);
    if (!make_room(head, f, error)) goto no_memory;
    weir__llama_head_forget(head);
    llama_set_embeddings_nextn(head->context, true, true); /* of rows with logits */
    f->target = target;
    target->head = head;
    status = keep_states(f, true, error);
    if (status != WEIR_OK) goto fail;
    *out = head;
    return WEIR_OK;
no_memory:
    status =
        weir__error_set(error, WEIR_NO_MEMORY, "draft_model", "no memory for the states that a head reads");
fail:
    weir__llama_context_free(head);
    return status;
}

/* Memory of make_room, and llama.cpp's for the states of target and head. */
static uint64_t room_bytes(const weir__llama_following *f, const weir__bcontext *head)
{
    uint64_t n = (uint64_t)head->n_batch, n_seq = (uint64_t)head->n_seq_max, width = (uint64_t)f->width;
    uint64_t n_rows = n_seq > WAIT_MOST ? n_seq : WAIT_MOST; /* with logits */
    uint64_t n_features =
        (uint64_t)f->n_features * (uint64_t)f->target->n_batch + (uint64_t)f->n_features * n;
    uint64_t n_own = (f->n_taps > 0 ? 2 : 1) * n * width + 2 * n_seq * width;
    uint64_t n_said = (n_rows - n_seq) * (uint64_t)head->model->info.n_vocab + n_rows * width;
    return (n_features + n_own + n_said) * sizeof(float);
}

weir_status weir__llama_head_estimate(weir__bmodel *target_model, const weir_context_params *target_params,
                                      weir__bmodel *model, const weir_context_params *params,
                                      uint64_t *kv_bytes, uint64_t *compute_bytes, weir_error *error)
{
    weir__bcontext target = {}, head = {};
    weir__llama_following f = {};
    uint64_t kv = 0, compute = 0;
    f.target = &target;
    weir_status status = check_model(model, target_model, error);
    if (status == WEIR_OK)
        status = weir__llama_outline_open(target_model, target_params, nullptr, &target, error);
    if (status == WEIR_OK) status = weir__llama_outline_open(model, params, &target, &head, error);
    if (status == WEIR_OK) {
        find_shape(&f, model, target_model);
        status = keep_states(&f, true, error);
    }
    if (status == WEIR_OK)
        status = weir__llama_outline_bytes(&target, target_params, kv_bytes, compute_bytes, error);
    if (status == WEIR_OK) status = weir__llama_outline_bytes(&head, params, &kv, &compute, error);
    if (status == WEIR_OK) {
        *kv_bytes += kv;
        *compute_bytes += compute + room_bytes(&f, &head);
    }
    if (head.context != nullptr) llama_free(head.context);
    if (target.context != nullptr) llama_free(target.context);
    return status;
}

/* ---- Passes of any context ------------------------------------------------------------------------- */

static weir_status check_batch(const weir__bcontext *c, const weir__batch *batch, weir_error *error)
{
    if (batch->n < 1 || batch->n > c->n_batch)
        return weir__error_range(error, WEIR_INVALID, "batch", (double)batch->n, 1, (double)c->n_batch,
                                 "the batch has %d tokens", batch->n);
    if (c->model->n_positions == INT32_MAX) return WEIR_OK;
    for (int32_t i = 0; i < batch->n; i++)
        if (batch->pos[i] >= c->model->n_positions)
            return weir__error_numbers(
                error, WEIR_INVALID, "pos", batch->pos[i], 0, c->model->n_positions - 1,
                "position %d; this model has positions up to %d", batch->pos[i], c->model->n_positions - 1);
    return WEIR_OK;
}

weir_status weir__llama_decode(weir__bcontext *c, const weir__batch *batch, weir_error *error)
{
    weir_status status = check_batch(c, batch, error);
    if (status != WEIR_OK) c->n_entries = c->n_rows = 0;
    if (status != WEIR_OK) return status;
    if (c->following != nullptr) return decode_head(c, batch, error);
    status = weir__llama_pass(c, batch, nullptr, error);
    if (status == WEIR_OK && c->head != nullptr) note_states(c->head, batch);
    return status;
}

weir_status weir__llama_decode_segment(weir__bcontext *c, const weir__batch *batch, const weir__slice *slice,
                                       weir_error *error)
{
    weir_status status = weir__llama_pass_segment(c, batch, slice, error);
    /* A head knows nothing of cells without tokens. */
    if (c->head != nullptr) weir__llama_head_removed(c->head, batch->seq[0], 0);
    return status;
}
