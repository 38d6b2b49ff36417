/* native.h: the paths of llama-server, vLLM, rerankers and weir itself (http/paths.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_SERVER_API_NATIVE_NATIVE_H
#define WEIR_SERVER_API_NATIVE_NATIVE_H

#include "server/request/serve.h"

serve_handler serve_native, serve_infill, serve_props, serve_rerank, serve_tokenize, serve_detokenize,
    serve_apply_template, serve_plan, serve_render_completions, serve_render_chat, serve_control,
    serve_lora_list, serve_lora_scale, serve_lora_load, serve_lora_unload;

#endif
