/* options.c: the table of options, what finds one by its name, field, setting or key, and the built-in chat
 * templates.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row says which commands have the option, the place of its value in cli_args, and its help. Of a parameter
 * of the library, cli_options_init takes the type, the choices and the help from weir_member; it also makes
 * the names of environment variables. All else here looks through the table: parse.c by spelling and setting,
 * presets and models by key, batch.c by the keys of requests, and errors of the library by field, to name the
 * option that set it. parse.c reads the values, and args.c holds them. */
#include "options.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"

#define ASK   (CLI_RUN | CLI_STREAM | CLI_CHAT | CLI_PRESET)
#define SETS  (ASK | CLI_SERVE | CLI_RECORD) /* which requests to a server need not set */
#define TEXTS (CLI_TOKENIZE | CLI_EMBED)
#define LOADS (SETS | CLI_INFO | CLI_BENCH)
#define NAMED (CLI_PULL | CLI_LIST_MODELS)
#define NAMES (LOADS | NAMED | CLI_OPTIMIZE | CLI_QUANTIZE | TEXTS)
#define WATCH (CLI_PS | CLI_TOP)
#define ALL                                                                                                  \
    (NAMES | WATCH | CLI_RM | CLI_RPC | CLI_HTTP | CLI_KERNELS | CLI_SCHEDULE | CLI_REPLAY | CLI_CONFIG |    \
     CLI_COMPLETION | CLI_VERSION)

const char *const cli_group_titles[CLI_N_GROUPS] = {
    [CLI_ASKING] = "Prompt",         [CLI_SAMPLING] = "Sampling", [CLI_LIMITS] = "Limits",
    [CLI_MODEL] = "Model",           [CLI_ENGINE] = "Engine",     [CLI_SERVING] = "Server",
    [CLI_MEASURING] = "Measurement", [CLI_OUTPUT] = "Output",
};

static const char *const poolings[] = {"model", "mean", "cls", "last", NULL};
static const char *const normalizations[] = {"l2", "max", "none", NULL};

/* clang-format off */
/* Places of options' values. A parameter of the library has the kind, choices and help of its row. */
#define AT(m) offsetof(cli_args, m)
#define MEMBER(params, m, at) .of = #params, .field = #m, .target = AT(at)
#define SAMPLER(m) MEMBER(sampler, m, ask.sampler.m)
#define REQUEST(m) MEMBER(request, m, ask.request.m)
#define MODEL(m) MEMBER(model, m, model.m)
#define ENGINE(m) MEMBER(engine, m, engine.m)
/* A value of the command line's own; of SET, SERVE and LIVE environment and config file may set it. */
#define OWN(k, m) .kind = (k), .target = AT(m), .env = ""
#define SET(k, m) .kind = (k), .target = AT(m)
#define SERVE(k, m) SET(k, serve.m), .field = #m
#define LIVE(k, m) SET(k, serve.live.m), .field = #m
#define RARE .rare = true
#define OF_MODEL .whose = CLI_OF_MODEL
#define GUARDS .empty = CLI_EMPTY_REFUSED

