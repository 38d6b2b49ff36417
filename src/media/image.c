/* image.c: images as pixels, decoded by libpng, libjpeg and libwebp.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A decoder reads the header and takes memory for the pixels if the limits allow the size (begin_image). PNG
 * and JPEG are decoded row by row and ask the interrupt on the way; libwebp decodes all at once into that
 * memory. libpng and libjpeg report errors by functions that must not return, so these jump out, and all that
 * is to be freed then is in a reader. Pixels become 8 bits of red, green and blue: transparent ones lie on
 * white, CMYK is converted, and a JPEG is turned as its Exif data says. */
#include "media/image.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs FILE */
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>
#include <png.h>
#include <webp/decode.h>

#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"

/* Takes memory for pixels of n_channels bytes and sets width and height, if the limits allow this size. */
static weir_status begin_image(weir__image *image, uint64_t width, uint64_t height, int n_channels,
                               const weir_media_params *params, weir_error *error)
{
    uint64_t side = (uint64_t)params->max_side, pixels = (uint64_t)params->max_pixels;
    if (width == 0 || height == 0)
        return weir__error_set(error, WEIR_FORMAT, NULL, "the image is damaged: it has no pixels");
    if (width > side || height > side)
        return weir__error_range(
            error, WEIR_TOO_LONG, "max_side", (double)(width > height ? width : height), 1, (double)side,
            "the image is %" PRIu64 " × %" PRIu64 " pixels, too many in a row or column", width, height);
    if (width * height > pixels)
        return weir__error_range(error, WEIR_TOO_LONG, "max_pixels", (double)(width * height), 1,
                                 (double)pixels,
                                 "the image is %" PRIu64 " × %" PRIu64 ", which are %" PRIu64 " pixels",
                                 width, height, width * height);
    image->pixels = weir__mem_calloc((size_t)(width * height), (size_t)n_channels);
    if (image->pixels == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL,
                               "no memory for an image of %" PRIu64 " × %" PRIu64, width, height);
    image->width = (int32_t)width;
    image->height = (int32_t)height;
    return WEIR_OK;
}

/* Turns red, green, blue and alpha to red, green and blue on white. */
static void flatten_image(weir__image *image)
{
    size_t n = (size_t)image->width * (size_t)image->height;
    const unsigned char *from = image->pixels;
    unsigned char *to = image->pixels;
    for (size_t i = 0; i < n; i++, from += 4, to += 3) {
        unsigned alpha = from[3];
        for (int c = 0; c < 3; c++)
            to[c] = (unsigned char)((from[c] * alpha + 255 * (255 - alpha) + 127) / 255);
    }
    unsigned char *smaller = weir__mem_realloc(image->pixels, 3 * n);
    if (smaller != NULL) image->pixels = smaller;
}

/* ---- Exif: how a photo is to be turned ---- */

#define ORIENTATION 0x0112
#define SHORT       3

/* A TIFF file within a JPEG's marker. */
typedef struct exif {
    const unsigned char *bytes;
    size_t n;
    bool little; /* the least significant byte first */
} exif;

/* A number of `size` bytes; 0 where the data ends before. */
static uint32_t exif_number(const exif *tiff, size_t at, size_t size)
{
    uint32_t number = 0;
    if (at > tiff->n || size > tiff->n - at) return 0;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | tiff->bytes[tiff->little ? at + size - 1 - i : at + i];
    return number;
}

int weir__exif_orientation(const unsigned char *bytes, size_t n)
{
    if (n < 14 || memcmp(bytes, "Exif\0\0", 6) != 0) return 1;
    exif tiff = {bytes + 6, n - 6, bytes[6] == 'I'};
    size_t entry = exif_number(&tiff, 4, 4);
    uint32_t n_entries = exif_number(&tiff, entry, 2);
    entry += 2;
    for (uint32_t i = 0; i < n_entries; i++, entry += 12) {
        if (exif_number(&tiff, entry, 2) != ORIENTATION || exif_number(&tiff, entry + 2, 2) != SHORT)
            continue;
        uint32_t orientation = exif_number(&tiff, entry + 8, 2);
        return orientation >= 1 && orientation <= 8 ? (int)orientation : 1;
    }
    return 1;
}

/* ---- PNG ---- */

/* A row may take this many bytes of the file, and four times as many as its pixels have. Without a limit
 * libpng would decompress all that follows the last row, and deflate makes 1,032 bytes of one. */
