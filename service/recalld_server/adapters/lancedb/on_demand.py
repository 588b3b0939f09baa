"""Packages whose own code runs only when something of it is asked for."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class _OnDemand(ModuleType):
    """A package that is in place, so that its submodules import at once, and not yet run."""

    def __getattr__(self, name: str) -> Any:
        # Only names that the package lacks come here, so the first of its own is what runs it.
        object.__setattr__(self, "__class__", ModuleType)
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def import_on_demand(name: str) -> None:
    """Puts off what `import name` would run until a name of the package itself is used; its submodules stay as they
    are. Does nothing for a package that is not there, or is imported already."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _OnDemand
        sys.modules[name] = package
