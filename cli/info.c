/* weir info: the model, the machine, and the memory of an engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The engine estimates its memory from the file's header. What does not fit is not loaded, and only the
 * estimate is shown. Otherwise the model is loaded, with a manual engine, which never ticks, if it generates;
 * both are described line by line or as JSON. How many tokens an image or a sound takes is found by a
 * forecast: of a request with a blank one of that size, less that of the same request without. */
#include <jansson.h>
#include <string.h>
#include <weir/more.h>

#include "base/error.h"
#include "cli/lib/cli.h"
#include "cli/lib/figures.h"
#include "cli/lib/load.h"
#include "cli/lib/out.h"
#include "cli/lib/term.h"
#include "cli/lib/text.h"

/* ---- What a model reads ---- */

/* Sizes of images and lengths of sounds that the engine is asked for, by a dry run of a request. */
static const struct {
    int32_t width, height;
} images[] = {{256, 256}, {1024, 1024}, {1920, 1080}};
static const int32_t sounds[] = {1, 30}; /* seconds */

#define N_IMAGES (sizeof images / sizeof *images)
#define N_SOUNDS (sizeof sounds / sizeof *sounds)

/* A lossless WebP of one colour: its pixels take no bits, so only the size differs. */
#define IMAGE_BYTES 32

static void blank_image(int32_t width, int32_t height, unsigned char *bytes)
{
    static const unsigned char file[IMAGE_BYTES] = {'R', 'I', 'F', 'F', 24,  0,  0, 0, 'W', 'E', 'B',
                                                    'P', 'V', 'P', '8', 'L', 12, 0, 0, 0,   0x2f};
    uint32_t size = (uint32_t)(width - 1) | (uint32_t)(height - 1) << 14;
    uint64_t codes = 0; /* no transform, cache or image of codes */
    int at = 3;
    for (int i = 0; i < 4; i++, at += 11)
        codes |= (uint64_t)(5 | 128 << 3) << at; /* one symbol of 8 bits: 128 */
    codes |= (uint64_t)1 << at;                  /* one of 1 bit: 0 */
    memcpy(bytes, file, sizeof file);
    for (int i = 0; i < 4; i++) bytes[21 + i] = (unsigned char)(size >> 8 * i);
    for (int i = 0; i < 7; i++) bytes[25 + i] = (unsigned char)(codes >> 8 * i);
}

/* A WAV of 8 bits at 8,000 Hz. Owned by the caller. */
static unsigned char *silent_sound(int32_t seconds, size_t *n)
{
    static const unsigned char head[44] = {'R',  'I',  'F', 'F', 0, 0, 0, 0, 'W', 'A', 'V',  'E',  'f', 'm',
                                           't',  ' ',  16,  0,   0, 0, 1, 0, 1,   0,   0x40, 0x1f, 0,   0,
                                           0x40, 0x1f, 0,   0,   1, 0, 8, 0, 'd', 'a', 't',  'a'};
    uint32_t n_samples = (uint32_t)seconds * 8000, n_file = n_samples + 36;
    *n = sizeof head + n_samples;
    unsigned char *bytes = cli_alloc(*n, 1);
    memcpy(bytes, head, sizeof head);
    memset(bytes + sizeof head, 128, n_samples);
    for (int i = 0; i < 4; i++) {
        bytes[4 + i] = (unsigned char)(n_file >> 8 * i);
        bytes[40 + i] = (unsigned char)(n_samples >> 8 * i);
    }
    return bytes;
}

/* Tokens of a request with these media; 0: it is refused. */
static int32_t tokens_of(weir_engine *engine, const weir_media_use *media, size_t n, weir_error *error)
{
    weir_forecast forecast = {.size = sizeof forecast};
    weir_request request = weir_request_default();
    request.text = "a";
    request.media = media;
    request.n_media = n;
    return weir_engine_plan_request(engine, &request, &forecast, error) == WEIR_OK ? forecast.n_prompt : 0;
}

