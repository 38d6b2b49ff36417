/* attention_fuzz.c: attention over masks and orders of cells against its definition in double precision.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Input: a seed of the numbers, the shape, the features (bits of `applies`), the formats, the number of cells
 * in two bytes, and the first place. The rest says which query sees which cell, in which order, and the
 * masks. */
#include <math.h>

#include "fuzz.h"
#include "kernels/attention.h"

enum { MOST_CELLS = 600, MOST_QUERIES = 6, MOST_HEADS = 24, N_HEAD = 7 };
/* ONE_TEXT: all queries see the same cells. ONE_LIST: and have one list, so that their rows are computed
 * together. */
enum applies {
    SOFTCAP = 1,
    SLOPES = 2,
    SINKS = 4,
    MASKS = 8,
    WINDOW = 16,
    ONE_TEXT = 32,
    SCATTERED = 64,
    ONE_LIST = 128
};

static void *get(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    require(memory != NULL);
    return memory;
}

/* ---- Numbers ---- */

static uint64_t dice;

static uint32_t roll(void)
{
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(dice >> 33);
}

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -x : x;
}

/* A half of magnitude below 2 or so. */
static uint16_t some_half(uint32_t bits)
{
    return (uint16_t)((bits & 0x83ff) | (12 + bits % 4) << 10);
}

/* One side's heads of one cell: `size` numbers in a format, and their values. */
static size_t fill(unsigned char *cell, double *is, int32_t size, weir__attention_format format)
{
    unsigned char *at = cell;
    for (int32_t d = 0; d < size; d++) {
        uint16_t h = some_half(roll());
        float f = (float)half(h);
        uint32_t bits;
        switch (format) {
        case WEIR__ATTENTION_F32:
            memcpy(at, &f, 4);
            at += 4;
            break;
        case WEIR__ATTENTION_F16:
            memcpy(at, &h, 2);
            at += 2;
            break;
        case WEIR__ATTENTION_BF16:
            memcpy(&bits, &f, 4);
            memcpy(at, (uint16_t[]){(uint16_t)(bits >> 16)}, 2);
            bits &= 0xffff0000;
            memcpy(&f, &bits, 4);
            at += 2;
            break;
        default: break;
        }
        is[d] = (double)f;
    }
    bool eight = format == WEIR__ATTENTION_Q8_0;
    for (int32_t d = 0; (eight || format == WEIR__ATTENTION_Q4_0) && d < size; d += 32) {
        uint16_t scale = (uint16_t)(some_half(roll()) & 0x7fff);
        scale = (uint16_t)(scale - (eight ? 6 << 10 : 3 << 10));
        memcpy(at, &scale, 2);
        at += 2;
        for (int32_t i = 0; i < (eight ? 32 : 16); i++, at++) {
            *at = (unsigned char)roll();
            if (eight) {
                if (*at == 128) *at = 0; /* ggml writes -127 to 127 */
                is[d + i] = half(scale) * (int8_t)*at;
            } else {
                is[d + i] = half(scale) * ((*at & 15) - 8);
                is[d + i + 16] = half(scale) * ((*at >> 4) - 8);
            }
        }
    }
    return (size_t)(at - cell);
}

/* ---- A call ---- */

typedef struct side {
    unsigned char *cells; /* [n_cells][n_kv][head], of exactly that size */
    double *is;           /* [n_cells][n_kv][size] */
    size_t head;
    int32_t size;
} side;

static side side_make(int32_t n_cells, int32_t n_kv, int32_t size, weir__attention_format format)
{
    unsigned char cell[4 * WEIR__ATTENTION_SIZE];
    double is[WEIR__ATTENTION_SIZE];
    size_t head = fill(cell, is, size, format), n = (size_t)n_cells * (size_t)n_kv;
    side s = {malloc(n * head), malloc(n * (size_t)size * sizeof(double)), head, size};
    require(s.cells != NULL && s.is != NULL);
    for (size_t i = 0; i < n; i++) {
        fill(cell, is, size, format);
        memcpy(s.cells + i * head, cell, head);
        memcpy(s.is + i * (size_t)size, is, (size_t)size * sizeof *is);
    }
    return s;
}

static void pieces_of(const weir__attention_task *t, int32_t *first, int32_t *n)
{
    int32_t from = INT32_MAX, to = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        if (t->queries[i].from == t->queries[i].to) continue;
        if (t->queries[i].from < from) from = t->queries[i].from;
        if (t->queries[i].to > to) to = t->queries[i].to;
    }
    *first = from / WEIR__ATTENTION_PIECE;
    *n = to > from ? (to - 1) / WEIR__ATTENTION_PIECE - *first + 1 : 0;
}

