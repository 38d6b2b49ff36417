/* Images: PNG written by hand, JPEG and WebP by their libraries' encoders.
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/media.h"

#ifdef WEIR_MEDIA

#include <jpeglib.h>
#include <webp/encode.h>

#include "media/image.h"

/* ---- PNG ---- */

enum { GRAY = 0, RGB = 2, PALETTE = 3, GRAY_ALPHA = 4, RGBA = 6 };

static uint32_t crc_of(const unsigned char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_chunk(file *f, const char *name, const void *bytes, size_t n)
{
    put_number(f, n, 4, true);
    size_t at = f->n;
    put(f, name, 4);
    put(f, bytes, n);
    put_number(f, crc_of(f->bytes + at, f->n - at), 4, true);
}

static void put_png_head(file *f, uint32_t width, uint32_t height, int depth, int color, bool interlaced)
{
    file head = {0};
    put(f, "\x89PNG\r\n\x1a\n", 8);
    put_number(&head, width, 4, true);
    put_number(&head, height, 4, true);
    unsigned char rest[5] = {(unsigned char)depth, (unsigned char)color, 0, 0, interlaced};
    put(&head, rest, 5);
    put_chunk(f, "IHDR", head.bytes, head.n);
    file_free(&head);
}

/* Deflate's blocks without compression, of 65,535 bytes at most. */
static void put_png_data(file *f, const unsigned char *bytes, size_t n)
{
    file z = {0};
    uint32_t a = 1, b = 0;
    put(&z, "\x78\x01", 2);
    for (size_t at = 0; at < n;) {
        size_t now = n - at < 65535 ? n - at : 65535;
        put_number(&z, at + now == n, 1, false);
        put_number(&z, now, 2, false);
        put_number(&z, ~now, 2, false);
        put(&z, bytes + at, now);
        at += now;
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    put_number(&z, (uint64_t)b << 16 | a, 4, true);
    put_chunk(f, "IDAT", z.bytes, z.n);
    put_chunk(f, "IEND", NULL, 0);
    file_free(&z);
}

#define WIDTH  5
#define HEIGHT 3

/* The value of channel c of a pixel. */
static unsigned char value_at(size_t x, size_t y, int c)
{
    return (unsigned char)(x * 40 + y * 17 + (size_t)c * 71);
}

static void put_png(file *f, int color, int n_channels, const file *before_data)
{
    file rows = {0};
    put_png_head(f, WIDTH, HEIGHT, 8, color, false);
    if (before_data != NULL) put(f, before_data->bytes, before_data->n);
    for (size_t y = 0; y < HEIGHT; y++) {
        put(&rows, "", 1); /* no filter */
        for (size_t x = 0; x < WIDTH; x++)
            for (int c = 0; c < n_channels; c++) {
                unsigned char value = value_at(x, y, c);
                if (color == PALETTE) value = (unsigned char)(x % 2);
                put(&rows, &value, 1);
            }
    }
    put_png_data(f, rows.bytes, rows.n);
    file_free(&rows);
}

static unsigned char on_white(unsigned value, unsigned alpha)
{
    return (unsigned char)lround(value * alpha / 255.0 + 255.0 * (255 - alpha) / 255.0);
}

static void assert_pixel(const weir_media *media, size_t x, size_t y, int c, unsigned char expected)
{
    weir_media_info info = describe(media);
    unsigned char value = info.pixels[3 * (y * (size_t)info.width + x) + (size_t)c];
    if (value != expected) fail_msg("(%zu, %zu), channel %d: %u, not %u", x, y, c, value, expected);
}

static void test_png_of_all_colors(void **state)
{
    (void)state;
    static const struct {
        int color, n_channels;
    } kinds[] = {{GRAY, 1}, {RGB, 3}, {GRAY_ALPHA, 2}, {RGBA, 4}};
    for (size_t k = 0; k < N_ELEMENTS(kinds); k++) {
        file f = {0};
        put_png(&f, kinds[k].color, kinds[k].n_channels, NULL);
        weir_media *media = read_media(&f, NULL);
        weir_media_info info = describe(media);
        assert_int_equal(info.kind, WEIR_MEDIA_IMAGE);
        assert_string_equal(info.format, "png");
        assert_int_equal(info.width, WIDTH);
        assert_int_equal(info.height, HEIGHT);
        assert_int_equal(info.n_bytes, WIDTH * HEIGHT * 3);
        assert_true(info.samples == NULL && info.n_samples == 0 && info.sample_rate == 0);
        for (size_t y = 0; y < HEIGHT; y++)
            for (size_t x = 0; x < WIDTH; x++)
                for (int c = 0; c < 3; c++) {
                    bool colored = kinds[k].n_channels >= 3, alpha = kinds[k].n_channels % 2 == 0;
                    unsigned char value = value_at(x, y, colored ? c : 0);
                    if (alpha) value = on_white(value, value_at(x, y, colored ? 3 : 1));
                    assert_pixel(media, x, y, c, value);
                }
        weir_media_release(media);
        file_free(&f);
    }
}

static void test_png_with_a_palette(void **state)
{
    (void)state;
    file f = {0}, chunks = {0};
    put_chunk(&chunks, "PLTE", "\x0a\x14\x1e\xc8\xd2\xdc", 6);
    put_chunk(&chunks, "tRNS", "\xff\x80", 2);
    put_png(&f, PALETTE, 1, &chunks);
    weir_media *media = read_media(&f, NULL);
    for (int c = 0; c < 3; c++) {
        assert_pixel(media, 0, 0, c, (unsigned char)(10 + 10 * c));
        assert_pixel(media, 1, 0, c, on_white((unsigned)(200 + 10 * c), 0x80));
    }
    weir_media_release(media);
    file_free(&f);
    file_free(&chunks);
}

/* A pass for one pixel each, and 16 bits of which the upper ones count. */
static void test_png_interlaced(void **state)
{
    (void)state;
    file f = {0};
    put_png_head(&f, 1, 1, 16, RGB, true);
    put_png_data(&f, (const unsigned char *)"\0\x11\x11\x22\x22\x33\x33", 7);
    weir_media *media = read_media(&f, NULL);
    for (int c = 0; c < 3; c++) assert_pixel(media, 0, 0, c, (unsigned char)(0x11 * (c + 1)));
    weir_media_release(media);
    file_free(&f);
}

/* Adam7 has rows 0, 2, 1 of a column. libpng's simplified interface mixes the rows of 16 bits up. */
static void test_png_interlaced_of_16_bits(void **state)
{
    (void)state;
    file f = {0};
    put_png_head(&f, 1, 3, 16, RGB, true);
    put_png_data(&f,
                 (const unsigned char *)"\0\x11\x11\x22\x22\x33\x33\0\x44\x44\x55\x55\x66\x66"
                                        "\0\x77\x77\x88\x88\x99\x99",
                 21);
    weir_media *media = read_media(&f, NULL);
    static const unsigned char expected[3][3] = {{0x11, 0x22, 0x33}, {0x77, 0x88, 0x99}, {0x44, 0x55, 0x66}};
    for (size_t y = 0; y < 3; y++)
        for (int c = 0; c < 3; c++) assert_pixel(media, 0, y, c, expected[y][c]);
    weir_media_release(media);
    file_free(&f);
}

static void refuse_png(uint32_t width, uint32_t height, weir_status status, const char *field)
{
    file f = {0};
    put_png_head(&f, width, height, 8, RGB, false);
    put_png_data(&f, (const unsigned char *)"", 1);
    refuse_media(&f, NULL, status, field);
    file_free(&f);
}

/* A row may have only so much of the file: the data after the last one may decompress to gigabytes. */
static void test_png_with_too_much_data(void **state)
{
    (void)state;
    static unsigned char rows[400000];
    size_t n_pixels = HEIGHT * (1 + 3 * WIDTH);
    file f = {0};
    put_png_head(&f, WIDTH, HEIGHT, 8, RGB, false);
    put_png_data(&f, rows, n_pixels + 1000);
    weir_media_release(read_media(&f, NULL));
    f.n = 0;
    put_png_head(&f, WIDTH, HEIGHT, 8, RGB, false);
    put_png_data(&f, rows, sizeof rows);
    refuse_media(&f, NULL, WEIR_FORMAT, "");
    f.n = 0;
    put_png_head(&f, WIDTH, HEIGHT, 8, RGB, true);
    put_png_data(&f, rows, sizeof rows);
    refuse_media(&f, NULL, WEIR_FORMAT, "");
    f.n = 0;
    put_png_head(&f, 300, 400, 8, RGB, false);
    put_png_data(&f, rows, (size_t)400 * 901);
    weir_media_release(read_media(&f, NULL));
    weir_interrupt_set(interrupted, NULL);
    refuse_media(&f, NULL, WEIR_ABORTED, "");
    weir_interrupt_set(NULL, NULL);
    file_free(&f);
}

static void test_hostile_pngs(void **state)
{
    (void)state;
    weir_media_params params = weir_media_params_default();
    file f = {0};
    refuse_png(10000, 10000, WEIR_TOO_LONG, "max_pixels");
    refuse_png(16385, 1, WEIR_TOO_LONG, "max_side");
    refuse_png(1, 16385, WEIR_TOO_LONG, "max_side");
    refuse_png(0, 1, WEIR_FORMAT, "");
    refuse_png(INT32_MAX, INT32_MAX, WEIR_FORMAT, ""); /* beyond libpng's own limit */
    refuse_png(1000000, 1000000, WEIR_TOO_LONG, "max_side");
    refuse_png(1000, 1000, WEIR_FORMAT, ""); /* the data of one pixel */
    put_png(&f, RGBA, 4, NULL);
    refuse_beginnings(&f, 12, f.n - 16); /* the end mark alone may be missing */
    params.max_pixels = WIDTH * HEIGHT - 1;
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_pixels");
    params.max_pixels++;
    weir_media_release(read_media(&f, &params));
    params.max_side = WIDTH - 1;
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_side");
    params.max_side = 65536;
    refuse_media(&f, &params, WEIR_INVALID, "max_side");
    damage(&f, 1);
    starve(&f);
    file_free(&f);
}

/* ---- JPEG ---- */

typedef struct jpeg_kind {
    J_COLOR_SPACE color;
    int n_channels, orientation; /* 0 = no Exif data */
    bool progressive, big;       /* of the Exif data: the most significant byte first */
} jpeg_kind;

static void put_exif(struct jpeg_compress_struct *jpeg, int orientation, bool big)
{
    file f = {0};
    put(&f, big ? "Exif\0\0MM" : "Exif\0\0II", 8);
    put_number(&f, 42, 2, big);
    put_number(&f, 8, 4, big);
    put_number(&f, 2, 2, big); /* entries */
    put_number(&f, 0x0100, 2, big);
    put_number(&f, 3, 2, big);
    put_number(&f, 1, 4, big);
    put_number(&f, 0, 4, big);
    put_number(&f, 0x0112, 2, big);
    put_number(&f, 3, 2, big);
    put_number(&f, 1, 4, big);
    put_number(&f, (uint64_t)orientation, 2, big);
    put_number(&f, 0, 2, big);
    jpeg_write_marker(jpeg, JPEG_APP0 + 1, f.bytes, (unsigned)f.n);
    file_free(&f);
}

/* 16 × 8: the left half dark, the right half light; in color the lower half is red. */
static unsigned char jpeg_value(int x, int y, int c)
{
    if (c > 0 && y >= 4) return 20;
    return x < 8 ? 60 : 220;
}

static void put_jpeg(file *f, jpeg_kind kind)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long n = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &n);
    jpeg.image_width = 16;
    jpeg.image_height = 8;
    jpeg.input_components = kind.n_channels;
    jpeg.in_color_space = kind.color;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    for (int c = 0; c < kind.n_channels; c++)
        jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
    if (kind.progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    if (kind.orientation != 0) put_exif(&jpeg, kind.orientation, kind.big);
    for (int y = 0; y < 8; y++) {
        unsigned char row[16 * 4], *rows[1] = {row};
        for (int x = 0; x < 16; x++)
            for (int c = 0; c < kind.n_channels; c++)
                row[x * kind.n_channels + c] =
                    kind.color == JCS_CMYK ? (c == 3 ? 255 : jpeg_value(x, y, c)) : jpeg_value(x, y, c);
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    put(f, bytes, n);
    free(bytes);
}

static void assert_near(const weir_media *media, int x, int y, int c, int expected)
{
    weir_media_info info = describe(media);
    int value = info.pixels[3 * (y * info.width + x) + c];
    if (abs(value - expected) > 6) fail_msg("(%d, %d), channel %d: %d, not %d", x, y, c, value, expected);
}

static void test_jpeg_of_all_kinds(void **state)
{
    (void)state;
    static const jpeg_kind kinds[] = {
        {JCS_GRAYSCALE, 1, 0, false, false}, {JCS_GRAYSCALE, 1, 0, true, false},
        {JCS_RGB, 3, 0, false, false},       {JCS_RGB, 3, 0, true, false},
        {JCS_CMYK, 4, 0, false, false},
    };
    for (size_t k = 0; k < N_ELEMENTS(kinds); k++) {
        file f = {0};
        put_jpeg(&f, kinds[k]);
        weir_media *media = read_media(&f, NULL);
        assert_string_equal(describe(media).format, "jpeg");
        assert_int_equal(describe(media).width, 16);
        assert_int_equal(describe(media).height, 8);
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 16; x++)
                for (int c = 0; c < 3; c++)
                    assert_near(media, x, y, c, jpeg_value(x, y, kinds[k].n_channels == 1 ? 0 : c));
        weir_media_release(media);
        refuse_beginnings(&f, 12, f.n - 2); /* the end mark alone may be missing */
        damage(&f, 1);
        starve(&f);
        file_free(&f);
    }
}

/* The places where the stored pixel (0, 0) and its neighbour (1, 0) are shown, by orientation. */
static void test_jpeg_is_turned(void **state)
{
    (void)state;
    static const int first[9][2] = {{0, 0}, {0, 0}, {15, 0}, {15, 7}, {0, 7},
                                    {0, 0}, {7, 0}, {7, 15}, {0, 15}};
    static const int right[9][2] = {{1, 0}, {1, 0}, {-1, 0}, {-1, 0}, {1, 0},
                                    {0, 1}, {0, 1}, {0, -1}, {0, -1}};
    static const int below[9][2] = {{0, 1}, {0, 1},  {0, 1},  {0, -1}, {0, -1},
                                    {1, 0}, {-1, 0}, {-1, 0}, {1, 0}};
    for (int orientation = 0; orientation <= 8; orientation++)
        for (int big = 0; big < 2; big++) {
            file f = {0};
            put_jpeg(&f, (jpeg_kind){JCS_RGB, 3, orientation, false, big});
            weir_media *media = read_media(&f, NULL);
            assert_int_equal(describe(media).width, orientation >= 5 ? 8 : 16);
            assert_int_equal(describe(media).height, orientation >= 5 ? 16 : 8);
            for (int y = 0; y < 8; y++)
                for (int x = 0; x < 16; x++)
                    for (int c = 0; c < 3; c++)
                        assert_near(
                            media,
                            first[orientation][0] + x * right[orientation][0] + y * below[orientation][0],
                            first[orientation][1] + x * right[orientation][1] + y * below[orientation][1], c,
                            jpeg_value(x, y, c));
            weir_media_release(media);
            file_free(&f);
        }
}

static void test_exif_that_is_odd(void **state)
{
    (void)state;
    static const unsigned char exif[] = "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0";
    assert_int_equal(weir__exif_orientation(exif, sizeof exif - 1), 6);
    for (size_t n = 0; n < 32; n++) { /* an entry that is cut off is none */
        unsigned char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, exif, n < sizeof exif ? n : sizeof exif);
        if (n < sizeof exif - 3) assert_int_equal(weir__exif_orientation(copy, n), 1);
        free(copy);
    }
    unsigned char bad[sizeof exif];
    static const struct {
        size_t at;
        unsigned char value;
    } changes[] = {{24, 9}, {24, 0}, {18, 4}, {10, 0xff}, {13, 0xff}, {0, 'e'}};
    for (size_t i = 0; i < N_ELEMENTS(changes); i++) {
        memcpy(bad, exif, sizeof exif);
        bad[changes[i].at] = changes[i].value;
        assert_int_equal(weir__exif_orientation(bad, sizeof exif - 1), 1);
    }
    memset(bad + 14, 0xff, 2); /* more entries than there are bytes */
    memcpy(bad, exif, 14);
    assert_int_equal(weir__exif_orientation(bad, sizeof exif - 1), 6);
}

