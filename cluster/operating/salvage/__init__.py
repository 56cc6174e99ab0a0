"""Making a cluster of what is left of another one: `trimaran recover`.

`holding` reads what one directory holds, `choice` says which is the most complete, `living` who of the old members
still runs, `writing` makes the new members' directories.
"""
