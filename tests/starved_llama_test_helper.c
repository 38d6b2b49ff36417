/* starved_llama_test_helper.c: chats, parsers of answers, samplers, passes, states, adapters,
 * projectors and quantizations of
 * llama.cpp, each again and again while another of its allocations fails: alone, and with all after it.
 * The status is OK, with the result that it has with memory, or NO_MEMORY. starved_llama_test.py preloads
 * preload/starve.c. SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/more.h>

/* Of preload/starve.c. */
extern void starve_after(long n, long many) __attribute__((weak));
extern long starve_left(void) __attribute__((weak));

#define N_PROMPT 24

typedef struct outcome {
    uint64_t hash; /* of all that came out */
    weir_status status;
    weir_error error;
} outcome;

static weir_model *model;
static weir_context *context;
static const char *model_path, *adapter_path, *projector_path, *out_path;
static int32_t prompt[N_PROMPT];
static char state[1 << 20];

static void mix(outcome *o, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        o->hash = (o->hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
}

static void mix_text(outcome *o, const char *text)
{
    mix(o, text, strlen(text) + 1);
}

/* ---- Chats ---- */

static const char talk[] =
    "[{\"role\":\"system\",\"content\":\"Be \\u00e4 brief.\"},{\"role\":\"user\",\"content\":\"Rain in "
    "<|im_end|> Rome?\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\",\"id\":\"call12345\","
    "\"function\":{"
    "\"name\":\"weather\",\"arguments\":\"{\\\"city\\\":[[1,{\\\"a\\\":[]}],{\\\"b\\\":\\\"Rome\\\"}]}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"call12345\",\"content\":\"no\"},{\"role\":\"user\",\"content\":"
    "\"Sure?\"}]";
static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Weather\",\"parameters\":{"
    "\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]+$\"},\"days\":{\"type\":"
    "\"array\",\"items\":{"
    "\"type\":\"integer\",\"minimum\":1,\"maximum\":14}}},\"required\":[\"city\"]}}}]";
static const char schema[] = "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"number\"},\"k\":{"
                             "\"anyOf\":[{\"const\":\"a\"},{\"type\":\"null\"}]}},"
                             "\"required\":[\"n\",\"k\"],\"additionalProperties\":false}";
static const char hermes[] =
    "{% if tools %}<|im_start|>system\nTools:{% for t in tools %}{{ t | tojson }}{% endfor %}\n"
    "Answer with <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<tool_call>"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor "
    "%}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static const char answer[] =
    "Let me see.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": [1, 2]}}"
    "</tool_call>";

static weir_chat *make_chat(outcome *o, const char *source, const char *tools_json, weir_tool_choice choice,
                            const char *form)
{
    weir_chat *chat = NULL;
    weir_chat_params params = weir_chat_params_default();
    params.messages_json = talk;
    params.template_source = source;
    params.tools_json = tools_json;
    params.tool_choice = choice;
    params.json_schema = form;
    o->status = weir_chat_create(model, &params, &chat, &o->error);
    if (o->status != WEIR_OK) return NULL;
    mix_text(o, weir_chat_prompt(chat, NULL));
    mix_text(o, weir_chat_relaxed(chat));
    return chat;
}

/* The sampler holds the grammar of the chat's answers. */
static void read_answer(outcome *o, weir_chat *chat)
{
    weir_chat_parser *parser = NULL;
    static int32_t tokens[4096];
    size_t n = 0;
    o->status = weir_chat_tokenize(chat, tokens, sizeof tokens / sizeof *tokens, &n, &o->error);
    if (o->status == WEIR_OK) o->status = weir_chat_parser_create(chat, &parser, &o->error);
    mix(o, tokens, n * sizeof *tokens);
    for (size_t at = 0; o->status == WEIR_OK && at < sizeof answer - 1; at += 10) {
        size_t left = sizeof answer - 1 - at;
        o->status = weir_chat_parser_feed(parser, answer + at, left < 10 ? left : 10, left <= 10, &o->error);
        weir_delta delta;
        while (o->status == WEIR_OK && (o->status = weir_chat_parser_next(parser, &delta)) == WEIR_OK) {
            mix(o, &delta.kind, sizeof delta.kind);
            mix(o, delta.text, delta.length);
        }
        if (o->status == WEIR_END) o->status = WEIR_OK;
    }
    weir_chat_parser_destroy(parser);
}

static void chat_case(outcome *o, const char *source, const char *tools_json, weir_tool_choice choice,
                      const char *form)
{
    weir_chat *chat = make_chat(o, source, tools_json, choice, form);
    if (chat != NULL) read_answer(o, chat);
    weir_chat_release(chat);
}

