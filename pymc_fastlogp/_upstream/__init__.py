"""Private and undocumented APIs of other packages, one file a package.

No other room uses such a name, so an upgrade of a package is handled in one file. A file imports these names at its top: if an
import fails, registration adds no rewrites to PyTensor.
"""
