# SPDX-License-Identifier: Apache-2.0
"""Engine in event loops: streams, cancellation, closing, several loops, other processes."""

from __future__ import annotations

import asyncio
import collections
import gc
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import lmnative
import pytest
from conftest import wait_until

LIKELIEST = 97  # of the null model: "a"
LONG = {"max_tokens": 100_000, "ignore_eos": True}
SLOW = "null:vocab=256,context=200000,step_ns=200000"  # 5000 steps a second


@pytest.fixture
def null():
    """An engine whose steps take microseconds."""
    with lmnative.Engine(
        "null:vocab=256,context=4096", threads=1, max_sequences=256, kv_tokens=2**20, queue_capacity=4096
    ) as engine:
        yield engine


@pytest.fixture
def slow():
    with lmnative.Engine(SLOW, threads=1, kv_tokens=2**23) as engine:
        yield engine


def idle(engine: lmnative.Engine) -> bool:
    stats = engine.stats()
    memory = engine.memory()
    return (
        stats["running"] == stats["waiting"] == stats["kv_pages_used"] == stats["queue_bytes"] == 0
        and memory["requests"].current == 0
        and stats["submitted"] == stats["finished"] + stats["cancelled"] + stats["failed"]
    )


def watched(engine: lmnative.Engine) -> int:
    """Loops that watch the engine's descriptor now."""
    return len(engine._watchers._by_loop)


async def tokens_of(stream: object) -> list[int]:
    return [token async for chunk in stream for token in chunk.token_ids]


def test_generate_gives_what_llm_generate_gives(llm):
    async def main():
        return await llm.engine.generate("The capital of France is", max_tokens=8, top_logprobs=2, logits=True)

    ours = asyncio.run(main())
    other = llm.generate("The capital of France is", max_tokens=8, top_logprobs=2, logits=True)
    for name in ("text", "token_ids", "finish_reason", "logprobs", "top_logprobs", "other_samples"):
        assert getattr(ours, name) == getattr(other, name)
    assert (ours.logits == other.logits).all()
    assert "Paris" in ours.text and ours.usage.prompt_tokens == 5


def test_chat(llm):
    async def main():
        answer = await llm.engine.chat("What is 2 + 2?", max_tokens=12)
        pieces = [chunk.text async for chunk in llm.engine.chat_stream("What is 2 + 2?", max_tokens=12)]
        return answer.text, "".join(pieces)

    assert asyncio.run(main()) == (llm.chat("What is 2 + 2?", max_tokens=12).text,) * 2


def test_200_streams(null):
    async def main():
        before = null.stats()["steps"]
        streams = [null.stream(f"{i}", max_tokens=50 + i, ignore_eos=True) for i in range(200)]
        answers = await asyncio.gather(*map(tokens_of, streams))
        assert watched(null) == 0, "nobody watches an engine that owes nothing"
        assert null.stats()["steps"] - before < 5000, "they ran together"
        for i, (stream, answer) in enumerate(zip(streams, answers, strict=True)):
            assert answer == [LIKELIEST] * (50 + i)
            assert stream.result().text == "a" * (50 + i)
            assert stream.result().finish_reason == "length"
            assert stream.usage.completion_tokens == stream.stats()["generated_tokens"] == 50 + i

    asyncio.run(main())
    assert idle(null)


def test_one_wake_up_serves_all_requests(null):
    """Fewer calls of drain() than chunks: that is what the one descriptor is for."""
    calls = collections.Counter()

    class Counting:
        def __init__(self, handle):
            self._handle = handle

        def __getattr__(self, name):
            calls[name] += 1
            return getattr(self._handle, name)

    null._handle = Counting(null._handle)

    async def main():
        streams = [null.stream("x", max_tokens=200, ignore_eos=True) for _ in range(100)]
        await asyncio.gather(*map(tokens_of, streams))
        return sum(len(stream._chunks) for stream in streams)

    chunks = asyncio.run(main())
    assert 0 < calls["drain"] < chunks / 2


