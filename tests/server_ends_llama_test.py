"""Answers that end within their reasoning or within a call's arguments, by each reason, in each dialect, whole and streamed; and calls that were cut and
come back. On the fake model, one byte a token: a grammar says what it answers."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, finish  # noqa: E402
from resumed import Reader, whole  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
ROOT = os.environ.get("WEIR_LLAMA_SOURCE", "")
CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
DIALECTS = (CHAT, MESSAGES, RESPONSES, OLLAMA)
ASKED = [{"role": "user", "content": "Sum it."}]
LIMIT = {CHAT: "max_tokens", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens", OLLAMA: "num_predict"}
STOP = {CHAT: "stop", MESSAGES: "stop_sequences", RESPONSES: "stop", OLLAMA: "stop"}
THINK = {CHAT: {"reasoning_effort": "high"}, MESSAGES: {"thinking": {"type": "adaptive"}}, RESPONSES: {"reasoning": {"effort": "high"}}, OLLAMA: {"think": True}}
SILENT = {CHAT: {"reasoning_effort": "none"}, MESSAGES: {}, RESPONSES: {"reasoning": {"effort": "none"}}, OLLAMA: {"think": False}}
LIST = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 200, "maxItems": 200}
SCHEMA = {"type": "object", "properties": {"list": LIST}, "required": ["list"], "additionalProperties": False}
FUNCTION = {"name": "note", "parameters": SCHEMA}
TOOLS = {CHAT: [{"type": "function", "function": FUNCTION}], OLLAMA: [{"type": "function", "function": FUNCTION}], RESPONSES: [{"type": "function", **FUNCTION}],
         MESSAGES: [{"name": "note", "input_schema": SCHEMA}]}


def body(path, messages=ASKED, n=None, stop=None, **more):
    """A request in the dialect's own names; max_tokens is 4000 where a test names none."""
    options = {LIMIT[path]: n or 4000, "temperature": 0, **({STOP[path]: [stop]} if stop else {})}
    return {"model": "tiny", "input" if path == RESPONSES else "messages": messages, **({"options": options} if path == OLLAMA else options), **more}


class Answer:
    """What a client of the dialect has of an answer. calls: arguments of those that are to be run; partial: of those that are shown, but not to be run."""

    def __init__(self):
        self.text, self.reasoning, self.calls, self.partial, self.reason = "", "", [], [], None

    def __repr__(self):
        return repr(vars(self))

    def shown(self):
        return self.text, self.reasoning, self.calls


def take_message(answer, message):
    answer.text += message.get("content") or ""
    answer.reasoning += message.get("reasoning_content") or message.get("thinking") or ""
    for call in message.get("tool_calls") or []:
        answer.calls.append(call["function"]["arguments"])


def take_items(answer, items):
    for item in items:
        if item["type"] == "function_call":
            (answer.calls if item["status"] == "completed" else answer.partial).append(item["arguments"])
        elif item["type"] == "reasoning":
            answer.reasoning += "".join(part["text"] for part in item.get("content") or item["summary"])
        else:
            answer.text += "".join(part["text"] for part in item["content"])


def end_of(response):
    return (response["incomplete_details"] or {}).get("reason") or response["status"]


def read(server, path, asked):
    """The whole answer."""
    reply, answer = server.post(path, {**asked, "stream": False}), Answer()
    if not check(f"{path}: 200", reply.status == 200, reply.body):
        return answer
    got = reply.json
    if path == CHAT:
        take_message(answer, got["choices"][0]["message"])
        answer.reason = got["choices"][0]["finish_reason"], got["choices"][0]["finish_detail"]
    elif path == MESSAGES:
        for block in got["content"]:
            answer.text += block.get("text", "")
            answer.reasoning += block.get("thinking", "")
            answer.calls += [json.dumps(block["input"])] if block["type"] == "tool_use" else []
        answer.reason = got["stop_reason"], got["stop_sequence"]
    elif path == RESPONSES:
        take_items(answer, got["output"])
        answer.reason = end_of(got)
    else:
        take_message(answer, got["message"])
        answer.reason = got["done_reason"]
    return answer


def lines(server, path, asked):
    connection = server.connect()
    connection.request("POST", path, {**asked, "stream": True})
    assert connection.head()[0] == 200
    data = b"".join(connection.chunks())
    connection.close()
    return [json.loads(line) for line in data.splitlines()]