/* The tokens of a file, 0 if the engine refuses it. */
static int32_t tokens_of_file(const weir_model_info *info, weir_engine *engine, const void *bytes, size_t n,
                              weir_error *error)
{
    weir_media_params params = weir_media_params_default();
    weir_media_use use = {0};
    if (info->sample_rate > 0) params.sample_rate = info->sample_rate;
    if (weir_media_create(bytes, n, &params, &use.media, error) != WEIR_OK) return 0;
    int32_t with = tokens_of(engine, &use, 1, error), without = tokens_of(engine, NULL, 0, error);
    weir_media_release(use.media);
    return with > without ? with - without : 0;
}

static int32_t tokens_of_image(const weir_model_info *info, weir_engine *engine, size_t i, weir_error *error)
{
    unsigned char bytes[IMAGE_BYTES];
    blank_image(images[i].width, images[i].height, bytes);
    return tokens_of_file(info, engine, bytes, sizeof bytes, error);
}

static int32_t tokens_of_sound(const weir_model_info *info, weir_engine *engine, size_t i, weir_error *error)
{
    size_t n;
    unsigned char *bytes = silent_sound(sounds[i], &n);
    int32_t tokens = tokens_of_file(info, engine, bytes, n, error);
    cli_free(bytes);
    return tokens;
}

static void print_tokens(cli_text *text, int32_t tokens, const weir_error *error)
{
    if (tokens > 0)
        cli_text_printf(text, "takes %s tokens\n", cli_count((uint64_t)tokens).text);
    else
        cli_text_printf(text, "is refused: %s\n", weir__error_words(error).text);
}

/* "texts and images", and lines for some sizes, each with its newline; `indent` goes before all but the
 * first. Without an engine, no sizes. */
static void print_reads(cli_text *text, const weir_model_info *info, weir_engine *engine, const char *indent)
{
    cli_text_puts(text, info->reads_images ? "texts and images" : "texts");
    if (info->reads_sounds)
        cli_text_printf(text, " and sounds, at %s Hz", cli_count((uint64_t)info->sample_rate).text);
    cli_text_puts(text, "\n");
    for (size_t i = 0; engine != NULL && info->reads_images && i < N_IMAGES; i++) {
        weir_error error = {0};
        int32_t tokens = tokens_of_image(info, engine, i, &error);
        cli_text_printf(text, "%san image of %d × %d pixels ", indent, images[i].width, images[i].height);
        print_tokens(text, tokens, &error);
    }
    for (size_t i = 0; engine != NULL && info->reads_sounds && i < N_SOUNDS; i++) {
        weir_error error = {0};
        int32_t tokens = tokens_of_sound(info, engine, i, &error);
        cli_text_printf(text, "%sa sound of %d second%s ", indent, sounds[i], sounds[i] == 1 ? "" : "s");
        print_tokens(text, tokens, &error);
    }
}

static json_t *token_count(int32_t tokens)
{
    return tokens > 0 ? json_integer(tokens) : json_null();
}

/* [{"width", "height", "tokens"}] and [{"seconds", "tokens"}]; tokens is null where the engine takes none of
 * that size. NULL: out of memory. */
static json_t *images_json(const weir_model_info *info, weir_engine *engine)
{
    json_t *list = json_array();
    for (size_t i = 0; engine != NULL && info->reads_images && i < N_IMAGES; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:o}", "width", images[i].width, "height",
                                              images[i].height, "tokens",
                                              token_count(tokens_of_image(info, engine, i, NULL))));
    return list;
}

static json_t *sounds_json(const weir_model_info *info, weir_engine *engine)
{
    json_t *list = json_array();
    for (size_t i = 0; engine != NULL && info->reads_sounds && i < N_SOUNDS; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "seconds", sounds[i], "tokens",
                                              token_count(tokens_of_sound(info, engine, i, NULL))));
    return list;
}

/* ---- The command ---- */

#define COLUMN 16 /* where values begin */

