/* guard_test.c: functions of llama.cpp that throw: the status, weir's own sentence in the message, C++'s text
 * in the log alone, and an object that is usable afterwards.
 *
 * The library calls the functions below instead of llama.cpp's, and they throw on demand. On macOS a program
 * cannot replace functions of a library.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <unistd.h>

#include "support/llama.h"
#include "support/temp.h"

#define CXX_TEXT "basic_string::substr: __pos (which is 5) > this->size() (which is 2)"

/* libstdc++'s function that throws std::out_of_range. */
#ifdef __APPLE__
static void throw_out_of_range(const char *text)
{
    fail_msg("%s", text);
}
#else
_Noreturn void throw_out_of_range(const char *text) __asm__("_ZSt20__throw_out_of_rangePKc");
#endif

static const char *thrower; /* the function that throws when it is called next */

static void throw_if(const char *name)
{
    if (thrower == NULL || strcmp(thrower, name) != 0) return;
    thrower = NULL;
    throw_out_of_range(CXX_TEXT);
}

#define THROWING(result, name, parameters, arguments)                                                        \
    __attribute__((visibility("default"))) result name parameters                                            \
    {                                                                                                        \
        static result(*next) parameters;                                                                     \
        if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, #name);                                         \
        throw_if(#name);                                                                                     \
        return next arguments;                                                                               \
    }

THROWING(int32_t, llama_decode, (struct llama_context * c, struct llama_batch batch), (c, batch))
THROWING(int32_t, llama_tokenize,
         (const struct llama_vocab *vocab, const char *text, int32_t length, llama_token *tokens, int32_t n,
          bool special, bool parse),
         (vocab, text, length, tokens, n, special, parse))
THROWING(size_t, llama_state_seq_set_data_ext,
         (struct llama_context * c, const uint8_t *bytes, size_t n, llama_seq_id seq,
          llama_state_seq_flags flags),
         (c, bytes, n, seq, flags))
THROWING(size_t, llama_state_seq_get_size_ext,
         (struct llama_context * c, llama_seq_id seq, llama_state_seq_flags flags), (c, seq, flags))
THROWING(bool, llama_memory_seq_rm, (llama_memory_t memory, llama_seq_id seq, llama_pos from, llama_pos to),
         (memory, seq, from, to))
THROWING(struct llama_context *, llama_init_from_model,
         (struct llama_model * m, struct llama_context_params params), (m, params))
THROWING(struct llama_model *, llama_model_load_from_file,
         (const char *path, struct llama_model_params params), (path, params))
THROWING(uint32_t, llama_model_quantize,
         (const char *path, const char *out, const llama_model_quantize_params *params), (path, out, params))
THROWING(float *, llama_get_logits, (struct llama_context * c), (c))
THROWING(int32_t, llama_set_adapters_lora,
         (struct llama_context * c, struct llama_adapter_lora **adapters, size_t n, float *scales),
         (c, adapters, n, scales))
THROWING(struct llama_sampler *, llama_sampler_chain_init, (struct llama_sampler_chain_params params),
         (params))

static rig r;
static char state[1 << 22];
static size_t n_state;
static weir_error why;

static weir_status decodes(void)
{
    int32_t token = 30;
    return feed(&r, 0, &token, 1, &why);
}

static weir_status tokenizes(void)
{
    int32_t tokens[8];
    size_t n;
    return ops->tokenize(model, "text", 4, false, false, tokens, N_ELEMENTS(tokens), &n, &why);
}

static weir_status loads_state(void)
{
    return ops->state_load(r.context, 1, state, n_state, &why);
}

static weir_status creates_context(void)
{
    weir_context_params params = rig_params(256, 1, WEIR_LAYOUT_UNIFIED);
    weir__bcontext *made = NULL;
    weir_context_info info;
    weir_status status = ops->context_create(model, &params, &made, &info, &why);
    ops->context_free(made);
    return status;
}

static weir_status loads_model(void)
{
    weir_model_params params = weir_model_params_default();
    weir__bmodel *made = NULL;
    weir_status status = ops->model_load(model_path(), &params, true, &made, &why);
    ops->model_free(made);
    return status;
}

static weir_status quantizes(void)
{
    char out[TEMP_PATH_MAX];
    weir_quantize_params params = {.size = sizeof params, .type = "Q8_0", .n_threads = 1, .requantize = true};
    temp_path(out, "quantized.gguf");
    weir_status status = ops->model_quantize(model_path(), out, &params, &why);
    unlink(out);
    return status;
}

static weir_status sets_adapters(void)
{
    return ops->set_adapters(r.context, NULL, NULL, 0, &why);
}

static weir_status creates_sampler(void)
{
    weir_sampler_params params = complete_params();
    weir__bsampler *made = NULL;
    weir_status status = ops->sampler_create(model, &params, NULL, &made, &why);
    ops->sampler_free(made);
    return status;
}

static int n_lines; /* lines of the log with C++'s text */

static void count_lines(weir_log_level level, const char *message, void *user)
{
    (void)user;
    if (level == WEIR_LOG_ERROR && strstr(message, CXX_TEXT) != NULL) n_lines++;
}

static void a_message_is_weirs_own(void **unused)
{
    (void)unused;
    static const struct {
        const char *function;
        weir_status (*call)(void);
        weir_status status;
        const char *message;
    } calls[] = {
        {"llama_decode", decodes, WEIR_BACKEND, "the pass failed"},
        {"llama_tokenize", tokenizes, WEIR_BACKEND, "the text cannot be tokenized"},
        {"llama_state_seq_set_data_ext", loads_state, WEIR_FORMAT, "the state cannot be loaded"},
        {"llama_init_from_model", creates_context, WEIR_BACKEND, "the context cannot be made"},
        {"llama_model_load_from_file", loads_model, WEIR_BACKEND, "the model cannot be loaded"},
        {"llama_model_quantize", quantizes, WEIR_BACKEND, "the model cannot be quantized"},
        {"llama_set_adapters_lora", sets_adapters, WEIR_BACKEND, "the adapters cannot be set"},
        {"llama_sampler_chain_init", creates_sampler, WEIR_BACKEND, "the sampler cannot be made"},
    };
    weir_log_set(count_lines, NULL);
    for (size_t i = 0; i < N_ELEMENTS(calls); i++) {
        char message[128];
        snprintf(message, sizeof message, "%s; the log has the reason", calls[i].message);
        n_lines = 0;
        thrower = calls[i].function;
        weir_status status = calls[i].call();
        if (thrower != NULL) fail_msg("%s was not called", thrower);
        if (status != calls[i].status) fail_msg("%s: %s", calls[i].function, weir_status_name(status));
        assert_string_equal(why.message, message);
        assert_int_equal(n_lines, 1);
        if (calls[i].call == quantizes) continue; /* it takes long */
        assert_int_equal(calls[i].call(), WEIR_OK);
    }
    weir_log_set(NULL, NULL);
}

/* Operations whose result says no more than that they failed. */
static void an_operation_without_a_message(void **unused)
{
    (void)unused;
    thrower = "llama_state_seq_get_size_ext";
    assert_int_equal(ops->state_size(r.context, 0), 0);
    assert_true(ops->state_size(r.context, 0) > 0);
    thrower = "llama_memory_seq_rm";
    assert_false(ops->seq_remove(r.context, 0, 0, -1));
    thrower = "llama_memory_seq_rm";
    assert_false(ops->seq_copy(r.context, 0, 1, 0, -1));
    assert_true(ops->seq_copy(r.context, 0, 1, 0, -1));
    assert_int_equal(decodes(), WEIR_OK);
    thrower = "llama_get_logits";
    assert_null(ops->logits(r.context, -1));
    assert_int_equal(decodes(), WEIR_OK);
    assert_non_null(ops->logits(r.context, -1));
    assert_null(thrower);
}

static int begin(void **unused)
{
    load_model(unused);
    rig_init(&r, 256, 2, WEIR_LAYOUT_UNIFIED);
    feed_text(&r, 0, "once");
    n_state = ops->state_save(r.context, 0, state, sizeof state);
    return n_state == 0;
}

static int end(void **unused)
{
    rig_fini(&r);
    return free_model(unused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_weirs_own),
        cmocka_unit_test(an_operation_without_a_message),
    };
#ifdef __APPLE__
    puts("skipped: no function of llama.cpp can be replaced here");
    return 0;
#endif
    return RUN_MODEL_TESTS_WITH(tests, begin, end);
}
