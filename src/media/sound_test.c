/* sound_test.c: sounds of each kind that are made here, and hostile ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media/sound.h"

#include "support/media.h"

#ifdef WEIR_MEDIA
#include <FLAC/stream_encoder.h>
#endif

/* ---- WAV ---- */

typedef struct wav {
    unsigned format, n_channels, rate, bits;
    uint32_t n_data; /* as the header says it; 0 = as it is */
} wav;

static void put_wav(file *f, wav head, const void *data, size_t n)
{
    unsigned frame = head.n_channels * head.bits / 8;
    put(f, "RIFF\0\0\0\0WAVEfmt ", 16);
    put_number(f, 16, 4, false);
    put_number(f, head.format, 2, false);
    put_number(f, head.n_channels, 2, false);
    put_number(f, head.rate, 4, false);
    put_number(f, (uint64_t)head.rate * frame, 4, false);
    put_number(f, frame, 2, false);
    put_number(f, head.bits, 2, false);
    put(f, "data", 4);
    put_number(f, head.n_data != 0 ? head.n_data : n, 4, false);
    put(f, data, n);
}

#define N_FRAMES 4000

/* The value of each sample, of which all formats are exact. */
static double value_at(size_t frame)
{
    return ((double)(frame * 37 % 256) - 128) / 128;
}

static void put_sample(file *f, unsigned format, unsigned bits, double value)
{
    if (format == 3 && bits == 32) {
        float sample = (float)value;
        put(f, &sample, sizeof sample);
    } else if (format == 3) {
        put(f, &value, sizeof value);
    } else {
        int64_t number = (int64_t)(value * (double)(INT64_C(1) << (bits - 1))) + (bits == 8 ? 128 : 0);
        put_number(f, (uint64_t)number, (int)bits / 8, false);
    }
}

static void assert_frames(const weir_media *media)
{
    weir_media_info info = describe(media);
    assert_int_equal(info.kind, WEIR_MEDIA_AUDIO);
    assert_int_equal(info.n_samples, N_FRAMES);
    assert_int_equal(info.sample_rate, 16000);
    assert_true(info.seconds == N_FRAMES / 16000.0);
    assert_true(info.pixels == NULL && info.width == 0);
    for (size_t i = 0; i < N_FRAMES; i++) assert_true((double)info.samples[i] == value_at(i));
}

