"""weir serve on the fake model: what has no effect in a request is served and named in X-Weir-Relaxed, or with X-Weir-Strict refused; what was
mistyped, and what the answer would not be the same without, is refused. WEIR_TEST_SEED=N takes the same fields as another run under sanitizers."""
# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import os
import random
import re
import signal
import string
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, seed  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import STRICT, Kept, Server, environment, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
OLLAMA, GENERATE, EMBED, RERANK = "/api/chat", "/api/generate", "/v1/embeddings", "/v1/rerank"
SAID = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
FLAT = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
BLOCK = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
HELLO = {CHAT: {"messages": SAID, "max_tokens": 2}, TEXT: {"prompt": "hello", "max_tokens": 2}, RESPONSES: {"input": "hello", "max_output_tokens": 16},
         MESSAGES: {"messages": SAID, "max_tokens": 2}, OLLAMA: {"messages": SAID, "options": {"num_predict": 2}, "stream": False},
         GENERATE: {"prompt": "hello", "options": {"num_predict": 2}, "stream": False}, "/completion": {"prompt": "hello", "n_predict": 2},
         EMBED: {"input": "hello"}, "/api/embed": {"input": "hello"}, "/api/embeddings": {"prompt": "hello"}, "/tokenize": {"content": "x"}, "/detokenize": {"tokens": []},
         "/v1/messages/count_tokens": {"messages": SAID}, "/v1/responses/input_tokens": {"input": "hello"}}
ASKED = [*SAID, {"role": "assistant", "content": "Hi."}, *SAID]
# What one dialect calls an option, and its value; the name in the header, if it is another one.
HINTS = {
    CHAT: [({"reasoning_effort": "ultra"},), ({"reasoning_effort": "e" * 60},), ({"prediction": {"type": "unknown_type", "content": 5}},), ({"verbosity": "low"},), ({"verbosity": "high"},), ({"service_tier": "flex"},), ({"service_tier": "an unknown tier"},), ({"prompt_cache_retention": "24h"},), ({"prompt_cache_options": {"a": 1}},),
           ({"web_search_options": {}},), ({"store": True},), ({"num_ctx": 4096},), ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
           ({"tools": [dict(TOOL, strict=True)]}, "tools[].strict"), ({"tools": [dict(TOOL, defer_loading=True)]}, "tools[].defer_loading"), ({"tools": [dict(TOOL, allowed_callers=["direct"])]}, "tools[].allowed_callers"),
           ({"provider": {"order": ["x"]}},), ({"models": ["x"]},), ({"enable_thinking": False},), ({"something_new": 1},), ({"messages": [dict(SAID[0], mood="good")]}, "messages[].mood"),
           ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "colour": "red"}]}]}, "messages[].content[].colour"), ({"tool_choice": {"type": "function", "function": {"name": "f"}, "x": 1}, "tools": [TOOL]}, "tool_choice.x"),
           ({"max_output_tokens": 5},), ({"keep_alive": "5m"},), ({"min_completion_tokens": 1},), ({"top_a": 0.5},), ({"separate_reasoning": False},)],
    TEXT: [({"service_tier": "x"},), ({"num_ctx": 4096},), ({"something_new": 1},), ({"n_probs": 3},), ({"speed": "fast"},)],
    RESPONSES: [({"reasoning": {"effort": "ultra"}}, "reasoning.effort"), ({"text": {"verbosity": "low"}}, "text.verbosity"), ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"), ({"reasoning": {"summary": "concise"}}, "reasoning.summary"),
                ({"reasoning": {"generate_summary": "detailed"}}, "reasoning.generate_summary"), ({"reasoning": {"context": "x", "mode": "y"}}, "reasoning.context", "reasoning.mode"), ({"truncation": "auto"},),
                ({"prompt_cache_retention": "24h"},), ({"prompt_cache_options": {"a": 1}},), ({"service_tier": "priority"},), ({"include": ["web_search_call.action.sources", "x"]}, "include"), ({"moderation": {"a": 1}},),
                ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, *SAID]}, "input[].encrypted_content"), ({"tools": [dict(FLAT, defer_loading=True)]}, "tools[].defer_loading"),
                ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"), ({"input": [dict(SAID[0], mood="good")]}, "input[].mood"), ({"context_management": [{"type": "compaction"}]},)],
    MESSAGES: [({"thinking": {"type": "unknown_type"}}, "thinking.type"), ({"output_config": {"effort": "ultra"}}, "output_config.effort"), ({"cache_control": {"type": "unknown_type"}}, "cache_control.type"), ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"), ({"inference_geo": "eu"},), ({"diagnostics": {"a": 1}},), ({"speed": "fast"},), ({"service_tier": "batch"},),
               ({"messages": [dict(SAID[0], output_config={"effort": "low"})]}, "messages[].output_config"), ({"tools": [dict(BLOCK, defer_loading=True, allowed_callers=["x"], input_examples=[{"a": 1}])]}, "tools[].defer_loading", "tools[].allowed_callers", "tools[].input_examples"),
               ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},), ({"betas": ["x"]},), ({"output_config": {"task_budget": {"type": "tokens", "total": 5}}}, "output_config.task_budget"), ({"mcp_servers": [{"url": "x"}]},), ({"container": "x"},)],
    OLLAMA: [({"think": "ultra"},), ({"truncate": True},), ({"shift": True},), ({"options": {"tfs_z": 0.5}}, "options.tfs_z"), ({"options": {"num_batch": 5}}, "options.num_batch"), ({"options": {"colour": 1}}, "options.colour"), ({"temperature": 0.5},),
             ({"messages": [dict(SAID[0], mood="good")]}, "messages[].mood"), ({"tools": [dict(TOOL, items={"a": 1})]}, "tools[].items"), ({"ignore_eos": True},)],
    GENERATE: [({"truncate": True},), ({"temperature": 0.5},), ({"_debug_render_only": True},)],
    EMBED: [({"something_new": 1},), ({"truncate_prompt_tokens": 5},), ({"input_type": "query"},)],
    "/api/embed": [({"options": {"colour": 1}}, "options.colour"), ({"something_new": 1},)], "/api/embeddings": [({"something_new": 1},)],
    "/tokenize": [({"something_new": 1},)], "/detokenize": [({"something_new": 1},)], "/completion": [({"n_probs": 3},), ({"id_slot": 1},), ({"return_tokens": True},), ({"t_max_predict_ms": 5},), ({"messagez": 1},)],
    "/v1/messages/count_tokens": [({"inference_geo": "eu"},), ({"something_new": 1},)], "/v1/responses/input_tokens": [({"truncation": "auto"},), ({"something_new": 1},)]}


