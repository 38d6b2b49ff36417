/* quantize_test.c: types of weights, and errors of a quantization.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <weir/more.h>

static void test_types(void **state)
{
    (void)state;
    size_t n = 0;
    bool found = false;
    weir_quantize_params params = weir_quantize_params_default();
    for (const char *type; (type = weir_quantize_type(n)) != NULL; n++)
        found = found || strcmp(type, params.type) == 0;
    assert_true(n > 10);
    assert_true(found);
    assert_null(weir_quantize_type(n + 1));
    assert_null(weir_quantize_type(SIZE_MAX));
}

static void refused(const char *path, const char *out, const weir_quantize_params *params, weir_status status,
                    const char *field)
{
    weir_error error = {0};
    assert_int_equal(weir_model_quantize(path, out, params, &error), status);
    assert_int_equal(error.code, status);
    assert_string_equal(error.field, field);
    assert_true(strlen(error.message) > 10);
}

static void test_errors(void **state)
{
    (void)state;
    weir_quantize_params params = weir_quantize_params_default();
    refused(NULL, "out.gguf", NULL, WEIR_INVALID, "path");
    refused("", "out.gguf", NULL, WEIR_INVALID, "path");
    refused("fake:", NULL, NULL, WEIR_INVALID, "out");
    refused("fake:", "", NULL, WEIR_INVALID, "out");
    refused("fake:", ".", NULL, WEIR_INVALID, "out"); /* as /dev/null, which a new file would replace */
    refused("fake:", "out.gguf", NULL, WEIR_UNSUPPORTED, "");
    params.type = "Q4";
    refused("fake:", "out.gguf", &params, WEIR_INVALID, "type");
    params.type = "q4_k_m";
    refused("fake:", "out.gguf", &params, WEIR_UNSUPPORTED, "");
    params.n_threads = 513;
    refused("fake:", "out.gguf", &params, WEIR_INVALID, "n_threads");
    params.n_threads = -1;
    refused("fake:", "out.gguf", &params, WEIR_INVALID, "n_threads");
    params.size = 0;
    refused("fake:", "out.gguf", &params, WEIR_INVALID, "params");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
