"""weir serve with a model of random weights, which knows nothing: calls that are required come all the same, and so do answers of a given
form beside tools, with templates that know tools and with one that does not; and schemas that cannot be honoured are refused by their place."""
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
CHAT = "/v1/chat/completions"


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}}


# Neither texts nor numbers without end: random weights would not end them.
TOOLS = [tool("set_alarm", days={"type": "integer", "minimum": 1, "maximum": 9}, loud={"type": "boolean"}),
         {"type": "function", "function": {"name": "stop", "parameters": {
             "type": "object", "properties": {"count": {"$ref": "#/$defs/few"}}, "required": ["count"], "$defs": {"few": {"type": "integer", "minimum": 0, "maximum": 99}}}}},
         tool("never", x={"type": "boolean"})]
SUM = {"type": "object", "properties": {"sum": {"$ref": "#/$defs/n"}}, "required": ["sum"], "additionalProperties": False,
       "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}
FORM = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
ASK = {"messages": [{"role": "user", "content": "Wake me up."}], "tools": TOOLS, "max_tokens": 600, "temperature": 1, "reasoning_effort": "none"}

# What it is, the keyword that the message names, where it stands in it.
ODD = [
    ("not", "not", "", {"type": "string", "not": {"format": "date"}}),
    ("a look-ahead", "pattern", "", {"type": "string", "pattern": "(?=x)y"}),
    ("a back reference", "pattern", "", {"type": "string", "pattern": "(a)\\1"}),
    ("multiples", "multipleOf", "/properties/a", {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 1009}}}),
    ("decimal multiples", "multipleOf", "/items", {"type": "array", "items": {"type": "number", "multipleOf": 100.9}}),
    ("names by pattern", "patternProperties", "", {"type": "object", "patternProperties": {"(?=x)": {"type": "string"}}}),
    ("if", "if", "", {"type": "string", "if": {"format": "date"}, "then": {"pattern": "^2"}}),
    ("dependencies", "dependentRequired", "", {"type": "object", "dependentRequired": ["b"]}),
    ("another document", "$ref", "", {"$ref": "https://example.com/s.json"}),
    ("nowhere", "$ref", "/properties/a", {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}),
    ("itself", "$ref", "", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    ("different items", "uniqueItems", "", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    ("contains", "maxContains", "", {"type": "array", "contains": {"format": "date"}, "maxContains": 1}),
    ("names", "format", "/propertyNames", {"type": "object", "propertyNames": {"format": "regex"}}),
    ("how many properties", "minProperties", "", {"type": "object", "minProperties": 3}),
    ("either, or both", "oneOf", "", {"oneOf": [{"type": "string"}, {"type": "string", "format": "date"}]}),
    ("a format", "format", "", {"type": "string", "format": "regex"}),
    ("no type", "type", "", {"type": "text"}),
    ("properties that are none", "properties", "", {"type": "object", "properties": ["a"]}),
    ("nothing allowed", "enum", "", {"enum": []}),
    ("what is nearly there", "minLenght", "", {"type": "string", "minLenght": 3}),
    ("never", "nothing can satisfy", "", {"type": "object", "properties": {"a": False}, "required": ["a"]}),
    ("bounds the wrong way", "nothing can satisfy", "", {"type": "string", "minLength": 5, "maxLength": 3}),
    ("required, but not allowed", "nothing can satisfy", "", {"type": "object", "properties": {}, "required": ["a"], "additionalProperties": False}),
]


def is_call(call, names):
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name not in names or not call["id"] or call["type"] != "function":
        return False
    if name == "set_alarm":
        return set(arguments) == {"days", "loud"} and arguments["days"] in range(1, 10) and isinstance(arguments["loud"], bool)
    return set(arguments) == {"count"} and arguments["count"] in range(100) if name == "stop" else isinstance(arguments["x"], bool) and len(arguments) == 1


def is_sum(content):
    value = json.loads(content)
    return set(value) == {"sum"} and value["sum"] in range(100)


def ask_all(server, template):
    def ask(**more):
        reply = server.post(CHAT, dict(ASK, **more))
        if reply.status != 200:
            check(f"{template}: {more}", False, reply.body)
            return {"message": {}, "finish_reason": None}
        return reply.json["choices"][0]

    def calls(choice, names, most):
        message = choice["message"]
        return choice["finish_reason"] == "tool_calls" and message["content"] is None and 1 <= len(message.get("tool_calls", [])) <= most and \
            all(is_call(call, names) for call in message["tool_calls"])
    everything = ("set_alarm", "stop", "never")
    for seed in range(2):
        choice = ask(tool_choice="required", parallel_tool_calls=False, seed=seed)
        check(f"{template}: required, one call, seed {seed}", calls(choice, everything, 1), choice)
        choice = ask(tool_choice="required", parallel_tool_calls=True, seed=seed)
        check(f"{template}: required, several allowed, seed {seed}", calls(choice, everything, 100), choice)
        choice = ask(tool_choice={"type": "function", "function": {"name": "stop"}}, seed=seed)
        check(f"{template}: a named one, seed {seed}", calls(choice, ("stop",), 1), choice)
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": n}} for n in ("stop", "set_alarm")]}
        choice = ask(tool_choice={"type": "allowed_tools", "allowed_tools": allowed}, seed=seed, parallel_tool_calls=False)
        check(f"{template}: one of those allowed, seed {seed}", calls(choice, ("stop", "set_alarm"), 1), choice)
        choice = ask(response_format=FORM, seed=seed, parallel_tool_calls=False)
        check(f"{template}: a call, or the form, seed {seed}", calls(choice, everything, 1) or
              (choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"] and is_sum(choice["message"]["content"])), choice)
        choice = ask(response_format=FORM, tool_choice="none", seed=seed)
        check(f"{template}: the form, no calls, seed {seed}", choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"] and is_sum(choice["message"]["content"]), choice)
        choice = ask(response_format=FORM, tool_choice="required", seed=seed, parallel_tool_calls=False)
        check(f"{template}: required, a form beside it, seed {seed}", calls(choice, everything, 1), choice)
    whole = ask(tool_choice="required", parallel_tool_calls=False, temperature=0)["message"]["tool_calls"][0]["function"]
    events = server.stream(CHAT, dict(ASK, tool_choice="required", parallel_tool_calls=False, temperature=0))
    deltas = [e["choices"][0]["delta"] for e in events]
    parts = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    check(f"{template}: streamed: role, head, arguments, finish", deltas[0] == {"role": "assistant", "content": ""} and parts[0]["function"] == {"name": whole["name"], "arguments": ""} and
          parts[0]["id"] and all("name" not in p["function"] and "id" not in p for p in parts[1:]) and "".join(p["function"]["arguments"] for p in parts) == whole["arguments"] and
          events[-1]["choices"][0]["finish_reason"] == "tool_calls" and not any(d.get("content") for d in deltas), deltas)
    ask_stopped(server, template, ask, whole)
    ask_cut(server, template)
    name = [{"type": "function", "function": {"name": "none"}}]
    for choice in ({"type": "function", "function": {"name": "none"}}, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": name}}):
        reply = server.post(CHAT, dict(ASK, tool_choice=choice))
        check(f"{template}: a tool that is not there", reply.status == 400 and reply.error["param"] == "tool_choice" and '"none"' in reply.error["message"], reply.body)
    strict = json.loads(json.dumps(tool("paint", colour={"enum": ["red", "blue"]})))
    strict["function"]["strict"] = True
    choice = ask(tools=[strict], tool_choice="required")
    check(f"{template}: strict", json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["colour"] in ("red", "blue"), choice)


def ask_stopped(server, template, ask, whole):
    """Stop texts are of the text: they end no call, and they do end an answer of a form."""
    stops = [whole["name"][1:], "{", '"', whole["arguments"][-3:]]
    one = dict(tool_choice="required", parallel_tool_calls=False, temperature=0)
    for stop in stops:
        choice = ask(stop=[stop], **one)
        check(f"{template}: the stop text {stop!r} in a call", choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"][0]["function"] == whole, choice)
    events = server.stream(CHAT, dict(ASK, stop=stops, **one))
    parts = [e["choices"][0]["delta"]["tool_calls"][0]["function"] for e in events if "tool_calls" in e["choices"][0]["delta"]]
    check(f"{template}: stop texts in a streamed call", "".join(p["arguments"] for p in parts) == whole["arguments"] and events[-1]["choices"][0]["finish_reason"] == "tool_calls", events)
    named = {"type": "tool", "name": "stop"}
    tools = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    reply = server.post("/v1/messages", {"messages": ASK["messages"], "tools": tools, "tool_choice": named, "max_tokens": 600, "temperature": 0, "stop_sequences": ["count", "stop", "}"]}).json
    check(f"{template}: stop texts in a call, messages", reply["stop_reason"] == "tool_use" and set(reply["content"][0]["input"]) == {"count"}, reply)
    reply = server.post("/api/chat", {"model": "random.gguf", "messages": ASK["messages"], "tools": TOOLS, "tool_choice": "required", "stream": False, "think": False, "options": {"num_predict": 600, "temperature": 0, "stop": ["}"]}}).json
    check(f"{template}: a stop text in a call, Ollama's API", reply["done_reason"] == "stop" and reply["message"]["tool_calls"][0]["function"]["arguments"] != {}, reply)
    for seed in range(4):
        choice = ask(response_format=FORM, seed=seed, parallel_tool_calls=False, stop=["sum", "days", "count", '"x"'])
        content, called = choice["message"]["content"], "tool_calls" in choice["message"]
        check(f"{template}: a stop text in a call, or in the form, seed {seed}", choice["finish_reason"] == "tool_calls" and called if called else
              choice["finish_detail"] == "stop_words" and "sum" not in content, choice)


def shown(dialect, reply):
    """The text and the calls of a whole answer."""
    if dialect == CHAT:
        message = reply["choices"][0]["message"]
        return message["content"] or "", message.get("tool_calls", []), reply["choices"][0]["finish_reason"]
    if dialect == "/v1/messages":
        return "".join(b["text"] for b in reply["content"] if b["type"] == "text"), [b for b in reply["content"] if b["type"] == "tool_use"], reply["stop_reason"]
    if dialect == "/v1/responses":
        texts = [p["text"] for item in reply["output"] if item["type"] == "message" for p in item["content"]]
        return "".join(texts), [i for i in reply["output"] if i["type"] == "function_call"], (reply["incomplete_details"] or {}).get("reason")
    return reply["message"]["content"], reply["message"].get("tool_calls", []), reply["done_reason"]


def ask_cut(server, template):
    """A call that is cut shows nothing of its markup, in every dialect."""
    named = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    flat = [dict(t["function"], type="function") for t in TOOLS]
    asks = {CHAT: ("max_tokens", dict(ASK, tool_choice="required"), "length"),
            "/v1/messages": ("max_tokens", {"messages": ASK["messages"], "tools": named, "tool_choice": {"type": "any"}}, "max_tokens"),
            "/v1/responses": ("max_output_tokens", {"input": ASK["messages"], "tools": flat, "tool_choice": "required", "reasoning": {"effort": "none"}}, "max_output_tokens"),
            "/api/chat": ("num_predict", {"model": "random.gguf", "messages": ASK["messages"], "tools": TOOLS, "tool_choice": "required", "think": False, "stream": False}, "length")}
    for dialect, (limit, body, reason) in asks.items():
        for n in range(1, 9):
            more = {"options": {limit: n, "temperature": 0}} if limit == "num_predict" else {limit: n, "temperature": 0}
            reply = server.post(dialect, dict(body, **more)).json
            text, calls, ended = shown(dialect, reply)
            check(f"{template}: {dialect} cut at {n}", text == "" and not calls and ended == reason, reply)
    for n in range(1, 9):
        events = server.stream(CHAT, dict(ASK, tool_choice="required", temperature=0, max_tokens=n))
        check(f"{template}: a stream cut at {n}", not any(e["choices"][0]["delta"].get("content") for e in events) and events[-1]["choices"][0]["finish_reason"] == "length", events)


def ask_odd(server, template):
    for name, keyword, place, odd in ODD:
        reply = server.post(CHAT, {"messages": ASK["messages"], "max_tokens": 1, "response_format": {"type": "json_schema", "json_schema": {"name": "o", "strict": True, "schema": odd}}})
        check(f"{template}: odd: {name}", reply.status == 400 and reply.error["param"] == "response_format/json_schema/schema" + place and keyword in reply.error["message"], reply.status, reply.body)
        reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "json_schema": odd})
        check(f"{template}: odd: {name}, completions", reply.status == 400 and reply.error["param"] == "json_schema" + place, reply.status, reply.body)
        inside = json.loads(json.dumps(odd).replace("#/$defs", "#/properties/a/$defs"))
        tools = [TOOLS[0], tool("f", a=inside)]
        tools[1]["function"]["strict"] = True
        reply = server.post(CHAT, dict(ASK, max_tokens=1, tools=tools))
        check(f"{template}: odd: {name}, in a tool", reply.status == 400 and reply.error["param"] == "tools/1/function/parameters" + (
            "" if keyword.startswith("nothing") else "/properties/a" + place) and keyword in reply.error["message"],
              reply.status, reply.body)
        reply = server.post(CHAT, dict(ASK, max_tokens=1, response_format={"type": "json_schema", "json_schema": {"name": "o", "strict": True, "schema": odd}}))
        check(f"{template}: odd: {name}, beside tools", reply.status == 400 and reply.error["param"] == "response_format/json_schema/schema" + place, reply.status, reply.body)


need_server(WEIR)
# A form with JSON between tags, one of JSON alone, one with ids, arguments one by one, a handler without a form of answers, and the model's own, which knows no tools.
TEMPLATES = ["Qwen-Qwen2.5-7B-Instruct", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "Qwen3-Coder", "meetkai-functionary-medium-v3.2", None]
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "random.gguf")
    subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "tiny_gguf.py"), "llama", path], check=True)
    for template in TEMPLATES if LLAMA else [None]:
        words = [] if template is None else ["--chat-template-file", os.path.join(LLAMA, "models", "templates", template + ".jinja")]
        server = Server(WEIR, "-np", "2", "-c", "16384", *words, model=path)
        try:
            ask_all(server, template or "ChatML")
            if template in (TEMPLATES[0], None):
                ask_odd(server, template or "ChatML")
            check(f"{template}: it ends with 0", server.stop() == 0)
        finally:
            server.stop()
finish()
