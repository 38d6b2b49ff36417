/* grammar_test.c: grammars with the real model.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/llama.h"

#define PROMPT "<|im_start|>user\nIs water wet?<|im_end|>\n<|im_start|>assistant\n"

static weir_status create(const char *text, const weir__grammar *grammar, weir__bsampler **sampler,
                          weir_error *error)
{
    weir_sampler_params params = greedy_params();
    params.grammar = text;
    return ops->sampler_create(model, &params, grammar, sampler, error);
}

static weir__bsampler *with_grammar(const char *text)
{
    weir__bsampler *sampler = NULL;
    assert_ok(create(text, NULL, &sampler, error));
    return sampler;
}

/* Takes text token by token; the first status that is not OK. */
static weir_status accept_text(weir__bsampler *sampler, const char *text)
{
    int32_t ids[256];
    size_t n = tokens_of(text, true, ids, N_ELEMENTS(ids));
    for (size_t i = 0; i < n; i++) {
        weir_status status = ops->accept(sampler, ids[i], NULL);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int32_t end_token(void)
{
    return model_is.token_eos;
}

static void append_piece(char *text, size_t capacity, int32_t token)
{
    size_t at = strlen(text);
    int32_t n = ops->piece(model, token, false, text + at, (int32_t)(capacity - at - 1));
    assert_true(n >= 0);
    text[at + (size_t)n] = '\0';
}

/* Answers PROMPT until the end; the status that ended it. */
static weir_status answer(rig *r, weir__bsampler *sampler, int max, char *text, size_t capacity)
{
    ops->clear(r->context);
    feed_text(r, 0, PROMPT);
    *text = '\0';
    for (int i = 0; i < max; i++) {
        int32_t token;
        weir_status status = ops->sample(sampler, r->context, -1, NULL, &token, NULL);
        if (status != WEIR_OK) return status;
        if (ops->is_eog(model, token)) return WEIR_END;
        append_piece(text, capacity, token);
        assert_ok(feed(r, 0, &token, 1, error));
    }
    return WEIR_OK;
}

static void the_answer_is_constrained(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"yes\" | \"no\"",
        "# either\nroot ::= answer\nanswer ::= (\"yes\" | \"no\")\n",
        "root ::= \"y\" [e] [s] | \"no\"{1,1}",
    };
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    for (size_t i = 0; i < N_ELEMENTS(grammars); i++) {
        weir__bsampler *sampler = with_grammar(grammars[i]);
        for (int round = 0; round < 2; round++) {
            char text[64];
            assert_int_equal(answer(&r, sampler, 8, text, sizeof text), WEIR_END);
            assert_true(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);
            assert_ok(ops->sampler_reset(sampler, error));
        }
        ops->sampler_free(sampler);
    }
    rig_fini(&r);
}

/* Answers are constrained even where candidates are drawn, and where a token's end cuts a character. */
static void drawn_answers_are_constrained(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    weir_sampler_params params = complete_params();
    params.temp = 3.0f;
    params.top_k = 0;
    params.grammar = "root ::= ([α-ω] | \"é\" | [一-龥]){6} \"!\"";
    for (uint32_t seed = 1; seed <= 4; seed++) {
        char text[128];
        params.seed = seed;
        weir__bsampler *sampler = sampler_of(&params, NULL);
        assert_int_equal(answer(&r, sampler, 40, text, sizeof text), WEIR_END);
        size_t characters = 0;
        for (const char *c = text; *c != '\0'; c++) characters += ((unsigned char)*c & 0xc0) != 0x80;
        assert_int_equal(characters, 7);
        assert_int_equal(text[strlen(text) - 1], '!');
        ops->sampler_free(sampler);
    }
    rig_fini(&r);
}

static void refused_tokens_change_nothing(void **state)
{
    (void)state;
    weir__bsampler *sampler = with_grammar("root ::= \"abc\" \"def\"?");
    int32_t x;
    assert_int_equal(tokens_of("x", false, &x, 1), 1);
    for (int round = 0; round < 3; round++) {
        assert_refused(ops->accept(sampler, x, error), WEIR_REFUSED, "token");
        assert_refused(ops->accept(sampler, end_token(), error), WEIR_REFUSED, "token");
    }
    assert_int_equal(accept_text(sampler, "abc"), WEIR_OK);
    assert_refused(ops->accept(sampler, x, error), WEIR_REFUSED, "token");
    assert_ok(ops->accept(sampler, end_token(), error));
    assert_int_equal(accept_text(sampler, "def"), WEIR_OK);
    assert_int_equal(accept_text(sampler, "d"), WEIR_REFUSED);
    assert_ok(ops->accept(sampler, end_token(), error));
    assert_ok(ops->sampler_reset(sampler, error));
    assert_refused(ops->accept(sampler, end_token(), error), WEIR_REFUSED, "token");
    assert_int_equal(accept_text(sampler, "abcdef"), WEIR_OK);
    ops->sampler_free(sampler);
}

/* No token can ever match: an error instead of an abort, and the sampler still works. */
static void a_grammar_that_is_stuck(void **state)
{
    (void)state;
    rig r;
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    feed_text(&r, 0, PROMPT);
    weir__bsampler *sampler = with_grammar("root ::= \"a\" <[99999999]>");
    for (int round = 0; round < 3; round++) {
        int32_t token = -1;
        assert_ok(ops->sample(sampler, r.context, -1, NULL, &token, error));
        assert_refused(ops->sample(sampler, r.context, -1, NULL, &token, error), WEIR_GRAMMAR, "grammar");
        assert_refused(ops->accept(sampler, token, error), WEIR_REFUSED, "token");
        assert_ok(ops->sampler_reset(sampler, error));
    }
    ops->sampler_free(sampler);
    rig_fini(&r);
}

/* llama.cpp's filter lets this token pass and its accept throws at it. */
static void filter_and_accept_disagree(void **state)
{
    (void)state;
    int32_t ab;
    char text[64];
    rig r;
    assert_int_equal(tokens_of("ab", false, &ab, 1), 1);
    snprintf(text, sizeof text, "root ::= \"a\" <[%d]> | \"q\"", ab);
    weir__bsampler *sampler = with_grammar(text);
    assert_refused(ops->accept(sampler, ab, error), WEIR_REFUSED, "token");
    assert_int_equal(accept_text(sampler, "a"), WEIR_OK);
    assert_ok(ops->accept(sampler, ab, error));
    assert_ok(ops->accept(sampler, end_token(), error));
    assert_ok(ops->sampler_reset(sampler, error));
    rig_init(&r, 256, 1, WEIR_LAYOUT_AUTO);
    assert_true(answer(&r, sampler, 4, text, sizeof text) == WEIR_END);
    ops->sampler_free(sampler);
    rig_fini(&r);
}

static void tokens_by_name(void **state)
{
    (void)state;
    weir__bsampler *sampler = NULL;
    weir_error why = {0};
    weir_status status = create("root ::= \"a\" <|im_start|> \"b\"", NULL, &sampler, &why);
    if (status == WEIR_OK) {
        assert_int_equal(accept_text(sampler, "a<|im_start|>b"), WEIR_OK);
        ops->sampler_free(sampler);
    } else {
        assert_int_equal(status, WEIR_GRAMMAR);
    }
    assert_int_equal(create("root ::= \"a\"\nx ::= <no such token>", NULL, &sampler, &why), WEIR_GRAMMAR);
    assert_non_null(strstr(why.message, "2"));
}

static void broken_grammars(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " \n# nothing\n",
        "root",
        "root ::=",
        "root ::= \"a",
        "root ::= [a",
        "root ::= (\"a\"",
        "root ::= a",
        "a ::= \"x\"",
        "root ::= root \"a\" | \"b\"",
        "root ::= a root \"x\" | \"y\"\na ::= b\nb ::= \"c\"?",
        "root ::= \"a\"{1000000}",
        "root ::= \"a\"{99999999999999999999999}",
        "root ::= <[99999999999999999999999]>",
        "root ::= \"\\xZZ\"",
        "root ::= \"\xff\"",
        "%llguidance {}",
    };
    for (size_t i = 0; i < N_ELEMENTS(texts); i++) {
        weir__bsampler *sampler = NULL;
        weir_error why = {0};
        weir_status status = create(texts[i], NULL, &sampler, &why);
        if (status == WEIR_OK) {
            ops->sampler_free(sampler);
            if (i != 3) fail_msg("grammar %zu was taken: %s", i, texts[i]); /* 3: the empty text */
        } else {
            assert_int_equal(status, WEIR_GRAMMAR);
            assert_true(strlen(why.message) > 10);
        }
    }
}

