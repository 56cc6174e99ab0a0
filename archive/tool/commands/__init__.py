"""What `trimaran archive` offers, a module an idea: `describe`, `verify`, `checksum`, `catalog` (what changes it), and
`grep`, `tail`, `diff`, which read messages. `live` and `rows` is what they share. `app` puts them together.
"""
