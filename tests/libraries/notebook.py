"""Jupyter: a notebook that patches PyMC and samples; no cell prints a bar that cannot be redrawn."""

import nbformat
from nbclient import NotebookClient

CELLS = (
    """
import numpy as np
import pymc as pm
import pymc_fastlogp

pymc_fastlogp.patch_pymc()
with pm.Model() as model:
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 1.0, observed=np.ones(10))
""",
    "with model:\n    idata = pm.sample(200, tune=200, chains=2, cores=1, random_seed=1)",
    "print(idata['posterior']['mu'].sizes['draw'], hasattr(pm.sample, '_pymc_fastlogp_original'))",
    "pymc_fastlogp.explain(model)",
    "pymc_fastlogp.unpatch_pymc()",
)
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(x) for x in CELLS])
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()

_, sampled, printed, explained, undone = (cell["outputs"] for cell in notebook.cells)
assert printed[0]["text"] == "200 True\n"
assert not undone
# Without ipywidgets a notebook cannot redraw bars: log lines alone.
assert {x["output_type"] for x in sampled} == {"stream"}, sampled
lines = "".join(x["text"] for x in sampled).splitlines()
assert lines[0] == "NUTS[nutpie]: [mu]"
assert "Sampling took" in lines[1], lines
assert len(lines) < 8
assert [x["output_type"] for x in explained] == ["execute_result"]
