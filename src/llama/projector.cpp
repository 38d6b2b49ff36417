/* projector.cpp: llama.cpp's libmtmd, which encodes images and sounds. It gets pixels and samples only.
 * No exception leaves it.
 * SPDX-License-Identifier: Apache-2.0
 *
 * libmtmd asserts much about a file: types of keys, shapes, numbers of outputs. On the thread of a call, a
 * failed assertion is made an exception, which the call returns as an error. In an operation that several
 * threads compute, the others may wait for this one forever; on their own threads an assertion ends the
 * process as ever. */
#include "llama/guard.h"
#include "llama/internal.h"

#ifdef WEIR_MTMD

#include <mtmd.h>

/* A header that llama.cpp does not install: the width of embeddings. */
#include <clip.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

extern "C" {
#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "hook/hook.h"
}

using weir::attempt;
using weir::capture;
using weir::guard;
using weir::refuse_unknown;

/* Nodes of a graph that are computed between two questions. */
#define NODES_AT_ONCE 32

struct weir__bprojector {
    mtmd_context *context;
    weir__projector_info info;
    bool (*cancelled)(void *user); /* of the encode that runs, NULL = none */
    void *cancel_user;
    bool was_cancelled;
    int32_t n_nodes; /* since the last question */
};

namespace
{

/* Depth of calls in which assertions become exceptions. */
thread_local int guarded = 0;

struct asserting {
    asserting()
    {
        guarded++;
    }
    ~asserting()
    {
        guarded--;
    }
    asserting(const asserting &) = delete;
    asserting &operator=(const asserting &) = delete;
};

/* An assertion of llama.cpp, which the log has. */
struct failed_assertion : weir::failure {
    failed_assertion() : weir::failure("it is not what llama.cpp expects; the log has more")
    {
    }
};

/* message: "FILE:LINE: GGML_ASSERT(…) failed". */
void on_abort(const char *message)
{
    weir__log(guarded > 0 ? WEIR_LOG_INFO : WEIR_LOG_ERROR, "%s", message);
    if (guarded > 0) throw failed_assertion();
}

/* Assertions of all of llama.cpp come to on_abort from then on, and libmtmd writes to llama.cpp's log. */
void start()
{
    static std::once_flag once;
    std::call_once(once, [] {
        ggml_log_callback log = nullptr;
        void *user = nullptr;
        llama_log_get(&log, &user);
        mtmd_log_set(log, user);
        ggml_set_abort_callback(on_abort);
    });
}

/* The scheduler asks it for nodes at which to stop, and calls it after these. */
bool on_node(ggml_tensor *node, bool ask, void *user)
{
    (void)node;
    auto *projector = static_cast<weir__bprojector *>(user);
    if (ask) {
        projector->n_nodes = (projector->n_nodes + 1) % NODES_AT_ONCE;
        return projector->n_nodes == 0;
    }
    if (projector->cancelled == nullptr || !projector->cancelled(projector->cancel_user)) return true;
    projector->was_cancelled = true;
    return false;
}

struct chunks_free {
    void operator()(mtmd_input_chunks *chunks) const
    {
        mtmd_input_chunks_free(chunks);
    }
};
struct bitmap_free {
    void operator()(mtmd_bitmap *bitmap) const
    {
        mtmd_bitmap_free(bitmap);
    }
};
using chunks_ptr = std::unique_ptr<mtmd_input_chunks, chunks_free>;
using bitmap_ptr = std::unique_ptr<mtmd_bitmap, bitmap_free>;

template <typename T> T *array_of(size_t n)
{
    T *array = nullptr;
    if (!weir::allocate(array, n > 0 ? n : 1)) throw std::bad_alloc();
    return array;
}

void fill_segment(const mtmd_context *context, const mtmd_input_chunk *chunk, weir__segment *segment)
{
    mtmd_input_chunk_type type = mtmd_input_chunk_get_type(chunk);
    size_t n = mtmd_input_chunk_get_n_tokens(chunk);
    llama_pos n_positions = mtmd_input_chunk_get_n_pos(chunk);
    if (n < 1 || n > WEIR__TOKENS_MAX || n_positions < 1 || n_positions > WEIR__TOKENS_MAX)
        throw weir::failure("a segment has no cells, or too many");
    segment->n_cells = static_cast<int32_t>(n);
    segment->n_positions = n_positions;
    segment->causal = type == MTMD_INPUT_CHUNK_TYPE_TEXT || !mtmd_decode_use_non_causal(context, chunk);
    if (type == MTMD_INPUT_CHUNK_TYPE_TEXT) {
        segment->tokens = array_of<int32_t>(n);
        std::memcpy(segment->tokens, mtmd_input_chunk_get_tokens_text(chunk, &n),
                    n * sizeof *segment->tokens);
    } else if (type == MTMD_INPUT_CHUNK_TYPE_IMAGE && mtmd_decode_use_mrope(context)) {
        const mtmd_image_tokens *tokens = mtmd_input_chunk_get_tokens_image(chunk);
        segment->places = array_of<weir__place>(n);
        for (size_t i = 0; i < n; i++) {
            mtmd_decoder_pos place = mtmd_image_tokens_get_decoder_pos(tokens, 0, i);
            segment->places[i] = {static_cast<int32_t>(place.t), static_cast<int32_t>(place.y),
                                  static_cast<int32_t>(place.x), static_cast<int32_t>(place.z)};
        }
    }
}

weir_status unfit(const weir__bprojector *projector, const weir_media_info *media, weir_error *error)
{
    bool image = media->kind == WEIR_MEDIA_IMAGE;
    if (!(image ? projector->info.images : projector->info.sounds))
        return weir__error_set(error, WEIR_UNSUPPORTED, nullptr, "this model reads no %s",
                               image ? "images" : "sounds");
    if (!image && media->sample_rate != projector->info.sample_rate)
        return weir__error_set(error, WEIR_UNSUPPORTED, "sample_rate",
                               "the sound has %d Hz; this model needs %d Hz (weir_media_params.sample_rate)",
                               media->sample_rate, projector->info.sample_rate);
    return WEIR_OK;
}

weir_status prepare(const weir__bprojector *projector, const weir_media_info *media, weir__prepared *prepared,
                    weir_error *error)
{
    asserting scope;
    capture said;
    bitmap_ptr bitmap(media->kind == WEIR_MEDIA_IMAGE
                          ? mtmd_bitmap_init(static_cast<uint32_t>(media->width),
                                             static_cast<uint32_t>(media->height), media->pixels)
                          : mtmd_bitmap_init_from_audio(media->n_samples, media->samples));
    chunks_ptr chunks(mtmd_input_chunks_init());
    mtmd_input_part input = {nullptr, bitmap.get()};
    const mtmd_input_part *inputs[] = {&input};
    if (mtmd_tokenize_from_parts(projector->context, chunks.get(), inputs, 1, false) != 0)
        return refuse_unknown(error, WEIR_UNSUPPORTED, nullptr, "the projector cannot prepare this",
                              said.length > 0);
    size_t n = mtmd_input_chunks_size(chunks.get());
    prepared->segments = array_of<weir__segment>(n);
    for (size_t i = 0; i < n; i++) {
        weir__segment *segment = &prepared->segments[prepared->n_segments++];
        fill_segment(projector->context, mtmd_input_chunks_get(chunks.get(), i), segment);
        if (segment->n_cells > WEIR__TOKENS_MAX - prepared->n_cells ||
            segment->n_positions > WEIR__TOKENS_MAX - prepared->n_positions)
            throw weir::failure("it has too many cells");
        prepared->n_cells += segment->n_cells;
        prepared->n_positions += segment->n_positions;
    }
    prepared->backend = chunks.release();
    return WEIR_OK;
}

/* Embeddings of one segment, or why there are none. */
weir_status encode(weir__bprojector *projector, const mtmd_input_chunk *chunk, weir__segment *segment,
                   weir_error *error)
{
    asserting scope;
    capture said;
    size_t n = static_cast<size_t>(segment->n_cells) * static_cast<size_t>(projector->info.width);
    projector->was_cancelled = false;
    projector->n_nodes = 0;
    int failed = mtmd_encode_chunk(projector->context, chunk);
    const weir_status fault = weir__hook_fault();
    if (fault == WEIR_NO_MEMORY || (failed != 0 && said.starved()))
        return weir::refuse_memory(error, nullptr, said, "the encoding",
                                   "free memory, or give a smaller image or sound");
    if (fault != WEIR_OK)
        return weir__error_set(error, WEIR_BACKEND, nullptr,
                               "its graph uses weights in a way that weir's kernels do not know; set "
                               "WEIR_KERNELS=off");
    if (projector->was_cancelled)
        return weir__error_set(error, WEIR_ABORTED, nullptr, "the encoding was cancelled");
    if (failed != 0)
        return refuse_unknown(error, WEIR_BACKEND, nullptr, "the projector failed", said.length > 0);
    const float *embeddings = mtmd_get_output_embd(projector->context);
    for (size_t i = 0; i < n; i++)
        if (!std::isfinite(embeddings[i]))
            return weir__error_set(error, WEIR_BACKEND, nullptr, "the projector's embeddings are not finite");
    if (segment->embeddings == nullptr) segment->embeddings = array_of<float>(n);
    std::memcpy(segment->embeddings, embeddings, n * sizeof *embeddings);
    return WEIR_OK;
}

/* A gray image or half a second that is not quite silent goes all the way, so that a file on which libmtmd
 * would assert is refused here and not with a request. */
weir_status try_out(weir__bprojector *projector, weir_media_kind kind, weir_error *error)
{
    std::vector<unsigned char> pixels(size_t{64} * 48 * 3, 128);
    std::vector<float> samples(static_cast<size_t>(projector->info.sample_rate / 2));
    for (size_t i = 0; i < samples.size(); i++) samples[i] = static_cast<float>(i % 100) / 1000.0f;
    weir_media_info media = {};
    media.kind = kind;
    media.width = 64;
    media.height = 48;
    media.pixels = pixels.data();
    media.samples = samples.data();
    media.n_samples = samples.size();
    media.sample_rate = projector->info.sample_rate;
    weir__prepared *prepared = nullptr;
    weir_status status = weir__llama_projector_prepare(projector, &media, &prepared, error);
    if (status != WEIR_OK) return status;
    for (int32_t i = 0; i < prepared->n_segments && status == WEIR_OK; i++)
        if (prepared->segments[i].tokens == nullptr)
            status = weir__llama_projector_encode(projector, prepared, i, nullptr, nullptr, error);
    weir__llama_prepared_free(prepared);
    return status;
}

weir_status try_all(weir__bprojector *projector, weir_error *error)
{
    weir_error why = {};
    weir_status status = WEIR_OK;
    for (weir_media_kind kind : {WEIR_MEDIA_IMAGE, WEIR_MEDIA_AUDIO})
        if (status == WEIR_OK && (kind == WEIR_MEDIA_IMAGE ? projector->info.images : projector->info.sounds))
            status =
                guard(&why, WEIR_NO_MEMORY, "the projector", [&] { return try_out(projector, kind, &why); });
    if (status == WEIR_OK) return WEIR_OK;
    if (status == WEIR_NO_MEMORY) return weir__error_copy(error, &why);
    return weir__error_wrap(error, &why, WEIR_UNSUPPORTED, "path",
                            "the projector cannot be used; its file is damaged or of an unknown kind: ");
}

struct encoder_free {
    void operator()(clip_ctx *encoder) const
    {
        clip_free(encoder);
    }
};

weir_status starved(const capture &said, weir_error *error)
{
    return weir::refuse_memory(error, "path", said, "the projector",
                               "free memory, or give a smaller projector or model");
}

weir_status refuse_file(weir_status code, bool logged, weir_error *error)
{
    return refuse_unknown(error, code, "path",
                          "the projector cannot be loaded: its file is damaged or of an unknown kind",
                          logged);
}

/* The file was read before: where a stream cannot open it, it has no memory. */
bool is_starved(const capture &said)
{
    return said.starved() || said.says("failed to open");
}

/* Compares the widths without loading weights: libmtmd, which compares them behind that, does not free what
 * it has loaded when they differ. */
weir_status check_width(const char *path, int32_t width, weir_error *error)
{
    asserting scope;
    capture said;
    clip_context_params params = {};
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    params.no_alloc = true;
    clip_init_result loaded = clip_init(path, params);
    std::unique_ptr<clip_ctx, encoder_free> encoders[] = {
        std::unique_ptr<clip_ctx, encoder_free>(loaded.ctx_v),
        std::unique_ptr<clip_ctx, encoder_free>(loaded.ctx_a),
        std::unique_ptr<clip_ctx, encoder_free>(loaded.ctx_gen_a)};
    const bool none = encoders[0] == nullptr && encoders[1] == nullptr;
    if (none && is_starved(said)) return starved(said, error);
    if (none) return refuse_file(WEIR_FORMAT, said.length > 0, error);
    for (const auto &encoder : encoders)
        if (encoder != nullptr && clip_n_mmproj_embd(encoder.get()) != width)
            return weir__error_set(
                error, WEIR_UNSUPPORTED, "path",
                "the projector was made for another model: its embeddings have %d numbers, this model's %d",
                clip_n_mmproj_embd(encoder.get()), width);
    return WEIR_OK;
}

weir_status load_file(weir__bprojector *projector, const weir__bmodel *model, const char *path,
                      int32_t n_threads, weir_error *error)
{
    asserting scope;
    capture said;
    mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu = model->offloads;
    params.n_threads = n_threads;
    params.print_timings = false;
    params.warmup = false; /* try_out does more */
    params.cb_eval = on_node;
    params.cb_eval_user_data = projector;
    projector->context = mtmd_init_from_file(path, model->model, params);
    if (projector->context == nullptr && is_starved(said)) return starved(said, error);
    if (projector->context == nullptr) return refuse_file(WEIR_FORMAT, said.length > 0, error);
    projector->info.images = mtmd_support_vision(projector->context);
    projector->info.sounds = mtmd_support_audio(projector->context);
    if (projector->info.sounds) projector->info.sample_rate = mtmd_get_audio_sample_rate(projector->context);
    projector->info.width = llama_model_n_embd_inp(model->model);
    return WEIR_OK;
}

} // namespace