static cli_option table[] = {
    {"--prompt", "-p", CLI_ASKING, CLI_RUN, "TEXT", OWN(CLI_STRING, prompt), .help = "the prompt; - reads stdin; piped text is placed before it"},
    {"--file", "-f", CLI_ASKING, CLI_RUN, "FILE", OWN(CLI_LIST, prompt_files),
     .help = "a text file, placed before the prompt or used as the prompt; - reads stdin; with several files the model sees their names too"},
    {"--image", NULL, CLI_ASKING, CLI_RUN, "FILE", OWN(CLI_LIST, images), .help = "an image before the prompt: PNG, JPEG or WebP; - reads stdin"},
    {"--audio", NULL, CLI_ASKING, CLI_RUN, "FILE", OWN(CLI_LIST, sounds), .help = "a sound before the prompt: WAV, FLAC or MP3; - reads stdin"},
    {"--file", "-f", CLI_ASKING, TEXTS, "FILE", OWN(CLI_FILE, prompt_file), .help = "read the text from a file; - or a pipe: from stdin"},
    {"--json-lines", NULL, CLI_ASKING, CLI_EMBED, NULL, OWN(CLI_FLAG, json_lines),
     .help = "each line of the input is JSON: a string, or an object with the member text, input or content"},
    {"--no-special", NULL, CLI_ASKING, TEXTS, NULL, OWN(CLI_FLAG, no_special), .help = "leave out the special tokens that the model expects around a text"},
    {"--no-parse", NULL, CLI_ASKING, CLI_TOKENIZE, NULL, OWN(CLI_FLAG, no_parse), .help = "treat <|im_end|> and other special tokens as text"},
    {"--system", "-sys", CLI_ASKING, CLI_RUN | CLI_STREAM | CLI_CHAT | CLI_PRESET, "TEXT", SET(CLI_STRING, system), .help = "a system message before the prompt"},
    {"--system", "-sys", CLI_ASKING, CLI_SERVE | CLI_RECORD, "TEXT", SET(CLI_STRING, system), .field = "system", .help = "the system message of chats that have none"},
    {"--raw", NULL, CLI_ASKING, CLI_RUN | CLI_STREAM, NULL, OWN(CLI_FLAG, raw), .help = "continue the prompt as plain text, without the chat template"},
    {"--chat-template-file", NULL, CLI_ASKING, SETS, "FILE", SET(CLI_FILE, chat_template), .standard = "the model's own",
     .help = "a Jinja template in place of the model's", RARE},
    {"--chat-template", NULL, CLI_ASKING, SETS, "NAME", SET(CLI_TEMPLATE, chat_template), .standard = "the model's own", .choices = cli_template_names,
     .help = "a built-in template: chatml, gemma, llama3, mistral-v7, phi3, phi4, vicuna, zephyr", RARE},
    {"--no-thinking", NULL, CLI_ASKING, SETS, NULL, SET(CLI_FLAG, no_thinking), .help = "ask a model that reasons to answer at once"},
    {"--reasoning-budget", NULL, CLI_ASKING, CLI_RUN | CLI_STREAM | CLI_CHAT, "N", REQUEST(reasoning_budget), .standard = "no limit", RARE},
    {"--reasoning-budget", NULL, CLI_ASKING, CLI_SERVE | CLI_RECORD, "N", SET(CLI_STRING, reasoning_budget), .field = "reasoning_budget", .standard = "no limit",
     .help = "end reasoning after N tokens; LEVEL=N: of requests of that effort: 4096,low=512,high=8192", OF_MODEL, RARE},
    {"--special-content", NULL, CLI_ASKING, SETS, "WHOSE", MEMBER(chat, special_content, special_content), RARE},
    {"--strict-messages", NULL, CLI_ASKING, SETS, NULL, SET(CLI_FLAG, strict_messages), .help = "refuse messages that the chat template does not take as they are", RARE},

    {"--temp", "--temperature", CLI_SAMPLING, SETS, "T", SAMPLER(temp)},
    {"--top-k", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(top_k)},
    {"--top-p", NULL, CLI_SAMPLING, SETS, "P", SAMPLER(top_p)},
    {"--min-p", NULL, CLI_SAMPLING, SETS, "P", SAMPLER(min_p)},
    {"--typical", "--typical-p", CLI_SAMPLING, SETS, "P", SAMPLER(typical_p), RARE},
    {"--top-nsigma", "--top-n-sigma", CLI_SAMPLING, SETS, "N", SAMPLER(top_n_sigma), RARE},
    {"--xtc-probability", NULL, CLI_SAMPLING, SETS, "P", SAMPLER(xtc_probability), RARE},
    {"--xtc-threshold", NULL, CLI_SAMPLING, SETS, "P", SAMPLER(xtc_threshold), RARE},
    {"--min-keep", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(min_keep), RARE},
    {"--dynatemp-range", NULL, CLI_SAMPLING, SETS, "R", SAMPLER(dynatemp_range), RARE},
    {"--dynatemp-exp", "--dynatemp-exponent", CLI_SAMPLING, SETS, "E", SAMPLER(dynatemp_exponent), RARE},
    {"--mirostat", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(mirostat), RARE},
    {"--mirostat-ent", "--mirostat-tau", CLI_SAMPLING, SETS, "N", SAMPLER(mirostat_tau), RARE},
    {"--mirostat-lr", "--mirostat-eta", CLI_SAMPLING, SETS, "N", SAMPLER(mirostat_eta), RARE},
    {"--adaptive-target", NULL, CLI_SAMPLING, SETS, "P", SAMPLER(adaptive_target), RARE},
    {"--adaptive-decay", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(adaptive_decay), RARE},
    {"--repeat-penalty", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(penalty_repeat)},
    {"--repeat-last-n", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(penalty_last_n), RARE},
    {"--frequency-penalty", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(penalty_freq), RARE},
    {"--presence-penalty", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(penalty_present), RARE},
    {"--dry-multiplier", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(dry_multiplier), RARE},
    {"--dry-base", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(dry_base), RARE},
    {"--dry-allowed-length", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(dry_allowed_length), RARE},
    {"--dry-penalty-last-n", NULL, CLI_SAMPLING, SETS, "N", SAMPLER(dry_penalty_last_n), RARE},
    {"--dry-sequence-breaker", "--dry-breaker", CLI_SAMPLING, ASK, "TEXT", MEMBER(sampler, dry_breakers, ask.dry_breakers), .env = "", .standard = "\\n : \" *", RARE},
    {"--logit-bias", NULL, CLI_SAMPLING, ASK, "ID(+/-)N", MEMBER(sampler, logit_bias, ask.biases), .env = "",
     .help = "make a token likelier (15043+1) or forbid it (15043-inf)", RARE},
    {"--ignore-eos", NULL, CLI_SAMPLING, ASK, NULL, SAMPLER(ignore_eos), RARE},
    {"--samplers", NULL, CLI_SAMPLING, SETS, "A;B;…", MEMBER(sampler, order, ask.order), .standard = WEIR_SAMPLERS_DEFAULT, RARE},
    {"--seed", "-s", CLI_SAMPLING, SETS, "N", SAMPLER(seed)},
    {"--grammar", NULL, CLI_SAMPLING, ASK, "GBNF", MEMBER(sampler, grammar, ask.grammar), .env = ""},
    {"--grammar-file", NULL, CLI_SAMPLING, ASK, "FILE", OWN(CLI_FILE, ask.grammar), .help = "the same, from a file"},
    {"--grammar-root", NULL, CLI_SAMPLING, ASK, "RULE", MEMBER(sampler, grammar_root, ask.grammar_root), .env = "", .standard = "root", RARE},
    {"--json-schema", "-j", CLI_SAMPLING, ASK, "SCHEMA", MEMBER(sampler, json_schema, ask.json_schema), .env = ""},
    {"--json-schema-file", "-jf", CLI_SAMPLING, ASK, "FILE", OWN(CLI_FILE, ask.json_schema), .help = "the same, from a file"},

    {"--max-tokens", "-n --n-predict --predict", CLI_LIMITS, SETS, "N", REQUEST(max_tokens), .standard = "as many as the context holds"},
    {"--stop", "-r --reverse-prompt", CLI_LIMITS, ASK, "TEXT", MEMBER(request, stop, ask.stop), .kind = CLI_LIST, .env = ""},
    {"--min-tokens", NULL, CLI_LIMITS, ASK, "N", REQUEST(min_tokens), RARE},
    {"--include-stop", NULL, CLI_LIMITS, ASK, NULL, REQUEST(include_stop), RARE},
    {"--truncate-prompt", NULL, CLI_LIMITS, ASK, "N", REQUEST(truncate_prompt), RARE},
    {"--deadline-ms", NULL, CLI_LIMITS, ASK, "MS", REQUEST(deadline_ms), .standard = "none", RARE},
    {"--priority", NULL, CLI_LIMITS, ASK, "N", REQUEST(priority), RARE},
    {"--no-cache-prompt", NULL, CLI_LIMITS, ASK, NULL, REQUEST(cache_prompt), .help = "bypass the prefix cache: prefill the whole prompt and keep none of it", RARE},
    {"--cache-salt", NULL, CLI_LIMITS, ASK, "TEXT", MEMBER(request, cache_salt, ask.cache_salt), .kind = CLI_STRING, .standard = "random; none with --cache-dir", RARE, GUARDS},
    {"--interval", NULL, CLI_LIMITS, ASK, "N", REQUEST(interval), RARE},
    {"--special", NULL, CLI_LIMITS, ASK, NULL, REQUEST(special), .env = "", RARE},

    {"--logprobs", NULL, CLI_OUTPUT, CLI_RUN | CLI_STREAM, "N", REQUEST(n_logprobs), .standard = "none",
     .help = "in JSON, return the logprob of each token and the N likeliest tokens (0 to 20)", RARE},
    {"--prompt-logprobs", NULL, CLI_OUTPUT, CLI_RUN, "N", MEMBER(request, n_prompt_logprobs, n_prompt_logprobs), .env = "", .standard = "none",
     .help = "the same for the prompt", RARE},

    {"--best-of", NULL, CLI_LIMITS, CLI_RUN, "N", OWN(CLI_INT32, best_of), .help = "generate N answers and print the one with the highest mean logprob", RARE},

    {"--explain-cache", NULL, CLI_OUTPUT, CLI_RUN | CLI_STREAM, NULL, SET(CLI_FLAG, explain_cache),
     .help = "report why a prompt missed the prefix cache, and where it differs from the nearest entry", RARE},

    {"--model", "-m", CLI_MODEL, LOADS | CLI_OPTIMIZE | CLI_QUANTIZE | TEXTS, "MODEL", SET(CLI_STRING, model_path), .standard = "default",
     .help = "a GGUF file, the name of a preset, a short name such as llama3.2 or hf:OWNER/REPO[:QUANTIZATION or FILE] (downloaded once; weir help pull), or default, the small model that make run and weir pull default download"},
    {"--revision", NULL, CLI_MODEL, NAMES & ~CLI_PRESET, "NAME", MEMBER(hub, revision, revision), .env = "", .standard = "main", RARE},
    {"--offline", NULL, CLI_MODEL, NAMES & ~CLI_PRESET, NULL, MEMBER(hub, offline, offline), .env = "", RARE},
    {"--force", NULL, CLI_MODEL, CLI_PULL, NULL, MEMBER(hub, force, force), .env = ""},
    {"--yes", "-y", CLI_MODEL, CLI_PULL, NULL, OWN(CLI_FLAG, yes), .help = "download what a short name means without asking"},
    {"--yes", "-y", CLI_MODEL, CLI_RM, NULL, OWN(CLI_FLAG, yes), .help = "remove without asking"},
    {"--optimized", NULL, CLI_MODEL, LOADS, "FILE", MEMBER(model, optimized, optimized), .standard = "the model's name and .weir, if it exists", RARE},
    {"--mmproj", "-mm", CLI_MODEL, LOADS, "FILE", MEMBER(model, projector, projector), .standard = "none"},
    {"--gpu-layers", "-ngl --n-gpu-layers", CLI_MODEL, LOADS, "N", MODEL(n_gpu_layers), .standard = "all"},
    {"--main-gpu", "-mg", CLI_MODEL, LOADS, "N", MODEL(main_gpu), RARE},
    {"--split-mode", "-sm", CLI_MODEL, LOADS, "MODE", MODEL(split_mode), RARE},
    {"--tensor-split", "-ts", CLI_MODEL, LOADS, "N,…", MEMBER(model, tensor_split, tensor_split), .kind = CLI_SHARES, .standard = "by free memory",
     .help = "the share of each GPU, such as 3,1", RARE},
    {"--device", "-dev", CLI_MODEL, LOADS, "NAME,…", MEMBER(model, devices, devices), .standard = "all", RARE},
    {"--device", "-dev", CLI_MODEL, CLI_RPC, "NAME,…", MEMBER(rpc, devices, devices), .standard = "the GPUs, or the CPU"},
    {"--rpc", NULL, CLI_MODEL, LOADS, "HOST:PORT,…", MEMBER(model, rpc, rpc), .standard = "none", RARE},
    {"--rpc-timeout", NULL, CLI_MODEL, LOADS, "MS", MODEL(rpc_timeout_ms), RARE},
    {"--listen", NULL, CLI_SERVING, CLI_RPC, "ADDRESS", MEMBER(rpc, listen, listen), .env = "", .standard = "127.0.0.1:50052"},
    {"--insecure-rpc", NULL, CLI_SERVING, CLI_RPC, NULL, MEMBER(rpc, insecure, insecure_rpc), .env = ""},
    {"--list-devices", NULL, CLI_MODEL, LOADS & ~CLI_PRESET, NULL, OWN(CLI_FLAG, list_devices), .help = "list the devices that can compute, and exit", RARE},
    {"--flash-attn", "-fa", CLI_MODEL, LOADS, "HOW", MODEL(flash_attn), RARE},
    {"--rope-scaling", NULL, CLI_MODEL, LOADS, "HOW", MODEL(rope_scaling), RARE},
    {"--rope-freq-base", NULL, CLI_MODEL, LOADS, "N", MODEL(rope_freq_base), RARE},
    {"--rope-freq-scale", NULL, CLI_MODEL, LOADS, "N", MODEL(rope_freq_scale), RARE},
    {"--yarn-orig-ctx", NULL, CLI_MODEL, LOADS, "N", MODEL(yarn_orig_ctx), RARE},
    {"--yarn-ext-factor", NULL, CLI_MODEL, LOADS, "N", MODEL(yarn_ext_factor), RARE},
    {"--yarn-attn-factor", NULL, CLI_MODEL, LOADS, "N", MODEL(yarn_attn_factor), RARE},
    {"--yarn-beta-fast", NULL, CLI_MODEL, LOADS, "N", MODEL(yarn_beta_fast), RARE},
    {"--yarn-beta-slow", NULL, CLI_MODEL, LOADS, "N", MODEL(yarn_beta_slow), RARE},
    {"--no-mmap", NULL, CLI_MODEL, LOADS, NULL, MODEL(use_mmap), .help = "read the file instead of mapping it", RARE},
    {"--mlock", NULL, CLI_MODEL, LOADS, NULL, MODEL(use_mlock), RARE},

    {"--ctx", "-c --ctx-size", CLI_ENGINE, SETS | CLI_INFO, "N", ENGINE(n_ctx)},
    {"--slots", "-np --parallel", CLI_ENGINE, CLI_RUN | CLI_SERVE | CLI_RECORD | CLI_INFO | CLI_SCHEDULE | CLI_PRESET, "N", ENGINE(n_slots)},
    {"--slots", "-np --parallel", CLI_ENGINE, CLI_STREAM, "N", ENGINE(n_slots), .standard = "0", .help = "requests that run at a time; 0 = all of them"},
    {"--kv", NULL, CLI_ENGINE, SETS | CLI_INFO, "N", ENGINE(n_kv), .standard = "slots × ctx, as far as memory allows", RARE},
    {"--threads", "-t", CLI_ENGINE, LOADS | CLI_EMBED | CLI_QUANTIZE | CLI_RPC, "N", ENGINE(n_threads), .standard = "as many as processors"},
    {"--threads-batch", "-tb", CLI_ENGINE, LOADS, "N", ENGINE(n_threads_batch), .standard = "as --threads", RARE},
    {"--batch-size", "-b", CLI_ENGINE, LOADS, "N", ENGINE(n_batch), RARE},
    {"--ubatch-size", "-ub", CLI_ENGINE, LOADS, "N", ENGINE(n_ubatch), .standard = "512 + slots", RARE},
    {"--chunk", NULL, CLI_ENGINE, LOADS, "N", ENGINE(chunk_size), RARE},
    {"--layout", NULL, CLI_ENGINE, LOADS, "NAME", ENGINE(layout), RARE},
    {"--ageing", NULL, CLI_ENGINE, CLI_RUN | CLI_SERVE | CLI_STREAM, "MS", ENGINE(ageing_ms), RARE},
    {"--cache-memory", NULL, CLI_ENGINE, SETS, "SIZE", ENGINE(cache_bytes), .standard = "a quarter of the free memory", RARE},
    {"--cache-sequences", NULL, CLI_ENGINE, SETS, "N", ENGINE(cache_sequences), .standard = "as many as need no extra memory", RARE},
    {"--cache-dir", NULL, CLI_ENGINE, SETS, "FOLDER", MEMBER(engine, cache_dir, cache_dir), .standard = "none", RARE, .whose = CLI_OF_ALL},
    {"--cache-disk", NULL, CLI_ENGINE, SETS, "SIZE", ENGINE(cache_disk_bytes), .standard = "4G", RARE, .whose = CLI_OF_ALL},
    {"--cache-type-k", "-ctk", CLI_ENGINE, LOADS, "TYPE", ENGINE(type_k), RARE},
    {"--cache-type-v", "-ctv", CLI_ENGINE, LOADS, "TYPE", ENGINE(type_v), RARE},
    {"--draft-max", "--draft --draft-n", CLI_ENGINE, SETS | CLI_INFO, "N", ENGINE(n_draft_max), RARE},
    {"--no-prompt-lookup", NULL, CLI_ENGINE, SETS | CLI_INFO, NULL, ENGINE(prompt_lookup), .help = "do not draft from texts, neither the request's own nor those of other requests", RARE},
    {"--lookup-memory", NULL, CLI_ENGINE, SETS | CLI_INFO, "SIZE", ENGINE(lookup_bytes), .standard = "16M", RARE},
    {"--draft-model", "-md --model-draft", CLI_ENGINE, SETS | CLI_INFO, "MODEL", MEMBER(engine, draft_model, draft_path), .kind = CLI_STRING, .standard = "none", RARE},
    {"--no-mtp", NULL, CLI_ENGINE, SETS | CLI_INFO, NULL, ENGINE(mtp), .help = "do not draft with the model's own MTP layers", RARE},

    {"--lora", NULL, CLI_MODEL, ASK, "FILE[=SCALE]", SET(CLI_LIST, lora), .standard = "none",
     .help = "a LoRA adapter (GGUF), with its scale (1)"},
    {"--lora", NULL, CLI_MODEL, CLI_SERVE | CLI_RECORD, "FILE[=SCALE]", SET(CLI_LIST, lora), .standard = "none",
     .help = "a LoRA adapter (GGUF) that requests name by its file name; requests that name none use all, at these scales (1)"},

    {"--lora-dir", NULL, CLI_SERVING, CLI_SERVE, "FOLDER", SET(CLI_STRING, lora_dir), .field = "lora_dir", .standard = "none",
     .help = "let operators load adapters from this folder by requests, unload them and change their scales"},

    {"--strategy", NULL, CLI_ENGINE, CLI_RUN | CLI_STREAM | CLI_BENCH | CLI_SCHEDULE | CLI_PRESET, "NAME", ENGINE(strategy), .kind = CLI_STRATEGY, .standard = "decode-maximal", RARE},
    {"--strategy", NULL, CLI_ENGINE, CLI_SERVE, "NAME", ENGINE(strategy), .kind = CLI_STRATEGY, .standard = "latency-target", RARE},
    {"--strategy", NULL, CLI_ENGINE, CLI_REPLAY, "NAME", OWN(CLI_STRATEGY, engine.strategy), .standard = "the recorded one",
     .help = "plan with this strategy: decode-maximal, prefill-priority, balanced, latency-target"},
    {"--itl-target", NULL, CLI_ENGINE, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_BENCH | CLI_SCHEDULE, "MS", ENGINE(itl_target_ms), RARE},

    {"--streams", NULL, CLI_MEASURING, CLI_BENCH, "N,…", OWN(CLI_NUMBERS, streams), .standard = "1,2,4,8,16,32", .help = "streams at a time"},
    {"--prompt", "-p", CLI_MEASURING, CLI_BENCH, "N,…", OWN(CLI_NUMBERS, prompt_lengths), .standard = "128", .help = "tokens of each prompt"},
    {"--gen", "-n", CLI_MEASURING, CLI_BENCH, "N,…", OWN(CLI_NUMBERS, answer_lengths), .standard = "32", .help = "tokens of each answer"},
    {"--shared-prefix", NULL, CLI_MEASURING, CLI_BENCH, "N", OWN(CLI_INT32, n_shared), .standard = "", .help = "tokens with which all prompts of a run begin"},
    {"--repeat", NULL, CLI_MEASURING, CLI_BENCH, "N", OWN(CLI_INT32, repeat), .help = "repetitions; the median counts"},
    {"--no-plain", NULL, CLI_MEASURING, CLI_BENCH, NULL, OWN(CLI_FLAG, no_plain), .help = "skip the plain llama.h loop"},
    {"--concurrency", NULL, CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, concurrency), .help = "clients; each sends its next request after its answer"},
    {"--rate", NULL, CLI_MEASURING, CLI_HTTP, "R", OWN(CLI_FLOAT, rate), .standard = "",
     .help = "instead of --concurrency: R requests per second at random (Poisson) times, without waiting for answers"},
    {"--requests", "-N", CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, n_requests), .help = "requests in total"},
    {"--duration", NULL, CLI_MEASURING, CLI_HTTP, "S", OWN(CLI_FLOAT, duration_s), .standard = "",
     .help = "instead of --requests: seconds during which requests are sent; running ones finish"},
    {"--prompt", "-p", CLI_MEASURING, CLI_HTTP, "N[-M]", OWN(CLI_STRING, prompt_span), .standard = "128",
     .help = "words of each prompt, each about a token; of a range, a random number for each request"},
    {"--gen", "-n", CLI_MEASURING, CLI_HTTP, "N[-M]", OWN(CLI_STRING, answer_span), .standard = "64", .help = "max_tokens of each request"},
    {"--shared-prefix", NULL, CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, n_shared), .standard = "", .help = "words of a prefix that all prompts share"},
    {"--late-prompt", NULL, CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, n_late), .standard = "",
     .help = "send one more prompt of N words while all others are decoding, and report its times separately"},
    {"--schema", NULL, CLI_MEASURING, CLI_HTTP, "FILE", OWN(CLI_FILE, ask.json_schema), .help = "a JSON Schema for the answers (response_format)"},
    {"--leave", NULL, CLI_MEASURING, CLI_HTTP, "PART", OWN(CLI_FLOAT, leave), .standard = "",
     .help = "the fraction of clients, 0 to 1, that disconnect in the middle of an answer"},
    {"--seed", "-s", CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_SEED, seed), .help = "the same seed sends the same requests in the same order; -1 = a random seed"},
    {"--completions", NULL, CLI_MEASURING, CLI_HTTP, NULL, OWN(CLI_FLAG, completions), .help = "use /v1/completions instead of /v1/chat/completions"},
    {"--ignore-eos", NULL, CLI_MEASURING, CLI_HTTP, NULL, OWN(CLI_FLAG, ignore_eos), .help = "request answers of full length (ignore_eos); not every server supports it"},
    {"--extra", NULL, CLI_MEASURING, CLI_HTTP, "JSON", OWN(CLI_STRING, extra), .help = "an object whose members are added to the body of each request"},
    {"--timeout", NULL, CLI_MEASURING, CLI_HTTP, "S", OWN(CLI_FLOAT, timeout_s), .standard = "600", .help = "time limit for each request"},
    {"--tries", NULL, CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, n_tries),
     .help = "attempts per request while the server is busy (429, 503); Retry-After sets the pause"},
    {"--repeat", NULL, CLI_MEASURING, CLI_HTTP, "N", OWN(CLI_INT32, repeat),
     .help = "runs of the whole load, with the same requests; each run has its own figures"},
    {"--api-key", NULL, CLI_MEASURING, CLI_HTTP, "KEY", SET(CLI_STRING, api_key),
     .help = "the API key to send (Authorization: Bearer); safer in the environment than on the command line", GUARDS},

    {"--model", "-m", CLI_MODEL, CLI_HTTP, "NAME", SET(CLI_STRING, model_path), .standard = "default", .help = "the model's name in the requests"},

    {"--cache-nodes", NULL, CLI_MEASURING, CLI_SCHEDULE, "N", OWN(CLI_INT32, n_nodes),
     .help = "prompts answered beforehand, so that the prefix cache holds them"},
    {"--ticks", NULL, CLI_MEASURING, CLI_SCHEDULE, "N", OWN(CLI_INT32, n_requests), .help = "ticks to measure"},

    {"--output", "-o", CLI_OUTPUT, CLI_OPTIMIZE, "FILE", SET(CLI_STRING, optimized), .env = "WEIR_OPTIMIZED", .standard = "the model's name and .weir",
     .help = "the file to write, or to check"},
    {"--check", NULL, CLI_OUTPUT, CLI_OPTIMIZE, NULL, OWN(CLI_FLAG, check), .help = "write nothing: check that the file is whole and fits the model and the processor"},

    {"--kernel", NULL, CLI_MEASURING, CLI_KERNELS, "NAME", OWN(CLI_LIST, kernels), .standard = "all",
     .help = "a format of weights, such as q8_0, or attention"},
    {"--shape", NULL, CLI_MEASURING, CLI_KERNELS, "KxN", OWN(CLI_LIST, shapes), .standard = "576x1536 2048x2048 2048x8192",
     .help = "columns and rows of weights"},
    {"--rows", NULL, CLI_MEASURING, CLI_KERNELS, "N,…", OWN(CLI_NUMBERS, rows), .standard = "1,8,32,512; attention: 1,64",
     .help = "rows of activations (tokens of a batch), or queries of attention"},
    {"--threads", "-t", CLI_MEASURING, CLI_KERNELS, "N,…", OWN(CLI_NUMBERS, thread_counts), .standard = "1, and as many as processors", .help = "threads"},
    {"--memory", NULL, CLI_MEASURING, CLI_KERNELS, "MB", OWN(CLI_INT32, memory_mb),
     .help = "size of the weights, or keys and values, that are read in turn, as in a model's layers; 0 = one matrix, which may stay in the CPU's caches"},
    {"--repeat", NULL, CLI_MEASURING, CLI_KERNELS, "N", OWN(CLI_INT32, repeat), .help = "repetitions; the best counts"},
    {"--quick", NULL, CLI_MEASURING, CLI_KERNELS, NULL, OWN(CLI_FLAG, quick), .help = "run everything once on small shapes, as a test"},

    {"--csv", NULL, CLI_OUTPUT, CLI_BENCH | CLI_KERNELS, "FILE", OWN(CLI_STRING, csv_path), .help = "also write the figures of each repetition to a CSV file"},
    {"--csv", NULL, CLI_OUTPUT, CLI_HTTP, "FILE", OWN(CLI_STRING, csv_path), .help = "also write a line for each request to a CSV file"},
    {"--ids", NULL, CLI_OUTPUT, CLI_TOKENIZE, NULL, OWN(CLI_FLAG, ids), .help = "print the token ids in one line, and nothing else"},
    {"--pooling", NULL, CLI_OUTPUT, CLI_EMBED, "NAME", SET(CLI_CHOICE, pooling), .field = "pooling", .choices = poolings,
     .help = "how token embeddings become one: model (the model's own method, else mean), mean, cls, last"},
    {"--normalize", NULL, CLI_OUTPUT, CLI_EMBED, "NAME", SET(CLI_CHOICE, normalize), .choices = normalizations,
     .help = "scale to length 1 (l2), to a largest value of 1 (max), or not (none)"},
    {"--output", "-o", CLI_OUTPUT, CLI_EMBED, "FILE", OWN(CLI_STRING, output), .standard = "stdout",
     .help = "write to a file; a float32 array for NumPy if its name ends in .npy, else JSON lines"},
    {"--type", NULL, CLI_OUTPUT, CLI_QUANTIZE, "TYPE", MEMBER(quantize, type, type), .env = "", .standard = "Q8_0"},
    {"--output", "-o", CLI_OUTPUT, CLI_QUANTIZE, "FILE", OWN(CLI_STRING, output), .field = "out", .standard = "the model's name and the type",
     .help = "the file to write"},
    {"--requantize", NULL, CLI_OUTPUT, CLI_QUANTIZE, NULL, MEMBER(quantize, requantize, requantize), .env = ""},
    {"--ring", NULL, CLI_OUTPUT, CLI_STREAM, "FILE", OWN(CLI_STRING, ring_path),
     .help = "at the end, write the last 4,096 ticks to a file, without texts, for weir bench replay", RARE},

    {"--queue", NULL, CLI_ENGINE, CLI_SERVE, "N", ENGINE(queue_limit), RARE},

    {"--model", "-m", CLI_SERVING, WATCH, "NAME", OWN(CLI_STRING, model_path), .standard = "the first",
     .help = "the model whose slots are shown, if the server has several"},
    {"--url", NULL, CLI_SERVING, WATCH, "URL", SET(CLI_STRING, url), .standard = CLI_REMOTE_URL,
     .help = "the server: http://HOST:PORT, https://HOST, or unix:FILE as in weir serve --unix"},
    {"--api-key", NULL, CLI_SERVING, WATCH, "KEY", SET(CLI_STRING, api_key),
     .help = "the API key to send (Authorization: Bearer); safer in the environment than on the command line", GUARDS},
    {"--host", NULL, CLI_SERVING, CLI_SERVE, "ADDRESS", SET(CLI_STRING, host), .standard = "127.0.0.1",
     .help = "the address to listen on; 0.0.0.0 = all networks (set API keys then); \"\" = none, only --unix", .empty = CLI_EMPTY_SAYS},
    {"--port", NULL, CLI_SERVING, CLI_SERVE, "N", SERVE(CLI_INT32, port), .help = "the port; 0 = a free one"},
    {"--unix", NULL, CLI_SERVING, CLI_SERVE, "FILE", SET(CLI_STRING, unix_path), .field = "unix_path", .help = "listen on a Unix socket too", GUARDS},
    {"--alias", "-a", CLI_SERVING, CLI_SERVE, "NAME", SET(CLI_LIST, aliases), .standard = "the file's name",
     .help = "the model's name in requests; * = accept any", OF_MODEL},
    {"--models", NULL, CLI_SERVING, CLI_SERVE, "FILE", SET(CLI_STRING, models_path), .standard = "none",
     .help = "serve several models, each a section [NAME] of the file with its settings; presets = all presets"},
    {"--models-dir", NULL, CLI_SERVING, CLI_SERVE, "FOLDER", SET(CLI_STRING, models_dir), .standard = "none", .help = "serve every GGUF file of the folder by its name"},
    {"--memory", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SET(CLI_SIZE, pool.memory_bytes), .standard = "nine tenths of the available memory",
     .help = "the memory of all models: weights, KV cells, cached prefixes; a model that does not fit waits until another one sleeps; 0 = no limit"},
    {"--load-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", SERVE(CLI_INT32, load_s), .help = "with several models, how long a request waits for its model to load", RARE},
    {"--idle", NULL, CLI_SERVING, CLI_SERVE, "TIME", SET(CLI_DURATION, idle_ms), .standard = "only for another model",
     .help = "put a model to sleep after this time without a request: 90s, 10m, 2h; its cached prefixes are kept; never or 0 = only to make room for another model", OF_MODEL},
    {"--pinned", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, pinned), .help = "load models at the start, and never put them to sleep", OF_MODEL, RARE},
    {"--api-key", NULL, CLI_SERVING, CLI_SERVE, "KEY", SET(CLI_LIST, api_keys), .field = "keys",
     .help = "an API key that clients may use (Authorization: Bearer KEY); safer in the environment or in a file", GUARDS},
    {"--operator-key", NULL, CLI_SERVING, CLI_SERVE, "KEY", SET(CLI_LIST, operator_keys),
     .help = "an API key that may also load and unload models and adapters, and sees all requests; safer in the environment or in a file", GUARDS},
    {"--api-key-file", NULL, CLI_SERVING, CLI_SERVE, "FILE", SET(CLI_FILE, api_key_file),
     .help = "a file of API keys, one per line: KEY [operator] [priority=N] [requests=N] [rate=N]; # starts a comment", GUARDS},
    {"--key-requests", NULL, CLI_SERVING, CLI_SERVE, "N", LIVE(CLI_INT32, key_requests), .standard = "no limit",
     .help = "answers per key at a time; n and several prompts count; 0 = no limit", RARE, GUARDS},
    {"--key-rate", NULL, CLI_SERVING, CLI_SERVE, "N", LIVE(CLI_INT32, key_rate), .standard = "no limit",
     .help = "requests per key and minute; 0 = no limit", RARE, GUARDS},
    {"--max-priority", NULL, CLI_SERVING, CLI_SERVE, "N", LIVE(CLI_INT32, max_priority), .standard = "0 with keys, else 100",
     .help = "the highest priority that requests may have; -100 to 100", RARE, GUARDS},
    {"--health-needs-key", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, serve.live.health_needs_key), .help = "/health requires a key", RARE, GUARDS},
    {"--strict", NULL, CLI_SERVING, CLI_SERVE, NULL, LIVE(CLI_FLAG, strict), .help = "refuse fields and values of requests that have no effect here, instead of naming them in the header X-Weir-Relaxed"},
    {"--metrics-vllm", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, serve.vllm_metrics), .help = "/metrics also reports the figures under vLLM's names, for routers that read only those", RARE},
    {"--metrics-need-no-key", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, serve.live.metrics_need_no_key), .help = "anybody may read /metrics, not only operators", RARE},
    {"--tls-cert", "--ssl-cert-file", CLI_SERVING, CLI_SERVE, "FILE", SET(CLI_STRING, tls_cert), .field = "tls_cert",
     .help = "serve HTTPS with this certificate and its chain (PEM)", GUARDS},
    {"--tls-key", "--ssl-key-file", CLI_SERVING, CLI_SERVE, "FILE", SET(CLI_STRING, tls_key), .field = "tls_key", .help = "the certificate's private key (PEM)", GUARDS},
    {"--cors", NULL, CLI_SERVING, CLI_SERVE, "ORIGIN", SET(CLI_LIST, origins), .field = "origins", .standard = "none",
     .help = "an origin whose pages may send requests from a browser, such as https://example.org; * = all"},
    {"--allowed-hosts", NULL, CLI_SERVING, CLI_SERVE, "NAME", SET(CLI_LIST, hosts), .field = "hosts", .standard = "none",
     .help = "a host name of this server, besides localhost, this machine's name and IP addresses; * = any", RARE},
    {"--drop-line", NULL, CLI_SERVING, CLI_SERVE | CLI_RECORD, "TEXT", SET(CLI_LIST, drop_lines), .standard = "none",
     .help = "drop the lines of system messages that begin with TEXT: lines that change with each request spoil the prefix cache", RARE},
    {"--drop-last-line", NULL, CLI_SERVING, CLI_SERVE | CLI_RECORD, "LINE", SET(CLI_LIST, drop_last_lines), .standard = "none",
     .help = "drop the line behind tool results and in later system messages; # stands for digits, such as in: Time: #:#", RARE},
    {"--session-keep", NULL, CLI_SERVING, CLI_SERVE, "S", SERVE(CLI_INT32, session_s),
     .help = "count the cached prompts of a named session (X-Session-Id and the like) as used this many seconds later than they were, so that others are evicted first; 0 = no difference", RARE},
    {"--kv-events", NULL, CLI_SERVING, CLI_SERVE, "ADDRESS", SET(CLI_STRING, kv_events), .field = "kv_events", .standard = "none",
     .help = "tell routers which prompts are cached, over ZeroMQ as vLLM does: tcp://HOST:PORT or ipc://FILE; subscribers can read the prompts", RARE},
    {"--kv-events-replay", NULL, CLI_SERVING, CLI_SERVE, "ADDRESS", SET(CLI_STRING, kv_events_replay), .field = "kv_events_replay", .standard = "none",
     .help = "repeat events here for routers that missed some", RARE},
    {"--kv-events-endpoint", NULL, CLI_SERVING, CLI_SERVE, "HOST:PORT", SET(CLI_STRING, kv_events_endpoint), .field = "kv_events_endpoint", .standard = "where the server listens",
     .help = "the server's address as routers know it", RARE},
    {"--otlp-endpoint", NULL, CLI_SERVING, CLI_SERVE, "URL", SET(CLI_STRING, otlp_endpoint), .field = "otlp_endpoint", .standard = "OTEL_EXPORTER_OTLP_ENDPOINT",
     .help = "send spans of requests to this collector of OpenTelemetry, as OTLP over HTTP with JSON: http://localhost:4318; they hold no texts", RARE},
    {"--otlp-service-name", NULL, CLI_SERVING, CLI_SERVE, "NAME", SET(CLI_STRING, otlp_service_name), .field = "otlp_service_name", .standard = "OTEL_SERVICE_NAME, or weir",
     .help = "the server's name in spans", RARE},
    {"--otlp-sample", NULL, CLI_SERVING, CLI_SERVE, "SHARE", SERVE(CLI_FLOAT, otlp_sample), .standard = "OTEL_TRACES_SAMPLER, or 1",
     .help = "the share of traces that begin here and are sent; requests with a traceparent decide for themselves", RARE},
    {"--router-headers", NULL, CLI_SERVING, CLI_SERVE, NULL, SERVE(CLI_FLAG, router_headers),
     .help = "obey the headers of llm-d's router for fairness, objective and time per token; clients must not be able to bypass that router", RARE},
    {"--objective", NULL, CLI_SERVING, CLI_SERVE, "NAME=N", SET(CLI_LIST, objectives), .field = "objectives", .standard = "none",
     .help = "with --router-headers, requests of this objective have priority N", RARE},
    {"--embeddings", "--embedding", CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, serve.model.embeddings), .help = "create the context for /v1/embeddings at the start", OF_MODEL},
    {"--pull", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, pull), .help = "let operators download models by requests (POST /api/pull) by the names that weir pull takes, any number and any size", RARE},
    {"--workers", NULL, CLI_SERVING, CLI_SERVE, "N", SERVE(CLI_INT32, n_workers), .help = "threads that parse requests and render templates", RARE},
    {"--max-body", NULL, CLI_SERVING, CLI_SERVE, "SIZE", LIVE(CLI_SIZE, body_bytes), .standard = "16M; 64M with --mmproj", .help = "maximum request body", RARE},
    {"--head-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, head_s), .help = "time limit for receiving a request's headers", RARE},
    {"--body-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, body_s), .help = "time limit for receiving a request's body", RARE},
    {"--stall-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, stall_s), .help = "time limit for a client that does not read its answer", RARE},
    {"--work-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", SERVE(CLI_INT32, work_s),
     .help = "time limit for parsing a request, its template and its tokens, and for writing its answer", RARE},
    {"--sse-ping-interval", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, comment_s), .help = "send a comment in streams that have been silent for this time; 0 = never", RARE},
    {"--watchdog", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, watchdog_s),
     .help = "/health fails if the engine has work but makes no progress for this time, or if a worker is still busy this long after --work-timeout", RARE},
    {"--drain", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, drain_s), .help = "after SIGTERM or Ctrl-C: time for running answers to finish", RARE},
    {"--resume-grace", NULL, CLI_SERVING, CLI_SERVE, "S", SERVE(CLI_INT32, grace_s),
     .help = "how long a stream with \"resume\" continues after its client has disconnected; 0 = streams cannot be resumed", RARE},
    {"--resume-keep", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, keep_s), .help = "how long a stream that has ended can still be read", RARE},
    {"--resume-memory", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SERVE(CLI_SIZE, resume_bytes), .standard = "64M",
     .help = "memory limit for the events of all resumable streams", RARE},
    {"--response-keep", NULL, CLI_SERVING, CLI_SERVE, "S", LIVE(CLI_INT32, response_s), .help = "how long a response of /v1/responses is kept for later requests", RARE},
    {"--response-memory", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SERVE(CLI_SIZE, response_bytes), .standard = "64M",
     .help = "memory limit for all kept responses; 0 = none is kept", RARE},
    {"--media-host", NULL, CLI_SERVING, CLI_SERVE, "HOST", SET(CLI_LIST, media_hosts), .field = "media_hosts", .standard = "none",
     .help = "a host from which images may be fetched by URL: example.com, *.example.com, an address, * = any public host; with :PORT if it is not 80 or 443", RARE},
    {"--media-memory", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SERVE(CLI_SIZE, media_bytes), .standard = "512M",
     .help = "memory limit for the decoded images and sounds of all requests", RARE},
    {"--prefix-key", NULL, CLI_SERVING, CLI_SERVE, "KEY", SET(CLI_STRING, prefix_key), .field = "prefix_key", .standard = "none",
     .help = "give cached prompts to other weir servers that have this key, and ask --prefix-peer with it; safer in the environment", RARE, GUARDS},
    {"--prefix-peer", NULL, CLI_SERVING, CLI_SERVE, "HOST:PORT", SET(CLI_LIST, prefix_peers), .field = "prefix_peers", .standard = "none",
     .help = "a server from which a request's prompt may be fetched (header X-Weir-Prefix-From); it must be one that you trust; https:// or http:// may precede it", RARE},
    {"--prefix-timeout", NULL, CLI_SERVING, CLI_SERVE, "S", SERVE(CLI_INT32, prefix_s),
     .help = "time limit for fetching a cached prompt from another server (after it the prompt is computed here), and for sending one", RARE},
    {"--max-prefix", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SERVE(CLI_SIZE, prefix_bytes), .standard = "4G",
     .help = "the largest cached prompt that is fetched or sent", RARE},
    {"--no-log", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG_OFF, serve.live.log), .help = "do not log each request on stderr", RARE},
    {"--log-json", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, log_json), .help = "log as JSON on a terminal too; elsewhere the log is always JSON", RARE},
    {"--log-text", NULL, CLI_SERVING, CLI_SERVE, NULL, SET(CLI_FLAG, serve.log_text), .help = "include prompts in the request log", RARE},

    {"--record", NULL, CLI_SERVING, CLI_SERVE, "FOLDER", SET(CLI_STRING, record), .field = "record", .standard = "none",
     .help = "record requests and answers in this folder, so that weir record run can compute them again; store: false in a request leaves it out"},
    {"--record-size", NULL, CLI_SERVING, CLI_SERVE, "SIZE", SERVE(CLI_SIZE, record_bytes), .standard = "1G",
     .help = "maximum size of that folder; the oldest records are dropped first", RARE},
    {"--record-days", NULL, CLI_SERVING, CLI_SERVE, "N", SERVE(CLI_INT32, record_days), .help = "drop records that are older than N days", RARE},
    {"--api-key", NULL, CLI_SERVING, CLI_RECORD, "KEY", SET(CLI_STRING, api_key),
     .help = "with erase and without an ID: the API key whose records are erased; safer in the environment than on the command line", GUARDS},

    {"--licenses", NULL, CLI_OUTPUT, CLI_VERSION, NULL, OWN(CLI_FLAG, licenses),
     .help = "print weir's license and the notices of llama.cpp and the other linked code"},
    {"--json", NULL, CLI_OUTPUT, ALL & ~(CLI_COMPLETION | CLI_EMBED | CLI_CHAT), NULL, OWN(CLI_FLAG, json), .help = "print JSON for machines"},
    {"--quiet", "-q", CLI_OUTPUT, SETS | CLI_HTTP | CLI_BENCH | CLI_KERNELS | CLI_OPTIMIZE | CLI_QUANTIZE | CLI_PULL | TEXTS, NULL, SET(CLI_FLAG, quiet),
     .help = "no progress, no figures"},
    {"--verbose", "-v", CLI_OUTPUT, LOADS | CLI_KERNELS | CLI_OPTIMIZE | CLI_QUANTIZE | CLI_RPC | NAMED | TEXTS, NULL, SET(CLI_FLAG, verbose),
     .help = "show the log of weir and llama.cpp"},
    {"--help", "-h -?", CLI_OUTPUT, ALL, NULL, OWN(CLI_FLAG, help), .help = "show this help"},
    {"--help-all", NULL, CLI_OUTPUT, SETS | CLI_INFO | CLI_BENCH, NULL, OWN(CLI_FLAG, help_all), .help = "show all options"},
    {0},
};
/* clang-format on */

