/* name.c: names at the hub, taken apart and matched with a repository's files, which the hub's JSON
 * lists.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A name is checked character by character before any part of it becomes a path or an address. A name without
 * a file selects one by its quantization: a file fits if its name, or its folder's, ends in the word, and the
 * shortest name wins. A name without a quantization tries a list of them in order. */
#include "name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/signature.h"

#define SUFFIX ".gguf"

/* Quantizations in the order in which they are tried where a name asks for none: small enough for most
 * machines without much loss, then its neighbours, then larger types, then those that lose more. */
static const char *const preferred_types[] = {
    "Q4_K_M", "Q4_K_S", "Q4_0",   "Q4_1",   "IQ4_NL", "IQ4_XS", "Q5_K_M", "Q5_K_S", "Q5_0", "Q6_K", "Q8_0",
    "MXFP4",  "Q3_K_L", "Q3_K_M", "Q3_K_S", "BF16",   "F16",    "F32",    "IQ3_M",  "Q2_K", NULL,
};

/* ---- Characters ---- */

static bool is_word(const char *text, size_t n)
{
    if (n == 0 || n > 96 || text[0] == '.' || text[0] == '-' || text[n - 1] == '.') return false;
    for (size_t i = 0; i < n; i++) {
        if (!weir__ascii_is_alnum(text[i]) && strchr("._-", text[i]) == NULL) return false;
        /* The cache writes "--" for the slash. */
        if (i > 0 && text[i] == text[i - 1] && strchr(".-", text[i]) != NULL) return false;
    }
    return true;
}

bool weir__name_is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!weir__ascii_is_digit(text[i]) && !(text[i] >= 'a' && text[i] <= 'f')) return false;
    return text[n] == '\0';
}

bool weir__name_is_commit(const char *text)
{
    return weir__name_is_hex(text, 40);
}

bool weir__name_is_safe(const char *path)
{
    size_t part = 0;
    if (strlen(path) >= WEIR__NAME_FILE_MAX) return false;
    for (const char *c = path;; c++) {
        if (*c == '/' || *c == '\0') {
            if (part == 0 || part > 200) return false;
            if (*c == '\0') return true;
            part = 0;
        } else {
            if ((unsigned char)*c < ' ' || *c == 127 || *c == '\\' || (part == 0 && *c == '.')) return false;
            part++;
        }
    }
}

bool weir__name_is_revision(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (!weir__ascii_is_alnum(*c) && strchr("._-/", *c) == NULL) return false;
    return weir__name_is_safe(text);
}

/* ---- hf:OWNER/REPO ---- */

weir_status weir__name_parse(const char *text, weir__name *name, weir_error *error)
{
    static const char form[] =
        "expected: hf:OWNER/REPO, hf:OWNER/REPO:QUANTIZATION or hf:OWNER/REPO:FILE.gguf";
    if (text == NULL) return weir__invalid(error, WEIR_ERROR_MISSING, "name", "`name` is NULL; %s", form);
    if (strncmp(text, "hf:", 3) != 0)
        return weir__invalid(error, WEIR_ERROR_FORM, "name",
                             "%.150s is not the name of a model on the hub; %s", text, form);
    const char *repo = text + 3;
    size_t n_repo = strcspn(repo, ":"), n_owner = strcspn(repo, "/:");
    const char *what = repo[n_repo] == ':' ? repo + n_repo + 1 : "";
    if (repo[n_owner] != '/' || !is_word(repo, n_owner) || !is_word(repo + n_owner + 1, n_repo - n_owner - 1))
        return weir__invalid(
            error, WEIR_ERROR_FORM, "name",
            "%.150s names no repository: owner and name have letters, digits, '.', '_' and '-'; %s", text,
            form);
    if (repo[n_repo] == ':' && !weir__name_is_safe(what))
        return weir__invalid(
            error, WEIR_ERROR_FORM, "name",
            "the part after the colon in %.150s is neither a quantization nor a file's name; %s", text, form);
    snprintf(name->repo, sizeof name->repo, "%.*s", (int)n_repo, repo);
    snprintf(name->what, sizeof name->what, "%s", what);
    return WEIR_OK;
}

/* ---- Files ---- */

void weir__name_files_fini(weir__name_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        weir__mem_free(files->items[i].repo);
        weir__mem_free(files->items[i].name);
        weir__mem_free(files->items[i].path);
        weir__mem_free(files->items[i].blob);
    }
    weir__mem_free(files->items);
    *files = (weir__name_files){0};
}

weir__name_file *weir__name_files_add(weir__name_files *files, const char *repo, const char *name)
{
    weir__name_file file = {.repo = weir__mem_strdup(repo), .name = weir__mem_strdup(name)};
    if (file.repo == NULL || file.name == NULL ||
        !weir__mem_grow(&files->items, &files->capacity, files->n + 1, sizeof *files->items)) {
        weir__mem_free(file.repo);
        weir__mem_free(file.name);
        return NULL;
    }
    files->items[files->n] = file;
    return &files->items[files->n++];
}

