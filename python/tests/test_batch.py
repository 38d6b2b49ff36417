"""Answers to the rows of files, also of processes that are killed."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
from types import SimpleNamespace

import weir
from support import PATIENCE, until
from weir._batch import _identity, _Journal

WORK = """
import sys, weir
with weir.Engine("fake:seed=3,eos_every=9,tick_us=2000", n_slots=4) as engine:
    print(weir.batch(engine, sys.argv[1], sys.argv[2], temp=0, max_tokens=12))
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source, self.target = self.folder / "in.jsonl", self.folder / "out.jsonl"
        self.partial = self.folder / "out.jsonl.partial"
        self.engine = weir.Engine("fake:seed=3,eos_every=9", n_slots=4)
        self.addCleanup(self.engine.close)

    def write(self, *rows):
        self.source.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))

    def done(self):
        """The whole lines of the journal; 0 where there is none (any more)."""
        try:
            return self.partial.read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def begin(self):
        """A journal without an answer."""
        with _Journal(str(self.partial), _identity(self.engine, str(self.source), {"temp": 0, "max_tokens": 12})):
            pass

    def batch(self, **options):
        return weir.batch(self.engine, self.source, self.target, **{"temp": 0, "max_tokens": 12, **options})

    def test_rows(self):
        messages = [{"role": "user", "content": "hello"}]
        self.write({"prompt": "a", "id": "first"}, "", {"messages": messages}, "no JSON", {"prompt": "b" * 100000}, {"id": 1},
                   {"prompt": "c", "id": []}, {"prompt": "d", "id": "\ud800"}, {"messages": "hello"}, {"messages": [1, 2]})  # fmt: skip
        self.assertEqual(self.batch(), 9)
        answers = lines_of(self.target)
        self.assertEqual([a["index"] for a in answers], list(range(9)))
        plain = self.engine.generate(["a", messages], temp=0, max_tokens=12)
        self.assertEqual([a["text"] for a in answers[:2]], [r.text for r in plain])
        self.assertEqual((answers[0]["id"], answers[0]["n_prompt"], answers[0]["n_generated"]),
                         ("first", plain[0].usage["n_prompt"], plain[0].usage["n_generated"]))  # fmt: skip
        self.assertEqual([a["reason"] for a in answers[2:]], ["error"] * 7)
        self.assertEqual(["error" in a for a in answers], [False] * 2 + [True] * 7)
        self.assertFalse(self.partial.exists())
        self.assertEqual(self.batch(), 0)
        self.assertEqual(lines_of(self.target), answers)

    def test_a_wrong_keyword_ends_the_call(self):
        self.write({"prompt": "a"}, {"messages": [{"role": "user", "content": "hello"}]})
        for wrong in ({"temprature": 0}, {"top_p": 1.5}, {"grammar": "bad"}, {"tools": []}, {"template": "{{", "template_args": {}}):
            with self.assertRaises(weir.InvalidError, msg=wrong):
                self.batch(**wrong)
            self.assertEqual(os.listdir(self.folder), ["in.jsonl"])
        # A keyword of chats only is right; the row with a text has the error.
        self.assertEqual(self.batch(template="{{ messages[0].content }}"), 2)
        self.assertEqual([a["reason"] == "error" for a in lines_of(self.target)], [True, False])

    def test_a_damaged_image_is_an_error_of_its_row(self):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
        self.write({"messages": [{"role": "user", "content": [image]}]}, {"prompt": "a"})
        with self.assertRaises(weir.Error) as caught:
            weir.Media(b"hello")
        self.assertNotIsInstance(caught.exception, weir.InvalidError)
        self.assertEqual(self.batch(), 2)
        self.assertEqual(["error" in a for a in lines_of(self.target)], [True, False])

    def test_killed_processes(self):
        prompts = [f"prompt {i}" for i in range(200)]
        self.write(*({"prompt": p} for p in prompts))
        for rows in (20, 60, 100):
            child = subprocess.Popen([sys.executable, "-c", WORK, self.source, self.target], stdout=subprocess.DEVNULL)
            try:
                until(lambda rows=rows: self.target.exists() or self.done() > rows)
            finally:
                child.kill()
                child.wait(PATIENCE)
        if not self.target.exists():
            with open(self.partial, "ab") as file:
                file.write(b'{"index": 199, "text": "cu')
            done = self.done() - 1
            last = subprocess.run([sys.executable, "-c", WORK, self.source, self.target], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((last.stdout.strip(), last.stderr), (str(200 - done), ""))
        answers = lines_of(self.target)
        self.assertEqual([a["index"] for a in answers], list(range(200)))
        self.assertEqual([a["text"] for a in answers], [r.text for r in self.engine.generate(prompts, temp=0, max_tokens=12)])

    def test_the_end_of_the_engine_is_no_answer_to_a_row(self):
        self.write({"prompt": "a"})
        with weir.Engine("fake:tick_us=1000", n_slots=1, n_ctx=1 << 20) as engine:
            stop = threading.Thread(target=lambda: (until(lambda: self.done() == 1), engine.stop()))
            stop.start()
            with self.assertRaises(weir.StoppedError):
                weir.batch(engine, self.source, self.target, ignore_eos=True)
            stop.join()
        self.assertEqual(self.done(), 1)

    def test_what_is_written_is_not_computed_again(self):
        self.write({"prompt": "a"}, {"prompt": "b"})
        self.begin()
        with open(self.partial, "a") as file:
            file.write(json.dumps({"index": 0, "text": "kept", "reason": "end"}) + "\n")
        self.assertEqual(self.batch(), 1)
        self.assertEqual([a["text"] for a in lines_of(self.target)], ["kept", self.engine.generate("b", temp=0, max_tokens=12).text])

    def test_another_source_options_or_process(self):
        self.write({"prompt": "a"})
        self.begin()
        with self.assertRaises(weir.InvalidError) as caught:
            self.batch(max_tokens=13)
        self.assertIn("(options)", str(caught.exception))
        with self.assertRaises(weir.InvalidError) as caught, weir.Engine("fake:seed=4") as other:
            weir.batch(other, self.source, self.target, temp=0, max_tokens=12)
        self.assertIn("(model)", str(caught.exception))
        text = self.source.read_text()
        self.write({"prompt": "b"})
        with self.assertRaises(weir.InvalidError) as caught:
            self.batch()
        self.assertIn("(source)", str(caught.exception))
        self.source.write_text(text)
        hold = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", hold, self.partial], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            with self.assertRaises(weir.Error) as caught:
                self.batch()
            self.assertEqual(caught.exception.code, "conflict")
            other.stdin.close()
        self.assertEqual(self.batch(), 1)
        self.target.unlink()
        for other in ("[]\n", "1\n", "{}\n", "no JSON\n", "\0\n", "one line", '{"source": "another"', "\0"):
            self.partial.write_text(other)
            with self.assertRaises(weir.InvalidError):
                self.batch()
            self.assertEqual(self.partial.read_text(), other)
        self.partial.write_text('{"source": "')  # the beginning of a first line
        self.assertEqual(self.batch(), 1)

    def test_another_file_of_the_model_s_name(self):
        self.write({"prompt": "a"})
        (self.folder / "other").mkdir()
        paths = [self.folder / "model.gguf", self.folder / "other/model.gguf"]
        paths[0].write_bytes(b"first")
        paths[1].write_bytes(b"other")
        found = [_identity(SimpleNamespace(model=SimpleNamespace(path=str(path))), str(self.source), {}) for path in paths]
        self.assertNotEqual(found[0], found[1])
        self.assertEqual(found[0] | {"model": ""}, found[1] | {"model": ""})

    @unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "needs pyarrow, which is no package of packages.txt: it is large")
    def test_parquet(self):
        import pyarrow
        import pyarrow.parquet as parquet

        prompts = [f"prompt {i}" for i in range(1500)]
        source, target = self.folder / "in.parquet", self.folder / "out.parquet"
        parquet.write_table(pyarrow.table({"prompt": prompts, "id": list(range(1500))}), source)
        self.assertEqual(weir.batch(self.engine, source, target, temp=0, max_tokens=4), 1500)
        rows = parquet.read_table(target).to_pylist()
        self.assertEqual([(r["index"], r["id"]) for r in rows], [(i, str(i)) for i in range(1500)])
        self.assertEqual([r["text"] for r in rows], [r.text for r in self.engine.generate(prompts, temp=0, max_tokens=4)])

    def test_parquet_without_pyarrow(self):
        source = self.folder / "in.parquet"
        source.write_bytes(b"x")
        sys.modules["pyarrow.parquet"] = None
        self.addCleanup(sys.modules.pop, "pyarrow.parquet")
        with self.assertRaises(weir.Error) as caught:
            weir.batch(self.engine, source, self.target)
        self.assertIn("pyarrow", str(caught.exception))
        self.write({"prompt": "a"})
        with self.assertRaises(weir.Error):  # before it computes
            weir.batch(self.engine, self.source, self.folder / "out.parquet")
        self.assertFalse((self.folder / "out.parquet.partial").exists())


if __name__ == "__main__":
    unittest.main()
