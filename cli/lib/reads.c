/* reads.c: makes a blank image and a silent sound, and asks the engine for their tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "reads.h"
#include "base/error.h"

#include <string.h>

#include "cli.h"

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

void cli_reads_print(cli_text *text, const weir_model_info *info, weir_engine *engine, const char *indent)
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

json_t *cli_reads_images(const weir_model_info *info, weir_engine *engine)
{
    json_t *list = json_array();
    for (size_t i = 0; engine != NULL && info->reads_images && i < N_IMAGES; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:o}", "width", images[i].width, "height",
                                              images[i].height, "tokens",
                                              token_count(tokens_of_image(info, engine, i, NULL))));
    return list;
}

json_t *cli_reads_sounds(const weir_model_info *info, weir_engine *engine)
{
    json_t *list = json_array();
    for (size_t i = 0; engine != NULL && info->reads_sounds && i < N_SOUNDS; i++)
        json_array_append_new(list, json_pack("{s:i, s:o}", "seconds", sounds[i], "tokens",
                                              token_count(tokens_of_sound(info, engine, i, NULL))));
    return list;
}
