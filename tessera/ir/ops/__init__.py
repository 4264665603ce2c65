"""The ops of Tile IR, one class each."""

from . import arith as arith
from . import control as control
from . import matrix as matrix
from . import memory as memory
from . import shape as shape
