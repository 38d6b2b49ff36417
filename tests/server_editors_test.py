"""What llama.vim (a1c8e6e, 2026-01-31) and llama.vscode (v0.0.63) send, field by field as their sources build it, and what of the answers they
read. On the fake model, whose text depends on each token of the prompt."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from program import WEIR  # noqa: E402
from serve import Server, need_server  # noqa: E402

INFILL, CHAT = "/infill", "/v1/chat/completions"
PREFIX, MIDDLE, SUFFIX = "int sum(int *a, int n)\n{\n    int s = 0;\n", "    for (int", "\n    return s;\n}\n"
EXTRA = [{"text": "int max(int *a, int n);\n", "time": 1769817600.25, "filename": "max.h"}, {"text": "#define N 5\n", "time": 1769817601, "filename": "n.h"}]
# s:fim_on_response and s:fim_render
FIM_FIELDS = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second", "timings/predicted_n",
              "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated", "tokens_cached"]
MESSAGES = [{"role": "system", "content": "You are a text-editing assistant."}, {"role": "user", "content": "Make it shorter: int a = 0;"}]

need_server(WEIR)


def vim_fim(**more):
    """llama#fim"""
    return {"id_slot": 0, "input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": EXTRA, "prompt": MIDDLE, "n_predict": 16, "stop": [], "n_indent": 4, "top_k": 40,
            "top_p": 0.90, "samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 250,
            "response_fields": FIM_FIELDS, "model": "", **more}


def vim_ring():
    """s:ring_update"""
    return {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": EXTRA, "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [], "stream": False,
            "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""], "model": ""}


def vim_instruct(slot, streamed):
    """llama#inst, then llama#inst_send; the slot counts the instructions since the start."""
    if not streamed:
        return {"id_slot": slot, "messages": MESSAGES, "samplers": [], "n_predict": 0, "stream": False, "cache_prompt": True, "response_fields": [""], "model": ""}
    return {"id_slot": slot, "messages": MESSAGES, "min_p": 0.1, "temperature": 0.1, "samplers": ["min_p", "temperature"], "stream": True, "cache_prompt": True, "model": ""}


def code_fim(**more):
    """LlamaServer.createRequestPayload"""
    return {"id_slot": 0, "input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": EXTRA, "prompt": MIDDLE, "n_predict": 16, "n_cmpl": 3, "top_k": 40, "top_p": 0.99,
            "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "n_indent": 4, "t_max_prompt_ms": 500, "t_max_predict_ms": 2500, **more}


def code_ring():
    return {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": EXTRA, "prompt": "", "n_predict": 0, "samplers": [], "cache_prompt": True, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 1}


def relaxed(reply):
    return set(filter(None, reply.headers.get("x-weir-relaxed", "").split("; ")))


def test_vim():
    with Server(WEIR, model="fake:fim=1") as server:
        ring = server.post(INFILL, vim_ring())
        check("the other files are computed before", ring.status == 200 and ring.json["content"] == "", ring.status, ring.body)
        reply = server.post(INFILL, vim_fim())
        check("a completion", reply.status == 200 and reply.json["content"] and reply.json["truncated"] is False, reply.status, reply.body)
        check("the other files were there", reply.json["timings"]["cache_n"] > sum(len(chunk["text"]) for chunk in EXTRA), reply.body)
        check("what is not honoured is told", relaxed(reply) == {"n_indent", "samplers: infill", "t_max_prompt_ms", "t_max_predict_ms", "response_fields"}, reply.headers)
        again = server.post(INFILL, vim_fim(prompt=MIDDLE + " ("))
        check("one word later the prompt is there up to the cursor", again.json["tokens_cached"] >= ring.json["tokens_evaluated"], again.body)
        for slot in (0, 1, 7):
            warm = server.post(CHAT, vim_instruct(slot, False))
            check(f"instruction {slot}: computed while it is typed", warm.status == 200 and warm.json["usage"]["completion_tokens"] == 0, warm.status, warm.body)
            check(f"instruction {slot}: what is not honoured is told", relaxed(warm) == ({"id_slot", "response_fields"} if slot else {"response_fields"}), warm.headers)
            events = server.stream(CHAT, vim_instruct(slot, True))
            text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
            check(f"instruction {slot}: streamed", text, events)


def test_vscode():
    with Server(WEIR, model="fake:fim=1") as server:
        ring = server.post(INFILL, code_ring())
        check("the other files are computed before", ring.status == 200, ring.status, ring.body)
        reply = server.post(INFILL, code_fim())
        check("three completions", reply.status == 200 and [type(one["content"]) for one in reply.json] == [str] * 3, reply.status, reply.body)
        check("the other files were there", reply.json[0]["timings"]["cache_n"] > sum(len(chunk["text"]) for chunk in EXTRA), reply.body)
        one = server.post(INFILL, code_fim(n_cmpl=1))
        check("one completion is an object", isinstance(one.json["content"], str), one.body)


def test_no_fim():
    with Server(WEIR) as server:
        for name, body in (("llama.vim", vim_fim()), ("llama.vscode", code_fim())):
            reply = server.post(INFILL, body)
            check(f"{name}: a model that cannot fill in is refused", reply.status == 400 and "cannot fill in the middle" in reply.error["message"], reply.body)


run_tests(globals())
