/* worker_test.c: errors of a worker before it listens; tests/rpc_test.py has the rest.
 * SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <weir/more.h>

static void refused(const weir_rpc_params *params, const char *field)
{
    weir_error error = {0};
    assert_int_equal(weir_rpc_run(params, &error), WEIR_INVALID);
    assert_string_equal(error.field, field);
    assert_true(error.message[0] != '\0');
}

static void addresses_that_are_none_are_refused(void **state)
{
    static const char *const none[] = {
        "",           "127.0.0.1",    "127.0.0.1:",  "127.0.0.1:0", "127.0.0.1:65536",
        "1:2:3",      ":50052",       "localhost:1", "127.1:50052", "127.0.0.1:1x",
        "[::1]:5000", "127.0.0.1:-1", "127.0.0.1: 1"};
    (void)state;
    weir_rpc_params params = weir_rpc_params_default();
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        params.listen = none[i];
        refused(&params, "listen");
    }
    params.listen = NULL;
    refused(&params, "listen");
}

/* The first and last address of each private range stand beside their neighbours. A device that does not
 * exist, or an address that the machine lacks, ends the run of those that may listen. */
static void only_private_addresses_are_listened_on(void **state)
{
    static const char *const allowed[] = {"127.0.0.0",   "127.255.255.255", "10.0.0.0",    "10.255.255.255",
                                          "172.16.0.0",  "172.31.255.255",  "192.168.0.0", "192.168.255.255",
                                          "169.254.0.0", "169.254.255.255"};
    static const char *const others[] = {"126.255.255.255", "128.0.0.0",      "9.255.255.255",
                                         "11.0.0.0",        "172.15.255.255", "172.32.0.0",
                                         "192.167.255.255", "192.169.0.0",    "169.253.255.255",
                                         "169.255.0.0",     "0.0.0.0",        "255.255.255.255"};
    char listen[32];
    weir_error error;
    (void)state;
    weir_rpc_params params = weir_rpc_params_default();
    params.listen = listen;
    params.devices = "no such device";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(listen, sizeof listen, "%s:50052", others[i]);
        params.insecure = false;
        refused(&params, "listen");
        params.insecure = true;
        assert_int_not_equal(weir_rpc_run(&params, &error), WEIR_OK);
        assert_null(strstr(error.message, "neither"));
    }
    params.insecure = false;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        snprintf(listen, sizeof listen, "%s:50052", allowed[i]);
        assert_int_not_equal(weir_rpc_run(&params, &error), WEIR_OK);
        assert_null(strstr(error.message, "neither"));
    }
}

static void parameters_have_ranges(void **state)
{
    (void)state;
    weir_rpc_params params;
    memset(&params, 1, sizeof params);
    weir_rpc_params_init(&params, sizeof params);
    assert_string_equal(params.listen, "127.0.0.1:50052");
    assert_false(params.insecure);
    params.n_threads = 513;
    refused(&params, "n_threads");
    params.n_threads = -1;
    refused(&params, "n_threads");
}

static void a_model_without_workers_loses_none(void **state)
{
    weir_model *model;
    (void)state;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_model_check(model, NULL), WEIR_OK);
    weir_model_release(model);
    assert_int_equal(weir_model_check(NULL, NULL), WEIR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_are_none_are_refused),
        cmocka_unit_test(only_private_addresses_are_listened_on),
        cmocka_unit_test(parameters_have_ranges),
        cmocka_unit_test(a_model_without_workers_loses_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
