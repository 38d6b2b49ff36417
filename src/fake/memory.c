/* memory.c: the tokens of the fake's sequences, and their cells.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "fake/internal.h"

static bool is_unified(const weir__bcontext *context)
{
    return context->info.layout == WEIR_LAYOUT_UNIFIED;
}

static void cells_add(weir__bcontext *context, int64_t n)
{
    if (n != 0) atomic_fetch_add(&context->model->hooks.n_cells, n);
}

/* Releases entry i's cell; 1 if no sequence holds it any more. */
static int32_t cell_leave(weir__bcontext *context, const weir__fake_seq *seq, int32_t i)
{
    if (!is_unified(context)) return 1;
    int32_t cell = seq->cell[i];
    if (--context->refs[cell] > 0) return 0;
    context->unused[context->n_unused++] = cell;
    return 1;
}

/* Removes entries [first, last); the positions of later ones stay. */
static void entries_remove(weir__bcontext *context, weir__fake_seq *seq, int32_t first, int32_t last)
{
    int64_t freed = 0;
    for (int32_t i = first; i < last; i++) freed += cell_leave(context, seq, i);
    cells_add(context, -freed);
    size_t rest = (size_t)(seq->n - last);
    memmove(seq->token + first, seq->token + last, rest * sizeof *seq->token);
    memmove(seq->pos + first, seq->pos + last, rest * sizeof *seq->pos);
    memmove(seq->cell + first, seq->cell + last, rest * sizeof *seq->cell);
    memmove(seq->adapters + first, seq->adapters + last, rest * sizeof *seq->adapters);
    seq->n -= last - first;
    if (seq->n == 0) seq->first = 0;
    uint64_t hash = first > 0 ? seq->hash[first - 1] : weir__fake_hash_start(context->model);
    for (int32_t i = first; i < seq->n; i++)
        seq->hash[i] = hash = weir__fake_hash_next(hash, seq->token[i], seq->adapters[i]);
}

