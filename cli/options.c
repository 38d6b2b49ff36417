/* The table, and what an option's value is. How a command line is read: parse.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ASK    (CLI_RUN | CLI_STREAM | CLI_CHAT)
#define SETS   (ASK | CLI_SERVE) /* what requests to a server need not say */
#define TEXTS  (CLI_TOKENIZE | CLI_EMBED)
#define LOADS  (CLI_RUN | CLI_STREAM | CLI_CHAT | CLI_SERVE | CLI_INFO | CLI_BENCH | CLI_HTTP)
#define DRAFTS (CLI_RUN | CLI_STREAM | CLI_CHAT | CLI_SERVE | CLI_HTTP | CLI_INFO)
#define NAMED  (CLI_PULL | CLI_LIST_MODELS)
#define WATCH  (CLI_PS | CLI_TOP)
#define ALL                                                                                                  \
    (LOADS | NAMED | WATCH | CLI_RM | CLI_OPTIMIZE | CLI_KERNELS | CLI_SCHEDULE | CLI_REPLAY | TEXTS |       \
     CLI_QUANTIZE | CLI_CONFIG | CLI_COMPLETION | CLI_VERSION)

#define AT(member)      offsetof(cli_args, member)
#define SAMPLER(member) offsetof(cli_args, ask.sampler.member)

const char *const cli_group_titles[CLI_N_GROUPS] = {
    [CLI_ASKING] = "Prompt",
    [CLI_SAMPLING] = "Sampling",
    [CLI_LIMITS] = "Limits",
    [CLI_MODEL] = "Model",
    [CLI_ENGINE] = "Engine",
    [CLI_SERVING] = "Server",
    [CLI_MEASURING] = "What is measured",
    [CLI_OUTPUT] = "Output",
};

const char *const cli_layouts[] = {"auto", "unified", "per_slot", NULL};
static const char *const poolings[] = {"model", "mean", "cls", "last", NULL};
static const char *const special_contents[] = {"trusted", "none", "all", NULL};
static const char *const normalizations[] = {"l2", "max", "none", NULL};
const char *const cli_kv_types[] = {"f16", "f32", "bf16", "q8_0", "q4_0", NULL};

