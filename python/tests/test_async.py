"""Streams in event loops."""

# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import threading
import unittest
from unittest import mock

import weir
from support import blocked, idle, until


class Async(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.engine = weir.Engine("fake:seed=5,eos_every=20", n_slots=8, queue_limit=0)
        self.addCleanup(self.engine.close)
        self.endless = weir.Engine("fake:tick_us=1000", n_slots=2, n_ctx=1 << 20)
        self.addCleanup(self.endless.close)

    async def test_a_thousand_streams(self):
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        most = 0

        async def one(i):
            nonlocal most
            text = ""
            async for chunk in self.engine.astream(f"p{i}", temp=0, max_tokens=12):
                text += chunk.text
                most = max(most, len(os.listdir("/proc/self/fd")) if i % 100 == 0 else 0)
            return text

        texts = await asyncio.gather(*(one(i) for i in range(1000)))
        self.assertEqual(texts, [r.text for r in self.engine.generate([f"p{i}" for i in range(1000)], temp=0, max_tokens=12)])
        self.assertLessEqual(most, files + 4)
        self.assertEqual(threading.active_count(), threads)

    async def test_whole_answers(self):
        prompts = [f"p{i}" for i in range(100)]
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        beating = asyncio.create_task(beat())
        results = await self.engine.agenerate(prompts, temp=0, max_tokens=12)
        beating.cancel()
        self.assertGreaterEqual(beats, 50)
        self.assertEqual([r.text for r in results], [r.text for r in self.engine.generate(prompts, temp=0, max_tokens=12)])
        self.assertEqual((await self.engine.astream("p1", temp=0, max_tokens=12).result()).text, results[1].text)
        self.assertEqual(await self.engine.aextract(bool, "x") in (True, False), True)

    async def test_a_long_prompt_is_submitted_by_a_thread(self):
        engine = weir.Engine("fake:", n_ctx=1 << 16)
        result = await engine.astream("long " * 5000, max_tokens=2, ignore_eos=True).result()
        self.assertEqual(result.usage["n_prompt"], 25001)

    async def test_the_loop_rests_while_the_consumer_awaits(self):
        loop, calls = asyncio.get_running_loop(), 0
        add_reader = loop.add_reader

        def counted(descriptor, callback, *arguments):
            def called(*values):
                nonlocal calls
                calls += 1
                callback(*values)

            add_reader(descriptor, called, *arguments)

        with mock.patch.object(loop, "add_reader", counted):
            async for _ in self.engine.aas_completed(["a", "b", "c", "d"], max_tokens=8):
                await asyncio.to_thread(until, lambda: idle(self.engine))  # more answers wait
                for _ in range(1000):  # an event may have been on its way
                    before = calls
                    for _ in range(20):
                        await asyncio.sleep(0.001)
                    if calls == before:
                        break
                self.assertEqual(calls, before)

    async def test_cancelling_while_a_thread_submits(self):
        for end in ("cancel", "aclose", "task"):
            stream, begun, go = self.endless.astream("a", ignore_eos=True), threading.Event(), threading.Event()
            submit, stream._large = stream._submit, True

            def later(*place, begun=begun, go=go, submit=submit):
                begun.set()
                go.wait()
                return submit(*place)

            stream._submit = later
            reader = asyncio.create_task(stream.__anext__())
            await asyncio.to_thread(begun.wait)
            with self.assertRaises(weir.Error) as caught:
                await stream.__anext__()
            self.assertEqual(caught.exception.code, "state")
            if end == "task":
                reader.cancel()
            elif end == "cancel":
                stream.cancel()
            else:
                await stream.aclose()
            go.set()
            with self.assertRaises((StopAsyncIteration, asyncio.CancelledError)):
                while True:
                    await reader
                    reader = asyncio.create_task(stream.__anext__())
            await asyncio.to_thread(until, lambda: idle(self.endless))
            self.assertEqual([c async for c in stream], [])

    async def test_a_full_queue_can_be_tried_again(self):
        full = weir.Engine("fake:tick_us=1000", n_slots=1, queue_limit=1, n_ctx=1 << 20)
        held = [full.stream("a", ignore_eos=True)]
        next(held[0])
        held.append(full.stream("a", ignore_eos=True))
        stream = full.astream("a", max_tokens=2, ignore_eos=True)
        with self.assertRaises(weir.BusyError):
            await stream.start()
        for other in held:
            other.close()
        until(lambda: idle(full))
        self.assertEqual((await stream.result()).reason, "length")

    async def test_cancelling_the_task(self):
        started = asyncio.Event()

        async def read():
            async for _ in self.endless.astream("a", ignore_eos=True):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        until(lambda: self.endless.stats["n_cancelled_generating"] == 1 and idle(self.endless))

    async def test_timeouts_leaving_and_closing(self):
        full, _first = blocked()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(full.astream("a").__anext__(), 0.01)
        until(lambda: full.stats["n_cancelled_queued"] == 1)
        async for _ in self.endless.astream("a", ignore_eos=True):
            break
        async with self.endless.astream("a", ignore_eos=True) as stream:
            await stream.__anext__()
        self.assertEqual([c async for c in stream], [])
        stream = self.endless.astream("a", ignore_eos=True)
        await stream.__anext__()
        await stream.aclose()
        until(lambda: self.endless.stats["n_cancelled_generating"] == 3 and idle(self.endless))
        never = self.endless.astream("a")
        await never.aclose()
        self.assertEqual([c async for c in never], [])

    async def waiting(self):
        """A stream that waits for a slot, and the task that reads it."""
        full, first = blocked()
        self.addCleanup(first.close)
        stream = full.astream("a")
        await stream.start()
        reader = asyncio.create_task(stream.result())
        await asyncio.sleep(0)
        return stream, reader

    async def test_closing_wakes_a_reader(self):
        stream, reader = await self.waiting()
        await stream.aclose()
        self.assertEqual((await reader).text, "")

    async def test_errors(self):
        with self.assertRaises(weir.InvalidError):
            await self.engine.astream("a", top_p=2).__anext__()
        stream = self.endless.astream("a", ignore_eos=True)
        await stream.__anext__()
        self.endless.stop()
        with self.assertRaises(weir.StoppedError):
            async for _ in stream:
                pass
        with self.assertRaises(weir.InvalidError):
            await self.engine.agenerate(["a", 3])
        until(lambda: idle(self.engine))

    async def test_two_tasks_of_one_stream(self):
        stream, reader = await self.waiting()
        with self.assertRaises(weir.Error) as caught:
            await stream.__anext__()
        self.assertEqual(caught.exception.code, "state")
        stream.cancel()
        self.assertEqual((await reader).reason, "cancelled")


class Loops(unittest.TestCase):
    def test_a_stream_belongs_to_one_loop(self):
        engine, _first = blocked()
        stream = engine.astream("a")
        asyncio.run(stream.start())
        for use in (stream.start, stream.__anext__, stream.result):
            with self.assertRaises(weir.Error) as caught:
                asyncio.run(use())
            self.assertEqual(caught.exception.code, "state")
        asyncio.run(stream.aclose())
        until(lambda: engine.stats["queue_depth"] == 0)

    def test_loops_one_after_the_other_and_beside_each_other(self):
        engine = weir.Engine("fake:seed=5", n_slots=8)

        async def main():
            return [r.text for r in await asyncio.gather(*(engine.astream(f"p{i}", temp=0, max_tokens=8).result() for i in range(20)))]

        files = len(os.listdir("/proc/self/fd"))
        first = asyncio.run(main())
        for _ in range(20):
            self.assertEqual(asyncio.run(main()), first)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), files + 2)
        found = []
        threads = [threading.Thread(target=lambda: found.append(asyncio.run(main()))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [first] * 4)


if __name__ == "__main__":
    unittest.main()
