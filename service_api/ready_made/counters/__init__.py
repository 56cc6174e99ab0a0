"""Counters with bounds, and rate limits: `messages` are what clients say, `service` what members run."""

from .messages import AdmissionAnswer as AdmissionAnswer
from .messages import AskAdmission as AskAdmission
from .messages import Counted as Counted
from .messages import CounterError as CounterError
from .messages import CountUp as CountUp
from .messages import DefineRateLimit as DefineRateLimit
from .messages import DeleteCounter as DeleteCounter
from .messages import DeleteRateLimit as DeleteRateLimit
from .messages import ListCounters as ListCounters
from .messages import ListRateLimits as ListRateLimits
from .messages import OutOfBoundsError as OutOfBoundsError
from .messages import RateLimit as RateLimit
from .messages import ReadCounter as ReadCounter
from .messages import SetCounter as SetCounter
from .messages import UnknownRateLimitError as UnknownRateLimitError
from .service import CounterService as CounterService
