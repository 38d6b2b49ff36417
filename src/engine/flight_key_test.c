/* Differences that separate two flights: every member of a request and of a sampler's parameters, from
 * tests/abi.txt, and all parts of a chat. SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"
#include "engine/engine.h"
#include "support/engine/engine.h"
#include "support/sound.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Keys ---- */

typedef struct keys {
    char *key[128];
    size_t length[128];
    size_t n;
} keys;

/* One more, which must not be any of those before. */
static void add_key(keys *all, const weir_request *request)
{
    size_t i = all->n++, again;
    assert_true(all->n <= COUNT_OF(all->key));
    all->key[i] = weir__flight_key(request, &all->length[i]);
    assert_non_null(all->key[i]);
    for (size_t k = 0; k < i; k++)
        if (all->length[k] == all->length[i] && memcmp(all->key[k], all->key[i], all->length[i]) == 0)
            fail_msg("%zu and %zu have one key", k, i);
    char *same = weir__flight_key(request, &again);
    assert_int_equal(again, all->length[i]);
    assert_memory_equal(same, all->key[i], again);
    weir__mem_free(same);
}

/* Adds the key of a short greedy request with these. */
static void add_key_with(keys *all, const weir_adapter_use *adapters, size_t n_adapters,
                         const weir_media_use *media, size_t n_media)
{
    weir_sampler_params greedy = weir_sampler_params_default();
    weir_request request = weir_request_default();
    greedy.temp = 0;
    request.sampler = &greedy;
    request.text = "hello";
    request.adapters = adapters;
    request.n_adapters = n_adapters;
    request.media = media;
    request.n_media = n_media;
    add_key(all, &request);
}

static void keys_fini(keys *all)
{
    while (all->n > 0) weir__mem_free(all->key[--all->n]);
}

/* ---- Members ---- */

typedef struct member {
    char name[48];
    size_t offset, size;
} member;

/* The members of a struct, as tests/abi.txt has them. */
static size_t members_of(const char *type, member *members, size_t capacity)
{
    char path[512], line[160], begin[64];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/tests/abi.txt", getenv("WEIR_SOURCE_DIR"));
    snprintf(begin, sizeof begin, "%s.", type);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, begin, strlen(begin)) != 0) continue;
        assert_true(n < capacity);
        member *m = &members[n++];
        assert_int_equal(sscanf(line + strlen(begin), "%47s %zu %zu", m->name, &m->offset, &m->size), 3);
    }
    fclose(file);
    assert_true(n > 20);
    return n;
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0) names++;
    return *names != NULL;
}

/* Each byte of each member but these changes the key, or lets nobody share. given [size]: the request, or
 * data that it points to. */
static void flip_members(const char *type, const char *const *others, unsigned char *given,
                         const weir_request *request)
{
    member members[64];
    size_t n = members_of(type, members, COUNT_OF(members)), n_before, n_key;
    char *before = weir__flight_key(request, &n_before);
    assert_non_null(before);
    for (size_t i = 0; i < n; i++) {
        const member *m = &members[i];
        if (is_one_of(m->name, others)) continue;
        for (size_t at = m->offset; at < m->offset + m->size; at++) {
            given[at] ^= 1;
            char *key = weir__flight_key(request, &n_key);
            if (key != NULL && n_key == n_before && memcmp(key, before, n_key) == 0)
                fail_msg("%s.%s is not in the key", type, m->name);
            weir__mem_free(key);
            given[at] ^= 1;
        }
    }
    weir__mem_free(before);
}

static void every_number_of_the_sampler_counts(void **state)
{
    (void)state;
    /* pointers, which have tests of their own; a list that is NULL has no length */
    static const char *const others[] = {
        "size",  "dry_breakers", "n_dry_breakers", "logit_bias",  "n_logit_bias",
        "order", "grammar",      "grammar_root",   "json_schema", NULL};
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    sampler.seed = 7; /* whatever else is set, it can be shared */
    request.text = "hello";
    request.sampler = &sampler;
    flip_members("weir_sampler_params", others, (unsigned char *)&sampler, &request);
}

