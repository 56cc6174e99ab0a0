"""The archive that runs: recordings, replays, repair and edits of one directory."""
