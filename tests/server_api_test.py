"""weir serve as clients of OpenAI's API know it, on the fake model: names of models, how answers end, the order of events, errors after the
start, comments, embeddings."""
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}


def refused(name, reply, status, field=None, code=None, word=""):
    error = reply.error if reply.body else {}
    check(f"{name}: {status}" + (f", {field}" if field else ""), reply.status == status and error.get("param") == field and
          (code is None or error.get("code") == code) and word in error.get("message", ""), reply.status, reply.body)


def raw_events(server, path, body):
    """All of them, comments and [DONE] too."""
    connection = server.connect()
    connection.request("POST", path, dict(body, stream=True))
    status, _ = connection.head()
    events = list(connection.events()) if status == 200 else []
    connection.close()
    return status, events


need_server(WEIR)

# ---- Names

server = Server(WEIR, "--alias", "tiny", "-np", "2")
refused("another name", server.post(CHAT, dict(HELLO, model="gpt-3.5-turbo")), 404, "model", "model_not_found", '"tiny"')
refused("another name, completions", server.post(TEXT, {"prompt": "x", "model": "gpt-3.5-turbo"}), 404, "model", "model_not_found", '"tiny"')
refused("another name, tokens", server.post("/tokenize", {"content": "x", "model": "gpt-3.5-turbo"}), 404, "model", "model_not_found", '"tiny"')
refused("another name, text of tokens", server.post("/detokenize", {"tokens": [], "model": "gpt-3.5-turbo"}), 404, "model", "model_not_found", '"tiny"')
for path in (CHAT, "/props", "/slots"):
    asks = (lambda query: server.post(path + query, HELLO)) if path == CHAT else (lambda query: server.get(path + query))
    refused(f"{path}: another name in the address", asks("?model=gpt-3.5-turbo"), 404, "model", "model_not_found", '"tiny"')
    check(f"{path}: the name in the address", asks("?model=tiny").status == 200 and asks("?model=default").status == 200)
    refused(f"{path}: no UTF-8 in the address", asks("?model=%ff"), 400, "model", "invalid_value", "percent-encoding")
refused("two names", server.post(CHAT + "?model=tiny", dict(HELLO, model="default")), 400, "model", "invalid_value", "in the body")
check("one name, twice", server.post(CHAT + "?model=tiny", dict(HELLO, model="tiny")).status == 200)
for path in ("/%ff", "/v1/models/x%ff", "/v1/streams/%ff%ff"):
    refused(f"{path}: told in UTF-8", server.get(path), 404, "model" if "models" in path else None)
refused("a name that is cut, in UTF-8", server.post(CHAT, dict(HELLO, model="x" + "é" * 200)), 404, "model")
refused("a field that is cut, in UTF-8", server.post(CHAT, dict(HELLO, **{"x" + "é" * 200: 1}), headers=STRICT), 400, None, "unknown_parameter")
for name in ("tiny", "default", "", None):
    check(f"the name {name!r}", server.post(CHAT, dict(HELLO, model=name)).status == 200)
check("no name", server.post(CHAT, HELLO).json["model"] == "tiny")
server.stop()
server = Server(WEIR, "--alias", "*", "--alias", "tiny", "--embeddings")
reply = server.post(CHAT, dict(HELLO, model="gpt-3.5-turbo"))
check("any name, where that is asked for", reply.status == 200 and reply.json["model"] == "tiny", reply.body)
check("any name: what there is", [m["id"] for m in server.get("/v1/models").json["data"]] == ["tiny"], server.get("/v1/models").body)
check("any name: embeddings", server.post(EMBED, {"input": "x", "model": "text-embedding-3-small"}).status == 200)
refused("any name, but UTF-8", server.get("/v1/models/%ff"), 404, "model")
refused("any name, but a name", server.post(EMBED, {"input": "x", "model": 3}), 400, "model", "invalid_value")

# ---- Fields

