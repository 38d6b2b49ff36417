/* projector_test.c: projectors against libmtmd's own functions, and files that nobody should use; made
 * by scripts/tiny_mmproj.py.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifdef WEIR_MEDIA

#include <math.h>
#include <mtmd.h>

#include "support/dice.h"
#include "support/llama.h"
#include "support/temp.h"

#define WIDTH  64
#define HEIGHT 48

static char path[TEMP_PATH_MAX];
static weir__bprojector *projector;

static void use(const char *text_model, const char *kind)
{
    char file[TEMP_PATH_MAX];
    temp_model(file, "model.gguf", text_model);
    use_model(file);
    temp_projector(path, "projector.gguf", kind);
    ops->projector_free(projector);
    projector = NULL;
    assert_ok(ops->projector_load(model, path, false, 1, &projector, error));
}

static int fini(void **state)
{
    ops->projector_free(projector);
    projector = NULL;
    return free_model(state);
}

/* ---- Images and sounds ---- */

static unsigned char pixels[HEIGHT][WIDTH][3];
static float samples[2 * 16000 * 31]; /* 62 s */

static weir_media_info image(void)
{
    dice d = {7};
    for (size_t i = 0; i < sizeof pixels; i++) (&pixels[0][0][0])[i] = (unsigned char)dice_roll(&d);
    return (weir_media_info){
        .kind = WEIR_MEDIA_IMAGE, .width = WIDTH, .height = HEIGHT, .pixels = &pixels[0][0][0]};
}

static weir_media_info sound(size_t n)
{
    dice d = {9};
    for (size_t i = 0; i < N_ELEMENTS(samples); i++) samples[i] = (float)dice_in(&d, -1000, 1000) / 1000;
    return (weir_media_info){
        .kind = WEIR_MEDIA_AUDIO, .samples = samples, .n_samples = n, .sample_rate = 16000};
}

static weir__prepared *prepare(const weir_media_info *media)
{
    weir__prepared *prepared = NULL;
    assert_ok(ops->projector_prepare(projector, media, &prepared, error));
    return prepared;
}

static void encode_all(weir__prepared *prepared)
{
    for (int32_t i = 0; i < prepared->n_segments; i++)
        if (prepared->segments[i].tokens == NULL)
            assert_ok(ops->projector_encode(projector, prepared, i, NULL, NULL, error));
}

/* ---- Against libmtmd ---- */

/* Compares with the same media between two words, as a program of llama.cpp would have it. */
static void compare(const weir_media_info *media)
{
    struct mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu = false;
    params.n_threads = 1;
    params.warmup = false;
    mtmd_context *plain = mtmd_init_from_file(path, model->model, params);
    assert_non_null(plain);
    mtmd_bitmap *bitmap =
        media->kind == WEIR_MEDIA_IMAGE
            ? mtmd_bitmap_init((uint32_t)media->width, (uint32_t)media->height, media->pixels)
            : mtmd_bitmap_init_from_audio(media->n_samples, media->samples);
    const mtmd_bitmap *bitmaps[] = {bitmap};
    char text[64];
    int n = snprintf(text, sizeof text, "the%swind", mtmd_default_marker());
    mtmd_input_text prompt = {text, (size_t)n, false, true};
    mtmd_input_chunks *chunks = mtmd_input_chunks_init();
    assert_int_equal(mtmd_tokenize(plain, chunks, &prompt, bitmaps, 1), 0);

    weir__prepared *prepared = prepare(media);
    encode_all(prepared);
    int32_t at = 0, n_cells = 0, n_positions = 0;
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks); i++) {
        const mtmd_input_chunk *chunk = mtmd_input_chunks_get(chunks, i);
        if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) continue;
        while (at < prepared->n_segments && prepared->segments[at].tokens != NULL) at++;
        assert_true(at < prepared->n_segments);
        const weir__segment *segment = &prepared->segments[at++];
        assert_int_equal(segment->n_cells, mtmd_input_chunk_get_n_tokens(chunk));
        assert_int_equal(segment->n_positions, mtmd_input_chunk_get_n_pos(chunk));
        assert_int_equal(segment->causal, !mtmd_decode_use_non_causal(plain, chunk));
        assert_int_equal(mtmd_encode_chunk(plain, chunk), 0);
        assert_memory_equal(segment->embeddings, mtmd_get_output_embd(plain),
                            (size_t)segment->n_cells * (size_t)model_is.n_embd * sizeof(float));
    }
    for (int32_t i = 0; i < prepared->n_segments; i++) {
        n_cells += prepared->segments[i].n_cells;
        n_positions += prepared->segments[i].n_positions;
    }
    assert_int_equal(prepared->n_cells, n_cells);
    assert_int_equal(prepared->n_positions, n_positions);
    while (at < prepared->n_segments) assert_non_null(prepared->segments[at++].tokens);
    ops->prepared_free(prepared);
    mtmd_input_chunks_free(chunks);
    mtmd_bitmap_free(bitmap);
    mtmd_free(plain);
}

