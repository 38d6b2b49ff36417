/* memory.c: counts the cells of sequences that share some, as a tree of runs, beside every call of the
 * backend that changes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cache/memory.h"

#include <assert.h>

#include "base/error.h"
#include "base/mem.h"

/* ---- Life ---- */

weir_status weir__memory_init(weir__memory *memory, const weir__backend *ops, weir__bcontext *context,
                              const weir_context_info *info, weir_error *error)
{
    size_t n_seqs = (size_t)info->n_seq_max, n_runs = 2 * n_seqs + 2;
    *memory = (weir__memory){
        .ops = ops,
        .context = context,
        .pooled = info->layout == WEIR_LAYOUT_UNIFIED,
        .n_seqs = info->n_seq_max,
        .n_cells = info->n_ctx,
        .n = weir__mem_calloc(n_seqs, sizeof *memory->n),
        .last = weir__mem_calloc(n_seqs, sizeof *memory->last),
        .runs = weir__mem_calloc(n_runs, sizeof *memory->runs),
    };
    if (memory->n == NULL || memory->last == NULL || memory->runs == NULL) {
        weir__memory_fini(memory);
        return weir__error_set(error, WEIR_NO_MEMORY, "", "out of memory for %zu sequences", n_seqs);
    }
    for (size_t s = 0; s < n_seqs; s++) memory->last[s] = -1;
    for (size_t r = 0; r < n_runs; r++) memory->runs[r].parent = r + 1 < n_runs ? (int32_t)r + 1 : -1;
    return WEIR_OK;
}

void weir__memory_fini(weir__memory *memory)
{
    weir__mem_free(memory->runs);
    weir__mem_free(memory->last);
    weir__mem_free(memory->n);
    *memory = (weir__memory){0};
}

/* ---- Runs ---- */

static void run_free(weir__memory *memory, int32_t r)
{
    memory->runs[r] = (weir__run){.parent = memory->unused};
    memory->unused = r;
}

/* Joins each run that has one reference with the run that has it. */
static void compress_runs(weir__memory *memory, int32_t seq)
{
    weir__run *runs = memory->runs;
    for (int32_t r = memory->last[seq]; r >= 0; r = runs[r].parent)
        for (int32_t p = runs[r].parent; p >= 0 && runs[p].refs == 1; p = runs[r].parent) {
            runs[r].from = runs[p].from;
            runs[r].parent = runs[p].parent;
            run_free(memory, p);
        }
}

/* Takes a free run. After compression each run has two or more references or is the last of a sequence: fewer
 * than the array holds. */
static int32_t run_new(weir__memory *memory)
{
    for (int32_t s = 0; s < memory->n_seqs && memory->unused < 0; s++) compress_runs(memory, s);
    int32_t r = memory->unused;
    memory->unused = memory->runs[r].parent;
    return r;
}

static void run_leave(weir__memory *memory, int32_t r)
{
    while (r >= 0 && --memory->runs[r].refs == 0) {
        int32_t parent = memory->runs[r].parent;
        memory->n_used -= memory->runs[r].to - memory->runs[r].from;
        run_free(memory, r);
        r = parent;
    }
}

/* The run that ends with the sequence's first n tokens, n >= 1. Splits a run if necessary. */
static int32_t run_at(weir__memory *memory, int32_t seq, int32_t n)
{
    compress_runs(memory, seq);
    int32_t upper = run_new(memory);
    weir__run *runs = memory->runs;
    int32_t r = memory->last[seq];
    while (runs[r].from >= n) r = runs[r].parent;
    if (runs[r].to == n) {
        run_free(memory, upper);
        return r;
    }
    runs[upper] = (weir__run){.parent = runs[r].parent, .from = runs[r].from, .to = n, .refs = 1};
    runs[r].parent = upper;
    runs[r].from = n;
    return upper;
}

void weir__memory_append(weir__memory *memory, int32_t seq, int32_t n)
{
    int32_t last = memory->last[seq];
    if (n == 0) return;
    if (last < 0 || memory->runs[last].refs > 1) {
        int32_t r = run_new(memory), from = memory->n[seq];
        memory->runs[r] = (weir__run){.parent = memory->last[seq], .from = from, .to = from, .refs = 1};
        memory->last[seq] = last = r; /* takes the sequence's reference to the former last run */
    }
    memory->runs[last].to += n;
    memory->n[seq] += n;
    memory->n_used += n;
}

/* ---- Sequences ---- */

/* The sequence has no more than its first n tokens. */
static void shorten(weir__memory *memory, int32_t seq, int32_t n)
{
    if (n >= memory->n[seq]) return;
    int32_t before = memory->last[seq], r = -1;
    if (n > 0) {
        r = run_at(memory, seq, n);
        memory->runs[r].refs++;
    }
    memory->last[seq] = r;
    memory->n[seq] = n;
    run_leave(memory, before);
}

bool weir__memory_cut(weir__memory *memory, int32_t seq, int32_t n, int32_t pos)
{
    if (!memory->ops->seq_remove(memory->context, seq, pos, -1) && n > 0) return false;
    shorten(memory, seq, n);
    return true;
}

bool weir__memory_can_end(const weir__memory *memory, int32_t seq, int32_t pos)
{
    return memory->ops->can_end_at(memory->context, seq, pos);
}

weir_status weir__memory_share(weir__memory *memory, int32_t from, int32_t to, int32_t n, int32_t pos,
                               weir_error *error)
{
    weir_status status = memory->ops->share(memory->context, from, to, pos, error);
    if (status != WEIR_OK) {
        memory->ops->seq_remove(memory->context, to, 0, -1);
    } else if (!memory->pooled) {
        weir__memory_append(memory, to, n);
    } else if (n > 0) {
        int32_t r = run_at(memory, from, n);
        memory->runs[r].refs++;
        memory->last[to] = r;
        memory->n[to] = n;
    }
    return status;
}

