"""Functions of Python steps: found in a module or a file, and called with DataFrames. Errors name the line.

The functions of a file are sent to the executors with the code, so the file need not be installed there. A module must
be.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.core.errors import InvalidRequest
from penstock.spark.pipeline.file.model import Function
from penstock.spark.pipeline.file.sections import advice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES: Final = "penstock_pipeline_files"


def find(function: Function) -> Callable[..., Any]:
    """Return the function. Raises `InvalidRequest` if it is missing, or no function."""
    module = _file(Path(function.place)) if function.is_file else _module(function.place)
    found = getattr(module, function.name, None)
    if callable(found):
        return cast("Callable[..., Any]", found)
    known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    what = "is no function" if found is not None else "is not there"
    raise InvalidRequest(f"{function.name} {what} in {function.place}; {advice(function.name, known)}")


def call(function: Function, frames: Sequence[DataFrame]) -> DataFrame:
    """Return the function's DataFrame. Raises `InvalidRequest` for any error in it, with the line."""
    from pyspark.sql import DataFrame

    made = find(function)
    try:
        result = made(*frames)
    except Exception as error:
        raise InvalidRequest(f"{function}: {_error_with_line(error)}") from error
    if not isinstance(result, DataFrame):
        raise InvalidRequest(f"{function} gave {type(result).__name__}, and a DataFrame is wanted")
    return result


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"there is no module {error.name}: install it, or name a file as file.py:function"
        ) from None
    except Exception as error:
        raise InvalidRequest(f"the module {name} cannot be imported: {_error_with_line(error)}") from error


def _file(path: Path) -> ModuleType:
    from pyspark.cloudpickle import register_pickle_by_value

    name = f"{_FILES}.{path.stem}_{abs(hash(str(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidRequest(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickle looks up the module's classes there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidRequest(f"{path} cannot be imported: {_error_with_line(error)}") from error
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _error_with_line(error: Exception) -> str:
    """Return the error, and the last line of the user's own code that led to it."""
    from penstock.spark.runtime.failures import reason

    own = [each for each in traceback.extract_tb(error.__traceback__) if "site-packages" not in each.filename]
    own = [each for each in own if not each.filename.endswith(Path(__file__).name) and "importlib" not in each.filename]
    said = f"{type(error).__name__}: {reason(error)}"
    return f"line {own[-1].lineno} of {Path(own[-1].filename).name}: {said}" if own else said
