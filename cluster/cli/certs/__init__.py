"""`trimaran certs`: certificates for development, and what any certificate says.

`init` makes an authority, and what members and their users need; `issue` signs one more, or a new one in the place of
an old one; `show` explains a file. A company's own authority does the same with the URIs that `show` names.

Exit status: 0 success; 2 wrong usage, or a file cannot be used.
"""

from typing import Final

from ....archive.tool.output import new_group
from .init import init
from .issue import issue
from .show import show

app: Final = new_group("Make certificates for development, and explain any certificate.")
app.command(epilog="Example: trimaran certs init certs --members 3 --host node-0.example --host 10.0.0.1")(init)
app.command(epilog="Example: trimaran certs issue certs member/3 --host node-3.example")(issue)
app.command(epilog="Example: trimaran certs show certs/member-0.pem")(show)