static void huge_grammars(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    static const char *const units[] = {"(",  "(\"a\"", "a",    "\"a\" | ", "[a-z]", "\"a\"{0,2000} ",
                                        "\"", "<",      "((((", "#"};
    char *text = malloc(SIZE + 64);
    for (size_t u = 0; u < N_ELEMENTS(units); u++) {
        weir__bsampler *sampler = NULL;
        size_t at = (size_t)sprintf(text, "root ::= ");
        for (size_t k = strlen(units[u]); at + k < SIZE; at += k) memcpy(text + at, units[u], k);
        text[at] = '\0';
        weir_status status = create(text, NULL, &sampler, NULL);
        assert_true(status == WEIR_OK || status == WEIR_GRAMMAR);
        if (status == WEIR_OK) ops->sampler_free(sampler);
    }
    free(text);
}

/* Repetitions of repetitions that can all be nothing: far more ways to begin than are followed. */
static void repetitions_in_each_other(void **state)
{
    (void)state;
    weir__bsampler *sampler = with_grammar("root ::= \"<\" ((((.{0,9}){0,9}){0,9}){0,9}){0,9}");
    assert_int_equal(accept_text(sampler, "<abc"), WEIR_OK);
    assert_ok(ops->accept(sampler, end_token(), error));
    ops->sampler_free(sampler);
    sampler = with_grammar("root ::= ((((.{0,9}){0,9}){0,9}){0,9}){0,9}");
    assert_int_equal(accept_text(sampler, "abc"), WEIR_OK);
    ops->sampler_free(sampler);
}