static void test_images_are_encoded_as_by_libmtmd(void **state)
{
    (void)state;
    use("swa", "gemma3");
    weir__projector_info info;
    ops->projector_describe(projector, &info);
    assert_true(info.images && !info.sounds && info.width == model_is.n_embd && info.identity != 0);
    weir_media_info media = image();
    compare(&media);
    weir__prepared *prepared = prepare(&media);
    int32_t n_images = 0;
    for (int32_t i = 0; i < prepared->n_segments; i++) {
        const weir__segment *segment = &prepared->segments[i];
        if (segment->tokens != NULL) continue;
        n_images++;
        assert_int_equal(segment->n_cells, 4);
        assert_false(segment->causal);
        assert_null(segment->embeddings);
    }
    assert_int_equal(n_images, 1);
    ops->prepared_free(prepared);
    media = sound(16000);
    assert_refused(ops->projector_prepare(projector, &media, &prepared, error), WEIR_UNSUPPORTED, "");
}

/* An image takes, with M-RoPE, as many positions as its longer side has cells, which lie in rows and
 * columns. */
static void test_cells_in_rows_and_columns(void **state)
{
    (void)state;
    use("qwen", "qwen");
    weir_media_info media = image();
    compare(&media);
    weir__prepared *prepared = prepare(&media);
    int32_t at = 0;
    while (prepared->segments[at].tokens != NULL) at++;
    const weir__segment *segment = &prepared->segments[at];
    assert_true(segment->causal && segment->n_positions < segment->n_cells);
    assert_non_null(segment->places);
    int32_t n_columns = segment->n_positions; /* it is wider than high */
    assert_int_equal(segment->n_cells % n_columns, 0);
    for (int32_t i = 0; i < segment->n_cells; i++) {
        assert_int_equal(segment->places[i].t, 0);
        assert_int_equal(segment->places[i].y, i / n_columns);
        assert_int_equal(segment->places[i].x, i % n_columns);
    }
    ops->prepared_free(prepared);
}

static void test_sounds_are_encoded_as_by_libmtmd(void **state)
{
    (void)state;
    use("llama", "ultravox");
    weir__projector_info info;
    ops->projector_describe(projector, &info);
    assert_true(!info.images && info.sounds && info.sample_rate == 16000);
    static const size_t lengths[] = {1600, 16000, (size_t)62 * 16000};
    for (size_t i = 0; i < N_ELEMENTS(lengths); i++) {
        weir_media_info media = sound(lengths[i]);
        compare(&media);
    }
    weir_media_info media = image();
    weir__prepared *prepared = NULL;
    assert_refused(ops->projector_prepare(projector, &media, &prepared, error), WEIR_UNSUPPORTED, "");
    media = sound(16000);
    media.sample_rate = 8000;
    assert_refused(ops->projector_prepare(projector, &media, &prepared, error), WEIR_UNSUPPORTED,
                   "sample_rate");
    assert_null(prepared);
}

/* ---- Cancel ---- */

static bool count_down(void *user)
{
    int *left = user;
    return (*left)-- <= 0;
}

/* The embeddings of the image or sound, for the caller to free. */
static float *embeddings_of(const char *text_model, const char *kind, size_t *n)
{
    use(text_model, kind);
    weir_media_info media = strstr(kind, "ultravox") != NULL ? sound(16000) : image();
    weir__prepared *prepared = prepare(&media);
    encode_all(prepared);
    int32_t i = 0;
    while (prepared->segments[i].tokens != NULL) i++;
    *n = (size_t)prepared->segments[i].n_cells * (size_t)model_is.n_embd;
    float *copy = malloc(*n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, prepared->segments[i].embeddings, *n * sizeof *copy);
    ops->prepared_free(prepared);
    return copy;
}

