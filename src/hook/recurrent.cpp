/* recurrent.cpp: layers whose memory is one state for each sequence, as ggml's operations.
 * SPDX-License-Identifier: Apache-2.0
 *
 * For a gated delta net, llama.cpp's graph copies the sequences' states out of the memory (GET_ROWS),
 * computes new ones beside them (GATED_DELTA_NET), and copies these into the memory (CPY). For eight
 * sequences that moves several times the bytes that the layer's weights have. So the net reads states where
 * they lie, and writes them where they belong, and the copies are left out.
 *
 * For a short convolution, the graph puts a sequence's last numbers and its new ones into rows of a channel
 * each (CONCAT), multiplies them with the weights (SSM_CONV), and copies the last of them into the memory
 * (CPY). Both the numbers before and those after have rows of a token each. So the rows in between become
 * those of tokens, too.
 *
 * Both hold only if all of these operations belong to one plan and no other operation of it reads what lies
 * in between. ggml asks about each operation of a plan in order, and so after those that compute its sources.
 * An operation's last parameters record what the plan has that reads it.
 *
 * Three things are not checked, and hold for llama.cpp's graphs: no operation of a later plan reads what lies
 * in between; none writes the cells that CPY writes between GET_ROWS and the net; none reads or writes these
 * cells between the net and CPY. */
#include "hook/parts.h"

#include <ggml-impl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weir
{

namespace
{

/* ---- What a plan has ---- */

/* An operation's state, from the plan on. */
enum : int32_t {
    unknown, /* of no plan, or computed as ggml does */
    planned,
    joined, /* the operations that read it do so in weir's way */
    refused /* an operation reads it that knows nothing of that way */
};

/* The parameters that hold it, and the operation that it is joined to. ggml leaves them zero. */
constexpr int state_at = GGML_MAX_OP_PARAMS / sizeof(int32_t) - 1, other_at = state_at - 3;

/* A state may become unknown while other threads read it, but only one with which they do the same. */
int32_t state_of(const ggml_tensor *op)
{
    return __atomic_load_n(&op->op_params[state_at], __ATOMIC_RELAXED);
}

void set_state(const ggml_tensor *op, int32_t state)
{
    __atomic_store_n(const_cast<int32_t *>(&op->op_params[state_at]), state, __ATOMIC_RELAXED);
}

const ggml_tensor *other_of(const ggml_tensor *op)
{
    const ggml_tensor *other;
    std::memcpy(&other, &op->op_params[other_at], sizeof other);
    return other;
}

void join(const ggml_tensor *op, const ggml_tensor *other, int32_t state)
{
    std::memcpy(const_cast<int32_t *>(&op->op_params[other_at]), &other, sizeof other);
    set_state(op, state);
}

/* The tensor whose bytes these are. */
const ggml_tensor *root_of(const ggml_tensor *tensor)
{
    return tensor->view_src != nullptr ? tensor->view_src : tensor;
}

/* Numbers in single precision, those of a row behind one another. */
bool is_plain(const ggml_tensor *tensor)
{
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float) && is_on_host(tensor);
}

char *at(const ggml_tensor *tensor, int64_t i1, int64_t i2, int64_t i3)
{
    return static_cast<char *>(tensor->data) + static_cast<size_t>(i1) * tensor->nb[1] +
           static_cast<size_t>(i2) * tensor->nb[2] + static_cast<size_t>(i3) * tensor->nb[3];
}

const float *floats(const ggml_tensor *tensor, int64_t i1, int64_t i2, int64_t i3)
{
    return reinterpret_cast<const float *>(at(tensor, i1, i2, i3));
}

/* A thread's share of n units, in steps of 16. */
struct share {
    int64_t first, end;

    share(const ggml_compute_params *params, int64_t n)
        : first(n / 16 * params->ith / params->nth * 16), end(n / 16 * (params->ith + 1) / params->nth * 16)
    {
    }
};

/* An operation that needs no memory to work in. Where compute_forward returns false, ggml computes it. */
struct step : ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor *op, size_t &size) override
    {
        plan(op);
        size = 0; /* ggml needs none, either, where it computes one of them */
        return true;
    }

    virtual void plan(const ggml_tensor *op) = 0;
};

/* ---- Gated delta net ---- */

/* The states of some sequences, copied out of the memory. */
struct state_rows final : step {
    static constexpr int64_t most_sequences = 256; /* as llama.cpp */
    static_assert(most_sequences / 32 <= other_at);

