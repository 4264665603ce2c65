"""The checking mode: what only hardware would show, found on the CPU.

`waits` finds missing waits before anything runs, and `hazards` a kind that only some chips need. `observer` builds checks into a kernel's
code as it is lifted: undefined data (`shadow`, `rules`, `matrices`) and races (`records`). `session` is one launch, and words what it
found. `effects` and `flow` are what is known of a kernel's instructions and registers without running.
"""

from .observer import Observer
from .session import Session

__all__ = ["Observer", "Session"]
