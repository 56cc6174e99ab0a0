"""`python -m trimaran.archive`: the archive commands by themselves, without the cluster's messages."""

from .errors import ArchiveError
from .tool.app import app
from .tool.output import fail


def main() -> None:
    """Run the command line; what a disk or an archive refuses ends in one line."""
    try:
        app(prog_name="python -m trimaran.archive")
    except (ArchiveError, OSError) as error:
        fail(str(error))


if __name__ == "__main__":
    main()