const cli_option *const cli_options = table;

_Static_assert(sizeof table / sizeof *table <= CLI_OPTIONS_MAX, "cli_args.sources is too short");
_Static_assert(WEIR_LAYOUT_AUTO == 0 && WEIR_KV_F16 == 0 && WEIR_SPECIAL_TRUSTED == 0,
               "CLI_CHOICE is a position in choices");

/* Fills members that the option leaves out from the parameter's row. */
static void take_member(cli_option *option)
{
    static const cli_kind kinds[] = {
        [WEIR_MEMBER_BOOL] = CLI_FLAG,     [WEIR_MEMBER_INT32] = CLI_INT32,
        [WEIR_MEMBER_UINT32] = CLI_SEED,   [WEIR_MEMBER_INT64] = CLI_INT64,
        [WEIR_MEMBER_UINT64] = CLI_SIZE,   [WEIR_MEMBER_FLOAT] = CLI_FLOAT,
        [WEIR_MEMBER_CHOICE] = CLI_CHOICE, [WEIR_MEMBER_STRING] = CLI_STRING,
        [WEIR_MEMBER_STRINGS] = CLI_LIST,  [WEIR_MEMBER_BIASES] = CLI_BIAS,
    };
    const weir_member *member = weir_member_find(option->of, option->field);
    if (member == NULL) abort(); /* a mistake in the table: no command starts */
    if (option->kind == 0) option->kind = kinds[member->type];
    if (option->kind == 0) abort(); /* the same */
    if (member->type == WEIR_MEMBER_BOOL && member->initial != 0) option->kind = CLI_FLAG_OFF;
    if (option->help == NULL) option->help = member->help;
    option->choices = member->choices;
}

