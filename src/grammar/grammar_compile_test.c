/* grammar_compile_test.c: the automaton of a GBNF text beside a reader of GBNF that was written apart.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "grammar/grammar.h"
#include "support/dice.h"
#include "support/gbnf.h"
#include "support/model.h"

enum { EOG, PLAIN, THINK, N_TOKENS };

static int32_t piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    static const char *const pieces[N_TOKENS] = {"<end>", "a", "<think>"};
    (void)model;
    int32_t n = (int32_t)strlen(pieces[token]);
    if (n > capacity) return -n;
    memcpy(bytes, pieces[token], (size_t)n);
    return n;
}

static bool is_eog(const void *model, int32_t token)
{
    (void)model;
    return token == EOG;
}

static int32_t find_token(const void *model, const char *text, size_t length)
{
    (void)model;
    void *scratch = weir__mem_alloc(1); /* a model's tokenizer allocates too */
    if (scratch == NULL) return WEIR__GRAMMAR_NO_MEMORY;
    weir__mem_free(scratch);
    return length == 7 && memcmp(text, "<think>", 7) == 0 ? THINK : WEIR__GRAMMAR_NO_TOKEN;
}

static const weir__grammar_tokens tokens = {NULL, find_token};
static weir__trie *trie;

static int set_up(void **state)
{
    (void)state;
    const weir__trie_source source = {NULL, N_TOKENS, piece_of, is_eog};
    trie = weir__trie_create(&source);
    return trie == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    weir__trie_destroy(trie);
    return 0;
}

static weir__automaton *compile(const char *text, const char *root)
{
    weir__automaton *automaton = NULL;
    assert_ok(weir__grammar_compile(text, root, &tokens, trie, &automaton, error));
    return automaton;
}

static bool matches(weir__automaton *automaton, const char *text)
{
    weir__automaton_place place = weir__automaton_start(automaton);
    return (*text == '\0' ||
            weir__automaton_accept_bytes(automaton, &place, PLAIN, text, strlen(text)) == WEIR_OK) &&
           weir__automaton_accept(automaton, &place, EOG) == WEIR_OK;
}

static void the_accepted_texts_are_the_grammars(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= \"yes\" | \"no\"",
        "root ::= [a-c]+ (\" \" [^a-c ]+)* \".\"",
        "root ::= \"a\"{2} \"b\"{1,} \"c\"{0,3} \"d\"{1,2} \"e\"? \"f\"{0}",
        "root ::= (\"ab\" | \"c\"){2,4} [x-z]{0,2}",
        "root ::= \"(\" root \")\" root | \"\"",
        "root ::= [\\u00e4-\\u00fc\xE6\x97\xA5] . [\\]\\-x] \"\\t\\x41\\\"\"",
        "root ::= list\nlist ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [0-9] | list",
    };
    dice d = {7};
    for (size_t i = 0; i < N_ELEMENTS(grammars); i++) {
        gbnf *g = gbnf_parse(grammars[i]);
        weir__automaton *automaton = compile(grammars[i], NULL);
        uint64_t seed = 1;
        size_t n_others = 0;
        for (int k = 0; k < 300; k++) {
            char text[128];
            if (!gbnf_sample(g, &seed, text, sizeof text)) continue;
            if (!matches(automaton, text)) fail_msg("%s refuses %s", grammars[i], text);
            size_t n = strlen(text);
            if (n == 0) continue;
            size_t at = (size_t)dice_in(&d, 0, (int)n - 1);
            if ((unsigned char)text[at] >= 0x80) continue;
            text[at] = "abcxyz()[],.09 "[dice_in(&d, 0, 14)];
            if (matches(automaton, text) != gbnf_matches(g, text)) fail_msg("%s: %s", grammars[i], text);
            n_others += !gbnf_matches(g, text);
        }
        assert_true(n_others > 0);
        weir__automaton_release(automaton);
        gbnf_free(g);
    }
}