#define ROW_SLACK 65536

/* All that lives across a longjmp() is in here, and not in variables of the function that it returns to. */
typedef struct png_reader {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    const unsigned char *bytes;
    size_t n, n_row; /* of the file that are left; of them, for this row */
    const weir_media_params *params;
    weir_status status;
    weir_error *error;
    weir__image image;
    bool has_alpha;
} png_reader;

static _Noreturn void png_fail(png_reader *reader, weir_status status)
{
    reader->status = status;
    longjmp(reader->failed, 1);
}

static _Noreturn void png_on_error(png_structp png, png_const_charp message)
{
    png_reader *reader = png_get_error_ptr(png);
    png_fail(reader, weir__error_set(reader->error, WEIR_FORMAT, NULL, "the PNG is damaged: %s", message));
}

static void png_on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void png_on_read(png_structp png, png_bytep to, size_t n)
{
    png_reader *reader = png_get_io_ptr(png);
    if (n > reader->n) png_on_error(png, "it ends too early");
    if (n > reader->n_row) png_on_error(png, "it has more image data than pixels");
    memcpy(to, reader->bytes, n);
    reader->bytes += n;
    reader->n -= n;
    reader->n_row -= n;
}

/* Skips all chunks but those that pixels and their colors need. */
static void png_skip_other_chunks(png_structp png)
{
    static const png_byte needed[] = "cHRM\0gAMA\0iCCP\0sBIT\0sRGB";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_AS_DEFAULT, needed, sizeof needed / 5);
}

/* Makes libpng convert rows to 8 bits of sRGB: red, green, blue, and alpha if the image has it. */
static void png_convert(png_reader *reader)
{
    png_structp png = reader->png;
    bool palette_alpha = png_get_valid(png, reader->info, PNG_INFO_tRNS) != 0;
    reader->has_alpha = palette_alpha || (png_get_color_type(png, reader->info) & PNG_COLOR_MASK_ALPHA) != 0;
    png_set_alpha_mode(png, PNG_ALPHA_PNG, PNG_DEFAULT_sRGB);
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
}

static void png_read_pixels(png_reader *reader)
{
    png_structp png = reader->png;
    int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    size_t n_row = (size_t)reader->image.width * (reader->has_alpha ? 4 : 3);
    if (png_get_rowbytes(png, reader->info) != n_row) png_on_error(png, "its rows have another length");
    for (int pass = 0; pass < n_passes; pass++) {
        for (int32_t y = 0; y < reader->image.height; y++) {
            if (weir_interrupt_asked()) png_fail(reader, weir__interrupt_error(reader->error));
            reader->n_row = 4 * n_row + ROW_SLACK;
            png_read_row(png, reader->image.pixels + (size_t)y * n_row, NULL);
        }
    }
}

static void png_read_all(png_reader *reader)
{
    png_structp png = reader->png;
    png_set_read_fn(png, reader, png_on_read);
    png_skip_other_chunks(png);
    reader->n_row = SIZE_MAX;
    png_read_info(png, reader->info);
    png_convert(reader);
    weir_status status = begin_image(&reader->image, png_get_image_width(png, reader->info),
                                     png_get_image_height(png, reader->info), reader->has_alpha ? 4 : 3,
                                     reader->params, reader->error);
    if (status != WEIR_OK) png_fail(reader, status);
    png_read_pixels(reader);
    if (reader->has_alpha) flatten_image(&reader->image);
}

