"""Types of the backend's public names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nnc import Model

class Report:
    parts: int
    missing: dict[str, str]
    seconds: float
    def __init__(self, parts: int, missing: dict[str, str], seconds: float = ...) -> None: ...
    @property
    def whole(self) -> bool: ...

reports: list[Report]

def backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = ..., **kwargs: Any
) -> Callable[..., Any]: ...
def compile_module(
    module: torch.nn.Module, args: Sequence[Any] = ..., kwargs: Mapping[str, Any] | None = ..., **options: Any
) -> Model: ...
