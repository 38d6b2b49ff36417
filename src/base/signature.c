/* signature.c: compares a file's first bytes with a table of kinds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/signature.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define UNPACK "unpack it and give the GGUF file in it"
#define FETCH                                                                                                \
    "download the file itself, not the page or address about it, with a token if its site asks for one"

/* A file's head. Invariant: n <= size. */
typedef struct head {
    const char *bytes;
    size_t n;
    uint64_t size;
} head;

static bool is_at(const head *h, size_t at, const char *bytes, size_t n)
{
    return h->n >= n && at <= h->n - n && memcmp(h->bytes + at, bytes, n) == 0;
}

/* ---- Kinds without a fixed beginning -------------------------------------------------------------- */

/* True if the text, behind a byte order mark and blanks, begins with the word, in letters of either case. */
static bool begins_with(const head *h, const char *word)
{
    static const char blanks[] = {' ', '\t', '\r', '\n'};
    size_t at = is_at(h, 0, "\xef\xbb\xbf", 3) ? 3 : 0, n = strlen(word);
    while (at < h->n && memchr(blanks, h->bytes[at], sizeof blanks) != NULL) at++;
    return h->n - at >= n && strncasecmp(h->bytes + at, word, n) == 0;
}

static bool is_html(const head *h)
{
    return begins_with(h, "<!doctype html") || begins_with(h, "<html") || begins_with(h, "<head");
}

static bool is_xml(const head *h)
{
    return begins_with(h, "<?xml");
}

static bool is_json(const head *h)
{
    return begins_with(h, "{") || begins_with(h, "[");
}

/* The length of a JSON header in 64 bits, little-endian, and the header. */
static bool is_safetensors(const head *h)
{
    uint64_t length = 0;
    if (h->n < 9 || h->bytes[8] != '{') return false;
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)h->bytes[i];
    return length >= 2 && length <= h->size - 8;
}

/* A zip archive whose first file is FOLDER/data.pkl. */
static bool is_torch(const head *h)
{
    static const char pickled[] = "/data.pkl";
    size_t length = sizeof pickled - 1;
    if (!is_at(h, 0, "PK\3\4", 4) || h->n < 30) return false;
    size_t n_name = (unsigned char)h->bytes[26] | (size_t)(unsigned char)h->bytes[27] << 8;
    return n_name > length && is_at(h, 30 + n_name - length, pickled, length);
}

/* The head of a Python pickle of version 2 to 5, which older PyTorch writes. */
static bool is_pickle(const head *h)
{
    return h->n >= 2 && h->bytes[0] == '\x80' && h->bytes[1] >= 2 && h->bytes[1] <= 5;
}

static bool is_zeroes(const head *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->bytes[i] != '\0') return false;
    return h->n >= 16;
}

/* ---- The table ------------------------------------------------------------------------------------ */

/* The first row that fits counts. */
static const struct {
    const char *bytes; /* [n] at `at`; NULL: `is` decides */
    size_t n, at;
    bool (*is)(const head *h);
    weir__signature signature;
} table[] = {
    {"version https://git-lfs.github.com/spec/",
     40,
     0,
     NULL,
     {"a Git LFS pointer, which stands for the file",
      "run `git lfs pull` in its repository, or download the file itself"}},
    {NULL, 0, 0, is_html, {"a web page (HTML), such as a login or error page", FETCH}},
    {NULL, 0, 0, is_xml, {"XML, such as the error answer of a storage service", FETCH}},
    {NULL, 0, 0, is_json, {"JSON, such as a config.json or the error answer of a server", FETCH}},
    {NULL, 0, 0, is_safetensors, {"a safetensors file", NULL}},
    {NULL, 0, 0, is_torch, {"a PyTorch checkpoint", NULL}},
    {NULL, 0, 0, is_pickle, {"a Python pickle, as in an old PyTorch checkpoint", NULL}},
    {"PK\3\4", 4, 0, NULL, {"a zip archive", UNPACK}},
    {"PK\5\6", 4, 0, NULL, {"an empty zip archive", FETCH}},
    {"\x1f\x8b", 2, 0, NULL, {"compressed with gzip", UNPACK}},
    {"\xfd"
     "7zXZ",
     6,
     0,
     NULL,
     {"compressed with xz", UNPACK}}, /* and its NUL */
    {"\x28\xb5\x2f\xfd", 4, 0, NULL, {"compressed with zstd", UNPACK}},
    {"BZh", 3, 0, NULL, {"compressed with bzip2", UNPACK}},
    {"7z\xbc\xaf\x27\x1c", 6, 0, NULL, {"a 7z archive", UNPACK}},
    {"ustar", 5, 257, NULL, {"a tar archive", UNPACK}},
    {"\x89HDF\r\n\x1a\n",
     8,
     0,
     NULL,
     {"an HDF5 file, as of Keras", "get the model as GGUF, or convert its original (safetensors)"}},
    /* 'ggml', 'ggmf', 'ggjt' and 'ggla' as little-endian words */
    {"lmgg", 4, 0, NULL, {"in llama.cpp's format before GGUF", "get a GGUF version of the model"}},
    {"fmgg", 4, 0, NULL, {"in llama.cpp's format before GGUF", "get a GGUF version of the model"}},
    {"tjgg", 4, 0, NULL, {"in llama.cpp's format before GGUF", "get a GGUF version of the model"}},
    {"algg", 4, 0, NULL, {"an adapter in llama.cpp's format before GGUF", "get a GGUF version of it"}},
    {"weirpack",
     8,
     0,
     NULL,
     {"a file that `weir optimize` wrote", "give the model itself, which finds that file"}},
    {NULL, 0, 0, is_zeroes, {"zeroes at its beginning", "its download or copy is not complete: continue it"}},
};

const weir__signature *weir__signature_find(const void *bytes, size_t n, uint64_t size)
{
    const head h = {bytes, n, size};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].bytes != NULL ? is_at(&h, table[i].at, table[i].bytes, table[i].n) : table[i].is(&h))
            return &table[i].signature;
    return NULL;
}
