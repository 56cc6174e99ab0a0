"""The standard analyses as figures and as one page: needs `trimaran[report]`.

Begin: `figures` (one function for each analysis), `captions` (what there is to see in it). The page of
`trimaran report`: `building` runs the analyses, `sections` lays out what they give, `page` is the HTML; `engine` is
what the analyses run on.
"""

from . import extra as extra

# isort: split
from . import captions as captions
from . import figures as figures