/* An enum has more values than ways are followed. */
static void a_long_enum_in_an_object(void **state)
{
    (void)state;
    enum { VALUES = 10000 };
    char *schema = malloc(VALUES * 16 + 100), *text = NULL, *end = schema;
    assert_non_null(schema);
    end += sprintf(end, "{\"properties\":{\"a\":{\"enum\":[");
    for (int i = 0; i < VALUES; i++) end += sprintf(end, "%s\"v%d\"", i > 0 ? "," : "", i);
    strcpy(end, "]}},\"required\":[\"a\"]}");
    assert_ok(weir_grammar_from_json_schema(schema, WEIR_NUL, &text, error));
    weir__bsampler *sampler = with_grammar(text);
    static const char *const values[] = {"{\"a\":\"v0\"}", "{\"a\":\"v777\"}", "{\"a\":\"v9999\"}"};
    for (size_t i = 0; i < N_ELEMENTS(values); i++) {
        assert_ok(ops->sampler_reset(sampler, error));
        assert_int_equal(accept_text(sampler, values[i]), WEIR_OK);
        assert_ok(ops->accept(sampler, end_token(), error));
    }
    assert_ok(ops->sampler_reset(sampler, error));
    assert_int_equal(accept_text(sampler, "{\"a\":\"v10000\"}"), WEIR_REFUSED);
    ops->sampler_free(sampler);
    weir_free(text);
    free(schema);
}

