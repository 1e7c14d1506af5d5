"""Exhaustive exploration of a model of the helpers' protocol, see :mod:`pymc_fastlogp.kernel.threads.protocol`.

A state has the shared words and the position of each thread. Each atomic instruction is one step, and memory is sequentially consistent. A thread may
claim any task that is left. A helper may sleep or look again whenever it is idle, may wake without reason, and may be lost whenever it runs no task, as in a fork.
"""

from collections import defaultdict
from typing import NamedTuple

import pytest


class Slot(NamedTuple):
    busy: bool = False
    job: int | None = None
    left: frozenset = frozenset()
    finished: int = 0


class State(NamedTuple):
    slots: tuple[Slot, ...]
    threads: tuple[tuple, ...]
    stop: bool = False
    bell: int = 0
    asleep: int = 0
    # Tasks that have run, and jobs that have returned.
    ran: frozenset = frozenset()
    returned: frozenset = frozenset()


class ViolationError(Exception):
    """A state that the protocol excludes."""


class Model:
    """Callers with a list of jobs each, helpers, and a thread that closes the helpers after all callers have ended.

    Parameters
    ----------
    jobs : list of list of int
        For each caller, the numbers of tasks of its jobs.
    n_helpers, n_slots : int
        Numbers of helpers and slots.
    mutant : str
        A defect of the protocol.
    """

    def __init__(self, jobs, n_helpers, n_slots, mutant=""):
        self.mutant = mutant
        self.n_slots = n_slots
        self.n_callers = len(jobs)
        numbered, self.sizes = [], []
        for sizes in jobs:
            numbered.append(tuple(range(len(self.sizes), len(self.sizes) + len(sizes))))
            self.sizes += sizes
        callers = [("search", of_one, 0) for of_one in numbered]
        threads = (*callers, ("close",), *[("look",)] * n_helpers)
        self.start = State((Slot(),) * n_slots, threads)

    def next_states(self, state):
        for number, place in enumerate(state.threads):
            step = getattr(self, place[0], None)
            for changed, new_place in step(state, *place[1:]) if step else ():
                threads = list(changed.threads)
                threads[number] = new_place
                yield changed._replace(threads=tuple(threads))

    def is_final(self, state):
        return all(place[0] in ("end", "lost") for place in state.threads)

    def slot(self, state, s, **changes):
        slots = list(state.slots)
        slots[s] = slots[s]._replace(**changes)
        return state._replace(slots=tuple(slots))

    def rung(self, state):
        wake = [("wake",) if place[0] == "sleeping" else place for place in state.threads]
        return state._replace(threads=tuple(wake))

    def run_task(self, state, job, task):
        if job in state.returned:
            raise ViolationError(f"a task of job {job} runs after its return")
        if (job, task) in state.ran:
            raise ViolationError(f"task {task} of job {job} runs twice")
        return state._replace(ran=state.ran | {(job, task)})

    # Callers

    def search(self, state, jobs, s):
        if s == self.n_slots:
            for task in range(self.sizes[jobs[0]]):
                state = self.run_task(state, jobs[0], task)
            yield self.left_job(state, jobs)
        elif state.slots[s].busy:
            yield state, ("search", jobs, s + 1)
        else:
            yield self.slot(state, s, busy=True), ("write", jobs, s)

    def write(self, state, jobs, s):
        yield self.slot(state, s, job=jobs[0]), ("zero", jobs, s)

    def zero(self, state, jobs, s):
        yield self.slot(state, s, finished=0), ("publish", jobs, s)

    def publish(self, state, jobs, s):
        yield self.slot(state, s, left=frozenset(range(self.sizes[jobs[0]]))), ("listen", jobs, s)

    def listen(self, state, jobs, s):
        yield state, ("ring" if state.asleep else "own", jobs, s)

    def ring(self, state, jobs, s):
        yield state._replace(bell=state.bell + 1), ("rouse", jobs, s)

    def rouse(self, state, jobs, s):
        yield self.rung(state), ("own", jobs, s)

    def own(self, state, jobs, s):
        left = state.slots[s].left
        yield state, ("own_claim", jobs, s, left) if left else ("wait", jobs, s)

    def own_claim(self, state, jobs, s, left):
        if state.slots[s].left == left:
            for task in left:
                yield self.slot(state, s, left=left - {task}), ("own_run", jobs, s, task)
        else:
            yield state, ("own", jobs, s)

    def own_run(self, state, jobs, s, task):
        yield self.run_task(state, state.slots[s].job, task), ("own_count", jobs, s)

    def own_count(self, state, jobs, s):
        yield self.slot(state, s, finished=state.slots[s].finished + 1), ("own", jobs, s)

    def wait(self, state, jobs, s):
        if state.slots[s].finished == self.sizes[jobs[0]] or self.mutant == "no wait":
            yield state, ("release", jobs, s)

    def release(self, state, jobs, s):
        yield self.left_job(self.slot(state, s, busy=False), jobs)

    def left_job(self, state, jobs):
        ran = {task for job, task in state.ran if job == jobs[0]}
        if ran != set(range(self.sizes[jobs[0]])):
            raise ViolationError(f"job {jobs[0]} returns after tasks {ran}")
        state = state._replace(returned=state.returned | {jobs[0]})
        return state, ("search", jobs[1:], 0) if jobs[1:] else ("end",)

    # The thread that closes the helpers

    def close(self, state):
        if all(place == ("end",) for place in state.threads[: self.n_callers]):
            yield state._replace(stop=True), ("last_ring",)

    def last_ring(self, state):
        yield state._replace(bell=state.bell + (self.mutant != "no bell")), ("last_rouse",)

    def last_rouse(self, state):
        yield state if self.mutant == "no bell" else self.rung(state), ("end",)

    # Helpers

    def look(self, state):
        yield state, ("end",) if state.stop else ("slots", 0)
        yield state, ("lost",)

    def slots(self, state, s):
        left = state.slots[s].left if s < self.n_slots else frozenset()
        if s == self.n_slots:
            yield state, ("look",)
            yield state, ("tired",)
        elif left:
            job = state.slots[s].job
            yield state, ("claim", s, left, job)
        else:
            yield state, ("slots", s + 1)
        yield state, ("lost",)

    def claim(self, state, s, left, early_job):
        if state.slots[s].left == left:
            job = early_job if self.mutant == "early read" else state.slots[s].job
            for task in left:
                yield self.slot(state, s, left=left - {task}), ("run", s, job, task)
        else:
            yield state, ("slots", s)
        yield state, ("lost",)

    def run(self, state, s, job, task):
        yield self.run_task(state, job, task), ("count", s)

    def count(self, state, s):
        yield self.slot(state, s, finished=state.slots[s].finished + 1), ("slots", s)

    def tired(self, state):
        yield state, ("doze", state.bell)
        yield state, ("lost",)

    def doze(self, state, bell):
        yield state._replace(asleep=state.asleep + 1), ("check_stop", bell)

    def check_stop(self, state, bell):
        yield state, ("wake",) if state.stop else ("check", bell, 0)
        yield state, ("lost",)

    def check(self, state, bell, s):
        if s == self.n_slots:
            yield state, ("futex", bell)
        else:
            yield state, ("wake",) if state.slots[s].left else ("check", bell, s + 1)
        yield state, ("lost",)

    def futex(self, state, bell):
        yield state, ("sleeping",) if state.bell == bell else ("wake",)
        yield state, ("lost",)

    def wake(self, state):
        yield state._replace(asleep=state.asleep - 1), ("look",)
        yield state, ("lost",)


