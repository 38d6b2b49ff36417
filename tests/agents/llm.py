"""The command llm, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import json
import os

from own_program import edit, environment, read  # noqa: F401

TITLE = "llm"
PROGRAM = "bin/llm"
LACKS = {"cut call": "it reads the arguments, and ends with an error", "system message": "a later one changes the first"}
FILES = {".config/io.datasette.llm/extra-openai-models.yaml": json.dumps([  # JSON is YAML
    {"model_id": "local", "model_name": "local", "api_base": "{url}/v1", "supports_tools": True, "vision": True}])}
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "tools.py")


def words(turn, again, prompt, image):
    # Only an answer that is no stream is asked for again.
    more = (["-c", "-a", image, "-s", "From now on be brief."] if turn else ["-s", "You edit files."]) + ["--no-stream"] * (turn == 0 and again > 0)
    return ["-m", "local", "--functions", TOOLS, *more, prompt]
