"""Private and undocumented APIs of other packages, one file a package.

Nothing else in the package touches such a name, so an upgrade of a package is read, and mended, in one file. What a file
needs it imports at its top: registration leaves PyTensor alone where that fails.
"""
