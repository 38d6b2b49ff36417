"""weir serve with the model that $WEIR_TEST_MODEL names: the dialects' fields about reasoning reach the template, and reasoning becomes a part
of its own in each of them."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
SAID = "hm so\n"
# As Qwen 3 has it: without reasoning an empty thought is put before the answer.
TEMPLATE = """{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}{% if reasoning_effort is defined %}effort {{ reasoning_effort }}{% endif %}"""


need_server(WEIR)
with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
    template.write(TEMPLATE)
    template.flush()
    server = Server(WEIR, "-np", "1", "-c", "1024", "--chat-template-file", template.name, "--reasoning-budget", "low=9", model=os.environ["WEIR_TEST_MODEL"], patience=300)
    hello = [{"role": "user", "content": "Name a river."}]

    def n_tokens(**more):
        return len(server.post("/apply-template", dict(messages=hello, **more)).json["tokens"])

    thinks, silent, effort = n_tokens(), n_tokens(reasoning_effort="none", chat_template_kwargs={}), n_tokens(reasoning_effort="low")
    check("the template tells them apart", len({thinks, silent, effort}) == 3, thinks, silent, effort)
    bare = len(server.post("/apply-template", {"messages": hello, "chat_template_kwargs": {"enable_thinking": False}}).json["tokens"])
    for name, more, wanted in [("nothing", {}, bare), ("disabled", {"thinking": {"type": "disabled"}}, bare), ("enabled", {"thinking": {"type": "enabled", "budget_tokens": 2048}}, thinks),
                               ("adaptive", {"thinking": {"type": "adaptive"}}, thinks), ("effort", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, effort)]:
        reply = server.post(MESSAGES + "/count_tokens", dict(messages=hello, **more))
        check(f"messages, thinking: {name}", reply.json == {"input_tokens": wanted}, reply.body, wanted)
    for name, more, wanted in [("nothing", {}, thinks), ("none", {"reasoning": {"effort": "none"}}, silent), ("effort", {"reasoning": {"effort": "low", "summary": "auto"}}, effort)]:
        reply = server.post(RESPONSES + "/input_tokens", dict(input=hello, **more))
        check(f"responses, reasoning: {name}", reply.json["input_tokens"] == wanted, reply.body, wanted)

    # The model does not think by itself; a grammar makes it.
    thought = {"temperature": 0, "grammar": 'root ::= "<think>\\nhm so\\n</think>\\n\\nDanube"'}
    plain = server.post("/v1/chat/completions", dict(thought, messages=hello, max_tokens=40)).json["choices"][0]["message"]
    check("chat completions", (plain.get("reasoning_content"), plain["content"]) == (SAID, "Danube"), plain)
    asked = dict(thought, messages=hello, max_tokens=40, thinking={"type": "adaptive"})
    whole = server.post(MESSAGES, asked).json
    blocks = whole["content"]
    check("messages: a block of its own", whole["content"] == [{"type": "thinking", "thinking": SAID, "signature": ""}, {"type": "text", "text": "Danube"}] and
          whole["stop_reason"] == "end_turn", whole)
    got = [data for _, data in server.named_events(MESSAGES, asked)]
    deltas = [(e["index"], e["delta"]["type"], e["delta"].get("thinking", e["delta"].get("text"))) for e in got if e["type"] == "content_block_delta"]
    check("messages: streamed", "".join(d[2] for d in deltas if d[:2] == (0, "thinking_delta")) == SAID and "".join(d[2] for d in deltas if d[:2] == (1, "text_delta")) == "Danube" and
          [e["content_block"]["type"] for e in got if e["type"] == "content_block_start"] == ["thinking", "text"], got)
    asked = dict(thought, input=hello, max_output_tokens=40)
    whole = server.post(RESPONSES, asked).json
    check("responses: an item of its own", [(i["type"], i["content"][0]["text"]) for i in whole["output"]] == [("reasoning", SAID), ("message", "Danube")], whole)
    got = [data for _, data in server.named_events(RESPONSES, asked)]
    check("responses: streamed", "".join(e["delta"] for e in got if e["type"] == "response.reasoning_text.delta") == SAID and
          "".join(e["delta"] for e in got if e["type"] == "response.output_text.delta") == "Danube" and
          [i["content"] for i in got[-1]["response"]["output"]] == [i["content"] for i in whole["output"]], got)
    # Reasoning that would not end has as many tokens as its budget, in each dialect, and then the answer comes.
    endless = {"temperature": 0, "grammar": 'root ::= "<think>\\n" [a-z]* "</think>\\n\\nDanube"'}
    for name, path, more, read in [
            ("chat completions", CHAT, {"messages": hello, "max_tokens": 200, "reasoning_budget_tokens": 9},
             lambda r: (r["choices"][0]["message"]["content"], r["usage"]["completion_tokens_details"]["reasoning_tokens"])),
            ("messages", MESSAGES, {"messages": hello, "max_tokens": 200, "thinking": {"type": "enabled", "budget_tokens": 9}}, lambda r: (r["content"][-1]["text"], None)),
            ("responses", RESPONSES, {"input": hello, "max_output_tokens": 200, "reasoning_budget_tokens": 9},
             lambda r: (r["output"][-1]["content"][0]["text"], r["usage"]["output_tokens_details"]["reasoning_tokens"])),
            ("an effort", CHAT, {"messages": hello, "max_tokens": 200, "reasoning_effort": "low"},
             lambda r: (r["choices"][0]["message"]["content"], r["usage"]["completion_tokens_details"]["reasoning_tokens"])),
            ("Ollama's", "/api/chat", {"messages": hello, "think": "low", "stream": False, "options": {"num_predict": 200, "temperature": 0}, "format": ""}, None)]:
        if read is None:
            reply = server.post(path, more)
            check(f"a budget: {name}", reply.status == 200, reply.body)
            continue
        reply = server.post(path, dict(endless, **more))
        text, n = read(reply.json)
        thinks = json.dumps(reply.json)
        check(f"a budget: {name}", text == "Danube" and n in (None, 9) and "x-weir-relaxed" not in reply.headers and "</th" not in thinks, reply.body, reply.headers)
    reply = server.post(CHAT, dict(endless, messages=hello, max_tokens=200, reasoning_budget=0)).json
    check("no budget: no reasoning", reply["choices"][0]["message"]["content"] == "Danube" and not reply["choices"][0]["message"].get("reasoning_content", "").strip() and
          "completion_tokens_details" not in reply["usage"], reply)
    # A client ends it.
    connection = server.connect()
    connection.request("POST", CHAT, dict(endless, messages=hello, max_tokens=900, stream=True, stream_options={"include_usage": True}))
    connection.head()
    events, thought, said, asked, usage = connection.events(), "", "", None, None
    for event in events:
        if event == "[DONE]" or event.startswith(":"):
            continue
        event = json.loads(event)
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        usage = event.get("usage") or usage
        thought, said = thought + delta.get("reasoning_content", ""), said + (delta.get("content") or "")
        if thought and asked is None:
            asked = server.post(CHAT + "/control", {"id": event["id"], "action": "reasoning_end"}).json
    connection.close()
    check("a client ends reasoning", asked == {"success": True} and said == "Danube" and usage["completion_tokens"] < 900, asked, said, usage)
    # What was thought goes back.
    back = [*hello, {"role": "assistant", "reasoning_content": SAID, "content": "Danube"}, *hello]
    wanted = len(server.post("/apply-template", {"messages": back, "chat_template_kwargs": {"enable_thinking": False}}).json["tokens"])
    reply = server.post(MESSAGES + "/count_tokens", {"messages": [*hello, {"role": "assistant", "content": blocks}, *hello]})
    check("messages: it goes back", reply.json == {"input_tokens": wanted}, reply.body, wanted)
    wanted = len(server.post("/apply-template", {"messages": back}).json["tokens"])
    reply = server.post(RESPONSES + "/input_tokens", {"input": [*hello, *whole["output"], *hello]})
    check("responses: it goes back", reply.json["input_tokens"] == wanted, reply.body, wanted)
    check("it ends with 0", server.stop() == 0)
finish()
