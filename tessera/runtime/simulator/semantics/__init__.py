"""The meaning of instructions, filed by kind. Importing this fills and checks the table."""

from . import compare as compare
from . import convert as convert
from . import floating as floating
from . import lane as lane
from . import packed as packed
from . import scalar as scalar
from . import scalar_float as scalar_float
from . import transcendental as transcendental
from . import vector as vector
from .table import FloatMode as FloatMode
from .table import Generation as Generation
from .table import Semantic as Semantic
from .table import check_table, generation_of, lookup, mnemonics

check_table()

__all__ = ["FloatMode", "Generation", "Semantic", "generation_of", "lookup", "mnemonics"]