weir_status weir__memory_copy(weir__memory *memory, int32_t from, int32_t to, weir_error *error)
{
    int32_t pos = memory->ops->seq_pos_max(memory->context, from) + 1;
    return weir__memory_share(memory, from, to, memory->n[from], pos, error);
}

/* Copies that wait for the next pass would read old content, or overwrite the loaded state. */
static weir_status settle_copies(weir__memory *memory, weir_error *error)
{
    return memory->ops->settle(memory->context, error);
}

bool weir__memory_has_room(const weir__memory *memory, int32_t n)
{
    return !memory->pooled || n <= memory->n_cells - memory->n_used;
}

/* The size by one of the backend's operations. */
static size_t size_by(size_t (*size)(weir__bcontext *, int32_t), weir__memory *memory, int32_t seq)
{
    return memory->n[seq] > 0 && settle_copies(memory, NULL) == WEIR_OK ? size(memory->context, seq) : 0;
}

static size_t save_by(size_t (*save)(weir__bcontext *, int32_t, void *, size_t), weir__memory *memory,
                      int32_t seq, void *bytes, size_t capacity)
{
    if (settle_copies(memory, NULL) != WEIR_OK) return 0;
    size_t length = save(memory->context, seq, bytes, capacity);
    return length <= capacity ? length : 0;
}

size_t weir__memory_state_size(weir__memory *memory, int32_t seq)
{
    return size_by(memory->ops->state_size, memory, seq);
}

size_t weir__memory_save(weir__memory *memory, int32_t seq, void *bytes, size_t capacity)
{
    return save_by(memory->ops->state_save, memory, seq, bytes, capacity);
}

size_t weir__memory_part_size(weir__memory *memory, int32_t seq)
{
    return size_by(memory->ops->part_size, memory, seq);
}

size_t weir__memory_part_save(weir__memory *memory, int32_t seq, void *bytes, size_t capacity)
{
    return save_by(memory->ops->part_save, memory, seq, bytes, capacity);
}

/* True if the sequence's last position may be that of the last of n tokens. */
static bool ends_at(const weir__memory *memory, int32_t seq, int32_t n)
{
    int32_t last = memory->ops->seq_pos_max(memory->context, seq);
    return last == n - 1 || (memory->uneven && last < n && (last >= 0) == (n > 0));
}

weir_status weir__memory_load(weir__memory *memory, int32_t seq, const void *bytes, size_t length, int32_t n,
                              weir_error *error)
{
    weir_status status = settle_copies(memory, error);
    if (status == WEIR_OK) status = memory->ops->state_load(memory->context, seq, bytes, length, error);
    if (status == WEIR_OK && !ends_at(memory, seq, n))
        status =
            weir__error_set(error, WEIR_BACKEND, "", "loading a state of %d tokens gave another length", n);
    if (status == WEIR_OK)
        weir__memory_append(memory, seq, n);
    else
        memory->ops->seq_remove(memory->context, seq, 0, -1); /* the part that was loaded */
    return status;
}

weir_status weir__memory_resume(weir__memory *memory, int32_t seq, int32_t n, int32_t pos, const void *bytes,
                                size_t length, weir_error *error)
{
    weir_status status = settle_copies(memory, error);
    if (status == WEIR_OK) status = memory->ops->part_load(memory->context, seq, pos, bytes, length, error);
    if (status == WEIR_OK && !ends_at(memory, seq, n))
        status = weir__error_set(error, WEIR_BACKEND, "", "a cut to %d tokens gave another length", n);
    if (status == WEIR_OK)
        shorten(memory, seq, n);
    else
        weir__memory_cut(memory, seq, 0, 0);
    return status;
}

int32_t weir__memory_count(weir__memory *memory, const bool *wanted)
{
    int32_t n = 0;
    memory->stamp++;
    for (int32_t s = 0; s < memory->n_seqs; s++) {
        if (!wanted[s]) continue;
        for (int32_t r = memory->last[s]; r >= 0; r = memory->runs[r].parent) {
            weir__run *run = &memory->runs[r];
            if (run->stamp == memory->stamp) break;
            run->stamp = memory->stamp;
            n += run->to - run->from;
        }
    }
    return n;
}

/* ---- Check ---- */

void weir__memory_check(const weir__memory *memory)
{
    int32_t n_runs = 2 * memory->n_seqs + 2, n_used = 0, n_unused = 0, refs[2 * WEIR__SEQ_MAX + 2] = {0};
    for (int32_t r = 0; r < n_runs; r++)
        if (memory->runs[r].refs > 0 && memory->runs[r].parent >= 0) refs[memory->runs[r].parent]++;
    for (int32_t s = 0; s < memory->n_seqs; s++)
        if (memory->last[s] >= 0) refs[memory->last[s]]++;
    for (int32_t r = 0; r < n_runs; r++) {
        const weir__run *run = &memory->runs[r];
        assert(run->refs == refs[r]);
        if (run->refs == 0) continue;
        assert(run->from < run->to && run->from == (run->parent >= 0 ? memory->runs[run->parent].to : 0));
        n_used += run->to - run->from;
    }
    for (int32_t r = memory->unused; r >= 0; r = memory->runs[r].parent) {
        assert(memory->runs[r].refs == 0);
        n_unused++;
    }
    assert(n_used == memory->n_used && n_unused <= n_runs);
    for (int32_t s = 0; s < memory->n_seqs; s++) {
        assert(memory->n[s] == (memory->last[s] >= 0 ? memory->runs[memory->last[s]].to : 0));
        assert(ends_at(memory, s, memory->n[s]));
    }
}