def read_chat(events):
    answer = Answer()
    for event in events:
        choice = event["choices"][0]
        calls = choice["delta"].pop("tool_calls", [])
        take_message(answer, choice["delta"])
        for call in calls:
            answer.calls += [""] if "id" in call else []
            answer.calls[call["index"]] += call["function"]["arguments"]
        answer.reason = choice["finish_reason"], choice.get("finish_detail")
    return answer


def read_stream(server, path, asked):
    """The pieces of the streamed answer put together."""
    if path == CHAT:
        return read_chat(server.stream(path, asked))
    answer = Answer()
    if path == OLLAMA:
        for line in lines(server, path, asked):
            take_message(answer, line["message"])
            answer.reason = line.get("done_reason")
        return answer
    for kind, event in server.named_events(path, asked):
        delta = event.get("delta")
        if event.get("content_block", {}).get("type") == "tool_use" or kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            answer.calls.append("")
        if kind == "content_block_delta":
            answer.text += delta.get("text", "")
            answer.reasoning += delta.get("thinking", "")
            if "partial_json" in delta:
                answer.calls[-1] += delta["partial_json"]
        elif kind == "response.output_text.delta":
            answer.text += delta
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            answer.reasoning += delta
        elif kind == "response.function_call_arguments.delta":
            answer.calls[-1] += delta
        elif kind == "message_delta":
            answer.reason = delta["stop_reason"], delta["stop_sequence"]
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            answer.reason = end_of(event["response"])
    return answer


# ---- Ends

ENDS = {"length": {CHAT: ("length", "length"), MESSAGES: ("max_tokens", None), RESPONSES: "max_output_tokens", OLLAMA: "length"},
        "stop": {CHAT: ("stop", "stop_words"), MESSAGES: ("stop_sequence", "slow"), OLLAMA: "stop"},
        "end": {CHAT: ("stop", "end"), MESSAGES: ("end_turn", None), RESPONSES: "completed", OLLAMA: "stop"},
        "deadline": {CHAT: ("length", "deadline"), MESSAGES: ("max_tokens", None), RESPONSES: "max_output_tokens"}}
SAID = "Sum <b> it slowly"
# Each token that no draft guesses takes a pass of 0.5 ms at least: 1,500 letters and the 400 tokens of a list are not complete in time.
SLOW = {"deadline_ms": 150, "speculative.n_max": 0}


def thinks(server, path, name, asked, end, good):
    """Both answers are reasoning alone, which is good, and have the reason."""
    for how, answer in (("whole", read(server, path, asked)), ("streamed", read_stream(server, path, asked))):
        check(f"{name}, {path}, {end}, {how}", answer.shown() == ("", answer.reasoning, []) and good(answer.reasoning.lstrip("\n")) and answer.reason == ENDS[end][path], answer)


def ask_reasoning(server, name, opened):
    """opened: by the prompt; elsewhere by the model."""
    begin = "" if opened else "<think>\n"
    forced = "root ::= " + json.dumps(begin + SAID)
    slow = forced + " letters" * 30 + "\nletters ::= " + "[ab] " * 50
    for path in (CHAT, MESSAGES, RESPONSES):
        for n in range(1, len(SAID), effort(1, 5)):
            thinks(server, path, f"{name}, {n}", body(path, n=len(begin) + n, grammar=forced, **THINK[path]), "length", SAID[:n].__eq__)
        if path != RESPONSES:  # it has no stop texts
            thinks(server, path, name, body(path, stop="slow", grammar=forced, **THINK[path]), "stop", "Sum <b> it ".__eq__)
        thinks(server, path, name, body(path, grammar=forced, **THINK[path]), "end", SAID.__eq__)
        thinks(server, path, name, body(path, grammar=slow, **SLOW, **THINK[path]), "deadline", lambda text: text.rstrip("ab") in (SAID, SAID[:len(text)]))
    # Ollama's API has no grammar: the fake model's own text, which ends soon, within reasoning that the prompt or the client has opened.
    messages = ASKED if opened else [*ASKED, {"role": "assistant", "content": "", "thinking": "Sum"}]
    said = read(server, OLLAMA, body(OLLAMA, messages, **THINK[OLLAMA])).reasoning
    check(f"{name}: there is a text", len(said) > 8, said)
    thinks(server, OLLAMA, name, body(OLLAMA, messages, **THINK[OLLAMA]), "end", said.__eq__)
    thinks(server, OLLAMA, name, body(OLLAMA, messages, n=3, **THINK[OLLAMA]), "length", lambda text: text and text != said and said.startswith(text))
    thinks(server, OLLAMA, name, body(OLLAMA, messages, stop=said[3:6], **THINK[OLLAMA]), "stop", said[:said.index(said[3:6])].__eq__)
    answer = cancel_chat(server, body(CHAT, grammar=slow, **THINK[CHAT]))
    check(f"{name}: cancelled", answer.shown() == ("", answer.reasoning, []) and answer.reasoning.lstrip("\n").startswith("Sum") and answer.reason == ("stop", "cancelled"), answer)