/* The first entry with a position >= pos. */
static int32_t entry_at(const weir__fake_seq *seq, int32_t pos)
{
    int32_t low = 0, high = seq->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (seq->pos[middle] < pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Cells of segments have ids below zero, with the step to the next position in their lowest bits. */
int32_t weir__fake_seq_next(const weir__fake_seq *seq, int32_t i)
{
    return seq->pos[i] + (seq->token[i] >= 0 ? 1 : weir__fake_cell_step(seq->token[i]));
}

/* The number of entries that hold exactly positions 0 … n - 1; -1 = the sequence has no such beginning. */
static int32_t entries_of(const weir__fake_seq *seq, int32_t n)
{
    int32_t i = 0, next = 0;
    while (i < seq->n && next < n && seq->pos[i] == next) next = weir__fake_seq_next(seq, i++);
    return next == n ? i : -1;
}

void weir__fake_seq_append(weir__bcontext *context, int32_t seq_id, int32_t token, int32_t pos,
                           uint64_t adapters)
{
    weir__fake_seq *seq = &context->seqs[seq_id];
    int32_t i = seq->n++;
    seq->token[i] = token;
    seq->pos[i] = pos;
    seq->adapters[i] = adapters;
    seq->hash[i] = weir__fake_hash_next(i > 0 ? seq->hash[i - 1] : weir__fake_hash_start(context->model),
                                        token, adapters);
    if (is_unified(context)) {
        seq->cell[i] = context->unused[--context->n_unused];
        context->refs[seq->cell[i]] = 1;
    }
    cells_add(context, 1);
}

void weir__fake_clear(weir__bcontext *context)
{
    int64_t freed = 0;
    for (int32_t s = 0; s < context->info.n_seq_max; s++) {
        weir__fake_seq *seq = &context->seqs[s];
        for (int32_t i = 0; i < seq->n; i++) freed += cell_leave(context, seq, i);
        seq->n = seq->first = 0;
        seq->pending_to = seq->pending_from = false;
    }
    cells_add(context, -freed);
    /* the lowest cell is always used first */
    context->n_unused = is_unified(context) ? context->info.n_ctx : 0;
    for (int32_t i = 0; i < context->n_unused; i++) context->unused[i] = context->n_unused - 1 - i;
}

/* ---- Windows: a token at position p attends to n_swa positions, the last of which is p ---- */

/* Lets go of what a token at position `next` does not attend to. */
static void let_go(weir__bcontext *context, weir__fake_seq *seq, int32_t next)
{
    int32_t first = next - (int32_t)context->model->options.n_swa + 1;
    if (first > seq->first) seq->first = first;
}

static int32_t end_of(const weir__fake_seq *seq)
{
    return seq->n > 0 ? weir__fake_seq_next(seq, seq->n - 1) : 0;
}

/* The position after that of a batch's row. */
static int32_t after_row(const weir__batch *batch, int32_t i)
{
    return batch->pos[i] + (batch->token[i] >= 0 ? 1 : weir__fake_cell_step(batch->token[i]));
}

/* In a pool the rows are computed in parts of n_ubatch, and each may overwrite cells of any sequence. */
static void slide_pool(weir__bcontext *context, const weir__batch *batch)
{
    int32_t next[WEIR__SEQ_MAX];
    for (int32_t s = 0; s < context->info.n_seq_max; s++) next[s] = end_of(&context->seqs[s]);
    for (int32_t i = 0; i < batch->n; i++) {
        for (int32_t s = 0; s < context->info.n_seq_max && i % context->info.n_ubatch == 0; s++)
            if (next[s] > 0) let_go(context, &context->seqs[s], next[s]);
        next[batch->seq[i]] = after_row(batch, i);
    }
}

/* The rows of a batch that the next part takes: of each sequence that has rows left, in the order of the
 * batch and as long as their numbers are consecutive, equally many. */
typedef struct part {
    int32_t done[WEIR__SEQ_MAX]; /* rows of each sequence that were taken */
    int32_t seqs[WEIR__SEQ_MAX]; /* [n] */
    int32_t n;
} part;

static bool next_part(const weir__bcontext *context, const weir__batch *batch, const int32_t *rows, part *p)
{
    int32_t seen[WEIR__SEQ_MAX] = {0}, last = -1;
    bool in[WEIR__SEQ_MAX] = {false};
    p->n = 0;
    for (int32_t i = 0; i < batch->n && p->n <= context->info.n_ubatch; i++) {
        int32_t s = batch->seq[i];
        if (seen[s]++ < p->done[s] || in[s] || (p->n > 0 && s != last + 1)) continue;
        in[s] = true;
        p->seqs[p->n++] = last = s;
    }
    if (p->n == 0) return false;
    int32_t each = context->info.n_ubatch / p->n > 1 ? context->info.n_ubatch / p->n : 1;
    for (int32_t i = 0; i < p->n; i++) {
        int32_t left = rows[p->seqs[i]] - p->done[p->seqs[i]];
        if (left < each) each = left;
    }
    for (int32_t i = 0; i < p->n; i++) p->done[p->seqs[i]] += each;
    return true;
}

/* Each part overwrites cells of the lanes that it has rows of. */
static void slide_lanes(weir__bcontext *context, const weir__batch *batch)
{
    part p = {.n = 0};
    int32_t rows[WEIR__SEQ_MAX] = {0}, next[WEIR__SEQ_MAX];
    for (int32_t s = 0; s < context->info.n_seq_max; s++) next[s] = end_of(&context->seqs[s]);
    for (int32_t i = 0; i < batch->n; i++) rows[batch->seq[i]]++;
    while (next_part(context, batch, rows, &p)) {
        int32_t seen[WEIR__SEQ_MAX] = {0};
        for (int32_t k = 0; k < p.n; k++) let_go(context, &context->seqs[p.seqs[k]], next[p.seqs[k]]);
        for (int32_t i = 0; i < batch->n; i++)
            if (seen[batch->seq[i]]++ < p.done[batch->seq[i]]) next[batch->seq[i]] = after_row(batch, i);
    }
}

/* An empty sequence has lost nothing: what an aborted pass moved in it counts no more. */
void weir__fake_slide(weir__bcontext *context, const weir__batch *batch)
{
    if (context->model->options.n_swa == 0) return;
    for (int32_t i = 0; i < context->info.n_seq_max; i++)
        if (context->seqs[i].n == 0) context->seqs[i].first = 0;
    if (is_unified(context))
        slide_pool(context, batch);
    else
        slide_lanes(context, batch);
}

void weir__fake_slide_in_vain(weir__bcontext *context, const weir__batch *batch)
{
    weir__batch placed = *batch;
    placed.n = (batch->n - 1) / context->info.n_ubatch * context->info.n_ubatch;
    if (!is_unified(context)) return;
    weir__fake_slide(context, &placed);
}

bool weir__fake_has_windows(const weir__bcontext *context, const weir__batch *batch)
{
    int32_t n_swa = (int32_t)context->model->options.n_swa;
    for (int32_t i = 0; i < batch->n && n_swa > 0; i++) {
        const weir__fake_seq *seq = &context->seqs[batch->seq[i]];
        bool is_first = batch->pos[i] == end_of(seq);
        if (is_first && seq->n > 0 && seq->first > 0 && seq->first > batch->pos[i] - n_swa + 1) return false;
    }
    return true;
}

/* True if a sequence is one state of all its tokens. */
static bool is_whole(const weir__bmodel *model)
{
    return model->options.recurrent || model->options.hybrid;
}

static bool window_holds(const weir__bcontext *context, const weir__fake_seq *seq, int32_t n)
{
    int32_t n_swa = (int32_t)context->model->options.n_swa;
    return n == 0 || n_swa == 0 || n >= end_of(seq) || seq->first <= n - n_swa + 1 || seq->first == 0;
}

static bool can_end_at(weir__bcontext *context, const weir__fake_seq *seq, int32_t n)
{
    bool can = window_holds(context, seq, n);
    if (!can) atomic_fetch_add(&context->model->hooks.n_uncut, 1);
    return can;
}

bool weir__fake_can_end_at(weir__bcontext *context, int32_t seq_id, int32_t n)
{
    const weir__fake_seq *seq = &context->seqs[seq_id];
    if (n == 0 || n >= end_of(seq)) return true;
    return !is_whole(context->model) && !atomic_load(&context->model->hooks.fail_cut) &&
           window_holds(context, seq, n);
}

/* ---- Sequences ---- */

bool weir__fake_seq_remove(weir__bcontext *context, int32_t seq_id, int32_t from, int32_t to)
{
    weir__fake_seq *seq = &context->seqs[seq_id];
    int32_t first = entry_at(seq, from);
    int32_t last = to < 0 ? seq->n : entry_at(seq, to);
    if (last <= first) return true;
    bool whole = is_whole(context->model) || atomic_load(&context->model->hooks.fail_cut);
    if (whole && (first > 0 || last < seq->n)) {
        atomic_fetch_add(&context->model->hooks.n_uncut, 1);
        return false;
    }
    if (last == seq->n && first > 0 && !can_end_at(context, seq, from)) return false;
    entries_remove(context, seq, first, last);
    return true;
}

/* Makes `to` a copy of entries [first, last) of `from`. */
static void entries_copy(weir__bcontext *context, int32_t from_id, int32_t to_id, int32_t first, int32_t last)
{
    weir__fake_seq *from = &context->seqs[from_id], *to = &context->seqs[to_id];
    entries_remove(context, to, 0, to->n);
    size_t n = (size_t)(last - first);
    memcpy(to->token, from->token + first, n * sizeof *to->token);
    memcpy(to->pos, from->pos + first, n * sizeof *to->pos);
    memcpy(to->cell, from->cell + first, n * sizeof *to->cell);
    memcpy(to->adapters, from->adapters + first, n * sizeof *to->adapters);
    to->n = (int32_t)n;
    to->first = from->first;
    uint64_t hash = weir__fake_hash_start(context->model);
    for (int32_t i = 0; i < to->n; i++) {
        to->hash[i] = hash = weir__fake_hash_next(hash, to->token[i], to->adapters[i]);
        if (is_unified(context)) context->refs[to->cell[i]]++;
    }
    if (!is_unified(context)) {
        cells_add(context, to->n);
        to->pending_to = true;
        from->pending_from = true;
    }
    atomic_fetch_add(&context->model->hooks.n_shares, 1);
}

weir_status weir__fake_share(weir__bcontext *context, int32_t from, int32_t to, int32_t n, weir_error *error)
{
    weir__fake *hooks = &context->model->hooks;
    const weir__fake_seq *source = &context->seqs[from];
    int32_t n_entries = entries_of(source, n);
    if (from == to || n < 0 || n_entries < 0) {
        atomic_fetch_or(&hooks->faults, WEIR__FAKE_BAD_SHARE);
        return weir__error_set(error, WEIR_BACKEND, NULL,
                               "the fake backend was misused: sequence %d cannot share %d tokens with %d",
                               from, n, to);
    }
    if (atomic_load(&hooks->fail_share))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for share to fail");
    if ((is_whole(context->model) && n_entries != source->n) || !can_end_at(context, source, n))
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL, "this memory cannot be cut at %d", n);
    entries_copy(context, from, to, 0, n_entries);
    return WEIR_OK;
}

weir_status weir__fake_settle(weir__bcontext *context, weir_error *error)
{
    (void)error;
    for (int32_t i = 0; i < context->info.n_seq_max; i++)
        context->seqs[i].pending_to = context->seqs[i].pending_from = false;
    return WEIR_OK;
}

bool weir__fake_seq_copy(weir__bcontext *context, int32_t seq, int32_t to_seq, int32_t from, int32_t to)
{
    const weir__fake_seq *source = &context->seqs[seq];
    if (seq == to_seq) {
        atomic_fetch_or(&context->model->hooks.faults, WEIR__FAKE_BAD_SHARE);
        return false;
    }
    int32_t first = entry_at(source, from);
    int32_t last = to < 0 ? source->n : entry_at(source, to);
    if (is_whole(context->model) && first < last && (first > 0 || last < source->n)) return false;
    if (last < source->n && last > first && !can_end_at(context, source, to)) return false;
    entries_copy(context, seq, to_seq, first, last > first ? last : first);
    return true;
}

int32_t weir__fake_seq_pos_max(const weir__bcontext *context, int32_t seq)
{
    const weir__fake_seq *from = &context->seqs[seq];
    return from->n > 0 ? from->pos[from->n - 1] : -1;
}

/* ---- State: the count, then the tokens, then the positions, int32 each; where there were adapters, those
 * of each token, uint64 ---- */

static bool is_adapted(const weir__fake_seq *seq)
{
    uint64_t any = 0;
    for (int32_t i = 0; i < seq->n; i++) any |= seq->adapters[i];
    return any != 0;
}

size_t weir__fake_state_size(weir__bcontext *context, int32_t seq)
{
    const weir__fake_seq *from = &context->seqs[seq];
    size_t n = (size_t)from->n;
    return (1 + 2 * n) * sizeof(int32_t) + (is_adapted(from) ? n * sizeof *from->adapters : 0);
}

size_t weir__fake_state_save(weir__bcontext *context, int32_t seq_id, void *bytes, size_t capacity)
{
    const weir__fake_seq *seq = &context->seqs[seq_id];
    weir__fake *hooks = &context->model->hooks;
    size_t size = weir__fake_state_size(context, seq_id), n = (size_t)seq->n * sizeof(int32_t);
    if (capacity < size || atomic_load(&hooks->fail_state_save)) return 0;

    char *out = bytes;
    memcpy(out, &seq->n, sizeof seq->n);
    memcpy(out + sizeof seq->n, seq->token, n);
    memcpy(out + sizeof seq->n + n, seq->pos, n);
    if (is_adapted(seq)) memcpy(out + sizeof seq->n + 2 * n, seq->adapters, 2 * n);
    if (seq->pending_to) {
        /* the caller gets the stale tokens of a lane */
        atomic_fetch_or(&hooks->faults, WEIR__FAKE_STALE_READ);
        memset(out + sizeof seq->n, 0, n);
    }
    return size;
}

weir_status weir__fake_state_load(weir__bcontext *context, int32_t seq_id, const void *bytes, size_t length,
                                  weir_error *error)
{
    weir__fake_seq *seq = &context->seqs[seq_id];
    weir__fake *hooks = &context->model->hooks;
    const char *in = bytes;
    int32_t n = 0;
    if (atomic_load(&hooks->fail_state_load))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for state_load to fail");
    if (seq->pending_to || seq->pending_from) {
        atomic_fetch_or(&hooks->faults, WEIR__FAKE_STALE_WRITE);
        return weir__error_set(error, WEIR_BACKEND, NULL,
                               "the fake backend was misused: a copy of sequence %d is pending", seq_id);
    }
    if (length >= sizeof n) memcpy(&n, in, sizeof n);
    size_t least = (1 + 2 * (size_t)n) * sizeof n;
    bool adapted = length != least;
    if (n < 0 || n > context->info.n_ctx_seq || (adapted && length != least + (size_t)n * sizeof(uint64_t)))
        return weir__error_set(error, WEIR_FORMAT, NULL, "%zu bytes are not the saved state of a sequence",
                               length);
    const char *tokens = in + sizeof n, *positions = tokens + (size_t)n * sizeof n;
    int32_t next = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t token, pos;
        memcpy(&token, tokens + (size_t)i * sizeof token, sizeof token);
        memcpy(&pos, positions + (size_t)i * sizeof pos, sizeof pos);
        if (token >= context->model->options.n_vocab || pos < next)
            return weir__error_set(error, WEIR_FORMAT, NULL, "the state's tokens or positions are damaged");
        if (i == 0 && hooks->may_load != NULL && !hooks->may_load(hooks->may_load_user, token))
            return weir__error_set(error, WEIR_BACKEND, NULL, "the state is said to be lost");
        next = pos + (token >= 0 ? 1 : weir__fake_cell_step(token));
    }

    int32_t n_own = 0; /* cells that no other sequence holds */
    for (int32_t i = 0; is_unified(context) && i < seq->n; i++) n_own += context->refs[seq->cell[i]] == 1;
    if (is_unified(context) && n > context->n_unused + n_own)
        return weir__error_set(error, WEIR_NO_SPACE, NULL, "no KV cells are left for %d tokens", n);
    entries_remove(context, seq, 0, seq->n);
    for (int32_t i = 0; i < n; i++) {
        int32_t token, pos;
        memcpy(&token, tokens + (size_t)i * sizeof token, sizeof token);
        memcpy(&pos, positions + (size_t)i * sizeof pos, sizeof pos);
        uint64_t adapters = 0;
        if (adapted) memcpy(&adapters, in + least + (size_t)i * sizeof adapters, sizeof adapters);
        weir__fake_seq_append(context, seq_id, token, pos, adapters);
    }
    if (context->model->options.n_swa > 0) let_go(context, seq, end_of(seq)); /* a state has no more */
    return WEIR_OK;
}

