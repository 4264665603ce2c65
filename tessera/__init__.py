"""Tessera: kernels for AMD GPUs, written in Python over tiles, that run on any machine.

import tessera as ts

@ts.jit
def scale(x, y, factor, N: ts.constexpr = 1024):
    i = ts.program_id(0)
    ts.store(y, i, (ts.load(x, i, shape=N) * factor).astype(y.dtype))

scale[ts.cdiv(x.size, 1024)](x, y, 2.0)
"""

from . import errors as errors
from . import runtime as runtime
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool_
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import uint8 as uint8
from .dtypes import uint16 as uint16
from .dtypes import uint32 as uint32
from .dtypes import uint64 as uint64
from .errors import TesseraError as TesseraError
from .frontend.api import *  # noqa: F403  (its __all__ is the language)
from .frontend.parameters import Array as Array
from .frontend.parameters import constexpr as constexpr
from .jit import JitFunction as JitFunction
from .jit import jit as jit
from .runtime import DeviceArray as DeviceArray
from .version import VERSION

__version__ = VERSION
bool = bool_  # as numpy.bool: a dtype's name is its name here