static void plain(outcome *o)
{
    chat_case(o, NULL, NULL, WEIR_TOOLS_AUTO, NULL);
}

static void tools_or_text(outcome *o)
{
    chat_case(o, hermes, tools, WEIR_TOOLS_AUTO, NULL);
}

static void required_tool(outcome *o)
{
    chat_case(o, hermes, tools, WEIR_TOOLS_REQUIRED, NULL);
}

static void tools_beside_form(outcome *o)
{
    chat_case(o, NULL, tools, WEIR_TOOLS_AUTO, schema);
}

static void form(outcome *o)
{
    chat_case(o, NULL, NULL, WEIR_TOOLS_AUTO, schema);
}

/* ---- Passes ---- */

static void sampler_case(outcome *o)
{
    weir_sampler *sampler = NULL;
    weir_sampler_params params = weir_sampler_params_default();
    params.temp = 0;
    params.json_schema = schema;
    o->status = weir_sampler_create(model, &params, &sampler, &o->error);
    const float *logits = NULL;
    if (o->status == WEIR_OK) o->status = weir_context_clear(context, &o->error);
    if (o->status == WEIR_OK) o->status = weir_prefill(context, prompt, N_PROMPT, 0, NULL, &o->error);
    for (int32_t i = 0; o->status == WEIR_OK && i < 4; i++) {
        int32_t token;
        o->status = weir_logits(context, -1, &logits, &o->error);
        if (o->status == WEIR_OK) mix(o, logits, 64 * sizeof *logits);
        if (o->status == WEIR_OK) o->status = weir_sample(sampler, context, &token, &o->error);
        if (o->status == WEIR_OK) mix(o, &token, sizeof token);
        if (o->status == WEIR_OK) o->status = weir_decode_token(context, token, N_PROMPT + i, 0, &o->error);
    }
    weir_sampler_destroy(sampler);
}

static void state_case(outcome *o)
{
    size_t n = 0;
    o->status = weir_context_clear(context, &o->error);
    if (o->status == WEIR_OK) o->status = weir_prefill(context, prompt, N_PROMPT, 0, NULL, &o->error);
    if (o->status == WEIR_OK) o->status = weir_state_save(context, 0, state, sizeof state, &n, &o->error);
    if (o->status == WEIR_OK) mix(o, state, n);
    if (o->status == WEIR_OK) o->status = weir_state_load(context, 1, state, n, &o->error);
    if (o->status == WEIR_OK) o->status = weir_decode_token(context, prompt[1], N_PROMPT, 1, &o->error);
    const float *logits = NULL;
    if (o->status == WEIR_OK) o->status = weir_logits(context, -1, &logits, &o->error);
    if (o->status == WEIR_OK) mix(o, logits, 64 * sizeof *logits);
}

static void context_case(outcome *o)
{
    weir_context *made = NULL;
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 256;
    params.n_batch = 32;
    params.n_threads = 1;
    const float *logits = NULL;
    o->status = weir_context_create(model, &params, &made, &o->error);
    if (o->status == WEIR_OK) o->status = weir_prefill(made, prompt, N_PROMPT, 0, NULL, &o->error);
    if (o->status == WEIR_OK) o->status = weir_logits(made, -1, &logits, &o->error);
    if (o->status == WEIR_OK) mix(o, logits, 64 * sizeof *logits);
    weir_context_destroy(made);
}

static weir_adapter *adapter;

static void adapter_case(outcome *o)
{
    const float *logits = NULL;
    o->status = weir_adapter_load(model, adapter_path, &adapter, &o->error);
    weir_adapter_use use = {.adapter = adapter, .scale = 1};
    if (o->status == WEIR_OK) o->status = weir_context_clear(context, &o->error);
    if (o->status == WEIR_OK) o->status = weir_context_set_adapters(context, &use, 1, &o->error);
    if (o->status == WEIR_OK) o->status = weir_prefill(context, prompt, N_PROMPT, 0, NULL, &o->error);
    if (o->status == WEIR_OK) o->status = weir_logits(context, -1, &logits, &o->error);
    if (o->status == WEIR_OK) mix(o, logits, 64 * sizeof *logits);
}

static void drop_adapter(outcome *o)
{
    if (weir_context_set_adapters(context, NULL, 0, NULL) != WEIR_OK) o->status = WEIR_BACKEND;
    weir_adapter_release(adapter);
    adapter = NULL;
}

/* ---- Files ---- */

