"""weir serve speaks HTTP's words: no refusal names the library's terms. Requests on the fake model that are refused in as many ways as
there are, and all messages in the sources."""
# SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import Kept, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
SOURCE = os.environ["WEIR_SOURCE_DIR"]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hello"}]


def read(path):
    with open(os.path.join(SOURCE, path)) as f:
        return f.read()


def members():
    """The members of the header's structs that look like no plain word."""
    header = re.sub(r"/\*.*?\*/", "", read("include/weir/weir.h") + read("include/weir/more.h"), flags=re.S)
    names = set()
    for body in re.findall(r"typedef struct \w+ \{(.*?)\n\} \w+;", header, re.S):
        names.update(re.findall(r"\b(\w+)\s*(?:\[[^\]]*\])?\s*[;,]", body))
    return {n for n in names if "_" in n}


# Fields that set a member: (the field, the struct, the member), as the table has them.
SETS = re.findall(r'(?:SETS(?:_IN)?|TAKE_FOR)\("([\w.]+)", [\w |]+,(?: \w+,)? (sampler|chat|request), (\w+)', read("server/api/common/ask_fields.c"))
SETS = [row for row in SETS if not row[0].startswith("options.")]  # Ollama's names for what has a field
SAMPLER = re.search(r"static const weir_member sampler\[\] = \{(.*?)\n\};", read("src/params/tables.c"), re.S).group(1)
NUMBERS = re.findall(r"^    (?:NUMBER|OR_OFF|FLAG)\((\w+)", SAMPLER, re.M)
PLAIN = set(NUMBERS) - {member for _, of, member in SETS if of == "sampler"}
FIELDS = set(re.findall(r'(?:SERVE_FIELD|SERVE_FIELD_BY|NUMBER|ANSWERS|ONLY|NO|SETS|SETS_IN|HAND_SETS|TAKE_FOR)\("([\w.]+)"', read("server/api/common/ask_fields.c"))) | PLAIN
NAMES = dict(re.findall(r'\{"(\w+)", "([\w.-]+)"\}', read("server/api/common/error.c")))
FIRST = {member: field for field, _, member in reversed(SETS)}
NAMES.update({member: field for member, field in FIRST.items() if field != member})
LENGTHS = {field for field, of, member in SETS if (of, member) == ("request", "max_tokens")}
ODD = members() - FIELDS
OPTIONS = set(re.findall(r'\{"(--[a-z-]+)"', read("cli/lib/options.c")))


def odd_words(text):
    """The library's names in a message, outside of its quotations."""
    plain = re.sub(r'"[^"]*"', "", text)
    return {w for w in re.findall(r"[A-Za-z_]\w*", plain) if w in ODD or (re.match(r"(weir|JSON|json|WEIR)_", w) and w not in FIELDS)} | set(re.findall(r"requests\[\d+\]", plain))


@part
def table():
    """What clients are told in place of the library's names is there."""
    check("the table was read", len(NAMES) > 30 and len(FIELDS) > 60 and len(ODD) > 50, len(NAMES), len(FIELDS), len(ODD))
    wrong = {k: v for k, v in NAMES.items() if v not in FIELDS | OPTIONS | {"speculative.n_max", "fork.at"}}
    check("every name in it is a field of a request or an option of the server", not wrong, wrong)
    check("nor is renamed what a request calls so itself", not set(NAMES) & (FIELDS - {"tokens"}), set(NAMES) & FIELDS)


# Members that a request has nothing to do with: of models, contexts, engines, files and results.
OTHERS = {"add_special", "cache_dir", "end_ns", "flash_attn", "lookup_bytes", "main_gpu", "n_seq_max", "n_tensor_split", "n_threads", "n_threads_batch", "split_mode", "tensor_split", "type_k", "type_v", "vocab_only", "n_prompt",
          # of the list of a pool, which the program that starts the server checks itself
          "n_aliases", "draft_path",
          # of requests by the library alone
          "reasoning_start", "reasoning_end",
          # functions and the environment, for people who write or start the program
          "WEIR_KERNELS", "WEIR_WITH_RPC", "messages_value", "tools_value", "weir_embed", "weir_embed_decode", "weir_flight_watch", "weir_interrupt_set", "weir_pool_find", "weir_quantize_type"}