    static bool takes(const ggml_tensor *op)
    {
        return op->op == GGML_OP_GET_ROWS && is_plain(op->src[0]) && is_plain(op) && ggml_is_contiguous(op) &&
               ggml_is_contiguous(op->src[0]) && op->src[1]->type == GGML_TYPE_I32 && op->ne[0] % 256 == 0 &&
               ggml_nrows(op) == op->ne[1] && op->ne[1] <= most_sequences &&
               ggml_nrows(op->src[0]) == op->src[0]->ne[1] && op->src[1]->nb[0] == sizeof(int32_t) &&
               is_on_host(op->src[1]) && root_of(op->src[0])->op == GGML_OP_NONE;
    }

    void plan(const ggml_tensor *op) override
    {
        join(op, nullptr, planned);
    }

    /* The sequences whose states stay where they are have a bit each in the first parameters. The net reads
     * these bits, because ggml may have given the memory of src[1] to another operation by then. */
    static void record_stay(ggml_tensor *op, int64_t sequence, bool stays)
    {
        auto bit = static_cast<int32_t>(1U << sequence % 32);
        int32_t &bits = op->op_params[sequence / 32];
        bits = stays ? bits | bit : bits & ~bit;
    }

    static bool stays(const ggml_tensor *op, int64_t sequence)
    {
        return (static_cast<uint32_t>(op->op_params[sequence / 32]) >> sequence % 32 & 1) != 0;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override;
};

struct net final : step {
    static bool takes(const ggml_tensor *op)
    {
        if (op->op != GGML_OP_GATED_DELTA_NET) return false;
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *gate = op->src[3];
        const ggml_tensor *beta = op->src[4], *state = op->src[5];
        return weir__delta_net_takes(v->ne[0]) && is_plain(q) && is_plain(k) && is_plain(v) &&
               is_plain(gate) && is_plain(beta) && is_plain(state) && is_plain(op) && gate->ne[0] == 1 &&
               q->ne[0] == v->ne[0] && k->ne[0] == v->ne[0] && is_whole(q) && is_whole(k) && is_whole(v) &&
               is_whole(gate) && is_whole(beta) && ggml_is_contiguous(state) && ggml_is_contiguous(op);
    }

    /* Tokens lie a whole number of floats apart. */
    static bool is_whole(const ggml_tensor *tensor)
    {
        return tensor->nb[2] % sizeof(float) == 0;
    }

    /* Where its states begin: behind the results. */
    static size_t results_bytes(const ggml_tensor *op)
    {
        return static_cast<size_t>(ggml_nelements(op->src[2])) * sizeof(float);
    }

    static int64_t state_size(const ggml_tensor *op)
    {
        const ggml_tensor *v = op->src[2];
        return v->ne[0] * v->ne[0] * v->ne[1];
    }

    static int64_t n_kept(const ggml_tensor *op)
    {
        return std::min<int64_t>(ggml_get_op_params_i32(op, 0), op->src[2]->ne[2]);
    }

    /* The copy of the states that were in the memory. */
    static const ggml_tensor *rows_of(const ggml_tensor *op)
    {
        const ggml_tensor *rows = root_of(op->src[5]);
        return state_rows::takes(rows) && rows->ne[0] == state_size(op) && rows->ne[1] == op->src[2]->ne[3] &&
                       op->src[5]->data == rows->data
                   ? rows
                   : nullptr;
    }

    void plan(const ggml_tensor *op) override
    {
        const ggml_tensor *rows = rows_of(op);
        join(op, nullptr, planned);
        if (rows != nullptr && state_of(rows) == planned) join(rows, op, joined);
    }

    /* The state of a sequence in the memory, where it will be: nullptr: it is copied there afterwards. */
    static float *home_of(const ggml_tensor *op, int64_t sequence)
    {
        const ggml_tensor *copy = other_of(op);
        if (copy == nullptr) return nullptr;
        const ggml_tensor *to = copy->src[1];
        return reinterpret_cast<float *>(static_cast<char *>(to->data) +
                                         static_cast<size_t>(sequence) * to->nb[1]);
    }

