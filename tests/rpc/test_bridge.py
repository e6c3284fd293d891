"""Events cross from threads to the loop in order and bounded; the last one always arrives."""

from __future__ import annotations

import asyncio
import threading

from mtplxd.rpc.bridge import Bridge


def run_in_thread(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_order_is_kept_across_the_threads() -> None:
    async def main() -> list[int]:
        bridge: Bridge[int] = Bridge(1000)
        threading.Thread(target=lambda: [bridge.put(i) for i in range(500)]).start()
        return [await bridge.get() for _ in range(500)]

    assert asyncio.run(main()) == list(range(500))


def test_an_unread_stream_is_stopped_once_and_its_end_still_arrives() -> None:
    async def main() -> tuple[int, list[int], bool]:
        stopped = []
        bridge: Bridge[int] = Bridge(3, lambda: stopped.append(True))
        run_in_thread(lambda: [bridge.put(i) for i in range(100)])
        run_in_thread(lambda: bridge.finish(-1))
        await asyncio.sleep(0)
        return len(stopped), [await bridge.get() for _ in range(4)], bridge.overflowed

    assert asyncio.run(main()) == (1, [0, 1, 2, -1], True)


def test_no_text_follows_a_gap() -> None:
    """Once something was dropped, what comes later is dropped too, even if the client reads again."""

    async def main() -> list[int]:
        bridge: Bridge[int] = Bridge(2, lambda: None)
        for i in range(3):
            bridge.put(i)
        await asyncio.sleep(0)
        read = [await bridge.get(), await bridge.get()]
        bridge.put(3)
        bridge.finish(-1)
        return [*read, await bridge.get()]

    assert asyncio.run(main()) == [0, 1, -1]


def test_of_progress_the_newest_is_kept() -> None:
    async def main() -> list[int]:
        bridge: Bridge[int] = Bridge(2)
        run_in_thread(lambda: [bridge.put(i) for i in range(100)])
        await asyncio.sleep(0)
        return [await bridge.get(), await bridge.get()]

    assert asyncio.run(main()) == [98, 99]


def test_what_comes_after_the_consumer_left_is_dropped() -> None:
    async def main() -> Bridge[int]:
        bridge: Bridge[int] = Bridge(2)
        bridge.close()
        bridge.put(1)
        await asyncio.sleep(0)
        return bridge

    bridge = asyncio.run(main())
    bridge.put(2)  # the loop is gone as well
    assert not bridge._items
