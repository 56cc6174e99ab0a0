"""The lint of services, `trimaran check`.

`modules` reads the user's modules; `service_check` follows the callbacks of a service through them; `walk` looks at one
function and `rules` says what each finding means.
"""

from .rules import RULES as RULES
from .rules import Finding as Finding
from .rules import Severity as Severity
from .service_check import check_targets as check_targets
from .strict import StrictFinding as StrictFinding
from .strict import StrictGuard as StrictGuard
