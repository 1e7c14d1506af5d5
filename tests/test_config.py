"""The switch: the sources that decide it, and its scope in threads, tasks and processes."""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from pymc_fastlogp import disable, disabled, enable, is_enabled
from pymc_fastlogp.config import ENVIRONMENT_VARIABLE, switched
from tests.lifted import is_rewritten_before_gradient


def test_enable_and_disable_twice():
    for switch, state in [(disable, False), (disable, False), (enable, True), (enable, True)]:
        switch()
        assert is_enabled() is state
        assert is_rewritten_before_gradient() is state


def test_blocks_nest():
    with disabled():
        with disabled():
            assert not is_rewritten_before_gradient()
        assert not is_rewritten_before_gradient()
        with switched(True):
            assert is_rewritten_before_gradient()
        assert not is_rewritten_before_gradient()
    assert is_rewritten_before_gradient()


def test_block_restores_a_disabled_process():
    disable()
    with disabled():
        pass
    assert not is_enabled()


def test_decorator_switches_each_call_off():
    @disabled()
    def inside(depth: int) -> list[bool]:
        return [is_enabled(), *(inside(depth - 1) if depth else [])]

    assert inside(1) == [False, False]
    assert is_enabled()
    assert inside(0) == [False]


def test_exception_ends_the_block():
    with pytest.raises(ZeroDivisionError), disabled():
        raise ZeroDivisionError
    assert is_enabled()
    assert os.environ[ENVIRONMENT_VARIABLE] == "1"


def test_enable_inside_a_block_waits_for_its_end():
    disable()
    with disabled():
        enable()
        assert not is_rewritten_before_gradient()
    assert is_rewritten_before_gradient()


def test_threads_compile_each_with_its_own_state():
    rounds = 5
    barrier = Barrier(2, timeout=60)

    def rewritten_each_round() -> list[bool]:
        results = []
        for _ in range(rounds):
            barrier.wait()
            results.append(is_rewritten_before_gradient())
        barrier.wait()
        return results

    with ThreadPoolExecutor(2) as pool:
        off = pool.submit(disabled()(rewritten_each_round))
        on = pool.submit(rewritten_each_round)
        assert off.result() == [False] * rounds
        assert on.result() == [True] * rounds


def test_tasks_have_each_their_own_state():
    async def main() -> tuple[bool, bool]:
        entered, seen = asyncio.Event(), asyncio.Event()

        async def inside() -> bool:
            with disabled():
                entered.set()
                await seen.wait()
                return is_enabled()

        async def outside() -> bool:
            await entered.wait()
            state = is_enabled()
            seen.set()
            return state

        return tuple(await asyncio.gather(inside(), outside()))

    assert asyncio.run(main()) == (False, True)


@pytest.mark.parametrize(
    ("start", "expected"), [("0", "False"), ("1", "True"), (None, "True")], ids=str
)
def test_environment_variable_decides_at_import(run_script, monkeypatch, start, expected):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    environment = {} if start is None else {ENVIRONMENT_VARIABLE: start}
    source = "import pymc_fastlogp; print(pymc_fastlogp.is_enabled())"
    assert run_script(source, **environment).stdout == f"{expected}\n"


def test_workers_take_over_the_state(run_script):
    process = run_script(
        """
        import json
        import multiprocessing

        import pymc_fastlogp


        def state_in_worker(method):
            with multiprocessing.get_context(method).Pool(1) as pool:
                return pool.apply(pymc_fastlogp.is_enabled)


        if __name__ == "__main__":
            states = {}
            for method in ("fork", "spawn"):
                with pymc_fastlogp.disabled():
                    in_block = state_in_worker(method)
                pymc_fastlogp.disable()
                after_disable = state_in_worker(method)
                pymc_fastlogp.enable()
                after_enable = state_in_worker(method)
                states[method] = [in_block, after_disable, after_enable]
            print(json.dumps(states))
        """
    )
    expected = [False, False, True]
    assert json.loads(process.stdout) == {"fork": expected, "spawn": expected}, process.stderr


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_pymc_samples_with_workers(run_script, method):
    process = run_script(
        f"""
        import json

        import pymc as pm

        import pymc_fastlogp
        from tests.lifted import exp_of_set

        if __name__ == "__main__":
            with pm.Model():
                a = pm.Normal("a", shape=2)
                pm.Potential("lifted", -exp_of_set(a).sum())
                idata = pm.sample(
                    draws=10, tune=10, chains=2, cores=2, mp_ctx={method!r}, nuts_sampler="pymc",
                    progressbar=False, compute_convergence_checks=False,
                )
            print(json.dumps(idata.posterior["a"].values.tolist()))
        """
    )
    draws = np.array(json.loads(process.stdout))
    assert draws.shape == (2, 10, 2)
    assert np.isfinite(draws).all()
