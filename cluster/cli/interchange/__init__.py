"""The commands that write directories for the other side: `export_aeron` for an Aeron member.

`archive_import`, beside this folder, takes over what an Aeron Cluster left.
"""
