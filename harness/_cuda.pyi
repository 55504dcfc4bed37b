# The compiled module, for type checkers only; csrc/bindings.cpp and csrc/bindings/ are its source.
from typing import Any

def __getattr__(name: str) -> Any: ...
