"""Arguments that are refused before any work, and workers that differ."""

import pymc as pm
import pytest

import pymc_fastlogp
from pymc_fastlogp.sampling.cluster.checks import differences
from tests.cluster.conftest import OPTIONS, logit


def refused(kind, text, **options):
    with pytest.raises(kind, match=text) as raised:
        pymc_fastlogp.sample(**OPTIONS | options)
    assert "\n" not in str(raised.value)


def test_workers_that_are_no_client(table):
    refused(TypeError, "workers is int: give a client of Dask", model=logit(table), workers=4)


def test_an_asynchronous_or_closed_client(distributed, here, table):
    client = distributed.Client(here.cluster)
    client.close()
    refused(ValueError, "a client that is closed", model=logit(table), workers=client)


def test_a_client_without_workers(distributed, table):
    options = {"processes": False, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        refused(ValueError, "a client without workers", model=logit(table), workers=client)


def test_a_model_without_a_table(here):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1, observed=[1.0, 2.0])
    refused(ValueError, "the model has none: put its rows into", model=model, workers=here)


def test_a_likelihood_that_is_not_by_rows(here, table):
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Bernoulli("y", logit_p=b * (table["x"] - pm.math.mean(table["x"])), observed=table["y"])
    refused(ValueError, "reads several rows of the table at once", model=model, workers=here)


UNSUPPORTED = {
    "reparametrize": {"reparametrize": True},
    "step": {"step": "step"},
    "log_likelihood": {"idata_kwargs": {"log_likelihood": True}},
}


@pytest.mark.parametrize(("name", "options"), UNSUPPORTED.items(), ids=[*UNSUPPORTED])
def test_arguments_that_workers_do_not_support(here, table, name, options):
    text = f"{name} can't be combined with workers"
    refused(ValueError, text, model=logit(table), workers=here, **options)


def test_a_model_that_nutpie_cannot_sample(here, table):
    with logit(table) as model:
        pm.Poisson("n", 1)
    refused(ValueError, "n is discrete", model=model, workers=here)


def test_settings_that_need_the_modules_of_nutpie(here, table):
    options = {"nuts": {"adaptation": "low_rank"}}
    refused(ValueError, "no settings of NUTS but", model=logit(table), workers=here, **options)


def test_a_number_of_threads_that_is_none(here, table):
    refused(ValueError, "threads is 0", model=logit(table), workers=here, threads=0)


def test_workers_are_ignored_if_likelihoods_reduce(here, table):
    with pm.Model() as model:
        pm.Poisson("z", pm.Exponential("rate", 1.0), observed=table["z"])
    with pytest.warns(UserWarning, match="workers is ignored: each likelihood"):
        idata = pymc_fastlogp.sample(model=model, workers=here, **OPTIONS)
    alone = pymc_fastlogp.sample(model=model, **OPTIONS)
    assert idata.posterior["rate"].values.tobytes() == alone.posterior["rate"].values.tobytes()


def test_rows_that_a_worker_cannot_read_raise_its_error(here, table, monkeypatch):
    for module in ("sample", "plan"):  # the client looks at the first rows
        monkeypatch.setattr(f"pymc_fastlogp.tables.{module}.N_SAMPLE", 2000)
    frame = table._source.frame.to_native().copy()
    frame.loc[2500, "x"] = float("nan")
    model = logit(pymc_fastlogp.table(frame))
    refused(ValueError, 'column "x" has missing values', model=model, workers=here)


def test_differences_between_workers_are_one_line():
    here = {"pymc": "6.4", "Python": "3.13.0", "CPU": "znver4", "CPU features": "+avx512f"}
    workers = {
        "tcp://a": here,
        "tcp://b": here,
        "tcp://c": here | {"pymc": "6.3", "CPU": "haswell", "CPU features": "+avx2"},
    }
    assert differences(workers, here) == (
        "pymc 6.4 on 2 workers, 6.3 on tcp://c;"
        " CPU znver4 on 2 workers, haswell on tcp://c; CPU features are not the same"
    )
    assert differences({"tcp://a": here}, here | {"CPU": "other"}) == ""
    assert differences({"tcp://a": here}, here | {"Python": "3.12.1"}) == (
        "Python 3.13.0 on tcp://a, 3.12.1 on the client"
    )