extern "C" ggml_backend_buffer_t weir__shim_projector_tensors(ggml_context *tensors,
                                                              ggml_backend_buffer_type_t type)
{
    return weir__hook_projector(tensors, type);
}

weir_status weir__llama_projector_load(weir__bmodel *model, const char *path, bool outline, int32_t n_threads,
                                       weir__bprojector **out, weir_error *error)
{
    weir__gguf_info file;
    if (model->vocab_only)
        return weir__error_set(error, WEIR_UNSUPPORTED, "model", "the model was loaded without its weights");
    weir_status status = weir__gguf_check_projector(path, &file, error);
    if (status != WEIR_OK) return status;
    start();
    auto *made = static_cast<weir__bprojector *>(weir__mem_calloc(1, sizeof(weir__bprojector)));
    if (made == nullptr) return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for a projector");
    /* Matrices in half precision take 17/16 as panels (kernels/gemm_integers.h). */
    made->info.n_bytes = file.tensor_bytes + (*weir__hook_kernels() != '\0' ? file.tensor_bytes / 16 : 0);
    made->info.identity = file.identity;
    if (outline) {
        *out = made;
        return WEIR_OK;
    }
    status = guard(error, WEIR_UNSUPPORTED, "the projector cannot be loaded", [&] {
        try {
            weir_status fits = check_width(path, llama_model_n_embd_inp(model->model), error);
            return fits == WEIR_OK ? load_file(made, model, path, n_threads, error) : fits;
        } catch (const failed_assertion &) {
            return refuse_file(WEIR_UNSUPPORTED, true, error);
        }
    });
    if (status == WEIR_OK) status = try_all(made, error);
    if (status != WEIR_OK) {
        weir__llama_projector_free(made);
        return status;
    }
    *out = made;
    return WEIR_OK;
}