weir_status weir__png_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                             weir__image *image, weir_error *error)
{
    png_reader *reader = weir__mem_calloc(1, sizeof *reader);
    if (reader == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a PNG");
    reader->bytes = bytes;
    reader->n = n;
    reader->params = params;
    reader->error = error;
    if (setjmp(reader->failed) == 0) {
        reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, png_on_error, png_on_warning);
        if (reader->png != NULL) reader->info = png_create_info_struct(reader->png);
        if (reader->info == NULL)
            png_fail(reader, weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a PNG"));
        png_read_all(reader);
        *image = reader->image;
        reader->image.pixels = NULL;
    }
    weir_status status = reader->status;
    png_destroy_read_struct(&reader->png, &reader->info, NULL);
    weir__mem_free(reader->image.pixels);
    weir__mem_free(reader);
    return status;
}

/* ---- JPEG ---- */

/* Each scan of a progressive JPEG goes over the whole image, and may take a few bytes of the file only. */
#define SCANS_MAX 64

/* All that lives across a longjmp() is in here, and not in variables of the function that it returns to. */
typedef struct jpeg_reader {
    struct jpeg_decompress_struct jpeg; /* first: libjpeg's callbacks get its address */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const weir_media_params *params;
    weir_status status;
    weir_error *error;
    weir__image image;
    unsigned char *row; /* [width][components] as libjpeg writes it */
    int orientation;
} jpeg_reader;

static _Noreturn void jpeg_fail(jpeg_reader *reader, weir_status status)
{
    reader->status = status;
    longjmp(reader->failed, 1);
}

static _Noreturn void jpeg_on_error(j_common_ptr common)
{
    jpeg_reader *reader = (jpeg_reader *)common;
    char text[JMSG_LENGTH_MAX];
    reader->errors.format_message(common, text);
    if (reader->errors.msg_code == JERR_OUT_OF_MEMORY)
        jpeg_fail(reader, weir__error_set(reader->error, WEIR_NO_MEMORY, NULL, "no memory to decode a JPEG"));
    jpeg_fail(reader, weir__error_set(reader->error, WEIR_FORMAT, NULL, "the JPEG is damaged: %s", text));
}

/* Cameras write bytes that libjpeg warns of and skips. Where data is missing it would make up pixels. */
static void jpeg_on_message(j_common_ptr common, int level)
{
    jpeg_reader *reader = (jpeg_reader *)common;
    int code = reader->errors.msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) jpeg_on_error(common);
}

static void jpeg_on_progress(j_common_ptr common)
{
    jpeg_reader *reader = (jpeg_reader *)common;
    if (reader->jpeg.input_scan_number > SCANS_MAX)
        jpeg_fail(reader, weir__error_set(reader->error, WEIR_UNSUPPORTED, NULL,
                                          "the JPEG has more than %d scans", SCANS_MAX));
    if (weir_interrupt_asked()) jpeg_fail(reader, weir__interrupt_error(reader->error));
}

/* The place of the stored pixel (x, y) in the image as it is shown. */
static size_t jpeg_place(const jpeg_reader *reader, size_t x, size_t y)
{
    size_t width = reader->jpeg.output_width, height = reader->jpeg.output_height;
    size_t right = width - 1 - x, below = height - 1 - y;
    switch (reader->orientation) {
    case 2: return y * width + right;
    case 3: return below * width + right;
    case 4: return below * width + x;
    case 5: return x * height + y;
    case 6: return x * height + below;
    case 7: return right * height + below;
    case 8: return right * height + y;
    default: return y * width + x;
    }
}

/* Adobe's programs store CMYK inverted, and say so by a marker of their own. */
static void jpeg_put_cmyk(const jpeg_reader *reader, const unsigned char *from, unsigned char *to)
{
    for (int c = 0; c < 3; c++) {
        unsigned ink = reader->jpeg.saw_Adobe_marker ? from[c] : 255u - from[c];
        unsigned black = reader->jpeg.saw_Adobe_marker ? from[3] : 255u - from[3];
        to[c] = (unsigned char)(ink * black / 255);
    }
}

static void jpeg_put_row(const jpeg_reader *reader, size_t y)
{
    size_t width = reader->jpeg.output_width;
    bool cmyk = reader->jpeg.output_components == 4;
    for (size_t x = 0; x < width; x++) {
        unsigned char *to = reader->image.pixels + 3 * jpeg_place(reader, x, y);
        if (cmyk)
            jpeg_put_cmyk(reader, reader->row + 4 * x, to);
        else
            memcpy(to, reader->row + 3 * x, 3);
    }
}

static void jpeg_read(jpeg_reader *reader, const unsigned char *bytes, size_t n)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &reader->progress;
    jpeg_mem_src(jpeg, bytes, (unsigned long)n);
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(jpeg, TRUE);
    reader->orientation = 1;
    for (jpeg_saved_marker_ptr m = jpeg->marker_list; m != NULL && reader->orientation == 1; m = m->next)
        reader->orientation = weir__exif_orientation(m->data, m->data_length);
    bool turned = reader->orientation >= 5;
    JDIMENSION width = jpeg->image_width, height = jpeg->image_height;
    weir_status status = begin_image(&reader->image, turned ? height : width, turned ? width : height, 3,
                                     reader->params, reader->error);
    if (status != WEIR_OK) jpeg_fail(reader, status);
    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    reader->row = weir__mem_calloc(jpeg->output_width, (size_t)jpeg->output_components);
    if (reader->row == NULL)
        jpeg_fail(reader, weir__error_set(reader->error, WEIR_NO_MEMORY, NULL, "no memory to decode a JPEG"));
    while (jpeg->output_scanline < jpeg->output_height) {
        JDIMENSION y = jpeg->output_scanline;
        if (jpeg_read_scanlines(jpeg, &reader->row, 1) == 1) jpeg_put_row(reader, y);
    }
    jpeg_finish_decompress(jpeg);
}

