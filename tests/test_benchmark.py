import ctypes
import itertools
import json
import os
import sys
import threading
import time

import cloudpickle
import matplotlib
import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from rich.console import Console

import pymc_fastlogp
from benchmarks import report
from pymc_fastlogp.benchmarking import BenchmarkResult, benchmark, run
from pymc_fastlogp.benchmarking.clock import seconds_now
from pymc_fastlogp.benchmarking.native import LogpCallback
from pymc_fastlogp.benchmarking.pairing import pinned, time_in_turn
from pymc_fastlogp.benchmarking.run import check_agreement, compile_side, legal_points
from pymc_fastlogp.benchmarking.wait import Wait, _environment, _wait_of, measure_wait
from tests.pictures import is_cut_off

BEGIN, END = "<!-- benchmark table: begin -->", "<!-- benchmark table: end -->"

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the operating system cannot pin a thread"
)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", mu, sigma, observed=[0.5, 1.5, 1.0])
    return model


@pytest.fixture(scope="module")
def callback(model):
    return compile_side(model, "off")


@pytest.fixture(scope="module")
def measured(model):
    return benchmark(model, rounds=3, seconds_per_round=0.001, wait=False)


@pytest.fixture
def result():
    return BenchmarkResult(n_dim=3, seconds={"off": (4e-6, 6e-6, 9e-6), "on": (2e-6, 2e-6, 3e-6)})


def test_ratio_is_formed_within_each_round(result):
    assert result.ratio("off").median == pytest.approx(3.0)
    assert result.ratio("off").lower == pytest.approx(2.5)
    assert result.ratio("off").upper == pytest.approx(3.0)
    assert result.ratio("on") == (1.0, 1.0, 1.0)
    assert result.median("off") == 6e-6


def test_result_survives_json(result):
    assert BenchmarkResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_dict_agrees_with_the_raw_numbers(result):
    off = result.to_dict()["sides"]["off"]
    assert off["median_seconds"] == np.median(off["seconds"])
    assert off["ratio"]["median"] == result.ratio("off").median


def test_result_renders_in_terminal_and_notebook(result):
    console = Console(width=100)
    with console.capture() as capture:
        console.print(result)
    for text in (capture.get(), str(result), result._repr_html_()):
        assert "off" in text
        assert "on" in text
        assert "3" in text
    assert "3.00" in str(result)
    assert "<table" in result._repr_html_()


def test_plot_shows_every_round(result):
    matplotlib.use("Agg")
    ax = result.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["off", "on"]
    assert ax.get_title() == "logp and gradient of 3 parameters: off / on is 3.00"
    assert ax.get_xlabel().endswith("(log scale)")
    assert not is_cut_off(ax.figure)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [4, 6, 9])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one round", "median"]


def test_labels_of_a_plot_do_not_overlap_within_one_decade():
    matplotlib.use("Agg")
    seconds = {"off": (4.1e-6, 4.3e-6), "on": (1.1e-6, 1.2e-6)}
    ax = BenchmarkResult(n_dim=1, seconds=seconds).plot()
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels(which="both") if t.get_text()]
    boxes.sort(key=lambda box: box.x0)
    assert len(boxes) > 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.fixture(scope="module")
def waited(model):
    return benchmark(model, rounds=1, seconds_per_round=0.001, seconds=600)


def test_processes_of_the_wait_begin_with_nothing_kept_and_the_plugin_on(tmp_path, monkeypatch):
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", str(tmp_path / "user"))
    monkeypatch.setenv("PYTENSOR_FLAGS", "floatX=float64")
    with pymc_fastlogp.disabled():
        found = _environment(tmp_path / "on", is_on=True)
    assert found["PYMC_FASTLOGP"] == "1"
    assert "PYMC_FASTLOGP_CACHE" not in found
    assert found["PYTENSOR_FLAGS"] == f"floatX=float64,base_compiledir={tmp_path / 'on'}"
    monkeypatch.setenv("PYMC_FASTLOGP_CACHE", "0")
    assert _environment(tmp_path, is_on=True)["PYMC_FASTLOGP_CACHE"] == "0"
    # The model may import it.
    assert _environment(tmp_path, is_on=False)["PYMC_FASTLOGP"] == "0"