static void every_number_of_the_request_counts(void **state)
{
    (void)state;
    /* pointers and their lengths; source_at says nothing without a source, the last ones nothing about an
     * answer */
    static const char *const others[] = {"size",
                                         "chat",
                                         "tokens",
                                         "n_tokens",
                                         "text",
                                         "text_length",
                                         "sampler",
                                         "stop",
                                         "n_stop",
                                         "stop_length",
                                         "stop_tokens",
                                         "n_stop_tokens",
                                         "allowed_tokens",
                                         "n_allowed_tokens",
                                         "bad_words",
                                         "n_bad_words",
                                         "source",
                                         "source_at",
                                         "cache_salt",
                                         "adapters",
                                         "cache_salt_length",
                                         "media",
                                         "n_media",
                                         "cache_keep_ms",
                                         "tenant",
                                         "itl_target_ms",
                                         "prediction",
                                         "prediction_length",
                                         "reasoning_start",
                                         "reasoning_end",
                                         NULL};
    weir_sampler_params sampler = weir_sampler_params_default();
    weir_request request = weir_request_default();
    sampler.temp = 0;
    request.text = "hello";
    request.sampler = &sampler;
    flip_members("weir_request", others, (unsigned char *)&request, &request);
}

/* ---- Texts and lists ---- */

static void every_text_and_list_counts(void **state)
{
    (void)state;
    static const weir_logit_bias biases[] = {{5, 1}, {6, 1}, {5, 2}};
    static const char *const breakers[] = {"|", ";", "|;"};
    keys all = {0};
    for (int i = 0; i < 19; i++) {
        weir_sampler_params s = weir_sampler_params_default();
        weir_request request = weir_request_default();
        s.seed = 7;
        request.text = "hello";
        request.sampler = &s;
        switch (i) {
        case 1: s.logit_bias = biases, s.n_logit_bias = 1; break;
        case 2: s.logit_bias = biases + 1, s.n_logit_bias = 1; break;
        case 3: s.logit_bias = biases + 2, s.n_logit_bias = 1; break;
        case 4: s.logit_bias = biases, s.n_logit_bias = 2; break;
        case 5: s.dry_breakers = breakers, s.n_dry_breakers = 0; break;
        case 6: s.dry_breakers = breakers, s.n_dry_breakers = 1; break;
        case 7: s.dry_breakers = breakers, s.n_dry_breakers = 2; break;
        case 8: s.dry_breakers = breakers + 2, s.n_dry_breakers = 1; break;
        case 9: s.order = "top_k"; break;
        case 10: s.grammar = "top_k"; break;
        case 11: s.grammar_root = "top_k"; break;
        case 12: s.json_schema = "top_k"; break;
        case 13: request.text_length = 4; break;
        case 14: request.cache_salt = "ab"; break;
        case 15: request.cache_salt = "ab", request.cache_salt_length = 1; break;
        case 16: request.cache_salt = "abhello", request.text = ""; break;
        case 17: request.reasoning_end = "ab"; break;
        case 18: request.reasoning_end = "b", request.reasoning_start = "a"; break;
        default: break;
        }
        add_key(&all, &request);
    }
    keys_fini(&all);
}

