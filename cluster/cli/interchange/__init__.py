"""The commands between Trimaran and Aeron.

`import_aeron` takes over what an Aeron Cluster left · `export_aeron` writes a directory for an Aeron member · `passes`
is what both show and take
"""