def cancel_chat(server, asked):
    """A stream that is cancelled once it has shown some of what it is about; again where the answer was quicker."""
    for _ in range(8):
        with Reader(server, CHAT, asked) as reader:
            reader.take(30)
            server.post(f"/v1/streams/{reader.id}/cancel", {})
            got = reader.rest()
        answer = read_chat([json.loads(data) for _, data in got if data != "[DONE]"])
        if answer.reason == ("stop", "cancelled"):
            break
    check("it is whole", whole(got), got)
    return answer


def cancel_response(server, asked):
    """The same for a response, which is read once more after its end."""
    connection, id = server.connect(), None
    connection.request("POST", RESPONSES, {**asked, "stream": True, "background": True})
    connection.head()
    streamed = ""
    for event in map(json.loads, (e for e in connection.events() if not e.startswith(":"))):
        id = id or event["response"]["id"]
        if event["type"] == "response.function_call_arguments.delta":
            if not streamed:
                server.post(f"{RESPONSES}/{id}/cancel", {})
            streamed += event["delta"]
    connection.close()
    answer, response = Answer(), server.get(f"{RESPONSES}/{id}").json
    take_items(answer, response["output"])
    answer.reason = response["status"]
    return streamed, answer


# ---- Calls that are cut

def asked_for_call(path, messages=ASKED, **more):
    """A request whose answer is a call, which every grammar enforces."""
    return body(path, messages, tools=TOOLS[path], tool_choice={"type": "any"} if path == MESSAGES else "required", **SILENT[path], **more)


def is_cut(path, answer, streamed, full, end):
    """True if no call is to be run, and those of a stream show a beginning of the arguments, in the dialects that stream them. A deadline may end before it."""
    beginning = full.startswith(streamed.calls[0]) and streamed.calls[0] != full if streamed.calls else path == OLLAMA or end == "deadline"
    return answer.shown() == ("", "", []) and beginning and all(full.startswith(part) and part != full for part in answer.partial) and streamed.text == ""


def ask_calls(server, name):
    for path in DIALECTS:
        ended = read_stream(server, path, asked_for_call(path, n=2000))
        full, arguments = ended.calls[0], json_of(ended.calls[0])
        check(f"{name}, {path}: a call", len(arguments["list"]) == 200, full)
        cuts = [("length", {"n": n}) for n in (90, 91, 200)] + ([("deadline", SLOW)] if path != OLLAMA else [])
        for end, more in cuts:
            answer, streamed = read(server, path, asked_for_call(path, **more)), read_stream(server, path, asked_for_call(path, **more))
            check(f"{name}, {path}: a call cut by {end}", is_cut(path, answer, streamed, full, end) and answer.reason == streamed.reason == ENDS[end][path], answer, streamed)
            check(f"{name}, {path}: an item of it", path != RESPONSES or end != "length" or answer.partial == streamed.calls, answer, streamed)
        if path != RESPONSES:
            for stop in ("[", "list", "no", "1"):
                answer, streamed = read(server, path, asked_for_call(path, stop=stop, n=2000)), read_stream(server, path, asked_for_call(path, stop=stop, n=2000))
                check(f"{name}, {path}: the stop text {stop} in a call", streamed.calls[0] == full and answer.calls and json_of(answer.calls[0]) == arguments and
                      answer.reason == streamed.reason == ended.reason, answer, streamed)
    full = read_stream(server, CHAT, asked_for_call(CHAT, n=2000)).calls[0]
    answer = cancel_chat(server, asked_for_call(CHAT))
    check(f"{name}: a call that is cancelled", answer.calls and full.startswith(answer.calls[0]) and answer.text == "" and answer.reason == ("stop", "cancelled"), answer)
    for _ in range(8):
        streamed, answer = cancel_response(server, asked_for_call(RESPONSES))
        if answer.reason == "cancelled":
            break
    check(f"{name}: a response that is cancelled within a call", not answer.calls and full.startswith(streamed) and answer.reason == "cancelled" and
          all(full.startswith(part) for part in answer.partial), streamed, answer)


