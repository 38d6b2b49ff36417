"""weir serve for llama-server's own clients, on the fake model: /completion and /props, compared with /v1/completions for the same request."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check  # noqa: E402
from parts import end, part, run_parts  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
ASK = {"prompt": "one", "temperature": 0}


def events(server, body):
    connection = server.connect()
    connection.request("POST", "/completion", dict(body, stream=True))
    status, _ = connection.head()
    told = [e for e in connection.events() if not e.startswith(":")]
    connection.close()
    return status, told


@part
def completion():
    server = Server(WEIR, "-np", "4", "--alias", "tiny")
    other = server.post("/v1/completions", dict(ASK, max_tokens=6)).json
    text, usage = other["choices"][0]["text"], other["usage"]
    reply = server.post("/completion", dict(ASK, n_predict=6))
    one = reply.json
    check("a whole answer: an object of its own", reply.status == 200 and one["content"] == text and one["stop"] is True and one["index"] == 0 and one["model"] == "tiny" and
          one["stop_type"] == "limit" and one["truncated"] is False and one["tokens_predicted"] == 6 and one["tokens_evaluated"] == usage["prompt_tokens"] and
          "choices" not in one and "id" not in one, reply.body)
    long = dict(ASK, prompt="one two three four five six seven eight nine ten", n_predict=6)
    server.post("/completion", long)
    one = server.post("/completion", long).json
    timings = one["timings"]
    check("timings add up", timings["predicted_n"] == 6 and timings["cache_n"] == one["tokens_cached"] and timings["cache_n"] + timings["prompt_n"] == one["tokens_evaluated"] and
          timings["cache_n"] > 0 and all(timings[f"{k}_{w}"] >= 0 for k in ("prompt", "predicted") for w in ("ms", "per_token_ms", "per_second")), timings)
    none = server.post("/completion", dict(ASK, n_predict=0)).json
    check("no token, no time for any", none["tokens_predicted"] == 0 and none["timings"]["predicted_ms"] == 0 and none["timings"]["prompt_ms"] == 0, none)
    status, told = events(server, dict(ASK, n_predict=6))
    parts = [json.loads(e) for e in told]
    check("a stream: objects, and no [DONE]", status == 200 and "".join(p["content"] for p in parts) == text and [p["stop"] for p in parts] == [False] * (len(parts) - 1) + [True], told)
    counts = [p["tokens_predicted"] for p in parts]
    check("that count on", counts == sorted(counts) and counts[-1] == 6 and parts[-1]["stop_type"] == "limit" and "timings" in parts[-1] and "timings" not in parts[0], parts)
    reply = server.post("/completion", dict(ASK, n_predict=40, stop=[text[1:3]])).json
    check("stopped by a word", reply["content"] == text[:1] and reply["stop_type"] == "word", reply)
    many = server.post("/completion", dict(ASK, prompt=["one", "two"], n_predict=4)).json
    check("several prompts: an array", [m["index"] for m in many] == [0, 1] and many[0]["content"] == server.post("/completion", dict(ASK, n_predict=4)).json["content"], many)
    several = server.post("/completion", dict(ASK, n_predict=4, temperature=1, seed=3, n_cmpl=3)).json
    twice = server.post("/completion", dict(ASK, n_predict=4, n=2, n_cmpl=3))
    check("n and n_cmpl differ", twice.status == 400 and twice.error["param"] == "n_cmpl", twice.body)
    check("n_cmpl", [m["index"] for m in several] == [0, 1, 2] and len({m["content"] for m in several}) == 3, several)
    ids = server.post("/tokenize", {"content": "one", "add_special": True}).json["tokens"]
    check("by token ids", server.post("/completion", dict(ASK, prompt=ids, n_predict=6)).json["content"] == text)
    status, told = events(server, dict(ASK, prompt=["one", "two"], n_predict=3))
    ends = sorted(json.loads(e)["index"] for e in told if json.loads(e)["stop"])
    check("several prompts, streamed", status == 200 and ends == [0, 1], told)
    idle = {"n_probs": 0, "id_slot": -1, "n_keep": 0, "return_tokens": False, "timings_per_token": False, "post_sampling_probs": False, "t_max_predict_ms": 0, "n_indent": 0,
            "n_cache_reuse": 0, "return_progress": False, "cache_prompt": True}
    check("what asks for nothing", server.post("/completion", dict(ASK, n_predict=6, **idle)).json["content"] == text)
    for name, value in (("n_probs", 3), ("id_slot", 1), ("return_tokens", True), ("t_max_predict_ms", 5), ("n_keep", 7), ("logprobs", 1), ("prompt_logprobs", 0), ("echo", True), ("messages", [])):
        reply = server.post("/completion", dict(ASK, **{name: value}), headers=STRICT)
        check(f"{name}: refused by its name", reply.status == 400 and reply.error["param"] == name, reply.body)
        if name in idle:
            reply = server.post("/v1/completions", dict(ASK, **{name: idle[name]}), headers=STRICT)
            check(f"{name}: none of OpenAI's", reply.status == 400 and reply.error["code"] == "unknown_parameter", reply.body)
    check("/completions is OpenAI's, as base_url without /v1 has it", server.post("/completions", dict(ASK, max_tokens=6)).json["choices"][0]["text"] == text)
    end(server)


with open(os.path.join(os.environ["WEIR_SOURCE_DIR"], "src", "params", "tables.c")) as f:
    # the rows of a sampler that are numbers or flags
    SAMPLER = re.findall(r"^    (?:NUMBER|OR_OFF|FLAG)\(", re.search(r"weir_member sampler\[\] = \{(.*?)\n\};", f.read(), re.S).group(1), re.M)


@part
def props():
    server = Server(WEIR, "-np", "3", "-c", "777", "--alias", "tiny", "--temp", "0.25", "--top-k", "9", "--max-tokens", "55", "--api-key", "k")
    check("props need a key", server.get("/props").status == 401)
    told = server.get("/props", key="k").json
    settings = told["default_generation_settings"]
    check("props: the server", told["total_slots"] == 3 and told["model_alias"] == "tiny" and told["modalities"] == {"vision": False, "audio": False} and told["build_info"].startswith("weir-") and
          isinstance(told["chat_template"], str) and isinstance(told["bos_token"], str) and "/" not in told["model_path"], told)
    check("props: what requests do not say", settings["n_ctx"] == 777 and settings["params"]["temperature"] == 0.25 and settings["params"]["top_k"] == 9 and settings["params"]["n_predict"] == 55, settings)
    names = set(settings["params"]) - {"n_predict", "max_tokens"}
    check("props: all that a sampler has", {"seed", "temperature", "repeat_last_n", "adaptive_target", "adaptive_decay", "ignore_eos"} <= names and len(names) == len(SAMPLER) and
          not names & {"temp", "penalty_last_n", "json_schema"}, names)
    reply = server.post("/v1/completions", dict(ASK, max_tokens=1, **{k: v for k, v in settings["params"].items() if k in names and k != "temperature"}), key="k")
    check("props: under the names and in the ranges of requests", reply.status == 200, reply.body)
    numbers = ("--temp", "0.8", "--min-p", "0.0000001", "--top-p", "0.9999999", "--dry-base", "3")
    with Server(WEIR, *numbers) as exact:
        text = exact.get("/props").body.decode()
        check("props: numbers in the shortest form that reads back", all(f"{number}," in text for number in ('"temperature":0.8', '"min_p":1e-07', '"top_p":0.9999999', '"dry_base":3')), text)
    check("props: not to be changed", server.post("/props", {}, key="k").status == 405)
    end(server)


need_server(WEIR)
run_parts()
