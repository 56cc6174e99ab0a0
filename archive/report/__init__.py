"""The standard analyses as figures and as one page: needs `quorate[spark]`.

Begin: `figures` (one function for each analysis), `captions` (what there is to see), `page` (the page of
`quorate report`).
"""

from . import captions as captions
from . import figures as figures