for name, body, field in [("tool_choice of another type", {"tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice"),
                          ("allowed tools, no mode", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}}, "tool_choice.allowed_tools.mode"),
                          ("allowed tools, none", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}, "tool_choice.allowed_tools.tools"),
                          ("obfuscation", {"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
                          ("verbosity", {"verbosity": "low"}, "verbosity"), *[(f"prediction {i}", {"prediction": value}, "prediction") for i, value in enumerate(("x", {"type": "content"}, {"type": "text", "content": "x"}, {"type": "content", "content": 5},
                                                                                                                                 {"type": "content", "content": [{"type": "image_url"}]}))],
                          ("web search", {"web_search_options": {}}, "web_search_options"), ("function_call", {"function_call": "auto"}, "function_call"),
                          ("prompt_cache_retention", {"prompt_cache_retention": "24h"}, "prompt_cache_retention"), ("stop of numbers", {"stop": 5}, "stop"),
                          ("modalities", {"modalities": ["text", "audio"]}, "modalities"), ("safety_identifier", {"safety_identifier": 5}, "safety_identifier"),
                          ("two schemas", {"json_schema": {}, "response_format": {"type": "json_object"}}, "response_format")]:
    refused(name, server.post(CHAT, dict(HELLO, **body), headers=STRICT), 400, field)
for path, body, field, word in ((CHAT, dict(HELLO, max_tokens=5, max_completion_tokens=2), "max_completion_tokens", "max_tokens"),
                                (CHAT, dict(HELLO, n_predict=5), "n_predict", "max_tokens"),
                                (TEXT, {"prompt": "x", "repeat_penalty": 1, "repetition_penalty": 1.5}, "repetition_penalty", "repeat_penalty")):
    refused(f"two names, two values: {field}", server.post(path, body), 400, field, "invalid_value", field + " and " + word)
reply = server.post(CHAT, dict(HELLO, max_tokens=5, max_completion_tokens=5, n_predict=5, repeat_penalty=1, repetition_penalty=1.0))
check("two names, one value", reply.status == 200 and reply.json["usage"]["completion_tokens"] <= 5, reply.body)

# ---- Values that mean the same

for body, other in (({"seed": 1}, {"seed": 1.0}), ({"seed": 7, "n": 2}, {"seed": 7.0, "n": 2.0}), ({"priority": -1}, {"priority": -1.0}), ({"stop": ""}, {"stop": [""]}),
                    ({"stop": None}, {"stop": ["", ""]}), ({"top_logprobs": 1, "logprobs": True}, {"top_logprobs": 1.0, "logprobs": True})):
    a, b = (server.post(CHAT, dict(HELLO, temperature=1, **{"seed": 3, **more})) for more in (body, other))
    check(f"{other} is {body}", a.status == b.status == 200 and a.json["choices"] == b.json["choices"], a.body, b.body)
for path, body, other in ((TEXT, {"prompt": [97, 98], "logprobs": 1}, {"prompt": [97.0, 98], "logprobs": 1.0}), ("/detokenize", {"tokens": [97]}, {"tokens": [97.0]}),
                          (TEXT, {"prompt": "x", "logit_bias": [[97, 5]]}, {"prompt": "x", "logit_bias": [[97.0, 5.0]]})):
    a, b = (server.post(path, {"max_tokens": 3, "temperature": 0, **more} if path == TEXT else more) for more in (body, other))
    check(f"{path}: {other} is {body}", a.status == b.status == 200 and a.json.get("choices", a.json) == b.json.get("choices", b.json), a.body, b.body)
reply = server.post(CHAT, dict(HELLO, max_tokens=0, logprobs=True))
check("logprobs of an empty answer", reply.status == 200 and reply.json["choices"][0]["logprobs"] == {"content": [], "refusal": None}, reply.body)
check("none where they are not asked for", server.post(CHAT, dict(HELLO, max_tokens=0)).json["choices"][0]["logprobs"] is None)

# ---- Fields within fields

HISTORY = [{"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
           {"role": "user", "name": "sam", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}, "annotations": [], "index": 0, "id": "x"}]},
           {"role": "assistant", "content": None, "refusal": None, "annotations": [], "prefix": False, "images": [], "audio": None, "function_call": None, "parsed": None,
            "reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}], "thinking_blocks": [],
            "provider_specific_fields": {}, "tool_calls": [{"id": "c1", "index": 0, "type": "function", "extra_content": {"google": {}},
                                                           "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}}]},
           {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "done", "cache_control": {"type": "ephemeral"}},
           {"role": "user", "content": "and?"}]
TOOL = {"type": "function", "function": {"type": "function", "name": "f", "description": "it", "parameters": {"type": "object", "properties": {}}, "strict": False}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "description": "y", "strict": False, "schema": {"type": "object"}}}
llama = b"has no llama.cpp" not in server.post(CHAT, dict(HELLO, response_format=FORM)).body  # which schemas and tools need
for tool in ({"type": "function"}, {"type": "function", "function": {}}, {"function": {"name": 5}}, {"type": "custom", "name": "f"}):
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}, tool]}
    refused(f"an allowed tool without a name: {tool}", server.post(CHAT, dict(HELLO, tools=[TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})),
            400, "tool_choice.allowed_tools.tools[1]", "invalid_value", "name")