/* clang-format off */
const cli_option cli_options[] = {
    {"--prompt", "-p", CLI_ASKING, CLI_STRING, AT(prompt), "TEXT", "", NULL, NULL, NULL, CLI_RUN,
     "what to ask; - reads it from stdin, as does a pipe when nothing is asked here"},
    {"--file", "-f", CLI_ASKING, CLI_FILE, AT(prompt_file), "FILE", "", NULL, NULL, NULL, CLI_RUN,
     "what to ask, from a file"},
    {"--file", "-f", CLI_ASKING, CLI_FILE, AT(prompt_file), "FILE", "", NULL, NULL, NULL, TEXTS,
     "the text, from a file; - or a pipe: from stdin"},
    {"--json-lines", NULL, CLI_ASKING, CLI_FLAG, AT(json_lines), NULL, NULL, NULL, NULL, NULL, CLI_EMBED,
     "each line of the input is JSON: a string, or an object with the member text, input or content"},
    {"--no-special", NULL, CLI_ASKING, CLI_FLAG, AT(no_special), NULL, NULL, NULL, NULL, NULL, TEXTS,
     "without the tokens that the model wants before and after a text"},
    {"--no-parse", NULL, CLI_ASKING, CLI_FLAG, AT(no_parse), NULL, NULL, NULL, NULL, NULL, CLI_TOKENIZE,
     "<|im_end|> and its like are text, too"},
    {"--system", "-sys", CLI_ASKING, CLI_STRING, AT(system), "TEXT", "", "WEIR_SYSTEM", NULL, NULL, CLI_RUN | CLI_CHAT,
     "a system message before the prompt"},
    {"--raw", NULL, CLI_ASKING, CLI_FLAG, AT(raw), NULL, NULL, NULL, NULL, NULL, CLI_RUN,
     "continue the prompt as it stands, without the model's chat template"},
    {"--chat-template-file", NULL, CLI_ASKING, CLI_FILE, AT(chat_template), "FILE", "the model's own", NULL, NULL, NULL,
     SETS, "a Jinja template in place of the model's"},
    {"--no-thinking", NULL, CLI_ASKING, CLI_FLAG, AT(no_thinking), NULL, NULL, "WEIR_NO_THINKING", NULL, NULL, SETS,
     "ask a model that reasons to answer at once"},
    {"--special-content", NULL, CLI_ASKING, CLI_CHOICE, AT(special_content), "WHOSE", NULL, "WEIR_SPECIAL_CONTENT", NULL,
     special_contents, SETS, "in whose messages <|im_end|> and its like are no text: trusted (all but users' and tools'), none, all"},

    {"--temp", "--temperature", CLI_SAMPLING, CLI_FLOAT, SAMPLER(temp), "T", NULL, "WEIR_TEMP", "temp", NULL, SETS,
     "temperature; 0 = always the likeliest token"},
    {"--top-k", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(top_k), "N", NULL, "WEIR_TOP_K", "top_k", NULL, SETS,
     "keep the N likeliest tokens; 0 = off"},
    {"--top-p", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(top_p), "P", NULL, "WEIR_TOP_P", "top_p", NULL, SETS,
     "keep the likeliest tokens that add up to P; 1 = off"},
    {"--min-p", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(min_p), "P", NULL, "WEIR_MIN_P", "min_p", NULL, SETS,
     "drop tokens less likely than P × the likeliest; 0 = off"},
    {"--typical", "--typical-p", CLI_SAMPLING, CLI_FLOAT, SAMPLER(typical_p), "P", NULL, "WEIR_TYPICAL", "typical_p",
     NULL, SETS, "locally typical sampling; 1 = off"},
    {"--top-nsigma", "--top-n-sigma", CLI_SAMPLING, CLI_FLOAT, SAMPLER(top_n_sigma), "N", NULL, "WEIR_TOP_NSIGMA",
     "top_n_sigma", NULL, SETS, "keep logits within N standard deviations of the best; -1 = off"},
    {"--xtc-probability", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(xtc_probability), "P", NULL, "WEIR_XTC_PROBABILITY",
     "xtc_probability", NULL, SETS, "how often the top choices are excluded; 0 = off"},
    {"--xtc-threshold", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(xtc_threshold), "P", NULL, "WEIR_XTC_THRESHOLD",
     "xtc_threshold", NULL, SETS, "what is a top choice; above 0.5 = off"},
    {"--min-keep", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(min_keep), "N", NULL, "WEIR_MIN_KEEP", "min_keep", NULL, SETS,
     "the least tokens that top-p, min-p, typical and XTC leave"},
    {"--dynatemp-range", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(dynatemp_range), "R", NULL, "WEIR_DYNATEMP_RANGE",
     "dynatemp_range", NULL, SETS, "temperature between T - R and T + R by entropy; 0 = off"},
    {"--dynatemp-exp", "--dynatemp-exponent", CLI_SAMPLING, CLI_FLOAT, SAMPLER(dynatemp_exponent), "E", NULL,
     "WEIR_DYNATEMP_EXP", "dynatemp_exponent", NULL, SETS, "its exponent"},
    {"--mirostat", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(mirostat), "N", NULL, "WEIR_MIROSTAT", "mirostat", NULL, SETS,
     "Mirostat 1 or 2, in place of top-k, top-p and the like; 0 = off"},
    {"--mirostat-ent", "--mirostat-tau", CLI_SAMPLING, CLI_FLOAT, SAMPLER(mirostat_tau), "N", NULL,
     "WEIR_MIROSTAT_ENT", "mirostat_tau", NULL, SETS, "its target entropy (tau)"},
    {"--mirostat-lr", "--mirostat-eta", CLI_SAMPLING, CLI_FLOAT, SAMPLER(mirostat_eta), "N", NULL,
     "WEIR_MIROSTAT_LR", "mirostat_eta", NULL, SETS, "its learning rate (eta)"},
    {"--adaptive-target", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(adaptive_target), "P", NULL, "WEIR_ADAPTIVE_TARGET",
     "adaptive_target", NULL, SETS, "adaptive-p: aim at tokens of this probability; -1 = off"},
    {"--adaptive-decay", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(adaptive_decay), "N", NULL, "WEIR_ADAPTIVE_DECAY",
     "adaptive_decay", NULL, SETS, "its memory"},
    {"--repeat-penalty", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(penalty_repeat), "N", NULL, "WEIR_REPEAT_PENALTY",
     "penalty_repeat", NULL, SETS, "divide the logits of tokens that came before; 1 = off"},
    {"--repeat-last-n", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(penalty_last_n), "N", NULL, "WEIR_REPEAT_LAST_N",
     "penalty_last_n", NULL, SETS, "how many tokens the penalties look back on; 0 = off"},
    {"--frequency-penalty", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(penalty_freq), "N", NULL,
     "WEIR_FREQUENCY_PENALTY", "penalty_freq", NULL, SETS, "for each time that a token came; 0 = off"},
    {"--presence-penalty", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(penalty_present), "N", NULL,
     "WEIR_PRESENCE_PENALTY", "penalty_present", NULL, SETS, "for a token that came at all; 0 = off"},
    {"--dry-multiplier", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(dry_multiplier), "N", NULL, "WEIR_DRY_MULTIPLIER",
     "dry_multiplier", NULL, SETS, "DRY: penalty for repeating sequences; 0 = off"},
    {"--dry-base", NULL, CLI_SAMPLING, CLI_FLOAT, SAMPLER(dry_base), "N", NULL, "WEIR_DRY_BASE", "dry_base", NULL, SETS,
     "its growth with each repeated token"},
    {"--dry-allowed-length", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(dry_allowed_length), "N", NULL,
     "WEIR_DRY_ALLOWED_LENGTH", "dry_allowed_length", NULL, SETS, "the longest repetition that costs nothing"},
    {"--dry-penalty-last-n", NULL, CLI_SAMPLING, CLI_INT32, SAMPLER(dry_penalty_last_n), "N", NULL,
     "WEIR_DRY_PENALTY_LAST_N", "dry_penalty_last_n", NULL, SETS, "how many tokens it looks back on; 0 = off"},
    {"--dry-sequence-breaker", "--dry-breaker", CLI_SAMPLING, CLI_LIST, AT(ask.dry_breakers), "TEXT",
     "\\n : \" *", NULL, "dry_breakers", NULL, ASK, "no repetition goes across this; may be given again"},
    {"--logit-bias", NULL, CLI_SAMPLING, CLI_BIAS, AT(ask.biases), "ID(+/-)N", "", NULL, "logit_bias", NULL, ASK,
     "make a token likelier (15043+1) or forbid it (15043-inf); may be given again"},
    {"--ignore-eos", NULL, CLI_SAMPLING, CLI_FLAG, SAMPLER(ignore_eos), NULL, NULL, "WEIR_IGNORE_EOS", "ignore_eos",
     NULL, ASK, "never choose a token that ends the answer"},
    {"--samplers", NULL, CLI_SAMPLING, CLI_STRING, AT(ask.order), "A;B;…",
     "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "WEIR_SAMPLERS", "order", NULL, SETS,
     "which samplers run, in this order"},
    {"--seed", "-s", CLI_SAMPLING, CLI_SEED, SAMPLER(seed), "N", "another each time", "WEIR_SEED", "seed", NULL, SETS,
     "seed of the random numbers; -1 = another each time"},
    {"--grammar", NULL, CLI_SAMPLING, CLI_STRING, AT(ask.grammar), "GBNF", "", NULL, "grammar", NULL, ASK,
     "the answer follows this grammar"},
    {"--grammar-file", NULL, CLI_SAMPLING, CLI_FILE, AT(ask.grammar), "FILE", "", NULL, NULL, NULL, ASK,
     "the same, from a file"},
    {"--grammar-root", NULL, CLI_SAMPLING, CLI_STRING, AT(ask.grammar_root), "RULE", "root", NULL, "grammar_root", NULL,
     ASK, "the rule that the grammar begins with"},
    {"--json-schema", "-j", CLI_SAMPLING, CLI_STRING, AT(ask.json_schema), "SCHEMA", "", NULL, "json_schema", NULL, ASK,
     "the answer is JSON of this schema; {} = any object"},
    {"--json-schema-file", "-jf", CLI_SAMPLING, CLI_FILE, AT(ask.json_schema), "FILE", "", NULL, NULL, NULL, ASK,
     "the same, from a file"},

    {"--max-tokens", "-n --n-predict --predict", CLI_LIMITS, CLI_INT32, AT(ask.max_tokens), "N",
     "as many as the context holds", "WEIR_MAX_TOKENS", "max_tokens", NULL, SETS, "the longest answer; -1 = no limit"},
    {"--stop", "-r --reverse-prompt", CLI_LIMITS, CLI_LIST, AT(ask.stop), "TEXT", "", NULL, "stop", NULL, ASK,
     "end before this text; may be given again"},
    {"--deadline-ms", NULL, CLI_LIMITS, CLI_INT64, AT(ask.deadline_ms), "MS", "none", "WEIR_DEADLINE_MS", "deadline_ms",
     NULL, ASK, "end after this time, with what there is"},
    {"--priority", NULL, CLI_LIMITS, CLI_INT32, AT(ask.priority), "N", NULL, "WEIR_PRIORITY", "priority", NULL, ASK,
     "-100 to 100; the higher one goes first, and takes a slot from a lower one"},
    {"--no-cache-prompt", NULL, CLI_LIMITS, CLI_FLAG_OFF, AT(ask.cache_prompt), NULL, NULL, "WEIR_NO_CACHE_PROMPT",
     "cache_prompt", NULL, ASK, "compute the whole prompt, and keep nothing of it for later requests"},
    {"--cache-salt", NULL, CLI_LIMITS, CLI_STRING, AT(ask.cache_salt), "TEXT", "none", "WEIR_CACHE_SALT", "cache_salt",
     NULL, ASK, "share cached prompts only with requests that give the same"},
    {"--interval", NULL, CLI_LIMITS, CLI_INT32, AT(ask.interval), "N", NULL, "WEIR_INTERVAL", "interval", NULL, ASK,
     "bring text every N tokens"},
    {"--special", NULL, CLI_LIMITS, CLI_FLAG, AT(ask.special), NULL, NULL, NULL, "special", NULL, ASK,
     "show control tokens in the answer"},

    {"--logprobs", NULL, CLI_OUTPUT, CLI_INT32, AT(ask.n_logprobs), "N", "none", "WEIR_LOGPROBS", "n_logprobs", NULL,
     CLI_RUN | CLI_STREAM, "in JSON, tell how probable each token was, and the N likeliest ones (0 to 20)"},
    {"--prompt-logprobs", NULL, CLI_OUTPUT, CLI_INT32, AT(n_prompt_logprobs), "N", "none", NULL, "n_prompt_logprobs", NULL, CLI_RUN,
     "the same of the prompt's tokens"},
    {"--best-of", NULL, CLI_LIMITS, CLI_INT32, AT(best_of), "N", NULL, NULL, NULL, NULL, CLI_RUN,
     "generate N answers and give the one whose tokens are the likeliest in the mean"},

    {"--explain-cache", NULL, CLI_OUTPUT, CLI_FLAG, AT(explain_cache), NULL, NULL, "WEIR_EXPLAIN_CACHE", NULL, NULL,
     CLI_RUN | CLI_STREAM, "tell why a prompt was not cached, and where it differs from what was"},

    {"--model", "-m", CLI_MODEL, CLI_STRING, AT(model_path), "MODEL", "default", "WEIR_MODEL",
     NULL, NULL, (LOADS & ~CLI_HTTP) | CLI_OPTIMIZE | CLI_QUANTIZE | TEXTS,
     "a GGUF file; default, the one that make run fetched; or hf:OWNER/REPO[:QUANTIZATION or FILE], which is downloaded "
     "once (weir help pull)"},
    {"--revision", NULL, CLI_MODEL, CLI_STRING, AT(revision), "NAME", "main", NULL, "revision", NULL,
     LOADS | NAMED | CLI_OPTIMIZE | CLI_QUANTIZE | TEXTS,
     "of a model by name: a branch, a tag or a commit"},
    {"--offline", NULL, CLI_MODEL, CLI_FLAG, AT(offline), NULL, NULL, NULL, NULL, NULL,
     LOADS | NAMED | CLI_OPTIMIZE | CLI_QUANTIZE | TEXTS,
     "use models by name as the cache has them, ask nobody"},
    {"--force", NULL, CLI_MODEL, CLI_FLAG, AT(force), NULL, NULL, NULL, NULL, NULL, CLI_PULL,
     "download again what is there"},
    {"--yes", "-y", CLI_MODEL, CLI_FLAG, AT(yes), NULL, NULL, NULL, NULL, NULL, CLI_RM, "remove without asking"},
    {"--optimized", NULL, CLI_MODEL, CLI_STRING, AT(optimized), "FILE", "the model's name and .weir, where it is",
     "WEIR_OPTIMIZED", "optimized", NULL, LOADS, "its weights as weir optimize wrote them; \"\" = pack them"},
    {"--gpu-layers", "-ngl --n-gpu-layers", CLI_MODEL, CLI_INT32, AT(model.n_gpu_layers), "N", "all", "WEIR_GPU_LAYERS",
     "n_gpu_layers", NULL, LOADS, "layers to keep on the GPU, where there is one"},
    {"--main-gpu", "-mg", CLI_MODEL, CLI_INT32, AT(model.main_gpu), "N", NULL, "WEIR_MAIN_GPU", "main_gpu", NULL, LOADS,
     "the GPU for what is not split"},
    {"--no-mmap", NULL, CLI_MODEL, CLI_FLAG_OFF, AT(model.use_mmap), NULL, NULL, "WEIR_NO_MMAP", "use_mmap", NULL, LOADS,
     "read the file instead of mapping it"},
    {"--mlock", NULL, CLI_MODEL, CLI_FLAG, AT(model.use_mlock), NULL, NULL, "WEIR_MLOCK", "use_mlock", NULL, LOADS,
     "keep the model in memory"},

    {"--ctx", "-c --ctx-size", CLI_ENGINE, CLI_INT32, AT(engine.n_ctx), "N", NULL, "WEIR_CTX", "n_ctx", NULL,
     CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_INFO | CLI_HTTP,
     "the longest prompt and answer of one request, tokens; 0 = what the model was trained on"},
    {"--slots", "-np --parallel", CLI_ENGINE, CLI_INT32, AT(engine.n_slots), "N", NULL, "WEIR_SLOTS", "n_slots", NULL,
     CLI_RUN | CLI_SERVE | CLI_INFO | CLI_HTTP | CLI_SCHEDULE, "requests at a time"},
    {"--slots", "-np --parallel", CLI_ENGINE, CLI_INT32, AT(engine.n_slots), "N", "0", "WEIR_SLOTS", "n_slots", NULL,
     CLI_STREAM, "requests at a time, the others wait; 0 = all of them"},
    {"--kv", NULL, CLI_ENGINE, CLI_INT32, AT(engine.n_kv), "N", "slots × ctx, as far as memory allows", "WEIR_KV",
     "n_kv", NULL, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_INFO | CLI_HTTP, "KV cells in all, tokens"},
    {"--threads", "-t", CLI_ENGINE, CLI_INT32, AT(engine.n_threads), "N", "as many as processors", "WEIR_THREADS",
     "n_threads", NULL, LOADS | CLI_EMBED | CLI_QUANTIZE, "threads that compute"},
    {"--threads-batch", "-tb", CLI_ENGINE, CLI_INT32, AT(engine.n_threads_batch), "N", "as --threads",
     "WEIR_THREADS_BATCH", "n_threads_batch", NULL, LOADS, "the same for prompts"},
    {"--batch-size", "-b", CLI_ENGINE, CLI_INT32, AT(engine.n_batch), "N", NULL, "WEIR_BATCH_SIZE", "n_batch", NULL,
     LOADS, "the most tokens of one tick"},
    {"--ubatch-size", "-ub", CLI_ENGINE, CLI_INT32, AT(engine.n_ubatch), "N", "512 + slots",
     "WEIR_UBATCH_SIZE", "n_ubatch", NULL, LOADS, "the most tokens that are computed at once"},
    {"--chunk", NULL, CLI_ENGINE, CLI_INT32, AT(engine.chunk_size), "N", NULL, "WEIR_CHUNK", "chunk_size", NULL, LOADS,
     "the most prompt tokens of one request in a tick"},
    {"--layout", NULL, CLI_ENGINE, CLI_CHOICE, AT(engine.layout), "NAME", NULL, "WEIR_LAYOUT", "layout", cli_layouts,
     LOADS, "one pool of KV cells, or a lane for each slot: auto, unified, per_slot"},
    {"--ageing", NULL, CLI_ENGINE, CLI_INT32, AT(engine.ageing_ms), "MS", NULL, "WEIR_AGEING", "ageing_ms", NULL,
     CLI_RUN | CLI_SERVE | CLI_STREAM, "a waiting request gains one level of priority each so many ms; 0 = never"},
    {"--cache-memory", NULL, CLI_ENGINE, CLI_SIZE, AT(engine.cache_bytes), "SIZE", "a quarter of what is free",
     "WEIR_CACHE_MEMORY", "cache_bytes", NULL, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_HTTP,
     "memory for cached prompts that have no KV cells, and for suspended requests: 500M, 2G; 0 = none"},
    {"--cache-sequences", NULL, CLI_ENGINE, CLI_INT32, AT(engine.cache_sequences), "N", "as many as cost no memory",
     "WEIR_CACHE_SEQUENCES", "cache_sequences", NULL, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_HTTP,
     "cached prompts that are kept in KV cells; 0 = cache no prompts"},
    {"--cache-dir", NULL, CLI_ENGINE, CLI_STRING, AT(cache_dir), "FOLDER", "none", "WEIR_CACHE_DIR", "cache_dir", NULL,
     CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_HTTP,
     "keep cached prompts here, for the next start; nobody else may read the folder"},
    {"--cache-disk", NULL, CLI_ENGINE, CLI_SIZE, AT(engine.cache_disk_bytes), "SIZE", "4G", "WEIR_CACHE_DISK",
     "cache_disk_bytes", NULL, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_HTTP,
     "the most that they take there; what was used longest ago goes first"},
    {"--cache-type-k", "-ctk", CLI_ENGINE, CLI_CHOICE, AT(engine.type_k), "TYPE", NULL, "WEIR_CACHE_TYPE_K", "type_k",
     cli_kv_types, LOADS, "how keys are kept: f16, f32, bf16, q8_0, q4_0"},
    {"--cache-type-v", "-ctv", CLI_ENGINE, CLI_CHOICE, AT(engine.type_v), "TYPE", NULL, "WEIR_CACHE_TYPE_V", "type_v",
     cli_kv_types, LOADS, "how values are kept"},
    {"--draft-max", "--draft --draft-n", CLI_ENGINE, CLI_INT32, AT(engine.n_draft_max), "N", NULL, "WEIR_DRAFT_MAX",
     "n_draft_max", NULL, DRAFTS,
     "the most tokens of an answer that are guessed and computed at once, where that is faster; 0 = none"},
    {"--no-prompt-lookup", NULL, CLI_ENGINE, CLI_FLAG_OFF, AT(engine.prompt_lookup), NULL, NULL, "WEIR_NO_PROMPT_LOOKUP",
     "prompt_lookup", NULL, DRAFTS, "do not guess from the request's own prompt and answer"},
    {"--draft-model", "-md --model-draft", CLI_ENGINE, CLI_STRING, AT(draft_path), "MODEL", "none", "WEIR_DRAFT_MODEL",
     "draft_model", NULL, DRAFTS, "a smaller model of the same vocabulary that guesses, too, or an EAGLE-3 head of the model"},
    {"--no-mtp", NULL, CLI_ENGINE, CLI_FLAG_OFF, AT(engine.mtp), NULL, NULL, "WEIR_NO_MTP", "mtp", NULL, DRAFTS,
     "do not guess by the model's own layers for that (MTP), where it has some"},
    {"--lora", NULL, CLI_MODEL, CLI_LIST, AT(lora), "FILE[=SCALE]", "none", "WEIR_LORA", NULL, NULL, ASK,
     "an adapter (GGUF) whose changes are added to the model's weights, times the scale (1); may be given again"},
    {"--lora", NULL, CLI_MODEL, CLI_LIST, AT(lora), "FILE[=SCALE]", "none", "WEIR_LORA", NULL, NULL, CLI_SERVE,
     "an adapter (GGUF) that requests may name by its file's name; those that name none have all, at these scales (1); "
     "may be given again"},
    {"--lora-dir", NULL, CLI_SERVING, CLI_STRING, AT(lora_dir), "FOLDER", "none", "WEIR_LORA_DIR", "lora_dir", NULL,
     CLI_SERVE, "let requests load adapters from this folder, unload them and change scales"},
    {"--strategy", NULL, CLI_ENGINE, CLI_STRATEGY, AT(engine.strategy), "NAME", "decode-maximal", "WEIR_STRATEGY",
     "strategy", NULL, CLI_RUN | CLI_STREAM | CLI_BENCH | CLI_HTTP | CLI_SCHEDULE,
     "who gets the tokens of a tick: decode-maximal, prefill-priority, balanced, latency-target"},
    {"--strategy", NULL, CLI_ENGINE, CLI_STRATEGY, AT(engine.strategy), "NAME", "latency-target", "WEIR_STRATEGY",
     "strategy", NULL, CLI_SERVE,
     "who gets the tokens of a tick: latency-target, decode-maximal, prefill-priority, balanced"},
    {"--strategy", NULL, CLI_ENGINE, CLI_STRATEGY, AT(engine.strategy), "NAME", "the recorded one", NULL, NULL, NULL,
     CLI_REPLAY, "plan with this one: decode-maximal, prefill-priority, balanced, latency-target"},
    {"--itl-target", NULL, CLI_ENGINE, CLI_INT32, AT(engine.itl_target_ms), "MS", NULL, "WEIR_ITL_TARGET",
     "itl_target_ms", NULL, CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_BENCH | CLI_HTTP | CLI_SCHEDULE,
     "the longest tick that latency-target aims at, so that running answers flow on"},

    {"--streams", NULL, CLI_MEASURING, CLI_NUMBERS, AT(streams), "N,…", "1,2,4,8,16,32", NULL, NULL, NULL, CLI_BENCH,
     "streams at a time"},
    {"--prompt", "-p", CLI_MEASURING, CLI_NUMBERS, AT(prompt_lengths), "N,…", "128", NULL, NULL, NULL, CLI_BENCH,
     "tokens of each prompt"},
    {"--gen", "-n", CLI_MEASURING, CLI_NUMBERS, AT(answer_lengths), "N,…", "32", NULL, NULL, NULL, CLI_BENCH,
     "tokens of each answer"},
    {"--repeat", NULL, CLI_MEASURING, CLI_INT32, AT(repeat), "N", NULL, NULL, NULL, NULL, CLI_BENCH,
     "times that each is measured; the median counts"},
    {"--no-plain", NULL, CLI_MEASURING, CLI_FLAG, AT(no_plain), NULL, NULL, NULL, NULL, NULL, CLI_BENCH,
     "leave out the plain llama.h loop"},
    {"--emit", NULL, CLI_MEASURING, CLI_FLAG, AT(emit), NULL, NULL, NULL, NULL, NULL, CLI_BENCH,
     "measure weir's own time for each token and its memory instead, on a model without weights"},
    {"--concurrency", NULL, CLI_MEASURING, CLI_INT32, AT(concurrency), "N", NULL, NULL, NULL, NULL, CLI_HTTP,
     "clients, each of which sends its next request when it has its answer"},
    {"--rate", NULL, CLI_MEASURING, CLI_FLOAT, AT(rate), "R", "", NULL, NULL, NULL, CLI_HTTP,
     "instead: requests that arrive each second at random (Poisson), whether others have been answered or not"},
    {"--requests", "-N", CLI_MEASURING, CLI_INT32, AT(n_requests), "N", NULL, NULL, NULL, NULL, CLI_HTTP,
     "how many requests there are in all"},
    {"--duration", NULL, CLI_MEASURING, CLI_FLOAT, AT(duration_s), "S", "", NULL, NULL, NULL, CLI_HTTP,
     "instead: for how many seconds requests are sent; those under way are answered to the end"},
    {"--prompt", "-p", CLI_MEASURING, CLI_STRING, AT(prompt_span), "N[-M]", "128", NULL, NULL, NULL, CLI_HTTP,
     "words of each prompt, each about a token; a range draws for each request"},
    {"--gen", "-n", CLI_MEASURING, CLI_STRING, AT(answer_span), "N[-M]", "64", NULL, NULL, NULL, CLI_HTTP,
     "the most tokens of each answer (max_tokens)"},
    {"--shared-prefix", NULL, CLI_MEASURING, CLI_INT32, AT(n_shared), "N", "", NULL, NULL, NULL, CLI_HTTP,
     "words before each prompt that are the same in all"},
    {"--late-prompt", NULL, CLI_MEASURING, CLI_INT32, AT(n_late), "N", "", NULL, NULL, NULL, CLI_HTTP,
     "one more request with so many words, sent when all the others are being answered; its own times are apart"},
    {"--schema", NULL, CLI_MEASURING, CLI_FILE, AT(ask.json_schema), "FILE", "", NULL, NULL, NULL, CLI_HTTP,
     "a JSON Schema that the answers must have (response_format)"},
    {"--leave", NULL, CLI_MEASURING, CLI_FLOAT, AT(leave), "PART", "", NULL, NULL, NULL, CLI_HTTP,
     "the part of the clients, 0 to 1, that close the connection in the middle of the answer"},
    {"--seed", "-s", CLI_MEASURING, CLI_SEED, AT(seed), "N", NULL, NULL, NULL, NULL, CLI_HTTP,
     "the same seed sends the same requests in the same order; -1 = another each time"},
    {"--completions", NULL, CLI_MEASURING, CLI_FLAG, AT(completions), NULL, NULL, NULL, NULL, NULL, CLI_HTTP,
     "/v1/completions in place of /v1/chat/completions"},
    {"--ignore-eos", NULL, CLI_MEASURING, CLI_FLAG, AT(ignore_eos), NULL, NULL, NULL, NULL, NULL, CLI_HTTP,
     "ask for answers of full length; not every server knows that"},
    {"--extra", NULL, CLI_MEASURING, CLI_STRING, AT(extra), "JSON", "", NULL, NULL, NULL, CLI_HTTP,
     "an object whose members are put into the body of each request"},
    {"--timeout", NULL, CLI_MEASURING, CLI_FLOAT, AT(timeout_s), "S", "600", NULL, NULL, NULL, CLI_HTTP,
     "the longest that a request may take"},
    {"--tries", NULL, CLI_MEASURING, CLI_INT32, AT(n_tries), "N", NULL, NULL, NULL, NULL, CLI_HTTP,
     "how often a request is sent to a server that is busy (429, 503), after what Retry-After says"},
    {"--repeat", NULL, CLI_MEASURING, CLI_INT32, AT(repeat), "N", NULL, NULL, NULL, NULL, CLI_HTTP,
     "times that the whole load is sent, the same requests each time; each has figures of its own"},
    {"--api-key", NULL, CLI_MEASURING, CLI_STRING, AT(api_key), "KEY", "", "WEIR_API_KEY", NULL, NULL, CLI_HTTP,
     "what the server wants to see (Authorization: Bearer); better in the environment than on the command line"},
    {"--model", "-m", CLI_MODEL, CLI_STRING, AT(model_path), "NAME", "default", "WEIR_MODEL", NULL, NULL, CLI_HTTP,
     "the model's name in the requests; of engine: a GGUF file, or as for weir run"},
    {"--cache-nodes", NULL, CLI_MEASURING, CLI_INT32, AT(n_nodes), "N", NULL, NULL, NULL, NULL, CLI_SCHEDULE,
     "different prompts that were answered before, for a prefix cache to keep"},
    {"--ticks", NULL, CLI_MEASURING, CLI_INT32, AT(n_requests), "N", NULL, NULL, NULL, NULL, CLI_SCHEDULE,
     "ticks that are measured"},
    {"--output", "-o", CLI_OUTPUT, CLI_STRING, AT(optimized), "FILE", "the model's name and .weir", "WEIR_OPTIMIZED",
     NULL, NULL, CLI_OPTIMIZE, "the file to write, or to check"},
    {"--check", NULL, CLI_OUTPUT, CLI_FLAG, AT(check), NULL, NULL, NULL, NULL, NULL, CLI_OPTIMIZE,
     "write nothing: see whether the file is whole and belongs to model and processor"},
    {"--kernel", NULL, CLI_MEASURING, CLI_LIST, AT(kernels), "NAME", "all", NULL, NULL, NULL, CLI_KERNELS,
     "a format of weights, such as q8_0, or attention; may be given again"},
    {"--shape", NULL, CLI_MEASURING, CLI_LIST, AT(shapes), "KxN", "576x1536 2048x2048 2048x8192", NULL, NULL, NULL,
     CLI_KERNELS, "columns and rows of weights; may be given again"},
    {"--rows", NULL, CLI_MEASURING, CLI_NUMBERS, AT(rows), "N,…", "1,8,32,512; attention: 1,64", NULL, NULL, NULL,
     CLI_KERNELS, "rows of activations, that is tokens of a batch; queries"},
    {"--threads", "-t", CLI_MEASURING, CLI_NUMBERS, AT(thread_counts), "N,…", "1, and as many as processors", NULL,
     NULL, NULL, CLI_KERNELS, "threads that compute"},
    {"--memory", NULL, CLI_MEASURING, CLI_INT32, AT(memory_mb), "MB", NULL, NULL, NULL, NULL, CLI_KERNELS,
     "weights, or keys and values, that are read in turn, as a model's layers are; 0 = one matrix, which may stay in "
     "the caches"},
    {"--repeat", NULL, CLI_MEASURING, CLI_INT32, AT(repeat), "N", NULL, NULL, NULL, NULL, CLI_KERNELS,
     "times that each is measured; the best one counts"},
    {"--quick", NULL, CLI_MEASURING, CLI_FLAG, AT(quick), NULL, NULL, NULL, NULL, NULL, CLI_KERNELS,
     "everything once on small shapes, to see that it works"},
    {"--csv", NULL, CLI_OUTPUT, CLI_STRING, AT(csv_path), "FILE", "", NULL, NULL, NULL, CLI_BENCH | CLI_KERNELS,
     "also write the figures of each repetition to a file"},
    {"--csv", NULL, CLI_OUTPUT, CLI_STRING, AT(csv_path), "FILE", "", NULL, NULL, NULL, CLI_HTTP,
     "also write a line for each request to a file"},
    {"--svg", NULL, CLI_OUTPUT, CLI_STRING, AT(svg_path), "FILE", "", NULL, NULL, NULL, CLI_HTTP,
     "also draw the gaps between tokens over time"},

    {"--ids", NULL, CLI_OUTPUT, CLI_FLAG, AT(ids), NULL, NULL, NULL, NULL, NULL, CLI_TOKENIZE,
     "the tokens' numbers in one line, and nothing else"},
    {"--pooling", NULL, CLI_OUTPUT, CLI_CHOICE, AT(pooling), "NAME", NULL, "WEIR_POOLING", "pooling", poolings, CLI_EMBED,
     "how a text's tokens become one embedding: model (its own, else mean), mean, cls, last"},
    {"--normalize", NULL, CLI_OUTPUT, CLI_CHOICE, AT(normalize), "NAME", NULL, "WEIR_NORMALIZE", NULL, normalizations,
     CLI_EMBED, "to length 1, to a largest value of 1, or not: l2, max, none"},
    {"--output", "-o", CLI_OUTPUT, CLI_STRING, AT(output), "FILE", "stdout", NULL, NULL, NULL, CLI_EMBED,
     "a file instead; as NumPy's array of float32 where its name ends in .npy, else as JSON lines"},

    {"--type", NULL, CLI_OUTPUT, CLI_STRING, AT(type), "TYPE", "Q8_0", NULL, "type", NULL, CLI_QUANTIZE,
     "what the weights become: F32, BF16, F16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_0, … (--types has all)"},
    {"--output", "-o", CLI_OUTPUT, CLI_STRING, AT(output), "FILE", "the model's name and the type", NULL, "out", NULL,
     CLI_QUANTIZE, "the file to write"},
    {"--requantize", NULL, CLI_OUTPUT, CLI_FLAG, AT(requantize), NULL, NULL, NULL, "requantize", NULL, CLI_QUANTIZE,
     "also a model that is quantized already, which loses more than quantizing the original"},
    {"--types", NULL, CLI_OUTPUT, CLI_FLAG, AT(types), NULL, NULL, NULL, NULL, NULL, CLI_QUANTIZE,
     "write nothing: measure how fast this machine is with each type"},

    {"--ring", NULL, CLI_OUTPUT, CLI_STRING, AT(ring_path), "FILE", "", NULL, NULL, NULL, CLI_STREAM,
     "at the end write the last 4,096 ticks to a file, without texts: for weir replay"},

    {"--queue", NULL, CLI_ENGINE, CLI_INT32, AT(engine.queue_limit), "N", NULL, "WEIR_QUEUE", "queue_limit", NULL, CLI_SERVE,
     "requests that may wait; one more is told when to come again; 0 = no limit"},
    {"--url", NULL, CLI_SERVING, CLI_STRING, AT(url), "URL", CLI_REMOTE_URL, "WEIR_URL", NULL, NULL, WATCH,
     "the server: http://HOST:PORT, https://HOST, or unix:FILE for what weir serve --unix listens on"},
    {"--api-key", NULL, CLI_SERVING, CLI_STRING, AT(api_key), "KEY", "", "WEIR_API_KEY", NULL, NULL, WATCH,
     "what the server wants to see (Authorization: Bearer); better in the environment than on the command line"},
    {"--host", NULL, CLI_SERVING, CLI_STRING, AT(host), "ADDRESS", "127.0.0.1", "WEIR_HOST", NULL, NULL, CLI_SERVE,
     "where to listen; 0.0.0.0 = on all networks (give keys then); \"\" = nowhere but --unix"},
    {"--port", NULL, CLI_SERVING, CLI_INT32, AT(serve.port), "N", NULL, "WEIR_PORT", "port", NULL, CLI_SERVE,
     "the port; 0 = a free one"},
    {"--unix", NULL, CLI_SERVING, CLI_STRING, AT(unix_path), "FILE", "", "WEIR_UNIX", "unix_path", NULL, CLI_SERVE,
     "listen on a Unix socket too"},
    {"--alias", "-a", CLI_SERVING, CLI_LIST, AT(aliases), "NAME", "the file's name", "WEIR_ALIAS", NULL, NULL, CLI_SERVE,
     "what requests call the model; may be given again; * = whatever they say"},
    {"--api-key", NULL, CLI_SERVING, CLI_LIST, AT(api_keys), "KEY", "", "WEIR_API_KEY", "keys", NULL, CLI_SERVE,
     "who may ask (Authorization: Bearer KEY); may be given again; better in the environment or in a file"},
    {"--api-key-file", NULL, CLI_SERVING, CLI_FILE, AT(api_key_file), "FILE", "", "WEIR_API_KEY_FILE", NULL, NULL, CLI_SERVE,
     "keys, one a line: KEY [priority=N] [requests=N] [rate=N]; lines that begin with # are skipped"},
    {"--key-requests", NULL, CLI_SERVING, CLI_INT32, AT(serve.key_requests), "N", "no limit", "WEIR_KEY_REQUESTS",
     "key_requests", NULL, CLI_SERVE, "the most answers of one key at a time; n and several prompts count; 0 = no limit"},
    {"--key-rate", NULL, CLI_SERVING, CLI_INT32, AT(serve.key_rate), "N", "no limit", "WEIR_KEY_RATE", "key_rate", NULL,
     CLI_SERVE, "the most requests of one key in a minute; 0 = no limit"},
    {"--max-priority", NULL, CLI_SERVING, CLI_INT32, AT(serve.max_priority), "N", "0 with keys, else 100",
     "WEIR_MAX_PRIORITY", "max_priority", NULL, CLI_SERVE, "the highest priority that requests may have; -100 to 100"},
    {"--health-needs-key", NULL, CLI_SERVING, CLI_FLAG, AT(serve.health_needs_key), NULL, NULL, "WEIR_HEALTH_NEEDS_KEY",
     NULL, NULL, CLI_SERVE, "/health answers with a key only"},
    {"--metrics-need-no-key", NULL, CLI_SERVING, CLI_FLAG, AT(serve.metrics_need_no_key), NULL, NULL,
     "WEIR_METRICS_NEED_NO_KEY", NULL, NULL, CLI_SERVE, "/metrics answers without a key"},
    {"--tls-cert", "--ssl-cert-file", CLI_SERVING, CLI_STRING, AT(tls_cert), "FILE", "", "WEIR_TLS_CERT", "tls_cert", NULL,
     CLI_SERVE, "speak TLS, with this certificate and its chain (PEM)"},
    {"--tls-key", "--ssl-key-file", CLI_SERVING, CLI_STRING, AT(tls_key), "FILE", "", "WEIR_TLS_KEY", "tls_key", NULL,
     CLI_SERVE, "the certificate's private key (PEM)"},
    {"--cors", NULL, CLI_SERVING, CLI_LIST, AT(origins), "ORIGIN", "none", "WEIR_CORS", NULL, NULL, CLI_SERVE,
     "whose pages may ask from a browser, such as https://example.org; * = all; may be given again"},
    {"--allowed-hosts", NULL, CLI_SERVING, CLI_LIST, AT(hosts), "NAME", "none", "WEIR_ALLOWED_HOSTS", "hosts", NULL, CLI_SERVE,
     "names of this server beside localhost, this machine's and all addresses; * = any; may be given again"},
    {"--embeddings", "--embedding", CLI_SERVING, CLI_FLAG, AT(serve.embeddings), NULL, NULL, "WEIR_EMBEDDINGS", NULL, NULL,
     CLI_SERVE, "answer /v1/embeddings; that takes memory of its own"},
    {"--workers", NULL, CLI_SERVING, CLI_INT32, AT(serve.n_workers), "N", NULL, "WEIR_WORKERS", "n_workers", NULL,
     CLI_SERVE, "threads that read and render requests"},
    {"--max-body", NULL, CLI_SERVING, CLI_SIZE, AT(serve.body_bytes), "SIZE", "16M", "WEIR_MAX_BODY", "body_bytes", NULL,
     CLI_SERVE, "the largest body of a request"},
    {"--head-timeout", NULL, CLI_SERVING, CLI_INT32, AT(serve.head_s), "S", NULL, "WEIR_HEAD_TIMEOUT", "head_s", NULL,
     CLI_SERVE, "how long a request's head may take"},
    {"--body-timeout", NULL, CLI_SERVING, CLI_INT32, AT(serve.body_s), "S", NULL, "WEIR_BODY_TIMEOUT", "body_s", NULL,
     CLI_SERVE, "how long a request's body may take"},
    {"--stall-timeout", NULL, CLI_SERVING, CLI_INT32, AT(serve.stall_s), "S", NULL, "WEIR_STALL_TIMEOUT", "stall_s", NULL,
     CLI_SERVE, "how long a client may leave an answer unread"},
    {"--work-timeout", NULL, CLI_SERVING, CLI_INT32, AT(serve.work_s), "S", NULL, "WEIR_WORK_TIMEOUT", "work_s", NULL,
     CLI_SERVE, "how long reading a request may take, its template and its tokens, and writing its answer"},
    {"--sse-ping-interval", NULL, CLI_SERVING, CLI_INT32, AT(serve.comment_s), "S", NULL, "WEIR_SSE_PING_INTERVAL",
     "comment_s", NULL, CLI_SERVE, "a comment in streams that are silent for so long; 0 = none"},
    {"--watchdog", NULL, CLI_SERVING, CLI_INT32, AT(serve.watchdog_s), "S", NULL, "WEIR_WATCHDOG", "watchdog_s", NULL,
     CLI_SERVE, "/health turns red when the engine has work and stands still for so long, or a worker does not end in so long after --work-timeout"},
    {"--drain", NULL, CLI_SERVING, CLI_INT32, AT(serve.drain_s), "S", NULL, "WEIR_DRAIN", "drain_s", NULL, CLI_SERVE,
     "after SIGTERM or Ctrl-C: how long running answers may take to end"},
    {"--resume-grace", NULL, CLI_SERVING, CLI_INT32, AT(serve.grace_s), "S", NULL, "WEIR_RESUME_GRACE", "grace_s", NULL,
     CLI_SERVE, "how long a stream with \"resume\" goes on when its client is gone; 0 = no stream can be resumed"},
    {"--resume-keep", NULL, CLI_SERVING, CLI_INT32, AT(serve.keep_s), "S", NULL, "WEIR_RESUME_KEEP", "keep_s", NULL,
     CLI_SERVE, "how long one that has ended can still be read"},
    {"--resume-memory", NULL, CLI_SERVING, CLI_SIZE, AT(serve.resume_bytes), "SIZE", "64M", "WEIR_RESUME_MEMORY",
     "resume_bytes", NULL, CLI_SERVE, "the most memory for the events of all of them"},
    {"--no-log", NULL, CLI_SERVING, CLI_FLAG_OFF, AT(serve.log), NULL, NULL, "WEIR_NO_LOG", NULL, NULL, CLI_SERVE,
     "no line of JSON on stderr for each request"},
    {"--log-text", NULL, CLI_SERVING, CLI_FLAG, AT(serve.log_text), NULL, NULL, "WEIR_LOG_TEXT", NULL, NULL, CLI_SERVE,
     "put what clients ask into these lines"},

    {"--licenses", NULL, CLI_OUTPUT, CLI_FLAG, AT(licenses), NULL, NULL, NULL, NULL, NULL, CLI_VERSION,
     "print the license of weir, and the notices of llama.cpp and the other code in it"},
    {"--json", NULL, CLI_OUTPUT, CLI_FLAG, AT(json), NULL, NULL, NULL, NULL, NULL,
     ALL & ~(CLI_COMPLETION | CLI_EMBED | CLI_CHAT), "print JSON for machines"},
    {"--quiet", "-q", CLI_OUTPUT, CLI_FLAG, AT(quiet), NULL, NULL, "WEIR_QUIET", NULL, NULL,
     CLI_RUN | CLI_SERVE | CLI_STREAM | CLI_CHAT | CLI_BENCH | CLI_HTTP | CLI_KERNELS | CLI_OPTIMIZE | CLI_QUANTIZE |
         CLI_PULL | TEXTS,
     "no progress, no figures"},
    {"--verbose", "-v", CLI_OUTPUT, CLI_FLAG, AT(verbose), NULL, NULL, "WEIR_VERBOSE", NULL, NULL,
     LOADS | CLI_KERNELS | CLI_OPTIMIZE | CLI_QUANTIZE | NAMED | TEXTS,
     "show the log of weir and llama.cpp"},
    {"--help", "-h -?", CLI_OUTPUT, CLI_FLAG, AT(help), NULL, NULL, NULL, NULL, NULL, ALL, "this text"},
    {0},
};
/* clang-format on */