void weir__llama_projector_free(weir__bprojector *projector)
{
    if (projector == nullptr) return;
    if (projector->context != nullptr) attempt(0, [&] { return mtmd_free(projector->context), 0; });
    weir__mem_free(projector);
}

void weir__llama_projector_describe(const weir__bprojector *projector, weir__projector_info *info)
{
    *info = projector->info;
}

weir_status weir__llama_projector_prepare(const weir__bprojector *projector, const weir_media_info *media,
                                          weir__prepared **out, weir_error *error)
{
    weir_status status = unfit(projector, media, error);
    if (status != WEIR_OK) return status;
    auto *prepared = static_cast<weir__prepared *>(weir__mem_calloc(1, sizeof(weir__prepared)));
    if (prepared == nullptr)
        return weir__error_set(error, WEIR_NO_MEMORY, nullptr, "no memory for an image or sound");
    status = guard(error, WEIR_UNSUPPORTED, "the projector cannot prepare this",
                   [&] { return prepare(projector, media, prepared, error); });
    if (status != WEIR_OK) {
        weir__llama_prepared_free(prepared);
        return status;
    }
    *out = prepared;
    return WEIR_OK;
}

weir_status weir__llama_projector_encode(weir__bprojector *projector, weir__prepared *prepared, int32_t i,
                                         bool (*cancelled)(void *user), void *user, weir_error *error)
{
    const mtmd_input_chunk *chunk =
        mtmd_input_chunks_get(static_cast<mtmd_input_chunks *>(prepared->backend), static_cast<size_t>(i));
    projector->cancelled = cancelled;
    projector->cancel_user = user;
    return guard(error, WEIR_BACKEND, "the projector failed",
                 [&] { return encode(projector, chunk, &prepared->segments[i], error); });
}