static void every_stop_and_token_counts(void **state)
{
    (void)state;
    static const char *const stops[] = {"xy", "z", "xyz"};
    static const size_t lengths[] = {1, 1};
    static const int32_t tokens[] = {5, 6, 5};
    weir_sampler_params greedy = weir_sampler_params_default();
    keys all = {0};
    greedy.temp = 0;
    for (int i = 0; i < 16; i++) {
        weir_request request = weir_request_default();
        request.sampler = &greedy;
        request.text = i < 6 || i > 8 ? "hello" : NULL;
        switch (i) {
        case 1: request.stop = stops, request.n_stop = 1; break;
        case 2: request.stop = stops, request.n_stop = 2; break;
        case 3: request.stop = stops + 2, request.n_stop = 1; break;
        case 4: request.stop = stops, request.n_stop = 1, request.stop_length = lengths; break;
        case 5: request.stop = stops, request.n_stop = 2, request.stop_length = lengths; break;
        case 6: request.tokens = tokens, request.n_tokens = 1; break;
        case 7: request.tokens = tokens, request.n_tokens = 2; break;
        case 8: request.tokens = tokens + 1, request.n_tokens = 2; break;
        case 9: request.stop_tokens = tokens, request.n_stop_tokens = 1; break;
        case 10: request.stop_tokens = tokens + 1, request.n_stop_tokens = 1; break;
        case 11: request.allowed_tokens = tokens, request.n_allowed_tokens = 1; break;
        case 12: request.allowed_tokens = tokens + 1, request.n_allowed_tokens = 1; break;
        case 13: request.bad_words = stops, request.n_bad_words = 1; break;
        case 14: request.bad_words = stops, request.n_bad_words = 2; break;
        case 15: request.bad_words = stops + 2, request.n_bad_words = 1; break;
        default: break;
        }
        add_key(&all, &request);
    }
    keys_fini(&all);
}

static void every_adapter_counts(void **state)
{
    (void)state;
    weir_model *model = NULL;
    weir_adapter *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(weir_model_load("fake:", NULL, &model, NULL), WEIR_OK);
    assert_int_equal(weir_adapter_load(model, "fake:1", &a, NULL), WEIR_OK);
    assert_int_equal(weir_adapter_load(model, "fake:2", &b, NULL), WEIR_OK);
    assert_int_equal(weir_adapter_load(model, "fake:3", &c, NULL), WEIR_OK);
    const weir_adapter_use uses[][2] = {{{a, 1}},         {{b, 1}},         {{a, 0.5f}},
                                        {{a, 1}, {b, 1}}, {{a, 1}, {c, 1}}, {{a, 1}, {b, 0.5f}},
                                        {{b, 1}, {a, 1}}};
    keys all = {0};
    add_key_with(&all, NULL, 0, NULL, 0);
    for (size_t i = 0; i < COUNT_OF(uses); i++)
        add_key_with(&all, uses[i], uses[i][1].adapter != NULL ? 2 : 1, NULL, 0);
    keys_fini(&all);
    weir_adapter_release(a);
    weir_adapter_release(b);
    weir_adapter_release(c);
    weir_model_release(model);
}

static void media_and_their_places_count(void **state)
{
    (void)state;
    weir_media *a = sound_make(1), *b = sound_make(2);
    assert_true(a != NULL && b != NULL);
    const weir_media_use uses[][2] = {{{a, 0}},         {{b, 0}},         {{a, 1}},
                                      {{a, 0}, {a, 0}}, {{a, 0}, {b, 0}}, {{b, 0}, {a, 0}}};
    keys all = {0};
    add_key_with(&all, NULL, 0, NULL, 0);
    for (size_t i = 0; i < COUNT_OF(uses); i++)
        add_key_with(&all, NULL, 0, uses[i], uses[i][1].media != NULL ? 2 : 1);
    keys_fini(&all);
    weir_media_release(a);
    weir_media_release(b);
}