static void begin_line(cli_text *text, const char *label)
{
    cli_text_printf(text, "%s%-*s%s", cli_term_style_out(CLI_DIM), COLUMN, label,
                    cli_term_style_out(CLI_PLAIN));
}

/* Prints which kernels multiply which weights. */
static void print_kernels(cli_text *text, const weir_model *model, const weir_model_info *info)
{
    begin_line(text, "kernels");
    if (info->kernels[0] == '\0') {
        cli_text_puts(text, "the backend's own\n");
        return;
    }
    cli_text_printf(text, "weir's own (%s)%s\n", info->kernels,
                    info->n_bytes_mapped > 0 ? "; weights mapped from an optimized file" : "");
    weir_model_weights w = {.size = sizeof w};
    for (size_t i = 0; weir_model_weights_get(model, i, &w) == WEIR_OK; i++) {
        begin_line(text, "");
        cli_text_printf(text, "%-7s%s in %d tensor%s: %s%s%s\n", w.type, cli_bytes(w.n_bytes).text,
                        w.n_tensors, w.n_tensors == 1 ? "" : "s", w.kernels ? "weir's" : "the backend's (",
                        w.reason, w.kernels ? "" : ")");
    }
}

static void print_model(cli_text *text, const char *path, const weir_model *model,
                        const weir_model_info *info, weir_engine *engine)
{
    begin_line(text, "model");
    cli_figures_title(text, model);
    cli_text_puts(text, " (");
    cli_text_add_safe(text, path, strlen(path));
    cli_text_puts(text, ")\n");
    begin_line(text, "architecture");
    cli_text_printf(text, "%s, %d layers, %d heads (%d for keys and values), width %d\n", info->architecture,
                    info->n_layer, info->n_head, info->n_head_kv, info->n_embd);
    begin_line(text, "size");
    cli_text_printf(text, "%s parameters, %s\n", cli_count(info->n_params).text,
                    cli_bytes(info->n_bytes).text);
    print_kernels(text, model, info);
    begin_line(text, "context");
    cli_text_printf(text, "%s tokens in training", cli_count((uint64_t)info->n_ctx_train).text);
    if (info->n_swa > 0) cli_text_printf(text, ", sliding window of %d", info->n_swa);
    if (info->is_recurrent || info->is_hybrid)
        cli_text_puts(text, info->is_hybrid ? ", hybrid" : ", recurrent");
    cli_text_puts(text, "\n");
    begin_line(text, "vocabulary");
    cli_text_printf(text, "%s tokens, begin %d, end %d, end of turn %d%s\n",
                    cli_count((uint64_t)info->n_vocab).text, info->token_bos, info->token_eos,
                    info->token_eot, info->add_bos ? ", begins by itself" : "");
    if (info->is_draft_head || info->n_layer_mtp > 0) {
        begin_line(text, "drafts");
        cli_text_puts(text, info->is_draft_head
                                ? "only drafts for another model: pass it as --draft-model of that\n"
                                : "drafts tokens with a layer of its own (MTP)\n");
    }
    if (info->reads_images || info->reads_sounds) {
        begin_line(text, "reads");
        print_reads(text, info, engine, "                ");
    }
    begin_line(text, "chat template");
    if (info->chat_template != NULL)
        cli_text_printf(text, "yes, %zu bytes\n", strlen(info->chat_template));
    else
        cli_text_puts(text, "no: prompts are continued as they stand\n");
}

/* The owner of the kernels that compute attention. */
static const char *attention_by(const weir_model_info *info, const weir_engine_stats *stats)
{
    if (info->is_recurrent && !info->is_hybrid) return "none";
    return stats->attention_kernels ? "weir" : "backend";
}

static void print_attention(cli_text *text, const weir_model_info *info, const weir_engine_stats *stats)
{
    const char *by = attention_by(info, stats);
    begin_line(text, "attention");
    if (strcmp(by, "none") == 0)
        cli_text_puts(text, "none: the model is recurrent\n");
    else
        cli_text_printf(text, "by %s kernels\n", strcmp(by, "weir") == 0 ? "weir's own" : "the backend's");
}