static void test_hostile_jpegs(void **state)
{
    (void)state;
    file f = {0};
    put_jpeg(&f, (jpeg_kind){JCS_RGB, 3, 0, false, false});
    size_t frame = 0; /* the marker with height and width */
    for (size_t i = 0; i + 1 < f.n && frame == 0; i++)
        if (f.bytes[i] == 0xff && f.bytes[i + 1] == 0xc0) frame = i;
    memcpy(f.bytes + frame + 5, "\xff\xdc\xff\xdc", 4);
    refuse_media(&f, NULL, WEIR_TOO_LONG, "max_side");
    memcpy(f.bytes + frame + 5, "\x27\x10\x27\x10", 4); /* 10,000 × 10,000 */
    refuse_media(&f, NULL, WEIR_TOO_LONG, "max_pixels");
    memcpy(f.bytes + frame + 5, "\0\x40\0\x40", 4); /* more than there is data for */
    refuse_media(&f, NULL, WEIR_FORMAT, "");
    memcpy(f.bytes + frame + 5, "\0\0\0\x40", 4);
    refuse_media(&f, NULL, WEIR_FORMAT, "");
    file_free(&f);
}

/* Scans that say nothing new, each of which goes over the whole image. */
static void test_jpeg_of_many_scans(void **state)
{
    (void)state;
    file f = {0}, many = {0};
    put_jpeg(&f, (jpeg_kind){JCS_GRAYSCALE, 1, 0, true, false});
    size_t last = f.n;
    for (size_t i = 0; i + 1 < f.n; i++)
        if (f.bytes[i] == 0xff && f.bytes[i + 1] == 0xda) last = i;
    put(&many, f.bytes, last);
    for (int i = 0; i < 100; i++) put(&many, f.bytes + last, f.n - last - 2);
    put(&many, "\xff\xd9", 2);
    refuse_media(&many, NULL, WEIR_UNSUPPORTED, "");
    file_free(&f);
    file_free(&many);
}