_Static_assert(sizeof cli_options / sizeof *cli_options <= CLI_OPTIONS_MAX, "cli_args.sources is too short");

/* ---- Asks and arguments ---- */

static void list_fini(cli_list *list)
{
    for (size_t i = 0; i < list->n; i++) cli_free(list->items[i]);
    cli_free(list->items);
    *list = (cli_list){0};
}

static cli_list list_copy(const cli_list *from)
{
    cli_list to = {0};
    cli_grow(&to.items, &to.capacity, from->n, sizeof *to.items);
    for (size_t i = 0; i < from->n; i++) to.items[to.n++] = cli_format("%s", from->items[i]);
    return to;
}

void cli_numbers_default(cli_numbers *numbers, const int32_t *standard, size_t n)
{
    if (numbers->n > 0) return;
    cli_grow(&numbers->items, &numbers->capacity, n, sizeof *numbers->items);
    for (size_t i = 0; i < n; i++) numbers->items[numbers->n++] = standard[i];
}

void cli_ask_init(cli_ask *ask)
{
    weir_request request = weir_request_default();
    *ask = (cli_ask){
        .sampler = weir_sampler_params_default(),
        .max_tokens = request.max_tokens,
        .interval = 1,
        .deadline_ms = request.deadline_ms,
        .priority = request.priority,
        .n_logprobs = CLI_UNSET,
        .cache_prompt = request.cache_prompt,
    };
}

