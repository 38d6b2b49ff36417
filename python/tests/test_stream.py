"""Streams: what they yield, how they end, and threads."""

# SPDX-License-Identifier: Apache-2.0
import gc
import math
import os
import threading
import unittest
from unittest import mock

import weir
from support import MODEL, blocked, idle, needs_model, program, run, until

LONG = "fake:tick_us=2000"  # never ends by itself


class Text(unittest.TestCase):
    def setUp(self):
        self.engine = weir.Engine("fake:seed=3,eos_every=30")
        self.addCleanup(self.engine.close)

    def test_the_same_text_as_the_program(self):
        for prompt in ("hello", "Grüße 🌍", ""):
            options = ("-m", "fake:seed=3,eos_every=30", "--temp", "0", "-n", "50", "--raw", "-p", prompt)
            if prompt:
                expected = program("run", *options)
                whole = self.engine.generate(prompt, temp=0, max_tokens=50)
                self.assertEqual(whole.text.strip(), expected.strip())
                self.assertEqual("".join(map(str, self.engine.stream(prompt, temp=0, max_tokens=50))), whole.text)
                self.assertEqual(self.engine.model.detokenize(whole.tokens), whole.text)

    def test_reasons_and_usage(self):
        cut = self.engine.generate("a", max_tokens=3, ignore_eos=True)
        self.assertEqual((cut.reason, cut.usage["n_generated"], len(cut.tokens)), ("length", 3, 3))
        ended = self.engine.generate("a", temp=0)
        self.assertEqual(ended.reason, "end")
        stop = ended.text[3:6]
        stopped = self.engine.generate("a", temp=0, stop=[stop])
        self.assertEqual((stopped.reason, stopped.text), ("stop_words", ended.text[: ended.text.index(stop)]))
        with weir.Engine("fake:tick_us=1000", n_ctx=1 << 20) as endless:
            self.assertEqual(endless.generate("a", ignore_eos=True, deadline_ms=1).reason, "deadline")

    def test_tokens_and_chats_as_prompts(self):
        tokens = self.engine.model.tokenize("hello")
        self.assertEqual(
            self.engine.generate(self.engine.model.detokenize(tokens), temp=0).text, self.engine.stream(tokens, temp=0).result().text
        )
        messages = [{"role": "user", "content": "hi"}]
        chat = weir.Chat(self.engine.model, messages)
        self.assertEqual(chat.prompt, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        texts = {self.engine.generate(chat, temp=0).text, self.engine.generate(messages=messages, temp=0).text,
                 self.engine.stream(messages, temp=0).result().text, self.engine.stream(chat.tokens, temp=0).result().text}  # fmt: skip
        self.assertEqual(len(texts), 1)

    def test_logprobs(self):
        result = self.engine.generate("a", temp=0, max_tokens=4, n_logprobs=2, n_prompt_logprobs=2)
        self.assertEqual([top[0][0] for top in result.top_logprobs], result.tokens)
        self.assertEqual([top[0][1] for top in result.top_logprobs], result.logprobs)
        self.assertEqual(result.prompt_tokens, self.engine.model.tokenize("a"))
        # The prompt's last token is scored as a generated one would be.
        first = self.engine.generate("a", temp=0, max_tokens=1, n_logprobs=1, ignore_eos=True)
        (scored, greedy), (less, _) = self.engine.loglikelihood([("a", first.tokens), ("a", [first.tokens[0] ^ 1])])
        self.assertAlmostEqual(scored, first.logprobs[0], 4)
        self.assertTrue(greedy)
        self.assertLess(less, scored)
        self.assertEqual(self.engine.loglikelihood([("a", "")]), [(0.0, True)])
        with self.assertRaises(weir.InvalidError) as caught:
            self.engine.loglikelihood([("a", "b"), ([], [97])])  # the first token of a text has no probability
        self.assertEqual(caught.exception.field, "pairs[1]")

    def test_fork(self):
        stream = self.engine.stream("a", temp=0, max_tokens=8, ignore_eos=True)
        text, tokens = "", []
        for chunk in stream:
            text, tokens = text + chunk.text, tokens + chunk.tokens
        again = stream.fork(4, temp=0, max_tokens=4, ignore_eos=True).result()
        self.assertEqual(again.tokens, tokens[4:8])

    def test_a_timeout_leaves_the_stream(self):
        engine, first = blocked()
        stream = engine.stream("a", max_tokens=2, ignore_eos=True)
        with self.assertRaises(weir.TimedOutError):
            stream.next(0.001)
        for wrong in (math.nan, "1", None):
            with self.assertRaises(weir.InvalidError):
                stream.next(wrong)
        first.close()
        self.assertTrue(stream.next(math.inf).tokens)
        self.assertEqual(stream.result().reason, "length")


class Ends(unittest.TestCase):
    def setUp(self):
        self.engine = weir.Engine(LONG, n_slots=4, n_ctx=1 << 20)
        self.addCleanup(self.engine.close)

    def test_dropping_closing_and_leaving_cancel(self):
        for chunk in self.engine.stream("a", ignore_eos=True):
            break
        until(lambda: idle(self.engine))
        stream = self.engine.stream("a", ignore_eos=True)
        next(stream)
        stream.close()
        self.assertEqual(list(stream), [])
        with self.engine.stream("a", ignore_eos=True) as inner:
            next(inner)
        until(lambda: idle(self.engine))
        stats = self.engine.stats
        self.assertEqual(sum(n for name, n in stats.items() if name.startswith("n_cancelled_")), 3)

    def test_cancel_keeps_what_came(self):
        stream = self.engine.stream("a", ignore_eos=True)
        next(stream)
        stream.cancel()
        chunks = list(stream)
        self.assertEqual((chunks[-1].finished, chunks[-1].reason, stream.finished), (True, "cancelled", True))

    def test_closing_the_engine_ends_streams_of_other_threads(self):
        caught = []

        def read():
            try:
                for _ in self.engine.stream("a", ignore_eos=True):
                    pass
            except weir.Error as e:
                caught.append(e)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: (self.engine.stats["n_slots_generating"], self.engine.stats["queue_depth"]) == (4, 4))
        self.engine.close()
        for thread in threads:
            thread.join()
        self.assertEqual([(type(e), e.code) for e in caught], [(weir.StoppedError, "stopping")] * 8)
        with self.assertRaises(weir.StoppedError):
            self.engine.stream("a", ignore_eos=True)

    def test_closing_and_calling_at_the_same_time(self):
        for _ in range(20):
            engine = weir.Engine("fake:")
            start = threading.Barrier(5)

            def call():
                start.wait()
                try:
                    while True:
                        engine.stream("abc", max_tokens=1)
                        engine.stats
                except weir.StoppedError:
                    pass

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            start.wait()
            engine.close()
            for thread in threads:
                thread.join()

    def test_two_readers_of_one_stream(self):
        engine, _first = blocked()
        stream = engine.stream("a")
        refused = []

        def read():
            try:
                stream.result()
            except weir.Error as e:
                refused.append(e.code)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(refused) == 3)
        stream.cancel()
        for thread in threads:
            thread.join()
        self.assertEqual(refused, ["state"] * 3)

    def test_python_runs_while_the_library_waits(self):
        # A call with Python's lock would keep it for good: nothing but the cancel ends the wait.
        run("""
import threading, time, weir
from weir._core import ffi, lib
engine = weir.Engine("fake:tick_us=1000", n_slots=1, n_ctx=1 << 20)
first = engine.stream("a", ignore_eos=True)
next(first)
stream, waiting = engine.stream("a"), threading.Event()
def wait():
    waiting.set()
    lib.weir_stream_next(stream.c, -1, ffi.new("weir_chunk *"))
thread = threading.Thread(target=wait)
thread.start()
waiting.wait()
for _ in range(20):
    time.sleep(0.005)
assert thread.is_alive()
stream.cancel()
thread.join()
""")

    def test_an_exception_behind_the_submit_cancels(self):
        for name in ("weir.stream.check", "weir.stream.Parser"):
            with mock.patch(name, side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                self.engine.stream(messages=[{"role": "user", "content": "a"}], ignore_eos=True)
        until(lambda: idle(self.engine))


class Lives(unittest.TestCase):
    def test_objects_are_dropped_in_any_order(self):
        run("""
import gc, itertools, weir
def make():
    model = weir.Model("fake:tick_us=500")
    engine = weir.Engine(model)
    chat = weir.Chat(model, [{"role": "user", "content": "a"}])
    sampler = weir.Sampler(temp=0)
    stream = engine.stream(chat, sampler=sampler, ignore_eos=True)
    next(stream)
    return [model, engine, chat, sampler, stream]
for order in itertools.permutations(range(5)):
    things = make()
    for i in order:
        things[i] = None
    cycle = make()
    cycle.append(cycle)
    del cycle
    gc.collect()
for order in itertools.permutations(range(3)):
    things = make()
    for i in order:
        things[(0, 1, 4)[i]].close()
print("ok")
""")

    def test_the_interpreter_exits_while_streams_run(self):
        out = run("""
import threading, weir
engine = weir.Engine("fake:tick_us=1000", n_slots=12, n_ctx=1 << 20)
started = threading.Barrier(5)
def read():
    stream = engine.stream("a", ignore_eos=True)
    next(stream)
    started.wait()
    for _ in stream: pass
for _ in range(4):
    threading.Thread(target=read, daemon=True).start()
streams = [engine.stream("b", ignore_eos=True) for _ in range(8)]
started.wait()
print("leaves")
""")
        self.assertIn("leaves", out)

    def test_ctrl_c(self):
        out = run("""
import os, signal, threading, weir
engine = weir.Engine("fake:tick_us=1000", n_slots=1, n_ctx=1 << 20)
stream = engine.stream("a", ignore_eos=True)
next(stream)
queued = engine.stream("b")  # waits for a slot that never becomes free
waiting = threading.Event()
threading.Thread(target=lambda: (waiting.wait(), os.kill(os.getpid(), signal.SIGINT))).start()
try:
    waiting.set()
    while True:
        next(queued)
except KeyboardInterrupt:
    print("interrupted", next(stream).finished)
""")
        self.assertIn("interrupted False", out)

    def test_ctrl_c_while_a_model_loads(self):
        # The signal comes while the library works, so that the callback begins with it.
        out = run("""
import os, signal, threading, weir
loading = threading.Event()
def interrupt():
    loading.wait()
    os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    weir.Model("fake:load_us=500000", progress=lambda _: loading.set())
    thread.join()
except KeyboardInterrupt:
    print("interrupted")
""")
        self.assertIn("interrupted", out)

    def test_fork(self):
        out = run("""
import asyncio, os, weir
engine = weir.Engine("fake:tick_us=1000", n_ctx=1 << 20)
stream = engine.stream("a", ignore_eos=True)
next(stream)
model, chat = engine.model, weir.Chat(engine.model, [{"role": "user", "content": "a"}])
embedder, adapter, parser = weir.Embedder(model), weir.Adapter(model, "fake:1"), chat.parser()
loop = asyncio.new_event_loop()
async def begin():
    other = engine.astream("a", ignore_eos=True)
    await other.start()
    return other
other = loop.run_until_complete(begin())
pid = os.fork()
if pid == 0:
    def refused(what, call):
        try:
            call()
        except weir.Error as e:
            assert e.code == "state" and "fork" in str(e), (what, e)
        else:
            raise AssertionError(what)
    # What reads no handle, or only ends something.
    plain = {"close", "closed", "cancel", "aclose", "path", "model", "width", "answer", "wake", "use"}
    arguments = {"tokenize": ("a",), "detokenize": ([1],), "piece": (1,), "ends": (1,), "next": (1,), "embed": ("a",), "feed": ("a",),
                 "parse": ("a",), "generate": ("a",), "extract": (int, "a"), "run_tools": ([{"role": "user", "content": "a"}], []),
                 "loglikelihood": ([("a", "b")],), "finish": (weir.Result(),), "take": (0,), "stream": ("a",), "plan": ("a",)}
    lazy = {"map", "as_completed"}
    asynchronous = {"astream", "agenerate", "aas_completed", "aextract", "start", "result"}
    n = 0
    for thing in (engine, model, chat, embedder, adapter, parser, stream):
        for name in sorted(set(dir(thing)) - plain):
            if name.startswith("_") or name in asynchronous and thing is engine:
                continue
            def call():
                found = getattr(thing, name)
                if callable(found):
                    found = found(*arguments.get(name, ([],) if name in lazy else ()))
                if name in lazy:
                    list(found)
            refused(f"{type(thing).__name__}.{name}", call)
            n += 1
    assert n > 30, n
    for call in (lambda: weir.Model("fake:"), lambda: weir.log_to(None), lambda: next(stream), lambda: other.answer.usage,
                 lambda: weir.stream._loops[loop]._ready(), lambda: weir.Embedder(model), lambda: weir.Adapter(model, "fake:1")):
        refused("a call", call)
    print("refused", flush=True)
    stream.cancel(); stream.close(); del stream
    engine.close(); del engine
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print("parent", next(stream).finished)
""")
        self.assertIn("refused", out)
        self.assertIn("parent False", out)

    def test_a_child_may_be_the_first_to_use_it(self):
        run("""
import os, weir
pid = os.fork()
if pid == 0:
    assert weir.Engine("fake:").generate("a", max_tokens=2).reason == "length"
    raise SystemExit(0)
assert os.waitpid(pid, 0)[1] == 0
""")

    def test_subinterpreters_are_refused(self):
        out = run("""
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
source = '''
try:
    import weir
except ImportError as e:
    print(e, flush=True)
'''
try:
    one = sub.create("legacy")
except TypeError:
    one = sub.create(isolated=False)
failed = sub.exec(one, source) if hasattr(sub, "exec") else sub.run_string(one, source)
assert failed is None, failed
""")
        self.assertIn("main interpreter only", out)

    def test_many_streams_leave_no_memory(self):
        out = run("""
import resource, weir
engine = weir.Engine("fake:", n_slots=8)
def size():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
def some(n):
    for i in range(n):
        stream = engine.stream("abc", max_tokens=4, temp=0, cache_prompt=False)
        next(stream)
        if i % 2: stream.result()
some(2000)
before = size()
some(4000)
print("grew", (size() - before) // 1024)
""") if os.path.exists("/proc/self/statm") else "grew 0"  # fmt: skip
        self.assertLess(int(out.split()[-1]), 1500, out)  # KiB; 400 bytes for each stream


@needs_model
class DefaultModel(unittest.TestCase):
    def test_the_same_text_as_the_program(self):
        messages = [{"role": "user", "content": "Why is the sky blue?"}]
        with weir.Engine(MODEL, n_ctx=512) as engine:
            mine = engine.generate(messages=messages, temp=0, max_tokens=24)
            theirs = program("run", "-m", MODEL, "--temp", "0", "-n", "24", "-c", "512", "-p", "Why is the sky blue?")
            self.assertEqual(mine.text.strip(), theirs.strip())
            # The chain rule: what was generated has the likelihood that its tokens had.
            whole = engine.generate("The capital of France is", temp=0, max_tokens=6, logprobs=True)
            scored, greedy = engine.loglikelihood([("The capital of France is", whole.text)])[0]
            self.assertTrue(greedy)
            self.assertAlmostEqual(scored, sum(whole.logprobs), 3)


if __name__ == "__main__":
    gc.collect()
    unittest.main()