    /* True if the state of a sequence is in the memory already where it will be. For the operation that
     * copies the rows only. */
    static bool is_at_home(const ggml_tensor *op, const ggml_tensor *rows, int64_t sequence)
    {
        int32_t row = static_cast<const int32_t *>(rows->src[1]->data)[sequence];
        return home_of(op, sequence) == floats(rows->src[0], row, 0, 0);
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *v = op->src[2], *rows = rows_of(op);
        int64_t size = v->ne[0], n_heads = v->ne[1], n_sequences = v->ne[3];
        bool joins = state_of(op) == joined;
        if (rows != nullptr && (state_of(rows) != joined || other_of(rows) != op)) rows = nullptr;
        share mine(params, size * n_heads * n_sequences);
        for (int64_t row = mine.first, end; row < mine.end; row = end) {
            int64_t head = row / size % n_heads, sequence = row / size / n_heads;
            end = std::min(mine.end, (row / size + 1) * size);
            weir__delta_net one = tokens_of(op, head, sequence);
            int64_t beside = head * size * size;
            one.from = static_cast<const float *>(op->src[5]->data) + sequence * state_size(op) + beside;
            if (joins) {
                one.to = home_of(op, sequence) + beside;
                one.to_stride = other_of(op)->src[1]->nb[2] / sizeof(float);
                if (rows != nullptr && state_rows::stays(rows, sequence)) one.from = one.to;
            } else {
                one.to = reinterpret_cast<float *>(static_cast<char *>(op->data) + results_bytes(op)) +
                         sequence * state_size(op) + beside;
                one.to_stride = static_cast<size_t>(n_sequences * state_size(op));
            }
            recurrent->delta_net(&one, row % size, end - row + row % size);
        }
        if (params->ith == 0 && !joins) set_state(op, unknown);
        return true;
    }

    /* All but the states. Heads of queries and keys may be fewer, and take turns. */
    static weir__delta_net tokens_of(const ggml_tensor *op, int64_t head, int64_t sequence)
    {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *gate = op->src[3];
        const ggml_tensor *beta = op->src[4];
        weir__delta_net one{};
        one.size = v->ne[0];
        one.n_tokens = v->ne[2];
        one.n_to = n_kept(op);
        one.query = floats(q, head % q->ne[1], 0, sequence / (v->ne[3] / q->ne[3]));
        one.key = floats(k, head % k->ne[1], 0, sequence / (v->ne[3] / k->ne[3]));
        one.value = floats(v, head, 0, sequence);
        one.gate = floats(gate, head, 0, sequence);
        one.beta = floats(beta, head, 0, sequence);
        one.query_stride = q->nb[2] / sizeof(float);
        one.key_stride = k->nb[2] / sizeof(float);
        one.value_stride = v->nb[2] / sizeof(float);
        one.gate_stride = gate->nb[2] / sizeof(float);
        one.beta_stride = beta->nb[2] / sizeof(float);
        one.out_stride = static_cast<size_t>(v->ne[1] * one.size);
        one.out = static_cast<float *>(op->data) + (sequence * one.n_tokens * v->ne[1] + head) * one.size;
        return one;
    }
};

/* Copies the states that do not stay where they are. */
bool state_rows::compute_forward(ggml_compute_params *params, ggml_tensor *op)
{
    const ggml_tensor *the_net = other_of(op);
    if (state_of(op) != joined || state_of(the_net) != joined) {
        if (params->ith == 0) set_state(op, unknown);
        return false;
    }
    share mine(params, op->ne[0]);
    for (int64_t i = 0; i < op->ne[1]; i++) {
        bool stays = net::is_at_home(the_net, op, i);
        if (params->ith == 0) record_stay(op, i, stays);
        if (stays) continue;
        int32_t row = static_cast<const int32_t *>(op->src[1]->data)[i];
        std::memcpy(at(op, i, 0, 0) + static_cast<size_t>(mine.first) * sizeof(float),
                    floats(op->src[0], row, 0, 0) + mine.first,
                    static_cast<size_t>(mine.end - mine.first) * sizeof(float));
    }
    return true;
}

/* The copy of a net's states into the memory. */
struct state_copy final : step {
    static bool takes(const ggml_tensor *op)
    {
        if (op->op != GGML_OP_CPY) return false;
        const ggml_tensor *from = op->src[0], *to = op->src[1], *of = root_of(from);
        if (!net::takes(of) || from == of || !is_plain(from) || !is_plain(to)) return false;
        int64_t n_sequences = of->src[2]->ne[3];
        auto bytes = static_cast<size_t>(net::state_size(of)) * sizeof(float);
        return from->view_offs == net::results_bytes(of) && ggml_is_contiguous(from) &&
               ggml_nelements(from) == net::state_size(of) * n_sequences * net::n_kept(of) &&
               to->ne[0] == net::state_size(of) && to->ne[1] == n_sequences && to->ne[2] == net::n_kept(of) &&
               to->ne[3] == 1 && to->nb[1] == bytes && root_of(to)->op == GGML_OP_NONE;
    }

