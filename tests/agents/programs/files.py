"""What the small agents in Python share: PROGRAM PROMPT [IMAGE], and the conversation of the runs before, in ~/history.json."""
# SPDX-License-Identifier: Apache-2.0
import base64
import inspect
import os
import sys

from tools import edit_file, read_file

HISTORY = os.path.expanduser("~/history.json")
PROMPT, IMAGE = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
INSTRUCTIONS = "You edit files."
CUT = "The arguments broke off."  # the result of a call that was cut
LATER = "From now on be brief."  # a system message in the middle of the conversation
TOOLS = {f.__name__: f for f in (read_file, edit_file)}


def function(f):
    """As chat completions describe it."""
    names = list(inspect.signature(f).parameters)
    return {"type": "function", "function": {"name": f.__name__, "description": f.__doc__, "parameters": {
        "type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names, "additionalProperties": False}}}


def picture():
    """The image, as a data URL."""
    with open(IMAGE, "rb") as f:
        return "data:image/png;base64," + base64.b64encode(f.read()).decode()


def before():
    """None: this is the first run."""
    if not os.path.exists(HISTORY):
        return None
    with open(HISTORY) as f:
        return f.read()


def keep(text):
    with open(HISTORY, "w") as f:
        f.write(text)