static void print_engine(cli_text *text, const cli_args *args, const weir_model_info *info,
                         const weir_engine_stats *stats)
{
    begin_line(text, "engine");
    cli_text_printf(text, "%d slot%s of at most %s tokens, %s layout, ticks of %d tokens\n", stats->n_slots,
                    stats->n_slots == 1 ? "" : "s", cli_count((uint64_t)stats->n_ctx).text,
                    cli_engine_choice("layout", stats->layout), stats->n_batch);
    begin_line(text, "drafts");
    if (stats->drafters[0] == '\0')
        cli_text_puts(text, "none\n");
    else
        cli_text_printf(text, "up to %d tokens, by %s\n", args->engine.n_draft_max, stats->drafters);
    begin_line(text, "KV memory");
    cli_text_printf(text, "%s for %s cells (%s keys, %s values)\n", cli_bytes(stats->kv_bytes).text,
                    cli_count((uint64_t)stats->n_kv).text, cli_engine_choice("type_k", args->engine.type_k),
                    cli_engine_choice("type_v", args->engine.type_v));
    print_attention(text, info, stats);
    begin_line(text, "same answers");
    cli_text_puts(text,
                  stats->batch_invariant
                      ? "yes: company, drafts and cached prompts change no token\n"
                      : "nearly: with company, drafts or cached prompts a near-tie may fall otherwise\n");
    int64_t wanted = (int64_t)stats->n_slots * stats->n_ctx;
    if (stats->n_kv < wanted) {
        int32_t n_full = stats->n_kv / stats->n_ctx;
        begin_line(text, "");
        cli_text_printf(text, "%d request%s of full length at a time; others wait\n", n_full,
                        n_full == 1 ? "" : "s");
    }
}

static uint64_t needed_bytes(const weir_engine_memory *memory)
{
    return memory->model_bytes + memory->kv_bytes + memory->compute_bytes;
}

static bool memory_fits(const weir_engine_memory *memory)
{
    return memory->available_bytes == 0 || needed_bytes(memory) <= memory->available_bytes;
}

static void print_memory(cli_text *text, const weir_engine_memory *memory)
{
    begin_line(text, "memory");
    cli_text_printf(text, "%s weights + %s KV + %s to compute in = %s", cli_bytes(memory->model_bytes).text,
                    cli_bytes(memory->kv_bytes).text, cli_bytes(memory->compute_bytes).text,
                    cli_bytes(needed_bytes(memory)).text);
    if (memory->available_bytes > 0)
        cli_text_printf(text, "; available: %s", cli_bytes(memory->available_bytes).text);
    cli_text_puts(text, "\n");
}

/* Shows a model that is too large to be loaded. */
static void print_too_large(const cli_args *args, const char *path, const weir_engine_memory *memory)
{
    cli_text text = {0};
    begin_line(&text, "model");
    cli_text_add_safe(&text, path, strlen(path));
    cli_text_puts(&text, "\n");
    begin_line(&text, "engine");
    cli_text_printf(&text, "%d slot%s of at most %s tokens, %s cells (%s keys, %s values)\n", memory->n_slots,
                    memory->n_slots == 1 ? "" : "s", cli_count((uint64_t)memory->n_ctx).text,
                    cli_count((uint64_t)memory->n_kv).text, cli_engine_choice("type_k", args->engine.type_k),
                    cli_engine_choice("type_v", args->engine.type_v));
    print_memory(&text, memory);
    cli_out_text(&text);
}

static json_t *memory_json(const weir_engine_memory *memory)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:i, s:i, s:i}", "model_bytes",
                     (json_int_t)memory->model_bytes, "kv_bytes", (json_int_t)memory->kv_bytes,
                     "compute_bytes", (json_int_t)memory->compute_bytes, "available_bytes",
                     (json_int_t)memory->available_bytes, "fits", (int)memory_fits(memory), "n_slots",
                     memory->n_slots, "n_ctx", memory->n_ctx, "n_kv", memory->n_kv);
}

