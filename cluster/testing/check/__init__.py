"""The lint of services, `trimaran check`.

`modules` reads the user's modules; `walk` follows a callback through them, with the `values` that names have, and notes
what is `seen`; `rules` judges that. `service_check` finds the services. `service.strict.rules` has the rules' texts.
"""

from ...service.strict.guard import StrictFinding as StrictFinding
from ...service.strict.guard import StrictGuard as StrictGuard
from ...service.strict.rules import RULES as RULES
from ...service.strict.rules import Finding as Finding
from ...service.strict.rules import Severity as Severity
from .service_check import check_targets as check_targets