/* WEIR_TOP_K of --top-k */
static void name_variable(const char *name, char *variable, size_t capacity)
{
    snprintf(variable, capacity, "WEIR_%s", name + 2);
    for (char *c = variable; *c != '\0'; c++) {
        *c = (char)(*c == '-' ? '_' : weir__ascii_upper(*c));
    }
}

void cli_options_init(void)
{
    static char variables[sizeof table / sizeof *table][32];
    for (size_t i = 0; table[i].name != NULL; i++) {
        if (table[i].of != NULL) take_member(&table[i]);
        if (table[i].env != NULL) {
            if (*table[i].env == '\0') table[i].env = NULL;
            continue;
        }
        name_variable(table[i].name, variables[i], sizeof variables[i]);
        table[i].env = variables[i];
    }
}

/* ---- Values ---- */

bool cli_options_is_flag(const cli_option *option)
{
    return option->kind == CLI_FLAG || option->kind == CLI_FLAG_OFF;
}

bool cli_options_is_list(const cli_option *option)
{
    return option->kind == CLI_LIST || option->kind == CLI_BIAS;
}

const char *cli_engine_choice(const char *member, int value)
{
    const weir_member *row = weir_member_find("engine", member);
    return row != NULL && row->choices != NULL ? row->choices[value] : "";
}

