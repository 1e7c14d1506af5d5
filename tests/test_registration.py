"""Entries of ``optdb``: names, tags, exclusions, reimport, untested versions."""

import json
from importlib import import_module
from io import StringIO

import cloudpickle
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.debug.profiling import ProfileStats
from pytensor.compile.mode import Mode, get_mode

from pymc_fastlogp import disabled
from pymc_fastlogp.__main__ import has_elemwise_of_set
from pymc_fastlogp.config import switched
from pymc_fastlogp.registration import TAG, database_of
from pymc_fastlogp.rules import GRAPH_RULES, RULES, GraphRule
from tests.conftest import WITHOUT_C
from tests.lifted import LIFT, exp_of_set


def compile_exp_of_set(mode: Mode, profile: ProfileStats | None = None):
    a = pt.vector("a", shape=(2,))
    # A kernel would hide the Elemwise that the tests look for.
    mode = mode.excluding("fastlogp_fused_kernel")
    return pytensor.function([a], exp_of_set(a), mode=mode, profile=profile)


@pytest.mark.parametrize(("excluded", "fires"), [([], True), ([LIFT], False), ([TAG], False)])
def test_mode_excludes_name_and_tag(excluded, fires, firings):
    function = compile_exp_of_set(get_mode("NUMBA").excluding(*excluded))
    assert bool(firings[LIFT]) == fires
    assert has_elemwise_of_set(function.maker.fgraph) == (not fires)


# PyTensor fixes this flag at import, so each case is a process.
@pytest.mark.parametrize(
    ("excluded", "before_gradient", "compiled"),
    [
        ("local_no_such_rewrite", True, True),
        (LIFT, False, False),
        (TAG, False, False),
    ],
    ids=["another", "first", "tag"],
)
def test_flag_excludes_names_and_tag(run_script, excluded, before_gradient, compiled):
    process = run_script(
        """
        import json

        import pytensor
        import pytensor.tensor as pt
        from pytensor.compile.mode import get_mode

        import pymc_fastlogp
        from pymc_fastlogp.__main__ import has_elemwise_of_set
        from tests.lifted import exp_of_set, is_rewritten_before_gradient


        def is_compiled_without(name):
            a = pt.vector("a", shape=(2,))
            mode = get_mode(name).excluding("fastlogp_fused_kernel")
            function = pytensor.function([a], exp_of_set(a), mode=mode)
            return not has_elemwise_of_set(function.maker.fgraph)


        compiled = [is_compiled_without(mode) for mode in ("NUMBA", None)]
        print(json.dumps([is_rewritten_before_gradient(), *compiled]))
        """,
        PYTENSOR_FLAGS=f"optimizer_excluding={excluded}",
    )
    assert json.loads(process.stdout) == [before_gradient, compiled, compiled], process.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_is_found_by_name_and_by_tags(rule):
    database = database_of(rule)
    for key in (rule.name, TAG, *rule.phase.tags):
        # A rewriter is listed once for each Op that it tracks.
        rewriters = dict.fromkeys(database.query(f"+{key}").get_node_rewriters())
        names = [rewriter.name for rewriter in rewriters]
        assert names.count(rule.name) == 1


def profiled():
    """Return the lines of PyTensor's profile of a compilation."""
    profile = ProfileStats(atexit_print=False)
    with pytensor.config.change_flags(profile=True, profile_optimizer=True):
        function = compile_exp_of_set(get_mode("NUMBA"), profile)
    function(np.zeros(2))
    printed = StringIO()
    profile.summary(printed)
    return printed.getvalue().splitlines()


def test_profiler_names_the_rule():
    try:
        lines = profiled()
    except TypeError:  # PyTensor sorts rewriters by their times, and can't where two took as long
        lines = profiled()
    # Seconds, times applied, nodes created, name.
    applied = [line for line in lines if line.endswith(f" - {LIFT}")]
    assert len(applied) == 1
    assert int(applied[0].split(" - ")[1]) > 0


def test_off_fires_nothing(firings):
    with disabled():
        function = compile_exp_of_set(get_mode("NUMBA"))
    assert not +firings
    assert has_elemwise_of_set(function.maker.fgraph)


def test_off_is_the_graph_of_upstream(run_script):
    process = run_script(
        """
        import json

        import numpy as np
        import pymc as pm
        import pytensor


        def printed_graph(model):
            logp_and_grad = model.logp_dlogp_function(ravel_inputs=True, mode="NUMBA")
            return pytensor.dprint(logp_and_grad._pytensor_function, file="str")


        with pm.Model() as model:
            pm.LKJCorr("corr", n=4, eta=2)
            sd = pm.HalfNormal("sd")
            group = pm.Normal("group", 0, sd, shape=3)
            pm.Normal("y", group[np.array([0, 1, 1, 2])], 1, observed=np.arange(4.0))
        upstream = printed_graph(model)

        import pymc_fastlogp

        on = printed_graph(model)
        with pymc_fastlogp.disabled():
            off = printed_graph(model)
        print(json.dumps({"off": off == upstream, "on": on == upstream}))
        """,
        PYTENSOR_FLAGS=WITHOUT_C,
    )
    assert json.loads(process.stdout) == {"off": True, "on": False}, process.stderr


@pytest.mark.parametrize("made_on", [True, False], ids=["on", "off"])
def test_pickled_function_keeps_its_graph(made_on):
    # So a worker to which PyMC sends a compiled function samples from the parent's graph.
    with switched(made_on):
        function = compile_exp_of_set(get_mode("NUMBA"))
    with switched(not made_on):
        loaded = cloudpickle.loads(cloudpickle.dumps(function))
    assert has_elemwise_of_set(loaded.maker.fgraph) == (not made_on)