void weir__llama_prepared_trim(weir__prepared *prepared)
{
    mtmd_input_chunks_free(static_cast<mtmd_input_chunks *>(prepared->backend));
    prepared->backend = nullptr;
}

void weir__llama_prepared_free(weir__prepared *prepared)
{
    if (prepared == nullptr) return;
    weir__llama_prepared_trim(prepared);
    for (int32_t i = 0; i < prepared->n_segments; i++) {
        weir__mem_free(prepared->segments[i].tokens);
        weir__mem_free(prepared->segments[i].places);
        weir__mem_free(prepared->segments[i].embeddings);
    }
    weir__mem_free(prepared->segments);
    weir__mem_free(prepared);
}

#else

weir_status weir__llama_projector_load(weir__bmodel *, const char *, bool, int32_t, weir__bprojector **,
                                       weir_error *error)
{
    return weir__error_set(error, WEIR_UNSUPPORTED, "path",
                           "this build was made without projectors (WEIR_MEDIA is off)");
}

/* Operations that nobody calls without a projector. */
void weir__llama_projector_free(weir__bprojector *)
{
}
void weir__llama_projector_describe(const weir__bprojector *, weir__projector_info *)
{
}
weir_status weir__llama_projector_prepare(const weir__bprojector *, const weir_media_info *,
                                          weir__prepared **, weir_error *)
{
    return WEIR_UNSUPPORTED;
}
weir_status weir__llama_projector_encode(weir__bprojector *, weir__prepared *, int32_t, bool (*)(void *),
                                         void *, weir_error *)
{
    return WEIR_UNSUPPORTED;
}
void weir__llama_prepared_trim(weir__prepared *)
{
}
void weir__llama_prepared_free(weir__prepared *)
{
}

#endif
