/* pulled_test.c: threads that add names while the list is read, and the end of the server.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static cli_pulled pulled;

typedef struct client {
    const char *name;
    pthread_t thread;
    weir_status status;
    weir_error error;
} client;

static void *add(void *user)
{
    client *c = user;
    c->status = cli_pulled_add(&pulled, c->name, &c->error);
    return NULL;
}

/* Returns when the client waits; it is the n-th. */
static void begin(client *c, const char *name, uint64_t n)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    uint64_t n_asked = 0;
    *c = (client){.name = name};
    assert_int_equal(pthread_create(&c->thread, NULL, add, c), 0);
    while (n_asked < n) {
        nanosleep(&moment, NULL);
        pthread_mutex_lock(&pulled.mutex);
        n_asked = pulled.n_asked;
        pthread_mutex_unlock(&pulled.mutex);
    }
}

static weir_status end(client *c)
{
    pthread_join(c->thread, NULL);
    return c->status;
}

/* Reads a list of n names. */
static void read_list(size_t n, bool ok)
{
    uint64_t ticket;
    cli_list names = cli_pulled_begin(&pulled, &ticket);
    assert_int_equal(names.n, n);
    cli_pulled_end(&pulled, names.n, ticket, ok);
    cli_list_fini(&names);
}

static void test_a_name_is_listed_once(void **state)
{
    (void)state;
    client a, b;
    cli_pulled_init(&pulled);
    begin(&a, "a", 1);
    begin(&b, "a", 2);
    assert_true(cli_pulled_waits(&pulled));
    read_list(1, true);
    assert_int_equal(end(&a), WEIR_OK);
    assert_int_equal(end(&b), WEIR_OK);
    assert_false(cli_pulled_waits(&pulled));
    cli_pulled_fini(&pulled);
}

static void test_a_list_with_an_error_keeps_what_it_had(void **state)
{
    (void)state;
    client c;
    cli_pulled_init(&pulled);
    begin(&c, "a", 1);
    read_list(1, true);
    assert_int_equal(end(&c), WEIR_OK);
    begin(&c, "b", 2);
    read_list(2, false);
    assert_int_equal(end(&c), WEIR_STATE);
    assert_non_null(strstr(c.error.message, "b was downloaded, but the list of models has an error"));
    begin(&c, "a", 3);
    read_list(1, false);
    assert_int_equal(end(&c), WEIR_OK); /* it has been there */
    cli_pulled_fini(&pulled);
}

static void test_a_request_during_a_reading_gets_the_next_ones_answer(void **state)
{
    (void)state;
    client first, second;
    uint64_t ticket;
    cli_pulled_init(&pulled);
    begin(&first, "a", 1);
    cli_list names = cli_pulled_begin(&pulled, &ticket);
    begin(&second, "a", 2);
    cli_pulled_end(&pulled, names.n, ticket, false);
    cli_list_fini(&names);
    assert_int_equal(end(&first), WEIR_STATE);
    assert_true(cli_pulled_waits(&pulled));
    read_list(1, true);
    assert_int_equal(end(&second), WEIR_OK);
    cli_pulled_fini(&pulled);
}

static void test_the_server_ends(void **state)
{
    (void)state;
    client c;
    cli_pulled_init(&pulled);
    begin(&c, "a", 1);
    cli_pulled_stop(&pulled);
    assert_int_equal(end(&c), WEIR_STOPPED);
    cli_pulled_fini(&pulled);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_listed_once),
        cmocka_unit_test(test_a_list_with_an_error_keeps_what_it_had),
        cmocka_unit_test(test_a_request_during_a_reading_gets_the_next_ones_answer),
        cmocka_unit_test(test_the_server_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