static void tokens_are_asked_for_as_such(void **state)
{
    (void)state;
    weir__automaton *a = compile("x ::= \"a\" y\ny ::= <think> !<think> <[1]>", "x");
    weir__automaton_place place = weir__automaton_start(a);
    assert_int_equal(weir__automaton_accept(a, &place, PLAIN), WEIR_OK);
    assert_int_equal(weir__automaton_accept(a, &place, PLAIN), WEIR_REFUSED);
    assert_int_equal(weir__automaton_accept(a, &place, THINK), WEIR_OK);
    assert_int_equal(weir__automaton_accept(a, &place, THINK), WEIR_REFUSED);
    assert_int_equal(weir__automaton_accept(a, &place, PLAIN), WEIR_OK);
    assert_int_equal(weir__automaton_accept(a, &place, PLAIN), WEIR_OK);
    assert_int_equal(weir__automaton_accept(a, &place, EOG), WEIR_OK);
    weir__automaton_release(a);
    weir__automaton *none = NULL;
    weir_error why = {0};
    assert_int_equal(weir__grammar_compile("root ::= \"a\"\nb ::= <other>", NULL, &tokens, trie, &none, &why),
                     WEIR_GRAMMAR);
    assert_string_equal(why.field, "grammar");
    assert_string_equal(why.message, "line 2, column 7: the model has no token '<other>'");
    assert_refused(weir__grammar_compile("root ::= \"a\"", "b", &tokens, trie, &none, error), WEIR_GRAMMAR,
                   "grammar_root");
    assert_null(none);
}

/* A text that begins as thousands of values do has few ways, so that none of them is lost. */
static void long_lists_of_objects(void **state)
{
    (void)state;
    static const char *const values[] = {"{\"id\":%d,\"t\":\"x\"}", "[{\"id\":%d,\"t\":\"x\"}]"};
    static const char *const lists[][3] = {{"{\"enum\":[", ",", "]}"},
                                           {"{\"anyOf\":[{\"const\":", "},{\"const\":", "}]}"}};
    enum { N = 2100 };
    for (size_t round = 0; round < 2 * N_ELEMENTS(values); round++) {
        const size_t k = round / 2, l = round % 2;
        char *schema = malloc(N * 48 + 64), *text = NULL, one[64];
        assert_non_null(schema);
        size_t n = (size_t)sprintf(schema, "%s", lists[l][0]);
        for (int i = 0; i < N; i++) {
            snprintf(one, sizeof one, values[k], i);
            n += (size_t)sprintf(schema + n, "%s%s", i > 0 ? lists[l][1] : "", one);
        }
        sprintf(schema + n, "%s", lists[l][2]);
        assert_ok(weir_grammar_from_json_schema(schema, WEIR_NUL, &text, error));
        weir__automaton *automaton = compile(text, NULL);
        for (int i = 0; i < N + 100; i += 7) {
            snprintf(one, sizeof one, values[k], i);
            if (matches(automaton, one) != (i < N)) fail_msg("%s: wanted %d", one, i < N);
        }
        assert_int_equal(weir__automaton_n_cuts(automaton), 0);
        weir__automaton_release(automaton);
        weir_free(text);
        free(schema);
    }
}

/* Calls of as many tools as a chat may have, each a rule of its own that begins with white space. */
static void rules_of_many_tools(void **state)
{
    (void)state;
    enum { N = 1024 };
    char *text = malloc(N * 64 + 128), one[32];
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "ws ::= | \" \" | \"\\n\" | \"\\t\" | \"\\r\"\nroot ::= \"{\" ( t0");
    for (int i = 1; i < N; i++) n += (size_t)sprintf(text + n, " | t%d", i);
    n += (size_t)sprintf(text + n, " )\n");
    for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "t%d ::= ws \"f%d\" ws \"}\"\n", i, i);
    weir__automaton *automaton = compile(text, NULL);
    for (int i = 0; i < N + 50; i++) {
        snprintf(one, sizeof one, i % 2 == 0 ? "{ f%d}" : "{f%d\n}", i);
        if (matches(automaton, one) != (i < N)) fail_msg("%s: wanted %d", one, i < N);
    }
    assert_int_equal(weir__automaton_n_cuts(automaton), 0);
    weir__automaton_release(automaton);
    free(text);
}

static void memory_that_runs_out(void **state)
{
    (void)state;
    long live = weir__mem_live();
    for (long n = 0;; n++) {
        weir__automaton *automaton = NULL;
        weir__mem_fail_after(n);
        weir_status status = weir__grammar_compile("root ::= a (\"b\" | [c-d]{2,5})*\na ::= <think> root?",
                                                   NULL, &tokens, trie, &automaton, NULL);
        bool pending = weir__mem_fail_pending();
        weir__mem_fail_after(-1);
        assert_int_equal(status, pending ? WEIR_OK : WEIR_NO_MEMORY);
        if (status == WEIR_OK) weir__automaton_release(automaton);
        assert_int_equal(weir__mem_live(), live);
        if (pending) {
            assert_true(n > 0);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_accepted_texts_are_the_grammars),
        cmocka_unit_test(tokens_are_asked_for_as_such),
        cmocka_unit_test(long_lists_of_objects),
        cmocka_unit_test(rules_of_many_tools),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
