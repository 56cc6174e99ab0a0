"""The lint of services, `trimaran check`.

`modules` reads the user's modules; `service_check` follows the callbacks of a service through them; `walk` looks at one
function. `service.strict.rules` says what each finding means.
"""

from trimaran.cluster.service.strict.guard import StrictFinding as StrictFinding
from trimaran.cluster.service.strict.guard import StrictGuard as StrictGuard
from trimaran.cluster.service.strict.rules import RULES as RULES
from trimaran.cluster.service.strict.rules import Finding as Finding
from trimaran.cluster.service.strict.rules import Severity as Severity
from trimaran.cluster.testing.check.service_check import check_targets as check_targets
