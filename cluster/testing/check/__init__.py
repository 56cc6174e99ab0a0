"""The lint of services, `trimaran check`.

`modules` reads the user's modules; `service_check` follows the callbacks of a service through them; `walk` looks at one
function. `service.strict.rules` says what each finding means.
"""

from ...service.strict.guard import StrictFinding as StrictFinding
from ...service.strict.guard import StrictGuard as StrictGuard
from ...service.strict.rules import RULES as RULES
from ...service.strict.rules import Finding as Finding
from ...service.strict.rules import Severity as Severity
from .service_check import check_targets as check_targets