def test_several_prompts_and_a_small_queue():
    async def main(engine):
        prompts = [f"{i}" for i in range(30)]
        answers = await engine.generate(prompts, max_tokens=5, ignore_eos=True)
        assert [answer.token_ids for answer in answers] == [[LIKELIEST] * 5] * 30
        assert await engine.generate([], max_tokens=5) == []

    for options in ({"queue_capacity": 1}, {"queue_capacity": 3, "max_sequences": 1}, {"queue_bytes": 20_000}):
        with lmnative.Engine("null:vocab=256,context=64", threads=1, **options) as engine:
            asyncio.run(main(engine))
            assert idle(engine)
            prompts = [f"{i}" for i in range(30)]
            with lmnative.LLM("null:vocab=256,context=64", threads=1, **options) as llm:
                assert [a.token_ids for a in llm.generate(prompts, max_tokens=5)] == [[LIKELIEST] * 5] * 30


def test_a_request_that_fails():
    """It fails alone, with its message, whichever way one waits for it."""
    refused = {"max_tokens": 3, "logit_bias": {0: -math.inf, 1: -math.inf}}

    async def main(engine):
        other = engine.stream([0], max_tokens=50)
        for n in (1, 3):
            with pytest.raises(lmnative.InvalidArgumentError, match="no token to choose"):
                await engine.generate([0], n=n, **refused)
            with pytest.raises(lmnative.InvalidArgumentError, match="no token to choose"):
                await tokens_of(engine.stream([0], n=n, **refused))
            request = engine.submit([0], n=n, **refused)
            for wait in (request.wait, request.next):
                with pytest.raises(lmnative.InvalidArgumentError, match="no token to choose"):
                    wait()
        assert await tokens_of(other) == [1] * 50

    with lmnative.Engine("null:vocab=2", threads=1) as engine:
        asyncio.run(main(engine))
        assert engine.stats()["failed"] == 6 and idle(engine)


def test_a_full_queue_is_an_error_with_figures():
    async def main():
        with lmnative.Engine(SLOW, threads=1, max_sequences=1, queue_capacity=2, kv_tokens=2**23) as engine:
            streams = [engine.stream("x", **LONG)]
            await anext(streams[0])
            streams += [engine.stream("x", **LONG) for _ in range(2)]
            with pytest.raises(lmnative.QueueFullError, match="2"):
                engine.stream("x", **LONG)
            with pytest.raises(lmnative.QueueFullError):
                await engine.generate("x", **LONG)
            assert engine.stats()["rejected_queue"] == 2
            for stream in streams:
                await stream.aclose()
            assert wait_until(lambda: engine.stats()["waiting"] == 0)
            assert await engine.generate("x", max_tokens=1)

    asyncio.run(main())


def test_errors_are_raised_where_the_request_is_made(null):
    async def main():
        with pytest.raises(lmnative.InvalidArgumentError, match="^top_p is 2"):
            null.stream("x", top_p=2)
        with pytest.raises(TypeError, match="prompt"):
            await null.generate(bytearray(b"x"))
        assert watched(null) == 0
        assert len((await null.generate("x", max_tokens=3)).token_ids) == 3

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="no running event loop"):
        null.stream("x")


@pytest.mark.parametrize("how", ["break", "aclose", "with", "drop", "task", "wait_for"])
def test_leaving_cancels_the_request(slow, how):
    async def leave():
        if how == "break":
            async for _ in slow.stream("x", **LONG):
                break
        elif how == "drop":
            stream = slow.stream("x", **LONG)
            await anext(stream)
            del stream
        elif how == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(slow.generate("x", **LONG), 0.02)
        elif how == "task":
            task = asyncio.create_task(slow.generate("x", **LONG))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "with":
            async with slow.stream("x", **LONG) as stream:
                await anext(stream)
        else:
            stream = slow.stream("x", **LONG)
            await anext(stream)
            await stream.aclose()
            await stream.aclose()
            assert [chunk async for chunk in stream] == []

    async def main():
        other = slow.stream("y", max_tokens=300, ignore_eos=True)
        await leave()
        # Without a turn of the event loop: it is the leaving that cancels.
        assert wait_until(lambda: slow.stats()["cancelled"] == 1)
        assert await tokens_of(other) == [LIKELIEST] * 300, "the others go on"
        await asyncio.sleep(0)
        assert watched(slow) == 0

    asyncio.run(main())
    assert wait_until(lambda: idle(slow))


