"""The samples, unpacked once for all tests that read them and never changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interchange.samples import CLUSTER_NODES, NODES, Sample, sample_of, unpack_all


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("interchange")
    yield unpack_all(root)
    shutil.rmtree(root)


@pytest.fixture(params=NODES)
def sample(samples: Path, request: pytest.FixtureRequest) -> Sample:
    return sample_of(samples, request.param)


@pytest.fixture(params=CLUSTER_NODES)
def member(samples: Path, request: pytest.FixtureRequest) -> Sample:
    """A node of a cluster: it has a recording log, a node state and mark files, too."""
    return sample_of(samples, request.param)
