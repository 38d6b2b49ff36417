/* SPDX-License-Identifier: Apache-2.0 */
#include "hint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ask.h"
#include "base/words.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Fields that clients and other servers have, which nobody mistyped. */
static const char *const real[] = {
    /* vLLM */
    "use_beam_search",
    "length_penalty",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "allowed_token_ids",
    "bad_words",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "structured_outputs",
    "logits_processors",
    "request_id",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "kv_transfer_params",
    "vllm_xargs",
    "add_special_tokens",
    "include_reasoning",
    "documents",
    "chat_template",
    "mm_processor_kwargs",
    "detokenize",
    "prompt_embeds",
    "structural_tag",
    "thinking_token_budget",
    "media_io_kwargs",
    "repetition_detection",
    /* SGLang */
    "lora_path",
    "regex",
    "ebnf",
    "session_params",
    "rid",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "custom_logit_processor",
    "no_stop_trim",
    "input_ids",
    "sampling_params",
    "stop_regex",
    "custom_params",
    "data_parallel_rank",
    "max_dynamic_patch",
    "return_routed_experts",
    "extra_key",
    /* TGI */
    "inputs",
    "parameters",
    "details",
    "do_sample",
    "max_new_tokens",
    "watermark",
    "decoder_input_details",
    "return_full_text",
    "adapter_id",
    /* OpenRouter, LiteLLM */
    "provider",
    "models",
    "route",
    "transforms",
    "plugins",
    "reasoning",
    "usage",
    "top_a",
    "preset",
    "session_id",
    "trace",
    "timeout",
    "num_retries",
    "api_key",
    "api_base",
    "mock_response",
    "drop_params",
    "tags",
    "guardrails",
    "fallbacks",
    "extra_body",
    "extra_headers",
    "debug",
    "image_config",
    "cache",
    /* Mistral, DeepSeek, DashScope, Moonshot, Z.ai */
    "random_seed",
    "safe_prompt",
    "prompt_mode",
    "thinking",
    "prefix",
    "enable_thinking",
    "thinking_budget",
    "enable_search",
    "search_options",
    "result_format",
    "incremental_output",
    "partial",
    "do_sample",
    "tool_stream",
    "preserve_thinking",
    "vl_high_resolution_images",
    /* Groq, Together, Cohere, xAI, Perplexity, Fireworks, Cerebras */
    "reasoning_format",
    "search_settings",
    "exclude_domains",
    "include_domains",
    "compound_custom",
    "citation_options",
    "disable_tool_validation",
    "safety_model",
    "p",
    "k",
    "preamble",
    "search_parameters",
    "deferred",
    "search_domain_filter",
    "return_images",
    "return_related_questions",
    "search_recency_filter",
    "search_mode",
    "context_length_exceeded_behavior",
    "prompt_truncate_len",
    "raw_output",
    "perf_metrics_in_response",
    "disable_reasoning",
    "clear_thinking",
    "min_completion_tokens",
    "queue_threshold",
    /* OpenAI, Anthropic */
    "prompt_cache_options",
    "prompt_cache_key",
    "safety_identifier",
    "web_search_options",
    "modalities",
    "prediction",
    "verbosity",
    "service_tier",
    "truncation",
    "include",
    "background",
    "conversation",
    "context_management",
    "inference_geo",
    "diagnostics",
    "betas",
    "anthropic_version",
    "anthropic_beta",
    "container",
    "mcp_servers",
    "speed",
    "output_format",
    "user_profile_id",
    "max_tool_calls",
    "generate",
    "previous_interaction_id",
    /* LM Studio, Ollama, llama-server */
    "ttl",
    "draft_model",
    "num_ctx",
    "num_predict",
    "keep_alive",
    "raw",
    "penalty_prompt",
    "penalize_nl",
    "tfs_z",
    "image_data",
    "parse_tool_calls",
    "chat_format",
    "generation_prompt",
    "reasoning_in_content",
    "grammar_lazy",
    "preserved_tokens",
    "backend_sampling",
    "grammar_triggers",
    "grammar_type",
    "n_keep",
    "system_prompt",
    "reasoning_control",
    "thinking_forced_open",
    "parse_reasoning",
    "speculative.n_min",
    "speculative.p_min",
    "speculative.type",
    "sse_ping_interval",
    /* Parts of requests */
    "defer_loading",
    "allowed_callers",
    "input_examples",
    "strict",
    "cache_control",
    "eager_input_streaming",
    "output_config",
    "display",
    "generate_summary",
    "summary",
    "context",
    "mode",
    "encrypted_content",
    "detail",
    "annotations",
    "logprobs",
    "phase",
    "caller",
    "refusal",
    "audio",
    "thinking_blocks",
    "reasoning_details",
    "signature",
    "index",
    "cache_control",
    "name",

    "images",
    "prompt_cache_breakpoint",
    "agent",
    "search_context_size",
    "user_location",
    "filters",
    "external_web_access",
    "max_uses",
    "examples",
    "returns",
};

static const char *near_field(const char *name, unsigned where)
{
    size_t n;
    const weir_member *members = weir_members("sampler", &n);
    for (size_t i = 0; i < serve_ask_table.n; i++) {
        const serve_field *f = &serve_ask_table.fields[i];
        if ((f->where & where) != 0 && weir__words_near(name, f->name) >= 0) return f->name;
    }
    for (size_t i = 0; i < n; i++)
        if (weir__words_near(name, members[i].name) >= 0) return members[i].name;
    return NULL;
}

static void test_real(void **state)
{
    (void)state;
    size_t n_bad = 0;
    for (size_t i = 0; i < COUNT(real); i++) {
        const char *near = !serve_fields_know(real[i]) ? near_field(real[i], ~SERVE_FIELD_BINDS) : NULL;
        if (near != NULL) printf("%s is near %s\n", real[i], near);
        n_bad += near != NULL;
    }
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
