/* png.c: PNG by libpng, which reports errors by longjmp().
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"
#include "media/image.h"

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
    weir_status status = weir__image_begin(&reader->image, png_get_image_width(png, reader->info),
                                           png_get_image_height(png, reader->info), reader->has_alpha ? 4 : 3,
                                           reader->params, reader->error);
    if (status != WEIR_OK) png_fail(reader, status);
    png_read_pixels(reader);
    if (reader->has_alpha) weir__image_flatten(&reader->image);
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