static void test_wav_of_all_kinds(void **state)
{
    (void)state;
    static const unsigned kinds[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
    for (size_t k = 0; k < N_ELEMENTS(kinds); k++)
        for (unsigned n_channels = 1; n_channels <= 8; n_channels *= 2) {
            file data = {0}, f = {0};
            for (size_t i = 0; i < N_FRAMES; i++)
                for (unsigned c = 0; c < n_channels; c++)
                    put_sample(&data, kinds[k][0], kinds[k][1], value_at(i));
            put_wav(&f, (wav){kinds[k][0], n_channels, 16000, kinds[k][1], 0}, data.bytes, data.n);
            weir_media *media = read_media(&f, NULL);
            assert_string_equal(describe(media).format, "wav");
            assert_frames(media);
            weir_media_release(media);
            file_free(&data);
            file_free(&f);
        }
}

static void test_channels_are_mixed(void **state)
{
    (void)state;
    static float frames[3200][2];
    file f = {0};
    for (size_t i = 0; i < N_ELEMENTS(frames); i++) {
        frames[i][0] = 0.75f;
        frames[i][1] = -0.25f;
    }
    put_wav(&f, (wav){3, 2, 16000, 32, 0}, frames, sizeof frames);
    weir_media *media = read_media(&f, NULL);
    for (size_t i = 0; i < describe(media).n_samples; i++) assert_true(describe(media).samples[i] == 0.25f);
    weir_media_release(media);
    file_free(&f);
}

static void test_wav_is_resampled(void **state)
{
    (void)state;
    static float samples[44100];
    file f = {0};
    for (size_t i = 0; i < N_ELEMENTS(samples); i++)
        samples[i] = (float)(0.5 * sin(2 * 3.14159265358979 * 440 * (double)i / 44100));
    put_wav(&f, (wav){3, 1, 44100, 32, 0}, samples, sizeof samples);
    weir_media *media = read_media(&f, NULL);
    weir_media_info info = describe(media);
    assert_int_equal(info.n_samples, 16000);
    assert_true(info.seconds == 1);
    for (size_t i = 100; i < 15900; i++)
        assert_true(
            fabs((double)info.samples[i] - 0.5 * sin(2 * 3.14159265358979 * 440 * (double)i / 16000)) < 1e-4);
    weir_media_release(media);
    file_free(&f);
}

static void test_wav_with_other_chunks(void **state)
{
    (void)state;
    file data = {0}, plain = {0}, f = {0};
    for (size_t i = 0; i < N_FRAMES; i++) put_sample(&data, 1, 16, value_at(i));
    put_wav(&plain, (wav){1, 1, 16000, 16, 0}, data.bytes, data.n);
    weir_media *media = read_media(&plain, NULL);
    assert_frames(media);
    weir_media_release(media);
    put(&f, plain.bytes, 12);
    put(&f, "LIST\3\0\0\0abc\0", 12); /* an odd size and its padding */
    put(&f, "fmt ", 4);
    put_number(&f, 40, 4, false);
    put_number(&f, 0xfffe, 2, false); /* extensible, with the same in a longer form */
    put(&f, plain.bytes + 22, 14);
    put_number(&f, 22, 2, false);
    put_number(&f, 16, 2, false);
    put_number(&f, 4, 4, false);
    put(&f, "\1\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", 16);
    put(&f, plain.bytes + 36, plain.n - 36);
    media = read_media(&f, NULL);
    assert_frames(media);
    weir_media_release(media);
    refuse_beginnings(&plain, 12, 44);
    file_free(&data);
    file_free(&plain);
    file_free(&f);
}

/* Sizes that programs write to a pipe: sox, espeak-ng, ffmpeg; and one that is too large by a byte. */
static void test_wav_of_unknown_size(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0x7ffff000, 0x7fffefff, UINT32_MAX, 2 * N_FRAMES + 1};
    file data = {0};
    for (size_t i = 0; i < N_FRAMES; i++) put_sample(&data, 1, 16, value_at(i));
    for (size_t i = 0; i < N_ELEMENTS(sizes); i++) {
        file f = {0};
        put_wav(&f, (wav){1, 1, 16000, 16, sizes[i]}, data.bytes, data.n);
        weir_media *media = read_media(&f, NULL);
        assert_frames(media);
        weir_media_release(media);
        file_free(&f);
    }
    /* A file that was never closed: 0, and in the file's own header 0, 8 or what an empty sound has. */
    for (uint32_t whole = 0; whole < 3; whole++) {
        file f = {0};
        put_wav(&f, (wav){1, 1, 16000, 16, 0}, data.bytes, data.n);
        memset(f.bytes + 4, 0, 4);
        memset(f.bytes + 40, 0, 4);
        f.bytes[4] = (unsigned char)(whole == 0 ? 0 : whole == 1 ? 8 : 36);
        weir_media *media = read_media(&f, NULL);
        assert_frames(media);
        weir_media_release(media);
        f.bytes[4] = 38; /* an empty sound, and something behind it */
        refuse_media(&f, NULL, WEIR_UNSUPPORTED, "");
        file_free(&f);
    }
    file_free(&data);
}

static void refuse_wav(wav head, const void *data, size_t n, weir_status status, const char *field)
{
    file f = {0};
    put_wav(&f, head, data, n);
    refuse_media(&f, NULL, status, field);
    file_free(&f);
}

