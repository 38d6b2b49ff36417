/* SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_entries(void **state)
{
    static const char *const good[] = {
        "example.com", "*.example.com", "*",       "*:8080",      "127.0.0.1", "127.0.0.1:80",
        "[::1]",       "[::1]:65535",   "a-b.c_d", "localhost:1", "*.a:9",
    };
    static const char *const bad[] = {
        "",     ":",    ":80",  "http://a", "a/b", "a b", "a:",          "a:0", "a:65536",
        "a:+1", "a:1x", "[::1", "[::1]x",   "[]",  "[a]", "::1",         "*.",  ".a",
        "a.",   "*a",   "a*",   "**",       "a@b", "*.*", "[127.0.0.1]", "é",
    };
    char longest[400];
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        if (!serve_sources_check(good[i])) fail_msg("%s was refused", good[i]);
    for (size_t i = 0; i < COUNT(bad); i++)
        if (serve_sources_check(bad[i])) fail_msg("%s was taken", bad[i]);
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_false(serve_sources_check(longest));
}

static bool has(const char *entry, const char *host, uint16_t port)
{
    return serve_sources_have(&entry, 1, host, port, port == 443);
}

static void test_hosts(void **state)
{
    (void)state;
    assert_true(has("example.com", "example.com", 443));
    assert_true(has("EXAMPLE.com", "example.com", 443));
    assert_false(has("example.com", "example.com", 444));
    assert_false(has("example.com", "www.example.com", 443));
    assert_false(has("example.com", "example.com.evil.org", 443));
    assert_true(has("example.com:444", "example.com", 444));
    assert_false(has("example.com:444", "example.com", 443));
    assert_true(has("*.example.com", "a.b.example.com", 443));
    assert_false(has("*.example.com", "example.com", 443));
    assert_false(has("*.example.com", ".example.com", 443));
    assert_false(has("*.example.com", "notexample.com", 443));
    assert_false(has("*.1", "127.0.0.1", 443));
    assert_true(has("*", "anything", 443));
    assert_false(has("*", "anything", 22));
    assert_true(has("*:22", "anything", 22));
    assert_true(has("[2001:DB8::0:7]", "2001:db8::7", 443));
    assert_false(has("[::1]", "::2", 443));
    assert_false(has("[::1]", "1", 443));
    assert_false(serve_sources_have(NULL, 0, "example.com", 443, true));
}

static bool reaches(const char *entry, const char *address, uint16_t port)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    size_t n = entry != NULL;
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1)
        return serve_sources_reach(&entry, n, (const struct sockaddr *)(const void *)&four);
    assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
    return serve_sources_reach(&entry, n, (const struct sockaddr *)(const void *)&six);
}

/* Addresses at both ends of each special network, and their neighbours. */
static void test_addresses(void **state)
{
    static const char *const public[] = {
        "1.0.0.0",          "9.255.255.255",   "11.0.0.0",         "100.63.255.255", "100.128.0.0",
        "126.255.255.255",  "128.0.0.0",       "169.253.255.255",  "169.255.0.0",    "172.15.255.255",
        "172.32.0.0",       "191.255.255.255", "192.0.1.0",        "192.0.3.0",      "192.88.98.255",
        "192.88.100.0",     "192.167.255.255", "192.169.0.0",      "198.17.255.255", "198.20.0.0",
        "198.51.99.255",    "198.51.101.0",    "203.0.112.255",    "203.0.114.0",    "223.255.255.255",
        "2001:200::",       "2000::1",         "2001:db7:ffff::1", "2001:db9::",     "2001:ffff::",
        "2003::1",          "2606:4700::1",    "3ffe:ffff::",      "3fff:1000::",    "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
    };
    static const char *const special[] = {
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.0.0",
        "169.254.169.254",
        "169.254.255.255",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.255",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.255.255",
        "198.18.0.0",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::192.168.0.1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:1ff:ffff::",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1",
        "3fff:fff:ffff::",
        "4000::1",
        "fc00::1",
        "fdff:ffff::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
    };
    (void)state;
    for (size_t i = 0; i < COUNT(public); i++)
        if (!reaches(NULL, public[i], 443)) fail_msg("%s is public", public[i]);
    for (size_t i = 0; i < COUNT(special); i++)
        if (reaches(NULL, special[i], 443) || reaches("*", special[i], 443))
            fail_msg("%s is not public", special[i]);
    assert_true(reaches("127.0.0.1", "127.0.0.1", 80));
    assert_true(reaches("127.0.0.1", "127.0.0.1", 443));
    assert_false(reaches("127.0.0.1", "127.0.0.1", 8080));
    assert_false(reaches("127.0.0.1", "127.0.0.2", 80));
    assert_true(reaches("127.0.0.1:8080", "127.0.0.1", 8080));
    assert_false(reaches("127.0.0.1:8080", "127.0.0.1", 80));
    assert_true(reaches("[fe80::1]", "fe80::1", 443));
    assert_false(reaches("[fe80::1]", "fe80::2", 443));
    assert_false(reaches("localhost", "127.0.0.1", 443));
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    assert_false(serve_sources_reach(NULL, 0, (const struct sockaddr *)(const void *)&local));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
