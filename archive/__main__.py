"""`python -m archive`: the archive commands by themselves, without the cluster's messages."""

from .tool import app

if __name__ == "__main__":
    app(prog_name="python -m archive")
