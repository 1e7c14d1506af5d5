"""Models on disk are found again and never wrong, for any state of the folder and its files."""

import logging
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_fastlogp
from pymc_fastlogp import file_cache
from pymc_fastlogp.model_cache import store
from pymc_fastlogp.model_cache.key import key_of
from pymc_fastlogp.sampling import pipeline
from tests.callbacks import models
from tests.conftest import REPOSITORY
from tests.reparametrization import models as effects


def value(make=models.hierarchy, **options):
    """Compile a model and return its logp at the first initial point."""
    compiled = pymc_fastlogp.compile_pymc_model(make(), **options)
    return compiled.logp_dlogp(compiled.initial_point_func(0))[0]


def only_file(folder):
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("make", models.DIRECT, ids=lambda make: make.__name__)
def test_a_model_is_found_again(make, folder, builds):
    compiled = [pymc_fastlogp.compile_pymc_model(make()) for _ in range(2)]
    assert len(builds) == 1
    assert len(list(folder.iterdir())) == 1
    for seed in range(3):
        x = compiled[0].initial_point_func(seed)
        np.testing.assert_array_equal(compiled[1].initial_point_func(seed), x)
        (logp, gradient), (again, gradient_again) = (each.logp_dlogp(x) for each in compiled)
        assert logp == again
        np.testing.assert_array_equal(gradient, gradient_again)


def test_a_model_is_found_by_another_process_without_compiling(folder, run_script):
    source = """
        import sys
        import pymc_fastlogp
        from tests.callbacks import models
        compiled = pymc_fastlogp.compile_pymc_model(models.hierarchy())
        print(repr(float(compiled.logp_dlogp(compiled.initial_point_func(0))[0])))
        print("pymc_fastlogp.compilation.build" in sys.modules, "pymc_fastlogp.kernel.emit" in sys.modules)
        """
    first, second = (run_script(source).stdout.split() for _ in range(2))
    assert first[0] == second[0] == repr(float(value()))
    assert first[1:] == ["True", "True"]
    assert second[1:] == ["False", "False"]


def test_different_data_are_different_models(folder, builds):
    def model(y):
        with pm.Model() as made:
            mu = pm.Normal("mu")
            pm.Normal("y", mu, 1, observed=[y])
        return made

    values = [value(lambda y=y: model(y)) for y in (0.0, 3.0, 0.0)]
    assert values[0] == values[2] != values[1]
    assert len(builds) == 2


@pytest.mark.parametrize("freeze_model", [True, False])
def test_models_that_are_not_keyed_are_compiled_each_time(freeze_model, folder, builds, caplog):
    with pm.Model() as own:
        pm.CustomDist("c", 0.0, logp=lambda value, mu: -((value - mu) ** 2))
    with caplog.at_level(logging.INFO, "pymc_fastlogp"):
        for _ in range(2):
            pymc_fastlogp.compile_pymc_model(own, freeze_model=freeze_model)
    assert any("not cached on disk, because of" in text for text in caplog.messages)
    assert len(builds) == 2
    assert not folder.exists()


def damage_nothing_known(path):
    path.write_bytes(b"what is this")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


class Harmful:
    """Object whose unpickling writes a file."""

    def __reduce__(self):
        return (Path.touch, (Path(os.environ[store.ENVIRONMENT_VARIABLE]) / "harm",))


def foreign(path):
    path.write_bytes(bytes(32) + pickle.dumps(Harmful()))


@pytest.mark.parametrize("damage", [damage_nothing_known, cut, flip_a_bit, empty, foreign])
def test_a_damaged_file_is_made_again(damage, folder, builds):
    expected = value()
    damage(only_file(folder))
    assert value() == expected
    assert len(builds) == 2
    only_file(folder)
    assert value() == expected
    assert len(builds) == 2


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_world_writable_folder_is_not_used(mode, folder, builds, caplog):
    file_cache._warn_once.cache_clear()
    value()
    folder.chmod(mode)
    value()
    assert len(builds) == 2
    assert any("other users can write" in text for text in caplog.messages)


def test_unwritable_folder_is_ignored(tmp_path, monkeypatch, builds):
    """A file where the folder should be: also root cannot write there."""
    place = tmp_path / "file"
    place.write_text("no folder")
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, str(place))
    assert value() == value()
    assert len(builds) == 2


