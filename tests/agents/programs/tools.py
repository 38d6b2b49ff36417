"""The tools of the small agents in Python, and of the command llm."""
# SPDX-License-Identifier: Apache-2.0


def read_file(path: str) -> str:
    """The text of a file."""
    try:
        with open(path) as f:
            return f.read()
    except OSError as error:  # a path that was cut
        return str(error)


def edit_file(path: str, old: str, new: str) -> str:
    """Puts a text in the place of another."""
    text = read_file(path)
    with open(path, "w") as f:
        f.write(text.replace(old, new))
    return "done"
