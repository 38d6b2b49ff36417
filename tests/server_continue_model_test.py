"""weir serve continues a last message of the assistant beside schemas and tools, with a model of random weights, which knows nothing: what comes
ends a text that begins with the message, and a text that cannot is refused by the fields that the client sent."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE, LLAMA = os.environ["WEIR_SOURCE_DIR"], os.environ.get("WEIR_LLAMA_SOURCE")
CHAT, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/api/chat"
SUM = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}}, "required": ["sum", "ok"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
STOP = {"type": "object", "properties": {"now": {"type": "boolean"}}, "required": ["now"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "stop", "parameters": STOP}}]
BEGUN = '{"sum": 4'


def said(content, **more):
    return [{"role": "user", "content": "Add."}, {"role": "assistant", "content": content, **more}]


def is_sum(rest):
    try:
        value = json.loads(BEGUN + rest)
    except ValueError:
        return False
    return set(value) == {"sum", "ok"} and value["sum"] in range(100) and isinstance(value["ok"], bool)


def ask_all(server, template):
    body = {"messages": said(BEGUN), "continue_final_message": True, "max_tokens": 300, "temperature": 1, "response_format": FORM}
    for thinks in ("none", "low"):
        for more in ({}, {"tools": TOOLS, "tool_choice": "none"}):
            reply = server.post(CHAT, dict(body, reasoning_effort=thinks, **more))
            check(f"{template}, {thinks} {list(more)}: a schema", reply.status == 200 and is_sum(reply.json["choices"][0]["message"]["content"] or ""), reply.body)
        events = server.stream(CHAT, dict(body, reasoning_effort=thinks))
        check(f"{template}, {thinks}: a schema, streamed", is_sum("".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])), events)
    reply = server.post(CHAT, dict(body, tools=TOOLS))
    check(f"{template}: a schema or a call", reply.status == 200 and is_sum(reply.json["choices"][0]["message"]["content"] or ""), reply.body)
    reply = server.post(CHAT, dict(body, messages=said(""), response_format={"type": "json_object"}))
    check(f"{template}: any object, from the start", reply.status == 200, reply.body)
    reply = server.post(CHAT, dict(body, messages=said('{"a": ['), response_format={"type": "json_object"}, max_tokens=1))
    check(f"{template}: any object", reply.status == 200, reply.body)
    reply = server.post(MESSAGES, {"messages": said([{"type": "text", "text": BEGUN}]), "max_tokens": 300, "output_config": {"format": {"type": "json_schema", "schema": SUM}}})
    check(f"{template}: Messages", reply.status == 200 and is_sum(reply.json["content"][0]["text"]), reply.body)
    reply = server.post(OLLAMA, {"model": "tiny", "messages": said(BEGUN), "stream": False, "format": SUM, "options": {"num_predict": 300}})
    check(f"{template}: Ollama", reply.status == 200 and is_sum(reply.json["message"]["content"]), reply.body)
    reply = server.post(CHAT, {"messages": said("Well, "), "continue_final_message": True, "max_tokens": 4, "tools": TOOLS})
    check(f"{template}: a text beside tools", reply.status == 200, reply.body)
    reply = server.post(CHAT, {"messages": said("Well, "), "continue_final_message": True, "max_tokens": 300, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False})
    call = reply.json["choices"][0]["message"].get("tool_calls", [{}])[0] if reply.status == 200 else {}
    check(f"{template}: a call after a text", call.get("function", {}).get("name") == "stop" and set(json.loads(call["function"]["arguments"])) == {"now"}, reply.body)
    for name, path, more, param, form in (
            ("chat completions", CHAT, {"continue_final_message": True, "response_format": FORM}, "messages[1].content", "response_format"),
            ("any object", CHAT, {"continue_final_message": True, "response_format": {"type": "json_object"}}, "messages[1].content", "response_format"),
            ("Messages", MESSAGES, {"max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": SUM}}}, "messages[1]", "output_config"),
            ("Ollama", OLLAMA, {"model": "tiny", "stream": False, "format": SUM}, "messages[1]", "format")):
        reply = server.post(path, dict(more, messages=said("Well")))
        message = reply.body if isinstance(reply.body, str) else reply.body.decode()
        named = path != CHAT or reply.error["param"] == param
        check(f"{template}: {name}: a text that begins no answer is refused by name", reply.status == 400 and named and param in message and form in message and "grammar" not in message, reply.status, reply.body)


need_server(WEIR)
# Forms with reasoning, with JSON alone, without a form of answers, with fences, and the model's own, which knows no tools.
TEMPLATES = ["Qwen-Qwen3-0.6B", "HuggingFaceTB-SmolLM3-3B", "meta-llama-Llama-3.1-8B-Instruct", "meetkai-functionary-medium-v3.2", "mistralai-Ministral-3-14B-Reasoning-2512", None]
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "random.gguf")
    subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), "llama", path], check=True)
    for template in TEMPLATES if LLAMA else [None]:
        words = [] if template is None else ["--chat-template-file", os.path.join(LLAMA, "models", "templates", template + ".jinja")]
        server = Server(WEIR, "-np", "2", "-c", "16384", "--alias", "tiny", *words, model=path)
        try:
            ask_all(server, template or "ChatML")
            check(f"{template}: it ends with 0", server.stop() == 0)
        finally:
            server.stop()
finish()