def explore(model):
    """Return the number of states; raise ViolationError for a bad state, or a state from which the threads cannot end."""
    before = defaultdict(list)
    seen, pending = {model.start}, [model.start]
    while pending:
        state = pending.pop()
        for following in model.next_states(state):
            before[following].append(state)
            if following not in seen:
                seen.add(following)
                pending.append(following)
    pending = [state for state in seen if model.is_final(state)]
    ending = set(pending)
    while pending:
        for earlier in before[pending.pop()]:
            if earlier not in ending:
                ending.add(earlier)
                pending.append(earlier)
    if ending != seen:
        raise ViolationError(f"the threads cannot end: {next(iter(seen - ending))}")
    return len(seen)


@pytest.mark.parametrize(
    ("jobs", "n_helpers", "n_slots"),
    [
        ([[2, 2]], 1, 1),
        ([[3]], 2, 1),
        ([[2], [1]], 1, 2),
        ([[2], [1]], 1, 1),
    ],
)
def test_every_task_runs_once_before_the_return_and_all_threads_end(jobs, n_helpers, n_slots):
    assert explore(Model(jobs, n_helpers, n_slots)) > 1_000


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        ("no wait", "returns after|after its return"),
        ("no bell", "cannot end"),
        ("early read", "after its return"),
    ],
)
def test_defects_are_found(mutant, message):
    with pytest.raises(ViolationError, match=message):
        explore(Model([[2, 2]], 1, 1, mutant))