def test_a_storm_of_cancels(null):
    """Answers end, are cancelled at any moment, or dropped; those that nobody touched are whole."""

    async def touched(i: int) -> None:
        task = asyncio.create_task(null.generate(f"{i}", max_tokens=2000, ignore_eos=True, n=1 + i % 3))
        for _ in range(i % 7):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def left(i: int) -> None:
        async for _ in null.stream(f"{i}", max_tokens=2000, ignore_eos=True):
            if i % 3 == 0:
                break

    async def whole(i: int) -> None:
        assert (await null.generate(f"{i}", max_tokens=300, ignore_eos=True)).token_ids == [LIKELIEST] * 300

    async def main():
        work = [function(i) for i in range(100) for function in (touched, left, whole)]
        await asyncio.gather(*work)
        assert watched(null) == 0

    asyncio.run(main())
    assert wait_until(lambda: idle(null))


def test_samples(llm):
    async def main():
        options = {"max_tokens": 10, "temperature": 1.0, "seed": 7, "ignore_eos": True}
        together = await llm.engine.generate("Once upon a time", n=4, **options)
        alone = [await llm.engine.generate("Once upon a time", **{**options, "seed": 7 + i}) for i in range(4)]
        assert [sample.token_ids for sample in together.samples] == [answer.token_ids for answer in alone]
        assert [sample.text for sample in together.samples] == [answer.text for answer in alone]
        assert [sample.seed for sample in together.samples] == [7, 8, 9, 10]
        assert together.samples[0] is together and len(together.other_samples) == 3
        assert together.usage.completion_tokens == 40
        streamed = collections.defaultdict(list)
        async for chunk in llm.engine.stream("Once upon a time", n=4, **options):
            streamed[chunk.sample] += chunk.token_ids
        assert dict(streamed) == {i: sample.token_ids for i, sample in enumerate(together.samples)}

    asyncio.run(main())
    assert [s.seed for s in llm.generate("x", n=2, max_tokens=1, seed=2**64 - 1).samples] == [2**64 - 1, 0]


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_together_is_the_same_as_alone(model_path, llm, prefix_cache):
    story = (
        "The lighthouse stood at the end of the peninsula, where the land ran out of excuses and became the sea. " * 3
    )
    cases = [
        (story[: 20 + 37 * i], {"max_tokens": 4 + i, "ignore_eos": True, "priority": i % 5 - 2, **sampling})
        for i, sampling in enumerate([{}, {"temperature": 1.1, "seed": 3}, {"n": 4, "temperature": 0.9, "seed": 5}] * 3)
    ]
    alone = [llm.generate(prompt, **options) for prompt, options in cases]

    async def main():
        options = {"threads": 2, "context_tokens": 256, "kv_tokens": 2048, "prefix_cache": prefix_cache}
        async with lmnative.Engine(model_path, **options) as engine:
            for _ in range(2):  # the second time all prompts are known
                together = await asyncio.gather(*(engine.generate(prompt, **options) for prompt, options in cases))
                for one, other in zip(together, alone, strict=True):
                    assert [s.token_ids for s in one.samples] == [s.token_ids for s in other.samples]
                    assert [s.text for s in one.samples] == [s.text for s in other.samples]
            hits = engine.stats()["prefix_hit_tokens"]
            assert hits > 0 if prefix_cache else hits == 0
            assert sum(answer.usage.cached_tokens for answer in together) <= hits

    asyncio.run(main())


def test_closing_wakes_who_waits():
    async def main():
        engine = lmnative.Engine(SLOW, threads=1, kv_tokens=2**23)
        waiting = asyncio.create_task(engine.generate("x", **LONG))
        stream = engine.stream("x", **LONG)
        first = await anext(stream)
        reading = asyncio.create_task(tokens_of(stream))
        await asyncio.sleep(0.01)
        engine.close()
        for task in (waiting, reading):
            with pytest.raises(lmnative.CancelledError, match="closed"):
                await asyncio.wait_for(task, 10)
        assert stream.result().finish_reason == "cancelled"
        assert set(first.token_ids) == set(stream.result().token_ids) == {LIKELIEST}
        with pytest.raises(lmnative.ClosedError):
            await engine.generate("x")
        with pytest.raises(lmnative.ClosedError):
            engine.submit("x")
        assert watched(engine) == 0
        engine.close()

    asyncio.run(main())


