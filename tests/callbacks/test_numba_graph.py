"""Graphs that are more than one kernel: a direct callback that calls what Numba makes of the graph."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import nutpie
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse
from numba.core.runtime import _nrt_python

import pymc_fastlogp
from pymc_fastlogp.callbacks.native import DirectCallback
from pymc_fastlogp.callbacks.numba_pipeline import CallbackLibrary
from pymc_fastlogp.model_cache import store
from tests.callbacks import models
from tests.callbacks.calls import expand, logp, points
from tests.callbacks.conftest import Pair

pytestmark = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")

OPS = {
    models.spectrum: {"Eigh"},
    models.system: {"LUFactor", "SortOp", "ArgSortOp"},
    models.volume: {"SLogDet", "MatrixInverse"},
    models.ranks: {"Scan"},
    models.stopped: {"Scan"},
    models.own: {"Cube"},
}
PIPELINE = pymc_fastlogp.compile_kwargs()


@pytest.fixture(scope="module", params=models.BY_NUMBA, ids=lambda make: make.__name__)
def made(request):
    """One of the models, and the lines of the log."""
    lines = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("pymc_fastlogp")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    direct = pymc_fastlogp.compile_pymc_model(request.param())
    logger.removeHandler(handler)
    logger.setLevel(level)
    by_pipeline = nutpie.compile_pymc_model(request.param(), **PIPELINE)
    expected = nutpie.compile_pymc_model(request.param(), freeze_model=True)
    return Pair(direct, expected, by_pipeline), lines, request.param


@pytest.fixture(scope="module")
def compiled():
    return pymc_fastlogp.compile_pymc_model(models.volume())


# Points at which a result is not finite, or at which something raises. The eigenvalues of an infinite matrix are what memory held before:
# no numbers whose squares overflow.
FAR = (0.0, 20.0, -800.0, 1e100, np.nan)
# nutpie's callback leaves an error of Python behind where an Op in Python raises.
RAISES = {models.own: {20.0, 1e100}}


def test_callbacks_are_direct(made):
    pair, *_ = made
    for callback in (pair.direct.compiled_logp_func, pair.direct.compiled_expand_func):
        assert isinstance(callback, DirectCallback)
    for callback in (pair.by_pipeline.compiled_logp_func, pair.by_pipeline.compiled_expand_func):
        assert isinstance(callback._library, CallbackLibrary)


def test_one_line_of_the_log_names_the_ops(made):
    _, lines, make = made
    [line] = [text for text in lines if "Numba compiles the graph of logp" in text]
    assert OPS[make] <= {*line.replace(",", "").split()}


def test_results_are_equal_bit_for_bit(made):
    pair, _, make = made
    far = [np.full(pair.nutpie.n_dim, x) for x in FAR if x not in RAISES.get(make, set())]
    for x in [*points(pair.nutpie), *far]:
        wanted, wanted_values = logp(pair.nutpie, x), expand(pair.nutpie, x)
        for each in (pair.direct, pair.by_pipeline):
            found, values = logp(each, x), expand(each, x)
            assert (found[0], values[0]) == (wanted[0], wanted_values[0])
            if wanted[0] == 1:
                continue  # what is in the caller's memory then is nobody's result
            np.testing.assert_array_equal(found[1], wanted[1])
            np.testing.assert_array_equal(found[2], wanted[2])
            np.testing.assert_array_equal(values[1], wanted_values[1])


def test_lengths_are_checked(made):
    pair, *_ = made
    x = points(pair.nutpie, 1)[0]
    assert logp(pair.direct, x, len(x) + 1)[0] == -1
    assert expand(pair.direct, x, pair.direct.n_expanded + 1)[0] == -1


def test_draws_are_equal_bit_for_bit(made):
    pair, *_ = made
    options = {"draws": 20, "tune": 40, "chains": 2, "cores": 2, "seed": 4, "progress_bar": False}
    found, by_pipeline, expected = (
        nutpie.sample(each, **options) for each in (pair.direct, pair.by_pipeline, pair.nutpie)
    )
    for name in expected.posterior.data_vars:
        np.testing.assert_array_equal(found.posterior[name], expected.posterior[name])
        np.testing.assert_array_equal(by_pipeline.posterior[name], expected.posterior[name])


def test_what_raises_is_a_status(compiled):
    """A determinant of 0: LinAlgError by Numba's inverse."""
    assert logp(compiled, np.zeros(6))[0] == 1
    with pytest.raises(ValueError, match="cannot be evaluated"):
        compiled.logp_dlogp(np.zeros(6))
    x = points(compiled, 1)[0]
    assert np.isfinite(compiled.logp_dlogp(x)[0])