static int by_name(const void *a, const void *b)
{
    const weir__name_file *x = a, *y = b;
    int order = strcmp(x->repo, y->repo);
    return order != 0 ? order : strcmp(x->name, y->name);
}

void weir__name_files_sort(weir__name_files *files)
{
    if (files->n > 0) qsort(files->items, files->n, sizeof *files->items, by_name);
}

static bool ends_in_gguf(const char *file)
{
    size_t n = strlen(file), n_suffix = sizeof SUFFIX - 1;
    return n > n_suffix && strcasecmp(file + n - n_suffix, SUFFIX) == 0;
}

static const char *last_part(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash != NULL ? slash + 1 : file;
}

static bool contains_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text != '\0'; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

bool weir__name_is_model(const char *file)
{
    const char *base = last_part(file);
    return ends_in_gguf(file) && strncasecmp(base, "mmproj", 6) != 0 && !contains_word(base, "imatrix");
}

/* Bytes of the name before "-00001-of-00003.gguf", or before ".gguf". */
static size_t stem_length(const char *file, int32_t *shard, int32_t *n_shards)
{
    size_t n = strlen(file) - (ends_in_gguf(file) ? sizeof SUFFIX - 1 : 0);
    enum { TAIL = 15 }; /* -00001-of-00003 */
    *shard = *n_shards = 1;
    if (n <= TAIL) return n;
    const char *tail = file + n - TAIL;
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4) != 0) return n;
    int32_t i = 0, of = 0;
    for (int k = 0; k < 5; k++) {
        if (!weir__ascii_is_digit(tail[1 + k]) || !weir__ascii_is_digit(tail[10 + k])) return n;
        i = i * 10 + (tail[1 + k] - '0');
        of = of * 10 + (tail[10 + k] - '0');
    }
    if (i < 1 || i > of) return n;
    *shard = i;
    *n_shards = of;
    return n - TAIL;
}

void weir__name_shard(const char *file, int32_t *shard, int32_t *n_shards)
{
    stem_length(file, shard, n_shards);
}

/* Q4_K_M, IQ3_XXS, TQ1_0, MXFP4, BF16 … */
static bool is_quantization(const char *text, size_t n)
{
    static const char *const begins[] = {"Q", "IQ", "TQ", "F", "BF", "FP", "MXFP", "NVFP"};
    if (n < 2 || n > 15) return false;
    size_t letters = 0;
    while (letters < n && weir__ascii_is_letter(text[letters])) letters++;
    bool known = false;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        known = known || (strlen(begins[i]) == letters && strncasecmp(text, begins[i], letters) == 0);
    if (!known || letters == n || !weir__ascii_is_digit(text[letters])) return false;
    for (size_t i = 0; i < n; i++)
        if (!weir__ascii_is_alnum(text[i]) && text[i] != '_') return false;
    return true;
}

void weir__name_quantization(const char *file, char quantization[16])
{
    int32_t shard, n_shards;
    size_t end = stem_length(file, &shard, &n_shards);
    quantization[0] = '\0';
    /* The last word that is one: of the name, then of the folders before it. */
    while (end > 0) {
        size_t begin = end;
        while (begin > 0 && strchr("-./", file[begin - 1]) == NULL) begin--;
        if (is_quantization(file + begin, end - begin)) {
            for (size_t i = 0; i < end - begin; i++) quantization[i] = weir__ascii_upper(file[begin + i]);
            quantization[end - begin] = '\0';
            return;
        }
        end = begin > 0 ? begin - 1 : 0;
    }
}

/* ---- Which ---- */

/* True if a file's name, or its folder's, ends in these words: "UD-Q4_K_XL" as well as "Q4_K_XL". */
static bool ends_in(const char *file, const char *what)
{
    int32_t shard, n_shards;
    size_t n = stem_length(file, &shard, &n_shards), n_what = strlen(what);
    for (;;) {
        if (n >= n_what && strncasecmp(file + n - n_what, what, n_what) == 0 &&
            (n == n_what || strchr("-._/", file[n - n_what - 1]) != NULL))
            return true;
        while (n > 0 && file[n - 1] != '/') n--;
        if (n == 0) return false;
        n--; /* the slash */
    }
}

/* The shortest name wins: the plain one of Q4_K_M and UD-Q4_K_M. */
static bool find_file(const weir__name_files *files, const char *what, size_t *chosen)
{
    bool found = false;
    for (size_t i = 0; i < files->n; i++) {
        int32_t shard, n_shards;
        const char *name = files->items[i].name;
        weir__name_shard(name, &shard, &n_shards);
        if (shard != 1 || !weir__name_is_model(name) || (what != NULL && !ends_in(name, what))) continue;
        if (!found || strlen(name) < strlen(files->items[*chosen].name)) *chosen = i;
        found = true;
    }
    return found;
}

