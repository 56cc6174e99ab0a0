"""What the benchmarks' JSON looks like as figures: a page for a browser, and the plots of docs/performance.md.

`files` reads what scenarios write; `figures` draws it, in the style of `report`; `captions` says what there is
to see; `sections` lays both out; `building` makes the page. Needs `trimaran[report]`, for matplotlib and jinja2.
"""
