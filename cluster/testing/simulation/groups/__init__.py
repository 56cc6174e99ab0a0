"""Clusters with groups: `drawing` says which seeds have them, `stranger` is a bad client; `rules` has their rules."""
