"""docs/performance.md: `performance_page` writes it, of `sections` and `tails`; `markdown` has tables and words, and
`plots` draws. Needs `trimaran[report]`, for matplotlib.
"""