static void test_hostile_wavs(void **state)
{
    (void)state;
    static const unsigned char zeroes[64000];
    static float bad[16000];
    refuse_wav((wav){1, 1, 16000, 16, 0}, zeroes, 0, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 16000, 16, 0}, zeroes, 2, WEIR_UNSUPPORTED, "");    /* one sample */
    refuse_wav((wav){1, 1, 16000, 16, 0}, zeroes, 3198, WEIR_UNSUPPORTED, ""); /* less than 0.1 s */
    refuse_wav((wav){1, 1, 1, 16, 0}, zeroes, 2000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 0, 16, 0}, zeroes, 2000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 3999, 16, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 192001, 16, 0}, zeroes, 64000, WEIR_TOO_LONG, "max_sample_rate");
    refuse_wav((wav){1, 1, UINT32_MAX, 16, 0}, zeroes, 64000, WEIR_TOO_LONG, "max_sample_rate");
    refuse_wav((wav){1, 9, 16000, 16, 0}, zeroes, 64000, WEIR_TOO_LONG, "max_channels");
    refuse_wav((wav){1, 0, 16000, 16, 0}, zeroes, 64000, WEIR_FORMAT, "");
    refuse_wav((wav){1, 1, 16000, 12, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 16000, 64, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){1, 1, 16000, 0, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){3, 1, 16000, 16, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){7, 1, 16000, 8, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    refuse_wav((wav){0xfffe, 1, 16000, 16, 0}, zeroes, 64000, WEIR_UNSUPPORTED, "");
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < N_ELEMENTS(odd); i++) {
        bad[15999] = (float)odd[i];
        refuse_wav((wav){3, 1, 16000, 32, 0}, bad, sizeof bad, WEIR_FORMAT, "");
        refuse_wav((wav){3, 1, 44100, 32, 0}, bad, sizeof bad, WEIR_FORMAT, "");
        refuse_wav((wav){3, 2, 16000, 32, 0}, bad, sizeof bad, WEIR_FORMAT, "");
    }
    double large = 1e300; /* not finite as a float */
    static double doubles[1600];
    doubles[7] = large;
    refuse_wav((wav){3, 1, 16000, 64, 0}, doubles, sizeof doubles, WEIR_FORMAT, "");
}

static void test_samples_are_cut(void **state)
{
    (void)state;
    static float samples[1600];
    file f = {0};
    for (size_t i = 0; i < N_ELEMENTS(samples); i++) samples[i] = i % 2 == 0 ? 1e38f : -3.0f;
    put_wav(&f, (wav){3, 1, 16000, 32, 0}, samples, sizeof samples);
    weir_media *media = read_media(&f, NULL);
    for (size_t i = 0; i < N_ELEMENTS(samples); i++)
        assert_true(describe(media).samples[i] == (i % 2 == 0 ? 1.0f : -1.0f));
    weir_media_release(media);
    file_free(&f);
}

static void test_limits(void **state)
{
    (void)state;
    static unsigned char zeroes[64000];
    weir_media_params params = weir_media_params_default();
    file f = {0};
    put_wav(&f, (wav){1, 1, 16000, 16, 0}, zeroes, sizeof zeroes); /* 2 s */
    params.max_seconds = 1;
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_seconds");
    file longer = {0};
    weir_media *none = NULL;
    weir_error error = {0};
    put_wav(&longer, (wav){1, 1, 16000, 16, 0}, zeroes, 32002);
    assert_int_equal(create(longer.bytes, longer.n, &params, &none, &error), WEIR_TOO_LONG);
    assert_non_null(strstr(error.message, "at least 1.00006 s; allowed: 0.1 to 1"));
    file_free(&longer);
    params.max_seconds = 2;
    params.sample_rate = 8000;
    weir_media *media = read_media(&f, &params);
    assert_int_equal(describe(media).n_samples, 16000);
    assert_int_equal(describe(media).n_bytes, 64000);
    weir_media_release(media);
    params.max_bytes = f.n - 1;
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_bytes");
    params.max_bytes = 0;
    refuse_media(&f, &params, WEIR_INVALID, "max_bytes");
    damage(&f, 977);
    starve(&f);
    file_free(&f);
}

