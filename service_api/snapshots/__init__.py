"""Writing and loading large states.

`pieces` puts many values into each message of a snapshot.
"""

from .pieces import encode_pieces as encode_pieces
from .pieces import read_pieces as read_pieces