/* ---- The part of a state that keeps a sequence from being cut: a stand-in for it ---- */

typedef struct part_state {
    int32_t n;     /* entries */
    int32_t pos;   /* behind them */
    uint64_t hash; /* of the text */
} part_state;

static bool has_parts(const weir__bmodel *model)
{
    return is_whole(model) || model->options.n_swa > 0;
}

size_t weir__fake_part_size(weir__bcontext *context, int32_t seq)
{
    return has_parts(context->model) && context->seqs[seq].n > 0 ? sizeof(part_state) : 0;
}

uint64_t weir__fake_part_bytes(const weir__bmodel *model)
{
    return has_parts(model) ? sizeof(part_state) : 0;
}

size_t weir__fake_part_save(weir__bcontext *context, int32_t seq_id, void *bytes, size_t capacity)
{
    const weir__fake_seq *seq = &context->seqs[seq_id];
    weir__fake *hooks = &context->model->hooks;
    if (weir__fake_part_size(context, seq_id) == 0 || capacity < sizeof(part_state) ||
        atomic_load(&hooks->fail_state_save))
        return 0;
    if (seq->pending_to) atomic_fetch_or(&hooks->faults, WEIR__FAKE_STALE_READ);
    part_state own = {.n = seq->n, .pos = end_of(seq), .hash = seq->hash[seq->n - 1]};
    memcpy(bytes, &own, sizeof own);
    return sizeof own;
}