/* All pieces in one call, or one call for each. */
static void compute(const weir__attention *a, const weir__attention_task *t, bool apart)
{
    int32_t first, n;
    size_t bytes = a->sums(t) * sizeof(float);
    require(a->sums(t) <= weir__attention_most_sums(t->n_kv, t->n_queries, t->n_heads, t->size_v));
    void *scratch = get(a->scratch);
    float *total = get(bytes), *piece = get(bytes);
    pieces_of(t, &first, &n);
    a->attend(t, first, apart && n > 1 ? 1 : n, scratch, total);
    for (int32_t i = 1; apart && i < n; i++) {
        a->attend(t, first + i, 1, scratch, piece);
        a->add(t, total, piece);
    }
    a->finish(t, total);
    free(piece);
    free(total);
    free(scratch);
}

/* The result of a query's head by its definition. */
static void check_head(const weir__attention_task *t, const side *k, const side *v, int32_t i, int32_t h)
{
    static double weight[MOST_CELLS];
    const weir__attention_query *q = &t->queries[i];
    const weir__attention_list *list = &t->lists[q->list];
    const float *row = (const float *)(q->q + (size_t)h * t->q_head);
    const float *out = (const float *)(q->out + (size_t)h * t->out_head);
    double max = t->sinks != NULL ? (double)t->sinks[h] : -INFINITY, sum = 0;
    int32_t n = q->to - q->from, kv = h / t->n_heads;
    for (int32_t c = 0; c < n; c++) {
        size_t cell = (size_t)list->cells[q->from - list->first + c];
        const double *key = k->is + (cell * (size_t)t->n_kv + (size_t)kv) * (size_t)k->size;
        double score = 0;
        for (int32_t d = 0; d < k->size; d++) score += (double)row[d] * key[d];
        score *= (double)t->scale;
        if (t->softcap != 0.0f) score = (double)t->softcap * tanh(score / (double)t->softcap);
        if (q->mask != NULL) score += (t->slopes != NULL ? (double)t->slopes[h] : 1.0) * half(q->mask[cell]);
        weight[c] = score;
        if (score > max) max = score;
    }
    if (t->sinks != NULL) sum = exp((double)t->sinks[h] - max);
    for (int32_t c = 0; c < n; c++) sum += weight[c] = exp(weight[c] - max);
    for (int32_t d = 0; d < v->size; d++) {
        double want = 0;
        for (int32_t c = 0; c < n; c++) {
            size_t cell = (size_t)list->cells[q->from - list->first + c];
            want +=
                weight[c] / sum * v->is[(cell * (size_t)t->n_kv + (size_t)kv) * (size_t)v->size + (size_t)d];
        }
        require(fabs((double)out[d] - want) < 0.01);
    }
}

/* ---- An input ---- */

/* Sorts n cells by their bytes, as positions would. */
static void put_in_order(int32_t *cells, int32_t n, const uint8_t *bytes, size_t n_bytes)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t cell = cells[i], at = i;
        for (; at > 0 && bytes[(size_t)cells[at - 1] % n_bytes] > bytes[(size_t)cell % n_bytes]; at--)
            cells[at] = cells[at - 1];
        cells[at] = cell;
    }
}