weir_status weir__name_choose(const weir__name *name, const weir__name_files *files, size_t *chosen,
                              weir_error *error)
{
    if (ends_in_gguf(name->what)) {
        for (size_t i = 0; i < files->n; i++)
            if (strcmp(files->items[i].name, name->what) == 0) {
                *chosen = i;
                return WEIR_OK;
            }
    } else if (name->what[0] != '\0') {
        if (find_file(files, name->what, chosen)) return WEIR_OK;
    } else {
        for (size_t i = 0; preferred_types[i] != NULL; i++)
            if (find_file(files, preferred_types[i], chosen)) return WEIR_OK;
        if (find_file(files, NULL, chosen)) return WEIR_OK;
    }
    char known[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < files->n && length < sizeof known - 1; i++) {
        int32_t shard, n_shards;
        char quantization[16];
        const char *file = files->items[i].name;
        weir__name_shard(file, &shard, &n_shards);
        if (shard != 1 || !weir__name_is_model(file)) continue;
        weir__name_quantization(file, quantization);
        int n = snprintf(known + length, sizeof known - length, "%s%.100s", length > 0 ? ", " : "",
                         quantization[0] != '\0' ? quantization : file);
        length += n > 0 ? (size_t)n : 0;
    }
    if (known[0] == '\0')
        return weir__error_set(error, WEIR_NOT_FOUND, "name",
                               "%s has no GGUF file; look for a repository whose name ends in GGUF",
                               name->repo);
    return weir__error_set(error, WEIR_NOT_FOUND, "name", "%s has no %.100s; it has: %s", name->repo,
                           name->what, known);
}

const weir__name_file *weir__name_shard_of(const weir__name_files *files, size_t first, int32_t shard)
{
    char name[WEIR__NAME_FILE_MAX];
    int32_t i, n_shards;
    const weir__name_file *file = &files->items[first];
    if (shard == 1) return file;
    size_t n = stem_length(file->name, &i, &n_shards);
    snprintf(name, sizeof name, "%.*s-%05d-of-%05d%s", (int)n, file->name, (int)shard, (int)n_shards,
             file->name + strlen(file->name) - (sizeof SUFFIX - 1));
    for (size_t k = 0; k < files->n; k++)
        if (strcmp(files->items[k].name, name) == 0 && strcmp(files->items[k].repo, file->repo) == 0)
            return &files->items[k];
    return NULL;
}

/* ---- The hub's list ---- */

/* A size in bytes; false: it is none. 2^62 keeps sums of a few files from overflowing. */
static bool read_size(const json_t *value, uint64_t *n)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > (json_int_t)1 << 62)
        return false;
    *n = (uint64_t)json_integer_value(value);
    return true;
}

/* One file. Files that are no models, or whose names are not safe, are passed over. */
static weir_status read_file(const char *repo, const json_t *entry, weir__name_files *files,
                             weir_error *error)
{
    const char *name = json_string_value(json_object_get(entry, "rfilename"));
    const char *blob = json_string_value(json_object_get(entry, "blobId"));
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const json_t *size = json_object_get(lfs, "size");
    uint64_t n_bytes;
    if (name == NULL || !weir__name_is_safe(name) || !weir__name_is_model(name)) return WEIR_OK;
    if (sha256 != NULL) blob = sha256;
    if (!read_size(size != NULL ? size : json_object_get(entry, "size"), &n_bytes) || blob == NULL ||
        !weir__name_is_hex(blob, sha256 != NULL ? 64 : 40))
        return weir__error_set(error, WEIR_FORMAT, "name",
                               "the hub reports no size or no checksum for %s's file %.150s; is the endpoint "
                               "a hub?",
                               repo, name);
    weir__name_file *file = weir__name_files_add(files, repo, name);
    if (file == NULL || (file->blob = weir__mem_strdup(blob)) == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, "name", "out of memory for the files of %s", repo);
    file->n_bytes = n_bytes;
    if (sha256 != NULL) memcpy(file->sha256, sha256, sizeof file->sha256);
    return WEIR_OK;
}

weir_status weir__list_read(const char *repo, const char *json, size_t length, weir__name_files *files,
                            weir_error *error)
{
    json_t *root = NULL;
    size_t i;
    json_t *entry;
    *files = (weir__name_files){0};
    weir_status status = weir__json_parse(json, length, "name", WEIR_FORMAT, &root, error);
    if (status == WEIR_FORMAT) {
        const weir__signature *other = weir__signature_find(json, length, length);
        return weir__error_set(
            error, WEIR_FORMAT, "name",
            "the answer about %s is not in a hub's format%s%s; is the endpoint a hub, and does no "
            "proxy or page to log in answer for it?",
            repo, other != NULL ? " but looks like " : "", other != NULL ? other->kind : "");
    }
    if (status != WEIR_OK) return status;
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *siblings = json_object_get(root, "siblings");
    if (commit == NULL || !weir__name_is_commit(commit) || !json_is_array(siblings)) {
        status = weir__error_set(
            error, WEIR_FORMAT, "name",
            "the hub's answer about %s names no commit, or no files; is the endpoint a hub?", repo);
        goto done;
    }
    memcpy(files->commit, commit, strlen(commit) + 1);
    json_array_foreach(siblings, i, entry)
    {
        if ((status = read_file(repo, entry, files, error)) != WEIR_OK) goto done;
    }
    weir__name_files_sort(files);
done:
    json_decref(root);
    if (status != WEIR_OK) weir__name_files_fini(files);
    return status;
}