void cli_ask_fini(cli_ask *ask)
{
    list_fini(&ask->stop);
    list_fini(&ask->dry_breakers);
    cli_free(ask->biases.items);
    cli_free(ask->order);
    cli_free(ask->grammar);
    cli_free(ask->grammar_root);
    cli_free(ask->json_schema);
    cli_free(ask->cache_salt);
    *ask = (cli_ask){0};
}

static char *string_copy(const char *string)
{
    return string == NULL ? NULL : cli_format("%s", string);
}

void cli_ask_copy(cli_ask *to, const cli_ask *from)
{
    *to = *from;
    to->order = string_copy(from->order);
    to->grammar = string_copy(from->grammar);
    to->grammar_root = string_copy(from->grammar_root);
    to->json_schema = string_copy(from->json_schema);
    to->cache_salt = string_copy(from->cache_salt);
    to->stop = list_copy(&from->stop);
    to->dry_breakers = list_copy(&from->dry_breakers);
    to->biases = (cli_biases){0};
    cli_grow(&to->biases.items, &to->biases.capacity, from->biases.n, sizeof *to->biases.items);
    for (size_t i = 0; i < from->biases.n; i++) to->biases.items[to->biases.n++] = from->biases.items[i];
}

void cli_ask_request(cli_ask *ask, weir_request *request)
{
    weir_sampler_params *sampler = &ask->sampler;
    sampler->order = ask->order;
    sampler->grammar = ask->grammar;
    sampler->grammar_root = ask->grammar_root;
    sampler->json_schema = ask->json_schema;
    sampler->logit_bias = ask->biases.items;
    sampler->n_logit_bias = ask->biases.n;
    sampler->dry_breakers = ask->dry_breakers.n > 0 ? (const char *const *)ask->dry_breakers.items : NULL;
    sampler->n_dry_breakers = ask->dry_breakers.n;
    request->sampler = sampler;
    request->max_tokens = ask->max_tokens;
    request->interval = ask->interval;
    request->deadline_ms = ask->deadline_ms;
    request->priority = ask->priority;
    request->logprobs = ask->n_logprobs != CLI_UNSET;
    request->n_logprobs = request->logprobs ? ask->n_logprobs : 0;
    request->special = ask->special;
    request->cache_prompt = ask->cache_prompt;
    request->cache_salt = ask->cache_salt;
    request->stop = (const char *const *)ask->stop.items;
    request->n_stop = ask->stop.n;
    if (ask->adapters == NULL) return;
    request->adapters = ask->adapters->uses;
    request->n_adapters = ask->adapters->n;
}

