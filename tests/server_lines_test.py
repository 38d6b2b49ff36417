"""weir serve, on the fake model: lines that agents put behind tool results and into later messages do not spoil the cached prefix."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
LEFT = "<total_tokens>{} tokens left</total_tokens>"
PAGE = "A page of a manual. " * 30

need_server(WEIR)
server = Server(WEIR, "-np", "1", "-c", "16384", "--max-body", "64M", "--drop-last-line", "Time: #:#, turn #", model="fake:n_ctx_train=16384")


def call(k):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": f"call{k:05}", "function": {"name": "read", "arguments": "{}"}}]}


def result(k, content):
    return {"role": "tool", "tool_call_id": f"call{k:05}", "content": content}


def ask(messages, path=CHAT, **more):
    return server.post(path, {"messages": messages, "max_tokens": 4, "temperature": 0, **more})


def usage(reply):
    details = reply.json["usage"].get("prompt_tokens_details", {})
    return reply.json["usage"]["prompt_tokens"], details.get("cached_tokens", 0), details.get("dropped_lines", 0)


def header(reply):
    return reply.headers.get("x-weir-messages", "")


# ---- An agent's second turn, in which all the lines of the first one have changed

for name, content in [("a line of the text", lambda k, n: PAGE + f"{k}\n" + LEFT.format(n)),
                      ("a line with a newline", lambda k, n: PAGE + f"{k}\n" + LEFT.format(n) + "\n"),
                      ("two, and an empty line", lambda k, n: PAGE + f"{k}\n" + LEFT.format(n) + f"\n\nTime: {n % 24}:00, turn {n}"),
                      ("a part", lambda k, n: [{"type": "text", "text": PAGE + str(k)}, {"type": "text", "text": LEFT.format(n)}])]:
    begin = [{"role": "user", "content": name}]
    first = [*begin, call(0), result(0, content(0, 14999))]
    second = [*begin, call(0), result(0, content(0, 888)), call(1), result(1, content(1, 777))]
    n_first, _, dropped = usage(ask(first))
    reply = ask(second)
    _, cached, dropped_then = usage(reply)
    per = 2 if name.startswith("two") else 1
    check(f"{name}: dropped and told", (dropped, dropped_then) == (per, 2 * per), dropped, dropped_then)
    check(f"{name}: named", header(reply).startswith("messages[2]: dropped_lines; messages[4]: dropped_lines"), header(reply))
    check(f"{name}: the prefix is cached", cached >= n_first - 16, n_first, usage(reply))
    prompt = server.post("/apply-template", {"messages": second}).json["prompt"]
    check(f"{name}: the rest is there", prompt.count(PAGE) == 2 and "tokens left" not in prompt, prompt[-300:])

plain = [{"role": "user", "content": "no rule"}]
n_first, _, _ = usage(ask([*plain, call(0), result(0, PAGE + "\nBudget: 14999"), call(1), result(1, PAGE)]))
n_cached = usage(ask([*plain, call(0), result(0, PAGE + "\nBudget: 888"), call(1), result(1, PAGE)]))[1]
check("a line without a rule spoils what is behind it", n_cached < n_first - len(PAGE) // 2, n_first, n_cached)

# ---- Messages of their own: a system message, and a user's behind a result

for role in ("system", "developer", "user"):
    begin = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PAGE + role}, call(0), result(0, PAGE)]
    n_first, _, _ = usage(ask([*begin, {"role": role, "content": LEFT.format(14999)}]))
    again = [*begin, {"role": role, "content": LEFT.format(1)}, call(1), result(1, "done"), {"role": role, "content": LEFT.format(2)}]
    reply = ask(again)
    check(f"{role}: cached", usage(reply)[1] >= n_first - 16 and usage(reply)[2] == 2, n_first, usage(reply))
    check(f"{role}: named", header(reply).startswith("messages[4]: dropped_lines; messages[7]: dropped_lines"), header(reply))
    bad = ask([*begin, {"role": role, "content": LEFT.format(1)}, {"role": "user", "content": 7}])
    check(f"{role}: errors count the request's own messages", bad.status == 400 and "messages[5]" in bad.body.decode(), bad.body)
    plan = server.post("/v1/plan", {"messages": again}).json
    check(f"{role}: a dry run", plan["dropped_lines"] == 2, plan)
blocks = [{"type": "tool_result", "tool_use_id": "call00000", "content": PAGE + "\n" + LEFT.format(5)}, {"type": "text", "text": LEFT.format(6)}]
turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "call00000", "name": "read", "input": {}}]}, {"role": "user", "content": blocks}]
reply = ask(turns, MESSAGES)
check("Anthropic's blocks", reply.json["usage"].get("dropped_lines") == 2 and header(reply).startswith("messages[2].content[0]: dropped_lines; messages[2]"), reply.body, header(reply))

# ---- What looks similar is text

for name, text in [("words around it", "It says " + LEFT.format(7)), ("words behind it", LEFT.format(7) + " or so"), ("no number", LEFT.format("many")), ("a line in the middle", LEFT.format(7) + "\nmore"),
                   ("a number of another form", LEFT.format("1,000")), ("indented, as a quote", "x\n> " + LEFT.format(7)), ("another tag", "<total_tokens>7 tokens used</total_tokens>"),
                   ("the operator's, with words", "Time: 10:30, turn two"), ("the operator's, cut", "Time: 10:30, turn ")]:
    for role in ("tool", "system", "user"):
        messages = [{"role": "user", "content": "hi"}, call(0), result(0, text if role == "tool" else "ok"), *([{"role": role, "content": text}] if role != "tool" else [])]
        reply = ask(messages)
        prompt = server.post("/apply-template", {"messages": messages}).json["prompt"]
        check(f"{role}, {name}: stays", usage(reply)[2] == 0 and text in prompt and "dropped" not in header(reply), usage(reply), prompt)
said = [{"role": "user", "content": "What is this?\n" + LEFT.format(7)}]
check("what users say stays", usage(ask(said))[2] == 0 and usage(ask([*said, {"role": "assistant", "content": LEFT.format(8)}, *said]))[2] == 0)
check("a result that is nothing else keeps its call", usage(ask([{"role": "user", "content": "hi"}, call(0), result(0, LEFT.format(7))]))[2] == 1)
only = ask([{"role": "system", "content": LEFT.format(7)}])
check("nothing but such a line", only.status == 200, only.body)

# ---- Errors count the request's own messages

lost = [{"role": "user", "content": "hi"}, call(0), result(0, "x"), {"role": "system", "content": LEFT.format(7)}]
reply = ask([*lost, {"role": "bogus", "content": "x"}])
check("a role", reply.status == 400 and reply.error["param"] == "messages[4].role", reply.body)
reply = ask([*lost, {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "place": "mine"}}]}])
check("an image", reply.status == 400 and reply.error["param"].startswith("messages[4].content[1]"), reply.body)

# ---- A report on a line that has no rule yet

salted = {"cache_salt": "a1"}
ask([{"role": "user", "content": "hi"}, call(0), result(0, PAGE + "\nBudget: 17 of 20")], **salted)
reply = ask([{"role": "user", "content": "hi"}, call(0), result(0, PAGE + "\nBudget: 18 of 20")], **salted)
miss = reply.json["usage"]["prompt_tokens_details"].get("miss", {})
check("a line of a result that has no rule yet", miss.get("line", "").startswith("Budget: 1"), miss)

# ---- Bounds: the work grows with the bytes

lines = "\n".join(LEFT.format(k) for k in range(1000))
many = [{"role": "user", "content": "hi"}] + [m for k in range(500) for m in (call(k), result(k, "x\n" + lines))]
reply = server.post("/v1/plan", {"messages": many})
check("a thousand messages with a thousand lines", reply.status == 200 and reply.json["dropped_lines"] == 500000, reply.status, reply.body[:300])
names = header(ask(many[:201])).split("; ")
check("a header of at most 2 KiB, with a mark", len("; ".join(names)) <= 2048 and len(names) > 50 and names[-1] == "and more", names)
names = header(ask(many[:21])).split("; ")
check("no mark where all fit", names[:10] == [f"messages[{k}]: dropped_lines" for k in range(2, 21, 2)] and names[-1] != "and more", names)
server.stop()
finish()