    void plan(const ggml_tensor *op) override
    {
        const ggml_tensor *of = root_of(op->src[0]);
        if (state_of(of) == planned) join(of, op, joined);
    }

    bool compute_forward(ggml_compute_params *, ggml_tensor *op) override
    {
        const ggml_tensor *of = root_of(op->src[0]);
        return state_of(of) == joined && other_of(of) == op;
    }
};

/* ---- Short convolutions ---- */

/* Numbers of a sequence before the pass's, then the pass's; for each sequence a row for each channel, or, if
 * joined, for each token. */
struct window final : step {
    static bool takes(const ggml_tensor *op)
    {
        if (op->op != GGML_OP_CONCAT || ggml_get_op_params_i32(op, 0) != 0) return false;
        const ggml_tensor *before = op->src[0], *x = op->src[1];
        return is_plain(before) && x->type == GGML_TYPE_F32 && x->nb[1] == sizeof(float) && is_on_host(x) &&
               is_plain(op) && ggml_is_contiguous(op) && before->ne[0] < WEIR__TAPS_MAX &&
               op->ne[1] % 16 == 0 && op->ne[3] == 1;
    }

    void plan(const ggml_tensor *op) override
    {
        join(op, nullptr, planned);
    }

    /* A token's numbers. */
    static float *row_of(const ggml_tensor *op, int64_t token, int64_t sequence)
    {
        return reinterpret_cast<float *>(at(op, 0, sequence, 0)) + token * op->ne[1];
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *before = op->src[0], *x = op->src[1];
        int64_t n_before = before->ne[0];
        if (state_of(op) != joined) {
            if (params->ith == 0 && state_of(op) == planned) set_state(op, unknown);
            return false;
        }
        share mine(params, op->ne[1]);
        auto bytes = static_cast<size_t>(mine.end - mine.first) * sizeof(float);
        for (int64_t s = 0; s < op->ne[2]; s++) {
            for (int64_t c = mine.first; c < mine.end; c++)
                for (int64_t t = 0; t < n_before; t++) row_of(op, t, s)[c] = floats(before, c, s, 0)[t];
            for (int64_t t = 0; t < x->ne[0]; t++)
                std::memcpy(row_of(op, n_before + t, s) + mine.first,
                            static_cast<const char *>(x->data) + static_cast<size_t>(t) * x->nb[0] +
                                static_cast<size_t>(s) * x->nb[2] +
                                static_cast<size_t>(mine.first) * sizeof(float),
                            bytes);
        }
        return true;
    }
};

struct convolution final : step {
    static bool takes(const ggml_tensor *op)
    {
        if (op->op != GGML_OP_SSM_CONV) return false;
        const ggml_tensor *x = op->src[0], *weights = op->src[1];
        return window::takes(x) && is_plain(weights) && ggml_is_contiguous(weights) && is_plain(op) &&
               weights->ne[0] == x->src[0]->ne[0] + 1;
    }

    void plan(const ggml_tensor *op) override
    {
        if (state_of(op->src[0]) == planned) join(op->src[0], op, joined);
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *x = op->src[0];
        share mine(params, op->ne[0]);
        if (state_of(x) != joined) {
            compute_by_channels(op, mine);
            return true;
        }
        for (int64_t s = 0; s < op->ne[2]; s++) {
            weir__convolution one{};
            one.n_tokens = op->ne[1];
            one.n_taps = static_cast<int32_t>(op->src[1]->ne[0]);
            one.x = window::row_of(x, 0, s);
            one.x_stride = static_cast<size_t>(x->ne[1]);
            one.weights = static_cast<const float *>(op->src[1]->data);
            one.out = reinterpret_cast<float *>(at(op, 0, s, 0));
            one.out_stride = op->nb[1] / sizeof(float);
            recurrent->convolve(&one, mine.first, mine.end);
        }
        return true;
    }

