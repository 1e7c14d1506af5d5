"""One compilation at a time."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

from pymc_fastlogp.callbacks.turns import one_at_a_time

SECONDS = 60


def test_threads_wait_for_each_other():
    inside = []

    def enter(k):
        with one_at_a_time(), one_at_a_time():
            inside.append(k)
            is_alone = inside == [k]
            Event().wait(0.01)
            inside.remove(k)
            return is_alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(enter, range(8)))


def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have():
    is_in, may_leave = Event(), Event()

    def stay():
        with one_at_a_time():
            is_in.set()
            may_leave.wait(SECONDS)

    def enter():
        with one_at_a_time():
            pass

    thread = Thread(target=stay)
    thread.start()
    is_in.wait(SECONDS)
    child = multiprocessing.get_context("fork").Process(target=enter)
    child.start()
    child.join(SECONDS)
    exitcode = child.exitcode
    child.kill()
    may_leave.set()
    thread.join()
    assert exitcode == 0
