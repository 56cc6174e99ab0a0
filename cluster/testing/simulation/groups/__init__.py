"""Clusters with groups: `drawing` says which seeds have them, `rules` what holds, `stranger` is a bad client."""