def test_an_op_of_the_user_that_raises_is_a_status():
    compiled = pymc_fastlogp.compile_pymc_model(models.own())
    far = np.full(compiled.n_dim, 20.0)
    assert logp(compiled, far)[0] == 1
    assert logp(compiled, points(compiled, 1)[0])[0] == 0


def test_eight_threads_get_what_one_gets(compiled):
    at = [*points(compiled, 40), np.zeros(6)] * 5
    expected = [logp(compiled, x) for x in at]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [logp(compiled, x) for x in at], range(8)))
    for each in found:
        for (status, value, gradient), wanted in zip(each, expected, strict=True):
            assert status == wanted[0]
            assert status == 1 or value == wanted[1]
            assert status == 1 or (gradient == wanted[2]).all()


def test_memory_is_freed(compiled):
    """All that Numba allocates in a call, unless the call raises (docs/first_draw.md)."""
    x = points(compiled, 1)[0]
    _nrt_python.memsys_enable_stats()
    before = allocated()
    for _ in range(1000):
        logp(compiled, x)
    assert allocated() == before


def allocated():
    """Return how much memory Numba has allocated and not freed, in blocks."""
    return _nrt_python.memsys_get_stats_alloc() - _nrt_python.memsys_get_stats_free()


def shared_data():
    """Data of other types and ranks than the point, that may change."""
    with pm.Model() as model:
        x, group = (
            pm.Data("x", np.outer(np.arange(4.0), np.ones(3))),
            pm.Data("group", [0, 1, 2, 2]),
        )
        a = pm.Normal("a", shape=3)
        pm.Normal("y", pt.sort((x * a).sum(1) + a[group]), 1, observed=models.Y[:4])
    return model


@pytest.fixture(scope="module")
def changing():
    return pymc_fastlogp.compile_pymc_model(shared_data(), freeze_model=False)


class TestDataThatChange:
    def test_are_arguments(self, changing):
        expected = nutpie.compile_pymc_model(shared_data())
        new = {"x": np.linspace(0, 1, 12).reshape(4, 3), "group": np.array([1, 1, 0, 2])}
        for model, wanted in (
            (changing, expected),
            (changing.with_data(**new), expected.with_data(**new)),
        ):
            for x in points(changing, 3):
                assert logp(model, x)[:2] == logp(wanted, x)[:2]
                np.testing.assert_array_equal(logp(model, x)[2], logp(wanted, x)[2])

    def test_what_does_not_fit_is_a_status(self, changing):
        x = points(changing, 1)[0]
        for wrong in ({"group": np.array([0, 1, 2, 3])}, {"group": np.array([0, 1, 2])}):
            assert logp(changing.with_data(**wrong), x)[0] == 1
        assert logp(changing, x)[0] == 0


def test_is_not_kept_on_disk(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "kept"
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, str(folder))
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        pymc_fastlogp.compile_pymc_model(models.spectrum())
    assert any("not cached on disk" in text for text in caplog.messages)
    assert not list(folder.glob("*"))


def test_verify_takes_it():
    compiled = pymc_fastlogp.compile_pymc_model(models.spectrum())
    assert pymc_fastlogp.verify(models.spectrum(), compiled=compiled)


def test_sample_takes_it():
    idata = pymc_fastlogp.sample(
        20, tune=20, chains=1, model=models.spectrum(), progressbar=False, random_seed=1
    )
    assert idata.posterior["mean"].shape == (1, 20, 6)


def test_what_is_no_array_is_named():
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        matrix = pytensor.shared(scipy.sparse.csr_matrix(np.eye(3)), name="matrix")
        mean = pytensor.sparse.structured_dot(matrix, x[:, None])[:, 0]
        pm.Normal("y", mean, 1, observed=np.ones(3))
    with pytest.raises(TypeError, match="the model reads matrix, of SparseTensorType"):
        pymc_fastlogp.compile_pymc_model(model)
