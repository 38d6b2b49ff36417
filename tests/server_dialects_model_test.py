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
    server = Server(WEIR, "-np", "1", "-c", "1024", "--chat-template-file", template.name, model=os.environ["WEIR_TEST_MODEL"])
    hello = [{"role": "user", "content": "Name a river."}]

    def n_tokens(**more):
        return len(server.post("/apply-template", dict(messages=hello, return_token_ids=True, **more)).json["tokens"])

    thinks, silent, effort = n_tokens(), n_tokens(reasoning_effort="none", chat_template_kwargs={}), n_tokens(reasoning_effort="low")
    check("the template distinguishes them", len({thinks, silent, effort}) == 3, thinks, silent, effort)
    bare = len(server.post("/apply-template", {"messages": hello, "return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}}).json["tokens"])
    for name, more, wanted in [("nothing", {}, bare), ("disabled", {"thinking": {"type": "disabled"}}, bare), ("an unknown type", {"thinking": {"type": "off"}}, bare), ("enabled", {"thinking": {"type": "enabled", "budget_tokens": 2048}}, thinks),
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
    # What was thought goes back.
    back = [*hello, {"role": "assistant", "reasoning_content": SAID, "content": "Danube"}, *hello]
    wanted = len(server.post("/apply-template", {"messages": back, "return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}}).json["tokens"])
    reply = server.post(MESSAGES + "/count_tokens", {"messages": [*hello, {"role": "assistant", "content": blocks}, *hello]})
    check("messages: it goes back", reply.json == {"input_tokens": wanted}, reply.body, wanted)
    wanted = len(server.post("/apply-template", {"messages": back, "return_token_ids": True}).json["tokens"])
    reply = server.post(RESPONSES + "/input_tokens", {"input": [*hello, *whole["output"], *hello]})
    check("responses: it goes back", reply.json["input_tokens"] == wanted, reply.body, wanted)
    check("it ends with 0", server.stop() == 0)

# A prompt that opens the reasoning, which this model would not end by itself: it has as many tokens as its budget, in each dialect, and an answer follows.
OPEN = TEMPLATE.replace("{% endif %}{% endif %}{% if reason", "{% else %}<think>\n{% endif %}{% endif %}{% if False and reason")
with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
    template.write(OPEN)
    template.flush()
    server = Server(WEIR, "-np", "2", "-c", "2048", "--chat-template-file", template.name, "--reasoning-budget", "60,low=9", model=os.environ["WEIR_TEST_MODEL"])

    def of_chat(reply):
        message = reply["choices"][0]["message"]
        return message.get("reasoning_content", ""), message["content"], reply["usage"].get("completion_tokens_details", {}).get("reasoning_tokens", 0)

    def of_messages(reply):
        return "".join(b.get("thinking", "") for b in reply["content"]), "".join(b.get("text", "") for b in reply["content"]), reply["usage"]["output_tokens_details"]["thinking_tokens"]

    def of_responses(reply):
        texts = {i["type"]: i["content"][0]["text"] for i in reply["output"]}
        return texts.get("reasoning", ""), texts["message"], reply["usage"]["output_tokens_details"]["reasoning_tokens"]

    def of_ollama(reply):
        return reply["message"].get("thinking", ""), reply["message"]["content"], reply["reasoning_tokens"]

    ask, greedy = {"messages": hello, "max_tokens": 100, "temperature": 0, "ignore_eos": True}, {"num_predict": 100, "temperature": 0}
    longest = of_chat(server.post(CHAT, dict(ask, reasoning_budget_tokens=90)).json)
    check("the model does not end it", longest[2] == 90 and longest[1] != "", longest)
    cases = [("chat", CHAT, dict(ask, reasoning_budget_tokens=9), of_chat, 9), ("vLLM's name", CHAT, dict(ask, thinking_token_budget=9), of_chat, 9),
             ("an effort", CHAT, dict(ask, reasoning_effort="low"), of_chat, 9), ("another effort", CHAT, dict(ask, reasoning_effort="high"), of_chat, 60),
             ("by the operator", CHAT, ask, of_chat, 60), ("its own before the effort's", CHAT, dict(ask, reasoning_effort="low", reasoning_budget=11), of_chat, 11),
             ("messages", MESSAGES, dict(ask, thinking={"type": "enabled", "budget_tokens": 9}), of_messages, 9),
             ("messages, an effort", MESSAGES, dict(ask, thinking={"type": "adaptive"}, output_config={"effort": "low"}), of_messages, 9),
             ("responses", RESPONSES, {"input": hello, "max_output_tokens": 100, "temperature": 0, "ignore_eos": True, "reasoning_budget_tokens": 9}, of_responses, 9),
             ("responses, an effort", RESPONSES, {"input": hello, "max_output_tokens": 100, "temperature": 0, "ignore_eos": True, "reasoning": {"effort": "low"}}, of_responses, 9),
             ("Ollama's", "/api/chat", {"messages": hello, "think": "low", "stream": False, "options": greedy}, of_ollama, 9),
             ("none", CHAT, dict(ask, reasoning_budget_tokens=0), of_chat, 0)]
    for name, path, body, read, budget in cases:
        reply = server.post(path, body)
        thought, said, n = read(reply.json)
        n_tokens = len(server.post("/tokenize", {"content": thought, "add_special": False}).json["tokens"])
        check(f"a budget: {name}", n == budget and n_tokens == budget and longest[0].startswith(thought) and said != "" and
              "x-weir-relaxed" not in reply.headers, n, n_tokens, reply.body)
    two = server.post(CHAT, dict(ask, n=2, temperature=1, reasoning_budget_tokens=9)).json
    check("each choice has it", two["usage"]["completion_tokens_details"]["reasoning_tokens"] == 18, two)
    # A client ends it.
    connection = server.connect()
    connection.request("POST", CHAT, dict(ask, max_tokens=1500, reasoning_budget_tokens=1400, stream=True, stream_options={"include_usage": True}))
    connection.head()
    thought, said, asked, usage = "", "", None, None
    for event in connection.events():
        if event == "[DONE]" or event.startswith(":"):
            continue
        event = json.loads(event)
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        usage = event.get("usage") or usage
        thought, said = thought + delta.get("reasoning_content", ""), said + (delta.get("content") or "")
        if thought and asked is None:
            asked = server.post(CHAT + "/control", {"id": event["id"], "action": "reasoning_end"}).json
    connection.close()
    n = usage["completion_tokens_details"]["reasoning_tokens"]
    check("a client ends reasoning", asked == {"success": True} and said != "" and 0 < n < 1400, asked, said, usage)
    check("that server ends with 0", server.stop() == 0)
finish()