void cli_args_init(cli_args *args, const cli_command *command)
{
    *args = (cli_args){
        .command = command,
        .model = weir_model_params_default(),
        .engine = weir_engine_params_default(),
        .best_of = 1,
        .n_prompt_logprobs = CLI_UNSET,
    };
    cli_ask_init(&args->ask);
    args->ask.adapters = args->adapters = cli_alloc(1, sizeof *args->adapters);
    if (command->defaults != NULL) command->defaults(args);
}

void cli_args_fini(cli_args *args)
{
    cli_ask_fini(&args->ask);
    cli_free(args->model_path);
    cli_free(args->draft_path);
    cli_free(args->optimized);
    cli_free(args->cache_dir);
    cli_free(args->revision);
    cli_free(args->prompt);
    cli_free(args->prompt_file);
    cli_free(args->system);
    cli_free(args->chat_template);
    cli_free(args->csv_path);
    cli_free(args->ring_path);
    cli_free(args->svg_path);
    cli_free(args->output);
    cli_free(args->type);
    cli_free(args->prompt_span);
    cli_free(args->answer_span);
    cli_free(args->extra);
    cli_free(args->api_key);
    cli_free(args->url);
    cli_free(args->streams.items);
    cli_free(args->prompt_lengths.items);
    cli_free(args->answer_lengths.items);
    cli_free(args->host);
    cli_free(args->unix_path);
    cli_free(args->tls_cert);
    cli_free(args->tls_key);
    cli_free(args->api_key_file);
    cli_free(args->keys);
    list_fini(&args->api_keys);
    list_fini(&args->aliases);
    list_fini(&args->origins);
    list_fini(&args->hosts);
    list_fini(&args->kernels);
    list_fini(&args->shapes);
    cli_free(args->rows.items);
    cli_free(args->thread_counts.items);
    list_fini(&args->words);
    list_fini(&args->lora);
    for (size_t i = 0; i < args->adapters->n; i++) weir_adapter_release(args->adapters->uses[i].adapter);
    cli_free(args->adapters->uses);
    cli_free(args->adapters);
    cli_free(args->lora_dir);
    for (size_t i = 0; i < CLI_OPTIONS_MAX; i++) cli_free(args->sources[i].text);
}

