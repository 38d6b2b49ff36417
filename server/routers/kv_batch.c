/* kv_batch.c: changes of a prefix cache as MessagePack, as vLLM publishes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kv_batch.h"

#include <string.h>

/* ---- MessagePack (github.com/msgpack/msgpack/blob/master/spec.md), as far as it is needed ---- */

static void put_big_endian(weir__text *out, unsigned char type, uint64_t value, size_t n)
{
    char bytes[9] = {(char)type};
    for (size_t i = 0; i < n; i++) bytes[1 + i] = (char)(value >> 8 * (n - 1 - i));
    weir__text_add(out, bytes, 1 + n);
}

static void put_nil(weir__text *out)
{
    weir__text_add(out, "\xc0", 1);
}

static void put_uint(weir__text *out, uint64_t value)
{
    if (value < 0x80)
        put_big_endian(out, (unsigned char)value, 0, 0);
    else if (value <= UINT32_MAX)
        put_big_endian(out, 0xce, value, 4);
    else
        put_big_endian(out, 0xcf, value, 8);
}

static void put_double(weir__text *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_big_endian(out, 0xcb, bits, 8);
}

static void put_array(weir__text *out, size_t n)
{
    if (n < 16)
        put_big_endian(out, (unsigned char)(0x90 | n), 0, 0);
    else
        put_big_endian(out, 0xdd, n, 4);
}

/* Puts a string of at most 31 bytes. */
static void put_string(weir__text *out, const char *string)
{
    size_t n = strlen(string);
    put_big_endian(out, (unsigned char)(0xa0 | n), 0, 0);
    weir__text_add(out, string, n);
}

/* ---- Events ---- */

static void put_medium(weir__text *out, weir_cache_memory memory)
{
    static const char *const names[] = {"GPU", "CPU", "disk"};
    put_string(out, names[memory]);
}

/* The number of the n changes that make one event with the first. */
static size_t run_of(const weir_cache_change *changes, size_t n)
{
    size_t i = 1;
    while (i < n && changes[i].stored == changes[0].stored && changes[i].memory == changes[0].memory &&
           (!changes[0].stored || changes[i].parent == changes[i - 1].id))
        i++;
    return i;
}

static void put_ids(weir__text *out, const weir_cache_change *changes, size_t n)
{
    put_array(out, n);
    for (size_t i = 0; i < n; i++) put_uint(out, changes[i].id);
}

static void put_event(weir__text *out, const weir_cache_change *changes, const int32_t *tokens, size_t n,
                      int32_t size)
{
    if (!changes[0].stored) {
        put_array(out, 3);
        put_string(out, "BlockRemoved");
        put_ids(out, changes, n);
        put_medium(out, changes[0].memory);
        return;
    }
    put_array(out, 7); /* the type, ids, parent, tokens, tokens of a block, adapter, medium */
    put_string(out, "BlockStored");
    put_ids(out, changes, n);
    if (changes[0].parent != 0)
        put_uint(out, changes[0].parent);
    else
        put_nil(out);
    put_array(out, n * (size_t)size);
    for (size_t i = 0; i < n * (size_t)size; i++) put_uint(out, (uint64_t)tokens[i]);
    put_uint(out, (uint64_t)size);
    put_nil(out);
    put_medium(out, changes[0].memory);
}

void serve_kv_batch_write(weir__text *out, double time, const weir_cache_change *changes,
                          const int32_t *tokens, size_t n, int32_t size)
{
    size_t n_events = 0;
    for (size_t i = 0; i < n; i += run_of(changes + i, n - i)) n_events++;
    put_array(out, 3);
    put_double(out, time);
    put_array(out, n_events);
    for (size_t i = 0, run; i < n; i += run) {
        run = run_of(changes + i, n - i);
        put_event(out, changes + i, tokens + i * (size_t)size, run, size);
    }
    put_nil(out);
}

void serve_kv_batch_clear(weir__text *out, double time)
{
    put_array(out, 3);
    put_double(out, time);
    put_array(out, 1);
    put_array(out, 1);
    put_string(out, "AllBlocksCleared");
    put_nil(out);
}
