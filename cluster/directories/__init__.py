"""Whole directories of members, read and written: ours and Aeron's.

`source` finds what a directory holds, `survey` judges it as a start does, `agreement` compares the members of a
cluster, and `copying` writes a directory whole.
"""