/* ---- Names ---- */

static bool spelled(const cli_option *option, const char *spelling, size_t length)
{
    if (strlen(option->name) == length && memcmp(option->name, spelling, length) == 0) return true;
    for (const char *other = option->others; other != NULL && *other != '\0';) {
        size_t n = strcspn(other, " ");
        if (n == length && memcmp(other, spelling, n) == 0) return true;
        other += n + (other[n] == ' ');
    }
    return false;
}

const cli_option *cli_options_find(unsigned command, const char *spelling, size_t length)
{
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && spelled(option, spelling, length)) return option;
    return NULL;
}

const cli_option *cli_options_by_field(unsigned command, const char *field)
{
    size_t length = strcspn(field, "/"); /* a place in the value follows */
    while (length > 0 && field[length - 1] != '.') length--;
    field += length;
    length = strcspn(field, "[/");
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if ((option->commands & command) && option->field != NULL && strlen(option->field) == length &&
            memcmp(option->field, field, length) == 0)
            return option;
    return NULL;
}

bool cli_options_given(const cli_args *args, const char *name)
{
    const cli_option *option = cli_options_find(args->command->bit, name, strlen(name));
    return option != NULL && args->sources[option - cli_options].from == CLI_FROM_WORDS;
}

/* Small letters and hyphens. */
static void plain_name(const char *name, char *plain, size_t capacity)
{
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < capacity; i++)
        plain[i] = (char)(name[i] == '_'                     ? '-'
                          : name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a'
                                                             : name[i]);
    plain[i] = '\0';
}