static void add_device(cli_text *text, const weir_device *device)
{
    cli_text_printf(text, "%s: %s, %s", device->name, device->description, device->type);
    if (device->memory_total > 0)
        cli_text_printf(text, ", %s free of %s", cli_bytes(device->memory_free).text,
                        cli_bytes(device->memory_total).text);
    cli_text_puts(text, "\n");
}

static void print_devices(cli_text *text)
{
    weir_device device = {.size = sizeof device};
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++) {
        begin_line(text, i == 0 ? "devices" : "");
        add_device(text, &device);
    }
}

static json_t *devices_json(void)
{
    json_t *devices = json_array();
    weir_device device = {.size = sizeof device};
    for (size_t i = 0; devices != NULL && weir_device_get(i, &device) == WEIR_OK; i++)
        json_array_append_new(devices, json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", device.name,
                                                 "description", device.description, "type", device.type,
                                                 "memory_free", (json_int_t)device.memory_free,
                                                 "memory_total", (json_int_t)device.memory_total));
    return devices;
}

cli_exit cli_list_devices(const cli_args *args)
{
    cli_text text = {0};
    weir_device device = {.size = sizeof device};
    if (args->json) {
        cli_out_json(json_pack("{s:o}", "devices", devices_json()));
        return CLI_OK;
    }
    for (size_t i = 0; weir_device_get(i, &device) == WEIR_OK; i++) add_device(&text, &device);
    cli_out_text(&text);
    return CLI_OK;
}

static json_t *weights_json(const weir_model *model)
{
    json_t *weights = json_array();
    weir_model_weights w = {.size = sizeof w};
    for (size_t i = 0; weights != NULL && weir_model_weights_get(model, i, &w) == WEIR_OK; i++)
        json_array_append_new(weights, json_pack("{s:s, s:i, s:I, s:b, s:s}", "type", w.type, "n_tensors",
                                                 w.n_tensors, "n_bytes", (json_int_t)w.n_bytes, "kernels",
                                                 w.kernels, "reason", w.reason));
    return weights;
}

static json_t *as_json(const cli_args *args, const char *path, const weir_model *loaded,
                       const weir_model_info *info, weir_engine *engine, const weir_engine_stats *stats,
                       const weir_engine_memory *memory)
{
    json_t *model = json_pack(
        "{s:o, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:i, s:i, s:b, s:b, "
        "s:b, s:b, s:s, s:I, s:I, s:i, s:b, s:b, s:b, s:i, s:o, s:o, s:o}",
        "path", cli_figures_string(path), "description", info->description, "architecture",
        info->architecture, "backend", info->backend, "n_params", (json_int_t)info->n_params, "n_bytes",
        (json_int_t)info->n_bytes, "n_vocab", info->n_vocab, "n_ctx_train", info->n_ctx_train, "n_embd",
        info->n_embd, "n_layer", info->n_layer, "n_head", info->n_head, "n_head_kv", info->n_head_kv, "n_swa",
        info->n_swa, "chat_template", info->chat_template != NULL, "token_bos", info->token_bos, "token_eos",
        info->token_eos, "token_eot", info->token_eot, "add_bos", info->add_bos, "has_decoder",
        info->has_decoder, "is_recurrent", info->is_recurrent, "is_hybrid", info->is_hybrid, "kernels",
        info->kernels, "n_bytes_kernels", (json_int_t)info->n_bytes_kernels, "n_bytes_mapped",
        (json_int_t)info->n_bytes_mapped, "n_layer_mtp", info->n_layer_mtp, "is_draft_head",
        info->is_draft_head, "reads_images", info->reads_images, "reads_sounds", info->reads_sounds,
        "sample_rate", info->sample_rate, "images", images_json(info, engine), "sounds",
        sounds_json(info, engine), "weights", weights_json(loaded));
    json_t *allotted = NULL;
    if (stats != NULL)
        allotted =
            json_pack("{s:i, s:i, s:i, s:I, s:i, s:s, s:s, s:s, s:s, s:b, s:s}", "n_slots", stats->n_slots,
                      "n_ctx", stats->n_ctx, "n_kv", stats->n_kv, "kv_bytes", (json_int_t)stats->kv_bytes,
                      "n_batch", stats->n_batch, "layout", cli_engine_choice("layout", stats->layout),
                      "type_k", cli_engine_choice("type_k", args->engine.type_k), "type_v",
                      cli_engine_choice("type_v", args->engine.type_v), "drafters", stats->drafters,
                      "batch_invariant", stats->batch_invariant, "attention", attention_by(info, stats));
    return json_pack("{s:o, s:o?, s:o?, s:o, s:{s:s, s:s}}", "model", model, "engine", allotted, "memory",
                     memory != NULL ? memory_json(memory) : NULL, "devices", devices_json(), "build", "weir",
                     weir_version(), "llama.cpp", weir_backend_version());
}

