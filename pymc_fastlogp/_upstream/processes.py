"""Private part of ``concurrent.futures``: end the processes of a pool, which is public from Python 3.14."""

from concurrent.futures.process import ProcessPoolExecutor


def kill_workers(pool: ProcessPoolExecutor) -> None:
    """Shut a pool down without waiting for the tasks that are running."""
    processes = [*(pool._processes or {}).values()]
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
