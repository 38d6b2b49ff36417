/* objects.h: every object within a request whose members are judged, and the members that are known: most are
 * read, and the others are what clients and servers add that has no effect. docs/guides/fields.md is written
 * from this table by fields_test. Hints within objects are rows of ask_fields.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVE_API_COMMON_OBJECTS_H
#define SERVE_API_COMMON_OBJECTS_H

/* clang-format off */
/* By line: the name, the kinds of requests (SERVE_ASK_*), the place, with a type if others have other members,
 * and the members. */
#define SERVE_OBJECTS(X) \
    X(CHAT_MESSAGE, SERVE_ASK_CHAT, "messages[]", "role", "id", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", \
        /* OpenAI's answers, and what its libraries add */ "refusal", "annotations", "parsed", \
        /* reasoning as other servers and gateways have it */ "reasoning", "reasoning_details", "thinking", "thinking_blocks", "tool_plan", "cache_control", "provider_specific_fields") \
    X(CHAT_PART, SERVE_ASK_CHAT, "messages[].content[]", "type", "text", "image_url", "input_audio", "uuid", "cache_control", "annotations", "index", "id", "citations", "refusal") \
    X(CHAT_IMAGE, SERVE_ASK_CHAT, "messages[].content[].image_url", "url", "format") \
    X(CHAT_SOUND, SERVE_ASK_CHAT, "messages[].content[].input_audio", "data", "format") \
    X(CHAT_CALL, SERVE_ASK_CHAT, "messages[].tool_calls[]", "id", "type", "function", "custom", "index", "extra_content", "provider_specific_fields") \
    X(CHAT_CALL_FUNCTION, SERVE_ASK_CHAT, "messages[].tool_calls[].function", "name", "arguments", "parsed_arguments", "provider_specific_fields") \
    X(CHAT_CALL_CUSTOM, SERVE_ASK_CHAT, "messages[].tool_calls[].custom", "name", "input") \
    X(CHAT_TOOL, SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "tools[]", "type", "function", "cache_control") \
    X(CHAT_FUNCTION, SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "tools[].function", "name", "description", "parameters", "strict", "cache_control", \
        "return" /* of functions in Python, as Hugging Face's libraries describe them */, "type" /* Open WebUI's */) \
    X(CHAT_CUSTOM_TOOL, SERVE_ASK_CHAT, "tools[]: custom", "type", "custom", "cache_control") \
    X(CHAT_CUSTOM, SERVE_ASK_CHAT, "tools[].custom", "name", "description", "format") \
    X(CHAT_FORMAT, SERVE_ASK_CHAT, "tools[].custom.format: grammar", "type", "grammar") \
    X(CHAT_CHOICE, SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "tool_choice", "type", "function", "custom", "allowed_tools") \
    X(CHAT_CHOSEN, SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "tool_choice.function, tool_choice.custom", "name") \
    X(CHAT_ALLOWED, SERVE_ASK_CHAT | SERVE_ASK_OLLAMA, "tool_choice.allowed_tools", "mode", "tools") \
    X(GRAMMAR, SERVE_ASK_CHAT | SERVE_ASK_RESPONSES, "tools[].format, tools[].custom.format.grammar", "type", "syntax", "definition") \
    X(RESPONSE_FORMAT, SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS, "response_format", "type", "schema", "json_schema") \
    X(RESPONSE_SCHEMA, SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS, "response_format.json_schema", "name", "description", "schema", "strict") \
    X(STREAM, SERVE_ASK_CHAT | SERVE_ASK_COMPLETIONS, "stream_options", "include_usage", "continuous_usage_stats" /* vLLM's */) \
    X(PREDICTION, SERVE_ASK_CHAT, "prediction", "type", "content") \
    X(OLLAMA_CALL_FUNCTION, SERVE_ASK_OLLAMA, "messages[].tool_calls[].function", "index", "name", "description", "arguments") \
    X(OLLAMA_CALL, SERVE_ASK_OLLAMA, "messages[].tool_calls[]", "id", "type", "function") \
    X(OLLAMA_MESSAGE, SERVE_ASK_OLLAMA, "messages[]", "role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id") \
    X(MESSAGE, SERVE_ASK_MESSAGES, "messages[]", "role", "content") \
    X(MESSAGE_TEXT, SERVE_ASK_MESSAGES, "messages[].content[]: text", "type", "text", "cache_control", "citations") \
    X(MESSAGE_IMAGE, SERVE_ASK_MESSAGES, "messages[].content[]: image", "type", "source", "cache_control") \
    X(MESSAGE_IMAGE_DATA, SERVE_ASK_MESSAGES, "messages[].content[].source: base64", "type", "media_type", "data") \
    X(MESSAGE_IMAGE_URL, SERVE_ASK_MESSAGES, "messages[].content[].source: url", "type", "url") \
    X(MESSAGE_DOCUMENT, SERVE_ASK_MESSAGES, "messages[].content[]: document", "type", "source", "title", "context", "cache_control", "citations") \
    X(MESSAGE_DOCUMENT_SOURCE, SERVE_ASK_MESSAGES, "messages[].content[].source: text, content", "type", "media_type", "data", "content") \
    X(MESSAGE_THINKING, SERVE_ASK_MESSAGES, "messages[].content[]: thinking", "type", "thinking", "signature") \
    X(MESSAGE_TOOL_USE, SERVE_ASK_MESSAGES, "messages[].content[]: tool_use", "type", "id", "name", "input", "cache_control", "caller") \
    X(MESSAGE_TOOL_RESULT, SERVE_ASK_MESSAGES, "messages[].content[]: tool_result", "type", "tool_use_id", "content", "is_error", "cache_control") \
    X(MESSAGE_MID_SYSTEM, SERVE_ASK_MESSAGES, "messages[].content[]: mid_conv_system", "type", "content", "cache_control") \
    X(MESSAGE_COMPACTION, SERVE_ASK_MESSAGES, "messages[].content[]: compaction", "type", "content", "cache_control", "signature", "encrypted_content") \
    X(MESSAGE_ADDITION, SERVE_ASK_MESSAGES, "messages[].content[]: tool_addition", "type", "tool", "cache_control") \
    X(MESSAGE_TOOL, SERVE_ASK_MESSAGES, "tools[]", "type", "name", "description", "input_schema", "strict", "cache_control", "eager_input_streaming") \
    X(MESSAGE_CHOICE, SERVE_ASK_MESSAGES, "tool_choice", "type", "name", "disable_parallel_tool_use") \
    X(THINKING_OPTION, SERVE_ASK_MESSAGES, "thinking", "type", "budget_tokens") \
    X(OUTPUT, SERVE_ASK_MESSAGES, "output_config", "effort", "format") \
    X(OUTPUT_FORMAT, SERVE_ASK_MESSAGES, "output_config.format", "type", "schema") \
    X(ITEM_MESSAGE, SERVE_ASK_RESPONSES, "input[]: message", "type", "role", "content", "id", "status", "phase") \
    X(ITEM_TEXT, SERVE_ASK_RESPONSES, "input[].content[]: input_text, output_text", "type", "text", "annotations", "logprobs", "prompt_cache_breakpoint") \
    X(ITEM_IMAGE, SERVE_ASK_RESPONSES, "input[].content[]: input_image", "type", "image_url", "prompt_cache_breakpoint") \
    X(ITEM_REFUSAL, SERVE_ASK_RESPONSES, "input[].content[]: refusal", "type", "refusal") \
    X(ITEM_REASONING, SERVE_ASK_RESPONSES, "input[]: reasoning", "type", "id", "status", "summary", "content") \
    X(ITEM_CUSTOM_CALL, SERVE_ASK_RESPONSES, "input[]: custom_tool_call", "type", "id", "status", "call_id", "name", "input", "namespace", "caller") \
    X(ITEM_FUNCTION, SERVE_ASK_RESPONSES, "tools[]: function", "type", "name", "description", "parameters", "strict") \
    X(ITEM_CUSTOM, SERVE_ASK_RESPONSES, "tools[]: custom", "type", "name", "description", "format") \
    X(ITEM_NAMESPACE, SERVE_ASK_RESPONSES, "tools[]: namespace", "type", "name", "description", "tools") \
    X(ITEM_CALL, SERVE_ASK_RESPONSES, "input[]: function_call", "type", "id", "status", "call_id", "name", "arguments", "namespace", "caller") \
    X(ITEM_OUTPUT, SERVE_ASK_RESPONSES, "input[]: function_call_output, custom_tool_call_output", "type", "id", "status", "call_id", "output", "caller") \
    X(ITEM_TOOLS, SERVE_ASK_RESPONSES, "input[]: tool_search_output, additional_tools", "type", "id", "status", "call_id", "tools", "execution", "created_by", "role") \
    X(ITEM_REFERENCE, SERVE_ASK_RESPONSES, "input[]: item_reference", "type", "id") \
    X(ITEM_STREAM, SERVE_ASK_RESPONSES, "stream_options", NULL /* its events have the usage anyway */) \
    X(TEXT_OPTION, SERVE_ASK_RESPONSES, "text", "format") \
    X(TEXT_FORMAT, SERVE_ASK_RESPONSES, "text.format", "type", "name", "description", "schema", "strict") \
    X(REASONING_OPTION, SERVE_ASK_RESPONSES, "reasoning", "effort") \
    X(CONTROL, 0, "", "id", "action", "model")
/* clang-format on */

typedef enum serve_object {
#define NAME(name, where, place, ...) SERVE_OBJECT_##name,
    SERVE_OBJECTS(NAME)
#undef NAME
        SERVE_OBJECTS_N,
} serve_object;

/* An object's row. */
typedef struct serve_object_row {
    unsigned where;
    const char *place;     /* "messages[].content[]: text" */
    const char *names[24]; /* until NULL */
} serve_object_row;

extern const serve_object_row serve_objects[SERVE_OBJECTS_N];

#endif
