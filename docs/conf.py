from importlib.metadata import version as installed_version

project = "pymc_fastlogp"
author = "The pymc_fastlogp developers"
copyright = author
release = installed_version("pymc-fastlogp")
version = release

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
# The case studies sample for minutes; the slow tests run them.
nb_execution_mode = "off"
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"

html_theme = "furo"
html_title = "pymc_fastlogp"
html_static_path = ["_static"]
exclude_patterns = ["_build"]