    /* The same sums from rows of channels. */
    static void compute_by_channels(const ggml_tensor *op, const share &mine)
    {
        const ggml_tensor *weights = op->src[1];
        for (int64_t s = 0; s < op->ne[2]; s++)
            for (int64_t c = mine.first; c < mine.end; c++)
                for (int64_t t = 0; t < op->ne[1]; t++) {
                    const float *x = floats(op->src[0], c, s, 0) + t, *w = floats(weights, c, 0, 0);
                    float sum = x[0] * w[0];
                    for (int64_t tap = 1; tap < weights->ne[0]; tap++) sum = std::fma(x[tap], w[tap], sum);
                    reinterpret_cast<float *>(at(op, t, s, 0))[c] = sum;
                }
    }
};

/* The copy of a window's numbers into the memory, for passes to come. */
struct window_copy final : step {
    static bool takes(const ggml_tensor *op)
    {
        if (op->op != GGML_OP_CPY) return false;
        const ggml_tensor *from = op->src[0], *to = op->src[1], *of = root_of(from);
        return of != from && window::takes(of) && is_plain(from) && is_plain(to) &&
               from->ne[1] == of->ne[1] && from->ne[2] == of->ne[2] && from->ne[3] == 1 &&
               from->nb[1] == of->nb[1] && from->nb[2] == of->nb[2] &&
               from->view_offs + from->ne[0] * sizeof(float) <= of->nb[1] &&
               ggml_nelements(to) == ggml_nelements(from) &&
               (ggml_n_dims(to) == 1 || (to->ne[0] == from->ne[0] * from->ne[1] && to->ne[1] == from->ne[2]));
    }

    void plan(const ggml_tensor *) override
    {
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        const ggml_tensor *from = op->src[0], *of = root_of(from);
        if (state_of(of) != joined) return false;
        share mine(params, of->ne[1]);
        auto first = static_cast<int64_t>(from->view_offs / sizeof(float));
        /* All sequences' numbers may be one row. */
        size_t apart = ggml_n_dims(op->src[1]) == 1
                           ? static_cast<size_t>(from->ne[0] * from->ne[1]) * sizeof(float)
                           : op->src[1]->nb[1];
        for (int64_t s = 0; s < of->ne[2]; s++) {
            auto *to = reinterpret_cast<float *>(static_cast<char *>(op->src[1]->data) +
                                                 static_cast<size_t>(s) * apart);
            for (int64_t c = mine.first; c < mine.end; c++)
                for (int64_t t = 0; t < from->ne[0]; t++)
                    to[c * from->ne[0] + t] = window::row_of(of, first + t, s)[c];
        }
        return true;
    }
};

state_rows the_rows;
net the_net;
state_copy the_state_copy;
window the_window;
convolution the_convolution;
window_copy the_window_copy;

/* An operation reads its sources as ggml lays them out: none of them may be in weir's way. */
void refuse_sources(const ggml_tensor *op, const ggml::cpu::tensor_traits *own)
{
    for (const ggml_tensor *src : op->src) {
        if (src == nullptr) continue;
        const ggml_tensor *of = root_of(src);
        int32_t state =
            of->op == GGML_OP_GET_ROWS || of->op == GGML_OP_CONCAT || of->op == GGML_OP_GATED_DELTA_NET
                ? state_of(of)
                : unknown;
        if (state != planned && state != joined) continue;
        bool first = state == planned || other_of(of) == op; /* of those that could be joined to it */
        bool knows = state_rows::takes(of)
                         ? own == &the_net && src == op->src[5] && net::rows_of(op) == of && first
                     : net::takes(of) ? (own == &the_state_copy && first) ||
                                            src->view_offs + ggml_nbytes(src) <= net::results_bytes(of)
                     : window::takes(of) ? own == &the_convolution || own == &the_window_copy
                                         : true;
        if (!knows) set_state(of, refused);
    }
}

ggml::cpu::tensor_traits *own_of(const ggml_tensor *op)
{
    switch (op->op) {
    case GGML_OP_GET_ROWS: return state_rows::takes(op) ? &the_rows : nullptr;
    case GGML_OP_GATED_DELTA_NET: return net::takes(op) ? &the_net : nullptr;
    case GGML_OP_CONCAT: return window::takes(op) ? &the_window : nullptr;
    case GGML_OP_SSM_CONV: return convolution::takes(op) ? &the_convolution : nullptr;
    case GGML_OP_CPY:
        if (state_copy::takes(op)) return &the_state_copy;
        return window_copy::takes(op) ? &the_window_copy : nullptr;
    default: return nullptr;
    }
}

} // namespace

ggml::cpu::tensor_traits *recurrent_of(const ggml_tensor *op)
{
    if (recurrent == nullptr || ggml_op_is_empty(op->op)) return nullptr;
    ggml::cpu::tensor_traits *own = own_of(op);
    refuse_sources(op, own);
    return own;
}

} // namespace weir