/* The layers' matrices in half precision lie in weir's buffers, those in single precision in ggml's; the
 * numbers are the same but for rounding. */
static void test_layers_by_weirs_kernels(void **state)
{
    (void)state;
    static const char *const kinds[][2] = {{"swa", "gemma3"},
                                           {"swa", "gemma3 --set clip.vision.attention.head_count=4"},
                                           {"qwen", "qwen"},
                                           {"llama", "ultravox"}};
    for (size_t k = 0; k < N_ELEMENTS(kinds); k++) {
        char half[96];
        size_t n, n_half;
        double differs = 0, all = 0;
        snprintf(half, sizeof half, "%s --type f16", kinds[k][1]);
        float *want = embeddings_of(kinds[k][0], kinds[k][1], &n);
        float *got = embeddings_of(kinds[k][0], half, &n_half);
        assert_int_equal(n, n_half);
        for (size_t i = 0; i < n; i++) {
            differs += pow((double)got[i] - (double)want[i], 2);
            all += pow((double)want[i], 2);
        }
        if (!(sqrt(differs / all) < 0.01)) fail_msg("%s: %g", kinds[k][1], sqrt(differs / all));
        free(want);
        free(got);
    }
}

/* The next encode after one that was cancelled, at whatever question, is as if nothing had been. */
static void test_cancel(void **state)
{
    (void)state;
    use("swa", "gemma3");
    weir_media_info media = image();
    weir__prepared *whole = prepare(&media), *other = prepare(&media);
    encode_all(whole);
    int32_t at = 0;
    while (whole->segments[at].tokens != NULL) at++;
    int n_questions = 0;
    for (weir_status status = WEIR_ABORTED; status != WEIR_OK; n_questions++) {
        int left = n_questions;
        status = ops->projector_encode(projector, other, at, count_down, &left, NULL);
        assert_true(status == WEIR_OK || (status == WEIR_ABORTED && other->segments[at].embeddings == NULL));
    }
    assert_true(n_questions > 1);
    assert_memory_equal(other->segments[at].embeddings, whole->segments[at].embeddings,
                        (size_t)whole->segments[at].n_cells * (size_t)model_is.n_embd * sizeof(float));
    ops->prepared_free(whole);
    ops->prepared_free(other);
}

/* ---- Files that nobody should use ---- */

static void refuse(const char *kind, weir_status status)
{
    weir__bprojector *made = NULL;
    weir_error error = {0};
    long live = weir__mem_live();
    temp_projector(path, "bad.gguf", kind);
    weir_status is = ops->projector_load(model, path, false, 1, &made, &error);
    if (is != status) fail_msg("%s: %s: %s", kind, weir_status_name(is), error.message);
    assert_int_equal(error.code, status);
    assert_true(strlen(error.message) > 20);
    assert_null(strstr(error.message, ".cpp:")); /* a place in the sources says nothing to a user */
    assert_null(made);
    assert_int_equal(weir__mem_live(), live);
}

