/* secret.c: ids and keys that nobody can guess. SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/hash.h"

bool serve_secret_make(char *hex, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[256];
    hex[0] = '\0';
    if (getentropy(random, n / 2) != 0) return false;
    for (size_t i = 0; i < n; i++) hex[i] = digits[random[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    hex[n] = '\0';
    return true;
}

bool serve_secret_is(const char *a, const char *b, size_t capacity)
{
    unsigned char difference = 0;
    for (size_t i = 0; i < capacity; i++) difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

void serve_secret_of_key(const char *key, size_t n, char hex[65])
{
    weir__sha256 state;
    weir__sha256_init(&state);
    weir__sha256_feed(&state, "weir key ", 9);
    weir__sha256_feed(&state, key, n);
    weir__sha256_hex(&state, hex);
}
