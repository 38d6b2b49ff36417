"""mini-swe-agent, by chat completions through LiteLLM. A command ends a turn; both are one run, with a terminal's input."""
# SPDX-License-Identifier: Apache-2.0
import base64
import shlex

TITLE = "mini-swe-agent (`mini`)"
PROGRAM = "bin/mini"
IMAGES = "(?s)<MSWEA_MULTIMODAL_CONTENT><CONTENT_TYPE>(.+?)</CONTENT_TYPE>(.+?)</MSWEA_MULTIMODAL_CONTENT>"  # the one of its documentation
LACKS = {"cut call": "it says what was wrong, and leaves the call out", "system message": "the command takes none"}
FILES = {}


def environment(url):
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "any", "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def read(path):
    return "bash", {"command": f"cat {shlex.quote(path)}"}


def edit(path, old, new):
    return "bash", {"command": f"sed -i s/{old}/{new}/ {shlex.quote(path)}"}


def end(answer):
    return "bash", {"command": f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {shlex.quote(answer)}"}


def words(turn, again, prompt, image):
    with open(image, "rb") as f:
        url = "data:image/png;base64," + base64.b64encode(f.read()).decode()
    shown = f"<MSWEA_MULTIMODAL_CONTENT><CONTENT_TYPE>image_url</CONTENT_TYPE>{url}</MSWEA_MULTIMODAL_CONTENT>"
    return ["--model", "openai/local", "--yolo", "-c", "mini.yaml", "-c", f"model.multimodal_regex={IMAGES}", "--task", f"{prompt} {shown}"]


def typed(prompt):
    """What a user types when it wants to finish: first the next task, then nothing."""
    return prompt + "\n\n"