static void test_interrupt(void **state)
{
    (void)state;
    static unsigned char zeroes[64000];
    file f = {0};
    put_wav(&f, (wav){1, 1, 16000, 16, 0}, zeroes, sizeof zeroes);
    weir_interrupt_set(interrupted, NULL);
    refuse_media(&f, NULL, WEIR_ABORTED, "");
    weir_interrupt_set(NULL, NULL);
    file_free(&f);
}

#ifdef WEIR_MEDIA

/* ---- FLAC ---- */

static FLAC__StreamEncoderWriteStatus on_encoded(const FLAC__StreamEncoder *encoder, const FLAC__byte bytes[],
                                                 size_t n, uint32_t n_samples, uint32_t frame, void *user)
{
    (void)encoder, (void)n_samples, (void)frame;
    put(user, bytes, n);
    return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

static void put_flac(file *f, uint32_t n_channels, uint32_t rate, uint32_t bits, uint32_t n_frames)
{
    FLAC__StreamEncoder *encoder = FLAC__stream_encoder_new();
    assert_non_null(encoder);
    FLAC__stream_encoder_set_channels(encoder, n_channels);
    FLAC__stream_encoder_set_sample_rate(encoder, rate);
    FLAC__stream_encoder_set_bits_per_sample(encoder, bits);
    FLAC__stream_encoder_set_total_samples_estimate(encoder, n_frames);
    assert_int_equal(FLAC__stream_encoder_init_stream(encoder, on_encoded, NULL, NULL, NULL, f),
                     FLAC__STREAM_ENCODER_INIT_STATUS_OK);
    for (uint32_t i = 0; i < n_frames; i++) {
        FLAC__int32 frame[8];
        for (uint32_t c = 0; c < n_channels; c++)
            frame[c] = (FLAC__int32)(value_at(i) * (double)(1 << (bits - 1)));
        assert_true(FLAC__stream_encoder_process_interleaved(encoder, frame, 1));
    }
    assert_true(FLAC__stream_encoder_finish(encoder));
    FLAC__stream_encoder_delete(encoder);
}

static void test_flac(void **state)
{
    (void)state;
    static const uint32_t bits[] = {8, 16, 24};
    for (size_t k = 0; k < N_ELEMENTS(bits); k++)
        for (uint32_t n_channels = 1; n_channels <= 8; n_channels *= 2) {
            file f = {0};
            put_flac(&f, n_channels, 16000, bits[k], N_FRAMES);
            weir_media *media = read_media(&f, NULL);
            assert_string_equal(describe(media).format, "flac");
            assert_frames(media);
            weir_media_release(media);
            file_free(&f);
        }
}

/* Bytes 18 to 25 of the file: rate (20 bits), channels (3), bits (5), frames (36). */
static void set_flac_header(file *f, uint64_t rate, uint64_t n_frames)
{
    uint64_t head = rate << 44 | UINT64_C(15) << 36 | n_frames;
    for (int i = 0; i < 8; i++) f->bytes[18 + i] = (unsigned char)(head >> 8 * (7 - i));
}

static void test_hostile_flacs(void **state)
{
    (void)state;
    weir_media_params params = weir_media_params_default();
    file f = {0}, header = {0};
    put_flac(&f, 1, 16000, 16, N_FRAMES);
    put(&header, f.bytes, 42);
    header.bytes[4] |= 0x80; /* no other block of metadata */
    refuse_beginnings(&f, 12, f.n);
    set_flac_header(&header, 16000, (UINT64_C(1) << 36) - 1);
    refuse_media(&header, NULL, WEIR_UNSUPPORTED, ""); /* it has no frames */
    set_flac_header(&header, 16000, 16000 * 1000);
    refuse_media(&header, NULL, WEIR_FORMAT, "");
    set_flac_header(&header, 16000, 0); /* unknown */
    refuse_media(&header, NULL, WEIR_UNSUPPORTED, "");
    set_flac_header(&header, 1, 100000);
    refuse_media(&header, NULL, WEIR_UNSUPPORTED, "");
    set_flac_header(&header, 655350, 100000);
    refuse_media(&header, NULL, WEIR_TOO_LONG, "max_sample_rate");
    damage(&f, 1);
    starve(&f);
    set_flac_header(&f, 16000,
                    0x7fffefff / 2); /* too large to be true: the length is found while it is read */
    weir_media_release(read_media(&f, NULL));
    set_flac_header(&f, 16000, 0);
    params.max_seconds = 1;
    weir_media_release(read_media(&f, &params));
    file_free(&f);
    put_flac(&f, 1, 16000, 16, 16001);
    set_flac_header(&f, 16000, 0);
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_seconds");
    set_flac_header(&f, 22050, 16001); /* another rate than the frames' */
    refuse_media(&f, NULL, WEIR_FORMAT, "");
    file_free(&header);
    file_free(&f);
}

/* ---- MP3 ---- */

/* Frames of silence: MPEG 1, layer III, 32 kbit/s, 32 kHz, one channel. 144 bytes are 1152 samples. */
static void put_mp3(file *f, size_t n_frames)
{
    for (size_t i = 0; i < n_frames; i++) {
        static const unsigned char rest[140];
        put(f, "\xff\xfb\x18\xc4", 4);
        put(f, rest, sizeof rest);
    }
}

static void test_mp3_of_silence(void **state)
{
    (void)state;
    file f = {0}, tagged = {0};
    put_mp3(&f, 20);
    put(&tagged, "ID3\4\0\0\0\0\2\x08", 10);
    for (int i = 0; i < 264; i++) put(&tagged, "\xff", 1);
    put(&tagged, f.bytes, f.n);
    put(&tagged, "TAG", 3);
    for (int i = 0; i < 125; i++) put(&tagged, "", 1);
    for (int i = 0; i < 5000; i++) put(&tagged, &"APETAGEX"[i % 8], 1);
    file *files[] = {&f, &tagged};
    for (size_t i = 0; i < 2; i++) {
        weir_media *media = read_media(files[i], NULL);
        weir_media_info info = describe(media);
        assert_string_equal(info.format, "mp3");
        assert_int_equal(info.n_samples, 20 * 1152 / 2);
        assert_true(info.seconds == 20 * 1152 / 32000.0);
        for (size_t k = 0; k < info.n_samples; k++) assert_true(info.samples[k] == 0);
        weir_media_release(media);
    }
    file_free(&f);
    file_free(&tagged);
}

static void test_hostile_mp3s(void **state)
{
    (void)state;
    weir_media_params params = weir_media_params_default();
    file f = {0}, tag = {0};
    put(&tag, "ID3\4\0\0\x7f\x7f\x7f\x7f", 10); /* 256 MiB that are not there */
    put(&tag, "\0\0\0\0", 4);
    refuse_media(&tag, NULL, WEIR_FORMAT, "");
    put_mp3(&f, 40);
    refuse_beginnings(&f, 4, 144 + 8); /* less than 0.1 s */
    params.max_seconds = 1;
    refuse_media(&f, &params, WEIR_TOO_LONG, "max_seconds");
    damage(&f, 9);
    starve(&f);
    f.bytes[144 * 20 + 2] = 0x10; /* 44.1 kHz from here on, with shorter frames */
    weir_media *media = NULL;
    weir_status status = weir_media_create(f.bytes, f.n, NULL, &media, NULL);
    assert_true(status == WEIR_OK || status == WEIR_UNSUPPORTED || status == WEIR_FORMAT);
    weir_media_release(media);
    file_free(&f);
    file_free(&tag);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wav_of_all_kinds),
        cmocka_unit_test(test_channels_are_mixed),
        cmocka_unit_test(test_wav_is_resampled),
        cmocka_unit_test(test_wav_with_other_chunks),
        cmocka_unit_test(test_wav_of_unknown_size),
        cmocka_unit_test(test_hostile_wavs),
        cmocka_unit_test(test_samples_are_cut),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_interrupt),
#ifdef WEIR_MEDIA
        cmocka_unit_test(test_flac),
        cmocka_unit_test(test_hostile_flacs),
        cmocka_unit_test(test_mp3_of_silence),
        cmocka_unit_test(test_hostile_mp3s),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