def done(reply):
    """Templates, tools and schemas need llama.cpp: without it their requests are read alone."""
    return reply.status == 200 or b"has no llama.cpp" in reply.body


def named(reply):
    return set(filter(None, reply.headers.get("x-weir-relaxed", "").split("; ")))


def error_of(reply):
    error = reply.json["error"]
    return (error, reply.json["param"]) if isinstance(error, str) else (error["message"], error.get("param"))


@part
def served():
    """Each is served, named, and as if it were not there; strictly it is refused by name."""
    server = Server(WEIR, "--embeddings", "-np", "2")
    for path, hints in HINTS.items():
        for more, *names in hints:
            names = set(names or [k for k in more if k != "stream"])
            reply = server.post(path, {**HELLO[path], **more})
            check(f"{path}: {more}: served and named", done(reply) and named(reply) == names, reply.status, reply.headers, reply.body)
            reply = server.post(path, {**HELLO[path], **more}, headers=STRICT)
            if names & {"options.num_batch"} or (path == RESPONSES and "prompt_cache_retention" in names):
                check(f"{path}: {more}: named in any case", reply.status == 200 and named(reply) == names, reply.status, reply.body)
                continue
            message, param = error_of(reply) if reply.status == 400 else ("", None)
            bare = {"".join(c for c in (param or "").replace("[0]", "[]"))}
            check(f"{path}: {more}: strictly refused by name", reply.status == 400 and bare & names and param in message, reply.status, reply.body)
    end(server)


