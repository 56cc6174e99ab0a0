"""A directory of this machine as an object store, so that `file:` URLs need no package.

`LocalStore` has what `object_store` and `remote_file_system` call of an fsspec file system, and no more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ConfigurationError

_FILE_URL: Final = re.compile(r"file:(//)?(?=/)")


def path_of_file_url(url: str) -> str | None:
    """Return the path of a `file:` URL of this machine, such as `file:///data/store`; None for any other text.

    Raises:
        ConfigurationError: it is a `file:` URL of another machine, or of a relative path.
    """
    found = _FILE_URL.match(url)
    if found is None and url.startswith("file://"):
        raise ConfigurationError(f"url={url!r} expected file:///PATH, with an absolute path of this machine")
    return None if found is None else url[found.end() :]


class LocalStore:
    """Files by their paths. Every method raises OSError as the system does."""

    local_file: Final = True

    def __repr__(self) -> str:
        return "<LocalStore>"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget what is kept: nothing is."""

    def info(self, path: str) -> dict[str, Any]:
        """Return the kind and the length of a file."""
        is_file = os.path.isfile(path)
        return {"type": "file" if is_file else "directory", "size": os.stat(path).st_size}

    def ls(self, path: str, *, detail: bool) -> list[str]:
        """Return the paths in a directory."""
        return [os.path.join(path, name) for name in os.listdir(path)]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return a range of a file, or all of it."""
        with Path(path).open("rb") as file:
            file.seek(start or 0)
            return file.read(-1 if end is None else end - (start or 0))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)
