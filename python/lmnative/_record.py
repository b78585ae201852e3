# SPDX-License-Identifier: Apache-2.0
"""Small value objects. Not dataclasses: importing those costs more than importing this whole package."""

from __future__ import annotations


class Record:
    """Attributes listed in ``__slots__``, given by keyword; printed by value."""

    __slots__: tuple[str, ...] = ()

    def __init__(self, **values: object) -> None:
        for name in self.__slots__:
            setattr(self, name, values.pop(name))
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(values)}")

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def as_dict(self) -> dict[str, object]:
        """The fields as a dictionary, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
