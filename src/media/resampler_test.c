/* resampler_test.c: tones that both rates can carry stay, others are gone, and pieces make no difference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "media/resampler.h"

#include "support/media.h"

#define PI 3.14159265358979323846

/* Resamples `seconds` of a sine in pieces of `piece` samples; returns the number of results. */
static size_t resample(int32_t from, int32_t to, double hertz, double seconds, size_t piece, float **results)
{
    weir__resampler r;
    size_t n = (size_t)(from * seconds), n_results = 0;
    assert_true(weir__resampler_init(&r, from, to));
    float *samples = malloc(n * sizeof *samples);
    *results =
        malloc((size_t)(to * seconds + 2) * sizeof **results + weir__resampler_room(&r) * sizeof **results);
    assert_non_null(samples);
    assert_non_null(*results);
    for (size_t i = 0; i < n; i++) samples[i] = (float)cos(2 * PI * hertz * (double)i / from);
    for (size_t at = 0; at < n; at += piece) {
        size_t now = n - at < piece ? n - at : piece;
        size_t got = weir__resampler_push(&r, samples + at, now, *results + n_results);
        assert_true(got <= weir__resampler_room(&r));
        n_results += got;
    }
    n_results += weir__resampler_end(&r, *results + n_results);
    weir__resampler_fini(&r);
    free(samples);
    return n_results;
}

/* The largest difference from `amplitude` times the sine, away from both ends. */
static double difference(int32_t from, int32_t to, double hertz, double amplitude)
{
    float *results;
    double largest = 0;
    size_t n = resample(from, to, hertz, 0.5, 1000, &results);
    for (size_t i = (size_t)to / 10; i < n - (size_t)to / 10; i++) {
        double expected = amplitude * cos(2 * PI * hertz * (double)i / to);
        largest = fmax(largest, fabs((double)results[i] - expected));
    }
    free(results);
    return largest;
}

static const int32_t rates[] = {4000, 8000, 11025, 16000, 22050, 44100, 44101, 48000, 96000, 192000};

static void test_tones_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(rates); i++)
        for (size_t j = 0; j < N_ELEMENTS(rates); j++) {
            double nyquist = (rates[i] < rates[j] ? rates[i] : rates[j]) / 2.0;
            if (rates[i] > 40 * rates[j]) continue;
            for (double part = 0; part < 0.84; part += 0.21) {
                double wrong = difference(rates[i], rates[j], part * nyquist, 1);
                if (wrong > 3e-4) fail_msg("%d to %d, %g Hz: %g", rates[i], rates[j], part * nyquist, wrong);
            }
        }
}

/* Frequencies that the lower rate cannot hold are gone, and do not come back as another tone. */
static void test_tones_above_are_gone(void **state)
{
    (void)state;
    static const double tones[] = {8000, 8500, 10000, 15000, 20000};
    for (size_t i = 0; i < N_ELEMENTS(tones); i++) {
        double left = difference(44100, 16000, tones[i], 0);
        if (left > 3e-4) fail_msg("%g Hz: %g", tones[i], left);
    }
}

static void test_lengths(void **state)
{
    (void)state;
    float *results;
    for (size_t i = 0; i < N_ELEMENTS(rates); i++) {
        uint64_t n = (uint64_t)(rates[i] * 0.3),
                 expected = (n * 16000 + (uint64_t)rates[i] - 1) / (uint64_t)rates[i];
        assert_int_equal(resample(rates[i], 16000, 100, 0.3, 777, &results), expected);
        free(results);
    }
}

static void test_pieces_make_no_difference(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 7, 160, 4095, WEIR__RESAMPLER_BLOCK};
    float *whole, *cut;
    size_t n = resample(44100, 16000, 440, 0.2, 441, &whole);
    for (size_t i = 0; i < N_ELEMENTS(pieces); i++) {
        assert_int_equal(resample(44100, 16000, 440, 0.2, pieces[i], &cut), n);
        assert_memory_equal(cut, whole, n * sizeof *whole);
        free(cut);
    }
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tones_stay),
        cmocka_unit_test(test_tones_above_are_gone),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_pieces_make_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
