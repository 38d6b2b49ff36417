"""prompts.py MODEL: answers each line of standard input, as many at a time as the engine has slots. Prints a line of JSON for each, in
the order of the lines. It needs the Python package (docs/guides/python.md)."""

# SPDX-License-Identifier: Apache-2.0
import json
import sys

import weir


def main() -> None:
    lines = (line.rstrip("\n") for line in sys.stdin)
    prompts = ([{"role": "user", "content": line}] for line in lines if line)
    with weir.Engine(sys.argv[1], n_ctx=2048, n_slots=16) as engine:
        for result in engine.map(prompts, max_tokens=256, temp=0, errors="return"):
            answer = {"text": result.text, "reason": result.reason}
            if result.error:
                answer["error"] = result.error.message
            print(json.dumps(answer, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