void cli_options_setting(const cli_option *option, char *name, size_t capacity)
{
    plain_name(option->env + strlen("WEIR_"), name, capacity);
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
        cli_options_setting(option, setting, sizeof setting);
        if (strcmp(setting, name + 2) == 0 || spelled(option, name, strlen(name))) return option;
    }
    return NULL;
}

static bool in_requests(const cli_option *option)
{
    return option->field != NULL && option->target < sizeof(cli_ask);
}

const cli_option *cli_options_by_key(const char *key)
{
    char spelling[64] = "--";
    size_t n = strlen(key);
    if (n + 3 > sizeof spelling) return NULL;
    for (size_t i = 0; i <= n; i++) spelling[i + 2] = (char)(key[i] == '_' ? '-' : key[i]);
    for (const cli_option *option = cli_options; option->name != NULL; option++)
        if (in_requests(option) && (strcmp(option->field, key) == 0 ||
                                    (option->kind != CLI_FLAG_OFF && /* which would say the opposite */
                                     strchr(key, '-') == NULL && spelled(option, spelling, n + 2))))
            return option;
    return NULL;
}

int cli_options_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 }; /* names beyond that resemble nothing */
    int rows[3][LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* Keeps the candidate when it is nearer than what was found before. */
static void nearer(const char *key, const char *candidate, int *least, char *best, size_t capacity)
{
    int distance = cli_options_distance(key, candidate);
    if (distance >= *least) return;
    *least = distance;
    snprintf(best, capacity, "%s", candidate);
}

void cli_options_similar_key(const char *key, const char *const *more, size_t n, char *best, size_t capacity)
{
    int least =
        (int)strlen(key) / 3 + 2; /* as many typing errors as a name of this length may have, plus one */
    best[0] = '\0';
    for (size_t i = 0; i < n; i++) nearer(key, more[i], &least, best, capacity);
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        char spellings[128], *rest = NULL;
        if (!in_requests(option)) continue;
        nearer(key, option->field, &least, best, capacity);
        snprintf(spellings, sizeof spellings, "%s %s", option->name, option->others ? option->others : "");
        for (char *one = strtok_r(spellings, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest)) {
            if (strncmp(one, "--", 2) != 0) continue;
            for (char *c = one + 2; *c != '\0'; c++)
                if (*c == '-') *c = '_';
            nearer(key, one + 2, &least, best, capacity);
        }
    }
}