@pytest.mark.slow
def test_wait_of_each_way_is_measured_in_fresh_processes(waited):
    assert [*waited.wait] == ["off", "import", "sample"]
    for wait in waited.wait.values():
        assert wait.given_up is None
        assert min(wait.parts) > 0
        assert wait.total == sum(wait[:3])
    assert "\nsample: " in str(waited)
    assert "(imports " in str(waited)
    assert BenchmarkResult.from_dict(json.loads(json.dumps(waited.to_dict()))) == waited


@pytest.mark.slow
def test_plot_of_the_wait_has_a_bar_for_each_way(waited):
    matplotlib.use("Agg")
    ax = waited.plot_wait()
    assert [text.get_text() for text in ax.get_yticklabels()] == [*waited.wait]
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches[-3:]]
    np.testing.assert_allclose(ends, [wait.total for wait in waited.wait.values()])


@pytest.mark.parametrize("way", [pytest.param("import", marks=pytest.mark.slow), "sample"])
def test_a_process_that_takes_too_long_is_stopped(way):
    with pm.Model() as slow:
        # Correlations that no diagonal mass matrix removes: a thousand gradients a draw.
        x = pm.Normal("x", shape=500)
        pm.Potential("steps", -1e8 * pt.sqr(pt.diff(x)).sum())
    [wait] = measure_wait(slow, freeze_model=True, ways=[way], seconds=3.0).values()
    assert wait.draws is None
    assert wait.given_up == pytest.approx(3.0, abs=0.1)
    assert str(wait).startswith("more than 3.0 s (imports ")


def test_ways_share_the_time_and_the_fastest_is_first(monkeypatch):
    now, asked = [0.0], []

    def run_process(path, way, freeze_model, patience):
        asked.append((way, patience))
        now[0] += {"sample": 6.0, "import": 27.0, "off": 27.0}[way]
        return Wait(1.0, 2.0, 3.0)

    monkeypatch.setattr("pymc_fastlogp.benchmarking.wait.monotonic", lambda: now[0])
    monkeypatch.setattr("pymc_fastlogp.benchmarking.wait._in_fresh_process", run_process)
    shown = []
    waits = measure_wait({}, freeze_model=True, seconds=60.0, show=shown.append)
    assert asked == [("sample", 20.0), ("import", 27.0), ("off", 27.0)]
    assert [*waits] == ["off", "import", "sample"]
    assert shown[0] == "waiting for sample in a fresh process, at most 20 s"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "more than 9.0 s (imports more than 9.0)"),
        ('{"imports": 2.0}\n', "more than 9.0 s (imports 2.0, compilation more than 7.0)"),
        (
            '{"imports": 2.0}\nnoise\n{"compilation": 3.0}\n{"dra',
            "more than 9.0 s (imports 2.0, compilation 3.0, 4 x (1000 + 1000) draws more than 4.0)",
        ),
    ],
)
def test_a_stopped_process_says_which_part_was_not_finished(output, said):
    wait = _wait_of(output, given_up=9.0)
    assert str(wait) == said
    assert wait.total == 9.0
    assert sum(wait.parts) == 9.0


def test_way_of_sample_calls_sample_and_does_not_import_nutpie(model, tmp_path, run_script):
    (tmp_path / "model.pickle").write_bytes(cloudpickle.dumps(model))
    process = run_script(
        f"""
        import sys
        import pymc_fastlogp
        from pymc_fastlogp.benchmarking.wait_child import main

        sample, calls = pymc_fastlogp.sample, []
        pymc_fastlogp.sample = lambda **options: calls.append(options) or sample(**options)
        main({str(tmp_path / "model.pickle")!r}, "sample", "True")
        [options] = calls
        assert options["draws"] == options["tune"] == 1000
        assert options["compile_kwargs"] == {{"freeze_model": True}}
        assert "nutpie" not in sys.modules
        """
    )
    assert process.returncode == 0, process.stderr
    wait = _wait_of(process.stdout)
    assert wait.given_up is None
    assert None not in wait[:3]