/* Each x doubles the ways to read the text: some are left out, and the text can still be ended. */
static void an_ambiguous_grammar_is_followed_in_part(void **state)
{
    (void)state;
    weir__bsampler *sampler = with_grammar("root ::= \"x\" root \"y\" | \"x\" root \"z\" | \"-\"");
    for (int i = 0; i < 100; i++) assert_int_equal(accept_text(sampler, "x"), WEIR_OK);
    assert_int_equal(accept_text(sampler, "-"), WEIR_OK);
    for (int i = 0; i < 100; i++) {
        weir_status status = accept_text(sampler, "y");
        if (status == WEIR_REFUSED) status = accept_text(sampler, "z");
        assert_int_equal(status, WEIR_OK);
    }
    assert_ok(ops->accept(sampler, end_token(), error));
    assert_ok(ops->sampler_reset(sampler, error));
    assert_int_equal(accept_text(sampler, "x-y"), WEIR_OK);
    assert_ok(ops->accept(sampler, end_token(), error));
    ops->sampler_free(sampler);
}

/* ---- Of chats ------------------------------------------------------------------------------------- */

static weir__bsampler *with_triggers(const weir__trigger *triggers, size_t n)
{
    weir__bsampler *sampler = NULL;
    weir__grammar grammar = {.text = "root ::= \"<tool>\" [0-9]+ \"</tool>\"",
                             .lazy = true,
                             .triggers = triggers,
                             .n_triggers = n};
    assert_ok(create(NULL, &grammar, &sampler, error));
    return sampler;
}

static void a_lazy_grammar_waits_for_its_word(void **state)
{
    (void)state;
    weir__trigger word = {.kind = WEIR__TRIGGER_WORD, .value = "<tool>"};
    weir__bsampler *sampler = with_triggers(&word, 1);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(accept_text(sampler, "Anything at all, <too early, "), WEIR_OK);
        for (int i = 0; i < 200; i++) assert_int_equal(accept_text(sampler, "and much of it "), WEIR_OK);
        assert_ok(ops->accept(sampler, end_token(), error)); /* may also end */
        assert_int_equal(accept_text(sampler, "<tool>"), WEIR_OK);
        assert_int_equal(accept_text(sampler, "x"), WEIR_REFUSED);
        assert_refused(ops->accept(sampler, end_token(), error), WEIR_REFUSED, "token");
        assert_int_equal(accept_text(sampler, "42</tool>"), WEIR_OK);
        assert_int_equal(accept_text(sampler, " and"), WEIR_REFUSED);
        assert_ok(ops->accept(sampler, end_token(), error));
        assert_ok(ops->sampler_reset(sampler, error));
    }
    ops->sampler_free(sampler);
}

static void triggers_of_every_kind(void **state)
{
    (void)state;
    int32_t lt;
    assert_int_equal(tokens_of("<", false, &lt, 1), 1);
    const weir__trigger kinds[] = {
        {.kind = WEIR__TRIGGER_PATTERN, .value = "call: *(<tool>)"},
        {.kind = WEIR__TRIGGER_PATTERN, .value = "^nothing else$|(<tool>)"},
        {.kind = WEIR__TRIGGER_FULL_PATTERN, .value = "[\\s\\S]*?(<tool>)"},
        {.kind = WEIR__TRIGGER_TOKEN, .token = lt},
    };
    for (size_t i = 0; i < N_ELEMENTS(kinds); i++) {
        weir__bsampler *sampler = with_triggers(&kinds[i], 1);
        assert_int_equal(accept_text(sampler, "call: "), WEIR_OK);
        assert_ok(ops->accept(sampler, lt, error));
        assert_int_equal(accept_text(sampler, "tool"), WEIR_OK);
        assert_int_equal(accept_text(sampler, ">"), WEIR_OK);
        assert_int_equal(accept_text(sampler, "7"), WEIR_OK);
        assert_int_equal(accept_text(sampler, "x"), WEIR_REFUSED);
        assert_int_equal(accept_text(sampler, "</tool>"), WEIR_OK);
        ops->sampler_free(sampler);
    }
    weir__bsampler *sampler = NULL;
    weir__trigger bad = {.kind = WEIR__TRIGGER_PATTERN, .value = "(["};
    weir__grammar grammar = {.text = "root ::= \"a\"", .lazy = true, .triggers = &bad, .n_triggers = 1};
    assert_true(create(NULL, &grammar, &sampler, NULL) == WEIR_GRAMMAR);
}