def test_closing_from_another_thread():
    async def main():
        engine = lmnative.Engine(SLOW, threads=1, kv_tokens=2**23)
        threading.Timer(0.05, engine.close).start()
        with pytest.raises(lmnative.CancelledError):
            await asyncio.wait_for(engine.generate("x", **LONG), 10)

    asyncio.run(main())


def test_loops_in_several_threads(null):
    """Each gets all of its own, in order, whichever loop was woken."""
    problems = []

    async def main(number: int) -> None:
        for round_ in range(5):
            streams = [
                null.stream(f"{number}", max_tokens=100, ignore_eos=True, temperature=1, seed=i) for i in range(20)
            ]
            answers = await asyncio.gather(*map(tokens_of, streams))
            problems.extend(answer for i, answer in enumerate(answers) if answer != wanted[i])
            await asyncio.sleep(0.001 * (round_ % 2))

    wanted = [
        null.submit("0", max_tokens=100, ignore_eos=True, temperature=1, seed=i)._finish().token_ids for i in range(20)
    ]
    threads = [threading.Thread(target=asyncio.run, args=(main(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert problems == []
    assert watched(null) == 0 and idle(null)


def test_a_busy_loop_does_not_stop_another(slow):
    started, release = threading.Event(), threading.Event()

    async def busy():
        stream = slow.stream("x", max_tokens=20, ignore_eos=True)
        started.set()
        release.wait(10)  # blocks the loop, as one should not
        return await tokens_of(stream)

    got = []
    thread = threading.Thread(target=lambda: got.append(asyncio.run(busy())))
    thread.start()
    started.wait(10)
    answer = asyncio.run(slow.generate("y", max_tokens=50, ignore_eos=True))
    release.set()
    thread.join(10)
    assert answer.token_ids == [LIKELIEST] * 50 and got == [[LIKELIEST] * 20]


def test_a_loop_that_went_away(slow):
    """Its requests are cancelled when the next loop comes, if not before."""
    loop = asyncio.new_event_loop()

    async def start():
        return slow.stream("x", **LONG)

    stream = loop.run_until_complete(start())
    loop.close()
    assert len(asyncio.run(slow.generate("y", max_tokens=30)).token_ids) == 30
    assert wait_until(lambda: slow.stats()["cancelled"] == 1)
    assert watched(slow) == 0
    del stream
    gc.collect()
    assert idle(slow)


def test_a_stream_belongs_to_one_task_of_its_loop():
    async def take(stream):
        return await anext(stream)

    async def start():
        with lmnative.Engine("null:vocab=256,step_ns=300000000", threads=1) as engine:  # three tokens a second
            stream = engine.stream("x", max_tokens=2)
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(take(stream)))
            first, second = await asyncio.gather(take(stream), take(stream), return_exceptions=True)
            assert first.token_ids == [LIKELIEST]
            assert isinstance(second, RuntimeError) and "two tasks" in str(second)

    asyncio.run(start())


def test_uvloop(null):
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed (pip install uvloop)")

    async def main():
        streams = [null.stream("x", max_tokens=100, ignore_eos=True) for _ in range(20)]
        assert await asyncio.gather(*map(tokens_of, streams)) == [[LIKELIEST] * 100] * 20
        task = asyncio.create_task(null.generate("x", max_tokens=4000, ignore_eos=True))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    loop = uvloop.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert wait_until(lambda: idle(null))


def test_deadline_and_tenants(slow):
    async def main():
        late = await slow.generate("x", deadline=0.02, **LONG)
        assert late.finish_reason == "deadline" and set(late.token_ids) == {LIKELIEST}
        both = await asyncio.gather(*(slow.generate("x", max_tokens=4, tenant=tenant) for tenant in (1, 2**64 - 1)))
        assert [len(answer.token_ids) for answer in both] == [4, 4]

    asyncio.run(main())


def test_ctrl_c(slow):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.1, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(slow.generate(["x"] * 5, **LONG))
    assert wait_until(lambda: slow.stats()["cancelled"] == 5)
    assert wait_until(lambda: idle(slow))


def test_fork_while_streams_run(slow):
    """The child gets errors and leaves the parent's loop alone, also when it lets go of what it inherited."""

    async def main():
        stream = slow.stream("x", max_tokens=400, ignore_eos=True)
        first = await anext(stream)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                asyncio.events._set_running_loop(None)
                try:
                    asyncio.run(slow.generate("y", max_tokens=1))
                    os.write(write, b"answered")
                except BaseException as error:
                    os.write(write, type(error).__name__.encode())
                stream._close()
                slow.close()
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == b"ClosedError"
        os.waitpid(child, 0)
        return first.token_ids + await tokens_of(stream)

    assert asyncio.run(main()) == [LIKELIEST] * 400
    assert idle(slow)


PROGRAMS = {
    "a task that runs": """
        async def main():
            asyncio.create_task(engine.generate("x", max_tokens=100000, ignore_eos=True))
            await asyncio.sleep(0.02)
        asyncio.run(main())
    """,
    "a loop that is not closed": """
        async def main():
            global stream
            stream = engine.stream("x", max_tokens=100000, ignore_eos=True)
            await anext(stream)
        asyncio.new_event_loop().run_until_complete(main())
    """,
    "threads that wait": """
        def wait():
            for _ in engine.submit("x", max_tokens=100000, ignore_eos=True):
                pass
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.05)
    """,
    "a request": """
        request = engine.submit("x", max_tokens=100000, ignore_eos=True)
    """,
    "a cycle": """
        engine.me = engine
        engine.request = engine.submit("x", max_tokens=100000, ignore_eos=True)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_ends_while_the_engine_works(name):
    program = "import asyncio, threading, time, lmnative\n"
    program += f"engine = lmnative.Engine({SLOW!r}, threads=1, kv_tokens=2**23)\n" + textwrap.dedent(PROGRAMS[name])
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - start < 30


def test_closing_a_stream_ends_the_task_that_reads_it():
    async def main() -> None:
        with lmnative.Engine("null:vocab=300,token_ns=1000000", threads=1) as engine:
            stream = engine.stream([1, 2, 3], max_tokens=4000)

            async def read() -> int:
                return sum([len(chunk.token_ids) async for chunk in stream])

            reader = asyncio.create_task(read())
            await asyncio.sleep(0.02)
            await stream.aclose()
            assert 0 <= await asyncio.wait_for(reader, 10) < 4000

    asyncio.run(main())


def test_lists_that_fill_the_queue_wait_for_each_other():
    async def main() -> None:
        with lmnative.Engine("null:vocab=300", threads=1, queue_capacity=8) as engine:

            async def ask(n: int) -> int:
                return len(await engine.generate([[1, 2, 3]] * n, max_tokens=5))

            assert await asyncio.gather(*[ask(60) for _ in range(4)]) == [60] * 4

    asyncio.run(main())


def test_a_forked_child_may_close_and_drop_what_it_inherited():
    async def main() -> None:
        with lmnative.Engine("null:vocab=300,token_ns=100000", threads=1) as engine:
            stream = engine.stream([1, 2, 3], max_tokens=300)
            request = engine.submit([1], max_tokens=300)
            first = len((await anext(stream)).token_ids)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    request.close()
                    engine.close()
                    await stream.aclose()
                    del stream
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert first + sum([len(chunk.token_ids) async for chunk in stream]) == 300
            request.close()

    asyncio.run(main())


def test_an_interrupt_in_one_loop_does_not_stop_another(monkeypatch):
    from lmnative import stream as streams

    engine = lmnative.Engine("null:vocab=300,token_ns=300000", threads=1)
    main_thread, armed = threading.get_ident(), [True]
    deliver = streams.Watcher._deliver

    def interrupted(self: object, news: object) -> None:
        deliver(self, news)
        if armed[0] and threading.get_ident() == main_thread:
            armed[0] = False
            raise KeyboardInterrupt

    monkeypatch.setattr(streams.Watcher, "_deliver", interrupted)
    done = []

    def worker() -> None:
        async def go() -> None:
            for _ in range(30):
                await asyncio.wait_for(engine.generate([1, 2, 3], max_tokens=1), 20)
                done.append(1)

        asyncio.run(go())

    async def forever() -> None:
        while True:
            await engine.generate([1, 2, 3], max_tokens=1)

    thread = threading.Thread(target=worker)
    thread.start()
    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(forever())
    thread.join()
    loop.close()
    engine.close()
    assert len(done) == 30
