"""The machine under a measurement: its software, its disk, its processors, and where a run keeps its files."""
