"""The replicated log on disk: its messages, where their fields lie, and the slots of `recording.log`."""