@part
def equal():
    """The answer is the one without them, and what asks for nothing, or for what weir does, is not named."""
    server = Server(WEIR, "-np", "1")
    for path, text in ((CHAT, lambda r: r["choices"][0]["message"]["content"]), (TEXT, lambda r: r["choices"][0]["text"]), (MESSAGES, lambda r: r["content"][0]["text"]),
                       (RESPONSES, lambda r: r["output"][0]["content"][0]["text"])):
        body = {**HELLO[path], "temperature": 0, **({"max_tokens": 8} if path != RESPONSES else {})}
        plain, more = server.post(path, body).json, server.post(path, {**body, "something_new": {"a": [1]}, "num_ctx": 5, "num_keep": -1}).json
        check(f"{path}: the same text", text(plain) == text(more), plain, more)
    for path, more in ((CHAT, {"verbosity": "medium", "service_tier": "auto", "store": False, "functions": [], "audio": None, "web_search_options": None, "something_new": None, "models": [], "reasoning_effort": "low"}),
                       (RESPONSES, {"text": {"verbosity": "medium"}, "reasoning": {"summary": "auto", "generate_summary": None}, "truncation": "disabled", "include": ["reasoning.encrypted_content"],
                                    "tools": [dict(FLAT, defer_loading=False, allowed_callers=[])]}),
                       (MESSAGES, {"mcp_servers": [], "thinking": {"type": "enabled", "budget_tokens": 1, "display": "summarized"}, "speed": "standard", "service_tier": "standard_only", "container": None, "output_config": {}})):
        reply = server.post(path, {**HELLO[path], **more})
        check(f"{path}: nothing to name", done(reply) and named(reply) <= {"thinking.budget_tokens"}, reply.headers, reply.body)
    end(server)


@part
def mistyped():
    server = Server(WEIR, "--embeddings")
    for path, more, field, meant in (
            (CHAT, {"temprature": 1}, "temprature", "temperature"), (CHAT, {"max_token": 1}, "max_token", "max_tokens"), (CHAT, {"maxTokens": 1}, "maxTokens", "max_tokens"), (CHAT, {"Stream": True}, "Stream", "stream"),
            (CHAT, {"top-p": 1}, "top-p", "top_p"), (CHAT, {"respones_format": {}}, "respones_format", "response_format"), (TEXT, {"promt": "x"}, "promt", "prompt"), (CHAT, {"mirostatt": 1}, "mirostatt", "mirostat"),
            (RESPONSES, {"instuctions": "x"}, "instuctions", "instructions"), (RESPONSES, {"text": {"formats": {}}}, "text.formats", "format"), (MESSAGES, {"stop_sequence": ["x"]}, "stop_sequence", "stop_sequences"),
            (MESSAGES, {"maxTokens": 1}, "maxTokens", "max_tokens"), (OLLAMA, {"option": {}}, "option", "options"), (OLLAMA, {"options": {"temprature": 1}}, "options.temprature", "temperature"),
            (OLLAMA, {"options": {"num_predit": 1}}, "options.num_predit", "num_predict"), (EMBED, {"dimension": 3}, "dimension", "dimensions"), ("/api/embed", {"options": {"num_predit": 1}}, "options.num_predit", "num_predict"),
            (CHAT, {"messages": [dict(SAID[0], tool_call=[1])]}, "messages[0].tool_call", "tool_calls"), (CHAT, {"messages": [*SAID, {"role": "user", "content": [{"type": "text", "txt": "x", "text": "y"}]}]}, "messages[1].content[0].txt", "text"),
            (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "paramters": {"a": 1}}}]}, "tools[0].function.paramters", "parameters"), (CHAT, {"stream": True, "stream_options": {"includeUsage": True}}, "stream_options.includeUsage", "include_usage"),
            (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"strct": True, "schema": {}}}}, "response_format.json_schema.strct", "strict"),
            (MESSAGES, {"tools": [dict(BLOCK, descripton="x")]}, "tools[0].descripton", "description"), (RESPONSES, {"input": [dict(SAID[0], statsu="x")]}, "input[0].statsu", "status")):
        reply = server.post(path, {**HELLO[path], **more})
        message, param = error_of(reply) if reply.status == 400 else ("", None)
        check(f"{path}: {field} is {meant}", reply.status == 400 and param == field and f'"{meant}"' in message, reply.status, reply.body)
    end(server)