void cli_options_value(const void *target, const cli_option *option, char *text, size_t capacity)
{
    const char *at = (const char *)target + option->target;
    const char *string;
    text[0] = '\0';
    switch (option->kind) {
    case CLI_INT32: snprintf(text, capacity, "%d", *(const int32_t *)at); break;
    case CLI_INT64: snprintf(text, capacity, "%lld", (long long)*(const int64_t *)at); break;
    case CLI_SEED:
        snprintf(text, capacity, "%lld",
                 *(const uint32_t *)at == WEIR_SEED_RANDOM ? -1LL : (long long)*(const uint32_t *)at);
        break;
    case CLI_FLOAT: snprintf(text, capacity, "%g", (double)*(const float *)at); break;
    case CLI_CHOICE: snprintf(text, capacity, "%s", option->choices[*(const int *)at]); break;
    case CLI_STRING:
    case CLI_FILE:
        string = *(const char *const *)at;
        snprintf(text, capacity, "%s", string != NULL ? string : "");
        break;
    default: break;
    }
}

void cli_options_default(const cli_args *args, const cli_option *option, char *text, size_t capacity)
{
    if (option->standard != NULL)
        snprintf(text, capacity, "%s", option->standard);
    else
        cli_options_value(args, option, text, capacity);
}

/* ---- Chat templates by name ---- */