reply = server.post(CHAT, dict(HELLO, messages=HISTORY, **({"tools": [TOOL], "response_format": FORM} if llama else {})))
check("a history as clients have it", reply.status == 200, reply.status, reply.body)
said = {"role": "assistant", "content": "hi"}
call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
for field, body in (("messages[0].contnet", {"messages": [{"role": "user", "content": "x", "contnet": "y"}]}),
                    ("messages[1].prefix", {"messages": HELLO["messages"] + [dict(said, prefix=True)]}),
                    ("messages[0].content[1].txt", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "x", "txt": "y"}]}]}),
                    ("messages[0].content[0].image_url.size", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:", "size": 3}}]}]}),
                    ("messages[0].tool_calls[0].result", {"messages": [dict(said, tool_calls=[dict(call, result="x")])]}),
                    ("messages[0].tool_calls[0].function.args", {"messages": [dict(said, tool_calls=[dict(call, function=dict(call["function"], args={}))])]}),
                    ("tools[0].strict", {"tools": [dict(TOOL, strict=True)]}),
                    ("tools[0].function.input_schema", {"tools": [{"type": "function", "function": {"name": "f", "input_schema": {}}}]}),
                    ("tool_choice.name", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}, "name": "f"}}),
                    ("tool_choice.function.strict", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f", "strict": True}}}),
                    ("tool_choice.allowed_tools.allowed", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL], "allowed": 1}}}),
                    ("response_format.strict", {"response_format": dict(FORM, strict=True)}),
                    ("response_format.json_schema.strct", {"response_format": {"type": "json_schema", "json_schema": {"strct": True, "schema": {}}}})):
    refused(f"unknown: {field}", server.post(CHAT, dict(HELLO, **body), headers=STRICT), 400, field, "unsupported_field" if field.endswith("input_schema") else "unknown_parameter", field)
refused("an old call in a history", server.post(CHAT, dict(HELLO, messages=[dict(said, function_call={"name": "f", "arguments": "{}"})])), 400,
        "messages[0].function_call", "unsupported_field", "tool_calls")
for field, say in (("seed", "from -2^63 to 2^63 - 1"), ("max_tokens", "a whole number"), ("top_k", "a whole number")):
    for number in (2**63, -2**63 - 1, 10**30):
        refused(f"{field} beyond 64 bits", server.post(CHAT, dict(HELLO, **{field: number})), 400, field, "invalid_value", say)
for number in (2**63 - 1, -2**63):
    check(f"seed {number}", server.post(CHAT, dict(HELLO, max_tokens=1, seed=number)).status == 200)
