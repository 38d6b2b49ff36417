/* attention.cpp: attention, as ggml's operation.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An operation is divided into tiles of queries, streams and heads, which threads take in turn. The cells
 * that a tile's queries see are looked up once, as lists; queries with the same list are computed together.
 * Few queries over many cells are split by pieces of the cells instead, and their sums added. Lanes that hold
 * the same text are joined, so that their cells are read once. */
#include "hook/hook.h"
#include "hook/parts.h"

extern "C" {
#include "base/mem.h"
#include "hook/lane_text.h"
}

#include <ggml-backend.h>

/* Headers that llama.cpp does not install: the cells of a sequence. */
#include <../src/llama-context.h>
#include <../src/llama-kv-cache.h>
#include <../src/llama-model.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace weir
{

namespace
{

/* ---- Supported operations ---- */

/* The operation's parameters, in the order in which ggml keeps them. */
struct attention_params {
    float scale, max_bias, softcap;
};

/* The format of heads of this type and size. False: ggml's own attention computes them. */
bool format_for(ggml_type type, int64_t size, weir__attention_format *format)
{
    switch (type) {
    case GGML_TYPE_F32: *format = WEIR__ATTENTION_F32; break;
    case GGML_TYPE_F16: *format = WEIR__ATTENTION_F16; break;
    case GGML_TYPE_BF16: *format = WEIR__ATTENTION_BF16; break;
    case GGML_TYPE_Q8_0: *format = WEIR__ATTENTION_Q8_0; break;
    case GGML_TYPE_Q4_0: *format = WEIR__ATTENTION_Q4_0; break;
    default: return false;
    }
    return size % std::max<int64_t>(8, ggml_blck_size(type)) == 0 && size <= WEIR__ATTENTION_SIZE;
}

bool format_of(const ggml_tensor *k_or_v, weir__attention_format *format)
{
    return format_for(k_or_v->type, k_or_v->ne[0], format) && k_or_v->nb[0] == ggml_type_size(k_or_v->type);
}

bool takes_all(const llama_kv_cache *cache, const llama_hparams &hparams)
{
    weir__attention_format format;
    if (hparams.is_mla()) return false; /* the cache has no values: they are a part of its keys */
    for (uint32_t layer : cache->get_layer_ids()) {
        const ggml_tensor *keys = cache->get_k_storage(static_cast<int32_t>(layer));
        if (!format_for(keys->type, keys->ne[0] / std::max(hparams.n_head_kv(layer), 1u), &format) ||
            !format_for(cache->type_v(), hparams.n_embd_head_v(layer), &format))
            return false;
    }
    return true;
}

/* ALiBi's slope of a head (Press et al., arXiv 2108.12409): if the number of heads is not a power of two, the
 * remaining heads take every other slope of the next power of two. */
float slope_of(int64_t head, int64_t n_heads, float max_bias)
{
    int64_t n = 1;
    while (2 * n <= n_heads) n *= 2;
    float exponent = head < n ? static_cast<float>(head + 1) : static_cast<float>(head - n) + 0.5f;
    return std::exp2(-max_bias * exponent / static_cast<float>(n));
}

/* ---- Lanes with the same text ---- */

/* The streams of an operation in the order in which their queries form tiles. */
struct stream_order {
    bool joined = false; /* tiles have queries of several streams, because these have many cells in common */
    int32_t streams[LLAMA_MAX_SEQ]; /* joined: their order */

    explicit stream_order(const ggml_tensor *op)
    {
        const ggml_tensor *k = op->src[1], *v = op->src[2];
        const llama_kv_cache *cache = k->ne[3] > 1 ? cache_of(k) : nullptr;
        const weir__lane_texts *texts = cache != nullptr ? lane_texts_of(cache) : nullptr;
        if (texts == nullptr || lane_cells(k) != lane_cells(v)) return;
        int32_t first = lane_of(cache, k, 0), *end = streams + k->ne[3];
        std::iota(streams, end, 0);
        std::sort(streams, end, [&](int32_t a, int32_t b) {
            return weir__lane_texts_compare(texts, first + a, first + b) < 0;
        });
        int64_t n = 0;
        for (int32_t *s = streams; s + 1 < end; s++)
            n += std::min<int64_t>(weir__lane_texts_common(texts, first + s[0], first + s[1]), k->ne[1]);
        joined = n >= (k->ne[3] - 1) * k->ne[1] / least_common;
    }

    /* Streams are joined if on average they have this part of their cells in common. */
    static constexpr int64_t least_common = 4;

    /* Cells between those of two neighbouring streams. */
    static int64_t lane_cells(const ggml_tensor *k_or_v)
    {
        return static_cast<int64_t>(k_or_v->nb[3] / k_or_v->nb[1]);
    }
};

/* ---- Tiles ---- */

/* The most queries of a tile, and of lists for them: more lists would take more memory. */
constexpr int64_t most_queries = WEIR__ATTENTION_ROWS, most_lists = 24;

/* Consecutive queries of a stream, or of joined streams, and the cells that they see: of a tile, or of a part
 * of it if that needs more lists than there are. */
struct tile {
    int64_t stream, first; /* first: -1 = none yet */
    int32_t n, n_lists;
    int64_t list_stream; /* of the last list */
    weir__attention_list lists[most_lists];
    weir__attention_query queries[most_queries]; /* task_of sets q and out */
};

/* A division of an operation into items of work: tiles × streams × groups of KV heads × parts of the query
 * heads that share them. With few rows one call takes several KV heads, because the heads of a cell are
 * adjacent in memory. */
struct division {
    int64_t n_heads, n_parts;   /* query heads of a call; calls for all that share a KV head */
    int64_t n_kv, n_groups;     /* KV heads of a call; groups of them */
    int64_t n_rows, n_streams;  /* queries of a stream; joined streams are one */
    int64_t n_queries, n_tiles; /* queries of a tile; tiles of a stream */
    int64_t n_items, n_pieces;  /* items of work; pieces of an item, at most */
    bool few;                   /* there are few rows per thread */
    bool may_split;             /* several threads and pieces; few rows, or one tile whose sums are small */
    bool split;                 /* each piece is an item, because otherwise threads would be idle */
    bool keep;                  /* a thread packs the cells of a head once, for several tiles */
    int32_t size_v;
    size_t list_length;                                /* elements of a list */
    size_t thread_bytes, lists_at, sums_at, packed_at; /* of a thread: size and offsets */
    size_t bytes;                                      /* of all */

    /* size_k: 0 if there is a mask. */
    division(int64_t n_rows_shared, int64_t n_kv_heads, int64_t n_rows, int64_t n_streams, int64_t n_cells,
             int64_t size_k, int64_t size_v, int n_threads)
        : n_rows(n_rows), n_streams(n_streams), size_v(static_cast<int32_t>(size_v))
    {
        n_heads = std::min<int64_t>(n_rows_shared, WEIR__ATTENTION_ROWS);
        while (n_rows_shared % n_heads != 0) n_heads--;
        n_parts = n_rows_shared / n_heads;
        n_pieces = n_cells / WEIR__ATTENTION_PIECE + 2;
        few = n_rows * n_streams * n_kv_heads * n_rows_shared <= most_few_rows * n_threads;
        size_t sums_of_all =
            weir__attention_most_sums(n_kv_heads * n_parts, n_rows * n_streams, n_heads, this->size_v);
        /* One tile is looked up once, so it must not need more lists than there are. */
        may_split = n_threads > 1 && n_cells > WEIR__ATTENTION_PIECE &&
                    (few || (n_rows <= most_lists &&
                             n_streams * n_kv_heads * n_parts * (n_pieces - 2) >= int64_t{2} * n_threads &&
                             static_cast<size_t>(n_pieces) * sums_of_all * sizeof(float) <= most_sums));
        /* The cells of large tiles are packed less often, but all threads shall have work. */
        for (int64_t rows = few ? least_rows : WEIR__ATTENTION_ROWS;; rows /= 2) {
            n_queries = std::max<int64_t>(std::min(rows / n_heads, few ? most_lists : n_rows), 1);
            n_tiles = std::max<int64_t>((n_rows + n_queries - 1) / n_queries, 1);
            if (rows <= least_rows || (may_split && n_tiles == 1) ||
                n_tiles * n_streams * n_kv_heads * n_parts >= int64_t{4} * n_threads)
                break;
        }
        n_queries = std::max<int64_t>((n_rows + n_tiles - 1) / n_tiles, 1);
        int64_t n_groups_of_kv = n_queries * ((n_heads + WEIR__ATTENTION_LANES - 1) / WEIR__ATTENTION_LANES);
        /* The largest number of KV heads per call that leaves work for all threads. */
        for (n_kv = n_kv_heads; n_kv > 0; n_kv--) {
            if (n_kv_heads % n_kv != 0 || (n_kv > 1 && n_parts > 1)) continue;
            n_groups = n_kv_heads / n_kv;
            n_items = n_tiles * n_streams * n_groups * n_parts;
            split = may_split && (few || n_tiles == 1) && n_items < int64_t{4} * n_threads;
            int64_t n_work = split ? n_items * (n_pieces - 2) : n_items;
            if (n_kv == 1 ||
                (n_kv * n_groups_of_kv <= WEIR__ATTENTION_GROUPS && n_work >= int64_t{2} * n_threads))
                break;
        }
        list_length = static_cast<size_t>(n_cells) + 31;
        lists_at = round_up(attention->scratch);
        sums_at = lists_at + round_up(static_cast<size_t>(n_lists() + 2) * list_length * sizeof(int32_t));
        packed_at =
            sums_at + round_up(WEIR__ATTENTION_ROWS *
                               static_cast<size_t>(weir__attention_width(this->size_v) + 2) * sizeof(float));
        thread_bytes = packed_at;
        keep = size_k > 0 && n_kv == 1 && n_tiles > 1 && !few;
        if (keep)
            thread_bytes += round_up(attention->packed_bytes(static_cast<int32_t>(size_k), this->size_v,
                                                             static_cast<int32_t>(n_cells)));
        bytes = static_cast<size_t>(n_threads) * thread_bytes + 64;
        if (split) bytes += static_cast<size_t>(n_items * n_pieces) * item_sums() * sizeof(float);
    }

    division(const ggml_tensor *op, const stream_order &streams, int n_threads)
        : division(op->src[0]->ne[2] / op->src[1]->ne[2], op->src[1]->ne[2],
                   op->src[0]->ne[1] * (streams.joined ? op->src[0]->ne[3] : 1),
                   streams.joined ? 1 : op->src[0]->ne[3], op->src[1]->ne[1],
                   op->src[3] == nullptr ? op->src[1]->ne[0] : 0, op->src[2]->ne[0], n_threads)
    {
    }

    /* Items of a tile are adjacent, so that each thread looks up its cells only once. If packed cells are
     * kept, those of a head are. */
    int64_t tile_of(int64_t item) const
    {
        return keep ? item % n_tiles : item / (n_beside() * n_streams);
    }

    /* The part of a group of KV heads of a stream. */
    int64_t heads_of(int64_t item) const
    {
        return keep ? item / n_tiles : item % (n_beside() * n_streams);
    }

    /* Items that a thread takes at a time. */
    int64_t n_claimed(int n_threads) const
    {
        return keep ? std::max<int64_t>(n_items / (int64_t{16} * n_threads), 1) : 1;
    }

    /* Items of a tile and a stream, which read other heads of the same cells. */
    int64_t n_beside() const
    {
        return n_parts * n_groups;
    }

    /* Floats in the sums of one piece of an item, at most. */
    size_t item_sums() const
    {
        return (weir__attention_most_sums(n_kv, n_queries, n_heads, size_v) + 15) / 16 * 16;
    }

    int64_t n_lists() const
    {
        return std::min(n_queries, most_lists);
    }

    /* Few rows per thread. */
    static constexpr int64_t most_few_rows = 32;

    /* Bytes of the sums of an operation that is split, if rows are not few. */
    static constexpr size_t most_sums = size_t{32} << 20;

    /* Bytes of these sums for the most queries, at most. 0: there are few pieces. */
    static size_t split_bytes(int64_t n_rows_shared, int64_t n_kv_heads, int64_t n_pieces, int32_t size_v,
                              int n_threads)
    {
        if (n_threads == 1 || n_kv_heads * (n_pieces - 2) < int64_t{2} * n_threads) return 0;
        return std::min(weir__attention_most_sums(n_kv_heads * n_pieces, most_lists, n_rows_shared, size_v) *
                            sizeof(float),
                        most_sums);
    }

    /* Tiles of fewer rows would not divide work better. */
    static constexpr int64_t least_rows = 64;

    static size_t round_up(size_t n)
    {
        return (n + 63) & ~static_cast<size_t>(63);
    }
};

/* ---- The operation ---- */

struct attention_op : ggml::cpu::tensor_traits {
    static bool takes(const ggml_tensor *op)
    {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
        weir__attention_format k_format, v_format;
        if (op->op != GGML_OP_FLASH_ATTN_EXT || !format_of(k, &k_format) || !format_of(v, &v_format))
            return false;
        if (mask != nullptr && (mask->type != GGML_TYPE_F16 || mask->ne[2] != 1 ||
                                q->ne[3] % mask->ne[3] != 0 || mask->nb[0] != sizeof(ggml_fp16_t)))
            return false;
        return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && q->ne[2] % k->ne[2] == 0 &&
               k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] &&
               (op->src[4] == nullptr || op->src[4]->type == GGML_TYPE_F32);
    }

    /* True if a work buffer of this size can be allocated. If ggml tries that in vain, it goes on using the
     * buffer that it has freed before. */
    static bool there_is_memory(const ggml_tensor *op, size_t size)
    {
        layer *l = layer_of(op->src[1]);
        if (l != nullptr && size <= l->n_work) return true;
        void *memory = weir__mem_alloc(size);
        if (memory == nullptr) return false;
        weir__mem_free(memory);
        if (l != nullptr) l->n_work = size;
        return true;
    }

    bool work_size(int n_threads, const ggml_tensor *op, size_t &size) override
    {
        if (!takes(op)) return false;
        size = division(op, stream_order(op), n_threads).bytes;
        if (there_is_memory(op, size)) return true;
        spoil(WEIR_NO_MEMORY);
        size = 0;
        return true;
    }

    bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override
    {
        if (!takes(op)) return false;
        stream_order streams(op);
        division d(op, streams, params->nth);
        if (params->wsize < d.bytes) { /* the pass fails */
            if (params->ith == 0) std::memset(op->data, 0, ggml_nbytes(op));
            return true;
        }
        auto address = reinterpret_cast<uintptr_t>(params->wdata);
        char *memory = static_cast<char *>(params->wdata) + (division::round_up(address) - address);
        char *mine = memory + static_cast<size_t>(params->ith) * d.thread_bytes;
        auto *pieces = reinterpret_cast<float *>(memory + static_cast<size_t>(params->nth) * d.thread_bytes);
        worker w = {op, streams, d, mine, -1, {}};
        w.some.first = -1;
        if (!d.split && d.few) { /* a barrier would take as long as it saves */
            for (int64_t i = params->ith; i < d.n_items; i += params->nth) w.compute(i);
            return true;
        }
        if (!d.few) {
            if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, 0);
            ggml_barrier(params->threadpool);
        }
        if (!d.split) {
            int64_t i, n = d.n_claimed(params->nth);
            while ((i = ggml_threadpool_chunk_add(params->threadpool, static_cast<int>(n))) < d.n_items)
                for (int64_t end = std::min(i + n, d.n_items); i < end; i++) w.compute(i);
            return true;
        }
        w.compute_pieces(*params, pieces);
        ggml_barrier(params->threadpool);
        for (int64_t i = params->ith; i < d.n_items; i += params->nth)
            w.add_pieces(i, pieces + static_cast<size_t>(i * d.n_pieces) * d.item_sums());
        return true;
    }

    /* Threads take pieces in turns. All know which there are, so each counts for itself. Streams that are
     * equally long begin with another thread each, because their last pieces are smaller. */
    struct turns {
        int64_t next;
        int ith, nth;

        bool take()
        {
            return next++ % nth == ith;
        }
    };

    /* A thread's state, kept from item to item. */
    struct worker {
        ggml_tensor *op;
        const stream_order &streams;
        const division &d;
        char *memory;
        int64_t packed; /* the head whose cells are packed in memory; -1: none */
        tile some;

        float *sums() const
        {
            return reinterpret_cast<float *>(memory + d.sums_at);
        }

        /* The memory of the i-th list. The two after the last are scratch: a query's cells, and sorting. */
        int32_t *room(int64_t i) const
        {
            return reinterpret_cast<int32_t *>(memory + d.lists_at) + static_cast<size_t>(i) * d.list_length;
        }

        /* Packs the cells of a task's head, unless they are packed. */
        void pack(weir__attention_task &task, int64_t heads)
        {
            task.packed = memory + d.packed_at;
            if (packed != heads) attention->pack(&task, memory, task.packed);
            packed = heads;
        }

        /* Computes an item. */
        void compute(int64_t item)
        {
            float slopes[WEIR__ATTENTION_ROWS];
            int64_t first = first_of(item), end = std::min(first + d.n_queries, d.n_rows);
            for (; first < end; first += some.n) {
                weir__attention_task task = task_of(item, first, slopes);
                if (d.keep) pack(task, d.heads_of(item));
                for (int32_t from = 0, to; from < some.n; from = to) {
                    to = family(task, from);
                    int32_t piece, n = pieces_of(task, &piece);
                    attention->attend(&task, piece, n, memory, sums());
                    attention->finish(&task, sums());
                }
            }
        }

        /* Computes the n-th piece of an item, counted from the first one that its queries see, where it is
         * this thread's turn. Returns whether there is such a piece. */
        bool compute_piece(int64_t item, int32_t n, float *to_sums, turns &t)
        {
            float slopes[WEIR__ATTENTION_ROWS];
            weir__attention_task task = task_of(item, first_of(item), slopes);
            bool any = false;
            for (int32_t from = 0, to; from < some.n; from = to) {
                to = family(task, from);
                int32_t first, n_pieces = pieces_of(task, &first);
                if (n == 0 || n < n_pieces) { /* without cells the first one's sums are empty */
                    if (t.take()) attention->attend(&task, first + n, std::min(n_pieces, 1), memory, to_sums);
                    any = true;
                }
                to_sums += attention->sums(&task);
            }
            return any;
        }

        /* Computes this thread's share of all items' pieces, in the order of memory, in which a cell's heads
         * are adjacent. */
        void compute_pieces(const ggml_compute_params &params, float *sums)
        {
            int64_t n_together = d.n_beside() * d.n_pieces, n_all = d.n_items * d.n_pieces;
            auto compute = [&](int64_t i, turns &t) {
                int64_t item = i / n_together * d.n_beside() + i % d.n_beside();
                int64_t n = i / d.n_beside() % d.n_pieces;
                float *to_sums = sums + static_cast<size_t>(item * d.n_pieces + n) * d.item_sums();
                return compute_piece(item, static_cast<int32_t>(n), to_sums, t);
            };
            if (!d.few) {
                turns every = {0, 0, 1};
                int64_t i;
                while ((i = ggml_threadpool_chunk_add(params.threadpool, 1)) < n_all) compute(i, every);
                return;
            }
            for (int64_t first = 0; first < n_all; first += n_together) {
                turns t = {first / n_together, params.ith, params.nth};
                int64_t i = first;
                while (i < first + n_together && compute(i, t)) i++;
            }
        }

        /* Adds the sums of an item's pieces to those of its first. */
        void add_pieces(int64_t item, float *total)
        {
            float slopes[WEIR__ATTENTION_ROWS];
            weir__attention_task task = task_of(item, first_of(item), slopes);
            for (int32_t from = 0, to; from < some.n; from = to) {
                to = family(task, from);
                int32_t first, n_pieces = pieces_of(task, &first);
                for (int32_t i = 1; i < n_pieces; i++)
                    attention->add(&task, total, total + static_cast<size_t>(i) * d.item_sums());
                attention->finish(&task, total);
                total += attention->sums(&task);
            }
        }

        /* The stream of the tile's i-th query, and its number among those of the stream. */
        int64_t stream_of(int32_t i) const
        {
            return streams.joined ? streams.streams[(some.first + i) / op->src[0]->ne[1]] : some.stream;
        }

        int64_t row_of(int32_t i) const
        {
            return streams.joined ? (some.first + i) % op->src[0]->ne[1] : some.first + i;
        }

        /* The first query of an item. */
        int64_t first_of(int64_t item) const
        {
            return d.tile_of(item) * d.n_queries;
        }

        /* The task of an item, without queries. Looks up the cells of the item's queries from `first` on. */
        weir__attention_task task_of(int64_t item, int64_t first, float *slopes)
        {
            const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2];
            int64_t heads = d.heads_of(item), part = heads % d.n_parts;
            int64_t k_head = heads / d.n_parts % d.n_groups * d.n_kv, stream = heads / d.n_parts / d.n_groups;
            int64_t q_head = (k_head * d.n_parts + part) * d.n_heads;
            if (some.first != first || some.stream != stream) look_at(stream, first);
            for (int32_t i = 0; i < some.n; i++) {
                int64_t at = stream_of(i), row = row_of(i);
                some.queries[i].q =
                    static_cast<const char *>(q->data) + row * q->nb[1] + q_head * q->nb[2] + at * q->nb[3];
                some.queries[i].out =
                    static_cast<char *>(op->data) + row * op->nb[2] + q_head * op->nb[1] + at * op->nb[3];
            }
            weir__attention_task task = {};
            task.lists = some.lists;
            task.n_kv = static_cast<int32_t>(d.n_kv);
            task.n_heads = static_cast<int32_t>(d.n_heads);
            task.q_head = q->nb[2];
            task.out_head = op->nb[1];
            task.k = static_cast<const char *>(k->data) + k_head * k->nb[2] + stream * k->nb[3];
            task.v = static_cast<const char *>(v->data) + k_head * v->nb[2] + stream * v->nb[3];
            task.k_cell = k->nb[1];
            task.v_cell = v->nb[1];
            task.k_head = k->nb[2];
            task.v_head = v->nb[2];
            task.size_k = static_cast<int32_t>(k->ne[0]);
            task.size_v = static_cast<int32_t>(v->ne[0]);
            format_of(k, &task.k_format);
            format_of(v, &task.v_format);
            attention_params params;
            std::memcpy(&params, op->op_params, sizeof params);
            task.scale = params.scale;
            task.softcap = params.softcap;
            for (int64_t i = 0; i < d.n_kv * d.n_heads && params.max_bias > 0.0f; i++)
                slopes[i] = slope_of(q_head + i, q->ne[2], params.max_bias);
            if (params.max_bias > 0.0f) task.slopes = slopes;
            if (op->src[4] != nullptr) task.sinks = static_cast<const float *>(op->src[4]->data) + q_head;
            return task;
        }

        /* Gives the task the queries from `from` on that share cells, if their groups are not too many;
         * returns their end. */
        int32_t family(weir__attention_task &task, int32_t from)
        {
            int32_t to = from + 1, list = some.queries[from].list;
            while (to < some.n && (some.queries[to].list == some.queries[to - 1].list ||
                                   some.lists[some.queries[to].list].shared > 0)) {
                bool apart = some.queries[to].list != list;
                int32_t n = to + 1 - from, rows = apart ? task.n_heads : task.n_heads * n;
                int32_t groups = (rows + WEIR__ATTENTION_LANES - 1) / WEIR__ATTENTION_LANES;
                if ((apart ? groups * n : groups) * task.n_kv > WEIR__ATTENTION_GROUPS) break;
                to++;
            }
            task.queries = some.queries + from;
            task.n_queries = to - from;
            return to;
        }

        static int32_t pieces_of(const weir__attention_task &task, int32_t *first)
        {
            int32_t from = INT32_MAX, to = 0;
            for (int32_t i = 0; i < task.n_queries; i++) {
                if (task.queries[i].from == task.queries[i].to) continue;
                from = std::min(from, task.queries[i].from);
                to = std::max(to, task.queries[i].to);
            }
            *first = from / WEIR__ATTENTION_PIECE;
            return to > from ? (to - 1) / WEIR__ATTENTION_PIECE - *first + 1 : 0;
        }

        /* Looks up the cells that the queries of a tile from `first` on see. */
        void look_at(int64_t stream, int64_t first)
        {
            const ggml_tensor *k = op->src[1], *mask = op->src[3];
            const llama_kv_cache *cache = cache_of(k);
            int64_t end = std::min(first / d.n_queries * d.n_queries + d.n_queries, d.n_rows);
            some.stream = stream;
            some.first = first;
            some.n = some.n_lists = 0;
            if (mask == nullptr) {
                see_all(static_cast<int32_t>(end - first), static_cast<int32_t>(k->ne[1]));
                return;
            }
            for (; first + some.n < end; some.n++) {
                int64_t at = stream_of(some.n);
                const llama_kv_cells *cells = cells_of(cache, k, at);
                auto *row = reinterpret_cast<const uint16_t *>(static_cast<const char *>(mask->data) +
                                                               row_of(some.n) * mask->nb[1] +
                                                               at % mask->ne[3] * mask->nb[3]);
                weir__attention_query &query = some.queries[some.n];
                if (some.n > 0 && stream_of(some.n - 1) == at && follows(row, cells)) continue;
                if (some.n_lists == d.n_lists() && some.n > 0) return;
                bool plain;
                int32_t *own = room(d.n_lists());
                int32_t n = attention->visible(row, static_cast<int32_t>(k->ne[1]), own, &plain);
                if (cells != nullptr && k->ne[3] == 1) put_in_order(*cells, own, n, room(d.n_lists() + 1));
                int32_t place = n == 0 ? 0 : own[0];
                if (n > 0 && cells != nullptr)
                    place = std::max(cells->pos_get(static_cast<uint32_t>(own[0])), 0);
                if (streams.joined) {
                    int32_t before = cells_before(at);
                    std::for_each(own, own + n, [before](int32_t &cell) { cell += before; });
                    row -= before;
                }
                query.mask = plain ? nullptr : row;
                put_in_list(query, own, n, place, at);
            }
        }

        /* Adds n queries without a mask, which see all cells. */
        void see_all(int32_t n, int32_t n_cells)
        {
            std::iota(room(0), room(0) + n_cells, 0);
            some.list_stream = some.stream;
            some.lists[some.n_lists++] = {room(0), 0, n_cells, 0};
            weir__attention_query query = {};
            query.to = n_cells;
            while (some.n < n) some.queries[some.n++] = query;
        }

        /* The offset of a stream's cell numbers in lists. */
        int32_t cells_before(int64_t stream) const
        {
            return streams.joined ? static_cast<int32_t>(stream * stream_order::lane_cells(op->src[1])) : 0;
        }

        /* The number of cells from the beginning on that the last list's and the stream's n have in common. A
         * copied cell has the same number in both lanes. */
        int32_t n_equal(const int32_t *theirs, const int32_t *cells, int32_t n, int64_t stream) const
        {
            const ggml_tensor *k = op->src[1];
            auto apart = static_cast<int32_t>((stream - some.list_stream) * stream_order::lane_cells(k));
            auto end = std::mismatch(theirs, theirs + n, cells, [apart](int32_t a, int32_t b) {
                           return a + apart == b;
                       }).second;
            if (stream == some.list_stream) return static_cast<int32_t>(end - cells);
            const llama_kv_cache *cache = cache_of(k);
            const llama_kv_cells *memory = cells_of(cache, k, stream);
            auto before = static_cast<int32_t>(stream * stream_order::lane_cells(k));
            llama_pos common = weir__lane_texts_common(lane_texts_of(cache), lane_of(cache, k, stream),
                                                       lane_of(cache, k, some.list_stream));
            return static_cast<int32_t>(
                std::find_if(cells, end,
                             [&](int32_t cell) {
                                 return memory->pos_get(static_cast<uint32_t>(cell - before)) >= common;
                             }) -
                cells);
        }

        /* Gives the next query the list of the query before it, if its cells are the same less some of the
         * first and with some more at the end; otherwise returns false. Most of a prompt's queries are like
         * that, and comparing masks is faster than looking up all cells. */
        bool follows(const uint16_t *row, const llama_kv_cells *cells)
        {
            constexpr int64_t at_once = 256;
            const ggml_tensor *k = op->src[1], *mask = op->src[3];
            bool ordered = cells != nullptr && k->ne[3] == 1;
            weir__attention_query query = some.queries[some.n - 1];
            weir__attention_list &list = some.lists[query.list];
            if (query.mask != nullptr || query.from == query.to || query.to != list.first + list.n)
                return false;
            auto *before =
                reinterpret_cast<const uint16_t *>(reinterpret_cast<const char *>(row) - mask->nb[1]);
            auto *of_list = const_cast<int32_t *>(list.cells) - list.first;
            int32_t n = list.n, first_cell = cells_before(stream_of(some.n));
            auto pos_of = [cells, first_cell](int32_t listed) {
                int32_t cell = listed - first_cell;
                return cells != nullptr ? std::max(cells->pos_get(static_cast<uint32_t>(cell)), 0) : cell;
            };
            for (int64_t i = 0; i < k->ne[1]; i += at_once) {
                int64_t end = std::min(i + at_once, k->ne[1]);
                if (std::memcmp(before + i, row + i, static_cast<size_t>(end - i) * sizeof *row) == 0)
                    continue;
                for (int64_t c = i; c < end; c++) {
                    int32_t cell = static_cast<int32_t>(c) + first_cell;
                    if (before[c] == row[c]) continue;
                    if (row[c] == hidden && of_list[query.from] == cell && query.from + 1 < query.to) {
                        query.from++;
                        continue;
                    }
                    int32_t last = list.cells[n - 1];
                    bool later = ordered ? pos_of(cell) > pos_of(last) : cell > last;
                    if (row[c] != 0 || before[c] != hidden || !later ||
                        static_cast<size_t>(n) == d.list_length)
                        return false;
                    const_cast<int32_t *>(list.cells)[n++] = cell;
                }
            }
            if (pos_of(of_list[query.from]) != query.from) return false;
            list.n = n;
            query.to = list.first + n;
            some.queries[some.n] = query;
            return true;
        }

        static constexpr uint16_t hidden = 0xfc00; /* minus infinity in half precision */

        /* Gives the query the last list, if that has or can be continued by its n cells, or a new list. */
        void put_in_list(weir__attention_query &query, const int32_t *cells, int32_t n, int32_t place,
                         int64_t stream)
        {
            weir__attention_list *last = some.n_lists > 0 ? &some.lists[some.n_lists - 1] : nullptr;
            query.from = place;
            query.to = place + n;
            query.list = std::max(some.n_lists - 1, 0);
            if (last != nullptr && n == 0) return;
            int32_t at = last != nullptr ? place - last->first : -1, shared = 0;
            if (at >= 0 && at < last->n) {
                int32_t common = std::min(last->n - at, n);
                const int32_t *theirs = last->cells + at;
                int32_t same = n_equal(theirs, cells, common, stream);
                if (same == common && stream == some.list_stream &&
                    static_cast<size_t>(at) + static_cast<size_t>(n) <= d.list_length) {
                    std::copy(cells + same, cells + n, const_cast<int32_t *>(theirs) + same);
                    last->n = std::max(last->n, at + n);
                    return;
                }
                if (at == 0) shared = place + same;
            }
            int32_t *to = room(some.n_lists);
            std::copy(cells, cells + n, to);
            query.list = some.n_lists;
            some.list_stream = stream;
            some.lists[some.n_lists++] = {
                to, place, n, shared / WEIR__ATTENTION_BLOCK > place / WEIR__ATTENTION_BLOCK ? shared : 0};
        }
    };
};

