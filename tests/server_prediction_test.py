"""Predicted outputs: a draft that changes no text, and whose tokens have counts of their own."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.environ["WEIR_BIN"]
need_server(WEIR)
CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 120, "temperature": 0}
COUNTS = ("accepted_prediction_tokens", "rejected_prediction_tokens")

# A pass takes long, and a row in it nothing: drafts pay.
with Server(WEIR, "-np", "1", model="fake:longest=1,tick_us=3000") as server:

    def post(**more):
        reply = server.post(CHAT, dict(ASK, **more))
        assert reply.status == 200, reply.body
        return reply.json["choices"][0]["message"]["content"], reply.json["usage"]

    plain, usage = post(**{"speculative.n_max": 0})
    check("without drafts there are no counts", "completion_tokens_details" not in usage, usage)
    text, usage = post()
    details = usage.get("completion_tokens_details", {})
    check("own drafts are no predictions", text == plain and all(details.get(name, 0) == 0 for name in COUNTS), usage)
    before = server.metrics()["weir_ticks_total"]
    text, usage = post(prediction={"type": "content", "content": plain})
    ticks, details = server.metrics()["weir_ticks_total"] - before, usage["completion_tokens_details"]
    check("a right prediction", text == plain and details[COUNTS[0]] > 40 and details[COUNTS[0]] > 4 * details[COUNTS[1]], usage)
    check("saves passes", ticks < usage["completion_tokens"] / 2, ticks, usage)
    check("and counts apart from own drafts", 0 <= details["accepted_draft_tokens"] <= details["draft_tokens"] and
          details["accepted_draft_tokens"] + details[COUNTS[0]] <= usage["completion_tokens"], usage)
    half = len(plain) // 2
    changed = plain[:half] + " something else " + plain[half + 10:]
    text, usage = post(prediction={"type": "content", "content": [{"type": "text", "text": changed[:30]}, {"type": "text", "text": changed[30:]}]})
    details = usage["completion_tokens_details"]
    check("one with a change", text == plain and details[COUNTS[0]] > 40, usage)
    text, usage = post(prediction={"type": "content", "content": "nothing like it " * 20})
    details = usage.get("completion_tokens_details", {})
    check("a wrong one changes no text", text == plain and details.get(COUNTS[0], 0) == 0, usage)
    text, usage = post(prediction={"type": "content", "content": "x" * 300000})
    check("a longer one than any answer", text == plain, usage)
    check("an empty one", post(prediction={"type": "content", "content": ""})[0] == plain)
    check("of two answers", [c["message"]["content"] for c in server.post(CHAT, dict(ASK, n=2, prediction={"type": "content", "content": plain})).json["choices"]] == [plain] * 2)

with Server(WEIR, "--draft-max", "0", model="fake:longest=1") as server:
    reply = server.post(CHAT, dict(ASK, prediction={"type": "content", "content": plain}))
    check("a server that drafts nothing answers", reply.json["choices"][0]["message"]["content"] == plain and "completion_tokens_details" not in reply.json["usage"], reply.body)

finish()
