"""Tasks on an executor, or on worker processes of our own.

A process that dies, for example for lack of memory, breaks the pool of all others. The fits that were running then run again one by one, so that the fit that ends
its process is known; its error is its outcome. The other fits go on in a new pool. An executor of the user that breaks cannot be started again.
"""

import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from itertools import chain, islice
from queue import SimpleQueue

from pymc_fastlogp.many.fit import Outcome
from pymc_fastlogp.many.task import Task, run_task

type Done = tuple[Task, Outcome]

# Tasks on an executor of the user at a time. The number of its workers is not known, and a task holds a data set in memory.
MOST_SUBMITTED = 1000


def outcomes(tasks: Iterator[Task], executor: Executor | None) -> Iterator[Done]:
    """Yield tasks and their outcomes in the order of completion.

    Parameters
    ----------
    tasks : iterator of Task
        The tasks, read when workers are free.
    executor : Executor, optional
        The executor; by default as many processes as usable cores.

    Raises
    ------
    RuntimeError
        If the executor breaks and tasks are left, or if worker processes cannot start.
    """
    return _on_processes(tasks) if executor is None else _on_executor(tasks, executor)


def _on_executor(tasks: Iterator[Task], executor: Executor) -> Iterator[Done]:
    broken: BaseException | None = None
    for task, future in _futures(tasks, executor, MOST_SUBMITTED):
        error = _error(future)
        broken = error if isinstance(error, BrokenExecutor) else broken
        yield task, _outcome(future)
    if broken is not None and next(tasks, None) is not None:
        raise RuntimeError(
            "the executor broke, so other fits were not run: give a new executor, and store= to go on with those."
        ) from broken


def _on_processes(tasks: Iterator[Task]) -> Iterator[Done]:
    from pymc_fastlogp._upstream.processes import kill_workers
    from pymc_fastlogp.sampling.usable_cores import usable_cores

    first = next(tasks, None)
    if first is None:
        return
    workers, tasks = usable_cores(), chain([first], tasks)
    while True:
        lost: list[Task] = []
        with _processes(workers) as pool:
            try:
                for task, future in _futures(tasks, pool, 2 * workers):
                    if isinstance(_error(future), BrokenExecutor):
                        lost.append(task)
                    else:
                        yield task, _outcome(future)
            except BaseException:  # a generator that is closed, too
                kill_workers(pool)
                raise
        if not lost:
            return
        for task in lost:
            with _processes(1) as pool:
                yield task, _outcome(pool.submit(run_task, task))


def _processes(workers: int) -> ProcessPoolExecutor:
    """Return a pool of processes, started as PyMC starts the processes of its chains."""
    from pymc_fastlogp._upstream.pymc_sample import initialize_multiprocessing_context

    context = initialize_multiprocessing_context(None, quiet=True)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_on_interrupt)
    try:
        pool.submit(_nothing).result()
    except BrokenExecutor as error:
        raise RuntimeError(
            'worker processes cannot start: a script that is run needs the line if __name__ == "__main__":'
        ) from error
    return pool


def _end_on_interrupt() -> None:
    """Let Ctrl-C end this process. nutpie would return the draws so far."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _nothing() -> None:
    pass


def _futures(
    tasks: Iterator[Task], executor: Executor, most: int
) -> Iterator[tuple[Task, "Future[Outcome]"]]:
    """Yield tasks and their futures in the order of completion, with at most ``most`` futures at a time.

    If the executor breaks, no further tasks are read.
    """
    finished: SimpleQueue[Future[Outcome]] = SimpleQueue()
    running: dict[Future[Outcome], Task] = {}
    is_broken = False

    def submit(n: int) -> None:
        nonlocal is_broken
        for task in islice(tasks, 0 if is_broken else n):
            try:
                future = executor.submit(run_task, task)
            except BrokenExecutor as error:
                is_broken, future = True, Future()
                future.set_exception(error)
            running[future] = task
            future.add_done_callback(finished.put)
            if is_broken:
                return

    submit(most)
    while running:
        future = finished.get()
        is_broken = is_broken or isinstance(_error(future), BrokenExecutor)
        submit(1)
        yield running.pop(future), future


def _error(future: "Future[Outcome]") -> BaseException | None:
    try:
        return future.exception()
    except BaseException as error:
        return error


def _outcome(future: "Future[Outcome]") -> Outcome:
    """Return the outcome of a finished task; an error of the executor is an outcome."""
    error = _error(future)
    return Outcome(error=error) if error is not None else future.result()