attention_op the_attention;

} // namespace

ggml::cpu::tensor_traits *attention_of(const ggml_tensor *op)
{
    return op->op == GGML_OP_FLASH_ATTN_EXT && attention != nullptr ? &the_attention : nullptr;
}

} // namespace weir

uint64_t weir__hook_scratch(uint64_t n_cells, int32_t n_heads, int32_t n_head_kv, int64_t size,
                            int32_t n_threads)
{
    if (weir::attention == nullptr) return 0;
    int64_t rows = weir::division::most_few_rows * n_threads / n_heads;
    weir::division few(n_heads, 1, std::max<int64_t>(rows, 1), 1, static_cast<int64_t>(n_cells), 0,
                       WEIR__ATTENTION_SIZE, n_threads);
    return few.bytes + weir::division::split_bytes(
                           n_heads, n_head_kv, few.n_pieces,
                           static_cast<int32_t>(std::clamp<int64_t>(size, 1, WEIR__ATTENTION_SIZE)),
                           n_threads);
}

bool weir__hook_attends(const llama_context *context)
{
    if (weir::attention == nullptr || !context->get_cparams().flash_attn) return false;
    try {
        const llama_kv_cache *caches[2];
        weir::caches_of(context, caches);
        const llama_hparams &hparams = context->get_model().hparams;
        return caches[0] != nullptr && weir::takes_all(caches[0], hparams) &&
               (caches[1] == nullptr || weir::takes_all(caches[1], hparams));
    } catch (...) { /* no memory for a list of layers */
        return false;
    }
}