@part
def sources():
    """Every message of the layers below that a request can reach."""
    found = {}
    for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.c*"), recursive=True):
        if re.search(r"_test\.c$|/media/|projector|quantize|optimized|engine/record", path):
            continue
        with open(path) as f:
            text = f.read()
        for call in re.findall(r"(?:weir__error_\w+|weir__invalid|REFUSE|refuse|fail\w*|must_be)\((.*?)\);", text, re.S):
            literal = re.sub(r'\\"[^"\\]*\\"', "", " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call)))
            for word in odd_words(literal) - set(NAMES) - OTHERS:
                found.setdefault(word, os.path.relpath(path, SOURCE))
    check("every name of the library's in a message of the library's has one of HTTP's", not found, found)


def refusals():
    """Requests that are refused, one for each way."""
    text, chat = {"prompt": "x"}, {"messages": MESSAGES}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    bad = [None, True, -7, 1e99, 1.5, "\ud7ff", "", [], [1], [None], {}, {"a": 1}, [[]], "x" * 300]
    for field in sorted(FIELDS - {"stream"}):
        short = {} if field in LENGTHS else {"max_tokens": 1}  # an answer to what is accepted after all
        for value in bad:
            yield TEXT, dict(text, **short, **{field: value})
            yield CHAT, dict(chat, **short, **{field: value})
            yield "/v1/plan", dict(text, **short, **{field: value})
    for schema in ({"type": "nothing"}, {"$ref": "#/no"}, {"$ref": "#"}, {"not": {}}, {"type": "string", "pattern": "("}, {"enum": []}, {"type": "array", "maxItems": 1e9}, {"minLength": -1}, False, 5):
        for body in ({"json_schema": schema}, {"response_format": {"type": "json_schema", "json_schema": {"schema": schema, "strict": True}}}):
            yield TEXT, dict(text, **body)
            yield CHAT, dict(chat, **body)
        yield CHAT, dict(chat, tools=[{"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}], tool_choice="required")
    for grammar in ("", "x", "root ::=", "root ::= no", "root ::= root", 'root ::= "\\uD800"', 'a ::= "b"', "root ::= (((((.{0,9}){0,9}){0,9}){0,9}){0,9}"):
        yield TEXT, dict(text, grammar=grammar)
    for messages in ([], [{}], [5], [{"role": "user"}], [{"role": "", "content": "x"}], [{"role": "king", "content": "x"}], [{"role": "user", "content": 5}],
                     [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "user", "content": [{"type": "text"}]}], [{"role": "tool", "content": "x"}],
                     [{"role": "assistant", "content": None, "tool_calls": [{}]}], [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": 5}}]}]):
        yield CHAT, {"messages": messages}
        yield "/apply-template", {"messages": messages}
    yield CHAT, dict(chat, continue_final_message=True)
    yield CHAT, {"messages": MESSAGES + [{"role": "assistant", "content": None}], "continue_final_message": True}
    for tools in ([{}], [{"type": "function"}], [tool, tool], [tool] * 200, [{"type": "function", "function": {"name": "a b"}}], [dict(tool, type="custom")]):
        for choice in ({}, {"tool_choice": "required"}):
            yield CHAT, dict(chat, tools=tools, **choice)
    yield CHAT, dict(chat, tool_choice="required")
    for prompt in ("", [], [[]], [-1], [10 ** 9], [1.5], "x" * 100000, ["x"] * 200, ["x", "y" * 100000]):
        yield TEXT, {"prompt": prompt}
    for body in ({"n": 100}, {"n": 128, "best_of": 128}, {"stop": ["x"] * 65}, {"stop": ["x" * 5000]}, {"samplers": "no"}, {"samplers": ["dry"] * 100},
                 {"logit_bias": {"999999": 1}}, {"lora": [{"id": 7}]}, {"dry_sequence_breakers": ["x"] * 64}, {"fork": {"id": "x"}}, {"grammar": "x", "json_schema": {}}):
        yield TEXT, dict(text, **body)
    yield "/v1/embeddings", {"input": "x"}
    for path, key in (("/tokenize", "content"), ("/detokenize", "tokens")):
        for value in bad:
            yield path, {key: value}


BROKEN = [b"", b"{", b"[]", b"{} x", b'{"a": 1, "a": 2}', b'{"a": 1e999}', b'{"a": "\xff"}', b"[" * 200, b'{"a": tru}', b'{"a" 1}', b"nul"]


@part
def requests():
    """What comes over HTTP."""
    server = Server(WEIR, "-np", "1", "--queue", "2", "-c", "512")
    told, wrong = set(), {}
    kept = Kept(server)
    for path, body in list(refusals()) + [(TEXT, b) for b in BROKEN]:
        reply = kept.post(path, body)
        if reply.status < 400:
            continue
        error = reply.error
        message, field = error["message"], error["param"] or ""
        told.add((error["code"], message[:40]))
        first = re.split(r"[\[./]", field)[0]
        odd = odd_words(message)
        known = first in FIELDS | {"messages", "prompt", "input", "content", "tokens", "fork", "speculative", "a", ""}
        if odd or not known or reply.status not in (400, 404, 501):
            wrong[(field, message)] = (path, json.dumps(body)[:200] if not isinstance(body, bytes) else body, reply.status, sorted(odd))
    kept.close()
    check("many refusals were seen", len(told) > 150, len(told))
    check("none has a word of the library's, each names a field of the request's", not wrong, *list(wrong.items())[:8])
    end(server)


@part
def particular():
    """Messages that had the library's words, and meaningless values that were accepted."""
    server = Server(WEIR, "-np", "1", "--queue", "2", "-c", "512")

    def refused(name, path, body, field, word, without=()):
        reply = server.post(path, body)
        error = reply.error if reply.status == 400 else {}
        check(f"{name}: 400, {field}, {word}", error.get("param") == field and word in error["message"] and not any(w in error["message"] for w in without), reply.status, reply.body)

    refused("too many at once", TEXT, {"prompt": "x", "n": 8}, "n", "--queue", ["queue_limit"])
    refused("too long", TEXT, {"prompt": "x" * 2000}, "prompt", "--ctx or --kv", ["n_ctx", "n_kv"])
    refused("too long a chat", CHAT, {"messages": [{"role": "user", "content": "x" * 2000}]}, "messages", "--ctx or --kv")
    refused("too many tools", CHAT, {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(2000)]}, "tools", "tools must be an array of at most", ["tools_json"])
    refused("a role", CHAT, {"messages": MESSAGES + [{"role": "king", "content": "x"}]}, "messages[1].role", '"king"; known: system')
    for stop in ([5], {"x": ""}):
        refused(f"stop {stop}", TEXT, {"prompt": "x", "stop": stop}, "stop", "a string or an array")
    for schema in (123, "x", [], True):
        refused(f"json_object with schema {schema!r}", CHAT, {"messages": MESSAGES, "response_format": {"type": "json_object", "schema": schema}}, "response_format.schema", "object")
    for schema in (None, {"type": "object"}):
        reply = server.post(CHAT, {"messages": MESSAGES, "response_format": {"type": "json_object", "schema": schema}})
        held = reply.status == 200 and reply.json["choices"][0]["message"]["content"].startswith("{")
        check(f"json_object with schema {schema!r} holds", held or "this build has no llama.cpp" in reply.error["message"], reply.status, reply.body)
    check("stop: \"\" is none", server.post(TEXT, {"prompt": "x", "max_tokens": 1, "stop": ""}).status == 200)
    for role in ("system", "developer", "user", "assistant", "tool", "function"):
        check(f"role {role}", server.post("/apply-template", {"messages": [{"role": role, "content": "x"}]}).status == 200)
    # The assistant's turn: begun or not, or gone on with.
    half = {"messages": MESSAGES + [{"role": "assistant", "content": "Well, "}]}
    plain = server.post("/apply-template", {"messages": MESSAGES}).json["prompt"]
    check("add_generation_prompt: true is as ever", server.post("/apply-template", {"messages": MESSAGES, "add_generation_prompt": True}).json["prompt"] == plain)
    without = server.post("/apply-template", {"messages": MESSAGES, "add_generation_prompt": False}).json["prompt"]
    check("false leaves the assistant's turn out", plain.startswith(without) and len(without) < len(plain), plain, without)
    on = server.post("/apply-template", dict(half, continue_final_message=True)).json["prompt"]
    check("false beside continue_final_message", server.post("/apply-template", dict(half, continue_final_message=True, add_generation_prompt=False)).json["prompt"] == on and on.endswith("Well, "), on)
    refused("both at once", "/apply-template", dict(half, continue_final_message=True, add_generation_prompt=True), "add_generation_prompt", "continue_final_message")
    refused("no flag", CHAT, {"messages": MESSAGES, "add_generation_prompt": 1}, "add_generation_prompt", "true or false")
    end(server)


@part
def addresses():
    """base_url with and without /v1; both ways of sending a key; what a preflight allows."""
    server = Server(WEIR, "--embeddings", "--alias", "tiny", "--api-key", "k", "--cors", "https://a.example")
    ask = {"messages": MESSAGES, "max_tokens": 2, "temperature": 0}
    for path, body in (("/chat/completions", ask), ("/completions", {"prompt": "x", "max_tokens": 2, "temperature": 0}), ("/embeddings", {"input": "x"})):
        short, long = server.post(path, body, key="k"), server.post("/v1" + path, body, key="k")
        check(f"{path} is /v1{path}", short.status == long.status == 200 and short.json.get("object") == long.json["object"] and
              [c.get("text") or c.get("message") for c in short.json.get("choices", [])] == [c.get("text") or c.get("message") for c in long.json.get("choices", [])], short.body)
    check("/models, /models/NAME", server.get("/models", key="k").json == server.get("/v1/models", key="k").json and server.get("/models/tiny", key="k").json["id"] == "tiny")
    connection = server.connect()
    connection.request("POST", "/chat/completions", dict(ask, stream=True, resume=True), key="k")
    status, headers = connection.head()
    events = [e for e in connection.events()]
    again = server.get("/v1/streams/" + headers["x-stream-id"], key="k")
    check("a stream is read again", status == 200 and again.status == 200 and again.body.decode().count("data: ") == len(events), again.body)
    connection.close()
    for path in ("/v1", "/v1/", "/v2/models", "/v1/v1/models", "/v1chat/completions", "/chat", "/v1/streams/", "/v1/app.js"):
        check(f"{path} is nothing", server.get(path, key="k").status == 404)
    for name in ("X-Api-Key", "x-api-key"):
        check(f"{name}: the key", server.get("/v1/models", headers=[f"{name}: k"]).status == 200)
        check(f"{name}: another", server.get("/v1/models", headers=[f"{name}: l"]).status == 401 and server.get("/v1/models", headers=[f"{name}:"]).status == 401)
    check("Authorization goes first", server.get("/v1/models", key="l", headers=["X-Api-Key: k"]).status == 401)
    reply = server.ask("OPTIONS", "/v1/chat/completions", headers=["Origin: https://a.example", "Access-Control-Request-Method: POST",
                                                                   "Access-Control-Request-Headers: authorization,content-type,x-stainless-arch,x-stainless-lang"])
    allowed = [h.strip().lower() for h in reply.headers.get("access-control-allow-headers", "").split(",")]
    check("a preflight: keys by name, and whatever else a client sends", reply.status == 204 and {"authorization", "x-api-key", "content-type", "*"} <= set(allowed), reply.headers)
    end(server)


need_server(WEIR)
run_parts()