/* ---- WebP ---- */

static void put_webp(file *f, bool lossless, int n_channels)
{
    unsigned char pixels[16][16][4], *bytes = NULL;
    for (size_t y = 0; y < 16; y++)
        for (size_t x = 0; x < 16; x++)
            for (int c = 0; c < 4; c++)
                pixels[y][x][c] =
                    lossless ? (unsigned char)(value_at(x, y, c) | (c == 3)) : (unsigned char)(50 + 50 * c);
    size_t n;
    if (!lossless)
        n = WebPEncodeRGBA(&pixels[0][0][0], 16, 16, 64, 100, &bytes);
    else if (n_channels == 4)
        n = WebPEncodeLosslessRGBA(&pixels[0][0][0], 16, 16, 64, &bytes);
    else {
        unsigned char rgb[16][16][3];
        for (size_t y = 0; y < 16; y++)
            for (size_t x = 0; x < 16; x++) memcpy(rgb[y][x], pixels[y][x], 3);
        n = WebPEncodeLosslessRGB(&rgb[0][0][0], 16, 16, 48, &bytes);
    }
    assert_true(n > 0);
    put(f, bytes, n);
    WebPFree(bytes);
}

static void test_webp(void **state)
{
    (void)state;
    for (int n_channels = 3; n_channels <= 4; n_channels++) {
        file f = {0};
        put_webp(&f, true, n_channels);
        weir_media *media = read_media(&f, NULL);
        assert_string_equal(describe(media).format, "webp");
        assert_int_equal(describe(media).width, 16);
        assert_int_equal(describe(media).height, 16);
        for (size_t y = 0; y < 16; y++)
            for (size_t x = 0; x < 16; x++)
                for (int c = 0; c < 3; c++) {
                    unsigned char value = value_at(x, y, c), alpha = value_at(x, y, 3) | 1;
                    assert_pixel(media, x, y, c, n_channels == 4 ? on_white(value, alpha) : value);
                }
        weir_media_release(media);
        refuse_beginnings(&f, 12, f.n);
        damage(&f, 1);
        starve_own(&f); /* without memory libwebp 1.2 frees tables of lossless data that it never made */
        file_free(&f);
    }
    file f = {0};
    put_webp(&f, false, 3);
    starve(&f);
    file_free(&f);
    put_webp(&f, false, 4); /* (50, 100, 150) with an alpha of 200 */
    weir_media *media = read_media(&f, NULL);
    for (int c = 0; c < 3; c++) assert_near(media, 8, 8, c, on_white((unsigned)(50 + 50 * c), 200));
    weir_media_release(media);
    refuse_beginnings(&f, 12, f.n);
    damage(&f, 1);
    file_free(&f);
}