def test_draws_that_were_given_up_are_drawn_as_long_as_was_waited():
    matplotlib.use("Agg")
    waits = {"off": Wait(0.0, 9.0, None, 40.0), "sample": Wait(3.0, 5.0, 0.5)}
    seconds = dict.fromkeys(("off", "on"), (1e-06,))
    ax = BenchmarkResult(n_dim=1, seconds=seconds, wait=waits).plot_wait()
    assert [bar.get_x() + bar.get_width() for bar in ax.patches[-2:]] == [40.0, 8.5]
    assert ax.get_yticklabels()[0].get_text() == "off, given up"
    assert ax.get_title() == "wait: off / sample is at least 4.71"
    assert not is_cut_off(ax.figure)


def test_wait_that_was_not_measured_can_not_be_drawn(result):
    with pytest.raises(ValueError, match="wait=True"):
        result.plot_wait()
    assert result.notes() == []


def test_model_that_cannot_be_pickled_says_how_to_go_on():
    with pytest.raises(RuntimeError, match="pass wait=False"):
        measure_wait(threading.Lock(), freeze_model=True, ways=["off"])


def test_failing_process_says_why(model):
    with pytest.raises(RuntimeError, match=r"AttributeError.*: pass wait=False"):
        measure_wait(None, freeze_model=True, ways=["off"])


def test_benchmark_measures_both_sides_in_every_round(measured):
    assert set(measured.seconds) == {"off", "on"}
    assert {len(values) for values in measured.seconds.values()} == {3}
    assert min(min(values) for values in measured.seconds.values()) > 0
    assert measured.n_dim == 2


def test_benchmark_leaves_the_switch_alone(measured):
    assert pymc_fastlogp.is_enabled()


def test_discrete_variables_are_refused():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Poisson("count", 3.0)
    with pytest.raises(ValueError, match="discrete variables count"):
        benchmark(model)


def test_zero_rounds_are_refused(model):
    with pytest.raises(ValueError, match="at least one"):
        benchmark(model, rounds=0)


def test_callback_computes_logp_and_gradient(model, callback):
    point = np.array([0.3, -0.2])
    expected, gradient = model.logp_dlogp_function(ravel_inputs=True)(point)
    names = [variable.name for variable in model.value_vars]
    order = [names.index(name) for name in callback.owner.shape_info[0][:2]]
    logp, computed = callback.evaluate(point[order])
    np.testing.assert_allclose(logp, expected, rtol=1e-12)
    np.testing.assert_allclose(computed, gradient[order], rtol=1e-12)


def test_points_are_legal_and_differ(callback):
    points = legal_points(callback, seed=1)
    assert all(np.isfinite(callback.evaluate(point)[0]) for point in points)
    assert len(np.unique(points, axis=0)) == len(points)


def test_model_without_legal_point_is_refused(model, callback):
    class Owner:
        @staticmethod
        def initial_point_func(seed):
            return np.full(2, np.nan)

    nowhere = LogpCallback(callback.address, callback.user_data, 2, Owner)
    with pytest.raises(ValueError, match="no finite log density at any point tried"):
        legal_points(nowhere, seed=1)


def test_too_few_legal_points_ask_for_initial_values(callback):
    starts = iter([np.zeros(2)])

    class Owner:
        @staticmethod
        def initial_point_func(seed):
            return next(starts, np.full(2, np.nan))

    rarely = LogpCallback(callback.address, callback.user_data, 2, Owner)
    with pytest.raises(ValueError, match=r"Only 1 of 160 .*initval"):
        legal_points(rarely, seed=1)