/* The text after the messages, where the model is to answer. */
#define PROMPT(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"

const char *const cli_template_names[] = {"chatml", "gemma",  "llama3", "mistral-v7", "phi3",
                                          "phi4",   "vicuna", "zephyr", NULL};

static const char *const sources[] = {
    /* chatml */
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor "
    "%}" PROMPT("<|im_start|>assistant\\n"),
    /* gemma: the system message is a part of the user's */
    "{% set ns = namespace(system='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = m.content + '\\n\\n' %}{% else %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{% if m.role == 'user' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
    "{{ m.content + '<end_of_turn>\\n' }}{% endif %}{% endfor %}" PROMPT("<start_of_turn>model\\n"),
    /* llama3 */
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + "
    "'<|eot_id|>' }}{% endfor %}" PROMPT("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    /* mistral-v7 */
    "{% for m in messages %}{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + "
    "'[/SYSTEM_PROMPT]' }}"
    "{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}"
    "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}",
    /* phi3 */
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}" PROMPT(
        "<|assistant|>\\n"),
    /* phi4 */
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor "
    "%}" PROMPT("<|im_start|>assistant<|im_sep|>"),
    /* vicuna */
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
    "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}"
    "{% else %}{{ 'ASSISTANT: ' + m.content + '</s>\\n' }}{% endif %}{% endfor %}" PROMPT("ASSISTANT:"),
    /* zephyr */
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|endoftext|>\\n' }}{% endfor "
    "%}" PROMPT("<|assistant|>\\n"),
};

