"""Trimaran as it lies in a checkout: for tools that read the tree. Installed, the name of the package is `trimaran`."""