def json_of(arguments):
    return arguments if isinstance(arguments, dict) else json.loads(arguments)


# ---- Calls that were cut come back

def said_back(path, arguments, id="call00001"):
    """The next turn of a conversation whose last call broke off within its arguments."""
    call = {"id": id, "type": "function", "function": {"name": "note", "arguments": arguments}}
    if path == RESPONSES:
        return [*ASKED, {"type": "function_call", "call_id": id, "name": "note", "arguments": arguments}, {"type": "function_call_output", "call_id": id, "output": "broken off"}, *ASKED]
    return [*ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": id, "content": "broken off"}, *ASKED]


def ask_back(server, name):
    """Arguments of chat completions and Responses are text; Messages and Ollama's API have objects. What a stream showed of a call comes back, too."""
    shown = read_stream(server, CHAT, asked_for_call(CHAT, n=90)).calls[0]
    for arguments in ("{", "", '{"list": [1, 2', shown, "[]", "null", "}"):
        prompts = []
        for path in (CHAT, RESPONSES):
            messages = said_back(path, arguments)
            reply = server.post(path, asked_for_call(path, messages, n=4))
            check(f"{name}, {path}: arguments {arguments!r} come back", reply.status == 200, reply.status, reply.body)
            prompts.append(reply.json["usage"].get("prompt_tokens") or reply.json["usage"].get("input_tokens") if reply.status == 200 else None)
        check(f"{name}: {arguments!r}: both have the same prompt", prompts[0] == prompts[1], prompts)
    kept = server.post(RESPONSES, asked_for_call(RESPONSES, n=90)).json
    check(f"{name}: a response that was cut within a call", [item["status"] for item in kept["output"]] == ["incomplete"], kept["output"])
    result = {"type": "function_call_output", "call_id": kept["output"][0]["call_id"], "output": "broken off"}
    for more in ([result], [result, *ASKED]):
        reply = server.post(RESPONSES, asked_for_call(RESPONSES, more, n=16, previous_response_id=kept["id"]))
        check(f"{name}: it goes on by previous_response_id", reply.status == 200, reply.body)
    reply = server.post(RESPONSES, asked_for_call(RESPONSES, [*ASKED, *kept["output"], result], n=16))
    check(f"{name}: its items come back as they are", reply.status == 200, reply.body)
    blocks = [*ASKED, {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "note", "input": {}}]},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "broken off"}]}]
    reply = server.post(MESSAGES, asked_for_call(MESSAGES, blocks, n=4))
    check(f"{name}: a call whose input a client read as nothing", reply.status == 200, reply.body)


need_server(WEIR)
if not os.path.isdir(os.path.join(ROOT, "models", "templates")):
    print("skipped: no templates of llama.cpp")
    sys.exit(77)


def serve(template, model):
    words = [] if template is None else ["--chat-template-file", os.path.join(ROOT, "models", "templates", template + ".jinja")]
    return Server(WEIR, "-np", "2", "-c", "16384", "--alias", "tiny", *words, model=model)


for template, opened in (("Qwen-QwQ-32B", True), ("deepseek-ai-DeepSeek-V3.1", True), ("Qwen-Qwen3-0.6B", False), ("HuggingFaceTB-SmolLM3-3B", False)):
    with serve(template, "fake:tick_us=500,eos_every=60") as server:
        ask_reasoning(server, template, opened)
# A call between marks, arguments one by one, a call without marks, ids that the model writes, and a template that knows no tools.
for template in ("Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", None):
    with serve(template, "fake:tick_us=500") as server:
        ask_calls(server, template or "ChatML")
        ask_back(server, template or "ChatML")
finish()