/* The token that completes the trigger reports that a call has begun, and so do all that follow it. */
static void text_before_a_call(void **state)
{
    (void)state;
    const weir__trigger word = {.kind = WEIR__TRIGGER_WORD, .value = "<tool>"};
    weir__bsampler *sampler = with_triggers(&word, 1);
    for (int round = 0; round < 2; round++) {
        assert_true(ops->text_before_call(sampler) == WEIR__NO_CALL);
        assert_int_equal(accept_text(sampler, "text <tool"), WEIR_OK);
        assert_true(ops->text_before_call(sampler) == WEIR__NO_CALL);
        assert_int_equal(accept_text(sampler, ">"), WEIR_OK);
        assert_true(ops->text_before_call(sampler) == 0);
        assert_int_equal(accept_text(sampler, "42"), WEIR_OK);
        assert_true(ops->text_before_call(sampler) == 0);
        assert_ok(ops->sampler_reset(sampler, error));
    }
    ops->sampler_free(sampler);

    /* A trigger that begins within its token: " t" of " the", say. */
    const weir__trigger letter = {.kind = WEIR__TRIGGER_WORD, .value = "h"};
    weir__grammar grammar = {
        .text = "root ::= \"h\" [a-z ]*", .lazy = true, .triggers = &letter, .n_triggers = 1};
    int32_t the;
    assert_int_equal(tokens_of(" the", false, &the, 1), 1);
    assert_ok(create(NULL, &grammar, &sampler, error));
    assert_ok(ops->accept(sampler, the, error));
    assert_true(ops->text_before_call(sampler) == 2);
    assert_ok(ops->accept(sampler, the, error));
    assert_true(ops->text_before_call(sampler) == 0);
    ops->sampler_free(sampler);

    /* One that is not lazy: of calls only, or of calls and other answers. */
    grammar = (weir__grammar){.text = "root ::= \"a\"* | \"<tool>\" \"a\"*", .calls_only = true};
    assert_ok(create(NULL, &grammar, &sampler, error));
    assert_int_equal(accept_text(sampler, "a"), WEIR_OK);
    assert_true(ops->text_before_call(sampler) == 0);
    ops->sampler_free(sampler);
    grammar.calls_only = false;
    grammar.triggers = &word;
    grammar.n_triggers = 1;
    assert_ok(create(NULL, &grammar, &sampler, error));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(accept_text(sampler, round == 0 ? "aaa" : "<tool>"), WEIR_OK);
        assert_true(ops->text_before_call(sampler) == (round == 0 ? WEIR__NO_CALL : 0));
        assert_int_equal(accept_text(sampler, "b"), WEIR_REFUSED);
        assert_int_equal(accept_text(sampler, "a"), WEIR_OK);
        assert_true(ops->text_before_call(sampler) == (round == 0 ? WEIR__NO_CALL : 0));
        assert_ok(ops->sampler_reset(sampler, error));
    }
    ops->sampler_free(sampler);
    assert_ok(create(NULL, NULL, &sampler, error));
    assert_true(ops->text_before_call(sampler) == WEIR__NO_CALL);
    ops->sampler_free(sampler);
}

/* A pattern that repeats over the whole answer: libstdc++ recurses over it, so its view is bounded. */
static void patterns_see_a_bounded_text(void **state)
{
    (void)state;
    const weir__trigger pattern = {.kind = WEIR__TRIGGER_PATTERN, .value = "^\\s+to$|[^x]*?<tool>"};
    weir__bsampler *sampler = with_triggers(&pattern, 1);
    int32_t spaces;
    assert_true(tokens_of("        ", false, &spaces, 1) == 1);
    for (int i = 0; i < 1000; i++) assert_int_equal(ops->accept(sampler, spaces, NULL), WEIR_OK);
    ops->sampler_free(sampler);
}

