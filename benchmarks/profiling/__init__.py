"""Profilers beside processes that are measured, and the table from functions to stages of the work."""
