"""Spans of tool calls: when each was read from the answer, and how long its arguments are; neither names nor arguments leave."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, run_tests  # noqa: E402
from collector import QUICK, Collector  # noqa: E402
from program import WEIR  # noqa: E402
from serve import Server, need_server  # noqa: E402

MODEL = os.environ["WEIR_TEST_MODEL"]
TOOL = {"type": "function", "function": {"name": "secret_tool", "parameters": {"type": "object", "properties": {"city": {"enum": ["SecretTown"]}},
                                                                              "required": ["city"], "additionalProperties": False}}}


def test_calls():
    collector = Collector()
    body = {"messages": [{"role": "user", "content": "Where?"}], "tools": [TOOL], "tool_choice": "required", "temperature": 0, "max_tokens": 60}
    with Server(WEIR, "--otlp-endpoint", collector.url, model=MODEL, env=environment(**QUICK)) as server:
        reply = server.post("/v1/chat/completions", body)
        server.end_without_llama(reply)
        choice = reply.json["choices"][0]
        check("a call", choice["finish_reason"] == "tool_calls", reply.body)
        spans = {s["name"]: s for s in collector.requests(1)}
        check("spans come", spans)
    parse, chat = spans["tool parse"], next(s for name, s in spans.items() if name.startswith("chat "))
    values = {a["key"]: a["value"] for a in parse["attributes"]}
    arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
    check("the call's span", parse["parentSpanId"] == spans["POST /v1/chat/completions"]["spanId"]
          and values["weir.choice.index"] == values["weir.tool_call.index"] == {"intValue": "0"}, parse)
    check("it has the length of the arguments", values["weir.tool_call.argument_bytes"] == {"intValue": str(len(arguments))}, values, arguments)
    check("it lies within the request", int(spans["POST /v1/chat/completions"]["startTimeUnixNano"]) < int(parse["startTimeUnixNano"]) <= int(parse["endTimeUnixNano"])
          <= int(spans["POST /v1/chat/completions"]["endTimeUnixNano"]), spans)
    check("the generation ended with it", {"key": "gen_ai.response.finish_reasons", "value": {"arrayValue": {"values": [{"stringValue": "tool_calls"}]}}} in chat["attributes"], chat)
    check("no name and no argument leaves", "secret" not in json.dumps(collector.bodies).lower(), collector.bodies)
    collector.close()


need_server(WEIR)
run_tests(globals())
