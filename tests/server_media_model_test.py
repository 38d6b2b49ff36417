"""weir serve with real projectors on small random models (scripts/tiny_gguf.py, tiny_mmproj.py): an image and a sound reach the answer."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, finish  # noqa: E402
from media import image_part, need_projectors, png, sound_part, text_part, wav  # noqa: E402
from serve import Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
SCRIPTS = os.path.join(os.environ.get("WEIR_SOURCE_DIR", "."), "scripts")
need_server(WEIR)


def ask(server, *parts):
    """The logprobs of the answer, and the prompt's tokens. The random models say the same of all; how likely that was differs."""
    reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 6, "temperature": 0, "logprobs": True})
    if reply.status != 200:
        return reply.body, {}
    return [token["logprob"] for token in reply.json["choices"][0]["logprobs"]["content"]], reply.json["usage"]["prompt_tokens_details"]


with tempfile.TemporaryDirectory() as folder:
    template = os.path.join(folder, "template")  # behind the model's own the tiny gemma3 is certain of all that it says
    with open(template, "w") as file:
        file.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")
    for model, projector, parts, kind in (("swa", "gemma3", [image_part(png()), image_part(png(seed=1))], "image"), ("qwen", "qwen", [image_part(png(112, 84)), image_part(png(112, 84, seed=1))], "image"),
                                          ("llama", "ultravox", [sound_part(wav()), sound_part(wav(hertz=1000))], "audio")):
        paths = [os.path.join(folder, f"{projector}-{script}") for script in ("tiny_gguf.py", "tiny_mmproj.py")]
        for script, name, path in (("tiny_gguf.py", model, paths[0]), ("tiny_mmproj.py", projector, paths[1])):
            subprocess.run([sys.executable, os.path.join(SCRIPTS, script), name, path], check=True)
        need_projectors(WEIR, *paths)
        server = Server(WEIR, "--mmproj", paths[1], "--chat-template-file", template, "-np", "2", "-c", "4096", model=paths[0])
        first, details = ask(server, parts[0], text_part("What?"))
        check(f"{projector}: an answer", details.get(kind + "_tokens", 0) >= 4 and isinstance(first, list), first, details)
        check(f"{projector}: another file, another answer", ask(server, parts[1], text_part("What?"))[0] != first)
        again, details = ask(server, parts[0], text_part("What?"))
        check(f"{projector}: the same from the cache", again == first and details.get("cached_tokens", 0) >= details.get(kind + "_tokens", 1), first, again, details)
        server.stop()

finish()