static weir_status load_part(weir__bcontext *context, int32_t seq_id, int32_t n, const void *bytes,
                             size_t length, weir_error *error)
{
    weir__fake_seq *seq = &context->seqs[seq_id];
    weir__fake *hooks = &context->model->hooks;
    part_state own = {0};
    if (atomic_load(&hooks->fail_state_load) || atomic_load(&hooks->fail_part_load))
        return weir__error_set(error, WEIR_BACKEND, NULL, "the test asked for part_load to fail");
    if (length == sizeof own) memcpy(&own, bytes, length);
    bool fits = own.n > 0 && own.n <= seq->n && own.pos == n && entries_of(seq, n) == own.n &&
                seq->hash[own.n - 1] == own.hash;
    if (!fits || seq->pending_to || seq->pending_from) {
        atomic_fetch_or(&hooks->faults, fits ? WEIR__FAKE_STALE_WRITE : WEIR__FAKE_BAD_PART);
        return weir__error_set(error, WEIR_BACKEND, NULL,
                               "the fake backend was misused: no such part of sequence %d", seq_id);
    }
    atomic_fetch_add(&hooks->n_parts, 1);
    entries_remove(context, seq, own.n, seq->n);
    seq->first = 0;
    if (context->model->options.n_swa > 0) let_go(context, seq, n); /* a part has no more */
    return WEIR_OK;
}

weir_status weir__fake_part_load(weir__bcontext *context, int32_t seq_id, int32_t n, const void *bytes,
                                 size_t length, weir_error *error)
{
    weir_status status = load_part(context, seq_id, n, bytes, length, error);
    if (status != WEIR_OK) entries_remove(context, &context->seqs[seq_id], 0, context->seqs[seq_id].n);
    return status;
}
