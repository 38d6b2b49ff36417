"""The proxy of tests/agents against a server that notes what it gets: it hides no refusal, and changes of a body only what forces the answer."""
# SPDX-License-Identifier: Apache-2.0
import copy
import http.client
import http.server
import importlib
import json
import os
import sys
import threading

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "agents"), os.path.join(here, "support")]
from checks import PATIENCE, check, run_tests  # noqa: E402
from dialects import Chat, Messages, Ollama, Responses, fields, parts_of  # noqa: E402
from pins import versions  # noqa: E402
from proxy import CUT_TOKENS, Proxy, Script, take  # noqa: E402

OTHER = {"type": "object", "properties": {"secret": {"type": "string", "minLength": 1}}}
EDIT = ("edit", {"path": "/notes.txt"})
ARGUMENTS = {"type": "object", "properties": {"path": {"const": "/notes.txt"}}, "required": ["path"], "additionalProperties": False}


def called(number, arguments):
    """A call as chat completions send it back, and its result."""
    return [{"role": "assistant", "tool_calls": [{"id": number, "type": "function", "function": {"name": EDIT[0], "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": number, "content": "done"}]


def chat(results=0):
    """results: how many of the script's call are there, with its result."""
    calls = [message for i in range(results) for message in called(str(i), json.dumps(EDIT[1]))]
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": "private words"}, *calls],
            "tools": [{"type": "function", "function": {"name": name, "parameters": OTHER}} for name in ("read", "edit")]}


class Weir(http.server.BaseHTTPRequestHandler):
    """Refuses a body with the member "odd", by its name, one with "broken", by none; answers any other in two pieces, or with a count."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        param = "odd" if "odd" in body else None
        refused = param or "broken" in body
        self.send_response(400 if refused else 200)
        self.send_header("Content-Type", "application/json" if refused else "text/event-stream")
        self.send_header("X-Weir-Relaxed", "tools/0: minLength; store")
        self.end_headers()
        if not refused and not body["stream"]:
            self.wfile.write(json.dumps({"usage": {"completion_tokens": 200}}).encode())
            return
        if refused:
            self.wfile.write(json.dumps({"error": {"param": param, "message": "no"}}).encode())
            return
        try:
            self.wfile.write(b"data: one\n\n")
            self.wfile.flush()
            self.wfile.write(b"data: two\n\n")
        except OSError:
            pass  # the proxy has seen enough of it


TURNS = [("private words", [EDIT], "spelling corrected"), ("more words", [("read", {"path": "/x"})], "done")]
SCRIPT = Script(TURNS)


def setting(script=SCRIPT):
    weir = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Weir)
    weir.bodies = []
    threading.Thread(target=weir.serve_forever, daemon=True).start()
    return weir, Proxy(f"http://127.0.0.1:{weir.server_port}", script, [prompt for prompt, _, _ in TURNS])


def ask(proxy, body, path="/v1/chat/completions"):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=PATIENCE)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    try:
        return reply.status, reply.read()
    except http.client.IncompleteRead as broken:
        return "broken off", broken.partial
    finally:
        connection.close()


def test_own_body_comes_first():
    weir, proxy = setting()
    body = chat()
    status, data = ask(proxy, body)
    check("the whole answer arrives", (status, data) == (200, b"data: one\n\ndata: two\n\n"), status, data)
    check("weir gets the agent's own body, then the forced one", len(weir.bodies) == 2 and weir.bodies[0] == body, weir.bodies)
    forced = copy.deepcopy(body)
    forced["tool_choice"] = {"type": "function", "function": {"name": "edit"}}
    forced["tools"][1]["function"]["parameters"] = ARGUMENTS
    check("nothing else is changed in it", weir.bodies[1] == forced, weir.bodies[1])
    check("nothing is refused", proxy.refusals == [] and proxy.others == set())
    check("what weir does not enforce is noted", proxy.hints == {"tools/0: minLength", "store"}, proxy.hints)


def test_refusals_are_noted():
    weir, proxy = setting()
    status, _ = ask(proxy, dict(chat(), odd=7))
    check("a refused member is noted with its value", proxy.refusals == [{"status": 400, "param": "odd", "message": "no", "value": 7}], proxy.refusals)
    check("the loop goes on without it", status == 200 and "odd" not in weir.bodies[-1] and len(weir.bodies) == 3, weir.bodies)
    ask(proxy, dict(chat(), odd=7))
    check("the same refusal is noted once", len(proxy.refusals) == 1, proxy.refusals)
    status, data = ask(proxy, dict(chat(), broken=True))
    check("a refusal that names nothing is noted, and the agent gets it", status == 400 and json.loads(data)["error"]["message"] == "no" and proxy.refusals[1]["param"] is None, status, data)
    ask(proxy, dict(chat(), odd=None))
    check("a member that is null is taken out, too", proxy.refusals[-1]["value"] is None and "odd" not in weir.bodies[-1], proxy.refusals)
    # What is wrong only in the part that the script replaces.
    ask(proxy, dict(chat(), tool_choice="unheard-of"))
    check("weir sees the member that the script replaces", weir.bodies[-2]["tool_choice"] == "unheard-of", weir.bodies[-2])


def test_one_call_is_cut():
    weir, proxy = setting(Script(TURNS, cut=0, breaks=0))
    body = dict(chat(), max_completion_tokens=1000, stream_options={"include_usage": True})
    check("its answer is whole for the proxy", ask(proxy, body) == (200, b"data: one\n\ndata: two\n\n") and proxy.cut_answer == b"data: one\n\ndata: two\n\n")
    counted, limited = weir.bodies[1:]
    check("weir says how long it is, without a stream", not counted["stream"] and "stream_options" not in counted, counted)
    check("and gets a limit below that, in place of the client's", limited["max_tokens"] == 200 - CUT_TOKENS and "max_completion_tokens" not in limited and limited["stream_options"] == body["stream_options"], limited)
    check("the same request breaks off, then gets the whole answer", [ask(proxy, chat())[0] for _ in range(2)] == ["broken off", 200] and (proxy.cut, proxy.broken) == ((0, "edit"), (0, "edit")) and "max_tokens" not in weir.bodies[-1], proxy.requests)


def test_a_cut_call_that_comes_back():
    for arguments in ('{"path": "/no', '{"path": "/no"}', "{}", ""):
        _, proxy = setting()
        body = chat()
        body["messages"] += called("cut", arguments)
        ask(proxy, body)
        check(f"{arguments!r} is none of the script's calls, and its result does not count", "cut call" in proxy.parts and proxy.requests == [(0, "edit")], proxy.requests)
    _, proxy = setting()
    body = chat()
    body["messages"] += called("0", '{"path": "/notes.txt", "all": false}')
    ask(proxy, body)
    check("what an agent adds changes no call", "cut call" not in proxy.parts and proxy.requests == [(1, "text")], proxy.requests)
    _, proxy = setting()
    ask(proxy, chat(1))
    check("a call and its result are noted", proxy.parts == {"call"} and proxy.results == {"done"}, proxy.parts)
    body = chat(1)
    body["messages"].append({"role": "user", "content": "more words"})
    ask(proxy, body)
    check("the second turn, from what the user says", "second turn" in proxy.parts and proxy.requests[-1] == (1, "read"), proxy.parts, proxy.requests)
    for dialect, body in ((Responses, {"input": [{"type": "function_call", "call_id": "c", "name": "edit", "arguments": "{"}]}),
                          (Messages, {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "edit", "input": {}}]}]}),
                          (Ollama, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "edit", "arguments": {}}}]}]})):
        check(f"{dialect.path}: a call of others", [name for _, name, _ in SCRIPT.other_calls(dialect, body)] == ["edit"], SCRIPT.other_calls(dialect, body))


def test_one_answer_breaks_off():
    weir, proxy = setting(Script(TURNS, breaks=0))
    status, data = ask(proxy, chat())
    check("the answer breaks off within its first bytes", status == "broken off" and data and b"data: one\n\n".startswith(data), status, data)
    check("the same request gets the whole answer", ask(proxy, chat()) == (200, b"data: one\n\ndata: two\n\n"))
    check("and is forced to the same call", weir.bodies[1] == weir.bodies[3] and proxy.requests == [(0, "edit"), (0, "edit")] and proxy.broken == (0, "edit"), proxy.requests)
    ask(proxy, chat(1))
    check("after the call comes the text", proxy.requests[-1] == (1, "text") and weir.bodies[-1]["response_format"]["json_schema"]["schema"] == {"const": "spelling corrected"}, weir.bodies[-1])
    ask(proxy, dict(chat(), tools=[]))
    check("a request without the tool is noted as such", proxy.requests[-1] == (0, "text: edit is not among no tools"), proxy.requests)


def test_dialects():
    tool = {"name": "edit", "description": "d"}
    responses = {"input": [{"type": "function_call_output", "output": "a"}, {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "b"}]}, {"type": "reasoning"}],
                 "tools": [{"type": "web_search"}, dict(tool, type="function", parameters=OTHER)], "text": {"verbosity": "low"}}
    check("Responses: results", ["a" in text or "b" in text for _, text in Responses.results(responses)] == [True, True], Responses.results(responses))
    Responses.force_call(responses, *EDIT)
    check("Responses: a call", responses["tools"] == [{"type": "web_search"}, dict(tool, type="function", parameters=ARGUMENTS)] and responses["tool_choice"] == {"type": "function", "name": "edit"}, responses)
    Responses.force_text(responses, "t")
    check("Responses: a text", responses["tool_choice"] == "none" and responses["text"]["verbosity"] == "low" and responses["text"]["format"]["schema"] == {"const": "t"}, responses)
    messages = {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "tool_result", "content": "a"}, {"type": "text", "text": "b"}]}],
                "tools": [dict(tool, input_schema=OTHER)], "output_config": {"effort": "low"}}
    check("Messages: results", Messages.results(messages) == [(None, "a")], Messages.results(messages))
    Messages.force_call(messages, *EDIT)
    check("Messages: a call", messages["tools"] == [dict(tool, input_schema=ARGUMENTS)] and messages["tool_choice"] == {"type": "tool", "name": "edit"}, messages)
    Messages.force_text(messages, "t")
    check("Messages: a text", messages["tool_choice"] == {"type": "none"} and messages["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": {"const": "t"}}}, messages)
    check("Chat: results", Chat.results(chat(2)) == [("0", "done"), ("1", "done")])
    ollama = chat(1)
    Ollama.force_text(ollama, "t")
    check("Ollama: a text", ollama["tool_choice"] == "none" and ollama["format"] == {"const": "t"} and "response_format" not in ollama and Ollama.results(ollama) == [("0", "done")], ollama)


def test_a_client_that_has_its_own_script():
    weir, proxy = setting(script=None)
    body = chat()
    check("its answer is whole, and its body is unchanged", ask(proxy, body) == (200, b"data: one\n\ndata: two\n\n") and weir.bodies == [body, body], weir.bodies)
    check("its request is counted", len(proxy.requests) == 1 and proxy.broken is None, proxy.requests)


def test_what_a_loop_has():
    user, system = {"role": "user", "content": "x"}, {"role": "system", "content": "x"}
    call = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
    cut = {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": '}
    for body, parts in (({"messages": [system, user, call]}, set()), ({"messages": [user, system]}, {"system message"}), ({"input": [user, {"role": "developer", "content": "x"}]}, {"system message"}),
                        ({"input": [user, cut]}, {"cut call"}), ({"messages": [{"role": "user", "content": "x", "images": ["QUJD"]}]}, {"image"}), ({"input": "x"}, set()), ({}, set()),
                        *(({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": kind}]}]}]}, {"image"}) for kind in ("image", "input_image", "image_url"))):
        check(f"{body} has {parts}", parts_of(body) == parts, parts_of(body))


def test_fields_have_no_texts():
    found = fields(dict(chat(1), metadata={"user": "private"}, stop=[], seed=None))
    check("paths with types", found == {
        "model string", "stream boolean", "messages[].role = user", "messages[].role = tool", "messages[].content string", "messages[].tool_call_id string", "metadata object",
        "messages[].role = assistant", "messages[].tool_calls[].type = function", "messages[].tool_calls[].id string", "messages[].tool_calls[].function.name string", "messages[].tool_calls[].function.arguments string",
        "stop array", "seed null", "tools[].type = function", "tools[].function.name string", "tools[].function.parameters..type = object",
        "tools[].function.parameters..type = string", "tools[].function.parameters..minLength number", "tools[].function.parameters..properties object"}, *sorted(found))


def test_the_guide_has_the_pins():
    with open(os.path.join(here, os.pardir, "docs", "guides", "clients.md"), encoding="utf-8") as f:
        lines = f.read().splitlines()
    for name, version in versions().items():
        agent = importlib.import_module(name)
        rows = [row.split(" | ") for row in lines if row.startswith(f"| {agent.TITLE} | ") and len(row.split(" | ")) > 5]
        check(f"{name} {version} is in both tables of clients.md", len(rows) == 2 and rows[0][2] == version, *rows)
        check(f"{name}: no body was refused", rows[0][4] == "0", rows[0])
        lacks = "; ".join(f"{shape}: {why}" for shape, why in getattr(agent, "LACKS", {}).items())
        check(f"{name}: and why it lacks something", rows[1][-1] == f"{lacks} |", rows[1])


def test_paths_of_refusals():
    for param in ("tools[1].function/name", "tools/1/function/name"):
        body = chat()
        check(f"{param} leads to its member", take(body, param) == "edit" and "name" not in body["tools"][1]["function"], body)
    for param in ("", "tools[5]", "model.name", "none"):
        try:
            check(f"{param!r} leads nowhere", take(chat(), param) is None)
        except LookupError:
            check(f"{param!r} leads nowhere", True)


run_tests(globals())