def test_reload_and_reimport_register_each_rule_once(run_script):
    process = run_script(
        """
        import importlib
        import json
        import sys

        from pytensor.compile.mode import optdb

        import pymc_fastlogp
        from tests.lifted import is_rewritten_before_gradient


        def state():
            registration = pymc_fastlogp.registration
            databases = {r.database: registration.database_of(r) for r in pymc_fastlogp.rules.RULES}
            names = [
                rewriter.name
                for database in databases.values()
                for rewriter in set(database.query("+fastlogp").get_node_rewriters())
            ]
            with pymc_fastlogp.disabled():
                off = is_rewritten_before_gradient()
            return sorted(names), off, is_rewritten_before_gradient()


        states = [state()]
        importlib.reload(pymc_fastlogp)
        states.append(state())
        for name in [name for name in sys.modules if name.startswith("pymc_fastlogp")]:
            del sys.modules[name]
        import pymc_fastlogp

        states.append(state())
        print(json.dumps(states))
        """
    )
    expected = [sorted(rule.name for rule in RULES), False, True]
    assert json.loads(process.stdout) == [expected] * 3, process.stderr


def test_import_after_a_query_that_excluded_a_name(run_script):
    process = run_script(
        f"""
        import pytensor
        import pytensor.tensor as pt

        x = pt.vector("x")
        pytensor.function([x], pt.exp(x), mode=pytensor.compile.NUMBA.excluding({LIFT!r}))

        from tests.lifted import is_rewritten_before_gradient

        print(is_rewritten_before_gradient())
        """
    )
    assert process.stdout == "True\n", process.stderr


@pytest.mark.parametrize(
    ("package", "version", "reason"),
    [
        ("pymc", "99.0.0", "is not tested"),
        ("pytensor", "99.0.0", "is not tested"),
        ("pytensor", "3.3.4", "is too old, 3.3.5 is needed"),
    ],
)
def test_untested_version_warns_once_and_does_nothing(
    run_script, tmp_path, package, version, reason
):
    metadata = tmp_path / f"{package}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    process = run_script(
        """
        import json
        import warnings

        from pytensor.compile.mode import optdb

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import pymc_fastlogp
            at_import = pymc_fastlogp.is_enabled()
            pymc_fastlogp.enable()
            from tests.lifted import is_rewritten_before_gradient
            rewritten = is_rewritten_before_gradient()
        ours = [str(warning.message) for warning in caught if "pymc_fastlogp" in str(warning.message)]
        found = [database for database in ("canonicalize", "stabilize", "specialize")
                 if list(optdb[database].query("+fastlogp").get_node_rewriters())]
        print(json.dumps([ours, at_import, pymc_fastlogp.is_enabled(), rewritten, found]))
        """
    )
    (warning,), *state, found = json.loads(process.stdout)
    assert f"{package} {version} {reason}" in warning
    assert state == [False, False, False]
    assert found == []


HEAVY = ("pymc_fastlogp.kernel", "numba", "llvmlite", "nutpie", "jax", "matplotlib", "scipy.linalg")


def test_the_import_loads_no_compiler_and_no_other_library(run_script):
    process = run_script(
        f"""
        import json
        import sys

        import pymc
        before = set(sys.modules)
        import pymc_fastlogp
        heavy = [name for name in set(sys.modules) - before if name.startswith({HEAVY!r})]
        print(json.dumps(sorted(heavy)))
        """
    )
    assert json.loads(process.stdout) == [], process.stderr


CHANGED = """
    import importlib
    import json
    import warnings

    import numpy as np
    import pytensor
    import pytensor.tensor as pt

    delattr(importlib.import_module({module!r}), {attribute!r})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import pymc_fastlogp
        x = pt.dvector("x")
        function = pytensor.function([x], pt.exp(x).sum() * 2, mode="NUMBA")
        again = pytensor.function([x], pt.exp(x).sum() * 3, mode="NUMBA")
    ours = [str(warning.message) for warning in caught if "pymc_fastlogp" in str(warning.message)]
    values = [float(f(np.zeros(2))) for f in (function, again)]
    print(json.dumps([ours, pymc_fastlogp.is_enabled(), values]))
"""


@pytest.mark.parametrize(
    ("module", "attribute", "consequence", "is_enabled"),
    [
        ("pytensor.compile.rewriting", "inline_ofg_node", "stays off", False),
        ("pytensor.tensor.subtensor", "unflatten_index_variables", "without kernels", True),
    ],
    ids=["in a rule", "in a kernel"],
)
def test_a_change_within_a_tested_line_warns_once(
    run_script, module, attribute, consequence, is_enabled
):
    process = run_script(CHANGED.format(module=module, attribute=attribute))
    [warning], *state = json.loads(process.stdout)
    assert f"{consequence}: PyTensor has changed within a tested line" in warning
    assert attribute in warning
    assert state == [is_enabled, [4.0, 6.0]]
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("rule", [*RULES, *GRAPH_RULES], ids=lambda rule: rule.name)
def test_the_rewriter_of_a_rule_is_importable(rule):
    """A rule whose module raises an error only warns, and graphs on and off are then the same."""
    if isinstance(rule, GraphRule):
        name = f"pymc_fastlogp.{rule.rewriter}"
    elif rule.function.startswith("pytensor."):
        name = rule.function
    else:
        name = f"pymc_fastlogp.rewrites.{rule.function}"
    module, _, attribute = name.rpartition(".")
    assert hasattr(import_module(module), attribute)
