/* hook.cpp: weir's kernels inside ggml's CPU backend.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ggml asks "extra buffer types" for each operation whether they take it over, and llama.cpp asks them first
 * where to put a weight. So a buffer type of weir's own, first in their list, keeps weights as panels
 * (weights.cpp) and multiplies them (product.cpp), within ggml's own threads; attention, GELU and layers with
 * a state need no weights (attention.cpp, gelu.cpp, recurrent.cpp). ggml computes all other operations. */
#include "hook/hook.h"

#include "hook/parts.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

extern "C" {
#include "base/log.h"
}

namespace weir
{

const weir__gemm *gemms[WEIR__PANEL_N_FORMATS];
const weir__attention *attention;
weir__hadamard *hadamard;
weir__gelu *gelu;
const weir__recurrent *recurrent;

namespace
{

thread_local weir_status fault = WEIR_OK; /* of the pass that this thread plans */
const char *level_name = "";              /* of the kernels in use */

bool lies_here(const ggml_tensor *op)
{
    return std::any_of(op->src, op->src + GGML_MAX_SRC, [](const ggml_tensor *src) {
        return src != nullptr && is_ours(src) && src->buffer->size > 0;
    });
}

struct extra : ggml::cpu::extra_buffer_type {
    /* Asked about a weight that could be put here, in a buffer without bytes, it answers truly. A weight that
     * lies here already has no other place, and ggml aborts without one: such an operation is refused when it
     * runs. */
    bool supports_op(ggml_backend_dev_t, const ggml_tensor *op) override
    {
        return multiplies(op) || lies_here(op);
    }

    ggml::cpu::tensor_traits *get_tensor_traits(const ggml_tensor *op) override
    {
        ggml::cpu::tensor_traits *traits = recurrent_of(op); /* asked about each operation */
        if (traits == nullptr) traits = attention_of(op);
        if (traits == nullptr) traits = gelu_of(op);
        return traits != nullptr ? traits : product_of(op);
    }
};

} // namespace

void spoil(weir_status status)
{
    fault = status;
}

ggml::cpu::extra_buffer_type *operations()
{
    static extra the_extra;
    return &the_extra;
}

} // namespace weir

const char *weir__hook_kernels(void)
{
    return weir::level_name;
}

/* The level that WEIR_KERNELS asks for. */
static int wanted_level(const char *wanted)
{
    bool runs = true;
    if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "auto") == 0) return 0;
    int level = weir__kernels_find(wanted, &runs);
    if (level < 0) {
        char names[80] = "";
        for (int i = 0; const char *name = weir__kernels_level(i); i++) {
            size_t n = std::strlen(names);
            std::snprintf(names + n, sizeof names - n, ", %s", name);
        }
        weir__log(WEIR_LOG_WARN, "WEIR_KERNELS is %.20s; allowed: auto, off%s. It counts as auto", wanted,
                  names);
        return 0;
    }
    const char *found = weir__kernels_name(level);
    if (!runs)
        weir__log(WEIR_LOG_WARN, "WEIR_KERNELS is %s, which this processor does not run; it runs %s", wanted,
                  *found != '\0' ? found : "ggml's own");
    return level;
}

weir_status weir__hook_fault(void)
{
    return std::exchange(weir::fault, WEIR_OK);
}

void weir__hook_install(void)
{
    const char *wanted = std::getenv("WEIR_KERNELS");
    weir::spare_zeroes();
    if (wanted != nullptr && std::strcmp(wanted, "off") == 0) return;
    int level = wanted_level(wanted);
    for (int i = 0; i < WEIR__PANEL_N_FORMATS; i++)
        weir::gemms[i] = weir__kernels_gemm(static_cast<weir__panel_format>(i), level);
    weir::attention = weir__kernels_attention(level);
    weir::hadamard = weir__kernels_hadamard(level);
    weir::gelu = weir__kernels_gelu(level);
    weir::recurrent = weir__kernels_recurrent(level);
    if (!weir::installed()) return;
    weir::learn_codebooks();
    weir::level_name = weir__kernels_name(level);
    std::vector<ggml_backend_buffer_type_t> &types = ggml_backend_cpu_get_extra_buffer_types();
    types.insert(types.begin(), {weir::buffer_type(), weir::encoder_buffer_type()});
    weir::spare_reading();
}
