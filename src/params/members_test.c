/* members_test.c: every parameter's default, range and name, and the keys that compare parameters.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "params/members.h"
#include "support/model.h"

typedef struct sample {
    size_t size;
    int32_t count;
    float share;
    float off;
    int64_t long_count;
    uint64_t n_bytes;
} sample;

#define INT(m, least, most)                                                                                  \
    {                                                                                                        \
        .name = #m, .type = WEIR_MEMBER_INT32, .offset = offsetof(sample, m), .min = (least), .max = (most)  \
    }
#define FLOAT(m, least, most, minus_one)                                                                     \
    {                                                                                                        \
        .name = #m, .type = WEIR_MEMBER_FLOAT, .offset = offsetof(sample, m), .min = (least), .max = (most), \
        .or_minus_one = (minus_one)                                                                          \
    }

static const weir_member rows[] = {
    INT(count, 0, INT32_MAX),
    FLOAT(share, 0.01, 0.99, false),
    FLOAT(off, 0, 100, true),
    {.name = "long_count",
     .type = WEIR_MEMBER_INT64,
     .offset = offsetof(sample, long_count),
     .max = (double)INT64_MAX},
    {.name = "n_bytes",
     .type = WEIR_MEMBER_UINT64,
     .offset = offsetof(sample, n_bytes),
     .max = 12345678901.0},
};
static const weir__members samples = {"sample", rows, N_ELEMENTS(rows), sizeof(sample)};

static const weir__members *const structs[] = {
    &weir__model_members,   &weir__quantize_members, &weir__rpc_members,     &weir__context_members,
    &weir__sampler_members, &weir__chat_members,     &weir__request_members, &weir__engine_members,
    &weir__hub_members,     &weir__media_members,    &weir__pool_members,    &weir__pool_model_members,
};

static const char *const results[] = {"engine_stats", "usage",      "report",    "view",    "cost",
                                      "slot_view",    "tick",       "tick_slot", "arrival", "miss_info",
                                      "pool_info",    "pool_stats", "progress"};

/* ---- Ranges ---- */

static void test_limits_belong_to_the_range(void **state)
{
    (void)state;
    static const sample good[] = {
        {0, 0, 0.01f, 0.0f, 0, 0},
        {0, INT32_MAX, 0.99f, 100.0f, INT64_MAX, 0},
        {0, 1, 0.5f, -1.0f, 1, 0},
    };
    for (size_t i = 0; i < N_ELEMENTS(good); i++)
        assert_ok(weir__members_check(&samples, &good[i], "", error));
}

static void test_values_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct {
        sample value;
        const char *field, *message;
    } bad[] = {
        {{0, -1, 0.5f, 0.0f, 0, 0}, "p.count", "`count` is -1; allowed: 0 to 2147483647"},
        {{0, -1234567890, 0.5f, 0.0f, 0, 0}, "p.count", "`count` is -1234567890; allowed: 0 to 2147483647"},
        {{0, 1, 0.0f, 0.0f, 0, 0}, "p.share", "`share` is 0; allowed: 0.01 to 0.99"},
        {{0, 1, 1.0f, 0.0f, 0, 0}, "p.share", "`share` is 1; allowed: 0.01 to 0.99"},
        {{0, 1, NAN, 0.0f, 0, 0}, "p.share", NULL},
        {{0, 1, INFINITY, 0.0f, 0, 0}, "p.share", "`share` is inf; allowed: 0.01 to 0.99"},
        {{0, 1, -INFINITY, 0.0f, 0, 0}, "p.share", "`share` is -inf; allowed: 0.01 to 0.99"},
        {{0, 1, 0.5f, -0.5f, 0, 0}, "p.off", "`off` is -0.5; allowed: 0 to 100, or -1"},
        {{0, 1, 0.5f, -0.1f, 0, 0}, "p.off", "`off` is -0.1; allowed: 0 to 100, or -1"},
        {{0, 1, 0.5f, 100.5f, 0, 0}, "p.off", "`off` is 100.5; allowed: 0 to 100, or -1"},
        {{0, 1, 0.5f, NAN, 0, 0}, "p.off", NULL},
        {{0, 1, 0.5f, 0.0f, -4000000000, 0},
         "p.long_count",
         "`long_count` is -4000000000; allowed: 0 and up"},
        {{0, 1, 0.5f, 0.0f, 0, 12345678902},
         "p.n_bytes",
         "`n_bytes` is 12345678902; allowed: 0 to 12345678901"},
    };
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        weir_error error = {0};
        assert_int_equal(weir__members_check(&samples, &bad[i].value, "p.", &error), WEIR_INVALID);
        assert_string_equal(error.field, bad[i].field);
        if (bad[i].message != NULL) assert_string_equal(error.message, bad[i].message);
    }
}

static void test_defaults_are_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(structs); i++) {
        max_align_t room[64];
        assert_true(structs[i]->size <= sizeof room);
        weir__members_init(structs[i], room, structs[i]->size);
        size_t size;
        memcpy(&size, room, sizeof size);
        assert_int_equal(size, structs[i]->size);
        assert_ok(weir__members_check(structs[i], room, "", error));
    }
}