refused("an id beyond 64 bits", server.post(TEXT, {"prompt": [2**63]}), 400, "prompt", "invalid_value", "from 0 to ")
far = {"type": "integer", "minimum": 0, "maximum": 10**30}
reply = server.post(CHAT, dict(HELLO, max_tokens=1, response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": far}}))
check("a schema's maximum beyond 64 bits", reply.status == (200 if llama else 400), reply.body)
for name, odd in (("type", {"type": "strng"}), ("$ref", {"$ref": "#/no"}), ("minimum", {"type": "integer", "minimum": "3"})):
    schema = {"type": "object", "properties": {"a": odd}}
    form, parameters = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    if llama:
        refused(f"a malformed {name}", server.post(CHAT, dict(HELLO, response_format=form)), 400, "response_format/json_schema/schema/properties/a", "invalid_value", name)
    refused(f"a malformed {name} in a tool", server.post(CHAT, dict(HELLO, tools=parameters)), 400, "tools/0/function/parameters/properties/a", "invalid_value", name)
refused("suffix", server.post(TEXT, {"prompt": "x", "suffix": "y"}), 400, "suffix")
check("no suffix", server.post(TEXT, {"prompt": "x", "suffix": "", "max_tokens": 1}).status == 200)
refused("what there is not", server.post(CHAT, dict(HELLO, temprature=1)), 400, "temprature", "unknown_parameter")
reply = server.post(CHAT, dict(HELLO, safety_identifier="x", prompt_cache_key="y", verbosity="medium", store=False, metadata={"a": "b"}, service_tier="default",
                               audio=None, functions=None, web_search_options=None, stop="", tool_choice="none", reasoning_effort="none",
                               stream_options=None, max_tokens=None, max_completion_tokens=2))
check("what is a note, off, or null", reply.status == 200 and reply.json["usage"]["completion_tokens"] == 2, reply.body)

# ---- Embeddings

whole = server.post(EMBED, {"input": "two"}).json["data"][0]["embedding"]
ids = server.post("/tokenize", {"content": "two", "add_special": True}).json["tokens"]
check("embeddings of one array of ids", server.post(EMBED, {"input": ids}).json["data"][0]["embedding"] == whole)
check("embeddings of arrays of ids", [d["embedding"] for d in server.post(EMBED, {"input": [ids, ids]}).json["data"]] == [whole, whole])
check("dimensions that the model has", server.post(EMBED, {"input": "two", "dimensions": len(whole)}).json["data"][0]["embedding"] == whole)
for bad in (0, -1, "5", 1.5):
    refused(f"dimensions {bad!r}", server.post(EMBED, {"input": "two", "dimensions": bad}), 400, "dimensions", "invalid_value", "above 0")
refused("user", server.post(EMBED, {"input": "two", "user": 5}), 400, "user", "invalid_value", "a string")
for name, path, body, field in (("prompt", TEXT, {"prompt": [1, 99999999999]}, "prompt"), ("prompts", TEXT, {"prompt": [[1], [1, 99999999999]], "echo": True}, "prompt[1]"),
                                ("tokens", "/detokenize", {"tokens": [1, 99999999999]}, "tokens"), ("inputs", EMBED, {"input": [[1, 99999999999]]}, "input[0]")):
    refused(f"{name}: an id that is too large", server.post(path, body), 400, field, "invalid_value", "token 1 in " + field + " is 99999999999; the vocabulary has 0 to ")
    refused(f"{name}: a negative id", server.post(path, json.loads(json.dumps(body).replace("99999999999", "-7"))), 400, field, "invalid_value", "is -7; ")
    refused(f"{name}: a text among ids", server.post(path, json.loads(json.dumps(body).replace("99999999999", '"x"'))), 400, field, "invalid_value", "token 1 in")
refused("fewer dimensions", server.post(EMBED, {"input": "two", "dimensions": len(whole) - 1}), 400, "dimensions", "unsupported_value", str(len(whole)))
refused("fewer dimensions, before texts are looked at", server.post(EMBED, {"input": ["two", "two " * 9000], "dimensions": len(whole) - 1}), 400, "dimensions", "unsupported_value", str(len(whole)))
coded = server.post(EMBED, {"input": [ids, "two"], "encoding_format": "base64", "dimensions": len(whole)}).json["data"]
check("base64: little-endian floats", len(coded) == 2 and all(all(abs(a - b) < 1e-7 for a, b in zip(struct.unpack(f"<{len(whole)}f", base64.b64decode(d["embedding"], validate=True)), whole)) for d in coded), coded)
server.stop()

# ---- Texts that cannot fit, whatever their tokens are

server = Server(WEIR, "-c", "256", "--embeddings")
long = "two " * 200000
said = [{"role": "user", "content": long}]
for path, body, field in (("/tokenize", {"content": long}, "content"), ("/apply-template", {"messages": said, "return_token_ids": True}, "messages"),
                          (TEXT, {"prompt": long}, "prompt"), (TEXT + "/render", {"prompt": ["x", long]}, "prompt"), (CHAT, {"messages": said}, "messages"),
                          (CHAT + "/render", {"messages": said}, "messages"), ("/v1/messages/count_tokens", {"messages": said}, "messages"),
                          ("/v1/responses/input_tokens", {"input": long}, "input"), (EMBED, {"input": ["x", long]}, "input[1]"),
                          ("/api/embed", {"input": long, "truncate": False}, "input")):
    reply = server.post(path, body)
    error = reply.json["error"]
    words = error if isinstance(error, str) else error["message"]
    check(f"{path}: a text that is hopelessly long", reply.status == 400 and "bytes, which are at least" in words and
          (isinstance(error, str) or (error["param"], error["code"]) == (field, "context_length_exceeded")), reply.status, reply.body)
reply = server.post("/api/embed", {"input": [long, "two"]})
check("/api/embed: such a text is cut", reply.status == 200 and len(reply.json["embeddings"]) == 2, reply.status, reply.body)
check("/tokenize: more tokens than a request holds, in fewer bytes", len(server.post("/tokenize", {"content": "x." * 200}).json["tokens"]) > 256)
server.stop()

# ---- How answers end, and the order of events

server = Server(WEIR, "-np", "2", model="fake:eos_every=12")
ends = {}
for seed in range(40):
    choice = server.post(TEXT, {"prompt": f"ask {seed}", "max_tokens": 10, "temperature": 0}).json["choices"][0]
    ends.setdefault(choice["finish_detail"], choice)
check("ended by itself, or cut", {name: c["finish_reason"] for name, c in ends.items()} == {"end": "stop", "length": "length"}, ends)
text = server.post(TEXT, {"prompt": "a b", "max_tokens": 10, "temperature": 0, "ignore_eos": True}).json["choices"][0]["text"]
for body in ({"stop": text[2:4]}, {"stop": [text[2:4], "zzz"]}):
    choice = server.post(TEXT, dict(body, prompt="a b", max_tokens=10, temperature=0, ignore_eos=True)).json["choices"][0]
    check("a stop string", (choice["finish_reason"], choice["finish_detail"], choice["text"]) == ("stop", "stop_words", text[:text.index(text[2:4])]), choice, text)
for path, body, begins in ((CHAT, dict(HELLO, n=2, ignore_eos=True), True), (TEXT, {"prompt": ["a", "b"], "max_tokens": 8, "ignore_eos": True}, False)):
    status, events = raw_events(server, path, dict(body, stream_options={"include_usage": True}))
    parsed = [json.loads(e) for e in events if not e.startswith(":") and e != "[DONE]"]
    kinds = []
    for index in (0, 1):
        mine = [e["choices"][0] for e in parsed if e["choices"] and e["choices"][0]["index"] == index]
        kinds.append(["role" if "role" in c.get("delta", {}) else "finish" if c["finish_reason"] else "delta" for c in mine])
    wanted = all(k[-1] == "finish" and k.count("finish") == 1 and set(k[begins:-1]) == {"delta"} and (k[0] == "role") == begins for k in kinds)
    check(f"{path}: role, deltas, finish of each choice; then usage; then [DONE]", status == 200 and wanted and parsed[-1]["choices"] == [] and
          parsed[-1]["usage"]["completion_tokens"] == 16 and events[-1] == "[DONE]" and events.count("[DONE]") == 1, kinds, events[-2:])
server.stop()

# ---- Errors after the start

for path, body in ((CHAT, dict(HELLO, max_tokens=50, ignore_eos=True)), (TEXT, {"prompt": "x", "max_tokens": 50, "ignore_eos": True})):
    server = Server(WEIR, "-np", "1", model="fake:tick_us=2000,fail_pass=20")
    status, events = raw_events(server, path, dict(body, stream_options={"include_usage": True}))
    error = json.loads(events[-2]).get("error", {})
    check(f"{path}: an error after the start is an event, then the end", status == 200 and len(events) > 5 and events[-1] == "[DONE]" and
          set(error) == {"message", "type", "param", "code"} and error["type"] == "server_error", status, events[-3:])
    check(f"{path}: no finish reason before it", all(c["finish_reason"] is None for e in events[:-2] if not e.startswith(":") for c in json.loads(e)["choices"]), events[-3:])
    check(f"{path}: and the next one is answered", server.post(path, dict(body, max_tokens=3)).status == 200)
    server.stop()
    server = Server(WEIR, "-np", "1", model="fake:fail_pass=5")
    refused(f"{path}: before anything was sent it is a status", server.post(path, body), 500)
    server.stop()

server = Server(WEIR, "-np", "1", model="fake:tick_us=2000,change_pass=20")
status, events = raw_events(server, TEXT, {"prompt": "x", "max_tokens": 50, "ignore_eos": True})
error = json.loads(events[-2]).get("error", {})
check("a model whose file changes: the stream ends with the reason", status == 200 and error["message"] == "fake: was changed while the model was in use", events[-2])
refused("then requests are refused", server.post(TEXT, {"prompt": "x"}), 503, code="model_lost")
check("it is in the log", server.log(lambda e: e.get("event") == "model_lost"))
refused("and /health is red", server.get("/health"), 503, code="model_lost")
server.stop()
server = Server(WEIR, "--embeddings", model="fake:change_pass=1")
check("embeddings before", server.post("/v1/embeddings", {"input": "x"}).status == 200)
refused("and after the change", server.post("/v1/embeddings", {"input": "y"}), 503, code="model_lost")
server.stop()

# ---- Comments

server = Server(WEIR, "-np", "1", "-c", "8192", "-b", "64", "--sse-ping-interval", "1", model="fake:tick_us=40000,n_ctx_train=8192")
status, events = raw_events(server, CHAT, dict(HELLO, max_tokens=3, messages=[{"role": "user", "content": "x" * 6000}]))
first = next(i for i, e in enumerate(events) if not e.startswith(":") and e != "[DONE]" and json.loads(e)["choices"][0]["delta"].get("content"))
check("comments while the prompt is computed", status == 200 and any(e.startswith(":") for e in events[:first]) and events[-1] == "[DONE]", events)
server.stop()

finish()