_Static_assert(sizeof sources / sizeof *sources + 1 == sizeof cli_template_names / sizeof *cli_template_names,
               "a source for each name");

const char *cli_template_find(const char *name)
{
    for (size_t i = 0; cli_template_names[i] != NULL; i++)
        if (strcmp(cli_template_names[i], name) == 0) return sources[i];
    return NULL;
}

/* ---- Names: spellings, and similar ones ---- */

bool cli_options_spelling(const cli_option *option, size_t i, char spelling[CLI_SPELLING_MAX])
{
    const char *from = i == 0 ? option->name : option->others;
    for (; i > 1 && from != NULL; i--) {
        from = strchr(from, ' ');
        if (from != NULL) from++;
    }
    if (from == NULL) return false;
    snprintf(spelling, CLI_SPELLING_MAX, "%.*s", (int)strcspn(from, " "), from);
    return true;
}

static bool is_spelled(const cli_option *option, const char *spelling, size_t length)
{
    char one[CLI_SPELLING_MAX];
    for (size_t i = 0; cli_options_spelling(option, i, one); i++)
        if (strlen(one) == length && memcmp(one, spelling, length) == 0) return true;
    return false;
}

const cli_option *cli_options_find(unsigned command, const char *spelling, size_t length)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && is_spelled(option, spelling, length)) return option;
    return NULL;
}

