/* ggml.h: a graph of ggml's own for tests, computed on its CPU backend.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SUPPORT_GGML_H
#define WEIR_SUPPORT_GGML_H

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>

#include "llama.h"

/* A graph, the weights it reads and its backend. Weights and other tensors are made in between. */
typedef struct stage {
    struct ggml_context *held, *computed; /* weights; all else */
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t weights, work;
    ggml_backend_t backend;
    ggml_gallocr_t shared;
} stage;

static inline void stage_init(stage *s)
{
    struct ggml_init_params room = {.mem_size = 1 << 20, .no_alloc = true};
    *s = (stage){.held = ggml_init(room), .computed = ggml_init(room)};
    s->graph = ggml_new_graph(s->computed);
    s->backend = ggml_backend_cpu_init();
}

static inline void stage_fini(stage *s)
{
    ggml_backend_buffer_free(s->work);
    ggml_gallocr_free(s->shared);
    ggml_backend_buffer_free(s->weights);
    ggml_backend_free(s->backend);
    ggml_free(s->computed);
    ggml_free(s->held);
}

static inline void assert_supported(const stage *s)
{
    for (int i = 0; i < ggml_graph_n_nodes(s->graph); i++)
        assert_true(ggml_backend_supports_op(s->backend, ggml_graph_node(s->graph, i)));
}

/* Once all operations are in the graph. */
static inline void allocate(stage *s)
{
    s->work = ggml_backend_alloc_ctx_tensors(s->computed, s->backend);
    assert_supported(s);
}

/* As llama.cpp does: memory is used again once nothing more reads what it holds, but for outputs. */
static inline void allocate_shared(stage *s)
{
    s->shared = ggml_gallocr_new(ggml_backend_get_default_buffer_type(s->backend));
    assert_true(ggml_gallocr_alloc_graph(s->shared, s->graph));
    assert_supported(s);
}

static inline void compute(stage *s, int n_threads)
{
    ggml_backend_cpu_set_n_threads(s->backend, n_threads);
    assert_int_equal(ggml_backend_graph_compute(s->backend, s->graph), GGML_STATUS_SUCCESS);
}

#endif