@pytest.mark.parametrize("make", [effects.pair, effects.centered], ids=lambda make: make.__name__)
def test_sites_are_found_with_their_model(make, folder, builds):
    options = {"reparametrize": True}
    one, other = (pymc_fastlogp.compile_pymc_model(make(), **options) for _ in range(2))
    assert len(builds) == 1
    for seed in range(3):
        x = one.initial_point_func(seed)
        np.testing.assert_array_equal(other.initial_point_func(seed), x)
        expected, gradient = one.logp_dlogp(x)
        found, found_gradient = other.logp_dlogp(x)
        assert found == expected
        np.testing.assert_array_equal(found_gradient, gradient)
    plain = pymc_fastlogp.compile_pymc_model(make())
    assert len(builds) == 2
    assert plain.logp_dlogp(x)[0] != expected


def test_model_without_effects_is_stored_as_written(folder, builds):
    for _ in range(2):
        pymc_fastlogp.compile_pymc_model(models.one_number(), reparametrize=True)
    assert len(builds) == 1


def test_full_disk_is_ignored(folder, builds, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_cache, "NamedTemporaryFile", full)
    assert value() == value()
    assert len(builds) == 2


def test_folder_of_another_user_is_not_used(folder, caplog, monkeypatch):
    file_cache._warn_once.cache_clear()
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert not file_cache.is_private(folder)
    assert any("another user owns" in text for text in caplog.messages)


@pytest.mark.parametrize("on", ["1", "on", ""])
def test_switch_values_are_not_taken_for_a_folder(on, monkeypatch):
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, on)
    assert store.files().folder == pytensor.config.base_compiledir / "pymc_fastlogp"


def test_a_folder_may_be_below_that_of_the_user(monkeypatch):
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, "~/models")
    assert store.files().folder == Path.home() / "models"


def test_a_model_from_disk_starts_with_the_data_that_it_had(folder, builds):
    def walk():
        with pm.Model() as model:
            x = pm.Data("x", np.zeros(3))
            start = pm.Normal.dist()
            walk = pm.AR("walk", [0.5], init_dist=start, steps=x.shape[0], initval="prior")
            pm.Normal("y", walk[1:], 1.0, observed=x)
        return model

    pymc_fastlogp.compile_pymc_model(walk())
    model = walk()
    found = pymc_fastlogp.compile_pymc_model(model)
    assert len(builds) == 1
    with model:
        pm.set_data({"x": np.zeros(5)})
    assert found.initial_point_func(0).shape == (4,)


def test_sites_beside_data_that_are_shared_outside_of_a_model(folder, builds):
    def pair():
        scale = pytensor.shared(np.array(1.0), name="scale")
        with effects.pair() as model:
            pm.Potential("p", -scale * model["tau"].sum())
        return model

    for _ in range(2):
        compiled = pymc_fastlogp.compile_pymc_model(pair(), reparametrize=True)
        point = np.full(compiled.n_dim, 0.5)
        changed = compiled.with_data(scale=np.array(3.0))
        assert changed.logp_dlogp(point)[0] != compiled.logp_dlogp(point)[0]


@pytest.mark.parametrize("off", ["0", "off", "False"])
def test_environment_variable_switches_the_cache_off(off, monkeypatch, builds, tmp_path):
    monkeypatch.setenv(store.ENVIRONMENT_VARIABLE, off)
    assert store.files() is None
    value(models.one_number)
    value(models.one_number)
    assert len(builds) == 2


def test_a_new_folder_is_private(folder):
    value(models.one_number)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_record_that_is_too_large_is_not_kept(folder, monkeypatch, builds):
    monkeypatch.setattr(store, "LARGEST", 1000)
    value(models.one_number)
    assert not folder.exists()


@pytest.mark.parametrize("n_kills", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_killed_processes_leave_a_valid_cache(n_kills, tmp_path):
    """Surviving processes compute the right values, no process hangs, and all remaining files are valid."""
    flags = {
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'compiled'}",
        store.ENVIRONMENT_VARIABLE: "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.callbacks.kills", str(n_kills)],
        cwd=REPOSITORY,
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=60 + 3 * n_kills,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{n_kills} kills, \d+ models\n", done.stdout)


@pytest.mark.parametrize("reparametrize", [False, True])
def test_data_that_change_while_the_key_is_made_are_not_kept_under_it(
    folder, monkeypatch, reparametrize
):
    """Another thread may set data between the key and the frozen copy."""

    def compiled(scale):
        with pm.Model() as model:
            pm.Normal("x", 0, pm.Data("scale", scale))
        return pymc_fastlogp.compile_pymc_model(model, reparametrize=reparametrize)

    def key_and_change(model, options):
        key = key_of(model, options)
        with model:
            pm.set_data({"scale": 2.0})
        return key

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "key_of", key_and_change)
        compiled(1.0)
    assert compiled(1.0).logp_dlogp([1.0])[1] == -1.0