void cli_options_similar_setting(const char *key, char *best, size_t capacity)
{
    char name[64] = "", setting[64] = "";
    int least = (int)strlen(key) / 3 + 2;
    best[0] = '\0';
    plain_name(key, name, sizeof name);
    for (const cli_option *option = cli_options; option->name != NULL; option++) {
        if (option->env == NULL) continue;
        cli_options_setting(option, setting, sizeof setting);
        nearer(name, setting, &least, best, capacity);
        nearer(name, option->name + 2, &least, best, capacity);
    }
}

/* ---- Values ---- */

void cli_options_value(const void *target, const cli_option *option, char *text, size_t capacity)
{
    const char *at = (const char *)target + option->target;
    text[0] = '\0';
    if (option->standard != NULL) {
        snprintf(text, capacity, "%s", option->standard);
        return;
    }
    switch (option->kind) {
    case CLI_INT32: snprintf(text, capacity, "%d", *(const int32_t *)at); break;
    case CLI_INT64: snprintf(text, capacity, "%lld", (long long)*(const int64_t *)at); break;
    case CLI_SEED: snprintf(text, capacity, "%u", *(const uint32_t *)at); break;
    case CLI_FLOAT: snprintf(text, capacity, "%g", (double)*(const float *)at); break;
    case CLI_CHOICE: snprintf(text, capacity, "%s", option->choices[*(const int *)at]); break;
    default: break;
    }
}