/* A caller that knows the first bytes only gets these. */
static void test_defaults_stop_where_the_caller_does(void **state)
{
    (void)state;
    weir_sampler_params params;
    memset(&params, 0x5A, sizeof params);
    weir_sampler_params_init(&params, offsetof(weir_sampler_params, top_k));
    assert_int_equal(params.size, offsetof(weir_sampler_params, top_k));
    assert_true(params.temp == 0.8f);
    assert_int_equal(params.top_k, 0x5A5A5A5A);
}

/* The double that INT64_MAX becomes is beyond it. */
static void test_the_largest_number_is_kept(void **state)
{
    (void)state;
    sample one = {0};
    weir__member_set(&rows[3], &one, rows[3].max);
    assert_true(one.long_count == INT64_MAX);
    weir__member_set(&rows[3], &one, 7);
    assert_true(one.long_count == 7);
}

/* ---- Completeness ---- */

static const weir_member *row_at(const weir__members *members, size_t offset, size_t size)
{
    for (size_t i = 0; i < members->n; i++) {
        const weir_member *m = &members->member[i];
        if (m->offset == offset) return m;
        if (size == sizeof(size_t) && m->n_offset == offset) return m; /* a list's length */
    }
    return NULL;
}

/* Lengths and callbacks, which have no row. */
static bool has_no_row(const char *name)
{
    static const char *const names[] = {
        "size",
        "progress",
        "progress_user",
        "leaving",
        "leaving_user",
        "n_tensor_split",
        "n_messages",
        "n_args",
        "text_length",
        "n_tokens",
        "stop_length",
        "n_stop",
        "n_stop_tokens",
        "n_allowed_tokens",
        "n_bad_words",
        "cache_salt_length",
        "prediction_length",
        "n_adapters",
        "n_media",
        "n_aliases",
    };
    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Results have rows for single numbers only: not for texts, arrays and structs. */
static bool is_scalar(const char *of, const char *name, size_t size)
{
    bool slots = strcmp(of, "view") == 0 && (strcmp(name, "slots") == 0 || strcmp(name, "n_slots") == 0);
    return size <= sizeof(int64_t) && strcmp(name, "size") != 0 && !slots;
}

static size_t size_of_number(weir_member_type type)
{
    if (type == WEIR_MEMBER_BOOL) return sizeof(bool);
    return type == WEIR_MEMBER_INT64 || type == WEIR_MEMBER_UINT64 || type == WEIR_MEMBER_DOUBLE ? 8 : 4;
}

static size_t check_param(const char *of, const char *name, size_t offset, size_t size)
{
    for (size_t i = 0; i < N_ELEMENTS(structs); i++) {
        if (strcmp(structs[i]->of, of) != 0 || has_no_row(name)) continue;
        if (row_at(structs[i], offset, size) == NULL) fail_msg("%s.%s has no row", of, name);
        return 1;
    }
    return 0;
}

static size_t check_result(const char *of, const char *name, size_t offset, size_t size)
{
    for (size_t i = 0; i < N_ELEMENTS(results); i++) {
        if (strcmp(results[i], of) != 0 || !is_scalar(of, name, size)) continue;
        const weir_member *row = weir_member_find(of, name);
        if (row == NULL) {
            fail_msg("%s.%s has no row", of, name);
            return 0;
        }
        assert_true(row->type <= WEIR_MEMBER_CHOICE);
        assert_int_equal(row->offset, offset);
        assert_int_equal(size_of_number(row->type), size);
        assert_true(row->help[0] != '\0' && strchr(row->help, '\n') == NULL);
        return 1;
    }
    return 0;
}

/* tests/abi.txt lists every member of every struct as the compiler lays it out. */
static void test_every_member_has_a_row(void **state)
{
    (void)state;
    size_t n_params = 0, n_results = 0, n_rows = 0;
    char path[1024], line[256], of[64], name[64];
    const char *source = getenv("WEIR_SOURCE_DIR");
    unsigned long offset, size;
    assert_non_null(source);
    snprintf(path, sizeof path, "%s/tests/abi.txt", source);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "weir_%63[a-z_].%63s %lu %lu", of, name, &offset, &size) != 4) continue;
        n_results += check_result(of, name, offset, size);
        char *suffix = strstr(of, "_params");
        if (suffix != NULL) *suffix = '\0';
        n_params += check_param(of, name, offset, size);
    }
    fclose(file);
    assert_true(n_params > 120);
    for (size_t i = 0; i < N_ELEMENTS(results); i++) {
        size_t n;
        assert_non_null(weir_members(results[i], &n));
        n_rows += n;
    }
    assert_int_equal(n_results, n_rows);
}

