"""Another distribution that has installed something under a name of ours."""

from __future__ import annotations

from pathlib import Path


def install_intruder(directory: Path) -> None:
    """Leave what pip leaves of a distribution `raft-demo` with a module in a package `cluster`.

    Python 3.12 and newer count only files that are there. The package has no `__init__.py`: ours stays the one that is
    imported, wherever on the import path it is.
    """
    info, package = directory / "raft_demo-1.0.dist-info", directory / "cluster"
    info.mkdir()
    package.mkdir()
    (package / "raft_demo.py").touch()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: raft-demo\nVersion: 1.0\n")
    (info / "RECORD").write_text("cluster/raft_demo.py,,\nraft_demo-1.0.dist-info/METADATA,,\n")
