"""Blocking clients, made from the asyncio ones.

`facade` makes a blocking class of an asyncio class. `session`, `groups` and `parameters` have what blocking clients do
in their own way.
"""
