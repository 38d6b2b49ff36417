/* jpeg.c: JPEG by libjpeg, which reports errors by longjmp().
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs FILE */
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/budget.h"
#include "base/error.h"
#include "base/mem.h"
#include "media/image.h"

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
    weir_status status = weir__image_begin(&reader->image, turned ? height : width, turned ? width : height,
                                           3, reader->params, reader->error);
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