static void test_hostile_webps(void **state)
{
    (void)state;
    file f = {0}, animated = {0};
    put(&animated, "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x0f\0\0\x0f\0\0", 30);
    refuse_media(&animated, NULL, WEIR_UNSUPPORTED, "");
    put_webp(&f, true, 3);
    memcpy(f.bytes + 21, "\xff\xff\xff", 3); /* 16,384 × 16,384 */
    f.bytes[24] |= 0x0f;
    refuse_media(&f, NULL, WEIR_TOO_LONG, "max_pixels");
    file_free(&f);
    file_free(&animated);
}

/* ---- All ---- */

static void test_the_interface(void **state)
{
    (void)state;
    file f = {0}, other = {0}, text = {0};
    weir_media *media = NULL;
    weir_media_params params = weir_media_params_default();
    put_png(&f, RGB, 3, NULL);
    assert_refused(weir_media_create(f.bytes, f.n, NULL, NULL, error), WEIR_INVALID, "media");
    assert_refused(weir_media_create(NULL, 1, NULL, &media, error), WEIR_INVALID, "bytes");
    assert_refused(weir_media_create(NULL, 0, NULL, &media, error), WEIR_FORMAT, "");
    params.size = 0;
    assert_refused(weir_media_create(f.bytes, f.n, &params, &media, error), WEIR_INVALID, "params");
    assert_null(media);
    put(&text, "GIF89a, and what else is no image or sound", 42);
    refuse_media(&text, NULL, WEIR_FORMAT, "");
    media = read_media(&f, NULL);
    put(&other, f.bytes, f.n);
    weir_media *same = read_media(&other, NULL);
    assert_int_equal(strlen(describe(media).hash), 64);
    assert_string_equal(describe(media).hash, describe(same).hash);
    weir_media_release(same);
    put(&other, "", 1); /* behind the end */
    weir_media *differs = read_media(&other, NULL);
    assert_string_not_equal(describe(media).hash, describe(differs).hash);
    weir_media_release(differs);
    assert_ptr_equal(weir_media_hold(media), media);
    weir_media_release(media);
    assert_int_equal(describe(media).width, WIDTH);
    weir_media_release(media);
    assert_null(weir_media_hold(NULL));
    weir_media_release(NULL);
    assert_int_equal(weir_media_describe(NULL, NULL), WEIR_INVALID);
    file_free(&f);
    file_free(&other);
    file_free(&text);
}