static void all_of_a_chat_counts(void **state)
{
    (void)state;
    keys all = {0};
    weir_sampler_params greedy = weir_sampler_params_default();
    greedy.temp = 0;
    weir_media *a = sound_make(1), *b = sound_make(2);
    assert_true(a != NULL && b != NULL);
    for (int i = 0; i < 32; i++) {
        weir_media_use media[2] = {{a, 1}, {b, 2}};
        weir__part parts[] = {{.from = 0, .to = 2, .plain = true}, {.from = 2, .to = 5}};
        weir__trigger triggers[2] = {{.kind = WEIR__TRIGGER_WORD}, {.kind = WEIR__TRIGGER_WORD}};
        const char *stops[2] = {"x", "y"};
        int32_t preserved[2] = {3, 4};
        weir_chat f = {.prompt = "hello",
                       .stops = stops,
                       .preserved = preserved,
                       .parts = {.at = parts},
                       .media = media};
        weir_request request = weir_request_default();
        request.sampler = &greedy;
        request.chat = &f;
        if (i >= 2) f.grammar = (weir__grammar){.text = "root ::= \"a\"", .triggers = triggers};
        if (i >= 2) f.constraint = &f.grammar;
        if (i >= 7 && i < 14) f.grammar.n_triggers = 1, triggers[0].value = "call";
        switch (i) {
        case 1: f.prompt = "hello "; break;
        case 3: f.grammar.text = "root ::= \"b\""; break;
        case 4: f.grammar.root = "a"; break;
        case 5: f.grammar.prefill = "a"; break;
        case 6: f.grammar.lazy = true; break;
        case 8: triggers[0].kind = WEIR__TRIGGER_PATTERN; break;
        case 9: triggers[0].token = 7; break;
        case 10: triggers[0].value = "other"; break;
        case 11: f.grammar.n_triggers = 2, triggers[1].value = "more"; break;
        case 12: f.grammar.n_triggers = 2, triggers[1].value = "most"; break;
        case 13: f.grammar.n_triggers = 2, triggers[1].value = "most", triggers[1].token = 1; break;
        case 14: f.n_stops = 1; break;
        case 15: stops[0] = "y", f.n_stops = 1; break;
        case 16: f.n_stops = 2; break;
        case 17: f.n_preserved = 1; break;
        case 18: preserved[0] = 4, f.n_preserved = 1; break;
        case 19: f.n_preserved = 2; break;
        case 20: f.parts.n = 1; break;
        case 21: f.parts.n = 2; break;
        case 22: f.parts.n = 2, parts[0].plain = false; break;
        case 23: f.parts.n = 2, parts[0].to = parts[1].from = 3; break;
        case 31: f.grammar.calls_only = true; break;
        case 24: f.n_media = 1; break;
        case 25: f.n_media = 2; break;
        case 26: media[0].media = b, f.n_media = 1; break;
        case 27: media[0].at = 0, f.n_media = 1; break;
        case 28: media[1].media = a, f.n_media = 2; break;
        case 29:
            f.reasoning = (weir__chat_reasoning){.start = "a", .ends = stops, .n_ends = 1, .closing = "b"};
            break;
        case 30: f.reasoning = (weir__chat_reasoning){.ends = stops, .n_ends = 1, .closing = "b"}; break;
        default: break;
        }
        f.prompt_length = strlen(f.prompt);
        add_key(&all, &request);
    }
    keys_fini(&all);
    weir_media_release(a);
    weir_media_release(b);
}

/* ---- Random sampling ---- */

/* Deterministic answers alone are shared without a seed. */
static void random_answers_are_not_shared(void **state)
{
    (void)state;
    static const struct {
        float probability, threshold;
        bool shared;
    } cases[] = {
        {0, 0.1f, true}, {0.5f, 0.1f, false}, {0.5f, 0.5f, false}, {0.5f, 0.51f, true}, {0.5f, 1, true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int seeded = 0; seeded < 2; seeded++) {
            size_t n;
            weir_sampler_params s = weir_sampler_params_default();
            weir_request request = weir_request_default();
            s.temp = 0;
            s.xtc_probability = cases[i].probability;
            s.xtc_threshold = cases[i].threshold;
            if (seeded) s.seed = 7;
            request.text = "hello";
            request.sampler = &s;
            char *key = weir__flight_key(&request, &n);
            assert_int_equal(key != NULL, cases[i].shared || seeded);
            weir__mem_free(key);
            s.adaptive_target = 0;
            key = weir__flight_key(&request, &n);
            assert_int_equal(key != NULL, seeded);
            weir__mem_free(key);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_the_sampler_counts),
        cmocka_unit_test(every_number_of_the_request_counts),
        cmocka_unit_test(every_text_and_list_counts),
        cmocka_unit_test(every_stop_and_token_counts),
        cmocka_unit_test(every_adapter_counts),
        cmocka_unit_test(media_and_their_places_count),
        cmocka_unit_test(all_of_a_chat_counts),
        cmocka_unit_test(random_answers_are_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
