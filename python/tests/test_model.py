"""Models, chats, embeddings, images and sounds, and the package itself."""

# SPDX-License-Identifier: Apache-2.0
import importlib.metadata
import io
import logging
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import wave
import zlib

import numpy
import weir
from support import PROGRAM, run


def png(width, height):
    """An image whose pixel (x, y) is (x, y, 7)."""

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (x, y, 7)) for y in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + part(b"IDAT", zlib.compress(rows))
        + part(b"IEND", b"")
    )


def wav(samples):
    out = io.BytesIO()
    with wave.open(out, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(16000)
        f.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return out.getvalue()


class Models(unittest.TestCase):
    model = weir.Model("fake:n_ctx_train=512")

    def test_tokens(self):
        for text in ("", "a", "Grüße 🌍", "a\0b", "x" * 5000):
            tokens = self.model.tokenize(text, add_special=False)
            self.assertEqual(tokens, list(text.encode()))  # the fake's tokens are bytes
            self.assertEqual(self.model.detokenize(tokens), text)
        self.assertEqual(self.model.detokenize(numpy.array(list(b"abc"), dtype=numpy.int32)), "abc")
        self.assertEqual(self.model.detokenize(numpy.array(list(b"abc"), dtype=numpy.int64)), "abc")
        self.assertEqual(self.model.piece(97), b"a")
        self.assertEqual(self.model.piece(0xC3), b"\xc3")
        self.assertTrue(self.model.ends(self.model.info["token_eos"]))
        self.assertFalse(self.model.ends(97))
        self.assertEqual(len(self.model.tokenize("<|im_end|>", add_special=False)), 1)
        self.assertEqual(len(self.model.tokenize("<|im_end|>", add_special=False, parse_special=False)), 10)

    def test_arrays_are_not_copied(self):
        from weir import _core

        array = numpy.array([97, 98], dtype=numpy.int32)
        ids = _core.ints("tokens", array)
        array[0] = 99
        self.assertEqual((ids[0], len(ids)), (99, 2))

    def test_info_and_closing(self):
        with weir.Model("fake:n_ctx_train=99") as model:
            self.assertEqual((model.info["n_ctx_train"], model.info["backend"]), (99, "fake"))
            engine = weir.Engine(model)
        self.assertTrue(model.closed)
        with self.assertRaises(weir.StoppedError):
            model.info  # noqa: B018
        self.assertEqual(engine.generate("a", max_tokens=2, ignore_eos=True).reason, "length")

    def test_progress_and_what_it_raises(self):
        seen = []
        weir.Model("fake:load_us=2000", progress=seen.append)
        with self.assertRaises(ZeroDivisionError):
            weir.Model("fake:load_us=2000", progress=lambda _: 1 // 0)
        with self.assertRaises(weir.Error) as caught:
            weir.Model("fake:load_us=2000", progress=lambda _: False)
        self.assertEqual(caught.exception.code, "cancelled")
        self.assertEqual(seen[-1:], [1.0])

    def test_chats(self):
        chat = weir.Chat(self.model, [{"role": "user", "content": "a"}, {"role": "user", "content": ["b", {"type": "text", "text": "c"}]}])
        self.assertIn("<|im_start|>user\n", chat.prompt)
        self.assertEqual(self.model.detokenize(chat.tokens, special=True).removeprefix("<s>"), chat.prompt)
        self.assertEqual(chat.parse("hello"), {"role": "assistant", "content": "hello"})
        parser = chat.parser()
        with self.assertRaises(weir.WrongTypeError):
            parser.feed(5)
        self.assertEqual("".join(parser.feed(c).text for c in "a🌍b") + parser.feed("", True).text, "a🌍b")
        template = weir.Chat(
            self.model, [{"role": "user", "content": "a"}], template="{{ x }}|{{ n }}", template_args={"x": "1", "n": [1, 2]}
        )
        self.assertEqual(template.prompt.replace(" ", ""), "1|[1,2]") if weir.backend_version != "none" else None

    def test_adapters(self):
        engine = weir.Engine(self.model, n_ctx=256)
        adapter = weir.Adapter(self.model, "fake:1")
        plain, other = (engine.generate("abc", temp=0, max_tokens=20, adapters=a).text for a in ([], [adapter]))
        self.assertNotEqual(plain, other)
        self.assertEqual(engine.generate("abc", temp=0, max_tokens=20, adapters=[(adapter, 1.0)]).text, other)
        self.assertEqual(adapter.info["path"], "fake:1")

    def test_embeddings(self):
        with weir.Embedder(self.model) as embedder:
            texts = [f"text {i}" for i in range(150)]
            rows = embedder.embed(texts)
            self.assertEqual((rows.shape, rows.dtype), ((150, 16), numpy.float32))
            numpy.testing.assert_allclose(numpy.linalg.norm(rows, axis=1), 1, rtol=1e-5)
            numpy.testing.assert_array_equal(embedder.embed(texts[77]), rows[77])
            numpy.testing.assert_array_equal(embedder.embed([self.model.tokenize(texts[3])])[0], rows[3])
            with self.assertRaises(weir.Error):
                embedder.embed(["x" * 100000])
            for wrong in (3, b"a", ["a", 3]):
                with self.assertRaises(weir.WrongTypeError):
                    embedder.embed(wrong)

    def test_images_and_sounds(self):
        image = weir.Media(png(5, 3)) if self.has_png() else None
        if image:
            self.assertEqual(image.array.shape, (3, 5, 3))
            self.assertEqual(image.array[2, 4].tolist(), [4, 2, 7])
            view = image.array
            self.assertFalse(view.flags.owndata)
            del image
            self.assertEqual(view[1, 1].tolist(), [1, 1, 7])  # the view holds the image
        samples = [int(9000 * math.sin(i / 9)) for i in range(3200)]
        sound = weir.Media(wav(samples))
        self.assertEqual((sound.info["kind"], sound.info["sample_rate"]), ("audio", 16000))
        numpy.testing.assert_allclose(sound.array, numpy.array(samples) / 32768, atol=1e-3)
        model = weir.Model("fake:", projector="fake:")
        engine = weir.Engine(model, n_ctx=256)
        content = ["what is", {"type": "audio", "data": wav(samples)}, {"type": "audio", "media": sound}]
        result = engine.stream(messages=[{"role": "user", "content": content}], max_tokens=4, ignore_eos=True).result()
        self.assertGreater(result.usage["n_audio_tokens"], 0)
        with self.assertRaises(weir.Error):
            weir.Media(b"nothing")

    @staticmethod
    def has_png():
        try:
            weir.Media(png(2, 2))
        except weir.Error as e:
            return e.code != "unsupported"
        return True

    def test_the_log(self):
        with self.assertLogs("weir", logging.DEBUG) as logs:
            weir.log_to(logging.getLogger("weir"))
            weir._core.lib.weir_log_message(2, b"a line")
            weir.log_to(None)
        self.assertIn("WARNING:weir:a line", logs.output)

    def test_a_handler_of_the_log_may_wait_for_the_library(self):
        out = run("""
import logging, threading, weir
line = weir._core.lib.weir_log_message
class Handler(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "first":
            thread = threading.Thread(target=line, args=(2, b"of another thread"))
            thread.start()
            thread.join()
        print(record.getMessage(), flush=True)
        if record.getMessage() == "of another thread":
            done.set()
done = threading.Event()
logger = logging.getLogger("a")
logger.addHandler(Handler())
weir.log_to(logger)
line(2, b"first")
done.wait()
line(2, b"last")
""")
        self.assertEqual(sorted(out.split("\n")), ["", "first", "last", "of another thread"])

    def test_a_child_logs_what_its_parent_set(self):
        out = run("""
import logging, os, sys, weir
logging.basicConfig(stream=sys.stdout, level=logging.INFO)
weir.log_to(logging.getLogger("a"))
pid = os.fork()
weir._core.lib.weir_log_message(2, b"child" if pid == 0 else b"parent")
if pid:
    assert os.waitpid(pid, 0)[1] == 0
""")
        self.assertEqual(sorted(out.split("\n")), ["", "WARNING:a:child", "WARNING:a:parent"])

    def test_ctrl_c_during_a_line_is_not_lost(self):
        out = run("""
import logging, time, weir
from unittest import mock
weir.log_to(logging.getLogger("a"))
try:
    with mock.patch("weir.log.text", side_effect=KeyboardInterrupt):
        weir._core.lib.weir_log_message(2, b"a line")
    while True:
        time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertIn("interrupted", out)


class Package(unittest.TestCase):
    def test_its_notices(self):
        text = (pathlib.Path(weir.__file__).parent / "LICENSES.txt").read_text()
        self.assertIn("Apache License", text)
        self.assertIn("llama.cpp", text) if weir.backend_version != "none" else None
        (mine,) = importlib.metadata.files("weir-llm") and [f for f in importlib.metadata.files("weir-llm") if f.name == "LICENSE"]
        self.assertIn("Apache License", mine.read_text())
        self.assertEqual(importlib.metadata.version("weir-llm"), weir.__version__)

    def test_what_the_import_loads(self):
        out = run("import sys, weir; print(sorted(m for m in ('numpy', 'pydantic', 'tqdm', 'pycparser') if m in sys.modules))")
        self.assertEqual(out.strip(), "[]")

    def test_the_program(self):
        out = subprocess.run([sys.executable, "-m", "weir", "version"], capture_output=True, text=True, check=True).stdout
        self.assertIn(weir.__version__, out)
        self.assertTrue(os.access(PROGRAM, os.X_OK))

    @unittest.skipUnless(shutil.which("cc") and sys.platform == "linux", "no compiler")
    def test_another_version_of_the_library_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "v.c"), os.path.join(folder, "v.so")
            with open(source, "w") as f:
                f.write('const char *weir_version(void) { return "7.8.9"; }\n')
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            out = run("import weir", status=1, LD_PRELOAD=library)
        self.assertIn(f"was built for libweir {weir.__version__}, and the libweir that was loaded is 7.8.9", out)


if __name__ == "__main__":
    unittest.main()