@part
def binding():
    """Without these the answer would be another one."""
    server = Server(WEIR, "-np", "2")
    for path, more, field in (
            (CHAT, {"guided_json": {}}, "guided_json"), (CHAT, {"guided_regex": "a"}, "guided_regex"), (CHAT, {"structured_outputs": {"choice": ["a"]}}, "structured_outputs"), (CHAT, {"regex": "a"}, "regex"), (TEXT, {"ebnf": "a"}, "ebnf"),
            (CHAT, {"documents": [{"text": "x"}]}, "documents"), (CHAT, {"chat_template": "x"}, "chat_template"), (CHAT, {"functions": [{"name": "f"}]}, "functions"), (CHAT, {"system": "x"}, "system"), (CHAT, {"input": "x"}, "input"),
            (CHAT, {"stop_sequences": ["x"]}, "stop_sequences"), (CHAT, {"images": ["x"]}, "images"), (CHAT, {"audio": {"voice": "x"}}, "audio"), (TEXT, {"tools": [TOOL]}, "tools"), (TEXT, {"messages": SAID}, "messages"), (TEXT, {"inputs": "x"}, "inputs"),
            (RESPONSES, {"response_format": {"type": "json_object"}}, "response_format"), (RESPONSES, {"n": 2}, "n"), (RESPONSES, {"stop": ["x"]}, "stop"), (RESPONSES, {"conversation": "x"}, "conversation"), (RESPONSES, {"prompt": {"id": "x"}}, "prompt"),
            (MESSAGES, {"response_format": {"type": "json_object"}}, "response_format"), (MESSAGES, {"n": 2}, "n"),
            (OLLAMA, {"prompt": "x"}, "prompt"), (OLLAMA, {"template": "x"}, "template"), (GENERATE, {"context": [1]}, "context"), (GENERATE, {"messages": SAID}, "messages"), (OLLAMA, {"response_format": {"type": "json_object"}}, "response_format"),
            (CHAT, {"response_format": {"type": "xml"}}, "response_format.type"), (CHAT, {"tool_choice": "required"}, "tool_choice"), (CHAT, {"n": 129}, "n"), (CHAT, {"temperature": "hot"}, "temperature"), (CHAT, {"top_p": 7}, "top_p"),
            (CHAT, {"modalities": ["audio"]}, "modalities"), (CHAT, {"messages": [*SAID, {"role": "assistant", "function_call": {"name": "f"}}]}, "messages[1].function_call"), (CHAT, {"reasoning_effort": "hihg"}, "reasoning_effort"), (RESPONSES, {"reasoning": {"effort": "meduim"}}, "reasoning.effort"), (MESSAGES, {"thinking": {"type": "enable"}}, "thinking.type"), (MESSAGES, {"output_config": {"effort": "none"}}, "output_config.effort"), (OLLAMA, {"think": "none"}, "think"), (OLLAMA, {"think": "hi_gh"}, "think"), (CHAT, {"tools": [{"type": "function", "function": {"name": "f", "input_schema": {"type": "object"}}}]}, "tools[0].function.input_schema")):
        for headers in ((), STRICT):
            reply = server.post(path, {**HELLO[path], **more}, headers=headers)
            message, param = error_of(reply) if reply.status == 400 else ("", None)
            check(f"{path}: {more}: refused by name", reply.status == 400 and param == field and field.split(".")[0] in message, reply.status, reply.body)
    end(server)


@part
def truncation():
    """A hint as long as the prompt fits; nothing is cut from one that does not."""
    server = Server(WEIR, "-c", "256")
    for n, status in ((6, 200), (600, 400)):
        reply = server.post(RESPONSES, {"input": "x " * n, "truncation": "auto", "max_output_tokens": 16})
        check(f"truncation: auto of {n} words: {status}", reply.status == status and reply.headers.get("x-weir-relaxed") == "truncation" and
              (status == 200 or (reply.error["code"], reply.error["param"]) == ("context_length_exceeded", "input")), reply.status, reply.headers, reply.body)
    end(server)