static void run_level(const weir__attention *a, const uint8_t *data, size_t size)
{
    static const int32_t sizes[] = {16, 32, 64, 80, 96, 128, 192, 256},
                         heads_of[] = {1, 2, 3, 4, 5, 7, 8, 12};
    enum applies applies = data[2];
    int32_t n_kv = 1 + data[1] % 2, n_heads = heads_of[data[1] / 2 % 8],
            n_queries = 1 + data[1] / 16 % MOST_QUERIES;
    int32_t size_k = sizes[data[3] % 8], size_v = sizes[data[3] / 8 % 8];
    weir__attention_format k_format = data[0] / 5 % 5, v_format = data[0] % 5;
    int32_t n_cells = 1 + (data[4] | data[5] << 8) % MOST_CELLS, first = data[6] * 5;
    const uint8_t *rest = data + N_HEAD;
    size_t n_rest = size - N_HEAD;
    if (size_k % 32 != 0 && k_format >= WEIR__ATTENTION_Q8_0) k_format = WEIR__ATTENTION_F16;
    if (size_v % 32 != 0 && v_format >= WEIR__ATTENTION_Q8_0) v_format = WEIR__ATTENTION_F16;
    dice = data[0];
    side k = side_make(n_cells, n_kv, size_k, k_format), v = side_make(n_cells, n_kv, size_v, v_format);
    int32_t n_rows = n_kv * n_heads * n_queries, heads = n_kv * n_heads;
    float *q = malloc((size_t)(n_rows * size_k) * sizeof *q),
          *out = malloc((size_t)(n_rows * size_v) * sizeof *out);
    float *alone = malloc((size_t)(heads * size_v) * sizeof *alone);
    float slopes[MOST_HEADS], sinks[MOST_HEADS];
    bool one_text = applies & (ONE_TEXT | ONE_LIST);
    uint16_t *masks[MOST_QUERIES];
    int32_t *cells[MOST_QUERIES];
    weir__attention_list lists[MOST_QUERIES];
    weir__attention_query queries[MOST_QUERIES];
    require(q != NULL && out != NULL && alone != NULL);
    for (int32_t i = 0; i < n_rows * size_k; i++) q[i] = (float)half(some_half(roll()));
    for (int32_t i = 0; i < MOST_HEADS; i++)
        slopes[i] = (float)half(some_half(roll())), sinks[i] = slopes[i] * 3.0f;
    weir__attention_task t = {
        .lists = lists,
        .queries = queries,
        .n_kv = n_kv,
        .n_queries = n_queries,
        .n_heads = n_heads,
        .q_head = (size_t)size_k * sizeof *q,
        .out_head = (size_t)size_v * sizeof *out,
        .k = (const char *)k.cells,
        .v = (const char *)v.cells,
        .k_cell = (size_t)n_kv * k.head,
        .v_cell = (size_t)n_kv * v.head,
        .k_head = k.head,
        .v_head = v.head,
        .k_format = k_format,
        .v_format = v_format,
        .size_k = size_k,
        .size_v = size_v,
        .scale = 1.0f / sqrtf((float)size_k),
        .softcap = applies & SOFTCAP ? 5.0f : 0.0f,
        .slopes = applies & SLOPES ? slopes : NULL,
        .sinks = applies & SINKS ? sinks : NULL,
    };
    for (int32_t i = 0; i < n_queries; i++) {
        bool plain, all_zero = true;
        int32_t n_seen = 0;
        masks[i] = malloc((size_t)n_cells * sizeof *masks[i]);
        cells[i] = malloc(((size_t)n_cells + 31) * sizeof *cells[i]);
        require(masks[i] != NULL && cells[i] != NULL);
        for (int32_t c = 0; c < n_cells; c++) {
            uint8_t byte = rest[(size_t)(c + (one_text ? 0 : 31 * i)) % n_rest];
            bool seen = byte >> (one_text ? 0 : i) & 1;
            masks[i][c] = !seen ? 0xfc00 : applies & MASKS ? some_half(byte * 2654435761u) : 0;
            n_seen += seen;
            all_zero = all_zero && (!seen || masks[i][c] == 0);
        }
        int32_t n = a->visible(masks[i], n_cells, cells[i], &plain);
        require(n == n_seen && plain == all_zero);
        for (int32_t at = 0; at < n; at++) {
            require(masks[i][cells[i][at]] != 0xfc00 && (at == 0 || cells[i][at] > cells[i][at - 1]));
        }
        if (applies & SCATTERED) put_in_order(cells[i], n, rest, n_rest);
        int32_t same = 0, cut = applies & WINDOW && n > 0 ? rest[(size_t)i % n_rest] % n : 0;
        while (i > 0 && same < n && same < lists[i - 1].n && cells[i][same] == cells[i - 1][same]) same++;
        lists[i] = (weir__attention_list){cells[i], first, n, i > 0 ? first + same : 0};
        queries[i] = (weir__attention_query){.q = (const char *)(q + i * heads * size_k),
                                             .out = (char *)(out + i * heads * size_v),
                                             .mask = plain ? NULL : masks[i],
                                             .list = applies & ONE_LIST ? 0 : i,
                                             .from = first + cut,
                                             .to = first + n};
    }
    compute(a, &t, applies & WINDOW);
    for (int32_t i = 0; i < n_queries; i++) {
        check_head(&t, &k, &v, i, i % heads);
        /* Alone, to the bit. */
        weir__attention_task single = t;
        weir__attention_query one = queries[i];
        one.out = (char *)alone;
        one.list = 0;
        single.lists = &lists[i];
        single.queries = &one;
        single.n_queries = 1;
        compute(a, &single, !(applies & WINDOW));
        require(memcmp(alone, queries[i].out, (size_t)(heads * size_v) * sizeof *alone) == 0);
    }
    for (int32_t i = 0; i < n_queries; i++) free(masks[i]), free(cells[i]);
    free(alone);
    free(out);
    free(q);
    free(k.is), free(k.cells), free(v.is), free(v.cells);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size <= N_HEAD || size > 4096) return 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        run_level(&weir__attention_avx2, data, size);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        run_level(&weir__attention_avx512, data, size);
    return 0;
}