static void mix_file(outcome *o, const char *path)
{
    static char bytes[1 << 16];
    size_t n;
    FILE *file = fopen(path, "rb");
    while (file != NULL && (n = fread(bytes, 1, sizeof bytes, file)) > 0) mix(o, bytes, n);
    if (file != NULL) fclose(file);
}

static weir_model *seeing;

static void projector_case(outcome *o)
{
    weir_model_params params = weir_model_params_default();
    params.projector = projector_path;
    o->status = weir_model_load(model_path, &params, &seeing, &o->error);
    if (o->status != WEIR_OK) return;
    weir_model_info info = {.size = sizeof info};
    o->status = weir_model_describe(seeing, &info);
    mix(o, &info.reads_sounds, sizeof info.reads_sounds);
}

static void drop_projector(outcome *o)
{
    (void)o;
    weir_model_release(seeing);
    seeing = NULL;
}

static void quantize_case(outcome *o)
{
    weir_quantize_params params = weir_quantize_params_default();
    params.n_threads = 1;
    o->status = weir_model_quantize(model_path, out_path, &params, &o->error);
}

static void read_quantized(outcome *o)
{
    if (o->status == WEIR_OK) mix_file(o, out_path);
}

/* ---- Every allocation ---- */

static const struct {
    const char *name;
    void (*run)(outcome *o);
    void (*end)(outcome *o); /* with all memory again; NULL: nothing */
} cases[] = {
    {"plain", plain, NULL},
    {"form", form, NULL},
    {"tools", tools_or_text, NULL},
    {"required", required_tool, NULL},
    {"either", tools_beside_form, NULL},
    {"sampler", sampler_case, NULL},
    {"state", state_case, NULL},
    {"context", context_case, NULL},
    {"adapter", adapter_case, drop_adapter},
    {"projector", projector_case, drop_projector},
    {"quantize", quantize_case, read_quantized},
};

static outcome run(size_t i)
{
    outcome o = {0};
    cases[i].run(&o);
    if (cases[i].end != NULL) cases[i].end(&o);
    return o;
}

/* step 1: every allocation; more: about one of so many. False: a wrong end. */
static bool starve(size_t i, long step, long many)
{
    long n_refused = 0, n = 0;
    (void)run(i); /* once for what is kept from then on */
    outcome right = run(i);
    if (right.status != WEIR_OK) {
        printf("%s: %s\n", cases[i].name, right.error.message);
        return false;
    }
    for (bool pending = false; !pending; n += step > 1 ? 1 + (n * 7919 + step) % (2 * step - 1) : 1) {
        outcome o = {0};
        fprintf(stderr, "\r%s %ld ", cases[i].name, n); /* the last line names what ended the process */
        starve_after(n, many);
        cases[i].run(&o);
        pending = starve_left() >= 0;
        starve_after(-1, 0);
        if (cases[i].end != NULL) cases[i].end(&o);
        /* The API's word for a state that could not be saved. */
        if (o.status == WEIR_BACKEND && cases[i].run == state_case) o.status = WEIR_NO_MEMORY;
        n_refused += o.status == WEIR_NO_MEMORY;
        if (o.status == WEIR_NO_MEMORY ? !pending : o.status == WEIR_OK && o.hash == right.hash) continue;
        printf("%s, allocation %ld: %d %s\n", cases[i].name, n, (int)o.status, o.error.message);
        return false;
    }
    outcome again = run(i);
    printf("about %ld allocations, %ld failed\n", n, n_refused);
    return again.status == WEIR_OK && again.hash == right.hash;
}

int main(int argc, char **argv)
{
    weir_error error = {0};
    bool ok = true;
    if (argc < 8 || starve_after == NULL || starve_left == NULL) return 2;
    setvbuf(stdout, NULL, _IOLBF, 4096);
    model_path = argv[1];
    adapter_path = argv[2];
    projector_path = argv[3];
    out_path = argv[4];
    weir_context_params params = weir_context_params_default();
    params.n_ctx = 512;
    params.n_batch = 32;
    params.n_seq_max = 4;
    params.n_threads = 1;
    if (weir_model_load(argv[1], NULL, &model, &error) != WEIR_OK ||
        weir_context_create(model, &params, &context, &error) != WEIR_OK) {
        printf("%s\n", error.message);
        return 2;
    }
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = 65 + i;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(argv[7], "all") == 0 || strcmp(argv[7], cases[i].name) == 0)
            ok = starve(i, strtol(argv[5], NULL, 10), strtol(argv[6], NULL, 10)) && ok;
    weir_context_destroy(context);
    weir_model_release(model);
    return ok ? 0 : 1;
}