static void test_bad_projectors(void **state)
{
    (void)state;
    weir__bprojector *made = NULL;
    use("llama", "ultravox");
    refuse("gemma3 --but arch", WEIR_UNSUPPORTED);
    refuse("gemma3 --but half", WEIR_UNSUPPORTED);
    refuse("ultravox --but half", WEIR_UNSUPPORTED);
    refuse("gemma3 --but nan", WEIR_UNSUPPORTED);
    refuse("qwen --but nan", WEIR_UNSUPPORTED);
    refuse("ultravox --but nan", WEIR_UNSUPPORTED);
    refuse("gemma3 --set clip.projector_type=hunyuanvl", WEIR_UNSUPPORTED);
    refuse("gemma3 --set clip.projector_type=deepseek4v", WEIR_UNSUPPORTED);
    refuse("gemma3 --set clip.projector_type=none", WEIR_FORMAT);
    refuse("gemma3 --set clip.vision.attention.head_count=0", WEIR_FORMAT);
    refuse("gemma3 --set clip.vision.attention.head_count=3", WEIR_FORMAT);
    refuse("gemma3 --set clip.vision.patch_size=0", WEIR_FORMAT);
    refuse("gemma3 --set clip.vision.image_size=100000", WEIR_FORMAT);
    refuse("gemma3 --set clip.vision.projector.scale_factor=0", WEIR_FORMAT);
    refuse("ultravox --set clip.audio.projector.stack_factor=0", WEIR_FORMAT);
    refuse("ultravox --set clip.audio.num_mel_bins=0", WEIR_FORMAT);
    /* Errors that libmtmd asserts. */
    refuse("ultravox --set clip.audio.projector.stack_factor=8", WEIR_UNSUPPORTED);
    refuse("gemma3 --set clip.vision.patch_size=7", WEIR_UNSUPPORTED);
    weir_error why = {0};
    assert_int_equal(ops->projector_load(model, path, false, 1, &made, &why), WEIR_UNSUPPORTED);
    assert_non_null(strstr(why.message, "its file is damaged or of an unknown kind"));
    assert_refused(ops->projector_load(model, "/nowhere/projector.gguf", false, 1, &made, error),
                   WEIR_NOT_FOUND, "path");
    assert_null(made);
    temp_model(path, "text.gguf", "llama");
    assert_refused(ops->projector_load(model, path, false, 1, &made, error), WEIR_UNSUPPORTED, "path");
    char wide[TEMP_PATH_MAX];
    temp_model(wide, "wide.gguf", "llama --wide"); /* embeddings of another length */
    use_model(wide);
    refuse("gemma3", WEIR_UNSUPPORTED);
}

/* True if a name of a tensor, n bytes, is at `at`: behind its length. */
static bool is_name(const unsigned char *file, size_t at, size_t n)
{
    uint64_t length;
    memcpy(&length, file + at - sizeof length, sizeof length);
    return length == n && memchr(file + at, '.', 3) != NULL && strspn((const char *)file + at, "vam") > 0 &&
           (memcmp(file + at + n - 5, ".bias", 5) == 0 || memcmp(file + at + n - 7, ".weight", 7) == 0);
}

/* Gives each tensor of the projector another name, one at a time: libmtmd takes it as one that the file
 * lacks. Returns how many of these files are refused; the others work without it. */
static int refuse_without(const char *kind)
{
    static unsigned char file[1 << 20];
    char bad[TEMP_PATH_MAX];
    temp_projector(path, "whole.gguf", kind);
    temp_path(bad, "without.gguf");
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    size_t n = fread(file, 1, sizeof file, from);
    assert_true(fclose(from) == 0 && n < sizeof file);
    int n_refused = 0, n_tensors = 0;
    for (size_t at = 8; at + 64 < n; at++)
        for (size_t length = 7; length < 48; length++) {
            if (!is_name(file, at, length)) continue;
            long live = weir__mem_live();
            weir__bprojector *made = NULL;
            weir_error why = {0};
            file[at + length - 1] ^= 1;
            FILE *to = fopen(bad, "wb");
            assert_true(to != NULL && fwrite(file, 1, n, to) == n && fclose(to) == 0);
            file[at + length - 1] ^= 1;
            weir_status status = ops->projector_load(model, bad, false, 1, &made, &why);
            assert_true((status == WEIR_OK) == (made != NULL));
            if (status != WEIR_OK) assert_true(strlen(why.message) > 20);
            n_refused += status != WEIR_OK;
            n_tensors++;
            ops->projector_free(made);
            assert_int_equal(weir__mem_live(), live);
        }
    assert_true(n_tensors >= 20);
    return n_refused;
}

static void test_projectors_that_lack_a_tensor(void **state)
{
    (void)state;
    use("swa", "gemma3");
    assert_int_equal(refuse_without("gemma3"), 9);
    use("qwen", "qwen");
    assert_int_equal(refuse_without("qwen"), 14);
    use("llama", "ultravox");
    assert_int_equal(refuse_without("ultravox"), 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images_are_encoded_as_by_libmtmd),
        cmocka_unit_test(test_cells_in_rows_and_columns),
        cmocka_unit_test(test_sounds_are_encoded_as_by_libmtmd),
        cmocka_unit_test(test_layers_by_weirs_kernels),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_bad_projectors),
        cmocka_unit_test(test_projectors_that_lack_a_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, fini);
}

#else

int main(void)
{
    return 0;
}

#endif
