"""Images and sounds on the command line, on small random models (scripts/tiny_gguf.py, tiny_mmproj.py): run, chat and stream."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, environment, finish  # noqa: E402
from media import image_part, need_projectors, png, sound_part, text_part, wav  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
SCRIPTS = os.path.join(os.environ.get("WEIR_SOURCE_DIR", "."), "scripts")


def weir(*words, stdin=b""):
    return subprocess.run([WEIR, *words], input=stdin, capture_output=True, env=environment(), timeout=300)


def fails(name, done, code, *parts):
    message = done.stderr.decode()
    check(name, done.returncode == code and all(part in message for part in parts), done.returncode, message)


with tempfile.TemporaryDirectory() as folder:
    def path(name):
        return os.path.join(folder, name)

    def write(name, data):
        with open(path(name), "wb") as file:
            file.write(data)
        return path(name)

    for script, kind in (("tiny_gguf.py", "swa"), ("tiny_gguf.py", "llama"), ("tiny_mmproj.py", "gemma3"), ("tiny_mmproj.py", "ultravox")):
        subprocess.run([sys.executable, os.path.join(SCRIPTS, script), kind, path(kind + ".gguf")], check=True)
    need_projectors(WEIR, path("swa.gguf"), path("gemma3.gguf"))
    template = write("template.jinja", b"{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")
    image, other, sound = write("image.png", png()), write("other.png", png(seed=1)), write("sound.wav", wav())
    SEES = ("-m", path("swa.gguf"), "--mmproj", path("gemma3.gguf"), "--chat-template-file", template, "-c", "1024", "-n", "4", "--temp", "0")
    HEARS = ("-m", path("llama.gguf"), "--mmproj", path("ultravox.gguf"), "--chat-template-file", template, "-c", "1024", "-n", "4", "--temp", "0")

    said = weir("info", *SEES[:4], "-c", "1024").stdout.decode()
    sees = json.loads(weir("info", *SEES[:4], "-c", "1024", "--json").stdout)["model"]
    check("info: a model that sees", "reads           texts and images\n                an image of 256 × 256 pixels takes" in said, said)
    check("info: how many tokens images take", [(i["width"], i["height"]) for i in sees["images"]] == [(256, 256), (1024, 1024), (1920, 1080)] and
          all(i["tokens"] > 0 and f"{i['width']} × {i['height']} pixels takes {i['tokens']} tokens\n" in said for i in sees["images"]) and not sees["sounds"], sees, said)
    small = weir("info", *SEES[:4], "-c", "1024", "-ub", "2", "-b", "2", "-np", "1")
    check("info: why none of an image is read", "pixels is refused: " in small.stdout.decode() and "n_ubatch" in small.stdout.decode(), small)
    hears = json.loads(weir("info", *HEARS[:4], "-c", "1024", "--json").stdout)["model"]
    check("info: a model that hears", (hears["reads_images"], hears["reads_sounds"], hears["sample_rate"]) == (False, True, 16000), hears)
    check("info: how many tokens sounds take", [s["seconds"] for s in hears["sounds"]] == [1, 30] and all(s["tokens"] > 0 for s in hears["sounds"]), hears)

    # ---- What is refused

    fails("no projector", weir("run", "-m", "fake:", "--image", image, "Hi"), 2, "reads no images", "--mmproj FILE")
    fails("no projector for sounds", weir("run", "-m", "fake:", "--audio", sound, "Hi"), 2, "reads no sounds")
    fails("a model that only hears", weir("run", *HEARS, "--image", image, "Hi"), 2, "reads no images")
    fails("no such file", weir("run", *SEES, "--image", path("none.png"), "Hi"), 1, "cannot read an image", "none.png")
    fails("no image", weir("run", *SEES, "--image", template, "Hi"), 1, "cannot read the image", "none of these")
    fails("cut off", weir("run", *SEES, "--image", write("cut.png", png()[:200]), "Hi"), 1, "cut.png", "damaged")
    fails("a sound as an image", weir("run", *SEES, "--image", sound, "Hi"), 2, "not an image but a sound")
    fails("an image as a sound", weir("run", *HEARS, "--audio", image, "Hi"), 2, "not an audio file but an image")
    fails("stdin twice", weir("run", *SEES, "--image", "-", "--image", "-", "Hi"), 2, "stdin can be read only once")
    fails("stdin for both", weir("run", *SEES, "--image", "-", "-p", "-"), 2, "stdin can be read only once")
    fails("a projector of another model", weir("run", "-m", path("llama.gguf"), "--mmproj", path("swa.gguf"), "Hi"), 3, "--mmproj")

    def stream(*parts):
        return weir("stream", "-", *SEES, "--json", stdin=json.dumps({"requests": [{"messages": [{"role": "user", "content": list(parts)}]}]}).encode())

    fails("stream: no path", stream({"type": "image"}), 2, "requests[0].messages[0].content[0]", '"path"')
    fails("stream: no such file", stream({"type": "image", "path": path("none.png")}), 1, "none.png")
    fails("stream: a remote image", stream(text_part("a"), {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}), 2, "content[1]", "data: URL")
    fails("stream: bad base64", stream({"type": "image_url", "image_url": {"url": "data:image/png;base64,*"}}), 2, "not base64")
    fails("stream: a sound", stream(sound_part(wav())), 2, "reads no sounds")
    fails("stream: another part", stream({"type": "video"}), 4, "video")
    fails("chat: a model that sees nothing", weir("chat", "-m", "fake:", stdin=b"/image x.png\n"), 2, "reads no images")
    fails("chat: no such file", weir("chat", *SEES, stdin=f"/image {path('none.png')}\n".encode()), 1, "none.png")

    # ---- Answers

    def run(*words, stdin=b"", model=SEES):
        """The random models say the same of all; how likely that was differs."""
        done = weir("run", *model, *words, "--json", "-n", "12", "--logprobs", "0", stdin=stdin)
        return json.loads(done.stdout) if done.returncode == 0 else {"text": done.stderr.decode(), "usage": {}}

    first, second = run("--image", image, "What?"), run("--image", other, "What?")
    tokens = first["usage"].get("image_tokens", 0)
    check("info: as many as a request counts", tokens == sees["images"][0]["tokens"], tokens, sees)
    check("run: an image", tokens > 0 and first["usage"]["prompt_tokens"] > tokens, first)
    check("run: another image, another answer", first["logprobs"] != second["logprobs"], first, second)
    check("run: from stdin", run("--image", "-", "What?", stdin=png())["logprobs"] == first["logprobs"])
    check("run: two", run("--image", image, "--image", other, "What?")["usage"].get("image_tokens") == 2 * tokens)
    check("run: --raw", run("--raw", "--image", image, "What?")["usage"].get("image_tokens") == tokens)
    check("run: a sound", run("--audio", sound, "What?", model=HEARS)["usage"].get("audio_tokens", 0) > 0)
    lines = [json.loads(line) for line in weir("stream", "-", *SEES, "-n", "12", "--logprobs", "0", "--json", stdin=json.dumps({"requests": [
        {"messages": [{"role": "user", "content": [{"type": "image", "path": image}, text_part("What?")]}]},
        {"messages": [{"role": "user", "content": [image_part(png()), text_part("What?")]}]}, {"prompt": "A text"}]}).encode()).stdout.splitlines()]
    usages = {line["request"]: line["usage"] for line in lines if "usage" in line}
    scores = [[entry for line in lines if line["request"] == k for entry in line.get("logprobs", [])] for k in range(2)]
    check("stream: files and data: URLs beside a text", [usages.get(k, {}).get("image_tokens", 0) for k in range(3)] == [tokens, tokens, 0], usages)
    check("stream: the same answers as run", scores == [first["logprobs"]] * 2, scores, first)
    example = os.path.join(os.environ.get("WEIR_BUILD_DIR", ""), "examples", "image")
    if os.path.exists(example):
        ask = lambda content: subprocess.run([example, path("swa.gguf"), path("gemma3.gguf")], input=content, capture_output=True)
        done = ask(png())
        check("examples/image.c", done.returncode == 0 and done.stdout and not done.stderr, done)
        done = ask(png()[:-20])
        check("examples/image.c: an image that is cut off", done.returncode == 1 and not done.stdout and done.stderr.startswith(b"the PNG is damaged"), done)

    # ---- What is saved is loaded

    saved = path("saved.json")
    done = weir("chat", *SEES, stdin=f"/image {image}\nWhat?\nAnd now?\n/image {other}\n/image {image}\nWhich?\n/save {saved}\n".encode())
    check("chat: images in the conversation", done.returncode == 0, done.stderr)
    with open(saved) as file:
        messages = json.load(file)["messages"]
    check("chat: they are saved with their paths", [m["content"] for m in messages if m["role"] == "user"] ==
          [[{"type": "image", "path": image}, text_part("What?")], "And now?", [{"type": "image", "path": other}, {"type": "image", "path": image}, text_part("Which?")]], messages)
    again = path("again.json")
    done = weir("chat", *SEES, stdin=f"/load {saved}\n/save {again}\n/undo\n/save {path('undone.json')}\n/clear\nHi\n/save {path('clear.json')}\n".encode())
    check("chat: and loaded", done.returncode == 0 and open(saved).read() == open(again).read(), done.stderr)
    check("chat: /undo forgets those of its message", json.load(open(path("undone.json")))["messages"] == messages[:4])
    check("chat: /clear all", json.load(open(path("clear.json")))["messages"][0]["content"] == "Hi")
    write("lost.json", json.dumps({"messages": [{"role": "user", "content": [{"type": "image", "path": path("none.png")}, text_part("a")]}, {"role": "assistant", "content": "b"}]}).encode())
    fails("chat: an image that is gone", weir("chat", *SEES, stdin=f"/load {path('lost.json')}\n".encode()), 2, "none.png", "cannot load", "an image or a sound")

finish()
