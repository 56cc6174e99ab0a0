"""`python -m trimaran.archive`: the archive commands by themselves, without the cluster's messages."""

import os

from .disk_errors import StoreFailure, explain_error
from .errors import ArchiveError
from .tool.app import app
from .tool.output import fail, status_of_failure


def main() -> None:
    """Run the command line; what a disk or an archive refuses ends in one line."""
    os.umask(0o077)  # what a command writes may hold what clients sent: it is for the user alone
    try:
        app(prog_name="python -m trimaran.archive")
    except StoreFailure as error:
        fail(str(error), status_of_failure(error))
    except OSError as error:
        fail(str(explain_error(error, "use")))
    except ArchiveError as error:
        fail(str(error))


if __name__ == "__main__":
    main()