static bool read_upstream(const char *name, file *f)
{
    char path[1024];
    unsigned char bytes[4096];
    const char *source = getenv("WEIR_LLAMA_SOURCE");
    if (source == NULL || *source == '\0') return false;
    snprintf(path, sizeof path, "%s/tools/mtmd/%s", source, name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;) put(f, bytes, n);
    fclose(from);
    return true;
}

/* A photo and speech that come with llama.cpp's sources. stb_image has 164.292 as the mean, and miniaudio
 * 0.1603 as the root of the mean square. */
static void test_real_files(void **state)
{
    (void)state;
    file photo = {0}, speech = {0};
    double sum = 0, squares = 0;
    if (!read_upstream("test-1.jpeg", &photo)) return;
    weir_media *media = read_media(&photo, NULL);
    weir_media_info info = describe(media);
    for (size_t i = 0; i < info.n_bytes; i++) sum += info.pixels[i];
    assert_int_equal(info.width, 640);
    assert_int_equal(info.height, 488);
    assert_true(fabs(sum / (double)info.n_bytes - 164.292) < 0.1);
    weir_media_release(media);
    assert_true(read_upstream("test-2.mp3", &speech));
    media = read_media(&speech, NULL);
    info = describe(media);
    for (size_t i = 0; i < info.n_samples; i++) squares += (double)info.samples[i] * (double)info.samples[i];
    assert_int_equal(info.n_samples, 279035);
    assert_true(fabs(sqrt(squares / (double)info.n_samples) - 0.1603) < 0.001);
    weir_media_release(media);
    file_free(&photo);
    file_free(&speech);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_of_all_colors),  cmocka_unit_test(test_png_with_a_palette),
        cmocka_unit_test(test_png_interlaced),     cmocka_unit_test(test_png_interlaced_of_16_bits),
        cmocka_unit_test(test_hostile_pngs),       cmocka_unit_test(test_png_with_too_much_data),
        cmocka_unit_test(test_jpeg_of_all_kinds),  cmocka_unit_test(test_jpeg_is_turned),
        cmocka_unit_test(test_exif_that_is_odd),   cmocka_unit_test(test_hostile_jpegs),
        cmocka_unit_test(test_jpeg_of_many_scans), cmocka_unit_test(test_webp),
        cmocka_unit_test(test_hostile_webps),      cmocka_unit_test(test_the_interface),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif
