/* weights.cpp: buffers that keep weights as panels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * llama.cpp asks a buffer type for memory and sets tensors one by one. A tensor whose format has a kernel is
 * packed when it is set, by several threads, or is found in a mapping of the optimized file, in which case
 * nothing is copied. The state of a load is in a variable of the thread that loads. */
#include "hook/hook.h"
#include "hook/parts.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>

/* A header that llama.cpp does not install: a model's tensors. */
#include <../src/llama-model.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
#include "base/cpu.h"
#include "base/log.h"
#include "base/thread.h"
#include "hook/optimized_file.h"
}

namespace weir
{

namespace
{

bool has_shape(const ggml_tensor *weights, weir__panel_format format, int64_t columns)
{
    return gemms[format] != nullptr && weights->ne[3] == 1 && weights->ne[0] % columns == 0 &&
           weights->ne[1] % WEIR__PANEL_ROWS == 0 && ggml_is_contiguous(weights);
}

/* True if a type's blocks are those that a format's panels are made of. */
bool has_blocks(ggml_type type, const weir__panel_layout &layout)
{
    const char *name = ggml_type_name(type);
    if (name == nullptr || std::strcmp(name, layout.name) != 0) return false;
    return layout.values == WEIR__VALUES_FLOATS ||
           (ggml_blck_size(type) == layout.columns &&
            ggml_type_size(type) == static_cast<size_t>(layout.block_bytes));
}

/* The format of the panels of each of ggml's types, N_FORMATS for none. */
std::array<int, GGML_TYPE_COUNT> list_formats()
{
    std::array<int, GGML_TYPE_COUNT> formats;
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        int format = 0;
        while (format < WEIR__PANEL_F32 &&
               !has_blocks(static_cast<ggml_type>(type), weir__panel_layouts[format]))
            format++;
        formats[static_cast<size_t>(type)] = format < WEIR__PANEL_F32 ? format : WEIR__PANEL_N_FORMATS;
    }
    return formats;
}

/* Tells the format of a matrix in a buffer of buffer_type(). */
bool format_in_model(const ggml_tensor *weights, weir__panel_format *format)
{
    static const std::array<int, GGML_TYPE_COUNT> formats = list_formats();
    int found = formats[static_cast<size_t>(weights->type)];
    if (found == WEIR__PANEL_N_FORMATS) return false;
    *format = static_cast<weir__panel_format>(found);
    return has_shape(weights, *format, WEIR__UNIT);
}

bool is_encoders(const ggml_tensor *tensor)
{
    return tensor->buffer != nullptr && tensor->buffer->buft == encoder_buffer_type();
}

} // namespace

void learn_codebooks()
{
    const auto formats = list_formats();
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        int format = formats[static_cast<size_t>(type)];
        if (format < WEIR__PANEL_N_FORMATS)
            weir__panel_learn(static_cast<weir__panel_format>(format),
                              ggml_get_type_traits(static_cast<ggml_type>(type))->to_float);
    }
    for (int format = 0; format < WEIR__PANEL_N_FORMATS; format++)
        if (!weir__panel_is_known(static_cast<weir__panel_format>(format))) gemms[format] = nullptr;
}

bool format_in_encoder(const ggml_tensor *weights, weir__panel_format *format)
{
    if (weights->type != GGML_TYPE_F16 && weights->type != GGML_TYPE_BF16)
        return format_in_model(weights, format);
    *format = WEIR__PANEL_F32;
    return has_shape(weights, *format, WEIR__UNIT / 2);
}

bool format_of(const ggml_tensor *weights, weir__panel_format *format)
{
    if (!is_encoders(weights)) return format_in_model(weights, format);
    return weights->buffer->size > 0 && format_in_encoder(weights, format);
}

bool is_ours(const ggml_tensor *tensor)
{
    return tensor->buffer != nullptr && (tensor->buffer->buft == buffer_type() || is_encoders(tensor));
}

bool is_on_host(const ggml_tensor *tensor)
{
    return tensor->buffer == nullptr || ggml_backend_buft_is_host(tensor->buffer->buft);
}

namespace
{

/* ---- Packing ---- */

/* Panels that are packed at once: long enough for a thread to be worth waking. */
constexpr int64_t pack_panels = 8;

/* Threads that pack; with this many, memory is the limit. */
constexpr int32_t most_packers = 16;

/* A matrix that is packed, in parts that may run at the same time. */
struct packing {
    weir__panel_format format;
    int64_t columns, n_panels;
    const void *rows;
    void *panels;
};

void pack(void *user, int32_t i)
{
    auto *p = static_cast<packing *>(user);
    weir__panel_pack(p->format, p->columns, p->rows, p->panels, i * pack_panels,
                     std::min<int64_t>((i + 1) * pack_panels, p->n_panels));
}

/* The load on this thread. */
struct loading {
    bool mapped, locked;
    weir__optimized_file *from; /* nullptr: none, or it does not hold these weights */
    weir__optimized_writer *to; /* nullptr: none */
    bool unread;                /* the model was not read ahead, because there was an optimized file */
    uint64_t n_packed, n_from_file;
    weir__thread_pool *threads; /* nullptr: outside a load, the thread packs alone */
};
thread_local loading load;

/* Advises the system about the whole pages of a mapping. */
void advise(const void *data, size_t size, int advice)
{
    uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(data);
    uintptr_t first = (begin + page - 1) / page * page, end = (begin + size) / page * page;
    if (end > first) madvise(reinterpret_cast<void *>(first), end - first, advice);
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor *tensor, const void *data, size_t offset, size_t size)
{
    weir__panel_format format;
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && format_of(tensor, &format));
    packing all = {format, tensor->ne[0], ggml_nrows(tensor) / WEIR__PANEL_ROWS, data, tensor->data};
    auto n_parts = static_cast<int32_t>((all.n_panels + pack_panels - 1) / pack_panels);
    if (load.unread) advise(data, size, MADV_WILLNEED);
    if (load.threads != nullptr)
        weir__thread_pool_run(load.threads, pack, &all, n_parts);
    else
        for (int32_t i = 0; i < n_parts; i++) pack(&all, i);
    load.n_packed += size;
    if (load.mapped) advise(data, size, MADV_DONTNEED); /* the pages can be read again */
}

/* Packs a tensor of an encoder. Half precision passes through single precision, some panels at a time. */
void set_encoder_tensor(ggml_backend_buffer_t buffer, ggml_tensor *tensor, const void *data, size_t offset,
                        size_t size)
{
    weir__panel_format format;
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor) && format_of(tensor, &format));
    if (format != WEIR__PANEL_F32) return set_tensor(buffer, tensor, data, offset, size);
    int64_t columns = tensor->ne[0], n_panels = ggml_nrows(tensor) / WEIR__PANEL_ROWS;
    size_t in_panel = static_cast<size_t>(columns * WEIR__PANEL_ROWS);
    std::vector<float> rows(in_panel);
    for (int64_t p = 0; p < n_panels; p++) {
        const char *from = static_cast<const char *>(data) +
                           static_cast<size_t>(p) * in_panel * ggml_type_size(tensor->type);
        ggml_get_type_traits(tensor->type)->to_float(from, rows.data(), columns * WEIR__PANEL_ROWS);
        weir__panel_pack(format, columns, rows.data(),
                         static_cast<char *>(tensor->data) +
                             static_cast<size_t>(p) * weir__panel_bytes(format, WEIR__PANEL_ROWS, columns),
                         0, 1);
    }
}

size_t alignment(ggml_backend_buffer_type_t)
{
    return 64;
}

size_t allocated(ggml_backend_buffer_type_t type, const ggml_tensor *tensor)
{
    weir__panel_format format;
    bool packed =
        type == buffer_type() ? format_in_model(tensor, &format) : format_in_encoder(tensor, &format);
    if (!packed) return ggml_nbytes(tensor);
    return weir__panel_bytes(format, ggml_nrows(tensor), tensor->ne[0]);
}

/* The tensor's entry in an optimized file's table. */
weir__optimized_tensor entry_of(ggml_backend_buffer_t buffer, const ggml_tensor *tensor)
{
    weir__optimized_tensor entry = {};
    std::memcpy(entry.name, tensor->name, strnlen(tensor->name, sizeof entry.name));
    std::copy(tensor->ne, tensor->ne + 4, entry.shape);
    entry.type = static_cast<uint64_t>(tensor->type);
    entry.at = static_cast<uint64_t>(static_cast<char *>(tensor->data) -
                                     static_cast<char *>(ggml_backend_buffer_get_base(buffer)));
    entry.size = allocated(buffer->buft, tensor);
    return entry;
}

ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor *tensor)
{
    if (load.to == nullptr) return GGML_STATUS_SUCCESS;
    weir__optimized_tensor entry = entry_of(buffer, tensor);
    return weir__optimized_writer_tensor(load.to, &entry, tensor->data) ? GGML_STATUS_SUCCESS
                                                                        : GGML_STATUS_ALLOC_FAILED;
}

/* ---- Buffers that are mapped from an optimized file ---- */

void skip_tensor(ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t size)
{
    load.n_packed += size;
    load.n_from_file += size;
}

/* All tensors of a buffer pass here before the first of them is set. If one differs from the file's, memory
 * takes the file's place, and all are packed. */
ggml_status init_mapped(ggml_backend_buffer_t buffer, ggml_tensor *tensor)
{
    if (tensor->view_src != nullptr) return GGML_STATUS_SUCCESS; /* later, in a pass */
    weir__optimized_tensor entry = entry_of(buffer, tensor);
    if (load.from != nullptr && weir__optimized_file_is_next(load.from, &entry)) return GGML_STATUS_SUCCESS;
    load.from = nullptr; /* all that follows is packed */
    if (mmap(ggml_backend_buffer_get_base(buffer), buffer->size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return GGML_STATUS_ALLOC_FAILED;
    buffer->iface.init_tensor = init_tensor;
    buffer->iface.set_tensor = set_tensor;
    return GGML_STATUS_SUCCESS;
}

void unmap(ggml_backend_buffer_t buffer)
{
    munmap(ggml_backend_buffer_get_base(buffer), buffer->size);
}

/* nullptr: not from a file. */
ggml_backend_buffer_t allocate_mapped(size_t size)
{
    if (load.from == nullptr) return nullptr;
    void *at = weir__optimized_file_map(load.from, size);
    if (at == nullptr) {
        load.from = nullptr;
        return nullptr;
    }
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(at, size);
    buffer->iface.free_buffer = unmap;
    buffer->iface.init_tensor = init_mapped;
    buffer->iface.set_tensor = skip_tensor;
    return buffer;
}

const char *name(ggml_backend_buffer_type_t)
{
    return "CPU_WEIR";
}

/* Allocates a buffer in pages of its own, so that they are unlocked with it. */
ggml_backend_buffer_t allocate_pages(size_t size)
{
    void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(at, size);
    buffer->iface.free_buffer = unmap;
    return buffer;
}

/* Makes all of it present. */
void lock(ggml_backend_buffer_t buffer)
{
    if (mlock(ggml_backend_buffer_get_base(buffer), buffer->size) != 0)
        weir__log(WEIR_LOG_WARN,
                  "%zu MB of weights cannot be locked in memory: %s; `ulimit -l` shows the limit",
                  buffer->size / 1000000, std::strerror(errno));
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size)
{
    ggml_backend_buffer_t buffer = allocate_mapped(size);
    if (buffer == nullptr) {
        buffer = load.locked ? allocate_pages(size)
                             : ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
        if (buffer == nullptr) return nullptr;
        /* A fifth of a load went into faults. */
        advise(ggml_backend_buffer_get_base(buffer), size, MADV_HUGEPAGE);
        if (load.locked) lock(buffer);
        buffer->iface.init_tensor = init_tensor;
        buffer->iface.set_tensor = type == buffer_type() ? set_tensor : set_encoder_tensor;
        if (load.to != nullptr) weir__optimized_writer_buffer(load.to, size);
    }
    buffer->buft = type;
    buffer->iface.get_tensor = nullptr;
    buffer->iface.cpy_tensor = nullptr;
    return buffer;
}

} // namespace

ggml_backend_buffer_type_t buffer_type()
{
    static ggml_backend_buffer_type type = {
        {name, allocate, alignment, nullptr, allocated, nullptr},
        ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        operations(),
    };
    return &type;
}

ggml_backend_buffer_type_t encoder_buffer_type()
{
    static ggml_backend_buffer_type type = *buffer_type();
    return &type;
}

/* ---- Reading ahead ---- */

namespace
{

/* llama.cpp has the whole model read when it maps it, unless the machine has several memories. For weights
 * that come from an optimized file that would be for nothing, so during such a load the answer to whether it
 * has is yes. */
decltype(ggml_backend_reg_i::get_proc_address) ask_cpu;

bool reads_no_ahead(void)
{
    return load.unread || ggml_is_numa();
}

void *ask(ggml_backend_reg_t reg, const char *name)
{
    if (std::strcmp(name, "ggml_backend_cpu_is_numa") == 0) return reinterpret_cast<void *>(reads_no_ahead);
    return ask_cpu(reg, name);
}

/* Makes up for that where ggml multiplies weights that stayed in the model's file. */
void read_rest(const llama_model *model)
{
    weir__panel_format format;
    for (const auto &entry : llama_internal_get_tensor_map(model)) {
        const ggml_tensor *tensor = entry.second;
        bool looked_up = format_of(tensor, &format);
        if (is_ours(tensor) || looked_up || !is_on_host(tensor) || ggml_n_dims(tensor) == 1) continue;
        advise(tensor->data, ggml_nbytes(tensor), MADV_NORMAL); /* llama.cpp said MADV_RANDOM */
        advise(tensor->data, ggml_nbytes(tensor), MADV_WILLNEED);
    }
}

} // namespace

void spare_reading()
{
    ggml_backend_reg_t cpu = ggml_backend_cpu_reg();
    ask_cpu = cpu->iface.get_proc_address;
    cpu->iface.get_proc_address = ask;
}

/* ---- Which kernel multiplies a weight ---- */

namespace
{

/* The reason for which weir's kernels do not multiply a tensor; "": they do. */
const char *reason(const ggml_tensor *tensor)
{
    weir__panel_format format;
    if (is_ours(tensor)) return "";
    if (!is_on_host(tensor)) return "on another device";
    if (ggml_n_dims(tensor) == 1) return "vectors: nothing to multiply";
    if (!installed()) return "no kernels for this processor, or turned off";
    if (format_of(tensor, &format)) return "looked up, not multiplied";
    if (tensor->type == GGML_TYPE_F32) return "in single precision";
    if (tensor->ne[1] % WEIR__PANEL_ROWS != 0) return "rows are no multiple of 16";
    if (tensor->ne[0] % WEIR__UNIT != 0) return "columns are no multiple of 32";
    return "no kernels for this type";
}

/* Weights of layers with a state that are no matrices: of convolutions, and decays. */
bool multiplies_nothing(const ggml_tensor *tensor)
{
    static const char *const names[] = {".ssm_conv1d.weight", ".shortconv.conv.weight", ".ssm_a"};
    size_t length = std::strlen(tensor->name);
    return std::any_of(std::begin(names), std::end(names), [&](const char *name) {
        size_t n = std::strlen(name);
        return length >= n && std::strcmp(tensor->name + length - n, name) == 0;
    });
}

/* True if a product with it has the same rows in any company. Tensors that are no matrices are used row by
 * row, and small matrices in single precision are taken over where they lie. */
bool multiplies_evenly(const ggml_tensor *tensor)
{
    weir__panel_format format;
    if (is_ours(tensor)) return true;
    if (!installed() || !is_on_host(tensor)) return false;
    return ggml_n_dims(tensor) == 1 || multiplies_nothing(tensor) || format_of(tensor, &format) ||
           (tensor->type == GGML_TYPE_F32 && tensor->ne[1] <= most_dots && ggml_n_dims(tensor) == 2);
}

std::vector<weir_model_weights> list_weights(const llama_model *model)
{
    std::vector<weir_model_weights> kinds;
    for (const auto &entry : llama_internal_get_tensor_map(model)) {
        const ggml_tensor *tensor = entry.second;
        const char *type = ggml_type_name(tensor->type), *why = reason(tensor);
        auto same = [&](const weir_model_weights &w) {
            return std::strcmp(w.type, type) == 0 && std::strcmp(w.reason, why) == 0;
        };
        auto kind = std::find_if(kinds.begin(), kinds.end(), same);
        if (kind == kinds.end()) {
            kind = kinds.insert(kinds.end(), weir_model_weights{});
            std::snprintf(kind->type, sizeof kind->type, "%s", type);
            std::snprintf(kind->reason, sizeof kind->reason, "%s", why);
            kind->kernels = *why == '\0';
        }
        kind->n_tensors++;
        kind->n_bytes += ggml_nbytes(tensor);
    }
    std::stable_sort(
        kinds.begin(), kinds.end(),
        [](const weir_model_weights &a, const weir_model_weights &b) { return a.n_bytes > b.n_bytes; });
    return kinds;
}

} // namespace

} // namespace weir

bool weir__hook_multiplies(const llama_model *model)
{
    const auto &tensors = llama_internal_get_tensor_map(model);
    return std::all_of(tensors.begin(), tensors.end(),
                       [](const auto &entry) { return weir::multiplies_evenly(entry.second); });
}

weir_status weir__hook_weights(const llama_model *model, size_t i, weir_model_weights *weights)
{
    try {
        std::vector<weir_model_weights> kinds = weir::list_weights(model);
        if (i >= kinds.size()) return WEIR_END;
        kinds[i].size = weights->size;
        *weights = kinds[i];
        return WEIR_OK;
    } catch (...) {
        return WEIR_NO_MEMORY;
    }
}

/* ---- A load ---- */

bool weir__hook_begin(const weir__hook_load *how)
{
    weir::load = {how->mapped, how->locked, how->from, how->to, how->from != nullptr, 0, 0, nullptr};
    if (!weir::installed()) return true;
    weir::load.threads = weir__thread_pool_create(std::min(weir__cpu_count(), weir::most_packers) - 1);
    if (weir::load.threads != nullptr) return true;
    weir::load = {};
    return false;
}

uint64_t weir__hook_end(const llama_model *model, uint64_t *n_from_file)
{
    if (model != nullptr && weir::load.unread) weir::read_rest(model);
    weir__thread_pool_destroy(weir::load.threads);
    *n_from_file = weir::load.n_from_file;
    uint64_t n_packed = weir::load.n_packed;
    weir::load = {};
    return n_packed;
}