static void test_choices_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_MISS_COUNT; i++)
        assert_string_equal(weir_member_find("usage", "miss")->choices[i], weir_miss_name((weir_miss)i));
    for (int i = 0; i <= WEIR_REASON_DEADLINE; i++)
        assert_string_equal(weir_member_find("tick_slot", "reason")->choices[i],
                            weir_reason_name((weir_reason)i));
    assert_string_equal(weir_member_find("slot_view", "state")->choices[WEIR_SLOT_JOINED], "joined");
    assert_string_equal(weir_member_find("view", "layout")->choices[WEIR_LAYOUT_PER_SLOT], "per_slot");
}

static void test_members_by_name(void **state)
{
    (void)state;
    size_t n;
    const weir_member *member = weir_members("sampler", &n);
    assert_int_equal(n, weir__sampler_members.n);
    assert_string_equal(member[0].name, "seed");
    assert_ptr_equal(weir_member_find("sampler", "seed"), member);
    assert_string_equal(weir_member_find("engine", "layout")->choices[WEIR_LAYOUT_PER_SLOT], "per_slot");
    assert_string_equal(weir_member_find("context", "pooling")->choices[WEIR_POOLING_RANK + 1], "rank");
    assert_null(weir_members("sample", &n));
    assert_int_equal(n, 0);
    assert_null(weir_members(NULL, NULL));
    assert_null(weir_member_find("sampler", "top"));
    assert_null(weir_member_find("sampler", NULL));
}

/* ---- Keys ---- */

static void assert_keys(const weir__members *members, const void *a, const void *b, bool same)
{
    weir__text left = {0}, right = {0};
    assert_true(weir__members_key(members, a, &left) && weir__members_key(members, b, &right));
    bool written = left.bytes != NULL && right.bytes != NULL;
    assert_true(written);
    assert_int_equal(written && left.n == right.n && memcmp(left.bytes, right.bytes, left.n) == 0, same);
    weir__text_fini(&left);
    weir__text_fini(&right);
}

/* Every number is in the key: one byte of each changes. */
static void test_every_number_is_in_the_key(void **state)
{
    (void)state;
    weir_sampler_params a = weir_sampler_params_default(), b = a;
    for (size_t i = 0; i < weir__sampler_members.n; i++) {
        const weir_member *m = &weir__sampler_members.member[i];
        if (m->type > WEIR_MEMBER_CHOICE) continue;
        ((unsigned char *)&b)[m->offset] ^= 1;
        assert_keys(&weir__sampler_members, &a, &b, false);
        ((unsigned char *)&b)[m->offset] ^= 1;
    }
    assert_keys(&weir__sampler_members, &a, &b, true);
}

static void test_texts_count_by_content(void **state)
{
    (void)state;
    char copy[] = "root ::= \"a\"";
    const char *const lists[][2] = {{"ab", "c"}, {"a", "bc"}};
    const weir_logit_bias biases[] = {{1, 2.0f}, {1, 3.0f}};
    weir_sampler_params a = weir_sampler_params_default(), b = a;
    a.grammar = "root ::= \"a\"";
    assert_keys(&weir__sampler_members, &a, &b, false);
    b.grammar = copy;
    assert_keys(&weir__sampler_members, &a, &b, true);
    b.grammar = NULL;
    b.order = a.grammar; /* the same text in another member */
    assert_keys(&weir__sampler_members, &a, &b, false);
    b = a;
    a.dry_breakers = lists[0];
    b.dry_breakers = lists[1];
    a.n_dry_breakers = b.n_dry_breakers = 2;
    assert_keys(&weir__sampler_members, &a, &b, false);
    b.dry_breakers = lists[0];
    assert_keys(&weir__sampler_members, &a, &b, true);
    b.n_dry_breakers = 0; /* none, and not the default */
    a.dry_breakers = NULL;
    assert_keys(&weir__sampler_members, &a, &b, false);
    b = a;
    a.logit_bias = &biases[0];
    b.logit_bias = &biases[1];
    a.n_logit_bias = b.n_logit_bias = 1;
    assert_keys(&weir__sampler_members, &a, &b, false);
}

static void test_no_memory_for_a_key(void **state)
{
    (void)state;
    weir_sampler_params params = weir_sampler_params_default();
    weir__text key = {0};
    weir__mem_fail_after(0);
    bool added = weir__members_key(&weir__sampler_members, &params, &key);
    weir__mem_fail_after(-1);
    assert_false(added);
    weir__text_fini(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_belong_to_the_range),
        cmocka_unit_test(test_values_out_of_range_are_named),
        cmocka_unit_test(test_defaults_are_allowed),
        cmocka_unit_test(test_defaults_stop_where_the_caller_does),
        cmocka_unit_test(test_the_largest_number_is_kept),
        cmocka_unit_test(test_every_member_has_a_row),
        cmocka_unit_test(test_choices_are_named),
        cmocka_unit_test(test_members_by_name),
        cmocka_unit_test(test_every_number_is_in_the_key),
        cmocka_unit_test(test_texts_count_by_content),
        cmocka_unit_test(test_no_memory_for_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
