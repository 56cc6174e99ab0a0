"""Groups: a cluster whose keys are divided among several logs. `key_hash` takes a key to a slot, `group` a slot on."""

from .group import GROUP_COUNT_MAX as GROUP_COUNT_MAX
from .group import ONLY_GROUP as ONLY_GROUP
from .group import CrossGroupError as CrossGroupError
from .group import Group as Group
from .group import GroupTable as GroupTable
from .group import WrongGroupError as WrongGroupError
from .key_hash import SLOT_COUNT as SLOT_COUNT
from .key_hash import GroupKey as GroupKey
from .key_hash import slot_of as slot_of