weir_status weir__jpeg_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                              weir__image *image, weir_error *error)
{
    jpeg_reader *reader = weir__mem_calloc(1, sizeof *reader);
    if (reader == NULL) return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a JPEG");
    reader->params = params;
    reader->error = error;
    reader->jpeg.err = jpeg_std_error(&reader->errors);
    reader->errors.error_exit = jpeg_on_error;
    reader->errors.emit_message = jpeg_on_message;
    reader->progress.progress_monitor = jpeg_on_progress;
    if (setjmp(reader->failed) == 0) {
        jpeg_read(reader, bytes, n);
        *image = reader->image;
        reader->image.pixels = NULL;
    }
    weir_status status = reader->status;
    jpeg_destroy_decompress(&reader->jpeg);
    weir__mem_free(reader->image.pixels);
    weir__mem_free(reader->row);
    weir__mem_free(reader);
    return status;
}

/* ---- WebP ---- */

static weir_status webp_refuse(VP8StatusCode code, weir_error *error)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory to decode a WebP");
    return weir__error_set(error, WEIR_FORMAT, NULL, "the WebP is %s",
                           code == VP8_STATUS_NOT_ENOUGH_DATA ? "incomplete" : "damaged");
}

/* Bytes of libwebp's tables for a group of codes. Lossless data has one for each block of 4 x 4 pixels at
 * most; its five codes take 20 bits of the file at least (the format's simple codes of one symbol). */
#define GROUP_BYTES ((size_t)20 << 10)
#define GROUPS_MAX  ((size_t)1 << 16)

/* True if libwebp can get the memory that lossless data, and so alpha, may need: release 1.2 ends the
 * process if such an allocation fails. Another thread may take the memory in between. n: the file's bytes. */
static bool has_room(const WebPBitstreamFeatures *of, size_t n)
{
    size_t n_pixels = (size_t)of->width * (size_t)of->height, n_groups = n_pixels / 16;
    if (of->format == 1 && !of->has_alpha) return true;
    if (n_groups > n * 2 / 5 + 1) n_groups = n * 2 / 5 + 1;
    if (n_groups > GROUPS_MAX) n_groups = GROUPS_MAX;
    void *room = weir__mem_alloc(8 * n_pixels + n_groups * GROUP_BYTES + ((size_t)1 << 20));
    weir__mem_free(room);
    return room != NULL;
}

weir_status weir__webp_decode(const unsigned char *bytes, size_t n, const weir_media_params *params,
                              weir__image *image, weir_error *error)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "this libwebp is not the one that weir was built with");
    VP8StatusCode code = WebPGetFeatures(bytes, n, &config.input);
    if (code != VP8_STATUS_OK) return webp_refuse(code, error);
    if (config.input.has_animation)
        return weir__error_set(error, WEIR_UNSUPPORTED, NULL,
                               "the WebP is animated; allowed: a WebP with one image");
    int n_channels = config.input.has_alpha ? 4 : 3;
    weir__image decoded = {0};
    weir_status status = begin_image(&decoded, (uint64_t)config.input.width, (uint64_t)config.input.height,
                                     n_channels, params, error);
    if (status != WEIR_OK) return status;
    int stride = decoded.width * n_channels;
    config.output.colorspace = config.input.has_alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = decoded.pixels;
    config.output.u.RGBA.stride = stride;
    config.output.u.RGBA.size = (size_t)stride * (size_t)decoded.height;
    code = has_room(&config.input, n) ? WebPDecode(bytes, n, &config) : VP8_STATUS_OUT_OF_MEMORY;
    if (code != VP8_STATUS_OK) {
        weir__mem_free(decoded.pixels);
        return webp_refuse(code, error);
    }
    if (config.input.has_alpha) flatten_image(&decoded);
    *image = decoded;
    return WEIR_OK;
}
