"""The log on disk: messages, where their fields lie, slots of `recording.log`."""