/* The engine's memory with its draft model, which must be loaded to find out; the free memory is that of
 * before. If the estimate fails, the engine will fail too and say why. */
static cli_exit add_draft_model(const cli_args *args, const char *path, weir_engine_memory *memory)
{
    weir_engine_params params = args->engine;
    weir_engine_memory with = {.size = sizeof with};
    cli_exit code = cli_load_draft_model(args, &params.draft_model);
    if (params.draft_model == NULL) return code;
    if (weir_engine_estimate(path, &args->model, &params, &with, NULL) == WEIR_OK) {
        with.available_bytes = memory->available_bytes;
        *memory = with;
    }
    weir_model_release(params.draft_model);
    return code;
}

cli_exit cli_info(cli_args *args)
{
    weir_model *model = NULL;
    weir_engine *engine = NULL;
    weir_model_info info = {.size = sizeof info};
    weir_engine_stats stats = {.size = sizeof stats};
    weir_engine_memory memory = {.size = sizeof memory};
    cli_text text = {0};
    char *path = NULL;
    cli_exit code = CLI_NO_MODEL;
    cli_load_log(args);
    if ((path = cli_load_path(args)) == NULL) goto done;
    /* An estimate fails where the load does, which says why, or because the model does not generate. */
    bool estimated = weir_engine_estimate(path, &args->model, &args->engine, &memory, NULL) == WEIR_OK;
    if (estimated && memory_fits(&memory) && (code = add_draft_model(args, path, &memory)) != CLI_OK)
        goto done;
    if (estimated && !memory_fits(&memory)) {
        if (args->json)
            cli_out_json(json_pack("{s:o}", "memory", memory_json(&memory)));
        else
            print_too_large(args, path, &memory);
        code = cli_fail(CLI_FAILED, "that does not fit into this machine's memory: nothing was loaded");
        goto done;
    }
    if ((code = cli_load_model(args, path, &model)) != CLI_OK) goto done;
    weir_model_describe(model, &info);
    args->engine.manual = true; /* nothing is to run */
    if (info.has_decoder && (code = cli_load_engine(args, model, &engine)) != CLI_OK) goto done;
    if (engine != NULL) weir_engine_get_stats(engine, &stats);
    if (args->json) {
        cli_out_json(as_json(args, path, model, &info, engine, engine != NULL ? &stats : NULL,
                             estimated ? &memory : NULL));
        goto done;
    }
    print_model(&text, path, model, &info, engine);
    if (engine != NULL) print_engine(&text, args, &info, &stats);
    if (estimated) print_memory(&text, &memory);
    print_devices(&text);
    begin_line(&text, "build");
    cli_text_printf(&text, "weir %s, llama.cpp %s\n", weir_version(), weir_backend_version());
    cli_out(text.bytes, text.n);
done:
    weir_engine_destroy(engine);
    weir_model_release(model);
    cli_load_log_flush();
    weir__text_fini(&text);
    cli_free(path);
    return code;
}