def test_benchmark_of_a_model_that_is_finite_nowhere_says_so_before_the_wait_fails(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the process that measures the wait failed")

    monkeypatch.setattr(run, "measure_wait", fail)
    with pm.Model() as model:
        pm.Poisson("y", pm.Exponential("rate", 1), observed=[3, -1])
    with pytest.raises(ValueError, match="no finite log density at any point tried"):
        benchmark(model, rounds=1)


def test_benchmark_says_which_index_is_out_of_range():
    with pm.Model() as model:
        rate = pm.math.exp(pm.Normal("b", shape=2)[np.array([0, 1, 0, 7])])
        pm.Poisson("y", rate, observed=[3, 1, 2, 2])
    with pytest.raises(ValueError, match="tried: y: index 7 is out of bounds for axis 0 with size"):
        benchmark(model, rounds=1)


def test_single_precision_agrees_in_its_own_digits():
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            a = pm.Normal("a", shape=5)
            scale = pm.HalfNormal("scale")
            mean = pm.math.exp(a[np.arange(70) % 5] / 4)
            pm.Normal("y", mean, scale, observed=np.arange(70, dtype="float32"))
        result = benchmark(model, rounds=1, seconds_per_round=0.001, wait=False)
    assert set(result.seconds) == {"off", "on"}


def test_disagreement_is_noticed(callback):
    def wrong(x):
        logp, gradient = callback.evaluate(x)
        return logp, gradient * (1 + 1e-6)

    points = legal_points(callback, seed=1)
    check_agreement(callback.evaluate, callback.evaluate, points)
    with pytest.raises(AssertionError, match="gradient differs"):
        check_agreement(wrong, callback.evaluate, points)
    check_agreement(wrong, callback.evaluate, points.astype("float32"))


def test_round_off_of_the_reference_is_no_disagreement(callback):
    """A reference whose fifth digit changes at the least step cannot tell such digits apart."""

    def rounded(x):
        logp, gradient = callback.evaluate(x)
        return logp, gradient * (1 + 1e-5 * np.sin(1e17 * x))

    points = legal_points(callback, seed=1)
    check_agreement(callback.evaluate, rounded, points)
    with pytest.raises(AssertionError, match="gradient differs"):
        check_agreement(rounded, callback.evaluate, points)


@numba.cfunc("int64(uint64, CPointer(double), CPointer(double), CPointer(double), CPointer(int64))")
def counting(n_dim, x, gradient, logp, counts):
    counts[0] += 1
    counts[int(x[0])] += 1
    return counts[1]


def counting_callback(status):
    counts = (ctypes.c_int64 * 6)(0, status)
    return counts, LogpCallback(counting.address, ctypes.addressof(counts), 2, counts)


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_native_loop_calls_the_function_n_times_and_takes_points_in_turn(n):
    counts, callback = counting_callback(status=0)
    points = np.array([[2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    callback.timer(points)(n)
    assert counts[0] == n
    assert list(counts[2:5]) == [(n + 2) // 3, (n + 1) // 3, n // 3]


def test_failure_inside_the_native_loop_is_an_error():
    _, callback = counting_callback(status=4)
    with pytest.raises(FloatingPointError, match="5 of 5"):
        callback.timer(np.array([[2.0, 0.0]]))(5)


def test_sides_are_timed_in_turn_and_the_order_is_reversed_after_each_round():
    calls = []

    def timer(side):
        def seconds(n):
            calls.append(side)
            return float(n)

        return seconds

    times = time_in_turn({"a": timer("a"), "b": timer("b")}, rounds=3, seconds_per_round=1.0)
    assert times == {"a": (1.0, 1.0, 1.0), "b": (1.0, 1.0, 1.0)}
    assert calls == ["a", "b", "a", "b", "b", "a", "a", "b"]


@needs_affinity
def test_pinning_uses_one_core_and_is_undone():
    before = os.sched_getaffinity(0)
    with pinned():
        inside = os.sched_getaffinity(0)
    assert len(inside) == 1
    assert inside <= before
    assert os.sched_getaffinity(0) == before


@needs_affinity
def test_pinning_is_undone_after_an_error():
    before = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError), pinned():
        raise RuntimeError
    assert os.sched_getaffinity(0) == before


@pytest.fixture
def results(result):
    session = {
        "compile_seconds": 2.5,
        "first_draw_seconds": 3.5,
        "peak_memory_bytes": 5 * 10**8,
        "ess_per_second": 1234.5,
    }
    whole = {
        "name": "a",
        "title": "model a",
        "target": True,
        "evaluation": result.to_dict(),
        "notes": {"jax": "gradient by JAX"},
        "failures": {"stan": "RuntimeError: no"},
        "first_compile_seconds": {"off": 10.0, "on": 11.0},
        "off": session,
        "on": session | {"ess_per_second": None},
    }
    broken = whole | {
        "title": "model b",
        "notes": {},
        "evaluation": None,
        "off": {},
        "failures": {"evaluate all": "ValueError: no"},
    }
    return {
        "date": "2026-01-02",
        "machine": {"cpu": "a CPU", "vector_bits": 256, "os": "an OS"},
        "versions": {"pymc": "6.4.0", "stanli": None},
        "cases": [whole, broken],
    }


def test_markdown_shows_losses_failures_and_what_is_missing(results):
    table = report.markdown_tables(results)
    rows = [line for line in table.splitlines() if line.startswith("| model a")]
    assert "| 6 | 2 | – | 3.00 | – | – | failed | – |" in rows[0]  # noqa: RUF001
    assert "| 10 / 11 | 2.5 / 2.5 | 3.5 / 3.5 | 500 / 500 | 1234 / – |" in rows[1]  # noqa: RUF001
    assert "| model b | failed | failed |" in table
    assert "2026-01-02" in table
    assert "pymc 6.4.0" in table
    assert "JAX, gradient by JAX: a." in table


def test_table_replaces_what_stands_between_the_markers():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = report.insert_table(text, "| new |")
    assert once == f"before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n"
    assert report.insert_table(once, "| new |") == once


@pytest.mark.parametrize(
    "text",
    ["none", BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} x" * 2, f"{BEGIN} {END}" * 2],
)
def test_missing_markers_are_an_error(text):
    with pytest.raises(ValueError, match="benchmark table: begin"):
        report.insert_table(text, "| new |")


def test_plot_of_all_models_is_drawn(results, tmp_path):
    report.plot(results, tmp_path / "sub" / "plot.png")
    assert (tmp_path / "sub" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_plot_calls_sides_as_the_table_does_and_cuts_no_word_off():
    results = json.loads(report.RESULTS.read_text())
    figure = report.draw(results)
    assert not is_cut_off(figure)
    figure.axes[0].set_xlabel("longer than the picture is wide " * 9)
    assert is_cut_off(figure)
    header = next(
        x for x in report.markdown_tables(results).splitlines() if x.startswith("| model")
    )
    [legend] = figure.legends
    for label in legend.get_texts():
        assert f"| {label.get_text()} / on |" in header


def test_names_of_unknown_models_are_refused():
    from benchmarks.__main__ import choose

    with pytest.raises(SystemExit, match=r"No such model: nonsense\. There are: "):
        choose(["nonsense"], quick=False)
    assert [case.name for case in choose(["radon"], quick=True)] == ["radon"]


@pytest.mark.skipif(sys.platform == "win32", reason="its processor time is too coarse")
def test_time_that_other_programs_take_does_not_count():
    assert seconds_now is time.process_time


def test_numbers_of_threads_are_sides_of_the_result():
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000)
    with pm.Model() as model:
        pm.Bernoulli(
            "y", logit_p=pm.Normal("a") + pm.Normal("b") * x, observed=rng.integers(2, size=x.size)
        )
    result = benchmark(model, rounds=3, seconds_per_round=0.001, wait=False, threads=(1, 2))
    assert [*result.seconds] == ["off", "on", "1 thread", "2 threads"]
    assert {len(seconds) for seconds in result.seconds.values()} == {3}
    assert [*result.table()["side"]] == [*result.seconds]
    assert BenchmarkResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def test_a_number_of_threads_below_one_is_refused(model):
    with pytest.raises(ValueError, match="threads is 0"):
        benchmark(model, wait=False, threads=(0,))


def test_times_of_threads_are_wall_times(callback):
    points = legal_points(callback, 0)
    ticks = itertools.count()
    assert callback.timer(points, lambda: float(next(ticks)))(3) == 1.0