@part
def strict():
    body, odd = HELLO[CHAT], {**HELLO[CHAT], "something_new": 1}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "conf")

        def write(text):
            with open(path, "w") as f:
                f.write(text)
        for words, env in ((["--strict"], {}), ([], {"WEIR_STRICT": "1"})):
            server = Server(WEIR, *words, env=environment(**env))
            check(f"{words} {env}: refused", server.post(CHAT, odd).status == 400 and server.post(CHAT, body).status == 200)
            check(f"{words} {env}: unless the request asks otherwise", server.post(CHAT, odd, headers=["X-Weir-Strict: 0"]).status == 200)
            end(server)
        write("[serve]\nstrict = true\n")
        server = Server(WEIR, env=environment(WEIR_CONFIG=path))
        check("from a config file", server.post(CHAT, odd).status == 400)
        write("[serve]\nstrict = false\n")
        server.process.send_signal(signal.SIGHUP)
        server.log(lambda e: e["event"] == "reload")
        check("and after a reload", server.post(CHAT, odd).status == 200)
        for value, status in (("1", 400), ("0", 200)):
            check(f"X-Weir-Strict: {value}", server.post(CHAT, odd, headers=[f"X-Weir-Strict: {value}"]).status == status)
        for headers in (["X-Weir-Strict: yes"], ["X-Weir-Strict:"], ["X-Weir-Strict: 1", "X-Weir-Strict: 0"], ["X-Weir-Strict: " + "1" * 5000]):
            reply = server.post(CHAT, body, headers=headers)
            check(f"{headers[0][:20]}: refused", reply.status == 400 and "X-Weir-Strict" in reply.error["message"], reply.body)
        end(server)


