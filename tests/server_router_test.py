"""What routers ask weir serve for, on the fake model: the tokens of a prompt, gauges of load, vLLM's names for them."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from program import expect, weir  # noqa: E402
from serve import STRICT, Server, need_server  # noqa: E402

WEIR = os.path.abspath(os.environ["WEIR_BIN"])
TEXT, CHAT = "/v1/completions/render", "/v1/chat/completions/render"
scratch = tempfile.TemporaryDirectory()
HELLO = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}


def ids(server, text, special=True):
    return server.post("/tokenize", {"content": text, "add_special": special}).json["tokens"]


def test_render():
    need_server(WEIR)
    with Server(WEIR, "-c", "512") as server:
        reply = server.post(TEXT, {"prompt": ["one", "two <|im_end|>", [5, 6, 7]], "max_tokens": 3, "temperature": 0.5})
        check("tokens of each prompt", reply.json == [{"token_ids": ids(server, "one")}, {"token_ids": ids(server, "two <|im_end|>")}, {"token_ids": [5, 6, 7]}], reply.body)
        check("of one", server.post(TEXT, {"prompt": "one"}).json == [{"token_ids": ids(server, "one")}])
        reply = server.post(CHAT, {**HELLO, "max_tokens": 2})
        rendered = server.post("/apply-template", HELLO).json["prompt"]
        check("of a chat: those of its prompt", reply.json == {"token_ids": ids(server, rendered)}, reply.body)
        usage = server.post("/v1/chat/completions", {**HELLO, "max_tokens": 2}).json["usage"]
        check("as many as are computed", len(reply.json["token_ids"]) == usage["prompt_tokens"], usage)
        again = server.post("/v1/completions", {"prompt": reply.json["token_ids"], "max_tokens": 1}).json["usage"]
        check("and the same", again["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1, again)
        for path, body, field in ((TEXT, {"prompt": 5}, "prompt"), (TEXT, {}, "prompt"), (CHAT, {}, "messages"), (TEXT, {"prompt": [-1]}, "prompt"),
                                  (CHAT, {**HELLO, "nonsense": 1}, "nonsense"), (TEXT, {"fork": {"id": "cmpl-x", "at": 1}}, "fork"),
                                  (TEXT, {"prompt": "x", "suffix": "y"}, "suffix")):
            reply = server.post(path, body, headers=STRICT)
            check(f"refused: {body}", reply.status == 400 and reply.error["param"] == field, reply.body)
        check("nothing else was computed", server.metrics()["weir_submitted_total"] == 2)


def test_fields_that_gateways_add():
    with Server(WEIR, "-c", "512") as server:
        more = {"no_stop_trim": False, "skip_special_tokens": True, "return_hidden_states": False, "ignore_eos": False}
        chat = {**more, "continue_final_message": False, "separate_reasoning": True, "stream_reasoning": True, "logprobs": False}
        check("in chats", server.post("/v1/chat/completions", {**HELLO, **chat, "max_completion_tokens": 2}).status == 200)
        check("in completions", server.post("/v1/completions", {"prompt": "x", **more, "max_tokens": 2}).status == 200)
        for field in ("skip_special_tokens", "return_hidden_states", "separate_reasoning", "stream_reasoning"):
            reply = server.post("/v1/chat/completions", {**HELLO, field: not chat[field]}, headers=STRICT)
            check(f"not another {field}", reply.status == 400 and reply.error["param"] == field, reply.body)


def test_load():
    with Server(WEIR, "-np", "2", "-c", "256", "--metrics-vllm", "--alias", 'a "model"') as server:
        server.post("/v1/completions", {"prompt": "x" * 40, "max_tokens": 8, "ignore_eos": True})
        server.post("/v1/completions", {"prompt": "x" * 40, "max_tokens": 8, "ignore_eos": True})
        got = server.metrics()
        label = '{model_name="a \\"model\\""}'
        check("nothing runs", got["weir_requests_running"] == 0 and got["weir_kv_usage_ratio"] == 0, got)
        blocks = got['weir_cache_config_info{block_size="16",num_gpu_blocks="%d"}' % (got["weir_kv_cells"] // 16)]
        check("blocks", blocks == 1)
        for name, own in (("num_requests_running", "requests_running"), ("num_requests_waiting", "queue_depth"), ("kv_cache_usage_perc", "kv_usage_ratio"),
                          ("gpu_cache_usage_perc", "kv_usage_ratio"), ("prefix_cache_hits_total", "cached_tokens_total"), ("gpu_prefix_cache_hits_total", "cached_tokens_total")):
            check(f"vllm:{name}", got[f"vllm:{name}{label}"] == got[f"weir_{own}"], got)
        queries = got["weir_prompt_tokens_total"] + got["weir_cached_tokens_total"]
        check("queries and their rate", got[f"vllm:prefix_cache_queries_total{label}"] == queries and got["weir_cached_tokens_total"] > 0 and
              abs(got[f"vllm:gpu_prefix_cache_hit_rate{label}"] - got["weir_cached_tokens_total"] / queries) < 1e-9, got)
    with Server(WEIR, "-np", "2", "-c", "256") as server:
        check("only when asked for", not [name for name in server.metrics() if name.startswith("vllm:")])
    with Server(WEIR, "-np", "2", "-c", "256", model="fake:tick_us=20000") as server:
        one = server.connect()
        one.request("POST", "/v1/completions", {"prompt": "x" * 30, "max_tokens": 200, "ignore_eos": True, "stream": True})
        server.wait_for(lambda got: got["weir_slots_generating"] == 1)
        got = server.metrics()
        check("one runs, in cells that are not only cached", got["weir_requests_running"] == 1 and 0 < got["weir_kv_usage_ratio"] < 1, got)
        one.close()


def uses(server, prefix, running, waiting):
    """Waits until the metrics tell these adapters."""
    name = f'{prefix}lora_requests_info{{max_lora="64",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"}}'
    got = server.wait_for(lambda metrics: name in metrics)
    check(f"{prefix}: running {running!r}, waiting {waiting!r}", abs(got.get(name, 0) - time.time()) < 3600, [key for key in got if "lora" in key])


def test_adapters():
    def ask(adapter):
        connection = server.connect()
        connection.request("POST", "/v1/completions", {"prompt": "x" * 30, "model": adapter, "max_tokens": 10000, "ignore_eos": True, "stream": True})
        return connection

    with Server(WEIR, "-np", "2", "-c", "16384", "--metrics-vllm", "--lora", "fake:1=0", "--lora", "fake:2=0", "--lora", "fake:3=0",
                model="fake:tick_us=20000,n_ctx_train=100000") as server:
        uses(server, "weir_", "", "")
        one = ask("fake:1")
        uses(server, "weir_", "fake:1", "")
        two = ask("fake:2")
        uses(server, "vllm:", "fake:1,fake:2", "")
        three, plain = ask("fake:3"), ask(None)
        uses(server, "weir_", "fake:1,fake:2", "fake:3")
        uses(server, "vllm:", "fake:1,fake:2", "fake:3")
        for connection in (plain, one, three):
            connection.close()
        uses(server, "weir_", "fake:2", "")
        two.close()
        uses(server, "vllm:", "", "")
    with Server(WEIR, "--metrics-vllm") as server:
        check("without adapters nothing is told of them", not [name for name in server.metrics() if "lora" in name])


def test_options_without_effect():
    ipc = f"ipc://{scratch.name}/kv"
    for words, *parts in ((("--kv-events-replay", ipc), "--kv-events-replay", "give --kv-events"),
                          (("--kv-events-endpoint", "10.0.0.1:8080"), "--kv-events-endpoint", "give --kv-events"),
                          (("--objective", "a=1"), "--objective", "give --router-headers"),
                          (("--kv-events", ipc, "--cache-sequences", "0"), "--kv-events", "--cache-sequences 0")):
        expect(f"refused: {words[0]}", weir("serve", "-m", "fake:", "--port", "0", *words), 2, *parts)
    for endpoint in ("abc", ":80", "host:", "host:0", "host:65536", "host:8x", "http://host:80", "a@b:80"):
        expect(f"no endpoint: {endpoint}", weir("serve", "-m", "fake:", "--port", "0", "--kv-events", ipc, "--kv-events-endpoint", endpoint), 2,
               "--kv-events-endpoint", "HOST:PORT")


def test_said_at_the_start():
    done = weir("serve", "-m", "fake:", "--port", "0", "--kv-events", "foo")
    expect("an address is refused before anything is said to be published", done, 2, "--kv-events", '"foo" is not an address')
    check("and nothing else is said", "published" not in done.stderr, done.stderr)
    for words, said in (((), "prompts without cache_salt are published at"), (("--api-key", "k"), "no prompts are published at")):
        with Server(WEIR, "--kv-events", f"ipc://{scratch.name}/kv", *words) as server:
            line = server.log(lambda e: e.get("event") == "kv_events")
            check(f"what is published is said: {words}", line and line["message"].startswith(said), line)


run_tests(globals())