static const cli_option *option_of_member(unsigned command, const char *member, size_t length)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && option->field != NULL && strlen(option->field) == length &&
            memcmp(option->field, member, length) == 0)
            return option;
    return NULL;
}

const cli_option *cli_options_by_field(unsigned command, const char *field, const char **rest)
{
    const cli_option *option = NULL;
    size_t from = strcspn(field, "/") + 1; /* a place in the value follows */
    while (option == NULL && from > 0) {
        for (from--; from > 0 && field[from - 1] != '.';) from--;
        size_t length = strcspn(field + from, "[./");
        option = option_of_member(command, field + from, length);
        if (rest != NULL) *rest = field + from + length;
    }
    return option;
}

bool cli_options_given(const cli_args *args, const char *name)
{
    const cli_option *option = cli_options_find(args->command->bit, name, strlen(name));
    return option != NULL && args->sources[option - cli_options].from == CLI_FROM_WORDS;
}

/* Small letters and hyphens: TOP_K of WEIR_TOP_K becomes "top-k", as in the config file. */
static void plain_name(const char *name, char *plain, size_t capacity)
{
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < capacity; i++)
        plain[i] = (char)(name[i] == '_'                     ? '-'
                          : name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a'
                                                             : name[i]);
    plain[i] = '\0';
}

bool cli_options_has_settings(unsigned command)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && option->env != NULL) return true;
    return false;
}

const cli_option *cli_options_by_setting(unsigned commands, const char *key)
{
    char name[64] = "--", setting[64];
    plain_name(key, name + 2, sizeof name - 2);
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        if (!(option->commands & commands) || option->env == NULL) continue;
        plain_name(option->env + strlen("WEIR_"), setting, sizeof setting);
        if (strcmp(setting, name + 2) == 0 || is_spelled(option, name, strlen(name))) return option;
    }
    return NULL;
}

bool cli_options_in_presets(const cli_option *option)
{
    bool of_answers =
        option->group != CLI_SERVING && option->group != CLI_MEASURING && option->group != CLI_OUTPUT;
    return of_answers && (option->env != NULL || cli_options_in_ask(option));
}

bool cli_options_in_recordings(const cli_option *option)
{
    return (option->commands & CLI_RECORD) != 0 && (option->commands & CLI_SERVE) != 0 &&
           option->whose != CLI_OF_ALL && option->group != CLI_OUTPUT;
}

bool cli_options_of_model(const cli_option *option)
{
    return option->whose == CLI_OF_MODEL ||
           (option->whose == CLI_AS_PRESETS && cli_options_in_presets(option));
}

/* The option whose spelling is --key, of those that are allowed. */
static const cli_option *by_spelling(unsigned commands, const char *key, bool (*allowed)(const cli_option *))
{
    char name[64] = "--";
    plain_name(key, name + 2, sizeof name - 2);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & commands) && allowed(option) && is_spelled(option, name, strlen(name)))
            return option;
    return NULL;
}

const cli_option *cli_options_by_preset(unsigned commands, const char *key)
{
    return by_spelling(commands, key, cli_options_in_presets);
}

const cli_option *cli_options_by_model(unsigned commands, const char *key)
{
    return by_spelling(commands, key, cli_options_of_model);
}

bool cli_options_is_file(const cli_option *option)
{
    return option->argument != NULL &&
           (option->kind == CLI_FILE || strncmp(option->argument, "FILE", 4) == 0 ||
            strcmp(option->argument, "FOLDER") == 0 || strcmp(option->argument, "MODEL") == 0);
}

bool cli_options_in_ask(const cli_option *option)
{
    return option->target < sizeof(cli_ask);
}

bool cli_options_in_requests(const cli_option *option)
{
    return option->field != NULL && cli_options_in_ask(option);
}

const cli_option *cli_options_by_key(const char *key)
{
    char spelling[64] = "--";
    size_t n = strlen(key);
    if (n + 3 > sizeof spelling) return NULL;
    for (size_t i = 0; i <= n; i++) spelling[i + 2] = (char)(key[i] == '_' ? '-' : key[i]);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if (cli_options_in_requests(option) &&
            (strcmp(option->field, key) == 0 ||
             (option->kind != CLI_FLAG_OFF && /* which would say the opposite */
              strchr(key, '-') == NULL && is_spelled(option, spelling, n + 2))))
            return option;
    return NULL;
}

void cli_options_try_keys(cli_nearest *nearest)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char one[CLI_SPELLING_MAX];
        if (!cli_options_in_requests(option)) continue;
        cli_nearest_try(nearest, option->field);
        for (size_t i = 0; cli_options_spelling(option, i, one); i++) {
            if (strncmp(one, "--", 2) != 0) continue;
            for (char *c = one + 2; *c != '\0'; c++)
                if (*c == '-') *c = '_';
            cli_nearest_try(nearest, one + 2);
        }
    }
}

void cli_options_try_settings(cli_nearest *nearest)
{
    char setting[64];
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        if (option->env == NULL) continue;
        plain_name(option->env + strlen("WEIR_"), setting, sizeof setting);
        cli_nearest_try(nearest, setting);
        cli_nearest_try(nearest, option->name + 2);
    }
}