@part
def efforts():
    """A level reaches the template if that has the word, and else the nearest one does."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        for known, mapped in ((["low", "medium", "high"], {"minimal": "low", "xhigh": "high", "max": "high"}), (["high", "max"], {"minimal": "low", "xhigh": "max", "max": "max"}),
                              (["minimal", "xhigh"], {"minimal": "minimal", "xhigh": "xhigh", "max": "xhigh"})):
            template.seek(0)
            template.truncate()
            tests = "".join("{% if reasoning_effort == '" + w + "' %}known{% endif %}" for w in known)
            template.write("{% for m in messages %}{{ m.content }}{% endfor %} level={{ reasoning_effort }}." + tests)
            template.flush()
            server = Server(WEIR, "--chat-template-file", template.name)
            if server.post("/apply-template", HELLO[CHAT]).status != 200:  # without llama.cpp
                return end(server)
            for given, wanted in {**mapped, "low": "low", "medium": "medium", "high": "high"}.items():
                applied = server.post("/apply-template", {**HELLO[CHAT], "reasoning_effort": given})
                told = {"reasoning_effort"} if wanted != given else set()
                check(f"{known}: {given} is {wanted}", f"level={wanted}." in applied.json.get("prompt", "") and named(applied) == told, applied.headers, applied.body)
                for path, more, name in ((RESPONSES, {"reasoning": {"effort": given}}, "reasoning.effort"), (MESSAGES, {"output_config": {"effort": given}}, "output_config.effort"), (OLLAMA, {"think": given}, "think")):
                    reply = server.post(path, {**HELLO[path], **more})
                    check(f"{path}: {known}: {given}", reply.status == 200 and named(reply) == ({name} if told else set()), reply.headers, reply.body)
            end(server)


SEED = seed()


def some(items, one_in):
    """All of them; under sanitizers one in so many, chosen by the seed."""
    step = min(effort(1, one_in), len(items))
    return items[SEED % step::step] if step else items


VALUES = [None, True, False, 0, -1, 1.5, 10**30, "", "x", "é" * 300, [], [1], ["x", None], [[]], {}, {"a": 1}, {"type": "x"}, {"": None}]


@part
def wrong_types():
    """Each of these fields with every type: served, or refused by its name. Under sanitizers a share of them, and of the names within others;
    the odd names always."""
    server = Server(WEIR, "--embeddings", "-np", "2")
    kept = Kept(server)
    names = {path: {n.split(".")[0].split("[")[0] for more, *_ in hints for n in more} for path, hints in HINTS.items()}
    bad = []
    for path, fields in names.items():
        for field, value, headers in itertools.product(some(sorted(fields - {"messages", "input", "prompt", "content"}), 5), VALUES, ((), STRICT)):
            reply = kept.post(path, {**HELLO[path], field: value}, headers=headers)
            param = error_of(reply)[1] if reply.status == 400 else field
            if reply.status not in (200, 400) or not (param or "").startswith(field):
                bad.append((path, field, value, reply.status, reply.body[:200]))
    check("every type of every one", not bad, *bad[:5])
    inner = [(CHAT, lambda v, k: {"messages": [dict(SAID[0], **{k: v})]}), (CHAT, lambda v, k: {"tools": [dict(TOOL, **{k: v})]}), (RESPONSES, lambda v, k: {"reasoning": {k: v}}), (RESPONSES, lambda v, k: {"text": {k: v}}),
             (RESPONSES, lambda v, k: {"tools": [dict(FLAT, **{k: v})]}), (MESSAGES, lambda v, k: {"thinking": {"type": "enabled", k: v}}), (MESSAGES, lambda v, k: {"tools": [dict(BLOCK, **{k: v})]}), (OLLAMA, lambda v, k: {"options": {**HELLO[OLLAMA]["options"], k: v}}),
             (RESPONSES, lambda v, k: {"input": [{"type": "reasoning", "summary": [], k: v}, *SAID]})]
    keys = ["verbosity", "summary", "generate_summary", "display", "defer_loading", "input_examples", "encrypted_content", "detail", "num_batch"]
    odd = ["x", "x" * 4096, "\r\nX-Evil: 1", "é" * 100, "", "_", "a.b", "a[0].b"]
    bad = []
    for (path, make), key, value in itertools.product(inner, some(keys, 5) + odd, VALUES):
        reply = kept.post(path, {**HELLO[path], **make(value, key)})
        if reply.status not in (200, 400) or "x-evil" in reply.headers:
            bad.append((path, key[:20], value, reply.status, reply.body[:200]))
    check("and within others", not bad, *bad[:5])
    kept.close()
    end(server)


@part
def many():
    """The header has at most 1 KiB, whatever the names are, and is one header."""
    server = Server(WEIR, "--embeddings")
    random.seed(5)
    cases = {"a thousand": {f"unknown_{i}": i for i in range(1000)}, "long ones": {"z" * 4096 + str(i): 1 for i in range(20)}, "one long one": {"z" * 4096: 1}, "another script": {"é" * 50 + str(i): 1 for i in range(50)},
             "control characters": {"a\r\nX-Evil: 1": 1, "b\nX-Evil: 2": 2, "\x01\x7f\t": 1, "; and 5 more": 1, "\u2028x": 1, "c\r\n\r\nHTTP/1.1 200 OK": 1}, "none": {"": 1}, "short ones": {c: 1 for c in string.ascii_letters if c != "n" and c != "N"},
             "random ones": {"".join(chr(random.randrange(1, 0xD800)) for _ in range(random.randrange(1, 80))): 1 for _ in range(200)}}
    for path in HELLO:
        for name, more in cases.items():
            reply = server.post(path, {**HELLO[path], **more})
            value = reply.headers.get("x-weir-relaxed", "")
            plain = all(" " <= c < "\x7f" for c in value)
            check(f"{path}: {name}", reply.status == 200 and 0 < len(value) <= 1024 and plain and "x-evil" not in reply.headers, reply.status, reply.headers, reply.body[:200])
            items = value.split("; ")
            if name == "a thousand":
                shown = items[:-1]
                check(f"{path}: the rest is counted", items[-1] == f"and {1000 - len(shown)} more" and all(i in more for i in shown) and len(shown) == 64 or sum(map(len, shown)) > 800, value)
    reply = server.post(CHAT, {"messages": [dict(SAID[0], mood="good", **{"x" * 70: 1})] * 300, "max_tokens": 1})
    check("the same of many messages is named once", named(reply) == {"messages[].mood", "messages[]." + "x" * 64}, reply.status, reply.headers, reply.body)
    schema = {"type": "object", "properties": {f"p\r\nX-Evil: {i}": {"type": "number", "multipleOf": 100.9} for i in range(10)}}
    reply = server.post(CHAT, {**HELLO[CHAT], "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
    check("schemas' keywords, too", done(reply) and len(reply.headers.get("x-weir-relaxed", "")) <= 1024 and "x-evil" not in reply.headers, reply.status, reply.headers, reply.body)
    end(server)


COLUMNS = {"chat": CHAT, "completions": TEXT, "/completion": "/completion", "/infill": "/infill", "Responses": RESPONSES, "Messages": MESSAGES, "/api/chat": OLLAMA, "/api/generate": GENERATE}


def page():
    """docs/guides/fields.md: by field, what it says of each dialect; the objects, with their dialects and members; the fields of the last table."""
    with open(os.path.join(os.environ["WEIR_SOURCE_DIR"], "docs", "guides", "fields.md"), encoding="utf-8") as lines:
        rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    fields = {row[0]: dict(zip(COLUMNS.values(), row[1:])) for row in rows if set(row[1:-1]) <= {"yes", "hint", "refused", ""} and len(row) == 10}
    objects = [(row[0], row[1].split(", "), re.findall(r"\w+", row[2])) for row in rows if len(row) == 3 and set(row[1].split(", ")) <= set(COLUMNS)]
    return fields, objects, {name for row in rows if len(row) == 2 for name in re.findall(r"\w+", row[1])}


DEFAULTS = {"messages": SAID[0], "input": SAID[0], "content": {"type": "text", "text": "x"}, "output": {"type": "input_text", "text": "x"}}
TOOLS = {RESPONSES: FLAT, MESSAGES: BLOCK}


def given(path, name, value, kind=None):
    """A request with this field, "text.verbosity" or "tools[].strict", too. kind: the type of the object that has it."""
    body = at = json.loads(json.dumps(HELLO[path]))
    *above, last = [name] if name.startswith("speculative.") else name.split(".")
    for step in above:
        key = step.removesuffix("[]")
        below = dict(TOOLS.get(path, TOOL)) if key == "tools" else dict(DEFAULTS.get(key, {}))
        if key != step:
            at[key] = [below]
        else:
            below = at[key] = dict(at.get(key, {}))
        at = below
    at.update({"type": kind} if kind else {}, **{last: value})
    if name.endswith("source." + last):
        body["messages"][0]["content"][0]["type"] = "image" if kind in ("base64", "url") else "document"
    return {name: value} if name == "fork" else body


def is_clear(reply, top):
    """Served, or refused by the name of this field or of one within it; and the header has its limit."""
    message, param = error_of(reply) if reply.status == 400 else ("", None)
    return len(reply.headers.get("x-weir-relaxed", "")) <= 1024 and (reply.status == 200 or (reply.status == 400 and ((param or "").startswith(top) or "the same meaning" in message)))


TYPES = (True, 1, 1.5, -10**30, "x", "x" * 2000, [1], [None], {"a": 1}, {"": {}})


@part
def as_the_page_says():
    """Each field of the page in each dialect, with every type: what it calls honoured is served without a word or refused by its name, a hint is served, and the rest refused."""
    server = Server(WEIR, "--embeddings", "-np", "2", "--alias", "*")
    kept = Kept(server)
    bad, rows = [], page()[0]
    for (name, states), value in itertools.product(some(list(rows.items()), 12), TYPES):
        own = name.startswith("speculative.") or "." not in name
        for path, state in states.items():
            if path not in HELLO or (state == "" and not own):
                continue  # in the last case the field's object is not read either
            reply = kept.post(path, given(path, name, value))
            fits = is_clear(reply, name if own else re.split(r"[.\[]", name)[0]) and (reply.status == 400 or (state != "refused" and (state != "" or name in named(reply))))
            if not fits:
                bad.append((path, name, str(value)[:40], state, reply.status, reply.headers, reply.body[:200]))
    check("as the page says", len(rows) > 150 and not bad, *bad[:5])
    kept.close()
    end(server)


@part
def members():
    """Each member of each object of the page, with every type."""
    server = Server(WEIR, "-np", "2")
    kept = Kept(server)
    bad, objects = [], page()[1]
    for (place, columns, names), value in itertools.product(objects, TYPES):
        places, _, kinds = place.partition(": ")
        for column, at, kind, name in itertools.product(columns, places.split(", "), kinds.split(", "), some(names, 4)):
            path = COLUMNS[column]
            if path in HELLO:
                reply = kept.post(path, given(path, f"{at}.{name}", value, kind))
                if not is_clear(reply, re.split(r"[.\[]", at)[0]):
                    bad.append((path, at, kind, name, str(value)[:40], reply.status, reply.headers, reply.body[:200]))
    check("every type of every one", len(objects) > 40 and not bad, *bad[:9])
    kept.close()
    end(server)


@part
def everywhere():
    """Each name that any request has, in all other requests and within objects."""
    fields, _, others = page()
    names = sorted({*fields, *others})
    check("the page has them", len(names) > 150 and {"temperature", "id_slot", "tools[].strict", "options.num_ctx", "top_n"} <= set(names), names)
    server = Server(WEIR, "--embeddings", "-np", "2")
    kept = Kept(server)
    control = {"id": "x", "action": "reasoning_end"}
    makes = [("/v1/chat/completions/control", lambda k, v: {**control, k: v}), ("/api/show", lambda k, v: {"model": "fake:", k: v}), ("/v1/models/load", lambda k, v: {"model": "x", k: v}),
             ("/v1/rerank", lambda k, v: {"query": "x", "documents": ["y"], k: v}), *((path, lambda k, v, path=path: {**HELLO[path], k: v}) for path in HELLO),
             (CHAT, lambda k, v: {**HELLO[CHAT], "messages": [dict({k: v}, role="user", content="x")]}), (CHAT, lambda k, v: {**HELLO[CHAT], "stream": True, "stream_options": {k: v}}), (CHAT, lambda k, v: {**HELLO[CHAT], "response_format": {"type": "text", k: v}}),
             (RESPONSES, lambda k, v: {**HELLO[RESPONSES], "reasoning": {k: v}}), (RESPONSES, lambda k, v: {**HELLO[RESPONSES], "text": {k: v}}), (MESSAGES, lambda k, v: {**HELLO[MESSAGES], "output_config": {k: v}}),
             (OLLAMA, lambda k, v: {**HELLO[OLLAMA], "options": {**HELLO[OLLAMA]["options"], k: v}}), ("/api/embed", lambda k, v: {**HELLO["/api/embed"], "options": {k: v}})]
    bad = [(path, name, value, reply.status, reply.body[:200]) for (path, make), name, value in itertools.product(makes, some(names, 12), (1, {"a": [None]}))
           for reply in [kept.post(path, make(name, value))] if reply.status not in (200, 400, 404, 501)]
    check("served, or refused", not bad, *bad[:5])
    reply = kept.post("/v1/chat/completions/control", {**control, "something_new": 1})
    check("and named", reply.status == 200 and named(reply) == {"something_new"}, reply.status, reply.headers, reply.body)
    kept.close()
    end(server)


@part
def logged():
    """Each name once, and a limited number of names."""
    server = Server(WEIR)
    for _ in range(3):
        for i in range(40):
            server.post(CHAT, {**HELLO[CHAT], **{f"unknown_{i}_{k}": 1 for k in range(10)}})
    server.post(CHAT, {**HELLO[CHAT], "the_last": 1})
    stopped = server.stop()
    lines = [e["message"] for e in server.lines if e.get("event") == "relaxed"]
    fields = [m.split(": ", 1)[1].split(" ", 1)[0] for m in lines]
    check("once each, and 256 at most", stopped == 0 and len(fields) == len(set(fields)) == 256 and "last" in lines[-1], len(lines), lines[-2:])


need_server(WEIR)
run_parts()