/* The token that would start the grammar continues with text that the grammar does not allow: it is not
 * taken, and the grammar still waits. */
static void a_start_that_goes_wrong(void **state)
{
    (void)state;
    int32_t id = -1;
    for (int32_t i = 0; i < model_is.n_vocab && id < 0; i++) {
        char text[64];
        int32_t n = ops->piece(model, i, false, text, sizeof text);
        if (n == 2 && text[0] == '>' && text[1] == '.') id = i;
    }
    if (id < 0) skip();
    const weir__trigger word = {.kind = WEIR__TRIGGER_WORD, .value = "<tool>"};
    weir__bsampler *sampler = with_triggers(&word, 1);
    assert_int_equal(accept_text(sampler, "<tool"), WEIR_OK);
    assert_refused(ops->accept(sampler, id, error), WEIR_REFUSED, "token");
    assert_int_equal(accept_text(sampler, ">"), WEIR_OK);
    assert_int_equal(accept_text(sampler, "x"), WEIR_REFUSED);
    assert_int_equal(accept_text(sampler, "1</tool>"), WEIR_OK);
    ops->sampler_free(sampler);
}

static void the_prompt_holds_the_beginning(void **state)
{
    (void)state;
    weir__bsampler *sampler = NULL;
    weir__grammar grammar = {.text = "root ::= \"<think>\" [a-z]+ \"</think>\"", .prefill = "<think>"};
    assert_ok(create(NULL, &grammar, &sampler, error));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(accept_text(sampler, "<think>"), WEIR_REFUSED);
        assert_int_equal(accept_text(sampler, "so"), WEIR_OK);
        assert_int_equal(accept_text(sampler, "</think>"), WEIR_OK);
        assert_ok(ops->accept(sampler, end_token(), error));
        assert_ok(ops->sampler_reset(sampler, error));
    }
    ops->sampler_free(sampler);
    grammar.prefill = "other";
    assert_int_equal(create(NULL, &grammar, &sampler, NULL), WEIR_GRAMMAR);
}

static void another_root(void **state)
{
    (void)state;
    weir_sampler_params params = greedy_params();
    params.grammar = "root ::= \"a\"\nstart ::= \"b\"";
    params.grammar_root = "start";
    weir__bsampler *sampler = sampler_of(&params, NULL);
    assert_int_equal(accept_text(sampler, "a"), WEIR_REFUSED);
    assert_int_equal(accept_text(sampler, "b"), WEIR_OK);
    ops->sampler_free(sampler);
    params.grammar_root = "none";
    assert_refused(ops->sampler_create(model, &params, NULL, &sampler, error), WEIR_GRAMMAR, "grammar_root");
    params.grammar = NULL;
    params.json_schema = "{}"; /* never silently unconstrained */
    assert_refused(ops->sampler_create(model, &params, NULL, &sampler, error), WEIR_INVALID, "json_schema");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_is_constrained),
        cmocka_unit_test(drawn_answers_are_constrained),
        cmocka_unit_test(refused_tokens_change_nothing),
        cmocka_unit_test(a_grammar_that_is_stuck),
        cmocka_unit_test(filter_and_accept_disagree),
        cmocka_unit_test(tokens_by_name),
        cmocka_unit_test(broken_grammars),
        cmocka_unit_test(huge_grammars),
        cmocka_unit_test(repetitions_in_each_other),
        cmocka_unit_test(a_long_enum_in_an_object),
        cmocka_unit_test(an_ambiguous_grammar_is_followed_in_part),
        cmocka_unit_test(a_lazy_grammar_waits_for_its_word),
        cmocka_unit_test(triggers_of_every_kind),
        cmocka_unit_test(text_before_a_call),
        cmocka_unit_test(patterns_see_a_bounded_text),
        cmocka_unit_test(a_start_that_goes_wrong),
        cmocka_unit_test(the_prompt_holds_the_beginning),
        cmocka_unit_test(another_root),
    };
    return RUN_MODEL_TESTS(tests);
}
