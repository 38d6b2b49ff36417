"""mini-swe-agent, by chat completions through LiteLLM. A run is one turn, which a command ends."""
# SPDX-License-Identifier: Apache-2.0
import shlex

PROGRAM = "bin/mini"
TURNS = 1
CUT = 1
FILES = {}


def environment(url):
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "any", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def read(path):
    return "bash", {"command": f"cat {shlex.quote(path)}"}


def edit(path, old, new):
    return "bash", {"command": f"sed -i s/{old}/{new}/ {shlex.quote(path)}"}


def end(answer):
    return "bash", {"command": f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {shlex.quote(answer)}"}


def words(turn, prompt, image, home):
    return ["--model", "openai/local", "--yolo", "--exit-immediately", "--task", prompt]
