"""--chat-template NAME: prompts as the makers of the models document them. The expected texts are written by hand."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, run_tests  # noqa: E402
from program import MODEL, WEIR, expect, run, weir  # noqa: E402
from serve import Server, need_server  # noqa: E402

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}]
EXPECTED = {
    "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral-v7": "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]",
    "phi3": "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n",
    "phi4": "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>A<|im_end|>"
            "<|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>",
    "vicuna": "S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:",
    "zephyr": "<|system|>\nS<|endoftext|>\n<|user|>\nU<|endoftext|>\n<|assistant|>\nA<|endoftext|>\n<|user|>\nV<|endoftext|>\n<|assistant|>\n",
}


def test_words():
    expect("a name that is none lists the others", run("-p", "x", "--chat-template", "chatlm"), 2, *EXPECTED)
    check("help has the names", all(name in weir("run", "--help-all").stdout for name in EXPECTED))
    check("Tab completes them", {line.split("\t")[0] for line in weir("__complete", "run", "--chat-template", "").stdout.splitlines()} == set(EXPECTED))


def test_prompts():
    need_server(WEIR)
    if "has no llama.cpp" in run("-p", "x", "-n", "1", "--chat-template", "chatml").stderr:
        print("note: this weir was built without llama.cpp, which renders templates")
        return
    for name, expected in EXPECTED.items():
        with Server(WEIR, "--chat-template", name, model=MODEL) as server:
            reply = server.post("/apply-template", {"messages": MESSAGES})
            check(f"{name}: as documented", reply.status == 200 and reply.json["prompt"] == expected, reply.body)


if __name__ == "__main__":
    run_tests(globals())
