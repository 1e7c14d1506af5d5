"""Run seeds in forked children, which share the imports and compiled code of this process."""

import gc
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection

FORK = get_context("fork")
# Seeds of one child. What it leaves in memory goes with it, and is not collected before.
BATCH = {"models": 4, "graphs": 25}
ENDED = "its process ended, or hung"


def in_children(
    work: Callable[[int], str], seeds: Sequence[int], batch: int
) -> Iterator[tuple[int, str]]:
    """Yield each seed and what is wrong with it. One that ends its child is named so, and the next child goes on behind it."""
    gc.collect()
    gc.freeze()
    left = list(seeds)
    while left:
        done = 0
        for trouble in _in_child(work, left[:batch]):
            yield left[done], trouble
            done += 1
        if done < len(left[:batch]):
            yield left[done], ENDED
            done += 1
        left = left[done:]


def _in_child(work: Callable[[int], str], seeds: Sequence[int]) -> Iterator[str]:
    """Yield what is wrong with each seed, until all are done or the child ends."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_send, args=(work, seeds, sender))
    child.start()
    sender.close()
    try:
        for _ in seeds:
            yield receiver.recv()
    except EOFError:
        return
    finally:
        child.kill()
        child.join()


def _send(work: Callable[[int], str], seeds: Sequence[int], sender: Connection) -> None:
    gc.disable()
    for seed in seeds:
        sender.send(work(seed))
